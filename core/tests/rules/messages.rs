//! The rules of what the runs of a family tell each other.

use crate::rule;
use crate::world::*;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::Handle;
use flovyn_core::context::{AgentContext, AgentContextExt, Child};
use flovyn_core::error::Result;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{CancelMode, Cancellation, ChildEvent, ExecutionFilter, PageRequest, Status, event_signal};
use flovyn_core::payload::Payload;
use serde_json::{Value, json};
use std::time::Duration;

/// Hears a child to its end. Answers what it asks.
async fn hear(ctx: &dyn AgentContext, child: &Child<Value>) -> Result<Vec<Value>> {
    let mut heard = Vec::new();
    loop {
        let event = ctx.wait_for_child_event(child, None)?.await?;
        let end =
            matches!(&event, ChildEvent::Completed { .. } | ChildEvent::Failed { .. } | ChildEvent::Cancelled { .. });
        heard.push(told(ctx, event).await?);
        if end {
            return Ok(heard);
        }
    }
}

async fn told(ctx: &dyn AgentContext, event: ChildEvent) -> Result<Value> {
    Ok(match event {
        ChildEvent::Signal { name, payload } => json!([name, payload.parse::<Value>()?]),
        ChildEvent::Request { name, payload, request } => {
            let asked = payload.parse::<Value>()?;
            let answer = say(ctx, json!(["answer", asked])).await?;
            ctx.respond(&request, &answer)?.await?;
            json!(["asked", name, asked])
        }
        ChildEvent::Completed { output } => json!(["completed", output.parse::<Value>()?]),
        ChildEvent::Failed { error } => json!(["failed", error.message]),
        ChildEvent::Cancelled { output } => {
            json!(["cancelled", output.map(|output| output.parse::<Value>()).transpose()?])
        }
        other => json!(format!("{other:?}")),
    })
}

async fn the_child(world: &World, of: &Handle) -> Handle {
    let found = || async {
        let filter = ExecutionFilter { parent: Some(of.id()), ..ExecutionFilter::default() };
        let page = PageRequest { limit: 10, after: None };
        world.storage.executions(ORG, filter, page).await.unwrap().items
    };
    until("the child is born", || async { found().await.len() == 1 }).await;
    world.client().handle(&found().await[0].new.id.to_string()).await.unwrap()
}

fn family(parent: Agent, child: Agent) -> NativeHost {
    parent.host().agent(child).unwrap().task(echo()).unwrap()
}

rule!(family_03_what_a_child_tells_comes_in_order_and_its_end_last, world, {
    let parent = agent("hears", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("tells", &3)?;
            let child_id = child.id();
            let heard = hear(ctx, &child).await?;
            // The end may be read any number of times, by an event and by the await.
            let again = ctx.wait_for_child_event(&child, None)?.await?;
            let again = told(ctx, again).await?;
            let output = child.await?;
            let last = ctx.wait_for_child_event(child_id, None)?.await?;
            let last = told(ctx, last).await?;
            // It is entered again after each of these, and gets the end in the same places.
            let x: Value = ctx.wait_for_signal("x")?.await?;
            let y: Value = ctx.wait_for_signal("y")?.await?;
            Ok(json!([heard, again, output, last, x, y, say(ctx, "after").await?]))
        })
    });
    let child = agent("tells", |ctx| {
        Box::pin(async move {
            for step in 0..ctx.raw_input().parse::<u32>()? {
                ctx.signal_parent("progress", &json!({ "step": step }))?.await?;
                say(ctx, step).await?;
            }
            // It is not awaited, and goes out with the end.
            ctx.signal_parent("last", "x".repeat(80_000).as_str())?;
            Ok(json!("done"))
        })
    });
    world.forgetful(family(parent, child)).await;
    let handle = world.start("hears").await;
    for word in ["x", "y"] {
        waits_for(&handle, word).await;
        send(&handle, word, word).await;
    }
    let told = result(&handle).await;
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
    let step = |step: u32| json!(["progress", { "step": step }]);
    let expected = json!([step(0), step(1), step(2), ["last", "x".repeat(80_000)], ["completed", "done"]]);
    let end = json!(["completed", "done"]);
    assert_eq!(told, json!([expected, end, "done", end, "x", "y", "after"]));
});

