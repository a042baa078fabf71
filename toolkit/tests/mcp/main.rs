//! MCP servers as a model uses them: real processes and real HTTP, killed for real.

mod asking;
#[path = "../caller/mod.rs"]
mod caller;
mod changing;
mod durability;
mod elicitation;
mod ends;
mod failing;
mod instructions;
mod listing;
mod long_results;
mod odd;
mod python_server;
mod questions;
mod reference;
mod sampling;
mod server;
mod tasks;
#[path = "../timeless/mod.rs"]
mod timeless;
#[path = "../worker_process/mod.rs"]
mod worker_process;

use flovyn_toolkit::mcp::{McpConfig, McpServers};
use flovyn_toolkit::tools::{Limits, Sandbox, ToolEnvironment, ToolOutcome, Toolbox};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use worker_process::wait_for;

/// How the servers of a test are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Pipes,
    Http,
}

/// One server named `probe`, with its tools.
struct Probe {
    folder: TempDir,
    process: Option<HttpServer>,
    servers: McpServers,
    toolbox: Toolbox,
    environment: ToolEnvironment,
}

impl Probe {
    async fn new(over: Over, era: &str) -> Self {
        Self::with_timeout(over, era, Duration::from_secs(20)).await
    }

    async fn with_timeout(over: Over, era: &str, timeout: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (process, config) = match over {
            Over::Pipes => (None, pipes(folder.path(), era)),
            Over::Http => {
                let process = HttpServer::start(folder.path(), era, 0);
                let config = json!({ "url": process.url(), "headers": { "Authorization": server::KEY } });
                (Some(process), config)
            }
        };
        Self::serve(folder, process, config, timeout).await
    }

    /// Any server in place of the one of these tests.
    async fn of(config: Value, timeout: Duration) -> Self {
        Self::serve(tempfile::tempdir().expect("a folder"), None, config, timeout).await
    }

    async fn serve(folder: TempDir, process: Option<HttpServer>, config: Value, timeout: Duration) -> Self {
        let servers = servers(config, timeout);
        let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
        assert!(
            problems.iter().all(|problem| problem.message.contains("its tool") || problem.message.contains("a tool")),
            "{problems:?}"
        );
        let environment = environment(folder.path());
        Self { folder, process, servers, toolbox, environment }
    }

    async fn call(&self, tool: &str, arguments: Value) -> ToolOutcome {
        let name = format!("mcp__probe__{tool}");
        self.toolbox.call(&name, arguments, &self.environment).await.expect("the machine works")
    }

    fn noted(&self, line: &str) -> usize {
        server::noted(self.folder.path(), line)
    }
}

fn environment(folder: &Path) -> ToolEnvironment {
    let limits = Limits { longest: Duration::from_secs(30), ..Limits::default() };
    ToolEnvironment::open(folder).expect("it opens").with_sandbox(Sandbox::Off).with_limits(limits)
}

/// The configuration of a server on pipes. The shell gives it descriptor 3 for what the harness does not print on.
fn pipes(folder: &Path, era: &str) -> Value {
    let program = std::env::current_exe().expect("this program");
    let script = "exec \"$0\" --exact server::on_pipes --ignored --nocapture 3>&1 >/dev/null";
    json!({
        "command": "sh", "args": ["-c", script, program],
        "env": { server::FOLDER: folder, server::ERA: era, "KEY": server::KEY },
    })
}

fn servers(config: Value, timeout: Duration) -> McpServers {
    let mut config = config;
    config["timeout"] = Value::from(timeout.as_millis() as u64);
    let text = json!({ "mcpServers": { "probe": config } }).to_string();
    McpServers::new(McpConfig::parse(&text, |_| None).expect("a configuration"))
}

/// A server over HTTP in a process of its own.
struct HttpServer {
    child: Child,
    address: String,
}

impl HttpServer {
    fn start(folder: &Path, era: &str, port: u16) -> Self {
        let _ = fs::remove_file(folder.join("address"));
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .args(["--exact", "server::over_http", "--ignored", "--nocapture"])
            .env(server::FOLDER, folder)
            .env(server::ERA, era)
            .env(server::PORT, port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        wait_for("the server's address", || folder.join("address").exists());
        let address = fs::read_to_string(folder.join("address")).expect("an address");
        Self { child, address }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    fn port(&self) -> u16 {
        self.address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it is dead");
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
