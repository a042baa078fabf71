//! The writer thread: it owns the write connection, and runs all commands that wait as one transaction with one fsync.
//!
//! If commits are quick (on a RAM disk or a good SSD) and one run alone keeps committing, its caller runs the
//! transaction on its own thread: nothing could be grouped, and two thread switches are saved. The mutex around
//! [`Loop`] makes sure that only one of them writes at a time.

use super::fault::{Done, Fault, explain, is_busy};
use super::file_identity::Place;
use super::file_time::{FileClock, Pace};
use super::files::Synchronous;
use super::lock::Locks;
use super::moved_files::FileWatch;
use super::readers::Readers;
use super::tx::Tx;
use super::wal::Log;
use crate::clock::Clock;
use crate::error::Result;
use crate::forks;
use crate::id::ExecutionId;
use crate::storage::sql::database_error::closed;
use crate::storage::sql::group::{Attempt, Group, Grouped, Outcome, Serves, Work, command};
use crate::streaming::Hints;
use crate::sync::Mutex;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most commands that share a transaction.
const GROUP: usize = 256;
/// How often the writer looks for writes of other processes.
const POLL: Duration = Duration::from_millis(20);
/// If the log was modified less than so long ago, its time does not tell it from a later write: two writes can fall on
/// one tick of the file system's clock. So the next look asks SQLite again.
const TICK: Duration = Duration::from_millis(50);
/// How often the writer looks whether another process waits for the write lock, while it has seen none.
const GLANCE: Duration = Duration::from_millis(2);
/// How long it stands in line for the write lock after it has seen another process that writes.
const CROWDED: Duration = Duration::from_secs(1);
/// A caller may run a transaction itself if they usually take less than this.
const QUICK: Duration = Duration::from_micros(400);

/// What the writer needs besides its connection.
pub(super) struct Setting {
    pub path: PathBuf,
    /// The path of the write-ahead log.
    pub log: PathBuf,
    pub synchronous: Synchronous,
    pub busy_timeout: Duration,
    pub clock: Arc<FileClock>,
    pub hints: Hints,
    pub locks: Arc<Locks>,
    pub place: Arc<Place>,
    pub readers: Arc<Readers>,
    /// The moment the last housekeeping pass gave as the next one.
    pub next_due: Arc<AtomicI64>,
}

/// The sending side of the writer thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    shared: Arc<Shared>,
}

/// What the thread shares with callers that write by themselves.
struct Shared {
    /// The connection and its state. None once the thread has stopped.
    state: Mutex<Option<Loop>>,
    /// How many commands were sent and not taken yet. A caller does not write while there are any: it would overtake
    /// them.
    queued: AtomicUsize,
    /// The usual time of a command in its transaction, in nanoseconds.
    usual: AtomicU64,
    /// The run that committed last.
    last: Mutex<Option<ExecutionId>>,
}

enum Message {
    Work(Box<dyn Work<Sqlite>>),
    Stop,
}

/// Names the backend for [`Grouped`].
struct Sqlite;

impl Grouped for Sqlite {
    type Tx<'t> = Tx<'t>;
    type Fault = Fault;
    type Wants = Durability;
}

