//! Which calls may run, which need a person, which never run: pure decisions; the agent asks and waits.
//!
//! An approval names the hash of the call it is for, so that it is good for that call and for no other.

mod command;
mod shell;

use super::Effect;
use super::guarded::runs_later;
use command::{Beginning, Commands};
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error, Result};
use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;

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
    /// For `bash`: the words that a command begins with, such as `git status`. A `*` at the end lets the last word go on:
    /// `rm*` is `rmdir`, too, and `git *` is `git` with anything or nothing behind it. A line is allowed if it is certain which
    /// commands it is made of (`a && b`, `a | b`, `a; b`, `(a)`) and rules allow each of them. A rule that asks or denies
    /// holds if any command of the line begins so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// For `bash`: the whole text of a line, or of one command in it. Only so a line is allowed that the shell works out
    /// further, such as one with `$(…)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// For tools with a path: a pattern such as `src/**`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What happens.
    pub decision: Decision,
}

impl Rule {
    /// A rule for all calls of the tools of a name or pattern.
    pub fn new(tool: impl Into<String>, decision: Decision) -> Self {
        Self { tool: tool.into(), command: None, exact: None, path: None, decision }
    }

    /// Narrows it to commands that begin so.
    #[must_use]
    pub fn with_command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// Narrows it to one command, by its whole text.
    #[must_use]
    pub fn with_exact(mut self, text: impl Into<String>) -> Self {
        self.exact = Some(text.into());
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
    command: Option<Beginning>,
    exact: Option<Exact>,
    path: Option<GlobMatcher>,
    decision: Decision,
}

/// The text of a command, and its words.
#[derive(Debug, Clone)]
struct Exact {
    text: String,
    /// Its words as they stand there, for what asks or denies.
    loose: Beginning,
    /// Its words as the shell reads them, if it is one command that can be read with certainty.
    words: Option<Vec<String>>,
}

impl Exact {
    fn new(text: &str) -> Self {
        let words = shell::simple_commands(text).filter(|commands| commands.len() == 1).and_then(|mut all| all.pop());
        let loose = text.split_whitespace().map(|word| word.replace(['\'', '"', '\\'], "")).collect();
        Self { text: text.to_owned(), loose: Beginning::of_words(loose), words }
    }
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
        let beginning =
            |text: &String| Beginning::parse(text).ok_or_else(|| refuse("command", text, "it names no command".into()));
        let path =
            rule.path.as_ref().map(|path| glob("path", path, GlobBuilder::new(path).literal_separator(true).build()));
        Ok(Self {
            tool: glob("tool", &rule.tool, Glob::new(&rule.tool))?,
            command: rule.command.as_ref().map(beginning).transpose()?,
            exact: rule
                .exact
                .as_ref()
                .map(|text| match text.trim() {
                    "" => Err(refuse("exact", text, "it is empty".into())),
                    trimmed => Ok(Exact::new(trimmed)),
                })
                .transpose()?,
            path: path.transpose()?,
            decision: rule.decision,
        })
    }

    /// Whether the rule holds for a call, apart from what it says of commands.
    fn is_for(&self, name: &str, arguments: &Value) -> bool {
        let strict = self.decision != Decision::Allow;
        self.tool.is_match(name)
            && self.path.as_ref().is_none_or(|glob| match arguments.get("path").and_then(Value::as_str) {
                None => false,
                // What climbs is not where it seems to be, so nothing is allowed for it and everything strict holds.
                Some(path) if climbs(path) => strict,
                // An absolute path may lead to where a pattern of the working directory leads.
                Some(path) if strict && path.starts_with('/') => {
                    glob.is_match(path) || path.match_indices('/').any(|(place, _)| glob.is_match(&path[place + 1..]))
                }
                Some(path) => glob.is_match(path.trim_start_matches("./")),
            })
    }

    fn is_of_commands(&self) -> bool {
        self.command.is_some() || self.exact.is_some()
    }

    /// Whether a rule that asks or denies holds for a line.
    fn is_in(&self, commands: Option<&Commands>) -> bool {
        let begins = |beginning: &Beginning| commands.is_some_and(|commands| commands.any_begins(beginning));
        self.command.as_ref().is_none_or(begins)
            && self.exact.as_ref().is_none_or(|exact| {
                begins(&exact.loose) || commands.is_some_and(|commands| commands.is_exactly(&exact.text))
            })
    }

    /// Whether a rule that allows holds for one command.
    fn allows(&self, words: &[String]) -> bool {
        self.command.as_ref().is_none_or(|beginning| beginning.is_of(words))
            && self.exact.as_ref().is_none_or(|exact| exact.words.as_deref() == Some(words))
    }
}

