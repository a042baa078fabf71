//! Every example, run as its own process: each checks its own outcome and ends with 0. All but the last run twice, for
//! the second run must find what the first one recorded.

use std::process::Command;

fn runs(program: &str, words: &[&str], times: usize) {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("example.db");
    for time in 1..=times {
        let ended = Command::new(program).args(words).arg(&database).current_dir(folder.path()).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "run {time} ended with {}: {told}", ended.status);
    }
}

#[test]
fn hello() {
    runs(env!("CARGO_BIN_EXE_hello"), &[], 2);
}

#[test]
fn tools_with_retries() {
    runs(env!("CARGO_BIN_EXE_tools"), &[], 2);
}

#[test]
fn human_approval() {
    runs(env!("CARGO_BIN_EXE_approval"), &["both"], 2);
}

#[test]
fn streaming() {
    runs(env!("CARGO_BIN_EXE_streaming"), &[], 2);
}

#[test]
fn branching_conversation() {
    runs(env!("CARGO_BIN_EXE_branching"), &[], 2);
}

#[test]
fn crash_and_resume() {
    runs(env!("CARGO_BIN_EXE_crash"), &[], 1);
}

#[test]
fn research_team() {
    runs(env!("CARGO_BIN_EXE_research-team"), &[], 2);
}

#[test]
fn other_agents() {
    runs(env!("CARGO_BIN_EXE_other-agents"), &[], 2);
}

#[test]
fn coding_agent() {
    runs(env!("CARGO_BIN_EXE_coding-agent"), &[], 2);
}
