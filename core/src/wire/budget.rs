//! Budgets of a family: what a run has of them, and what it asks for.

use super::v2;
use crate::model::{Budget, Purse, Spent};

impl From<Spent> for v2::Amounts {
    fn from(spent: Spent) -> Self {
        Self { tokens: spent.tokens, cost_micros: spent.cost_micros, calls: spent.calls }
    }
}

impl From<v2::Amounts> for Spent {
    fn from(wire: v2::Amounts) -> Self {
        Self { tokens: wire.tokens, cost_micros: wire.cost_micros, calls: wire.calls }
    }
}

impl From<&Budget> for v2::Budget {
    fn from(budget: &Budget) -> Self {
        let Budget { max_tokens, max_cost_micros, max_calls, max_tokens_per_call } = *budget;
        Self { max_tokens, max_cost_micros, max_calls, max_tokens_per_call }
    }
}

impl From<v2::Budget> for Budget {
    fn from(wire: v2::Budget) -> Self {
        let v2::Budget { max_tokens, max_cost_micros, max_calls, max_tokens_per_call } = wire;
        Self { max_tokens, max_cost_micros, max_calls, max_tokens_per_call }
    }
}

impl From<&Purse> for v2::Purse {
    fn from(purse: &Purse) -> Self {
        Self {
            slice: purse.slice.as_ref().map(Into::into),
            lent: Some(purse.lent.into()),
            backed: purse.backed.as_ref().map(Into::into),
            exceeded: purse.exceeded.as_ref().map(Into::into),
        }
    }
}

impl From<v2::Purse> for Purse {
    fn from(wire: v2::Purse) -> Self {
        Self {
            slice: wire.slice.map(Into::into),
            lent: wire.lent.map(Into::into).unwrap_or_default(),
            backed: wire.backed.map(Into::into),
            exceeded: wire.exceeded.map(Into::into),
        }
    }
}
