//! `flovyn dev` and `flovyn server`: a server until it is told to end.

use crate::Result;
use crate::args::{Dev, Server};
use crate::print::Output;
use flovyn_server::{Config, DevOptions, Replica};
use serde_json::json;
use std::pin::pin;
use tracing::{error, info};

/// Serves one developer.
pub async fn dev(args: Dev, out: &mut Output) -> Result {
    let options =
        DevOptions { db: args.db, http_port: args.http_port, grpc_port: args.grpc_port, token_file: args.token_file };
    let db = options.db.clone();
    let server = flovyn_server::dev(options).await?;
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
    told_to_end().await?;
    in_order(server.stop()).await
}

/// Serves those who have keys.
pub async fn server(args: Server, out: &mut Output) -> Result {
    let config = Config::read(&args.config)?;
    let server = Replica::start(&config).await?;
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
    let (mut told, mut again) = (pin!(told_to_end()), ToldToReadAgain::listen()?);
    let told = loop {
        tokio::select! {
            told = &mut told => break told?,
            () = again.next() => {}
        }
        // One that cannot be gone by is told, and changes nothing.
        match Config::read(&args.config).and_then(|config| server.reload(&config)) {
            Ok(()) => info!("the file was read again"),
            Err(error) => error!(%error, "the file was read again and cannot be gone by; all stays as it was"),
        }
    };
    in_order(async {
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
async fn in_order(stop: impl Future<Output = flovyn_core::error::Result<()>>) -> Result {
    tokio::select! {
        stopped = stop => Ok(stopped?),
        told = told_to_end() => Ok(told.map(drop)?),
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

/// Ends when the process is asked to end.
#[cfg(unix)]
pub async fn told_to_end() -> std::io::Result<Told> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => Ok(Told::Terminate),
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| Told::Interrupt),
    }
}

/// Ends when the process is asked to end.
#[cfg(not(unix))]
pub async fn told_to_end() -> std::io::Result<Told> {
    tokio::signal::ctrl_c().await.map(|()| Told::Interrupt)
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
