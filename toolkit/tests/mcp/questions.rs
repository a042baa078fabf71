//! Servers that ask a person in the middle of a call: durable from the question to the end.

use crate::{Over, Probe, server};
use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::task::LocalTaskExecutor;
use flovyn_toolkit::mcp::{InputAnswer, InputQuestion, InputRequired, InputResponse, McpInputTask};
use flovyn_toolkit::tools::{CallRecords, Limits, ToolCallInput, ToolHost, ToolOutcome, ToolTask};
use serde_json::{Value, json};

/// Calls a tool that asks, and answers with what the run was given.
struct Answerer;

#[async_trait]
impl AgentDefinition for Answerer {
    type State = ();
    type Input = (String, Value, InputResponse);
    type Output = ToolOutcome;

    fn kind(&self) -> &str {
        "answerer"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (tool, arguments, response): Self::Input) -> Result<ToolOutcome> {
        let kind = ToolTask::kind_of(&tool);
        let outcome = ctx.schedule::<ToolOutcome>(&kind, &ToolCallInput::new(arguments))?.await?;
        let Some(required) = InputRequired::of(&outcome) else { return Ok(outcome) };
        let responses = required.questions.keys().map(|key| (key.clone(), response.clone())).collect();
        let answer = InputAnswer { hash: required.hash.clone(), responses };
        let given = required.answered(answer)?.ok_or_else(|| Error::new(Code::InvalidArgument, "another's answer"))?;
        ctx.schedule::<ToolOutcome>(McpInputTask::KIND, &given)?.await
    }
}

pub(crate) async fn run(probe: &Probe, arguments: Value, response: InputResponse) -> Result<ToolOutcome> {
    run_of(probe, "asks", arguments, response).await
}

pub(crate) async fn run_of(
    probe: &Probe,
    tool: &str,
    arguments: Value,
    response: InputResponse,
) -> Result<ToolOutcome> {
    let host = ToolHost::new(probe.environment.clone(), CallRecords::open(probe.folder.path().join("records"))?);
    let tool = format!("mcp__probe__{tool}");
    let asks = ToolTask::new(&probe.toolbox, &tool, &host).expect("the tool");
    let goes_on = McpInputTask::new(probe.servers.clone(), Limits::default());
    let executor = LocalTaskExecutor::new().register(asks)?.register(goes_on)?;
    let agents = AgentBuilder::new().storage("memory:").task_executor(executor).build().await?;
    let outcome = agents.execute_with(Answerer, &(tool, arguments, response), StartOptions::with_id("run")).await;
    agents.close().await?;
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_an_outcome_and_its_answer_goes_on_with_the_call() {
    for (over, era) in [
        (Over::Pipes, "stateless"),
        (Over::Http, "stateless"),
        (Over::Pipes, "handshake"),
        (Over::Http, "handshake"),
        (Over::Pipes, "ancient"),
    ] {
        let probe = Probe::new(over, era).await;
        let version = if era == "stateless" { "2026-07-28" } else { "2025-06-18" };
        assert_eq!(probe.servers.protocol_versions()["probe"], version);
        let outcome = probe.call("asks", json!({})).await;
        let required = InputRequired::of(&outcome).unwrap_or_else(|| panic!("{over:?}: {outcome:?}"));
        assert!(outcome.plain_text().contains("- Which branch?"), "{outcome:?}");
        let question = required.questions.values().next().expect("a question");
        assert!(
            matches!(question, InputQuestion::Form { schema, .. } if schema["required"] == json!(["branch"])),
            "{question:?}"
        );
        let accept = InputResponse::Accept { content: Some(json!({ "branch": "main" })) };
        let outcome = run(&probe, json!({}), accept).await.expect("a run");
        let expected = "{\"action\":\"accept\",\"content\":{\"branch\":\"main\"}} state: \"1\"";
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), (expected, false), "{over:?} {era}");
        let outcome = run(&probe, json!({}), InputResponse::Decline).await.expect("a run");
        assert_eq!(outcome.plain_text(), "{\"action\":\"decline\"} state: \"1\"", "{over:?} {era}");
        let outcome = run(&probe, json!({}), InputResponse::Cancel).await.expect("a run");
        assert_eq!(outcome.plain_text(), "{\"action\":\"cancel\"} state: \"1\"", "{over:?} {era}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_call_whose_server_dies_is_not_sent_again() {
    for era in ["stateless", "handshake"] {
        let probe = Probe::new(Over::Pipes, era).await;
        let outcome = run(&probe, json!({ "die": true }), InputResponse::Decline).await.expect("a run");
        assert_eq!(outcome.error_code(), Some("interrupted"), "{era}: {outcome:?}");
        assert_eq!(server::noted(probe.folder.path(), "asks"), 1, "{era}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_wants_the_call_again_gets_it() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    assert_eq!(probe.call("asks_later", json!({})).await.plain_text(), "later");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_run_works_is_told_without_a_person() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    let refused = probe.call("asks_where", json!({})).await;
    assert!(refused.plain_text().contains("asks for roots/list"), "nothing is known yet: {refused:?}");
    probe.servers.close().await;
    probe.servers.set_roots(&["/work/lake".into()]).await;
    let root = json!({ "roots": [{ "uri": "file:///work/lake", "name": "lake" }] });
    let told = probe.call("asks_where", json!({})).await;
    assert_eq!(told.plain_text(), json!({ "where": root }).to_string());
    probe.servers.set_roots(&["/work/pond".into()]).await;
    let accept = InputResponse::Accept { content: Some(json!({ "branch": "main" })) };
    let outcome = run_of(&probe, "asks_where", json!({ "branch": true }), accept).await.expect("a run");
    let pond = json!({ "roots": [{ "uri": "file:///work/pond", "name": "pond" }] });
    let expected = json!({ "branch": { "action": "accept", "content": { "branch": "main" } }, "where": pond });
    assert_eq!(serde_json::from_str::<Value>(&outcome.plain_text()).expect("JSON"), expected);
}
