//! `flovyn dev` and `flovyn server`: a server until it is told to end.

use crate::Result;
use crate::args::{Dev, Server};
use crate::print::Output;
use flovyn_server::{Config, DevOptions, Replica};
use serde_json::json;

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
    told_to_end().await?;
    in_order(server.stop()).await
}

/// Lets a server end in its order, unless the process is told once more.
async fn in_order(stop: impl Future<Output = flovyn_core::error::Result<()>>) -> Result {
    tokio::select! {
        stopped = stop => Ok(stopped?),
        told = told_to_end() => Ok(told?),
    }
}

/// Ends when the process is asked to end.
#[cfg(unix)]
pub async fn told_to_end() -> std::io::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

/// Ends when the process is asked to end.
#[cfg(not(unix))]
pub async fn told_to_end() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