rule!(family_03_nothing_is_heard_of_a_child_that_was_not_started, world, {
    let nests = agent("nests", |ctx| {
        Box::pin(async move {
            let depth = ctx.raw_input().parse::<u32>()?;
            let child = ctx.spawn_agent::<Value>("nests", &(depth + 1))?;
            match ctx.wait_for_child_event(&child, None)?.await {
                Ok(ChildEvent::Completed { output }) => output.parse(),
                Ok(other) => Ok(json!(format!("{other:?}"))),
                Err(refused) => {
                    let again = ctx.wait_for_child_event(&child, None)?.await.expect_err("there is no child");
                    let ended = child.await.expect_err("there is no child");
                    let go: Value = ctx.wait_for_signal("go")?.await?;
                    let last = say(ctx, go).await?;
                    Ok(json!([depth, refused.code().as_str(), again.code().as_str(), ended.code().as_str(), last]))
                }
            }
        })
    });
    world.forgetful(nests.host().task(echo()).unwrap()).await;
    let handle = world.client().start("nests", Payload::json("0"), Default::default()).await.unwrap();
    let mut deepest = handle.clone();
    for _ in 0..8 {
        deepest = the_child(&world, &deepest).await;
    }
    waits_for(&deepest, "go").await;
    send(&deepest, "go", "on").await;
    let limit = "LimitReached";
    assert_eq!(result(&handle).await, json!([8, limit, limit, limit, "on"]));
    assert_eq!(world.warnings(&deepest, "diverged").await, 0);
});

rule!(family_04_a_message_is_delivered_once_though_its_sender_is_killed, world, {
    let parent = agent("steers", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("steered", &())?;
            ctx.signal_child(&child, "guidance", &json!({ "depth": 1 }))?.await?;
            let go = ctx.wait_for_signal::<Value>("go")?.await?;
            ctx.signal_child(&child, "guidance", &json!({ "depth": go }))?.await?;
            Ok(json!([child.await?, say(ctx, "after").await?]))
        })
    });
    let child = agent("steered", |ctx| {
        Box::pin(async move {
            let one: Value = ctx.wait_for_signal("guidance")?.await?;
            let two: Value = ctx.wait_for_signal("guidance")?.await?;
            Ok(json!([one, two, ctx.drain_signals::<Value>("guidance")?]))
        })
    });
    let host = || family(parent.clone(), child.clone());
    let first = world.forgetful(host()).await;
    let handle = world.start("steers").await;
    let below = the_child(&world, &handle).await;
    waits_for(&handle, "go").await;
    waits_for(&below, "guidance").await;
    world.kill(&first).await;
    world.forgetful(host()).await;
    send(&handle, "go", 2).await;
    let told = json!([[{ "depth": 1 }, { "depth": 2 }, []], "after"]);
    assert_eq!(result(&handle).await, told);
});

rule!(family_04_a_message_that_cannot_be_delivered_is_refused_at_its_await, world, {
    let parent = agent("asks", |ctx| {
        Box::pin(async move {
            let root = ctx.signal_parent("progress", &1)?.await.expect_err("no parent");
            let alone = ctx.request_from_parent::<Value>("llm-call", &1, None)?.await.expect_err("no parent");
            let child = ctx.spawn_agent::<Value>("ends", &())?;
            let id = child.id();
            child.await?;
            let late = ctx.signal_child(id, "guidance", &1)?.await.expect_err("it has ended");
            let foreign: ExecutionId = ctx.raw_input().parse()?;
            let foreign = ctx.signal_child(foreign, "guidance", &1)?.await.expect_err("no child");
            let own = ctx.signal_child(id, &event_signal(id), &1).map(drop);
            let gone = ctx.cancel_child(id, Cancellation::USUAL)?.await.is_ok();
            let codes = [root, alone, late, foreign].map(|error| error.code().as_str());
            Ok(json!([codes, gone, own.is_err(), say(ctx, "after").await?]))
        })
    });
    let child = agent("ends", |_| Box::pin(async move { Ok(json!(null)) }));
    world.forgetful(family(parent, child)).await;
    let foreign = world.start("ends").await;
    result(&foreign).await;
    let input = Payload::of(&foreign.id()).unwrap();
    let handle = world.client().start("asks", input, Default::default()).await.unwrap();
    let codes = ["NoParent", "NoParent", "ExecutionClosed", "ExecutionNotFound"];
    assert_eq!(result(&handle).await, json!([codes, true, true, "after"]));
});

