//! What a turn has come to: its parts, gathered. Only what is durable counts, so that whoever reads the turn again, elsewhere and later,
//! gathers the same.

use super::idle::{ends_answer, is_user_message};
use super::location::TurnLocation;
use super::part::{Approval, Ending, Prose, TurnPart};
use super::turn::Turn;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{Event, EventKind, FamilyEvent, StreamEvent, Usage};
use serde_json::Value;
use std::collections::BTreeMap;

/// A call of a tool.
#[derive(Debug)]
pub(crate) struct GatheredCall {
    /// Its id.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// Its arguments; a text where the model has written no JSON object.
    pub(crate) arguments: Value,
    /// The text of its result, and whether it failed, once it has one.
    pub(crate) result: Option<(String, bool)>,
    /// Whether a person did not allow it.
    pub(crate) is_denied: bool,
}

/// Gathers a turn.
#[derive(Debug)]
pub(crate) struct Answer {
    turn: Turn,
    /// The last event that there was as it began; none once it was read.
    until: Option<String>,
    /// Whether what the run has used counts before the turn begins.
    counts_before: bool,
    /// Whether it has begun.
    pub(crate) has_begun: bool,
    /// The pieces of the last answer, by their ids.
    pieces: Vec<(String, String)>,
    /// Why the last answer stopped, where it says so.
    stop: Option<String>,
    /// Whether it has called tools.
    has_called: bool,
    /// The calls, in their order.
    pub(crate) calls: Vec<GatheredCall>,
    /// How it ended.
    pub(crate) ending: Option<Ending>,
    /// The kind of the event that it ended with.
    pub(crate) ended_with: Option<EventKind>,
    /// What went wrong: in which words, and with which code.
    pub(crate) failure: Option<(String, Option<String>)>,
    /// The answer as a value of the form that it was to have.
    pub(crate) structured: Option<Value>,
    /// What its model calls have used, by model.
    pub(crate) usage: BTreeMap<String, Usage>,
    /// The last checkpoint: the run and its sequence.
    pub(crate) checkpoint: Option<(ExecutionId, u32)>,
    /// The run that had it at its end.
    pub(crate) run: Option<ExecutionId>,
    /// Whether its checkpoint is still to come.
    lacks_checkpoint: bool,
}

impl Answer {
    /// Gathers a turn from its place. `counts_before` says whether the run does nothing else before it.
    pub(crate) fn new(location: TurnLocation, counts_before: bool) -> Self {
        Self {
            until: location.last(),
            turn: location.turn,
            counts_before,
            has_begun: false,
            pieces: Vec::new(),
            stop: None,
            has_called: false,
            calls: Vec::new(),
            ending: None,
            ended_with: None,
            failure: None,
            structured: None,
            usage: BTreeMap::new(),
            checkpoint: None,
            run: None,
            lacks_checkpoint: false,
        }
    }

    /// Whether it has all.
    pub(crate) fn is_complete(&self) -> bool {
        self.turn.is_over() && !self.lacks_checkpoint
    }

