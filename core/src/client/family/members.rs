//! The runs that a reader of a family follows. Each has a reader of its own ([`Watching`]), and these take turns event by
//! event: whoever has much to tell delays nobody. Runs that are born join, and those whose end was given leave, so that what
//! is held is that of open runs alone.

use super::super::watch::Watching;
use super::cursor::{self, Mark};
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{EventId, FamilyEvent, Relative, StreamEvent};
use crate::spawn;
use crate::storage::{Families, Storage};
use crate::streaming::{Change, Chunks, Follow, Listening};
use crate::sync::Mutex;
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

/// Runs that are read at a time. Of a larger family the others join as those before them end.
const MOST: usize = 512;
/// The least time between two looks for runs that were born, after news of the runs that may have started them.
const PAUSE: Duration = Duration::from_millis(100);
/// The same where another process has written something: mostly of other runs, and news of these come by themselves but for
/// a commit that does nothing else than to start a child.
const REST: Duration = Duration::from_secs(1);
/// Events of one run that are read ahead of its turn.
const AHEAD: usize = 4;
/// Entries with more bytes are read ahead without their content, which is read once they are given: a reader that rests
/// holds little, however many runs it follows.
const INLINE: u64 = 4 << 10;
/// The run that all others are below, among their numbers.
const TOP: u64 = 0;

pub(super) struct Members {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    /// Entries with more bytes are given without their content.
    content_limit: u64,
    /// By their number in the store.
    runs: BTreeMap<u64, Member>,
    readers: SelectAll<BoxStream<'static, Given>>,
    /// What to resume after, once what was given last is.
    cursor: Arc<str>,
    /// Whose children are to be looked for.
    looking: BTreeSet<u64>,
    looked_at: Option<Instant>,
    news: Arc<News>,
    _listening: Listening,
    /// What other processes write: nobody says whom it concerns.
    elsewhere: Follow,
    /// Whether one has since the last look.
    written: bool,
}

/// What the reader of a run gives; none at its end.
type Given = (u64, Result<Option<StreamEvent>>);

struct Member {
    id: ExecutionId,
    depth: u32,
    /// The number of its parent.
    parent: u64,
    /// The last durable event that was given.
    at: u64,
    phase: Phase,
    /// The highest number of its children that are known.
    known: u64,
    /// How many of its children are followed.
    children: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// More of it may come.
    Open,
    /// The run above all has ended, and this one too: the rest of it comes.
    Ending,
    /// Its end was given.
    Ended,
    /// It goes on although the run above all has ended: nothing more of it is given.
    Left,
}

/// Which of the runs may have started others.
#[derive(Default)]
struct News {
    followed: Mutex<HashMap<ExecutionId, u64>>,
    changed: Mutex<BTreeSet<u64>>,
    signal: Notify,
}

impl News {
    fn take(&self, org: OrgId, change: Option<Change>) {
        let followed = self.followed.lock();
        let mut changed = self.changed.lock();
        match change {
            Some(change) if change.org == org => changed.extend(followed.get(&change.execution)),
            Some(_) => return,
            None => changed.extend(followed.values()),
        }
        if !changed.is_empty() {
            self.signal.notify_one();
        }
    }
}

impl Members {
    pub(super) fn new(storage: Arc<dyn Storage>, chunks: Chunks, org: OrgId, content_limit: u64) -> Result<Self> {
        let news = Arc::<News>::default();
        let (followed, told) = (news.clone(), news.clone());
        let follows = move || followed.followed.lock().keys().map(|run| (org, *run)).collect();
        let listening = storage.hints().follow(follows, move |change| told.take(org, change));
        let elsewhere = storage.hints().elsewhere();
        families(&*storage)?;
        Ok(Self {
            storage,
            chunks,
            org,
            content_limit: content_limit.min(INLINE),
            runs: BTreeMap::new(),
            readers: SelectAll::new(),
            cursor: "".into(),
            looking: BTreeSet::new(),
            looked_at: None,
            news,
            _listening: listening,
            elsewhere,
            written: false,
        })
    }