rule!(family_05_a_request_is_answered_once, world, {
    let parent = agent("answers", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("asks", &())?;
            let first = ctx.wait_for_child_event(&child, None)?.await?;
            let ChildEvent::Request { request, .. } = &first else { return Ok(json!(format!("{first:?}"))) };
            let request = *request;
            let answered = told(ctx, first).await?;
            let again = ctx.respond(&request, &"another")?.await.expect_err("an answer is there");
            let heard = hear(ctx, &child).await?;
            Ok(json!([answered, again.code().as_str(), heard]))
        })
    });
    let child = agent("asks", |ctx| {
        Box::pin(async move {
            let answer: Value = ctx.request_from_parent("llm-call", &json!({ "n": 1 }), None)?.await?;
            let within = Some(Duration::from_secs(60));
            let both = futures::try_join!(
                ctx.request_from_parent::<Value>("a", &1, within)?,
                ctx.request_from_parent::<Value>("b", &2, within)?
            )?;
            Ok(json!([answer, both.0, both.1]))
        })
    });
    world.forgetful(family(parent, child)).await;
    let handle = world.start("answers").await;
    let heard = json!([["asked", "a", 1], ["asked", "b", 2], [
        "completed",
        [["answer", { "n": 1 }], ["answer", 1], ["answer", 2]]
    ]]);
    let told = json!([["asked", "llm-call", { "n": 1 }], "AlreadyExists", heard]);
    assert_eq!(result(&handle).await, told);
});

rule!(family_05_a_request_without_an_answer_ends, world, {
    let parent = agent("silent", |ctx| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("asks", &())?;
            let asked = ctx.wait_for_child_event(&child, None)?.await?;
            ctx.wait_for_child_event(&child, None)?.await?;
            // It ends without an answer, and takes the child along.
            told_name(&asked)
        })
    });
    let child = agent("asks", |ctx| {
        Box::pin(async move {
            let soon = Some(Duration::from_millis(20));
            let late = ctx.request_from_parent::<Value>("a", &1, soon)?.await.expect_err("no answer");
            ctx.signal_parent("waits", &1)?;
            let stopped = ctx.wait_for_signal::<Value>("never")?.await.expect_err("its parent ends");
            let gone = ctx.request_from_parent::<Value>("b", &1, None)?.await.expect_err("its parent has ended");
            let told = ctx.signal_parent("c", &1)?.await.expect_err("its parent has ended");
            Ok(json!([late, stopped, gone, told].map(|error| error.code().as_str())))
        })
    });
    world.forgetful(family(parent, child)).await;
    let handle = world.start("silent").await;
    let below = the_child(&world, &handle).await;
    has_status(&below, Status::Waiting).await;
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(result(&handle).await, json!("a"));
    until("the child ends", || async { below.describe().await.unwrap().status == Status::Cancelled }).await;
    let kept = below.describe().await.unwrap().output.unwrap();
    assert_eq!(kept.parse::<Value>().unwrap(), json!(["SignalTimeout", "Cancelled", "ParentGone", "ExecutionClosed"]));
});

fn told_name(event: &ChildEvent) -> Result<Value> {
    Ok(match event {
        ChildEvent::Request { name, .. } => json!(name),
        other => json!(format!("{other:?}")),
    })
}

rule!(family_08_a_child_cancelled_alone_tells_its_parent_which_goes_on, world, {
    let parent = agent("stops", |ctx| {
        Box::pin(async move {
            let works = ctx.spawn_agent::<Value>("works", &())?;
            let ready = ctx.wait_for_child_event(&works, None)?.await?;
            let hard = Cancellation { mode: CancelMode::Hard, ..Cancellation::USUAL };
            ctx.cancel_child(&works, Cancellation::USUAL)?.await?;
            let kept = hear(ctx, &works).await?;
            let ended = works.await.expect_err("it was cancelled");
            // Nobody serves this one, so it stops at once, within the commit that stops it.
            let waits = ctx.spawn_agent::<Value>("unserved", &())?;
            ctx.cancel_child(&waits, hard)?.await?;
            let none = hear(ctx, &waits).await?;
            Ok(json!([told_name(&ready)?, kept, ended.code().as_str(), none, say(ctx, "after").await?]))
        })
    });
    let child = agent("works", |ctx| {
        Box::pin(async move {
            ctx.request_from_parent::<Value>("ready", &(), None)?.await.expect_err("it is stopped");
            Ok(json!("half"))
        })
    });
    world.forgetful(family(parent, child)).await;
    let handle = world.start("stops").await;
    let told = json!(["ready", [["cancelled", "half"]], "ChildCancelled", [["cancelled", null]], "after"]);
    assert_eq!(result(&handle).await, told);
});
