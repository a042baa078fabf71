//! Tools as tasks of the engine: a worker that is killed with SIGKILL neither repeats nor forgets what was done.

use crate::caller::call_all;
use crate::worker_process::{self, WorkerProcess, wait_for};
use flovyn_core::error::Result;
use flovyn_toolkit::tools::{CallRecords, Sandbox, ToolCallInput, ToolEnvironment, ToolHost, ToolOutcome, Toolbox};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs the calls of a folder's `calls.json` to their end.
async fn work(folder: &Path) -> Result<Vec<ToolOutcome>> {
    let environment = ToolEnvironment::open(folder.join("work"))?.with_sandbox(Sandbox::Off);
    let host = ToolHost::new(environment, CallRecords::open(folder.join("records"))?);
    let calls = serde_json::from_slice(&fs::read(folder.join("calls.json")).expect("calls.json")).expect("calls");
    call_all(folder, &Toolbox::host()?, &host, &calls).await
}

#[test]
#[ignore = "the worker process that the other tests start and kill"]
fn worker_process() {
    worker_process::serve(work);
}

fn start(folder: &Path) -> WorkerProcess {
    WorkerProcess::start("durability::worker_process", folder)
}

/// A folder for a worker process, with the calls it is to make.
fn prepared(calls: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("work")).expect("a folder");
    let calls: Vec<_> = calls.iter().map(|(name, arguments)| (name, ToolCallInput::new(arguments.clone()))).collect();
    fs::write(folder.path().join("calls.json"), serde_json::to_vec(&calls).expect("JSON")).expect("it is written");
    folder
}

#[test]
fn a_command_whose_worker_was_killed_is_not_run_again() {
    let command = "echo x >> log; echo begun; echo trouble >&2; setsid sleep 3621 & sleep 3621";
    let folder = prepared(&[("bash", json!({ "command": command })), ("bash", json!({ "command": "echo next" }))]);
    let log = folder.path().join("work/log");
    let worker = start(folder.path());
    let printed = || {
        let records = fs::read_dir(folder.path().join("records")).into_iter().flatten().flatten();
        records
            .filter_map(|file| fs::read_to_string(file.path()).ok())
            .any(|text| text.contains("begun\n") && text.contains("trouble\n"))
    };
    wait_for("the command's output", printed);
    worker.kill();
    let outcomes: Vec<ToolOutcome> = start(folder.path()).result();
    let text = outcomes[0].plain_text();
    assert_eq!(outcomes[0].error_code(), Some("interrupted"), "{outcomes:?}");
    assert!(text.starts_with("Interrupted after start, outcome unknown"), "{text}");
    assert!(text.contains("begun\n") && text.contains("trouble"), "what it printed is there: {text}");
    assert_eq!(fs::read_to_string(log).unwrap(), "x\n", "it ran once");
    assert_eq!((outcomes[1].plain_text().as_str(), outcomes[1].is_error), ("next\n", false));
    let left = Command::new("pgrep").args(["-f", "^sleep 3621"]).output().unwrap();
    assert!(left.stdout.is_empty(), "orphans: {}", String::from_utf8_lossy(&left.stdout));
}

#[test]
fn every_change_of_a_file_is_made_once_however_often_the_worker_is_killed() {
    const CHANGES: usize = 60;
    let mut calls = vec![("write", json!({ "path": "count", "content": "count: 0\n" }))];
    for turn in 0..CHANGES {
        let (old, new) = (format!("count: {turn}\n"), format!("count: {}\n", turn + 1));
        calls.push(("edit", json!({ "path": "count", "old_string": old, "new_string": new })));
        calls.push(("write", json!({ "path": format!("files/{turn}"), "content": turn.to_string() })));
        calls.push(("read", json!({ "path": "count" })));
    }
    let folder = prepared(&calls);
    let mut kills = 0;
    // Each life is a little longer than the last, so that the run ends.
    for life in 1..60 {
        let mut worker = start(folder.path());
        let until = Instant::now() + Duration::from_millis(60 + 7 * life);
        while Instant::now() < until && !worker.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if worker.has_ended() {
            break;
        }
        worker.kill();
        kills += 1;
    }
    let outcomes: Vec<ToolOutcome> = start(folder.path()).result();
    assert!(kills >= 3, "{kills} kills");
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_error).collect();
    assert!(wrong.is_empty(), "after {kills} kills: {wrong:?}");
    assert_eq!(fs::read_to_string(folder.path().join("work/count")).unwrap(), format!("count: {CHANGES}\n"));
    for turn in 0..CHANGES {
        let read = outcomes[3 + 3 * turn].plain_text();
        assert_eq!(read, format!("     1\tcount: {}\n", turn + 1), "each read saw the change before it");
    }
    let left = crate::names(&folder.path().join("work"));
    assert_eq!(left, ["count", "files"], "no half-written file is left");
}

