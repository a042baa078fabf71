//! Facts of a run: what its events point at. A fact's number is its event's number.

use super::run::Run;
use super::task::TaskRow;
use crate::clock::Timestamp;
use crate::id::Slot;
use crate::model::{EventKind, Fact, FactKind, Signal};

/// An event that may be a fact's.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct Mark {
    pub number: u64,
    pub at: Timestamp,
    pub kind: Option<EventKind>,
    /// The op that it is about.
    pub slot: Option<Slot>,
}

impl Mark {
    /// The fact that it is the event of; none where something else has happened to its row since. With a segment: one that
    /// counts from it on. `task` and `signal` look for the row it is about.
    pub fn fact<H, P, F>(
        self,
        run: &Run<H>,
        from: Option<u32>,
        task: impl FnOnce(Slot) -> Result<Option<TaskRow<P>>, F>,
        signal: impl FnOnce() -> Result<Option<Signal>, F>,
    ) -> Result<Option<Fact>, F> {
        let Self { number, at, kind, slot } = self;
        let counts = |slot: Slot| from.is_none_or(|from| slot.segment >= from);
        Ok(match (kind, slot) {
            (Some(EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled), Some(slot)) => {
                task(slot)?
                    .filter(|row| row.ended_number == Some(number))
                    .filter(|row| counts(slot) || row.task.new.options.detached)
                    .and_then(|row| row.fact())
            }
            (Some(EventKind::Timer), Some(slot)) => {
                counts(slot).then_some(Fact { number, at, kind: FactKind::Timer { slot } })
            }
            (Some(EventKind::Signal), _) => signal()?
                .filter(|signal| signal.consumed_by.is_none_or(counts))
                .map(|signal| Fact { number, at, kind: FactKind::Signal(signal) }),
            (Some(EventKind::Cancelling), _) => run.stop.filter(|stop| stop.number == number).map(|stop| stop.fact(at)),
            _ => None,
        })
    }
}
