//! The rules of families: runs that start runs.

use crate::world::*;
use crate::{rule, world};
use flovyn_core::agent::NativeHost;
use flovyn_core::client::Handle;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{CancelMode, Cancellation, ExecutionFilter, PageRequest, ResumeRequest, Status, child_signal};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A parent that starts a child, tells of it and waits for it.
fn pair() -> NativeHost {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("child", "otters")?;
            let id = child.id();
            let said = say(ctx, "before").await?;
            Ok(json!([id, said, child.await?]))
        })
    });
    let child = agent("child", |ctx| {
        Box::pin(async move {
            let go = ctx.wait_for_signal::<Value>("go")?.await?;
            Ok(json!({ "input": ctx.raw_input().parse::<Value>()?, "go": go }))
        })
    });
    parent.host().agent(child).unwrap().task(echo()).unwrap()
}

async fn children(world: &World, of: &Handle) -> Vec<ExecutionId> {
    let filter = ExecutionFilter { parent: Some(of.id()), ..ExecutionFilter::default() };
    let found = world.storage.executions(world::ORG, filter, PageRequest { limit: 100, after: None }).await.unwrap();
    found.items.into_iter().map(|run| run.new.id).collect()
}

async fn only_child(world: &World, of: &Handle) -> Handle {
    until("the child is born", || async { children(world, of).await.len() == 1 }).await;
    world.client().handle(&children(world, of).await[0].to_string()).await.unwrap()
}

rule!(family_01_a_child_is_born_once_in_the_commit_of_its_parent, world, {
    let first = world.forgetful(pair()).await;
    let handle = world.start("parent").await;
    let child = only_child(&world, &handle).await;
    waits_for(&child, "go").await;
    waits_for(&handle, &child_signal(child.id())).await;
    let run = child.describe().await.unwrap();
    assert_eq!((run.parent, run.root, run.depth), (Some(handle.id()), handle.id(), 1));
    assert_eq!(run.new.org, ORG);
    // The parent is entered again in another process, and joins the same child.
    world.kill(&first).await;
    world.forgetful(pair()).await;
    send(&child, "go", 7).await;
    let told = json!([child.id(), "before", { "input": "otters", "go": 7 }]);
    assert_eq!(result(&handle).await, told);
    assert_eq!(children(&world, &handle).await, [child.id()]);
});

rule!(family_02_the_end_of_a_child_is_a_fact_of_its_parent, world, {
    let ends = |how: &'static str| {
        let parent = agent("asks", move |ctx| {
            Box::pin(async move {
                let child = ctx.spawn_agent::<Value>("ends", how)?;
                let end = child.await;
                let again = say(ctx, "after").await?;
                Ok(match end {
                    Ok(output) => json!([output, again]),
                    Err(error) => json!([error.code().as_str(), error.message(), again]),
                })
            })
        });
        let child = agent("ends", |ctx| {
            Box::pin(async move {
                match ctx.raw_input().parse::<String>()?.as_str() {
                    "large" => Ok(json!("x".repeat(100_000))),
                    "fails" => Err(Error::new(Code::InvalidArgument, "no otters here")),
                    _ => ctx.wait_for_signal::<Value>("never")?.await,
                }
            })
        });
        parent.host().agent(child).unwrap().task(echo()).unwrap()
    };
    let worker = world.forgetful(ends("large")).await;
    let handle = world.start("asks").await;
    assert_eq!(result(&handle).await, json!(["x".repeat(100_000), "after"]));
    world.kill(&worker).await;

    let worker = world.forgetful(ends("fails")).await;
    let handle = world.start("asks").await;
    let told = result(&handle).await;
    assert_eq!((&told[0], &told[2]), (&json!("ChildFailed"), &json!("after")));
    assert!(told[1].as_str().unwrap().contains("child \"ends\" failed"), "{told}");
    assert!(told[1].as_str().unwrap().contains("no otters here"), "{told}");
    world.kill(&worker).await;

    world.forgetful(ends("waits")).await;
    let handle = world.start("asks").await;
    let child = only_child(&world, &handle).await;
    waits_for(&child, "never").await;
    child.cancel(CancelMode::Hard, Duration::ZERO).await.unwrap();
    assert_eq!(
        result(&handle).await,
        json!(["ChildCancelled", "child \"ends\" was cancelled: ChildCancelled: it was asked to stop", "after"])
    );
});

