//! What is peculiar to Pi: it can be steered, tells what each message has used, and knows whether a turn was over.

use super::permissions::{answer, request};
use super::*;

async fn pi() -> Lab {
    Lab::of(&["pi"], |agent| agent).await
}

#[tokio::test]
async fn pi_a_turn_is_a_conversation() {
    let lab = pi().await;
    let (outcome, run) = lab.ends("garbage; say Hello; tool read; separators").await;
    assert_eq!(outcome.text, "a\u{2028}b\u{2029}c\u{85}d");
    let told = told(&run).await;
    assert_eq!(told[1..4], ["assistant: Hello", "assistant: call read", "tool_result: read = read is done"]);
    let used = &outcome.usage.0["fake/m"];
    assert_eq!((used.calls, used.input_tokens, used.cost_micros), (2, 20, Some(2_000)));
}

#[tokio::test]
async fn pi_is_steered() {
    let lab = pi().await;
    let run = lab.start(&ask("say Hello; wait go; say Later")).await;
    lab.logged("wait", 1).await;
    keeps(&run, "assistant: Hello").await;
    say(&run, UserMessage::new("say Steered")).await;
    lab.logged("steer", 1).await;
    lab.release("go");
    assert_eq!(outcome(&run).await.text, "Steered");
    let told = told(&run).await;
    assert_eq!(told[2..], ["user: say Steered", "assistant: Later", "assistant: Steered"]);
    assert_eq!((lab.log("cancel").len(), lab.log("prompt").len()), (0, 1));
}

#[tokio::test]
async fn pi_dies_and_is_resumed() {
    let lab = pi().await;
    let (outcome, run) = lab.ends("say Hello; tool read; die once; say Done").await;
    assert_eq!((outcome.text.as_str(), told(&run).await.len()), ("Done", 5));
    assert_eq!(outcome.usage.0["fake/m"].calls, 2, "nothing is booked twice");
    assert_eq!((lab.log("new").len(), lab.log("resumed").len()), (1, 1));
}

#[tokio::test]
async fn pi_a_second_turn_is_resumed_from_its_own_beginning() {
    let lab = pi().await;
    let run = lab.start(&chat("say Same")).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("say Same; die once; say Done")).await;
    keeps(&run, "assistant: Done").await;
    waits_for(&run, USER_MESSAGE).await;
    let told = told(&run).await;
    assert_eq!(told[2..], ["user: say Same; die once; say Done", "assistant: Same", "assistant: Done"]);
}

#[tokio::test]
async fn pi_extensions_ask() {
    let lab = Lab::of(&["pi"], |agent| agent.with_approvals(ApprovalPolicy::default())).await;
    let run = lab.start(&ask("ask rm build")).await;
    let asked = request(&run, 0).await;
    assert_eq!(asked.arguments["title"], "Run rm build?");
    answer(&run, &asked, true).await;
    assert_eq!(outcome(&run).await.text, "rm build was allowed");
}

#[tokio::test]
async fn pi_is_stopped() {
    let lab = pi().await;
    let run = lab.start(&ask("say Hello; wait go; say Never")).await;
    lab.logged("wait", 1).await;
    say(&run, UserMessage::interrupt()).await;
    assert_eq!(outcome(&run).await.text, "Hello");
    assert_eq!(lab.log("cancel").len(), 1);
}
