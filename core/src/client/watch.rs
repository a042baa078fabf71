//! The events of a run as a reader sees them: durable rows with previews between, fenced, resumable after any id (rule 17).

use super::contents::Contents;
use super::fence::{Fence, Unknown};
use super::row_reader::{RowReader, Wake};
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{Chunk, ChunkKind, Event, EventId, EventKind, StreamEvent};
use crate::storage::{EventStream, Storage};
use crate::streaming::{Chunks, Delivered, OpKey, Source, Watch};
use futures::{FutureExt, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Rows read at a time: what each reader holds that does not read on.
const PAGE: usize = 32;
/// Contents of entries that are read ahead of the reader, in bytes.
const AHEAD: u64 = 16 << 10;
/// The largest content that a server sends with its entry; larger ones are fetched.
pub(super) const SENT: u64 = 1 << 20;
/// How long a server is left alone whose stream broke.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// A reader of a run's events. Ends after the terminal event.
pub struct Watching {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    execution: ExecutionId,
    /// The last durable event that the caller had before. What led to it is read again where the fence needs it, and not told
    /// again.
    after: EventId,
    /// The last durable event told.
    at: EventId,
    /// The last durable event read.
    read: u64,
    /// The last durable event that was queued to be told.
    queued: EventId,
    /// The index of the last preview read; 0 to read again from the first that is kept.
    previews_read: u64,
    /// The index of the last preview that was dropped before it was read, and told to be missing.
    dropped: u64,
    /// The index of the first preview to tell of sources of which earlier ones are missing.
    first: HashMap<Source, u64>,
    contents: Contents,
    news: Watch,
    previews: watch::Receiver<()>,
    rows: RowReader,
    /// The events of a server, which reads and fences itself.
    from_server: Option<EventStream>,
    /// The server's stream broke, and was not opened again yet.
    broken: bool,
    /// To be told next.
    ready: VecDeque<StreamEvent>,
    /// What comes behind; its entries have no content yet.
    bare: VecDeque<StreamEvent>,
    look: Look,
    over: bool,
    fence: Fence,
}

/// What the next reading looks at.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    /// Nothing was read yet.
    First,
    /// The store may have news.
    Store,
    /// Only previews have come.
    Previews,
}

