//! What a hub shares with those of other processes through rows: who reads a run elsewhere, which of the previews made here
//! are not written yet, and which workers are of this process.
//!
//! Nothing is written for a run that nobody reads elsewhere.

use super::chunks::{Channel, Chunks, Kept, OpKey, RunKey, Told};
use super::free::FreeRow;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{Batch, BatchEnd, Chunk, ChunkKind, EventId, OpBody};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use uuid::Uuid;

/// How long a process counts as a run's reader after it said so.
pub const WATCH_TTL: Duration = Duration::from_secs(30);
/// How often it says so.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);
/// A worker that gave no sign for so long is not taken for one of this process.
const HEARD: Duration = Duration::from_secs(20);
/// Previews of so many bytes do not wait for more.
const FULL: usize = 16 << 10;
/// A row holds about so many bytes at most.
const ROW: usize = 64 << 10;
/// Where a row says that the agent itself made its previews, between two of its ops.
const OF_AGENT: i32 = -1;

/// What waits to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
    /// Nothing.
    Nothing,
    /// Something, which may wait for more.
    Some,
    /// Enough.
    Enough,
}

/// The part of a hub that other processes are concerned with.
pub(super) struct Outgoing {
    process: Uuid,
    state: Mutex<State>,
    signal: watch::Sender<Made>,
    on_publish: RwLock<Option<Arc<OnPublish>>>,
}

/// A preview as other processes are told of it at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The run's org.
    pub org: OrgId,
    /// The position of the preview before it.
    pub before: EventId,
    /// Its position, or the durable event before it: a task's that a queue handed out has none for other processes.
    pub id: EventId,
    /// The preview.
    pub chunk: Arc<Chunk>,
}

type OnPublish = dyn Fn(Said) + Send + Sync;

/// How far the rows of a run were written, or read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reach {
    /// Up to this position.
    pub id: EventId,
    /// Of free previews, up to what each task had told.
    pub tasks: HashMap<OpKey, Told>,
}

/// Previews on their way between processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// Those with a position.
    pub placed: Vec<PreviewRow>,
    /// Those without.
    pub free: Vec<FreeRow>,
}

/// A run that is read elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The run.
    pub run: RunKey,
    /// Whether a worker of this process holds it: else only tasks that its queues have handed out are of interest. `None`
    /// while nobody does: whoever did may again.
    pub held: Option<bool>,
    /// Whether everything that is kept is to be written.
    pub anew: bool,
}

/// What others read of a run, and how much of that was written.
#[derive(Default)]
struct Reading {
    held: bool,
    written: Reach,
}

#[derive(Default)]
struct State {
    /// Runs that are read elsewhere.
    read: HashMap<RunKey, Reading>,
    /// Workers of this process, and when they gave their last sign.
    workers: HashMap<(OrgId, WorkerId), Instant>,
    /// Bytes that wait.
    waiting: usize,
    /// The holder of a run that is read elsewhere made something here, where no worker was known to hold it.
    doubt: bool,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self {
            process: Uuid::new_v4(),
            state: Mutex::default(),
            signal: watch::Sender::new(Made::Nothing),
            on_publish: RwLock::default(),
        }
    }
}

impl Outgoing {
    /// A preview was made here.
    pub(super) fn made(&self, run: RunKey, size: usize, said: Said) {
        let mut state = self.state.lock();
        let Some(Reading { held, .. }) = state.read.get(&run) else { return };
        if !held && said.chunk.epoch != Chunk::OF_A_QUEUE {
            state.doubt = true;
            self.signal.send_if_modified(|made| std::mem::replace(made, (*made).max(Made::Some)) == Made::Nothing);
            return;
        }
        state.waiting += size;
        self.signal.send_replace(if state.waiting < FULL { Made::Some } else { Made::Enough });
        drop(state);
        let on_publish = self.on_publish.read().clone();
        if let Some(on_publish) = on_publish {
            on_publish(said);
        }
    }

    /// Whether a run is read elsewhere.
    pub(super) fn is_read(&self, run: RunKey) -> bool {
        self.state.lock().read.contains_key(&run)
    }

    /// Nothing waits any more.
    fn rest(&self) {
        self.signal.send_if_modified(|made| {
            *made = Made::Nothing;
            false
        });
    }
}

/// Who holds a run in another process, if anybody, and when other processes were last told that the run is read here.
pub(super) struct Elsewhere {
    holder: Option<WorkerId>,
    told: Instant,
}