/// When a command may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Once it is on the disk.
    Now,
    /// Once it is committed. It may be lost with the machine, but not if a later command is on the disk.
    Later,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(connection: Connection, setting: Setting) -> Result<(Self, std::thread::JoinHandle<()>)> {
        let (sender, queue) = mpsc::channel();
        let mut connection = connection;
        let log = Log::open(&mut connection, &setting)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(Some(Loop::new(connection, setting, log))),
            queued: AtomicUsize::new(0),
            usual: AtomicU64::new(u64::MAX / 2),
            last: Mutex::new(None),
        });
        let served = shared.clone();
        let work = move || served.serve_queue(&queue);
        let thread = crate::spawn::thread("flovyn-sqlite", "the database's writer", work)?;
        Ok((Self { queue: sender, shared }, thread))
    }

    /// As [`run`](Self::run), for a commit of a run. The caller itself runs it if that is quicker and nobody else
    /// writes. It begins before the future is polled, so that a future which is dropped takes no command with it.
    pub(super) fn run_for<T, F>(
        &self,
        execution: ExecutionId,
        asked: &'static str,
        run: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        let is_alone = self.shared.last.lock().replace(execution) == Some(execution);
        let is_quick = self.shared.usual.load(Ordering::Relaxed) < QUICK.as_nanos() as u64;
        let (work, mut answer) = command::<Sqlite, F, T>(asked, Durability::Now, run);
        let here = is_alone && is_quick && self.shared.queued.load(Ordering::Acquire) == 0;
        let not_served = if here { self.shared.serve_here(work) } else { Some(work) };
        let served = match not_served {
            Some(work) => {
                self.send_work(work);
                None
            }
            None => Some(answer.try_recv().unwrap_or_else(|_| Err(closed(asked)))),
        };
        async move {
            match served {
                Some(result) => result,
                None => answer.await.unwrap_or_else(|_| Err(closed(asked))),
            }
        }
    }

    /// Runs a command in the next transaction. When it is answered, it is durable. It is sent before the future is
    /// polled, so that a future which is dropped takes no command with it.
    pub(super) fn run<T, F>(&self, asked: &'static str, run: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        let answer = self.send(asked, Durability::Now, run);
        async move { answer.await.unwrap_or_else(|_| Err(closed(asked))) }
    }

    /// Runs a command that need not be on the disk before a later one is.
    pub(super) fn run_lazily<T, F>(&self, asked: &'static str, run: F) -> oneshot::Receiver<Result<T>>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        self.send(asked, Durability::Later, run)
    }

    fn send<T, F>(&self, asked: &'static str, wants: Durability, run: F) -> oneshot::Receiver<Result<T>>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        let (work, answer) = command::<Sqlite, F, T>(asked, wants, run);
        self.send_work(work);
        answer
    }

    fn send_work(&self, work: Box<dyn Work<Sqlite>>) {
        self.shared.queued.fetch_add(1, Ordering::AcqRel);
        // A closed queue drops the command and with it the sender of its answer. The receiver then reports that the
        // store is closed.
        let _ = self.queue.send(Message::Work(work));
    }

    /// Ends the thread once everything sent before is answered.
    pub(super) fn stop(&self) {
        let _ = self.queue.send(Message::Stop);
    }
}

impl Shared {
    /// Runs one command on the caller's thread. Gives it back if the writer is busy or closed. It never waits: the
    /// caller may be an event loop.
    fn serve_here(&self, work: Box<dyn Work<Sqlite>>) -> Option<Box<dyn Work<Sqlite>>> {
        let Some(mut state) = self.state.try_lock() else { return Some(work) };
        let Some(state) = state.as_mut() else { return Some(work) };
        // Other processes write too, or the files or the time have to be checked first. That can take a while, so the
        // thread does it.
        if state.is_lost() || state.is_crowded() || !state.pace.is_settled() {
            return Some(work);
        }
        state.begun = state.begin_at_once();
        if state.begun.is_none() {
            return Some(work);
        }
        self.serve(state, vec![work]);
        None
    }

    fn serve(&self, state: &mut Loop, group: Group<Sqlite>) {
        let (start, size) = (crate::clock::instant(), group.len() as u64);
        state.serve(group);
        let (taken, usual) = (start.elapsed().as_nanos() as u64 / size.max(1), self.usual.load(Ordering::Relaxed));
        // A moving average that begins with the first measurement. One slow commit weighs enough to end the quick way
        // at once.
        let average = if usual > u64::MAX / 4 { taken } else { (usual * 7 + taken) / 8 };
        self.usual.store(average, Ordering::Relaxed);
        // A log that others have removed or replaced must not be folded into the database.
        if !state.is_lost()
            && let Some(Open { connection, log }) = &state.open
        {
            log.fold(connection);
        }
    }

