//! What a conversation shows: rows that stay, and those at the end that still change. No terminal, no waiting: happenings
//! in, rows out.

use super::approving::always_means;
use super::cost::Tally;
use super::feed::{Happening, UNSERVED};
use super::history::History;
use super::pending::{Pending, Wanted};
use super::screen::card;
use super::screen::form;
use super::screen::markdown::Markdown;
use super::screen::style::{Row, Style, span, wrap};
use crate::print::short;
use flovyn_toolkit::message::{Message, Role, Stop, ToolCall};
use std::time::{Duration, Instant};

/// Output of a running call that is kept for showing, in bytes.
const OUTPUT: usize = 8 << 10;
/// Messages of a session that are shown when it is taken up.
const SHOWN: usize = 60;

/// A tool call without a result.
struct Open {
    call: ToolCall,
    since: Option<Instant>,
    output: String,
}

/// A conversation as it is shown.
#[derive(Default)]
pub struct View {
    stay: Vec<Row>,
    markdown: Markdown,
    /// What was streamed of the answer.
    streamed: String,
    thought: String,
    open: Vec<Open>,
    /// What was said and not heard yet.
    said: Vec<String>,
    /// What the user is asked.
    pub pending: Pending,
    /// The tools of this process are being opened.
    opening: bool,
    busy: Option<Instant>,
    /// The user pressed Ctrl-C, and the agent has not stopped yet.
    stopping: bool,
    /// A word for the status line.
    hint: Option<String>,
    turn: Tally,
    total: Tally,
    over: Option<String>,
}

