//! The committers: each owns a connection, and runs all commands that wait for it as one transaction.
//!
//! Commands that arrive while a transaction is under way share the next one. Their runs are locked together, their rows
//! are written by one statement for each table, and one COMMIT makes all of them durable. A command that refuses has
//! written nothing, so the others go on. A fault of the database undoes the group, whose commands are then run one by
//! one. All commands about a run go to the same committer of a process, and the last ones of a family to that of its parent
//! (`ends.rs`): otherwise two committers would wait for each other's row lock.

use super::config::Reach;
use super::ends::Ahead;
use super::fault::{Done, Fault, is_conflict};
use super::link::Link;
use super::locks;
use super::pool::spawn;
use super::tx::{Mode, Tx};
use super::watcher::Own;
use crate::clock::Clock;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::storage::sql::database_error::closed;
use crate::storage::sql::group::{Attempt, Group, Grouped, Outcome, Serves, Work, command};
use crate::streaming::Hints;
use crate::sync::Mutex;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::sync::mpsc;

/// The most commands that share a transaction.
const GROUP: usize = 256;

/// What the transaction does before a command begins, for the whole group in one round trip.
#[derive(Default)]
pub(super) struct Before {
    /// The run that is locked.
    pub target: Option<(OrgId, ExecutionId)>,
    /// The command may write to the rows of runs above it, so they are locked before it.
    pub above: bool,
    /// What is asked together with the lock. The command finds the answers in [`Tx::ahead`].
    pub ahead: Ahead,
}

/// What all writers of a process share.
#[derive(Clone)]
pub(super) struct WriteContext {
    pub clock: Arc<dyn Clock>,
    pub hints: Hints,
    /// The moment the last housekeeping pass gave as the next one.
    pub next_due: Arc<AtomicI64>,
    /// Notes transactions of this process that have written, so that the watcher does not take them for another's.
    pub own: Arc<Own>,
}

/// The sending side of the committers.
pub(super) struct Committers {
    queues: Mutex<Vec<mpsc::UnboundedSender<Box<dyn Work<Postgres>>>>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Committers {
    /// Starts the threads. Each opens its connection with its first command.
    pub(super) fn start(count: usize, reach: &Arc<Reach>, context: &WriteContext) -> Result<Self> {
        let (mut queues, mut threads) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let (sender, queue) = mpsc::unbounded_channel();
            let (link, context) = (Link::new(reach.clone())?, context.clone());
            threads.push(spawn("flovyn-postgres", move || serve(link, queue, &context))?);
            queues.push(sender);
        }
        Ok(Self { queues: Mutex::new(queues), threads: Mutex::new(threads) })
    }

    /// Runs a command about a run in the next transaction. When it is answered, it is durable. `shard` chooses the
    /// committer. It is sent before the future is polled, so that a future which is dropped takes no command with it.
    pub(super) fn run<T, F>(
        &self,
        asked: &'static str,
        shard: ExecutionId,
        before: Before,
        run: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        let (work, answer) = command::<Postgres, F, T>(asked, before, run);
        {
            let queues = self.queues.lock();
            let mut hasher = DefaultHasher::new();
            shard.hash(&mut hasher);
            let place = hasher.finish() % queues.len().max(1) as u64;
            // A closed queue drops the command and with it its reply.
            if let Some(queue) = queues.get(place as usize) {
                let _ = queue.send(work);
            }
        }
        async move { answer.await.unwrap_or_else(|_| Err(closed(asked))) }
    }

