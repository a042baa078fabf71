//! Rule 9 of families: budgets hold for the tree.

use crate::budgets::{start, think};
use crate::rule;
use crate::world::*;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::Handle;
use flovyn_core::context::{AgentContext, AgentContextExt, Child};
use flovyn_core::error::{Code, Result};
use flovyn_core::journal::ChildOptions;
use flovyn_core::model::{
    ChildEvent, ExecutionFilter, PageRequest, ResumeRequest, StartLimits, Status, Usage, WaitReason,
};
use flovyn_core::payload::Payload;
use serde_json::{Value, json};

/// A model call that uses so many tokens.
async fn call(ctx: &dyn AgentContext, tokens: u64) -> Result<()> {
    ctx.schedule::<Value>("think", &tokens)?.await?;
    ctx.record_usage("m", Usage { calls: 1, input_tokens: tokens, ..Usage::default() })
}

fn with_budget(budget: &str) -> ChildOptions {
    let limits = StartLimits { budget: Some(budget.into()), ..StartLimits::default() };
    ChildOptions { limits, ..ChildOptions::default() }
}

/// An agent that makes calls of 30 tokens until it has made as many as its input says, and tells how many it has made when
/// it is asked to stop.
fn spender() -> Agent {
    agent("spender", |ctx| {
        Box::pin(async move {
            let most = ctx.raw_input().parse::<u32>()?;
            for made in 0..most {
                match call(ctx, 30).await {
                    Err(error) if error.code() == Code::Cancelled => return Ok(json!(made)),
                    other => other?,
                }
            }
            Ok(json!(most))
        })
    })
}

fn family(parent: Agent) -> NativeHost {
    parent.host().agent(spender()).unwrap().task(think()).unwrap().task(echo()).unwrap()
}

/// What all runs of a family have used.
async fn spent(world: &World, root: &Handle) -> u64 {
    let filter = ExecutionFilter { root: Some(root.id()), ..ExecutionFilter::default() };
    let mut runs =
        world.storage.executions(ORG, filter, PageRequest { limit: 1_000, after: None }).await.unwrap().items;
    runs.push(root.describe().await.unwrap());
    runs.iter().flat_map(|run| run.usage.0.values()).map(|usage| usage.input_tokens).sum()
}

async fn left(ctx: &dyn AgentContext) -> Result<Value> {
    Ok(ctx.remaining_budget()?.parse::<Value>()?["tokens"]["left"].clone())
}

rule!(family_09_what_a_child_has_not_used_comes_back, world, {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            call(ctx, 30).await?;
            let first = ctx.spawn_agent_with::<Value>("spender", &2, with_budget("400"))?;
            let more = ctx.spawn_agent_with::<Value>("spender", &2, with_budget("571"))?;
            let refused = more.await.expect_err("570 are left");
            let made = first.await?;
            // 30 + 60 are used, and 910 are left.
            let last = ctx.spawn_agent_with::<Value>("spender", &1, with_budget("910"))?.await?;
            let again = left(ctx).await?;
            say(ctx, "after").await?;
            Ok(json!([made, refused.code().as_str(), refused.message(), last, again]))
        })
    });
    world.forgetful(family(parent)).await;
    let handle = start(&world, "parent", json!(1_000)).await;
    let told = result(&handle).await;
    assert_eq!((&told[0], &told[1], &told[3]), (&json!(2), &json!("BudgetExceeded"), &json!(1)), "{told}");
    assert!(told[2].as_str().is_some_and(|text| text.contains("570 are left of the 1000")), "{told}");
    assert_eq!(spent(&world, &handle).await, 120);
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
});

rule!(family_09_a_child_at_its_limit_is_asked_to_stop_and_keeps_what_it_has, world, {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent_with::<Value>("spender", &9, with_budget("100"))?;
            let event = ctx.wait_for_child_event(&child, None)?.await?;
            let ChildEvent::BudgetExceeded { used, limit, output } = event else {
                return Ok(json!(format!("{event:?}")));
            };
            let kept: Value = output.unwrap_or_else(Payload::null).parse()?;
            let raised = child.await.expect_err("it was stopped");
            Ok(json!([used.tokens, limit.max_tokens, kept, raised.code().as_str(), say(ctx, "after").await?]))
        })
    });
    world.forgetful(family(parent)).await;
    // With a budget above it and without one.
    for budget in [Some(1_000), None] {
        let handle = match budget {
            Some(budget) => start(&world, "parent", json!(budget)).await,
            None => world.start("parent").await,
        };
        assert_eq!(result(&handle).await, json!([90, 100, 3, "BudgetExceeded", "after"]), "{budget:?}");
    }
});

