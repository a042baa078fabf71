//! Chats with agents of others.

use super::*;

const AGENT: &str = concat!("python3 ", env!("CARGO_MANIFEST_DIR"), "/../toolkit/tests/external/fake_agent.py acp");

fn chat(user: &User, args: &[&str]) -> Output {
    let kept = user.project().join("../kept");
    std::fs::create_dir_all(&kept).expect("a folder");
    let mut command = user.flovyn(&[&["chat"], args, &["--env", "FAKE_DIR", "--yes"]].concat());
    command.env("FAKE_DIR", kept).output().expect("it runs")
}

#[test]
fn an_agent_of_others_is_talked_with() {
    let user = User::new();
    let output = chat(&user, &["-p", "say Hello; tool read; say Done", "--agent", AGENT]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Done"), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("read"), "{}", told(&output));
    // It knows with whom it was, and the agent what was said.
    let output = chat(&user, &["-p", "say More", "--resume"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("More"), "{}", told(&output));
    let log = std::fs::read_to_string(user.project().join("../kept/log.jsonl")).expect("a log");
    assert_eq!((log.matches("\"new\"").count(), log.matches("session/load").count()), (1, 1), "{log}");
}

#[test]
fn an_agent_that_is_not_there_is_said() {
    let user = User::new();
    let output = chat(&user, &["-p", "Hello", "--agent", "no-such-agent --acp"]);
    assert!(!output.status.success());
    assert!(told(&output).contains("\"no-such-agent\" is not installed here"), "{}", told(&output));
    let output = chat(&user, &["-p", "Hello", "--agent", "pi", "--max-turns", "3"]);
    assert!(told(&output).contains("--max-turns"), "{}", told(&output));
}
