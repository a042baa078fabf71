//! What is peculiar to Claude Code: the ids of processes, its permissions, costs that add up.

use super::permissions::{answer, request};
use super::*;

#[tokio::test]
async fn claude_a_chat_has_turns() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    let run = lab.start(&chat("say Hello; tool Read; separators")).await;
    keeps(&run, "assistant: a\u{2028}b\u{2029}c\u{85}d").await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("say Two")).await;
    keeps(&run, "assistant: Two").await;
    waits_for(&run, USER_MESSAGE).await;
    let told = told(&run).await;
    assert_eq!(told[1..4], ["assistant: Hello", "assistant: call Read", "tool_result: Read = Read is done"]);
    assert_eq!(told.len(), 7, "{told:?}");
    let used = &run.describe().await.expect("it is there").usage.0["anthropic/claude-otter"];
    assert_eq!((used.calls, used.input_tokens, used.cost_micros), (2, 20, Some(500_000)), "each turn is booked once");
    assert_eq!(lab.log("new").len(), 1);
}

#[tokio::test]
async fn claude_dies_before_it_has_a_session() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    let (outcome, run) = lab.ends("die once; say Done").await;
    assert_eq!((outcome.text.as_str(), told(&run).await.len()), ("Done", 2));
}

#[tokio::test]
async fn claude_asks() {
    let lab = Lab::of(&["claude"], |agent| agent.with_approvals(ApprovalPolicy::default())).await;
    let run = lab.start(&ask("ask rm build")).await;
    let asked = request(&run, 0).await;
    assert_eq!((asked.name.as_str(), &asked.arguments["command"]), ("Bash", &"rm build".into()));
    answer(&run, &asked, false).await;
    assert_eq!(outcome(&run).await.text, "rm build was not allowed");
}

#[tokio::test]
async fn claude_is_steered_and_stopped() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    let run = lab.start(&ask("say Hello; wait go; say Later; wait never")).await;
    keeps(&run, "assistant: Hello").await;
    say(&run, UserMessage::new("say Steered")).await;
    lab.logged("steer", 1).await;
    lab.release("go");
    keeps(&run, "assistant: Later").await;
    say(&run, UserMessage::interrupt()).await;
    assert_eq!(outcome(&run).await.text, "Later");
}
