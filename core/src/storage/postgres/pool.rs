//! A few connections on threads of their own, for work that shares no transaction: reads, claims, housekeeping.
//!
//! The thread that was idle last is woken first: a quiet program keeps one connection busy and opens no others.

use super::config::Reach;
use super::link::Link;
use crate::error::Result;
use crate::storage::PoolLoad;
use crate::storage::sql::database_error::closed;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&mut Link) + Send>;

/// The sending side of the threads.
pub(super) struct Pool {
    board: Arc<Mutex<Board>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Board {
    jobs: VecDeque<Job>,
    idle: Vec<oneshot::Sender<Job>>,
    closed: bool,
}

impl Pool {
    /// Starts the threads. A connection is opened by its first job.
    pub(super) fn start(name: &str, count: usize, reach: &Arc<Reach>) -> Result<Self> {
        let board: Arc<Mutex<Board>> = Arc::default();
        let mut threads = Vec::with_capacity(count);
        for _ in 0..count {
            let (board, link) = (board.clone(), Link::new(reach.clone())?);
            threads.push(spawn(name, move || serve(&board, link))?);
        }
        Ok(Self { board, threads: Mutex::new(threads) })
    }

    /// Runs a job; the answer is an error when the pool is closed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        asked: &str,
        job: impl FnOnce(&mut Link) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_and_tidy(asked, move |link, answer| answer(job(link))).await
    }

    /// Runs a job that has something left to do once it has answered.
    pub(super) async fn run_and_tidy<T: Send + 'static>(
        &self,
        asked: &str,
        job: impl FnOnce(&mut Link, &mut dyn FnMut(Result<T>)) + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let mut reply = Some(reply);
        self.send(Box::new(move |link| {
            job(link, &mut |result| {
                if let Some(reply) = reply.take() {
                    let _ = reply.send(result);
                }
            });
        }));
        answer.await.unwrap_or_else(|_| Err(closed(asked)))
    }

    fn send(&self, mut job: Job) {
        let mut board = self.board.lock();
        // With a job that is dropped goes its reply, and so the caller's wait ends.
        if board.closed {
            return;
        }
        while let Some(idle) = board.idle.pop() {
            match idle.send(job) {
                Ok(()) => return,
                Err(back) => job = back,
            }
        }
        board.jobs.push_back(job);
    }

    /// How busy it is.
    pub(super) fn load(&self, name: &'static str) -> PoolLoad {
        let size = self.threads.lock().len();
        let board = self.board.lock();
        let idle = board.idle.len().min(size);
        PoolLoad { name, idle, busy: size - idle, waiting: board.jobs.len() }
    }

    /// Ends the threads once what was asked is answered, and waits for them.
    pub(super) fn close(&self) {
        let mut board = self.board.lock();
        board.closed = true;
        board.idle.clear();
        drop(board);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The last owner may be a job of this very pool.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

fn serve(board: &Mutex<Board>, mut link: Link) {
    while let Some(next) = next(board) {
        match next {
            Next::Job(job) => job(&mut link),
            Next::Wait(coming) => {
                if let Ok(job) = link.wait(coming) {
                    job(&mut link);
                }
            }
        }
    }
}

enum Next {
    Job(Job),
    Wait(oneshot::Receiver<Job>),
}

/// What an idle thread does next; nothing once the pool is closed and its jobs are done.
fn next(board: &Mutex<Board>) -> Option<Next> {
    let mut board = board.lock();
    if let Some(job) = board.jobs.pop_front() {
        return Some(Next::Job(job));
    }
    if board.closed {
        return None;
    }
    let (sender, coming) = oneshot::channel();
    board.idle.push(sender);
    Some(Next::Wait(coming))
}

/// Starts a thread of the backend.
pub(super) fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    crate::spawn::thread(name, "a connection to PostgreSQL", life)
}