    /// The writer thread: runs what is queued until it is told to stop.
    fn serve_queue(&self, queue: &mpsc::Receiver<Message>) {
        let mut group: Group<Sqlite> = Vec::new();
        let mut looked = crate::clock::instant();
        loop {
            let mut stop = false;
            let first = queue.recv_timeout(POLL);
            let mut guard = self.state.lock();
            let Some(state) = guard.as_mut() else { return };
            match first {
                Ok(Message::Work(work)) => group.push(work),
                Ok(Message::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => stop = true,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    state.look_around();
                    looked = crate::clock::instant();
                    continue;
                }
            }
            while !stop && group.len() < GROUP {
                match queue.try_recv() {
                    Ok(Message::Work(work)) => group.push(work),
                    Ok(Message::Stop) => stop = true,
                    Err(_) => break,
                }
            }
            self.queued.fetch_sub(group.len(), Ordering::AcqRel);
            if !group.is_empty() {
                self.serve(state, std::mem::take(&mut group));
            }
            if stop {
                if let Some(mut state) = guard.take() {
                    state.end();
                }
                return;
            }
            if looked.elapsed() > POLL {
                state.look_around();
                looked = crate::clock::instant();
            }
        }
    }
}

/// A transaction has begun and holds the write lock. The guard keeps forks out until it ends.
struct Begun(forks::Inside);

/// The open files.
pub(super) struct Open {
    pub connection: Connection,
    pub log: Log,
}

pub(super) struct Loop {
    /// None if the files were lost and no others could be opened in their place.
    pub open: Option<Open>,
    pub setting: Setting,
    pub files: FileWatch,
    pace: Pace,
    /// SQLite's data version at the last look.
    pub version: Option<i64>,
    /// Size and modification time of the log at the last look. None if a later write could have the same ones.
    pub seen: Option<(u64, std::time::SystemTime)>,
    /// The setting of `synchronous` that the connection has now.
    pub synchronous: Option<Synchronous>,
    /// The transaction that [`Shared::serve_here`] has begun for the next group.
    begun: Option<Begun>,
    /// Until when other processes are assumed to write too.
    crowded: Option<Instant>,
    /// When the writer last looked for other processes.
    glanced: Instant,
}

impl Loop {
    fn new(connection: Connection, setting: Setting, log: Log) -> Self {
        let now = crate::clock::instant();
        let pace = Pace::new(setting.path.clone(), setting.clock.clone(), setting.locks.clone());
        Self {
            version: version(&connection),
            open: Some(Open { connection, log }),
            setting,
            pace,
            files: FileWatch::default(),
            seen: None,
            synchronous: None,
            begun: None,
            crowded: None,
            glanced: now,
        }
    }

    /// Regular work between transactions: keeps the common time, checks the files, and announces writes of other
    /// processes.
    fn look_around(&mut self) {
        self.pace.keep();
        if !self.keeps_place() {
            return;
        }
        let Some(Open { connection, .. }) = &self.open else { return };
        let log = std::fs::metadata(&self.setting.log).and_then(|log| Ok((log.len(), log.modified()?))).ok();
        if log.is_some() && log == self.seen {
            return;
        }
        self.seen = log.filter(|(_, written)| written.elapsed().is_ok_and(|ago| ago > TICK));
        let inside = forks::enter();
        let version = version(connection);
        drop(inside);
        if let Some(version) = version {
            if self.version.is_some_and(|before| before != version) {
                self.crowded = Some(crate::clock::instant() + CROWDED);
                self.setting.hints.everything_changed();
            }
            self.version = Some(version);
        }
    }

    /// Begins a transaction if the write lock is free and nothing has to be set up before.
    fn begin_at_once(&mut self) -> Option<Begun> {
        let Open { connection, .. } = self.open.as_ref()?;
        if self.synchronous != Some(self.setting.synchronous) || self.setting.place.memory().is_err() {
            return None;
        }
        begin(connection).ok()
    }

