//! A run gives its work to one of its children: what was sent to it and not read goes there, and its end follows.

use super::executions::store_signal;
use super::log::Log;
use super::run::{Ending, Run};
use super::{RunOf, Statements, if_there};
use crate::id::{ExecutionId, OrgId};
use crate::model::{EventKind, Fact, Status, Wait, WaitReason, handed_off, handed_signal};
use serde_json::json;

/// Whether a run can hand off to this run now: it goes on, and so does that one, which is its child.
pub(super) fn can_hand_off<T: Statements>(tx: &T, run: &RunOf<T>, to: ExecutionId) -> Result<bool, T::Fault> {
    if run.status != Status::Running {
        return Ok(false);
    }
    let to = if_there(tx.find_run(T::org(&run.home), to))?;
    Ok(to.is_some_and(|to| to.parent == Some(run.id) && !to.status.is_terminal()))
}

/// Hands a run off to one of its children that has not ended. With `immediate` it is COMPLETED by that, else it waits for the
/// child's end. Returns the facts of cancelled tasks.
pub(super) fn hand_off<T: Statements>(
    run: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    to: ExecutionId,
    immediate: bool,
) -> Result<Vec<Fact>, T::Fault> {
    let (tx, org) = (log.tx, T::org(&run.home));
    for unread in tx.pending_signals(run)? {
        if let Some(signal) = handed_signal(org, &unread, to) {
            store_signal(tx, &signal)?;
        }
    }
    run.handed_to = Some(to);
    tx.put_handed_to(run, to)?;
    let mut facts = run.wind_up(log, Status::Waiting)?;
    log.event(EventKind::HandedOff, &json!({ "to": to }))?;
    if immediate {
        facts.extend(run.finish(log, Ending::Completed(&handed_off(to)))?);
        return Ok(facts);
    }
    run.status = Status::Waiting;
    run.last_worker = None;
    run.set_wait(Some(&Wait { reason: Some(WaitReason::HandedOff), ..Wait::default() }))?;
    Ok(facts)
}

/// The run to which a run has handed off, where that is still there.
pub(super) fn successor<T: Statements>(tx: &T, run: &RunOf<T>) -> Result<Option<RunOf<T>>, T::Fault> {
    match run.handed_to {
        Some(to) => if_there(tx.find_run(T::org(&run.home), to)),
        None => Ok(None),
    }
}

/// The run by which the parent of a run's work knows it, with that parent: the first one that has handed off to it, or
/// itself.
pub(super) fn known_as<T: Statements>(tx: &T, run: &Run<T::Home>) -> Result<(ExecutionId, Option<RunOf<T>>), T::Fault> {
    let org: OrgId = T::org(&run.home);
    let (mut known, mut above) = (run.id, run.parent);
    loop {
        let Some(parent) = above else { return Ok((known, None)) };
        let Some(parent) = if_there(tx.find_run(org, parent))? else { return Ok((known, None)) };
        if parent.handed_to != Some(known) {
            return Ok((known, Some(parent)));
        }
        (known, above) = (parent.id, parent.parent);
    }
}
