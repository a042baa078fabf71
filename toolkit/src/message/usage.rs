//! The tokens of one model call, and what they cost.

use serde::{Deserialize, Serialize};

/// Tokens of one model call. Each token is counted in exactly one of `input`, `cache_read`, `cache_write` and `output`.
/// The two other counts say how many of them were of a certain kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Prompt tokens that neither came from a cache nor were written to one.
    pub input: u64,
    /// Prompt tokens served from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// How many tokens of `cache_write` are kept for an hour.
    #[serde(rename = "cacheWrite1h")]
    pub cache_write_1h: u64,
    /// Generated tokens.
    pub output: u64,
    /// How many tokens of `output` the model used for thinking.
    pub reasoning: u64,
    /// Whether the counts are an estimate: the call ended before its provider had told them.
    #[serde(rename = "estimated", skip_serializing_if = "std::ops::Not::not")]
    pub is_estimate: bool,
    /// What they cost; `null` if that is not known. An unknown price is never counted as zero.
    pub cost: Option<Cost>,
}

/// What a model call cost. It is fixed when the call was made, and never computed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Millionths of the currency's unit. The sum of the whole call is rounded, half up.
    pub amount_micros: u64,
    /// The currency, by its ISO 4217 code.
    pub currency: String,
    /// Where the amount comes from.
    pub basis: CostBasis,
    /// The table of prices that it comes from, if it comes from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_version: Option<String>,
}

/// Where the amount of a cost comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CostBasis {
    /// The provider said it in its response.
    Provider,
    /// It was computed from a table of list prices, so it is an estimate.
    Table,
    /// The record does not say.
    #[serde(other)]
    Unknown,
}

impl Usage {
    /// Adds the usage of another call. If the cost of one of the two is unknown, that of the sum is unknown.
    pub fn add(&mut self, more: &Self) {
        let first = *self == Self::default();
        self.input += more.input;
        self.cache_read += more.cache_read;
        self.cache_write += more.cache_write;
        self.cache_write_1h += more.cache_write_1h;
        self.output += more.output;
        self.reasoning += more.reasoning;
        self.is_estimate |= more.is_estimate;
        self.cost = match (self.cost.take(), &more.cost) {
            (None, cost) if first => cost.clone(),
            (Some(one), Some(two)) if one.currency == two.currency => {
                Some(Cost { amount_micros: one.amount_micros + two.amount_micros, ..one })
            }
            _ => None,
        };
    }

    /// All tokens of the prompt, cached ones included, as OpenTelemetry's `gen_ai.usage.input_tokens` counts them.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// All tokens of the call, which is how much of the context window the conversation fills after it.
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }

    /// The cost in millionths of a US dollar; none if it is unknown or in another currency.
    pub fn cost_micros(&self) -> Option<u64> {
        self.cost.as_ref().filter(|cost| cost.currency == "USD").map(|cost| cost.amount_micros)
    }
}

/// The usage in the engine's form, as one call.
impl From<&Usage> for flovyn_core::model::Usage {
    fn from(usage: &Usage) -> Self {
        Self {
            calls: 1,
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cache_write_tokens: usage.cache_write,
            cost_micros: usage.cost_micros(),
        }
    }
}
