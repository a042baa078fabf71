//! Previews of what runs are making, kept in this process for its readers: bounded, and dropped without harm.
//!
//! What a worker of this process makes is published here; transports take it to other processes and bring what is made there.
//! Every hub keeps what it has in the order in which it came. Readers of different hubs may see sources take turns otherwise,
//! but each source in its own order: see [`Progress`].

use super::preview::{Preview, PreviewTransport, Progress, ProgressBySource, RunKey, Source};
use super::rows::{Registered, RowTransport};
use super::single_flight::SharedReads;
use crate::id::OrgId;
use crate::model::Chunk;
use crate::sync::{Mutex, RwLock};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// Previews kept per run for readers that come late.
const KEPT: usize = 4_096;
/// Bytes kept per run.
const KEPT_BYTES: usize = 4 << 20;
/// Bytes kept of all runs; over it, those that nobody reads are forgotten, the longest quiet first.
const ALL_BYTES: usize = 16 << 20;
/// What a preview costs beside its text.
const OVERHEAD: usize = 160;

/// The previews of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Chunks(pub(super) Arc<Hub>);

/// Locks are taken in this order: `runs`, then the state of `rows`.
#[derive(Default)]
pub(super) struct Hub {
    pub runs: Mutex<Runs>,
    /// Takes everything away: this process keeps nothing, its readers are told by a server.
    relay: Option<Box<dyn PreviewTransport>>,
    /// Takes what others read to those with whom this process shares a database.
    pub rows: Option<RowTransport>,
    /// Takes the same to them sooner, and may lose it.
    broker: RwLock<Option<Arc<dyn PreviewTransport>>>,
    reads: SharedReads,
}

/// The previews of every run.
#[derive(Default)]
pub(super) struct Runs {
    pub channels: HashMap<RunKey, Channel>,
    /// Bytes kept of all runs.
    bytes: usize,
    /// Counts what was kept: tells which run is the longest quiet.
    count: u64,
}

/// Where a preview stands in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Its number among those of its run, from 1, without gaps.
    pub index: u64,
    /// The durable event behind which readers are shown it. It never falls from one preview to the next.
    pub behind: u64,
}

/// A preview that a reader takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    /// Where it stands.
    pub position: Position,
    /// The preview.
    pub chunk: Arc<Chunk>,
}

/// A preview that is kept.
pub(super) struct Kept {
    pub position: Position,
    pub preview: Preview,
    /// A worker of this process made it.
    pub made_here: bool,
}

#[derive(Default)]
pub(super) struct Channel {
    pub kept: VecDeque<Kept>,
    pub last: Position,
    /// The index of the last one that was made here.
    pub last_made_here: u64,
    /// The last one that is no longer kept.
    dropped: Position,
    pub progress: ProgressBySource,
    bytes: usize,
    /// The count of all runs when the last one was kept.
    touched: u64,
    /// The durable event that a reader here has come to.
    reader_at: u64,
    signal: watch::Sender<()>,
    /// When other processes were last told that the run is read here.
    pub registered: Option<Registered>,
}

impl Chunks {
    /// Those of a process that keeps nothing: a transport takes all of it to where the readers are.
    pub fn relayed(relay: impl PreviewTransport + 'static) -> Self {
        Self(Arc::new(Hub { relay: Some(Box::new(relay)), ..Hub::default() }))
    }

    /// Those of one of the processes that share a database.
    pub fn shared() -> Self {
        Self(Arc::new(Hub { rows: Some(RowTransport::default()), ..Hub::default() }))
    }

    /// Has what is made here and read elsewhere go by this transport too, in the place of the one before.
    pub fn set_broker(&self, broker: Option<Arc<dyn PreviewTransport>>) {
        *self.0.broker.write() = broker;
    }

    /// Where readers of the same read the store together.
    pub(crate) fn reads(&self) -> &SharedReads {
        &self.0.reads
    }

