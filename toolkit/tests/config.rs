//! The toolkit as a host language serves it: described in JSON, beside tasks of the language's own.

use flovyn_core::Payload;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::error::Code;
use flovyn_core::host::{Activation, Activations, CompositeHost, Wake};
use flovyn_core::model::{AttemptResult, SideEffects};
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::{Host, Worker, WorkerOptions};
use flovyn_toolkit::config::{Toolkit, ToolkitConfig};
use flovyn_toolkit::fake_llm::{FakeLlm, Recorded, Script, Turn};
use flovyn_toolkit::react::RunOutcome;
use flovyn_toolkit::tools::Effect;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(30);

/// The loop of a host language, whose tasks answer with their kind and what they were given.
struct Bell(Arc<Notify>);

impl Wake for Bell {
    fn ready(&self) {
        self.0.notify_one();
    }
}

fn language(kinds: &[&str]) -> Arc<Activations> {
    let rung = Arc::new(Notify::new());
    let host = Activations::new(Arc::new(Bell(rung.clone())));
    kinds.iter().for_each(|kind| assert!(host.serve_task(kind)));
    let polled = host.clone();
    tokio::spawn(async move {
        loop {
            rung.notified().await;
            for activation in polled.poll() {
                if let Activation::Task(id, claimed) = activation {
                    let task = &claimed.task.new;
                    let input: Value = task.input.parse().expect("JSON");
                    let output = Payload::of(&format!("{} got {input}", task.kind)).expect("a text");
                    polled.task_ended(id, AttemptResult::Completed(output));
                }
            }
        }
    });
    host
}

struct Lab {
    fake: FakeLlm,
    runtime: Runtime,
    _worker: Worker,
}

impl Lab {
    async fn new(turns: impl IntoIterator<Item = Turn>, describe: impl FnOnce(&FakeLlm) -> Value) -> Self {
        let fake = FakeLlm::start(Script::new(turns)).expect("a server");
        let description = ToolkitConfig::parse(&describe(&fake).to_string()).expect("a description");
        let toolkit = Toolkit::open(description, "memory:").await.expect("a kit");
        let hosts: [Arc<dyn Host>; 2] = [language(&["search", "add", "ping"]), toolkit.host()];
        let host = Arc::new(CompositeHost::new(hosts).expect("kinds of their own"));
        let runtime = Runtime::open("memory:").await.expect("a store");
        let worker = runtime.worker(host, WorkerOptions::default()).await.expect("a worker");
        Self { fake, runtime, _worker: worker }
    }

    async fn start(&self, input: Value) -> Handle {
        let input = Payload::of(&input).expect("JSON");
        self.runtime.client().start("assistant", input, StartOptions::default()).await.expect("it starts")
    }

    async fn ends(&self, input: Value) -> RunOutcome {
        let result = self.start(input).await.result(Some(PATIENCE)).await.expect("it completes");
        result.parse().expect("an outcome")
    }

    fn asked(&self) -> Vec<Recorded> {
        self.fake.requests()
    }
}

fn providers(fake: &FakeLlm) -> Value {
    json!({ "fake": { "api": "anthropic-messages", "baseUrl": fake.url() } })
}

fn task(kind: &str, parameters: &Value, more: &Value) -> Value {
    let mut tool = json!({
        "kind": kind, "name": kind, "description": format!("Does {kind}."), "effect": "read",
        "parameters": { "type": "object", "properties": parameters },
    });
    let more = more.as_object().cloned().unwrap_or_default();
    tool.as_object_mut().expect("an object").extend(more);
    tool
}

