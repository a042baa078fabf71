//! A full disk is said while it lasts: who waits for a result hears of it, and a close puts nothing in the place of that.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::clock::Timestamp;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::payload::Payload;
use flovyn_core::runtime::Runtime;
use flovyn_core::streaming::Hints;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::{Worker, WorkerOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const PAGES: u64 = 40;
const ROOM: u64 = 1 << 20;

/// A small RAM disk, where this user may mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut asked = Command::new("mount");
        asked.args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(folder.path()).stderr(Stdio::null());
        let mounted = asked.status().is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("skipped: this user may mount no RAM disk that can be filled");
        }
        mounted.then_some(Self(folder))
    }

    /// Leaves so much room, and no more.
    fn fill(&self, room: u64) {
        let mut filler = std::fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[0; 1 << 16]).is_ok() {}
        filler.set_len(filler.metadata().unwrap().len() - room).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

struct Page;

#[async_trait]
impl TaskDefinition for Page {
    type Input = u64;
    type Output = String;
    fn kind(&self) -> &str {
        "page"
    }
    async fn execute(&self, _: &TaskContext, number: u64) -> Result<String> {
        // No database can make it smaller.
        let mut state = number + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{state:016x}")
        };
        Ok((0..10_000).map(|_| next()).collect())
    }
}

struct Writer;

#[async_trait]
impl AgentDefinition for Writer {
    type State = ();
    type Input = ();
    type Output = u64;
    fn kind(&self) -> &str {
        "writer"
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<u64> {
        for number in 0..PAGES {
            ctx.schedule::<String>("page", &number)?.await?;
        }
        Ok(PAGES)
    }
}

/// A worker over a backend whose disk is filled meets the end of the room: who waits for its run is told.
async fn told_while_it_lasts(runtime: &Runtime, disk: &Disk) -> (Worker, Handle) {
    disk.fill(ROOM);
    let host = Arc::new(NativeHost::default().agent(Writer).unwrap().task(Page).unwrap());
    let worker = runtime.worker(host, WorkerOptions::default()).await.unwrap();
    let handle = runtime.client().start("writer", Payload::null(), StartOptions::default()).await.unwrap();
    let hints = runtime.storage().hints().clone();
    let since = first(&hints).await;
    let late = handle.outcome(Some(Duration::from_secs(6))).await.unwrap_err();
    assert_eq!(late.code(), Code::Timeout, "{late}");
    for words in ["taken no writes since", "No space left|full", "room"] {
        assert!(words.split('|').any(|one| late.message().contains(one)), "{words:?} is missing in {late}");
    }
    // Small writes may be kept meanwhile, and each is tried again and again: it is one outage all the time.
    assert_eq!(hints.outage().now().map(|refusal| refusal.since), Some(since), "it was over, or is another");
    (worker, handle)
}

/// When it began.
async fn first(hints: &Hints) -> Timestamp {
    for _ in 0..400 {
        if let Some(refusal) = hints.outage().now() {
            return refusal.since;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nothing was refused");
}

/// With room again, the run goes on by itself, and nothing is said any more.
async fn over_once_there_is_room(runtime: &Runtime, handle: Handle, disk: &Disk) {
    std::fs::remove_file(disk.filler()).unwrap();
    assert_eq!(handle.result(Some(Duration::from_secs(60))).await.unwrap().parse::<u64>().unwrap(), PAGES);
    for _ in 0..400 {
        if runtime.storage().hints().outage().now().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it is never over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_while_it_lasts() {
    let Some(disk) = Disk::mount() else { return };
    let url = format!("sqlite:{}", disk.0.path().join("runs.db").display());
    let runtime = Runtime::open(&url).await.unwrap();
    let (_worker, handle) = told_while_it_lasts(&runtime, &disk).await;
    over_once_there_is_room(&runtime, handle, &disk).await;
    runtime.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_on_a_full_disk_hides_nothing() {
    let Some(disk) = Disk::mount() else { return };
    let url = format!("sqlite:{}", disk.0.path().join("runs.db").display());
    let runtime = Runtime::open(&url).await.unwrap();
    let (worker, _) = told_while_it_lasts(&runtime, &disk).await;
    // Whoever closes now has met that error, or has a result: neither is replaced.
    worker.close(Duration::from_millis(100)).await.unwrap();
    runtime.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_postgres_is_said_while_it_lasts() {
    use std::os::unix::fs::{MetadataExt, chown};
    let Some(disk) = Disk::mount() else { return };
    let cluster = flovyn_core::testing::postgres::Cluster::shared();
    let owner = std::fs::metadata(cluster.sql("postgres", "SHOW data_directory").unwrap()).unwrap();
    let space = disk.0.path().join("space");
    std::fs::create_dir(&space).unwrap();
    chown(&space, Some(owner.uid()), Some(owner.gid())).unwrap();
    let url = cluster.fresh().unwrap();
    cluster.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", space.display())).unwrap();
    cluster.sql("postgres", "GRANT CREATE ON TABLESPACE small TO tenant").unwrap();
    let runtime = Runtime::open(&format!("{url}%20-cdefault_tablespace%3Dsmall")).await.unwrap();
    let (_worker, handle) = told_while_it_lasts(&runtime, &disk).await;
    over_once_there_is_room(&runtime, handle, &disk).await;
    runtime.close().await.unwrap();
}
