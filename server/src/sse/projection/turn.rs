//! Makes the parts of a turn out of the events of a run: a state machine, without I/O and without a clock.
//!
//! Previews are shown as they come. The durable entry has the last word: what was streamed and is not its beginning is void, and
//! so is what an attempt has written that failed.

use super::content::{Part, first_text, parts_of};
use super::idle::{Idle, ends_answer, is_user_message};
use super::part::{Approval, Ending, Prose, TurnPart};
use super::phase::{Beginning, Phase, Rest};
use super::prose::{Draft, OpKey, Standing};
use flovyn_core::model::{Chunk, ChunkKind, Event, EventKind, FamilyEvent, StreamEvent};
use serde_json::{Value, json};
use std::sync::Arc;

/// What is streamed that something durable says as well, or that is shown in another way.
const SHOWN_OTHERWISE: &[&str] =
    &["thinking_delta", "tool_call_delta", "tool_call_start", "tool_call_end", "approval_request", "input_request"];
/// Entries that are shown as data.
const NOTES: &[&str] = &["compaction", "warning", "budget_low"];
/// Previews that are kept until it is known whose they are.
const EARLY: usize = 10_000;
/// The longest name that data of an agent may give itself.
const DATA_NAME: usize = 64;

/// Reads a turn.
#[derive(Debug)]
pub(crate) struct Turn {
    phase: Phase,
    id: String,
    idle: Idle,
    /// Whether the message that the turn answers was sent, so that a wait for people means that nothing answers it.
    is_sent: bool,
    /// Previews of tasks that came before what tells whose they are: a task may begin beside the commit that has the message.
    early: Vec<(Arc<Chunk>, Arc<str>)>,
    /// Whether it has begun without a message, which may still come.
    lacks_message: bool,
    /// Messages that say the same and come before its own.
    others: usize,
    drafts: Vec<Draft>,
    /// How many drafts have been replaced by what is durable.
    settled: usize,
    is_in_step: bool,
    /// Whether the step has nothing in it that counts.
    is_step_empty: bool,
    /// Whether the step has something in it that is durable.
    is_step_settled: bool,
    /// Calls without a result.
    calls: Vec<String>,
    denied: Vec<String>,
    approvals: Vec<Approval>,
    /// What is asked beside them, as its entries have it.
    questions: Vec<Value>,
    /// Where the run has come to rest.
    rest: Option<Rest>,
    has_failed: bool,
}

impl Turn {
    /// Waits for the next message of the user, or for what an agent writes that appends no such messages.
    pub(crate) fn awaiting() -> Self {
        Self::of_stage(Phase::Before(Beginning::Anything))
    }

    /// Waits for a message of the user: any, or the one that says a text, behind so many others that say the same.
    pub(crate) fn awaiting_message(text: Option<String>, others: usize) -> Self {
        Self { others, ..Self::of_stage(Phase::Before(Beginning::Message(text))) }
    }

    fn of_stage(phase: Phase) -> Self {
        Self {
            phase,
            id: String::new(),
            idle: Idle::default(),
            is_sent: true,
            early: Vec::new(),
            lacks_message: false,
            others: 0,
            drafts: Vec::new(),
            settled: 0,
            is_in_step: false,
            is_step_empty: true,
            is_step_settled: false,
            calls: Vec::new(),
            denied: Vec::new(),
            approvals: Vec::new(),
            questions: Vec::new(),
            rest: None,
            has_failed: false,
        }
    }

    /// Begins a turn whose message is known by the id of its entry.
    pub(crate) fn of_message(id: String) -> Self {
        Self { id, ..Self::of_stage(Phase::Under) }
    }

    /// It is read from before the signal on that brings the message.
    pub(crate) fn before_its_signal(self) -> Self {
        Self { is_sent: false, ..self }
    }

