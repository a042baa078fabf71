//! `flovyn chat` and `flovyn worker` as users have them: the real command with a scripted model, over pipes and terminals.

mod agents;
mod clipboard;
mod commands;
mod conversation;
mod external;
mod headless;
mod input;
mod mcp;
mod models;
mod one_shot;
mod output_schema;
mod plain;
mod project;
mod resize;
mod sandbox;
mod screenshots;
#[path = "../../../toolkit/tests/mcp/server.rs"]
mod server;
#[cfg(target_os = "linux")]
mod still;
mod svg;
mod terminal;
mod tmux;
mod whole;
mod workers;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A user: a home, a project, a script for the model.
struct User {
    folder: TempDir,
}

impl User {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("project")).expect("a project");
        Self { folder }
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project").canonicalize().expect("it is there")
    }

    /// Writes a script and gives the option that takes it.
    fn script(&self, toml: &str) -> String {
        let file = self.folder.path().join("script.toml");
        std::fs::write(&file, toml).expect("a script");
        format!("--fake={}", file.display())
    }

    /// The command in the project, without what the machine of the test has in its environment.
    fn flovyn(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flovyn"));
        command.args(args).current_dir(self.project()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.folder.path()).env("FLOVYN_HOME", self.folder.path().join("home"));
        command.env("TERM", "xterm-256color");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.flovyn(args).output().expect("it runs")
    }

    /// Runs `flovyn chat` with these words and gives its standard output; it has to succeed.
    fn chat(&self, args: &[&str]) -> String {
        let output = self.run(&[&["chat"], args].concat());
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The names of the sessions, newest first.
    fn sessions(&self) -> Vec<String> {
        let listed = self.chat(&["--list", "--json"]);
        let name = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["session"].to_string();
        listed.lines().map(|line| name(line).trim_matches('"').to_owned()).collect()
    }
}

/// What a command said, for failures.
fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "it does not come to be that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when the test is over.
struct Running(Child);

impl Running {
    /// Kills it as `kill -9` does.
    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
