//! Runs whose journal is not kept until somebody depends on it.

use crate::rule;
use crate::world::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OpId;
use flovyn_core::journal::ChildOptions;
use flovyn_core::model::{
    EventKind, Persistence, Resolution, SideEffects, StartLimits, Status, TaskOptions, TaskStatus, Usage, WaitReason,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A task that does not end before the gate is open. It says when it has begun.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<AtomicU64>,
    open: Arc<AtomicBool>,
}

impl Gate {
    fn task(&self) -> Job {
        let gate = self.clone();
        job("gate", move |_, input| {
            let gate = gate.clone();
            Box::pin(async move {
                gate.begun.fetch_add(1, Ordering::SeqCst);
                while !gate.open.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok(input)
            })
        })
    }

    async fn begun(&self, times: u64) {
        until("the gate is reached", || async { self.begun.load(Ordering::SeqCst) >= times }).await;
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

async fn pass(ctx: &dyn AgentContext) -> flovyn_core::Result<Value> {
    ctx.schedule::<Value>("gate", &Value::Null)?.await
}

fn used(tokens: u64) -> Usage {
    Usage { calls: 1, input_tokens: tokens, ..Usage::default() }
}

async fn begin(world: &World, kind: &str, limits: StartLimits) -> Handle {
    let options = StartOptions { persistence: Some(Persistence::Ephemeral), limits, ..StartOptions::default() };
    world.client().start(kind, Payload::null(), options).await.unwrap()
}

async fn persistence(handle: &Handle) -> Persistence {
    handle.describe().await.unwrap().new.persistence
}

async fn tasks(world: &World, handle: &Handle) -> usize {
    let page = flovyn_core::model::PageRequest { limit: 100, after: None };
    world.storage.tasks(ORG, handle.id(), page).await.unwrap().items.len()
}

fn serves(body: Agent, echo: &Job, gate: &Gate) -> NativeHost {
    body.host().task(echo.clone()).unwrap().task(gate.task()).unwrap()
}

/// Does one thing, then waits at the gate.
fn walk() -> Agent {
    agent("walk", |ctx| {
        Box::pin(async move {
            let first = say(ctx, "first").await?;
            pass(ctx).await?;
            Ok(first)
        })
    })
}

rule!(family_13_of_an_ephemeral_run_its_end_is_kept, world, {
    let quick = agent("quick", |ctx| {
        Box::pin(async move {
            for word in ["a", "b"] {
                let said = say(ctx, word).await?;
                ctx.append_entry("user", &said)?;
                ctx.record_usage("model", used(7))?;
            }
            ctx.flush()?.await?;
            let seen = ctx.messages().await?;
            Ok(json!(seen.iter().map(|entry| entry.new.content.parse::<String>()).collect::<Result<Vec<_>, _>>()?))
        })
    });
    world.worker(serves(quick, &echo(), &Gate::default())).await;
    let handle = begin(&world, "quick", StartLimits::default()).await;
    assert_eq!(result(&handle).await, json!(["a", "b"]), "its code sees its own conversation");
    let run = handle.describe().await.unwrap();
    assert_eq!((run.new.persistence, run.base), (Persistence::Ephemeral, 1), "one commit");
    assert_eq!(run.usage.0["model"], Usage { calls: 2, ..used(14) });
    assert_eq!(tasks(&world, &handle).await, 0);
    assert_eq!(handle.messages().await.unwrap_err().code(), Code::NotPersisted);
    let kinds: Vec<_> = world.events(&handle).await.iter().map(|event| event.kind).collect();
    assert!(!kinds.contains(&EventKind::Entry) && kinds.ends_with(&[EventKind::Usage, EventKind::Completed]));
});

rule!(family_13_a_crash_starts_it_from_the_beginning, world, {
    let (echo, gate) = (echo(), Gate::default());
    let body = walk();
    let worker = world.worker(serves(body.clone(), &echo, &gate)).await;
    let handle = begin(&world, "walk", StartLimits::default()).await;
    gate.begun(1).await;
    world.kill(&worker).await;
    gate.open();
    world.worker(serves(body, &echo, &gate)).await;
    assert_eq!(result(&handle).await, json!("first"));
    assert_eq!(echo.times("first"), 2);
    assert_eq!(persistence(&handle).await, Persistence::Ephemeral);
});

rule!(family_13_it_is_kept_once_somebody_depends_on_it, world, {
    let (echo, gate) = (echo(), Gate::default());
    let body = agent("walk", |ctx| {
        Box::pin(async move {
            let first = say(ctx, "first").await?;
            ctx.append_entry("user", &first)?;
            // The time is that of the task's end, before and after a crash: else this would be another call.
            say(ctx, ctx.current_time().0).await?;
            pass(ctx).await?;
            ctx.wait_for_signal::<Value>("go")?.await?;
            say(ctx, "last").await
        })
    });
    let worker = world.forgetful(serves(body.clone(), &echo, &gate)).await;
    let handle = begin(&world, "walk", StartLimits::default()).await;
    gate.begun(1).await;
    assert_eq!((persistence(&handle).await, tasks(&world, &handle).await), (Persistence::Ephemeral, 0));
    world.clock.advance(Duration::from_secs(5));
    gate.open();
    waits_for(&handle, "go").await;
    assert_eq!((persistence(&handle).await, tasks(&world, &handle).await), (Persistence::Full, 3));
    world.kill(&worker).await;
    world.forgetful(serves(body, &echo, &gate)).await;
    send(&handle, "go", 1).await;
    assert_eq!(result(&handle).await, json!("last"));
    assert_eq!((echo.times("first"), echo.total()), (1, 3), "nothing runs twice");
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
    assert_eq!(handle.messages().await.unwrap().len(), 1);
});

rule!(family_13_what_must_not_run_twice_is_kept_before_it_begins, world, {
    let once = TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() };
    let pay = job("pay", |_, _| Box::pin(std::future::pending())).options(once);
    let (echo, before) = (echo(), Arc::new(AtomicU64::new(0)));
    let host = |echo: &Job| {
        let entered = before.clone();
        let body = agent("walk", move |ctx| {
            entered.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                let first = say(ctx, "first").await?;
                let paid = ctx.schedule::<Value>("pay", &7)?.await?;
                Ok(json!([first, paid, say(ctx, "last").await?]))
            })
        });
        body.host().task(echo.clone()).unwrap().task(pay.clone()).unwrap()
    };
    let worker = world.worker(host(&echo)).await;
    let handle = begin(&world, "walk", StartLimits::default()).await;
    until("the payment runs", || async { pay.total() == 1 }).await;
    assert_eq!((persistence(&handle).await, tasks(&world, &handle).await), (Persistence::Full, 2));
    world.kill(&worker).await;
    world.worker(host(&echo)).await;
    // It is not begun anew: what was done is replayed, and whether the payment was made is for a person to say.
    let in_doubt = || async {
        let run = handle.describe().await.unwrap();
        run.status == Status::Waiting && run.wait.is_some_and(|wait| wait.reason == Some(WaitReason::InDoubt))
    };
    until("a person is asked", in_doubt).await;
    let task = world.tasks(&handle).await.into_iter().find(|task| task.new.kind == "pay").unwrap();
    assert_eq!((task.status, pay.total(), echo.total()), (TaskStatus::InDoubt, 1, 1));
    assert_eq!(before.load(Ordering::SeqCst), 2, "the code was entered again");
    let op = OpId { execution: handle.id(), slot: task.slot, once: None };
    handle.resolve(op, Resolution::Result(Payload::of("receipt").unwrap())).await.unwrap();
    assert_eq!(result(&handle).await, json!(["first", "receipt", "last"]));
    assert_eq!((pay.total(), echo.times("first"), echo.total()), (1, 1, 2), "nothing runs twice");
});

