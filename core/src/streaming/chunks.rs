//! Previews of what runs are making: bounded, dropped without harm. In this process, through a relay to where they meet, or
//! shared with other processes through rows ([`outgoing`](super::outgoing)).
//!
//! Where all of a run's previews are made in one process, each has a position there that every hub takes over. What queues
//! handed to workers of other processes is made beside that, so it has no position that two boards could agree on: those
//! previews are free. A free one shares the position of what stands before it on a hub, and is told apart by its op, attempt
//! and seq; who resumes anywhere is shown what is open of it anew.

use super::outgoing::{Elsewhere, Outgoing, Reach, Said};
use super::single_flight::SharedReads;
use crate::clock::{Clock, SystemClock};
use crate::id::{ExecutionId, OrgId};
use crate::model::{Chunk, EventId};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// Previews kept per run for readers that come late.
const KEPT: usize = 4_096;
/// Bytes kept per run.
const KEPT_BYTES: usize = 4 << 20;
/// Bytes kept of all runs; over it, those that nobody reads are forgotten, the longest quiet first.
const ALL_BYTES: usize = 16 << 20;
/// Places behind an event that a reader may name; beyond them there are none.
const FARTHEST: u64 = 1 << 53;
/// What a preview costs beside its text.
const OVERHEAD: usize = 160;

/// Takes a preview, with the durable event that it follows, to the hub elsewhere that every reader reads. Must not block.
type Relay = Box<dyn Fn(u64, Chunk) + Send + Sync>;

/// A run, whatever else has its id in another org.
pub type RunKey = (OrgId, ExecutionId);

/// The hub of previews. Clones share it.
#[derive(Clone, Default)]
pub struct Chunks(pub(super) Arc<Hub>);

#[derive(Default)]
pub(super) struct Hub {
    pub runs: Mutex<Runs>,
    relay: Option<Relay>,
    /// Of a hub whose runs others may read through rows.
    pub outgoing: Option<Outgoing>,
    /// What readers ask the store for now.
    reads: SharedReads,
}

/// The previews of every run.
#[derive(Default)]
pub(super) struct Runs {
    pub channels: HashMap<RunKey, Channel>,
    /// Bytes kept of all runs.
    bytes: usize,
    /// Counts what was published: tells which run is the longest quiet.
    published: u64,
}

/// An op of a run, by segment and sequence.
pub type OpKey = (u32, u32);

/// How far a task's previews have come: their attempt, and the last one's place in it.
pub type Told = (u32, u64);

/// A place on a hub: behind a position, the n-th of the free previews that share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The position, which every hub knows.
    pub id: EventId,
    /// From 1; 0 for what has a position of its own.
    pub nth: u64,
}

impl From<EventId> for Place {
    fn from(id: EventId) -> Self {
        Self { id, nth: 0 }
    }
}

/// A preview as a hub shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its place there.
    pub place: Place,
    /// The preview.
    pub chunk: Arc<Chunk>,
    /// It has no position of its own.
    pub free: bool,
}

/// A preview that is kept.
pub(super) struct Kept {
    pub place: Place,
    /// The durable event that it follows, as its maker knows.
    pub event: u64,
    pub chunk: Arc<Chunk>,
    /// It was made by a worker of this process, not read from rows.
    pub made: bool,
}

impl Kept {
    /// Whether a queue handed its task to the worker that made it.
    pub fn of_a_queue(&self) -> bool {
        self.chunk.epoch == Chunk::OF_A_QUEUE
    }

    pub fn op(&self) -> OpKey {
        (self.chunk.segment, self.chunk.sequence)
    }
}