rule!(family_09_a_child_that_is_stopped_may_tidy_up_by_tasks, world, {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let mut ends = Vec::new();
            for options in [with_budget("100"), ChildOptions::default()] {
                let child = ctx.spawn_agent_with::<Value>("careless", &(), options)?;
                let ChildEvent::BudgetExceeded { limit, output, .. } = ctx.wait_for_child_event(&child, None)?.await?
                else {
                    return Ok(json!("another end"));
                };
                ends.push(json!([limit.max_tokens, output.unwrap_or_else(Payload::null).parse::<Value>()?]));
            }
            Ok(json!(ends))
        })
    });
    // It reserves nothing and tells afterwards what it has used, so that it is beyond its budget when it is stopped.
    let careless = agent("careless", |ctx| {
        Box::pin(async move {
            loop {
                match say(ctx, "more").await {
                    Err(error) if error.code() == Code::Cancelled => return Ok(json!([say(ctx, "saved").await?])),
                    said => said?,
                };
                ctx.record_usage("m", Usage { calls: 1, input_tokens: 60, ..Usage::default() })?;
            }
        })
    });
    world.forgetful(family(parent).agent(careless).unwrap()).await;
    let handle = start(&world, "parent", json!(500)).await;
    assert_eq!(result(&handle).await, json!([[100, ["saved"]], [500, ["saved"]]]));
});

rule!(family_09_children_without_a_budget_draw_from_the_nearest_one, world, {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let spawn = |_| ctx.spawn_agent::<Value>("spender", &40);
            let children = (0..4).map(spawn).collect::<Result<Vec<Child<Value>>>>()?;
            let mut ends = Vec::new();
            for child in children {
                ends.push(match child.await {
                    Ok(made) => made,
                    Err(error) => json!(error.code().as_str()),
                });
            }
            Ok(json!(ends))
        })
    });
    world.worker(family(parent)).await;
    let handle = start(&world, "parent", json!({ "maxTokens": 1_000, "maxCalls": 100 })).await;
    let ends = result(&handle).await;
    assert_eq!(ends, json!(["BudgetExceeded", "BudgetExceeded", "BudgetExceeded", "BudgetExceeded"]));
    let used = spent(&world, &handle).await;
    assert!((700..=1_000).contains(&used), "{used}: no more than the budget, and not much less");
});

rule!(family_09_a_root_at_its_limit_pauses_and_goes_on_with_another_budget, world, {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent_with::<Value>("spender", &3, with_budget("150"))?;
            let made = child.await?;
            // 90 of 160 are used: one call fits, and the second does not.
            call(ctx, 30).await?;
            call(ctx, 30).await?;
            Ok(json!([made, left(ctx).await?]))
        })
    });
    world.forgetful(family(parent)).await;
    let handle = start(&world, "parent", json!(155)).await;
    has_status(&handle, Status::Paused).await;
    let run = handle.describe().await.unwrap();
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Budget));
    let failure = run.failure.map(|failure| failure.message).unwrap_or_default();
    assert!(failure.contains("120 of the 155 tokens"), "{failure}");
    handle.resume(ResumeRequest { budget: Some("100".into()), ..ResumeRequest::default() }).await.unwrap();
    assert_eq!(result(&handle).await, json!([3, 70]));
    assert_eq!(spent(&world, &handle).await, 150);
});

rule!(family_09_a_budget_holds_over_several_levels, world, {
    let root = agent("root", |ctx| {
        Box::pin(async move {
            let low = ctx.spawn_agent_with::<Value>("middle", &(), with_budget("300"))?;
            let high = ctx.spawn_agent::<Value>("middle", &())?;
            let ends = [low.await, high.await].map(|end| end.map_err(|error| error.code().as_str().to_owned()));
            Ok(json!(ends))
        })
    });
    let middle = agent("middle", |ctx| {
        Box::pin(async move {
            let children = [1, 2].map(|_| ctx.spawn_agent::<Value>("spender", &30));
            let mut stopped = 0;
            for child in children {
                match child?.await {
                    Err(error) if error.code() == Code::BudgetExceeded => stopped += 1,
                    other => drop(other?),
                }
            }
            Ok(json!(stopped))
        })
    });
    world.worker(family(root).agent(middle).unwrap()).await;
    let handle = start(&world, "root", json!(700)).await;
    assert_eq!(result(&handle).await, json!([{ "Ok": 2 }, { "Ok": 2 }]));
    let used = spent(&world, &handle).await;
    assert!((400..=700).contains(&used), "{used}");
});
