//! Previews that attempts here make, on their way to the server.
//!
//! Its board gives the ids, so that every reader anywhere resumes after the same ones. What was made before a result is
//! there before the result is, so that readers are shown it. Losing previews costs nothing: the entry they announced is
//! durable.

use super::Caller;
use crate::id::ExecutionId;
use crate::model::Chunk;
use crate::wire::v2::{PublishRequest, PublishedChunk};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Previews that wait to be sent; more are dropped.
const QUEUE: usize = 4_096;
/// At most so many go in one call.
const BATCH: usize = 256;
/// How long a result waits for the previews before it; a connection that broke fails them at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where previews leave. Clones share it.
#[derive(Clone)]
pub(super) struct Post(Arc<Shared>);

struct Shared {
    queue: mpsc::Sender<(u64, Chunk)>,
    given: Mutex<Given>,
    /// How many of those given have been sent.
    sent: watch::Sender<u64>,
}

/// What was given to be sent.
#[derive(Default)]
struct Given {
    count: u64,
    /// The place of the last one of each run that has some on the way.
    last: HashMap<ExecutionId, u64>,
}

impl Post {
    /// Opens it, with the task that sends.
    pub fn open(caller: Caller) -> (Self, tokio::task::AbortHandle) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let post = Self(Arc::new(Shared { queue, given: Mutex::default(), sent: watch::Sender::new(0) }));
        let sending = tokio::spawn(send(caller, post.clone(), waiting)).abort_handle();
        (post, sending)
    }

    /// Takes a preview that follows the durable event `after`. Does not block.
    pub fn give(&self, after: u64, chunk: Chunk) {
        let execution = chunk.execution;
        let mut given = self.0.given.lock();
        if self.0.queue.try_send((after, chunk)).is_ok() {
            given.count += 1;
            let count = given.count;
            given.last.insert(execution, count);
        }
    }

    /// Ends once what a run has made so far is with the server, or of every run where none is named. A server that does
    /// not take it is not waited for.
    pub async fn emptied(&self, of: Option<ExecutionId>) {
        let last = {
            let given = self.0.given.lock();
            match of {
                _ if given.last.is_empty() => None,
                Some(run) => given.last.get(&run).copied(),
                None => Some(given.count),
            }
        };
        if let Some(last) = last {
            let _ = timeout(PATIENCE, self.0.sent.subscribe().wait_for(|sent| *sent >= last)).await;
        }
    }

    fn sent(&self, count: usize) {
        let mut given = self.0.given.lock();
        self.0.sent.send_modify(|sent| {
            *sent += count as u64;
            given.last.retain(|_, last| *last > *sent);
        });
    }
}

async fn send(caller: Caller, post: Post, mut queue: mpsc::Receiver<(u64, Chunk)>) {
    let mut waiting = Vec::with_capacity(BATCH);
    loop {
        let count = queue.recv_many(&mut waiting, BATCH).await;
        let wire = |(after, chunk): (u64, Chunk)| PublishedChunk { chunk: Some((&chunk).into()), after };
        let chunks = waiting.drain(..).map(wire).collect();
        let _ = caller.worker().publish(caller.ask(None, PublishRequest { chunks })).await;
        post.sent(count);
    }
}
