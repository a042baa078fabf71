//! The keys of a settings file: what is known, of what type. Unknown keys are told with the nearest known one, wrong types are
//! errors with the path of the key.

use serde_json::{Map, Value};

/// What a value has to be.
pub(super) enum Kind {
    Text,
    Flag,
    /// A number that is not negative.
    Number,
    /// One of these words.
    OneOf(&'static [&'static str]),
    List(&'static Kind),
    /// An object with keys of the user's own.
    Map(&'static Kind),
    Object(&'static [(&'static str, Kind)]),
    Any,
}

const TEXTS: Kind = Kind::List(&Kind::Text);
const HOOKS: Kind = Kind::List(&Kind::Object(&[
    ("matcher", Kind::Text),
    (
        "hooks",
        Kind::List(&Kind::Object(&[
            ("type", Kind::OneOf(&["command"])),
            ("command", Kind::Text),
            ("timeout", Kind::Number),
        ])),
    ),
]));

/// The keys of `settings.json`.
pub(super) const SETTINGS: Kind = Kind::Object(&[
    ("$schema", Kind::Text),
    ("model", Kind::Text),
    ("modelAliases", Kind::Map(&Kind::Text)),
    ("thinking", Kind::OneOf(&["off", "minimal", "low", "medium", "high", "max"])),
    (
        "permissions",
        Kind::Object(&[("allow", TEXTS), ("ask", TEXTS), ("deny", TEXTS), ("additionalDirectories", TEXTS)]),
    ),
    ("additionalDirectories", TEXTS),
    ("env", Kind::Map(&Kind::Text)),
    ("mcpServers", Kind::Map(&Kind::Any)),
    ("enabledMcpServers", TEXTS),
    (
        "hooks",
        Kind::Object(&[("PreToolUse", HOOKS), ("PostToolUse", HOOKS), ("UserPromptSubmit", HOOKS), ("Stop", HOOKS)]),
    ),
    ("sandbox", Kind::Object(&[("enabled", Kind::Flag), ("network", Kind::Flag)])),
]);

/// Checks a value, and removes the keys that are not known. Their paths, with the nearest known key, are added to `unknown`.
pub(super) fn check(value: &mut Value, kind: &Kind, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let expected = |what: &str, value: &Value| {
        let place = if path.is_empty() { "the file" } else { path };
        Err(format!("{place} has to be {what}, and is {}", described(value)))
    };
    match kind {
        Kind::Any => Ok(()),
        Kind::Text if value.is_string() => Ok(()),
        Kind::Text => expected("a text", value),
        Kind::Flag if value.is_boolean() => Ok(()),
        Kind::Flag => expected("true or false", value),
        Kind::Number if value.as_f64().is_some_and(|number| number > 0.0) => Ok(()),
        Kind::Number => expected("a number above 0", value),
        Kind::OneOf(words) if value.as_str().is_some_and(|word| words.contains(&word)) => Ok(()),
        Kind::OneOf(words) => expected(&format!("one of {}", words.join(", ")), value),
        Kind::List(of) => match value {
            Value::Array(items) => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, item)| check(item, of, &format!("{path}[{index}]"), unknown)),
            other => expected("a list", other),
        },
        Kind::Map(of) => match value {
            Value::Object(fields) => {
                fields.iter_mut().try_for_each(|(name, field)| check(field, of, &joined(path, name), unknown))
            }
            other => expected("an object", other),
        },
        Kind::Object(known) => match value {
            Value::Object(fields) => object(fields, known, path, unknown),
            other => expected("an object", other),
        },
    }
}

fn object(
    fields: &mut Map<String, Value>,
    known: &[(&str, Kind)],
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    fields.retain(|name, _| {
        let is_known = known.iter().any(|(known, _)| known == name);
        if !is_known {
            let nearest = known.iter().map(|(known, _)| (strsim::jaro_winkler(known, name), *known));
            let nearest = nearest.filter(|(score, _)| *score > 0.8).max_by(|one, two| one.0.total_cmp(&two.0));
            let hint = nearest.map(|(_, known)| format!("; did you mean {known}?")).unwrap_or_default();
            unknown.push(format!("{} is not known{hint}", joined(path, name)));
        }
        is_known
    });
    known.iter().try_for_each(|(name, kind)| match fields.get_mut(*name) {
        Some(field) => check(field, kind, &joined(path, name), unknown),
        None => Ok(()),
    })
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_types_have_a_path_and_unknown_keys_a_suggestion() {
        for (wrong, said) in [
            (json!([]), "the file has to be an object, and is a list"),
            (json!({"model": 3}), "model has to be a text, and is 3"),
            (json!({"permissions": {"allow": ["a", 1]}}), "permissions.allow[1] has to be a text"),
            (json!({"thinking": "hihg"}), "thinking has to be one of off, minimal"),
            (json!({"env": {"A": true}}), "env.A has to be a text, and is true"),
            (json!({"hooks": {"Stop": [{"hooks": [{"timeout": 0}]}]}}), "hooks.Stop[0].hooks[0].timeout"),
            (json!({"sandbox": {"network": "yes"}}), "sandbox.network has to be true or false"),
        ] {
            let error = check(&mut wrong.clone(), &SETTINGS, "", &mut Vec::new()).expect_err("it is wrong");
            assert!(error.starts_with(said), "{error}");
        }
        let mut unknown = Vec::new();
        let mut settings = json!({"modle": "x", "permissions": {"alow": [], "deny": []}, "zzz": 1});
        check(&mut settings, &SETTINGS, "", &mut unknown).expect("it is right");
        unknown.sort();
        let said = [
            "modle is not known; did you mean model?",
            "permissions.alow is not known; did you mean allow?",
            "zzz is not known",
        ];
        assert_eq!(unknown, said);
        assert_eq!(settings, json!({"permissions": {"deny": []}}));
    }
}
