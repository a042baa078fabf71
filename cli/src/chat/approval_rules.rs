//! The rules by which calls are allowed without asking the user: `--approve`, and calls answered with "always".

use super::tools::ToolName;
use crate::project::permission;
use crate::{Failed, Result};
use flovyn_toolkit::tools::Effect;
use flovyn_toolkit::tools::approval::{
    ApprovalAnswer, ApprovalPolicy, ApprovalRequest, Approvals, Decision, Otherwise, Rule,
};
use serde_json::Value;

/// The reason of calls that the policy of `--approve` denies.
const DENIED: &str = "The user's policy does not allow it.";

/// The approval rules of a user. They belong to this process; the run itself asks about every call that is not a read.
pub(super) struct ApprovalRules {
    policy: ApprovalPolicy,
    compiled: Approvals,
    /// The rules of options: the option, the text, what it means.
    named: Vec<(&'static str, String, Rule)>,
    /// The tools that are refused as a whole by options and settings.
    hidden: Vec<String>,
}

/// The policy of a word: `reads`, `edits`, `all`, or the file of one.
pub(crate) fn policy_of(word: &str) -> Result<ApprovalPolicy> {
    let otherwise = Otherwise::default();
    Ok(match word {
        "reads" | "ask" => ApprovalPolicy::default(),
        "edits" => {
            ApprovalPolicy { otherwise: Otherwise { write: Decision::Allow, ..otherwise }, ..ApprovalPolicy::default() }
        }
        "all" => ApprovalPolicy::allow_all(),
        file => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                Failed::Usage(format!(
                    "--approve takes reads, edits, all or the file of a policy, not {file:?}: {error}"
                ))
            })?;
            serde_json::from_str(&text)
                .map_err(|error| Failed::Usage(format!("{file} holds no approval policy: {error}")))?
        }
    })
}

impl ApprovalRules {
    /// Reads `--approve`: `reads`, `edits`, `all`, or the file of a policy.
    pub(super) fn read(word: &str) -> Result<Self> {
        let policy = policy_of(word)?;
        Ok(Self { compiled: policy.compile()?, policy, named: Vec::new(), hidden: Vec::new() })
    }

    /// Adds the rules of settings.
    pub(super) fn with_rules(mut self, rules: &[Rule]) -> Result<Self> {
        self.policy.rules.extend_from_slice(rules);
        self.hidden.extend(rules.iter().filter(|rule| is_refusal(rule)).map(|rule| rule.tool.clone()));
        self.compiled = self.policy.compile()?;
        Ok(self)
    }

    /// Sets the rules of the answer to one message, in place of those of the message before.
    pub(super) fn set_for_message(&mut self, rules: &[Rule]) -> Result {
        let mut policy = self.policy.clone();
        policy.rules.extend_from_slice(rules);
        self.compiled = policy.compile()?;
        Ok(())
    }

    /// Adds the rules of `--allowed-tools` and `--disallowed-tools`.
    pub(super) fn with_options(mut self, allowed: &[String], disallowed: &[String]) -> Result<Self> {
        for (option, lists, decision) in
            [("--allowed-tools", allowed, Decision::Allow), ("--disallowed-tools", disallowed, Decision::Deny)]
        {
            for text in lists.iter().flat_map(|list| permission::split(list)) {
                let rule = permission::parse(text, decision)
                    .map_err(|why| Failed::Usage(format!("{option}: the rule {text:?} {why}")))?;
                self.policy.rules.push(rule.clone());
                self.hidden.extend(is_refusal(&rule).then(|| rule.tool.clone()));
                self.named.push((option, text.to_owned(), rule));
            }
        }
        self.compiled = self.policy.compile()?;
        Ok(self)
    }

    /// The names and patterns of the tools that are refused whatever their arguments. The model need not know of them.
    pub(super) fn refused_tools(&self) -> impl Iterator<Item = &str> {
        self.hidden.iter().map(String::as_str)
    }

