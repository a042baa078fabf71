//! Chats without anybody at a terminal: formats for programs, limits, rules, exit codes, signals and pipes that end.

use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, FaultKind, Script, ScriptedUsage, Turn};
use flovyn_toolkit::message::Stop;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

const WRITES: &str = r#"
[[turns]]
text = "I write."
toolCalls = [{ name = "write", arguments = { path = "a.txt", content = "otter\n" } }]
[[turns]]
text = "Then: {{result}}"
[[turns]]
text = "You said {{lastUser}}."
"#;

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

fn beside(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_event_is_an_object_a_line() {
    let user = User::new();
    let fake = user.script(WRITES);
    let output = user.run(&["chat", "-p", "Write it", &fake, "--yes", "--output-format", "stream-json"]);
    assert!(output.status.success(), "{}", told(&output));
    let lines = lines(&output);
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["system", "assistant", "user", "assistant", "result"]);
    let (init, call, ran, result) = (&lines[0], &lines[1], &lines[2], &lines[4]);
    let session = json!(user.sessions()[0]);
    assert!(lines.iter().all(|line| line["session_id"] == session), "{lines:?}");
    assert_eq!((&init["subtype"], &init["model"]), (&json!("init"), &json!("fake/scripted")));
    assert_eq!(init["cwd"], json!(user.project()));
    assert!(init["tools"].as_array().is_some_and(|tools| tools.contains(&json!("bash"))), "{init}");
    let content = &call["message"]["content"];
    assert_eq!(content[0], json!({"type": "text", "text": "I write."}));
    assert_eq!((&content[1]["type"], &content[1]["name"]), (&json!("tool_use"), &json!("write")));
    assert_eq!(content[1]["input"]["path"], "a.txt");
    assert_eq!(call["message"]["stop_reason"], "tool_use");
    let answer = &ran["message"]["content"][0];
    assert_eq!((&answer["type"], &answer["is_error"]), (&json!("tool_result"), &json!(false)));
    assert_eq!(answer["tool_use_id"], content[1]["id"]);
    assert!(result["result"].as_str().is_some_and(|text| text.starts_with("Then: Wrote 6 bytes")), "{result}");
    for (name, value) in [
        ("subtype", json!("success")),
        ("is_error", json!(false)),
        ("num_turns", json!(2)),
        ("stop_reason", json!("end")),
        ("total_cost_usd", Value::Null),
        ("permission_denials", json!([])),
    ] {
        assert_eq!(result[name], value, "{name}: {result}");
    }
    assert!(result["usage"]["output_tokens"].as_u64() > Some(0) && result["duration_ms"].is_u64(), "{result}");
}

#[test]
fn a_session_that_was_done_says_its_answer_again() {
    let user = User::new();
    let fake = user.script(WRITES);
    let first = user.run(&["chat", "-p", "Write it", &fake, "--yes", "--json"]);
    assert!(first.status.success(), "{}", told(&first));
    // Whoever resumes it after a crash cannot know whether the answer was complete.
    let again = user.run(&["chat", "-p", "--resume", &fake, "--json"]);
    assert!(again.status.success(), "{}", told(&again));
    let (first, again) = (&lines(&first)[0], &lines(&again)[0]);
    for name in ["text", "session", "stopReason", "num_turns", "is_error"] {
        assert_eq!(first[name], again[name], "{name}");
    }
    let text = user.run(&["chat", "-p", "--resume", &fake]);
    assert_eq!(String::from_utf8_lossy(&text.stdout).trim_end(), first["text"].as_str().unwrap_or_default());
}

