//! The transport of previews to a server: what attempts here make, on its way.
//!
//! What was made before a result is there before the result is, so that readers are shown it. Losing previews costs nothing: the
//! entry they announced is durable.

use super::Caller;
use crate::id::ExecutionId;
use crate::streaming::{Preview, PreviewTransport};
use crate::sync::Mutex;
use crate::wire::v2::{PublishRequest, PublishedChunk};
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
pub(super) struct Outbox(Arc<Shared>);

struct Shared {
    queue: mpsc::Sender<Preview>,
    queued: Mutex<Queued>,
    /// How many of those that were queued have been sent.
    sent: watch::Sender<u64>,
}

#[derive(Default)]
struct Queued {
    count: u64,
    /// The place in the queue of the last one of each run that has some on the way.
    last: HashMap<ExecutionId, u64>,
}

impl PreviewTransport for Outbox {
    fn publish(&self, preview: &Preview) {
        let execution = preview.chunk.execution;
        // Counted under the lock in which it is queued, so that places are those of the queue.
        let mut queued = self.0.queued.lock();
        if self.0.queue.try_send(preview.clone()).is_ok() {
            queued.count += 1;
            let count = queued.count;
            queued.last.insert(execution, count);
        }
    }
}

impl Outbox {
    /// Opens it, with the task that sends.
    pub(super) fn open(caller: Caller) -> (Self, tokio::task::AbortHandle) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let outbox = Self(Arc::new(Shared { queue, queued: Mutex::default(), sent: watch::Sender::new(0) }));
        let sending = crate::spawn::task(send(caller, outbox.clone(), waiting)).abort_handle();
        (outbox, sending)
    }

    /// Ends once what a run has made so far is with the server, or every run where none is named. A server that does not take
    /// it is not waited for.
    pub(super) async fn sent(&self, of: Option<ExecutionId>) {
        let last = {
            let queued = self.0.queued.lock();
            match of {
                _ if queued.last.is_empty() => None,
                Some(run) => queued.last.get(&run).copied(),
                None => Some(queued.count),
            }
        };
        if let Some(last) = last {
            let _ = timeout(PATIENCE, self.0.sent.subscribe().wait_for(|sent| *sent >= last)).await;
        }
    }

    fn mark_sent(&self, count: usize) {
        let mut queued = self.0.queued.lock();
        self.0.sent.send_modify(|sent| {
            *sent += count as u64;
            queued.last.retain(|_, last| *last > *sent);
        });
    }
}

async fn send(caller: Caller, outbox: Outbox, mut queue: mpsc::Receiver<Preview>) {
    let mut waiting = Vec::with_capacity(BATCH);
    loop {
        let count = queue.recv_many(&mut waiting, BATCH).await;
        let to_wire = |Preview { after, chunk, .. }| PublishedChunk { chunk: Some((&*chunk).into()), after };
        let chunks = waiting.drain(..).map(to_wire).collect();
        let _ = caller.worker().publish(caller.ask(None, PublishRequest { chunks })).await;
        outbox.mark_sent(count);
    }
}
