//! Stored things as JSON facts for hosts: what people look at, never what a program computes with on a hot path.

use crate::clock::Timestamp;
use crate::model::{
    Checkpoint, Event, Execution, Failure, KnownWorker, QueueLimit, QueueLoad, RecordedBody, RecordedOp, Schedule, Task,
};
use serde_json::{Value, json};

fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e6
}

fn failure(failure: &Failure) -> Value {
    serde_json::to_value(failure).unwrap_or_default()
}

/// A run.
pub fn execution(run: &Execution) -> Value {
    json!({
        "id": run.new.id,
        "key": run.new.key,
        "kind": run.new.kind,
        "queue": run.new.queue,
        "status": run.status.as_str(),
        "wait_reason": run.wait.as_ref().and_then(|wait| wait.reason),
        "waits_for": run.wait.as_ref().map(|wait| &wait.signals),
        "failure": run.failure.as_ref().map(failure),
        "metadata": run.new.metadata,
        "priority": run.new.priority,
        "segment": run.segment,
        "leaf": run.leaf,
        "code": run.code,
        "epoch": run.epoch,
        "worker": run.worker,
        "lease_expires": run.lease_expires.map(seconds),
        "cancel_requested": run.cancel.is_some(),
        "step_count": run.step_count,
        "step_limit": run.step_limit,
        "tail_limit": run.tail_limit,
        "usage": run.usage,
        "parent": run.parent,
        "root": run.root,
        "forked_from": run.forked_from,
        "created_at": seconds(run.created_at),
        "updated_at": seconds(run.updated_at),
        "ended_at": run.ended_at.map(seconds),
    })
}

/// A task.
pub fn task(task: &Task) -> Value {
    json!({
        "id": task.new.id,
        "op": format!("{}-{}", task.execution, task.slot),
        "kind": task.new.kind,
        "queue": task.new.queue,
        "status": task.status,
        "attempt": task.attempt,
        "failed_attempts": task.failed_attempts,
        "failure": task.failure.as_ref().map(failure),
        "progress": task.progress.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok()),
        "created_at": seconds(task.created_at),
        "started_at": task.started_at.map(seconds),
        "ended_at": task.ended_at.map(seconds),
    })
}

/// A checkpoint, without its state.
pub fn checkpoint(checkpoint: &Checkpoint) -> Value {
    json!({
        "sequence": checkpoint.sequence,
        "leaf": checkpoint.saved.leaves.get(""),
        "metadata": serde_json::from_str::<Value>(&checkpoint.saved.metadata).ok(),
        "usage": checkpoint.usage,
        "created_at": seconds(checkpoint.created_at),
    })
}

/// A schedule.
pub fn schedule(schedule: &Schedule) -> Value {
    let spec = &schedule.spec;
    json!({
        "id": spec.id,
        "kind": spec.kind,
        "queue": spec.queue,
        "input": serde_json::from_str::<Value>(&spec.input).ok(),
        "cron": spec.cron,
        "timezone": spec.timezone,
        "metadata": spec.metadata,
        "priority": spec.priority,
        "concurrency_key": spec.concurrency_key,
        "concurrency_limit": spec.concurrency_limit,
        "paused": spec.paused,
        "next_at": schedule.next_at.map(seconds),
        "created_at": seconds(schedule.created_at),
    })
}

/// What waits and runs of a kind in a queue.
pub fn queue(load: &QueueLoad) -> Value {
    json!({
        "kind": load.kind,
        "queue": load.queue,
        "queued": load.queued,
        "running": load.running,
        "served": load.served,
    })
}

/// A queue with its limit.
pub fn queue_limit((queue, limit): &(String, QueueLimit)) -> Value {
    json!({
        "queue": queue,
        "concurrency": limit.concurrency,
        "runs": limit.rate.map(|rate| rate.runs),
        "seconds": limit.rate.map(|rate| rate.per.as_secs_f64()),
    })
}

/// A worker that the backend knows.
pub fn worker(worker: &KnownWorker) -> Value {
    json!({
        "id": worker.id,
        "name": worker.name,
        "queues": worker.queues,
        "serves": worker.serves.iter().map(|(kind, queue)| json!({"kind": kind, "queue": queue})).collect::<Vec<_>>(),
        "seen_at": seconds(worker.seen_at),
        "alive_until": seconds(worker.alive_until),
    })
}

/// A durable event.
pub fn event(event: &Event) -> Value {
    json!({
        "kind": event.kind,
        "at": seconds(event.at),
        "segment": event.segment,
        "sequence": event.sequence,
        "data": event.data,
    })
}

/// A recorded op: its place, what it is, what was handed over before it, and where its task stands.
pub fn op(op: &RecordedOp) -> Value {
    let status = match &op.body {
        RecordedBody::Task { status, .. } => Some(status),
        _ => None,
    };
    json!({
        "segment": op.segment,
        "sequence": op.sequence,
        "label": op.label.to_string(),
        "kind": op.label.kind,
        "seen": op.seen,
        "status": status,
        "once": op.once,
    })
}
