//! `flovyn dev` and `flovyn server`: run a server until a signal stops it.

use crate::Result;
use crate::args::{Dev, Server};
use crate::catalog::ToolkitCatalog;
use crate::logs::{self, Format};
use crate::print::Output;
use flovyn_server::protocol::Protocol;
use flovyn_server::{Config, DevOptions, Extensions, Replica};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tracing::{error, info, warn};

/// Runs `flovyn dev`.
pub(super) async fn dev(args: Dev, out: &mut Output) -> Result {
    logs::init(args.log.format.unwrap_or(Format::Text))?;
    let options = DevOptions {
        db: args.db,
        http_port: args.http_port,
        grpc_port: args.grpc_port,
        token_file: args.token_file,
        public_hosts: args.callers.public_hosts,
        cors_origins: args.callers.cors_origins,
        extensions: extensions(),
    };
    let db = options.db.clone();
    let server = flovyn_server::dev(options).await?;
    let signal = stop_signal()?;
    let (grpc, http) = (server.serving().url(), server.serving().http_url());
    let console = server.console_link().await?;
    let files: Vec<_> = server.token_files().iter().map(|file| file.display().to_string()).collect();
    if out.is_json() {
        out.value(&json!({ "grpc": grpc, "http": http, "db": db, "tokenFiles": files, "console": console }))?;
    } else {
        out.line(&format!("Flovyn serves {db}"))?;
        out.line(&format!("  workers and clients  FLOVYN_URL={grpc}"))?;
        out.line(&match console {
            Some(link) => format!("  console              {link}   (once, within ten minutes)"),
            None => "  console              not built: `make web`, then build again".to_owned(),
        })?;
        out.line(&format!("  REST and events      {http}/docs"))?;
        out.line(&format!("  token                {}   ({})", server.token(), files.join(", ")))?;
        out.line("Ctrl-C ends it.")?;
    }
    let termination = Termination::received(signal.await);
    stop_gracefully(termination, server.stop()).await
}

/// Runs `flovyn server`.
pub(super) async fn server(args: Server, out: &mut Output) -> Result {
    // The log starts before the file is read, so that errors of the file are logged in the format of the command line.
    if let Some(format) = args.log.format {
        logs::init(format)?;
    }
    let read = || -> flovyn_core::Result<Config> {
        let mut config = Config::read(&args.config)?;
        config.public_hosts.extend(args.callers.public_hosts.iter().cloned());
        config.cors_origins.extend(args.callers.cors_origins.iter().cloned());
        Ok(config)
    };
    let config = read()?;
    if args.log.format.is_none() {
        logs::init(config.log_format.map_or(Format::Text, Format::from))?;
    }
    let server = Replica::start(&config, extensions()).await?;
    let (mut signal, mut again) = (pin!(stop_signal()?), ReloadSignal::listen()?);
    let (grpc, http, db) = (server.serving().url(), server.serving().http_url(), server.db());
    if out.is_json() {
        out.value(&json!({ "grpc": grpc, "http": http, "db": db }))?;
    } else {
        out.line(&format!("Flovyn serves {db}"))?;
        out.line(&format!("  workers and clients  FLOVYN_URL={grpc} FLOVYN_TOKEN=…   (flovyn keys create)"))?;
        out.line(&format!("  REST and events      {http}/docs"))?;
        if let Some(metrics) = server.metrics() {
            out.line(&format!("  metrics              http://{metrics}/metrics"))?;
        }
    }
    let signal = loop {
        tokio::select! {
            signal = &mut signal => break signal,
            () = again.next() => {}
        }
        // An invalid file is logged and changes nothing.
        match read().and_then(|config| server.reload(&config)) {
            Ok(()) => info!("the file was read again"),
            Err(error) => error!(%error, "the file was read again and cannot be gone by; all stays as it was"),
        }
    };
    stop_gracefully(Termination::received(signal), async {
        // SIGTERM comes from a process manager, which needs time to take callers elsewhere; a user with Ctrl-C does not.
        if signal == StopSignal::Terminate {
            server.serving().drain();
            tokio::time::sleep(server.drain_time()).await;
        }
        server.stop().await
    })
    .await
}

/// What this command adds to a server.
fn extensions() -> Extensions {
    Extensions { catalog: Arc::new(ToolkitCatalog::default()), protocols: protocols() }
}

#[cfg(feature = "v1")]
fn protocols() -> Vec<Arc<dyn Protocol>> {
    vec![Arc::new(flovyn_server_v1::FirstProtocol)]
}

#[cfg(not(feature = "v1"))]
fn protocols() -> Vec<Arc<dyn Protocol>> {
    Vec::new()
}

/// Stops a server gracefully, unless a second signal comes.
async fn stop_gracefully(
    termination: Termination,
    stop: impl Future<Output = flovyn_core::error::Result<()>>,
) -> Result {
    let again = stop_signal()?;
    tokio::select! {
        stopped = stop => {
            stopped?;
            termination.log_ended();
            Ok(())
        }
        signal = again => {
            warn!(why = signal.name(), seconds = termination.seconds(), "it was told to end once more, and ends at once");
            Ok(())
        }
    }
}

/// The end of a process, logged with its signal and its duration.
pub(crate) struct Termination {
    by: StopSignal,
    since: Instant,
}

impl Termination {
    pub(crate) fn received(by: StopSignal) -> Self {
        info!(why = by.name(), "it was told to end");
        Self { by, since: Instant::now() }
    }

    pub(crate) fn log_ended(self) {
        info!(why = self.by.name(), seconds = self.seconds(), "it has ended");
    }

    fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }
}

/// A signal to end the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGTERM, of a process manager.
    Terminate,
    /// Ctrl-C.
    Interrupt,
}

impl StopSignal {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

/// Listens for signals from now on, and resolves with the first. Call it before the process announces itself: a signal may come at
/// once.
#[cfg(unix)]
pub(crate) fn stop_signal() -> std::io::Result<impl Future<Output = StopSignal>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => StopSignal::Terminate,
            _ = interrupted.recv() => StopSignal::Interrupt,
        }
    })
}

/// Listens for signals, and resolves with the first.
#[cfg(not(unix))]
pub(crate) fn stop_signal() -> std::io::Result<impl Future<Output = StopSignal>> {
    Ok(async {
        match tokio::signal::ctrl_c().await {
            Ok(()) => StopSignal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    })
}

/// Listens for SIGHUP: the file is to be read again.
#[cfg(unix)]
struct ReloadSignal(tokio::signal::unix::Signal);

#[cfg(unix)]
impl ReloadSignal {
    fn listen() -> std::io::Result<Self> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// Nothing asks for that here.
#[cfg(not(unix))]
struct ReloadSignal;

#[cfg(not(unix))]
impl ReloadSignal {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
