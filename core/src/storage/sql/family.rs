//! What ties a run to the run that started it: its birth, the news of its end, and that an end takes children along.
//!
//! The rows of a family are locked from the root downwards: a commit that may write to runs above its own says so before it
//! begins. Housekeeping alone, which ends runs whose time is over, locks a run before its parent. If that makes two
//! transactions of PostgreSQL wait for each other, the database ends one of them, and its commands are run again.

use super::budgets;
use super::executions::{fresh, start};
use super::log::Log;
use super::messages::leave_alone;
use super::run::{Cause, Ending, Run};
use super::stop::stop_child;
use super::tail::Recorded;
use super::{RunOf, Statements, if_there};
use crate::error::Error;
use crate::id::{ExecutionId, SignalId, Slot};
use crate::model::{
    Cancellation, ChildEnd, CommitRequest, Ended, EventKind, Fact, FactKind, Failure, NewExecution, NewOp, NewSignal,
    OnParentEnd, OpBody, Overrun, RecordedBody, Status, left_running,
};
use crate::payload::Payload;
use crate::storage::limits::check_family;
use serde_json::json;

/// Starts the children of a batch. Returns what the parent is told at once: of children that it may not start, and of
/// those that it has started before and that have ended.
pub(super) fn bear_children<T: Statements>(
    tx: &T,
    parent: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    request: &CommitRequest,
) -> Result<Vec<Fact>, T::Fault> {
    let (batch, mut told) = (&request.batch, Vec::<Fact>::new());
    let org = T::org(&parent.home);
    let of_child = |op: &NewOp| match &op.body {
        OpBody::Child(child) => Some((op.sequence, NewExecution { org, ..(**child).clone() })),
        _ => None,
    };
    let children: Vec<_> = batch.ops.iter().filter_map(of_child).collect();
    let last = parent.children as usize + children.len().saturating_sub(1);
    let are_let_in = children.iter().all(|(sequence, new)| request.lets_in(*sequence, &new.queue).is_ok());
    if children.len() > 1 && are_let_in && parent.purse.is_none() && check_family(parent.id, parent.depth, last).is_ok()
    {
        let born = children.iter().map(|(_, new)| {
            let (run, limits) = fresh(tx, new, Some(parent));
            (run, new.clone(), limits)
        });
        tx.insert_together(&born.collect::<Vec<_>>())?;
    }
    for (sequence, new) in children {
        let child = &new;
        let mut room = request.lets_in(sequence, &child.queue);
        room = room.and_then(|()| check_family(parent.id, parent.depth, parent.children as usize));
        if room.is_ok() {
            room = match budgets::bear(tx, parent, &new)? {
                Ok(purse) => match start(tx, &new, Some(parent))? {
                    Some(_) => {
                        parent.children += 1;
                        purse.map_or(Ok(()), |purse| tx.put_purse(org, child.id, &purse))?;
                        continue;
                    }
                    None => Ok(()),
                },
                Err(refused) => Err(refused),
            };
        }
        let refused = |error: Error| {
            let slot = Slot { segment: batch.segment, sequence };
            (ChildEnd::refusal(org, parent.id, child.id, slot, &error), None)
        };
        let (end, output) = match (if_there(tx.execution_of(org, child.id))?, room) {
            (None, Err(error)) => refused(error),
            (None, Ok(())) => continue,
            (Some(there), _) if !there.is_child_of(parent.id, child) => refused(there.is_in_the_way()),
            (Some(there), _) if !there.status.is_terminal() => continue,
            (Some(there), _) => match untold(tx, parent, child.id, batch.segment)? {
                Some(id) => (NewSignal { id, ..ChildEnd::of(&there, parent.id) }, there.end_output().cloned()),
                None => continue,
            },
        };
        if !told.iter().any(|fact| matches!(&fact.kind, FactKind::Signal(known) if known.id == end.id)) {
            told.push(parent.hear(log, &end, output.as_ref())?);
        }
    }
    Ok(told)
}

