//! The batch that is being built, and the one that is on its way.

use crate::model::{AttemptReport, Batch, BatchEnd, Consumed, NewEvent, NewOp};

/// What has happened since the last commit left.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub ops: Vec<NewOp>,
    pub attempts: Vec<AttemptReport>,
    pub restarted: Vec<(u32, u32)>,
    pub read_counts: Vec<(u32, u32)>,
    pub consumed: Vec<Consumed>,
    pub disarmed: Vec<u32>,
    /// Ops whose end nobody will be told.
    pub orphaned: Vec<u32>,
    pub events: Vec<NewEvent>,
    /// Something waits for this draft to be durable: do not hold it back.
    pub urgent: bool,
    /// A read of the outside is among the ops: no task may start beside it.
    pub reads: bool,
    /// The hold that was armed for it is over.
    pub held_enough: bool,
    /// A hold is armed.
    pub hold_armed: bool,
}

impl Draft {
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
            && self.attempts.is_empty()
            && self.restarted.is_empty()
            && self.read_counts.is_empty()
            && self.consumed.is_empty()
            && self.disarmed.is_empty()
            && self.orphaned.is_empty()
            && self.events.is_empty()
    }

    /// Turns the draft into a batch and leaves an empty one.
    pub fn take(&mut self, segment: u32, code: Option<String>, orphaned: Vec<u32>, end: BatchEnd) -> Batch {
        let mut draft = std::mem::take(self);
        draft.orphaned.extend(orphaned);
        Batch {
            segment,
            ops: draft.ops,
            attempts: draft.attempts,
            restarted: draft.restarted,
            read_counts: draft.read_counts,
            consumed: draft.consumed,
            disarmed: draft.disarmed,
            orphaned: draft.orphaned,
            events: draft.events,
            code,
            end,
        }
    }

    /// Warns watchers about something.
    pub fn warn(&mut self, sequence: Option<u32>, warning: &str, mut data: serde_json::Value) {
        if let Some(object) = data.as_object_mut() {
            object.insert("warning".into(), warning.into());
        }
        self.events.push(NewEvent { kind: crate::model::EventKind::Warning, sequence, data });
    }
}
