//! The budget of a run: what was used of it, what calls in flight may use, and what a call that does not fit comes to.
//!
//! What was used is the sum of the usage that was recorded, of which the store tells when the run is taken up: a call made
//! again on replay adds nothing. A task's reservation is part of its options. It counts until the task has ended, once for
//! each attempt: nobody knows what an attempt used that was lost. What does not fit is not placed, and the run pauses once
//! nothing else of it can move; after a resume the code makes the same call again.

use super::effect::Ending;
use super::machine::Machine;
use super::op::Op;
use crate::error::Code;
use crate::model::{Allowance, Budget, Execution, Failure, Spent, Usage, WaitReason};
use crate::payload::Payload;
use serde_json::{Value, json};

/// The part of a limit, in percent, from which on little is left.
const LOW: u64 = 80;

/// What was used, and of what.
#[derive(Debug, Default)]
pub(super) struct Account {
    allowance: Option<Allowance>,
    /// By all that was recorded, a budget given later included.
    used: Spent,
    /// Why a call was refused.
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
    pub fn of(execution: &Execution) -> Self {
        // What a store of an older version kept may be no budget: it limited nothing then.
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

    /// Counts what a call used; what is low by it and was not before.
    fn spend(&mut self, usage: &Usage) -> Option<Value> {
        let low = |account: &Self| account.limits(Spent::default()).filter(Limit::is_low).count();
        let before = low(self);
        self.used.add(usage);
        (low(self) > before).then(|| self.shown(Spent::default()))
    }

    /// Why a task with this reservation may not begin, beside calls that have reserved already.
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

    /// What is left of the budget, as JSON; `null` where there is none.
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

    /// Whether the budget refuses a new task or step.
    pub(super) fn is_refused(&mut self, reserve: u32) -> bool {
        if self.run.account.allowance.is_none() {
            return false;
        }
        let refusal = self.run.account.refuses(reserve, self.reserved());
        let refused = refusal.is_some();
        self.run.account.refusal = refusal.or(self.run.account.refusal.take());
        refused
    }

    /// Pauses the run where one of its branches awaits what the budget refused.
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
