//! When an agent waits for its user and for nothing else: turns end there.

use flovyn_core::model::{Event, EventKind, tells_of_child};
use std::collections::HashSet;

/// Tracks the tasks of a run, to tell a wait for a person from one in which work goes on.
#[derive(Debug, Default)]
pub(super) struct Idle {
    open: HashSet<(u32, u32)>,
}

impl Idle {
    /// Takes a durable event; whether the agent waits for people from it on, and nothing else goes on.
    pub(super) fn waits_after(&mut self, event: &Event) -> bool {
        let op = event.sequence.map(|sequence| (event.segment, sequence));
        match (event.kind, op) {
            (EventKind::TaskScheduled | EventKind::TaskStarted | EventKind::TaskRetry, Some(op)) => {
                self.open.insert(op);
                false
            }
            (EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled, Some(op)) => {
                self.open.remove(&op);
                false
            }
            // Ops of the successor have the same numbers.
            (EventKind::HandedOff, _) => {
                self.open.clear();
                false
            }
            (EventKind::Waiting, _) => self.open.is_empty() && waits_for_signals(event),
            _ => false,
        }
    }
}

/// Whether only signals end a wait, and none that children send.
fn waits_for_signals(event: &Event) -> bool {
    let signals: Vec<_> = signals_of(event).collect();
    !signals.is_empty() && event.data["timers"] != true && !signals.iter().any(|name| tells_of_child(name))
}

fn signals_of(event: &Event) -> impl Iterator<Item = &str> {
    event.data["signals"].as_array().into_iter().flatten().filter_map(|name| name.as_str())
}

/// Whether an event is the entry of a message of the user.
pub(super) fn is_user_message(event: &Event) -> bool {
    event.kind == EventKind::Entry && event.data["role"] == "user" && event.data["entry_type"] == "message"
}

/// Whether an event is the entry with which the built-in agent ends its answer.
pub(super) fn ends_answer(event: &Event) -> bool {
    event.kind == EventKind::Entry && event.data["entry_type"] == "answer_end"
}