impl Watching {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        org: OrgId,
        execution: ExecutionId,
        after: EventId,
    ) -> Self {
        let news = storage.hints().watch(org, execution);
        let previews = chunks.follow((org, execution));
        let contents = Contents::of(storage.clone(), chunks.clone(), org);
        let rows = RowReader::new(storage.clone(), chunks.clone(), (org, execution));
        Self {
            storage,
            chunks,
            org,
            execution,
            after,
            at: after,
            read: after.number,
            queued: after,
            previews_read: 0,
            dropped: 0,
            first: HashMap::new(),
            contents,
            news,
            previews,
            rows,
            from_server: None,
            broken: false,
            ready: VecDeque::new(),
            bare: VecDeque::new(),
            look: Look::First,
            over: false,
            fence: Fence::default(),
        }
    }

    /// Leaves the content of larger entries in the store; their events then say `content_size` and `content_hash`.
    #[must_use]
    pub fn with_content_up_to(mut self, bytes: u64) -> Self {
        self.contents.limit = bytes;
        self
    }

    /// The position to resume after.
    pub fn position(&self) -> EventId {
        self.at
    }

    /// The next event; none after the terminal one.
    ///
    /// Errors: `ExecutionNotFound`, and `InvalidArgument` where the run has no event with the id to resume after.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.at = self.at.max(event.id());
                return Ok(Some(event));
            }
            if !self.bare.is_empty() {
                self.read_contents().await?;
                continue;
            }
            if self.over {
                return Ok(None);
            }
            if self.read().await? {
                continue;
            }
            tokio::select! {
                () = self.news.changed() => self.look = Look::Store,
                changed = self.previews.changed() => {
                    if changed.is_err() {
                        self.previews = self.chunks.follow((self.org, self.execution));
                    }
                }
                wake = self.rows.wake() => match wake {
                    Wake::Written => self.look = Look::Store,
                    Wake::RenewalDue => self.rows.renew().await?,
                },
            }
        }
    }

    /// The next event with those that are there already, at most `limit`; none after the terminal one.
    ///
    /// Errors: as of [`next`](Self::next).
    pub async fn next_batch(&mut self, limit: usize) -> Result<Vec<StreamEvent>> {
        let mut events: Vec<_> = self.next().await?.into_iter().collect();
        while !events.is_empty()
            && events.len() < limit
            && let Some(Ok(Some(event))) = self.next().now_or_never()
        {
            events.push(event);
        }
        Ok(events)
    }

    /// Reads what is new; false if there is nothing to do but to wait. Whoever drops the future loses nothing.
    async fn read(&mut self) -> Result<bool> {
        match self.begin().await {
            Ok(false) => return Ok(true),
            Ok(true) => self.broken = false,
            Err(error) if self.broken && error.code() == Code::StorageUnavailable => {
                tokio::time::sleep(PAUSE).await;
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
        if let Some(events) = &mut self.from_server {
            let next = events.next().await;
            if !self.take_from_server(next)? {
                tokio::time::sleep(PAUSE).await;
            }
            return Ok(true);
        }
        if self.look == Look::Store {
            let (run, after) = ((self.org, self.execution), self.read);
            let read = async || self.storage.events(run.0, run.1, after, PAGE).await.map(Arc::from);
            let events: Arc<[Event]> = self.chunks.reads().events.run((run, after), read).await?;
            let all = events.len() < PAGE;
            // Read after the events: what was made before one of them and written is there.
            self.read_rows(&events).await?;
            // Before previews are taken: those that come from now on stand behind these events, not between them.
            if let Some(last) = events.last() {
                self.chunks.reader_at(run, last.number);
            }
            for event in events.iter().cloned() {
                self.take_chunks(event.number);
                self.read = event.number;
                self.take_event(event);
            }
            if !all || self.over {
                return Ok(true);
            }
            // What was stored since then has signalled again.
            self.look = Look::Previews;
        }
        // A preview behind an event that was not read yet waits for that event.
        self.take_chunks(self.read + 1);
        Ok(!self.bare.is_empty())
    }

    /// Takes the next event of a server; false where its stream broke.
    fn take_from_server(&mut self, next: Option<Result<StreamEvent>>) -> Result<bool> {
        match next {
            Some(Ok(event)) => {
                self.over |= matches!(&event, StreamEvent::Durable(event) if event.kind.is_terminal());
                self.bare.push_back(event);
            }
            Some(Err(error)) if error.code() != Code::StorageUnavailable => return Err(error),
            // The server stopped, or the way to it is cut.
            Some(Err(_)) | None => {
                (self.from_server, self.look, self.after, self.broken) = (None, Look::First, self.at, true);
            }
        }
        Ok(!self.broken)
    }

    /// Gives the next events their contents, as many as are held at once. Whoever drops the future loses nothing.
    async fn read_contents(&mut self) -> Result<()> {
        let mut held = 0;
        while held < AHEAD
            && let Some(next) = self.bare.front()
        {
            let next = match next {
                StreamEvent::Durable(event) if event.number > self.after.number && self.contents.are_lacking(event) => {
                    let (event, size) = self.contents.fill(event.clone()).await?;
                    held += size;
                    StreamEvent::Durable(event)
                }
                other => other.clone(),
            };
            self.bare.pop_front();
            self.ready.push_back(next);
        }
        Ok(())
    }

    /// Looks where to read from; false where nothing comes any more: the position is at or behind the terminal event.
    ///
    /// Reading begins with it by itself. Errors: as of [`next`](Self::next).
    pub async fn begin(&mut self) -> Result<bool> {
        if self.look != Look::First {
            return Ok(!self.over);
        }
        let run = self.storage.execution(self.org, self.execution).await?;
        self.rows.run_claimed(run.epoch, run.worker).await?;
        let number = self.after.number;
        if self.after != EventId::default() {
            let from = self.storage.events(self.org, self.execution, number.saturating_sub(1), 2).await?;
            if from.is_empty() {
                return Err(Error::new(
                    Code::InvalidArgument,
                    format!("the run has no event {}; resume after an id that its own stream gave", self.after),
                ));
            }
            self.over = run.status.is_terminal() && from.iter().all(|event| event.number <= number);
            self.rows.find_tasks().await?;
            self.rows.read().await?;
            // Which of the kept previews still count is judged by the events since the first of them was made.
            let oldest = self.chunks.oldest((self.org, self.execution)).unwrap_or(number);
            self.read = oldest.saturating_sub(1).min(number);
            let rests = from.first().is_some_and(|event| is_rest(event.kind));
            self.fence.resumes(if rests { Unknown::OfTasks } else { Unknown::OfAll });
        }
        self.look = Look::Store;
        self.from_server =
            self.storage.event_stream(self.org, self.execution, self.after, self.contents.limit.min(SENT));
        Ok(!self.over)
    }

    /// Reads what workers of other processes have made.
    async fn read_rows(&mut self, events: &[Event]) -> Result<()> {
        for event in events {
            let Some(op) = op_of(event) else { continue };
            match (event.kind, worker_of(event)) {
                (EventKind::TaskStarted, Some(worker)) => self.rows.task_started(op, worker),
                (EventKind::TaskStarted, None) => {}
                (kind, _) if ends_attempt(kind) => self.rows.attempt_ended(op),
                _ => {}
            }
        }
        let last = events.iter().rev().find(|event| {
            matches!(event.kind, EventKind::Resumed | EventKind::Waiting | EventKind::Paused)
                || event.kind.is_terminal()
        });
        match last {
            Some(event) if event.kind == EventKind::Resumed => {
                self.rows.run_claimed(event.data["epoch"].as_u64().unwrap_or(0), worker_of(event)).await
            }
            Some(_) => self.rows.read().await.map(|_| self.rows.run_waits()),
            None => self.rows.read().await.map(drop),
        }
    }

    /// Takes the previews before a durable event. None before everything is read that the caller has: those of ops which have
    /// ended by then are not told.
    fn take_chunks(&mut self, before: u64) {
        if before > self.after.number {
            while !self.take_kept(before) {}
        }
    }

    /// Takes previews that are kept here; false where some are missing, so that all that still counts is to be told again.
    fn take_kept(&mut self, before: u64) -> bool {
        let (chunks, dropped) = self.chunks.after((self.org, self.execution), self.previews_read, before);
        let dropped = dropped.filter(|dropped| dropped.index > self.dropped && dropped.behind >= self.after.number);
        if let Some(dropped) = dropped {
            self.gap();
            self.dropped = dropped.index;
            self.first.retain(|_, first| *first > dropped.index);
            for Delivered { position, chunk } in &chunks {
                self.first.entry(Source::of(chunk)).or_insert(position.index);
            }
        }
        for Delivered { position, chunk } in chunks {
            self.previews_read = position.index;
            let (source, index) = (Source::of(&chunk), position.index);
            let first = self.first.get(&source).copied();
            if !self.fence.admits(&chunk, position) || first.is_some_and(|first| index < first) {
                self.fence.pass_over();
                continue;
            }
            if first != Some(index) && self.fence.misses(&chunk) {
                self.first.insert(source, index);
                self.gap();
                return false;
            }
            if self.fence.show(&chunk) {
                self.bare.push_back(StreamEvent::Retract { id: self.queued, op: (chunk.segment, chunk.sequence) });
            }
            self.bare.push_back(preview(self.queued, chunk));
        }
        true
    }

    fn take_event(&mut self, event: Event) {
        let op = op_of(&event);
        let is_new = event.number > self.after.number;
        let attempt = || event.data["attempt"].as_u64().unwrap_or(0) as u32;
        let mut void = Vec::new();
        match event.kind {
            EventKind::Resumed => {
                if is_new && self.fence.is_blind() {
                    self.gap();
                }
                void = self.fence.raise(event.data["epoch"].as_u64().unwrap_or(0));
            }
            EventKind::TaskRetry | EventKind::Retract | EventKind::TaskInDoubt => {
                void.extend(op.filter(|op| self.fence.retract(*op, attempt(), is_new)));
            }
            EventKind::Entry => self.fence.append_entry(event.number),
            EventKind::TaskStarted => void.extend(op.filter(|op| self.fence.start(*op, attempt(), is_new))),
            EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled => {
                op.into_iter().for_each(|op| self.fence.end(op));
            }
            kind if is_new && is_rest(kind) => self.fence.rests(),
            _ => {}
        }
        self.over |= event.kind.is_terminal();
        if !is_new {
            return;
        }
        // Before the event that brings them: a reader who is cut between goes on before the event, and is told again.
        self.bare.extend(void.into_iter().map(|op| StreamEvent::Retract { id: self.queued, op }));
        self.queued = EventId { number: event.number };
        self.bare.push_back(StreamEvent::Durable(event));
    }

    /// Tells that previews are missing. The caller drops all that it has, and is told again what still counts.
    fn gap(&mut self) {
        self.fence.forget();
        self.previews_read = 0;
        self.bare.push_back(StreamEvent::Gap(self.queued));
    }
}

/// What a reader is told of a preview.
fn preview(id: EventId, chunk: Arc<Chunk>) -> StreamEvent {
    match chunk.kind {
        ChunkKind::Void => StreamEvent::Retract { id, op: (chunk.segment, chunk.sequence) },
        _ => StreamEvent::Chunk(id, chunk),
    }
}

/// Whether nobody holds the run after it, and whoever did gave it up by itself.
fn is_rest(kind: EventKind) -> bool {
    matches!(kind, EventKind::Created | EventKind::Waiting | EventKind::Woken | EventKind::Paused)
}

fn op_of(event: &Event) -> Option<OpKey> {
    event.sequence.map(|sequence| (event.segment, sequence))
}

fn worker_of(event: &Event) -> Option<WorkerId> {
    event.data["worker"].as_str().and_then(|id| id.parse().ok())
}

/// Whether a task's attempt is over, which its worker may not know yet.
fn ends_attempt(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::TaskCompleted
            | EventKind::TaskFailed
            | EventKind::TaskCancelled
            | EventKind::TaskRetry
            | EventKind::TaskInDoubt
            | EventKind::TaskQuarantined
    )
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The run's previews go when its last reader of an ended run does.
        self.previews = watch::channel(()).1;
        if self.over || self.from_server.is_some() {
            self.chunks.forget((self.org, self.execution));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;
    use crate::client::{Client, StartOptions};
    use crate::clock::SystemClock;
    use crate::storage::memory::MemoryStorage;

    /// A run without a worker, and previews of it.
    async fn started() -> (Client, ExecutionId, impl Fn(u32, u64)) {
        let (storage, chunks) = (MemoryStorage::new(Arc::new(SystemClock::default())), Chunks::default());
        let client = Client::new(Arc::new(storage), chunks.clone(), OrgId::DEFAULT);
        let execution = client.start("nobody", Payload::null(), StartOptions::default()).await.unwrap().id();
        let publish = move |sequence: u32, seq: u64| {
            let (segment, epoch, attempt, kind) = (0, Chunk::OF_A_QUEUE, 1, ChunkKind::Token);
            let chunk = Chunk { execution, segment, sequence, epoch, attempt, seq, kind, data: "word".into() };
            chunks.publish(1, OrgId::DEFAULT, chunk);
        };
        (client, execution, publish)
    }

    /// What a reader is told next: previews as `op.seq`, retractions as `-op`.
    async fn next(watching: &mut Watching) -> Vec<String> {
        let told = |event: &StreamEvent| match event {
            StreamEvent::Durable(event) => format!("event {}", event.number),
            StreamEvent::Chunk(_, chunk) => format!("{}.{}", chunk.sequence, chunk.seq),
            StreamEvent::Retract { op, .. } => format!("-{}", op.1),
            StreamEvent::Gap(_) => "gap".to_owned(),
        };
        let events = watching.next_batch(usize::MAX).await.unwrap();
        assert!(events.iter().all(|event| event.id().number == 1), "{events:?}");
        events.iter().map(told).collect()
    }

    #[tokio::test]
    async fn a_gap_of_one_op_tells_the_others_again() {
        let (client, run, publish) = started().await;
        let mut watching = client.watch(run, EventId::default());
        assert_eq!(next(&mut watching).await, ["event 1"]);
        publish(3, 1);
        assert_eq!(next(&mut watching).await, ["3.1"]);
        [(4, 2), (3, 2)].into_iter().for_each(|(op, seq)| publish(op, seq));
        assert_eq!(next(&mut watching).await, ["gap", "3.1", "4.2", "3.2"]);
        [(4, 3), (3, 4), (4, 4)].into_iter().for_each(|(op, seq)| publish(op, seq));
        assert_eq!(next(&mut watching).await, ["4.3", "gap", "4.2", "4.3", "3.4", "4.4"], "of 3 the rest alone");
    }

    #[tokio::test]
    async fn whoever_goes_on_behind_an_event_is_told_anew_what_is_open() {
        let (client, run, publish) = started().await;
        // Somebody stays, so that what was made is kept.
        let mut stays = client.watch(run, EventId::default());
        [(3, 1), (4, 1), (3, 2)].into_iter().for_each(|(op, seq)| publish(op, seq));
        assert_eq!(next(&mut stays).await, ["event 1", "3.1", "4.1", "3.2"]);
        let mut resumed = client.watch(run, "1.7".parse().unwrap());
        assert_eq!(next(&mut resumed).await, ["-3", "3.1", "-4", "4.1", "3.2"]);
        publish(4, 2);
        assert_eq!((next(&mut stays).await, next(&mut resumed).await), (vec!["4.2".into()], vec!["4.2".into()]));
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_once_that_something_is_missing() {
        let (client, run, publish) = started().await;
        let mut watching = client.watch(run, EventId::default());
        assert_eq!(next(&mut watching).await, ["event 1"]);
        (1..=3_000).for_each(|seq| [3, 4].into_iter().for_each(|op| publish(op, seq)));
        let told = next(&mut watching).await;
        assert_eq!((&told[0][..], told.len()), ("gap", 1 + 4_096));
        assert_eq!(told.iter().filter(|one| *one == "gap").count(), 1);
        assert_eq!(told[1..3], ["3.953", "4.953"]);
        publish(4, 3_001);
        assert_eq!(next(&mut watching).await, ["4.3001"]);
    }
}
