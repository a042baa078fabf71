//! Where a turn is among the events of a run: they are searched back to the last message of the user.

use super::idle::{Idle, ends_answer, is_user_message};
use super::turn::Turn;
use flovyn_core::client::Following;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{ExecutionId, OrgId, SignalId};
use flovyn_core::model::{Cursor, Event, EventKind, MAX_PAGE, PageRequest, Signal};
use flovyn_core::storage::Storage;
use std::collections::VecDeque;

/// Events that are read at a time.
const PAGE: u64 = 256;
/// Events that are searched. In a longer turn what is shown begins there.
const SEARCHED: usize = 20_000;
/// Stands behind a position from which on a message of the user is awaited.
const AWAITS: char = '+';

/// What a stream of a turn is read again from: its first id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    cursor: String,
    awaits_message: bool,
}

impl Position {
    /// Reads it.
    pub(crate) fn parse(text: &str) -> Self {
        let awaits_message = text.ends_with(AWAITS);
        let cursor = text.trim_end_matches(AWAITS);
        // Before the first event.
        Self { cursor: if cursor == "0" { "" } else { cursor }.to_owned(), awaits_message }
    }
}

/// Where a turn is read from, and how.
#[derive(Debug)]
pub(crate) struct TurnLocation {
    /// The event behind which it is read.
    pub(crate) after: String,
    /// Reads it.
    pub(crate) turn: Turn,
    /// The event behind which it is shown, where that is another one.
    pub(crate) from: Option<String>,
    /// The last event that there was: what was waited for before it is over.
    pub(crate) until: String,
    /// The first id of the stream.
    pub(crate) position: Option<String>,
}

impl TurnLocation {
    /// The event up to which it was read before, where that is behind its beginning.
    pub(crate) fn last(&self) -> Option<String> {
        Some(self.until.clone()).filter(|until| !until.is_empty() && *until != self.after)
    }
}

/// The last turn up to an event.
#[derive(Debug)]
pub(crate) struct Found {
    /// The event behind which it begins.
    after: String,
    /// The entry of its message.
    pub(crate) message: Option<String>,
    /// Whether the agent waits for its user at that event, so that the turn is over.
    pub(crate) is_over: bool,
    /// The last event at which it waited for the answer to something that it had asked.
    pub(crate) asked: Option<String>,
}

/// The order of a message among those that a run has still to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The run waits for it.
    Next,
    /// The run is at work, or begins; so many before it say the same.
    Behind(usize),
}

impl Order {
    /// That of the first one.
    pub(crate) fn first(is_waited_for: bool) -> Self {
        if is_waited_for { Self::Next } else { Self::Behind(0) }
    }
}

/// A signal of a run, and where it came.
#[derive(Debug)]
pub(crate) struct Mail {
    /// The signal.
    pub(crate) signal: Signal,
    /// The event before it.
    pub(crate) before: String,
}

/// The turns of a run.
pub(crate) struct Turns<'a> {
    /// Where its events are.
    pub(crate) storage: &'a dyn Storage,
    /// Its org.
    pub(crate) org: OrgId,
    /// The run.
    pub(crate) run: ExecutionId,
}

