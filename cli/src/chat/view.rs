//! The view of a conversation: settled rows, which are printed once and scroll away, and live rows at the end, which
//! are drawn again with each change. Pure: events go in, rows come out.

use super::agents::{AgentCard, address, model_call};
use super::approval_rules::allow_alike_means;
use super::attachments;
use super::cost::Tally;
use super::feed::{ChatEvent, UNSERVED};
use super::history::History;
use super::pending::{Pending, PendingRequest};
use super::screen::card::{self, Extent, Preview};
use super::screen::footer::Footer;
use super::screen::form;
use super::screen::markdown::Markdown;
use super::screen::style::{Row, Style, flow, span, wrap};
use super::transcript::{MAX_ITEMS, Transcript, user_rows_brief};
use crate::print::short;
use flovyn_core::id::ExecutionId;
use flovyn_toolkit::message::{Message, Role, Stop, ToolCall, ToolResult};
use flovyn_toolkit::react::LlmCall;
use flovyn_toolkit::tools::approval::ApprovalRequest;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of the output of a running call that are kept.
const MAX_OUTPUT: usize = 8 << 10;
/// Messages that are shown when a session is resumed.
const MAX_EARLIER_MESSAGES: usize = 60;
/// Rows of a question that are shown at least, however much stands above it.
const MIN_QUESTION_ROWS: usize = 6;
/// Rows around what a question shows of its call: what part it is, an empty one, the user's line, the footer, one above.
const AROUND_QUESTION: usize = 5;
/// How often what moves is drawn while the agent works.
const MOVES: Duration = Duration::from_millis(100);
/// How often the time is drawn that something runs or is waited for.
const TICKS: Duration = Duration::from_secs(1);

/// A tool call without a result.
struct OpenCall {
    call: ToolCall,
    since: Option<Instant>,
    output: String,
}

/// The view of a conversation.
#[derive(Default)]
pub(super) struct View {
    /// The directory of the session; paths in it are shown without it.
    directory: PathBuf,
    settled_rows: Vec<Row>,
    markdown: Markdown,
    /// The part of the answer that was streamed so far.
    streamed: String,
    /// The model's thinking since the last text, for the status line.
    thinking: String,
    open: Vec<OpenCall>,
    /// The agents that work below the session or have, in the order of their starts.
    agents: Vec<AgentCard>,
    /// Messages that the agent has not read yet.
    queued: Vec<String>,
    /// The requests to the user.
    pub pending: Pending,
    /// The call of the question that is shown, and what it would change.
    preview: Option<(String, Option<Preview>)>,
    /// The first row of the question that is shown, where it is longer than the screen.
    scrolled: usize,
    /// The conversation, for reading it whole.
    transcript: Transcript,
    /// The tools of this process are being opened.
    opening: bool,
    /// Since when the agent works. None while it waits for the user.
    busy: Option<Instant>,
    /// The user pressed Ctrl-C, and the agent has not stopped yet.
    stopping: bool,
    /// A hint for the status line.
    hint: Option<String>,
    /// What the chat itself asks.
    question: Option<String>,
    /// The mode, where it is not the usual one.
    mode: Option<&'static str>,
    /// The command of the user that runs.
    command: Option<(String, Instant)>,
    /// The last answer is none.
    failed: bool,
    /// The conversation is being compacted.
    compacting: bool,
    /// The run sleeps until a model is asked again.
    sleeping: bool,
    /// Tokens of the conversation, as the last model call counted them.
    context: Option<u64>,
    /// What confines commands, where this process runs them.
    sandbox: Option<&'static str>,
    turn: Tally,
    total: Tally,
    /// Why the session is over.
    ended: Option<String>,
}