#[tokio::test]
async fn a_session_works_in_its_own_directory_where_the_worker_serves_it() {
    let folder = prepared(&[]);
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("work/project")).unwrap();
    let root = folder.path().join("work").canonicalize().unwrap();
    let call = |directory: &Path| {
        let mut input = ToolCallInput::new(json!({ "path": "f", "content": "here" }));
        input.working_directory = Some(directory.to_owned());
        ("write", input)
    };
    let calls = [call(&root.join("project")), call(Path::new("project")), call(other.path()), call(Path::new("none"))];
    fs::write(folder.path().join("calls.json"), serde_json::to_vec(&calls).unwrap()).unwrap();
    let outcomes = work(folder.path()).await.unwrap();
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.error_code()).collect();
    assert_eq!(codes, [None, None, Some("working_directory"), Some("working_directory")], "{outcomes:?}");
    assert_eq!(fs::read_to_string(root.join("project/f")).unwrap(), "here");
    assert!(crate::names(other.path()).is_empty());
    assert!(outcomes[2].plain_text().contains("does not serve the working directory"));
}

#[tokio::test]
async fn all_that_a_command_printed_is_kept_beside_its_outcome() {
    let folder = prepared(&[("bash", json!({ "command": "echo first; seq 100000" }))]);
    let outcomes = work(folder.path()).await.unwrap();
    assert_eq!(outcomes[0].details["cut"], true);
    let call = outcomes[0].details["fullOutput"]["call"].as_str().unwrap();
    let kept = fs::read_to_string(folder.path().join("records").join(format!("{call}.out"))).unwrap();
    assert!(kept.starts_with("first\n1\n2\n") && kept.ends_with("99999\n100000\n"));
}

#[tokio::test]
async fn edits_of_one_turn_are_known_to_the_next_process() {
    let folder = prepared(&[]);
    let file = folder.path().join("work/f");
    fs::write(&file, "one\ntwo\nthree\n").unwrap();
    // The turn began with what was read before it, which each of its calls names.
    let seen = blake3::hash(b"one\ntwo\nthree\n").to_hex().to_string();
    let environment = || ToolEnvironment::open(folder.path().join("work")).unwrap();
    let edit = |old: &str, new: &str| ToolCallInput {
        session: Some("s".into()),
        seen: Some(seen.clone()),
        ..ToolCallInput::new(json!({ "path": "f", "old_string": old, "new_string": new }))
    };
    let process = async |calls: Vec<(String, ToolCallInput)>, store: &str| {
        // Each process has a store of its own here, so that nothing of its run is known but the records of calls.
        let store = folder.path().join(store);
        fs::create_dir(&store).unwrap();
        let host = ToolHost::new(environment(), CallRecords::open(folder.path().join("records")).unwrap());
        call_all(&store, &Toolbox::host().unwrap(), &host, &calls).await.unwrap()
    };
    let first = process(vec![("edit".into(), edit("one", "1"))], "first").await;
    assert!(!first[0].is_error, "{first:?}");
    let second = process(vec![("edit".into(), edit("two", "2"))], "second").await;
    assert!(!second[0].is_error, "{second:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "1\n2\nthree\n");
    fs::write(&file, "1\n2\nthree\nfour\n").unwrap();
    let third = process(vec![("edit".into(), edit("three", "3"))], "third").await;
    assert_eq!(third[0].error_code(), Some("stale"), "{third:?}");
}