impl Turns<'_> {
    /// The position behind all that has happened.
    pub(crate) async fn latest(&self) -> Result<String> {
        Following::latest(self.storage, self.org, self.run).await
    }

    /// The first turn.
    pub(crate) fn first() -> TurnLocation {
        TurnLocation { after: String::new(), turn: Turn::awaiting(), from: None, until: String::new(), position: None }
    }

    /// The last turn, to be read whole. `until` is the last event that there is.
    pub(crate) fn whole(found: &Found, until: String) -> TurnLocation {
        TurnLocation { after: found.after.clone(), turn: Turn::awaiting(), from: None, until, position: None }
    }

    /// The turn that answers a message which was sent at a position. `text` is what the message says; one that waits for it
    /// alone can also begin without it, and otherwise it may be behind so many others that say the same.
    pub(crate) fn answer(at: String, until: String, text: Option<String>, order: Order) -> TurnLocation {
        let turn = match order {
            Order::Next => Turn::awaiting(),
            Order::Behind(others) => Turn::awaiting_message(text, others),
        };
        let position = Some(format!("{at}{AWAITS}"));
        TurnLocation { after: at, turn: turn.before_its_signal(), from: None, until, position }
    }

    /// The rest of a turn behind a position in it.
    pub(crate) fn rest(found: &Found, at: String, until: String) -> TurnLocation {
        let from = (found.after != at).then(|| at.clone());
        TurnLocation { after: found.after.clone(), turn: Turn::awaiting(), from, until, position: Some(at) }
    }

    /// What is shown behind a position that a stream has given, and the entry of the message that it answers.
    pub(crate) async fn again(&self, position: Position) -> Result<(TurnLocation, Option<String>)> {
        let Position { cursor, awaits_message } = position;
        let (found, until) = (self.find(&cursor).await?, self.latest().await?);
        let (_, run, number) = self.links(&cursor).await?.pop().unwrap_or((String::new(), self.run, 0));
        let next = self.storage.events(self.org, run, number, PAGE as usize).await?;
        let message = next.iter().find(|event| is_user_message(event));
        let message = message.and_then(|event| event.data["entry"].as_str()).map(str::to_owned);
        if awaits_message {
            return Ok((Self::answer(cursor, until, None, Order::first(found.is_over)), message));
        }
        if found.is_over || next.first().is_some_and(is_user_message) {
            let position = Some(cursor.clone());
            return Ok((TurnLocation { after: cursor, turn: Turn::awaiting(), from: None, until, position }, message));
        }
        let message = found.message.clone();
        Ok((Self::rest(&found, cursor, until), message))
    }

    /// The run that has the work at a position: the run itself, or the last one that it has handed off to.
    pub(crate) async fn holder(&self, cursor: &str) -> Result<ExecutionId> {
        Ok(self.links(cursor).await?.pop().map_or(self.run, |(_, run, _)| run))
    }

    /// The signal of an id; none if neither the run has got it nor whoever it has handed off to. What came up to `after` is not looked
    /// at, unless that is empty.
    pub(crate) async fn mail(&self, id: SignalId, after: &str) -> Result<Option<Mail>> {
        let known = self.links(after).await?;
        for (index, (prefix, run, _)) in self.links(&self.latest().await?).await?.into_iter().enumerate().rev() {
            let from = known.get(index).filter(|(_, known, _)| *known == run).map(|(_, _, number)| *number);
            let mut page = PageRequest { limit: MAX_PAGE, after: from.map(|number| Cursor(number.to_string())) };
            loop {
                let found = self.storage.signals(self.org, run, page).await?;
                if let Some(signal) = found.items.into_iter().find(|signal| signal.id == id) {
                    return Ok(Some(Mail { before: before(&prefix, &signal), signal }));
                }
                match found.next {
                    Some(next) => page = PageRequest { limit: MAX_PAGE, after: Some(next) },
                    None => break,
                }
            }
        }
        Ok(None)
    }

    /// The signals of a name that came to whoever had the work at a position, up to it: the oldest first, and none that is too long ago
    /// to be awaited.
    pub(crate) async fn earlier_mail(&self, cursor: &str, name: &str) -> Result<Vec<Mail>> {
        let Some((prefix, run, upto)) = self.links(cursor).await?.pop() else { return Ok(Vec::new()) };
        let mut after = Some(Cursor(upto.saturating_sub(SEARCHED as u64).to_string()));
        let mut earlier = Vec::new();
        loop {
            let read = self.storage.signals(self.org, run, PageRequest { limit: MAX_PAGE, after }).await?;
            let is_last = read.items.last().is_none_or(|signal| signal.number > upto);
            for signal in read.items.into_iter().filter(|signal| signal.number <= upto && signal.name == name) {
                earlier.push(Mail { before: before(&prefix, &signal), signal });
            }
            after = read.next.filter(|_| !is_last);
            if after.is_none() {
                return Ok(earlier);
            }
        }
    }

    /// Finds the last turn up to a position.
    ///
    /// Errors: `InvalidArgument` where the run has no event there.
    pub(crate) async fn find(&self, cursor: &str) -> Result<Found> {
        let mut links = self.links(cursor).await?;
        let mut events = VecDeque::new();
        'search: while let Some((prefix, run, upto)) = links.pop() {
            let mut before = upto;
            while before > 0 {
                let from = before.saturating_sub(PAGE);
                let page = self.storage.events(self.org, run, from, (before - from) as usize).await?;
                if before == upto && page.last().is_none_or(|last| last.number != upto) {
                    let message = format!("the run has no event {cursor}; resume after an id that its own stream gave");
                    return Err(Error::new(Code::InvalidArgument, message));
                }
                for event in page.into_iter().rev() {
                    let is_first = is_user_message(&event);
                    events.push_front((prefix.clone(), event));
                    if is_first || events.len() >= SEARCHED {
                        break 'search;
                    }
                }
                before = from;
            }
        }
        Ok(last_turn(&events))
    }

    /// The runs that a position leads over, each with what stands before its number.
    async fn links(&self, cursor: &str) -> Result<Vec<(String, ExecutionId, u64)>> {
        let (mut links, mut run, mut prefix) = (Vec::new(), self.run, String::new());
        let mut numbers = cursor.split('>').peekable();
        while let Some(text) = numbers.next() {
            let wrong =
                || Error::new(Code::InvalidArgument, format!("{cursor:?} is no id that a stream of this run gave"));
            let number: u64 = match text {
                "" if cursor.is_empty() => 0,
                text => text.parse().map_err(|_| wrong())?,
            };
            links.push((prefix.clone(), run, number));
            if numbers.peek().is_some() {
                let events = self.storage.events(self.org, run, number.saturating_sub(1), 1).await?;
                let to = events.first().filter(|event| event.kind == EventKind::HandedOff);
                run =
                    to.and_then(|event| event.data["to"].as_str()?.parse().ok()).map(ExecutionId).ok_or_else(wrong)?;
                prefix = format!("{prefix}{text}>");
            }
        }
        Ok(links)
    }
}

