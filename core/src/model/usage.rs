//! What model calls use and cost.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one model call, or several together, have used. Each token is counted in one of the four fields only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Model calls counted.
    pub calls: u64,
    /// Fresh prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Prompt tokens served from the provider's cache.
    pub cache_read_tokens: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Cost in millionths of a US dollar; absent where the price is unknown.
    pub cost_micros: Option<u64>,
}

impl Usage {
    /// Adds another sum to this one.
    pub fn add(&mut self, other: &Usage) {
        self.calls += other.calls;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_read_tokens += other.cache_read_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.cost_micros = match (self.cost_micros, other.cost_micros) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
    }
}

/// Sums by model name. Executions and checkpoints hold them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsageTotals(pub BTreeMap<String, Usage>);

impl UsageTotals {
    /// Adds to a model's sum.
    pub fn add(&mut self, model: &str, usage: &Usage) {
        self.0.entry(model.to_owned()).or_default().add(usage);
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
