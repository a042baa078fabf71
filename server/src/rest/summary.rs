//! A short summary of a run, for lists.

use flovyn_core::model::{Execution, Spent, Usage};
use serde::Serialize;
use utoipa::ToSchema;

/// What a run has come to so far.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Summary)]
pub(super) struct SummaryView {
    steps: u32,
    checkpoints: u32,
    /// Calls of models.
    model_calls: u64,
    /// Prompts, cached ones included, and answers.
    tokens: u64,
    /// US dollars, as far as prices are known; null where none is.
    cost_usd: Option<f64>,
    /// What it failed with.
    last_error: Option<String>,
}

impl SummaryView {
    pub(super) fn of(run: &Execution) -> Self {
        let spent = Spent::of(&run.usage);
        let mut total = Usage::default();
        run.usage.0.values().for_each(|usage| total.add(usage));
        Self {
            steps: run.step_count,
            checkpoints: run.segment,
            model_calls: spent.calls,
            tokens: spent.tokens,
            cost_usd: if spent.calls == 0 { Some(0.0) } else { total.cost_micros.map(|micros| micros as f64 / 1e6) },
            last_error: run.failure.as_ref().map(|failure| failure.message.clone()),
        }
    }
}
