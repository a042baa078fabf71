//! Which calls may run, which need a person, which never run: pure decisions; the agent asks and waits.
//!
//! An approval names the hash of the call it is for, so that it is good for that call and for no other.

mod command;

use super::Effect;
use command::Commands;
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error, Result};
use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What happens to a call. The later is the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It runs.
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run; the model is told.
    Deny,
}

/// A rule for some calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The tools, by name or by a pattern such as `mcp__github__*`.
    pub tool: String,
    /// For `bash`: the words that the command begins with, such as `git status`. A rule that allows holds only for one plain
    /// command; a rule that asks or denies holds if any command of the line begins so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// For tools with a path: a pattern such as `src/**`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What happens.
    pub decision: Decision,
}

impl Rule {
    /// A rule for all calls of the tools of a name or pattern.
    pub fn new(tool: impl Into<String>, decision: Decision) -> Self {
        Self { tool: tool.into(), command: None, path: None, decision }
    }

    /// Narrows it to commands that begin so.
    #[must_use]
    pub fn with_command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// Narrows it to paths that match.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }
}

/// What happens where no rule says anything, by the effect of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otherwise {
    /// For tools that look.
    pub read: Decision,
    /// For tools that change.
    pub write: Decision,
    /// For tools that run what the model wrote.
    pub exec: Decision,
}

impl Default for Otherwise {
    fn default() -> Self {
        Self { read: Decision::Allow, write: Decision::Ask, exec: Decision::Ask }
    }
}

/// The rules of an agent. Of the rules that hold for a call the strictest decides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalPolicy {
    /// In any order.
    pub rules: Vec<Rule>,
    /// Where none of them holds.
    pub otherwise: Otherwise,
}

impl ApprovalPolicy {
    /// Allows everything.
    pub fn allow_all() -> Self {
        let allow = Decision::Allow;
        Self { rules: Vec::new(), otherwise: Otherwise { read: allow, write: allow, exec: allow } }
    }

    /// Adds a rule.
    #[must_use]
    pub fn with(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Makes the rules ready to decide; a pattern that cannot be read is an error.
    pub fn compile(&self) -> Result<Approvals> {
        let rules = self.rules.iter().map(Compiled::new).collect::<Result<_>>()?;
        Ok(Approvals { rules, otherwise: self.otherwise })
    }
}

/// Decides calls by the rules of a policy.
#[derive(Debug, Clone)]
pub struct Approvals {
    rules: Vec<Compiled>,
    otherwise: Otherwise,
}

#[derive(Debug, Clone)]
struct Compiled {
    tool: GlobMatcher,
    command: Option<Vec<String>>,
    path: Option<GlobMatcher>,
    decision: Decision,
}

impl Compiled {
    fn new(rule: &Rule) -> Result<Self> {
        let refuse = |what: &str, given: &str, why: String| {
            Error::new(
                Code::InvalidArgument,
                format!("an approval rule has the {what} {given:?}, which cannot be used: {why}"),
            )
        };
        let glob = |what: &str, given: &str, built: Result<Glob, globset::Error>| {
            built.map(|glob| glob.compile_matcher()).map_err(|error| refuse(what, given, error.to_string()))
        };
        let words = |prefix: &String| {
            let words: Vec<_> = prefix.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() { Err(refuse("command", prefix, "it is empty".into())) } else { Ok(words) }
        };
        let path =
            rule.path.as_ref().map(|path| glob("path", path, GlobBuilder::new(path).literal_separator(true).build()));
        Ok(Self {
            tool: glob("tool", &rule.tool, Glob::new(&rule.tool))?,
            command: rule.command.as_ref().map(words).transpose()?,
            path: path.transpose()?,
            decision: rule.decision,
        })
    }

    fn holds(&self, name: &str, arguments: &Value, commands: Option<&Commands>) -> bool {
        let strict = self.decision != Decision::Allow;
        self.tool.is_match(name)
            && self.command.as_ref().is_none_or(|prefix| match commands {
                None => false,
                Some(commands) if strict => commands.any_begins(prefix),
                Some(commands) => commands.is_plain_and_begins(prefix),
            })
            && self.path.as_ref().is_none_or(|glob| match arguments.get("path").and_then(Value::as_str) {
                None => false,
                // What climbs is not where it seems to be, so nothing is allowed for it and everything strict holds.
                Some(path) if climbs(path) => strict,
                Some(path) => glob.is_match(path.trim_start_matches("./")),
            })
    }
}

fn climbs(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

impl Approvals {
    /// What happens to a call.
    pub fn decide(&self, name: &str, effect: Effect, arguments: &Value) -> Decision {
        let command = arguments.get("command").and_then(Value::as_str).filter(|_| effect == Effect::Exec);
        let commands = command.map(Commands::of);
        let holding = self.rules.iter().filter(|rule| rule.holds(name, arguments, commands.as_ref()));
        holding.map(|rule| rule.decision).max().unwrap_or(match effect {
            Effect::Read => self.otherwise.read,
            Effect::Write => self.otherwise.write,
            Effect::Exec => self.otherwise.exec,
        })
    }
}

/// The hash of a call: BLAKE3 over the canonical JSON of its name and arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallHash(String);

impl CallHash {
    /// The hash of a call; the order of keys and white space do not count.
    pub fn of(name: &str, arguments: &Value) -> Result<Self> {
        let digest = Payload::of(&json!({ "name": name, "arguments": arguments }))?.digest()?;
        Ok(Self(format!("{digest:?}")))
    }

    /// In hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The id of the model's call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Value,
    /// What the call does to the world.
    pub effect: Effect,
    /// What the answer has to name.
    pub hash: CallHash,
}

impl ApprovalRequest {
    /// Asks for a call.
    pub fn new(id: impl Into<String>, name: &str, effect: Effect, arguments: &Value) -> Result<Self> {
        let hash = CallHash::of(name, arguments)?;
        Ok(Self { id: id.into(), name: name.to_owned(), arguments: arguments.clone(), effect, hash })
    }

    /// What an answer means for this request.
    pub fn answered(&self, answer: &ApprovalAnswer) -> Verdict {
        if answer.id != self.id || answer.hash != self.hash {
            return Verdict::OfAnotherCall;
        }
        if answer.approved { Verdict::Approved } else { Verdict::Denied(answer.reason.clone()) }
    }
}

/// What a person answers: the payload of the signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAnswer {
    /// The id of the model's call.
    pub id: String,
    /// The hash that the request named.
    pub hash: CallHash,
    /// Whether the call may run.
    pub approved: bool,
    /// What the model is told of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call runs.
    Approved,
    /// It does not; perhaps with what the model is told.
    Denied(Option<String>),
    /// The answer was given for another call and says nothing of this one.
    OfAnotherCall,
}
