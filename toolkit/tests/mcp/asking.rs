//! The built-in agent with servers that ask a person in the middle of a call: asked once, answered once, whatever dies.

use crate::timeless::timeless;
use crate::{Over, Probe, environment};
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::model::{Delivery, Status};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::testing::Harness;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::mcp::{InputAnswer, InputQuestion, InputResponse, McpInputTask, McpServers};
use flovyn_toolkit::message::Message;
use flovyn_toolkit::provider::{Api, Endpoint, Registry, RetryPolicy};
use flovyn_toolkit::react::{
    AgentInput, INPUT, InputRefused, InputReply, InputRequest, KIND, LlmGenerate, ReactAgent, RunOutcome, StopReason,
    USER_MESSAGE, UserMessage,
};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use flovyn_toolkit::tools::{CallRecords, Limits, ToolHost, ToolTask, Toolbox};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// All that serves an agent whose tools are a server's.
fn host(probe: &Probe, fake: &FakeLlm) -> NativeHost {
    let records = CallRecords::open(probe.folder.path().join("records")).expect("a folder of records");
    let tools = ToolHost::new(probe.environment.clone(), records);
    let host = NativeHost::default().agent(agent(&probe.toolbox)).and_then(|host| host.task(generate(&fake.url())));
    let tasks = ToolTask::all(&probe.toolbox, &tools);
    let host = tasks.into_iter().try_fold(host.expect("every kind once"), NativeHost::task).expect("every kind once");
    host.task(McpInputTask::new(probe.servers.clone(), Limits::default())).expect("every kind once")
}

fn agent(toolbox: &Toolbox) -> ReactAgent {
    let agent = ReactAgent::new().with_system_prompt("Be brief.").with_approvals(ApprovalPolicy::allow_all());
    agent.with_toolbox(toolbox).expect("every name once")
}

fn generate(models_at: &str) -> LlmGenerate {
    let mut models = Registry::new();
    models.add(Api::AnthropicMessages, Endpoint::new("fake", models_at)).expect("an address");
    LlmGenerate::new(timeless(models.resolve("fake/m").expect("a model"))).with_policy(RetryPolicy::never())
}

/// A backend with a worker of its own.
pub(crate) async fn open(url: &str, probe: &Probe, fake: &FakeLlm) -> FlovynClient {
    open_in(url, probe.folder.path(), &probe.toolbox, &probe.servers, &fake.url()).await
}

/// The same for servers that are no probe's.
pub(crate) async fn open_in(
    url: &str,
    folder: &Path,
    toolbox: &Toolbox,
    servers: &McpServers,
    models_at: &str,
) -> FlovynClient {
    let records = CallRecords::open(folder.join("records")).expect("a folder of records");
    let tools = ToolHost::new(environment(folder), records);
    let flovyn = FlovynClient::builder().storage(url).agent(agent(toolbox)).task(generate(models_at));
    let flovyn = ToolTask::all(toolbox, &tools).into_iter().fold(flovyn, |flovyn, task| flovyn.task(task));
    flovyn.task(McpInputTask::new(servers.clone(), Limits::default())).build().await.expect("a backend")
}

pub(crate) async fn start(flovyn: &FlovynClient, probe: &Probe) -> Handle {
    let input = AgentInput::new("fake/m", "Ask.");
    flovyn.start(&agent(&probe.toolbox), &input, StartOptions::default()).await.expect("it starts")
}

/// A model that calls tools without arguments, and then has the last word.
pub(crate) fn calls(names: &[&str], last: &str) -> FakeLlm {
    calls_with(names, &json!({}), last)
}

pub(crate) fn calls_with(names: &[&str], arguments: &Value, last: &str) -> FakeLlm {
    let call = |name: &&str| format!("mcp__probe__{name}");
    let first = Turn::call(call(&names[0]), arguments.clone());
    let turn = names[1..].iter().fold(first, |turn, name| turn.and_call(call(name), arguments.clone()));
    FakeLlm::start(Script::new([turn, Turn::text(last)])).expect("a server")
}

