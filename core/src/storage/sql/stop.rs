//! A run is asked to stop, and with it all runs below it, other than those that go on without their parent.
//!
//! The runs are decided on one by one, from the top downwards. A dialect for which each read is a way to a server reads
//! them all before ([`Runs::gather_below`](super::Runs::gather_below)), and writes them all after.

use super::family::tell_parent;
use super::hand_off::successor;
use super::log::Log;
use super::run::{Ending, Run, Stop};
use super::{RunOf, Statements, if_there};
use crate::id::{ExecutionId, OrgId};
use crate::model::{CancelMode, Cancellation, ChildEnd, Ended, Execution, NewSignal, OnParentEnd, Overrun, Status};
use serde_json::json;

/// Who asks a run to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Somebody who is not its parent, which is told of its end.
    Other,
    /// Its parent, which ends, or knows of the end by its own means.
    Parent,
}

/// Records a request from outside to stop a run.
pub(in crate::storage) fn request_cancel<T: Statements>(
    tx: &T,
    org: OrgId,
    id: ExecutionId,
    how: Cancellation,
) -> Result<Execution, T::Fault> {
    let mut run = tx.find_run(org, id)?;
    if run.status.is_terminal()
        && let Some(holder) = successor(tx, &run)?
    {
        request_cancel(tx, org, holder.id, how)?;
        return tx.execution(T::key(&run.home));
    }
    if let Some(overrun) = stop(tx, &mut run, how, By::Other)? {
        tell_parent(tx, &run, None, None, overrun)?;
    }
    tx.execution(T::key(&run.home))
}

/// Stops a child for its parent, which is not told of its end. Returns the end if it has ended by that.
pub(super) fn stop_child<T: Statements>(
    tx: &T,
    parent: &RunOf<T>,
    child: ExecutionId,
    how: Cancellation,
) -> Result<Option<NewSignal>, T::Fault> {
    // A call whose child was refused names no run, or one that is not below this one.
    let found = if_there(tx.find_run(T::org(&parent.home), child))?;
    let Some(mut child) = found.filter(|child| child.parent == Some(parent.id)) else { return Ok(None) };
    let ended = stop(tx, &mut child, how, By::Parent)?;
    Ok(ended.map(|overrun| end_of::<T>(&child, parent, overrun)))
}

/// What a parent is told of a child that a request has ended.
fn end_of<T: Statements>(child: &RunOf<T>, parent: &RunOf<T>, overrun: Option<Overrun>) -> NewSignal {
    let ended = Ended { status: child.status, overrun, leaf: child.seen_leaf(), ..Ended::cancelled(child.id) };
    ChildEnd::signal(T::org(&parent.home), parent.id, ended)
}

/// Asks a run and all below it to stop, and writes them. Returns how its budget had stopped it, if it has ended by that.
/// Its parent is not told.
fn stop<T: Statements>(
    tx: &T,
    run: &mut RunOf<T>,
    how: Cancellation,
    by: By,
) -> Result<Option<Option<Overrun>>, T::Fault> {
    let graceful = how.mode == CancelMode::Graceful;
    if run.status.is_terminal() || (graceful && run.status == Status::Cancelling) {
        return Ok(None);
    }
    if run.children > 0 {
        tx.gather_below(run)?;
    }
    let mut log = Log::open(tx, run)?;
    let at_once = !graceful || run.is_untouched() || run.status == Status::Paused;
    let ended = if at_once {
        run.stop = Some(Stop { number: 0, cancellation: how, until: tx.now().0 });
        run.epoch += u64::from(!graceful);
        let by = match (by, graceful) {
            (By::Parent, _) => "parent",
            (By::Other, true) => "graceful",
            (By::Other, false) => "hard",
        };
        Some(run.end(&mut log, Ending::Cancelled(None, by))?.1)
    } else {
        run.ask_to_stop(&mut log, how, &json!({ "mode": how.mode }))?;
        match run.stop_children(&mut log, how)? {
            // Its end is that of the run which it has handed off to.
            true => Some(run.end(&mut log, Ending::Cancelled(None, "handed_off"))?.1),
            false => None,
        }
    };
    run.save(tx)?;
    Ok(ended)
}

impl<H> Run<H> {
    /// Whether nobody has claimed it yet.
    fn is_untouched(&self) -> bool {
        self.status == Status::Pending && self.epoch == 0
    }

    /// Asks its children to stop, since it was asked itself. It is told of those that end at once. Returns whether the one
    /// that it has handed off to did.
    fn stop_children<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        how: Cancellation,
    ) -> Result<bool, T::Fault> {
        if self.children == 0 {
            return Ok(false);
        }
        let mut is_over = false;
        let (tx, org) = (log.tx, T::org(&self.home));
        for (child, _) in tx.open_children(self)?.into_iter().filter(|(_, then)| *then == OnParentEnd::Cancel) {
            let mut child = tx.find_run(org, child)?;
            // A run that nobody has claimed cannot have told of an end before.
            let first = child.is_untouched();
            let Some(overrun) = stop(tx, &mut child, how, By::Other)? else { continue };
            if self.handed_to == Some(child.id) {
                self.children = self.children.saturating_sub(1);
                is_over = true;
                continue;
            }
            let end = end_of::<T>(&child, self, overrun);
            if first || tx.known_signal(self, &end)?.is_none() {
                self.hear(log, &end, None)?;
                self.children = self.children.saturating_sub(1);
            }
        }
        Ok(is_over)
    }
}