impl View {
    /// The rows that stay since this was asked last.
    pub fn settled(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.stay)
    }

    /// Whether the agent works.
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Why the session cannot go on.
    pub fn over(&self) -> Option<&str> {
        self.over.as_deref()
    }

    /// What all turns cost.
    pub fn total(&self) -> &Tally {
        &self.total
    }

    /// Shows a line of the chat itself.
    pub fn note(&mut self, text: &str, width: usize) {
        self.gap();
        self.stay.extend(wrap(&[span(text, Style::DIM)], width, &[], &[]));
    }

    /// Shows rows of the chat itself.
    pub fn tell(&mut self, rows: Vec<Row>) {
        self.gap();
        self.stay.extend(rows);
    }

    /// Shows whether the tools of this process are being opened.
    pub fn opening(&mut self, opening: bool) {
        self.opening = opening;
    }

    /// Puts a word into the status line until the next thing happens.
    pub fn hint(&mut self, text: &str) {
        self.hint = Some(text.to_owned());
    }

    /// Shows what the user said until it is heard.
    pub fn said(&mut self, text: &str) {
        self.hint = None;
        self.said.push(text.to_owned());
        self.busy.get_or_insert_with(Instant::now);
    }

    /// Shows that the agent was told to stop.
    pub fn stopping(&mut self) {
        self.stopping = true;
    }

    /// Shows a session that is taken up.
    pub fn take_up(&mut self, history: &History, width: usize) {
        let earlier = history.messages.len().saturating_sub(SHOWN);
        if earlier > 0 {
            self.note(&format!("… {earlier} earlier messages"), width);
        }
        for message in &history.messages[earlier..] {
            match message.role {
                Role::User => self.heard(message, width),
                Role::Assistant => self.answered(message, width),
                Role::Tool => message.tool_results().for_each(|result| self.ended(result, None, width)),
                Role::System | Role::Other(_) => {}
            }
        }
        for (request, refused) in &history.inquired {
            self.pending.ask(request.clone());
            refused.iter().for_each(|refused| self.pending.refused(refused));
        }
        history.calls.iter().for_each(|call| self.total.add(call.usage.as_ref()));
        self.busy = (!history.is_idle).then(Instant::now);
    }

    /// Takes what happened. Requests are not asked here: standing orders may answer them.
    pub fn take(&mut self, happening: &Happening, width: usize) {
        self.hint = None;
        match happening {
            Happening::Text(text) => self.text(text, width),
            Happening::Thinking(text) => self.thought.push_str(text),
            Happening::Void => self.void(width),
            Happening::Heard(message) => self.heard(message, width),
            Happening::Answered(message) => self.answered(message, width),
            Happening::Started(id) => self.of(id, |open| open.since = Some(Instant::now())),
            Happening::Output { call, text } => self.of(call, |open| open.output.push_str(text)),
            Happening::Again(call) => self.of(call, |open| open.output.clear()),
            Happening::Ended { result, took } => self.ended(result, *took, width),
            Happening::Decided(answer) => self.pending.forget(&answer.id),
            Happening::Inquired(request) => self.pending.ask(request.clone()),
            Happening::Replied(reply) => {
                if let Some(inquiry) = self.pending.taken(reply) {
                    self.tell(form::taken(&inquiry, reply, width));
                }
            }
            Happening::Refused(refused) => self.pending.refused(refused),
            Happening::Paid(call) => self.turn.add(call.usage.as_ref()),
            Happening::Notice(text) => self.note(text, width),
            // This process will, when its servers have started.
            Happening::Unserved if self.opening => {}
            Happening::Unserved => self.note(UNSERVED, width),
            Happening::Idle => self.idle(width),
            Happening::Over(why) => {
                self.busy = None;
                self.over = Some(why.clone().unwrap_or_else(|| "the session is over".to_owned()));
            }
            Happening::Asked(_) => {}
        }
    }

    fn of(&mut self, call: &str, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.iter_mut().find(|open| open.call.id == call) {
            change(open);
            if open.output.len() > 2 * OUTPUT {
                let old = open.output.len() - OUTPUT;
                let cut = (old..).find(|place| open.output.is_char_boundary(*place));
                open.output.drain(..cut.unwrap_or(old));
            }
        }
    }

    fn text(&mut self, text: &str, width: usize) {
        if self.streamed.is_empty() {
            self.gap();
        }
        self.thought.clear();
        self.streamed.push_str(text);
        self.stay.extend(self.markdown.push(text, width));
    }

    fn void(&mut self, width: usize) {
        self.thought.clear();
        if !self.streamed.is_empty() {
            self.streamed.clear();
            self.markdown.drop_open();
            self.note("(the answer was cut off and is given again)", width);
        }
    }

    fn heard(&mut self, message: &Message, width: usize) {
        let text = message.text();
        self.said.retain(|said| *said != text);
        self.gap();
        self.stay.extend(user(&text, width));
        self.busy.get_or_insert_with(Instant::now);
    }

    fn answered(&mut self, message: &Message, width: usize) {
        let whole = message.text();
        match whole.strip_prefix(&self.streamed).map(str::to_owned) {
            Some(rest) if rest.is_empty() => {}
            Some(rest) => self.text(&rest, width),
            None => {
                self.void(width);
                self.text(&whole, width);
            }
        }
        self.stay.extend(self.markdown.finish(width));
        self.streamed.clear();
        self.thought.clear();
        if message.stop() == Stop::Error
            && let Some(error) = message.assistant.as_ref().and_then(|meta| meta.error.as_ref())
        {
            self.gap();
            let text = format!("The model gave no answer: {}", error.message);
            self.stay.extend(wrap(&[span(text, Style::RED)], width, &[], &[]));
        }
        let calls = message.tool_calls().cloned();
        self.open.extend(calls.map(|call| Open { call, since: None, output: String::new() }));
    }

    fn ended(&mut self, result: &flovyn_toolkit::message::ToolResult, took: Option<Duration>, width: usize) {
        self.pending.forget(&result.id);
        let Some(place) = self.open.iter().position(|open| open.call.id == result.id) else { return };
        let Open { call, .. } = self.open.remove(place);
        self.gap();
        self.stay.extend(card::ended(&call.name, &call.arguments, result, took, width));
    }

    fn idle(&mut self, width: usize) {
        self.busy = None;
        if std::mem::take(&mut self.stopping) {
            self.gap();
            self.stay.push(vec![span("■ stopped by Ctrl-C", Style::YELLOW)]);
        }
        let turn = std::mem::take(&mut self.turn);
        if !turn.is_empty() {
            self.total.merge(&turn);
            self.note(&turn.line(), width);
        }
    }

    /// An empty row before what comes.
    fn gap(&mut self) {
        self.stay.push(Row::new());
    }

    /// The rows that change, above the user's line.
    pub fn live(&self, width: usize, model: &str) -> Vec<Row> {
        let mut rows = self.markdown.tail(width);
        for Open { call, since, output } in &self.open {
            if self.pending.first().is_some_and(|wanted| wanted.call() == call.id) {
                continue;
            }
            rows.push(Row::new());
            rows.extend(card::open(&call.name, &call.arguments, output, since.map(|since| since.elapsed()), width));
        }
        for said in &self.said {
            rows.push(Row::new());
            rows.extend(wrap(&[span(said, Style::DIM)], width, &[span("› ", Style::DIM)], &[span("  ", Style::PLAIN)]));
        }
        rows.push(Row::new());
        match self.pending.first() {
            Some(Wanted::Answer(inquiry)) => rows.extend(form::open(inquiry, width)),
            Some(Wanted::Approval(request)) => {
                rows.extend(card::asked(&request.name, &request.arguments, width));
                let text = format!(
                    "Allow it? y yes · n no · a always ({}) · or say what to do instead",
                    always_means(request)
                );
                rows.extend(wrap(&[span(text, Style::YELLOW)], width, &[], &[]));
            }
            None => rows.extend(self.status(width, model)),
        }
        rows
    }

    fn status(&self, width: usize, model: &str) -> Vec<Row> {
        const TURNING: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
        let Some(since) = self.busy else {
            let opening = if self.opening { " · MCP servers are starting" } else { "" };
            let text = self.hint.clone().unwrap_or_else(|| format!("{model} · /help{opening}"));
            return wrap(&[span(text, Style::DIM)], width, &[], &[]);
        };
        let elapsed = since.elapsed();
        let mark = TURNING[(elapsed.as_millis() / 100) as usize % TURNING.len()];
        let doing = match (&self.hint, self.thought.is_empty(), self.open.is_empty()) {
            (Some(hint), ..) => hint.clone(),
            _ if self.stopping => "stopping".to_owned(),
            (None, false, _) => {
                let thought: Vec<char> = self.thought.chars().collect();
                let end: String = thought[thought.len().saturating_sub(width.saturating_sub(40))..].iter().collect();
                format!("thinking: {}", short(&end, width))
            }
            _ if self.opening => "waiting for MCP servers to start".to_owned(),
            (None, true, true) => "working".to_owned(),
            (None, true, false) => "running".to_owned(),
        };
        let text = format!(" {doing} · {}s · Ctrl-C stops", elapsed.as_secs());
        wrap(&[span(mark, Style::CYAN), span(text, Style::DIM)], width, &[], &[])
    }
}

/// What the user said.
fn user(text: &str, width: usize) -> Vec<Row> {
    wrap(&[span(text, Style::BOLD)], width, &[span("› ", Style::CYAN)], &[span("  ", Style::PLAIN)])
}