fn climbs(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

impl Approvals {
    /// What happens to a call.
    pub fn decide(&self, name: &str, effect: Effect, arguments: &Value) -> Decision {
        let decision = self.by_rules(name, effect, arguments);
        if needs_person(effect, arguments, self.allows_everything()) { decision.max(Decision::Ask) } else { decision }
    }

    /// Whether nothing is asked about where no rule says so.
    fn allows_everything(&self) -> bool {
        let Otherwise { write, exec, .. } = self.otherwise;
        (write, exec) == (Decision::Allow, Decision::Allow)
    }

    fn by_rules(&self, name: &str, effect: Effect, arguments: &Value) -> Decision {
        let command = arguments.get("command").and_then(Value::as_str).filter(|_| effect == Effect::Exec);
        let commands = command.map(Commands::of);
        let (allowing, strict): (Vec<_>, Vec<_>) = self
            .rules
            .iter()
            .filter(|rule| rule.is_for(name, arguments))
            .partition(|rule| rule.decision == Decision::Allow);
        let strictest = strict.iter().filter(|rule| rule.is_in(commands.as_ref())).map(|rule| rule.decision).max();
        strictest.unwrap_or_else(|| match is_allowed(&allowing, commands.as_ref()) {
            true => Decision::Allow,
            false => match effect {
                Effect::Read => self.otherwise.read,
                Effect::Write => self.otherwise.write,
                Effect::Exec => self.otherwise.exec,
            },
        })
    }
}

/// Whether a person is asked about a call whatever the rules allow: about a command that is to run outside of the sandbox,
/// and, unless everything is allowed, about a change of what is run later outside of it, such as a hook of git.
fn needs_person(effect: Effect, arguments: &Value, allows_everything: bool) -> bool {
    let path = || arguments.get("path").and_then(Value::as_str);
    match effect {
        Effect::Read => false,
        Effect::Write => !allows_everything && path().is_some_and(|path| runs_later(Path::new(path))),
        Effect::Exec => is_outside(arguments),
    }
}

/// Whether a command is to run outside of the sandbox.
fn is_outside(arguments: &Value) -> bool {
    arguments.get("outsideSandbox").and_then(Value::as_bool) == Some(true)
}

/// How commands that are like this one begin: the program and its subcommand, if it has one.
fn beginning(words: &[String]) -> Option<String> {
    let plain = |word: &&String| {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        word.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '.') && word.chars().all(fits)
    };
    let subcommand = |word: &&String| {
        word.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == ':')
    };
    let (program, verb) = (words.first().filter(plain)?, words.get(1).filter(subcommand)?);
    Some(format!("{program} {verb}"))
}

/// Whether rules allow a call: one of them all of it, or some of them each command of its line.
fn is_allowed(rules: &[&Compiled], commands: Option<&Commands>) -> bool {
    if rules.iter().any(|rule| !rule.is_of_commands()) {
        return true;
    }
    let Some(commands) = commands else { return false };
    let exact = |rule: &&Compiled| rule.exact.as_ref().is_some_and(|exact| commands.is_exactly(&exact.text));
    rules.iter().any(exact) || commands.each_passes(|words| rules.iter().any(|rule| rule.allows(words)))
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
    /// The rules that allow this call and those that are alike: for a command the rules of each of its parts, or of its
    /// whole text where it cannot be taken apart with certainty; for any other call all of its tool. None, if a person is
    /// asked each time.
    pub fn alike(&self) -> Vec<Rule> {
        let rule = || Rule::new(&self.name, Decision::Allow);
        let command = self.arguments.get("command").and_then(Value::as_str).filter(|_| self.effect == Effect::Exec);
        if needs_person(self.effect, &self.arguments, false) {
            return Vec::new();
        }
        let Some(line) = command else { return vec![rule()] };
        let Some(parts) = shell::simple_commands(line) else { return vec![rule().with_exact(line.trim())] };
        let mut rules: Vec<Rule> = Vec::new();
        for words in parts {
            let alike = match beginning(&words) {
                Some(beginning) => rule().with_command(beginning),
                None => rule().with_exact(shell::quoted(&words)),
            };
            if !rules.contains(&alike) {
                rules.push(alike);
            }
        }
        rules
    }

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

/// What a person says with an approval, beside yes: in the same payload, which has the fields of [`ApprovalAnswer`] too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalTerms {
    /// The arguments with which the call runs, in place of those that the model has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// For which calls it counts.
    #[serde(skip_serializing_if = "ApprovalScope::is_once", deserialize_with = "or_once")]
    pub scope: ApprovalScope,
}

/// Programs write null for what nobody has said.
fn or_once<'de, D: serde::Deserializer<'de>>(given: D) -> Result<ApprovalScope, D::Error> {
    Ok(Option::<ApprovalScope>::deserialize(given)?.unwrap_or_default())
}

/// For which calls an approval counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// The later calls of the run that are alike, too: those that [`ApprovalRequest::alike`] has rules for.
    Run,
    /// The call that was asked about. A word that nobody knows means no more than this.
    #[default]
    #[serde(other)]
    Once,
}

impl ApprovalScope {
    fn is_once(&self) -> bool {
        *self == Self::Once
    }
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
