//! In-process previews of what runs are making: bounded, dropped without harm.

use crate::id::ExecutionId;
use crate::model::{Chunk, EventId};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// Previews kept per run for readers that come late.
const KEPT: usize = 4_096;

/// The board of previews. Clones share it.
#[derive(Clone, Default)]
pub struct Chunks(Arc<Mutex<HashMap<ExecutionId, Channel>>>);

struct Channel {
    kept: VecDeque<(EventId, Arc<Chunk>)>,
    last: EventId,
    bell: watch::Sender<()>,
}

impl Default for Channel {
    fn default() -> Self {
        Self { kept: VecDeque::new(), last: EventId::default(), bell: watch::Sender::new(()) }
    }
}

impl Chunks {
    /// Publishes a preview that follows the durable event `after`.
    pub fn publish(&self, after: u64, chunk: Chunk) {
        let mut board = self.0.lock();
        let channel = board.entry(chunk.execution).or_default();
        let id = if after > channel.last.number {
            EventId { number: after, chunk: 1 }
        } else {
            EventId { number: channel.last.number, chunk: channel.last.chunk + 1 }
        };
        channel.last = id;
        if channel.kept.len() == KEPT {
            channel.kept.pop_front();
        }
        channel.kept.push_back((id, Arc::new(chunk)));
        channel.bell.send_replace(());
    }

    /// Previews after a position, at most those before the durable event `before`.
    pub fn after(&self, execution: ExecutionId, after: EventId, before: Option<u64>) -> Vec<(EventId, Arc<Chunk>)> {
        let board = self.0.lock();
        let Some(channel) = board.get(&execution) else { return Vec::new() };
        let wanted = |id: &EventId| *id > after && before.is_none_or(|before| id.number < before);
        channel.kept.iter().filter(|(id, _)| wanted(id)).cloned().collect()
    }

    /// Rings at every new preview of a run.
    pub fn follow(&self, execution: ExecutionId) -> watch::Receiver<()> {
        self.0.lock().entry(execution).or_default().bell.subscribe()
    }

    /// Forgets a run's previews once nobody follows it.
    pub fn forget(&self, execution: ExecutionId) {
        let mut board = self.0.lock();
        if board.get(&execution).is_some_and(|channel| channel.bell.receiver_count() == 0) {
            board.remove(&execution);
        }
    }
}