#[test]
fn one_object_tells_it_all_at_the_end() {
    let user = User::new();
    let fake = user.script(WRITES);
    for (args, session) in [(["--output-format", "json"], 0), (["--json", "--yes"], 0)] {
        let output = user.run(&[&["chat", "-p", "Write it", &fake][..], &args].concat());
        let lines = lines(&output);
        assert_eq!(lines.len(), 1, "{}", told(&output));
        let result = &lines[0];
        assert_eq!((&result["type"], &result["session"]), (&json!("result"), &json!(user.sessions()[session])));
        assert_eq!((&result["text"], &result["session_id"]), (&result["result"], &result["session"]));
        assert_eq!((&result["stopReason"], &result["usage"]["calls"]), (&json!("end"), &json!(2)));
        let denied = result["permission_denials"].as_array().expect("a list");
        let names: Vec<_> = denied.iter().map(|call| &call["tool_name"]).collect();
        assert_eq!(names, if args[1] == "--yes" { vec![] } else { vec!["write"] }, "{result}");
    }
    let output = user.run(&["chat", "-p", "Hi", &fake, "--json", "--output-format", "text"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
}

/// A model with a price, that calls a tool and says something every time it is asked.
fn busy() -> (FakeLlm, impl Fn(&User, &[&str]) -> Output) {
    let usage = ScriptedUsage { input: Some(10_000), output: Some(1_000), ..ScriptedUsage::default() };
    let turn = Turn { text: Some("More.".into()), usage, ..Turn::call("find", json!({"pattern": "*"})) };
    let model = FakeLlm::start(Script::new([turn.times(99)])).expect("a model");
    let url = model.url();
    let run = move |user: &User, args: &[&str]| {
        let mut command = user.flovyn(&[&["chat", "-p", "--model", "anthropic/claude-sonnet-5-5"], args].concat());
        command.env("ANTHROPIC_BASE_URL", &url).output().expect("it runs")
    };
    (model, run)
}

#[test]
fn limits_end_an_answer_and_have_codes_of_their_own() {
    let user = User::new();
    let (model, run) = busy();
    let output = run(&user, &["Go", "--max-turns", "2", "--output-format", "stream-json"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    let result = lines(&output).pop().expect("a result");
    assert_eq!((&result["subtype"], &result["num_turns"]), (&json!("error_max_turns"), &json!(2)));
    assert_eq!((&result["is_error"], &result["result"]), (&json!(true), &json!("More.")));
    assert_eq!(model.requests().len(), 2);
    // The limit was that message's own: the next one has another. A call costs 3 cents.
    let output = run(&user, &["On", "--continue", "--max-cost", "0.05", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", told(&output));
    let result = lines(&output).pop().expect("a result");
    assert_eq!((&result["subtype"], &result["num_turns"]), (&json!("error_max_budget_usd"), &json!(2)));
    assert_eq!(result["total_cost_usd"], json!(0.06));
    assert_eq!(user.sessions().len(), 1, "it is the same session");
    let output = run(&user, &["Go", "--max-turns", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "More.\n");
    assert!(beside(&output).contains("--max-turns") && beside(&output).contains("--resume"), "{}", told(&output));
    for wrong in [["--max-turns", "0"], ["--max-cost", "0"], ["--max-cost", "much"]] {
        let output = run(&user, &[&["Go"][..], &wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    }
}

#[test]
fn a_refusal_a_cut_and_a_failure_have_codes_of_their_own() {
    let user = User::new();
    let stops = |stop| Turn { stop: Some(stop), ..Turn::text("No.") };
    let cut = FaultKind::Status { code: 400, retry_after: None, message: Some("never".into()) };
    for (turn, code, word) in [
        (stops(Stop::Refusal), 5, "refusal"),
        (stops(Stop::Length), 6, "length"),
        (Turn::text("x").fault(cut), 1, "error"),
    ] {
        let model = FakeLlm::start(Script::new([turn])).expect("a model");
        let mut command = user.flovyn(&["chat", "-p", "Go", "--model", "anthropic/m", "--json"]);
        let output = command.env("ANTHROPIC_BASE_URL", model.url()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        let result = lines(&output).pop().expect("a result");
        assert_eq!((&result["stop_reason"], &result["is_error"]), (&json!(word), &json!(true)), "{result}");
    }
}

const COMMANDS: &str = r#"
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "echo otter" } }]
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "touch b.txt" } }]
[[turns]]
text = "Then: {{result}}"
[[turns]]
toolCalls = [{ name = "bash", arguments = { command = "echo seal" } }]
[[turns]]
text = "At last: {{result}}"
"#;

#[test]
fn rules_allow_and_refuse_calls_and_hide_tools() {
    let user = User::new();
    let fake = user.script(COMMANDS);
    let stream = ["--output-format", "stream-json", "--unsandboxed"];
    let run = |args: &[&str]| user.run(&[&["chat", "-p", &fake], args, &stream].concat());
    let output = run(&["Go", "--allowed-tools", "edit,bash(echo:*)"]);
    assert!(output.status.success(), "{}", told(&output));
    let all = lines(&output);
    assert!(all[2]["message"]["content"][0].to_string().contains("otter"), "{}", all[2]);
    assert!(!user.project().join("b.txt").exists());
    let denied = &all.last().expect("a result")["permission_denials"];
    assert_eq!(denied[0]["tool_input"]["command"], "touch b.txt", "{denied}");
    assert_eq!(denied.as_array().map(Vec::len), Some(1), "{denied}");

    // A session that was started without the rule obeys it too, and so does one whose every call is allowed.
    let output = run(&["On", "--continue", "--yes", "--disallowed-tools", "Bash(echo:*)"]);
    let all = lines(&output);
    let text = all.last().expect("a result")["result"].to_string();
    assert!(text.contains("policy does not allow"), "{text}");

    let output = run(&["Go", "--yes", "--disallowedTools", "bash", "--disallowed-tools", "mcp__files__*"]);
    assert_eq!(output.status.code(), Some(2), "nothing is named so: {}", told(&output));
    assert!(beside(&output).contains("mcp__files__*"), "{}", told(&output));
    let output = run(&["Go", "--yes", "--disallowed-tools", "bash"]);
    let all = lines(&output);
    assert!(!all[0]["tools"].as_array().expect("tools").contains(&json!("bash")), "{}", all[0]);
    assert!(all[2].to_string().contains("There is no tool"), "the model is not offered it: {}", all[2]);
    let output = run(&["Go", "--allowed-tools", "bash(echo"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
}

#[test]
fn more_is_said_to_the_model_of_a_session_that_begins() {
    let user = User::new();
    let model = FakeLlm::start(Script::new([Turn::text("One."), Turn::text("Two.")])).expect("a model");
    let run = |args: &[&str]| {
        let mut command = user.flovyn(&[&["chat", "-p", "Hi", "--model", "anthropic/m"], args].concat());
        command.env("ANTHROPIC_BASE_URL", model.url()).output().expect("it runs")
    };
    let output = run(&["--append-system-prompt", "Speak like an otter."]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(model.requests()[0].body["system"].to_string().contains("Speak like an otter."));
    assert_eq!(run(&["-c", "--append-system-prompt", "x"]).status.code(), Some(2));
    let output = run(&["-c"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Two.\n", "{}", told(&output));
    assert_eq!(user.sessions().len(), 1);
}

#[test]
fn a_signal_leaves_a_session_that_goes_on() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let user = User::new();
        let stall = FaultKind::Stall { after_events: 3, ms: None };
        let model = FakeLlm::start(Script::new([Turn::text("The end of it.").fault(stall)])).expect("a model");
        let command = |args: &[&str]| {
            let mut command = user.flovyn(&[&["chat", "-p", "--json", "--model", "anthropic/m"], args].concat());
            command.env("ANTHROPIC_BASE_URL", model.url()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let child = command(&["Go"]).spawn().expect("it starts");
        until("the model call is on its way", || model.requests().len() == 1);
        let id = Pid::from_raw(i32::try_from(child.id()).expect("an id")).expect("an id");
        kill_process(id, signal).expect("it is ours");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        let result = lines(&output).pop().expect("a result");
        assert_eq!((&result["stop_reason"], &result["is_error"]), (&json!("interrupted"), &json!(true)), "{result}");
        let session = result["session"].as_str().expect("a session");
        let output = command(&["--resume", session]).output().expect("it runs");
        assert_eq!(lines(&output)[0]["text"], "The end of it.", "{}", told(&output));
        assert_eq!(model.requests().len(), 2, "what was cut off is asked again, and nothing else");
    }
}

#[test]
fn a_pipe_that_ends_is_no_failure() {
    let user = User::new();
    let fake = user.script("[[turns]]\ntext = \"otter {{pad:200000}}\"\npace = { chunkMs = 1, chunkChars = 400 }\n");
    for format in ["text", "stream-json"] {
        let mut command = user.flovyn(&["chat", "-p", "Go", &fake, "--output-format", format]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut first = vec![0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut first).expect("a beginning");
        // Nobody reads either pipe any more.
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{format}");
    }
}

#[test]
fn no_output_has_codes_of_a_terminal_and_any_bytes_are_read() {
    let user = User::new();
    std::fs::write(user.project().join("red.txt"), "\u{1b}[31motter\u{1b}[0m\n").expect("a file");
    let fake = user.script(
        "[[turns]]\ntoolCalls = [{ name = \"bash\", arguments = { command = \"cat red.txt\" } }]\n\
         [[turns]]\ntext = \"\\u001b[1mbold\\u001b[0m of {{lastUser}}\"\n",
    );
    let mut command = user.flovyn(&["chat", "-p", "Read:", &fake, "--yes", "--unsandboxed"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"\xff\xfe otters").expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", told(&output));
    let lines: Vec<_> = BufReader::new(&output.stdout[..]).lines().map_while(Result::ok).collect();
    let note = "[The input is not UTF-8: unreadable bytes are shown as \u{fffd}.]";
    assert_eq!(lines, ["[1mbold[0m of Read:", "", "\u{fffd}\u{fffd} otters", "", note]);
    assert!(!beside(&output).contains('\u{1b}') && beside(&output).contains("otter"), "{}", told(&output));
}
