//! One of the servers of an installation: any number serve one database, and none knows of the others. Previews are each
//! server's own.

use crate::{Access, Config, Doors, ServerConfig, Serving, serve_behind};
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;

/// A server that is ready.
pub struct Replica {
    serving: Serving,
    runtime: Runtime,
}

impl Replica {
    /// Opens the backend, brings its schema up to date, and listens. Callers need keys of the backend.
    ///
    /// Errors: `InvalidArgument` (an address in use, or open to other machines in clear) and those of opening
    /// the backend.
    pub async fn start(config: &Config) -> Result<Self> {
        config.check_addresses()?;
        let runtime = Runtime::open(&config.db()?).await?;
        let access = Access::keys_of(runtime.storage().clone());
        let listen = ServerConfig { grpc: config.grpc, http: config.http, access };
        let doors = Doors { limits: config.limits, certificate: config.tls.clone() };
        let serving = serve_behind(runtime.storage().clone(), runtime.chunks().clone(), listen, doors).await?;
        Ok(Self { serving, runtime })
    }

    /// Where it listens.
    pub fn serving(&self) -> &Serving {
        &self.serving
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
