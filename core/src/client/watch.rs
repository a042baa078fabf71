//! The events of a run as a reader sees them: durable rows with previews between, fenced, resumable after any id (rule 17).

use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::model::{Chunk, Event, EventId, EventKind};
use crate::payload::{Body, Encoding};
use crate::storage::Storage;
use crate::streaming::{Chunks, Watch};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// Rows read at a time.
const PAGE: usize = 256;

/// What a reader gets.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// A durable fact of the run.
    Durable(Event),
    /// A preview.
    Chunk(EventId, Arc<Chunk>),
    /// Previews of an op are void: an attempt failed or its process was lost.
    Retract {
        /// The reader's position after it.
        id: EventId,
        /// The op, by segment and sequence.
        op: (u32, u32),
    },
    /// Events before this position are gone.
    Gap(EventId),
}

impl StreamEvent {
    /// The position to resume after.
    pub fn id(&self) -> EventId {
        match self {
            StreamEvent::Durable(event) => EventId { number: event.number, chunk: 0 },
            StreamEvent::Chunk(id, _) | StreamEvent::Retract { id, .. } | StreamEvent::Gap(id) => *id,
        }
    }
}

/// A reader of a run's events. Ends after the terminal event.
pub struct Watching {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    execution: ExecutionId,
    at: EventId,
    news: Watch,
    previews: watch::Receiver<()>,
    ready: VecDeque<StreamEvent>,
    over: bool,
    fence: Fence,
}

/// What a reader must not be shown.
#[derive(Default)]
struct Fence {
    epoch: u64,
    /// Ops whose previews were shown, with the epoch and attempt they came from.
    shown: HashMap<(u32, u32), (u64, u32)>,
    /// Ops that have their result.
    ended: HashSet<(u32, u32)>,
    /// The lowest attempt of an op whose previews still count.
    attempts: HashMap<(u32, u32), u32>,
}

impl Watching {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        org: OrgId,
        execution: ExecutionId,
        after: EventId,
    ) -> Self {
        let news = storage.hints().watch(execution);
        let previews = chunks.follow(execution);
        Self {
            storage,
            chunks,
            org,
            execution,
            at: after,
            news,
            previews,
            ready: VecDeque::new(),
            over: false,
            fence: Fence::default(),
        }
    }

    /// The next event; none after the terminal one.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.at = self.at.max(event.id());
                return Ok(Some(event));
            }
            if self.over {
                return Ok(None);
            }
            if !self.read().await? {
                tokio::select! {
                    () = self.news.changed() => {}
                    changed = self.previews.changed() => {
                        if changed.is_err() {
                            self.previews = self.chunks.follow(self.execution);
                        }
                    }
                }
            }
        }
    }

    /// Reads what is new; false if nothing is.
    async fn read(&mut self) -> Result<bool> {
        let mut events = self.storage.events(self.org, self.execution, self.at.number, PAGE).await?;
        if events.is_empty() && self.at != EventId::default() && self.is_past_the_end().await? {
            // The end may have come between the two looks.
            events = self.storage.events(self.org, self.execution, self.at.number, PAGE).await?;
            if events.is_empty() {
                self.over = true;
                return Ok(true);
            }
        }
        let mut position = self.at;
        for event in &events {
            self.take_chunks(position, Some(event.number));
            position = EventId { number: event.number, chunk: 0 };
            let event = self.with_content(event.clone()).await?;
            self.take_event(event);
        }
        if events.is_empty() && self.at == EventId::default() {
            // An unknown run is an error, not an endless wait.
            self.storage.execution(self.org, self.execution).await?;
        }
        if events.len() < PAGE && !self.over {
            // A preview behind an event that was not read yet waits for that event.
            self.take_chunks(position, Some(position.number + 1));
        }
        Ok(!self.ready.is_empty())
    }

    /// An entry's event carries the entry, so that a reader ends with the exact transcript.
    async fn with_content(&self, mut event: Event) -> Result<Event> {
        let id = event.data["entry"].as_str().and_then(|id| id.parse().ok());
        if let (EventKind::Entry, Some(id)) = (event.kind, id) {
            let entry = self.storage.entry(self.org, id).await?;
            if entry.new.content.encoding == Encoding::Json {
                let content = match &entry.new.content.body {
                    Body::Stored { .. } => self.storage.read_payload(self.org, &entry.new.content).await?,
                    _ => entry.new.content.bytes()?.clone(),
                };
                event.data["content"] = serde_json::from_slice(&content).unwrap_or_default();
            }
            event.data["parent"] = serde_json::json!(entry.new.parent);
            event.data["turn_id"] = serde_json::json!(entry.new.turn_id);
        }
        Ok(event)
    }

    /// A reader that resumes after the terminal event has nothing to wait for.
    async fn is_past_the_end(&self) -> Result<bool> {
        Ok(self.storage.execution(self.org, self.execution).await?.status.is_terminal())
    }

    fn take_chunks(&mut self, after: EventId, before: Option<u64>) {
        for (id, chunk) in self.chunks.after(self.execution, after, before) {
            if self.fence.admits(&chunk) {
                self.ready.push_back(StreamEvent::Chunk(id, chunk));
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        let id = EventId { number: event.number, chunk: 0 };
        let op = event.sequence.map(|sequence| (event.segment, sequence));
        let mut void = Vec::new();
        match event.kind {
            EventKind::Resumed => void = self.fence.raise(event.data["epoch"].as_u64().unwrap_or(0)),
            EventKind::TaskRetry | EventKind::Retract | EventKind::TaskInDoubt => {
                void.extend(
                    op.filter(|op| self.fence.retract(*op, event.data["attempt"].as_u64().unwrap_or(0) as u32)),
                );
            }
            EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled => self.fence.ended.extend(op),
            _ => {}
        }
        self.over |= event.kind.is_terminal();
        self.ready.push_back(StreamEvent::Durable(event));
        self.ready.extend(void.into_iter().map(|op| StreamEvent::Retract { id, op }));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The run's previews go when its last reader of an ended run does.
        self.previews = watch::channel(()).1;
        if self.over {
            self.chunks.forget(self.execution);
        }
    }
}

impl Fence {
    fn admits(&mut self, chunk: &Chunk) -> bool {
        let op = (chunk.segment, chunk.sequence);
        let stale = chunk.epoch < self.epoch
            || (chunk.attempt > 0 && self.ended.contains(&op))
            || self.attempts.get(&op).is_some_and(|lowest| chunk.attempt < *lowest);
        if !stale {
            self.shown.insert(op, (chunk.epoch, chunk.attempt));
        }
        !stale
    }

    /// A claim voids the previews of lower epochs of every op without a result.
    fn raise(&mut self, epoch: u64) -> Vec<(u32, u32)> {
        self.epoch = self.epoch.max(epoch);
        let mut void: Vec<_> = self
            .shown
            .iter()
            .filter(|(op, (shown, _))| *shown < epoch && !self.ended.contains(op))
            .map(|(op, _)| *op)
            .collect();
        void.sort_unstable();
        for op in &void {
            self.shown.remove(op);
        }
        void
    }

    fn retract(&mut self, op: (u32, u32), attempt: u32) -> bool {
        self.attempts.insert(op, attempt + 1);
        self.shown.remove(&op).is_some()
    }
}