/// The event before a signal.
fn before(prefix: &str, signal: &Signal) -> String {
    match (prefix, signal.number.saturating_sub(1)) {
        ("", 0) => String::new(),
        (prefix, number) => format!("{prefix}{number}"),
    }
}

/// The last turn of events that begin with a message of the user, or with the run.
fn last_turn(events: &VecDeque<(String, Event)>) -> Found {
    let message = events.front().filter(|(_, event)| is_user_message(event));
    let mut found = Found {
        after: message
            .map_or_else(String::new, |(prefix, event)| format!("{prefix}{}", event.number.saturating_sub(1))),
        message: message.and_then(|(_, event)| event.data["entry"].as_str().map(str::to_owned)),
        is_over: false,
        asked: None,
    };
    if message.is_none() && events.len() >= SEARCHED {
        found.after =
            events.front().map_or_else(String::new, |(prefix, event)| format!("{prefix}{}", event.number - 1));
    }
    let (mut idle, mut rest) = (Idle::default(), String::new());
    for (prefix, event) in events {
        let waits = idle.waits_after(event);
        let is_idle = waits && !asks(event);
        match event.kind {
            _ if waits && !is_idle => found.asked = Some(format!("{prefix}{}", event.number)),
            _ if is_idle || ends_answer(event) => {
                (rest, found.is_over) = (format!("{prefix}{}", event.number), true);
            }
            // The agent goes on without a message that it would have appended.
            EventKind::Woken | EventKind::Resumed if found.is_over => {
                found = Found { after: std::mem::take(&mut rest), message: None, is_over: false, asked: None };
            }
            kind if kind.is_terminal() || kind == EventKind::Paused => found.is_over = true,
            EventKind::Continued => found.is_over = false,
            _ => {}
        }
    }
    found
}

/// Whether a wait is for the answer to something that was asked in the turn, which goes on behind it.
fn asks(event: &Event) -> bool {
    let signals = event.data["signals"].as_array();
    signals.is_some_and(|names| names.iter().any(|name| name == "approval" || name == "input"))
}