/// The id under which a run is told of the end of a child that it waits for in a segment. None where the end is in its
/// mailbox, or an op of the segment has had it.
fn untold<T: Statements>(
    tx: &T,
    parent: &RunOf<T>,
    child: ExecutionId,
    segment: u32,
) -> Result<Option<SignalId>, T::Fault> {
    let again = ChildEnd::id_again(child, segment);
    Ok(match tx.consumer(parent, ChildEnd::id(child))? {
        None => Some(ChildEnd::id(child)),
        Some(Some(by)) if by.segment != segment => tx.consumer(parent, again)?.is_none().then_some(again),
        Some(_) => None,
    })
}

/// Tells a run's parent of its end, once. A parent that has ended or is gone is told nothing.
pub(super) fn tell_parent<T: Statements>(
    tx: &T,
    run: &RunOf<T>,
    output: Option<&Payload>,
    failure: Option<&Failure>,
    overrun: Option<Overrun>,
) -> Result<(), T::Fault> {
    let Some(parent) = run.parent else { return Ok(()) };
    let org = T::org(&run.home);
    let Some(mut above) = if_there(tx.find_run(org, parent))? else { return Ok(()) };
    let (child, status, leaf) = (run.id, run.status, run.seen_leaf());
    let signal = ChildEnd::signal(org, parent, Ended { child, status, output, failure, overrun, leaf });
    if above.status.is_terminal() || tx.known_signal(&above, &signal)?.is_some() {
        return Ok(());
    }
    let mut log = Log::open(tx, &above)?;
    above.children = above.children.saturating_sub(1);
    if above.handed_to == Some(child) {
        above.finish(&mut log, Ending::of_successor(status, output, failure))?;
    } else {
        above.hear(&mut log, &signal, output)?;
    }
    above.save(tx)?;
    let high = log.high;
    drop(log);
    tx.put_back(above, high);
    Ok(())
}

impl<H> Run<H> {
    /// Takes news of its family.
    pub(super) fn hear<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        end: &NewSignal,
        output: Option<&Payload>,
    ) -> Result<Fact, T::Fault> {
        let number = log.event(EventKind::Signal, &json!({ "signal": end.id, "name": end.name }))?;
        if let Some(output) = output {
            log.tx.refer(self, output)?;
        }
        log.tx.put_signal(self, number, end)?;
        self.wake(log, Cause::Signal(&end.name))?;
        let signal = end.clone().stored(number, log.tx.now());
        Ok(Fact { number, at: signal.created_at, kind: FactKind::Signal(signal) })
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
            let child = if_there(tx.execution_of(org, id))?;
            let (end, output) = match &child {
                Some(child) if !child.status.is_terminal() => continue,
                Some(child) => (ChildEnd::of(child, self.id), child.end_output()),
                None => (ChildEnd::signal(org, self.id, Ended::cancelled(id)), None),
            };
            if tx.known_signal(self, &end)?.is_none() {
                self.hear(log, &end, output)?;
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
        let ended = stop_child(tx, self, child, Cancellation::USUAL)?;
        self.children = self.children.saturating_sub(ended.is_some().into());
        Ok(())
    }

    /// It becomes `status`, which is its end or that it has handed off: asks its children to stop in the way in which it stops itself, and tells those that go on
    /// that nobody answers them any more. They tell it nothing of their ends.
    pub(super) fn take_children_along<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        status: Status,
    ) -> Result<(), T::Fault> {
        // A run that has handed off waits for its successor.
        let stays = u32::from(!status.is_terminal());
        if std::mem::replace(&mut self.children, stays) <= stays {
            return Ok(());
        }
        let (tx, org) = (log.tx, T::org(&self.home));
        let how = self.stop.map_or(Cancellation::USUAL, |stop| stop.cancellation);
        tx.gather_below(self)?;
        let mut children = tx.open_children(self)?;
        children.retain(|(child, _)| status.is_terminal() || Some(*child) != self.handed_to);
        let mut left =
            children.iter().map(|(child, _)| *child).filter(|child| Some(*child) != self.handed_to).peekable();
        if matches!(status, Status::Completed | Status::Waiting) && left.peek().is_some() {
            log.event(EventKind::Warning, &left_running(left))?;
        }
        for (child, then) in children {
            match then {
                OnParentEnd::Cancel => drop(stop_child(tx, self, child, how)?),
                OnParentEnd::Detach => leave_alone(tx, org, child, self.id, status)?,
            }
        }
        Ok(())
    }
}
