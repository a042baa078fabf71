//! The transport by rows of the database that processes share: who reads a run elsewhere, which previews that were made here
//! are not written yet, and which workers are of this process.
//!
//! Nothing is written for a run that nobody reads elsewhere.

use super::chunks::{Chunks, Kept, cost};
use super::preview::{Preview, PreviewRow, PreviewTransport, ProgressBySource, RunKey, Source};
use crate::error::Result;
use crate::id::{OrgId, WorkerId};
use crate::model::{Batch, BatchEnd, OpBody};
use crate::sync::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use uuid::Uuid;

/// How long a process counts as a run's reader after it said so.
pub const WATCH_TTL: Duration = Duration::from_secs(30);
/// How often it says so.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);
/// A worker that gave no sign of life for so long is not taken for one of this process.
const WORKER_TTL: Duration = Duration::from_secs(20);
/// Previews of so many bytes do not wait for more.
const FULL: usize = 16 << 10;

/// What waits to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffered {
    /// Nothing.
    Nothing,
    /// Something, which may wait for more.
    Some,
    /// Enough.
    Enough,
}

/// Previews stay in the hub until the storage takes them as rows: this knows what waits there.
pub(super) struct RowTransport {
    /// The name of this process among the readers of runs.
    process: Uuid,
    state: Mutex<State>,
    buffered: watch::Sender<Buffered>,
}

#[derive(Default)]
struct State {
    /// Runs that are read elsewhere, with the index in the hub up to which they are written.
    read: HashMap<RunKey, u64>,
    /// Workers of this process, and when they gave their last sign of life.
    workers: HashMap<(OrgId, WorkerId), Instant>,
    /// Bytes that wait to be written.
    bytes: usize,
}

impl Default for RowTransport {
    fn default() -> Self {
        let process = crate::id::random();
        Self { process, state: Mutex::default(), buffered: watch::Sender::new(Buffered::Nothing) }
    }
}

impl RowTransport {
    /// Whether a run is read elsewhere.
    pub(super) fn is_read(&self, run: RunKey) -> bool {
        self.state.lock().read.contains_key(&run)
    }

    /// Nothing waits to be written any more.
    fn emptied(&self) {
        // Nobody is woken: the writer alone waits, and for the opposite.
        self.buffered.send_if_modified(|buffered| {
            *buffered = Buffered::Nothing;
            false
        });
    }
}

impl PreviewTransport for RowTransport {
    fn publish(&self, preview: &Preview) {
        let mut state = self.state.lock();
        state.bytes += cost(&preview.chunk);
        self.buffered.send_replace(if state.bytes < FULL { Buffered::Some } else { Buffered::Enough });
    }
}

/// When other processes were told that a run is read here, and who held it then.
pub(super) struct Registered {
    holder: Option<WorkerId>,
    at: Instant,
}

/// What a reader has to write so that a run's previews come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// That it reads, and that it has nothing yet.
    New,
    /// That it still reads.
    Renewal,
    /// Nothing.
    Current,
}

/// The rows that a batch makes needless once it is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Superseded {
    /// Those of some sources.
    Of(Vec<Source>),
    /// All of the run.
    All,
}

impl Superseded {
    /// An attempt's end supersedes what it streamed, an entry what the agent did, the run's end everything.
    pub fn by(batch: &Batch) -> Self {
        if matches!(batch.end, BatchEnd::Complete(_) | BatchEnd::Fail(_) | BatchEnd::Cancelled(_)) {
            return Self::All;
        }
        let tasks = batch.attempts.iter().map(|report| Source::Task((batch.segment, report.sequence)));
        let has_entry = batch.ops.iter().any(|op| matches!(op.body, OpBody::Entry(_)));
        Self::Of(tasks.chain(has_entry.then_some(Source::Agent)).collect())
    }
}

impl Chunks {
    /// Whether other processes may make and read previews beside this one.
    pub fn is_shared(&self) -> bool {
        self.0.rows.is_some()
    }

    /// The name of this process among the readers of a run.
    pub fn process(&self) -> Uuid {
        self.0.rows.as_ref().map_or(Uuid::nil(), |rows| rows.process)
    }

