//! What was said and done in this process's view of a session, for reading it whole.

use super::attachments::{self, ATTACHED};
use super::screen::card::{self, Extent};
use super::screen::markdown::render;
use super::screen::style::{Row, Style, span, wrap};
use flovyn_toolkit::message::{Message, Role, ToolCall, ToolResult};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Items that are kept; older ones are in the session.
pub(super) const MAX_ITEMS: usize = 500;

/// Rows of a message of the user that the conversation shows.
const MAX_USER_ROWS: usize = 12;

/// A part of a conversation.
#[derive(Debug)]
enum Item {
    /// What the user said.
    User(Message),
    /// What the model answered.
    Assistant(Message),
    /// A call with its result.
    Call(ToolCall, ToolResult, Option<Duration>),
}

/// The newest items.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    items: VecDeque<Item>,
    dropped: usize,
    /// Calls without a result.
    open: HashMap<String, ToolCall>,
}

impl Transcript {
    /// Adds a message.
    pub(super) fn add(&mut self, message: &Message) {
        match message.role {
            Role::User => self.push(Item::User(message.clone())),
            Role::Assistant => {
                self.open.extend(message.tool_calls().map(|call| (call.id.clone(), call.clone())));
                self.push(Item::Assistant(message.clone()));
            }
            Role::Tool => message.tool_results().for_each(|result| self.add_result(result, None)),
            Role::System | Role::Other(_) => {}
        }
    }

    /// Adds the result of a call, with its duration.
    pub(super) fn add_result(&mut self, result: &ToolResult, duration: Option<Duration>) {
        if let Some(call) = self.open.remove(&result.id) {
            self.push(Item::Call(call, result.clone(), duration));
        }
    }

    fn push(&mut self, item: Item) {
        self.items.push_back(item);
        if self.items.len() > MAX_ITEMS {
            self.items.pop_front();
            self.dropped += 1;
        }
    }

    /// What the tools have changed in files, oldest first.
    pub(super) fn diffs(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            let Item::Call(_, result, _) = item else { continue };
            let details = result.details.as_ref();
            let field = |name: &str| details.and_then(|details| details[name].as_str());
            if let (Some(path), Some(diff)) = (field("path"), field("diff")) {
                // One that was cut may have no end of its last line.
                let end = if diff.ends_with('\n') { "" } else { "\n" };
                text.push_str(&format!("diff --git a/{path} b/{path}\n{diff}{end}"));
            }
        }
        text
    }

    /// All of it, nothing left out.
    pub(super) fn rows(&self, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.dropped > 0 {
            rows.push(vec![span(format!("… {} earlier items are in the session", self.dropped), Style::DIM)]);
        }
        for item in &self.items {
            rows.push(Row::new());
            match item {
                Item::User(message) => rows.extend(user_rows(&attachments::shown(message), width)),
                Item::Assistant(message) => {
                    let thinking = message.thinking();
                    if !thinking.trim().is_empty() {
                        let style = Style { italic: true, ..Style::DIM };
                        rows.extend(wrap(&[span(thinking.trim(), style)], width, &[], &[]));
                        rows.push(Row::new());
                    }
                    rows.extend(render(&message.text(), width));
                }
                Item::Call(call, result, time) => {
                    rows.extend(card::ended(&call.name, &call.arguments, result, *time, Extent::Whole, width));
                }
            }
        }
        rows
    }
}

/// The rows of a message of the user, with what came with it below.
pub(super) fn user_rows(text: &str, width: usize) -> Vec<Row> {
    let said = text.find(&format!("\n{ATTACHED}")).unwrap_or(text.len());
    let (said, attached) = text.split_at(said);
    let line = [span(said, Style::BOLD), span(attached, Style::DIM)];
    wrap(&line, width, &[span("› ", Style::CYAN)], &[span("  ", Style::PLAIN)])
}

/// The first rows of a message of the user.
pub(super) fn user_rows_brief(text: &str, width: usize) -> Vec<Row> {
    // No more is wrapped than is shown.
    let (head, hidden) = match text.match_indices('\n').nth(2 * MAX_USER_ROWS) {
        Some((end, _)) => (&text[..end], text[end..].lines().count()),
        None => (text, 0),
    };
    let mut rows = user_rows(head, width);
    let more = rows.len().saturating_sub(MAX_USER_ROWS) + hidden;
    if more > 1 {
        rows.truncate(MAX_USER_ROWS);
        rows.push(vec![span(format!("  … {more} more lines · Ctrl-O shows all"), Style::DIM)]);
    }
    rows
}