rule!(family_13_enabling_persistence_keeps_all_so_far, world, {
    let (echo, gate) = (echo(), Gate::default());
    let host = |echo: &Job, gate: &Gate| {
        let body = stateful("walk", |ctx| {
            Box::pin(async move {
                let begun: State = ctx.state()?;
                if begun.0.is_null() {
                    let first = say(ctx, "first").await?;
                    ctx.append_entry("user", &first)?;
                    ctx.checkpoint_raw(Payload::of("begun")?)?.await?;
                }
                let second = say(ctx, "second").await?;
                ctx.append_entry("user", &second)?;
                ctx.enable_persistence()?.await?;
                pass(ctx).await?;
                Ok(json!(ctx.messages().await?.len()))
            })
        });
        body.task(echo.clone()).unwrap().task(gate.task()).unwrap()
    };
    let worker = world.worker(host(&echo, &gate)).await;
    let handle = begin(&world, "walk", StartLimits::default()).await;
    gate.begun(1).await;
    assert_eq!((persistence(&handle).await, handle.messages().await.unwrap().len()), (Persistence::Full, 2));
    assert_eq!(handle.describe().await.unwrap().segment, 1, "its checkpoint is kept too");
    world.kill(&worker).await;
    gate.open();
    world.worker(host(&echo, &gate)).await;
    assert_eq!(result(&handle).await, json!(2));
    assert_eq!((echo.times("first"), echo.times("second")), (1, 1));
});

