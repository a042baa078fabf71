//! What external agents say: events as drivers hear them, and records as the run keeps them.

use crate::message::Usage;
use crate::tools::{Effect, excerpt};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that an agent says, in the same words for every driver.
#[derive(Debug, Clone, PartialEq)]
pub enum ExternalEvent {
    /// More of its answer.
    Text(String),
    /// More of its thinking.
    Thinking(String),
    /// A message of its model is complete: what follows belongs to another one.
    MessageEnd,
    /// It begins a tool call of its own.
    ToolStart(ToolStarted),
    /// A tool call of its own has ended.
    ToolEnd(ToolEnded),
    /// It asks whether it may do something, and waits for [`answer`](super::ExternalSession::answer).
    Permission(Permission),
    /// What it has used since it said so last.
    Spent(Spent),
    /// Where in its own records the conversation stands.
    Cursor(String),
    /// It has finished what the last message asked for.
    TurnEnd(TurnEnd),
    /// Something that a person should know and that ends nothing.
    Warning(String),
}

/// A tool call of an external agent as it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The agent's id of the call.
    pub id: String,
    /// The tool, or the sort of tool where the agent says no more.
    pub name: String,
    /// Its arguments, as far as the agent tells them.
    pub arguments: Value,
}

/// The end of a tool call of an external agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolEnded {
    /// The agent's id of the call.
    pub id: String,
    /// Its result in words.
    pub content: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// Something that an agent may do only when it is allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permission {
    /// The id that the answer names.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it would do to the world.
    pub effect: Effect,
    /// Its arguments.
    pub arguments: Value,
}

/// The answer to a [`Permission`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It may be done, this once.
    Allow,
    /// It may not, perhaps with what the agent is told.
    Deny(Option<String>),
    /// Nobody answers any more: the turn is being ended.
    Withdrawn,
}

/// Tokens and cost of one or more model calls of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// `provider/model`, or the agent's name where it does not say.
    pub model: String,
    /// Tokens and cost; a cost that is not known is `null`.
    pub usage: Usage,
}

/// How an agent has finished a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// Why.
    pub reason: TurnEndReason,
    /// What went wrong, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEndReason {
    /// The agent has finished.
    #[default]
    End,
    /// Its model reached the limit of tokens.
    Length,
    /// It has made as many model calls as it may.
    MaxTurns,
    /// It, or its model, refused.
    Refusal,
    /// It was told to stop.
    Interrupted,
    /// It could not go on.
    Error,
}

/// What a run keeps of an agent's events: whole texts in place of their pieces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Record {
    Text { text: String },
    Thinking { text: String },
    ToolStart(ToolStarted),
    ToolEnd(ToolEnded),
    Permission(Permission),
    Spent(Spent),
    TurnEnd(TurnEnd),
    Warning { text: String },
}

/// How far the current turn was recorded. After a crash, what the agent's own records say beyond it is news.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TurnLog {
    /// What the agent was told in this turn: the message, then those that steered it.
    pub sent: Vec<String>,
    /// Bytes of its answer.
    pub text_bytes: usize,
    /// Bytes of its thinking.
    pub thinking_bytes: usize,
    /// Its tool calls that have begun, each with whether it has ended.
    pub tools: std::collections::BTreeMap<String, bool>,
    /// How often it has said what it has used.
    pub spent: usize,
}

impl TurnLog {
    /// A turn that begins with a message.
    pub(super) fn of(message: String) -> Self {
        Self { sent: vec![message], ..Self::default() }
    }

    /// Takes note of a record.
    pub(super) fn note(&mut self, record: &Record) {
        match record {
            Record::Text { text } => self.text_bytes += text.len(),
            Record::Thinking { text } => self.thinking_bytes += text.len(),
            Record::ToolStart(tool) => {
                self.tools.insert(tool.id.clone(), false);
            }
            Record::ToolEnd(tool) => {
                self.tools.insert(tool.id.clone(), true);
            }
            Record::Spent(_) => self.spent += 1,
            Record::Permission(_) | Record::TurnEnd(_) | Record::Warning { .. } => {}
        }
    }

