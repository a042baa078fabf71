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

#[tokio::test]
async fn claude_takes_up_a_late_message_before_the_run_ends() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    // Nothing follows that the message could steer: it begins a turn of its own, with a result of its own.
    let run = lab.start(&ask("say Hello; wait go")).await;
    lab.logged("wait", 1).await;
    say(&run, UserMessage::new("say Steered")).await;
    lab.logged("steer", 1).await;
    lab.release("go");
    assert_eq!(outcome(&run).await.text, "Steered");
    let told = told(&run).await;
    assert_eq!(told.iter().filter(|line| line.starts_with("user: say Steered")).count(), 1, "{told:?}");
}

#[tokio::test]
async fn claude_that_is_stopped_begins_nothing_more() {
    // In the middle of its work, and in the moment in which it has done all of it.
    for (script, reason) in [("say Hello; wait never; say Never", "interrupted"), ("say Hello; wait never", "end")] {
        let lab = Lab::of(&["claude"], |agent| agent).await;
        let run = lab.start(&chat(script)).await;
        lab.logged("wait", 1).await;
        say(&run, UserMessage::new("say Steered")).await;
        lab.logged("steer", 1).await;
        say(&run, UserMessage::interrupt()).await;
        assert_eq!(answers(&run, 1).await, reason);
        let warnings: Vec<Value> = of_type(&run, "warning").await;
        let is_named = |warning: &Value| warning["text"].as_str().is_some_and(|text| text.ends_with("say Steered"));
        assert!(warnings.len() == 1 && is_named(&warnings[0]), "{warnings:?}");
        say(&run, UserMessage::new("say Again")).await;
        answers(&run, 2).await;
        assert_eq!(lab.log("prompt").len(), 2, "{:?}", lab.log("prompt"));
        assert_eq!(told(&run).await.last().map(String::as_str), Some("assistant: Again"));
    }
}

#[tokio::test]
async fn claude_is_not_told_again_what_has_steered_it() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    let run = lab.start(&ask("say One; wait a; say Two; wait b; die once; say Three")).await;
    lab.logged("wait", 1).await;
    say(&run, UserMessage::new("say Extra")).await;
    lab.logged("steer", 1).await;
    lab.release("a");
    lab.logged("wait", 2).await;
    lab.release("b");
    assert_eq!(outcome(&run).await.text, "Extra");
    let last = lab.log("prompt").pop().expect("it was told to go on");
    let text = last["text"].as_str().expect("a text");
    assert!(text.starts_with("You were interrupted") && !text.contains("Extra"), "{text}");
}

#[tokio::test]
async fn claude_that_has_lost_a_session_gets_another_one() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    let (outcome, run) = lab.ends("vanish; say Done").await;
    assert_eq!((outcome.text.as_str(), told(&run).await.len()), ("Done", 2));
    let sessions: Vec<_> = lab.log("new").into_iter().map(|line| line["session"].clone()).collect();
    assert!(sessions.len() == 2 && sessions[0] != sessions[1], "{sessions:?}");
}

#[tokio::test]
async fn claude_books_a_resumed_session_once() {
    let Lab { folder, flovyn, agent, worker } = Lab::of(&["claude"], |agent| agent).await;
    let run = flovyn.start(&agent, &chat("say One"), StartOptions::default()).await.expect("it starts");
    answers(&run, 1).await;
    // Its process ends as it should, and the next one counts what the session has cost so far.
    worker.expect("one").close(Duration::from_secs(1)).await.expect("it closes");
    is_gone(&run.id().to_string()).await;
    let _worker = flovyn.worker().await.expect("a worker");
    say(&run, UserMessage::new("say Two")).await;
    answers(&run, 2).await;
    assert_eq!(log(folder.path(), "resumed").len(), 1);
    let used = &run.describe().await.expect("it is there").usage.0["anthropic/claude-otter"];
    assert_eq!((used.calls, used.cost_micros), (2, Some(500_000)));
}

#[tokio::test]
async fn claude_says_once_what_its_provider_refuses() {
    let lab = Lab::of(&["claude"], |agent| agent).await;
    let run = lab.start(&ask("fail API Error: 400 no otters")).await;
    let error = run.result(Some(PATIENCE)).await.expect_err("it fails");
    assert!(error.message().contains("no otters"), "{error}");
    assert_eq!(told(&run).await.len(), 1, "an error is no answer");
}
