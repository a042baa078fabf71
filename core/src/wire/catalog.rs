//! Signals, checkpoints, events, previews and pages on the wire.

use super::execution::{totals, usage};
use super::{fixed, id, need, of_word, raw, some_id, v2, word, wrong};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{EntryId, ExecutionId, SignalId, WorkerId};
use crate::model::{
    Checkpoint, Chunk, ChunkKind, Cursor, Delivery, Event, ExecutionFilter, FamilyEvent, KnownWorker, NewCheckpoint,
    PageRequest, QueueLoad, RollUp, Signal, Status, StreamEvent,
};
use bytes::Bytes;
use std::sync::Arc;
use v2::watch_event::Event as Watched;

/// JSON in a text field.
pub(super) fn json(text: &str, field: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).map_err(|error| wrong(field, &format!("is not JSON: {error}")))
}

impl From<Delivery> for v2::Delivery {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::NextStep => Self::NextStep,
            Delivery::NextTurn => Self::NextTurn,
            Delivery::Now => Self::Now,
        }
    }
}

impl From<v2::Delivery> for Delivery {
    fn from(wire: v2::Delivery) -> Self {
        match wire {
            v2::Delivery::NextStep => Self::NextStep,
            v2::Delivery::NextTurn => Self::NextTurn,
            v2::Delivery::Now => Self::Now,
        }
    }
}

/// The delivery of a number on the wire.
pub fn delivery(number: i32) -> Result<Delivery> {
    v2::Delivery::try_from(number)
        .map(Into::into)
        .map_err(|_| wrong("delivery", &format!("is {number}, which is unknown")))
}

impl From<&Signal> for v2::Signal {
    fn from(signal: &Signal) -> Self {
        Self {
            id: raw(signal.id.0),
            name: signal.name.clone(),
            payload: Some((&signal.payload).into()),
            delivery: v2::Delivery::from(signal.delivery).into(),
            number: signal.number,
            consumed_by: signal.consumed_by.map(Into::into),
            created_at: signal.created_at.0,
        }
    }
}

impl TryFrom<v2::Signal> for Signal {
    type Error = Error;
    fn try_from(wire: v2::Signal) -> Result<Self> {
        Ok(Self {
            id: SignalId(id(&wire.id, "signal.id")?),
            name: wire.name,
            payload: need(wire.payload, "signal.payload")?.try_into()?,
            delivery: delivery(wire.delivery)?,
            number: wire.number,
            consumed_by: wire.consumed_by.map(Into::into),
            created_at: Timestamp(wire.created_at),
        })
    }
}

impl From<&NewCheckpoint> for v2::NewCheckpoint {
    fn from(saved: &NewCheckpoint) -> Self {
        Self {
            state: Some((&saved.state).into()),
            leaves: saved.leaves.iter().map(|(thread, leaf)| (thread.clone(), raw(leaf.0))).collect(),
            metadata: saved.metadata.clone(),
        }
    }
}

impl TryFrom<v2::NewCheckpoint> for NewCheckpoint {
    type Error = Error;
    fn try_from(wire: v2::NewCheckpoint) -> Result<Self> {
        let leaf = |(thread, leaf): (String, Bytes)| Ok((thread, EntryId(id(&leaf, "checkpoint.leaf")?)));
        Ok(Self {
            state: need(wire.state, "checkpoint.state")?.try_into()?,
            leaves: wire.leaves.into_iter().map(leaf).collect::<Result<_>>()?,
            metadata: wire.metadata,
        })
    }
}

impl From<&Checkpoint> for v2::Checkpoint {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            execution: raw(checkpoint.execution.0),
            sequence: checkpoint.sequence,
            saved: Some((&checkpoint.saved).into()),
            usage: usage(&checkpoint.usage),
            hash: Bytes::copy_from_slice(&checkpoint.hash),
            created_at: checkpoint.created_at.0,
        }
    }
}

impl TryFrom<v2::Checkpoint> for Checkpoint {
    type Error = Error;
    fn try_from(wire: v2::Checkpoint) -> Result<Self> {
        Ok(Self {
            execution: ExecutionId(id(&wire.execution, "checkpoint.execution")?),
            sequence: wire.sequence,
            saved: need(wire.saved, "checkpoint.saved")?.try_into()?,
            usage: totals(wire.usage),
            hash: fixed(&wire.hash, "checkpoint.hash")?,
            created_at: Timestamp(wire.created_at),
        })
    }
}

