//! What is done to the runs of the generator's agents in Rust: signals, a request to stop, a fork; and their ends.

use super::{count, explain, life, list, millis};
use flovyn_core::Payload;
use flovyn_core::client::{Client, Handle, StartOptions};
use flovyn_core::error::{Code, Result};
use flovyn_core::model::{CancelMode, Delivery, ForkFrom, PageRequest};
use serde_json::{Value, json};
use std::time::Duration;

/// Sends a run what it is sent, by its own clock.
pub(crate) async fn send(handle: &Handle, signals: &Value, waits: bool) -> Result<()> {
    for (number, signal) in list(signals).iter().enumerate() {
        let [ms, signal, value] = list(signal) else { continue };
        if waits {
            tokio::time::sleep(millis(ms)).await;
        }
        let (signal, key) = (signal.as_str().unwrap_or_default(), Some(number.to_string()));
        match handle.signal(signal, Payload::of(value)?, Delivery::default(), key).await {
            Err(error) if error.code() == Code::ExecutionClosed => break,
            sent => drop(sent?),
        }
    }
    Ok(())
}

/// Does to a run what is done to it, waits for its end and tells of it.
async fn follow(handle: &Handle, cancel: &Value, signals: &Value) -> Result<()> {
    send(handle, signals, true).await?;
    if !cancel.is_null() && count(&life()["number"]) > 1 {
        tokio::time::sleep(millis(cancel)).await;
        handle.cancel(CancelMode::Graceful, Duration::from_secs(5)).await?;
    }
    let timeout = Duration::from_secs(count(&life()["timeout"]));
    let name = handle.key().unwrap_or_default();
    let told = match handle.result(Some(timeout)).await {
        Ok(result) => json!({"name": name, "result": result.parse::<Value>()?}),
        Err(error) if error.code() == Code::AgentCancelled => json!({"name": name, "cancelled": true}),
        Err(error) => {
            explain(name);
            json!({"name": name, "error": error.to_string()})
        }
    };
    println!("{told}");
    Ok(())
}

/// Gives the fork of a run, which an earlier life may have made.
async fn fork(client: &Client, parent: &Handle, how: &Value) -> Result<Handle> {
    let id = format!("{}/fork", parent.key().unwrap_or_default());
    match client.handle(&id).await {
        Err(error) if error.code() == Code::ExecutionNotFound => {}
        found => return found,
    }
    let all = PageRequest { limit: 1_000, ..PageRequest::default() };
    let points: Vec<_> = if how["by"] == "entry" {
        parent.entries(all).await?.items.iter().map(|entry| ForkFrom::Entry(entry.new.id)).collect()
    } else {
        parent.tasks(all).await?.items.iter().map(|task| ForkFrom::Op(task.slot)).collect()
    };
    let at = count(&how["at"]) as usize % points.len().max(1);
    let Some(point) = points.get(at) else { return parent.fork(ForkFrom::Latest, Some(&id), None, None).await };
    match parent.fork(*point, Some(&id), None, None).await {
        // What it did for a request to stop belongs to no fork.
        Err(error) if error.code() == Code::InvalidArgument => {
            parent.fork(ForkFrom::Latest, Some(&id), None, None).await
        }
        made => made,
    }
}

/// Starts a run, and its fork, and sees them to their ends.
pub(crate) async fn steer(client: &Client, program: &Value) -> Result<()> {
    let name = program["name"].as_str().unwrap_or_default();
    let handle = client.start("generated", Payload::of(&name)?, StartOptions::with_id(name)).await?;
    let own = follow(&handle, &program["cancel"], &program["signals"]);
    let how = &program["fork"];
    let forked = async || follow(&fork(client, &handle, how).await?, &Value::Null, &program["signals"]).await;
    if how.is_null() {
        return own.await;
    }
    if how["when"].is_null() {
        own.await?;
        return forked().await;
    }
    let beside = async {
        tokio::time::sleep(millis(&how["when"])).await;
        forked().await
    };
    futures::try_join!(own, beside).map(drop)
}