    /// Publishes a preview that was made here and follows the durable event `after`.
    pub fn publish(&self, after: u64, org: OrgId, chunk: Chunk) {
        let preview = Preview { org, after, chunk: Arc::new(chunk) };
        if let Some(relay) = &self.0.relay {
            return relay.publish(&preview);
        }
        let run = (org, preview.chunk.execution);
        self.0.runs.lock().keep(run, preview.clone(), true);
        if let Some(rows) = self.0.rows.as_ref().filter(|rows| rows.is_read(run)) {
            rows.publish(&preview);
            let broker = self.0.broker.read().clone();
            if let Some(broker) = broker {
                broker.publish(&preview);
            }
        }
    }

    /// Takes a preview that a broker brings, if it is the next one of its source: what is missing before it comes by rows, and
    /// so does this one then.
    pub fn receive(&self, preview: Preview) {
        let run = (preview.org, preview.chunk.execution);
        let mut runs = self.0.runs.lock();
        let Some(channel) = runs.channels.get(&run) else { return };
        let progress = channel.progress.get(&Source::of(&preview.chunk)).copied().unwrap_or_default();
        if progress.is_followed_by(Progress::of(&preview.chunk)) {
            runs.keep(run, preview, false);
        }
    }

    /// Takes previews that rows bring, in their order. Repeats are dropped.
    pub(super) fn receive_all(&self, run: RunKey, previews: Vec<Preview>) {
        let mut runs = self.0.runs.lock();
        for preview in previews {
            let Some(channel) = runs.channels.get(&run) else { return };
            let known = channel.progress.get(&Source::of(&preview.chunk));
            if known.is_none_or(|known| Progress::of(&preview.chunk) > *known) {
                runs.keep(run, preview, false);
            }
        }
    }

    /// The previews of a run after an index which stand before the durable event `before`; and the last of those that were
    /// dropped there.
    pub fn after(&self, run: RunKey, index: u64, before: u64) -> (Vec<Delivered>, Option<Position>) {
        let runs = self.0.runs.lock();
        let Some(channel) = runs.channels.get(&run) else { return (Vec::new(), None) };
        let from = channel.kept.partition_point(|kept| kept.position.index <= index);
        let kept = channel.kept.range(from..).take_while(|kept| kept.position.behind < before);
        let delivered = kept.map(|kept| Delivered { position: kept.position, chunk: kept.preview.chunk.clone() });
        let dropped = Some(channel.dropped).filter(|dropped| dropped.index > index && dropped.behind < before);
        (delivered.collect(), dropped)
    }

    /// The first durable event that was known when something was made that is kept: what has happened since then says which of
    /// the kept previews still count.
    pub fn oldest(&self, run: RunKey) -> Option<u64> {
        let runs = self.0.runs.lock();
        runs.channels.get(&run)?.kept.iter().map(|kept| kept.preview.after.min(kept.position.behind)).min()
    }

    /// A reader here has come to a durable event: previews of makers that do not know of it stand behind it from now on, so that
    /// the reader does not miss them.
    pub fn reader_at(&self, run: RunKey, number: u64) {
        if let Some(channel) = self.0.runs.lock().channels.get_mut(&run) {
            channel.reader_at = channel.reader_at.max(number);
        }
    }

    /// Signals every new preview of a run.
    pub fn follow(&self, run: RunKey) -> watch::Receiver<()> {
        self.0.runs.lock().channels.entry(run).or_default().signal.subscribe()
    }

    /// Whether anybody here reads a run's previews.
    pub fn is_followed(&self, run: RunKey) -> bool {
        self.0.runs.lock().channels.get(&run).is_some_and(Channel::is_followed)
    }

    /// Forgets a run's previews once nobody follows it.
    pub fn forget(&self, run: RunKey) {
        let mut runs = self.0.runs.lock();
        if runs.channels.get(&run).is_some_and(|channel| !channel.is_followed()) {
            runs.remove(run);
        }
    }
}

