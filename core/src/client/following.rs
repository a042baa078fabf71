//! The events of a run and of whoever it has handed off to, as one stream: a handoff is followed by the events of the
//! successor, and these by the end of the run.

use super::watch::Watching;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{Event, EventId, EventKind, FamilyEvent, StreamEvent};
use crate::storage::Storage;
use crate::streaming::Chunks;
use futures::FutureExt;
use std::fmt::Write as _;
use std::sync::Arc;

/// How many events are read at a time to find a handoff.
const HANDOFF_SEARCH: u64 = 256;

/// A reader of the events of a run and of those that have its work after it. It has one end, that of the run.
///
/// An event is resumed after a text: `17` is an event of the run itself, `17>5` the fifth one of the run that its event 17
/// hands off to.
pub struct Following {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    run: ExecutionId,
    content_limit: u64,
    /// What the caller had before, until it is looked up.
    after: Option<Box<str>>,
    /// The run, and behind it those of the handoffs that are followed now. Each but the last stands at its handoff.
    chain: Vec<Link>,
    /// The successor that the last event has named.
    next: Option<ExecutionId>,
}

struct Link {
    run: ExecutionId,
    reader: Box<Watching>,
}

impl Following {
    pub(super) fn new(storage: Arc<dyn Storage>, chunks: Chunks, org: OrgId, run: ExecutionId, after: &str) -> Self {
        let after = Some(after.into());
        Self { storage, chunks, org, run, content_limit: u64::MAX, after, chain: Vec::new(), next: None }
    }

    /// The text that stands for all that a run has told so far, and whoever it has handed off to.
    ///
    /// Errors: `ExecutionNotFound`.
    pub async fn latest(storage: &dyn Storage, org: OrgId, run: ExecutionId) -> Result<String> {
        let (mut text, mut last, mut is_over) = (String::new(), run, true);
        loop {
            let standing = async {
                let told = storage.last_event(org, last).await?;
                let execution = storage.execution(org, last).await?;
                Ok::<_, Error>((told, execution.status.is_terminal(), execution.handed_to))
            };
            let (told, has_ended, handed_to) = match standing.await {
                // A successor that was removed has nothing more to tell.
                Err(gone) if last != run && gone.code() == Code::ExecutionNotFound => (0, true, None),
                standing => standing?,
            };
            is_over &= has_ended;
            let next = match handed_to {
                Some(_) => handoff_until(storage, org, last, told).await?,
                None => None,
            };
            // Writing to a text cannot fail.
            let _ = match next {
                Some((number, _)) => write!(text, "{number}>"),
                None => write!(text, "{told}"),
            };
            match next {
                Some((_, to)) => last = to,
                // The end of the run comes behind all of its successors.
                None if is_over => return Ok(storage.last_event(org, run).await?.to_string()),
                None => return Ok(text),
            }
        }
    }

    /// Leaves the content of larger entries in the store; their events then say `content_size` and `content_hash`.
    #[must_use]
    pub fn with_content_up_to(mut self, bytes: u64) -> Self {
        self.content_limit = bytes;
        self
    }

    /// Looks where to read from; false where nothing comes any more. Reading begins with it by itself.
    ///
    /// Errors: as of [`next`](Self::next).
    pub async fn begin(&mut self) -> Result<bool> {
        self.restore().await?;
        if self.next.is_some() {
            return Ok(true);
        }
        while let Some(last) = self.chain.last_mut() {
            match last.reader.begin().await {
                Ok(false) if self.chain.len() > 1 => self.leave(),
                Err(gone) if gone.code() == Code::ExecutionNotFound && self.chain.len() > 1 => self.leave(),
                began => return began,
            }
        }
        Ok(false)
    }

