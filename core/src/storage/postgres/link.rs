//! One connection. It is opened when it is first needed, and driven by the thread that owns it.
//!
//! [`Link::exchange`] sends all its statements, and one Sync, before it waits for the first answer. So a transaction
//! costs as many round trips as it has decisions to make, not as many as it has statements. The thread drives the
//! socket by an event loop of its own: no other thread has to be woken for an answer, and a caller that goes away
//! interrupts nothing.

use super::config::{Pooler, Reach};
use super::fault::{Done, Fault, explain};
use super::pipeline::{Key, Over, Pipelined, Plain};
use super::statements::Session;
use crate::error::{Code, Error, Result};
use futures::future::{MaybeDone, maybe_done};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::ChannelBinding;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Connection, NoTls, Row, SimpleQueryMessage};

/// How long opening a connection may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A statement with its parameters.
pub(super) struct Ask<'a> {
    pub sql: &'static str,
    pub params: Vec<&'a (dyn ToSql + Sync)>,
}

impl Ask<'_> {
    /// A statement without parameters.
    pub(super) fn plain(sql: &'static str) -> Self {
        Self { sql, params: Vec::new() }
    }
}

/// A connection and the event loop that drives it. Belongs to one thread.
pub(super) struct Link {
    reach: Arc<Reach>,
    runtime: Runtime,
    open: Option<Open>,
}

struct Open {
    client: Client,
    session: Session,
}

impl Link {
    /// A connection that is not open yet.
    pub(super) fn new(reach: Arc<Reach>) -> Result<Self> {
        // A child that is forked while tokio's first runtime is made could never make its own.
        let _inside = crate::forks::enter();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            Error::new(Code::StorageUnavailable, format!("no event loop for a connection: {error}")).caused_by(error)
        })?;
        Ok(Self { reach, runtime, open: None })
    }

    /// Opens the connection if it is not open.
    pub(super) fn connect(&mut self) -> Result<()> {
        if self.is_open() {
            return Ok(());
        }
        self.open = None;
        let opened = self.runtime.block_on(open(&self.reach));
        self.open = Some(opened?);
        Ok(())
    }

    /// Whether a pooler may give each transaction another session.
    pub(super) fn is_lent(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.session.is_lent())
    }

    /// Whether the connection is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.client.is_closed())
    }

    /// Waits for something else while the connection is driven.
    pub(super) fn wait<T>(&mut self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Runs several statements of the simple protocol, for migrations.
    pub(super) fn batch(&mut self, sql: &str) -> Done<()> {
        let Some(open) = &mut self.open else { return Err(closed()) };
        Ok(self.runtime.block_on(open.session.batch(&open.client, sql))?)
    }

    /// Sends all statements, then waits for all answers. Returns the first error: the later ones only say that the
    /// transaction is aborted.
    pub(super) fn exchange(&mut self, asks: &[Ask<'_>]) -> Done<Vec<Vec<Row>>> {
        let Some(open) = &mut self.open else { return Err(closed()) };
        let result = self.runtime.block_on(open.session.exchange(&open.client, asks));
        if let Err(error) = &result {
            // Somebody has altered the tables, so the prepared statements cannot be used any more. A new connection
            // prepares them anew.
            let stale = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_SQL_STATEMENT_NAME];
            if open.client.is_closed() || error.code().is_some_and(|code| stale.contains(code)) {
                self.open = None;
            }
        }
        Ok(result?)
    }

    /// Ends the transaction after a failed exchange. If that fails too, the connection is given up.
    pub(super) fn rollback(&mut self) {
        if self.open.is_some() && self.exchange(&[Ask::plain("ROLLBACK")]).is_err() {
            self.open = None;
        }
    }
}

