//! The budget of a run: how much was used, how much calls in flight have reserved, and what happens to a call that does
//! not fit.
//!
//! * Used is the sum of all recorded usage. The store tells it when a run is taken up, so a call repeated on replay adds nothing.
//! * Reserved are the reservations in the options of tasks that have not ended. A task counts its reservation once for each
//!   attempt, since nobody knows what a lost attempt has used.
//! * A call that does not fit is not put into a batch. The run pauses once nothing else of it can move. After a resume the code
//!   makes the same call again.
//! * A run whose budget other runs of its family use too has a *slice* of it. A call that does not fit into the slice is held
//!   back, with all calls after it, until the store has answered to a *draw*. Without room for it, the call is refused; a run
//!   with a parent has then been asked to stop by the store.

use super::effect::Ending;
use super::machine::Machine;
use super::op::{Op, Place};
use crate::error::Code;
use crate::model::{Allowance, Dimension, Execution, Failure, OpBody, OpKind, Purse, Spent, Usage, WaitReason};
use crate::payload::Payload;
use serde_json::{Value, json};

/// Little is left once this percentage of a limit is used.
const LOW: u64 = 80;

/// The budget and what was used of it.
#[derive(Debug, Default)]
pub(super) struct Account {
    allowance: Option<Allowance>,
    /// What the store has told of the budgets of the family.
    purse: Option<Purse>,
    has_parent: bool,
    /// All recorded usage of the run. The allowance says how much of it belongs to earlier budgets.
    used: Spent,
    draw: Draw,
    /// Why a call was refused. Cleared when the run pauses for it.
    refusal: Option<Failure>,
}

/// Whether calls are held back for a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Draw {
    /// No call is.
    #[default]
    Unneeded,
    /// Some call that is held back did not fit when it was made.
    Expected,
    /// The first call that is held back does not fit: the store has to be asked.
    Due,
    /// The store was asked.
    Asked,
    /// It has answered. What does not fit now is refused.
    Answered,
}

/// What a call finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// There is room for it.
    Enough,
    /// The store may give the run more.
    Draw,
    /// There is none.
    Refused,
}

/// One limit, and how it stands.
struct Limit {
    of: Dimension,
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

    /// How much has to be left for a call that reserves so much.
    fn needs(&self, asked: u32) -> u64 {
        if self.of == Dimension::Tokens { u64::from(asked).max(1) } else { 1 }
    }
}

impl Account {
    pub(super) fn of(execution: &Execution) -> Self {
        // A store of an older version may have kept a text that is no budget. It limited nothing then, and does not
        // now.
        let allowance = execution.new.limits.budget.as_deref().and_then(|text| Allowance::parse(text).ok());
        let (purse, has_parent) = (execution.purse.clone(), execution.parent.is_some());
        Self { allowance, purse, has_parent, used: Spent::of(&execution.usage), ..Self::default() }
    }

    /// Whether nothing limits the run.
    fn is_unlimited(&self) -> bool {
        self.allowance.is_none() && self.purse.as_ref().is_none_or(|purse| purse.slice.is_none())
    }

    /// How its own budget stands. Of one that it shares, what the others hold counts as used.
    fn own_limits(&self, reserved: Spent) -> Vec<Limit> {
        let Some(Allowance { budget, since }) = self.allowance.clone() else { return Vec::new() };
        let used = self.purse.as_ref().map_or(self.used, |purse| purse.with_others(self.used));
        let limit = |of: Dimension| {
            let used = used.of_one(of).saturating_sub(since.of_one(of));
            let reserved = reserved_of(reserved, of);
            Some(Limit { of, most: budget.limit(of)?, used, reserved })
        };
        Dimension::ALL.into_iter().filter_map(limit).collect()
    }

    /// How its slice stands.
    fn slice_limits(&self, reserved: Spent) -> Option<Vec<Limit>> {
        let slice = self.purse.as_ref()?.slice.as_ref()?;
        let limit = |of: Dimension| {
            Some(Limit { of, most: slice.limit(of)?, used: self.used.of_one(of), reserved: reserved_of(reserved, of) })
        };
        Some(Dimension::ALL.into_iter().filter_map(limit).collect())
    }

    /// Counts the usage of a call. Returns how the limits stand if one more of them is low now.
    fn spend(&mut self, usage: &Usage) -> Option<Value> {
        let low = |account: &Self| account.own_limits(Spent::default()).iter().filter(|limit| limit.is_low()).count();
        let before = low(self);
        self.used.add(usage);
        (low(self) > before).then(|| self.shown(Spent::default()))
    }

