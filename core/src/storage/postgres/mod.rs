//! The backend for several machines: PostgreSQL behind a few committers.
//!
//! Commits that arrive together become one transaction (`committer`). It uses statements that write many rows at once
//! (`sets`), and needs only as many round trips as there are decisions to make (`link`, `tx`). Reads have
//! connections of their own (`pool`). Row locks order the writes of all processes (`locks`), leases decide who
//! advances a run, and a regular look finds out whether other processes have written (`watcher`).

mod catalog;
mod checkpoint;
mod claims;
mod clock;
mod committer;
mod config;
mod ends;
mod entry;
mod event;
mod facts;
mod fault;
mod gathered;
mod housekeeping;
mod kinship;
mod link;
mod load;
mod locks;
mod migrations;
mod op;
mod payloads;
mod pipeline;
mod pool;
mod previews;
mod quarantine;
mod queues;
mod result_pages;
mod retention;
mod run;
mod sets;
mod signal;
mod statements;
mod tables;
mod task;
mod tx;
mod unserved;
mod values;
mod watcher;

use super::sql::Backend;
use super::sql::database_error::closed;
use super::sql::executions::store_signal;
use super::sql::previews::{Beside, commit_beside, end_attempt};
use super::sql::quarantine::Counted;
use super::sql::workers::{cut_leases, release, superseded};
use super::{
    ClaimRequest, Families, FamilyStream, Heartbeat, HeartbeatAnswer, Housekeeping, Load, Previews, ServerSide,
    Storage, WorkSource, WorkerInfo, no_backup,
};
use crate::clock::{Clock, Timestamp};
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{
    AttemptResult, Claim, ClaimedTask, CommitAnswer, CommitRequest, EventId, Lease, NewSignal, Rows, SignalStored,
    TaskReport,
};
use crate::payload::{Content, ContentHash, MAX_PAYLOAD};
use crate::streaming::{Chunks, Hints};
use crate::sync::Mutex;
use async_trait::async_trait;
use clock::{ClockReading, DatabaseClock};
use committer::{Before, Committers, WriteContext, alone};
use config::{Reach, describe};
use ends::{Ahead, Parents};
use fault::{Done, Fault};
use link::Link;
use pool::Pool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tx::{Sees, Tx, snapshot};
use watcher::Watcher;

/// How a database is used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Connections that commit. All commits of a run go through the same one. The default is the number of this
    /// machine's cores, but 2 to 4: commands that wait for a connection share its next transaction, so more connections
    /// make smaller transactions.
    pub committers: usize,
    /// Connections for claims and housekeeping.
    pub keepers: usize,
    /// Connections that read.
    pub readers: usize,
    /// The ceiling of one payload in bytes.
    pub max_payload: u64,
    /// A PEM file of the certificates to trust with `sslmode=require`. Without it the file named in `FLOVYN_CA`, else
    /// the system's.
    pub ca: Option<PathBuf>,
    /// The store's time. Without it the database's.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let committers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4));
        Self { committers, keepers: 2, readers: 4, max_payload: MAX_PAYLOAD, ca: None, clock: None }
    }
}

/// A store in a PostgreSQL database, shared by any number of processes. Clones share the connections.
#[derive(Clone)]
pub struct PostgresStorage(Arc<Shared>);

struct Shared {
    name: String,
    options: PostgresOptions,
    /// The clock that is set by the database, unless a clock was given.
    database_clock: Option<Arc<DatabaseClock>>,
    context: WriteContext,
    chunks: Chunks,
    parents: Parents,
    /// Whether row-level security holds for its sessions.
    is_held: bool,
    committers: Committers,
    keepers: Pool,
    readers: Pool,
    /// Connections that store large values.
    movers: Pool,
    watcher: Watcher,
    pulse: Mutex<super::sql::time::Pulse>,
    aside: Counted,
    process: u32,
}

