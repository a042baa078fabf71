//! The connection to a server: its URL, its certificates and its timeouts.

use crate::error::{Code, Error, Result};
use crate::storage::tls_roots;
use std::path::Path;
use std::time::Duration;
use tonic::codegen::{Service, StdError, http::Uri};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// The most bytes of an answer. Answers are paged and streamed, so this only limits what a broken server could send.
pub(super) const MAX_ANSWER: usize = 64 << 20;
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How often an idle connection is pinged, and how long the answer may take. Without an answer the connection is given
/// up, and the outcome of the calls on it is unknown.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(10));

/// Connects to a URL. Over `https:` the server's certificate has to be signed by one in the file `ca`, or without it by
/// one that the system trusts.
pub(super) async fn connect(url: &str, ca: Option<&Path>) -> Result<Channel> {
    endpoint(url, ca)?.connect().await.map_err(|error| unreached(url, error))
}

/// Connects to a URL by connections that `connector` makes.
pub(super) async fn connect_through<C>(url: &str, connector: C) -> Result<Channel>
where
    C: Service<Uri> + Send + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin,
    C::Future: Send,
    StdError: From<C::Error> + Send,
{
    endpoint(url, None)?.connect_with_connector(connector).await.map_err(|error| unreached(url, error))
}

fn endpoint(url: &str, ca: Option<&Path>) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| {
        Error::new(
            Code::InvalidArgument,
            format!("{url:?} is no server's URL: {error}; write http://HOST:PORT or https://HOST:PORT, such as http://localhost:9090"),
        )
    })?;
    let endpoint = match url.get(..6) {
        Some(scheme) if scheme.eq_ignore_ascii_case("https:") => encrypted(endpoint, ca)?,
        _ => endpoint,
    };
    let endpoint = endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(4 << 20)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .keep_alive_while_idle(true);
    Ok(endpoint)
}

fn unreached(url: &str, error: tonic::transport::Error) -> Error {
    let message = format!(
        "connect to {url}: nobody answers there ({}); start a server with `flovyn dev`, or check the address and whose \
         certificates are trusted (FLOVYN_CA)",
        chain(&error)
    );
    Error::new(Code::StorageUnavailable, message).caused_by(error)
}

fn encrypted(endpoint: Endpoint, ca: Option<&Path>) -> Result<Endpoint> {
    let tls = match ca {
        Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(tls_roots::read(file)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    endpoint.tls_config(tls).map_err(|error| {
        let why = chain(&error);
        match ca {
            Some(file) => tls_roots::unusable(file, &why),
            None => Error::new(
                Code::InvalidArgument,
                format!("the system's certificates cannot be used: {why}; name a file of those to trust in FLOVYN_CA"),
            ),
        }
    })
}

/// The text of an error with all its causes. The cause that matters, such as a failed handshake, is often the last one.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}
