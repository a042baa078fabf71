//! One of the servers of an installation: any number serve one database, and none knows of the others.

use crate::{Access, Config, Doors, ServerConfig, Serving, serve_behind};
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use std::net::SocketAddr;

/// A server that is ready.
pub struct Replica {
    serving: Serving,
    metrics: Option<SocketAddr>,
    runtime: Runtime,
}

impl Replica {
    /// Opens the backend, brings its schema up to date, and listens. Callers need keys of the backend.
    ///
    /// Errors: `InvalidArgument` (an address in use, or open to other machines in clear) and those of opening
    /// the backend.
    pub async fn start(config: &Config) -> Result<Self> {
        config.check_addresses()?;
        let retention = config.retention()?;
        let runtime = Runtime::open(&config.db()?).await?;
        if let Some(keep) = retention {
            runtime.keep_ended(keep);
        }
        let access = Access::keys_of(runtime.storage().clone());
        let listen = ServerConfig { grpc: config.grpc, http: config.http, access };
        let doors = Doors { limits: config.limits, certificate: config.tls.clone() };
        let mut serving = serve_behind(runtime.storage().clone(), runtime.chunks().clone(), listen, doors).await?;
        if let Some(url) = &config.nats {
            serving.join_nats(url, &config.nats_prefix).await?;
        }
        if let Some(endpoint) = config.otlp() {
            serving.trace_to(&endpoint)?;
        }
        let metrics = match config.metrics {
            Some(address) => Some(serving.metrics_at(address).await?),
            None => None,
        };
        Ok(Self { serving, metrics, runtime })
    }

    /// Where it listens.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Where `GET /metrics` listens, if it does.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// What it serves, in words without a password.
    pub fn db(&self) -> String {
        self.runtime.storage().describe()
    }

    /// Stops listening, lets the calls in flight end, closes the backend.
    pub async fn stop(self) -> Result<()> {
        self.serving.stop().await?;
        self.runtime.close().await
    }
}
