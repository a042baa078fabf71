//! How a database is reached: parses its URL, loads the certificates to trust, and makes its name without a password.

use super::link;
use super::statements::Types;
use crate::error::{Code, Error, Result};
use crate::storage::tls_roots;
use std::path::Path;
use std::sync::Arc;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What a pooler between here and the database lends. Set by `?pooler=` in the URL; without it, that is found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooler {
    /// A session for as long as the connection is open.
    Session,
    /// Another one for each transaction.
    Transaction,
}

/// How a database is reached, and whose rows its sessions see.
#[derive(Clone)]
pub(super) struct Reach {
    pub config: Config,
    pub pooler: Option<Pooler>,
    /// The parameter types of statements, for connections on which none can be prepared.
    pub types: Types,
    pub tls: Option<MakeRustlsConnect>,
    /// Whether sessions see the rows of all orgs. Else each transaction sees those of the org that it names.
    pub all_orgs: bool,
}

impl Reach {
    /// Parses a URL. With `sslmode=require` the certificates of the file `ca` are trusted, else the system's.
    pub(super) fn of(url: &str, ca: Option<&Path>) -> Result<Self> {
        let (url, pooler) = split_pooler(url)?;
        let config = configure(&url)?;
        let tls = if config.get_ssl_mode() == SslMode::Require { Some(encrypted(ca)?) } else { None };
        Ok(Self { config, pooler, types: Types::default(), tls, all_orgs: true })
    }

    /// Whether it may be reached through a socket of this machine, which has no host name.
    pub(super) fn is_local(&self) -> bool {
        !self.config.get_hosts().iter().all(|host| matches!(host, Host::Tcp(_)))
    }

    /// The same, for sessions that see only the rows of the org that their transaction names.
    pub(super) fn of_named_orgs(&self) -> Self {
        Self { all_orgs: false, ..self.clone() }
    }
}

/// Makes the connector for encrypted connections. It accepts a server only with a trusted certificate for its name.
fn encrypted(ca: Option<&Path>) -> Result<MakeRustlsConnect> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(file) => {
            let unusable = |error: &dyn std::fmt::Display| tls_roots::unusable(file, &error.to_string());
            for certificate in CertificateDer::pem_slice_iter(&tls_roots::read(file)?) {
                roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if roots.is_empty() {
        let message = "no certificate is trusted on this system; name a file of those to trust in FLOVYN_CA";
        return Err(Error::new(Code::InvalidArgument, message));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Code::InvalidArgument, format!("connections cannot be encrypted: {error}")))?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Takes the option `pooler` out of a URL.
fn split_pooler(url: &str) -> Result<(String, Option<Pooler>)> {
    let Some((server, query)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut pooler, mut others) = (None, Vec::new());
    for option in query.split('&') {
        match option.strip_prefix("pooler=") {
            Some("session") => pooler = Some(Pooler::Session),
            Some("transaction") => pooler = Some(Pooler::Transaction),
            Some(other) => {
                let message =
                    format!("the PostgreSQL URL says pooler={other}; write pooler=session or pooler=transaction");
                return Err(Error::new(Code::InvalidArgument, message));
            }
            None => others.push(option),
        }
    }
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    Ok((format!("{server}{query}"), pooler))
}

/// Parses a URL, and sets defaults for what it leaves out. All values of `sslmode` that ask for encryption check the
/// certificate and its name.
fn configure(url: &str) -> Result<Config> {
    let strict = url.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
    let mut config: Config = strict.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Error::new(Code::InvalidArgument, format!("this is no PostgreSQL URL: {why}; write postgres://user@host/name"))
    })?;
    if config.get_hosts().is_empty() {
        return Err(Error::new(
            Code::InvalidArgument,
            "the PostgreSQL URL names no host; write postgres://user@host/name",
        ));
    }
    if config.get_application_name().is_none() {
        config.application_name("flovyn");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(link::PATIENCE);
    }
    Ok(config)
}

/// The name of the database for people, without a password.
pub(super) fn describe(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    let port = config.get_ports().first().map_or_else(String::new, |port| format!(":{port}"));
    format!("postgres://{host}{port}/{}", config.get_dbname().unwrap_or_default())
}