/// What a reader has to say so that a run's previews come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// That it reads, and that it has nothing yet.
    New,
    /// That it still reads.
    Renewal,
    /// Nothing.
    Live,
}

/// Previews of one op in a row, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewRow {
    /// The place of the last one.
    pub last: EventId,
    /// The op's segment.
    pub segment: u32,
    /// The op's sequence; -1 for what the agent itself made.
    pub sequence: i32,
    /// The previews, as JSON.
    pub data: String,
}

/// A row holds no previews.
pub(super) fn not_readable(error: serde_json::Error) -> Error {
    Error::new(Code::StorageUnavailable, format!("a row of previews is not readable: {error}"))
}

/// A preview as its row has it: place, sequence, epoch, attempt, seq, kind, data.
type Packed = (u64, u64, u32, u64, u32, u64, ChunkKind, Arc<str>);

impl PreviewRow {
    /// The previews with their places.
    pub fn unpack(&self, execution: ExecutionId) -> Result<Vec<(EventId, Chunk)>> {
        let packed: Vec<Packed> = serde_json::from_str(&self.data).map_err(not_readable)?;
        let unpacked = packed.into_iter().map(|(number, chunk, sequence, epoch, attempt, seq, kind, data)| {
            let id = EventId { number, chunk };
            (id, Chunk { execution, segment: self.segment, sequence, epoch, attempt, seq, kind, data })
        });
        Ok(unpacked.collect())
    }

    /// Previews of one op as a row; nothing where there are none.
    fn pack(previews: &[&Kept]) -> Option<Self> {
        let Kept { place, chunk, .. } = previews.last()?;
        let packed: Vec<Packed> = previews
            .iter()
            .map(|Kept { place, chunk, .. }| {
                let Chunk { sequence, epoch, attempt, seq, kind, data, .. } = &**chunk;
                (place.id.number, place.id.chunk, *sequence, *epoch, *attempt, *seq, *kind, data.clone())
            })
            .collect();
        let data = serde_json::to_string(&packed).ok()?;
        Some(Self { last: place.id, segment: chunk.segment, sequence: row_of(chunk), data })
    }
}

/// The op a row is of.
fn row_of(chunk: &Chunk) -> i32 {
    if chunk.attempt == 0 { OF_AGENT } else { i32::try_from(chunk.sequence).unwrap_or(i32::MAX) }
}

/// The rows that a batch makes needless once it is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Superseded {
    /// Those of some ops, by segment and sequence.
    Ops(Vec<(u32, i32)>),
    /// All of the run.
    All,
}

impl Superseded {
    /// An attempt's end supersedes what it streamed, an entry what the agent did, the run's end everything.
    pub fn by(batch: &Batch) -> Self {
        if matches!(batch.end, BatchEnd::Complete(_) | BatchEnd::Fail(_) | BatchEnd::Cancelled(_)) {
            return Self::All;
        }
        let of_tasks = batch.attempts.iter().map(|report| i32::try_from(report.sequence).unwrap_or(i32::MAX));
        let entry = batch.ops.iter().any(|op| matches!(op.body, OpBody::Entry(_)));
        let of_agent = entry.then_some(OF_AGENT);
        Self::Ops(of_tasks.chain(of_agent).map(|sequence| (batch.segment, sequence)).collect())
    }
}

impl Chunks {
    /// Whether other processes may have boards beside this one.
    pub fn is_shared(&self) -> bool {
        self.0.outgoing.is_some()
    }

    /// The name of this process among the readers of a run.
    pub fn process(&self) -> Uuid {
        self.0.outgoing.as_ref().map_or(Uuid::nil(), |outgoing| outgoing.process)
    }

    /// Has what is made here of runs that are read elsewhere told to others at once; nothing any more without a on_publish. It
    /// must be quick and must not block.
    pub fn set_on_publish(&self, on_publish: Option<Arc<dyn Fn(Said) + Send + Sync>>) {
        if let Some(outgoing) = &self.0.outgoing {
            *outgoing.on_publish.write() = on_publish;
        }
    }

    /// Tells what waits to be written.
    pub fn made(&self) -> Option<watch::Receiver<Made>> {
        self.0.outgoing.as_ref().map(|outgoing| outgoing.signal.subscribe())
    }

    /// A worker of this process gave a sign of life.
    pub fn heard_of(&self, org: OrgId, worker: WorkerId) {
        if let Some(outgoing) = &self.0.outgoing {
            outgoing.state.lock().workers.insert((org, worker), Instant::now());
        }
    }

