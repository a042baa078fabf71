//! The budget of a run: how much was used, how much calls in flight have reserved, and what happens to a call that does
//! not fit.
//!
//! * Used is the sum of all recorded usage. The store tells it when a run is taken up, so a call repeated on replay adds nothing.
//! * Reserved are the reservations in the options of tasks that have not ended. A task counts its reservation once for each
//!   attempt, since nobody knows what a lost attempt has used.
//! * A call that does not fit is not put into a batch. The run pauses once nothing else of it can move. After a resume the code
//!   makes the same call again.

use super::effect::Ending;
use super::machine::Machine;
use super::op::Op;
use crate::error::Code;
use crate::model::{Allowance, Budget, Execution, Failure, Spent, Usage, WaitReason};
use crate::payload::Payload;
use serde_json::{Value, json};

/// Little is left once this percentage of a limit is used.
const LOW: u64 = 80;

/// The budget and what was used of it.
#[derive(Debug, Default)]
pub(super) struct Account {
    allowance: Option<Allowance>,
    /// All recorded usage of the run. The allowance says how much of it belongs to earlier budgets.
    used: Spent,
    /// Why a call was refused. Cleared when the run pauses for it.
    refusal: Option<Failure>,
}

/// One limit, and how it stands.
struct Limit {
    name: &'static str,
    most: u64,
    used: u64,
    reserved: u64,
}

impl Limit {
    fn left(&self) -> u64 {
        self.most.saturating_sub(self.used).saturating_sub(self.reserved)
    }

    fn is_low(&self) -> bool {
        self.used.saturating_mul(100) >= self.most.saturating_mul(LOW)
    }
}

impl Account {
    pub(super) fn of(execution: &Execution) -> Self {
        // A store of an older version may have kept a text that is no budget. It limited nothing then, and does not
        // now.
        let allowance = execution.new.limits.budget.as_deref().and_then(|text| Allowance::parse(text).ok());
        Self { allowance, used: Spent::of(&execution.usage), refusal: None }
    }

    fn limits(&self, reserved: Spent) -> impl Iterator<Item = Limit> + use<> {
        let Allowance { budget, since } = self.allowance.clone().unwrap_or_default();
        let used = self.used.beyond(since);
        let Budget { max_tokens, max_cost_micros, max_calls, .. } = budget;
        let all = [
            ("tokens", max_tokens, used.tokens, reserved.tokens),
            ("costMicros", max_cost_micros, used.cost_micros, 0),
            ("calls", max_calls, used.calls, reserved.calls),
        ];
        all.into_iter().filter_map(|(name, most, used, reserved)| Some(Limit { name, most: most?, used, reserved }))
    }

    /// Counts the usage of a call. Returns how the limits stand if one more of them is low now.
    fn spend(&mut self, usage: &Usage) -> Option<Value> {
        let low = |account: &Self| account.limits(Spent::default()).filter(Limit::is_low).count();
        let before = low(self);
        self.used.add(usage);
        (low(self) > before).then(|| self.shown(Spent::default()))
    }

    /// Why a task that asks for this reservation may not begin, beside what is reserved already. None if it may.
    fn refuses(&self, asked: u32, reserved: Spent) -> Option<Failure> {
        let needs = |limit: &Limit| if limit.name == "tokens" { u64::from(asked).max(1) } else { 1 };
        let short = self.limits(reserved).find(|limit| limit.left() < needs(limit))?;
        let Limit { name, most, used, reserved } = &short;
        let message = format!(
            "the run has used {used} of the {most} {name} of its budget, {reserved} are reserved, and the next call needs \
             {}; resume it with a budget to go on",
            needs(&short)
        );
        Some(Failure::new(Code::BudgetExceeded, "BudgetExceeded", message))
    }

    /// How every limit stands, as JSON.
    fn shown(&self, reserved: Spent) -> Value {
        let limits = self.limits(reserved).map(|limit| {
            let Limit { name, most, used, reserved } = &limit;
            let shown = json!({"limit": most, "used": used, "reserved": reserved, "left": limit.left()});
            ((*name).to_owned(), shown)
        });
        let mut shown: serde_json::Map<_, _> = limits.collect();
        let per_call = self.allowance.as_ref().and_then(|allowance| allowance.budget.max_tokens_per_call);
        shown.extend(per_call.map(|most| ("maxTokensPerCall".to_owned(), json!(most))));
        Value::Object(shown)
    }
}

impl Machine {
    /// What the tasks in flight have reserved.
    fn reserved(&self) -> Spent {
        let open = self.segment.ops.iter().filter(|op| !op.is_unclaimed() && !op.is_refused() && op.outcome.is_none());
        let tasks = open.filter_map(Op::task).filter(|task| !task.status.is_terminal());
        tasks.filter(|task| task.options.reserve > 0).fold(Spent::default(), |mut sum, task| {
            let attempts = u64::from(task.attempt.max(1));
            sum.tokens = sum.tokens.saturating_add(attempts.saturating_mul(task.options.reserve.into()));
            sum.calls = sum.calls.saturating_add(attempts);
            sum
        })
    }

    /// How the budget stands, as JSON. `null` if the run has none.
    pub(super) fn budget_left(&self) -> Payload {
        let shown = self.run.account.allowance.as_ref().map(|_| self.run.account.shown(self.reserved()));
        Payload::json(shown.unwrap_or_default().to_string())
    }

    /// Counts recorded usage against the budget and warns, once, when little is left.
    pub(super) fn spend(&mut self, sequence: u32, usage: &Usage) {
        if let Some(shown) = self.run.account.spend(usage) {
            self.draft.warn(Some(sequence), "budget_low", json!({ "budget": shown }));
        }
    }

    /// Whether the budget refuses a new task or step. Keeps the reason for [`Machine::pause_refused`].
    pub(super) fn is_refused(&mut self, reserve: u32) -> bool {
        if self.run.account.allowance.is_none() {
            return false;
        }
        let refusal = self.run.account.refuses(reserve, self.reserved());
        let refused = refusal.is_some();
        self.run.account.refusal = refusal.or(self.run.account.refusal.take());
        refused
    }

    /// Pauses the run if one of its branches awaits a call that the budget refused.
    pub(super) fn pause_refused(&mut self) -> bool {
        if !self.segment.awaited.iter().any(|index| self.segment.ops[*index].is_refused()) {
            return false;
        }
        let Some(refusal) = self.run.account.refusal.take() else { return false };
        self.phase.end(Ending::Paused(WaitReason::Budget, refusal));
        self.plan_end();
        true
    }
}
