//! The usage and cost of model calls: of one run, and of the runs that an org started in a span of time.

use super::problem::Problem;
use super::request::{Caller, QueryParams};
use flovyn_core::clock::Timestamp;
use flovyn_core::model::{ExecutionFilter, PageRequest, Usage};
use flovyn_core::view::Usage as ModelUsage;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use utoipa::ToSchema;

/// The span of a roll-up that names none, and the longest one.
const DAY: Duration = Duration::from_secs(86_400);
const LONGEST: Duration = Duration::from_secs(31 * 86_400);
/// Runs read at a time.
const PAGE: usize = 1_000;

/// What model calls cost, in all and by model.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Usage)]
pub(crate) struct UsageView {
    total: ModelUsage,
    models: BTreeMap<String, ModelUsage>,
}

impl UsageView {
    /// The sum of what is given by model.
    pub(crate) fn of(models: &BTreeMap<String, Usage>) -> Self {
        let mut total = Usage::default();
        models.values().for_each(|usage| total.add(usage));
        Self {
            total: ModelUsage::of(&total),
            models: models.iter().map(|(name, usage)| (name.clone(), ModelUsage::of(usage))).collect(),
        }
    }
}

/// What a run has cost so far.
#[utoipa::path(
    operation_id = "usage_of_run",
    get, path = "/agent-executions/{id}/usage", tag = "runs",
    responses((status = 200, body = UsageView))
)]
pub(super) async fn of_run(caller: Caller) -> Result<axum::Json<UsageView>, Problem> {
    Ok(axum::Json(UsageView::of(&caller.run().await?.usage.0)))
}

/// What the runs of a span of time have cost.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RolledUp {
    from: String,
    until: String,
    /// The runs that were started then.
    runs: u64,
    #[serde(flatten)]
    usage: UsageView,
}

/// What the runs that were started in a span of time have cost so far; without one, those of the last day.
#[utoipa::path(
    operation_id = "usage_of_org",
    get, path = "/usage", tag = "operators",
    params(
        ("from" = Option<String>, Query, description = "RFC 3339: started then or later; a day before `until` without one"),
        ("until" = Option<String>, Query, description = "RFC 3339: started before; now without one. At most 31 days after `from`"),
        ("kind" = Option<String>, Query), ("queue" = Option<String>, Query),
    ),
    responses((status = 200, body = RolledUp))
)]
pub(super) async fn of_org(caller: Caller, mut query: QueryParams) -> Result<axum::Json<RolledUp>, Problem> {
    let moment = "a moment as RFC 3339 writes it, such as 2026-01-31T12:00:00Z";
    let until = query.parse::<Timestamp>("until", moment)?.unwrap_or_else(|| caller.service.storage.clock().now());
    let day_before = Timestamp(until.0.saturating_sub(DAY.as_micros() as i64));
    let from = query.parse::<Timestamp>("from", moment)?.unwrap_or(day_before);
    if until < from || until.since(from) > LONGEST {
        return Err(Problem::invalid(format!("the span from {from} until {until} is not one of at most 31 days")));
    }
    let filter = ExecutionFilter {
        kind: query.get("kind")?,
        queue: query.get("queue")?,
        created_from: Some(from),
        created_until: Some(until),
        ..ExecutionFilter::default()
    };
    query.reject_unknown()?;
    let (mut runs, mut models) = (0, BTreeMap::<String, Usage>::new());
    let mut page = PageRequest { limit: PAGE, after: None };
    loop {
        let found = caller.service.storage.executions(caller.org(), filter.clone(), page).await?;
        runs += found.items.len() as u64;
        for (model, usage) in found.items.iter().flat_map(|run| &run.usage.0) {
            models.entry(model.clone()).or_default().add(usage);
        }
        match found.next {
            Some(next) => page = PageRequest { limit: PAGE, after: Some(next) },
            None => break,
        }
    }
    let usage = UsageView::of(&models);
    Ok(axum::Json(RolledUp { from: from.to_string(), until: until.to_string(), runs, usage }))
}