    /// What waits to be written; none where nothing ever will.
    pub fn buffered(&self) -> Option<watch::Receiver<Buffered>> {
        self.0.rows.as_ref().map(|rows| rows.buffered.subscribe())
    }

    /// A worker of this process gave a sign of life.
    pub fn worker_seen(&self, org: OrgId, worker: WorkerId) {
        if let Some(rows) = &self.0.rows {
            rows.state.lock().workers.insert((org, worker), crate::clock::instant());
        }
    }

    /// A worker of this process has left.
    pub fn worker_left(&self, org: OrgId, worker: WorkerId) {
        if let Some(rows) = &self.0.rows {
            rows.state.lock().workers.remove(&(org, worker));
        }
    }

    /// Whether a worker is one of this process.
    pub fn is_local(&self, org: OrgId, worker: WorkerId) -> bool {
        let Some(rows) = &self.0.rows else { return false };
        rows.state.lock().workers.get(&(org, worker)).is_some_and(|seen| seen.elapsed() < WORKER_TTL)
    }

    /// Whether this process has workers whose runs may be read elsewhere.
    pub fn has_workers(&self) -> bool {
        let Some(rows) = &self.0.rows else { return false };
        let mut state = rows.state.lock();
        state.workers.retain(|_, seen| seen.elapsed() < WORKER_TTL);
        !state.workers.is_empty()
    }

    /// Sets the runs that are read elsewhere, once for each reader, with whether the reader has nothing yet: then everything is
    /// written again that is kept.
    pub fn set_read_elsewhere(&self, readers: impl IntoIterator<Item = (RunKey, bool)>) {
        let Some(rows) = &self.0.rows else { return };
        let mut state = rows.state.lock();
        let mut before = std::mem::take(&mut state.read);
        for (run, anew) in readers {
            let written = state.read.entry(run).or_insert_with(|| before.remove(&run).unwrap_or(0));
            if anew {
                *written = 0;
            }
        }
    }

    /// Whether a run is read elsewhere.
    pub fn is_read_elsewhere(&self, run: RunKey) -> bool {
        self.0.rows.as_ref().is_some_and(|rows| rows.is_read(run))
    }

    /// The runs of which something is to be written.
    pub fn runs_to_write(&self) -> Vec<RunKey> {
        let Some(rows) = &self.0.rows else { return Vec::new() };
        let (runs, state) = (self.0.runs.lock(), rows.state.lock());
        let waits = |run, written| runs.channels.get(run).is_some_and(|channel| channel.last_made_here > written);
        let waiting: Vec<_> =
            state.read.iter().filter(|(run, written)| waits(*run, **written)).map(|(run, _)| *run).collect();
        if waiting.is_empty() {
            rows.emptied();
        }
        waiting
    }

    /// What is to be written of a run, as rows. The caller writes them, or says that [it did not](Self::write_again).
    pub fn take_rows(&self, run: RunKey) -> Vec<PreviewRow> {
        let Some(rows) = &self.0.rows else { return Vec::new() };
        let (runs, mut state) = (self.0.runs.lock(), rows.state.lock());
        let (Some(channel), Some(written)) = (runs.channels.get(&run), state.read.get_mut(&run)) else {
            return Vec::new();
        };
        let from = channel.kept.partition_point(|kept| kept.position.index <= *written);
        let made_here = channel.kept.range(from..).filter(|kept| kept.made_here);
        let taken = PreviewRow::pack(made_here.map(|Kept { position, preview, .. }| (position.index, preview)));
        *written = channel.last.index;
        state.bytes = 0;
        rows.emptied();
        taken
    }

    /// Rows that were taken did not reach the database: all that is kept is to be written again.
    pub fn write_again(&self, run: RunKey) {
        if let Some(rows) = &self.0.rows
            && let Some(written) = rows.state.lock().read.get_mut(&run)
        {
            *written = 0;
        }
    }

