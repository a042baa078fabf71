//! Permission rules as people write them, `bash(cargo test:*)`, `edit`, `Read(./secrets/**)`, `mcp__files__*`, as rules of an
//! approval policy. The names that Claude Code has for tools are read too.

use flovyn_toolkit::tools::approval::{Decision, Rule};

/// The tools that go by other names elsewhere, and the tools here that such a name covers.
const NAMES: [(&str, &str); 11] = [
    ("Bash", "bash"),
    ("Edit", "{edit,write}"),
    ("Glob", "find"),
    ("Grep", "grep"),
    ("LS", "find"),
    ("MultiEdit", "edit"),
    ("NotebookEdit", "edit"),
    ("Read", "{find,grep,read}"),
    ("TodoWrite", "todo"),
    ("WebFetch", "fetch"),
    ("Write", "write"),
];

/// The tools that run a command, whose rules may name its beginning.
const COMMANDS: [&str; 2] = ["bash", "run-sandbox"];

/// Splits a list of rules at commas and white space that are in no parentheses.
pub(crate) fn split(list: &str) -> Vec<&str> {
    let rules = split_at(list, |letter| letter == ',' || letter.is_whitespace());
    rules.into_iter().map(str::trim).filter(|rule| !rule.is_empty()).collect()
}

/// Splits a list at its commas alone.
pub(super) fn split_list(list: &str) -> Vec<&str> {
    split_at(list, |letter| letter == ',')
}

fn split_at(list: &str, separates: impl Fn(char) -> bool) -> Vec<&str> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (place, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && separates(letter) => {
                items.push(&list[start..place]);
                start = place + letter.len_utf8();
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    items
}

/// The pattern of the tools here that go by a name.
pub(super) fn tool_pattern(name: &str) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, here)| *here);
    match name.strip_prefix("mcp__") {
        // A server alone stands for all it has.
        Some(server) if !server.contains("__") && !server.ends_with('*') => format!("{name}__*"),
        _ => known.unwrap_or(name).to_owned(),
    }
}

/// Reads a rule.
///
/// # Errors
///
/// It is no rule, or it cannot be kept as it is written; in words that go on from "the rule …".
pub(crate) fn parse(text: &str, decision: Decision) -> Result<Rule, String> {
    let (name, inside) = match text.split_once('(') {
        None if text.contains(')') => return Err("has a \")\" without a \"(\"".to_owned()),
        None => (text, None),
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(inside) => (name.trim_end(), Some(inside.trim())),
            None => return Err("has a \"(\" and does not end with \")\"".to_owned()),
        },
    };
    if name.is_empty() {
        return Err("names no tool; write edit or bash(cargo test:*)".to_owned());
    }
    let tool = tool_pattern(name);
    let rule = Rule::new(&tool, decision);
    match inside {
        None | Some("" | "*") => Ok(rule),
        Some(inside) if COMMANDS.contains(&tool.as_str()) && decision == Decision::Allow && !inside.contains('*') => {
            Ok(rule.with_exact(inside))
        }
        Some(inside) if COMMANDS.contains(&tool.as_str()) => {
            command(inside, decision).map(|words| rule.with_command(words))
        }
        Some(_) if name.starts_with("mcp__") || name.contains("Fetch") || name.contains("Search") => match decision {
            // A refusal that covers more than it says is safe.
            Decision::Deny | Decision::Ask => Ok(rule),
            Decision::Allow => Err(format!("narrows {name}, which is not possible here; name the tool alone")),
        },
        Some(inside) => Ok(rule.with_path(path(inside))),
    }
}

/// A rule as it is written; none for one that would be read as another.
pub(super) fn written(rule: &Rule) -> Option<String> {
    let text = match (&rule.command, &rule.exact, &rule.path) {
        (None, None, None) => rule.tool.clone(),
        (Some(command), None, None) if command.ends_with('*') => format!("{}({command})", rule.tool),
        (Some(command), None, None) => format!("{}({command}:*)", rule.tool),
        (None, Some(text), None) => format!("{}({text})", rule.tool),
        _ => return None,
    };
    (parse(&text, rule.decision).as_ref() == Ok(rule)).then_some(text)
}

/// The beginning of the commands that a rule means. As in Claude Code, `ls:*` and `ls *` are `ls` with anything behind it,
/// and `ls*` is also `lsof`.
fn command(inside: &str, decision: Decision) -> Result<String, String> {
    let words = inside.strip_suffix(":*").or_else(|| inside.strip_suffix(" *")).unwrap_or(inside).trim_end();
    // What is refused is refused with more arguments, too.
    let (before, after) = words.split_once('*').map_or((words, None), |(before, after)| (before, Some(after)));
    match after {
        None if before.is_empty() => Err("names no command".to_owned()),
        Some(_) if before.trim().is_empty() => Err("begins with a *; name the command's first word".to_owned()),
        Some(after) if decision == Decision::Allow && !after.is_empty() => {
            Err("has a * in the middle of a command; only its beginning can be named".to_owned())
        }
        Some(_) if !before.ends_with(char::is_whitespace) => Ok(format!("{before}*")),
        _ => Ok(before.trim_end().to_owned()),
    }
}

