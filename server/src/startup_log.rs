//! Logs the settings of a server when it starts, without secrets.

use crate::config::Config;
use crate::limits::Limits;
use crate::serving::Serving;
use std::net::SocketAddr;
use tracing::info;

/// Logs the start of a server for many.
pub(crate) fn server_started(serving: &Serving, metrics: Option<SocketAddr>, db: &str, config: &Config) {
    let Limits { create, signal, poll, streams, connections, connections_each, strangers } = config.limits;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        instance = serving.instance(),
        db,
        grpc = serving.url(),
        http = serving.http_url(),
        metrics = metrics.map(|address| format!("http://{address}/metrics")),
        tls = config.tls.is_some(),
        plaintext = config.plaintext,
        public_hosts = config.public_hosts.join(","),
        oidc = config.oidc.as_ref().map(|oidc| &*oidc.issuer),
        cors_origins = config.cors_origins.join(","),
        retention = config.retention,
        drain = config.drain,
        slow_call = config.slow_call,
        nats = config.nats.as_deref().map(without_secrets),
        nats_prefix = config.nats.as_ref().map(|_| &config.nats_prefix),
        otlp = config.otlp().as_deref().map(without_secrets),
        limits.create = create,
        limits.signal = signal,
        limits.poll = poll,
        limits.streams = streams as u64,
        limits.connections = connections as u64,
        limits.connections_each = connections_each as u64,
        limits.strangers = strangers,
        "the server has started"
    );
}

/// Logs the start of a developer's server.
pub(crate) fn dev_server_started(serving: &Serving, db: &str) {
    let (grpc, http) = (serving.url(), serving.http_url());
    info!(
        version = env!("CARGO_PKG_VERSION"),
        instance = serving.instance(),
        db,
        grpc,
        http,
        "the server of one developer has started"
    );
}

/// URLs separated by commas, without user, password and query.
fn without_secrets(urls: &str) -> String {
    let url_without_secrets = |url: &str| {
        let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
        let path = path.map_or_else(String::new, |path| format!("/{path}"));
        format!("{scheme}{host}{path}")
    };
    urls.split(',').map(url_without_secrets).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_said_without_its_secrets() {
        for (url, said) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://me:s3cret@one:4222,nats://s3cret@two", "nats://one:4222,nats://two"),
            ("https://collector:4317/v1?api_key=s3cret", "https://collector:4317/v1"),
            ("me:s3cret@one:4222", "one:4222"),
        ] {
            assert_eq!(without_secrets(url), said);
        }
    }
}