pub(crate) async fn waits(run: &Handle) {
    let waiting = async {
        loop {
            let now = run.describe().await.expect("the run is there");
            let waits = now.wait.is_some_and(|wait| wait.signals.iter().any(|name| name == INPUT));
            if now.status == Status::Waiting && waits {
                return;
            }
            assert!(!now.status.is_terminal(), "the run ended: {:?}", now.failure);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it waits for an answer");
}

pub(crate) async fn of_type<T: DeserializeOwned>(run: &Handle, entry_type: &str) -> Vec<T> {
    let entries = run.messages().await.expect("the conversation");
    let of_type = entries.iter().filter(|entry| entry.new.entry_type == entry_type);
    of_type.map(|entry| entry.new.content.parse().expect("the content of its type")).collect()
}

/// Waits until so many requests were made and the run waits.
pub(crate) async fn asked(run: &Handle, count: usize) -> Vec<InputRequest> {
    waits(run).await;
    let asked: Vec<InputRequest> = of_type(run, "input_request").await;
    assert_eq!(asked.len(), count, "{asked:?}");
    asked
}

pub(crate) fn accept(branch: impl Into<Value>) -> InputResponse {
    InputResponse::Accept { content: Some(json!({ "branch": branch.into() })) }
}

pub(crate) fn reply(request: &InputRequest, response: InputResponse) -> InputReply {
    let responses = request.questions.keys().map(|key| (key.clone(), response.clone())).collect();
    let answer = InputAnswer { hash: request.hash.clone(), responses };
    InputReply { id: request.id.clone(), answer }
}

pub(crate) async fn answer(run: &Handle, reply: &InputReply, key: Option<&str>) {
    let payload = Payload::of(reply).expect("JSON");
    run.signal(INPUT, payload, Delivery::NextStep, key.map(str::to_owned)).await.expect("the run takes it");
}

pub(crate) async fn outcome(run: &Handle) -> RunOutcome {
    run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome")
}

/// What the model was told of its calls, by their ids.
pub(crate) async fn results(run: &Handle) -> BTreeMap<String, String> {
    let messages: Vec<Message> = of_type(run, "message").await;
    let results = messages.iter().flat_map(Message::tool_results);
    let text = |parts: &[flovyn_toolkit::message::Part]| parts.iter().filter_map(|part| part.as_text()).collect();
    results.map(|result| (result.id.clone(), text(&result.content))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_answered_for_itself_and_only_as_its_form_has_it() {
    for over in [Over::Pipes, Over::Http] {
        let probe = Probe::new(over, "stateless").await;
        let fake = calls(&["asks", "asks"], "Merged.");
        let flovyn = open("memory:", &probe, &fake).await;
        let _worker = flovyn.worker().await.expect("a worker");
        let run = start(&flovyn, &probe).await;
        let asked = asked(&run, 2).await;
        assert_eq!((asked[0].server.as_str(), &asked[0].hash), ("probe", &asked[1].hash), "they ask the same");
        assert!(
            matches!(&asked[0].questions["branch"], InputQuestion::Form { message, .. } if message == "Which branch?")
        );
        // Other questions' answers decide nothing, and one that does not fit leaves the question open.
        let stray = InputReply { id: "nobody".into(), ..reply(&asked[0], accept("stray")) };
        answer(&run, &stray, None).await;
        answer(&run, &reply(&asked[0], accept(3)), None).await;
        answer(&run, &reply(&asked[1], accept("two")), None).await;
        answer(&run, &reply(&asked[0], accept("one")), None).await;
        // A second answer comes too late.
        answer(&run, &reply(&asked[0], InputResponse::Decline), None).await;
        assert_eq!(outcome(&run).await.text, "Merged.");
        let told = results(&run).await;
        let said =
            |branch: &str| format!("{{\"action\":\"accept\",\"content\":{{\"branch\":\"{branch}\"}}}} state: \"1\"");
        assert_eq!((&told[&asked[0].id], &told[&asked[1].id]), (&said("one"), &said("two")), "{over:?}");
        assert_eq!(of_type::<InputReply>(&run, "input").await.len(), 2);
        let refused: Vec<InputRefused> = of_type(&run, "input_refused").await;
        assert!(refused.len() == 1 && refused[0].message.contains("does not fit the form"), "{refused:?}");
        assert_eq!((probe.noted("asks"), fake.paid()), (2, 2), "each call went on once");
        flovyn.close().await.expect("it closes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_instead_of_answering_is_heard_and_who_stops_is_left_in_peace() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    for (message, reason, asked_models) in
        [(UserMessage::new("Never mind."), StopReason::End, 2), (UserMessage::interrupt(), StopReason::Interrupted, 1)]
    {
        let fake = calls(&["asks"], "So be it.");
        let flovyn = open("memory:", &probe, &fake).await;
        let _worker = flovyn.worker().await.expect("a worker");
        let run = start(&flovyn, &probe).await;
        let request = asked(&run, 1).await.remove(0);
        let signal = message.signal(None).expect("a signal");
        run.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await.expect("the run takes it");
        assert_eq!((outcome(&run).await.stop_reason, fake.paid()), (reason, asked_models));
        assert!(results(&run).await[&request.id].starts_with("Not gone on with"), "the call has its result");
        flovyn.close().await.expect("it closes");
    }
    assert_eq!(probe.noted("asks"), 0, "nothing was sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_come_days_later_to_another_process() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    let url = format!("sqlite:{}", probe.folder.path().join("agents.db").display());
    let fake = calls(&["asks"], "Merged.");
    let first = open(&url, &probe, &fake).await;
    let worker = first.worker().await.expect("a worker");
    let run = start(&first, &probe).await;
    let request = asked(&run, 1).await.remove(0);
    drop(worker);
    first.close().await.expect("it closes");
    let second = open(&url, &probe, &fake).await;
    let _worker = second.worker().await.expect("a worker");
    let run = second.handle(&run.id().to_string()).await.expect("the run is there");
    answer(&run, &reply(&request, InputResponse::Decline), None).await;
    assert_eq!(outcome(&run).await.text, "Merged.");
    assert_eq!(results(&run).await[&request.id], "{\"action\":\"decline\"} state: \"1\"");
    assert_eq!((probe.noted("asks"), fake.paid()), (1, 2), "no model call was made again");
    second.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_survives_a_crash_at_every_commit() {
    let probe = std::sync::Arc::new(Probe::new(Over::Pipes, "stateless").await);
    let fake = std::sync::Arc::new(calls(&["asks_safely"], "Merged."));
    let (served, spoken) = (probe.clone(), fake.clone());
    let input = Payload::of(&AgentInput::new("fake/m", "Ask.")).expect("JSON");
    let harness = Harness::new(KIND, input, move || host(&served, &spoken)).concurrent().by_attempt();
    let harness = harness.outside(|run| async move {
        waits(&run).await;
        let asked: Vec<InputRequest> = of_type(&run, "input_request").await;
        answer(&run, &reply(&asked[0], accept("main")), Some("once")).await;
    });
    let proof = harness.check().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(proof.commits > 4 && proof.crashes as u64 >= proof.commits, "{proof:#?}");
    let (paid, most) = (fake.paid(), proof.runs * 2 + proof.crashes);
    assert!((proof.runs * 2..=most).contains(&paid), "{paid} model calls in {} runs", proof.runs);
}
