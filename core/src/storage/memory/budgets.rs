//! The budgets of a family: the accounts of a run and of all above it are taken from their rows and written back.

use super::state::{RunKey, State};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::{Batch, Cancellation, NewExecution, Purse, Status};
use crate::storage::ledger::{Account, Ledger};
use serde_json::json;

impl State {
    /// What a child gets of the budgets of its family.
    pub(super) fn bear(&mut self, (org, parent): RunKey, new: &NewExecution) -> Result<Option<Purse>> {
        if self.run(org, parent)?.exec.purse.is_none() {
            return Ok(None);
        }
        let mut ledger = self.ledger((org, parent));
        let purse = ledger.bear(new.limits.budget.as_deref());
        self.keep_books(org, &ledger);
        purse
    }

    /// Gives a run what a batch asks the budgets for. Where they have no room for that, a run with a parent is asked to
    /// stop.
    pub(super) fn draw(&mut self, (org, id): RunKey, batch: &Batch, now: Timestamp) -> Result<()> {
        let run = self.run(org, id)?;
        let Some(wanted) = batch.draw.filter(|_| run.exec.purse.is_some()) else { return Ok(()) };
        let may_stop = run.exec.parent.is_some() && run.exec.status != Status::Cancelling;
        let mut ledger = self.ledger((org, id));
        let stops = !ledger.draw(wanted) && may_stop;
        if stops {
            ledger.exceed();
        }
        self.keep_books(org, &ledger);
        if stops {
            let how = Cancellation::USUAL;
            self.run_mut(org, id)?.ask_to_stop(now, how, json!({ "mode": how.mode, "reason": "budget" }));
        }
        Ok(())
    }

    /// What the sender of a batch is told of the budgets of its family: where it `asks`, or where other runs may have
    /// changed that.
    pub(super) fn told_purse(&self, (org, id): RunKey, asks: bool) -> Option<Purse> {
        let run = self.run(org, id).ok().filter(|run| !run.exec.status.is_terminal())?;
        run.exec.purse.clone().filter(|purse| asks || purse.slice.is_some())
    }

    /// A run has ended: what it has not used goes back.
    pub(super) fn settle_budget(&mut self, (org, id): RunKey) {
        if self.run(org, id).is_ok_and(|run| run.exec.purse.is_some()) {
            let mut ledger = self.ledger((org, id));
            ledger.settle();
            self.keep_books(org, &ledger);
        }
    }

    fn ledger(&self, (org, id): RunKey) -> Ledger {
        let (mut chain, mut next) = (Vec::new(), Some(id));
        while let Some(exec) = next.and_then(|id| self.runs.get(&(org, id))).map(|run| &run.exec) {
            let (id, budget) = (exec.new.id, exec.new.limits.budget.as_deref());
            chain.push(Account::of(id, budget, &exec.usage, exec.purse.clone(), exec.status));
            next = exec.parent;
        }
        Ledger::new(chain)
    }

    fn keep_books(&mut self, org: OrgId, ledger: &Ledger) {
        for account in ledger.changed() {
            if let Ok(run) = self.run_mut(org, account.id) {
                run.exec.purse = Some(account.purse.clone());
            }
        }
    }
}