    /// The runs that a cursor names.
    pub(super) async fn restored(mut self, run: ExecutionId, text: &str) -> Result<Self> {
        let (top, others) = cursor::parse(text)?;
        let depth = self.storage.execution(self.org, run).await?.depth;
        let mut reader = self.reader(run, top.at);
        let phase = if reader.begin().await? { Phase::Open } else { Phase::Ended };
        let births: Vec<_> = others.iter().map(|mark| mark.birth).collect();
        let found = match births.is_empty() {
            true => Vec::new(),
            false => families(&*self.storage)?.born(self.org, &births).await?,
        };
        let found: HashMap<_, _> = found.into_iter().map(|relative| (relative.birth, relative)).collect();
        let top_run = Member { id: run, depth, parent: TOP, at: top.at, phase, known: top.known, children: 0 };
        self.put(TOP, top_run, reader);
        for mark in others {
            // A run that was removed has nothing to tell, and one of another family never had.
            if let Some(relative) = found.get(&mark.birth) {
                self.join(relative, mark);
            }
        }
        self.cursor = self.marked().into();
        Ok(self)
    }

    /// Whether the run above all has ended, so that nothing is waited for any more.
    pub(super) fn are_closing(&self) -> bool {
        self.runs.get(&TOP).is_none_or(|top| top.phase == Phase::Ended)
    }

