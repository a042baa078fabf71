//! Processes whose machine has the wrong time: the database's clock counts, so they disturb nobody and see what others see.
//!
//! A child lives under faketime: its wall clock is ahead, behind, or set while it runs.

use flovyn_core::clock::{Clock, SystemClock};
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{NewExecution, Status};
use flovyn_core::payload::Payload;
use flovyn_core::storage::postgres::{PostgresOptions, PostgresStorage};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::storage::{ClaimRequest, Storage};
use flovyn_core::testing::postgres::Cluster;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ORG: OrgId = OrgId::DEFAULT;
/// What separates two processes that agree, at most: the way to the database, and a machine that is busy.
const CLOSE: Duration = Duration::from_secs(5);

fn connect(url: &str) -> Arc<dyn Storage> {
    match url.strip_prefix("sqlite:") {
        Some(file) => Arc::new(SqliteStorage::open(file, SqliteOptions::default()).unwrap()),
        None => Arc::new(PostgresStorage::connect(url, PostgresOptions::default()).unwrap()),
    }
}

/// A database of each kind that processes share.
fn databases(folder: &Path) -> [String; 2] {
    [Cluster::shared().fresh().unwrap(), format!("sqlite:{}", folder.join("runs.db").display())]
}

fn new() -> NewExecution {
    NewExecution::new(ExecutionId::fresh(), "agent", Payload::of("go").unwrap()).unwrap()
}

fn claim(queue: &str) -> ClaimRequest {
    ClaimRequest {
        org: ORG,
        worker: WorkerId::fresh(),
        queue: queue.into(),
        kinds: ["agent".to_owned()].into(),
        limit: 9,
        ttl: Duration::from_secs(30),
        only: None,
    }
}

/// Keeps house and looks for work, as any process does; in one of its own until it is ended, and tells its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_keeps_house() {
    let child = std::env::var("FLOVYN_CHILD_URL");
    let url = child.clone().unwrap_or_else(|_| Cluster::shared().fresh().unwrap());
    let storage = connect(&url);
    let mut rounds = 0;
    while child.is_ok() || rounds < 5 {
        storage.pass().await.unwrap();
        assert!(storage.claim_agents(claim("other")).await.unwrap().is_empty());
        println!("\ntime {}", storage.clock().now().0);
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What faketime puts before a program: its command would stand between the test and its child.
fn library() -> OsString {
    let told = Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output();
    String::from_utf8(told.expect("faketime is installed").stdout).unwrap().trim().into()
}

/// A process whose wall clock is moved.
struct Elsewhere {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Elsewhere {
    fn start(url: &str, by: (&str, &OsStr)) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_keeps_house", "--nocapture", "--test-threads=1"])
            .envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("DONT_FAKE_MONOTONIC", "1")])
            .envs([("LD_PRELOAD", library()), ("FLOVYN_CHILD_URL", url.into())])
            .env(by.0, by.1)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// How far its time is from this machine's, after some more rounds.
    fn off(&mut self) -> Duration {
        let times = self.lines.by_ref().filter_map(|line| line.unwrap().strip_prefix("time ")?.parse::<i64>().ok());
        let time = times.take(10).last().expect("it keeps house");
        Duration::from_micros(time.abs_diff(SystemClock::default().now().0))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run that somebody holds, and one that is to begin in an hour.
async fn started(storage: &dyn Storage) -> (ExecutionId, u64, ExecutionId) {
    let held = storage.create_execution(new()).await.unwrap().execution.new.id;
    let epoch = storage.claim_agents(claim("default")).await.unwrap()[0].lease.epoch;
    let later = NewExecution { delay: Some(Duration::from_secs(3_600)), ..new() };
    (held, epoch, storage.create_execution(later).await.unwrap().execution.new.id)
}

async fn undisturbed(storage: &dyn Storage, (held, epoch, later): (ExecutionId, u64, ExecutionId)) {
    let run = storage.execution(ORG, held).await.unwrap();
    assert_eq!((run.status, run.epoch), (Status::Running, epoch));
    assert_eq!(storage.execution(ORG, later).await.unwrap().status, Status::Pending);
    assert!(storage.claim_agents(claim("default")).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_a_wrong_clock_disturbs_nobody() {
    for by in ["+60s", "-3600s", "+400d"] {
        let folder = tempfile::tempdir().unwrap();
        for url in databases(folder.path()) {
            let storage = connect(&url);
            let runs = started(&*storage).await;
            let mut elsewhere = Elsewhere::start(&url, ("FAKETIME", by.as_ref()));
            let off = elsewhere.off();
            assert!(off < CLOSE, "{url}, {by}: {off:?}");
            undisturbed(&*storage, runs).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_while_its_process_lives_disturbs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("by");
    for url in databases(folder.path()) {
        std::fs::write(&file, "+0s\n").unwrap();
        let storage = connect(&url);
        let runs = started(&*storage).await;
        let mut elsewhere = Elsewhere::start(&url, ("FAKETIME_TIMESTAMP_FILE", file.as_os_str()));
        for by in ["+0s", "+3600s", "-3600s", "+0s"] {
            std::fs::write(&file, format!("{by}\n")).unwrap();
            let off = elsewhere.off();
            assert!(off < CLOSE, "{url}, {by}: {off:?}");
        }
        undisturbed(&*storage, runs).await;
    }
}

/// On one file the first process's time counts, right or wrong, and goes on when that process has ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_file_goes_on_when_the_process_that_led_it_ends() {
    let hour = Duration::from_secs(3_600);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("runs.db").display());
    let mut elsewhere = Elsewhere::start(&url, ("FAKETIME", "+3600s".as_ref()));
    assert!(elsewhere.off().abs_diff(hour) < CLOSE);
    let storage = connect(&url);
    let ahead = || storage.clock().now().since(SystemClock::default().now()).abs_diff(hour);
    let runs = started(&*storage).await;
    assert!(ahead() < CLOSE, "{:?}", ahead());
    drop(elsewhere);
    let mut elsewhere = Elsewhere::start(&url, ("FAKETIME", "-3600s".as_ref()));
    assert!(elsewhere.off().abs_diff(hour) < CLOSE);
    assert!(ahead() < CLOSE, "{:?}", ahead());
    undisturbed(&*storage, runs).await;
}
