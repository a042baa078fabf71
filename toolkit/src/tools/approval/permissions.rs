//! Approval rules as settings files write them: `{"allow": ["bash(cargo test:*)", "edit"], "ask": […], "deny": […]}`.
//!
//! | written | holds for |
//! | --- | --- |
//! | `edit`, `mcp__files__*`, `mcp__files` | all calls of a tool, or of the tools of a server |
//! | `bash(cargo test:*)`, `bash(cargo test *)` | commands that begin with these words |
//! | `bash(make clean)` | this command |
//! | `edit(src/**)` | calls with a path that matches |
//!
//! Names of tools are read in either case, and those of others stand for ours (`Glob` is `find`).

use super::{Decision, Rule};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a settings file says of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Permissions {
    /// Calls that run without a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Calls that need one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Calls that never run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// A permission that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionFault {
    /// As it is written.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for PermissionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the permission {:?} cannot be used: {}", self.text, self.reason)
    }
}

impl Permissions {
    /// The rules that they mean, and what of them cannot be used. A permission to ask or deny whose command or path is not
    /// understood still holds: for every call of its tool.
    pub fn rules(&self) -> (Vec<Rule>, Vec<PermissionFault>) {
        let (mut rules, mut faults) = (Vec::new(), Vec::new());
        let all = [(&self.allow, Decision::Allow), (&self.ask, Decision::Ask), (&self.deny, Decision::Deny)];
        for (written, decision) in
            all.into_iter().flat_map(|(written, decision)| written.iter().map(move |text| (text, decision)))
        {
            match read(written, decision) {
                Ok(found) => rules.extend(found),
                Err(reason) => {
                    if decision != Decision::Allow {
                        let (name, _) = parted(written);
                        rules.extend(tools_of(name, decision).into_iter().map(|tool| Rule::new(tool, decision)));
                    }
                    faults.push(PermissionFault { text: written.clone(), reason });
                }
            }
        }
        (rules, faults)
    }
}

/// A rule as a settings file writes it; none for a rule that would be read as another one.
pub fn permission(rule: &Rule) -> Option<String> {
    let written = match (&rule.command, &rule.exact, &rule.path) {
        (None, None, None) => rule.tool.clone(),
        (Some(command), None, None) => format!("{}({command}:*)", rule.tool),
        (None, Some(text), None) => format!("{}({text})", rule.tool),
        (None, None, Some(path)) => format!("{}({path})", rule.tool),
        _ => return None,
    };
    (read(&written, rule.decision).as_deref() == Ok(std::slice::from_ref(rule))).then_some(written)
}

/// The name of the tool, and what stands in the brackets behind it.
fn parted(text: &str) -> (&str, Option<&str>) {
    let text = text.trim();
    match text.split_once('(') {
        Some((name, rest)) => (name.trim(), rest.strip_suffix(')')),
        None => (text, None),
    }
}

fn read(text: &str, decision: Decision) -> Result<Vec<Rule>, String> {
    let (name, inside) = parted(text);
    if name.is_empty() {
        return Err("it names no tool".into());
    }
    if text.contains('(') && inside.is_none() {
        return Err("its bracket is not closed".into());
    }
    let tools = tools_of(name, decision);
    let rules = tools.into_iter().map(|tool| match inside.map(str::trim) {
        None | Some("" | "*" | ":*") => Ok(Rule::new(tool, decision)),
        Some(inside) if tool == "bash" => of_command(Rule::new(tool, decision), inside),
        Some(path) if ["read", "write", "edit", "grep", "find"].contains(&tool.as_str()) => {
            of_path(Rule::new(tool, decision), path)
        }
        Some(_) => Err(format!("{tool} takes nothing in brackets here")),
    });
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    match rules.iter().find_map(|rule| super::Compiled::new(rule).err()) {
        Some(error) => Err(error.message().to_owned()),
        None => Ok(rules),
    }
}