    /// Ends the threads after they have answered everything that was sent before, and waits for them.
    pub(super) fn close(&self) {
        self.queues.lock().clear();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Committers {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs a command in a transaction of its own on the caller's connection.
pub(super) fn alone<T, F>(link: &mut Link, context: &WriteContext, asked: &'static str, run: F) -> Result<T>
where
    T: Send + 'static,
    F: FnMut(&Tx) -> Done<T> + Send + 'static,
{
    let (work, mut answer) = command::<Postgres, F, T>(asked, Before::default(), run);
    Committer { link, context }.serve(vec![work]);
    answer.try_recv().unwrap_or_else(|_| Err(closed(asked)))
}

/// Names the backend for [`Grouped`].
struct Postgres;

impl Grouped for Postgres {
    type Tx<'t> = Tx<'t>;
    type Fault = Fault;
    type Wants = Before;
}

/// The thread of a committer: runs what is queued until the queue is closed.
fn serve(mut link: Link, mut queue: mpsc::UnboundedReceiver<Box<dyn Work<Postgres>>>, context: &WriteContext) {
    let mut waiting: VecDeque<Box<dyn Work<Postgres>>> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match link.wait(queue.recv()) {
                Some(work) => waiting.push_back(work),
                None => return,
            }
        }
        while let Ok(work) = queue.try_recv() {
            waiting.push_back(work);
        }
        let group = next_group(&mut waiting);
        Committer { link: &mut link, context }.serve(group);
    }
}

/// Takes the commands that can share a transaction, in the order they came: at most one for each run. A second one
/// would need another round trip to read what the first has written.
fn next_group(waiting: &mut VecDeque<Box<dyn Work<Postgres>>>) -> Group<Postgres> {
    let mut group = Vec::new();
    let mut taken = HashSet::new();
    let mut later = VecDeque::new();
    while let Some(work) = waiting.pop_front() {
        let free = work.wants().target.is_none_or(|target| taken.insert(target));
        if free && group.len() < GROUP {
            group.push(work);
        } else {
            later.push_back(work);
        }
    }
    *waiting = later;
    group
}

/// A connection that runs groups.
struct Committer<'a> {
    link: &'a mut Link,
    context: &'a WriteContext,
}

impl Serves<Postgres> for Committer<'_> {
    fn transaction(&mut self, group: &mut Group<Postgres>) -> Outcome {
        let Self { link, context } = self;
        let asked = group[0].asked();
        if let Err(error) = link.connect() {
            return Outcome::Failed(error);
        }
        let alone = group.len() == 1;
        let mut tx = Tx::new(link, Mode::Write, context.clock.now());
        let target = |before: &Before| Some((before.target?, before.above));
        let targets: Vec<_> = group.iter().filter_map(|work| target(work.wants())).collect();
        let ahead: Vec<_> = group.iter().flat_map(|work| work.wants().ahead.questions()).collect();
        let mut answers = match locks::lock_and_ask(&tx, &targets, ahead) {
            Ok(answers) => answers,
            Err(fault) => {
                drop(tx);
                return undone(link, asked, fault);
            }
        };
        // The time is taken again after the locks: waiting for them may have taken long, and what the previous holders
        // wrote must not lie in the future.
        tx.now = context.clock.now();
        for work in group.iter_mut() {
            tx.take_ahead(&work.wants().ahead, &mut answers);
            match work.attempt(&tx) {
                Attempt::Kept => tx.keep(),
                Attempt::Refused if tx.forget() => {}
                // Some of its writes were sent before it refused. Only a rollback undoes that, and it undoes the whole
                // group.
                Attempt::Refused => {
                    drop(tx);
                    link.rollback();
                    let error = closed(work.asked());
                    return if alone { Outcome::Refused } else { Outcome::Undone { error, again: false } };
                }
                Attempt::Broken(fault) => {
                    let asked = work.asked();
                    drop(tx);
                    return undone(link, asked, fault);
                }
            }
        }
        let committing = tx.has_written().then(|| context.own.commit());
        match tx.commit() {
            Ok((news, transaction)) => {
                if let Some(committing) = committing {
                    committing.ended(transaction);
                }
                Outcome::Committed(news)
            }
            // An error that the server has sent means that the transaction is undone. Without an answer its outcome is
            // unknown.
            Err(Fault::Sql(error)) if error.as_db_error().is_some() => undone(link, asked, Fault::Sql(error)),
            Err(fault) => {
                link.rollback();
                Outcome::Failed(fault.into_error(asked, "the outcome is unknown"))
            }
        }
    }

    fn hints(&self) -> &Hints {
        &self.context.hints
    }

    fn next_due(&self) -> &AtomicI64 {
        &self.context.next_due
    }
}

fn undone(link: &mut Link, asked: &str, fault: Fault) -> Outcome {
    link.rollback();
    let again = match &fault {
        Fault::Sql(error) => is_conflict(error) || !link.is_open(),
        _ => false,
    };
    Outcome::Undone { error: fault.into_error(asked, "nothing was changed"), again }
}
