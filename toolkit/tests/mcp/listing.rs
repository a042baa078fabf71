//! What servers list, how its calls are answered over both transports in both eras, and what is told of servers that fail.

use crate::{Over, Probe, pipes, server, servers};
use flovyn_toolkit::mcp::{McpConfig, McpServers};
use flovyn_toolkit::tools::{Effect, Recovery, ToolTask, Toolbox};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_all_pages_are_listed_under_names_that_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(pipes(folder.path(), "stateless"), Duration::from_secs(20));
    let (toolbox, problems) = servers.add_to(Toolbox::host().unwrap()).await;
    let names: Vec<_> = toolbox.names().filter(|name| name.starts_with("mcp__probe__")).collect();
    assert_eq!(names.len(), 26 + server::FILLERS, "{names:?}");
    assert!(names.contains(&"mcp__probe__filler_00") && names.contains(&"mcp__probe__filler_69"));
    assert!(toolbox.get("bash").is_some(), "host tools are beside them");
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:#?}");
    for tool in ["a/b", "a.b"] {
        assert!(
            told.iter().any(|line| line.contains(&format!("\"probe\": the name of its tool {tool:?} is taken"))),
            "{told:#?}"
        );
    }
    assert!(
        told.iter()
            .any(|line| line.contains("its tool \"no_schema\" is left out, for its input schema is of the type 7"))
    );
    assert_eq!(
        names.iter().filter(|name| name.starts_with("mcp__probe__a_b")).count(),
        3,
        "the exact one and two digests"
    );
    for (name, effect, recovery) in [
        ("echo", Effect::Read, Recovery::Again),
        ("many", Effect::Write, Recovery::Again),
        ("once", Effect::Exec, Recovery::Report),
    ] {
        let tool = toolbox.get(&format!("mcp__probe__{name}")).expect(name);
        assert_eq!((tool.effect(), tool.recovery()), (effect, recovery), "{name}");
        assert_eq!(tool.description(), format!("Does {name}."));
    }
    let described = toolbox.get("mcp__probe__filler_00").unwrap().description().to_owned();
    assert_eq!(described, "The tool filler_00 of the MCP server probe.");
    let schema = toolbox.get("mcp__probe__echo").unwrap().input_schema();
    assert_eq!(schema["required"], json!(["text"]), "schemas are passed on as they are");
    let again = servers.add_to(Toolbox::host().unwrap()).await.0;
    assert_eq!(again.definitions(), toolbox.definitions(), "so that prompts are cached");
    assert_eq!(ToolTask::kind_of(names[0]), format!("tool.{}", names[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_over_both_transports_in_both_eras() {
    let cases = [
        (Over::Pipes, "stateless"),
        (Over::Pipes, "handshake"),
        (Over::Pipes, "ancient"),
        (Over::Http, "stateless"),
        (Over::Http, "handshake"),
    ];
    for (over, era) in cases {
        let probe = Probe::new(over, era).await;
        let outcome = probe.call("echo", json!({ "text": "hello" })).await;
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), ("hello", false), "{over:?} {era}: {outcome:?}");
        let expected = json!({ "server": "probe", "tool": "echo", "bytes": 5, "cut": false, "structuredContent": { "text": "hello" } });
        assert_eq!(outcome.details, expected, "{over:?} {era}");
        let many: Vec<_> = (0..20).map(|_| probe.call("many", json!({}))).collect();
        let done = futures::future::join_all(many).await;
        assert!(done.iter().all(|outcome| !outcome.is_error), "{over:?} {era}: {done:?}");
        assert_eq!(probe.noted("many"), 20, "{over:?} {era}: calls run side by side over one connection");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_of_a_failure_reaches_the_model() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    for (tool, arguments, code, said) in [
        ("fails", json!({}), "tool_error", "the disk is full"),
        ("breaks", json!({}), "mcp_error", "the error -32050: no such thing; the key is [hidden]"),
        ("wrong_output", json!({}), "invalid_output", "structuredContent.text"),
        ("echo", json!({ "text": 3 }), "invalid_arguments", "text"),
        ("echo", json!({}), "invalid_arguments", "text"),
    ] {
        let outcome = probe.call(tool, arguments).await;
        assert_eq!(outcome.error_code(), Some(code), "{outcome:?}");
        assert!(outcome.plain_text().contains(said), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_get_their_own_variables_and_few_of_ours() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    let outcome = probe.call("variables", json!({})).await;
    let text = outcome.plain_text();
    let names: Vec<_> = text.split(' ').collect();
    assert!(names.contains(&server::FOLDER) && names.contains(&"PATH"), "{text}");
    let known = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LC_ALL",
        "TERM",
        "TMPDIR",
        "TZ",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ];
    let of_the_shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    let own = [server::FOLDER, server::ERA, "KEY"];
    let more: Vec<_> = names.iter().filter(|name| ![&known[..], &of_the_shell, &own].concat().contains(name)).collect();
    assert!(more.is_empty(), "it was given {more:?}");
    assert!(std::env::vars().any(|(name, _)| !known.contains(&name.as_str())), "this process has others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_used_is_told_and_the_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let http = crate::HttpServer::start(folder.path(), "stateless", 0);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = json!({ "mcpServers": {
        "good": pipes(folder.path(), "stateless"),
        "missing": { "command": "no-such-mcp-server" },
        "broken": { "command": "sh", "args": ["-c", "echo 'cannot find s3cret-value' >&2; exit 3"], "env": { "K": "s3cret-value" } },
        "locked": { "url": http.url() },
        "wrong_key": { "url": http.url(), "headers": { "Authorization": "Bearer k-9876543210" } },
        "unreachable": { "url": format!("http://{closed}/t0ken-in-the-path") },
    }});
    let servers = McpServers::new(McpConfig::parse(&config.to_string(), |_| None).unwrap());
    let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
    assert_eq!(
        toolbox
            .call("mcp__good__echo", json!({ "text": "x" }), &crate::environment(folder.path()))
            .await
            .unwrap()
            .plain_text(),
        "x"
    );
    let told = |server: &str| {
        let found = problems.iter().find(|problem| problem.server == server);
        found.unwrap_or_else(|| panic!("nothing is told of {server}: {problems:#?}")).message.clone()
    };
    assert!(told("missing").contains("\"no-such-mcp-server\" could not be started"), "{}", told("missing"));
    assert!(told("broken").contains("The last it said: cannot find [hidden]"), "{}", told("broken"));
    for server in ["locked", "wrong_key"] {
        assert!(told(server).contains("wants authorization"), "{}", told(server));
    }
    let unreachable = told("unreachable");
    assert!(unreachable.contains(&closed.to_string()) && !unreachable.contains("t0ken"), "{unreachable}");
}