impl From<&Event> for v2::Event {
    fn from(event: &Event) -> Self {
        Self {
            execution: raw(event.execution.0),
            number: event.number,
            at: event.at.0,
            kind: word(&event.kind),
            segment: event.segment,
            sequence: event.sequence,
            data: event.data.to_string(),
        }
    }
}

impl TryFrom<v2::Event> for Event {
    type Error = Error;
    fn try_from(wire: v2::Event) -> Result<Self> {
        Ok(Self {
            execution: ExecutionId(id(&wire.execution, "event.execution")?),
            number: wire.number,
            at: Timestamp(wire.at),
            kind: of_word(&wire.kind, "event.kind")?,
            segment: wire.segment,
            sequence: wire.sequence,
            data: json(&wire.data, "event.data")?,
        })
    }
}

impl From<&Chunk> for v2::Chunk {
    fn from(chunk: &Chunk) -> Self {
        let kind = match chunk.kind {
            ChunkKind::Token => v2::ChunkKind::Token,
            ChunkKind::Data => v2::ChunkKind::Data,
            ChunkKind::Error => v2::ChunkKind::Error,
            ChunkKind::Progress => v2::ChunkKind::Progress,
            ChunkKind::Void => v2::ChunkKind::Void,
        };
        Self {
            execution: raw(chunk.execution.0),
            segment: chunk.segment,
            sequence: chunk.sequence,
            epoch: chunk.epoch,
            attempt: chunk.attempt,
            seq: chunk.seq,
            kind: kind.into(),
            data: chunk.data.to_string(),
        }
    }
}

impl TryFrom<v2::Chunk> for Chunk {
    type Error = Error;
    fn try_from(wire: v2::Chunk) -> Result<Self> {
        Ok(Self {
            execution: ExecutionId(id(&wire.execution, "chunk.execution")?),
            segment: wire.segment,
            sequence: wire.sequence,
            epoch: wire.epoch,
            attempt: wire.attempt,
            seq: wire.seq,
            kind: match v2::ChunkKind::try_from(wire.kind) {
                Ok(v2::ChunkKind::Token) => ChunkKind::Token,
                Ok(v2::ChunkKind::Data) => ChunkKind::Data,
                Ok(v2::ChunkKind::Error) => ChunkKind::Error,
                Ok(v2::ChunkKind::Progress) => ChunkKind::Progress,
                Ok(v2::ChunkKind::Void) => ChunkKind::Void,
                Err(_) => return Err(wrong("chunk.kind", &format!("is {}", wire.kind))),
            },
            data: wire.data.into(),
        })
    }
}

impl From<&StreamEvent> for v2::WatchEvent {
    fn from(event: &StreamEvent) -> Self {
        let watched = match event {
            StreamEvent::Durable(event) => Watched::EventRow(event.into()),
            StreamEvent::Chunk(_, chunk) => Watched::Chunk((&**chunk).into()),
            StreamEvent::Retract { op, .. } => Watched::Retract(v2::Slot { segment: op.0, sequence: op.1 }),
            StreamEvent::Gap(_) => Watched::Gap(v2::Empty {}),
        };
        Self { id: event.id().to_string(), event: Some(watched), ..Self::default() }
    }
}

impl TryFrom<v2::WatchEvent> for StreamEvent {
    type Error = Error;
    fn try_from(wire: v2::WatchEvent) -> Result<Self> {
        let id = wire.id.parse()?;
        Ok(match need(wire.event, "event")? {
            Watched::EventRow(event) => Self::Durable(event.try_into()?),
            Watched::Chunk(chunk) => Self::Chunk(id, Arc::new(chunk.try_into()?)),
            Watched::Retract(op) => Self::Retract { id, op: (op.segment, op.sequence) },
            Watched::Gap(_) => Self::Gap(id),
        })
    }
}

impl From<&FamilyEvent> for v2::WatchEvent {
    fn from(event: &FamilyEvent) -> Self {
        let cursor = event.cursor.to_string();
        Self { cursor, execution: raw(event.execution.0), depth: event.depth, ..(&event.event).into() }
    }
}

impl TryFrom<v2::WatchEvent> for FamilyEvent {
    type Error = Error;
    fn try_from(wire: v2::WatchEvent) -> Result<Self> {
        let execution = ExecutionId(id(&wire.execution, "watch.execution")?);
        Ok(Self { cursor: wire.cursor.as_str().into(), execution, depth: wire.depth, event: wire.try_into()? })
    }
}

