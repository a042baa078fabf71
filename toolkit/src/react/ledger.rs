//! The budget of one run: what it may use, what it has used, and how much the next model call may use.
//!
//! A run can have two budgets:
//!
//! * The budget that the run was started with is the engine's. The engine counts it, and pauses the run until somebody gives
//!   it more. The reservation computed here becomes the reservation of the model call's task.
//! * The budget in the agent's input is counted here. If a call does not fit, the run ends.
//!
//! The [`Ledger`] is part of the checkpoint, and the reservation of a call is in its recorded input (`maxTokens`). So
//! both survive a crash, and replay counts nothing twice. The usage of an attempt that was lost is unknown: it is
//! settled at its reservation.

use crate::message::Usage;
pub use flovyn_core::model::Budget;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was used of a budget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ledger {
    /// Tokens.
    pub tokens: u64,
    /// Millionths of a US dollar, as far as known.
    pub cost_micros: u64,
    /// Model calls.
    pub calls: u64,
    /// Whether the agent was warned that little is left.
    pub told_low: bool,
}

/// What a model call may use: reserved before it, settled after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    /// Prompt and answer together.
    pub tokens: u64,
    /// The most tokens of the answer.
    pub answer: Option<u64>,
}

/// The tokens reserved for an answer that has no limit.
const USUAL_ANSWER: u64 = 4_096;
/// An answer that has room for fewer tokens is not asked for.
const SMALLEST_ANSWER: u64 = 256;
/// Little is left once this percentage of a limit is used.
const LOW: u64 = 80;

/// The most tokens of an answer that the engine's budget has room for beside a prompt. `remaining` is the answer of the
/// context's `remaining_budget`. If there is hardly any room, it does not limit the answer: then the engine refuses the
/// call and pauses the run.
pub(super) fn answer_within(remaining: &Value, prompt: u64, requested: Option<u64>) -> Option<u64> {
    let room = remaining["tokens"]["left"].as_u64().map(|left| left.saturating_sub(prompt));
    let room = room.filter(|room| *room >= SMALLEST_ANSWER);
    [requested, remaining["maxTokensPerCall"].as_u64(), room].into_iter().flatten().min()
}

impl Ledger {
    /// Reserves a model call with a prompt of about `prompt` tokens. None if it does not fit into the budget. If little
    /// is left, the answer is limited to less than was requested.
    pub(super) fn reserve(&self, budget: Option<&Budget>, prompt: u64, requested: Option<u64>) -> Option<Reservation> {
        let Some(budget) = budget else {
            return Some(Reservation { tokens: prompt + requested.unwrap_or(USUAL_ANSWER), answer: requested });
        };
        let used_up = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used >= limit);
        if used_up(self.calls, budget.max_calls) || used_up(self.cost_micros, budget.max_cost_micros) {
            return None;
        }
        let answer = match (requested, budget.max_tokens_per_call) {
            (Some(requested), Some(max)) => Some(requested.min(max)),
            (requested, max) => requested.or(max),
        };
        let Some(limit) = budget.max_tokens else {
            return Some(Reservation { tokens: prompt + answer.unwrap_or(USUAL_ANSWER), answer });
        };
        let left = limit.saturating_sub(self.tokens).saturating_sub(prompt);
        let answer = answer.unwrap_or(left).min(left);
        (answer >= SMALLEST_ANSWER.min(limit)).then_some(Reservation { tokens: prompt + answer, answer: Some(answer) })
    }

    /// Settles a call at what it used, and each lost attempt before it at the reservation.
    pub(super) fn settle(&mut self, reservation: Reservation, usage: Option<&Usage>, attempt: u32) {
        self.calls += 1;
        let lost = u64::from(attempt.saturating_sub(1));
        let used = usage.map_or(reservation.tokens, Usage::total);
        self.tokens = self.tokens.saturating_add(used).saturating_add(lost.saturating_mul(reservation.tokens));
        self.cost_micros = self.cost_micros.saturating_add(usage.and_then(Usage::cost_micros).unwrap_or(0));
    }

    /// Counts a call that was made without a reservation.
    pub(super) fn count(&mut self, usage: &Usage) {
        self.settle(Reservation { tokens: 0, answer: None }, Some(usage), 1);
    }

    /// Whether the agent has to be warned that little is left. True once.
    pub(super) fn runs_low(&mut self, budget: Option<&Budget>) -> bool {
        let Some(budget) = budget else { return false };
        let low = |used: u64, limit: Option<u64>| {
            limit.is_some_and(|limit| used.saturating_mul(100) >= limit.saturating_mul(LOW))
        };
        let now = low(self.tokens, budget.max_tokens)
            || low(self.cost_micros, budget.max_cost_micros)
            || low(self.calls, budget.max_calls);
        now && !std::mem::replace(&mut self.told_low, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max_tokens: u64) -> Budget {
        Budget { max_tokens: Some(max_tokens), ..Budget::default() }
    }

    #[test]
    fn a_call_that_does_not_fit_is_not_made() {
        let mut ledger = Ledger::default();
        let budget = budget(10_000);
        let reserved = ledger.reserve(Some(&budget), 1_000, Some(2_000)).expect("it fits");
        assert_eq!((reserved.tokens, reserved.answer), (3_000, Some(2_000)));
        ledger.settle(reserved, Some(&Usage { input: 1_000, output: 100, ..Usage::default() }), 1);
        assert_eq!(ledger.tokens, 1_100);
        // Two attempts died before: nobody knows what they used.
        ledger.settle(reserved, Some(&Usage { input: 1_000, ..Usage::default() }), 3);
        assert_eq!(ledger.tokens, 8_100);
        assert!(ledger.runs_low(Some(&budget)) && !ledger.runs_low(Some(&budget)), "said once");
        let short = ledger.reserve(Some(&budget), 1_000, Some(2_000)).expect("a shorter answer fits");
        assert_eq!(short.answer, Some(900));
        assert_eq!(ledger.reserve(Some(&budget), 1_800, None), None);
    }

    #[test]
    fn an_answer_is_as_long_as_the_engine_has_room_for() {
        let left = |tokens: u64| serde_json::json!({"tokens": {"left": tokens}, "maxTokensPerCall": 900});
        assert_eq!(answer_within(&Value::Null, 1_000, None), None);
        assert_eq!(answer_within(&left(9_000), 1_000, None), Some(900));
        assert_eq!(answer_within(&left(1_500), 1_000, Some(800)), Some(500));
        assert_eq!(answer_within(&left(1_100), 1_000, Some(800)), Some(800), "the engine refuses it");
    }

    #[test]
    fn calls_and_money_are_limits_of_their_own() {
        let mut ledger = Ledger { calls: 1, cost_micros: 5, ..Ledger::default() };
        let calls = Budget { max_calls: Some(1), ..Budget::default() };
        let money = Budget { max_cost_micros: Some(5), ..Budget::default() };
        assert_eq!(ledger.reserve(Some(&calls), 1, None), None);
        assert_eq!(ledger.reserve(Some(&money), 1, None), None);
        let each = Budget { max_tokens_per_call: Some(7), ..Budget::default() };
        assert_eq!(ledger.reserve(Some(&each), 1, Some(9)).and_then(|call| call.answer), Some(7));
        assert_eq!(ledger.reserve(None, 1, None).and_then(|call| call.answer), None);
        assert!(!ledger.runs_low(None) && ledger.runs_low(Some(&calls)));
    }
}
