//! The budgets of a family: what a run may use of those above it and of its own, what it gives to runs below it, and what
//! comes back when it ends.
//!
//! * A budget is a *pool*. What a run may use itself is its *slice* of the nearest pools, of its own one first. A pool that no
//!   other run draws from needs no slice: the run counts by itself.
//! * The budget of a child is taken out of the pool above it when the child is born: it is *backed*. What is left returns
//!   when the child ends.
//! * A run draws before it begins something that its slice has no room for, and gets more than it asks for where there is
//!   much left, so that the row of a pool is written once for several calls.
//!
//! So the sum of what runs may use never exceeds a pool, whatever crashes: a lost answer or a lost run only leaves a slice
//! unused. A call that uses more than it had reserved is booked with the next draw, or with the end of its run.
//!
//! This is arithmetic alone. A backend reads the accounts of a run and of all above it, and writes those that have changed.

use crate::error::{Code, Error, Result};
use crate::id::ExecutionId;
use crate::model::{Allowance, Budget, Dimension, Overrun, Purse, Spent, Status, UsageTotals};
use serde_json::json;

/// A draw gets at most this part of what is left, beyond what it asks for.
const PART: u64 = 8;

/// A run as the budgets of its family see it.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub id: ExecutionId,
    /// Its own budget.
    pub allowance: Option<Allowance>,
    /// What its own model calls have used.
    pub used: Spent,
    pub purse: Purse,
    /// Whether it has ended, so that what comes back to it goes on to the pool above.
    pub ended: bool,
}

impl Account {
    /// The account of a run, of what its row has.
    pub(crate) fn of(
        id: ExecutionId,
        budget: Option<&str>,
        usage: &UsageTotals,
        purse: Option<Purse>,
        status: Status,
    ) -> Self {
        // A store of an older version may have kept a text that is no budget: it limits nothing.
        let allowance = budget.and_then(|text| Allowance::parse(text).ok());
        Self { id, allowance, used: Spent::of(usage), purse: purse.unwrap_or_default(), ended: status.is_terminal() }
    }

    /// The limit of its own budget.
    fn limit(&self, of: Dimension) -> Option<u64> {
        self.allowance.as_ref()?.budget.limit(of)
    }

    /// Makes its own budget one that others may draw from. It keeps what it has used, and `wanted` where that is more.
    fn share(&mut self, wanted: Spent) {
        let Some(allowance) = self.allowance.as_ref().filter(|_| self.purse.slice.is_none()) else { return };
        let mut slice = Budget { max_tokens_per_call: allowance.budget.max_tokens_per_call, ..Budget::default() };
        for of in Dimension::ALL {
            if let Some(limit) = allowance.budget.limit(of) {
                let most = limit.saturating_add(allowance.since.of_one(of));
                let kept = wanted.of_one(of).min(most).max(self.used.of_one(of));
                slice.set(of, Some(kept));
                self.purse.lent.set(of, kept);
            }
        }
        self.purse.slice = Some(slice);
    }
}

/// The accounts of a run and of all runs above it, from itself upwards.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    chain: Vec<Account>,
    read: Vec<Purse>,
}

impl Ledger {
    /// The accounts of a run and, in order, of the runs above it.
    pub(crate) fn new(chain: Vec<Account>) -> Self {
        let read = chain.iter().map(|account| account.purse.clone()).collect();
        Self { chain, read }
    }

