//! A user who interferes, a run that is cancelled, a budget: the agent obeys, or its process ends.

use super::*;
use flovyn_core::model::CancelMode;
use flovyn_toolkit::react::{Budget, Delivery, StopReason};

#[tokio::test]
async fn a_message_in_the_middle_begins_another_turn() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("say Hello; wait go; say Never")).await;
    lab.logged("wait", 1).await;
    say(&run, UserMessage::new("say Instead")).await;
    assert_eq!(outcome(&run).await.text, "Instead");
    assert_eq!(lab.log("cancel").len(), 1);
    assert_eq!(told(&run).await[2..], ["user: say Instead", "assistant: Instead"]);
}

#[tokio::test]
async fn a_message_waits_for_a_tool_that_runs() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("open build; wait never; say Never")).await;
    lab.logged("open", 1).await;
    keeps(&run, "assistant: call build").await;
    say(&run, UserMessage::new("say Instead")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(lab.log("cancel").len(), 0, "the tool runs");
    lab.release("go");
    assert_eq!(outcome(&run).await.text, "Instead");
    let told = told(&run).await;
    assert_eq!(
        told[1..],
        ["assistant: call build", "tool_result: build = build is done", "user: say Instead", "assistant: Instead"]
    );
}

#[tokio::test]
async fn a_message_for_the_next_turn_waits() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("wait go; say First")).await;
    lab.logged("wait", 1).await;
    say(&run, UserMessage::new("say Second").deliver(Delivery::NextTurn)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    lab.release("go");
    assert_eq!(outcome(&run).await.text, "Second");
    assert_eq!(told(&run).await[1..], ["assistant: First", "user: say Second", "assistant: Second"]);
    assert_eq!(lab.log("cancel").len(), 0);
}

#[tokio::test]
async fn a_stop_ends_the_turn() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("say Hello; wait go; say Never")).await;
    lab.logged("wait", 1).await;
    say(&run, UserMessage::interrupt()).await;
    let outcome = outcome(&run).await;
    assert_eq!((outcome.text.as_str(), outcome.stop_reason), ("Hello", StopReason::Interrupted));
}

#[tokio::test]
async fn an_agent_that_does_not_stop_is_stopped() {
    let lab = Lab::of(&["acp"], |agent| agent.with_abort_grace(Duration::from_millis(300))).await;
    let run = lab.start(&chat("say Hello; stubborn")).await;
    lab.logged("hang", 1).await;
    say(&run, UserMessage::interrupt()).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("say Better")).await;
    lab.logged("prompt", 2).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(told(&run).await.last().expect("it says something"), "assistant: Better");
    assert_eq!(lab.log("session/load").len(), 1, "its session was resumed");
}

#[tokio::test]
async fn family_15_a_graceful_cancel_keeps_what_was_said() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("say Hello; open build; say Never")).await;
    lab.logged("open", 1).await;
    keeps(&run, "assistant: call build").await;
    run.cancel(CancelMode::Graceful, PATIENCE).await.expect("it is asked");
    let error = run.result(Some(PATIENCE)).await.expect_err("it was cancelled");
    assert_eq!(run.describe().await.expect("it is there").status, Status::Cancelled, "{error}");
    let told = told(&run).await;
    assert_eq!(told[1..3], ["assistant: Hello", "assistant: call build"]);
    assert_eq!(told.iter().filter(|line| line.starts_with("tool_result")).count(), 1, "{told:?}");
    assert_eq!(lab.log("cancel").len(), 1);
    is_gone(&run.id().to_string()).await;
}

#[tokio::test]
async fn family_15_a_hard_cancel_leaves_no_process() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("say Hello; hang")).await;
    lab.logged("hang", 1).await;
    assert!(!living(&run.id().to_string()).is_empty());
    run.cancel(CancelMode::Hard, PATIENCE).await.expect("it is cancelled");
    is_gone(&run.id().to_string()).await;
}

#[tokio::test]
async fn family_15_a_budget_ends_the_turn() {
    let lab = Lab::of(&["acp"], |agent| agent.with_budget(Budget { max_calls: Some(1), ..Budget::default() })).await;
    let run = lab.start(&chat("spend 0.5; say One")).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("say Two")).await;
    keeps(&run, "user: say Two").await;
    waits_for(&run, USER_MESSAGE).await;
    let ends = of_type::<Value>(&run, "answer_end").await;
    assert_eq!(ends.last().expect("an end")["stopReason"], "budget");
    assert_eq!(lab.log("prompt").len(), 1, "the agent is not asked again");
}
