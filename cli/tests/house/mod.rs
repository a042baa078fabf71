//! The command as an operator runs it, and a server as a process of its own.
#![allow(dead_code, missing_docs)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The command in a folder, whose database it takes for granted.
pub(crate) fn flovyn(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flovyn"));
    command.args(args).env("FLOVYN_URL", "sqlite:agents.db").current_dir(folder);
    command
}

/// What a command tells in JSON.
pub(crate) fn json(folder: &Path, args: &[&str]) -> Value {
    let Output { status, stdout, stderr } = flovyn(folder, &[args, &["--json"]].concat()).output().unwrap();
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

/// A server; it ends with this.
pub(crate) struct Serving {
    pub child: Child,
    /// The URL of its gRPC.
    pub grpc: String,
    /// Where its HTTP listens: `127.0.0.1:PORT`.
    pub http: String,
}

impl Serving {
    pub(crate) fn end(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a server over a database; it listens when this returns. Port 0 picks one.
pub(crate) fn serve(folder: &Path, db: &str, grpc_port: u16) -> Serving {
    let config = format!("db = {db:?}\ngrpc = \"127.0.0.1:{grpc_port}\"\nhttp = \"127.0.0.1:0\"\n");
    serve_by(folder, &format!("flovyn-{grpc_port}.toml"), &config)
}

/// Starts a server by a file that says this; it listens when this returns.
pub(crate) fn serve_by(folder: &Path, file: &str, config: &str) -> Serving {
    std::fs::write(folder.join(file), config).unwrap();
    let mut command = flovyn(folder, &["server", "--json", "--config", file]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).expect("a server that started tells where it listens");
    let word = |name: &str| told[name].as_str().unwrap().to_owned();
    Serving { child, grpc: word("grpc"), http: word("http").replace("http://", "") }
}

/// Sends a signal, as `kill` names it.
pub(crate) fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}
