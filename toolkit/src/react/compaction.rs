//! Compaction of a full context window: the choice of the place to cut, the prompt of the summariser, and the summary.
//!
//! The newest messages stay as they are. A call is never separated from its result. If one turn alone is too long, its
//! beginning is summarised separately. Results of tools are shortened only for the summariser. The entry of the
//! compaction names the first message that is kept. What is before that message stays stored, but no model gets it any
//! more.

use super::transcript::estimate;
use super::{CompactionConfig, Transcript};
use crate::message::{Content, Message, Part, Role, Usage};
use crate::tools::TodoList;
use flovyn_core::id::EntryId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The content of a `compaction` entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// The text of the summary.
    pub summary: String,
    /// The first message that the model still sees as it is; none if all messages were summarised.
    pub first_kept_entry_id: Option<EntryId>,
    /// How many tokens of the window were used before.
    pub tokens_before: u64,
    /// What the summary cost.
    pub usage: Usage,
    /// The files that the hidden messages were about.
    pub details: CompactionDetails,
}

/// The files that the hidden messages were about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompactionDetails {
    /// The files that were read and not changed.
    pub read_files: BTreeSet<String>,
    /// The files that were written or edited.
    pub modified_files: BTreeSet<String>,
    /// The list of steps that the model had written.
    #[serde(skip_serializing_if = "TodoList::is_empty")]
    pub todos: TodoList,
}

/// The messages of one summary: from one entry up to another entry, which is not among them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Extract {
    /// The first entry; none for the first one that the model sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<EntryId>,
    /// The first entry that is no longer part of it; none if it goes up to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<EntryId>,
    /// Whether it is the beginning of a turn whose end is kept. Otherwise it is what was before that turn.
    pub turn_prefix: bool,
    /// What the user wants the summary to pay attention to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// How a conversation is compacted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cut {
    /// The parts to summarise. Each is one model call.
    pub extracts: Vec<Extract>,
    /// The summary of the compaction before, if none of the extracts takes it over.
    pub carried: Option<String>,
    /// The first message that is kept.
    pub first_kept: Option<EntryId>,
    /// About how many tokens are kept.
    pub kept_tokens: u64,
    /// The files that the hidden messages were about.
    pub details: CompactionDetails,
}

/// How many characters of one tool result the summariser gets.
const RESULT_CHARACTERS: usize = 2_000;

const SUMMARISER: &str = "You summarise conversations between a user and an agent that works with tools, so that the agent \
can go on with the summary in place of the conversation. You do not continue the conversation and answer nothing in it. \
You write only the summary.";

const HISTORY: &str = "Summarise the conversation above under these headings, leaving out those with nothing to say:\n\
## Goal\nWhat the user wants.\n## Constraints\nWhat was demanded, preferred or forbidden.\n## Progress\nWhat is done, what is \
under way, what failed.\n## Decisions\nWhat was decided, and why.\n## Next\nWhat to do next, in order.\n## Critical\nFacts that \
are needed word for word: paths, names, commands, errors, numbers.\nA summary from before, if there is one, is to be \
brought up to date: keep what still holds.";

const PREFIX: &str = "Above is the beginning of one long turn whose end the agent still has. Summarise in few sentences what \
was asked, what was done so far, and what the end needs to be understood.";

impl CompactionConfig {
    /// Whether the window is so full that the conversation has to be compacted before the next call.
    pub(super) fn is_due(&self, tokens: u64, window: Option<u64>) -> bool {
        let Some(window) = self.window.or(window) else { return false };
        self.enabled && tokens > window.saturating_sub(self.reserve_tokens.min(window / 4))
    }

    /// About how many of the newest tokens are kept.
    fn keep(&self, window: Option<u64>) -> u64 {
        let half = self.window.or(window).map(|window| window / 2);
        half.map_or(self.keep_recent_tokens, |half| self.keep_recent_tokens.min(half))
    }

    /// Finds the place to cut; none if nothing can be hidden. With `tighter` only half as much is kept: it is for a
    /// conversation of which the provider has said that it does not fit, so the estimates of its size were too low.
    pub(super) fn cut(&self, transcript: &Transcript, window: Option<u64>, tighter: bool) -> Option<Cut> {
        let usual = self.keep(window);
        let keep = if tighter { usual.min(total(transcript.items()) / 2) } else { usual };
        cut_keeping(transcript, keep)
    }

    /// Finds the place to cut so that only the last message is kept; none if nothing can be hidden.
    pub(super) fn cut_all(&self, transcript: &Transcript) -> Option<Cut> {
        cut_keeping(transcript, 0)
    }
}