    /// Whether a task that asks for this reservation may begin, beside what is reserved already.
    fn room(&self, asked: u32, reserved: Spent) -> Room {
        let fits = match self.slice_limits(reserved) {
            // What reserves nothing may begin as long as nothing is overdrawn.
            Some(limits) if asked == 0 => limits.iter().all(|limit| limit.most >= limit.used + limit.reserved),
            Some(limits) => limits.iter().all(|limit| limit.left() >= limit.needs(asked)),
            None => self.own_limits(reserved).iter().all(|limit| limit.left() >= limit.needs(asked)),
        };
        let draws = self.purse.as_ref().is_some_and(|purse| purse.slice.is_some() || self.has_parent);
        match fits {
            true => Room::Enough,
            false if draws => Room::Draw,
            false => Room::Refused,
        }
    }

    /// Why a call was refused.
    fn refusal(&self, asked: u32, reserved: Spent) -> Option<Failure> {
        let limits = self.own_limits(reserved).into_iter().chain(self.slice_limits(reserved).unwrap_or_default());
        let short = limits.into_iter().find(|limit| limit.left() < limit.needs(asked))?;
        let Limit { of, most, used, reserved } = &short;
        let message = format!(
            "the run has used {used} of the {most} {} of its budget, {reserved} are reserved, and the next call needs \
             {}; resume it with a budget to go on",
            of.as_str(),
            short.needs(asked)
        );
        Some(Failure::new(Code::BudgetExceeded, "BudgetExceeded", message))
    }

    /// How every limit stands, as JSON. A run without a budget of its own is shown its slice.
    fn shown(&self, reserved: Spent) -> Value {
        let mut limits = self.own_limits(reserved);
        let others = self.slice_limits(reserved).unwrap_or_default();
        limits.extend(
            others
                .into_iter()
                .filter(|other| self.allowance.as_ref().is_none_or(|own| own.budget.limit(other.of).is_none())),
        );
        let limits = limits.iter().map(|limit| {
            let Limit { of, most, used, reserved } = limit;
            let shown = json!({"limit": most, "used": used, "reserved": reserved, "left": limit.left()});
            (of.as_str().to_owned(), shown)
        });
        let mut shown: serde_json::Map<_, _> = limits.collect();
        let own = self.allowance.as_ref().and_then(|allowance| allowance.budget.max_tokens_per_call);
        let above = || self.purse.as_ref()?.slice.as_ref()?.max_tokens_per_call;
        shown.extend(own.or_else(above).map(|most| ("maxTokensPerCall".to_owned(), json!(most))));
        Value::Object(shown)
    }
}

/// What is reserved of one thing. What a call will cost is not known.
fn reserved_of(reserved: Spent, of: Dimension) -> u64 {
    if of == Dimension::Cost { 0 } else { reserved.of_one(of) }
}

impl Machine {
    /// What the tasks in flight have reserved; `beside_held` leaves out those that are held back.
    fn reserved(&self, beside_held: bool) -> Spent {
        let none = |op: &Op| op.is_unclaimed() || op.is_refused() || (beside_held && op.is_held());
        let open = self.segment.ops.iter().filter(|op| !none(op)).filter(|op| op.outcome.is_none());
        let tasks = open.filter_map(Op::task).filter(|task| !task.status.is_terminal());
        tasks.filter(|task| task.options.reserve > 0).fold(Spent::default(), |mut sum, task| {
            let attempts = u64::from(task.attempt.max(1));
            sum.tokens = sum.tokens.saturating_add(attempts.saturating_mul(task.options.reserve.into()));
            sum.calls = sum.calls.saturating_add(attempts);
            sum
        })
    }

    /// How the budget stands, as JSON. `null` if nothing limits the run.
    pub(super) fn budget_left(&self) -> Payload {
        let account = &self.run.account;
        let shown = (!account.is_unlimited()).then(|| account.shown(self.reserved(false)));
        Payload::json(shown.unwrap_or_default().to_string())
    }

    /// Counts recorded usage against the budget and warns, once, when little is left.
    pub(super) fn spend(&mut self, sequence: u32, usage: &Usage) {
        if let Some(shown) = self.run.account.spend(usage) {
            self.draft.warn(Some(sequence), "budget_low", json!({ "budget": shown }));
        }
    }

