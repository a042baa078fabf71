//! Previews of what runs are making: bounded, dropped without harm. In this process, or through a relay to where they meet.

use crate::id::ExecutionId;
use crate::model::{Chunk, EventId};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// Previews kept per run for readers that come late.
const KEPT: usize = 4_096;

/// Carries previews to and from a board elsewhere, whose ids every reader shares.
pub trait Relay: Send + Sync {
    /// Takes a preview that was made here. Must not block.
    fn publish(&self, after: u64, chunk: Chunk);
    /// Somebody here reads a run's previews: they are to be delivered.
    fn follow(&self, execution: ExecutionId);
    /// Nobody reads them any more.
    fn forget(&self, execution: ExecutionId);
}

/// The board of previews. Clones share it.
#[derive(Clone, Default)]
pub struct Chunks(Arc<Board>);

/// A board that does not keep itself alive.
#[derive(Clone)]
pub struct WeakChunks(Weak<Board>);

impl WeakChunks {
    /// The board, if somebody still has it.
    pub fn upgrade(&self) -> Option<Chunks> {
        self.0.upgrade().map(Chunks)
    }
}

#[derive(Default)]
struct Board {
    channels: Mutex<HashMap<ExecutionId, Channel>>,
    relay: Option<Box<dyn Relay>>,
}

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
    /// A board that others share through a relay.
    pub fn relayed(relay: impl Relay + 'static) -> Self {
        Self(Arc::new(Board { channels: Mutex::default(), relay: Some(Box::new(relay)) }))
    }

    /// The board without a hold on it.
    pub fn weak(&self) -> WeakChunks {
        WeakChunks(Arc::downgrade(&self.0))
    }

    /// Publishes a preview that follows the durable event `after`.
    pub fn publish(&self, after: u64, chunk: Chunk) {
        if let Some(relay) = &self.0.relay {
            return relay.publish(after, chunk);
        }
        let mut board = self.0.channels.lock();
        let channel = board.entry(chunk.execution).or_default();
        let id = if after > channel.last.number {
            EventId { number: after, chunk: 1 }
        } else {
            EventId { number: channel.last.number, chunk: channel.last.chunk + 1 }
        };
        channel.take(id, chunk);
    }

    /// Takes a preview from the board it was published on, with its id there.
    pub fn deliver(&self, id: EventId, chunk: Chunk) {
        if let Some(channel) = self.0.channels.lock().get_mut(&chunk.execution)
            && id > channel.last
        {
            channel.take(id, chunk);
        }
    }

    /// Previews after a position, at most those before the durable event `before`.
    pub fn after(&self, execution: ExecutionId, after: EventId, before: Option<u64>) -> Vec<(EventId, Arc<Chunk>)> {
        let board = self.0.channels.lock();
        let Some(channel) = board.get(&execution) else { return Vec::new() };
        let wanted = |id: &EventId| *id > after && before.is_none_or(|before| id.number < before);
        channel.kept.iter().filter(|(id, _)| wanted(id)).cloned().collect()
    }

    /// Rings at every new preview of a run.
    pub fn follow(&self, execution: ExecutionId) -> watch::Receiver<()> {
        let bell = self.0.channels.lock().entry(execution).or_default().bell.subscribe();
        if let Some(relay) = &self.0.relay {
            relay.follow(execution);
        }
        bell
    }

    /// Whether anybody here reads a run's previews.
    pub fn is_followed(&self, execution: ExecutionId) -> bool {
        self.0.channels.lock().get(&execution).is_some_and(|channel| channel.bell.receiver_count() > 0)
    }

    /// Forgets a run's previews once nobody follows it.
    pub fn forget(&self, execution: ExecutionId) {
        let mut board = self.0.channels.lock();
        if board.get(&execution).is_some_and(|channel| channel.bell.receiver_count() == 0) {
            board.remove(&execution);
            if let Some(relay) = &self.0.relay {
                relay.forget(execution);
            }
        }
    }
}

impl Channel {
    fn take(&mut self, id: EventId, chunk: Chunk) {
        self.last = id;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((id, Arc::new(chunk)));
        self.bell.send_replace(());
    }
}