/// Cuts so that about so many of the newest tokens are kept.
fn cut_keeping(transcript: &Transcript, keep: u64) -> Option<Cut> {
    let items = transcript.items();
    let (mut place, mut kept) = (items.len(), 0);
    for (at, (_, message)) in items.iter().enumerate().rev() {
        kept += estimate(message);
        if kept > keep && place < items.len() {
            break;
        }
        // A cut never comes before a result of a tool: the result is kept together with its call.
        if message.role != Role::Tool {
            place = at;
        }
    }
    if place == 0 || place == items.len() {
        return None;
    }
    let (hidden, stays) = items.split_at(place);
    let id = |at: usize| items.get(at).map(|(id, _)| *id);
    let splits = stays.first().is_some_and(|(_, first)| first.role != Role::User);
    let turn = hidden.iter().rposition(|(_, message)| message.role == Role::User).filter(|_| splits);
    let mut extracts = Vec::new();
    let history = turn.unwrap_or(place);
    if history > 0 {
        extracts.push(Extract { from: None, until: id(history), turn_prefix: false, focus: None });
    }
    if let Some(turn) = turn {
        extracts.push(Extract { from: id(turn), until: id(place), turn_prefix: true, focus: None });
    }
    let mut details = transcript.compacted().map(|before| before.details.clone()).unwrap_or_default();
    hidden.iter().for_each(|(_, message)| details.note(message));
    let carried = transcript.compacted().filter(|_| history == 0).map(|before| before.summary.clone());
    Some(Cut { extracts, carried, first_kept: id(place), kept_tokens: total(stays), details })
}

fn total(items: &[(EntryId, Message)]) -> u64 {
    items.iter().map(|(_, message)| estimate(message)).sum()
}

impl CompactionDetails {
    fn note(&mut self, message: &Message) {
        for call in message.tool_calls() {
            let Some(path) = call.arguments.get("path").and_then(|path| path.as_str()) else { continue };
            match call.name.as_str() {
                "write" | "edit" => {
                    self.read_files.remove(path);
                    self.modified_files.insert(path.to_owned());
                }
                "read" if !self.modified_files.contains(path) => {
                    self.read_files.insert(path.to_owned());
                }
                _ => {}
            }
        }
    }
}

impl Compacted {
    /// Joins the summary of the compaction before and the summaries of the extracts.
    pub(super) fn joined(carried: Option<&str>, summaries: &[(Extract, String)]) -> String {
        let texts = summaries.iter().map(|(extract, text)| match extract.turn_prefix {
            true => format!("## The turn in progress\n{}", text.trim()),
            false => text.trim().to_owned(),
        });
        carried.map(str::to_owned).into_iter().chain(texts).collect::<Vec<_>>().join("\n\n")
    }

    /// The summary as the model sees it.
    pub(super) fn message(&self) -> Message {
        let mut text = format!(
            "The conversation before this was too long to be kept. This is its summary:\n\n<summary>\n{}\n</summary>",
            self.summary
        );
        let lists = [("read", &self.details.read_files), ("changed", &self.details.modified_files)];
        for (what, files) in lists.into_iter().filter(|(_, files)| !files.is_empty()) {
            let files = files.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            // Writing into a String cannot fail.
            let _written = write!(text, "\n\nFiles {what}: {files}");
        }
        if !self.details.todos.is_empty() {
            let _written = write!(text, "\n\nYour list of steps (todo):\n{}", self.details.todos);
        }
        Message::user(text)
    }
}

impl Extract {
    /// The prompt of the summariser.
    pub(super) fn prompt(&self, transcript: &Transcript) -> Vec<Message> {
        let items = transcript.items();
        let place = |id: Option<EntryId>| id.and_then(|id| items.iter().position(|(known, _)| *known == id));
        let (from, until) = (place(self.from).unwrap_or(0), place(self.until).unwrap_or(items.len()));
        let mut text = String::from("<conversation>\n");
        if let Some(before) = transcript.compacted().filter(|_| !self.turn_prefix) {
            let _written = writeln!(text, "[Summary from before]\n{}\n", before.summary);
        }
        items.iter().take(until).skip(from).for_each(|(_, message)| emit(&mut text, message));
        text.push_str("</conversation>\n\n");
        text.push_str(if self.turn_prefix { PREFIX } else { HISTORY });
        if let Some(focus) = &self.focus {
            let _written = write!(text, "\nPay attention to this above all: {focus}");
        }
        vec![Message::system(SUMMARISER), Message::user(text)]
    }
}

fn emit(out: &mut String, message: &Message) {
    for part in &message.parts {
        let (speaker, text) = match &part.content {
            Content::Text { text } => (if message.role == Role::Assistant { "Agent" } else { "User" }, text.clone()),
            Content::Thinking(thinking) if !thinking.text.is_empty() => ("Agent, thinking", thinking.text.clone()),
            Content::ToolCall(call) => ("Agent, calling", format!("{}({})", call.name, call.arguments)),
            Content::ToolResult(result) => {
                let text: String = result.content.iter().filter_map(Part::as_text).collect();
                (if result.is_error { "Tool, failing" } else { "Tool" }, shortened(&text))
            }
            Content::Media(media) => ("User", format!("[{}]", media.mime)),
            _ => continue,
        };
        let _written = writeln!(out, "[{speaker}]\n{text}\n");
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(RESULT_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… [{} characters left out]", &text[..end], text[end..].chars().count()),
    }
}

#[cfg(test)]
mod tests;
