//! Runs that are given to another agent.

use crate::world::*;
use crate::{rule, world};
use flovyn_core::agent::NativeHost;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Code;
use flovyn_core::journal::{ChildOptions, Completion};
use flovyn_core::model::{EventKind, SharedContext, Status, WaitReason};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn with_conversation() -> ChildOptions {
    ChildOptions { shared_context: Some(SharedContext::read_only()), ..ChildOptions::default() }
}

async fn said(ctx: &(impl AgentContext + ?Sized)) -> flovyn_core::Result<Vec<String>> {
    ctx.messages().await?.iter().map(|entry| entry.new.content.parse()).collect()
}

/// Counts how often its code is entered, speaks, and hands off to an agent that waits for `go`.
fn gives(entered: &Arc<AtomicU64>) -> NativeHost {
    let entered = entered.clone();
    let front = agent("front", move |ctx| {
        entered.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let said = say(ctx, "hello").await?;
            ctx.append_entry("user", &said)?;
            let unread = ctx.spawn_agent::<Value>("desk", "left behind")?;
            ctx.flush()?.await?;
            drop(unread);
            match ctx.handoff_to_agent("desk", "help", with_conversation(), Completion::WaitForChild).await? {}
        })
    });
    let desk = agent("desk", |ctx| {
        Box::pin(async move {
            let go = ctx.wait_for_signal::<Value>("go")?.await?;
            ctx.append_entry("assistant", "there you are")?;
            Ok(json!([ctx.raw_input().parse::<String>()?, go, said(ctx).await?]))
        })
    });
    front.host().agent(desk).unwrap().task(echo()).unwrap()
}

rule!(family_11_a_handoff_gives_the_run_away, world, {
    let entered = Arc::new(AtomicU64::new(0));
    let first = world.forgetful(gives(&entered)).await;
    let handle = world.start("front").await;
    until("it is handed off", || async { handle.describe().await.unwrap().handed_to.is_some() }).await;
    let run = handle.describe().await.unwrap();
    let reason = run.wait.as_ref().and_then(|wait| wait.reason);
    assert_eq!((run.status, reason, run.worker), (Status::Waiting, Some(WaitReason::HandedOff), None));
    let times = entered.load(Ordering::SeqCst);
    // Nobody holds anything when the worker dies: its leases would last as long as the clock stands.
    let to = run.handed_to.unwrap().to_string();
    waits_for(&world.client().handle(&to).await.unwrap(), "go").await;
    world.kill(&first).await;
    world.forgetful(gives(&entered)).await;
    // The run is the address of whoever has its work.
    send(&handle, "go", 7).await;
    assert_eq!(result(&handle).await, json!(["help", 7, ["hello", "there you are"]]));
    assert_eq!(entered.load(Ordering::SeqCst), times, "its code is not entered again");
    let seen = handle.messages().await.unwrap();
    let seen: Vec<String> = seen.iter().map(|entry| entry.new.content.parse().unwrap()).collect();
    assert_eq!(seen, ["hello", "there you are"], "one transcript");
    let events = world.storage.events(world::ORG, handle.id(), 0, 1_000).await.unwrap();
    // The child that was left behind may have been at work: then its end comes in between.
    let kinds = events.iter().rev().map(|event| event.kind).filter(|kind| *kind != EventKind::Signal);
    assert_eq!(kinds.take(2).collect::<Vec<_>>(), [EventKind::Completed, EventKind::HandedOff]);
});

rule!(family_11_a_cycle_of_handoffs_ends_at_the_limit_of_depth, world, {
    let loops = agent("loops", |ctx| {
        Box::pin(async move {
            let depth = ctx.raw_input().parse::<Option<u32>>()?.unwrap_or(0);
            ctx.append_entry("user", &depth.to_string())?;
            let next = Some(depth + 1);
            let refused = match ctx.handoff_to_agent("loops", &next, with_conversation(), Completion::default()).await {
                Err(refused) => refused,
                Ok(never) => match never {},
            };
            assert_eq!(refused.code(), Code::LimitReached);
            Ok(json!([depth, said(ctx).await?.len(), say(ctx, "went on").await?]))
        })
    });
    world.forgetful(loops.host().task(echo()).unwrap()).await;
    let handle = world.start("loops").await;
    assert_eq!(result(&handle).await, json!([8, 9, "went on"]));
});

rule!(family_11_a_branch_may_hand_off_while_others_wait, world, {
    let front = agent("front", |ctx| {
        Box::pin(async move {
            let never = ctx.wait_for_signal::<Value>("never")?;
            let off = ctx.handoff_to_agent("quick", &1, ChildOptions::default(), Completion::Immediate);
            let (never, off) = futures::future::join(never, off).await;
            let _: (Value, std::convert::Infallible) = (never?, off?);
            unreachable!("a run that was handed off goes on")
        })
    });
    let quick = agent("quick", |ctx| Box::pin(async move { say(ctx, "done").await }));
    let host = front.host().agent(quick).unwrap().task(echo()).unwrap();
    world.worker(host).await;
    let handle = world.start("front").await;
    let told = result(&handle).await;
    let to = handle.describe().await.unwrap().handed_to.unwrap();
    assert_eq!(told, json!({ "handedTo": to }));
    let next = world.client().handle(&to.to_string()).await.unwrap();
    assert_eq!(result(&next).await, json!("done"));
});