rule!(family_07_a_parent_that_ends_takes_its_children_along, world, {
    let parent = agent("leaves", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("waits", &1)?;
            ctx.wait_for_signal::<Value>("leave")?.await?;
            Ok(json!(child.id()))
        })
    });
    let child = agent("waits", |ctx| {
        Box::pin(async move {
            let below = ctx.spawn_agent::<Value>("below", &2)?;
            below.await
        })
    });
    let below = agent("below", |ctx| Box::pin(async move { ctx.wait_for_signal::<Value>("never")?.await }));
    world.worker(parent.host().agent(child).unwrap().agent(below).unwrap()).await;
    let handle = world.start("leaves").await;
    let child = only_child(&world, &handle).await;
    let below = only_child(&world, &child).await;
    assert_eq!(below.describe().await.unwrap().root, handle.id());
    waits_for(&below, "never").await;
    waits_for(&child, &child_signal(below.id())).await;
    send(&handle, "leave", 0).await;
    assert_eq!(result(&handle).await, json!(child.id()));
    has_status(&child, Status::Cancelled).await;
    has_status(&below, Status::Cancelled).await;
});

rule!(family_07_a_parent_that_is_tried_again_hears_of_the_children_its_end_has_stopped, world, {
    let mended = Arc::new(AtomicBool::new(false));
    let works = mended.clone();
    let parent = agent("breaks", move |ctx| {
        let works = works.load(Ordering::Relaxed);
        Box::pin(async move {
            // Nobody serves the second: it is stopped in the transaction that ends its parent.
            let children = ["waits", "unserved"].map(|kind| ctx.spawn_agent::<Value>(kind, &1));
            say(ctx, "before").await?;
            if !works {
                return Err(Error::new(Code::InvalidArgument, "a bug"));
            }
            let mut told = Vec::new();
            for child in children {
                told.push(child?.await.unwrap_err().code().as_str());
            }
            Ok(json!(told))
        })
    });
    let child = agent("waits", |ctx| Box::pin(async move { ctx.wait_for_signal::<Value>("never")?.await }));
    world.worker(parent.host().agent(child).unwrap().task(echo()).unwrap()).await;
    let handle = world.start("breaks").await;
    has_status(&handle, Status::Failed).await;
    for child in children(&world, &handle).await {
        has_status(&world.client().handle(&child.to_string()).await.unwrap(), Status::Cancelled).await;
    }
    mended.store(true, Ordering::Relaxed);
    handle.retry(ResumeRequest::default()).await.unwrap();
    assert_eq!(result(&handle).await, json!(["ChildCancelled", "ChildCancelled"]));
});

rule!(family_08_cancelling_goes_down_the_tree, world, {
    for mode in [CancelMode::Graceful, CancelMode::Hard] {
        let worker = world.worker(pair()).await;
        let handle = world.start("parent").await;
        let child = only_child(&world, &handle).await;
        waits_for(&child, "go").await;
        waits_for(&handle, &child_signal(child.id())).await;
        let how = Cancellation { mode, grace: Duration::from_secs(5) };
        world.storage.request_cancel(ORG, handle.id(), how).await.unwrap();
        has_status(&handle, Status::Cancelled).await;
        has_status(&child, Status::Cancelled).await;
        world.kill(&worker).await;
    }
    // A child that is cancelled alone tells its parent, which goes on: `family_02`.
});

rule!(a_family_has_a_greatest_depth, world, {
    let deep = agent("deep", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("deep", &0)?;
            child.await
        })
    });
    world.worker(deep.host()).await;
    let handle = world.start("deep").await;
    let filter = || ExecutionFilter { root: Some(handle.id()), ..ExecutionFilter::default() };
    let page = || PageRequest { limit: 100, after: None };
    let below = || async { world.storage.executions(ORG, filter(), page()).await.unwrap().items };
    until("the deepest is refused another", || async {
        below().await.iter().any(|run| run.depth == 8 && run.status == Status::Paused)
    })
    .await;
    let deepest = below().await.into_iter().find(|run| run.depth == 8).unwrap();
    assert_eq!(deepest.failure.unwrap().code, Code::LimitReached);
    assert_eq!(below().await.len(), 8);
});
