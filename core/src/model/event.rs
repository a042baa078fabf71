//! The events and previews that watchers of a run get.

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
    /// A worker claimed the run; its `epoch` is in the data. Chunks of a lower epoch, whose op has no result yet, are
    /// void.
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
    /// The chunks of an attempt are void.
    Retract = 24,
    /// A lease ran out before its holder gave it back.
    LeaseLost = 25,
    Forked = 26,
    Continued = 27,
    NoWorker = 28,
    Progress = 29,
    /// The run has given its work to another one, which `to` in the data names.
    HandedOff = 30,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 30] = {
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
            HandedOff,
        ]
    };

    /// The kind of a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether it is the end of its run.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// An event that is yet to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// What it says.
    pub kind: EventKind,
    /// The op it is about.
    pub sequence: Option<u32>,
    /// Small JSON object.
    pub data: serde_json::Value,
}

/// A durable event. Events and facts of a run are numbered together, without gaps.
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
    /// Small JSON object with the ids of the rows that it is about.
    pub data: serde_json::Value,
}

/// A reader's position: the last durable event that it has. Previews have no position of their own. A reader that goes
/// on behind an event gets all previews of what is being made there again.
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

    /// Earlier versions gave previews and retractions ids of their own behind a durable event: `17.3` and `17.r0`. Both
    /// are read as the position of that event.
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
    /// Nothing. It says that what its op has streamed so far is void, because the attempt tries again by itself.
    /// Readers get a retraction.
    Void,
}

/// A preview between two durable events. It is shown only while its epoch and its attempt are the current ones and its
/// op has no result.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The run.
    pub execution: ExecutionId,
    /// The segment of the op.
    pub segment: u32,
    /// The op that streams: the one of a task, or the last one that the agent called.
    pub sequence: u32,
    /// The epoch of the claim under which it was made; [`OF_A_QUEUE`](Self::OF_A_QUEUE) if a worker of a queue runs the
    /// task.
    pub epoch: u64,
    /// The attempt of the task; [`OF_AN_AGENT`](Self::OF_AN_AGENT) if the agent itself streams.
    pub attempt: u32,
    /// Its place among the chunks of the attempt, from 1.
    pub seq: u64,
    /// What it carries.
    pub kind: ChunkKind,
    /// Text for tokens, else JSON.
    pub data: Arc<str>,
}

impl Chunk {
    /// The epoch of previews from a worker of a queue. A new claim of the run does not void them, because their attempt
    /// goes on elsewhere.
    pub const OF_A_QUEUE: u64 = 0;
    /// The attempt of previews from the agent itself. No end of a task voids them, only a new claim of the run does.
    pub const OF_AN_AGENT: u32 = 0;
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// A durable event of the run.
    Durable(Event),
    /// A preview.
    Chunk(EventId, Arc<Chunk>),
    /// The previews of an op are void: its attempt has failed, or the process of the attempt was lost.
    Retract {
        /// The reader's position after it.
        id: EventId,
        /// The op, by segment and sequence.
        op: (u32, u32),
    },
    /// Previews behind this position were lost, so all that was shown of unfinished ops is void; what still counts comes
    /// again. Durable events are never lost.
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