    /// A worker of this process has left.
    pub fn gone(&self, org: OrgId, worker: WorkerId) {
        if let Some(outgoing) = &self.0.outgoing {
            outgoing.state.lock().workers.remove(&(org, worker));
        }
    }

    /// Whether a worker is one of this process.
    pub fn is_home(&self, org: OrgId, worker: WorkerId) -> bool {
        let Some(outgoing) = &self.0.outgoing else { return false };
        outgoing.state.lock().workers.get(&(org, worker)).is_some_and(|heard| heard.elapsed() < HEARD)
    }

    /// Whether this process has workers whose runs may be read elsewhere.
    pub fn has_workers(&self) -> bool {
        let Some(outgoing) = &self.0.outgoing else { return false };
        let mut state = outgoing.state.lock();
        state.workers.retain(|_, heard| heard.elapsed() < HEARD);
        !state.workers.is_empty()
    }

    /// Sets the runs that are read elsewhere.
    pub fn set_read(&self, runs: impl IntoIterator<Item = Read>) {
        let Some(outgoing) = &self.0.outgoing else { return };
        let mut state = outgoing.state.lock();
        let mut before = std::mem::take(&mut state.read);
        for Read { run, held, anew } in runs {
            let known = || before.remove(&run).unwrap_or_default();
            let reading = state.read.entry(run).or_insert_with(known);
            reading.held = held.unwrap_or(reading.held);
            // Two readers of one run: it is enough that one of them has nothing.
            if anew {
                reading.written = Reach::default();
            }
        }
    }

    /// Whether it is to be looked again who holds the runs that are read elsewhere.
    pub fn has_doubt(&self) -> bool {
        self.0.outgoing.as_ref().is_some_and(|outgoing| std::mem::take(&mut outgoing.state.lock().doubt))
    }

    /// Whether a run is read elsewhere.
    pub fn is_read(&self, run: RunKey) -> bool {
        self.0.outgoing.as_ref().is_some_and(|outgoing| outgoing.is_read(run))
    }

    /// The runs that are read elsewhere and have previews which are not written.
    pub fn waiting(&self) -> Vec<RunKey> {
        let Some(outgoing) = &self.0.outgoing else { return Vec::new() };
        let (runs, state) = (self.0.runs.lock(), outgoing.state.lock());
        let waits = |(run, Reading { held, written }): (&RunKey, &Reading)| {
            let made = &runs.channels.get(run)?.made;
            let more = |(op, told)| written.tasks.get(op).is_none_or(|written| told > written);
            (*held && made.id > written.id || made.tasks.iter().any(more)).then_some(*run)
        };
        let waiting: Vec<_> = state.read.iter().filter_map(waits).collect();
        if waiting.is_empty() {
            outgoing.rest();
        }
        waiting
    }

    /// Hands out, to be written now, what was made of a run that is read elsewhere, in rows.
    pub fn take_rows(&self, run: RunKey) -> Rows {
        let Some(outgoing) = &self.0.outgoing else { return Rows::default() };
        // Taken in the order of their places by whoever holds the hub.
        let mut runs = self.0.runs.lock();
        let mut state = outgoing.state.lock();
        let Some(Reading { held, written }) = state.read.get_mut(&run) else { return Rows::default() };
        let Some(channel) = runs.channels.get_mut(&run) else { return Rows::default() };
        let held = *held;
        let mut made = channel.made.clone();
        if !held {
            // What is not handed out here is still to be, should its maker be known to hold the run after all.
            made.id = written.id;
        }
        let written = std::mem::replace(written, made);
        let from = channel.kept.partition_point(|kept| kept.place <= written.id.into());
        let placed = channel.kept.range(from..).filter(|kept| held && kept.made && !kept.of_a_queue());
        let placed = rows(placed);
        let is_new = |kept: &&Kept| {
            let told = (kept.chunk.attempt, kept.chunk.seq);
            kept.made && kept.of_a_queue() && written.tasks.get(&kept.op()).is_none_or(|written| told > *written)
        };
        let free = match channel.made.tasks.is_empty() {
            true => Vec::new(),
            false => FreeRow::pack(channel.kept.iter().filter(is_new)),
        };
        channel.spread |= !free.is_empty();
        state.waiting = 0;
        outgoing.rest();
        Rows { placed, free }
    }