/// Opens a connection, and finds out whether a pooler lends it its sessions.
async fn open(reach: &Reach) -> Result<Open> {
    let told = |error| explain("connect to PostgreSQL", error, "nothing was changed");
    let key = Key::default();
    let client = match reach.tls.clone() {
        None if reach.is_local() => local(&reach.config, &key).await?,
        None => {
            let mut config = reach.config.clone();
            config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
            follow(config.connect(Plain(key.clone())).await.map_err(told)?)
        }
        Some(tls) => follow(reach.config.connect(Over(tls, key.clone())).await.map_err(told)?),
    };
    let is_lent = match reach.pooler {
        Some(pooler) => pooler == Pooler::Transaction,
        None => stands_between(&client, &key).await.map_err(told)?,
    };
    let session = match is_lent {
        true => Session::lent(&client, reach.all_orgs, reach.types.clone()).await,
        false => Session::own(&client, reach.all_orgs).await,
    };
    Ok(Open { session: session.map_err(told)?, client })
}

/// Whether a pooler is between here and the database. Then the process that answers is not the one that was named when
/// the connection was opened.
async fn stands_between(client: &Client, key: &Key) -> std::result::Result<bool, tokio_postgres::Error> {
    let Some(opened) = key.process() else { return Ok(false) };
    let answers = client.simple_query("SELECT pg_backend_pid()").await?;
    let answering = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse::<i32>().ok(),
        _ => None,
    });
    Ok(answering.is_some_and(|answering| answering != opened))
}

/// A connection through a socket of this machine.
#[cfg(unix)]
async fn local(config: &Config, key: &Key) -> Result<Client> {
    let mut refused = None;
    for (n, host) in config.get_hosts().iter().enumerate() {
        let Host::Unix(folder) = host else {
            // This host is on the network. The driver itself goes through all hosts.
            let connected = config.connect(NoTls).await;
            return connected
                .map(follow)
                .map_err(|error| explain("connect to PostgreSQL", error, "nothing was changed"));
        };
        let port = config.get_ports().get(n).or(config.get_ports().first()).copied().unwrap_or(5432);
        let socket = folder.join(format!(".s.PGSQL.{port}"));
        let stream = match tokio::net::UnixStream::connect(&socket).await {
            Ok(stream) => stream,
            Err(error) => {
                let message = format!(
                    "connect to PostgreSQL: {}: {error}; nothing was changed; see whether the server runs and can be reached, then the \
                     same request may be sent again",
                    socket.display()
                );
                refused = Some(Error::new(Code::StorageUnavailable, message).caused_by(error));
                continue;
            }
        };
        match config.connect_raw(Pipelined::new(stream, |_| ChannelBinding::none(), key.clone()), NoTls).await {
            Ok(opened) => return Ok(follow(opened)),
            Err(error) => refused = Some(explain("connect to PostgreSQL", error, "nothing was changed")),
        }
    }
    Err(refused.unwrap_or_else(|| Error::new(Code::InvalidArgument, "the PostgreSQL URL names no host")))
}

/// On other systems PostgreSQL has no such sockets.
#[cfg(not(unix))]
async fn local(config: &Config, _: &Key) -> Result<Client> {
    let connected = config.connect(NoTls).await;
    connected.map(follow).map_err(|error| explain("connect to PostgreSQL", error, "nothing was changed"))
}

/// Drives a connection in the background.
fn follow<S, T>((client, connection): (Client, Connection<S, T>)) -> Client
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    crate::spawn::task(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    client
}

/// Polls all futures in their order, then waits for all. The driver sends a statement when its future is first polled,
/// so all are sent in this order.
pub(super) async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<Pin<Box<MaybeDone<F>>>> = all.map(|one| Box::pin(maybe_done(one))).collect();
    std::future::poll_fn(|context| {
        let waiting = all.iter_mut().filter_map(|one| one.as_mut().poll(context).is_pending().then_some(())).count();
        if waiting == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.iter_mut().filter_map(|one| one.as_mut().take_output()).collect()
}

fn closed() -> Fault {
    Error::new(Code::StorageUnavailable, "the connection to PostgreSQL is gone; the same request may be sent again")
        .into()
}
