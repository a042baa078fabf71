//! What a run says to its parent and to its children, in the transaction of the commit that says it.

use super::dialect::Failing;
use super::executions::store_signal;
use super::hand_off::known_as;
use super::log::Log;
use super::stop::stop_child;
use super::{RunOf, Statements, if_there};
use crate::error::Error;
use crate::id::{ExecutionId, OrgId, Slot};
use crate::model::{Batch, BatchEnd, Cancellation, Fact, MessageBody, NewMessage, OpBody, Status, Wait, unanswered};

/// Delivers the messages of a batch. Returns what the sender is told at once: of messages that were not delivered, and of
/// children that have stopped at once.
pub(super) fn deliver<T: Statements>(
    tx: &T,
    sender: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    batch: &Batch,
) -> Result<Vec<Fact>, T::Fault> {
    let mut told = Vec::new();
    let org = T::org(&sender.home);
    for op in &batch.ops {
        let OpBody::Send(message) = &op.body else { continue };
        let refused = match reach(tx, sender, message)? {
            Err(error) => Some(error),
            Ok((from, to)) => match (&message.body, message.signal(org, from, to.id)) {
                (MessageBody::Stop { how, .. }, _) => {
                    told.extend(stop(tx, sender, log, to.id, *how)?);
                    None
                }
                (body, Some(signal)) => {
                    // The signal may name a large value inside of its own.
                    body.payload().map_or(Ok(()), |payload| tx.refer(&to, payload))?;
                    match store_signal(tx, &signal).map_err(Failing::answer) {
                        Ok(_) => None,
                        Err(refused) => Some(refused?),
                    }
                }
                (_, None) => None,
            },
        };
        if let Some(error) = refused {
            let slot = Slot { segment: batch.segment, sequence: op.sequence };
            told.push(sender.hear(log, &message.refusal(org, sender.id, slot, &error), None)?);
        }
    }
    Ok(told)
}

/// Whom a message comes from, and the run that it is for.
type Route<T> = (ExecutionId, RunOf<T>);

/// Whom a message comes from and the run that it is for, or why it gets none. What was handed off to speaks for the run that
/// its parent knows.
fn reach<T: Statements>(tx: &T, sender: &RunOf<T>, message: &NewMessage) -> Result<Result<Route<T>, Error>, T::Fault> {
    let child = message.body.child();
    let (from, run) = match child {
        Some(child) => (sender.id, if_there(tx.find_run(T::org(&sender.home), child))?),
        None => known_as(tx, sender)?,
    };
    let Some(run) = run else { return Ok(Err(message.out_of_reach())) };
    let is_stop = matches!(message.body, MessageBody::Stop { .. });
    Ok(match child {
        Some(_) if run.parent != Some(sender.id) => Err(message.out_of_reach()),
        // Nobody answers for a parent that has handed off: its successor knows nothing of its other children.
        None if run.handed_to.is_some() => Err(message.is_late(run.id, run.status)),
        // A child that has ended needs no stopping.
        _ if run.status.is_terminal() && run.handed_to.is_none() && !is_stop => {
            Err(message.is_late(run.id, run.status))
        }
        _ => Ok((from, run)),
    })
}

/// Tells a child whose parent ends with `status` that nobody will answer what it waits for.
pub(super) fn leave_alone<T: Statements>(
    tx: &T,
    org: OrgId,
    child: ExecutionId,
    parent: ExecutionId,
    status: Status,
) -> Result<(), T::Fault> {
    let mut run = tx.find_run(org, child)?;
    let Some(wait) = run.wait().filter(Wait::is_for_parent) else { return Ok(()) };
    let mut log = Log::open(tx, &run)?;
    for signal in unanswered(org, child, &wait, parent, status) {
        run.hear(&mut log, &signal, None)?;
    }
    run.save(tx)
}

/// Of a run that suspends to wait for answers: what it is told where its parent has ended before it asked.
pub(super) fn check_answers<T: Statements>(
    tx: &T,
    run: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    batch: &Batch,
) -> Result<Vec<Fact>, T::Fault> {
    let BatchEnd::Suspend(wait) = &batch.end else { return Ok(Vec::new()) };
    if run.parent.is_none() || !wait.is_for_parent() {
        return Ok(Vec::new());
    }
    let org = T::org(&run.home);
    let is_gone = |above: &RunOf<T>| above.status.is_terminal() || above.handed_to.is_some();
    let Some(above) = known_as(tx, run)?.1.filter(is_gone) else { return Ok(Vec::new()) };
    let mut facts = Vec::new();
    for signal in unanswered(org, run.id, wait, above.id, above.status) {
        if tx.known_signal(run, &signal)?.is_none() {
            facts.push(run.hear(log, &signal, None)?);
        }
    }
    Ok(facts)
}

/// Asks a child to stop. What stops at once is told here, since the sender's rows are those of this commit.
fn stop<T: Statements>(
    tx: &T,
    parent: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    child: ExecutionId,
    how: Cancellation,
) -> Result<Option<Fact>, T::Fault> {
    let Some(end) = stop_child(tx, parent, child, how)? else { return Ok(None) };
    parent.children = parent.children.saturating_sub(1);
    parent.hear(log, &end, None).map(Some)
}