    /// Begins a transaction. Waits for the write lock in line with other processes, for a bounded time.
    fn begin(&mut self, lazy: bool) -> rusqlite::Result<Begun> {
        let Some(Open { connection, .. }) = &self.open else { return Ok(Begun(forks::enter())) };
        let wanted = if lazy { Synchronous::Normal } else { self.setting.synchronous };
        if self.synchronous != Some(wanted) {
            let _inside = forks::enter();
            connection.execute_batch(wanted.pragma())?;
            self.synchronous = Some(wanted);
        }
        let crowded = self.is_crowded();
        let Some(Open { connection, .. }) = &self.open else { return Ok(Begun(forks::enter())) };
        let mut turn = crowded.then(|| self.setting.locks.turn(POLL));
        let mut since = None;
        let mut pause = Duration::from_micros(50);
        loop {
            match begin(connection) {
                Ok(begun) => return Ok(begun),
                Err(error) if is_busy(&error) => {
                    if since.get_or_insert_with(Instant::now).elapsed() > self.setting.busy_timeout {
                        return Err(error);
                    }
                    turn.get_or_insert_with(|| self.setting.locks.turn(POLL));
                    crate::clock::block(pause);
                    pause = (pause * 2).min(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether another process writes too, or waits to. Then all stand in line, so that none is starved. A process that
    /// is alone does not pay for that.
    fn is_crowded(&mut self) -> bool {
        let now = crate::clock::instant();
        if self.crowded.is_some_and(|until| now < until) {
            return true;
        }
        if now.duration_since(self.glanced) < GLANCE {
            return false;
        }
        self.glanced = now;
        self.crowded = self.setting.locks.is_awaited().then(|| now + CROWDED);
        self.crowded.is_some()
    }

    fn rollback(&self) {
        if let Some(Open { connection, .. }) = &self.open
            && !connection.is_autocommit()
            && let Err(error) = connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, path = %self.setting.path.display(), "a rollback failed");
        }
    }
}

/// Begins a transaction, or fails if the write lock is not free.
fn begin(connection: &Connection) -> rusqlite::Result<Begun> {
    let inside = forks::enter();
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(Begun(inside))
}

impl Serves<Sqlite> for Loop {
    fn transaction(&mut self, group: &mut Group<Sqlite>) -> Outcome {
        let asked = group[0].asked();
        self.pace.settle();
        let begun = match self.begun.take() {
            Some(begun) => Ok(begun),
            None => match self.check_place(asked) {
                Ok(()) => self.begin(group.iter().all(|work| *work.wants() == Durability::Later)),
                Err(error) => return Outcome::Failed(error),
            },
        };
        let Begun(_inside) = match begun {
            Ok(begun) => begun,
            Err(error) => return Outcome::Failed(explain(asked, error, "nothing was changed")),
        };
        let Some(Open { connection, log }) = &mut self.open else { return Outcome::Failed(closed(asked)) };
        let tx = Tx::new(connection, self.setting.clock.now());
        let alone = group.len() == 1;
        for work in group.iter_mut() {
            let before = connection.total_changes();
            match work.attempt(&tx) {
                Attempt::Kept => {}
                Attempt::Refused if connection.total_changes() == before => {}
                // It wrote before it refused. Only a rollback undoes that, and it undoes the whole group.
                Attempt::Refused => {
                    self.rollback();
                    return match alone {
                        true => Outcome::Refused,
                        false => Outcome::Undone { error: closed(work.asked()), again: false },
                    };
                }
                Attempt::Broken(fault) => {
                    let error = fault.into_error(work.asked());
                    self.rollback();
                    return Outcome::Undone { error, again: false };
                }
            }
        }
        let news = tx.into_news();
        log.make_room();
        match connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
            Ok(_) => match self.is_kept(asked, &news) {
                Ok(()) => Outcome::Committed(news),
                Err(error) => Outcome::Failed(error),
            },
            Err(error) => {
                self.rollback();
                Outcome::Failed(explain(asked, error, "the outcome is unknown"))
            }
        }
    }

    fn hints(&self) -> &Hints {
        &self.setting.hints
    }

    fn next_due(&self) -> &AtomicI64 {
        &self.setting.next_due
    }
}

/// A number that changes whenever another connection has written.
fn version(connection: &Connection) -> Option<i64> {
    let mut statement = connection.prepare_cached("PRAGMA data_version").ok()?;
    statement.query_row([], |row| row.get(0)).ok()
}
