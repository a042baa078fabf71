//! Corners of the rules: what is refused and how it is told, runs that nobody can finish, runs that wait in memory.

use crate::rule;
use crate::world::*;
use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContextExt, Selected};
use flovyn_core::error::Code;
use flovyn_core::id::OpId;
use flovyn_core::model::{Delivery, ResumeRequest, SideEffects, Status, TaskOptions, TaskStatus, WaitReason};
use flovyn_core::worker::WorkerOptions;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a run failed with.
async fn failure(handle: &flovyn_core::client::Handle) -> (Code, String) {
    has_status(handle, Status::Failed).await;
    let failure = handle.describe().await.unwrap().failure.expect("a failed run says why");
    (failure.code, failure.message)
}

rule!(rule_07_work_before_the_loop_is_noticed, world, {
    // The first call is another kind of step than the tail's first, or the same kind with other words.
    for kind in ["other", "echo"] {
        let preparing = stateful("preparing", move |ctx| {
            Box::pin(async move {
                ctx.schedule::<Value>(kind, "prepare")?.await?;
                let mut done: u64 = ctx.state::<State>()?.0.as_u64().unwrap_or(0);
                while done < 3 {
                    say(ctx, format!("step {done}")).await?;
                    if done == 1 {
                        ctx.wait_for_signal::<Value>("go")?.await?;
                    }
                    done += 1;
                    ctx.checkpoint(&done)?.await?;
                }
                Ok(json!(done))
            })
        });
        let (echo, other) = (echo(), job("other", |_, input| Box::pin(async move { Ok(input) })));
        let worker = world.forgetful(preparing.task(echo.clone()).unwrap().task(other).unwrap()).await;
        let handle = world.start("preparing").await;
        waits_for(&handle, "go").await;
        send(&handle, "go", ()).await;
        let (code, message) = failure(&handle).await;
        assert_eq!(code, Code::PreambleOp, "{message}");
        for word in [format!("task {kind:?}").as_str(), "task \"echo\"", "ctx.once"] {
            assert!(message.contains(word), "{word:?} is missing in {message:?}");
        }
        // Nothing of the recorded segment was done again.
        assert_eq!(echo.times("step 1"), 1);
        worker.close(Duration::from_secs(5)).await.unwrap();
    }
});

rule!(rule_07_a_volatile_payment_is_not_taken_for_the_recorded_one, world, {
    let lives = Arc::new(AtomicU64::new(0));
    let counted = lives.clone();
    let payer = agent("payer", move |ctx| {
        let life = counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let receipt: Value = ctx.schedule("pay", &json!(["at", life]))?.await?;
            ctx.wait_for_signal::<Value>("go")?.await?;
            Ok(receipt)
        })
    });
    let pay = job("pay", |_, input| Box::pin(async move { Ok(input) }));
    let pay = pay.options(TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() });
    world.forgetful(payer.host().task(pay.clone()).unwrap()).await;
    let handle = world.start("payer").await;
    waits_for(&handle, "go").await;
    send(&handle, "go", ()).await;
    // Whether it is the same payment is for a person to say.
    has_status(&handle, Status::Paused).await;
    let run = handle.describe().await.unwrap();
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Divergence));
    assert_eq!((pay.total(), world.warnings(&handle, "reworded").await), (1, 0));
});

rule!(rule_05_a_once_keeps_its_first_result, world, {
    let lives = Arc::new(AtomicU64::new(0));
    let counted = lives.clone();
    let planner = stateful("planner", move |ctx| {
        let life = counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let plan: Value = ctx.once("plan", &1, |ctx| async move { say(&ctx, json!(["plan", life])).await }).await?;
            let mut done: u64 = ctx.state::<State>()?.0.as_u64().unwrap_or(0);
            while done < 2 {
                ctx.wait_for_signal::<Value>("go")?.await?;
                done += 1;
                ctx.checkpoint(&done)?.await?;
            }
            // With another input it is not the same thing any more.
            let changed = ctx.once("plan", &2, |_| async { Ok(json!("another")) }).await;
            Ok(json!([plan, changed.unwrap_err().code().as_str()]))
        })
    });
    let echo = echo();
    world.forgetful(planner.task(echo.clone()).unwrap()).await;
    let handle = world.start("planner").await;
    for segment in 0..2 {
        until("the segment begins", || async { handle.describe().await.unwrap().segment == segment }).await;
        waits_for(&handle, "go").await;
        send(&handle, "go", ()).await;
    }
    assert_eq!(result(&handle).await, json!([["plan", 0], "OnceChanged"]));
    assert!(lives.load(Ordering::SeqCst) >= 3);
    assert_eq!(echo.total(), 1);
});

