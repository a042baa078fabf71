//! Runs with a budget.

use super::*;
use flovyn_core::model::{ResumeRequest, StartLimits, WaitReason};
use flovyn_toolkit::fake_llm::ScriptedUsage;
use flovyn_toolkit::react::{AnswerEnd, AnswerLimits, Budget, Ledger, StopReason};

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

#[tokio::test(flavor = "multi_thread")]
async fn each_message_says_what_its_answer_may_use() {
    let costs = ScriptedUsage { cost_micros: Some(400), ..ScriptedUsage::default() };
    let script = Script::new([Turn { usage: costs, ..Turn::call("note", json!({"text": "a"})) }.times(99)]);
    let lab = Lab::of("memory:", script, agent()).await;
    let mut input = AgentInput::new("other/m", "Go on.").chat();
    input.limits = AnswerLimits { max_turns: Some(2), max_cost_micros: None };
    input.config.max_turns = 4;
    let run = lab.start(&input).await;
    waits_for(&run, USER_MESSAGE).await;
    let costly = AnswerLimits { max_turns: None, max_cost_micros: Some(1_000) };
    for limits in [costly, AnswerLimits::default()] {
        say(&run, UserMessage { limits, ..UserMessage::new("More.") }).await;
        let answered = lab.fake.requests().len();
        lab.asked(answered + 3).await;
        waits_for(&run, USER_MESSAGE).await;
    }
    let ends: Vec<AnswerEnd> = of_type(&run, "answer_end").await;
    let ends: Vec<_> = ends.iter().map(|end| (end.stop_reason, end.turns)).collect();
    // 400 + 400 leave room for one more call, 1,200 for none. Without limits of its own a message has those of the run.
    assert_eq!(ends, [(StopReason::MaxTurns, 2), (StopReason::Budget, 3), (StopReason::MaxTurns, 4)]);
    assert_eq!(lab.fake.paid(), 9);
}

/// Starts a run with a budget of the engine's, and waits until that is used up.
async fn used_up(lab: &Lab, budget: Budget) -> Handle {
    let budget = serde_json::to_string(&budget).expect("JSON");
    let limits = StartLimits { budget: Some(budget), ..StartLimits::default() };
    let options = StartOptions { limits, ..StartOptions::default() };
    let run = lab.flovyn.start(&lab.agent, &ask("Spend."), options).await.expect("it starts");
    paused(&run).await;
    run
}

async fn paused(run: &Handle) {
    let pausing = async {
        while run.status().await.expect("the run") != Status::Paused {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, pausing).await.expect("it pauses");
    let reason = run.describe().await.expect("the run").wait.and_then(|wait| wait.reason);
    assert_eq!(reason, Some(WaitReason::Budget));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_used_its_budget_up_pauses_and_goes_on_with_more() {
    let script = Script::new([Turn::call("note", json!({"text": "a"})).times(4), Turn::text("Done.")]);
    let lab = Lab::of("memory:", script, agent()).await;
    let run = used_up(&lab, Budget { max_calls: Some(2), ..Budget::default() }).await;
    assert_eq!(lab.fake.paid(), 2);
    run.resume(ResumeRequest::default()).await.expect("as much again");
    paused(&run).await;
    assert_eq!(lab.fake.paid(), 4);
    run.resume(ResumeRequest { budget: Some("1000000".into()), ..ResumeRequest::default() }).await.expect("more");
    let outcome = outcome(&run).await;
    assert_eq!((outcome.text.as_str(), outcome.turns, lab.fake.paid()), ("Done.", 5, 5));
    let results = told(&run).await.into_iter().filter(|line| line.starts_with("tool_result")).count();
    assert_eq!(results, 4, "each call once, those that the pauses cut off included");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_lets_no_call_begin_that_its_budget_has_no_room_for() {
    let lab = Lab::of("memory:", endless(), agent()).await;
    let run =
        used_up(&lab, Budget { max_tokens: Some(6_000), max_tokens_per_call: Some(1_000), ..Budget::default() }).await;
    let usage = run.describe().await.expect("the run").usage.0["fake/m"].clone();
    assert!(usage.input_tokens + usage.output_tokens <= 6_000 && usage.calls > 1, "{usage:?}");
    let asked: Vec<_> = lab.fake.requests().iter().map(|request| request.body["max_tokens"].as_u64()).collect();
    assert!(asked[0] == Some(1_000) && asked.iter().all(|tokens| *tokens <= Some(1_000)), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_model_is_asked_for_more_than_it_can_say() {
    let lab = Lab::new([Turn::text("Hello.")]).await;
    lab.ends(&with(Budget { max_tokens: Some(1_000_000), ..Budget::default() })).await;
    assert_eq!(lab.fake.requests()[0].body["max_tokens"], MOST_SAID);
}
