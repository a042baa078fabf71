//! The JSON that `--json` prints: the views of core, with what the command line shows beside them.

use crate::print::word;
use flovyn_core::Error;
use flovyn_core::id::OrgId;
use flovyn_core::model::{Checkpoint, Entry, Event, Execution, RollUp, Task};
use flovyn_core::payload::{Body, Encoding, Payload};
use flovyn_core::storage::Storage;
use flovyn_core::view;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Payloads over this size are told by their size alone.
const SHOWN: u64 = 1 << 20;

/// A view, and the older names that some of its fields had here, which go on to be printed.
fn shown(view: &impl Serialize, older: &[(&str, &str)]) -> Value {
    let mut shown = serde_json::to_value(view).unwrap_or_default();
    for (name, older) in older {
        shown[*older] = shown[*name].clone();
    }
    shown
}

/// A run, without its payloads.
pub(crate) fn run(run: &Execution) -> Value {
    let older = [
        ("failure", "error"),
        ("leaf", "leafEntryId"),
        ("worker", "workerId"),
        ("leaseExpires", "leaseExpiresAt"),
        ("parent", "parentId"),
        ("root", "rootId"),
    ];
    shown(&view::Run::of(run), &older)
}

/// A run, with what it and all below it come to.
pub(crate) fn run_with(run: &Execution, sum: &RollUp) -> Value {
    let mut shown = self::run(run);
    if let (Some(shown), Value::Object(sum)) = (shown.as_object_mut(), json!(view::RollUp::of(sum))) {
        shown.extend(sum);
    }
    shown
}

/// A task, without its payloads.
pub(crate) fn task(task: &Task) -> Value {
    shown(&view::Task::of(task), &[("op", "opId"), ("failure", "error")])
}

/// A checkpoint, without its state.
pub(crate) fn checkpoint(checkpoint: &Checkpoint) -> Value {
    shown(&view::Checkpoint::of(checkpoint), &[("leaf", "leafEntryId")])
}

/// A durable event.
pub(crate) fn event(event: &Event) -> Value {
    shown(&view::Event::of(event), &[("kind", "type")])
}

/// An entry whose content is in memory.
pub(crate) fn entry(entry: &Entry, on_branch: bool) -> Value {
    let mut shown = shown(&view::Entry::of(entry), &[("execution", "executionId")]);
    shown["content"] = inline(&entry.new.content);
    shown["onBranch"] = on_branch.into();
    shown
}

/// An error of the engine.
pub(crate) fn error(error: &Error) -> Value {
    let context: BTreeMap<_, _> = error.context().iter().map(|(name, value)| (name, value)).collect();
    json!({ "error": { "code": error.code().as_str(), "message": error.message(), "context": context } })
}

/// The value of a payload, fetched where it is stored elsewhere; its size where it is large or no JSON.
pub(crate) async fn payload(storage: &dyn Storage, org: OrgId, payload: &Payload) -> flovyn_core::Result<Value> {
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
