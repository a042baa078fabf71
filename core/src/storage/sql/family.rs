//! What ties a run to the run that started it: its birth, the news of its end, and that an end takes children along.
//!
//! A parent's row is locked before those of its children, except by a child that ends: it locks its own row first. If
//! that makes two transactions of PostgreSQL wait for each other, the database ends one of them, and its commands are
//! run again.

use super::executions::{create_below, request_cancel};
use super::log::Log;
use super::run::{Cause, Run};
use super::{RunOf, Statements, if_there};
use crate::model::{CancelMode, Cancellation, ChildEnd, EventKind, Failure, NewExecution};
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
    let number = log.event(EventKind::Signal, &json!({ "signal": signal.id, "name": signal.name }))?;
    if let Some(output) = output {
        tx.refer(&above, output)?;
    }
    tx.put_signal(&above, number, &signal)?;
    above.wake(&mut log, Cause::Signal(&signal.name))?;
    above.children = above.children.saturating_sub(1);
    above.save(tx)
}

impl<H> Run<H> {
    /// Asks its children to stop in the way in which it stops itself. They tell it nothing of their ends.
    pub(super) fn take_children_along<T: Statements<Home = H>>(&mut self, tx: &T) -> Result<(), T::Fault> {
        if std::mem::take(&mut self.children) == 0 {
            return Ok(());
        }
        let usual = Cancellation { mode: CancelMode::Graceful, grace: Cancellation::USUAL_GRACE };
        let how = self.stop.map_or(usual, |stop| stop.cancellation);
        for child in tx.open_children(self)? {
            request_cancel(tx, T::org(&self.home), child, how, true)?;
        }
        Ok(())
    }
}
