//! A disk that is full is said by who is asked whether the server is ready, for as long as it is.
#![cfg(target_os = "linux")]

mod house;

use house::{BASE, House};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A small RAM disk, where this user may mount one.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Option<Self> {
        let mut asked = Command::new("mount");
        let asked = asked.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(folder).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success()).then(|| Self(folder.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_said_by_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path()) else {
        eprintln!("skipped: this user may mount no RAM disk that can be filled");
        return;
    };
    let filler = disk.0.join("filler");
    std::fs::write(&filler, vec![0; 2 << 20]).unwrap();
    let house = House::over(&format!("sqlite:{}", disk.0.join("runs.db").display()), folder).await;
    let ready = async || house.ask("GET", "/_/ready", &[], "").await;
    assert_eq!(ready().await.0, 200);
    let start = async |id: usize| {
        let body = json!({ "kind": "never", "id": format!("run-{id}"), "input": "x".repeat(100_000) });
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
    let (status, told) = ready().await;
    let told = told.as_str().unwrap_or_default().to_owned();
    assert_eq!(status, 503, "{told}");
    for words in ["taken no writes since", "full", "make room"] {
        assert!(told.contains(words), "{words:?} is missing in {told:?}");
    }
    // What is there can be read meanwhile.
    house.get(BASE).await;
    std::fs::remove_file(&filler).unwrap();
    assert!(start(started).await.0 < 300);
    // Housekeeping, which may have been refused too, tries again within half a second.
    for _ in 0..200 {
        if ready().await.0 == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (status, told) = ready().await;
    assert_eq!(status, 200, "{told:#}");
    house.serving.stop().await.unwrap();
}