    /// Refuses a rule of an option that is for none of these tools: a misspelled refusal would refuse nothing.
    pub(super) fn check_names(&self, tools: &[&str]) -> Result {
        for (option, text, rule) in &self.named {
            let every = Rule::new(&rule.tool, Decision::Deny);
            let compiled = ApprovalPolicy::allow_all().with(every).compile()?;
            if !tools.iter().any(|tool| compiled.decide(tool, Effect::Read, &Value::Null) == Decision::Deny) {
                let known = tools.join(", ");
                let message = format!("{option}: there is no tool for the rule {text:?}; there are {known}");
                return Err(Failed::Usage(message));
            }
        }
        Ok(())
    }

    /// The policy of the agent in this process: it asks about what these rules are stricter about, in sessions too that were
    /// started without them.
    pub(super) fn agent_policy(&self) -> ApprovalPolicy {
        let strict = self.policy.rules.iter().filter(|rule| rule.decision != Decision::Allow);
        let rules = strict.map(|rule| Rule { decision: Decision::Ask, ..rule.clone() }).collect();
        ApprovalPolicy { rules, ..ApprovalPolicy::allow_all() }
    }

    /// The answer by the rules; none where the user has to be asked.
    pub(super) fn answer(&self, request: &ApprovalRequest) -> Option<ApprovalAnswer> {
        match self.compiled.decide(&request.name, request.effect, &request.arguments) {
            Decision::Allow => Some(answer(request, true, None)),
            Decision::Deny => Some(answer(request, false, Some(DENIED.to_owned()))),
            Decision::Ask => None,
        }
    }

    /// The decision about calls of a tool, whatever their arguments.
    pub(super) fn decide(&self, name: &str, effect: Effect) -> Decision {
        self.compiled.decide(name, effect, &Value::Null)
    }

    /// The policy of a session that lets these rules decide: it asks about writes and commands, and about what the rules do not
    /// allow.
    pub(super) fn session_policy(&self) -> ApprovalPolicy {
        let strict = self.policy.rules.iter().filter(|rule| rule.decision != Decision::Allow);
        let rules = strict.map(|rule| Rule { decision: Decision::Ask, ..rule.clone() }).collect();
        let read = self.policy.otherwise.read.min(Decision::Ask);
        ApprovalPolicy { rules, otherwise: Otherwise { read, ..Otherwise::default() } }
    }

    /// Allows similar calls from now on.
    pub(super) fn allow_alike(&mut self, request: &ApprovalRequest) -> Result {
        self.add(request.alike())
    }

    /// Adds rules, such as those of a settings file.
    pub(super) fn add(&mut self, rules: impl IntoIterator<Item = Rule>) -> Result {
        self.policy.rules.extend(rules);
        self.compiled = self.policy.compile()?;
        Ok(())
    }
}

/// Whether a rule refuses every call of its tools.
fn is_refusal(rule: &Rule) -> bool {
    rule.decision == Decision::Deny && rule.command.is_none() && rule.exact.is_none() && rule.path.is_none()
}

/// Whether a call is a command that is to run outside of the sandbox, which no rule allows.
pub(super) fn leaves_sandbox(request: &ApprovalRequest) -> bool {
    request.effect == Effect::Exec && request.arguments["outsideSandbox"] == true
}

/// Answers a request.
pub(super) fn answer(request: &ApprovalRequest, approved: bool, reason: Option<String>) -> ApprovalAnswer {
    ApprovalAnswer { id: request.id.clone(), hash: request.hash.clone(), approved, reason }
}