    /// Whether nothing of the turn was recorded.
    pub(super) fn is_silent(&self) -> bool {
        self.text_bytes + self.thinking_bytes + self.spent == 0 && self.tools.is_empty()
    }

    /// Whether a tool call of the agent is open.
    pub(super) fn has_open_tools(&self) -> bool {
        self.tools.values().any(|ended| !ended)
    }

    /// What of the events of this turn, as the agent's own records tell them from its beginning, is news.
    pub(super) fn news(&self, events: Vec<ExternalEvent>) -> Vec<ExternalEvent> {
        let (mut text, mut thinking, mut spent) = (self.text_bytes, self.thinking_bytes, self.spent);
        events
            .into_iter()
            .filter_map(|event| match event {
                ExternalEvent::Text(more) => unheard(more, &mut text).map(ExternalEvent::Text),
                ExternalEvent::Thinking(more) => unheard(more, &mut thinking).map(ExternalEvent::Thinking),
                ExternalEvent::ToolStart(tool) if self.tools.contains_key(&tool.id) => None,
                ExternalEvent::ToolEnd(tool) if self.tools.get(&tool.id) == Some(&true) => None,
                ExternalEvent::Spent(_) if spent > 0 => {
                    spent -= 1;
                    None
                }
                other => Some(other),
            })
            .collect()
    }
}

/// What of a text lies beyond so many bytes that were heard before; those of it count as heard.
fn unheard(text: String, heard: &mut usize) -> Option<String> {
    let known = excerpt::prefix(&text, *heard).len();
    *heard -= known.min(*heard);
    if known == text.len() {
        return None;
    }
    *heard = 0;
    Some(text[known..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(text: &str) -> ExternalEvent {
        ExternalEvent::Text(text.into())
    }

    fn start(id: &str) -> ExternalEvent {
        ExternalEvent::ToolStart(ToolStarted { id: id.into(), name: "read".into(), arguments: json!({}) })
    }

    fn end(id: &str) -> ToolEnded {
        ToolEnded { id: id.into(), content: "done".into(), is_error: false }
    }

    #[test]
    fn only_what_was_not_recorded_is_news() {
        let mut heard = TurnLog::of("go".into());
        assert!(heard.is_silent());
        heard.note(&Record::Text { text: "Otters".into() });
        heard.note(&Record::ToolStart(ToolStarted { id: "a".into(), name: "read".into(), arguments: json!({}) }));
        assert!(heard.has_open_tools() && !heard.is_silent());
        let events = vec![text("Ott"), text("ers hold"), start("a"), ExternalEvent::ToolEnd(end("a")), start("b")];
        assert_eq!(heard.news(events), [text(" hold"), ExternalEvent::ToolEnd(end("a")), start("b")]);
        heard.note(&Record::ToolEnd(end("a")));
        assert_eq!(heard.news(vec![text("Otters"), start("a"), ExternalEvent::ToolEnd(end("a"))]), []);
        assert!(!heard.has_open_tools());
    }

    #[test]
    fn a_character_is_never_torn() {
        let heard = |text_bytes| TurnLog { text_bytes, ..TurnLog::default() };
        assert_eq!(heard(3).news(vec![text("aé🦦")]), [text("🦦")]);
        assert_eq!(heard(4).news(vec![text("aé🦦")]), [text("🦦")], "half of it was never recorded");
    }

    #[test]
    fn what_was_used_counts_once() {
        let spent = || ExternalEvent::Spent(Spent { model: "m".into(), usage: Usage::default() });
        let mut heard = TurnLog::default();
        heard.note(&Record::Spent(Spent { model: "m".into(), usage: Usage::default() }));
        assert_eq!(heard.news(vec![spent(), spent()]), [spent()]);
    }
}