    /// Previews that were handed out did not reach their rows: they are to be handed out again.
    pub fn rewind(&self, run: RunKey) {
        if let Some(outgoing) = &self.0.outgoing
            && let Some(reading) = outgoing.state.lock().read.get_mut(&run)
        {
            reading.written = Reach::default();
        }
    }

    /// What a reader here says to the processes of a run's holder and of its tasks' workers. Only one of many readers is told
    /// to say it.
    pub fn lease(&self, run: RunKey, holder: Option<WorkerId>) -> Lease {
        let mut runs = self.0.runs.lock();
        let Some(channel) = runs.channels.get_mut(&run) else { return Lease::Live };
        let now = Instant::now();
        let lease = match &channel.elsewhere {
            Some(known) if known.holder == holder && now.duration_since(known.told) < RENEW_EVERY => Lease::Live,
            Some(known) if known.holder == holder && now.duration_since(known.told) < WATCH_TTL => Lease::Renewal,
            _ => Lease::New,
        };
        if lease != Lease::Live {
            channel.elsewhere = Some(Elsewhere { holder, told: now });
        }
        lease
    }

    /// Up to where the rows of a run were read.
    pub fn delivered(&self, run: RunKey) -> Reach {
        let runs = self.0.runs.lock();
        let reach = |channel: &Channel| Reach { id: channel.delivered, tasks: channel.tasks.clone() };
        runs.channels.get(&run).map_or_else(Reach::default, reach)
    }

    /// Takes previews from rows, which were read together.
    pub fn deliver_rows(&self, run: RunKey, rows: &Rows) -> Result<()> {
        let mut previews = Vec::new();
        for row in &rows.placed {
            previews.extend(row.unpack(run.1)?);
        }
        previews.sort_unstable_by_key(|(id, _)| *id);
        let last = previews.last().map(|(id, _)| *id);
        for (id, chunk) in previews {
            self.deliver(id, run.0, chunk);
        }
        if let (Some(last), Some(channel)) = (last, self.0.runs.lock().channels.get_mut(&run)) {
            channel.delivered = channel.delivered.max(last);
        }
        self.deliver_free_rows(run, &rows.free)
    }
}

/// Previews as rows, each of one op, so that its end can take them away.
fn rows<'a>(made: impl Iterator<Item = &'a Kept>) -> Vec<PreviewRow> {
    let mut open: HashMap<(u32, i32), (usize, Vec<&Kept>)> = HashMap::new();
    let mut rows = Vec::new();
    for kept in made {
        let op = (kept.chunk.segment, row_of(&kept.chunk));
        let (size, previews) = open.entry(op).or_default();
        *size += kept.chunk.data.len();
        previews.push(kept);
        if *size >= ROW {
            rows.extend(PreviewRow::pack(previews));
            (*size, *previews) = (0, Vec::new());
        }
    }
    rows.extend(open.into_values().filter_map(|(_, previews)| PreviewRow::pack(&previews)));
    rows.sort_unstable_by_key(|row| row.last);
    rows
}

#[cfg(test)]
mod tests {
    use super::super::chunks::{Place, Shown};
    use super::*;

    const RUN: RunKey = (OrgId::DEFAULT, ExecutionId(Uuid::from_u128(1)));

    fn say(hub: &Chunks, after: u64, sequence: u32, attempt: u32, word: &str) {
        let chunk = Chunk {
            execution: RUN.1,
            segment: 0,
            sequence,
            epoch: 1,
            attempt,
            seq: 1,
            kind: ChunkKind::Token,
            data: word.into(),
        };
        hub.publish(after, RUN.0, chunk);
    }

    fn kept(hub: &Chunks) -> Vec<Shown> {
        hub.after(RUN, Place::default(), u64::MAX).0
    }

    fn words(hub: &Chunks) -> Vec<String> {
        let word = |shown: Shown| format!("{} {} {}", shown.place.id, shown.chunk.sequence, shown.chunk.data);
        kept(hub).into_iter().map(word).collect()
    }

    fn read(anew: bool) -> Read {
        Read { run: RUN, held: Some(true), anew }
    }

    fn nothing(rows: &Rows) -> bool {
        *rows == Rows::default()
    }