impl std::fmt::Debug for PostgresStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl PostgresStorage {
    /// Connects to a database and brings it to this version's schema. Blocks until that is done.
    ///
    /// The URL is PostgreSQL's own: `postgres://user:password@host:5432/name?application_name=…`. Behind a pooler of transactions
    /// (PgBouncer) no statement is prepared ahead; that one stands between is found out, unless `pooler=session` or
    /// `pooler=transaction` says what it lends.
    /// Errors: `InvalidArgument` (the URL, or tables of another program), `SchemaTooNew`, `StorageUnavailable`.
    pub fn connect(url: &str, options: PostgresOptions) -> Result<Self> {
        let ca = options.ca.clone().or_else(super::tls_roots::named);
        let reach = Arc::new(Reach::of(url, ca.as_deref())?);
        // On a thread of its own, since a link blocks on an event loop of its own: the caller's thread may be driving
        // one already.
        let migrate = |mut link: Link| {
            migrations::migrate(&mut link)?;
            if link.is_lent() {
                tracing::info!("a pooler gives each transaction another session: no statement is prepared ahead");
            }
            Ok((migrations::is_held(&mut link), ClockReading::by(&mut link)?))
        };
        let migrated = std::thread::scope(|scope| scope.spawn(|| Link::new(reach.clone()).and_then(migrate)).join());
        let (is_held, time) =
            migrated.unwrap_or_else(|_| Err(closed("bring the database to this version's schema")))?;
        if !is_held {
            tracing::warn!(
                user = reach.config.get_user(),
                "row-level security does not hold for this user of PostgreSQL, a superuser or one with BYPASSRLS: the statements \
                 alone keep organizations apart; connect as another user"
            );
        }
        let (clock, database_clock): (Arc<dyn Clock>, _) = match &options.clock {
            Some(clock) => (clock.clone(), None),
            None => {
                let clock = Arc::new(DatabaseClock::new(time));
                (clock.clone(), Some(clock))
            }
        };
        let context = WriteContext {
            clock,
            hints: Hints::default(),
            next_due: Arc::new(AtomicI64::new(i64::MAX)),
            own: Arc::default(),
        };
        Ok(Self(Arc::new(Shared {
            name: describe(&reach.config),
            committers: Committers::start(options.committers.clamp(1, 64), &reach, &context)?,
            keepers: Pool::start("flovyn-postgres-keep", options.keepers.clamp(1, 16), &reach)?,
            readers: Pool::start(
                "flovyn-postgres-read",
                options.readers.clamp(1, 64),
                &Arc::new(reach.of_named_orgs()),
            )?,
            movers: Pool::start("flovyn-postgres-move", 2, &reach)?,
            watcher: Watcher::start(&reach, &context)?,
            options,
            database_clock,
            context,
            is_held,
            chunks: Chunks::shared(),
            parents: Parents::default(),
            pulse: Mutex::default(),
            aside: Counted::default(),
            process: std::process::id(),
        })))
    }

    /// Whether row-level security holds for the user that it is connected as: not for a superuser, nor with BYPASSRLS.
    pub fn is_held(&self) -> bool {
        self.0.is_held
    }

    /// The storage as a trait object. Made here and never inlined, so that its generic methods are compiled with this
    /// crate's settings. A program that made the object itself would compile them again with its own settings, which
    /// may be for size.
    #[inline(never)]
    pub(crate) fn shared(self) -> Arc<dyn Storage> {
        Arc::new(self)
    }