#[derive(Default)]
pub(super) struct Channel {
    pub kept: VecDeque<Kept>,
    last: Place,
    /// The last one with a position, as the hub it was made on has it.
    heard: EventId,
    /// The last one that is no longer kept.
    lost: Place,
    /// Other processes have shown previews of its queues' tasks that were made here, or the other way round: those are free.
    pub spread: bool,
    /// How far those have come that are free or may become so.
    pub tasks: HashMap<OpKey, Told>,
    /// How far those have come that were made here.
    pub made: Reach,
    bytes: usize,
    published: u64,
    /// The durable event up to which a reader has come: what is published then stands behind it.
    passed: u64,
    signal: watch::Sender<()>,
    /// Up to where the rows of another process were read.
    pub delivered: EventId,
    /// Who holds the run in another process, as its readers here know.
    pub elsewhere: Option<Elsewhere>,
}

impl Chunks {
    /// A hub that gives all it gets to one elsewhere.
    pub fn relayed(relay: impl Fn(u64, Chunk) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Hub { relay: Some(Box::new(relay)), ..Hub::default() }))
    }

    /// A hub of one of the processes that share a database.
    pub fn shared() -> Self {
        Self(Arc::new(Hub { outgoing: Some(Outgoing::default()), ..Hub::default() }))
    }

    /// Where readers of the same ask the store together.
    pub(crate) fn reads(&self) -> &SharedReads {
        &self.0.reads
    }

    /// Publishes a preview of an org's run that follows the durable event `after`.
    pub fn publish(&self, after: u64, org: OrgId, chunk: Chunk) {
        if let Some(relay) = &self.0.relay {
            return relay(after, chunk);
        }
        let (run, size) = ((org, chunk.execution), cost(&chunk));
        let mut runs = self.0.runs.lock();
        let channel = runs.channels.entry(run).or_default();
        let kept = Kept { place: Place::default(), event: after, chunk: Arc::new(chunk), made: true };
        if let Some(outgoing) = self.0.outgoing.as_ref().filter(|_| kept.of_a_queue()) {
            channel.spread |= outgoing.is_read(run);
            channel.has_come(&kept.chunk);
            channel.made.tasks.insert(kept.op(), (kept.chunk.attempt, kept.chunk.seq));
        }
        let mut said =
            Said { org, before: channel.heard, id: EventId { number: after, chunk: 0 }, chunk: kept.chunk.clone() };
        let place = match channel.spread && kept.of_a_queue() {
            true => channel.beside(after),
            false => {
                said.id = channel.behind(after, kept.chunk.seq);
                channel.heard = said.id;
                if !kept.of_a_queue() {
                    channel.made.id = said.id;
                }
                said.id.into()
            }
        };
        runs.take(run, Kept { place, ..kept });
        drop(runs);
        if let Some(outgoing) = &self.0.outgoing {
            outgoing.made(run, size, said);
        }
    }

    /// Takes a preview from the hub it was published on, with its id there. One that comes when readers here are past its
    /// place is put behind them: late, but not lost on them.
    pub fn deliver(&self, id: EventId, org: OrgId, chunk: Chunk) {
        self.0.runs.lock().deliver((org, chunk.execution), id, Arc::new(chunk));
    }

    /// Takes a preview of a task that a queue handed to a worker of another process; it follows the durable event `event`.
    /// One that was taken before is passed over.
    pub fn deliver_free(&self, event: u64, org: OrgId, chunk: Chunk) {
        self.0.runs.lock().deliver_free((org, chunk.execution), event, Arc::new(chunk));
    }

    /// Takes a preview that another process has just made, if nothing is missing before it: what is comes by its rows.
    pub fn hear(&self, said: Said) {
        let run = (said.org, said.chunk.execution);
        let mut runs = self.0.runs.lock();
        let Some(channel) = runs.channels.get(&run) else { return };
        if said.chunk.epoch == Chunk::OF_A_QUEUE {
            if channel.is_next(&said.chunk) {
                runs.deliver_free(run, said.id.number, said.chunk);
            }
        } else if channel.heard == said.before {
            runs.deliver(run, said.id, said.chunk);
        }
    }

    /// Previews after a place that stand before the durable event `before`; and the last such one that is gone.
    pub fn after(&self, run: RunKey, after: Place, before: u64) -> (Vec<Shown>, Option<Place>) {
        let runs = self.0.runs.lock();
        let Some(channel) = runs.channels.get(&run) else { return (Vec::new(), None) };
        let from = channel.kept.partition_point(|kept| kept.place <= after);
        let kept = channel.kept.range(from..).take_while(|kept| kept.place.id.number < before);
        let show = |kept: &Kept| {
            let free = channel.spread && kept.of_a_queue();
            Shown { place: kept.place, chunk: kept.chunk.clone(), free }
        };
        (kept.map(show).collect(), Some(channel.lost).filter(|lost| *lost > after && lost.id.number < before))
    }

    /// Lets a reader go on after a position: the one from where events are to be read again, so that what is kept can be
    /// judged by them; nothing where nothing is kept. Previews to come stand behind the position, also on a hub that has
    /// not seen what came before it.
    pub fn resume(&self, run: RunKey, at: EventId) -> Option<EventId> {
        let mut runs = self.0.runs.lock();
        let channel = runs.channels.get_mut(&run)?;
        if at.is_chunk() && at.chunk < FARTHEST {
            channel.last = channel.last.max(at.into());
            channel.heard = channel.heard.max(at);
        }
        let free = channel.kept.iter().filter(|kept| channel.spread && kept.of_a_queue());
        let free = free.map(|kept| EventId { number: kept.event, chunk: 0 });
        channel.kept.front().map(|kept| kept.place.id).into_iter().chain(free).min()
    }

    /// A reader has come up to a durable event: whoever publishes without knowing of it is put behind it, not lost on the
    /// reader.
    pub fn passed(&self, run: RunKey, number: u64) {
        if let Some(channel) = self.0.runs.lock().channels.get_mut(&run) {
            channel.passed = channel.passed.max(number);
        }
    }

    /// Rings at every new preview of a run.
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
    fn deliver(&mut self, run: RunKey, id: EventId, chunk: Arc<Chunk>) {
        let Some(channel) = self.channels.get_mut(&run).filter(|channel| id > channel.heard) else { return };
        channel.heard = id;
        let in_time = id > channel.last.id && id.number >= channel.passed;
        let id = if in_time { id } else { channel.behind(id.number, 1) };
        self.take(run, Kept { place: id.into(), event: id.number, chunk, made: false });
    }

    fn deliver_free(&mut self, run: RunKey, event: u64, chunk: Arc<Chunk>) {
        let Some(channel) = self.channels.get_mut(&run) else { return };
        if channel.has_come(&chunk) {
            channel.spread = true;
            let place = channel.beside(event);
            self.take(run, Kept { place, event, chunk, made: false });
        }
    }

    fn take(&mut self, run: RunKey, preview: Kept) {
        self.published += 1;
        let channel = self.channels.entry(run).or_default();
        let before = channel.bytes;
        channel.published = self.published;
        channel.take(preview);
        self.bytes = self.bytes + channel.bytes - before;
        if self.bytes > ALL_BYTES {
            self.shrink();
        }
    }

    /// Forgets what nobody reads until half is free, so that this is rare.
    fn shrink(&mut self) {
        let unread = self.channels.iter().filter(|(_, channel)| !channel.is_followed());
        let mut unread: Vec<_> = unread.map(|(run, channel)| (channel.published, *run)).collect();
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
    /// Notes that a task's preview has come; false where one behind it came before.
    fn has_come(&mut self, chunk: &Chunk) -> bool {
        let progress = (chunk.attempt, chunk.seq);
        let last = self.tasks.entry((chunk.segment, chunk.sequence)).or_default();
        let is_new = progress > *last;
        *last = progress.max(*last);
        is_new
    }

    /// Whether nothing is missing between what has come of a task's previews and this one.
    fn is_next(&self, chunk: &Chunk) -> bool {
        let (attempt, seq) = self.tasks.get(&(chunk.segment, chunk.sequence)).copied().unwrap_or_default();
        match chunk.attempt == attempt {
            true => chunk.seq == seq + 1,
            false => chunk.attempt > attempt && chunk.seq == 1,
        }
    }

    /// The next place of those that share a position: the last one's behind a durable event and behind what readers have.
    fn beside(&self, event: u64) -> Place {
        let number = event.max(self.passed);
        match number > self.last.id.number {
            true => Place { id: EventId { number, chunk: 0 }, nth: 1 },
            false => Place { nth: self.last.nth + 1, ..self.last },
        }
    }

    /// The next position behind a durable event, behind what readers have and behind the last preview. `seq` is the place of
    /// the preview in its attempt: the first one on a hub need not be its attempt's first, and then another hub has given
    /// positions behind the event, which readers still have.
    fn behind(&self, event: u64, seq: u64) -> EventId {
        let (number, last) = (event.max(self.passed), self.last.id);
        if number > last.number {
            let goes_on = seq > 1 && self.last == Place::default();
            return EventId { number, chunk: if goes_on { beyond_other_boards() } else { 1 } };
        }
        EventId { number: last.number, chunk: last.chunk + 1 }
    }

    fn take(&mut self, preview: Kept) {
        self.last = preview.place;
        self.bytes += cost(&preview.chunk);
        self.kept.push_back(preview);
        while self.kept.len() > KEPT || (self.bytes > KEPT_BYTES && self.kept.len() > 1) {
            let Some(first) = self.kept.pop_front() else { break };
            self.lost = first.place;
            self.bytes -= cost(&first.chunk);
        }
        self.signal.send_replace(());
    }

    fn is_followed(&self) -> bool {
        self.signal.receiver_count() > 0
    }
}

