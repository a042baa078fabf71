//! A field of a form: which values it takes, and how a line of the user becomes a value.

use crate::print::plain;
use serde_json::{Map, Number, Value, json};

/// A field of a form that an MCP server shows.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name in the answer.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Its description.
    pub description: Option<String>,
    /// Whether the form requires it.
    pub is_required: bool,
    /// The value of an empty line: the answer so far, else the default of the server.
    pub default: Option<Value>,
    kind: Kind,
    schema: Value,
}

#[derive(Debug)]
enum Kind {
    Text,
    Whole,
    Number,
    YesNo,
    One(Vec<Choice>),
    Many(Vec<Choice>),
    /// A type that forms do not have: it is written as JSON.
    Other,
}

/// A choice of a field.
#[derive(Debug)]
pub(super) struct Choice {
    /// Its value in the answer.
    pub value: String,
    /// Its name for people, where it differs.
    pub title: Option<String>,
}

impl Field {
    /// The fields of a form: first the required ones, in the order of `required`.
    pub(super) fn all_of(schema: &Value) -> Vec<Self> {
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let wanted = required.iter().filter_map(|name| properties.get_key_value(*name));
        let others = properties.iter().filter(|(name, _)| !required.contains(&name.as_str()));
        let fields = wanted.map(|field| (field, true)).chain(others.map(|field| (field, false)));
        fields.map(|((name, schema), is_required)| Self::new(name, schema, is_required)).collect()
    }

    fn new(name: &str, schema: &Value, is_required: bool) -> Self {
        let text = |key: &str| schema[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = match schema["type"].as_str() {
            Some("array") => match choices(&schema["items"]) {
                none if none.is_empty() => Kind::Other,
                choices => Kind::Many(choices),
            },
            Some("string") => match choices(schema) {
                none if none.is_empty() => Kind::Text,
                choices => Kind::One(choices),
            },
            Some("integer") => Kind::Whole,
            Some("number") => Kind::Number,
            Some("boolean") => Kind::YesNo,
            _ => Kind::Other,
        };
        Self {
            name: name.to_owned(),
            title: text("title").unwrap_or_else(|| name.to_owned()),
            description: text("description"),
            is_required,
            default: schema.get("default").cloned(),
            kind,
            schema: schema.clone(),
        }
    }

    /// Its choices.
    pub(super) fn choices(&self) -> &[Choice] {
        match &self.kind {
            Kind::One(choices) | Kind::Many(choices) => choices,
            _ => &[],
        }
    }

    /// The values it takes, for people.
    pub(super) fn constraint(&self) -> String {
        let limit = |key: &str| self.schema[key].as_number().map(Number::to_string);
        let between = |low: &str, high: &str, of: &str| match (limit(low), limit(high)) {
            (Some(low), Some(high)) => format!(", {low} to {high}{of}"),
            (Some(low), None) => format!(", at least {low}{of}"),
            (None, Some(high)) => format!(", at most {high}{of}"),
            (None, None) => String::new(),
        };
        match &self.kind {
            Kind::Text => {
                let what = match self.schema["format"].as_str() {
                    Some("email") => "an e-mail address",
                    Some("uri") => "an address, such as https://…",
                    Some("date") => "a date, YYYY-MM-DD",
                    Some("date-time") => "a moment, YYYY-MM-DDTHH:MM:SSZ",
                    _ => "text",
                };
                format!("{what}{}", between("minLength", "maxLength", " characters"))
            }
            Kind::Whole => format!("a whole number{}", between("minimum", "maximum", "")),
            Kind::Number => format!("a number{}", between("minimum", "maximum", "")),
            Kind::YesNo => "y or n".to_owned(),
            Kind::One(_) => "one of these, by number or name".to_owned(),
            Kind::Many(_) => format!("any of these, with commas between{}", between("minItems", "maxItems", "")),
            Kind::Other => "JSON".to_owned(),
        }
    }

    /// The value of a line; none where the field is left out.
    ///
    /// # Errors
    ///
    /// The field does not take this value; the text says why.
    pub(super) fn parse(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("it is needed".to_owned()),
            };
        }
        let value = match &self.kind {
            Kind::Text => Value::from(line),
            Kind::Whole => line.parse::<i64>().map(Value::from).map_err(|_| format!("{line:?} is no whole number"))?,
            Kind::Number => number(line).ok_or_else(|| format!("{line:?} is no number"))?,
            Kind::YesNo => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Value::from(true),
                "n" | "no" | "false" => Value::from(false),
                _ => return Err(format!("{line:?} is neither y nor n")),
            },
            Kind::One(choices) => choose(choices, line)?,
            Kind::Many(choices) => {
                let parts = line.split(',').map(str::trim).filter(|part| !part.is_empty());
                Value::Array(parts.map(|part| choose(choices, part)).collect::<Result<_, _>>()?)
            }
            Kind::Other => serde_json::from_str(line).map_err(|error| format!("it is no JSON: {error}"))?,
        };
        // An invalid schema is reported by the run.
        if let Ok(validator) = jsonschema::validator_for(&self.schema)
            && let Err(error) = validator.validate(&value)
        {
            return Err(error.to_string());
        }
        Ok(Some(value))
    }

    /// A value of this field, for people.
    pub(super) fn display(&self, value: &Value) -> String {
        let named = |value: &Value| {
            let choice = self.choices().iter().find(|choice| *value == choice.value);
            choice.and_then(|choice| choice.title.clone()).unwrap_or_else(|| plain(value))
        };
        match value {
            Value::Array(values) => values.iter().map(named).collect::<Vec<_>>().join(", "),
            Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            value => named(value),
        }
    }
}

