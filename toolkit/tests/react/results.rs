//! Results that are too long for a model: on every kind of tool, through a crash, and to be read afterwards.

use super::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::testing::Harness;
use flovyn_toolkit::react::{KIND, ReactState, ResultLimits};

/// Returns a text of so many numbered lines, a list of so many numbers, or one line of so many characters.
#[derive(Clone)]
struct Long;

#[async_trait]
impl TaskDefinition for Long {
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "long"
    }

    async fn execute(&self, _ctx: &TaskContext, input: Value) -> Result<Value> {
        let count = input["count"].as_u64().unwrap_or_default();
        Ok(match input["what"].as_str() {
            Some("lines") => (1..=count).map(|line| format!("line {line}\n")).collect::<String>().into(),
            Some("numbers") => (1..=count).collect::<Vec<_>>().into(),
            Some("wide") => "x".repeat(count as usize).into(),
            _ => return Err(Error::new(Code::NonRetryable, "no ".repeat(count as usize))),
        })
    }
}

fn long(what: &str, count: u64) -> Turn {
    Turn::call("long", json!({"what": what, "count": count}))
}

/// The turn with a known id for its call.
fn named(mut turn: Turn) -> Turn {
    turn.tool_calls[0].id = Some("toolu_long".into());
    turn
}

fn long_agent() -> ReactAgent {
    let spec = ToolSpec { parameters: json!({"type": "object"}), ..spec("long") };
    let tool = AgentTool::task(spec, "long", Effect::Read).expect("a schema");
    ReactAgent::new()
        .with_system_prompt("")
        .with_approvals(ApprovalPolicy::allow_all())
        .with_tool(tool)
        .expect("a name")
}

async fn lab(url: &str, turns: impl IntoIterator<Item = Turn>) -> (FakeLlm, FlovynClient, Worker) {
    let fake = FakeLlm::start(Script::new(turns)).expect("a server");
    let flovyn = FlovynClient::builder().storage(url).agent(long_agent()).task(generate(&fake)).task(Long);
    let flovyn = flovyn.build().await.expect("a backend");
    let worker = flovyn.worker().await.expect("a worker");
    (fake, flovyn, worker)
}

/// The text of the newest result in a request.
fn newest(fake: &FakeLlm, request: usize) -> String {
    let messages = fake.requests()[request].body["messages"].clone();
    let last = messages.as_array().expect("messages").last().expect("a message").clone();
    let content = last["content"][0]["content"].clone();
    content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_else(|| panic!("{last}")).to_owned()
}