rule!(family_13_a_draining_worker_keeps_what_is_done, world, {
    let (echo, gate) = (echo(), Gate::default());
    let body = walk();
    let worker = world.worker(serves(body.clone(), &echo, &gate)).await;
    let handle = begin(&world, "walk", StartLimits::default()).await;
    gate.begun(1).await;
    drop(worker.close(Duration::from_millis(50)).await);
    gate.open();
    world.worker(serves(body, &echo, &gate)).await;
    assert_eq!(result(&handle).await, json!("first"));
    assert_eq!(echo.times("first"), 1);
});

rule!(family_13_what_it_tells_its_parent_is_told_once, world, {
    let (echo, gate) = (echo(), Gate::default());
    let host = |echo: &Job, gate: &Gate| {
        let child = agent("child", |ctx| {
            Box::pin(async move {
                say(ctx, "first").await?;
                ctx.signal_parent("progress", &1)?.await?;
                pass(ctx).await
            })
        });
        let parent = agent("parent", |ctx| {
            Box::pin(async move {
                let options = ChildOptions { persistence: Persistence::Ephemeral, ..ChildOptions::default() };
                let child = ctx.spawn_agent_with::<Value>("child", &Value::Null, options)?;
                let (mut heard, id) = (0, child.id());
                loop {
                    match ctx.wait_for_child_event(id, None)?.await? {
                        flovyn_core::model::ChildEvent::Signal { .. } => heard += 1,
                        _ => return Ok(json!(heard)),
                    }
                }
            })
        });
        parent.host().agent(child).unwrap().task(echo.clone()).unwrap().task(gate.task()).unwrap()
    };
    let worker = world.forgetful(host(&echo, &gate)).await;
    let handle = world.start("parent").await;
    gate.begun(1).await;
    world.kill(&worker).await;
    gate.open();
    world.forgetful(host(&echo, &gate)).await;
    assert_eq!(result(&handle).await, json!(1));
    assert_eq!(echo.times("first"), 1);
});

rule!(family_13_limits_hold, world, {
    let body = agent("walk", |ctx| {
        Box::pin(async move {
            for turn in 0..4 {
                ctx.step()?.await?;
                say(ctx, turn).await?;
            }
            Ok(Value::Null)
        })
    });
    let echo = echo();
    world.worker(serves(body, &echo, &Gate::default())).await;
    let handle = begin(&world, "walk", StartLimits { max_steps: Some(2), ..StartLimits::default() }).await;
    has_status(&handle, Status::Paused).await;
    let run = handle.describe().await.unwrap();
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::StepLimit));
    assert_eq!((echo.total(), run.new.persistence), (2, Persistence::Full));
});

rule!(family_13_one_that_failed_begins_anew, world, {
    let fails = Arc::new(AtomicBool::new(true));
    let echo = echo();
    let failing = fails.clone();
    let body = agent("walk", move |ctx| {
        let fails = failing.load(Ordering::SeqCst);
        Box::pin(async move {
            let first = say(ctx, "first").await?;
            ctx.record_usage("model", used(3))?;
            if fails { Err(Error::new(Code::AgentFailed, "no luck")) } else { Ok(first) }
        })
    });
    world.worker(serves(body, &echo, &Gate::default())).await;
    let handle = begin(&world, "walk", StartLimits::default()).await;
    has_status(&handle, Status::Failed).await;
    fails.store(false, Ordering::SeqCst);
    handle.retry(Default::default()).await.unwrap();
    assert_eq!(result(&handle).await, json!("first"));
    assert_eq!((echo.times("first"), world.warnings(&handle, "diverged").await), (2, 0));
    let run = handle.describe().await.unwrap();
    assert_eq!((run.new.persistence, run.usage.0["model"].input_tokens), (Persistence::Ephemeral, 6));
});