rule!(rule_09_a_run_that_kills_every_worker_is_quarantined, world, {
    let handle = world.start("deadly").await;
    for loss in 1..=20u32 {
        let claim = world.storage.claim_agents(claim_by(1_000 + u128::from(loss), "deadly")).await.unwrap().remove(0);
        assert_eq!(claim.execution.losses, loss - 1);
        world.clock.advance(Duration::from_secs(31));
        world.storage.pass().await.unwrap();
        let expected = if loss < 20 { Status::Pending } else { Status::Paused };
        assert_eq!(handle.status().await.unwrap(), expected, "after {loss} losses");
    }
    let quarantined = async || handle.describe().await.unwrap().wait.and_then(|wait| wait.reason);
    assert_eq!(quarantined().await, Some(WaitReason::Quarantined));
    // A resume tries once more.
    handle.resume(ResumeRequest::default()).await.unwrap();
    world.storage.claim_agents(claim_by(2_000, "deadly")).await.unwrap().remove(0);
    world.clock.advance(Duration::from_secs(31));
    world.storage.pass().await.unwrap();
    assert_eq!(quarantined().await, Some(WaitReason::Quarantined));
    handle.resume(ResumeRequest::default()).await.unwrap();
    world.worker(agent("deadly", |ctx| Box::pin(async move { say(ctx, 1).await })).host().task(echo()).unwrap()).await;
    assert_eq!(result(&handle).await, json!(1));
});

rule!(rule_10_an_inline_step_that_kills_its_process_is_quarantined, world, {
    let deadly = job("deadly", |_, _| Box::pin(std::future::pending()));
    let host = || agent("fated", |ctx| Box::pin(async move { ctx.schedule::<Value>("deadly", &1)?.await })).host();
    let handle = world.start("fated").await;
    for attempt in 1..=20usize {
        let worker = world.worker(host().task(deadly.clone()).unwrap()).await;
        until("the attempt runs and is durable", || async {
            let tasks = world.tasks(&handle).await;
            deadly.total() == attempt && tasks.first().is_some_and(|task| task.attempt as usize == attempt)
        })
        .await;
        world.kill(&worker).await;
    }
    // The next one does not start it: its first commit says that it was enough.
    world.worker(host().task(deadly.clone()).unwrap()).await;
    has_status(&handle, Status::Paused).await;
    let run = handle.describe().await.unwrap();
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Quarantined));
    let task = world.tasks(&handle).await.remove(0);
    assert_eq!((task.status, task.failed_attempts, deadly.total()), (TaskStatus::Quarantined, 0, 20));
    let op = OpId { execution: handle.id(), slot: task.slot, once: None };
    handle.resolve(op, flovyn_core::model::Resolution::Result(Payload::of(&7).unwrap())).await.unwrap();
    assert_eq!(result(&handle).await, json!(7));
});

rule!(rule_20_bad_input_is_named_and_nothing_is_lost, world, {
    let client = world.client();
    // The same id with another input.
    let once = StartOptions { id: Some("order-1".into()), ..StartOptions::default() };
    let handle = client.start("typed", Payload::of(&1).unwrap(), once.clone()).await.unwrap();
    let again = client.start("typed", Payload::of(&1).unwrap(), once.clone()).await.unwrap();
    assert_eq!(again.id(), handle.id());
    let other = client.start("typed", Payload::of(&2).unwrap(), once).await.err().unwrap();
    assert!(other.code() == Code::ExecutionExists && other.message().contains("order-1"), "{other}");
    // A state, a signal and a result of another form than the code expects.
    let typed = stateful("typed", |ctx| {
        Box::pin(async move {
            if ctx.raw_state().is_none() {
                ctx.checkpoint(&"not a list")?.await?;
            }
            let signal = ctx.wait_for_signal::<u64>("number")?.await.unwrap_err();
            let state = ctx.state::<Vec<u64>>().unwrap_err();
            let output = ctx.schedule::<u64>("echo", "words")?.await.unwrap_err();
            let refused = [state, signal, output].map(|error| json!([error.code().as_str(), error.message()]));
            Ok(json!(refused))
        })
    });
    world.forgetful(typed.task(echo()).unwrap()).await;
    waits_for(&handle, "number").await;
    send(&handle, "number", "seven").await;
    for (told, form) in result(&handle).await.as_array().unwrap().iter().zip(["Vec<u64>", "u64", "u64"]) {
        assert_eq!(told[0], "NotSerializable");
        assert!(told[1].as_str().unwrap().contains(form), "{told}");
    }
    // A value without a JSON form.
    let keys = std::collections::HashMap::from([((1, 2), 3)]);
    let agent = agent("bad", move |ctx| {
        let keys = keys.clone();
        Box::pin(async move {
            let refused = ctx.append_entry("user", &keys).unwrap_err();
            let refused = [refused.code(), ctx.schedule::<Value>("echo", &keys).err().unwrap().code()];
            say(ctx, "still here").await?;
            Ok(json!(refused.map(Code::as_str)))
        })
    });
    world.worker(agent.host().task(echo()).unwrap()).await;
    let handle = world.start("bad").await;
    assert_eq!(result(&handle).await, json!(["NotSerializable", "NotSerializable"]));
    assert_eq!(world.journal(&handle, 0).await.len(), 1);
});