/// The pattern of a path: relative to the working directory, at any depth where it has no folder.
fn path(inside: &str) -> String {
    let plain = inside.strip_prefix("./").unwrap_or(inside);
    match plain.contains('/') {
        true => {
            plain.strip_prefix("//").map_or_else(|| plain.trim_start_matches('/').to_owned(), |rest| format!("/{rest}"))
        }
        false => format!("**/{plain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_toolkit::tools::Effect;
    use flovyn_toolkit::tools::approval::ApprovalPolicy;
    use serde_json::json;

    #[test]
    fn a_list_is_split_outside_of_parentheses() {
        assert_eq!(split("bash(git log:*, x), edit mcp__files__*,"), ["bash(git log:*, x)", "edit", "mcp__files__*"]);
        assert!(split(" ").is_empty());
    }

    #[test]
    fn rules_hold_for_what_they_say() {
        let decided = |rule: &str, decision, name: &str, effect, arguments| {
            let policy = ApprovalPolicy::default().with(parse(rule, decision).expect(rule));
            policy.compile().expect("rules").decide(name, effect, &arguments)
        };
        let run = |line: &str| json!({ "command": line });
        let at = |path: &str| json!({ "path": path });
        let (allow, deny) = (Decision::Allow, Decision::Deny);
        for (rule, decision, name, effect, arguments, wanted) in [
            ("bash(cargo test:*)", allow, "bash", Effect::Exec, run("cargo test -q"), allow),
            ("bash(cargo test:*)", allow, "bash", Effect::Exec, run("cargo publish"), Decision::Ask),
            ("Bash(git *)", allow, "bash", Effect::Exec, run("git status"), allow),
            ("Bash(make clean)", allow, "bash", Effect::Exec, run("make clean"), allow),
            ("Bash(make clean)", allow, "bash", Effect::Exec, run("make clean all"), Decision::Ask),
            ("Bash(echo $(date))", allow, "bash", Effect::Exec, run("echo $(date)"), allow),
            ("Bash(rm:*)", deny, "bash", Effect::Exec, run("ls && rm -r x"), deny),
            ("Bash(curl)", deny, "bash", Effect::Exec, run("curl https://example.com"), deny),
            ("Bash(rm*)", deny, "bash", Effect::Exec, run("ls && rmdir x"), deny),
            ("Bash(rm*)", deny, "bash", Effect::Exec, run("rm x"), deny),
            ("Bash(rm *)", deny, "bash", Effect::Exec, run("rmdir x"), Decision::Ask),
            ("Bash(rm:*)", deny, "bash", Effect::Exec, run("rmdir x"), Decision::Ask),
            ("Bash(rm* -rf)", deny, "bash", Effect::Exec, run("rmdir -p x"), deny),
            ("Bash(git push* main)", deny, "bash", Effect::Exec, run("git push-all"), deny),
            ("Bash(npm run test*)", allow, "bash", Effect::Exec, run("npm run test:unit -- -q"), allow),
            ("Bash(npm run test*)", allow, "bash", Effect::Exec, run("npm run test"), allow),
            ("Bash(npm run test*)", allow, "bash", Effect::Exec, run("npm run deploy"), Decision::Ask),
            ("Bash(npm run test*)", allow, "bash", Effect::Exec, run("npm run tests && rm x"), Decision::Ask),
            ("Bash(npm run test:*)", allow, "bash", Effect::Exec, run("npm run tests"), Decision::Ask),
            ("Bash(ls *)", allow, "bash", Effect::Exec, run("lsof"), Decision::Ask),
            ("edit", allow, "edit", Effect::Write, at("a"), allow),
            ("edit", allow, "write", Effect::Write, at("a"), Decision::Ask),
            ("Edit", allow, "write", Effect::Write, at("a"), allow),
            ("Edit(src/**)", allow, "edit", Effect::Write, at("src/a/b.rs"), allow),
            ("Edit(src/**)", allow, "edit", Effect::Write, at("other/a.rs"), Decision::Ask),
            ("Read(.env)", deny, "read", Effect::Read, at("a/.env"), deny),
            ("Read(./secrets/**)", deny, "grep", Effect::Read, at("secrets/key"), deny),
            ("mcp__files", deny, "mcp__files__open", Effect::Read, json!({}), deny),
            ("mcp__files__*", allow, "mcp__files__open", Effect::Exec, json!({}), allow),
            ("WebFetch(domain:example.com)", deny, "fetch", Effect::Exec, json!({}), deny),
        ] {
            assert_eq!(
                decided(rule, decision, name, effect, arguments.clone()),
                wanted,
                "{rule} for {name} {arguments}"
            );
        }
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for text in ["bash(rm*)", "bash(git push:*)", "bash(npm run test*)", "edit"] {
            let rule = parse(text, Decision::Deny).expect(text);
            assert_eq!(written(&rule).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_cannot_be_kept_is_no_rule() {
        for (rule, said) in [
            ("bash(cargo test", "does not end with"),
            ("bash)", "without a"),
            ("(x)", "names no tool"),
            ("bash(git * main)", "in the middle"),
            ("bash(git* main)", "in the middle"),
            ("bash(*rm)", "begins with a *"),
            ("WebFetch(domain:a)", "not possible here"),
        ] {
            let error = parse(rule, Decision::Allow).expect_err(rule);
            assert!(error.contains(said), "{rule}: {error}");
        }
    }
}
