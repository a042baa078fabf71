//! A chat over a server whose workers do the work.

use super::*;
use std::io::{BufRead, BufReader};

/// Starts a command and gives the first line that it prints.
pub fn start(mut command: Command) -> (Running, String) {
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