/// Names what was dropped.
struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Named {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// A run with so many steps behind it that waits.
fn waiter(kind: &'static str, steps: u64, dropped: &Arc<Mutex<Vec<&'static str>>>) -> Agent {
    let dropped = dropped.clone();
    agent(kind, move |ctx| {
        let alive = Named(kind, dropped.clone());
        Box::pin(async move {
            let _alive = alive;
            for step in 0..steps {
                say(ctx, step).await?;
            }
            ctx.wait_for_signal::<Value>("go")?.await
        })
    })
}

/// Time is virtual here: the worker's own timers run as soon as nothing else does.
#[tokio::test(start_paused = true)]
async fn rule_19_a_waiting_run_is_put_away_by_age_unless_a_host_timer_was_at_work() {
    let world = World::memory();
    let dropped = Arc::default();
    let hurried = agent("hurried", |ctx| {
        Box::pin(async move {
            let waits = vec![ctx.wait_raw("never", None)?, ctx.wait_raw("quick", None)?];
            drop(Selected::first_of(waits).await);
            ctx.wait_for_signal::<Value>("go")?.await
        })
    });
    let host = waiter("plain", 1, &dropped).host().agent(hurried).unwrap().task(echo()).unwrap();
    let options = WorkerOptions { max_parked_age: Duration::from_secs(60), ..WorkerOptions::default() };
    let worker = world.runtime.worker(Arc::new(host), options).await.unwrap();
    let (plain, hurried) = (world.start("plain").await, world.start("hurried").await);
    waits_for(&hurried, "quick").await;
    send(&hurried, "quick", ()).await;
    for handle in [&plain, &hurried] {
        waits_for(handle, "go").await;
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!((worker.parked(), dropped.lock().unwrap().len()), (2, 0));
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!((worker.parked(), &dropped.lock().unwrap()[..]), (1, &["plain"][..]));
    assert_eq!(world.warnings(&hurried, "abandoned").await, 1);
    for handle in [&plain, &hurried] {
        send(handle, "go", 1).await;
        assert_eq!(result(handle).await, json!(1));
    }
}

rule!(rule_19_the_run_with_the_shortest_tail_goes_first, world, {
    let dropped = Arc::default();
    let host = waiter("long", 6, &dropped).host();
    let host = host.agent(waiter("short", 1, &dropped)).unwrap().agent(waiter("longer", 9, &dropped)).unwrap();
    let options = WorkerOptions { max_parked: 2, ..WorkerOptions::default() };
    let worker = world.runtime.worker(Arc::new(host.task(echo()).unwrap()), options).await.unwrap();
    let mut handles = Vec::new();
    for (n, kind) in ["long", "short", "longer"].into_iter().enumerate() {
        handles.push(world.start(kind).await);
        until("it is parked", || async { worker.parked() == (n + 1).min(2) && worker.active() == 0 }).await;
        waits_for(&handles[n], "go").await;
    }
    until("one has to go", || async { dropped.lock().unwrap().len() == 1 }).await;
    assert_eq!(dropped.lock().unwrap()[..], ["short"]);
    for handle in &handles {
        send(handle, "go", 1).await;
        assert_eq!(result(handle).await, json!(1));
    }
});

rule!(rule_02_what_no_backend_keeps_is_refused_at_the_call, world, {
    let odd = agent("odd", |ctx| {
        Box::pin(async move {
            let refused: Vec<Code> = [
                ctx.append_entry("us\0er", &1).map(drop),
                ctx.schedule::<Value>("ec\0ho", "x").map(drop),
                ctx.wait_for_signal::<Value>("g\0o").map(drop),
                ctx.has_signal("g\0o").map(drop),
                ctx.thread("si\0de").append_entry("user", &1).map(drop),
            ]
            .into_iter()
            .filter_map(|done| done.err().map(|error| error.code()))
            .collect();
            assert_eq!(refused, [Code::InvalidArgument; 5]);
            // The run goes on: nothing of it came into its batch.
            say(ctx, "well").await
        })
    });
    world.forgetful(odd.host().task(echo()).unwrap()).await;
    let handle = world.start("odd").await;
    assert_eq!(result(&handle).await, json!("well"));
    let sent = handle.signal("g\0o", Payload::null(), Delivery::default(), None).await;
    assert_eq!(sent.unwrap_err().code(), Code::InvalidArgument);
});