/// The calls that "always" would allow, for people.
pub(super) fn allow_alike_means(request: &ApprovalRequest) -> String {
    let means = |rule: Rule| match (rule.command, rule.exact) {
        (Some(command), _) => format!("`{command} …`"),
        (None, Some(text)) => format!("`{}`", text.trim_end().replace('\n', " ⏎ ")),
        (None, None) => match ToolName::of(&request.name) {
            ToolName { server: Some(server), tool } => format!("every {tool} of {server}"),
            ToolName { server: None, tool } => format!("every {tool}"),
        },
    };
    match request.alike() {
        rules if rules.is_empty() => "this one call; it is asked about each time".to_owned(),
        rules => rules.into_iter().map(means).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(line: &str) -> ApprovalRequest {
        ApprovalRequest::new("1", "bash", Effect::Exec, &json!({ "command": line })).expect("a request")
    }

    #[test]
    fn the_lines_of_a_command_are_not_run_together() {
        let request = command("set -e\nfor i in 1 2; do\n  rm build/$i\ndone\n");
        let means = allow_alike_means(&request);
        assert!(means.contains("set -e ⏎ for i in 1 2; do ⏎   rm build/$i ⏎ done`"), "{means}");
    }

    #[test]
    fn always_allows_what_is_alike_and_nothing_else() {
        let mut rules = ApprovalRules::read("reads").expect("a policy");
        let request = command("cargo test --all");
        assert!(rules.answer(&request).is_none());
        assert_eq!(allow_alike_means(&request), "`cargo test …`");
        rules.allow_alike(&request).expect("a rule");
        assert!(rules.answer(&command("cargo test -p core")).is_some_and(|answer| answer.approved));
        assert!(rules.answer(&command("cargo publish")).is_none());
        assert!(rules.answer(&command("cargo test; rm -rf .")).is_none());
        assert_eq!(allow_alike_means(&command("sh test.sh")), "`sh test.sh`");
    }

    #[test]
    fn always_allows_the_parts_of_a_compound_command_and_the_text_of_one_that_is_not_certain() {
        let mut rules = ApprovalRules::read("reads").expect("a policy");
        let compound = command("cargo fmt && cargo test -q | tail -n 5");
        assert_eq!(allow_alike_means(&compound), "`cargo fmt …`, `cargo test …`, `tail -n 5`");
        rules.allow_alike(&compound).expect("rules");
        let uncertain = command("echo $(git rev-parse HEAD)");
        assert_eq!(allow_alike_means(&uncertain), "`echo $(git rev-parse HEAD)`");
        rules.allow_alike(&uncertain).expect("a rule");
        let allowed = |line: &str| rules.answer(&command(line)).is_some_and(|answer| answer.approved);
        for line in ["cargo test -p core; cargo fmt", "(cargo fmt) 2>&1 | tail -n 5", "echo $(git rev-parse HEAD)"] {
            assert!(allowed(line), "{line}");
        }
        for line in ["cargo fmt && rm x", "cargo fmt | tail -f x", "echo $(git rev-parse main)", "cargo fmt $(rm x)"] {
            assert!(!allowed(line), "{line}");
        }
    }

    #[test]
    fn a_session_asks_about_what_the_rules_are_stricter_about() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.json");
        let text =
            r#"{"rules": [{"tool": "mcp__lake__*", "decision": "deny"}, {"tool": "write", "decision": "allow"}]}"#;
        std::fs::write(&file, text).expect("a file");
        let rules = ApprovalRules::read(&file.display().to_string()).expect("a policy");
        let session_policy = rules.session_policy().compile().expect("rules");
        let decide = |name: &str, effect| session_policy.decide(name, effect, &Value::Null);
        assert_eq!(decide("mcp__lake__depth", Effect::Read), Decision::Ask, "it is asked, and these orders refuse it");
        assert_eq!(decide("write", Effect::Write), Decision::Ask, "a session that is resumed without them asks");
        assert_eq!(decide("read", Effect::Read), Decision::Allow);
        let depth = ApprovalRequest::new("1", "mcp__lake__depth", Effect::Read, &json!({})).expect("a request");
        assert!(rules.answer(&depth).is_some_and(|answer| !answer.approved));
        assert_eq!(allow_alike_means(&depth), "every depth of lake");
        let usual = ApprovalRules::read("all").expect("a policy").session_policy();
        assert_eq!(usual, ApprovalPolicy::default());
    }

    #[test]
    fn policies_have_names_and_files() {
        let edit = ApprovalRequest::new("1", "edit", Effect::Write, &json!({ "path": "a" })).expect("a request");
        let said =
            |word: &str| ApprovalRules::read(word).map(|rules| rules.answer(&edit).map(|answer| answer.approved));
        assert!(matches!(said("reads"), Ok(None)));
        assert!(matches!(said("edits"), Ok(Some(true))));
        assert!(matches!(said("nothing-like-it"), Err(Failed::Usage(_))));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.json");
        std::fs::write(&file, r#"{"rules": [{"tool": "edit", "decision": "deny"}]}"#).expect("a file");
        assert!(matches!(said(&file.display().to_string()), Ok(Some(false))));
    }
}
