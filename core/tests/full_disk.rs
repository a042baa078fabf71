//! A full disk is said while it lasts: who waits for a result hears of it, and a close puts nothing in the place of that.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::payload::Payload;
use flovyn_core::runtime::Runtime;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::WorkerOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const PAGES: u64 = 60;
const ROOM: u64 = 1 << 20;

/// A small RAM disk, where this user may mount one.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Option<Self> {
        let mut asked = Command::new("mount");
        let asked = asked.args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"]).arg(folder).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success()).then(|| Self(folder.to_owned()))
    }

    /// Leaves so much room, and no more.
    fn fill(&self, room: u64) {
        let mut filler = std::fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[0; 1 << 16]).is_ok() {}
        filler.set_len(filler.metadata().unwrap().len() - room).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
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
        Ok(format!("{number:07}").repeat(7_000))
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

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_while_it_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path()) else {
        eprintln!("skipped: this user may mount no RAM disk that can be filled");
        return;
    };
    let url = format!("sqlite:{}", disk.0.join("runs.db").display());
    let runtime = Runtime::open(&url).await.unwrap();
    disk.fill(ROOM);
    let host = || Arc::new(NativeHost::default().agent(Writer).unwrap().task(Page).unwrap());
    let worker = runtime.worker(host(), WorkerOptions::default()).await.unwrap();
    let handle = runtime.client().start("writer", Payload::null(), StartOptions::default()).await.unwrap();
    let late = handle.outcome(Some(Duration::from_secs(4))).await.unwrap_err();
    assert_eq!(late.code(), Code::Timeout, "{late}");
    for words in ["taken no writes since", "full", "make room"] {
        assert!(late.message().contains(words), "{words:?} is missing in {late}");
    }
    let hints = runtime.storage().hints().clone();
    let since = hints.outage().now().expect("it lasts").since;
    // Whoever closes now has met that error, or has a result: neither is replaced.
    worker.close(Duration::from_millis(100)).await.unwrap();
    assert_eq!(hints.outage().now().map(|refusal| refusal.since), Some(since), "it was over, or is another");
    runtime.close().await.unwrap();
    drop((handle, runtime));

    std::fs::remove_file(disk.filler()).unwrap();
    let runtime = Runtime::open(&url).await.unwrap();
    disk.fill(ROOM);
    let _worker = runtime.worker(host(), WorkerOptions::default()).await.unwrap();
    // The first run is taken over when its lease is over: nobody could give it back.
    let handle = runtime.client().start("writer", Payload::null(), StartOptions::default()).await.unwrap();
    let late = handle.outcome(Some(Duration::from_secs(4))).await.unwrap_err();
    assert!(late.message().contains("taken no writes since"), "{late}");
    // It goes on by itself, and nothing is said any more.
    std::fs::remove_file(disk.filler()).unwrap();
    handle.outcome(Some(Duration::from_secs(60))).await.unwrap();
    for _ in 0..200 {
        // A loop that was refused tries again within two seconds.
        if runtime.storage().hints().outage().now().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(runtime.storage().hints().outage().now(), None);
    runtime.close().await.unwrap();
}
