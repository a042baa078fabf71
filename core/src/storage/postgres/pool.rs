//! A few connections on threads of their own, for work that shares no transaction: reads, claims, housekeeping.
//!
//! Of the idle threads the one that became idle last gets the next job. So a quiet program keeps one connection busy
//! and opens no others.

use super::config::Reach;
use super::link::Link;
use crate::error::Result;
use crate::storage::PoolLoad;
use crate::storage::sql::database_error::closed;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&mut Link) + Send>;

/// The sending side of the pool's threads.
pub(super) struct Pool {
    queue: Arc<Mutex<JobQueue>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct JobQueue {
    /// Jobs that wait for a thread. Empty while a thread is idle.
    jobs: VecDeque<Job>,
    /// How to give a job to each idle thread.
    idle: Vec<oneshot::Sender<Job>>,
    closed: bool,
}

impl Pool {
    /// Starts the threads. Each opens its connection with its first job.
    pub(super) fn start(name: &str, count: usize, reach: &Arc<Reach>) -> Result<Self> {
        let queue: Arc<Mutex<JobQueue>> = Arc::default();
        let mut threads = Vec::with_capacity(count);
        for _ in 0..count {
            let (queue, link) = (queue.clone(), Link::new(reach.clone())?);
            threads.push(spawn(name, move || serve(&queue, link))?);
        }
        Ok(Self { queue, threads: Mutex::new(threads) })
    }

    /// Runs a job. Fails if the pool is closed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        asked: &str,
        job: impl FnOnce(&mut Link) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_and_tidy(asked, move |link, answer| answer(job(link))).await
    }

    /// Runs a job that answers before it has finished, such as a read that ends its snapshot afterwards.
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
        let mut queue = self.queue.lock();
        // Dropping the job drops the sender of its answer, which ends the caller's wait.
        if queue.closed {
            return;
        }
        while let Some(idle) = queue.idle.pop() {
            match idle.send(job) {
                Ok(()) => return,
                Err(back) => job = back,
            }
        }
        queue.jobs.push_back(job);
    }

    /// How busy it is.
    pub(super) fn load(&self, name: &'static str) -> PoolLoad {
        let size = self.threads.lock().len();
        let queue = self.queue.lock();
        let idle = queue.idle.len().min(size);
        PoolLoad { name, idle, busy: size - idle, waiting: queue.jobs.len() }
    }

    /// Ends the threads after they have answered what was asked, and waits for them.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.idle.clear();
        drop(queue);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The pool may be dropped by one of its own jobs, which cannot wait for its own thread.
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

fn serve(queue: &Mutex<JobQueue>, mut link: Link) {
    while let Some(next) = next(queue) {
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
fn next(queue: &Mutex<JobQueue>) -> Option<Next> {
    let mut queue = queue.lock();
    if let Some(job) = queue.jobs.pop_front() {
        return Some(Next::Job(job));
    }
    if queue.closed {
        return None;
    }
    let (sender, coming) = oneshot::channel();
    queue.idle.push(sender);
    Some(Next::Wait(coming))
}

/// Starts a thread of the backend.
pub(super) fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    crate::spawn::thread(name, "a connection to PostgreSQL", life)
}