    /// Whether the budget has room for a new task or step. Keeps the reason of a refusal for [`Machine::pause_refused`].
    pub(super) fn room(&mut self, reserve: u32) -> Room {
        if self.is_beyond_budgets(reserve) {
            return Room::Enough;
        }
        let reserved = self.reserved(false);
        let room = self.run.account.room(reserve, reserved);
        match room {
            Room::Enough => {}
            Room::Draw => self.run.account.draw = self.run.account.draw.max_expected(),
            Room::Refused => self.note_refusal_of_budget(reserve, reserved),
        }
        room
    }

    /// Whether the budget has no say: nothing limits the run, or it was asked to stop and tidies up by what costs nothing.
    fn is_beyond_budgets(&self, reserve: u32) -> bool {
        self.run.account.is_unlimited() || (reserve == 0 && self.run.stop.is_requested())
    }

    fn note_refusal_of_budget(&mut self, reserve: u32, reserved: Spent) {
        let refusal = self.run.account.refusal(reserve, reserved);
        self.run.account.refusal = refusal.or(self.run.account.refusal.take());
    }

    /// What an op that is held back reserves. None for an op of which the budget knows nothing.
    fn held_reserve(&self, index: usize) -> Option<u32> {
        let op = &self.segment.ops[index];
        match op.label.kind {
            OpKind::Task => op.task().map(|task| task.options.reserve),
            OpKind::StepMark => Some(0),
            _ => None,
        }
    }

    /// Whether an op that was held back enters the batch now, or is refused. False if the store has to be asked first; with
    /// `ending` it is not, and the op is refused.
    pub(super) fn is_judged(&mut self, index: usize, ending: bool) -> bool {
        if self.run.account.draw == Draw::Unneeded {
            return true;
        }
        let Some(reserve) = self.held_reserve(index) else { return true };
        let reserved = self.reserved(true);
        if self.is_beyond_budgets(reserve) || self.run.account.room(reserve, reserved) == Room::Enough {
            if self.run.account.draw == Draw::Answered {
                self.run.account.draw = Draw::Expected;
            }
            return true;
        }
        if ending || self.run.account.draw == Draw::Answered {
            self.run.account.draw = Draw::Expected;
            self.note_refusal_of_budget(reserve, reserved);
            self.segment.ops[index].place = Place::Refused;
            return true;
        }
        if self.run.account.draw == Draw::Expected {
            self.run.account.draw = Draw::Due;
        }
        false
    }

    /// Nothing is held back any more.
    pub(super) fn none_held(&mut self) {
        self.run.account.draw = Draw::Unneeded;
    }

    /// Asks the store for room for the first op that is held back. None if none waits for that.
    pub(super) fn take_draw(&mut self) -> Option<Spent> {
        if self.run.account.draw != Draw::Due {
            return None;
        }
        let reserve = self.segment.held.first().and_then(|index| self.held_reserve(*index))?;
        self.run.account.draw = Draw::Asked;
        let mut wanted = self.wanted(true);
        wanted.tokens = wanted.tokens.saturating_add(u64::from(reserve).max(1));
        wanted.calls = wanted.calls.saturating_add(1);
        wanted.cost_micros = wanted.cost_micros.saturating_add(1);
        Some(wanted)
    }

    /// What the run has used and reserved, in all.
    fn wanted(&self, beside_held: bool) -> Spent {
        let (used, reserved) = (self.run.account.used, self.reserved(beside_held));
        Spent {
            tokens: used.tokens.saturating_add(reserved.tokens),
            calls: used.calls.saturating_add(reserved.calls),
            ..used
        }
    }

    /// What the run keeps of its own budget when it starts its first child, which may use the rest.
    pub(super) fn keeps(&self) -> Option<Spent> {
        let account = &self.run.account;
        let alone = account.purse.as_ref().is_none_or(|purse| purse.slice.is_none());
        let starts = || self.draft.ops.iter().any(|op| matches!(op.body, OpBody::Child(_)));
        (account.allowance.is_some() && alone && starts()).then(|| self.wanted(false))
    }

    /// Takes what the store tells of the budgets of the family.
    pub(super) fn heard_of_budgets(&mut self, purse: Option<Purse>) {
        let account = &mut self.run.account;
        account.purse = purse.or(account.purse.take());
    }

    /// Notes that the store has answered to a draw, if it was asked.
    pub(super) fn has_drawn(&mut self) {
        if self.run.account.draw == Draw::Asked {
            self.run.account.draw = Draw::Answered;
        }
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

impl Draw {
    /// As it is once a call is held back for a draw.
    fn max_expected(self) -> Self {
        if self == Self::Unneeded { Self::Expected } else { self }
    }
}
