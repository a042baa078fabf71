//! Writes the events of one run. Each gets the next number. When the log is dropped, the change of the run is noted as
//! news, which is announced once the transaction is durable.

use super::request::Request;
use super::run::Run;
use super::{Dialect, Events};
use crate::id::{ExecutionId, OrgId, Slot};
use crate::model::EventKind;
use crate::streaming::Change;
use serde_json::Value;

/// An event with its number.
pub(in crate::storage) struct Numbered {
    pub number: u64,
    pub kind: EventKind,
    pub segment: u32,
    pub sequence: Option<u32>,
    pub data: Option<String>,
}

/// The events of one run, as a command writes them.
pub(in crate::storage) struct Log<'t, T: Dialect> {
    pub tx: &'t T,
    key: T::Key,
    org: OrgId,
    id: ExecutionId,
    /// The run's current segment.
    pub segment: u32,
    /// The last number that was given.
    pub high: u64,
    /// Whether an event ended the run.
    ended: bool,
    /// The last event of a commit. It is held back, since the commit is recorded on it and it should be written once.
    held: Option<Numbered>,
    /// Whether the last event is held back.
    holds: bool,
}

impl<'t, T: Events> Log<'t, T> {
    /// Continues a run's events.
    pub(crate) fn open(tx: &'t T, run: &Run<T::Home>) -> Result<Self, T::Fault> {
        Ok(Self::after(tx, run, tx.high(run)?, false))
    }

    /// Continues a run's events after the number `high`, for a commit. The commit must end with
    /// [`record`](Self::record), or its last event is lost.
    pub(crate) fn of_commit(tx: &'t T, run: &Run<T::Home>, high: u64) -> Self {
        Self::after(tx, run, high, true)
    }

    fn after(tx: &'t T, run: &Run<T::Home>, high: u64, holds: bool) -> Self {
        Self {
            tx,
            key: T::key(&run.home),
            org: T::org(&run.home),
            id: run.id,
            segment: run.segment,
            high,
            ended: false,
            held: None,
            holds,
        }
    }

    /// Writes an event about the run.
    pub(crate) fn event(&mut self, kind: EventKind, data: &Value) -> Result<u64, T::Fault> {
        self.write(kind, None, data.to_string())
    }

    /// Writes an event about an op; `data` is JSON.
    pub(crate) fn about(&mut self, kind: EventKind, slot: Slot, data: String) -> Result<u64, T::Fault> {
        self.write(kind, Some(slot), data)
    }

    fn write(&mut self, kind: EventKind, slot: Option<Slot>, data: String) -> Result<u64, T::Fault> {
        self.high += 1;
        self.ended |= kind.is_terminal();
        let event = Numbered {
            number: self.high,
            kind,
            segment: slot.map_or(self.segment, |slot| slot.segment),
            sequence: slot.map(|slot| slot.sequence),
            data: (data != "{}").then_some(data),
        };
        let event = if self.holds { self.held.replace(event) } else { Some(event) };
        if let Some(event) = event {
            self.tx.put_event(self.key, event, None)?;
        }
        Ok(self.high)
    }

    /// Records a commit on the run's last event. `before` is the commit before it.
    pub(crate) fn record(mut self, commit: &Request, before: Option<&Request>) -> Result<(), T::Fault> {
        match self.held.take() {
            Some(event) => self.tx.put_event(self.key, event, Some(commit)),
            None => self.tx.attach(self.key, commit, before),
        }
    }
}

impl<T: Dialect> Drop for Log<'_, T> {
    fn drop(&mut self) {
        let Self { org, id, high, ended, .. } = *self;
        self.tx.changed(Change { org, execution: id, high, ended: Some(ended), here: true });
    }
}
