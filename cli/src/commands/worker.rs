//! `flovyn worker`: the built-in agent, its model calls and the host tools of this machine, for a database or a server.

use super::serve::{Termination, stop_signal};
use crate::Result;
use crate::args::{Log, Words};
use crate::chat::{
    Confinement, LocalAgents, Models, ToolSettings, WorkerSetup, counts, problem_lines, servers_of_files,
};
use crate::logs::{self, Format};
use crate::print::Output;
use crate::target::Target;
use clap::Args;
use flovyn_core::worker::WorkerOptions;
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tracing::info;

/// How long running tools and model calls may take when the worker is stopped.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[command(flatten)]
    words: Words,
    /// The queue whose runs it advances
    #[arg(long, default_value = "default")]
    queue: String,
    /// Where tools work unless a run names another directory beneath it or beneath a --root
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Another directory that runs may work in; may be given several times
    #[arg(long = "root", value_name = "DIRECTORY")]
    roots: Vec<PathBuf>,
    /// Allow every tool call that a run does not ask about itself; otherwise a person is asked before changes and commands
    #[arg(short, long)]
    yes: bool,
    /// Runs that advance at the same time; waiting ones do not count
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_agents: usize,
    /// Also serve a scripted model as fake/scripted
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, require_equals = true)]
    fake: Option<Option<PathBuf>>,
    /// MCP servers whose tools are served too, in a file with mcpServers; may be given several times
    #[arg(long, value_name = "FILE")]
    mcp: Vec<PathBuf>,
    #[command(flatten)]
    confinement: Confinement,
    #[command(flatten)]
    log: Log,
}

/// Runs `flovyn worker` until a signal stops it.
pub(crate) async fn worker(args: Worker, out: &mut Output) -> Result {
    logs::init(args.log.format.unwrap_or(Format::Text))?;
    let target = Target::parse(args.words.words, &[])?;
    let sandbox = args.confinement.word();
    let models = Models::open(args.fake.as_ref().map(Option::as_deref))?;
    let servers = servers_of_files(&args.mcp)?;
    let runtime = target.open().await?;
    let setup = WorkerSetup {
        directory: &args.directory,
        roots: args.roots,
        store: target.url(),
        confinement: args.confinement,
        servers,
        tools: ToolSettings::default(),
        kinds: Vec::new(),
        readable: None,
        external: Vec::new(),
    };
    let approvals = if args.yes { ApprovalPolicy::allow_all() } else { ApprovalPolicy::default() };
    let mut local_agents = LocalAgents::open(setup, &models, approvals);
    let toolkit = local_agents.wait_open().await?;
    let options = WorkerOptions { queue: args.queue.clone(), max_agents: args.max_agents, ..WorkerOptions::default() };
    let worker = runtime.worker(toolkit.host(), options).await?;
    let signal = stop_signal()?;
    let served = toolkit.tools();
    let (tools, problem_lines) = (counts(&served), problem_lines(&served, &toolkit.problems()));
    let registry = models.registry();
    let providers: Vec<_> = registry.providers().collect();
    if out.is_json() {
        out.value(&json!({
            "url": target.url(),
            "queue": args.queue,
            "providers": providers,
            "sandbox": sandbox,
            "mcpServers": tools,
            "mcpProblems": problem_lines,
        }))?;
    } else {
        out.line(&format!("Working for {} (queue {})", target.url(), args.queue))?;
        out.line(&format!("  models of  {}", providers.join(", ")))?;
        out.line(&format!("  sandbox    {sandbox}"))?;
        if !tools.is_empty() {
            let tools: Vec<_> = tools.iter().map(|(server, count)| format!("{server} ({count} tools)")).collect();
            out.line(&format!("  tools of   {}", tools.join(", ")))?;
        }
        problem_lines.iter().try_for_each(|line| out.line(&format!("  ! {line}")))?;
        out.line("Ctrl-C ends it.")?;
    }
    info!(
        version = env!("CARGO_PKG_VERSION"),
        db = runtime.storage().describe(),
        queue = args.queue,
        "the worker has started"
    );
    let termination = Termination::received(signal.await);
    worker.close(GRACE).await?;
    runtime.close().await?;
    local_agents.close().await;
    termination.log_ended();
    Ok(())
}
