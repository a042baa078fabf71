//! Prompts that are answered through pipes.

use super::*;
use flovyn_toolkit::fake_llm::{FakeLlm, FaultKind, Script, Turn};
use serde_json::{Value, json};
use std::io::Write;

const WRITES: &str = r#"
[[turns]]
text = "I write."
toolCalls = [{ name = "write", arguments = { path = "a.txt", content = "otter\n" } }]
[[turns]]
text = "Then: {{result}}"
[[turns]]
text = "You said {{lastUser}}."
"#;

#[test]
fn a_prompt_is_answered_with_text_on_one_pipe_and_the_rest_on_the_other() {
    let user = User::new();
    let fake = user.script(WRITES);
    let output = user.run(&["chat", "-p", "Write it", &fake, "--yes"]);
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("I write.\nThen: Wrote 6 bytes to a.txt"), "{text}");
    assert_eq!(std::fs::read_to_string(user.project().join("a.txt")).expect("the file"), "otter\n");
    let beside = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(beside.contains("✓ write") && beside.contains("cost unknown") && beside.contains(" out · "), "{beside}");
}

#[test]
fn a_session_goes_on_is_forked_and_listed() {
    let user = User::new();
    let fake = user.script(WRITES);
    user.chat(&["-p", "Write it, please", &fake, "--yes"]);
    assert_eq!(user.chat(&["-p", "more", "--resume", &fake]), "You said more.\n");
    let first = user.sessions();
    assert_eq!(first.len(), 1);
    // The script has no fourth turn, and it says so to whoever has heard the third.
    let output = user.run(&["chat", "-p", "again", &fake, "--resume"]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let listed = user.chat(&["--list"]);
    assert!(listed.contains(&first[0]) && listed.contains("Write it, please"), "{listed}");

    let other = User::new();
    let fake = other.script(WRITES);
    other.chat(&["-p", "Write it", &fake, "--yes"]);
    let origin = other.sessions().remove(0);
    assert_eq!(other.chat(&["-p", "left", "--fork", &origin, &fake]), "You said left.\n");
    assert_eq!(other.chat(&["-p", "right", "--resume", &origin, &fake]), "You said right.\n");
    assert_eq!(other.sessions().len(), 2);
}

#[test]
fn what_nobody_allows_is_refused_and_the_model_is_told() {
    let user = User::new();
    let fake = user.script(WRITES);
    let text = user.chat(&["-p", "Write it", &fake]);
    assert!(text.contains("The user did not allow this call.") && text.contains("Nobody can be asked"), "{text}");
    assert!(!user.project().join("a.txt").exists());
    let text = user.chat(&["-p", "Write it", &fake, "--approve", "edits"]);
    assert!(text.contains("Wrote 6 bytes"), "{text}");
}

#[test]
fn a_policy_may_be_stricter_about_looking_than_the_chat_itself() {
    let user = User::new();
    std::fs::write(user.project().join("a.txt"), "otter\n").expect("a file");
    let fake = user.script(
        "[[turns]]\ntoolCalls = [{ name = \"read\", arguments = { path = \"a.txt\" } }]\n\
         [[turns]]\ntext = \"Then: {{result}}\"\n",
    );
    let text = user.chat(&["-p", "Look", &fake]);
    assert!(text.contains("otter"), "{text}");
    let policy = user.folder.path().join("policy.json");
    std::fs::write(&policy, r#"{"rules": [{"tool": "read", "path": "*.txt", "decision": "deny"}]}"#).expect("a file");
    let text = user.chat(&["-p", "Look", &fake, "--approve", &policy.display().to_string()]);
    assert!(text.contains("The user's policy does not allow it") && !text.contains("otter"), "{text}");
}

#[test]
fn a_prompt_comes_by_a_pipe_and_the_answer_goes_to_a_program() {
    let user = User::new();
    let fake = user.script("[[turns]]\ntext = \"You said {{lastUser}}.\"\n");
    let mut command = user.flovyn(&["chat", "Explain:", "--json", &fake]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"fn main() {}\n").expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["text"], "You said Explain:\n\nfn main() {}.");
    assert_eq!((&answer["session"], &answer["usage"]["costMicros"]), (&json!(user.sessions()[0]), &Value::Null));
}

#[test]
fn without_a_key_it_is_said_what_to_set() {
    let user = User::new();
    let output = user.run(&["chat", "-p", "Hi"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for word in ["ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "LOCAL_BASE_URL", "--fake"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(user.sessions().is_empty(), "nothing was started");
    let fake = user.script(WRITES);
    user.chat(&["-p", "Write it", &fake, "--yes"]);
    let output = user.run(&["chat", "-p", "Hi", "--resume"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("scripted model") && told.contains("--fake"), "{told}");
}

#[test]
fn a_turn_that_was_killed_goes_on_and_asks_for_no_answer_that_it_has() {
    let user = User::new();
    let stall = FaultKind::Stall { after_events: 3, ms: None };
    let model = FakeLlm::start(Script::new([
        Turn::call("write", json!({"path": "a.txt", "content": "otter\n"})),
        Turn::text("The end of it.").fault(stall),
    ]))
    .expect("a model");
    let command = |args: &[&str]| {
        let mut command = user.flovyn(&[&["chat", "-p", "--yes", "--model", "anthropic/m"], args].concat());
        command.env("ANTHROPIC_BASE_URL", model.url()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let child = Running(command(&["Go"]).spawn().expect("it starts"));
    until("the second model call is on its way", || model.requests().len() == 2);
    child.kill();
    let output = command(&["--resume"]).output().expect("it runs");
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "The end of it.\n");
    assert_eq!(model.requests().len(), 3, "the first call, the one that was killed, the same again");
    assert_eq!(user.sessions().len(), 1);
}

#[test]
fn any_bytes_are_taken_from_the_command_line_and_from_a_pipe() {
    use std::os::unix::ffi::OsStrExt;
    let user = User::new();
    let fake = user.script("[[turns]]\ntext = \"You said {{lastUser}}.\"\n");
    for (argument, piped, said) in [
        (
            &b"caf\xe9"[..],
            vec![],
            "You said caf\u{fffd}\n\n[The prompt is not UTF-8: unreadable bytes are shown as \u{fffd}.].\n",
        ),
        (b"Look:", b"a\0b\xff".to_vec(), "You said Look:\n\na\u{2400}b\u{fffd}\n\n[The input is not UTF-8"),
        (b"Look:", vec![b'x'; 10 << 20], "You said Look:\n\nxxx"),
    ] {
        let mut command = user.flovyn(&["chat", "-p"]);
        command.arg(std::ffi::OsStr::from_bytes(argument)).arg(&fake);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(&piped).expect("all of it is read");
        drop(pipe);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", told(&output));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with(said) && text.len() < 500_000, "{} bytes: {:.300}", text.len(), text);
        assert_eq!(text.contains("[The input is too long: 9.6 MB of 10.0 MB"), piped.len() > 1_000_000);
    }
}
