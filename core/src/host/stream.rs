//! What a host reads of runs as they live: the events of one run and of whoever has its work, or those of a run and of all
//! below it.

use crate::client::{FamilyWatching, Following, Handle, StreamEvent, server_sent, server_sent_of_family};
use crate::error::Result;
use crate::id::ExecutionId;
use crate::model::FamilyEvent;

/// Events handed over at a time.
pub const EVENT_BATCH: usize = 256;

/// A reader of events.
pub struct Stream(Reader);

enum Reader {
    One(Box<Following>),
    Family(Box<FamilyWatching>),
}

/// An event with what a host says beside it.
pub struct Read {
    /// What to resume after.
    pub id: String,
    /// Whose event it is.
    pub execution: ExecutionId,
    /// How many runs are above that one, where it is of a stream with children.
    pub depth: Option<u32>,
    /// The event.
    pub event: StreamEvent,
}

impl Stream {
    /// The events of a run, from the start or after one; with those of all below it where children are asked for.
    ///
    /// Errors: `InvalidArgument` for what is no id of an event.
    pub fn of(run: &Handle, after: Option<&str>, children: bool) -> Result<Self> {
        Ok(Self(match children {
            true => Reader::Family(Box::new(run.stream_family(after))),
            false => Reader::One(Box::new(run.follow(after))),
        }))
    }

    /// The next events; none after the last one.
    pub async fn next(&mut self) -> Result<Vec<Read>> {
        Ok(match &mut self.0 {
            Reader::One(reader) => {
                reader.next_batch(EVENT_BATCH).await?.into_iter().map(|event| read(event, false)).collect()
            }
            Reader::Family(reader) => {
                reader.next_batch(EVENT_BATCH).await?.into_iter().map(|event| read(event, true)).collect()
            }
        })
    }

    /// The next events as server-sent ones; no bytes after the last one.
    pub async fn next_sent(&mut self) -> Result<Vec<u8>> {
        Ok(match &mut self.0 {
            Reader::One(reader) => reader.next_batch(EVENT_BATCH).await?.iter().flat_map(server_sent).collect(),
            Reader::Family(reader) => {
                reader.next_batch(EVENT_BATCH).await?.iter().flat_map(server_sent_of_family).collect()
            }
        })
    }
}

fn read(FamilyEvent { cursor, execution, depth, event }: FamilyEvent, of_family: bool) -> Read {
    Read { id: cursor.to_string(), execution, depth: of_family.then_some(depth), event }
}