impl Runs {
    fn keep(&mut self, run: RunKey, preview: Preview, made_here: bool) {
        self.count += 1;
        let channel = self.channels.entry(run).or_default();
        let before = channel.bytes;
        channel.touched = self.count;
        channel.keep(preview, made_here);
        self.bytes = self.bytes + channel.bytes - before;
        if self.bytes > ALL_BYTES {
            self.shrink();
        }
    }

    /// Forgets what nobody reads until half is free, so that this is rare.
    fn shrink(&mut self) {
        let unread = self.channels.iter().filter(|(_, channel)| !channel.is_followed());
        let mut unread: Vec<_> = unread.map(|(run, channel)| (channel.touched, *run)).collect();
        unread.sort_unstable();
        for (_, run) in unread {
            if self.bytes <= ALL_BYTES / 2 {
                return;
            }
            self.remove(run);
        }
    }

    fn remove(&mut self, run: RunKey) {
        if let Some(channel) = self.channels.remove(&run) {
            self.bytes -= channel.bytes;
        }
    }
}

impl Channel {
    fn keep(&mut self, preview: Preview, made_here: bool) {
        let progress = self.progress.entry(Source::of(&preview.chunk)).or_default();
        *progress = Progress::of(&preview.chunk).max(*progress);
        let behind = preview.after.max(self.reader_at).max(self.last.behind);
        self.last = Position { index: self.last.index + 1, behind };
        if made_here {
            self.last_made_here = self.last.index;
        }
        self.bytes += cost(&preview.chunk);
        self.kept.push_back(Kept { position: self.last, preview, made_here });
        while self.kept.len() > KEPT || (self.bytes > KEPT_BYTES && self.kept.len() > 1) {
            let Some(first) = self.kept.pop_front() else { break };
            self.dropped = first.position;
            self.bytes -= cost(&first.preview.chunk);
        }
        self.bound_progress();
        self.signal.send_replace(());
    }

    /// Forgets how far sources had come of which nothing is kept any more: a run may have any number of ops.
    fn bound_progress(&mut self) {
        if self.progress.len() > 2 * KEPT {
            let kept: HashSet<_> = self.kept.iter().map(|kept| Source::of(&kept.preview.chunk)).collect();
            self.progress.retain(|source, _| kept.contains(source));
        }
    }

    fn is_followed(&self) -> bool {
        self.signal.receiver_count() > 0
    }
}

