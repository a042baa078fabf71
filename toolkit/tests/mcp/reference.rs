//! The public reference servers, as `make setup` installs them: over pipes, and over streamable HTTP on the loopback.

use crate::questions::run_of;
use crate::{Probe, environment, wait_for};
use flovyn_core::sync::Mutex;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::mcp::{InputQuestion, InputRequired, InputResponse, McpConfig, McpServers};
use flovyn_toolkit::message::{Content, Message};
use flovyn_toolkit::provider::{Api, Endpoint, Registry};
use flovyn_toolkit::tools::{Effect, ToolOutcome, Toolbox};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The program of a reference server.
fn program(server: &str) -> String {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/reference/node_modules");
    let program = installed.join(format!("@modelcontextprotocol/server-{server}/dist/index.js"));
    assert!(program.exists(), "{} is missing; `make setup` installs it", program.display());
    program.display().to_string()
}

/// `everything` over HTTP in a process of its own.
struct Everything {
    child: Child,
    url: String,
}

impl Everything {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
        let child = Command::new("node")
            .args([program("everything"), "streamableHttp".to_owned()])
            .env("PORT", free.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("node starts");
        // It listens on all addresses, the loopback's included.
        wait_for("the server", || TcpStream::connect(("127.0.0.1", free.port())).is_ok());
        Self { child, url: format!("http://127.0.0.1:{}/mcp", free.port()) }
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn open(servers: Value, roots: &[PathBuf], models: &Arc<Registry>) -> (McpServers, Toolbox) {
    let config = json!({ "mcpServers": servers }).to_string();
    let servers = McpServers::new(McpConfig::parse(&config, |_| None).expect("a configuration"));
    servers.set_roots(roots).await;
    servers.set_models(models);
    let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
    assert!(problems.is_empty(), "{problems:?}");
    (servers, toolbox)
}

async fn call(toolbox: &Toolbox, folder: &Path, tool: &str, arguments: Value) -> ToolOutcome {
    let outcome = toolbox.call(tool, arguments, &environment(folder)).await.expect("the machine works");
    assert!(!outcome.is_error, "{tool}: {outcome:?}");
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_used_over_both_transports() {
    let folder = tempfile::tempdir().unwrap();
    let http = Everything::start();
    let fake = FakeLlm::start(Script::new((0..2).map(|_| Turn::text("An otter says hello.")))).expect("a server");
    let mut models = Registry::new();
    models.add(Api::AnthropicMessages, Endpoint::new("fake", fake.url())).expect("an address");
    let models = Arc::new(models);
    let configs = [json!({ "command": "node", "args": [program("everything"), "stdio"] }), json!({ "url": http.url })];
    for mut config in configs {
        config["sampling"] = json!({ "model": "fake/m", "approvals": "allow" });
        let (servers, toolbox) = open(json!({ "e": config }), &["/work/lake".into()], &models).await;
        let call =
            async |tool: &str, arguments| call(&toolbox, folder.path(), &format!("mcp__e__{tool}"), arguments).await;
        assert_eq!(call("echo", json!({ "message": "hi" })).await.plain_text(), "Echo: hi");
        assert!(call("get-sum", json!({ "a": 2, "b": 3 })).await.plain_text().contains("is 5"));
        assert_eq!(toolbox.get("mcp__e__echo").expect("a tool").effect(), Effect::Read);
        let image = call("get-tiny-image", json!({})).await;
        let has_image = |part: &flovyn_toolkit::message::Part| matches!(&part.content, Content::Media(media) if media.mime == "image/png");
        assert!(image.content.iter().any(has_image), "{:?}", image.details);
        let structured = call("get-structured-content", json!({ "location": "Chicago" })).await;
        assert!(structured.details["structuredContent"]["temperature"].is_number(), "{:?}", structured.details);
        let links = call("get-resource-links", json!({ "count": 2 })).await;
        assert!(
            links.plain_text().contains("[resource Text Resource 1") || links.plain_text().contains("demo://resource/")
        );
        let long = call("trigger-long-running-operation", json!({ "duration": 1, "steps": 2 })).await;
        assert!(long.plain_text().contains("completed"), "{long:?}");
        let wrong = toolbox.call("mcp__e__get-sum", json!({ "a": "x" }), &environment(folder.path())).await.unwrap();
        assert_eq!(wrong.error_code(), Some("invalid_arguments"));
        // Resources, their templates, and prompts.
        let listed = call("list_resources", json!({})).await.plain_text();
        for shown in
            ["- demo://resource/static/document/architecture.md ", "- demo://resource/dynamic/text/{resourceId} "]
        {
            assert!(listed.contains(shown), "{listed}");
        }
        let some = call("list_resources", json!({ "query": "STARTUP" })).await.plain_text();
        assert_eq!(some.matches("\n- ").count(), 1, "{some}");
        let read = call("read_resource", json!({ "uri": "demo://resource/dynamic/text/7" })).await;
        assert!(read.plain_text().starts_with("demo://resource/dynamic/text/7:\nResource 7: "), "{read:?}");
        let none =
            toolbox.call("mcp__e__read_resource", json!({ "uri": "demo://none" }), &environment(folder.path())).await;
        assert_eq!(none.unwrap().error_code(), Some("mcp_error"));
        let (prompts, problems) = servers.prompts().await;
        assert!(
            problems.is_empty() && prompts.iter().any(|prompt| prompt.name == "mcp__e__simple-prompt"),
            "{prompts:?}"
        );
        let weather = prompts.iter().find(|prompt| prompt.name == "mcp__e__args-prompt").expect("a prompt");
        let given = weather.arguments_of("Portland Oregon").expect("both are given");
        let messages = servers.get_prompt(weather, given).await.expect("its messages");
        assert_eq!(messages, [Message::user("What's weather in Portland, Oregon?")]);
        let error = weather.arguments_of("").expect_err("a city is needed");
        assert!(error.message().contains("write /mcp__e__args-prompt city [state]"), "{error}");
        let said = servers.instructions();
        assert!(said["e"].starts_with("# Everything Server"), "{said:?}");
        let sampled = call("trigger-sampling-request", json!({ "prompt": "Say hello.", "maxTokens": 40 })).await;
        assert!(sampled.plain_text().contains("An otter says hello."), "{sampled:?}");
        assert!(sampled.details["sampled"][0]["meta"]["usage"]["output"].as_u64() > Some(0), "{:?}", sampled.details);
        // The directories, and that they have changed. The server has this tool only after it has learned of them.
        let told = call("get-roots-list", json!({})).await.plain_text();
        assert!(told.contains("file:///work/lake"), "{told}");
        servers.set_roots(&["/work/pond".into()]).await;
        let mut told = String::new();
        for _ in 0..500 {
            told = call("get-roots-list", json!({})).await.plain_text();
            if told.contains("file:///work/pond") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(told.contains("file:///work/pond") && !told.contains("lake"), "{told}");
        servers.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_and_read_and_facts_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let config = json!({
        "fs": { "command": "node", "args": [program("filesystem"), root] },
        "memory": { "command": "node", "args": [program("memory")], "env": { "MEMORY_FILE_PATH": root.join("memory.jsonl") } },
    });
    let (servers, toolbox) = open(config, &[], &Arc::default()).await;
    let call = async |tool: &str, arguments| call(&toolbox, &root, tool, arguments).await;
    let path = root.join("otters.md");
    call("mcp__fs__write_file", json!({ "path": path, "content": "They hold hands.\n" })).await;
    assert_eq!(fs::read_to_string(&path).unwrap(), "They hold hands.\n");
    let read = call("mcp__fs__read_text_file", json!({ "path": path })).await;
    assert!(read.plain_text().contains("They hold hands."), "{read:?}");
    let outside = toolbox.call("mcp__fs__read_text_file", json!({ "path": "/etc/passwd" }), &environment(&root)).await;
    assert_eq!(outside.unwrap().error_code(), Some("tool_error"));
    let otter = json!({ "name": "Ada", "entityType": "otter", "observations": ["sleeps a lot"] });
    call("mcp__memory__create_entities", json!({ "entities": [otter] })).await;
    let graph = call("mcp__memory__read_graph", json!({})).await;
    assert!(graph.plain_text().contains("sleeps a lot"), "{graph:?}");
    servers.close().await;
    let kept = call("mcp__memory__search_nodes", json!({ "query": "Ada" })).await;
    assert!(kept.plain_text().contains("sleeps a lot"), "a server that is started again has its file: {kept:?}");
    servers.close().await;
}

/// A run that calls a tool of `everything`, and is asked.
async fn elicited(probe: &Probe, tool: &str, arguments: Value, response: InputResponse) -> ToolOutcome {
    run_of(probe, tool, arguments, response).await.expect("a run")
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_asks_a_person() {
    let http = Everything::start();
    let configs = [json!({ "command": "node", "args": [program("everything"), "stdio"] }), json!({ "url": http.url })];
    for config in configs {
        let probe = Probe::of(config, Duration::from_secs(20)).await;
        assert_eq!(probe.servers.protocol_versions()["probe"], "2025-11-25");
        let form = "trigger-elicitation-request";
        let asks = probe.call(form, json!({})).await;
        let required = InputRequired::of(&asks).unwrap_or_else(|| panic!("{asks:?}"));
        let question = required.questions.values().next().expect("a question");
        let InputQuestion::Form { message, schema } = question else { panic!("{question:?}") };
        assert_eq!(message, "Please provide inputs for the following fields:");
        assert_eq!(
            schema["properties"].as_object().map(serde_json::Map::len),
            Some(13),
            "all fields are kept: {schema}"
        );
        required.call_off();
        let content = json!({ "name": "Ada", "check": true, "integer": 7, "titledSingleSelectEnum": "hero-2" });
        let accept = InputResponse::Accept { content: Some(content) };
        let accepted = elicited(&probe, form, json!({}), accept).await.plain_text();
        for shown in ["User provided the requested information!", "- Name: Ada", "- Favorite Integer: 7", "hero-2"] {
            assert!(accepted.contains(shown), "{accepted}");
        }
        let declined = elicited(&probe, form, json!({}), InputResponse::Decline).await.plain_text();
        assert!(declined.contains("User declined to provide"), "{declined}");
        let cancelled = elicited(&probe, form, json!({}), InputResponse::Cancel).await.plain_text();
        assert!(cancelled.contains("User cancelled the elicitation"), "{cancelled}");
        let visit = json!({ "url": "https://lake.example/login" });
        let asks = probe.call("trigger-url-elicitation", visit.clone()).await;
        let required = InputRequired::of(&asks).unwrap_or_else(|| panic!("{asks:?}"));
        let question = required.questions.values().next().expect("a question");
        assert!(
            matches!(question, InputQuestion::Url { url, .. } if url == "https://lake.example/login"),
            "{question:?}"
        );
        required.call_off();
        let visited = elicited(&probe, "trigger-url-elicitation", visit, InputResponse::Accept { content: None }).await;
        assert!(visited.plain_text().contains("User completed the URL elicitation flow"), "{visited:?}");
        probe.servers.close().await;
    }
}

/// `everything` has a tool that can be called as a task only.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_everything_that_is_a_task_is_followed_to_its_end() {
    let http = Everything::start();
    let configs = [json!({ "command": "node", "args": [program("everything"), "stdio"] }), json!({ "url": http.url })];
    for config in configs {
        let probe = Probe::of(config, Duration::from_secs(20)).await;
        let seen = Arc::new(Mutex::new(String::new()));
        let sink = seen.clone();
        let environment = probe.environment.clone().with_terminal(move |event| sink.lock().push_str(&event.data));
        let name = "mcp__probe__simulate-research-query";
        let research = probe.toolbox.call(name, json!({ "topic": "otters" }), &environment).await.expect("an outcome");
        assert!(!research.is_error && research.plain_text().contains("# Research Report: otters"), "{research:?}");
        // Its stages last as long as the pauses between the looks at it, so a busy machine may miss one.
        let stages =
            ["Gathering sources...", "Analyzing content...", "Synthesizing findings...", "Generating report..."];
        let seen = seen.lock().clone();
        assert!(stages.iter().filter(|stage| seen.contains(*stage)).count() >= 2, "{seen}");
        let accept = InputResponse::Accept { content: Some(json!({ "interpretation": "snake" })) };
        let asked = json!({ "topic": "python", "ambiguous": true });
        let research = elicited(&probe, "simulate-research-query", asked, accept).await;
        assert!(research.plain_text().contains("# Research Report: python (snake)"), "{research:?}");
        probe.servers.close().await;
    }
}
