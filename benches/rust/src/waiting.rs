//! The agent of W5, which waits for one signal, and the two ways of signalling a crowd of them.

use crate::Failure;
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::{Client, Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::model::{Delivery, ExecutionFilter, PageRequest, Status};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// When each agent's code went on, by its number.
pub(crate) type Resumed = Arc<Mutex<HashMap<u32, Instant>>>;

/// The agent.
pub(crate) struct Waiter(pub Resumed);

#[async_trait]
impl AgentDefinition for Waiter {
    type State = ();
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "waiter"
    }
    async fn execute(&self, ctx: &dyn AgentContext, number: u32) -> flovyn_core::Result<u32> {
        let _: serde_json::Value = ctx.wait_for_signal("go")?.await?;
        if let Ok(mut resumed) = self.0.lock() {
            resumed.insert(number, Instant::now());
        }
        Ok(number)
    }
}

/// Starts the agents and returns when all of them wait.
pub(crate) async fn start(client: &Client, numbers: Range<u32>) -> Result<(), Failure> {
    for number in numbers.clone() {
        let options = StartOptions { id: Some(format!("waiter-{number}")), ..StartOptions::default() };
        client.start("waiter", Payload::of(&number)?, options).await?;
    }
    loop {
        let filter = ExecutionFilter { statuses: vec![Status::Pending, Status::Running], ..ExecutionFilter::default() };
        if client.runs(filter, PageRequest { limit: 1, after: None }).await?.items.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The handles of the agents, so that looking them up is no part of a latency.
pub(crate) async fn handles(client: &Client, numbers: Range<u32>) -> Result<Vec<(u32, Handle)>, Failure> {
    let mut handles = Vec::new();
    for number in numbers {
        handles.push((number, client.handle(&format!("waiter-{number}")).await?));
    }
    Ok(handles)
}

async fn until(resumed: &Resumed, number: u32) -> Result<Instant, Failure> {
    loop {
        if let Some(at) = resumed.lock().map_err(|_| "poisoned")?.get(&number) {
            return Ok(*at);
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}

async fn go(handle: &Handle) -> Result<Instant, Failure> {
    let sent = Instant::now();
    handle.signal("go", Payload::of(&serde_json::json!({}))?, Delivery::NextStep, None).await?;
    Ok(sent)
}

/// Signals one agent after the other, each when the one before has resumed.
pub(crate) async fn paced(crowd: &[(u32, Handle)], resumed: &Resumed) -> Result<Vec<Duration>, Failure> {
    let mut latencies = Vec::new();
    for (number, handle) in crowd {
        let sent = go(handle).await?;
        latencies.push(until(resumed, *number).await?.saturating_duration_since(sent));
    }
    Ok(latencies)
}

/// Signals the agents back to back.
pub(crate) async fn burst(crowd: &[(u32, Handle)], resumed: &Resumed) -> Result<Vec<Duration>, Failure> {
    let mut sent = Vec::new();
    for (number, handle) in crowd {
        sent.push((*number, go(handle).await?));
    }
    let mut latencies = Vec::new();
    for (number, sent) in sent {
        latencies.push(until(resumed, number).await?.saturating_duration_since(sent));
    }
    Ok(latencies)
}
