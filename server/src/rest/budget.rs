//! Budgets in requests and answers: an object; in a request a number of tokens, or the text of either, does too.

use flovyn_core::model::{Allowance, Budget};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};
use std::borrow::Cow;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A budget as a request gives it, in the words of the engine, which reads it.
pub(super) struct BudgetRequest(pub(super) String);

impl<'de> Deserialize<'de> for BudgetRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            value @ (Value::Object(_) | Value::Number(_)) => Ok(Self(value.to_string())),
            other => Err(de::Error::custom(format!(
                "the budget {other} is neither an object of maxTokens, maxCostUsd, maxCalls and maxTokensPerCall nor a number of \
                 tokens"
            ))),
        }
    }
}

impl PartialSchema for BudgetRequest {
    fn schema() -> RefOr<Schema> {
        let count =
            |description: &str| json!({ "type": ["integer", "null"], "minimum": 0, "description": description });
        let dollars =
            |description: &str| json!({ "type": ["number", "null"], "minimum": 0, "description": description });
        let limits = json!({
            "type": "object",
            "description": "What is left out is without limit",
            "properties": {
                "maxTokens": count("Tokens in all; also `tokens`"),
                "maxCostUsd": dollars("US dollars; also `costUsd` and `cost_usd`"),
                "maxCostMicros": count("Millionths of a US dollar, instead of maxCostUsd"),
                "maxCalls": count("Model calls; also `calls`"),
                "maxTokensPerCall": count("The most tokens that one answer may have"),
            },
            "example": { "maxTokens": 100_000, "maxCostUsd": 2.5 },
        });
        let tokens = json!({ "type": "integer", "minimum": 0, "description": "Tokens in all" });
        let text = json!({ "type": "string", "description": "Either of them as text, or `500 tokens`" });
        let schema = json!({ "description": "What the run may use of models", "oneOf": [limits, tokens, text] });
        serde_json::from_value(schema).unwrap_or_default()
    }
}

impl ToSchema for BudgetRequest {
    fn name() -> Cow<'static, str> {
        "GivenBudget".into()
    }
}

/// The budget of a run; what is null is without limit.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Budget)]
pub(super) struct BudgetView {
    /// Tokens in all.
    max_tokens: Option<u64>,
    /// US dollars.
    max_cost_usd: Option<f64>,
    /// Model calls.
    max_calls: Option<u64>,
    /// The most tokens that one answer may have.
    max_tokens_per_call: Option<u64>,
}

impl BudgetView {
    /// That of a run which keeps this.
    pub(super) fn of(stored: &str) -> Option<Self> {
        let Budget { max_tokens, max_cost_micros, max_calls, max_tokens_per_call } =
            Allowance::parse(stored).ok()?.budget;
        let max_cost_usd = max_cost_micros.map(|micros| micros as f64 / 1e6);
        Some(Self { max_tokens, max_cost_usd, max_calls, max_tokens_per_call })
    }
}
