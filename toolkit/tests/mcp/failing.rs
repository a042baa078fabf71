//! Servers that cannot be used: they hold nobody up, are tried again after a pause, and can be used as soon as they work.

use crate::{environment, pipes, server, servers};
use flovyn_toolkit::mcp::McpServers;
use flovyn_toolkit::tools::{ToolOutcome, Toolbox};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A server whose process ends at once unless the folder has a file `ready`. Each start is noted.
pub(crate) fn unready(folder: &Path) -> Value {
    let mut config = pipes(folder, "stateless");
    let script = config["args"][1].as_str().expect("a script").to_owned();
    let there = folder.display();
    config["args"][1] = Value::from(format!(
        "echo started >>{there}/log; [ -e {there}/ready ] || {{ echo no disk >&2; exit 1; }}; {script}"
    ));
    config
}

async fn try_again(toolbox: &Toolbox, folder: &Path, arguments: Value) -> ToolOutcome {
    toolbox.call("mcp__probe__try_again", arguments, &environment(folder)).await.expect("the machine works")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_start_is_one_tool_until_it_works() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(unready(folder.path()), Duration::from_secs(20));
    let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
    assert_eq!(toolbox.names().collect::<Vec<_>>(), ["mcp__probe__try_again"]);
    assert!(matches!(&*problems, [only] if only.message.contains("no disk")), "{problems:?}");
    let outcome = try_again(&toolbox, folder.path(), json!({})).await;
    assert_eq!(outcome.error_code(), Some("unavailable"), "{outcome:?}");
    assert!(outcome.plain_text().contains("no disk"), "{outcome:?}");
    fs::write(folder.path().join("ready"), "").unwrap();
    let listed = try_again(&toolbox, folder.path(), json!({})).await;
    let text = listed.plain_text();
    assert!(!listed.is_error && text.contains("- echo: Does echo.\n") && text.contains("- once: "), "{text}");
    // Policies go by the names of tools, so no tool is called by this one.
    let refused = try_again(&toolbox, folder.path(), json!({ "tool": "echo" })).await;
    assert_eq!(refused.error_code(), Some("invalid_arguments"), "{refused:?}");
    let (again, problems) = servers.add_to(Toolbox::new()).await;
    assert!(again.get("mcp__probe__echo").is_some() && again.get("mcp__probe__try_again").is_none(), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_start_has_the_tools_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let (ready, known) = (folder.path().join("ready"), folder.path().join("known"));
    fs::write(&ready, "").unwrap();
    let open = async |config: Value| {
        let servers = servers(config, Duration::from_secs(20));
        servers.remember_in(&known);
        let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
        (servers, toolbox, problems)
    };
    let (first, listed, _) = open(unready(folder.path())).await;
    first.close().await;
    fs::remove_file(&ready).unwrap();
    let (_servers, toolbox, problems) = open(unready(folder.path())).await;
    assert_eq!(toolbox.definitions(), listed.definitions(), "a prompt stays the same");
    let told = problems
        .iter()
        .any(|problem| problem.message.contains("no disk. Its tools are those that it had the last time"));
    assert!(told, "{problems:?}");
    let echo = async || {
        let environment = environment(folder.path());
        toolbox.call("mcp__probe__echo", json!({ "text": "hi" }), &environment).await.expect("the machine works")
    };
    let outcome = echo().await;
    assert_eq!(outcome.error_code(), Some("unavailable"), "{outcome:?}");
    fs::write(&ready, "").unwrap();
    assert_eq!(echo().await.plain_text(), "hi");
    fs::remove_file(&ready).unwrap();
    let mut other = unready(folder.path());
    other["cwd"] = json!("/");
    let (_servers, toolbox, _) = open(other).await;
    assert_eq!(toolbox.names().collect::<Vec<_>>(), ["mcp__probe__try_again"], "one that is configured otherwise");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_again_and_again_is_not_started_for_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(unready(folder.path()), Duration::from_secs(20));
    let (toolbox, _) = servers.add_to(Toolbox::new()).await;
    let calls = (0..8).map(|_| try_again(&toolbox, folder.path(), json!({})));
    let together = futures::future::join_all(calls).await;
    assert!(together.iter().all(|outcome| outcome.plain_text().contains("no disk")), "{together:?}");
    assert!(server::noted(folder.path(), "started") <= 4, "calls at the same time share an attempt");
    let mut started = 0;
    for _ in 0..40 {
        started = server::noted(folder.path(), "started");
        let outcome = try_again(&toolbox, folder.path(), json!({})).await;
        if outcome.plain_text().contains("it is tried again in") {
            break;
        }
    }
    let outcome = try_again(&toolbox, folder.path(), json!({})).await;
    let text = outcome.plain_text();
    assert!(text.contains("no disk") && text.contains("it is tried again in"), "{text}");
    assert_eq!(server::noted(folder.path(), "started"), started, "nothing was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_becomes_ready_is_given_up_and_the_others_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let hanging = json!({ "command": "sleep", "args": ["3623"], "startupTimeout": 500 });
    let config = json!({ "mcpServers": { "good": pipes(folder.path(), "stateless"), "hanging": hanging } });
    let config = flovyn_toolkit::mcp::McpConfig::parse(&config.to_string(), |_| None).unwrap();
    let (toolbox, problems) = McpServers::new(config).add_to(Toolbox::new()).await;
    let found = problems.iter().find(|problem| problem.server == "hanging").expect("it is told");
    assert_eq!(found.message, "it was not ready within 0.5 seconds");
    let environment = environment(folder.path());
    let said = toolbox.call("mcp__good__echo", json!({ "text": "x" }), &environment).await.unwrap();
    assert_eq!(said.plain_text(), "x");
    let told = toolbox.call("mcp__hanging__try_again", json!({}), &environment).await.unwrap();
    assert!(told.plain_text().contains("it was not ready within 0.5 seconds"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_slow_to_start_speaks_the_protocol_that_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = pipes(folder.path(), "stateless");
    let script = config["args"][1].as_str().expect("a script").to_owned();
    let there = folder.path().display();
    // It is slow the first time, as one that is fetched first.
    config["args"][1] = Value::from(format!("[ -e {there}/warm ] || sleep 3; touch {there}/warm; {script}"));
    let servers = servers(config, Duration::from_secs(20));
    let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
    assert!(problems.iter().all(|problem| problem.message.contains("its tool")), "{problems:?}");
    // With the handshake nobody could be asked.
    let asks = toolbox.call("mcp__probe__asks", json!({}), &environment(folder.path())).await.expect("an outcome");
    assert_eq!(asks.error_code(), Some("input_required"), "{asks:?}");
    servers.close().await;
}
