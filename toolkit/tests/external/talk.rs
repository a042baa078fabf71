//! What an agent says becomes the run's: tokens, entries, events, what was used, turns of a chat.

use super::*;
use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::model::{ChildEvent, ForkFrom};
use flovyn_core::payload::Payload;
use flovyn_toolkit::react::{ModelChoice, StopReason};
use serde_json::json;

#[tokio::test]
async fn a_turn_is_a_conversation() {
    let lab = Lab::new().await;
    let run = lab.start(&ask("say Hello; tool read; say Done")).await;
    let outcome = outcome(&run).await;
    assert_eq!((outcome.text.as_str(), outcome.stop_reason, outcome.turns), ("Done", StopReason::End, 1));
    let expected = [
        "user: say Hello; tool read; say Done",
        "assistant: Hello",
        "assistant: call read",
        "tool_result: read = read is done",
        "assistant: Done",
    ];
    assert_eq!(told(&run).await, expected);
    let entries = run.messages().await.expect("the conversation");
    assert!(
        entries
            .iter()
            .all(|entry| entry.new.role == "user" || entry.new.metadata.as_deref() == Some(r#"{"external":true}"#))
    );
    let id = run.id().to_string();
    let (tokens, data) = shown(run).await;
    assert_eq!(tokens, "HelloDone");
    let ends: Vec<_> = data.iter().filter(|event| event["type"] == "tool_call_end").collect();
    assert_eq!(
        (ends.len(), &ends[0]["tool_call"]["external"], &ends[0]["result"]["content"]),
        (1, &json!(true), &json!("read is done"))
    );
    assert_eq!(data.iter().filter(|event| event["type"] == "tool_call_start").count(), 1);
    is_gone(&id).await;
}

#[tokio::test]
async fn family_15_runs_of_one_id_in_two_stores_have_agents_of_their_own() {
    let labs = [Lab::new().await, Lab::new().await];
    let mut runs = Vec::new();
    for (lab, word) in labs.iter().zip(["One", "Two"]) {
        let input = ask(&format!("say Hello; wait go; say {word}"));
        let run = lab.flovyn.start(&lab.agent, &input, StartOptions::with_id("same")).await.expect("it starts");
        lab.logged("wait", 1).await;
        runs.push(run);
    }
    assert_eq!(runs[0].id(), runs[1].id());
    for lab in &labs {
        lab.release("go");
    }
    for (run, word) in runs.iter().zip(["One", "Two"]) {
        assert_eq!(outcome(run).await.text, format!("Hello{word}"));
    }
}

#[tokio::test]
async fn family_15_a_fork_does_not_take_the_session_away() {
    let lab = Lab::new().await;
    let run = lab.start(&chat("say Hello")).await;
    keeps(&run, "assistant: Hello").await;
    waits_for(&run, USER_MESSAGE).await;
    let fork = run.fork(ForkFrom::Latest, None, None, None).await.expect("it is made");
    say(&fork, UserMessage::new("say Other")).await;
    let refused = fork.result(Some(PATIENCE)).await.expect_err("two runs cannot go on with one session");
    assert!(refused.message().contains("is a fork"), "{refused}");
    say(&run, UserMessage::new("say Two")).await;
    keeps(&run, "assistant: Two").await;
    assert_eq!(lab.log("new").len(), 1, "its process was left alone");
}

#[tokio::test]
async fn a_text_alone_is_a_prompt() {
    let lab = Lab::new().await;
    let prompt = Payload::of("say Hello").expect("JSON");
    let run = lab.flovyn.client().start("external-acp", prompt, StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.text, "Hello");
}

#[tokio::test]
async fn a_record_ends_at_newlines_only() {
    let lab = Lab::new().await;
    let (outcome, _) = lab.ends("garbage; separators").await;
    assert_eq!(outcome.text, "a\u{2028}b\u{2029}c\u{85}d");
}

#[tokio::test]
async fn a_chat_has_turns() {
    let lab = Lab::new().await;
    let run = lab.start(&chat("")).await;
    for said in ["say One", "say Two"] {
        waits_for(&run, USER_MESSAGE).await;
        say(&run, UserMessage::new(said)).await;
        lab.logged("prompt", if said == "say One" { 1 } else { 2 }).await;
    }
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(told(&run).await, ["user: say One", "assistant: One", "user: say Two", "assistant: Two"]);
    assert_eq!(of_type::<Value>(&run, "answer_end").await.len(), 2);
    assert_eq!(lab.log("new").len(), 1, "one process and one session for all turns");
}

#[tokio::test]
async fn what_it_has_used_is_booked() {
    let lab = Lab::new().await;
    let (outcome, run) = lab.ends("spend 0.5; say Done").await;
    let total = run.describe().await.expect("it is there").usage;
    assert_eq!(total.0["acp fake 1.0"].cost_micros, Some(500_000));
    assert_eq!(outcome.usage, total);
    let (outcome, _) = lab.ends("say Done").await;
    assert!(outcome.usage.is_empty(), "what is not known is not booked");
}

#[tokio::test]
async fn a_turn_that_fails_is_said() {
    let lab = Lab::new().await;
    let error = lab.fails("say Hello; fail the key is wrong").await;
    assert!(error.message().contains("the key is wrong"), "{error}");
    let run = lab.start(&chat("fail the key is wrong")).await;
    waits_for(&run, USER_MESSAGE).await;
    say(&run, UserMessage::new("say Better")).await;
    lab.logged("prompt", 3).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(told(&run).await.last().expect("it says something"), "assistant: Better");
}

#[tokio::test]
async fn what_a_driver_cannot_do_is_refused_by_name() {
    let lab = Lab::new().await;
    let input = AgentInput { system_prompt: Some("Be brief.".into()), tools: Some(vec![]), ..ask("say Hello") };
    let run = lab.start(&input).await;
    let error = run.result(Some(PATIENCE)).await.expect_err("it is refused");
    assert!(error.message().contains("systemPrompt, tools"), "{error}");
    let run = lab.start(&AgentInput { model: ModelChoice::parse("x/y"), ..ask("say Hello") }).await;
    let error = run.result(Some(PATIENCE)).await.expect_err("it is refused");
    assert!(error.message().contains("does not let others choose its model"), "{error}");
    let outside = AgentInput { working_directory: Some("/etc".into()), ..ask("say Hello") };
    let error = lab.start(&outside).await.result(Some(PATIENCE)).await.expect_err("it is refused");
    assert!(error.message().contains("/etc"), "{error}");
}

/// Hands its task to an external agent, and keeps what that tells.
#[derive(Clone)]
pub(super) struct Lead;

#[async_trait]
impl AgentDefinition for Lead {
    type State = ();
    type Input = String;
    type Output = Vec<Value>;

    fn kind(&self) -> &str {
        "lead"
    }

    async fn execute(&self, ctx: &dyn AgentContext, task: String) -> Result<Vec<Value>> {
        let child = ctx.spawn_agent::<Value>("external-acp", &task)?;
        let mut heard = Vec::new();
        loop {
            match ctx.wait_for_child_event(&child, None)?.await? {
                ChildEvent::Signal { name, payload } => heard.push(json!([name, payload.parse::<Value>()?["text"]])),
                ChildEvent::Completed { .. } => return Ok(heard),
                other => return Err(Error::new(Code::AgentFailed, format!("the child has ended with {other:?}"))),
            }
        }
    }
}

#[tokio::test]
async fn family_15_a_child_tells_its_turns() {
    let lab = Lab::new().await;
    let run =
        lab.flovyn.start(&Lead, &"say Hello; say Done".to_owned(), StartOptions::default()).await.expect("it starts");
    let heard: Vec<Value> = run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("JSON");
    assert_eq!(heard, [json!(["turn", "HelloDone"])]);
}
