//! `flovyn dev` and `flovyn server`: a server until it is told to end.

use crate::Result;
use crate::args::{Dev, Server};
use crate::logs::{self, Format};
use crate::print::Output;
use flovyn_server::{Config, DevOptions, Replica};
use serde_json::json;
use std::pin::pin;
use std::time::Instant;
use tracing::{error, info, warn};

/// Serves one developer.
pub async fn dev(args: Dev, out: &mut Output) -> Result {
    logs::begin(args.log.format.unwrap_or(Format::Text))?;
    let options = DevOptions {
        db: args.db,
        http_port: args.http_port,
        grpc_port: args.grpc_port,
        token_file: args.token_file,
        public_hosts: args.proxy.public_hosts,
    };
    let db = options.db.clone();
    let server = flovyn_server::dev(options).await?;
    let told = told_to_end()?;
    let (grpc, http) = (server.serving().url(), server.serving().http_url());
    let files: Vec<_> = server.token_files().iter().map(|file| file.display().to_string()).collect();
    if out.is_json() {
        out.value(&json!({ "grpc": grpc, "http": http, "db": db, "tokenFiles": files }))?;
    } else {
        out.line(&format!("Flovyn serves {db}"))?;
        out.line(&format!("  workers and clients  FLOVYN_URL={grpc}"))?;
        out.line(&format!("  REST and events      {http}/docs"))?;
        out.line(&format!("  token                {}   ({})", server.token(), files.join(", ")))?;
        out.line("Ctrl-C ends it.")?;
    }
    let ending = Ended::by(told.await);
    in_order(ending, server.stop()).await
}

/// Serves those who have keys.
pub async fn server(args: Server, out: &mut Output) -> Result {
    // What is wrong with the file is told as the command line wants it.
    if let Some(format) = args.log.format {
        logs::begin(format)?;
    }
    let read = || -> flovyn_core::Result<Config> {
        let mut config = Config::read(&args.config)?;
        config.public_hosts.extend(args.proxy.public_hosts.iter().cloned());
        Ok(config)
    };
    let config = read()?;
    if args.log.format.is_none() {
        logs::begin(config.log_format.map_or(Format::Text, Format::from))?;
    }
    let server = Replica::start(&config).await?;
    let (mut told, mut again) = (pin!(told_to_end()?), ToldToReadAgain::listen()?);
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
    let told = loop {
        tokio::select! {
            told = &mut told => break told,
            () = again.next() => {}
        }
        // One that cannot be gone by is told, and changes nothing.
        match read().and_then(|config| server.reload(&config)) {
            Ok(()) => info!("the file was read again"),
            Err(error) => error!(%error, "the file was read again and cannot be gone by; all stays as it was"),
        }
    };
    in_order(Ended::by(told), async {
        // Whoever ends it by hand waits for it; whatever manages it has callers to take elsewhere first.
        if told == Told::Terminate {
            server.serving().drain();
            tokio::time::sleep(server.drain_time()).await;
        }
        server.stop().await
    })
    .await
}

/// Lets a server end in its order, unless the process is told once more.
async fn in_order(ending: Ended, stop: impl Future<Output = flovyn_core::error::Result<()>>) -> Result {
    let again = told_to_end()?;
    tokio::select! {
        stopped = stop => {
            stopped?;
            ending.tell();
            Ok(())
        }
        told = again => {
            warn!(why = told.name(), seconds = ending.seconds(), "it was told to end once more, and ends at once");
            Ok(())
        }
    }
}

/// A process that was told to end: the log says when, why, and how long it took.
pub struct Ended {
    by: Told,
    since: Instant,
}

impl Ended {
    pub fn by(by: Told) -> Self {
        info!(why = by.name(), "it was told to end");
        Self { by, since: Instant::now() }
    }

    pub fn tell(self) {
        info!(why = self.by.name(), seconds = self.seconds(), "it has ended");
    }

    fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }
}

/// How a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// By whatever manages it: SIGTERM.
    Terminate,
    /// By hand: Ctrl-C.
    Interrupt,
}

impl Told {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

/// Hears from now on that the process is asked to end, and ends once it is. To be called before anybody is told that the process is
/// there: whoever is told may ask at once.
#[cfg(unix)]
pub fn told_to_end() -> std::io::Result<impl Future<Output = Told>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => Told::Terminate,
            _ = interrupted.recv() => Told::Interrupt,
        }
    })
}

/// Hears that the process is asked to end, and ends once it is.
#[cfg(not(unix))]
pub fn told_to_end() -> std::io::Result<impl Future<Output = Told>> {
    Ok(async {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Told::Interrupt,
            Err(_) => std::future::pending().await,
        }
    })
}

/// Hears that the process is asked to read its file again: SIGHUP.
#[cfg(unix)]
struct ToldToReadAgain(tokio::signal::unix::Signal);

#[cfg(unix)]
impl ToldToReadAgain {
    fn listen() -> std::io::Result<Self> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// Nothing asks for that here.
#[cfg(not(unix))]
struct ToldToReadAgain;

#[cfg(not(unix))]
impl ToldToReadAgain {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
