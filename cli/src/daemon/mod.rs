//! `flovyn daemon`: this computer as a machine of a server. It serves the built-in agent and its tools on the queue
//! `machine/NAME`, by connections that it opens itself, within what its own file allows.
//!
//! `settings` is what the file and the options allow, `external` the agents of others among it, `pairing` how the machine gets its key, `offers`
//! what the server is told, `service` the units that start it with the computer.

mod external;
mod offers;
mod pairing;
mod service;
mod settings;

use crate::chat::{Confinement, LocalAgents, Models, ToolSettings, WorkerSetup, policy_of, servers_of_files};
use crate::commands::{Termination, stop_signal};
use crate::logs::{self, Format};
use crate::print::Output;
use crate::{Result, args};
use clap::{Args, Subcommand};
use flovyn_core::error::{Code, Error};
use flovyn_core::runtime::daemon::{MachineConnector, MachineCredentials, MachineKey, store_of};
use flovyn_core::worker::WorkerOptions;
use serde_json::json;
use settings::Settings;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;
use tracing::info;

pub(crate) const AFTER: &str = "Pair this computer first: `flovyn daemon pair --server URL`, then approve the code that it shows\n\
    (`flovyn machines approve CODE`). FLOVYN_HOME, else ~/.flovyn, holds the key (daemon.key) and what this computer\n\
    allows (daemon.toml); each daemon of a computer has a home of its own.";

/// How long running tools and model calls may take when the daemon is stopped.
const GRACE: Duration = Duration::from_secs(10);
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    log: args::Log,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Ask a server to let this computer in: prints a code for whoever approves it, and waits
    Pair(pairing::Pair),
    /// Write the file that starts the daemon with the computer: a systemd user unit, or a launchd agent
    Install(service::Install),
}

/// What is said on the command line instead of in `daemon.toml`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Options {
    /// The server, such as https://flovyn.example.com:9090
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The name of this machine
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A directory that runs may work in, the first of them where they name none; may be given several times
    #[arg(long = "workspace", value_name = "DIR")]
    workspaces: Vec<PathBuf>,
    /// Also serve a scripted model as fake/scripted
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, require_equals = true)]
    fake: Option<Option<PathBuf>>,
}

/// Runs `flovyn daemon`.
pub(crate) async fn daemon(args: Daemon, out: &mut Output) -> Result {
    match args.what {
        Some(What::Pair(pair)) => return pairing::pair(pair, out).await,
        Some(What::Install(install)) => return service::install(&install, out),
        None => {}
    }
    logs::init(args.log.format.unwrap_or(Format::Text))?;
    let home = flovyn_toolkit::config::home()?;
    let settings = Settings::read(&home, &args.options)?;
    let key = MachineKey::read(&home)?;
    pairing::check_options(&key, &args.options)?;
    serve(&settings, &key, &args.options, out).await
}

async fn serve(settings: &Settings, key: &MachineKey, options: &Options, out: &mut Output) -> Result {
    let mut signal = pin!(stop_signal()?);
    let models = Models::open(options.fake.as_ref().map(Option::as_deref))?;
    let approvals = policy_of(&settings.approve)?;
    let confinement = Confinement {
        unsandboxed: !settings.sandbox,
        network: settings.network,
        add_dirs: Vec::new(),
        variables: settings.env.clone(),
        user_caches: false,
    };
    let sandbox = confinement.word();
    let directory = settings.workspaces.first().ok_or_else(settings::no_workspace)?;
    // The tools keep records of calls for each store, and each machine keeps its own.
    let store = store_of(&key.server, &key.name);
    let setup = WorkerSetup {
        directory,
        roots: settings.workspaces[1..].to_vec(),
        store: &store,
        confinement,
        servers: servers_of_files(&settings.mcp)?,
        tools: ToolSettings::default(),
        kinds: settings.kinds.clone(),
        readable: Some(settings.readable.clone()),
        external: settings.external.iter().map(|agent| agent.config(directory, &approvals)).collect(),
    };
    let mut local_agents = LocalAgents::open(setup, &models, approvals);
    let toolkit = local_agents.wait_open().await?;
    let offered = offers::of(settings, directory, sandbox).await?;
    let begin = async {
        let connection = MachineConnector::new(MachineCredentials::Stored(key.clone())).connect().await?;
        connection.announce(&offered).await?;
        let options = WorkerOptions { max_agents: settings.max_agents, ..WorkerOptions::default() };
        let worker = connection.worker(toolkit.host(), options).await?;
        Ok::<_, Error>((connection, worker))
    };
    let begun = tokio::select! {
        begun = begin => Some(begun?),
        _ = &mut signal => None,
    };
    let Some((connection, worker)) = begun else {
        local_agents.close().await;
        return Ok(());
    };
    if out.is_json() {
        out.value(&json!({ "server": key.server, "machine": key.name, "offers": offered }))?;
    } else {
        out.line(&format!("{} works for {}", key.name, key.server))?;
        for workspace in &settings.workspaces {
            out.line(&format!("  workspace  {}", workspace.display()))?;
        }
        out.line(&format!("  agents     {}", settings.all_kinds().join(", ")))?;
        out.line(&format!("  sandbox    {sandbox}"))?;
        out.line("Ctrl-C ends it.")?;
    }
    info!(version = env!("CARGO_PKG_VERSION"), server = key.server, machine = key.name, "the daemon has started");
    let ended = tokio::select! {
        signal = signal => Ok(Termination::received(signal)),
        error = connection.until_refused() => Err(error),
    };
    let closed = worker.close(GRACE).await;
    let closed = closed.and(connection.runtime().close().await);
    local_agents.close().await;
    // A server that lets the machine in no more does not take back what it held either: the leases are over.
    let termination = ended?;
    closed?;
    termination.log_ended();
    Ok(())
}

/// An error about this machine's own files.
fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}
