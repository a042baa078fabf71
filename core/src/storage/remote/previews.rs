//! Previews: what attempts here make goes to the server, what readers here follow comes from it.
//!
//! The server's board gives the ids, so that every reader anywhere resumes after the same ones. Losing previews costs
//! nothing: the entry they announced is durable.

use super::Caller;
use crate::id::OrgId;
use crate::model::{Chunk, EventId};
use crate::streaming::{Chunks, Relay, RunKey};
use crate::wire::v2::{PublishRequest, PublishedChunk, WatchRequest, watch_event};
use futures::StreamExt;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;

/// Previews that wait to be sent; more are dropped.
const QUEUE: usize = 4_096;
/// At most so many go in one call.
const BATCH: usize = 256;
/// How long a stream of previews is kept closed after it broke.
const PAUSE: Duration = Duration::from_millis(250);

enum Order {
    Publish(u64, Chunk),
    Follow(RunKey),
    Forget(RunKey),
}

struct Post(mpsc::Sender<Order>);

impl Relay for Post {
    fn publish(&self, after: u64, _org: OrgId, chunk: Chunk) {
        let _ = self.0.try_send(Order::Publish(after, chunk));
    }

    fn follow(&self, run: RunKey) {
        let _ = self.0.try_send(Order::Follow(run));
    }

    fn forget(&self, run: RunKey) {
        let _ = self.0.try_send(Order::Forget(run));
    }
}

/// A board whose previews travel through the server, and the task that carries them.
pub(super) fn relay(caller: Caller) -> (Chunks, tokio::task::AbortHandle) {
    let (post, orders) = mpsc::channel(QUEUE);
    let chunks = Chunks::relayed(Post(post));
    let carrying = tokio::spawn(carry(caller, chunks.weak(), orders)).abort_handle();
    (chunks, carrying)
}

async fn carry(caller: Caller, board: crate::streaming::WeakChunks, mut orders: mpsc::Receiver<Order>) {
    let mut following: HashMap<RunKey, tokio::task::JoinHandle<()>> = HashMap::new();
    let mut waiting = Vec::with_capacity(BATCH);
    while orders.recv_many(&mut waiting, BATCH).await > 0 {
        let mut chunks = Vec::new();
        for order in waiting.drain(..) {
            match order {
                Order::Publish(after, chunk) => chunks.push(PublishedChunk { chunk: Some((&chunk).into()), after }),
                Order::Follow(run) => {
                    let ended = following.get(&run).is_none_or(tokio::task::JoinHandle::is_finished);
                    if ended {
                        let task = tokio::spawn(watch(caller.clone(), board.clone(), run));
                        following.insert(run, task);
                    }
                }
                Order::Forget(run) => {
                    if let Some(task) = following.remove(&run) {
                        task.abort();
                    }
                }
            }
        }
        if !chunks.is_empty() {
            let _ = caller.worker().publish(caller.ask(None, PublishRequest { chunks })).await;
        }
    }
    following.into_values().for_each(|task| task.abort());
}

/// Puts the previews of a run on the board until it ends or nobody reads them.
async fn watch(caller: Caller, board: crate::streaming::WeakChunks, run: RunKey) {
    let mut after = EventId::default();
    loop {
        let request = WatchRequest { execution: crate::wire::raw(run.1.0), after: after.to_string() };
        if let Ok(stream) = caller.agents().watch(caller.ask(Some(run.0), request)).await {
            let mut stream = stream.into_inner();
            while let Some(Ok(event)) = stream.next().await {
                after = event.id.parse().unwrap_or(after);
                let Some(watch_event::Event::Chunk(chunk)) = event.event else { continue };
                let (Some(board), Ok(chunk)) = (board.upgrade(), chunk.try_into()) else { return };
                board.deliver(after, run.0, chunk);
            }
        }
        if !board.upgrade().is_some_and(|board| board.is_followed(run)) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
