//! Runs with a budget.

use super::*;
use flovyn_toolkit::react::{Budget, Ledger, StopReason};

fn with(budget: Budget) -> AgentInput {
    let mut input = ask("Spend.");
    input.config.budget = Some(budget);
    input
}

fn endless() -> Script {
    Script::new([Turn { text: Some("More.".into()), ..Turn::call("note", json!({"text": "a"})) }.times(99)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_calls_ends_the_run_and_is_told_when_it_runs_low() {
    let lab = Lab::of("memory:", endless(), agent()).await;
    let (outcome, run) = lab.ends(&with(Budget { max_calls: Some(5), ..Budget::default() })).await;
    assert_eq!((outcome.stop_reason, outcome.turns, outcome.text.as_str()), (StopReason::Budget, 5, "More."));
    assert_eq!(lab.fake.paid(), 5);
    let low: Vec<Ledger> = of_type(&run, "budget_low").await;
    assert_eq!(low.iter().map(|ledger| ledger.calls).collect::<Vec<_>>(), [4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_tokens_is_never_overdrawn() {
    let lab = Lab::of("memory:", endless(), agent()).await;
    let budget = Budget { max_tokens: Some(6_000), max_tokens_per_call: Some(1_000), ..Budget::default() };
    let (outcome, _) = lab.ends(&with(budget)).await;
    assert_eq!(outcome.stop_reason, StopReason::Budget);
    let usage = &outcome.usage.0["fake/m"];
    assert!(usage.input_tokens + usage.output_tokens <= 6_000 && usage.calls > 1, "{usage:?}");
    let asked: Vec<_> = lab.fake.requests().iter().map(|request| request.body["max_tokens"].as_u64()).collect();
    assert!(asked[0] == Some(1_000) && asked.iter().all(|tokens| *tokens <= Some(1_000)), "{asked:?}");
}