    /// Refuses a process that was forked after the connections were opened: it has none of their threads.
    fn check_process(&self) -> Result<()> {
        if self.0.process == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            Code::ForkedProcess,
            format!("the database {} was opened before this process was forked; open it again here", self.0.name),
        ))
    }

    /// Runs a command after what it needs before: a lock, a question, or nothing for a new run.
    async fn write_after<T, F>(&self, asked: &'static str, shard: ExecutionId, before: Before, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        self.check_process()?;
        self.0.committers.run(asked, shard, before, command).await
    }

    async fn read_as<T, F>(&self, asked: &'static str, sees: Sees, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Tx) -> Done<T> + Send + 'static,
    {
        self.check_process()?;
        let now = self.now();
        self.0.readers.run_and_tidy(asked, move |link, answer| snapshot(link, asked, sees, now, &read, answer)).await
    }

    /// Sets this process's clock by the database's.
    async fn set_clock(&self) -> Result<()> {
        let Some(clock) = self.0.database_clock.clone() else { return Ok(()) };
        self.read_all("read the database's time", move |tx| {
            let asked = crate::clock::instant();
            if let Some(time) = tx.first(clock::ASK, Vec::new(), |row| row.get(0))? {
                clock.set(ClockReading { asked, time, answered: crate::clock::instant() });
            }
            Ok(())
        })
        .await
    }

    async fn settle_result(&self, org: OrgId, result: &mut AttemptResult) -> Result<()> {
        match result {
            AttemptResult::Completed(output) => self.settle(org, output).await,
            _ => Ok(()),
        }
    }
}

impl Backend for PostgresStorage {
    type Fault = Fault;
    type Tx<'t> = Tx<'t>;

    async fn write<T, F>(&self, asked: &'static str, org: OrgId, run: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.write_after(asked, run, Before { target: Some((org, run)), ..Before::default() }, command).await
    }

    async fn write_family<T, F>(&self, asked: &'static str, org: OrgId, run: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        let before = Before { target: Some((org, run)), above: true, ..Before::default() };
        self.write_after(asked, run, before, command).await
    }

    async fn write_new<T, F>(&self, asked: &'static str, run: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.write_after(asked, run, Before::default(), command).await
    }

    async fn write_alone<T, F>(&self, asked: &'static str, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.check_process()?;
        let context = self.0.context.clone();
        self.0.keepers.run(asked, move |link| alone(link, &context, asked, command)).await
    }

    async fn read<T, F>(&self, asked: &'static str, org: OrgId, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.read_as(asked, Sees::Org(org), read).await
    }

    async fn write_later<T, F>(&self, asked: &'static str, run: ExecutionId, command: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.check_process()?;
        self.0.committers.run(asked, run, Before::default(), command).await
    }

    async fn read_all<T, F>(&self, asked: &'static str, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        self.read_as(asked, Sees::All, read).await
    }

    fn commit_batch(&self, request: CommitRequest) -> impl Future<Output = Result<CommitAnswer>> + Send {
        let mut beside = Beside::of(&self.0.chunks, &request);
        let (run, read) = ((request.org, request.execution), beside.is_some());
        let above = request.batch.touches_family();
        let parent = if above { self.0.parents.of(&request) } else { None };
        let ahead = parent.map_or_else(Ahead::default, |_| Ahead::of_end(&request));
        let before = Before { target: Some(run), above, ahead };
        let shard = parent.unwrap_or(run.1);
        let commit =
            self.write_after("commit a batch", shard, before, move |tx| commit_beside(tx, &request, beside.as_mut()));
        async move {
            commit.await.inspect_err(|_| {
                if read {
                    self.0.chunks.write_again(run);
                }
            })
        }
    }

    async fn store(&self, signal: NewSignal) -> Result<SignalStored> {
        let (org, run) = (signal.org, signal.execution);
        let ahead = Ahead { signal: Some((signal.id, signal::known_signal(&signal))), ..Ahead::default() };
        let before = Before { target: Some((org, run)), ahead, above: false };
        self.write_after("store a signal", run, before, move |tx| store_signal(tx, &signal)).await
    }

    fn aside(&self) -> &Counted {
        &self.0.aside
    }

    async fn upload(&self, org: OrgId, content: Content) -> Result<ContentHash> {
        self.put_away(org, content).await
    }

    fn chunks(&self) -> &Chunks {
        &self.0.chunks
    }

    fn max_payload(&self) -> u64 {
        self.0.options.max_payload
    }

    fn now(&self) -> Timestamp {
        self.0.context.clock.now()
    }
}

#[async_trait]
impl WorkSource for PostgresStorage {
    async fn register_worker(&self, worker: WorkerInfo) -> Result<()> {
        worker.check()?;
        self.0.chunks.worker_seen(worker.org, worker.id);
        self.write_alone("register a worker", move |tx| claims::register(tx, &worker)).await
    }