    /// The next event; none after the end of the run. Whoever drops the future loses nothing.
    ///
    /// Errors: `ExecutionNotFound`, and `InvalidArgument` for a text that no stream of this run has given.
    pub async fn next(&mut self) -> Result<Option<FamilyEvent>> {
        self.restore().await?;
        if let Some(next) = self.next.take() {
            self.enter(next, EventId::default());
        }
        loop {
            let depth = self.chain.len();
            let Some(last) = self.chain.last_mut() else { return Ok(None) };
            let event = match last.reader.next().await {
                // A successor that was removed has nothing more to tell.
                Err(gone) if gone.code() == Code::ExecutionNotFound && depth > 1 => None,
                event => event?,
            };
            match event {
                None if depth == 1 => return Ok(None),
                None => self.leave(),
                // The end of the run says as much.
                Some(StreamEvent::Durable(end)) if end.kind.is_terminal() && depth > 1 => {}
                Some(event) => {
                    self.next = successor(&event);
                    let (execution, cursor) = (last.run, self.cursor().into());
                    return Ok(Some(FamilyEvent { cursor, execution, depth: depth as u32 - 1, event }));
                }
            }
        }
    }

    /// The next event with those that are there already, at most `limit`; none after the last one.
    ///
    /// Errors: as of [`next`](Self::next).
    pub async fn next_batch(&mut self, limit: usize) -> Result<Vec<FamilyEvent>> {
        let mut events: Vec<_> = self.next().await?.into_iter().collect();
        while !events.is_empty()
            && events.len() < limit
            && let Some(Ok(Some(event))) = self.next().now_or_never()
        {
            events.push(event);
        }
        Ok(events)
    }

    /// What to resume after.
    fn cursor(&self) -> String {
        let mut text = String::new();
        for link in &self.chain {
            // Writing to a text cannot fail.
            let _ = write!(text, "{}{}", if text.is_empty() { "" } else { ">" }, link.reader.position());
        }
        text
    }

    /// Stands where the caller's text says.
    async fn restore(&mut self) -> Result<()> {
        let Some(text) = &self.after else { return Ok(()) };
        let places = match text.is_empty() {
            true => vec![EventId::default()],
            false => text.split('>').map(str::parse).collect::<Result<Vec<EventId>>>()?,
        };
        let (mut run, mut links) = (self.run, Vec::new());
        let mut next = None;
        for (index, at) in places.iter().enumerate() {
            if index > 0 {
                run = next.ok_or_else(|| {
                    let message = format!("{text:?} is no place of this run; resume after an id that its stream gave");
                    Error::new(Code::InvalidArgument, message)
                })?;
            }
            links.push((run, *at));
            next = handoff_at(&*self.storage, self.org, run, at.number).await?;
        }
        self.chain.clear();
        for (run, at) in links {
            self.enter(run, at);
        }
        (self.after, self.next) = (None, next);
        Ok(())
    }

    fn enter(&mut self, run: ExecutionId, after: EventId) {
        let reader = Watching::new(self.storage.clone(), self.chunks.clone(), self.org, run, after);
        let reader = Box::new(reader.with_content_up_to(self.content_limit));
        self.chain.push(Link { run, reader });
    }

    /// The successor that is followed has told all.
    fn leave(&mut self) {
        self.chain.pop();
    }
}

/// The run to which the event of this number hands off.
async fn handoff_at(storage: &dyn Storage, org: OrgId, run: ExecutionId, number: u64) -> Result<Option<ExecutionId>> {
    let Some(before) = number.checked_sub(1) else { return Ok(None) };
    let events = storage.events(org, run, before, 1).await?;
    Ok(events.first().filter(|event| event.number == number).and_then(named))
}

/// The last handoff of a run up to the event of this number, and to whom.
async fn handoff_until(
    storage: &dyn Storage,
    org: OrgId,
    run: ExecutionId,
    mut number: u64,
) -> Result<Option<(u64, ExecutionId)>> {
    while number > 0 {
        let before = number.saturating_sub(HANDOFF_SEARCH);
        let events = storage.events(org, run, before, (number - before) as usize).await?;
        let found = events.iter().rev().find_map(|event| Some((event.number, named(event)?)));
        if found.is_some() {
            return Ok(found);
        }
        number = before;
    }
    Ok(None)
}

/// The run that an event hands off to.
fn successor(event: &StreamEvent) -> Option<ExecutionId> {
    match event {
        StreamEvent::Durable(event) => named(event),
        _ => None,
    }
}

fn named(event: &Event) -> Option<ExecutionId> {
    let to = event.data["to"].as_str().filter(|_| event.kind == EventKind::HandedOff)?;
    Some(ExecutionId(to.parse().ok()?))
}
