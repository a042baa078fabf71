//! Which calls a session's user allows without being asked: `--approve`, and what they said "always" to.

use super::tools::Named;
use crate::{Failed, Result};
use flovyn_toolkit::tools::Effect;
use flovyn_toolkit::tools::approval::{
    ApprovalAnswer, ApprovalPolicy, ApprovalRequest, Approvals, Decision, Otherwise, Rule,
};
use serde_json::Value;

/// What is told of calls that the policy of `--approve` denies.
const DENIED: &str = "The user's policy does not allow it.";

/// The standing orders of a user. They belong to this process; the run itself asks about everything that is not a look.
pub struct Standing {
    policy: ApprovalPolicy,
    ready: Approvals,
}

impl Standing {
    /// Reads `--approve`: `reads`, `edits`, `all`, or the file of a policy.
    pub fn read(word: &str) -> Result<Self> {
        let otherwise = Otherwise::default();
        let policy = match word {
            "reads" | "ask" => ApprovalPolicy::default(),
            "edits" => ApprovalPolicy {
                otherwise: Otherwise { write: Decision::Allow, ..otherwise },
                ..ApprovalPolicy::default()
            },
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
        };
        Ok(Self { ready: policy.compile()?, policy })
    }

    /// What is answered without asking; none where the user has to be asked.
    pub fn answer(&self, request: &ApprovalRequest) -> Option<ApprovalAnswer> {
        match self.ready.decide(&request.name, request.effect, &request.arguments) {
            Decision::Allow => Some(answer(request, true, None)),
            Decision::Deny => Some(answer(request, false, Some(DENIED.to_owned()))),
            Decision::Ask => None,
        }
    }

    /// What happens before calls of a tool, whatever their arguments.
    pub fn decide(&self, name: &str, effect: Effect) -> Decision {
        self.ready.decide(name, effect, &Value::Null)
    }

    /// What a session has to ask about, so that these orders are heard: changes and commands, and what they are stricter about.
    pub fn demands(&self) -> ApprovalPolicy {
        let strict = self.policy.rules.iter().filter(|rule| rule.decision != Decision::Allow);
        let rules = strict.map(|rule| Rule { decision: Decision::Ask, ..rule.clone() }).collect();
        let read = self.policy.otherwise.read.min(Decision::Ask);
        ApprovalPolicy { rules, otherwise: Otherwise { read, ..Otherwise::default() } }
    }

    /// Allows calls like this one from here on.
    pub fn always(&mut self, request: &ApprovalRequest) -> Result {
        let rule = Rule::new(&request.name, Decision::Allow);
        let rule = match alike(request) {
            Some(command) => rule.with_command(command),
            None => rule,
        };
        self.policy.rules.push(rule);
        self.ready = self.policy.compile()?;
        Ok(())
    }
}

/// Answers a request.
pub fn answer(request: &ApprovalRequest, approved: bool, reason: Option<String>) -> ApprovalAnswer {
    ApprovalAnswer { id: request.id.clone(), hash: request.hash.clone(), approved, reason }
}

/// What "always" would allow, for people.
pub fn always_means(request: &ApprovalRequest) -> String {
    match alike(request) {
        Some(command) => format!("`{command} …`"),
        None => match Named::of(&request.name) {
            Named { server: Some(server), tool } => format!("every {tool} of {server}"),
            Named { server: None, tool } => format!("every {tool}"),
        },
    }
}

/// The words that like commands begin with: the program and what it is to do, or the whole command where it does not say so.
fn alike(request: &ApprovalRequest) -> Option<String> {
    let command = request.arguments.get("command")?.as_str().filter(|_| request.effect == Effect::Exec)?;
    let mut words = command.split_whitespace();
    let program = words.next()?;
    let verb = words.next().filter(|word| word.chars().all(|letter| letter.is_ascii_alphabetic() || letter == '-'));
    let verb = verb.filter(|word| !word.starts_with('-'));
    Some(verb.map_or_else(|| command.to_owned(), |verb| format!("{program} {verb}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(line: &str) -> ApprovalRequest {
        ApprovalRequest::new("1", "bash", Effect::Exec, &json!({ "command": line })).expect("a request")
    }

    #[test]
    fn always_allows_what_is_alike_and_nothing_else() {
        let mut standing = Standing::read("reads").expect("a policy");
        let asked = command("cargo test --all");
        assert!(standing.answer(&asked).is_none());
        assert_eq!(always_means(&asked), "`cargo test …`");
        standing.always(&asked).expect("a rule");
        assert!(standing.answer(&command("cargo test -p core")).is_some_and(|answer| answer.approved));
        assert!(standing.answer(&command("cargo publish")).is_none());
        assert!(standing.answer(&command("cargo test; rm -rf .")).is_none());
        assert_eq!(always_means(&command("sh test.sh")), "`sh test.sh …`");
    }

    #[test]
    fn a_session_asks_about_what_the_orders_are_stricter_about() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.json");
        let text =
            r#"{"rules": [{"tool": "mcp__lake__*", "decision": "deny"}, {"tool": "write", "decision": "allow"}]}"#;
        std::fs::write(&file, text).expect("a file");
        let standing = Standing::read(&file.display().to_string()).expect("a policy");
        let demands = standing.demands().compile().expect("rules");
        let decide = |name: &str, effect| demands.decide(name, effect, &Value::Null);
        assert_eq!(decide("mcp__lake__depth", Effect::Read), Decision::Ask, "it is asked, and these orders refuse it");
        assert_eq!(decide("write", Effect::Write), Decision::Ask, "a session that is resumed without them asks");
        assert_eq!(decide("read", Effect::Read), Decision::Allow);
        let depth = ApprovalRequest::new("1", "mcp__lake__depth", Effect::Read, &json!({})).expect("a request");
        assert!(standing.answer(&depth).is_some_and(|answer| !answer.approved));
        assert_eq!(always_means(&depth), "every depth of lake");
        let usual = Standing::read("all").expect("a policy").demands();
        assert_eq!(usual, ApprovalPolicy::default());
    }

    #[test]
    fn policies_have_names_and_files() {
        let edit = ApprovalRequest::new("1", "edit", Effect::Write, &json!({ "path": "a" })).expect("a request");
        let said =
            |word: &str| Standing::read(word).map(|standing| standing.answer(&edit).map(|answer| answer.approved));
        assert!(matches!(said("reads"), Ok(None)));
        assert!(matches!(said("edits"), Ok(Some(true))));
        assert!(matches!(said("nothing-like-it"), Err(Failed::Usage(_))));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.json");
        std::fs::write(&file, r#"{"rules": [{"tool": "edit", "decision": "deny"}]}"#).expect("a file");
        assert!(matches!(said(&file.display().to_string()), Ok(Some(false))));
    }
}
