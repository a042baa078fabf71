//! The rules of families: runs that start runs.

use crate::world::*;
use crate::{rule, world};
use flovyn_core::agent::NativeHost;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt, TaskCall};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::ExecutionId;
use flovyn_core::journal::{ChildOptions, Completion};
use flovyn_core::model::{
    CancelMode, Cancellation, EventKind, ExecutionFilter, OnParentEnd, OpKind, PARENT_QUEUE, PageRequest,
    ResumeRequest, SharedContext, StartLimits, Status, child_signal,
};
use flovyn_core::payload::Payload;
use flovyn_core::worker::WorkerOptions;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

fn named(id: &str) -> ChildOptions {
    ChildOptions { id: Some(id.into()), ..ChildOptions::default() }
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

rule!(family_01_an_id_names_one_child_whatever_the_code_does_to_wait_for_it, world, {
    let parent = agent("asks", move |ctx| {
        Box::pin(async move {
            let first = ctx.spawn_agent_with::<Value>("adds", &1, named("one"))?;
            let same = ctx.spawn_agent_with::<Value>("adds", &1, named("one"))?;
            let other = ctx.spawn_agent_with::<Value>("adds", &2, named("two"))?;
            let ids = json!([first.id() == same.id(), first.id() == other.id()]);
            let ends = json!([first.await?, same.await?, other.await?]);
            let later = ctx.spawn_agent_with::<Value>("adds", &1, named("one"))?.await?;
            let taken = ctx.spawn_agent_with::<Value>("adds", &3, named("two"))?.await.expect_err("other input");
            Ok(json!([ids, ends, later, taken.code().as_str(), say(ctx, "after").await?]))
        })
    });
    let child = agent("adds", |ctx| Box::pin(async move { Ok(json!(10 + ctx.raw_input().parse::<u32>()?)) }));
    world.forgetful(parent.host().agent(child).unwrap().task(echo()).unwrap()).await;
    let handle = world.start("asks").await;
    let told = result(&handle).await;
    assert_eq!(told, json!([[true, false], [11, 11, 12], 11, "ExecutionExists", "after"]));
    assert_eq!(children(&world, &handle).await.len(), 2);
});

rule!(family_01_a_child_that_may_not_be_started_is_refused_at_its_await, world, {
    let nests = agent("nests", |ctx| {
        Box::pin(async move {
            let depth = ctx.raw_input().parse::<u32>()?;
            match ctx.spawn_agent::<Value>("nests", &(depth + 1))?.await {
                Err(error) if error.code() == Code::LimitReached => {
                    Ok(json!([depth, error.message(), say(ctx, "went on").await?]))
                }
                other => other,
            }
        })
    });
    world.forgetful(nests.host().task(echo()).unwrap()).await;
    let handle = world.client().start("nests", Payload::json("0"), StartOptions::default()).await.unwrap();
    let told = result(&handle).await;
    assert_eq!((&told[0], &told[2]), (&json!(8), &json!("went on")));
    assert!(told[1].as_str().unwrap().contains("has 8 runs above it"), "{told}");
});

rule!(family_01_a_child_in_a_once_is_refused_and_nothing_is_lost, world, {
    let parent = agent("asks", |ctx| {
        Box::pin(async move {
            let refused = ctx.once("setup", &1, |ctx| async move {
                let far = ChildOptions { queue: Some("machine/far".into()), ..named("one") };
                let children =
                    [ChildOptions::default(), far].map(|how| ctx.spawn_agent_with::<Value>("child", &1, how));
                let children = children.map(|refused| refused.err().expect("no child is started in a once"));
                let how = (ChildOptions::default(), Completion::default());
                let Err(handed) = ctx.handoff_to_agent("child", &1, how.0, how.1).await;
                let told = children.iter().chain([&handed]).map(|error| (error.code().as_str(), error.message()));
                let told = json!(told.collect::<Vec<_>>());
                say(&ctx, "inside").await?;
                Ok(told)
            });
            let refused = refused.await?;
            let started = ctx.spawn_agent::<Value>("child", "after")?.await?;
            Ok(json!([refused, started, say(ctx, "after").await?]))
        })
    });
    let child = agent("child", |ctx| Box::pin(async move { ctx.raw_input().parse() }));
    let echo = echo();
    world.forgetful(parent.host().agent(child).unwrap().task(echo.clone()).unwrap()).await;
    let handle = world.start("asks").await;
    let told = result(&handle).await;
    assert_eq!((&told[1], &told[2], echo.total()), (&json!("after"), &json!("after"), 2), "{told}");
    let refused = told[0].as_array().unwrap();
    let says = |at: usize, words: [&str; 3]| {
        let (code, message) = (&refused[at][0], refused[at][1].as_str().unwrap());
        assert_eq!(code, "InvalidArgument", "{told}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    says(0, ["the child \"child\" was not started", "once(\"setup\")", "start it before the once or after it"]);
    says(1, ["the child \"child\" was not started", "once(\"setup\")", "start it before the once or after it"]);
    says(2, ["not handed off to \"child\"", "once(\"setup\")", "hand off after the once"]);
    assert_eq!(refused.len(), 3);
    // Its life after the wait for the child did not call the inside again, and the refused calls left no op.
    assert_eq!(children(&world, &handle).await.len(), 1);
    let ops = world.journal(&handle, 0).await;
    assert_eq!(ops.iter().filter(|op| op.label.kind == OpKind::Child).count(), 1);
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
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

rule!(family_02_a_child_out_of_time_fails_and_its_parent_goes_on, world, {
    let parent = agent("asks", |ctx| {
        Box::pin(async move {
            let limited = |limits| ChildOptions { limits, ..ChildOptions::default() };
            let most = Some(Duration::from_secs(20));
            let starts = || limited(StartLimits { start_timeout: most, ..StartLimits::default() });
            let ends = || limited(StartLimits { timeout: most, ..StartLimits::default() });
            let children = [("nobody", starts()), ("waits", ends()), ("works", ends()), ("quick", starts())];
            let children = children.map(|(kind, how)| ctx.spawn_agent_with::<Value>(kind, &1, how));
            let mut told = Vec::new();
            for child in children {
                told.push(match child?.await {
                    Ok(output) => json!(output),
                    Err(error) => json!([error.code().as_str(), error.error_type(), error.message()]),
                });
            }
            Ok(json!([told, say(ctx, "after").await?]))
        })
    });
    let waits = agent("waits", |ctx| Box::pin(async move { ctx.wait_for_signal::<Value>("never")?.await }));
    let works = agent("works", |ctx| Box::pin(async move { ctx.schedule::<Value>("hangs", &1)?.await }));
    let quick = agent("quick", |_| Box::pin(async move { Ok(json!("in time")) }));
    let hangs = job("hangs", |_, _| Box::pin(std::future::pending()));
    let host = parent.host().agent(waits).unwrap().agent(works).unwrap().agent(quick).unwrap();
    world.forgetful(host.task(hangs.clone()).unwrap().task(echo()).unwrap()).await;
    let handle = world.start("asks").await;
    let mut runs = BTreeMap::new();
    loop {
        for id in children(&world, &handle).await {
            let run = world.storage.execution(ORG, id).await.unwrap();
            runs.insert(run.new.kind.clone(), run);
        }
        let is = |kind: &str, status| runs.get(kind).is_some_and(|run| run.status == status);
        let (ended, waits) = (is("quick", Status::Completed), is("waits", Status::Waiting));
        if ended && waits && is("nobody", Status::Pending) && hangs.total() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    has_status(&handle, Status::Waiting).await;
    // Less than a lease: whoever works is not lost, but out of time.
    world.clock.advance(Duration::from_secs(21));
    world.storage.pass().await.unwrap();
    let told = result(&handle).await;
    let types = [("nobody", "StartTimeout"), ("waits", "Timeout"), ("works", "Timeout")];
    for (at, (kind, error_type)) in types.into_iter().enumerate() {
        let (of, why) = (&told[0][at], format!("child \"{kind}\" failed: {error_type}"));
        assert_eq!((&of[0], &of[1]), (&json!("ChildFailed"), &json!(error_type)), "{told}");
        assert!(of[2].as_str().unwrap().contains(&why), "{told}");
        let run = world.storage.execution(ORG, runs[kind].new.id).await.unwrap();
        assert_eq!((run.status, run.failure.map(|failure| failure.code)), (Status::Failed, Some(Code::Timeout)));
    }
    assert_eq!((&told[0][3], &told[1], hangs.total()), (&json!("in time"), &json!("after"), 1));
});

rule!(family_02_a_child_outlives_checkpoints_and_every_segment_can_read_its_end, world, {
    let keeps = || {
        let keeps = stateful("keeps", |ctx| {
            Box::pin(async move {
                let mut told = ctx.state::<State>()?.0.as_array().cloned().unwrap_or_default();
                while told.len() < 4 {
                    let child = ctx.spawn_agent_with::<Value>("child", "otters", named("one"))?;
                    if told.is_empty() {
                        let nameless = ctx.spawn_agent::<Value>("child", "seals")?;
                        let refused = ctx.checkpoint(&told).err().expect("nothing could join it again");
                        told.push(json!(refused.code().as_str()));
                        nameless.await?;
                    } else {
                        told.push(child.await?["input"].clone());
                    }
                    ctx.checkpoint(&told)?.await?;
                }
                Ok(json!(told))
            })
        });
        let child = agent("child", |ctx| {
            Box::pin(async move {
                if ctx.raw_input().parse::<String>()? == "otters" {
                    ctx.wait_for_signal::<Value>("go")?.await?;
                }
                Ok(json!({ "input": ctx.raw_input().parse::<Value>()? }))
            })
        });
        keeps.agent(child).unwrap().task(echo()).unwrap()
    };
    let first = world.forgetful(keeps()).await;
    let handle = world.start("keeps").await;
    until("both are born", || async { children(&world, &handle).await.len() == 2 }).await;
    let mut otters = None;
    for id in children(&world, &handle).await {
        let child = world.client().handle(&id.to_string()).await.unwrap();
        let is_meant = child.describe().await.unwrap().new.input.parse::<String>().unwrap() == "otters";
        otters = if is_meant { Some(child) } else { otters };
    }
    let otters = otters.expect("one of the two");
    waits_for(&handle, &child_signal(otters.id())).await;
    assert_eq!(handle.describe().await.unwrap().segment, 1);
    world.kill(&first).await;
    world.forgetful(keeps()).await;
    send(&otters, "go", 7).await;
    assert_eq!(result(&handle).await, json!(["OpenOperations", "otters", "otters", "otters"]));
    assert_eq!(children(&world, &handle).await.len(), 2);
    let page = PageRequest { limit: 100, after: None };
    let ends = world.storage.signals(ORG, handle.id(), page).await.unwrap().items;
    assert_eq!(ends.iter().filter(|end| end.consumed_by.is_none()).count(), 0, "a segment carries no ends along");
});

rule!(family_06_a_waiting_parent_holds_nothing, world, {
    // From 31 on, `join_all` polls them with wakers of its own, which counts as a wait for something outside.
    const CHILDREN: u64 = 30;
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let start = |n| {
                let far = ChildOptions { queue: Some("far".into()), ..ChildOptions::default() };
                ctx.spawn_agent_with::<u64>("adds", &n, far)
            };
            let children = (0..CHILDREN).map(start).collect::<Result<Vec<_>, _>>()?;
            let ends = futures::future::join_all(children).await.into_iter();
            Ok(json!(ends.sum::<Result<u64, _>>()?))
        })
    });
    let adds = agent("adds", |ctx| {
        Box::pin(async move {
            let go = ctx.wait_for_signal::<u64>("go")?.await?;
            Ok(json!(ctx.raw_input().parse::<u64>()? + go))
        })
    });
    let near = world.forgetful(parent.clone().host()).await;
    let handle = world.start("parent").await;
    until("it waits", || async { handle.status().await.unwrap() == Status::Waiting }).await;
    let waiting = handle.describe().await.unwrap();
    assert_eq!((waiting.worker, waiting.lease_expires), (None, None));
    near.evict_parked();
    assert_eq!(near.parked(), 0);
    world.kill(&near).await;

    // One place is enough for all of them, since whoever waits leaves it to others.
    let options = WorkerOptions { queue: "far".into(), max_agents: 1, max_parked: 0, ..WorkerOptions::default() };
    let far = world.runtime.worker(Arc::new(adds.host()), options).await.unwrap();
    let children = children(&world, &handle).await;
    assert_eq!(children.len() as u64, CHILDREN);
    let known = world.storage.execution(ORG, handle.id()).await.unwrap();
    for child in children {
        let child = world.client().handle(&child.to_string()).await.unwrap();
        waits_for(&child, "go").await;
        send(&child, "go", 1).await;
        has_status(&child, Status::Completed).await;
    }
    world.kill(&far).await;

    // All these ends are one batch: the parent is entered again once, and an end costs it one event.
    let near = world.forgetful(parent.host()).await;
    assert_eq!(result(&handle).await, json!(CHILDREN * (CHILDREN - 1) / 2 + CHILDREN));
    let ended = handle.describe().await.unwrap();
    assert_eq!(ended.epoch, known.epoch + 1);
    let events = world.events(&handle).await;
    let count = |kind| events.iter().filter(|event| event.kind == kind).count() as u64;
    assert_eq!((count(EventKind::Signal), count(EventKind::Woken)), (CHILDREN, 1));
    let others = events.iter().map(|event| event.kind).collect::<Vec<_>>();
    assert!(others.len() as u64 <= CHILDREN + 8, "{others:?}");
    world.kill(&near).await;
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

rule!(family_07_a_detached_child_goes_on_and_its_request_has_no_answer, world, {
    let parent = agent("leaves", |ctx| {
        Box::pin(async move {
            let detached = || ChildOptions { on_parent_end: OnParentEnd::Detach, ..ChildOptions::default() };
            let asks = ctx.spawn_agent_with::<Value>("asks", &1, detached())?;
            let late = ctx.spawn_agent_with::<Value>("late", &2, detached())?;
            ctx.wait_for_signal::<Value>("leave")?.await?;
            Ok(json!([asks.id(), late.id()]))
        })
    });
    let asks = agent("asks", |ctx| {
        Box::pin(async move {
            let gone = ctx.request_from_parent::<Value>("help", &(), None)?.await.expect_err("nobody answers");
            Ok(json!([gone.code().as_str(), say(ctx, "after").await?]))
        })
    });
    let late = agent("late", |ctx| {
        Box::pin(async move {
            let go = ctx.wait_for_signal::<Value>("go")?.await?;
            let asked = ctx.request_from_parent::<Value>("help", &(), None)?.await.expect_err("it has ended");
            let told = ctx.signal_parent("done", &())?.await.expect_err("it has ended");
            Ok(json!([go, asked.code().as_str(), told.code().as_str()]))
        })
    });
    world.forgetful(parent.host().agent(asks).unwrap().agent(late).unwrap().task(echo()).unwrap()).await;
    let handle = world.start("leaves").await;
    until("both are born", || async { children(&world, &handle).await.len() == 2 }).await;
    for child in children(&world, &handle).await {
        let child = world.client().handle(&child.to_string()).await.unwrap();
        has_status(&child, Status::Waiting).await;
    }
    send(&handle, "leave", 0).await;
    let ids: Vec<String> = serde_json::from_value(result(&handle).await).unwrap();
    let left = world.events(&handle).await.into_iter().find(|event| event.data["warning"] == json!("children_left"));
    assert_eq!(left.expect("a warning").data["count"], json!(2));
    let [asks, late] = &ids[..] else { panic!("{ids:?}") };
    let (asks, late) = (world.client().handle(asks).await.unwrap(), world.client().handle(late).await.unwrap());
    assert_eq!(result(&asks).await, json!(["ParentGone", "after"]));
    send(&late, "go", "on").await;
    assert_eq!(result(&late).await, json!(["on", "ParentGone", "ExecutionClosed"]));
    assert_eq!(late.describe().await.unwrap().root, handle.id());
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

rule!(family_10_a_conversation_is_shared_by_reference, world, {
    let parent = agent("asks", |ctx| {
        Box::pin(async move {
            ctx.append_entry("user", "a question")?;
            let with = |shared| ChildOptions { shared_context: Some(shared), ..ChildOptions::default() };
            let seen = ctx.spawn_agent_with::<Value>("answers", "seen", with(SharedContext::conversation()))?;
            let unseen = ctx.spawn_agent_with::<Value>("answers", "unseen", with(SharedContext::read_only()))?;
            ctx.append_entry("user", "meanwhile")?;
            let ids = [seen.id(), unseen.id()];
            // Until it has heard of the end, its thread of the child's id stands where its own conversation does.
            let before = said(&ctx.thread(&ids[0].to_string())).await?;
            let told = [seen.await?, unseen.await?];
            ctx.wait_for_signal::<Value>("go")?.await?;
            let threads =
                [said(&ctx.thread(&ids[0].to_string())).await?, said(&ctx.thread(&ids[1].to_string())).await?];
            Ok(json!({ "before": before, "told": told, "threads": threads, "main": said(ctx).await? }))
        })
    });
    let child = agent("answers", |ctx| {
        Box::pin(async move {
            let name = ctx.raw_input().parse::<String>()?;
            ctx.append_entry("assistant", &format!("{name} 1"))?;
            say(ctx, name.as_str()).await?;
            ctx.append_entry("assistant", &format!("{name} 2"))?;
            Ok(json!(said(ctx).await?))
        })
    });
    let host = || parent.clone().host().agent(child.clone()).unwrap().task(echo()).unwrap();
    let first = world.forgetful(host()).await;
    let handle = world.start("asks").await;
    waits_for(&handle, "go").await;
    // All of it is read again from the record, where both ends are known from the beginning.
    world.kill(&first).await;
    world.forgetful(host()).await;
    send(&handle, "go", 1).await;
    let wanted = json!({
        "before": ["a question", "meanwhile"],
        "told": [["a question", "seen 1", "seen 2"], ["a question", "unseen 1", "unseen 2"]],
        "threads": [["a question", "seen 1", "seen 2"], ["a question", "meanwhile"]],
        "main": ["a question", "meanwhile"],
    });
    assert_eq!(result(&handle).await, wanted);
});

async fn said(ctx: &(impl AgentContext + ?Sized)) -> flovyn_core::Result<Vec<String>> {
    ctx.messages().await?.iter().map(|entry| entry.new.content.parse()).collect()
}

rule!(family_14_calls_go_by_way_of_the_parent, world, {
    let parent = agent("parent", |ctx| {
        Box::pin(async move {
            let alone = by_parent(ctx, "mine")?.await.expect_err("it has no parent");
            let far = ChildOptions { queue: Some("machine/far".into()), ..ChildOptions::default() };
            let said = ctx.spawn_agent_with::<Value>("child", "otters", far)?.await?;
            Ok(json!([alone.code().as_str(), said]))
        })
    });
    let child = agent("child", |ctx| {
        Box::pin(async move {
            let said = by_parent(ctx, "hello")?.await?;
            let other = TaskCall { queue: Some("machine/other".into()), ..call_of("echo", "hello") };
            let refused = ctx.schedule_raw(other).err().expect("it is another machine's");
            Ok(json!([said, refused.code().as_str()]))
        })
    });
    // The worker of the child has no such task; that of the parent does it.
    let options = WorkerOptions { queue: "machine/far".into(), ..WorkerOptions::default() };
    let far = world.runtime.worker(Arc::new(child.clone().host()), options.clone()).await.unwrap();
    let handle = world.start("parent").await;
    world.forgetful(parent.clone().host().task(echo()).unwrap()).await;
    assert_eq!(result(&handle).await, json!(["NoParent", ["hello", "PermissionDenied"]]));
    let run = only_child(&world, &handle).await;
    let tasks = run.tasks(PageRequest { limit: 10, after: None }).await.unwrap().items;
    assert_eq!((tasks.len(), tasks[0].new.queue.as_str()), (1, "default"));
    world.kill(&far).await;
});

fn call_of(kind: &str, input: &str) -> TaskCall {
    TaskCall { kind: kind.into(), input: Payload::of(input).unwrap(), options: None, queue: None, key: None }
}

/// Has the workers of the parent say something.
fn by_parent(
    ctx: &dyn AgentContext,
    what: &str,
) -> flovyn_core::Result<impl Future<Output = flovyn_core::Result<Value>>> {
    let step = ctx.schedule_raw(TaskCall { queue: Some(PARENT_QUEUE.into()), ..call_of("echo", what) });
    Ok(async move { step?.await?.payload().expect("a value").parse() })
}
