//! The committers: each owns a connection and turns everything that waits for it into one transaction.
//!
//! Commands that arrive while a transaction is under way share the next one: their runs are locked together, their rows are
//! written by one statement a table, one COMMIT makes all of them durable. A command that refuses has written nothing, so
//! its neighbours go on. Trouble with the database undoes the group, whose commands are then run one by one. A run always
//! meets the same committer of a process, so its commands do not wait for each other's locks.

use super::config::Reach;
use super::fault::{Done, Fault, is_conflict};
use super::link::Link;
use super::locks;
use super::pool::{closed, spawn};
use super::tx::{Mode, Question, Tx};
use super::watcher::Own;
use crate::clock::Clock;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::storage::sql::news::News;
use crate::streaming::Hints;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::sync::{mpsc, oneshot};

/// At most so many commands share a transaction.
const GROUP: usize = 256;
/// How often a command is tried again when other writers were in its way.
const TRIES: usize = 5;

/// What is done before a command begins.
#[derive(Default)]
pub(super) struct Before {
    /// The run that it is about is locked.
    pub target: Option<(OrgId, ExecutionId)>,
    /// This is asked with the lock; the command finds the answer in [`Tx::ahead`].
    pub ahead: Option<Question>,
}

/// What all that write share.
#[derive(Clone)]
pub(super) struct Desk {
    pub clock: Arc<dyn Clock>,
    pub hints: Hints,
    /// The moment the last housekeeping pass gave as the next one.
    pub next_due: Arc<AtomicI64>,
    /// Transactions of this process that have written.
    pub own: Arc<Own>,
}

/// The sending side of the committers.
pub(super) struct Committers {
    queues: Mutex<Vec<mpsc::UnboundedSender<Box<dyn Work>>>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Committers {
    /// Starts the threads. A connection is opened by its first command.
    pub(super) fn start(count: usize, reach: &Arc<Reach>, desk: &Desk) -> Result<Self> {
        let (mut queues, mut threads) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let (sender, queue) = mpsc::unbounded_channel();
            let (link, desk) = (Link::new(reach.clone())?, desk.clone());
            threads.push(spawn("flovyn-postgres", move || serve(link, queue, &desk))?);
            queues.push(sender);
        }
        Ok(Self { queues: Mutex::new(queues), threads: Mutex::new(threads) })
    }

    /// Runs a command about a run in the next transaction; the answer is durable. `shard` chooses the committer.
    pub(super) async fn run<T, F>(&self, asked: &'static str, shard: ExecutionId, before: Before, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx) -> Done<T> + Send + 'static,
    {
        let (work, answer) = command(asked, before, run);
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
        answer.await.unwrap_or_else(|_| Err(closed(asked)))
    }

    /// Ends the threads once everything sent before is answered, and waits for them.
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

/// Runs a command in a transaction of its own, on a connection of the caller's.
pub(super) fn alone<T, F>(link: &mut Link, desk: &Desk, asked: &'static str, run: F) -> Result<T>
where
    T: Send + 'static,
    F: FnMut(&Tx) -> Done<T> + Send + 'static,
{
    let (work, mut answer) = command(asked, Before::default(), run);
    carry_out(link, desk, vec![work]);
    answer.try_recv().unwrap_or_else(|_| Err(closed(asked)))
}

/// How one attempt of a command went.
enum Attempt {
    Kept,
    Refused,
    Broken(Fault),
}

trait Work: Send {
    fn attempt(&mut self, tx: &Tx) -> Attempt;
    /// Answers with what the last attempt gave, or with the error that undid it.
    fn answer(self: Box<Self>, undone: Option<Error>);
    fn asked(&self) -> &'static str;
    fn before(&self) -> &Before;
}

struct Command<F, T> {
    asked: &'static str,
    before: Before,
    run: F,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

fn command<T, F>(asked: &'static str, before: Before, run: F) -> (Box<dyn Work>, oneshot::Receiver<Result<T>>)
where
    T: Send + 'static,
    F: FnMut(&Tx) -> Done<T> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Command { asked, before, run, result: None, reply }), answer)
}

impl<T: Send, F: FnMut(&Tx) -> Done<T> + Send> Work for Command<F, T> {
    fn attempt(&mut self, tx: &Tx) -> Attempt {
        let (result, attempt) = match catch_unwind(AssertUnwindSafe(|| (self.run)(tx))) {
            Ok(Ok(value)) => (Some(Ok(value)), Attempt::Kept),
            Ok(Err(Fault::Sql(error))) => (None, Attempt::Broken(Fault::Sql(error))),
            Ok(Err(fault)) => (Some(Err(fault.told(self.asked, "nothing was changed"))), Attempt::Refused),
            Err(_) => {
                let message = format!("{}: the storage backend met a bug; please report it with this run", self.asked);
                (Some(Err(Error::new(Code::Internal, message))), Attempt::Refused)
            }
        };
        self.result = result;
        attempt
    }

    fn answer(self: Box<Self>, undone: Option<Error>) {
        let result = match (undone, self.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => result,
            (None, None) => Err(closed(self.asked)),
        };
        let _ = self.reply.send(result);
    }

    fn asked(&self) -> &'static str {
        self.asked
    }

    fn before(&self) -> &Before {
        &self.before
    }
}

/// A committer's life.
fn serve(mut link: Link, mut queue: mpsc::UnboundedReceiver<Box<dyn Work>>, desk: &Desk) {
    let mut waiting: VecDeque<Box<dyn Work>> = VecDeque::new();
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
        carry_out(&mut link, desk, group);
    }
}

