//! What ties a run to the run that started it: its birth, the news of its end, and that an end takes children along.
//!
//! A parent's row is locked before those of its children, except by a child that ends: it locks its own row first. If
//! that makes two transactions of PostgreSQL wait for each other, the database ends one of them, and its commands are
//! run again.

use super::executions::{create_below, request_cancel};
use super::log::Log;
use super::run::{Cause, Run};
use super::tail::Recorded;
use super::{RunOf, Statements, if_there};
use crate::id::ExecutionId;
use crate::model::{Cancellation, ChildEnd, EventKind, Failure, NewExecution, NewSignal, RecordedBody, Status};
use crate::payload::Payload;
use crate::storage::limits::check_family;
use serde_json::json;

/// Starts a child in a commit of its parent.
pub(super) fn bear<T: Statements>(tx: &T, parent: &mut RunOf<T>, child: &NewExecution) -> Result<(), T::Fault> {
    check_family(parent.id, parent.depth, parent.children as usize)?;
    let child = NewExecution { org: T::org(&parent.home), ..child.clone() };
    if !create_below(tx, &child, Some(parent))?.existing {
        parent.children += 1;
    }
    Ok(())
}

/// Tells a run's parent of its end, once. A parent that has ended or is gone is told nothing.
pub(super) fn tell_parent<T: Statements>(
    tx: &T,
    run: &RunOf<T>,
    output: Option<&Payload>,
    failure: Option<&Failure>,
) -> Result<(), T::Fault> {
    let Some(parent) = run.parent else { return Ok(()) };
    let org = T::org(&run.home);
    let Some(mut above) = if_there(tx.find_run(org, parent))? else { return Ok(()) };
    let signal = ChildEnd::signal(org, parent, run.id, run.status, output, failure);
    if above.status.is_terminal() || tx.known_signal(&above, &signal)?.is_some() {
        return Ok(());
    }
    let mut log = Log::open(tx, &above)?;
    above.hear(&mut log, &signal, output)?;
    above.children = above.children.saturating_sub(1);
    above.save(tx)
}

impl<H> Run<H> {
    /// Takes the news of a child's end.
    fn hear<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        end: &NewSignal,
        output: Option<&Payload>,
    ) -> Result<(), T::Fault> {
        let number = log.event(EventKind::Signal, &json!({ "signal": end.id, "name": end.name }))?;
        if let Some(output) = output {
            log.tx.refer(self, output)?;
        }
        log.tx.put_signal(self, number, end)?;
        self.wake(log, Cause::Signal(&end.name))?;
        Ok(())
    }

    /// After the run was opened again: takes the ends of those of its children that ended while it had ended itself,
    /// and were told nobody. A child that is gone was cancelled by the end of this run.
    pub(super) fn meet_children<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        tail: &[Recorded],
    ) -> Result<(), T::Fault> {
        let (tx, org) = (log.tx, T::org(&self.home));
        self.children = tx.open_children(self)?.len() as u32;
        for op in tail {
            let RecordedBody::Child { id } = op.op.body else { continue };
            let child = if_there(tx.find_run(org, id))?.map(|child| tx.execution(T::key(&child.home))).transpose()?;
            let (status, output, failure) = match child {
                Some(child) => (child.status, child.output, child.failure),
                None => (Status::Cancelled, None, None),
            };
            if !status.is_terminal() {
                continue;
            }
            let end = ChildEnd::signal(org, self.id, id, status, output.as_ref(), failure.as_ref());
            if tx.known_signal(self, &end)?.is_none() {
                self.hear(log, &end, output.as_ref())?;
            }
        }
        Ok(())
    }

    /// Stops a child that nobody will await any more. It tells nothing of its end.
    pub(super) fn give_child_up<T: Statements<Home = H>>(
        &mut self,
        tx: &T,
        child: ExecutionId,
    ) -> Result<(), T::Fault> {
        let child = request_cancel(tx, T::org(&self.home), child, Cancellation::USUAL, true)?;
        self.children = self.children.saturating_sub(child.status.is_terminal().into());
        Ok(())
    }

    /// Asks its children to stop in the way in which it stops itself. They tell it nothing of their ends.
    pub(super) fn take_children_along<T: Statements<Home = H>>(&mut self, tx: &T) -> Result<(), T::Fault> {
        if std::mem::take(&mut self.children) == 0 {
            return Ok(());
        }
        let how = self.stop.map_or(Cancellation::USUAL, |stop| stop.cancellation);
        for child in tx.open_children(self)? {
            request_cancel(tx, T::org(&self.home), child, how, true)?;
        }
        Ok(())
    }
}
