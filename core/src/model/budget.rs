//! The budget of a run: what its model calls may use, and what they have used.

use super::{Usage, UsageTotals};
use crate::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};

/// What the model calls of a run may use. There is no limit for what is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Given")]
pub struct Budget {
    /// Tokens of all prompts, cached ones included, and of all answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Millionths of a US dollar. Calls of unknown price do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_micros: Option<u64>,
    /// Model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// The most tokens that one answer may have. The engine only passes it on; the agent has to keep to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_call: Option<u64>,
}

/// A budget in the JSON of a start or a resume, under every name that is accepted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Given {
    #[serde(alias = "max_tokens", alias = "tokens")]
    max_tokens: Option<u64>,
    #[serde(alias = "max_cost_micros")]
    max_cost_micros: Option<u64>,
    #[serde(alias = "max_cost_usd", alias = "costUsd", alias = "cost_usd")]
    max_cost_usd: Option<f64>,
    #[serde(alias = "max_calls", alias = "calls")]
    max_calls: Option<u64>,
    #[serde(alias = "max_tokens_per_call")]
    max_tokens_per_call: Option<u64>,
}

impl TryFrom<Given> for Budget {
    type Error = String;

    fn try_from(given: Given) -> std::result::Result<Self, String> {
        let Given { max_tokens, max_cost_micros, max_cost_usd, max_calls, max_tokens_per_call } = given;
        let max_cost_micros = match (max_cost_micros, max_cost_usd) {
            (Some(_), Some(_)) => return Err("maxCostMicros and maxCostUsd say the same; give one of them".into()),
            (micros, None) => micros,
            (None, Some(dollars)) if (0.0..=DOLLARS).contains(&dollars) => Some((dollars * 1e6).round() as u64),
            (None, Some(dollars)) => return Err(format!("maxCostUsd is {dollars}; give dollars from 0 to {DOLLARS}")),
        };
        Ok(Self { max_tokens, max_cost_micros, max_calls, max_tokens_per_call })
    }
}

/// The most dollars that are accepted. For much larger amounts an `f64` no longer tells two millionths apart.
const DOLLARS: f64 = 1e9;

/// What was used of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spent {
    /// Tokens, in all buckets.
    pub tokens: u64,
    /// Millionths of a US dollar, as far as known.
    pub cost_micros: u64,
    /// Model calls.
    pub calls: u64,
}

/// One of the things that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dimension {
    Tokens,
    Cost,
    Calls,
}

impl Dimension {
    pub(crate) const ALL: [Self; 3] = [Self::Tokens, Self::Cost, Self::Calls];

    /// Its name in JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Cost => "costMicros",
            Self::Calls => "calls",
        }
    }
}

/// What a run has of the budgets of its family: those of the runs above it, and its own where runs below it use that too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Purse {
    /// What it may use itself, in all. None: all of its own budget, which no other run uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Budget>,
    /// What of its own budget is with it and with runs below it, or was used by them.
    pub lent: Spent,
    /// What of its own budget the budgets above it have given for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backed: Option<Budget>,
    /// The budget that had no room for what it wanted to do, so that it was asked to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<Budget>,
}

/// How a budget has stopped a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    /// What it and all runs below it have used.
    pub used: Spent,
    /// The budget that had no room for more: its own, or the one that it drew from.
    pub limit: Budget,
}

impl Purse {
    /// What the run itself has used, with what others have used and hold of its own budget.
    pub(crate) fn with_others(&self, mut used: Spent) -> Spent {
        for of in Dimension::ALL {
            if let Some(slice) = self.slice.as_ref().and_then(|slice| slice.limit(of)) {
                let others = self.lent.of_one(of).saturating_sub(slice);
                used.set(of, used.of_one(of).saturating_add(others));
            }
        }
        used
    }

    /// How the budget has stopped a run that has ended, if it has.
    pub(crate) fn overrun(&self, own: Option<&Budget>, mut used: Spent) -> Option<Overrun> {
        for of in Dimension::ALL {
            if self.slice.is_some() && own.is_some_and(|budget| budget.limit(of).is_some()) {
                used.set(of, self.lent.of_one(of));
            }
        }
        self.exceeded.clone().map(|limit| Overrun { used, limit })
    }
}

/// A budget as a run keeps it. A resume may give a new one, which counts from what had been used until then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// What may be used.
    pub budget: Budget,
    /// What had already been used when the budget was given.
    pub since: Spent,
}

impl Budget {
    /// The limit of one thing.
    pub(crate) fn limit(&self, of: Dimension) -> Option<u64> {
        match of {
            Dimension::Tokens => self.max_tokens,
            Dimension::Cost => self.max_cost_micros,
            Dimension::Calls => self.max_calls,
        }
    }

    /// Sets the limit of one thing.
    pub(crate) fn set(&mut self, of: Dimension, limit: Option<u64>) {
        match of {
            Dimension::Tokens => self.max_tokens = limit,
            Dimension::Cost => self.max_cost_micros = limit,
            Dimension::Calls => self.max_calls = limit,
        }
    }

