//! What watchers of a run are told.

use crate::clock::Timestamp;
use crate::id::ExecutionId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a durable event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[allow(missing_docs)]
pub enum EventKind {
    Created = 1,
    /// A claim: `epoch` is in the data. Chunks of lower epochs without a result are void.
    Resumed = 2,
    Waiting = 3,
    /// A waiting run became runnable.
    Woken = 4,
    Paused = 5,
    Cancelling = 6,
    Completed = 7,
    Failed = 8,
    Cancelled = 9,
    Checkpoint = 10,
    Entry = 11,
    TaskScheduled = 12,
    TaskStarted = 13,
    TaskCompleted = 14,
    TaskFailed = 15,
    TaskCancelled = 16,
    /// A failed attempt will be made again.
    TaskRetry = 17,
    TaskInDoubt = 18,
    TaskQuarantined = 19,
    Signal = 20,
    Timer = 21,
    Usage = 22,
    Warning = 23,
    /// Chunks of an attempt are void.
    Retract = 24,
    /// A lease ended without its holder.
    LeaseLost = 25,
    Forked = 26,
    Continued = 27,
    NoWorker = 28,
    Progress = 29,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 29] = {
        use EventKind::*;
        [
            Created,
            Resumed,
            Waiting,
            Woken,
            Paused,
            Cancelling,
            Completed,
            Failed,
            Cancelled,
            Checkpoint,
            Entry,
            TaskScheduled,
            TaskStarted,
            TaskCompleted,
            TaskFailed,
            TaskCancelled,
            TaskRetry,
            TaskInDoubt,
            TaskQuarantined,
            Signal,
            Timer,
            Usage,
            Warning,
            Retract,
            LeaseLost,
            Forked,
            Continued,
            NoWorker,
            Progress,
        ]
    };

    /// The kind of a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether nothing follows it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// An event as whoever causes it gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// What it says.
    pub kind: EventKind,
    /// The op it is about.
    pub sequence: Option<u32>,
    /// Small JSON object.
    pub data: serde_json::Value,
}

/// A durable event; its number is gapless within its run and shared with facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The run.
    pub execution: ExecutionId,
    /// Its place.
    pub number: u64,
    /// When it was stored.
    pub at: Timestamp,
    /// What it says.
    pub kind: EventKind,
    /// The segment it happened in.
    pub segment: u32,
    /// The op it is about.
    pub sequence: Option<u32>,
    /// Small JSON object; ids of the rows it is about.
    pub data: serde_json::Value,
}

/// A reader's position: the last durable event it has. Previews have none of their own: whoever goes on behind an event is told
/// anew what is being made there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventId {
    /// The event's number.
    pub number: u64,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)
    }
}

impl std::str::FromStr for EventId {
    type Err = crate::Error;

    /// Earlier versions gave previews and retractions ids of their own behind a durable event, `17.3` and `17.r0`: they stand
    /// for that event.
    fn from_str(text: &str) -> crate::Result<Self> {
        let (number, rest) = text.split_once('.').unwrap_or((text, "0"));
        match (number.parse(), rest.strip_prefix('r').unwrap_or(rest).parse::<u64>()) {
            (Ok(number), Ok(_)) => Ok(Self { number }),
            _ => Err(crate::Error::new(
                crate::error::Code::InvalidArgument,
                format!("{text:?} is no event id; pass the id of an event of this stream, such as \"17\""),
            )),
        }
    }
}

/// What a chunk carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkKind {
    /// Text of a model.
    Token,
    /// Structured data.
    Data,
    /// An error worth showing.
    Error,
    /// A task's progress.
    Progress,
    /// Nothing: what its op has streamed so far is void, for the attempt tries again by itself. Readers get a retraction.
    Void,
}

/// A preview between two durable events: fenced by epoch and attempt, void once its op has a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The run.
    pub execution: ExecutionId,
    /// The segment of the op.
    pub segment: u32,
    /// The op that streams: a task's, or the last one the agent called.
    pub sequence: u32,
    /// The claim under which it was made; [`OF_A_QUEUE`](Self::OF_A_QUEUE) for a task's that its queue handed out.
    pub epoch: u64,
    /// The attempt of the task; [`OF_AN_AGENT`](Self::OF_AN_AGENT) for the agent itself.
    pub attempt: u32,
    /// Its place within the attempt, from 1.
    pub seq: u64,
    /// What it carries.
    pub kind: ChunkKind,
    /// Text for tokens, else JSON.
    pub data: Arc<str>,
}

impl Chunk {
    /// The epoch of previews that depend on no claim of the run: their attempt lives elsewhere and goes on.
    pub const OF_A_QUEUE: u64 = 0;
    /// The attempt of previews that the agent itself makes: no end of a task voids them, only a claim does.
    pub const OF_AN_AGENT: u32 = 0;
}

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
    /// Previews are missing behind this position: what was shown of ops in the making is void, and what still counts comes
    /// again. Durable events are never missing.
    Gap(EventId),
}

impl StreamEvent {
    /// The position to resume after.
    pub fn id(&self) -> EventId {
        match self {
            StreamEvent::Durable(event) => EventId { number: event.number },
            StreamEvent::Chunk(id, _) | StreamEvent::Retract { id, .. } | StreamEvent::Gap(id) => *id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_earlier_ones_stand_for_their_event() {
        for (text, number) in [("0", 0), ("17", 17), ("17.3", 17), ("16.r0", 16)] {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id, EventId { number });
            assert_eq!(id.to_string(), number.to_string());
        }
        for wrong in ["", "x", "1.", "1.x", "-1", "1.r", "1.-1", "1.18446744073709551616"] {
            assert!(wrong.parse::<EventId>().is_err(), "{wrong:?}");
        }
    }
}