/// What the model was told of its calls.
fn results(requests: &[Recorded]) -> Vec<String> {
    let mut told = Vec::new();
    for message in requests.last().expect("a request").body["messages"].as_array().expect("messages") {
        for part in message["content"].as_array().into_iter().flatten().filter(|part| part["type"] == "tool_result") {
            match &part["content"] {
                Value::String(text) => told.push(text.clone()),
                parts => told.extend(
                    parts
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|part| part["text"].as_str().expect("a text").to_owned()),
                ),
            }
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_runs_with_tasks_of_the_language_and_host_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("otters.md"), "They hold hands.\n").expect("it is written");
    let turns = [
        Turn::call("search", json!({"query": "otters"})).and_call("search", json!({})),
        Turn::call("add", json!({"a": 1, "b": 2})).and_call("ping", json!({})),
        Turn::call("read", json!({"path": "otters.md"})).and_call("search", json!({"query": 7})),
        Turn::text("Enough."),
    ];
    let lab = Lab::new(turns, |fake| {
        let query = json!({ "query": { "type": "string", "default": "anything" } });
        json!({
            "agents": [{
                "kind": "assistant", "model": "fake/m", "systemPrompt": "Be brief.", "approvals": "allow",
                "tools": [
                    "read", task("search", &query, &json!({ "argument": "query", "options": { "retries": 2, "timeoutMs": 5000 } })),
                    task("add", &json!({}), &json!({})), task("ping", &json!({}), &json!({ "effect": "write" })),
                ],
                "config": { "thinking": "off", "parallelTools": 1 },
                "workingDirectory": folder.path(),
            }],
            "providers": providers(fake),
        })
    })
    .await;
    let outcome = lab.ends(json!("What do otters do?")).await;
    assert_eq!((outcome.text.as_str(), outcome.turns), ("Enough.", 4));
    let asked = lab.asked();
    let told = results(&asked);
    let expected = ["search got \"otters\"", "search got \"anything\"", "add got {\"a\":1,\"b\":2}", "ping got {}"];
    assert_eq!(told[..4], expected);
    assert!(told[4].contains("They hold hands."), "{told:?}");
    assert!(told[5].contains("The arguments of search are wrong"), "{told:?}");
    assert_eq!(asked[0].body["system"][0]["text"], "Be brief.");
    assert_eq!(lab.fake.paid(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_says_counts_before_what_the_agent_has() {
    let turns = [Turn::call("ping", json!({})), Turn::call("ping", json!({})), Turn::text("Done.")];
    let lab = Lab::new(turns, |fake| {
        json!({
            "agents": [{
                "kind": "assistant", "model": "fake/usual", "tools": [task("ping", &json!({}), &json!({}))],
                "config": { "maxTurns": 1, "maxTokens": 77 },
            }],
            "providers": providers(fake),
        })
    })
    .await;
    let outcome = lab.ends(json!("Go on.")).await;
    assert_eq!(outcome.turns, 1, "the agent's own limit");
    let input = json!({ "userPrompt": "Go on.", "model": { "provider": "fake", "modelId": "better" }, "config": { "maxTurns": 9 } });
    let outcome = lab.ends(input).await;
    assert_eq!((outcome.turns, outcome.text.as_str()), (3, "Done."));
    let asked = lab.asked();
    let of = |model: &str| asked.iter().filter(|request| request.model == model).count();
    assert_eq!((of("usual"), of("better")), (1, 3));
    assert!(asked.iter().all(|request| request.body["max_tokens"] == 77), "what the run does not say is the agent's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_any_model_says_what_to_do() {
    let lab = Lab::new([], |fake| json!({ "agents": [{ "kind": "assistant" }], "providers": providers(fake) })).await;
    let error = lab.start(json!("Hello?")).await.result(Some(PATIENCE)).await.expect_err("there is no model");
    assert!(error.message().contains("no model was named") && error.message().contains("userPrompt"), "{error}");
}

#[tokio::test]
async fn tasks_of_a_kit_say_how_they_are_scheduled() {
    let description = ToolkitConfig::parse(r#"{ "tools": ["read", "bash"] }"#).expect("a description");
    let toolkit = Toolkit::open(description, "memory:").await.expect("a kit");
    assert_eq!(toolkit.task_kinds(), ["llm.generate", "tool.bash", "tool.read"]);
    let of = |kind: &str| toolkit.options(kind).expect("it is served");
    assert!(of("llm.generate").interruptible && of("llm.generate").retry.retries > 0);
    assert_eq!(of("tool.bash").side_effects, SideEffects::Reconcile);
    assert_eq!(of("tool.read").side_effects, SideEffects::Idempotent);
    assert!(toolkit.options("tool.write").is_none(), "nobody asked for it");
    let served = toolkit.tools();
    let tools: Vec<_> = served.iter().map(|tool| (tool.name.as_str(), tool.effect)).collect();
    assert_eq!(tools, [("bash", Effect::Exec), ("read", Effect::Read)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_have_more_directories_variables_and_a_tmp_of_each_run() {
    // Not below `/tmp`, where it would be seen in the one of each run.
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let added = folder.path().join("added");
    std::fs::create_dir_all(&added).expect("a folder");
    std::fs::create_dir(folder.path().join("work")).expect("a folder");
    let file = added.join("eels.md");
    let outside = folder.path().join("other.md");
    let run = |command: &str| Turn::call("bash", json!({ "command": command }));
    let turns = [
        Turn::call("write", json!({ "path": file, "content": "They swim.\n" })),
        Turn::call("read", json!({ "path": file })),
        Turn::call("write", json!({ "path": outside, "content": "x" })),
        run("ls -A $TMPDIR; echo $CARGO_PKG_NAME $FLOVYN_NOT_NAMED > $TMPDIR/note; cat $TMPDIR/note"),
        run("cat $TMPDIR/note"),
        Turn::text("Done."),
    ];
    let lab = Lab::new(turns, |fake| {
        json!({
            "agents": [{ "kind": "assistant", "model": "fake/m", "approvals": "allow", "tools": ["read", "write", "bash"] }],
            "workingDirectory": folder.path().join("work"), "addDirs": [added], "variables": ["CARGO_PKG_*"],
            "records": folder.path().join("records"), "providers": providers(fake),
        })
    })
    .await;
    for _ in 0..2 {
        assert_eq!(lab.ends(json!("Go.")).await.text, "Done.");
        let told = results(&lab.asked());
        let confined = !told[3].contains("have to run confined");
        assert!(
            !confined || told[3..] == ["flovyn-toolkit\n", "flovyn-toolkit\n"],
            "each run has its own /tmp: {told:?}"
        );
    }
    let told = results(&lab.asked());
    assert_eq!(std::fs::read_to_string(&file).expect("it is written"), "They swim.\n");
    assert!(told[1].contains("They swim.") && told[2].contains("outside"), "{told:?}");
    assert!(!outside.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_a_declared_effect_needs_a_person() {
    let turns = [Turn::call("ping", json!({})), Turn::text("Done.")];
    let lab = Lab::new(turns, |fake| {
        let mut ping = task("ping", &json!({}), &json!({ "options": { "sideEffects": "idempotent", "retries": 3 } }));
        ping.as_object_mut().expect("an object").remove("effect");
        json!({
            "agents": [{ "kind": "assistant", "model": "fake/m", "tools": [ping] }],
            "providers": providers(fake),
        })
    })
    .await;
    let run = lab.start(json!("Go on.")).await;
    let asked = loop {
        let entries = run.messages().await.expect("entries");
        let found = entries.into_iter().find(|entry| entry.new.entry_type == "approval_request");
        match found {
            Some(entry) => break entry.new.content.parse::<Value>().expect("JSON"),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!((&asked["name"], &asked["effect"]), (&json!("ping"), &json!("write")));
}

#[test]
fn what_cannot_be_read_is_said() {
    let wrong = |text: &str| ToolkitConfig::parse(text).expect_err(text).message().to_owned();
    for (text, said) in [
        (r#"{"agent": []}"#, "unknown field `agent`, expected one of `agents`"),
        (r#"{"agents": [{"kind": "a", "prompt": ""}]}"#, "unknown field `prompt`"),
        (r#"{"agents": [{"config": {"maxTurn": 3}}]}"#, "unknown field `maxTurn` of a config, which has"),
        (r#"{"agents": [{"config": {"mode": "talk"}}]}"#, "unknown variant `talk`"),
        (r#"{"agents": [{"approvals": "maybe"}]}"#, "approvals are \"maybe\"; write \"allow\""),
        (r#"{"agents": [{"tools": [{"kind": "x"}]}]}"#, "a tool is neither a name nor a task: missing field `name`"),
        (r#"{"providers": {"mine": {"url": ""}}}"#, "unknown field `url`"),
        ("[", "EOF"),
    ] {
        let told = wrong(text);
        assert!(told.contains(said) && told.contains("the description of the toolkit"), "{text}: {told}");
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_said() {
    for (given, said) in [
        (json!({"tools": ["reed"]}), "there is no tool \"reed\"; there are bash, bash-output, bash-stop, edit,"),
        (json!({"tools": ["mcp__fs__*"]}), "mcp__SERVER__TOOL"),
        (json!({"providers": {"mine": {}}}), "the provider \"mine\": it is none of those that are known (anthropic,"),
        (
            json!({"providers": {"openai": {"keyVariable": "FLOVYN_TEST_NO_SUCH_KEY"}}}),
            "FLOVYN_TEST_NO_SUCH_KEY is not set",
        ),
        (json!({"providers": {"mine": {"api": "openai-chat"}}}), "no \"baseUrl\""),
        (json!({"tools": ["read"], "workingDirectory": "/no/such/folder"}), "/no/such/folder"),
        (json!({"agents": [{"kind": "a"}, {"kind": "a"}]}), "two agents of kind \"a\""),
        (
            json!({"agents": [{"tools": [task("pay", &json!({}), &json!({"options": {"sideEffects": "at_most_once", "retries": 1}}))]}]}),
            "task \"pay\" is at_most_once and has retries=1",
        ),
    ] {
        let description = ToolkitConfig::parse(&given.to_string()).expect("a description");
        let error = Toolkit::open(description, "memory:").await.err().unwrap_or_else(|| panic!("{given} is served"));
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(said), "{given}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_used_does_not_keep_a_worker_from_the_rest() {
    let gone = json!({"fs": {"command": "/no/such/program"}});
    let given = json!({"tools": ["read", "mcp__fs__*", "mcp__fs__find_it"], "mcpServers": gone,
        "agents": [{"kind": "a", "tools": ["grep", "mcp__fs__search"]}]});
    let toolkit = Toolkit::open(ToolkitConfig::parse(&given.to_string()).expect("a description"), "memory:").await;
    let toolkit = toolkit.expect("everything else is served");
    let served = toolkit.tools();
    let names: Vec<_> = served.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["grep", "mcp__fs__find_it", "mcp__fs__search", "mcp__fs__try_again", "read"]);
    assert!(
        matches!(&*toolkit.problems(), [only] if only.message.contains("\"/no/such/program\" could not be started")),
        "{:?}",
        toolkit.problems()
    );
}

#[test]
fn several_are_joined_unless_they_contradict() {
    let read = |given: Value| ToolkitConfig::parse(&given.to_string()).expect("a description");
    let one = json!({
        "agents": [{"kind": "a"}], "tools": ["read"], "roots": ["/x"], "network": true,
        "providers": {"p": {"key": "secret-1"}}, "mcpServers": {"s": {"command": "x"}},
    });
    let joined = read(one.clone())
        .joined(read(json!({"agents": [{"kind": "b"}], "tools": ["bash"], "mcpServers": {"s": {"command": "x"}}})))
        .expect("they agree");
    assert_eq!(joined.agents.iter().map(|agent| agent.kind.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((joined.tools.len(), joined.network, joined.mcp_servers.len()), (2, Some(true), 1));
    for (other, said) in [
        (json!({"network": false}), "words on the network"),
        (json!({"providers": {"p": {"key": "secret-2"}}}), "providers named \"p\""),
        (json!({"mcpServers": {"s": {"command": "y"}}}), "MCP servers named \"s\""),
    ] {
        let error = read(one.clone()).joined(read(other)).expect_err(said);
        assert!(error.message().contains(said) && !error.message().contains("secret"), "{error}");
    }
    assert!(!format!("{:?}", read(one)).contains("secret"), "keys are not shown");
}