    #[test]
    fn what_is_read_elsewhere_is_handed_out_once_and_arrives_as_it_was() {
        let (here, there) = (Chunks::shared(), Chunks::shared());
        let mut signal = here.made().unwrap();
        say(&here, 7, 3, 1, "a ");
        assert!(here.waiting().is_empty() && nothing(&here.take_rows(RUN)), "nobody reads it elsewhere");
        assert!(!signal.has_changed().unwrap());
        here.set_read([read(true)]);
        say(&here, 7, 4, 1, "x ");
        say(&here, 7, 3, 1, "b ");
        let made = *signal.borrow_and_update();
        assert_eq!((made, here.waiting()), (Made::Some, vec![RUN]));
        let first = here.take_rows(RUN);
        let ops: Vec<_> = first.placed.iter().map(|row| (row.sequence, row.last.to_string())).collect();
        assert_eq!(ops, [(4, "7.2".to_owned()), (3, "7.3".to_owned())]);
        assert!(here.waiting().is_empty() && nothing(&here.take_rows(RUN)));
        say(&here, 7, 9, 0, &"y".repeat(FULL));
        assert_eq!(*signal.borrow_and_update(), Made::Enough);
        let second = here.take_rows(RUN);
        assert_eq!(second.placed[0].sequence, OF_AGENT);

        there.deliver_rows(RUN, &first).unwrap();
        assert!(words(&there).is_empty(), "nobody follows it there");
        let _bell = there.follow(RUN);
        for rows in [&first, &first, &second] {
            there.deliver_rows(RUN, rows).unwrap();
        }
        assert_eq!(words(&there), words(&here));
        assert_eq!(there.delivered(RUN).id.to_string(), "7.4");
        // What was read from rows is not handed on.
        there.set_read([read(true)]);
        assert!(there.waiting().is_empty() && nothing(&there.take_rows(RUN)));
        // A new reader gets everything; one that is known does not. Who has lost the run has nothing to say of it.
        here.set_read([read(false)]);
        assert!(here.waiting().is_empty());
        here.set_read([read(false), read(true)]);
        assert_eq!(here.waiting(), [RUN]);
        here.set_read([Read { held: Some(false), ..read(true) }]);
        assert!(here.waiting().is_empty() && nothing(&here.take_rows(RUN)));
        here.set_read([]);
        assert!(!here.is_read(RUN));
    }

    #[test]
    fn what_is_heard_at_once_is_taken_in_order_alone() {
        let (here, there) = (Chunks::shared(), Chunks::shared());
        let said: Arc<Mutex<Vec<Said>>> = Arc::default();
        let heard = said.clone();
        here.set_on_publish(Some(Arc::new(move |said| heard.lock().push(said))));
        say(&here, 7, 3, 1, "a ");
        assert!(said.lock().is_empty(), "nobody reads it elsewhere");
        here.set_read([read(true)]);
        ["b ", "c ", "d "].into_iter().for_each(|word| say(&here, 7, 3, 1, word));
        let _bell = there.follow(RUN);
        let said = said.lock().clone();
        // Nothing is known of what came before: the rows bring it, and only then what follows them is taken.
        there.hear(said[0].clone());
        assert!(words(&there).is_empty());
        there.deliver_rows(RUN, &here.take_rows(RUN)).unwrap();
        let last = kept(&there).last().unwrap().place.id;
        let next = Said { org: RUN.0, before: last, id: EventId { number: 8, chunk: 1 }, chunk: said[0].chunk.clone() };
        for said in [said[2].clone(), said[1].clone(), next.clone(), next] {
            there.hear(said);
        }
        assert_eq!(words(&there).len(), 5, "repeated and late ones are passed over");
        assert_eq!(words(&there)[4], "8.1 3 b ");
    }

    #[test]
    fn one_of_many_readers_speaks_for_all() {
        let hub = Chunks::shared();
        let (one, other) = (WorkerId(Uuid::from_u128(1)), WorkerId(Uuid::from_u128(2)));
        assert_eq!(hub.lease(RUN, Some(one)), Lease::Live, "nobody follows it");
        let _bell = hub.follow(RUN);
        assert_eq!([hub.lease(RUN, Some(one)), hub.lease(RUN, Some(one))], [Lease::New, Lease::Live]);
        assert_eq!(hub.lease(RUN, Some(other)), Lease::New, "another holder has written nothing yet");
        assert!(!hub.is_home(RUN.0, one));
        hub.heard_of(RUN.0, one);
        assert!(hub.is_home(RUN.0, one) && hub.has_workers());
        hub.gone(RUN.0, one);
        assert!(!hub.is_home(RUN.0, one) && !hub.has_workers());
    }
}