    /// The accounts whose purse has changed.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &Account> {
        self.chain.iter().zip(&self.read).filter(|(account, read)| account.purse != **read).map(|(account, _)| account)
    }

    /// Lets the run use `wanted` in all, and a little more. False where a budget has no room for that; then it gets nothing.
    pub(crate) fn draw(&mut self, wanted: Spent) -> bool {
        let Some(own) = self.chain.first_mut() else { return true };
        own.share(wanted);
        let mut slice = own.purse.slice.clone().unwrap_or_default();
        let mut taken = Vec::new();
        for of in Dimension::ALL {
            let Some(pool) = self.pool(0, of) else { continue };
            let has = slice.limit(of).unwrap_or(0);
            let short = wanted.of_one(of).saturating_sub(has);
            let left = self.left(pool, of);
            if short > left {
                return false;
            }
            let amount = if short == 0 { 0 } else { short.max((left / PART).min(short.saturating_mul(PART))) };
            slice.set(of, Some(has + amount));
            taken.push((pool, of, amount));
        }
        for (pool, of, amount) in taken {
            self.take(pool, of, amount);
        }
        if let Some(own) = self.chain.first_mut().filter(|_| slice != Budget::default()) {
            own.purse.slice = Some(slice);
        }
        true
    }

    /// The purse of a child that the run starts, with the budget that it is given. None where no budget limits the child.
    ///
    /// Errors: `BudgetExceeded` where less than that is left, and `InvalidArgument` for a budget that is none.
    pub(crate) fn bear(&mut self, budget: Option<&str>) -> Result<Option<Purse>> {
        let given = budget.map(Budget::parse).transpose()?;
        if let Some(parent) = self.chain.first_mut() {
            parent.share(Spent::default());
        }
        let (mut backed, mut slice) = (Budget::default(), Budget::default());
        let mut taken = Vec::new();
        let mut draws = given.is_none();
        for of in Dimension::ALL {
            let Some(pool) = self.pool(0, of) else { continue };
            slice.set(of, Some(0));
            let Some(asked) = given.as_ref().and_then(|budget| budget.limit(of)) else {
                draws = true;
                continue;
            };
            let left = self.left(pool, of);
            if asked > left {
                return Err(self.cannot_give(pool, of, asked, left));
            }
            backed.set(of, Some(asked));
            taken.push((pool, of, asked));
        }
        if given.is_none() && slice == Budget::default() {
            return Ok(None);
        }
        for (pool, of, amount) in taken {
            self.take(pool, of, amount);
        }
        if draws && slice != Budget::default() {
            for of in Dimension::ALL {
                // Its own budget is a pool that it draws from, as from those above it.
                let own = given.as_ref().and_then(|budget| budget.limit(of));
                slice.set(of, slice.limit(of).or(own.map(|_| 0)));
            }
            let per_call = |account: &Account| account.allowance.as_ref()?.budget.max_tokens_per_call;
            let own = given.as_ref().and_then(|budget| budget.max_tokens_per_call);
            slice.max_tokens_per_call = own.or_else(|| self.chain.iter().find_map(per_call));
        }
        let slice = (draws && slice != Budget::default()).then_some(slice);
        let backed = (backed != Budget::default()).then_some(backed);
        Ok(Some(Purse { slice, backed, ..Purse::default() }))
    }

    /// Gives back what the run has not used, since it ends. What it has used beyond its slice is booked. A run whose budget no
    /// other one has used has nothing to give back.
    pub(crate) fn settle(&mut self) {
        let is_alone = self.chain.len() == 1 && self.chain[0].purse.slice.is_none();
        let Some(own) = self.chain.first_mut().filter(|_| !is_alone) else { return };
        own.ended = false;
        own.share(own.used);
        let (used, slice) = (own.used, own.purse.slice.clone().unwrap_or_default());
        for of in Dimension::ALL {
            let (Some(has), Some(pool)) = (slice.limit(of), self.pool(0, of)) else { continue };
            let used = used.of_one(of);
            if has > used {
                self.give_back(pool, of, has - used)
            } else {
                self.take(pool, of, used - has)
            }
            self.chain[0].purse.slice.get_or_insert_default().set(of, Some(used));
        }
        for of in Dimension::ALL {
            let own = &self.chain[0];
            let backed = own.limit(of).and(own.purse.backed.as_ref()).and_then(|backed| backed.limit(of));
            let (Some(backed), Some(above)) = (backed, self.pool(1, of)) else { continue };
            let lent = own.purse.lent.of_one(of);
            if backed > lent {
                self.give_back(above, of, backed - lent);
                self.chain[0].purse.backed.get_or_insert_default().set(of, Some(lent));
            }
        }
    }

    /// Notes that the run is asked to stop, since there is no room for what it wants to do.
    pub(crate) fn exceed(&mut self) {
        let mut limit = Budget::default();
        for of in Dimension::ALL {
            limit.set(of, self.pool(0, of).and_then(|pool| self.chain[pool].limit(of)));
        }
        if let Some(own) = self.chain.first_mut() {
            own.purse.exceeded = Some(limit);
        }
    }

    /// How its budget has stopped the run, if it has.
    pub(crate) fn overrun(&self) -> Option<Overrun> {
        let own = self.chain.first()?;
        own.purse.overrun(own.allowance.as_ref().map(|allowance| &allowance.budget), own.used)
    }

    /// The nearest account from a place upwards whose own budget limits something.
    fn pool(&self, from: usize, of: Dimension) -> Option<usize> {
        (from..self.chain.len()).find(|place| self.chain[*place].limit(of).is_some())
    }

    /// What a pool can give. What its own budget has room for must also be backed by the pools above it.
    fn left(&self, pool: usize, of: Dimension) -> u64 {
        let account = &self.chain[pool];
        let Some(limit) = account.limit(of) else { return 0 };
        let (lent, since) =
            (account.purse.lent.of_one(of), account.allowance.as_ref().map_or(0, |given| given.since.of_one(of)));
        let own = limit.saturating_sub(lent.saturating_sub(since));
        let Some(backed) = account.purse.backed.as_ref().and_then(|backed| backed.limit(of)) else { return own };
        let Some(above) = self.pool(pool + 1, of) else { return own };
        own.min(backed.saturating_sub(lent).saturating_add(self.left(above, of)))
    }

    /// Takes something out of a pool, and out of those above it what they have not given for it yet.
    fn take(&mut self, pool: usize, of: Dimension, amount: u64) {
        let above = self.pool(pool + 1, of);
        let purse = &mut self.chain[pool].purse;
        let lent = purse.lent.of_one(of).saturating_add(amount);
        purse.lent.set(of, lent);
        let short = purse.backed.as_ref().and_then(|backed| backed.limit(of)).map(|backed| lent.saturating_sub(backed));
        if let (Some(short @ 1..), Some(above)) = (short, above) {
            if let Some(backed) = &mut purse.backed {
                backed.set(of, Some(lent));
            }
            self.take(above, of, short);
        }
    }

    /// Puts something back into a pool. The pool of a run that has ended passes it on.
    fn give_back(&mut self, pool: usize, of: Dimension, amount: u64) {
        let above = self.pool(pool + 1, of);
        let account = &mut self.chain[pool];
        let lent = account.purse.lent.of_one(of).saturating_sub(amount);
        account.purse.lent.set(of, lent);
        if !account.ended {
            return;
        }
        let Some(backed) = &mut account.purse.backed else { return };
        let (Some(had), Some(above)) = (backed.limit(of), above) else { return };
        backed.set(of, Some(had.saturating_sub(amount)));
        self.give_back(above, of, amount);
    }

    fn cannot_give(&self, pool: usize, of: Dimension, asked: u64, left: u64) -> Error {
        let (name, account) = (of.as_str(), &self.chain[pool]);
        let limit = account.limit(of).unwrap_or(0);
        let message = format!(
            "the child was not started: it asks for {asked} {name}, and {left} are left of the {limit} of the run {}; give it \
             less, or leave its budget out so that it draws from what is left",
            account.id
        );
        Error::new(Code::BudgetExceeded, message)
            .with("asked", json!({ name: asked }))
            .with("left", json!({ name: left }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(id: u128, budget: Option<&str>) -> Account {
        Account {
            id: ExecutionId(uuid::Uuid::from_u128(id)),
            allowance: budget.map(|text| Allowance::parse(text).expect("a budget")),
            used: Spent::default(),
            purse: Purse::default(),
            ended: false,
        }
    }

    fn tokens(tokens: u64) -> Spent {
        Spent { tokens, ..Spent::default() }
    }

    #[test]
    fn a_child_gets_its_budget_and_gives_back_what_is_left() {
        let mut root = Ledger::new(vec![account(1, Some("100"))]);
        root.chain[0].used = tokens(10);
        let purse = root.bear(Some("60")).expect("enough").expect("a purse");
        assert_eq!((purse.slice.clone(), root.chain[0].purse.lent.tokens), (None, 70));
        let error = root.bear(Some("31")).expect_err("too much");
        assert!(error.code() == Code::BudgetExceeded && error.message().contains("30 are left"), "{error}");
        let child = Account { purse, used: tokens(25), ..account(2, Some("60")) };
        let mut ended = Ledger::new(vec![child, root.chain[0].clone()]);
        ended.settle();
        assert_eq!(ended.chain[1].purse.lent.tokens, 35);
        assert_eq!(ended.changed().count(), 2);
    }

    #[test]
    fn a_child_without_a_budget_draws_from_the_nearest_one() {
        let mut root = Ledger::new(vec![account(1, Some(r#"{"maxTokens": 1000, "maxCalls": 5}"#))]);
        let purse = root.bear(None).expect("it may").expect("a purse");
        let mut child = Ledger::new(vec![Account { purse, ..account(2, None) }, root.chain[0].clone()]);
        assert!(child.draw(Spent { tokens: 40, calls: 1, cost_micros: 1 }));
        let slice = child.chain[0].purse.slice.clone().expect("a slice");
        assert_eq!((slice.max_tokens, slice.max_calls, slice.max_cost_micros), (Some(125), Some(1), None));
        assert!(!child.draw(tokens(2_000)));
        child.chain[0].used = tokens(50);
        child.settle();
        assert_eq!((child.chain[1].purse.lent.tokens, child.chain[1].purse.lent.calls), (50, 0));
    }

    #[test]
    fn what_comes_back_to_a_run_that_has_ended_goes_up() {
        let mut root = Ledger::new(vec![account(1, Some("100"))]);
        let purse = root.bear(Some("80")).expect("enough").expect("a purse");
        let mut middle = Ledger::new(vec![Account { purse, ..account(2, Some("80")) }, root.chain[0].clone()]);
        let below = middle.bear(None).expect("it may").expect("a purse");
        let [middle, root] = &middle.chain[..] else { panic!("two") };
        let mut below = Ledger::new(vec![Account { purse: below, ..account(3, None) }, middle.clone(), root.clone()]);
        assert!(below.draw(tokens(30)));
        let held = below.chain[0].purse.slice.as_ref().and_then(|slice| slice.max_tokens).expect("some");
        // The one in the middle ends first, and its child goes on.
        let mut middle = Ledger::new(below.chain[1..].to_vec());
        middle.settle();
        assert_eq!(middle.chain[1].purse.lent.tokens, held);
        let mut below = Ledger::new(vec![
            Account { used: tokens(20), ..below.chain[0].clone() },
            Account { ended: true, ..middle.chain[0].clone() },
            middle.chain[1].clone(),
        ]);
        below.settle();
        assert_eq!(below.chain[2].purse.lent.tokens, 20);
    }

    /// Random families: at no moment may the runs of a pool use more than it has, and at the end the root's books say
    /// exactly what was used.
    #[test]
    fn no_family_may_use_more_than_its_budgets() {
        for seed in 0..2_000_u64 {
            let mut random = crate::storage::conformance::random::Random(seed);
            let total = 50 + random.below(200) as u64;
            let mut runs = vec![(None, account(0, Some(&total.to_string())))];
            for _ in 0..60 {
                let at = random.below(runs.len());
                let mut chain = vec![at];
                while let Some(above) = runs[chain[chain.len() - 1]].0 {
                    chain.push(above);
                }
                let mut ledger = Ledger::new(chain.iter().map(|place| runs[*place].1.clone()).collect());
                let ended = runs[at].1.ended;
                match random.below(8) {
                    0..2 if !ended && chain.len() < 5 => {
                        let budget = (random.below(2) == 0).then(|| random.below(total as usize).to_string());
                        if let Ok(Some(purse)) = ledger.bear(budget.as_deref()) {
                            let id = runs.len() as u128;
                            runs.push((Some(at), Account { purse, ..account(id, budget.as_deref()) }));
                        }
                    }
                    2..7 if !ended => {
                        let wanted = tokens(runs[at].1.used.tokens + 1 + random.below(20) as u64);
                        let own = &ledger.chain[0];
                        let alone = own.purse.slice.is_none();
                        let room = own.limit(Dimension::Tokens).is_some_and(|limit| limit >= wanted.tokens);
                        if (alone && room) || (!alone && ledger.draw(wanted)) {
                            ledger.chain[0].used = wanted;
                        }
                    }
                    7 if at > 0 => {
                        ledger.settle();
                        ledger.chain[0].ended = true;
                    }
                    _ => {}
                }
                for (place, account) in chain.into_iter().zip(ledger.chain) {
                    runs[place].1 = account;
                }
                let spent: u64 = runs.iter().map(|(_, run)| run.used.tokens).sum();
                assert!(spent <= total, "seed {seed}: {spent} of {total}");
                for (_, run) in &runs {
                    let limit = run.limit(Dimension::Tokens);
                    assert!(limit.is_none_or(|limit| run.purse.lent.tokens <= limit), "seed {seed}: {run:?}");
                }
            }
            for at in (0..runs.len()).rev() {
                let mut chain = vec![at];
                while let Some(above) = runs[chain[chain.len() - 1]].0 {
                    chain.push(above);
                }
                let mut ledger = Ledger::new(chain.iter().map(|place| runs[*place].1.clone()).collect());
                if !runs[at].1.ended || at == 0 {
                    ledger.settle();
                    ledger.chain[0].ended = true;
                }
                for (place, account) in chain.into_iter().zip(ledger.chain) {
                    runs[place].1 = account;
                }
            }
            let spent: u64 = runs.iter().map(|(_, run)| run.used.tokens).sum();
            assert_eq!(runs[0].1.purse.lent.tokens, spent, "seed {seed}");
        }
    }
}