impl View {
    /// A view of nothing yet.
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..Self::default() }
    }

    /// The rows that have settled since the last call.
    pub(super) fn settled(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.settled_rows)
    }

    /// Whether the agent works.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// How often it changes with time alone; none where it stands still, as a question does.
    pub(super) fn pace(&self) -> Option<Duration> {
        let is_working = self.is_busy() && self.pending.first().is_none();
        match is_working && !self.sleeping {
            true => Some(MOVES),
            false => (is_working || self.command.is_some()).then_some(TICKS),
        }
    }

    /// The request that has come to be the question, if it is new.
    pub(super) fn new_question(&self) -> Option<&ApprovalRequest> {
        match self.pending.first() {
            Some(PendingRequest::Approval(request))
                if self.preview.as_ref().is_none_or(|(call, _)| *call != request.id) =>
            {
                Some(request)
            }
            _ => None,
        }
    }

    /// Sets what the call of the question would change.
    pub(super) fn set_preview(&mut self, call: String, preview: Option<Preview>) {
        self.preview = Some((call, preview));
        self.scrolled = 0;
    }

    /// Scrolls the question by rows.
    pub(super) fn scroll(&mut self, rows: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(rows);
    }

    /// The whole conversation, with what runs and what is asked.
    pub(super) fn all_rows(&self, width: usize) -> Vec<Row> {
        let mut rows = self.transcript.rows(width);
        for OpenCall { call, output, .. } in &self.open {
            rows.push(Row::new());
            let preview =
                self.preview.as_ref().filter(|(of, _)| *of == call.id).and_then(|(_, preview)| preview.as_ref());
            rows.extend(card::approval(&call.name, &call.arguments, preview, width));
            rows.extend(card::output(output, width));
        }
        rows
    }

    /// Why the session cannot go on.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// What all turns cost.
    pub(super) fn total(&self) -> &Tally {
        &self.total
    }

    /// Shows a line of the chat itself.
    pub(super) fn show_note(&mut self, text: &str, width: usize) {
        self.blank_row();
        self.settled_rows.extend(wrap(&[span(text, Style::DIM)], width, &[], &[]));
    }

    /// Shows rows of the chat itself.
    pub(super) fn show_rows(&mut self, rows: Vec<Row>) {
        self.blank_row();
        self.settled_rows.extend(rows);
    }

    /// Shows whether the tools of this process are being opened.
    pub(super) fn set_opening(&mut self, opening: bool) {
        self.opening = opening;
    }

    /// Shows what confines commands.
    pub(super) fn set_sandbox(&mut self, sandbox: Option<&'static str>) {
        self.sandbox = sandbox;
    }

    /// Shows a hint in the status line until the next event.
    pub(super) fn show_hint(&mut self, text: &str) {
        self.hint = Some(text.to_owned());
    }

    /// Shows no hint any more.
    pub(super) fn clear_hint(&mut self) {
        self.hint = None;
    }

    /// Forgets the conversation; what was printed stays.
    pub(super) fn restart(&mut self) {
        let settled_rows = std::mem::take(&mut self.settled_rows);
        let Self { opening, mode, sandbox, .. } = *self;
        *self = Self { settled_rows, opening, mode, sandbox, ..Self::default() };
    }

    /// Takes a session that is resumed, of which everything is on the screen already.
    pub(super) fn load(&mut self, history: &History, width: usize) {
        let printed = self.settled_rows.len();
        self.show_history(history, width);
        self.settled_rows.truncate(printed);
    }

    /// Whether the last answer is none: the turn was stopped, or no model answered.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Asks something of the chat itself, or no longer.
    pub(super) fn ask(&mut self, question: Option<String>) {
        self.question = question;
    }

    /// Shows the mode, where it is not the usual one.
    pub(super) fn set_mode(&mut self, mode: Option<&'static str>) {
        self.mode = mode;
    }

    /// Shows a command of the user that runs, or none.
    pub(super) fn show_command(&mut self, command: Option<&str>) {
        self.command = command.map(|command| (command.to_owned(), Instant::now()));
    }

    /// Shows that the conversation is being compacted.
    pub(super) fn set_compacting(&mut self) {
        self.compacting = true;
        self.busy.get_or_insert_with(Instant::now);
    }

    /// What the tools have changed in files.
    pub(super) fn diffs(&self) -> String {
        self.transcript.diffs()
    }

    /// Shows a message of the user until the agent has read it.
    pub(super) fn show_queued(&mut self, text: &str) {
        self.hint = None;
        self.queued.push(text.to_owned());
        self.busy.get_or_insert_with(Instant::now);
    }

    /// Shows that the agent was asked to stop.
    pub(super) fn set_stopping(&mut self) {
        self.stopping = true;
    }

    /// Shows a session that is resumed.
    pub(super) fn show_history(&mut self, history: &History, width: usize) {
        let earlier = history.messages.len().saturating_sub(MAX_EARLIER_MESSAGES);
        if earlier > 0 {
            self.show_note(&format!("… {earlier} earlier messages"), width);
        }
        let kept = history.messages.len().saturating_sub(MAX_ITEMS);
        history.messages[kept.min(earlier)..earlier].iter().for_each(|message| self.transcript.add(message));
        for message in &history.messages[earlier..] {
            match message.role {
                Role::User => self.user_message(message, width),
                Role::Assistant => self.assistant_message(message, width),
                Role::Tool => message.tool_results().for_each(|result| self.call_ended(result, None, width)),
                Role::System | Role::Other(_) => {}
            }
        }
        for (request, refused) in &history.input_requests {
            self.pending.add_elicitation(request.clone());
            refused.iter().for_each(|refused| self.pending.refuse(refused));
        }
        self.agents.extend(history.agents.iter().cloned().map(AgentCard::new));
        for call in &history.calls {
            self.total.add(call.usage.as_ref());
            self.count_context(call);
        }
        self.busy = (!history.is_idle).then(Instant::now);
    }

    /// Applies an event. Approval requests are added elsewhere, since the approval rules may answer them.
    pub(super) fn apply(&mut self, event: &ChatEvent, width: usize) {
        self.hint = None;
        match event {
            ChatEvent::Text(text) => self.text(text, width),
            ChatEvent::Thinking(text) => self.thinking.push_str(text),
            ChatEvent::Discarded => self.discard_streamed(width),
            ChatEvent::UserMessage(message) => self.user_message(message, width),
            ChatEvent::AssistantMessage(message) => self.assistant_message(message, width),
            ChatEvent::ToolStarted(id) => self.update_call(id, |open| open.since = Some(Instant::now())),
            ChatEvent::ToolOutput { call, text } => self.update_call(call, |open| open.output.push_str(text)),
            ChatEvent::ToolRestarted(call) => self.update_call(call, |open| open.output.clear()),
            ChatEvent::ToolEnded { result, duration } => self.call_ended(result, *duration, width),
            ChatEvent::ApprovalAnswered(answer) => self.pending.remove(&answer.id),
            ChatEvent::InputRequested(request) => self.pending.add_elicitation(request.clone()),
            ChatEvent::InputAnswered(reply) => {
                if let Some(elicitation) = self.pending.accept(reply) {
                    self.show_rows(form::answered(&elicitation, reply, width));
                }
            }
            ChatEvent::InputRefused(refused) => self.pending.refuse(refused),
            ChatEvent::ModelCalled(call) => {
                self.turn.add(call.usage.as_ref());
                self.count_context(call);
            }
            ChatEvent::AgentStarted(spawn) => self.agents.push(AgentCard::new(spawn.clone())),
            ChatEvent::OfAgent { run, event } => self.of_agent(*run, event),
            ChatEvent::Sleeping(sleeping) => self.sleeping = *sleeping,
            ChatEvent::Notice(text) => self.show_note(text, width),
            // No warning yet: this process will serve the run once its MCP servers have started.
            ChatEvent::Unserved if self.opening => {}
            ChatEvent::Unserved => self.show_note(UNSERVED, width),
            ChatEvent::Idle => self.on_idle(width),
            ChatEvent::SessionEnded(why) => {
                self.busy = None;
                self.ended = Some(why.clone().unwrap_or_else(|| "the session is over".to_owned()));
            }
            ChatEvent::ApprovalRequested(_) | ChatEvent::AnswerEnded(_) => {}
        }
    }

    /// Takes what an agent below has told.
    fn of_agent(&mut self, run: ExecutionId, event: &ChatEvent) {
        if let ChatEvent::ToolEnded { result, .. } = event {
            self.pending.remove(&address(run, &result.id));
        }
        if let Some(call) = model_call(event) {
            self.turn.add(call.usage.as_ref());
        }
        if let Some(card) = self.agents.iter_mut().find(|card| card.spawn.child == run) {
            card.apply(event);
        }
    }

    /// The agents that work below the session or have.
    pub(super) fn agents(&self) -> &[AgentCard] {
        &self.agents
    }

    /// Takes how full the context is from a model call. What a summary leaves of it, the next call says.
    fn count_context(&mut self, call: &LlmCall) {
        match (call.purpose.as_str(), &call.usage) {
            ("turn", Some(usage)) if usage.total() > 0 => self.context = Some(usage.total()),
            ("compaction", _) => self.context = None,
            _ => {}
        }
    }

    fn update_call(&mut self, call: &str, change: impl FnOnce(&mut OpenCall)) {
        if let Some(open) = self.open.iter_mut().find(|open| open.call.id == call) {
            change(open);
            if open.output.len() > 2 * MAX_OUTPUT {
                let old = open.output.len() - MAX_OUTPUT;
                let cut = (old..).find(|place| open.output.is_char_boundary(*place));
                open.output.drain(..cut.unwrap_or(old));
            }
        }
    }

    fn text(&mut self, text: &str, width: usize) {
        if self.streamed.is_empty() {
            self.blank_row();
        }
        self.thinking.clear();
        self.streamed.push_str(text);
        self.settled_rows.extend(self.markdown.push(text, width));
    }

    fn discard_streamed(&mut self, width: usize) {
        self.thinking.clear();
        if !self.streamed.is_empty() {
            self.streamed.clear();
            self.markdown.drop_open();
            self.show_note("(the answer was cut off and is given again)", width);
        }
    }

    fn user_message(&mut self, message: &Message, width: usize) {
        self.transcript.add(message);
        let written = attachments::written(message);
        // A message that was sent twice is read twice.
        if let Some(place) = self.queued.iter().position(|queued| queued == written) {
            self.queued.remove(place);
        }
        self.blank_row();
        self.settled_rows.extend(user_rows_brief(&attachments::shown(message), width));
        self.busy.get_or_insert_with(Instant::now);
    }

    fn assistant_message(&mut self, message: &Message, width: usize) {
        self.transcript.add(message);
        let whole = message.text();
        match whole.strip_prefix(&self.streamed).map(str::to_owned) {
            Some(rest) if rest.is_empty() => {}
            Some(rest) => self.text(&rest, width),
            None => {
                self.discard_streamed(width);
                self.text(&whole, width);
            }
        }
        self.settled_rows.extend(self.markdown.finish(width));
        self.streamed.clear();
        self.thinking.clear();
        self.failed = matches!(message.stop(), Stop::Error | Stop::Aborted);
        if message.stop() == Stop::Error
            && let Some(error) = message.assistant.as_ref().and_then(|meta| meta.error.as_ref())
        {
            self.blank_row();
            let text = format!("The model gave no answer: {}", error.message);
            self.settled_rows.extend(wrap(&[span(text, Style::RED)], width, &[], &[]));
        }
        for call in message.tool_calls().cloned() {
            let arguments = card::near(&call.arguments, &self.directory).into_owned();
            self.open.push(OpenCall { call: ToolCall { arguments, ..call }, since: None, output: String::new() });
        }
    }

    fn call_ended(&mut self, result: &ToolResult, duration: Option<Duration>, width: usize) {
        self.pending.remove(&result.id);
        self.transcript.add_result(result, duration);
        let Some(place) = self.open.iter().position(|open| open.call.id == result.id) else { return };
        let OpenCall { call, .. } = self.open.remove(place);
        self.blank_row();
        self.settled_rows.extend(card::ended(&call.name, &call.arguments, result, duration, Extent::Brief, width));
        let of_call = |(_, card): &(usize, &AgentCard)| card.spawn.id == result.id;
        if let Some((place, card)) = self.agents.iter().enumerate().rev().find(of_call) {
            let text = format!("  {} · /agents {} shows what it did", card.stand(), place + 1);
            self.settled_rows.extend(wrap(&[span(text, Style::DIM)], width, &[], &[]));
        }
    }

    fn on_idle(&mut self, width: usize) {
        self.busy = None;
        (self.compacting, self.sleeping) = (false, false);
        if std::mem::take(&mut self.stopping) {
            self.blank_row();
            self.settled_rows.push(vec![span("■ stopped by Ctrl-C", Style::YELLOW)]);
        }
        let turn = std::mem::take(&mut self.turn);
        if !turn.is_empty() {
            self.total.merge(&turn);
            self.show_note(&turn.line(), width);
        }
    }

    /// Adds an empty row.
    fn blank_row(&mut self) {
        self.settled_rows.push(Row::new());
    }

    /// The rows that change, above the user's line.
    pub(super) fn live_rows(&self, (width, height): (usize, usize)) -> Vec<Row> {
        let mut rows = self.markdown.tail(width);
        for OpenCall { call, since, output } in &self.open {
            if self.pending.first().is_some_and(|wanted| wanted.call() == call.id) {
                continue;
            }
            rows.push(Row::new());
            rows.extend(card::open(&call.name, &call.arguments, output, since.map(|since| since.elapsed()), width));
            let card = self.agents.iter().rev().find(|card| card.spawn.id == call.id);
            rows.extend(card.into_iter().flat_map(|card| card.rows(width)));
        }
        if let Some((command, since)) = &self.command {
            rows.push(Row::new());
            let arguments = serde_json::json!({ "command": command });
            rows.extend(card::open("!", &arguments, "", Some(since.elapsed()), width));
        }
        for queued in &self.queued {
            rows.push(Row::new());
            rows.extend(user_rows_brief(queued, width));
        }
        rows.push(Row::new());
        match self.pending.first() {
            Some(PendingRequest::Elicitation(elicitation)) => rows.extend(form::pending(elicitation, width)),
            Some(PendingRequest::Approval(request)) => {
                let room = height.saturating_sub(rows.len()).max(MIN_QUESTION_ROWS);
                rows.extend(self.question(request, width, room));
            }
            None => rows.extend(self.status(width)),
        }
        rows
    }

    /// The question about a call, with a part of the call where all of it takes more than so many rows.
    fn question(&self, request: &ApprovalRequest, width: usize, room: usize) -> Vec<Row> {
        let preview = self.preview.as_ref().filter(|(call, _)| *call == request.id);
        let preview = preview.and_then(|(_, preview)| preview.as_ref());
        let arguments = card::near(&request.arguments, &self.directory);
        let mut rows = card::approval(&request.name, &arguments, preview, width);
        let question = question(&allow_alike_means(request), width);
        let room = room.saturating_sub(question.len() + AROUND_QUESTION).max(MIN_QUESTION_ROWS);
        if rows.len() > room {
            let all = rows.len();
            let top = self.scrolled.min(all - room);
            rows = rows.split_off(top);
            rows.truncate(room);
            let text = format!("  ↕ lines {}–{} of {all} · PgUp PgDn scroll · Ctrl-O shows all", top + 1, top + room);
            rows.extend(wrap(&[span(text, Style::DIM)], width, &[], &[]));
        }
        rows.push(Row::new());
        rows.extend(question);
        rows
    }

    /// What the user is asked, all of it, and what the status line would say of a command; for screens that only print.
    pub(super) fn asked_rows(&self, width: usize) -> Vec<Row> {
        match self.pending.first() {
            Some(PendingRequest::Elicitation(elicitation)) => form::pending(elicitation, width),
            Some(PendingRequest::Approval(request)) => self.question(request, width, usize::MAX),
            None => {
                let question = self.question.as_ref().filter(|_| !self.is_busy());
                let said = self.hint.as_ref().or(question);
                said.map_or_else(Vec::new, |text| wrap(&[span(text, Style::PLAIN)], width, &[], &[]))
            }
        }
    }

    /// What stands between the conversation and the user's line: what the agent does, or what the chat itself says or asks.
    fn status(&self, width: usize) -> Vec<Row> {
        const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
        let Some(since) = self.busy else {
            return match (&self.hint, &self.question) {
                (Some(hint), _) => wrap(&[span(hint, Style::DIM)], width, &[], &[]),
                (None, Some(question)) => asked(question, width),
                (None, None) => Vec::new(),
            };
        };
        let elapsed = since.elapsed();
        let mark = if self.sleeping { "◦" } else { SPINNER[(elapsed.as_millis() / 100) as usize % SPINNER.len()] };
        let doing = match (&self.hint, self.thinking.is_empty(), self.open.is_empty()) {
            (Some(hint), ..) => hint.clone(),
            _ if self.stopping => "stopping".to_owned(),
            _ if self.sleeping => "waiting".to_owned(),
            _ if self.compacting => "compacting the conversation".to_owned(),
            (None, false, _) => {
                let thinking: Vec<char> = self.thinking.chars().collect();
                let end: String = thinking[thinking.len().saturating_sub(width.saturating_sub(40))..].iter().collect();
                format!("thinking: {}", short(&end, width))
            }
            _ if self.opening => "waiting for MCP servers to start".to_owned(),
            (None, true, true) => "working".to_owned(),
            (None, true, false) => "running".to_owned(),
        };
        let text = format!(" {doing} · {} · Ctrl-C stops", lasting(elapsed));
        wrap(&[span(mark, Style::CYAN), span(text, Style::DIM)], width, &[], &[])
    }

    /// The row below the user's line.
    pub(super) fn footer(&self, model: &str, window: Option<u64>, width: usize) -> Row {
        let mut total = self.total.clone();
        total.merge(&self.turn);
        let cost = total.cost().filter(|_| !total.is_empty());
        let (context, mode, sandbox, opening) = (self.context, self.mode, self.sandbox, self.opening);
        Footer { mode, model, context, window, cost: cost.as_deref(), sandbox, opening }.row(width)
    }
}

/// The question whether a call may run. Colours of terminals differ, so it is legible without them.
fn question(alike: &str, width: usize) -> Vec<Row> {
    let alike = format!(" always ({})", short(alike, 60));
    let answers = [("y", " yes"), ("n", " no"), ("a", &alike), ("p", " always in this project")];
    let mut answers: Vec<_> =
        answers.map(|(key, what)| vec![span(key, Style::BOLD), span(what, Style::PLAIN)]).into_iter().collect();
    answers.push(vec![span("or say what to do instead", Style::PLAIN)]);
    let first = [span("Allow it?", Style { bold: true, ..Style::YELLOW }), span("  ", Style::PLAIN)];
    flow(&answers, width, &first, &[span("           ", Style::PLAIN)])
}

/// What the chat itself asks, its first sentence standing out.
fn asked(question: &str, width: usize) -> Vec<Row> {
    let end = question.find('?').map_or(0, |at| at + 1);
    let (first, rest) = question.split_at(end);
    wrap(&[span(first, Style { bold: true, ..Style::YELLOW }), span(rest, Style::PLAIN)], width, &[], &[])
}

/// How long something has lasted: `7s`, `2m 5s`, `1h 2m`.
fn lasting(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
    }
}
