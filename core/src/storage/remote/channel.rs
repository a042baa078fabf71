//! The connection: its URL, its timeouts, its token.

use crate::error::{Code, Error, Result};
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

/// The largest answer that is taken. Answers are paged and streamed; this only bounds what a broken server could send.
pub(super) const MAX_ANSWER: usize = 64 << 20;
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection that gives no sign for so long is given up; calls on it are then unknown.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(10));

/// Connects to a URL.
pub(super) async fn connect(url: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| {
        Error::new(
            Code::InvalidArgument,
            format!("{url:?} is no server's URL: {error}; write http://HOST:PORT, such as http://localhost:9090"),
        )
    })?;
    endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(4 << 20)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .keep_alive_while_idle(true)
        .connect()
        .await
        .map_err(|error| {
            Error::new(
                Code::StorageUnavailable,
                format!("connect to {url}: nobody answers there ({error}); start a server with `flovyn dev`"),
            )
            .caused_by(error)
        })
}

/// A token as the header of a call.
pub(super) fn bearer(token: &str) -> Result<MetadataValue<Ascii>> {
    format!("Bearer {}", token.trim()).parse().map_err(|_| {
        Error::new(Code::InvalidArgument, "the token has characters that no token has; check FLOVYN_TOKEN")
    })
}
