//! A disk that is full is said by who is asked whether the server is ready, and by who waits for a run, for as long as it is.
#![cfg(target_os = "linux")]

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::Code;
use flovyn_core::model::TaskOptions;
use flovyn_core::payload::Payload;
use house::{BASE, House, agent, job};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGES: u64 = 60;

/// A small RAM disk, where this user may mount one.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Option<Self> {
        let mut asked = Command::new("mount");
        let asked = asked.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success()).then(|| Self(folder.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// 160 kB that are like no others.
fn noise(seed: u64) -> String {
    let mut state = seed + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{state:016x}")
    };
    (0..10_000).map(|_| next()).collect()
}

/// Asks until the server is ready, or is not; what it says.
async fn until(house: &House, ready: bool) -> String {
    let wanted = if ready { 200 } else { 503 };
    for _ in 0..400 {
        let (status, told) = house.ask("GET", "/_/ready", &[], "").await;
        if status == wanted {
            return told.as_str().unwrap_or_default().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("/_/ready never answered {wanted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_by_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path()) else {
        eprintln!("skipped: this user may mount no RAM disk that can be filled");
        return;
    };
    let filler = disk.0.join("filler");
    std::fs::write(&filler, vec![0; 13 << 20]).unwrap();
    let house = House::over(&format!("sqlite:{}", disk.0.join("runs.db").display()), folder).await;
    until(&house, true).await;

    // A worker elsewhere fills the disk: who waits for its run is told, and so is who asks whether the server is ready.
    let page = job("page", TaskOptions::default(), |_, n| {
        Box::pin(async move { Ok(json!(noise(n.as_u64().unwrap_or_default()))) })
    });
    let writer = agent("writer", |ctx, _| {
        Box::pin(async move {
            for n in 0..PAGES {
                ctx.schedule::<String>("page", &n)?.await?;
            }
            Ok(json!(PAGES))
        })
    });
    let (remote, worker) = house.worker(NativeHost::default().agent(writer).unwrap().task(page).unwrap()).await;
    let run = remote.client().start("writer", Payload::null(), StartOptions::default()).await.unwrap();
    let told = until(&house, false).await;
    for words in ["taken no writes since", "full", "make room"] {
        assert!(told.contains(words), "{words:?} is missing in {told:?}");
    }
    let late = run.outcome(Some(Duration::from_secs(3))).await.unwrap_err();
    assert_eq!(late.code(), Code::Timeout, "{late}");
    assert!(late.message().contains("taken no writes since") && late.message().contains("make room"), "{late}");
    // What is there can be read meanwhile.
    house.get(BASE).await;
    std::fs::remove_file(&filler).unwrap();
    assert_eq!(run.result(Some(Duration::from_secs(60))).await.unwrap().parse::<u64>().unwrap(), PAGES);
    until(&house, true).await;
    worker.close(Duration::ZERO).await.unwrap();
    remote.close().await.unwrap();

    // Nobody waits for the store: a start that was refused is not tried again, and yet the server is ready once there is room.
    let mut filling = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut filling, &[0; 1 << 12]).is_ok() {}
    drop(filling);
    let start = async |id: usize| {
        let body = json!({ "kind": "never", "id": format!("run-{id}"), "input": noise(1_000 + id as u64) });
        house.ask("POST", BASE, &[], &body.to_string()).await
    };
    let mut started = 0;
    let (status, told) = loop {
        let (status, told) = start(started).await;
        if status >= 300 {
            break (status, told);
        }
        started += 1;
        assert!(started < 200, "the disk never filled");
    };
    assert_eq!(status, 503, "{told:#}");
    until(&house, false).await;
    std::fs::remove_file(&filler).unwrap();
    until(&house, true).await;
    let (status, told) = start(started).await;
    assert!(status < 300, "{told:#}");
    house.serving.stop().await.unwrap();
}
