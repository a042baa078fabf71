//! One connection: opened when it is first needed, driven by the thread that owns it, its statements prepared once.
//!
//! What is asked together travels together: [`Link::exchange`] sends all statements, and one Sync, before it waits for the
//! first answer, so a transaction costs as many round trips as it has decisions to make, not statements. The thread's own little event
//! loop drives the socket: no other thread is woken for an answer, and a caller who goes away interrupts nothing.

use super::config::Reach;
use super::fault::{Done, Fault, explain};
use super::pipeline::{Over, Plain};
use crate::error::{Code, Error, Result};
use futures::future::{MaybeDone, maybe_done};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Connection, NoTls, Row, Statement};

/// How long opening a connection may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What every session is told. Each statement has an index made for it that brings its rows in their order, and plans are
/// made once: what the planner knows of tables that were empty a minute ago must not talk it into reading all of them, nor all
/// rows of a run to sort them for the last one. A list of keys is given with a limit, which it takes for few rows: it looks each
/// of them up, however small the table.
const SESSION: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; \
                       SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off; SET client_min_messages = warning; \
                       SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '20s'";

/// Sessions that write carry many orgs in one transaction; row-level security holds for those that read.
const ALL_ORGS: &str = "SET flovyn.org = '*'";

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
    /// By the address of their text, which is static.
    statements: HashMap<(usize, usize), Statement>,
}

impl Link {
    /// A connection that is not open yet.
    pub(super) fn new(reach: Arc<Reach>) -> Result<Self> {
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
        let reach = self.reach.clone();
        let opened = self.runtime.block_on(async move {
            let client = match reach.tls.clone() {
                None if reach.is_local() => follow(reach.config.connect(NoTls).await?),
                None => {
                    let mut config = reach.config.clone();
                    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
                    follow(config.connect(Plain).await?)
                }
                Some(tls) => follow(reach.config.connect(Over(tls)).await?),
            };
            client.batch_execute(SESSION).await?;
            if reach.all_orgs {
                client.batch_execute(ALL_ORGS).await?;
            }
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = opened.map_err(|error| explain("connect to PostgreSQL", error, "nothing was changed"))?;
        self.open = Some(Open { client, statements: HashMap::new() });
        Ok(())
    }

    /// Whether the connection is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.client.is_closed())
    }

    /// Waits for something while the connection is looked after.
    pub(super) fn wait<T>(&mut self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Runs several statements of the simple protocol, for migrations.
    pub(super) fn batch(&mut self, sql: &str) -> Done<()> {
        let Some(open) = &self.open else { return Err(closed()) };
        Ok(self.runtime.block_on(open.client.batch_execute(sql))?)
    }

    /// Sends all statements, then waits for all answers. The first error counts: those after it only say that the
    /// transaction is aborted.
    pub(super) fn exchange(&mut self, asks: &[Ask<'_>]) -> Done<Vec<Vec<Row>>> {
        let Some(open) = &mut self.open else { return Err(closed()) };
        let result = self.runtime.block_on(open.exchange(asks));
        if let Err(error) = &result {
            // Whoever altered the tables made the prepared statements useless.
            let stale = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_SQL_STATEMENT_NAME];
            if open.client.is_closed() || error.code().is_some_and(|code| stale.contains(code)) {
                self.open = None;
            }
        }
        Ok(result?)
    }

    /// Ends the transaction of a failed exchange; a connection that cannot do that is given up.
    pub(super) fn rollback(&mut self) {
        if self.open.is_some() && self.exchange(&[Ask::plain("ROLLBACK")]).is_err() {
            self.open = None;
        }
    }
}

impl Open {
    async fn exchange(&mut self, asks: &[Ask<'_>]) -> std::result::Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        let name = |sql: &'static str| (sql.as_ptr() as usize, sql.len());
        let mut lacking: Vec<&'static str> = Vec::new();
        for ask in asks {
            if !self.statements.contains_key(&name(ask.sql)) && !lacking.contains(&ask.sql) {
                lacking.push(ask.sql);
            }
        }
        if !lacking.is_empty() {
            let prepared = together(lacking.iter().map(|sql| self.client.prepare(sql))).await;
            for (sql, statement) in lacking.into_iter().zip(prepared) {
                self.statements.insert(name(sql), statement?);
            }
        }
        let sent = asks.iter().map(|ask| self.client.query(&self.statements[&name(ask.sql)], &ask.params));
        together(sent).await.into_iter().collect()
    }
}

/// Drives a connection in the background.
fn follow<S, T>((client, connection): (Client, Connection<S, T>)) -> Client
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    client
}

/// Starts all in their order, then waits for all: the driver sends a statement when it is first polled.
async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
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
