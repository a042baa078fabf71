//! The budgets of a family in rows: the accounts of a run and of all above it are read, and those that change are written.
//!
//! A purse is read and written apart from the rest of its row, so that it does not matter which of the rows are at hand.

use super::log::Log;
use super::run::Run;
use super::{RunOf, Statements, if_there};
use crate::error::Error;
use crate::id::OrgId;
use crate::model::{Batch, Cancellation, Fact, NewExecution, OpBody, Overrun, Purse, Status};
use crate::storage::ledger::Ledger;
use serde_json::json;

/// What a child gets of the budgets of its family, or why it is not started. Nothing is taken for one that is there already.
pub(super) fn bear<T: Statements>(
    tx: &T,
    parent: &RunOf<T>,
    new: &NewExecution,
) -> Result<Result<Option<Purse>, Error>, T::Fault> {
    if parent.purse.is_none() || if_there(tx.find_run(new.org, new.id))?.is_some() {
        return Ok(Ok(None));
    }
    let mut ledger = Ledger::new(tx.accounts(new.org, parent.id)?);
    let purse = ledger.bear(new.limits.budget.as_deref());
    save(tx, new.org, &ledger)?;
    Ok(purse)
}

/// Gives a run what a batch asks the budgets for. Where they have no room for that, a run with a parent is asked to stop,
/// and is told so.
pub(super) fn draw<T: Statements>(
    tx: &T,
    run: &mut RunOf<T>,
    log: &mut Log<'_, T>,
    batch: &Batch,
) -> Result<Option<Fact>, T::Fault> {
    let Some(wanted) = batch.draw.filter(|_| run.purse.is_some()) else { return Ok(None) };
    let org = T::org(&run.home);
    let mut ledger = Ledger::new(tx.accounts(org, run.id)?);
    let stops = !ledger.draw(wanted) && run.parent.is_some() && run.status != Status::Cancelling;
    if stops {
        ledger.exceed();
    }
    save(tx, org, &ledger)?;
    let how = Cancellation::USUAL;
    stops.then(|| run.ask_to_stop(log, how, &json!({ "mode": how.mode, "reason": "budget" }))).transpose()
}

/// A run ends: what it has not used goes back. Returns how its budget stopped it, if that did.
pub(super) fn settle<T: Statements>(tx: &T, run: &RunOf<T>) -> Result<Option<Overrun>, T::Fault> {
    if run.purse.is_none() {
        return Ok(None);
    }
    let org = T::org(&run.home);
    let mut ledger = Ledger::new(tx.accounts(org, run.id)?);
    ledger.settle();
    save(tx, org, &ledger)?;
    Ok(ledger.overrun())
}

/// What the sender of a batch is told of the budgets of its family: how they are after it, where it or another run may have
/// changed that. Of a run that has ended nothing is told.
pub(super) fn told<T: Statements>(tx: &T, run: &RunOf<T>, batch: &Batch) -> Result<Option<Purse>, T::Fault> {
    let Some(before) = run.purse.as_ref().filter(|_| !run.status.is_terminal()) else { return Ok(None) };
    if batch.draw.is_some() || batch.ops.iter().any(|op| matches!(op.body, OpBody::Child(_))) {
        let accounts = tx.accounts(T::org(&run.home), run.id)?;
        return Ok(accounts.into_iter().next().map(|account| account.purse));
    }
    Ok(shared_of(before))
}

/// How the budgets of its family stand, as the row of a run has it, where other runs may change that.
pub(super) fn shared<Home>(run: &Run<Home>) -> Option<Purse> {
    run.purse.as_deref().filter(|_| !run.status.is_terminal()).and_then(shared_of)
}

fn shared_of(text: &str) -> Option<Purse> {
    serde_json::from_str(text).ok().filter(|purse: &Purse| purse.slice.is_some())
}

fn save<T: Statements>(tx: &T, org: OrgId, ledger: &Ledger) -> Result<(), T::Fault> {
    ledger.changed().try_for_each(|account| tx.put_purse(org, account.id, &account.purse))
}