fn offered(fake: &FakeLlm, request: usize) -> Vec<String> {
    let tools = fake.requests()[request].body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_sees_the_ends_of_a_long_result_and_can_read_the_rest() {
    let read = |arguments: Value| Turn::call("read_result", arguments);
    let first = named(Turn::call("long", json!({"what": "lines", "count": 10_000})));
    let script = [
        first,
        read(json!({"call_id": "toolu_long", "offset": 401, "limit": 2})),
        read(json!({"call_id": "toolu_long", "pattern": "^line 7777$"})),
        read(json!({"call_id": "toolu_other"})),
        read(json!({"call": "toolu_long"})),
        Turn::text("Done."),
    ];
    let (fake, flovyn, _worker) = lab("memory:", script).await;
    let run = flovyn.start(&long_agent(), &ask("Go."), StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.turns, 6);
    let first = newest(&fake, 1);
    assert!(first.starts_with("line 1\nline 2\n") && first.ends_with("line 9999\nline 10000\n"), "{first}");
    let note = "[The result is too long: 96.6 KB in 10000 lines. Lines 401 to 8400 are left out here. Read them with \
                read_result: call_id=\"toolu_long\", offset=401.]";
    assert!(first.contains(note) && first.len() < 50 * 1024, "{} bytes: {first}", first.len());
    assert_eq!(
        (offered(&fake, 0), offered(&fake, 1)),
        (vec!["long".into()], vec!["long".into(), "read_result".into()])
    );
    assert_eq!(
        newest(&fake, 2),
        "   401\tline 401\n   402\tline 402\n\n[The result has 10000 lines. Use offset=403 to continue.]"
    );
    assert_eq!(newest(&fake, 3), "  7777\tline 7777\n\n[The result has 10000 lines.]");
    assert!(newest(&fake, 4).starts_with("No result is kept for the call_id \"toolu_other\"."), "{}", newest(&fake, 4));
    assert!(newest(&fake, 5).starts_with("The arguments of read_result are wrong"), "{}", newest(&fake, 5));
    assert_eq!(told(&run).await.iter().filter(|line| line.contains("line 5000\n")).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_long_result_is_bounded() {
    let script = [long("numbers", 200_000), long("wide", 24 << 20), long("fail", 100_000), Turn::text("Done.")];
    let (fake, flovyn, _worker) = lab("memory:", script).await;
    let run = flovyn.start(&long_agent(), &ask("Go."), StartOptions::default()).await.expect("it starts");
    assert_eq!(outcome(&run).await.turns, 4);
    for request in [1, 2, 3] {
        let result = newest(&fake, request);
        assert!(
            result.len() < 52 * 1024 && result.contains("Read them with read_result"),
            "{request}: {}",
            result.len()
        );
    }
    assert!(newest(&fake, 3).starts_with("NonRetryable: no no"));
    let entries = run.messages().await.expect("the conversation");
    let largest = entries.iter().map(|entry| entry.new.content.size()).max();
    assert!(largest < Some(64 * 1024), "no entry of the conversation is large: {largest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_show_less_of_a_result() {
    let (fake, flovyn, _worker) = lab("memory:", [long("lines", 100), Turn::text("Done.")]).await;
    let mut input = ask("Go.");
    input.config.results = ResultLimits { max_bytes: 1_000, max_lines: 10 };
    let run = flovyn.start(&long_agent(), &input, StartOptions::default()).await.expect("it starts");
    outcome(&run).await;
    let shown = newest(&fake, 1);
    assert!(shown.contains("Lines 3 to 92 are left out here") && shown.len() < 1_000, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_result_can_be_read_in_another_process_and_after_days() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let first = named(Turn::call("long", json!({"what": "lines", "count": 9_000})));
    let (fake, flovyn, worker) = lab(&url, [first, Turn::text("Long.")]).await;
    let run = flovyn.start(&long_agent(), &ask("Go.").chat(), StartOptions::default()).await.expect("it starts");
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(fake.paid(), 2);
    let checkpoints = run.checkpoints(Default::default()).await.expect("checkpoints").items;
    let state: ReactState = checkpoints.last().expect("one a turn").saved.state.parse().expect("a state");
    assert!(state.results_kept);
    drop(worker);
    flovyn.close().await.expect("it closes");
    let (past, gone) = (Turn::text("-"), Turn::text("-"));
    let script = [
        past,
        gone,
        Turn::call("read_result", json!({"call_id": "toolu_long", "offset": 5_000, "limit": 1})),
        Turn::text("5000."),
    ];
    let (fake, flovyn, _worker) = lab(&url, script).await;
    let run = flovyn.handle(&run.id().to_string()).await.expect("the run is there");
    say(&run, UserMessage::new("What is in line 5000?")).await;
    fake.wait_until(PATIENCE, |requests| requests.len() >= 2).await.expect("two requests");
    assert_eq!(offered(&fake, 0), ["long", "read_result"]);
    assert!(newest(&fake, 1).starts_with("  5000\tline 5000\n"), "{}", newest(&fake, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_result_survives_a_crash_at_every_commit() {
    let first = named(Turn::call("long", json!({"what": "lines", "count": 9_000})));
    let read = Turn::call("read_result", json!({"call_id": "toolu_long", "offset": 700, "limit": 1}));
    let fake = FakeLlm::start(Script::new([first, read, Turn::text("Done.")])).expect("a server");
    let generate = LlmGenerate::new(super::timeless::timeless(models(&fake).resolve("fake/m").expect("a model")))
        .with_policy(RetryPolicy::never());
    let host = move || {
        let host = NativeHost::default().agent(long_agent()).and_then(|host| host.task(generate.clone()));
        host.and_then(|host| host.task(Long)).expect("every kind once")
    };
    let input = Payload::of(&ask("Go.")).expect("JSON");
    let proof = Harness::new(KIND, input, host).concurrent().by_attempt().check().await;
    let proof = proof.unwrap_or_else(|error| panic!("{error}"));
    assert!(proof.crashes as u64 >= proof.commits && proof.commits > 3, "{proof:#?}");
}
