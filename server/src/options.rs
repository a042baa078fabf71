//! How a server is started.

use crate::access::Access;
use crate::certificate::Certificate;
use crate::extensions::Extensions;
use crate::limits::Limits;
use crate::oidc::OidcSettings;
use std::net::SocketAddr;
use std::time::Duration;

/// What a server needs to start.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where gRPC listens; port 0 picks one.
    pub grpc: SocketAddr,
    /// Where HTTP listens; port 0 picks one.
    pub http: SocketAddr,
    /// Who may call.
    pub access: Access,
}

/// Options of a server that others than its developer call.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// How much a key may ask for.
    pub limits: Limits,
    /// Encrypts every connection.
    pub certificate: Option<Certificate>,
    /// A call of the storage that takes longer is named in the log.
    pub slow_call: Duration,
    /// Names that a proxy on this machine is called by: a server on loopback answers those who call it so, too.
    pub public_hosts: Vec<String>,
    /// Origins of other front ends, whose pages may call with a token: `https://app.example.com`.
    pub cors_origins: Vec<String>,
    /// The issuer by which people sign in to the console, beside keys.
    pub oidc: Option<OidcSettings>,
    /// What its program adds to it.
    pub extensions: Extensions,
}

impl Default for ServeOptions {
    /// No limits, in clear, with nothing added.
    fn default() -> Self {
        Self {
            limits: Limits::none(),
            certificate: None,
            slow_call: SLOW_CALL,
            public_hosts: Vec::new(),
            cors_origins: Vec::new(),
            oidc: None,
            extensions: Extensions::default(),
        }
    }
}

/// What a call of the storage may take before the log names it.
const SLOW_CALL: Duration = Duration::from_secs(1);
