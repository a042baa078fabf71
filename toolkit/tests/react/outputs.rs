//! Answers that have a form: on each wire, forced by the provider or given by a call, checked, asked for again, and paid
//! once.

use super::*;
use flovyn_toolkit::fake_llm::ScriptedCall;
use flovyn_toolkit::provider::ThinkingLevel;
use flovyn_toolkit::react::{AgentConfig, GenerateInput, OutputSpec, StopReason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Otter {
    /// Its name.
    name: String,
    #[schemars(range(min = 1))]
    age: u32,
    friends: Vec<Friend>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Friend {
    name: String,
}

pub(crate) fn right() -> Value {
    json!({"name": "Lutra", "age": 3, "friends": [{"name": "Enhydra"}]})
}

fn otter() -> Otter {
    Otter { name: "Lutra".into(), age: 3, friends: vec![Friend { name: "Enhydra".into() }], note: None }
}

/// A provider for each wire, which can force answers into a form (`native`) or cannot (`tool`).
pub(crate) fn registry(fake: &FakeLlm) -> Registry {
    let mut models = Registry::new();
    let wires = [
        ("anthropic", Api::AnthropicMessages, fake.url()),
        ("chat", Api::OpenaiChat, fake.openai_url()),
        ("responses", Api::OpenaiResponses, fake.openai_url()),
    ];
    for (name, api, url) in wires {
        let model = |id: &str, structured| ModelInfo { id: id.into(), structured, ..ModelInfo::default() };
        let endpoint = Endpoint::new(name, url).models([model("native", true), model("tool", false)]);
        models.add(api, endpoint).expect("an address");
    }
    models
}

async fn backend(turns: Vec<Turn>) -> (FakeLlm, FlovynClient, Worker) {
    let fake = FakeLlm::start(Script::new(turns)).expect("a server");
    let task = LlmGenerate::new(registry(&fake)).with_policy(RetryPolicy::never());
    let flovyn = FlovynClient::builder().storage("memory:").agent(agent()).task(task).task(Note);
    let flovyn = flovyn.build().await.expect("a backend");
    let worker = flovyn.worker().await.expect("a worker");
    (fake, flovyn, worker)
}

/// An answer of a model that was asked in this way.
pub(crate) fn gives(form: &str, value: &Value) -> Turn {
    match form {
        "native" => Turn::text(value.to_string()),
        _ => Turn::call("final_answer", value.clone()),
    }
}

pub(crate) fn input(wire: &str, form: &str, output: OutputSpec) -> AgentInput {
    let config = AgentConfig { output: Some(output), ..AgentConfig::default() };
    AgentInput { config, ..AgentInput::new(&format!("{wire}/{form}"), "Which otter?") }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_the_form_that_was_asked_for_on_every_wire() {
    for wire in ["anthropic", "chat", "responses"] {
        for form in ["native", "tool"] {
            let turns = vec![
                Turn::call("note", json!({"text": "otters"})),
                gives(form, &json!({"name": "Lutra", "age": 0, "friends": []})),
                gives(form, &right()),
            ];
            let (fake, flovyn, _worker) = backend(turns).await;
            let input = input(wire, form, OutputSpec::of::<Otter>());
            let run = flovyn.start(&agent(), &input, StartOptions::default()).await.expect("it starts");
            let outcome = outcome(&run).await;
            assert_eq!(outcome.output::<Otter>().expect("an otter"), otter(), "{wire} {form}");
            assert_eq!((outcome.stop_reason, outcome.turns, fake.paid()), (StopReason::End, 3, 3), "{wire} {form}");
            assert_eq!(serde_json::from_str::<Value>(&outcome.text).expect("JSON"), right());
            let said = told(&run).await;
            let fault = said.iter().find(|line| line.contains("/age")).unwrap_or_else(|| panic!("{said:?}"));
            let from = if form == "native" { "user: " } else { "tool_result: final_answer" };
            assert!(fault.starts_with(from) && fault.contains("minimum"), "{fault}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_json_is_told_to_the_model() {
    for wire in ["anthropic", "chat", "responses"] {
        let written = Some("{\"name\": ".to_owned());
        let call = ScriptedCall { name: "final_answer".into(), raw_arguments: written, ..ScriptedCall::default() };
        let cut = Turn { tool_calls: vec![call], ..Turn::default() };
        let (fake, flovyn, _worker) = backend(vec![cut, gives("tool", &right())]).await;
        let input = input(wire, "tool", OutputSpec::of::<Otter>());
        let run = flovyn.start(&agent(), &input, StartOptions::default()).await.expect("it starts");
        assert_eq!((outcome(&run).await.output, fake.paid()), (Some(right()), 2), "{wire}");
        assert!(told(&run).await.iter().any(|line| line.contains("are no JSON (EOF")), "{wire}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_for_what_may_be_left_out_is_taken_for_absent() {
    let (_fake, flovyn, _worker) = backend(vec![Turn::text(
        json!({"name": "Lutra", "age": 3, "friends": [{"name": "Enhydra"}], "note": null}).to_string(),
    )])
    .await;
    let mut spec = OutputSpec::of::<Otter>();
    // What other languages say of an optional text: it may be absent, but it is not null.
    spec.schema["properties"]["note"] = json!({"type": "string"});
    let run = flovyn.start(&agent(), &input("chat", "native", spec), StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.output, Some(right()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_never_keeps_the_form_ends_the_run_after_the_last_attempt() {
    let (fake, flovyn, _worker) = backend(vec![Turn { repeat: 9, ..Turn::text("An otter.") }]).await;
    let spec = OutputSpec { retries: 1, ..OutputSpec::of::<Otter>() };
    let run = flovyn.start(&agent(), &input("chat", "tool", spec), StartOptions::default()).await.expect("it starts");
    let failure = run.result(Some(PATIENCE)).await.expect_err("no otter");
    assert!(failure.message().contains("asked 2 times") && failure.message().contains("not JSON"), "{failure}");
    assert_eq!(fake.paid(), 2);
    let failure = run.describe().await.expect("the run").failure.expect("a failure");
    assert_eq!(failure.error_type, "invalid_output");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beside_the_final_answer_are_answered_and_do_not_run() {
    let answer = Turn::call("note", json!({"text": "a"})).and_call("final_answer", right());
    let (_fake, flovyn, _worker) = backend(vec![answer]).await;
    let run = flovyn
        .start(&agent(), &input("anthropic", "tool", OutputSpec::of::<Otter>()), StartOptions::default())
        .await
        .expect("it starts");
    assert_eq!(outcome(&run).await.output::<Otter>().expect("an otter"), otter());
    let results: Vec<_> = told(&run).await.into_iter().filter(|line| line.starts_with("tool_result")).collect();
    assert!(results[0].starts_with("tool_result: note = Not run"), "{results:?}");
    assert!(results[1].starts_with("tool_result: final_answer = Taken"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_none_and_a_name_that_is_taken_are_refused_at_the_start() {
    let (fake, flovyn, _worker) = backend(vec![]).await;
    let wrong = input("chat", "native", OutputSpec::new(json!({"type": "otter"})));
    let run = flovyn.start(&agent(), &wrong, StartOptions::default()).await.expect("it starts");
    let failure = run.result(Some(PATIENCE)).await.expect_err("no schema");
    assert!(failure.message().contains("no JSON Schema"), "{failure}");
    assert_eq!(fake.paid(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_to_think_is_not_forced_to_call() {
    for (thinking, forced) in [(ThinkingLevel::Off, true), (ThinkingLevel::High, false)] {
        let fake = FakeLlm::start(Script::new([Turn::call("final_answer", right())])).expect("a server");
        let models = LlmGenerate::new(registry(&fake));
        let asked = GenerateInput {
            context: None,
            messages: vec![Message::user("Which otter?")],
            thinking,
            output: Some(OutputSpec::of::<Otter>()),
            ..input_of("anthropic/tool")
        };
        let reply = models.ask_alone(&asked).await.expect("an answer");
        assert!(reply.output.is_some());
        assert_eq!(fake.requests()[0].body["tool_choice"]["type"] == "tool", forced, "{thinking:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_refused_beside_a_tool_with_the_name_of_its_answer() {
    let fake = FakeLlm::start(Script::new([Turn::call("final_answer", right())])).expect("a server");
    let asked = GenerateInput {
        context: None,
        messages: vec![Message::user("Which otter?")],
        tools: Some(vec![spec("final_answer")]),
        output: Some(OutputSpec::of::<Otter>()),
        ..input_of("chat/tool")
    };
    let refused = LlmGenerate::new(registry(&fake)).ask_alone(&asked).await.expect_err("two tools of a name");
    assert!(refused.message.contains("final_answer") && refused.message.contains("rename"), "{refused:?}");
    assert_eq!(fake.paid(), 0);
}

fn input_of(model: &str) -> GenerateInput {
    serde_json::from_value(json!({"model": model})).expect("an input")
}
