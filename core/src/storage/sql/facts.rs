//! The facts of a run. They are not stored by themselves: each is made of an event and the row that the event is about.
//! Its number is that of the event.

use super::run::Run;
use super::task::TaskRow;
use crate::clock::Timestamp;
use crate::id::Slot;
use crate::model::{EventKind, Fact, FactKind, Signal};

/// An event that may be that of a fact.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct Mark {
    pub number: u64,
    pub at: Timestamp,
    pub kind: Option<EventKind>,
    /// The op that it is about.
    pub slot: Option<Slot>,
}

impl Mark {
    /// Makes the fact of the event. None if the event is that of no fact, or if its row has changed since: a task that
    /// was tried again after an error has another end. With `from`, only a fact that matters from that segment on.
    /// `task` and `signal` read the row.
    pub(crate) fn fact<H, P, F>(
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
