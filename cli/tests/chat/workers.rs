//! A chat over a server whose workers do the work.

use super::*;
use std::io::{BufRead, BufReader};

/// Starts a command and gives the first line that it prints.
pub(crate) fn start(mut command: Command) -> (Running, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let out = child.stdout.take().expect("a pipe");
    let running = Running(child);
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).expect("a line");
    (running, line)
}

#[test]
fn a_worker_does_what_is_asked_through_a_server() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntoolCalls = [{ name = \"write\", arguments = { path = \"a.txt\", content = \"otter\\n\" } }]\n\
         [[turns]]\ntext = \"Written far away.\"\n",
    );
    let served = format!("sqlite:{}", user.folder.path().join("served.db").display());
    let dev = user.flovyn(&["dev", "--json", "--db", &served, "--http-port", "0", "--grpc-port", "0"]);
    let (_server, line) = start(dev);
    let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = said["grpc"].as_str().expect("an address");
    let (_worker, line) = start(user.flovyn(&["worker", url, "--json", "--yes", &fake]));
    assert!(line.contains("\"fake\""), "{line}");
    let text = user.chat(&["-p", "Write it", "--db", url, "--model", "fake/scripted", "--yes"]);
    assert_eq!(text, "Written far away.\n");
    assert_eq!(std::fs::read_to_string(user.project().join("a.txt")).expect("the file"), "otter\n");
}

#[cfg(unix)]
#[test]
fn a_worker_that_is_terminated_gives_back_what_it_has() {
    let user = User::new();
    let served = format!("sqlite:{}", user.folder.path().join("served.db").display());
    let dev = user.flovyn(&["dev", "--json", "--db", &served, "--http-port", "0", "--grpc-port", "0"]);
    let (_server, line) = start(dev);
    let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = said["grpc"].as_str().expect("an address");
    // A model that never says its first word.
    let fake = user.script("[pace]\nttftMs = 3600000\n[[turns]]\ntext = \"Too late.\"\n");
    let (mut first, _) = start(user.flovyn(&["worker", url, "--json", "--yes", &fake]));
    let asking = user
        .flovyn(&["chat", "-p", "Go", "--db", url, "--model", "fake/scripted", "--yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let runs = || {
        let listed = user.run(&["runs", "list", url, "--json"]);
        assert!(listed.status.success(), "{}", told(&listed));
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        listed["items"].as_array().expect("a list").clone()
    };
    until("the run is at work", || runs().iter().any(|run| run["status"] == "RUNNING"));

    let since = Instant::now();
    let terminated = Command::new("kill").args(["-TERM", &first.0.id().to_string()]).status().expect("it runs");
    assert!(terminated.success() && first.0.wait().expect("it ends").code() == Some(0));
    println!("the worker ended after {:?}", since.elapsed());
    // At once: the lease would hold for 30 s.
    assert!(runs().iter().all(|run| run["status"] == "PENDING"), "{:?}", runs());

    let fake = user.script("[[turns]]\ntext = \"By another.\"\n");
    let (_second, _) = start(user.flovyn(&["worker", url, "--json", "--yes", &fake]));
    let output = asking.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stdout == b"By another.\n", "{}", told(&output));
}

#[test]
fn a_call_that_waits_is_approved_or_denied_by_what_the_run_prints() {
    let user = User::new();
    let fake = user.script(
        "[[turns]]\ntoolCalls = [{ name = \"write\", arguments = { path = \"a.txt\", content = \"otter\" } }, \
         { name = \"write\", arguments = { path = \"b.txt\", content = \"eel\" } }]\n\
         [[turns]]\ntoolCalls = [{ name = \"write\", arguments = { path = \"c.txt\", content = \"crab\" } }]\n\
         [[turns]]\ntext = \"{{result}}\"\n",
    );
    let served = format!("sqlite:{}", user.folder.path().join("served.db").display());
    let dev = user.flovyn(&["dev", "--json", "--db", &served, "--http-port", "0", "--grpc-port", "0"]);
    let (_server, line) = start(dev);
    let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = said["grpc"].as_str().expect("an address");
    let (_worker, _) = start(user.flovyn(&["worker", url, "--json", &fake]));
    let input = r#"{"userPrompt": "Write them.", "model": {"provider": "fake", "modelId": "scripted"}}"#;
    let started = user.run(&["runs", "start", url, "react-agent", input, "--id", "w"]);
    assert!(started.status.success(), "{}", told(&started));
    let shown = || {
        let output = user.run(&["runs", "show", url, "w", "--json"]);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let open = |count: usize| {
        until("calls wait", || shown()["approvals"].as_array().is_some_and(|calls| calls.len() == count));
        shown()["approvals"].as_array().expect("a list").clone()
    };
    let calls = open(2);
    let text = |call: &serde_json::Value, name: &str| call[name].as_str().expect("a text").to_owned();
    // What the run prints names the command and both calls.
    let printed = told(&user.run(&["runs", "show", url, "w"]));
    assert!(printed.contains(&format!("flovyn runs (approve | deny) {url} w {}", text(&calls[0], "id"))), "{printed}");
    // Two wait, so one has to be named; the error lists them.
    for wrong in [&["runs", "approve", url, "w"][..], &["runs", "deny", url, "w", "call_x"]] {
        let refused = user.run(wrong);
        let error = told(&refused);
        assert!(
            refused.status.code() == Some(2) && calls.iter().all(|call| error.contains(&text(call, "id"))),
            "{error}"
        );
    }
    let approved = user.run(&["runs", "approve", url, "w", &text(&calls[0], "id")]);
    assert!(approved.status.success() && told(&approved).contains("is approved"), "{}", told(&approved));
    let denied = user.run(&["runs", "deny", url, "w", &text(&calls[1], "hash")[..12], "--reason", "No eels."]);
    assert!(denied.status.success() && told(&denied).contains("is denied"), "{}", told(&denied));
    open(1);
    for wrong in ["[1]", "{", "7"] {
        let refused = user.run(&["runs", "approve", url, "w", "--arguments", wrong]);
        assert!(refused.status.code() == Some(2) && told(&refused).contains("a JSON object"), "{}", told(&refused));
    }
    let other = r#"{"path": "d.txt", "content": "crab"}"#;
    let only = user.run(&["runs", "approve", url, "w", "--for-run", "--arguments", other]);
    assert!(only.status.success(), "{}", told(&only));
    until("the run ends", || shown()["status"] == "COMPLETED");
    let there = |name: &str| user.project().join(name).exists();
    assert_eq!(["a.txt", "b.txt", "c.txt", "d.txt"].map(there), [true, false, false, true]);
    let closed = user.run(&["runs", "approve", url, "w"]);
    assert!(told(&closed).contains("no call that waits for an answer"), "{}", told(&closed));
}