/// Our names of the tools that a permission names. What is not to be read or changed is not to be by any tool.
fn tools_of(name: &str, decision: Decision) -> Vec<String> {
    let strict = decision != Decision::Allow;
    let lower = name.to_ascii_lowercase();
    let known: &[&str] = match (lower.as_str(), strict) {
        ("bash" | "shell", _) => &["bash"],
        ("read", false) => &["read"],
        ("read", true) => &["read", "grep", "find"],
        ("write", _) => &["write"],
        ("edit" | "multiedit", false) => &["edit"],
        ("edit" | "multiedit", true) => &["edit", "write"],
        ("grep", _) => &["grep"],
        ("glob" | "find" | "ls", _) => &["find"],
        _ => &[],
    };
    match known {
        [] if name.starts_with("mcp__") && !name["mcp__".len()..].contains("__") && !name.contains('*') => {
            vec![format!("{name}__*")]
        }
        [] => vec![name.to_owned()],
        known => known.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn of_command(rule: Rule, inside: &str) -> Result<Rule, String> {
    let beginning = inside.strip_suffix(":*").or_else(|| inside.strip_suffix(" *"));
    match beginning.map(str::trim) {
        Some(words) if words.contains('*') => Err("a * is understood only at the end".into()),
        Some(words) => Ok(rule.with_command(words)),
        None => Ok(rule.with_exact(inside)),
    }
}

fn of_path(rule: Rule, path: &str) -> Result<Rule, String> {
    let path = match path {
        absolute if absolute.starts_with("//") => absolute[1..].to_owned(),
        home if home.starts_with("~/") => {
            let folder = std::env::var("HOME").map_err(|_| "this process has no home directory".to_owned())?;
            format!("{}/{}", folder.trim_end_matches('/'), &home[2..])
        }
        other => other.trim_start_matches("./").trim_start_matches('/').to_owned(),
    };
    // A name alone is not to be touched wherever it is.
    let anywhere = rule.decision != Decision::Allow && !path.contains('/');
    Ok(rule.with_path(if anywhere { format!("**/{path}") } else { path }))
}

#[cfg(test)]
mod tests {
    use super::super::{ApprovalPolicy, ApprovalRequest};
    use super::*;
    use crate::tools::Effect;
    use serde_json::json;

    fn permissions(allow: &[&str], ask: &[&str], deny: &[&str]) -> Permissions {
        let all = |given: &[&str]| given.iter().map(|&text| text.to_owned()).collect();
        Permissions { allow: all(allow), ask: all(ask), deny: all(deny) }
    }

    fn decide(permissions: &Permissions, name: &str, effect: Effect, arguments: serde_json::Value) -> Decision {
        let (rules, _) = permissions.rules();
        let policy = ApprovalPolicy { rules, ..ApprovalPolicy::default() };
        policy.compile().expect("rules").decide(name, effect, &arguments)
    }

    #[test]
    fn settings_that_people_have_are_read() {
        let given = permissions(
            &["Bash(cargo test:*)", "bash(git status *)", "Bash(make clean)", "Edit(src/**)", "mcp__files", "WebFetch"],
            &["Bash(git push:*)"],
            &["Read(.env)", "Edit(/secrets/**)"],
        );
        let bash = |command: &str| decide(&given, "bash", Effect::Exec, json!({ "command": command }));
        for (command, decision) in [
            ("cargo test -p core", Decision::Allow),
            ("cargo test && git status --short | make clean", Decision::Allow),
            ("make clean all", Decision::Ask),
            ("cargo testament", Decision::Ask),
            ("cargo test; rm x", Decision::Ask),
            ("git push", Decision::Ask),
        ] {
            assert_eq!(bash(command), decision, "{command}");
        }
        let path = |name: &str, effect, path: &str| decide(&given, name, effect, json!({ "path": path }));
        assert_eq!(path("edit", Effect::Write, "src/a/b.rs"), Decision::Allow);
        assert_eq!(path("write", Effect::Write, "src/a/b.rs"), Decision::Ask, "only what is named is allowed");
        assert_eq!(path("write", Effect::Write, "secrets/key"), Decision::Deny, "a change is a change");
        assert_eq!(path("write", Effect::Write, "/work/project/secrets/key"), Decision::Deny);
        for (name, place) in [("read", ".env"), ("read", "a/.env"), ("grep", ".env"), ("read", "/work/.env")] {
            assert_eq!(path(name, Effect::Read, place), Decision::Deny, "{name} {place}");
        }
        assert_eq!(decide(&given, "mcp__files__put", Effect::Exec, json!({})), Decision::Allow);
        assert_eq!(decide(&given, "mcp__filesystem__put", Effect::Exec, json!({})), Decision::Ask);
    }

    #[test]
    fn what_is_not_understood_is_said_and_stays_strict() {
        let given = permissions(&["bash(git * main:*)", "bash(ls", "(x)"], &[], &["bash(git * main:*)", "edit([)"]);
        let (rules, faults) = given.rules();
        let reasons: Vec<_> = faults.iter().map(|fault| fault.text.as_str()).collect();
        assert_eq!(reasons, ["bash(git * main:*)", "bash(ls", "(x)", "bash(git * main:*)", "edit([)"]);
        assert!(rules.iter().all(|rule| rule.decision == Decision::Deny), "{rules:?}");
        assert_eq!(decide(&given, "bash", Effect::Exec, json!({ "command": "ls" })), Decision::Deny);
        assert_eq!(decide(&given, "write", Effect::Write, json!({ "path": "a" })), Decision::Deny);
    }

    #[test]
    fn a_rule_is_written_only_as_what_is_read_again() {
        let request = |line: &str| {
            ApprovalRequest::new("1", "bash", Effect::Exec, &json!({ "command": line })).expect("a request")
        };
        let written = |line: &str| request(line).alike().iter().map(permission).collect::<Option<Vec<_>>>();
        let texts = |all: &[&str]| Some(all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert_eq!(
            written("cargo test -q && ls -la 'a b' | grep x"),
            texts(&["bash(cargo test:*)", "bash(ls -la 'a b')", "bash(grep x:*)"])
        );
        assert_eq!(written("echo $(date)"), texts(&["bash(echo $(date))"]));
        assert_eq!(written("rm build/*"), texts(&["bash(rm build/*)"]));
        assert_eq!(written("rm *"), None, "it would be read as every rm");
        assert_eq!(permission(&Rule::new("edit", Decision::Allow)).as_deref(), Some("edit"));
    }
}
