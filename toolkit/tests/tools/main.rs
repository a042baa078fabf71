//! The host tools as a model uses them: on real files, with real commands, killed for real.

mod bash;
#[path = "../caller/mod.rs"]
mod caller;
mod containment;
mod durability;
mod edits;
mod fetch;
mod files;
mod named;
mod sandbox;
mod searches;
mod toolbox;
#[path = "../worker_process/mod.rs"]
mod worker_process;

use flovyn_toolkit::tools::{Limits, Sandbox, Tool, ToolEnvironment, ToolOutcome};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A working directory with an environment whose commands are not confined.
struct Work {
    folder: TempDir,
    environment: ToolEnvironment,
}

impl Work {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let environment =
            ToolEnvironment::open(folder.path()).expect("it opens").with_sandbox(Sandbox::Off).with_limits(Limits {
                grace: Duration::from_millis(500),
                drain: Duration::from_millis(500),
                ..Limits::default()
            });
        Self { folder, environment }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("parents are made");
        std::fs::write(path, content).expect("it is written");
    }

    fn get(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path().join(path)).expect(path)
    }

    async fn call(&self, tool: impl Tool, arguments: Value) -> ToolOutcome {
        tool.call(arguments, &self.environment).await.expect("the machine works")
    }
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it can be listed");
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