    /// Whether it has taken all that there was as it began.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.until.is_none()
    }

    /// The text of the last answer; none if there is no answer.
    pub(crate) fn text(&self) -> Option<String> {
        (!self.pieces.is_empty()).then(|| self.pieces.iter().map(|(_, text)| text.as_str()).collect())
    }

    /// Why the answer stopped that the next message came behind; none where that came in the middle.
    pub(crate) fn stop_before_next(&self) -> Option<&str> {
        match self.stop.as_deref() {
            Some(stop) => ["end", "length", "refusal"].contains(&stop).then_some(stop),
            None => (!self.pieces.is_empty() && !self.has_called).then_some("end"),
        }
    }

    /// What people are asked beside approvals, as its entries have it.
    pub(crate) fn questions(&self) -> &[Value] {
        self.turn.questions()
    }

    /// The approvals that are awaited.
    pub(crate) fn approvals(&self) -> &[Approval] {
        match &self.ending {
            Some(Ending::Asks(approvals)) => approvals,
            _ => &[],
        }
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self, event: &FamilyEvent) {
        let StreamEvent::Durable(durable) = &event.event else { return };
        if self.turn.is_over() {
            return self.take_behind(durable);
        }
        let mut parts = Vec::new();
        self.turn.take(event, &mut parts);
        if self.until.as_deref() == Some(&*event.cursor) {
            self.until = None;
        }
        if self.until.is_none() {
            self.turn.ask(&mut parts);
        }
        parts.into_iter().for_each(|part| self.gather(part));
        if durable.kind == EventKind::Entry
            && durable.data["role"] == "assistant"
            && durable.data["entry_type"] == "message"
        {
            self.stop = durable.data["content"]["assistant"]["stop"].as_str().map(str::to_owned);
        }
        if durable.kind == EventKind::Usage && (self.has_begun || self.counts_before) {
            self.count(durable);
        }
        if self.turn.is_over() {
            self.ended_with = Some(durable.kind);
            self.run = Some(durable.execution);
            self.checkpoint = checkpoint_at(durable);
            if ends_answer(durable) {
                self.structured = durable.data["content"].get("output").filter(|output| !output.is_null()).cloned();
                self.lacks_checkpoint = true;
            }
        }
    }

    /// Takes note that no event comes any more.
    pub(crate) fn end(&mut self) {
        let mut parts = Vec::new();
        self.turn.ask(&mut parts);
        parts.into_iter().for_each(|part| self.gather(part));
    }

    /// An agent saves its state behind the end of its answer.
    fn take_behind(&mut self, event: &Event) {
        use EventKind::{Cancelled, Checkpoint, Completed, Failed, HandedOff, Paused, Waiting};
        let ends = matches!(event.kind, Checkpoint | Waiting | Paused | Completed | Failed | Cancelled | HandedOff);
        if self.lacks_checkpoint && (ends || is_user_message(event)) {
            self.checkpoint = checkpoint_at(event);
            self.lacks_checkpoint = false;
        }
    }

    fn gather(&mut self, part: TurnPart) {
        match part {
            TurnPart::Began { .. } => self.has_begun = true,
            TurnPart::StepBegan => {
                self.pieces.clear();
                self.has_called = false;
            }
            TurnPart::Grew(piece, text) if piece.prose == Prose::Text => {
                match self.pieces.iter_mut().find(|(id, _)| *id == piece.id) {
                    Some((_, written)) => written.push_str(&text),
                    None => self.pieces.push((piece.id, text)),
                }
            }
            TurnPart::Voided { pieces, .. } => {
                self.pieces.retain(|(id, _)| !pieces.iter().any(|(piece, _)| piece.id == *id));
            }
            TurnPart::Called { call: id, name, arguments, written, .. } => {
                let arguments = written.map_or(arguments, Value::String);
                self.calls.push(GatheredCall { id, name, arguments, result: None, is_denied: false });
                self.has_called = true;
            }
            TurnPart::Denied { call } => {
                self.calls.iter_mut().filter(|known| known.id == call).for_each(|known| known.is_denied = true);
            }
            TurnPart::Returned { call, text, is_error, .. } => {
                // An id may come again in a later message.
                if let Some(known) = self.calls.iter_mut().rev().find(|known| known.id == call) {
                    known.result = Some((text, is_error));
                }
            }
            TurnPart::Failed { message, code } => self.failure = Some((message, code)),
            TurnPart::Ended(ending) => self.ending = Some(ending),
            _ => {}
        }
    }

    fn count(&mut self, event: &Event) {
        let Some(model) = event.data["model"].as_str() else { return };
        if let Ok(used) = serde_json::from_value::<Usage>(event.data["usage"].clone()) {
            self.usage.entry(model.to_owned()).or_default().add(&used);
        }
    }
}

/// The last checkpoint of a run at an event; none before the first.
fn checkpoint_at(event: &Event) -> Option<(ExecutionId, u32)> {
    (event.segment > 0).then_some((event.execution, event.segment))
}