fn number(line: &str) -> Option<Value> {
    let whole = line.parse::<i64>().map(Number::from).ok();
    whole.or_else(|| Number::from_f64(line.parse().ok()?)).map(Value::Number)
}

/// The choices of a schema: constants with titles, or `enum` with `enumNames`.
fn choices(schema: &Value) -> Vec<Choice> {
    let list = |key: &str| schema[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let titled = list("oneOf").iter().chain(list("anyOf")).filter(|choice| choice["const"].is_string());
    let titled = titled.map(|choice| Choice::new(&choice["const"], choice["title"].as_str()));
    let names = list("enumNames");
    let listed = list("enum").iter().enumerate();
    titled.chain(listed.map(|(index, value)| Choice::new(value, names.get(index).and_then(Value::as_str)))).collect()
}

impl Choice {
    fn new(value: &Value, title: Option<&str>) -> Self {
        let value = plain(value);
        let title = title.filter(|title| !title.is_empty() && *title != value).map(str::to_owned);
        Self { value, title }
    }
}

fn choose(choices: &[Choice], line: &str) -> Result<Value, String> {
    let same = |text: &str| text.to_lowercase() == line.to_lowercase();
    let by_name = choices.iter().find(|choice| same(&choice.value) || choice.title.as_deref().is_some_and(same));
    let by_number = || line.parse::<usize>().ok()?.checked_sub(1).and_then(|index| choices.get(index));
    match by_name.or_else(by_number) {
        Some(choice) => Ok(json!(choice.value)),
        None => Err(format!("{line:?} is none of these; write a number from 1 to {}, or a name", choices.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(schema: Value, is_required: bool) -> Field {
        Field::new("f", &schema, is_required)
    }

    #[test]
    fn lines_become_values_of_every_kind() {
        let pick = json!({"type": "string", "enum": ["s", "2"], "enumNames": ["Small", "Two"]});
        let many = json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "Ant"}, {"const": "b", "title": "Bee"}]}});
        for (schema, line, value) in [
            (json!({"type": "string"}), "/tmp/x", json!("/tmp/x")),
            (json!({"type": "integer", "minimum": 1}), "3", json!(3)),
            (json!({"type": "number"}), "2.5", json!(2.5)),
            (json!({"type": "number"}), "2", json!(2)),
            (json!({"type": "boolean"}), "Yes", json!(true)),
            (json!({"type": "boolean"}), "n", json!(false)),
            (pick.clone(), "1", json!("s")),
            (pick.clone(), "small", json!("s")),
            // A name takes precedence over a number.
            (pick, "2", json!("2")),
            (json!({"type": "string", "oneOf": [{"const": "x", "title": "Ex"}]}), "ex", json!("x")),
            (many, "bee, 1", json!(["b", "a"])),
            (json!({"type": "array", "items": {"type": "string", "enum": ["x"]}}), "x", json!(["x"])),
            (json!({"type": "object"}), "{\"a\": 1}", json!({"a": 1})),
        ] {
            assert_eq!(field(schema.clone(), true).parse(line), Ok(Some(value)), "{schema} {line}");
        }
    }

    #[test]
    fn invalid_values_are_refused_with_the_reason() {
        for (schema, line, expected) in [
            (json!({"type": "integer"}), "3.5", "no whole number"),
            (json!({"type": "integer", "maximum": 5}), "9", "9 is greater than the maximum of 5"),
            (json!({"type": "number"}), "NaN", "no number"),
            (json!({"type": "string", "minLength": 3}), "ab", "shorter than 3 characters"),
            (json!({"type": "boolean"}), "perhaps", "neither y nor n"),
            (json!({"type": "string", "enum": ["a", "b"]}), "3", "a number from 1 to 2"),
            (json!({"type": "string"}), "", "it is needed"),
        ] {
            let message = field(schema.clone(), true).parse(line).expect_err("it does not fit");
            assert!(message.contains(expected), "{schema} {line}: {message}");
        }
        assert_eq!(field(json!({"type": "string"}), false).parse(""), Ok(None));
        assert_eq!(field(json!({"type": "integer", "default": 2}), true).parse(""), Ok(Some(json!(2))));
    }

    #[test]
    fn fields_say_what_they_want() {
        for (schema, constraint) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 5}), "a whole number, 1 to 5"),
            (json!({"type": "string", "minLength": 3}), "text, at least 3 characters"),
            (json!({"type": "string", "format": "email"}), "an e-mail address"),
            (
                json!({"type": "array", "items": {"enum": ["a"]}, "maxItems": 2}),
                "any of these, with commas between, at most 2",
            ),
        ] {
            assert_eq!(field(schema, true).constraint(), constraint);
        }
        let form = json!({"properties": {"a": {"type": "string"}, "b": {"type": "string", "title": "Bee"}, "c": {}}, "required": ["c", "b"]});
        let fields = Field::all_of(&form);
        let titles: Vec<_> = fields.iter().map(|field| (field.title.as_str(), field.is_required)).collect();
        assert_eq!(titles, [("c", true), ("Bee", true), ("a", false)]);
    }
}
