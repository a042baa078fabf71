//! Tokens of one model call in disjoint buckets, and what they cost.

use serde::{Deserialize, Serialize};

/// Tokens of one model call. `input`, `cache_read`, `cache_write` and `output` are disjoint; two more say what part of
/// them was of a certain sort.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Fresh prompt tokens, without what came from a cache or went to one.
    pub input: u64,
    /// Prompt tokens served from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// Those of `cache_write` that are kept for an hour.
    #[serde(rename = "cacheWrite1h")]
    pub cache_write_1h: u64,
    /// Generated tokens.
    pub output: u64,
    /// Those of `output` that the model thought with.
    pub reasoning: u64,
    /// What they cost; `null` where nobody knows, never zero for want of a price.
    pub cost: Option<Cost>,
}

/// What a model call cost, fixed when the call was made and never computed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Millionths of the currency's unit, rounded half up once for the whole call.
    pub amount_micros: u64,
    /// ISO 4217.
    pub currency: String,
    /// Who says so.
    pub basis: CostBasis,
    /// Which table of prices, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_version: Option<String>,
}

/// Who says what a call cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CostBasis {
    /// The provider, in its response.
    Provider,
    /// A table of list prices: an estimate.
    Table,
    /// Whoever wrote the record did not say.
    #[serde(other)]
    Unknown,
}

impl Usage {
    /// All tokens of the prompt, cached ones included, as OpenTelemetry's `gen_ai.usage.input_tokens` counts them.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// All tokens of the call: how much of the context window the conversation fills after it.
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }

    /// The cost in millionths of a US dollar; absent where it is unknown or in another currency.
    pub fn cost_micros(&self) -> Option<u64> {
        self.cost.as_ref().filter(|cost| cost.currency == "USD").map(|cost| cost.amount_micros)
    }
}

/// As the engine counts: one call, in its own words.
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