/// Takes what can share a transaction: one command a run, in the order they came.
fn next_group(waiting: &mut VecDeque<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
    let mut group = Vec::new();
    let mut taken = HashSet::new();
    let mut later = VecDeque::new();
    while let Some(work) = waiting.pop_front() {
        let free = work.before().target.is_none_or(|target| taken.insert(target));
        if free && group.len() < GROUP {
            group.push(work);
        } else {
            later.push_back(work);
        }
    }
    *waiting = later;
    group
}

enum Outcome {
    /// Durable.
    Committed(News),
    /// Undone because of one of the commands, or of the connection; the same may be tried again.
    Undone { error: Error, again: bool },
    /// The only command wrote, then refused; it was undone and its own answer stands.
    Refused,
    /// Nobody's fault: every command gets the error.
    Failed(Error),
}

fn carry_out(link: &mut Link, desk: &Desk, mut group: Vec<Box<dyn Work>>) {
    for tried in 1.. {
        match transaction(link, desk, &mut group) {
            Outcome::Committed(news) => {
                group.into_iter().for_each(|work| work.answer(None));
                return news.publish(&desk.hints, &desk.next_due);
            }
            // One of them is to blame, or stands in the way: alone, the others can be kept.
            Outcome::Undone { .. } if group.len() > 1 => {
                return group.into_iter().for_each(|work| carry_out(link, desk, vec![work]));
            }
            Outcome::Undone { again: true, .. } if tried < TRIES => {}
            Outcome::Refused => return group.into_iter().for_each(|work| work.answer(None)),
            Outcome::Undone { error, .. } | Outcome::Failed(error) => {
                desk.hints.outage().refused(&error);
                return group.into_iter().for_each(|work| work.answer(Some(error.clone())));
            }
        }
    }
}

fn transaction(link: &mut Link, desk: &Desk, group: &mut [Box<dyn Work>]) -> Outcome {
    let asked = group[0].asked();
    if let Err(error) = link.connect() {
        return Outcome::Failed(error);
    }
    let alone = group.len() == 1;
    let mut tx = Tx::new(link, Mode::Write, desk.clock.now());
    let targets: Vec<_> = group.iter().filter_map(|work| work.before().target).collect();
    let ahead: Vec<_> = group.iter().filter_map(|work| work.before().ahead.clone()).collect();
    let mut answers = match locks::lock_and_ask(&tx, &targets, ahead) {
        Ok(answers) => answers,
        Err(fault) => {
            drop(tx);
            return undone(link, asked, fault);
        }
    };
    // What is judged now is judged after everything that held the locks before.
    tx.now = desk.clock.now();
    for work in group.iter_mut() {
        tx.ahead.set(work.before().ahead.as_ref().and_then(|_| answers.next()));
        match work.attempt(&tx) {
            Attempt::Kept => tx.keep(),
            Attempt::Refused if tx.forget() => {}
            // It wrote before it refused: only a rollback undoes that.
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
    let committing = tx.has_written().then(|| desk.own.commit());
    match tx.commit() {
        Ok((news, transaction)) => {
            if let Some(committing) = committing {
                committing.ended(transaction);
            }
            Outcome::Committed(news)
        }
        // An answer of the server says that the transaction is undone; silence says nothing.
        Err(Fault::Sql(error)) if error.as_db_error().is_some() => undone(link, asked, Fault::Sql(error)),
        Err(fault) => {
            link.rollback();
            Outcome::Failed(fault.told(asked, "the outcome is unknown"))
        }
    }
}

fn undone(link: &mut Link, asked: &str, fault: Fault) -> Outcome {
    link.rollback();
    let again = match &fault {
        Fault::Sql(error) => is_conflict(error) || !link.is_open(),
        _ => false,
    };
    Outcome::Undone { error: fault.told(asked, "nothing was changed"), again }
}