    /// Reads the budget that a start or a resume gives: a JSON object of limits, or a number of tokens.
    ///
    /// Errors: `InvalidArgument`, which says what was found.
    pub fn parse(text: &str) -> Result<Self> {
        let plain = text.strip_suffix(" tokens").unwrap_or(text).trim();
        if let Ok(tokens) = plain.parse() {
            return Ok(Self { max_tokens: Some(tokens), ..Self::default() });
        }
        // An array would be read as the fields in their order.
        let read = match plain.starts_with('[') {
            true => Err(serde::de::Error::custom("it is an array")),
            false => serde_json::from_str(text),
        };
        read.map_err(|error: serde_json::Error| {
            let message = format!(
                "the budget {text} is neither a number of tokens nor an object of maxTokens, maxCostUsd (or maxCostMicros), maxCalls \
                 and maxTokensPerCall: {error}"
            );
            Error::new(Code::InvalidArgument, message)
        })
    }
}

impl Allowance {
    /// Reads the text that a run keeps: the one of its start, or the one that [`renewed`](Self::renewed) has made.
    pub fn parse(text: &str) -> Result<Self> {
        let kept = serde_json::from_str(text).ok();
        kept.map_or_else(|| Ok(Self { budget: Budget::parse(text)?, since: Spent::default() }), Ok)
    }

    /// The text that a run keeps when a resume gives it a budget: the budget, and what was used of the one before.
    pub fn renewed(text: &str, since: Spent) -> Result<String> {
        let budget = Self::parse(text)?.budget;
        if since == Spent::default() {
            return Ok(text.to_owned());
        }
        serde_json::to_string(&Self { budget, since })
            .map_err(|error| Error::new(Code::NotSerializable, error.to_string()))
    }
}

impl Spent {
    /// The sum over all models.
    pub fn of(totals: &UsageTotals) -> Self {
        totals.0.values().fold(Self::default(), |mut sum, usage| {
            sum.add(usage);
            sum
        })
    }

    /// How much of one thing.
    pub(crate) fn of_one(self, of: Dimension) -> u64 {
        match of {
            Dimension::Tokens => self.tokens,
            Dimension::Cost => self.cost_micros,
            Dimension::Calls => self.calls,
        }
    }

    /// Sets how much of one thing.
    pub(crate) fn set(&mut self, of: Dimension, amount: u64) {
        match of {
            Dimension::Tokens => self.tokens = amount,
            Dimension::Cost => self.cost_micros = amount,
            Dimension::Calls => self.calls = amount,
        }
    }

    /// Adds what a model call used.
    pub fn add(&mut self, usage: &Usage) {
        let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, .. } = usage;
        let tokens = [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens];
        self.tokens = tokens.into_iter().fold(self.tokens, |sum, tokens| sum.saturating_add(*tokens));
        self.cost_micros = self.cost_micros.saturating_add(usage.cost_micros.unwrap_or(0));
        self.calls = self.calls.saturating_add(usage.calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_read_in_every_form() {
        let tokens = |max_tokens| Budget { max_tokens: Some(max_tokens), ..Budget::default() };
        assert_eq!(Budget::parse("9").unwrap(), tokens(9));
        assert_eq!(Budget::parse("500 tokens").unwrap(), tokens(500));
        assert_eq!(Budget::parse(r#"{"max_tokens": 7}"#).unwrap(), tokens(7));
        let all = Budget { max_cost_micros: Some(1), max_calls: Some(2), max_tokens_per_call: Some(3), ..tokens(4) };
        assert_eq!(Budget::parse(&serde_json::to_string(&all).unwrap()).unwrap(), all);
        for (dollars, micros) in [
            (r#"{"tokens": 4, "cost_usd": 0.25, "calls": 2}"#, 250_000),
            (r#"{"maxTokens": 4, "maxCostUsd": 5, "maxCalls": 2}"#, 5_000_000),
            (r#"{"max_tokens": 4, "max_cost_usd": 1.000001, "max_calls": 2}"#, 1_000_001),
        ] {
            let said = Budget { max_cost_micros: Some(micros), max_calls: Some(2), ..tokens(4) };
            assert_eq!(Budget::parse(dollars).unwrap(), said, "{dollars}");
        }
        for wrong in [
            "",
            "[]",
            " [5]",
            "much",
            "-1",
            r#"{"maxTokens": "many"}"#,
            r#"{"maxTokes": 5}"#,
            r#"{"cost_usd": -1}"#,
            r#"{"cost_usd": 1e300}"#,
            r#"{"maxCostUsd": 1, "maxCostMicros": 1}"#,
            r#"{"tokens": 1, "maxTokens": 1}"#,
        ] {
            let error = Budget::parse(wrong).unwrap_err();
            assert!(error.code() == Code::InvalidArgument && error.message().contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_renewed_budget_counts_from_now_on() {
        let mut used = UsageTotals::default();
        assert_eq!(Allowance::renewed("9", Spent::of(&used)).unwrap(), "9");
        used.add("m", &Usage { calls: 1, input_tokens: 20, cache_read_tokens: 2, ..Usage::default() });
        let kept = Allowance::renewed("9", Spent::of(&used)).unwrap();
        let since = Spent { tokens: 22, cost_micros: 0, calls: 1 };
        assert_eq!(Allowance::parse(&kept).unwrap(), Allowance { budget: Budget::parse("9").unwrap(), since });
        used.add("n", &Usage { calls: 1, output_tokens: 5, cost_micros: Some(3), ..Usage::default() });
        let again = Allowance::parse(&Allowance::renewed(&kept, Spent::of(&used)).unwrap()).unwrap();
        assert_eq!((again.budget, again.since.tokens), (Budget::parse("9").unwrap(), 27), "renewed as it was given");
    }
}
