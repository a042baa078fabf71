//! Reads: a few connections on threads of their own, so that a long listing delays neither writes nor the async runtime.

use super::fault::{Done, Fault};
use super::file_identity::Place;
use super::files::open_reader;
use super::tx::Tx;
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::forks;
use crate::sync::Mutex;
use rusqlite::Connection;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The sending side of the reader threads. They end when it is dropped or stopped.
#[derive(Debug)]
pub(super) struct Readers {
    place: Arc<Place>,
    count: usize,
    busy: Duration,
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Readers of the files at a place. They are not started yet.
    pub(super) fn of(place: Arc<Place>, count: usize, busy: Duration) -> Self {
        Self { place, count, busy, queue: Mutex::default(), threads: Mutex::default() }
    }

    /// Opens the connections and starts their threads.
    pub(super) fn start(&self) -> Result<()> {
        let told = |error| super::fault::explain("open a connection for reads", error, "nothing was changed");
        let (sender, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            let connection = open_reader(self.place.path(), self.busy).map_err(told)?;
            let queue = queue.clone();
            let work = move || {
                loop {
                    // An idle thread waits for a job while it holds the lock; the other idle ones wait for the
                    // lock. The lock is released before the job runs.
                    let job = queue.lock().recv();
                    let _inside = forks::enter();
                    match job {
                        Ok(job) => job(&connection),
                        Err(_) => return drop(connection),
                    }
                }
            };
            let thread = crate::spawn::thread("flovyn-sqlite-read", "reads of the database", work)?;
            threads.push(thread);
        }
        *self.threads.lock() = threads;
        *self.queue.lock() = Some(sender);
        Ok(())
    }

    /// Runs a read on one snapshot of the database.
    pub(super) async fn run<T, F>(&self, asked: &'static str, now: Timestamp, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Done<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let place = self.place.clone();
        let job: Job = Box::new(move |connection| {
            let told = |lost: super::file_identity::Lost| lost.to_error(asked, "nothing was read");
            // Before the read: SQLite must not touch shared memory that was cut off. After it: what was read from files
            // that are not at the path is not returned.
            let read = place.memory().map_err(told).and_then(|()| {
                let read = snapshot(&Tx::new(connection, now), read).map_err(|fault| fault.into_error(asked));
                place.look().map_err(told).and(read)
            });
            let _ = reply.send(read);
        });
        match &*self.queue.lock() {
            Some(sender) => drop(sender.send(job)),
            // Dropping the job drops the sender of its answer, which ends the wait below.
            None => drop(job),
        }
        answer.await.unwrap_or_else(|_| {
            Err(match self.place.look() {
                Err(lost) if self.place.is_open() => lost.to_error(asked, "nothing was read"),
                _ => crate::storage::sql::database_error::closed(asked),
            })
        })
    }

    /// Ends the threads after they have answered what was asked. Their connections are closed when this returns.
    pub(super) fn stop(&self) {
        self.queue.lock().take();
        let threads: Vec<_> = self.threads.lock().drain(..).collect();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn snapshot<T>(tx: &Tx, read: impl FnOnce(&Tx) -> Done<T>) -> Done<T> {
    tx.execute("BEGIN", [])?;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(tx))).unwrap_or_else(|_| {
        Err(Fault::Domain(Error::new(Code::Internal, "the storage backend met a bug in a read; please report it")))
    });
    if !tx.conn.is_autocommit() {
        tx.execute("COMMIT", [])?;
    }
    result
}
