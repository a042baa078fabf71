//! What a host shows of one run: views in the host's style, as JSON that bindings pass through.

use super::run_id;
use crate::client::{Client, Handle};
use crate::error::Result;
use crate::model::{Cursor, Page, PageRequest};
use crate::payload::Payload;
use crate::view::{Checkpoint, Op, RollUp, Run, Served, Show, Style, Task};
use serde_json::{Value, json};

/// The run, with what it and all below it come to, and with `no_worker`: what it waits for that no live worker serves.
pub async fn described(run: &Handle, style: Style) -> Result<Value> {
    let execution = run.describe().await?;
    let mut described = Run::of(&execution).show(style);
    if let Value::Object(fields) = RollUp::of(&run.roll_up().await?).show(style)
        && let Some(described) = described.as_object_mut()
    {
        described.extend(fields);
    }
    let unserved = run.unserved().await?.into_iter().map(|(kind, queue)| Served { kind, queue });
    let machine = run.machine(&execution).await?;
    described[style.name("machine")] = machine.map_or(Value::Null, |machine| machine.show(style));
    described[style.name("no_worker")] = unserved.collect::<Vec<_>>().show(style);
    Ok(described)
}

/// A value of the run: its `input`, its `output`, or the `state` of a checkpoint; none where it has none.
pub async fn value(run: &Handle, what: &str, checkpoint: Option<u32>) -> Result<Option<Payload>> {
    match what {
        "input" => run.input().await.map(Some),
        "output" => run.output().await,
        _ => run.state(checkpoint).await,
    }
}

/// A part of its tasks, in the order they were scheduled.
pub async fn tasks(run: &Handle, limit: usize, after: Option<String>, style: Style) -> Result<Value> {
    Ok(listed(&run.tasks(page(limit, after)).await?, Task::of, style))
}

/// A part of its checkpoints, oldest first.
pub async fn checkpoints(run: &Handle, limit: usize, after: Option<String>, style: Style) -> Result<Value> {
    Ok(listed(&run.checkpoints(page(limit, after)).await?, Checkpoint::of, style))
}

/// The recorded ops of a run, segment by segment.
pub async fn journal(client: &Client, id: &str, style: Style) -> Result<Value> {
    let id = run_id(id)?;
    let (storage, org) = (client.storage(), client.org());
    let mut ops = Vec::new();
    for segment in 0..=storage.execution(org, id).await?.segment {
        ops.extend(storage.journal(org, id, segment).await?.iter().map(|op| Op::of(op).show(style)));
    }
    Ok(Value::Array(ops))
}

/// A part of a listing: its `items`, and after what the `next` part begins.
pub(super) fn listed<T, V: Show>(page: &Page<T>, view: impl Fn(&T) -> V, style: Style) -> Value {
    let items: Vec<_> = page.items.iter().map(|item| view(item).show(style)).collect();
    json!({"items": items, "next": page.next.as_ref().map(|cursor| &cursor.0)})
}

pub(super) fn page(limit: usize, after: Option<String>) -> PageRequest {
    PageRequest { limit, after: after.map(Cursor) }
}
