//! How a database is named: its URL read, and told without its password.

use super::link;
use crate::error::{Code, Error, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Reads a URL and fills in what it leaves open.
pub(super) fn configure(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Error::new(Code::InvalidArgument, format!("this is no PostgreSQL URL: {why}; write postgres://user@host/name"))
    })?;
    if config.get_hosts().is_empty() {
        return Err(Error::new(
            Code::InvalidArgument,
            "the PostgreSQL URL names no host; write postgres://user@host/name",
        ));
    }
    if config.get_ssl_mode() == SslMode::Require {
        return Err(Error::new(
            Code::InvalidArgument,
            "sslmode=require is asked for, and this build cannot encrypt connections; use a private network or a tunnel",
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

/// The database for people, without its password.
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
