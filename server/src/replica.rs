//! One server of an installation. Any number serve one database, and none needs to know of the others.

use crate::access::Access;
use crate::config::Config;
use crate::disk;
use crate::extensions::Extensions;
use crate::limits::Limits;
use crate::options::{ServeOptions, ServerConfig};
use crate::serving::{Serving, serve_with};
use crate::startup_log;
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use flovyn_core::sync::Mutex;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::warn;

/// A server that is ready.
pub struct Replica {
    serving: Serving,
    metrics: Option<SocketAddr>,
    runtime: Runtime,
    disk: Option<JoinHandle<()>>,
    config: Mutex<Config>,
}

impl Replica {
    /// Opens the backend, brings its schema up to date, and listens. Callers need keys of the backend.
    ///
    /// Errors: `InvalidArgument` (an address in use, or open to other machines in clear) and those of opening
    /// the backend.
    pub async fn start(config: &Config, extensions: Extensions) -> Result<Self> {
        config.check_addresses()?;
        let (retention, slow_call, _) = (config.retention()?, config.slow_call()?, config.drain()?);
        let runtime = Runtime::open(&config.db()?).await?;
        if let Some(keep) = retention {
            runtime.keep_ended(keep);
        }
        let access = Access::keys_of(runtime.storage().clone());
        let listen = ServerConfig { grpc: config.grpc, http: config.http, access };
        let options = ServeOptions {
            limits: config.limits,
            certificate: config.tls.clone(),
            slow_call,
            public_hosts: config.public_hosts.clone(),
            cors_origins: config.cors_origins.clone(),
            oidc: config.oidc.clone(),
            extensions,
        };
        let mut serving = serve_with(runtime.storage().clone(), runtime.chunks().clone(), listen, options).await?;
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
        let db = runtime.storage().describe();
        startup_log::server_started(&serving, metrics, &db, config);
        let disk = disk::watch(&db);
        Ok(Self { serving, metrics, runtime, disk, config: Mutex::new(config.clone()) })
    }

    /// Applies another configuration: the certificate, the limits of keys and addresses, retention, the time to drain. Settings that
    /// need a restart stay as they are, with a warning.
    ///
    /// Errors: `InvalidArgument` for what cannot be gone by: then all is as it was.
    pub fn reload(&self, config: &Config) -> Result<()> {
        config.check_addresses()?;
        let (retention, _, _) = (config.retention()?, config.slow_call()?, config.drain()?);
        let mut known = self.config.lock();
        let Limits { connections, connections_each, .. } = known.limits;
        let limits = Limits { connections, connections_each, ..config.limits };
        self.serving.renew((limits != known.limits).then_some(&limits), config.tls.as_ref())?;
        match retention {
            _ if config.retention == known.retention => {}
            Some(keep) => self.runtime.keep_ended(keep),
            None => self.runtime.keep_all(),
        }
        let fixed = known.fixed(config);
        if !fixed.is_empty() {
            warn!(settings = fixed.join(", "), "these settings have changed and hold once the server is started again");
        }
        let tls = config.tls.clone().filter(|_| known.tls.is_some()).or_else(|| known.tls.clone());
        let (retention, drain) = (config.retention.clone(), config.drain.clone());
        *known = Config { limits, tls, retention, drain, ..known.clone() };
        Ok(())
    }

    /// How long it goes on taking calls while it drains.
    pub fn drain_time(&self) -> Duration {
        self.config.lock().drain().unwrap_or_default()
    }

    /// Where it listens.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Where `GET /metrics` listens, if it does.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The backend it serves, without a password.
    pub fn db(&self) -> String {
        self.runtime.storage().describe()
    }

    /// Stops listening, lets the calls in flight end, closes the backend.
    pub async fn stop(self) -> Result<()> {
        if let Some(disk) = &self.disk {
            disk.abort();
        }
        self.serving.stop().await?;
        self.runtime.close().await
    }
}