    /// The id of the turn, while it is under way.
    pub(crate) fn begun(&self) -> Option<&str> {
        (self.phase == Phase::Under).then_some(&self.id)
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// What people are asked, beside whether calls may run.
    pub(crate) fn questions(&self) -> &[Value] {
        &self.questions
    }

    /// Ends the turn if the run has come to rest, and only others let it go on. Whoever reads what happened before asks this at the last
    /// event: an earlier rest is over.
    pub(crate) fn ask(&mut self, parts: &mut Vec<TurnPart>) {
        match self.rest.take().filter(|_| !self.is_over()) {
            Some(Rest::Asking) if self.approvals.is_empty() => self.end(Ending::Done("end".into()), parts),
            Some(Rest::Asking) => self.end(Ending::Asks(self.approvals.clone()), parts),
            Some(Rest::Halted { message, code }) => {
                self.show_failure(message, code, parts);
                self.end(Ending::Failed, parts);
            }
            None => {}
        }
    }

    /// Takes the next event, and adds what it shows.
    pub(crate) fn take(&mut self, event: &FamilyEvent, parts: &mut Vec<TurnPart>) {
        if self.is_over() {
            return;
        }
        match &event.event {
            StreamEvent::Chunk(_, chunk) => self.preview(chunk, &event.cursor, parts),
            StreamEvent::Retract { op, .. } => {
                let op = (event.execution, *op);
                self.early.retain(|(chunk, _)| op_of(chunk) != op);
                self.void(op, parts);
            }
            // What was shown and still counts comes again; that is known by its numbers. What was lost is in the entry.
            StreamEvent::Gap(_) => {}
            StreamEvent::Durable(durable) => self.durable(durable, &event.cursor, parts),
        }
    }

    /// Takes an entry that is read from the store.
    pub(crate) fn take_entry(&mut self, entry: &Value, op: Option<OpKey>, parts: &mut Vec<TurnPart>) {
        let (kind, role) = (entry["entry_type"].as_str(), entry["role"].as_str());
        let content = &entry["content"];
        let text = |name: &str| content[name].as_str().unwrap_or_default().to_owned();
        match (kind, role) {
            (Some("message"), Some("assistant")) => self.answer(entry, op, parts),
            (Some("message"), Some("tool_result" | "tool")) => self.results(content, parts),
            (Some("approval_request"), _) => {
                let (call, hash, name) = (text("id"), text("hash"), text("name"));
                let approval = Approval { call, hash, name, arguments: content["arguments"].clone() };
                self.approvals.push(approval.clone());
                parts.push(TurnPart::ApprovalRequested(approval));
            }
            (Some("approval"), _) => {
                let (call, hash) = (text("id"), text("hash"));
                let meant = |asked: &Approval| asked.call == call && asked.hash == hash;
                let is_known = self.approvals.iter().any(meant);
                self.approvals.retain(|asked| !meant(asked));
                if is_known && content["approved"] != true {
                    self.denied.push(call.clone());
                    parts.push(TurnPart::Denied { call });
                }
            }
            (Some("input_request"), _) => {
                let (id, value) = (Some(text("id")), content.clone());
                self.questions.push(value.clone());
                parts.push(TurnPart::Data { name: "input_request".into(), id, value });
            }
            (Some("input"), _) => {
                self.questions.retain(|asked| asked["id"] != content["id"] || asked["hash"] != content["hash"]);
            }
            (Some(note), _) if NOTES.contains(&note) => {
                parts.push(TurnPart::Data { name: note.into(), id: None, value: content.clone() });
            }
            _ => {}
        }
    }

    fn durable(&mut self, event: &Event, cursor: &str, parts: &mut Vec<TurnPart>) {
        let is_idle = self.idle.waits_after(event);
        let op = event.sequence.map(|sequence| (event.execution, (event.segment, sequence)));
        if let Some(op) = op.filter(|_| is_of_task(event.kind)) {
            self.task(op, event, cursor, parts);
        }
        match event.kind {
            EventKind::Entry if is_user_message(event) => self.user_message(event, cursor, parts),
            EventKind::Entry if matches!(self.phase, Phase::Before(_)) => {
                let is_answer = event.data["role"] == "assistant" && event.data["entry_type"] == "message";
                if !is_answer || !self.begin_without_message(event.number, cursor, parts) {
                    return;
                }
                self.take_entry(&event.data, op, parts);
            }
            EventKind::Entry if ends_answer(event) => {
                let reason = event.data["content"]["stopReason"].as_str().unwrap_or("end").to_owned();
                self.end(Ending::Done(reason), parts);
            }
            EventKind::Entry => self.take_entry(&event.data, op, parts),
            EventKind::TaskCompleted => {
                let done = self.drafts.iter_mut().filter(|draft| Some(draft.op) == op);
                done.for_each(|draft| draft.is_done = true);
            }
            EventKind::TaskFailed | EventKind::TaskCancelled | EventKind::TaskRetry => {
                if let Some(op) = op {
                    self.void(op, parts);
                }
            }
            EventKind::Signal => self.is_sent = true,
            EventKind::Woken | EventKind::Resumed | EventKind::Continued => self.rest = None,
            EventKind::Waiting if is_idle && self.is_sent => self.waiting(parts),
            EventKind::NoWorker => {
                let value = json!({ "text": "No worker serves this run." });
                self.data("no_worker", value, parts);
            }
            EventKind::Completed => self.end(Ending::Done("end".into()), parts),
            EventKind::Cancelled => self.end(Ending::Cancelled, parts),
            EventKind::Failed => self.halt(event, "The run has failed"),
            EventKind::Paused => self.halt(event, "The run is paused"),
            _ => {}
        }
    }

    fn user_message(&mut self, event: &Event, cursor: &str, parts: &mut Vec<TurnPart>) {
        let is_ours = match &self.phase {
            Phase::Under if self.lacks_message && self.settled == 0 => {
                self.lacks_message = false;
                return;
            }
            Phase::Under => return self.end(Ending::Steered, parts),
            Phase::Over => return,
            Phase::Before(Beginning::Anything | Beginning::Message(None)) => true,
            // The text of a large message is not read.
            Phase::Before(Beginning::Message(Some(text))) => {
                event.data.get("content").is_none_or(|content| first_text(content) == text.as_str())
            }
        };
        if is_ours && self.others > 0 {
            self.others -= 1;
        } else if is_ours {
            let id = event.data["entry"].as_str().unwrap_or_default().to_owned();
            self.begin(id, before(event.number, cursor), parts);
        }
    }

    /// Begins a turn of an agent that appends no messages of its user; false while one is awaited by its text.
    fn begin_without_message(&mut self, number: u64, cursor: &str, parts: &mut Vec<TurnPart>) -> bool {
        match self.phase {
            Phase::Under => true,
            Phase::Before(Beginning::Anything) => {
                self.begin(format!("turn-{number}"), before(number, cursor), parts);
                self.lacks_message = true;
                true
            }
            Phase::Before(Beginning::Message(_)) | Phase::Over => false,
        }
    }

    fn begin(&mut self, id: String, position: String, parts: &mut Vec<TurnPart>) {
        (self.phase, self.id) = (Phase::Under, id.clone());
        parts.push(TurnPart::Began { id, position });
    }

    /// Takes a preview, or keeps it until it is known whose it is.
    fn preview(&mut self, chunk: &Arc<Chunk>, cursor: &Arc<str>, parts: &mut Vec<TurnPart>) {
        match self.phase {
            Phase::Before(_) if chunk.attempt != Chunk::OF_AN_AGENT => {
                if self.early.len() < EARLY {
                    self.early.push((chunk.clone(), cursor.clone()));
                }
            }
            _ => {
                self.release(op_of(chunk), parts);
                self.chunk(chunk, cursor, parts);
            }
        }
    }

    /// A durable event of a task tells whose its previews are: what its commit has appended came before it.
    fn task(&mut self, op: OpKey, event: &Event, cursor: &str, parts: &mut Vec<TurnPart>) {
        if !self.early.iter().any(|(chunk, _)| op_of(chunk) == op) {
            return;
        }
        match self.phase {
            // It answers an earlier message.
            Phase::Before(Beginning::Message(_)) => self.early.retain(|(chunk, _)| op_of(chunk) != op),
            Phase::Before(Beginning::Anything) => {
                self.begin_without_message(event.number, cursor, parts);
                self.release(op, parts);
            }
            Phase::Under => self.release(op, parts),
            Phase::Over => {}
        }
    }

    /// Shows the previews of an op that were kept.
    fn release(&mut self, op: OpKey, parts: &mut Vec<TurnPart>) {
        if self.early.is_empty() {
            return;
        }
        let (of_op, others) = std::mem::take(&mut self.early).into_iter().partition(|(chunk, _)| op_of(chunk) == op);
        self.early = others;
        let of_op: Vec<(Arc<Chunk>, Arc<str>)> = of_op;
        of_op.iter().for_each(|(chunk, cursor)| self.chunk(chunk, cursor, parts));
    }

    fn chunk(&mut self, chunk: &Chunk, cursor: &str, parts: &mut Vec<TurnPart>) {
        // Behind the durable event before it, so that it is read again.
        let number = cursor.rsplit('>').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let prose = |turn: &mut Self, prose: Prose, text: &str, parts: &mut Vec<TurnPart>| {
            if turn.begin_without_message(number + 1, &format!("{}{}", links(cursor), number + 1), parts) {
                turn.write(chunk, prose, text, parts);
            }
        };
        match chunk.kind {
            ChunkKind::Token => prose(self, Prose::Text, &chunk.data, parts),
            ChunkKind::Data => {
                let value: Value = serde_json::from_str(&chunk.data).unwrap_or_default();
                match value["type"].as_str() {
                    Some("thinking_delta") => {
                        prose(self, Prose::Thinking, value["delta"].as_str().unwrap_or_default(), parts);
                    }
                    Some("tool_call_delta") => {
                        let op = op_of(chunk);
                        self.drafts.iter_mut().filter(|draft| draft.op == op).for_each(Draft::cut);
                    }
                    Some(name) if SHOWN_OTHERWISE.contains(&name) => {}
                    name => {
                        let name = data_name(name.unwrap_or("value"));
                        self.data(&name, value, parts);
                    }
                }
            }
            ChunkKind::Progress => {
                self.data("progress", serde_json::from_str(&chunk.data).unwrap_or_default(), parts);
            }
            ChunkKind::Error => self.data("stream_error", json!({ "text": &*chunk.data }), parts),
            // Readers get it as a retraction.
            ChunkKind::Void => {}
        }
    }

    fn write(&mut self, chunk: &Chunk, prose: Prose, text: &str, parts: &mut Vec<TurnPart>) {
        let op = op_of(chunk);
        let standing = self.drafts.iter().find(|draft| draft.op == op).map(|draft| draft.standing(chunk));
        match standing {
            Some(Standing::Known) => return,
            Some(Standing::Anew) => self.void(op, parts),
            Some(Standing::Next) | None => {}
        }
        let draft = match self.drafts.iter().position(|draft| draft.op == op) {
            Some(draft) => draft,
            None => self.open_draft(op, parts),
        };
        let draft = &mut self.drafts[draft];
        draft.advance(chunk);
        draft.write(&self.id, prose, text, parts);
        self.is_step_empty = false;
    }

    /// Opens a draft of an op, in a step of its own unless others are open; its index.
    fn open_draft(&mut self, op: OpKey, parts: &mut Vec<TurnPart>) -> usize {
        if self.drafts.is_empty() && !(self.is_in_step && self.is_step_empty) {
            self.end_step(parts);
            parts.push(TurnPart::StepBegan);
            (self.is_in_step, self.is_step_empty, self.is_step_settled) = (true, true, false);
        }
        let is_taken = |place: usize| self.drafts.iter().any(|draft| draft.place == place);
        let place = (self.settled..).find(|place| !is_taken(*place)).unwrap_or(self.settled);
        self.drafts.push(Draft::new(op, place));
        self.drafts.len() - 1
    }

    fn end_step(&mut self, parts: &mut Vec<TurnPart>) {
        if std::mem::take(&mut self.is_in_step) {
            parts.push(TurnPart::StepEnded);
        }
    }

    /// What an op has written does not count.
    fn void(&mut self, op: OpKey, parts: &mut Vec<TurnPart>) {
        let Some(place) = self.drafts.iter().position(|draft| draft.op == op) else { return };
        let mut draft = self.drafts.remove(place);
        if !draft.is_empty() {
            let is_all = self.is_all_of_step();
            parts.push(TurnPart::Voided { pieces: draft.empty(&self.id), is_all });
        }
        self.is_step_empty = self.drafts.is_empty() && !self.is_step_settled;
    }

    /// Whether nothing but a draft that was taken out is in the step.
    fn is_all_of_step(&self) -> bool {
        self.drafts.is_empty() && !self.is_step_settled
    }

    /// What ended tasks have written and no entry has taken up does not count: it is in what they have come to.
    fn void_done(&mut self, parts: &mut Vec<TurnPart>) {
        while let Some(op) = self.drafts.iter().find(|draft| draft.is_done).map(|draft| draft.op) {
            self.void(op, parts);
        }
    }

    /// An answer is durable: it replaces what was streamed of it.
    fn answer(&mut self, entry: &Value, op: Option<OpKey>, parts: &mut Vec<TurnPart>) {
        let Some(content) = entry.get("content") else { return self.settle_unread(parts) };
        let read = parts_of(content);
        let mut written: Vec<(Prose, String)> = Vec::new();
        let mut is_cut = false;
        for part in &read {
            let (prose, text) = match part {
                Part::Text(text) => (Prose::Text, (*text).to_owned()),
                Part::Thinking(text) => (Prose::Thinking, (*text).to_owned()),
                Part::Other(value) => (Prose::Text, value.to_string()),
                Part::Call { .. } => {
                    is_cut = true;
                    continue;
                }
                Part::File { .. } | Part::Outcome { .. } => continue,
            };
            match written.last_mut().filter(|last| last.0 == prose && !is_cut) {
                _ if text.is_empty() => continue,
                Some(last) => last.1.push_str(&text),
                None => written.push((prose, text)),
            }
            is_cut = false;
        }
        let done = |fits: &dyn Fn(&Draft) -> bool| self.drafts.iter().rposition(|draft| draft.is_done && fits(draft));
        let own = self.drafts.iter().position(|draft| Some(draft.op) == op);
        let known = own.or_else(|| done(&|draft| draft.begins(&written))).or_else(|| done(&|_| true));
        let shows =
            !written.is_empty() || read.iter().any(|part| matches!(part, Part::Call { .. } | Part::File { .. }));
        let draft = match known {
            Some(draft) => Some(draft),
            None if shows => Some(self.open_draft(op.unwrap_or_default(), parts)),
            None => None,
        };
        if let Some(draft) = draft {
            let mut draft = self.drafts.remove(draft);
            draft.settle(&self.id, &written, self.is_all_of_step(), parts);
            if shows {
                self.settled += 1;
                self.is_step_settled = true;
            }
            self.void_done(parts);
            self.is_step_empty = self.is_all_of_step();
            self.calls_and_files(&read, &draft.piece_of_calls(&self.id), parts);
        }
        let failure = &content["assistant"]["error"];
        if let Some(message) = failure["message"].as_str().filter(|_| failure["kind"] != "aborted") {
            let code = failure["kind"].as_str().map(str::to_owned);
            self.show_failure(message.to_owned(), code, parts);
        }
    }

    /// An answer is durable that is too large to be read here: what was streamed stands.
    fn settle_unread(&mut self, parts: &mut Vec<TurnPart>) {
        if let Some(place) = self.drafts.iter().position(|draft| draft.is_done) {
            self.drafts.remove(place).close(&self.id, parts);
            self.settled += 1;
        }
    }

    fn calls_and_files(&mut self, read: &[Part<'_>], message: &str, parts: &mut Vec<TurnPart>) {
        for part in read {
            match part {
                Part::Call { id, name, arguments, written } => {
                    self.calls.push((*id).to_owned());
                    parts.push(TurnPart::Called {
                        message: message.to_owned(),
                        call: (*id).to_owned(),
                        name: (*name).to_owned(),
                        arguments: (*arguments).clone(),
                        written: written.map(str::to_owned),
                    });
                }
                Part::File { mime, url } => {
                    parts.push(TurnPart::File { mime: (*mime).to_owned(), url: url.clone() });
                }
                _ => {}
            }
        }
    }

    fn results(&mut self, content: &Value, parts: &mut Vec<TurnPart>) {
        self.void_done(parts);
        for part in parts_of(content) {
            let Part::Outcome { call, text, is_error } = part else { continue };
            let call = call.to_owned();
            // One whose call is not of this turn has nothing that it could be shown with.
            let Some(place) = self.calls.iter().position(|open| *open == call) else { continue };
            self.calls.remove(place);
            self.approvals.retain(|asked| asked.call != call);
            self.questions.retain(|asked| asked["id"] != call.as_str());
            let is_denied = self.denied.contains(&call);
            parts.push(TurnPart::Returned { call, text, is_error, is_denied });
        }
    }

    /// The agent waits for people alone.
    fn waiting(&mut self, parts: &mut Vec<TurnPart>) {
        let approves = |call: &String| self.approvals.iter().any(|approval| approval.call == *call);
        let answers = |call: &String| self.questions.iter().any(|asked| asked["id"] == call.as_str());
        // A call that nothing is asked about runs, as that of another agent does.
        match self.approvals.is_empty() && self.questions.is_empty() {
            // The message still waits for its turn.
            true if matches!(self.phase, Phase::Before(Beginning::Message(_))) => self.rest = Some(Rest::Asking),
            true => self.end(Ending::Done("end".into()), parts),
            false if self.calls.iter().all(|call| approves(call) || answers(call)) => self.rest = Some(Rest::Asking),
            false => {}
        }
    }

    fn data(&mut self, name: &str, value: Value, parts: &mut Vec<TurnPart>) {
        if self.phase == Phase::Under {
            parts.push(TurnPart::Data { name: name.into(), id: None, value });
        }
    }

    fn halt(&mut self, event: &Event, otherwise: &str) {
        let error = &event.data["error"];
        let reason = error["message"].as_str().or_else(|| event.data["reason"].as_str());
        let message = reason.map_or_else(|| format!("{otherwise}."), |reason| format!("{otherwise}: {reason}"));
        let code = error["error_type"].as_str().map(str::to_owned);
        self.rest = Some(Rest::Halted { message, code });
    }

    fn show_failure(&mut self, message: String, code: Option<String>, parts: &mut Vec<TurnPart>) {
        if !std::mem::replace(&mut self.has_failed, true) {
            parts.push(TurnPart::Failed { message, code });
        }
    }

    fn end(&mut self, ending: Ending, parts: &mut Vec<TurnPart>) {
        for mut draft in std::mem::take(&mut self.drafts) {
            draft.close(&self.id, parts);
        }
        self.end_step(parts);
        self.phase = Phase::Over;
        parts.push(TurnPart::Ended(if self.has_failed { Ending::Failed } else { ending }));
    }
}

fn op_of(chunk: &Chunk) -> OpKey {
    (chunk.execution, (chunk.segment, chunk.sequence))
}

fn is_of_task(kind: EventKind) -> bool {
    use EventKind::{TaskCancelled, TaskCompleted, TaskFailed, TaskRetry, TaskScheduled, TaskStarted};
    matches!(kind, TaskScheduled | TaskStarted | TaskRetry | TaskCompleted | TaskFailed | TaskCancelled)
}

/// The handoffs that a cursor leads over.
fn links(cursor: &str) -> &str {
    cursor.rfind('>').map_or("", |place| &cursor[..=place])
}

/// The position before an event.
fn before(number: u64, cursor: &str) -> String {
    format!("{}{}", links(cursor), number.saturating_sub(1))
}

/// A name for data that every format takes.
fn data_name(name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    name.chars().map(|letter| if fits(letter) { letter } else { '_' }).take(DATA_NAME).collect()
}