/// The bytes that a preview takes.
pub(super) fn cost(chunk: &Chunk) -> usize {
    chunk.data.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ExecutionId;
    use crate::model::ChunkKind;

    fn fresh() -> RunKey {
        (OrgId::DEFAULT, ExecutionId::fresh())
    }

    fn publish(chunks: &Chunks, after: u64, run: RunKey, size: usize) {
        chunks.publish(after, run.0, chunk(run.1, size));
    }

    fn chunk(execution: ExecutionId, size: usize) -> Chunk {
        Chunk {
            execution,
            segment: 0,
            sequence: 0,
            epoch: 1,
            attempt: 1,
            seq: 1,
            kind: ChunkKind::Token,
            data: "x".repeat(size).into(),
        }
    }

    fn positions(found: &[Delivered]) -> Vec<(u64, u64)> {
        found.iter().map(|one| (one.position.index, one.position.behind)).collect()
    }

    #[test]
    fn what_nobody_reads_is_bounded_over_all_runs() {
        let chunks = Chunks::default();
        let followed = fresh();
        let signal = chunks.follow(followed);
        publish(&chunks, 1, followed, 10);
        let runs: Vec<_> = (0..400).map(|_| fresh()).collect();
        for run in &runs {
            publish(&chunks, 1, *run, 100_000);
        }
        let bytes = chunks.0.runs.lock().bytes;
        assert!(bytes <= ALL_BYTES, "{bytes} bytes");
        assert_eq!(chunks.after(runs[399], 0, 2).0.len(), 1, "what is new stays");
        assert!(chunks.after(runs[0], 0, 2).0.is_empty(), "the longest quiet goes first");
        assert_eq!(chunks.after(followed, 0, 2).0.len(), 1, "what is read stays");
        drop(signal);
        chunks.forget(followed);
        assert!(!chunks.0.runs.lock().channels.contains_key(&followed));
    }

    #[test]
    fn a_reader_is_told_that_previews_are_gone() {
        let (chunks, run) = (Chunks::default(), fresh());
        (0..KEPT + 2).for_each(|_| publish(&chunks, 7, run, 1));
        assert_eq!(chunks.oldest(run), Some(7));
        for (index, kept, dropped) in [(0, KEPT, Some(2)), (1, KEPT, Some(2)), (2, KEPT, None), (3, KEPT - 1, None)] {
            let (found, last) = chunks.after(run, index, 8);
            assert_eq!((found.len(), last.map(|last| last.index)), (kept, dropped), "after {index}");
        }
        // Nothing that stands behind the event asked for counts.
        assert_eq!(chunks.after(run, 0, 7), (Vec::new(), None));
    }

    #[test]
    fn a_preview_of_one_who_does_not_know_the_latest_event_reaches_the_reader() {
        let (chunks, run) = (Chunks::default(), fresh());
        let _signal = chunks.follow(run);
        publish(&chunks, 3, run, 1);
        chunks.reader_at(run, 9);
        publish(&chunks, 3, run, 1);
        publish(&chunks, 12, run, 1);
        publish(&chunks, 11, run, 1);
        let (found, dropped) = chunks.after(run, 0, u64::MAX);
        assert_eq!((positions(&found), dropped), (vec![(1, 3), (2, 9), (3, 12), (4, 12)], None));
        assert_eq!(chunks.oldest(run), Some(3));
    }

    #[test]
    fn each_source_comes_in_its_order_and_once() {
        let (chunks, run) = (Chunks::shared(), fresh());
        let _signal = chunks.follow(run);
        let next = |sequence, attempt, seq| Preview {
            org: run.0,
            after: 4,
            chunk: Arc::new(Chunk { sequence, attempt, seq, ..chunk(run.1, 1) }),
        };
        for (sequence, attempt, seq) in [(3, 1, 2), (3, 1, 1), (5, 1, 1), (3, 1, 2), (3, 1, 1), (3, 1, 4), (3, 2, 1)] {
            chunks.receive(next(sequence, attempt, seq));
        }
        // Rows bring what was missing and what is known already.
        chunks.receive_all(run, vec![next(3, 2, 1), next(3, 2, 3), next(3, 2, 2), next(5, 1, 2)]);
        let found = chunks.after(run, 0, u64::MAX).0;
        let found: Vec<_> = found.iter().map(|one| (one.chunk.sequence, one.chunk.attempt, one.chunk.seq)).collect();
        assert_eq!(found, [(3, 1, 1), (5, 1, 1), (3, 1, 2), (3, 2, 1), (3, 2, 3), (5, 1, 2)]);
        let unread = fresh();
        chunks.receive(Preview { org: unread.0, after: 4, chunk: Arc::new(chunk(unread.1, 1)) });
        assert!(chunks.after(unread, 0, u64::MAX).0.is_empty(), "nobody reads it here");
    }

    #[test]
    fn how_far_sources_have_come_is_bounded() {
        let (chunks, run) = (Chunks::default(), fresh());
        for sequence in 0..20_000 {
            chunks.publish(4, run.0, Chunk { sequence, ..chunk(run.1, 1) });
        }
        let runs = chunks.0.runs.lock();
        let progress = &runs.channels[&run].progress;
        assert!((KEPT..=2 * KEPT).contains(&progress.len()), "{}", progress.len());
        assert!(progress.contains_key(&Source::Task((0, 19_999))));
    }

    #[test]
    fn orgs_do_not_see_each_others_previews_of_one_id() {
        let (chunks, run) = (Chunks::default(), fresh());
        let other = (OrgId::fresh(), run.1);
        let _signals = (chunks.follow(run), chunks.follow(other));
        publish(&chunks, 7, run, 1);
        assert_eq!(chunks.after(run, 0, 8).0.len(), 1);
        assert!(chunks.after(other, 0, 8).0.is_empty());
    }
}