    async fn claim_agents(&self, claim: ClaimRequest) -> Result<Vec<Claim>> {
        claim.check()?;
        self.0.chunks.worker_seen(claim.org, claim.worker);
        let claims = self.write_work("claim runs", move |tx| claims::claim_agents(tx, &claim)).await?;
        self.0.parents.note(&claims);
        Ok(claims)
    }

    async fn claim_tasks(&self, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        claim.check()?;
        self.write_work("claim tasks", move |tx| claims::claim_tasks(tx, &claim)).await
    }

    async fn report_task(&self, mut report: TaskReport) -> Result<()> {
        self.settle_result(report.org, &mut report.result).await?;
        let (org, task) = (report.org, report.task);
        let run = self.read("find the run of a task", org, move |tx| claims::run_of(tx, org, task)).await?;
        let run = run.ok_or_else(|| superseded(&report))?;
        let chunks = self.0.chunks.clone();
        self.write("report a task", org, run, move |tx| {
            let op = claims::report_task(tx, run, &report)?;
            end_attempt(tx, &chunks, (org, run), op)
        })
        .await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        beat.check()?;
        self.0.chunks.worker_seen(beat.org, beat.worker);
        self.write_work("extend leases", move |tx| claims::heartbeat(tx, &beat)).await
    }

    async fn release(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<()> {
        self.write("give a run back", org, execution, move |tx| release(tx, org, execution, lease)).await
    }

    async fn unregister_worker(&self, org: OrgId, worker: WorkerId) -> Result<()> {
        self.0.chunks.worker_left(org, worker);
        self.write_alone("remove a worker", move |tx| claims::unregister(tx, org, worker)).await
    }
}

#[async_trait]
impl Housekeeping for PostgresStorage {
    async fn pass(&self) -> Result<Option<Timestamp>> {
        self.keep().await
    }

    async fn cut_leases(&self, org: OrgId, worker: WorkerId, left: Duration) -> Result<()> {
        self.write_alone("cut leases", move |tx| cut_leases(tx, org, worker, left)).await
    }

    async fn backup(&self, to: &Path) -> Result<u64> {
        no_backup(to)
    }

    async fn load(&self) -> Result<Load> {
        let pools = [("keep", &self.0.keepers), ("read", &self.0.readers), ("move", &self.0.movers)];
        let (pools, set_aside) = (pools.map(|(name, pool)| pool.load(name)).into(), self.0.aside.total());
        Ok(Load { queues: self.read_all("count what waits", load::queues).await?, pools, set_aside })
    }

    async fn remove_ended(&self, keep: Duration) -> Result<usize> {
        self.write_alone("remove runs that ended long ago", move |tx| retention::remove_ended(tx, keep)).await
    }
}

impl Storage for PostgresStorage {
    fn server_side(&self) -> Result<&dyn ServerSide> {
        Ok(self)
    }

    fn hints(&self) -> &Hints {
        &self.0.context.hints
    }

    fn chunks(&self) -> Chunks {
        self.0.chunks.clone()
    }

    fn families(&self) -> Option<&dyn Families> {
        Some(self)
    }

    fn family_stream(&self, _: OrgId, _: ExecutionId, _: &str, _: u64) -> Option<FamilyStream> {
        None
    }

    fn previews(&self) -> Option<&dyn Previews> {
        Some(self)
    }

    fn event_stream(&self, _: OrgId, _: ExecutionId, _: EventId, _: u64) -> Option<super::EventStream> {
        None
    }

    fn org(&self) -> OrgId {
        OrgId::DEFAULT
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.context.clock
    }

    fn rows(&self) -> Rows {
        Rows::Elsewhere
    }

    fn describe(&self) -> String {
        self.0.name.clone()
    }

    fn close(&self) {
        if self.check_process().is_ok() {
            self.0.watcher.close();
            self.0.committers.close();
            [&self.0.keepers, &self.0.movers, &self.0.readers].into_iter().for_each(Pool::close);
        }
    }
}
