//! The budget of a run: a call that does not fit is not begun, the run pauses, and goes on with another budget.

use crate::rule;
use crate::world::*;
use flovyn_core::Payload;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::model::{EventKind, ResumeRequest, StartLimits, Status, TaskOptions, Usage, WaitReason};
use serde_json::{Value, json};

/// A model call that may use 40 tokens and uses 42: nobody is perfect.
pub(crate) fn think() -> Job {
    let options = TaskOptions { reserve: 40, ..TaskOptions::default() };
    job("think", |_, input| Box::pin(async move { Ok(input) })).options(options)
}

fn spend(ctx: &dyn AgentContext, tokens: u64) -> Result<()> {
    ctx.record_usage("m", Usage { input_tokens: tokens, ..Usage::default() })
}

pub(crate) async fn start(world: &World, kind: &str, budget: Value) -> Handle {
    let limits = StartLimits { budget: Some(budget.to_string()), ..StartLimits::default() };
    let options = StartOptions { limits, ..StartOptions::default() };
    world.client().start(kind, Payload::null(), options).await.expect("it starts")
}

async fn resume(handle: &Handle, budget: Option<&str>) {
    let request = ResumeRequest { budget: budget.map(str::to_owned), ..ResumeRequest::default() };
    handle.resume(request).await.expect("it goes on");
}

/// Waits until the run has paused for its budget; what it tells of it.
async fn is_used_up(world: &World, handle: &Handle) -> String {
    has_status(handle, Status::Paused).await;
    let reason = handle.describe().await.expect("the run").wait.and_then(|wait| wait.reason);
    assert_eq!(reason, Some(WaitReason::Budget));
    let paused = world.events(handle).await.into_iter().rfind(|event| event.kind == EventKind::Paused);
    paused.expect("an event").data.to_string()
}

rule!(a_call_that_does_not_fit_is_not_begun, world, {
    let think = think();
    let thinker = agent("thinker", |ctx| {
        Box::pin(async move {
            let mut lefts = Vec::new();
            for turn in 0..4 {
                let left: Value = ctx.remaining_budget()?.parse()?;
                lefts.push(left["tokens"]["left"].clone());
                ctx.schedule::<Value>("think", &turn)?.await?;
                spend(ctx, 42)?;
                // Every wait is a re-entry: what was counted before is not counted again.
                ctx.schedule::<Value>("echo", &turn)?.await?;
            }
            Ok(json!(lefts))
        })
    });
    world.forgetful(thinker.host().task(think.clone()).unwrap().task(echo()).unwrap()).await;
    let handle = start(&world, "thinker", json!({"maxTokens": 100, "maxTokensPerCall": 7})).await;
    let told = is_used_up(&world, &handle).await;
    assert!(told.contains("84 of the 100 tokens") && told.contains("needs 40"), "{told}");
    assert_eq!((think.total(), world.warnings(&handle, "budget_low").await), (2, 1));
    resume(&handle, Some("50")).await;
    let told = is_used_up(&world, &handle).await;
    assert!(told.contains("42 of the 50 tokens"), "it counts from the resume on: {told}");
    assert_eq!(think.total(), 3);
    resume(&handle, None).await;
    assert_eq!(result(&handle).await, json!([100, 58, 16, 8]), "as often as it is replayed");
    assert_eq!(think.total(), 4);
    assert_eq!(handle.describe().await.unwrap().usage.0["m"].input_tokens, 4 * 42);
});

rule!(calls_beside_each_other_reserve_together, world, {
    let think = think();
    let crowd = agent("crowd", |ctx| {
        Box::pin(async move {
            let calls = (0..3).map(|n| ctx.schedule::<Value>("think", &n)).collect::<Result<Vec<_>>>()?;
            let reserved: Value = ctx.remaining_budget()?.parse()?;
            futures::future::try_join_all(calls).await?;
            Ok(reserved)
        })
    });
    world.worker(crowd.host().task(think.clone()).unwrap()).await;
    let handle = start(&world, "crowd", json!({"maxTokens": 100, "maxCalls": 9})).await;
    let told = is_used_up(&world, &handle).await;
    assert!(told.contains("80 are reserved"), "{told}");
    assert_eq!(think.total(), 2, "those that fit have ended");
    resume(&handle, None).await;
    let reserved = json!({
        "tokens": {"limit": 100, "used": 0, "reserved": 80, "left": 20},
        "calls": {"limit": 9, "used": 0, "reserved": 2, "left": 7},
    });
    assert_eq!(result(&handle).await, reserved);
    assert_eq!((think.times(0), think.times(1), think.times(2)), (1, 1, 1));
});

rule!(what_is_used_up_lets_no_step_begin, world, {
    let spender = agent("spender", |ctx| {
        Box::pin(async move {
            for turn in 0..3 {
                ctx.step()?.await?;
                spend(ctx, 10)?;
                ctx.append_entry("assistant", &turn)?;
            }
            Ok(json!("end"))
        })
    });
    world.worker(spender.host()).await;
    let handle = start(&world, "spender", json!({"maxCalls": 2})).await;
    is_used_up(&world, &handle).await;
    assert_eq!(handle.messages().await.unwrap().len(), 2, "what was said is kept");
    resume(&handle, Some(r#"{"maxCalls": 5}"#)).await;
    assert_eq!(result(&handle).await, json!("end"));
    let run = handle.describe().await.unwrap();
    assert_eq!((run.usage.0["m"].calls, run.step_count), (3, 3));
});

rule!(a_budget_that_is_none_is_refused, world, {
    let limits = StartLimits { budget: Some(r#"{"maxTokes": 5}"#.into()), ..StartLimits::default() };
    let options = StartOptions { limits, ..StartOptions::default() };
    let started = world.client().start("any", Payload::null(), options).await;
    let refused = started.err().expect("it says nothing");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("maxTokens") && refused.message().contains("maxTokes"), "{refused}");
});