impl From<&RollUp> for v2::RollUp {
    fn from(sum: &RollUp) -> Self {
        let RollUp { execution, children, descendants, usage } = sum;
        let usage = super::execution::usage(usage);
        Self { execution: raw(execution.0), children: *children, descendants: *descendants, usage }
    }
}

impl TryFrom<v2::RollUp> for RollUp {
    type Error = Error;
    fn try_from(wire: v2::RollUp) -> Result<Self> {
        let v2::RollUp { execution, children, descendants, usage } = wire;
        let (execution, usage) = (ExecutionId(id(&execution, "execution")?), super::execution::totals(usage));
        Ok(Self { execution, children, descendants, usage })
    }
}

impl From<&QueueLoad> for v2::QueueLoad {
    fn from(load: &QueueLoad) -> Self {
        let QueueLoad { kind, queue, queued, running, served } = load.clone();
        Self { kind, queue, queued, running, served }
    }
}

impl From<v2::QueueLoad> for QueueLoad {
    fn from(wire: v2::QueueLoad) -> Self {
        let v2::QueueLoad { kind, queue, queued, running, served } = wire;
        Self { kind, queue, queued, running, served }
    }
}

impl From<&KnownWorker> for v2::KnownWorker {
    fn from(worker: &KnownWorker) -> Self {
        let kind = |(kind, queue): &(String, String)| v2::ServedKind { kind: kind.clone(), queue: queue.clone() };
        Self {
            id: raw(worker.id.0),
            name: worker.name.clone(),
            queues: worker.queues.clone(),
            serves: worker.serves.iter().map(kind).collect(),
            seen_at: worker.seen_at.0,
            alive_until: worker.alive_until.0,
        }
    }
}

impl TryFrom<v2::KnownWorker> for KnownWorker {
    type Error = Error;
    fn try_from(wire: v2::KnownWorker) -> Result<Self> {
        Ok(Self {
            id: WorkerId(id(&wire.id, "worker.id")?),
            name: wire.name,
            queues: wire.queues,
            serves: wire.serves.into_iter().map(|kind| (kind.kind, kind.queue)).collect(),
            seen_at: Timestamp(wire.seen_at),
            alive_until: Timestamp(wire.alive_until),
        })
    }
}

impl From<PageRequest> for v2::PageRequest {
    fn from(page: PageRequest) -> Self {
        Self { limit: page.limit.try_into().unwrap_or(u32::MAX), after: page.after.map(|cursor| cursor.0) }
    }
}

impl From<v2::PageRequest> for PageRequest {
    fn from(wire: v2::PageRequest) -> Self {
        Self { limit: wire.limit as usize, after: wire.after.map(Cursor) }
    }
}

/// A listing of runs.
pub fn list_executions(filter: ExecutionFilter, page: PageRequest) -> v2::ListExecutionsRequest {
    v2::ListExecutionsRequest {
        statuses: filter.statuses.iter().map(|status| status.as_str().into()).collect(),
        kind: filter.kind,
        queue: filter.queue,
        metadata: filter.metadata.into_iter().collect(),
        created_from: filter.created_from.map(|at| at.0),
        created_until: filter.created_until.map(|at| at.0),
        parent: filter.parent.map(|id| raw(id.0)).unwrap_or_default(),
        root: filter.root.map(|id| raw(id.0)).unwrap_or_default(),
        roots: filter.roots,
        search: filter.search,
        page: Some(page.into()),
    }
}

/// What a listing of runs asks for.
pub fn execution_filter(wire: v2::ListExecutionsRequest) -> Result<(ExecutionFilter, PageRequest)> {
    let status = |word: &String| Status::parse(word).ok_or_else(|| wrong("status", &format!("is {word:?}")));
    let filter = ExecutionFilter {
        statuses: wire.statuses.iter().map(status).collect::<Result<_>>()?,
        kind: wire.kind,
        queue: wire.queue,
        metadata: wire.metadata.into_iter().collect(),
        created_from: wire.created_from.map(Timestamp),
        created_until: wire.created_until.map(Timestamp),
        parent: some_id(&wire.parent, "parent")?.map(ExecutionId),
        root: some_id(&wire.root, "root")?.map(ExecutionId),
        roots: wire.roots,
        search: wire.search,
    };
    Ok((filter, wire.page.map(Into::into).unwrap_or_default()))
}
