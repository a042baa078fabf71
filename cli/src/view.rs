//! The JSON that `--json` prints: camelCase names that stay as they are.

use crate::print::{moment, word};
use flovyn_core::Error;
use flovyn_core::clock::Timestamp;
use flovyn_core::id::{OpId, OrgId};
use flovyn_core::model::{Checkpoint, Entry, Event, Execution, Failure, Task};
use flovyn_core::payload::{Body, Encoding, Payload};
use flovyn_core::storage::Storage;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Payloads over this size are told by their size alone.
const SHOWN: u64 = 1 << 20;

/// A run, without its payloads.
pub fn run(run: &Execution) -> Value {
    let at = |at: Option<Timestamp>| at.map(moment);
    let usage: BTreeMap<_, _> = run.usage.0.iter().map(|(model, usage)| (model, self::usage(usage))).collect();
    json!({
        "id": run.new.id,
        "key": run.new.key,
        "kind": run.new.kind,
        "queue": run.new.queue,
        "status": run.status,
        "waitReason": run.wait.as_ref().and_then(|wait| wait.reason),
        "waitsFor": run.wait.as_ref().map(|wait| {
            json!({ "signals": wait.signals, "tasks": wait.tasks, "timers": wait.timers })
        }),
        "error": run.failure.as_ref().map(failure),
        "segment": run.segment,
        "leafEntryId": run.leaf,
        "epoch": run.epoch,
        "workerId": run.worker,
        "leaseExpiresAt": at(run.lease_expires),
        "cancel": run.cancel.map(|(cancel, ends)| json!({ "mode": cancel.mode, "graceEndsAt": moment(ends) })),
        "stepCount": run.step_count,
        "stepLimit": run.step_limit,
        "tailLimit": run.tail_limit,
        "usage": usage,
        "parentId": run.parent,
        "rootId": run.root,
        "forkedFrom": run.forked_from.map(|from| {
            json!({ "id": from.execution, "segment": from.segment, "sequence": from.sequence })
        }),
        "metadata": run.new.metadata,
        "priority": run.new.priority,
        "createdAt": moment(run.created_at),
        "updatedAt": moment(run.updated_at),
        "endedAt": at(run.ended_at),
    })
}

fn usage(usage: &flovyn_core::model::Usage) -> Value {
    json!({
        "calls": usage.calls,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
        "costMicros": usage.cost_micros,
    })
}

fn failure(failure: &Failure) -> Value {
    json!({
        "code": failure.code.as_str(),
        "type": failure.error_type,
        "message": failure.message,
        "traceback": failure.traceback,
    })
}

/// The id of the op that scheduled a task.
pub fn op_of(task: &Task) -> OpId {
    OpId { execution: task.execution, slot: task.slot, once: None }
}

/// A task, without its payloads.
pub fn task(task: &Task) -> Value {
    json!({
        "id": task.new.id,
        "opId": op_of(task).to_string(),
        "kind": task.new.kind,
        "queue": task.new.queue,
        "placement": task.new.placement,
        "status": task.status,
        "attempt": task.attempt,
        "failedAttempts": task.failed_attempts,
        "retries": task.new.options.retry.retries,
        "sideEffects": task.new.options.side_effects,
        "error": task.failure.as_ref().map(failure),
        "createdAt": moment(task.created_at),
        "startedAt": task.started_at.map(moment),
        "endedAt": task.ended_at.map(moment),
    })
}

/// A checkpoint, without its state.
pub fn checkpoint(checkpoint: &Checkpoint) -> Value {
    json!({
        "sequence": checkpoint.sequence,
        "leafEntryId": checkpoint.saved.leaves.get(""),
        "stateSize": checkpoint.saved.state.size(),
        "createdAt": moment(checkpoint.created_at),
    })
}

/// A durable event.
pub fn event(event: &Event) -> Value {
    json!({
        "id": event.number.to_string(),
        "type": event.kind,
        "at": moment(event.at),
        "segment": event.segment,
        "sequence": event.sequence,
        "data": event.data,
    })
}

/// An entry whose content is in memory.
pub fn entry(entry: &Entry, on_branch: bool) -> Value {
    json!({
        "id": entry.new.id,
        "parentId": entry.new.parent,
        "executionId": entry.execution,
        "thread": entry.new.thread,
        "role": entry.new.role,
        "entryType": entry.new.entry_type,
        "content": inline(&entry.new.content),
        "turnId": entry.new.turn_id,
        "depth": entry.depth,
        "onBranch": on_branch,
        "createdAt": moment(entry.created_at),
    })
}

/// An error of the engine.
pub fn error(error: &Error) -> Value {
    let context: BTreeMap<_, _> = error.context().iter().map(|(name, value)| (name, value)).collect();
    json!({ "error": { "code": error.code().as_str(), "message": error.message(), "context": context } })
}

/// The value of a payload, fetched where it is stored elsewhere; its size where it is large or no JSON.
pub async fn payload(storage: &dyn Storage, org: OrgId, payload: &Payload) -> flovyn_core::Result<Value> {
    if matches!(payload.body, Body::Stored { .. }) && payload.encoding == Encoding::Json && payload.size() <= SHOWN {
        let bytes = storage.read_payload(org, payload).await?;
        return Ok(inline(&Payload { encoding: payload.encoding, body: Body::Inline(bytes) }));
    }
    Ok(inline(payload))
}

fn inline(payload: &Payload) -> Value {
    let parsed = match payload.encoding {
        Encoding::Json => payload.parse().ok(),
        Encoding::Raw | Encoding::Blob => None,
    };
    parsed.unwrap_or_else(|| json!({ "$size": payload.size(), "$encoding": word(&payload.encoding) }))
}