    /// What a reader here has to write for the processes of a run's holder and of its tasks' workers. Of many readers, one is
    /// given something to write.
    pub fn register_reader(&self, run: RunKey, holder: Option<WorkerId>) -> Registration {
        let mut runs = self.0.runs.lock();
        let Some(channel) = runs.channels.get_mut(&run) else { return Registration::Current };
        let now = crate::clock::instant();
        let known = channel.registered.as_ref().filter(|known| known.holder == holder);
        let registration = match known.map(|known| now.duration_since(known.at)) {
            Some(age) if age < RENEW_EVERY => return Registration::Current,
            Some(age) if age < WATCH_TTL => Registration::Renewal,
            // Another holder has written nothing yet for the readers here.
            _ => Registration::New,
        };
        channel.registered = Some(Registered { holder, at: now });
        registration
    }

    /// How far each source of a run's previews has come here.
    pub fn progress(&self, run: RunKey) -> ProgressBySource {
        self.0.runs.lock().channels.get(&run).map(|channel| channel.progress.clone()).unwrap_or_default()
    }

    /// Takes previews from rows that were read together.
    pub fn receive_rows(&self, run: RunKey, rows: &[PreviewRow]) -> Result<()> {
        self.receive_all(run, PreviewRow::unpack(run, rows)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ExecutionId;
    use crate::model::{Chunk, ChunkKind};
    use crate::streaming::{Delivered, Progress};
    use std::sync::Arc;

    const RUN: RunKey = (OrgId::DEFAULT, ExecutionId(Uuid::from_u128(1)));

    fn publish(chunks: &Chunks, sequence: u32, attempt: u32, seq: u64, word: &str) {
        let (execution, segment, epoch, kind) = (RUN.1, 0, 1, ChunkKind::Token);
        chunks.publish(7, RUN.0, Chunk { execution, segment, sequence, epoch, attempt, seq, kind, data: word.into() });
    }

    fn words(chunks: &Chunks) -> Vec<String> {
        let word = |one: Delivered| format!("{} {}", one.chunk.sequence, one.chunk.data);
        chunks.after(RUN, 0, u64::MAX).0.into_iter().map(word).collect()
    }

    #[test]
    fn what_is_read_elsewhere_is_taken_once_and_arrives_as_it_was() {
        let (here, there) = (Chunks::shared(), Chunks::shared());
        let mut buffered = here.buffered().unwrap();
        publish(&here, 3, 1, 1, "a");
        assert!(here.runs_to_write().is_empty() && here.take_rows(RUN).is_empty(), "nobody reads it elsewhere");
        assert!(!buffered.has_changed().unwrap());
        here.set_read_elsewhere([(RUN, true)]);
        publish(&here, 4, 1, 1, "x");
        publish(&here, 3, 1, 2, "b");
        assert_eq!((*buffered.borrow_and_update(), here.runs_to_write()), (Buffered::Some, vec![RUN]));
        let first = here.take_rows(RUN);
        let sources: Vec<_> = first.iter().map(|row| (row.source.columns(), row.last.seq)).collect();
        assert_eq!(sources, [((0, 3), 2), ((0, 4), 1)]);
        assert!(here.runs_to_write().is_empty() && here.take_rows(RUN).is_empty());
        publish(&here, 9, 0, 1, &"y".repeat(FULL));
        assert_eq!(*buffered.borrow_and_update(), Buffered::Enough);
        let second = here.take_rows(RUN);
        assert_eq!(second[0].source, Source::Agent);

        there.receive_rows(RUN, &first).unwrap();
        assert!(words(&there).is_empty(), "nobody follows it there");
        let _signal = there.follow(RUN);
        for rows in [&first, &first, &second] {
            there.receive_rows(RUN, rows).unwrap();
        }
        assert_eq!(words(&there), words(&here));
        assert_eq!(there.progress(RUN)[&Source::Task((0, 3))], Progress { epoch: 1, attempt: 1, seq: 2 });
        // What came by rows is not written again.
        there.set_read_elsewhere([(RUN, true)]);
        assert!(there.runs_to_write().is_empty() && there.take_rows(RUN).is_empty());
        // A new reader gets everything; one that is known does not.
        here.set_read_elsewhere([(RUN, false)]);
        assert!(here.runs_to_write().is_empty());
        here.set_read_elsewhere([(RUN, false), (RUN, true)]);
        assert_eq!(here.runs_to_write(), [RUN]);
        here.set_read_elsewhere([]);
        assert!(!here.is_read_elsewhere(RUN));
    }

    #[test]
    fn several_processes_make_previews_of_one_run() {
        let (one, two, there) = (Chunks::shared(), Chunks::shared(), Chunks::shared());
        let _signal = there.follow(RUN);
        publish(&one, 3, 1, 1, "a");
        [&one, &two].into_iter().for_each(|chunks| chunks.set_read_elsewhere([(RUN, true)]));
        publish(&two, 4, 2, 1, "x");
        publish(&one, 3, 1, 2, "b");
        let rows = [one.take_rows(RUN), two.take_rows(RUN)];
        rows.iter().chain(&rows).for_each(|rows| there.receive_rows(RUN, rows).unwrap());
        assert_eq!(words(&there), ["3 a", "3 b", "4 x"]);
        // The source goes on in the other process, as when a worker changes its server.
        publish(&two, 3, 1, 3, "c");
        there.receive_rows(RUN, &two.take_rows(RUN)).unwrap();
        // What did not reach the database is taken again.
        publish(&one, 5, 1, 1, "y");
        assert_eq!(one.take_rows(RUN).len(), 1);
        one.write_again(RUN);
        there.receive_rows(RUN, &one.take_rows(RUN)).unwrap();
        assert_eq!(words(&there), ["3 a", "3 b", "4 x", "3 c", "5 y"]);
    }

    /// A broker that brings what it is given when the test says so.
    #[derive(Default)]
    struct Held(Mutex<Vec<Preview>>);

    impl PreviewTransport for Held {
        fn publish(&self, preview: &Preview) {
            self.0.lock().push(preview.clone());
        }
    }

    #[test]
    fn of_what_a_broker_brings_nothing_is_missing() {
        let (here, there, broker) = (Chunks::shared(), Chunks::shared(), Arc::new(Held::default()));
        here.set_broker(Some(broker.clone()));
        publish(&here, 3, 1, 1, "a");
        assert!(broker.0.lock().is_empty(), "nobody reads it elsewhere");
        here.set_read_elsewhere([(RUN, true)]);
        for (attempt, seq, word) in [(1, 2, "b"), (1, 3, "c"), (2, 1, "d"), (2, 2, "e")] {
            publish(&here, 3, attempt, seq, word);
        }
        let _signal = there.follow(RUN);
        let brought = broker.0.lock().clone();
        there.receive(brought[0].clone());
        assert!(words(&there).is_empty(), "what came before is missing");
        for n in [2, 3, 2, 0] {
            there.receive(brought[n].clone());
        }
        assert_eq!(words(&there), ["3 d", "3 e"]);
        there.receive_rows(RUN, &here.take_rows(RUN)).unwrap();
        assert_eq!(words(&there), ["3 d", "3 e"], "an attempt that is over is not shown late");
    }

    #[test]
    fn one_of_many_readers_registers_for_all() {
        let chunks = Chunks::shared();
        let (one, other) = (WorkerId(Uuid::from_u128(1)), WorkerId(Uuid::from_u128(2)));
        assert_eq!(chunks.register_reader(RUN, Some(one)), Registration::Current, "nobody follows it");
        let _signal = chunks.follow(RUN);
        let twice = [chunks.register_reader(RUN, Some(one)), chunks.register_reader(RUN, Some(one))];
        assert_eq!(twice, [Registration::New, Registration::Current]);
        assert_eq!(chunks.register_reader(RUN, Some(other)), Registration::New, "it has written nothing yet");
        assert!(!chunks.is_local(RUN.0, one));
        chunks.worker_seen(RUN.0, one);
        assert!(chunks.is_local(RUN.0, one) && chunks.has_workers());
        chunks.worker_left(RUN.0, one);
        assert!(!chunks.is_local(RUN.0, one) && !chunks.has_workers());
    }
}
