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

/// Runs calls in a folder, each with the handle that the first of them gave in place of `HANDLE`.
async fn with_handle(host: &ToolHost, folder: &Path, calls: &[(&str, Value)]) -> Vec<ToolOutcome> {
    let (toolbox, mut outcomes) = (Toolbox::host().unwrap(), Vec::<ToolOutcome>::new());
    for (number, (name, arguments)) in calls.iter().enumerate() {
        let handle = outcomes.first().and_then(|first| first.details["handle"].as_str()).unwrap_or_default();
        let arguments = serde_json::from_str(&arguments.to_string().replace("HANDLE", handle)).unwrap();
        let store = folder.join(format!("call-{number}"));
        fs::create_dir_all(&store).unwrap();
        let calls = vec![((*name).to_owned(), ToolCallInput::new(arguments))];
        outcomes.extend(call_all(&store, &toolbox, host, &calls).await.unwrap());
    }
    outcomes
}

fn host(folder: &Path) -> ToolHost {
    let environment = ToolEnvironment::open(folder.join("work")).unwrap().with_sandbox(Sandbox::Off);
    ToolHost::new(environment, CallRecords::open(folder.join("records")).unwrap())
}

fn living(pattern: &str) -> bool {
    !Command::new("pgrep").args(["-f", pattern]).output().unwrap().stdout.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_background_is_read_and_stopped() {
    let folder = prepared(&[]);
    let host = host(folder.path());
    let command = "echo begun; cat go; echo on; setsid sleep 3631 & sleep 3631";
    Command::new("mkfifo").arg(folder.path().join("work/go")).status().unwrap();
    let outcomes = with_handle(
        &host,
        folder.path(),
        &[
            ("bash", json!({ "command": command, "background": true })),
            ("bash", json!({ "command": "until grep -q begun ../records/HANDLE.out; do sleep 0.01; done" })),
            ("bash-output", json!({ "handle": "HANDLE" })),
            (
                "bash",
                json!({ "command": "echo went > go; until grep -q on ../records/HANDLE.out; do sleep 0.01; done" }),
            ),
            ("bash-output", json!({ "handle": "HANDLE", "from": 6 })),
            ("bash-stop", json!({ "handle": "HANDLE" })),
            ("bash-stop", json!({ "handle": "HANDLE" })),
            ("bash-output", json!({ "handle": "background-00" })),
            ("bash-output", json!({ "handle": "../agents" })),
        ],
    )
    .await;
    let states: Vec<_> = outcomes.iter().map(|outcome| outcome.details["state"].as_str().unwrap_or("-")).collect();
    assert_eq!(states, ["-", "-", "running", "-", "running", "stopped", "stopped", "-", "-"], "{outcomes:?}");
    let text = |number: usize| outcomes[number].plain_text();
    assert!(text(2).starts_with("begun\n") && !text(2).contains("went"), "{}", text(2));
    assert!(text(4).starts_with("went\non\n") && !text(4).contains("begun"), "{}", text(4));
    assert!(!living("^sleep 3631"), "it ended with all it started");
    assert!(outcomes[7..].iter().all(|outcome| outcome.error_code() == Some("unknown_handle")), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_background_ends_by_itself_or_with_its_worker() {
    let folder = prepared(&[]);
    let host = host(folder.path());
    let calls = [
        ("bash", json!({ "command": "echo done; exit 3", "background": true })),
        ("bash", json!({ "command": "until test -e ../records/HANDLE.end; do sleep 0.01; done" })),
        ("bash-output", json!({ "handle": "HANDLE" })),
        ("bash", json!({ "command": "setsid sleep 3641 & sleep 3641", "background": true })),
    ];
    let outcomes = with_handle(&host, folder.path(), &calls).await;
    let text = outcomes[2].plain_text();
    assert!(text.starts_with("done\n") && text.contains("exit code 3") && outcomes[2].is_error, "{text}");
    wait_for("the second", || living("^sleep 3641"));
    drop(host);
    wait_for("its end with the worker", || !living("^sleep 3641"));
}

#[test]
fn a_command_in_the_background_is_lost_with_a_killed_worker() {
    let command = "echo begun; setsid sleep 3651 & sleep 3651";
    let folder = prepared(&[
        ("bash", json!({ "command": command, "background": true })),
        ("bash", json!({ "command": "sleep 3661" })),
    ]);
    let worker = start(folder.path());
    let handle = || {
        let files = fs::read_dir(folder.path().join("records")).into_iter().flatten().flatten();
        let mut files = files.filter(|file| fs::read_to_string(file.path()).is_ok_and(|text| text == "begun\n"));
        files.find_map(|file| Some(file.file_name().to_str()?.strip_suffix(".out")?.to_owned()))
    };
    wait_for("its output", || handle().is_some() && living("^sleep 3661"));
    worker.kill();
    let handle = handle().unwrap();
    let calls = vec![("bash-output".to_owned(), ToolCallInput::new(json!({ "handle": handle })))];
    let other = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcomes =
        runtime.block_on(call_all(other.path(), &Toolbox::host().unwrap(), &host(folder.path()), &calls)).unwrap();
    let text = outcomes[0].plain_text();
    assert_eq!(outcomes[0].details["state"], "lost", "{outcomes:?}");
    assert!(text.starts_with("begun") && text.contains("It was lost"), "{text}");
    assert!(!living("^sleep 3651"), "nothing of it is left");
    // The call that was under way is settled, with what it had started.
    let settled: Vec<ToolOutcome> = start(folder.path()).result();
    assert_eq!(
        (settled[0].details["handle"].as_str(), settled[1].error_code()),
        (Some(handle.as_str()), Some("interrupted"))
    );
}