/// A place behind an event that no hub has given which began earlier: they count from 1, or from when they began.
fn beyond_other_boards() -> u64 {
    u64::try_from(SystemClock::default().now().0 / 1_000).unwrap_or(1).max(1)
}

fn cost(chunk: &Chunk) -> usize {
    chunk.data.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ChunkKind;

    fn fresh() -> RunKey {
        (OrgId::DEFAULT, ExecutionId::fresh())
    }

    fn publish(hub: &Chunks, after: u64, run: RunKey, size: usize) {
        hub.publish(after, run.0, chunk(run.1, size));
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

    #[test]
    fn what_nobody_reads_is_bounded_over_all_runs() {
        let hub = Chunks::default();
        let followed = fresh();
        let signal = hub.follow(followed);
        publish(&hub, 1, followed, 10);
        let runs: Vec<_> = (0..400).map(|_| fresh()).collect();
        for run in &runs {
            publish(&hub, 1, *run, 100_000);
        }
        let bytes = hub.0.runs.lock().bytes;
        assert!(bytes <= ALL_BYTES, "{bytes} bytes");
        assert_eq!(hub.after(runs[399], Place::default(), 2).0.len(), 1, "what is new stays");
        assert!(hub.after(runs[0], Place::default(), 2).0.is_empty(), "the longest quiet goes first");
        assert_eq!(hub.after(followed, Place::default(), 2).0.len(), 1, "what is read stays");
        drop(signal);
        hub.forget(followed);
        assert!(!hub.0.runs.lock().channels.contains_key(&followed));
    }

    #[test]
    fn a_reader_is_told_that_previews_are_gone() {
        let (hub, run) = (Chunks::default(), fresh());
        (0..KEPT + 2).for_each(|_| publish(&hub, 7, run, 1));
        let place = |chunk| EventId { number: 7, chunk };
        assert_eq!(hub.resume(run, EventId::default()), Some(place(3)));
        let gone = Some(place(2));
        for (at, kept, gone) in [(EventId::default(), KEPT, gone), (place(1), KEPT, gone), (place(2), KEPT, None)] {
            let (found, lost) = hub.after(run, at.into(), 8);
            assert_eq!((found.len(), lost.map(|lost| lost.id)), (kept, gone), "after {at}");
        }
        // Nothing that stands behind the event asked for counts.
        assert_eq!(hub.after(run, Place::default(), 7), (Vec::new(), None));
    }

    #[test]
    fn a_preview_of_one_who_does_not_know_the_latest_event_reaches_the_reader() {
        let (hub, run) = (Chunks::default(), fresh());
        let _bell = hub.follow(run);
        publish(&hub, 3, run, 1);
        hub.passed(run, 9);
        publish(&hub, 3, run, 1);
        let (found, lost) = hub.after(run, EventId { number: 9, chunk: 0 }.into(), 10);
        assert_eq!((found.len(), lost), (1, None));
        assert_eq!(found[0].place, EventId { number: 9, chunk: 1 }.into());
    }

    #[test]
    fn a_preview_from_elsewhere_that_comes_late_reaches_the_reader_once() {
        let (hub, run) = (Chunks::shared(), fresh());
        let _bell = hub.follow(run);
        let place = |number, chunk| EventId { number, chunk };
        hub.passed(run, 4);
        for id in [place(2, 1), place(2, 2), place(2, 1), place(4, 1), place(4, 1), place(5, 1)] {
            hub.deliver(id, run.0, chunk(run.1, 1));
        }
        let found = hub.after(run, place(4, 0).into(), u64::MAX).0;
        let ids: Vec<_> = found.iter().map(|shown| shown.place.id).collect();
        assert_eq!(ids, [place(4, 1), place(4, 2), place(4, 3), place(5, 1)]);
    }

    #[test]
    fn free_previews_stand_between_positions_and_take_none() {
        let (hub, run) = (Chunks::shared(), fresh());
        let _bell = hub.follow(run);
        let free = |op, seq| Chunk { epoch: Chunk::OF_A_QUEUE, sequence: op, seq, ..chunk(run.1, 1) };
        let placed = |number, place| hub.deliver(EventId { number, chunk: place }, run.0, chunk(run.1, 1));
        hub.deliver_free(2, run.0, free(3, 1));
        placed(3, 1);
        hub.deliver_free(2, run.0, free(3, 2));
        hub.deliver_free(2, run.0, free(3, 2));
        placed(3, 2);
        hub.passed(run, 4);
        hub.deliver_free(2, run.0, free(5, 1));
        hub.deliver_free(2, run.0, free(3, 3));
        placed(4, 1);
        let found = hub.after(run, Place::default(), u64::MAX).0;
        let progress = found.iter().map(|shown| (shown.place.id.to_string(), shown.place.nth, shown.free));
        let progress: Vec<_> = progress.collect();
        let expected = [
            ("2", 1, true),
            ("3.1", 0, false),
            ("3.1", 1, true),
            ("3.2", 0, false),
            ("4", 1, true),
            ("4", 2, true),
            ("4.1", 0, false),
        ];
        assert_eq!(progress, expected.map(|(id, nth, free)| (id.to_owned(), nth, free)));
        assert!(found.is_sorted_by_key(|shown| shown.place));
        // Whoever judges them again has to know what happened since they were made.
        assert_eq!(hub.resume(run, EventId { number: 4, chunk: 1 }), Some(EventId { number: 2, chunk: 0 }));
    }

    #[test]
    fn a_board_that_has_seen_nothing_goes_on_behind_its_readers() {
        let (hub, run) = (Chunks::default(), fresh());
        let _bell = hub.follow(run);
        let at = EventId { number: 7, chunk: 5 };
        assert_eq!(hub.resume(run, at), None);
        publish(&hub, 7, run, 1);
        assert_eq!(hub.after(run, at.into(), 8).0[0].place.id, EventId { number: 7, chunk: 6 });
    }

    #[test]
    fn orgs_do_not_see_each_others_previews_of_one_id() {
        let (hub, run) = (Chunks::default(), fresh());
        let other = (OrgId::fresh(), run.1);
        let _bells = (hub.follow(run), hub.follow(other));
        publish(&hub, 7, run, 1);
        assert_eq!(hub.after(run, Place::default(), 8).0.len(), 1);
        assert!(hub.after(other, Place::default(), 8).0.is_empty());
    }
}