    /// The next event; none at the end. Whoever drops the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<FamilyEvent>> {
        loop {
            let closing = self.are_closing();
            if closing {
                self.leave_those_that_go_on().await?;
            }
            let has_room = self.open() < MOST;
            let due = self.due(closing).filter(|_| has_room);
            if due.is_some_and(|due| due <= Instant::now()) {
                self.look().await?;
                continue;
            }
            if closing && self.open() == 0 {
                return Ok(None);
            }
            let next_look = due.unwrap_or_else(Instant::now);
            let rested = self.looked_at.unwrap_or_else(Instant::now) + REST;
            tokio::select! {
                given = self.readers.next() => match given {
                    Some((birth, given)) => if let Some(event) = self.take(birth, given)? {
                        return Ok(Some(event));
                    },
                    // All that are left were passed over.
                    None => return Ok(None),
                },
                () = sleep_until(next_look), if due.is_some() => {}
                () = self.news.signal.notified(), if due.is_none() && !closing => {}
                () = self.elsewhere.changed(), if !closing && !self.written => self.written = true,
                () = sleep_until(rested), if !closing && self.written => self.looking.extend(self.runs.keys()),
            }
        }
    }

    /// How many runs are read.
    fn open(&self) -> usize {
        self.runs.values().filter(|run| matches!(run.phase, Phase::Open | Phase::Ending)).count()
    }

    /// When to look for runs that were born.
    fn due(&mut self, closing: bool) -> Option<Instant> {
        if !closing {
            self.looking.append(&mut self.news.changed.lock());
        }
        let may_look = self.looked_at.filter(|_| !closing).map_or_else(Instant::now, |at| at + PAUSE);
        (!self.looking.is_empty()).then_some(may_look)
    }

    /// Looks for runs that were born since the last time. Whoever drops the future loses nothing.
    async fn look(&mut self) -> Result<()> {
        let room = MOST - self.open();
        let asked: Vec<_> = self.looking.iter().copied().collect();
        let parents: Vec<_> =
            asked.iter().filter_map(|birth| self.runs.get(birth)).map(|run| (run.id, run.known)).collect();
        let found = families(&*self.storage)?.children_after(self.org, &parents, room).await?;
        self.looked_at = Some(Instant::now());
        self.written = false;
        // What there is more is found by the next look.
        if found.len() < room {
            self.looking.retain(|birth| asked.binary_search(birth).is_err());
        }
        for relative in &found {
            self.join(relative, Mark { birth: relative.birth, ..Mark::default() });
        }
        asked.into_iter().for_each(|birth| self.settle(birth));
        Ok(())
    }

    /// Follows a run of which so much was given. One whose parent is not followed is none of the family.
    fn join(&mut self, relative: &Relative, mark: Mark) {
        let parent = self.news.followed.lock().get(&relative.parent).copied();
        let Some((birth, above)) = parent.and_then(|birth| Some((birth, self.runs.get_mut(&birth)?))) else { return };
        above.known = above.known.max(relative.birth);
        above.children += 1;
        let reader = self.reader(relative.id, mark.at);
        let run = Member {
            id: relative.id,
            depth: relative.depth,
            parent: birth,
            at: mark.at,
            phase: if mark.ended { Phase::Ended } else { Phase::Open },
            known: mark.known,
            children: 0,
        };
        self.put(relative.birth, run, reader);
    }

    fn put(&mut self, birth: u64, run: Member, reader: Watching) {
        if run.phase == Phase::Open {
            self.readers.push(events_of(birth, reader));
        }
        self.news.followed.lock().insert(run.id, birth);
        self.runs.insert(birth, run);
        self.looking.insert(birth);
    }

    fn reader(&self, run: ExecutionId, after: u64) -> Watching {
        let (storage, chunks) = (self.storage.clone(), self.chunks.clone());
        Watching::new(storage, chunks, self.org, run, EventId { number: after }).with_content_up_to(self.content_limit)
    }

    /// Takes what the reader of a run gives. Of a run that was left, nothing is.
    fn take(&mut self, birth: u64, given: Result<Option<StreamEvent>>) -> Result<Option<FamilyEvent>> {
        let Some(run) = self.runs.get_mut(&birth) else { return Ok(None) };
        if !matches!(run.phase, Phase::Open | Phase::Ending) {
            return Ok(None);
        }
        let event = match given {
            Ok(event) => event,
            // It was removed meanwhile.
            Err(error) if error.code() == Code::ExecutionNotFound && birth != TOP => None,
            Err(error) => return Err(error),
        };
        let (execution, depth) = (run.id, run.depth);
        let is_end = match &event {
            Some(StreamEvent::Durable(event)) => {
                run.at = event.number;
                event.kind.is_terminal()
            }
            Some(_) => false,
            None => true,
        };
        if is_end {
            run.phase = Phase::Ended;
            // It may have started others just before, and those below the run above all are looked for once more.
            match birth {
                TOP => self.looking.extend(self.runs.keys()),
                _ => self.looking.extend([birth]),
            }
        }
        if matches!(event, Some(StreamEvent::Durable(_))) {
            self.cursor = self.marked().into();
        }
        Ok(event.map(|event| FamilyEvent { cursor: self.cursor.clone(), execution, depth, event }))
    }

    /// Drops a run that has told its end and has nobody below it who is followed, and then perhaps those above it.
    fn settle(&mut self, mut birth: u64) {
        while birth != TOP
            && !self.looking.contains(&birth)
            && let Some(run) = self.runs.get(&birth)
            && run.phase == Phase::Ended
            && run.children == 0
        {
            let parent = run.parent;
            self.news.followed.lock().remove(&run.id);
            self.runs.remove(&birth);
            if let Some(above) = self.runs.get_mut(&parent) {
                above.children -= 1;
            }
            birth = parent;
        }
    }

    /// Once the run above all has ended: of those that have too the rest is read, the others are left.
    async fn leave_those_that_go_on(&mut self) -> Result<()> {
        let open = self.runs.values().filter(|run| run.phase == Phase::Open);
        let open: Vec<_> = open.map(|run| run.id).collect();
        if open.is_empty() {
            return Ok(());
        }
        let standings = self.storage.standings(self.org, &open).await?;
        let ended: BTreeSet<_> = standings.iter().filter(|one| one.ended).map(|one| one.execution).collect();
        for run in self.runs.values_mut().filter(|run| run.phase == Phase::Open) {
            run.phase = if ended.contains(&run.id) { Phase::Ending } else { Phase::Left };
        }
        Ok(())
    }

    /// What to resume after.
    fn marked(&self) -> String {
        let mark = |(birth, run): (&u64, &Member)| Mark {
            birth: *birth,
            at: run.at,
            ended: run.phase == Phase::Ended,
            known: run.known,
        };
        let top = self.runs.iter().next().map(mark).unwrap_or_default();
        cursor::text(top, self.runs.iter().skip(1).map(mark))
    }
}

/// The events of one run; the last item is none, or says that the run is gone. Of another error whoever reads on may hear again.
///
/// A task of its own reads them, since readers share what they read of the store: one that is not polled while it reads would
/// hold all others up.
fn events_of(birth: u64, mut reader: Watching) -> BoxStream<'static, Given> {
    let (sender, mut given) = mpsc::channel(AHEAD);
    let gone = sender.clone();
    let read = async move {
        loop {
            let next = reader.next().await;
            let goes_on = match &next {
                Ok(event) => event.is_some(),
                Err(error) => error.code() != Code::ExecutionNotFound,
            };
            if sender.send((birth, next)).await.is_err() || !goes_on {
                return;
            }
        }
    };
    drop(spawn::task(async move {
        tokio::select! {
            () = read => {}
            () = gone.closed() => {}
        }
    }));
    stream::poll_fn(move |context| given.poll_recv(context)).boxed()
}

fn families(storage: &dyn Storage) -> Result<&dyn Families> {
    let message = || format!("{} reads no families by itself; this is a bug, please report it", storage.describe());
    storage.families().ok_or_else(|| Error::new(Code::Internal, message()))
}
