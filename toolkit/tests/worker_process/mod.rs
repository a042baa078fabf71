//! A worker in a process of its own, for tests that kill it: this very program, run again for one ignored test.
#![allow(dead_code)]

use flovyn_core::error::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the process finds its files.
const FOLDER: &str = "FLOVYN_TEST_FOLDER";
/// What it leaves in its folder when it has come to its end.
const RESULT: &str = "result.json";

/// Does the work of the worker process that this is, and leaves what comes of it; does nothing in a run of all tests.
pub(crate) fn serve<T: Serialize>(work: impl AsyncFnOnce(&Path) -> Result<T>) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let result = runtime.block_on(work(&folder)).expect("the work is done");
    fs::write(folder.join(RESULT), serde_json::to_vec(&result).expect("JSON")).expect("it is written");
}

/// A worker process. It dies with this value.
pub(crate) struct WorkerProcess {
    child: Child,
    folder: PathBuf,
}

impl WorkerProcess {
    /// Starts the ignored test of this name over a folder.
    pub(crate) fn start(test: &str, folder: &Path) -> Self {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { child, folder: folder.to_owned() }
    }

    /// Kills it with SIGKILL; nothing of it lives when this returns.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Whether it has come to its end.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is asked").is_some()
    }

    /// Waits for its end; what it left.
    pub(crate) fn result<T: DeserializeOwned>(mut self) -> T {
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "the worker process: {status}");
        serde_json::from_slice(&fs::read(self.folder.join(RESULT)).expect("a result")).expect("JSON")
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("it is dead");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits half a minute, at most, until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}
