//! Rules 14 to 20: sizes, the tree, streams, damage, memory, transitions.

use crate::rule;
use crate::world::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::{StartOptions, StreamEvent};
use flovyn_core::context::{AgentContext, AgentContextExt, Message};
use flovyn_core::error::{Code, Error};
use flovyn_core::model::{
    Batch, CancelMode, ChunkKind, EventId, EventKind, ForkFrom, PageRequest, ResumeRequest, RetryPolicy, StartLimits,
    Status, TaskOptions, WaitReason,
};
use flovyn_core::worker::WorkerOptions;
use futures::future::try_join;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

rule!(rule_14_payloads_are_opaque_and_bounded, world, {
    let large = "x".repeat(300 * 1024);
    let sizes = agent("sizes", |ctx| {
        Box::pin(async move {
            let big: String = ctx.schedule("big", &(300 * 1024))?.await?;
            ctx.append_entry("assistant", &big)?;
            let raw = Message {
                role: "tool".into(),
                content: Payload::raw(vec![0u8, 159, 146, 150]),
                entry_type: "message".into(),
                turn_id: None,
                metadata: None,
            };
            ctx.append_message(raw)?;
            let refused = ctx.append_entry("user", &"y".repeat(1024 * 1024)).unwrap_err();
            let failed = ctx.schedule::<String>("big", &(1024 * 1024))?.await.unwrap_err();
            ctx.wait_for_signal::<Value>("go")?.await?;
            Ok(json!([big.len(), refused.code().as_str(), refused.message(), failed.message()]))
        })
    });
    let big = job("big", |_, size| Box::pin(async move { Ok(json!("x".repeat(size.as_u64().unwrap_or(0) as usize))) }));
    let options = WorkerOptions { max_payload: 512 * 1024, max_parked: 0, ..WorkerOptions::default() };
    let host = sizes.host().task(big.clone()).unwrap();
    world.runtime.worker(Arc::new(host), options).await.unwrap();
    let handle = world.start("sizes").await;
    waits_for(&handle, "go").await;
    send(&handle, "go", ()).await;
    let told = result(&handle).await;
    assert_eq!((&told[0], &told[1]), (&json!(300 * 1024), &json!("PayloadTooLarge")));
    for message in [&told[2], &told[3]] {
        let message = message.as_str().unwrap();
        assert!(message.contains("1048578") && message.contains("524288"), "{message}");
    }
    assert_eq!(big.total(), 2);
    let messages = handle.messages().await.unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0].new.content.parse::<String>().unwrap(), large);
    assert_eq!(&messages[1].new.content.bytes().unwrap()[..], [0, 159, 146, 150]);
});

fn chatter() -> NativeHost {
    stateful("chatter", |ctx| {
        Box::pin(async move {
            let mut turn: u64 = ctx.state::<State>()?.0.as_u64().unwrap_or(0);
            let turns = ctx.input::<u64>()?;
            while turn < turns {
                ctx.append_entry("user", &format!("{turn} {}", "q".repeat(400)))?;
                let answer = say(ctx, format!("{turn} {}", "a".repeat(600))).await?;
                ctx.append_entry("assistant", &answer)?;
                turn += 1;
                ctx.checkpoint(&turn)?.await?;
            }
            Ok(json!(ctx.messages().await?.len()))
        })
    })
}

rule!(rule_15_a_run_stores_each_word_once, world, {
    world.worker(chatter().task(echo()).unwrap()).await;
    let mut sizes = Vec::new();
    for turns in [40u64, 80] {
        let before = world.stored_size();
        let (client, input) = (world.client(), Payload::of(&turns).unwrap());
        let handle = client.start("chatter", input, StartOptions::default()).await.unwrap();
        assert_eq!(result(&handle).await, json!(2 * turns));
        let stored = match (before, world.stored_size()) {
            (Some(before), Some(after)) => after - before,
            _ => {
                let page = PageRequest { limit: 1_000, after: None };
                let entries = world.storage.entries(ORG, handle.id(), page.clone()).await.unwrap().items;
                let entries: u64 = entries.iter().map(|entry| entry.new.content.size()).sum();
                let tasks = world.tasks(&handle).await;
                let tasks =
                    tasks.iter().map(|task| task.new.input.size() + task.output.as_ref().map_or(0, Payload::size));
                let checkpoints = world.storage.checkpoints(ORG, handle.id(), page).await.unwrap().items;
                let states: u64 = checkpoints.iter().map(|one| one.saved.state.size()).sum();
                entries + tasks.sum::<u64>() + states
            }
        };
        sizes.push(stored);
        // Recovery reads what came after the last checkpoint, however long the run is.
        let segment = handle.describe().await.unwrap().segment;
        assert!(world.journal(&handle, segment).await.len() <= 3);
    }
    // Twice the turns are about twice the bytes, not four times.
    assert!(sizes[1] <= sizes[0] * 5 / 2 + 65_536, "{sizes:?}");
});

rule!(rule_16_the_tree_survives, world, {
    let teller = agent("teller", |ctx| {
        Box::pin(async move {
            ctx.append_entry("user", "begin")?;
            let side = ctx.thread("side");
            side.append_entry("user", "aside")?;
            let (a, b) = try_join(say(ctx, "a"), say(&side, "b")).await?;
            side.append_entry("assistant", &b)?;
            ctx.append_entry("assistant", &a)?;
            let end: Value = ctx.wait_for_signal("end")?.await?;
            ctx.append_entry("user", &end)?;
            Ok(json!([ctx.messages().await?.len(), side.messages().await?.len()]))
        })
    });
    let echo = echo();
    world.forgetful(teller.host().task(echo.clone()).unwrap()).await;
    let handle = world.start("teller").await;
    waits_for(&handle, "end").await;
    let shared = handle.messages().await.unwrap();
    assert_eq!(shared.len(), 2);
    let fork = handle.fork(ForkFrom::Entry(shared[1].new.id), Some("other way"), None, None).await.unwrap();
    waits_for(&fork, "end").await;
    send(&handle, "end", "here").await;
    send(&fork, "end", "there").await;
    assert_eq!(result(&handle).await, json!([3, 3]));
    assert_eq!(result(&fork).await, json!([3, 3]));
    // The fork shares what came before and repeats none of it.
    assert_eq!(echo.total(), 2);
    let (one, two) = (handle.messages().await.unwrap(), fork.messages().await.unwrap());
    assert_eq!((one[0].new.id, one[1].new.id), (two[0].new.id, two[1].new.id));
    assert_ne!(one[2].new.id, two[2].new.id);
    assert_eq!(two[2].new.content.parse::<String>().unwrap(), "there");
    let all = handle.entries(PageRequest::default()).await.unwrap().items;
    assert_eq!(all.len(), 5);
});

/// What a reader shows at the end: the previews that were not taken back, by op.
async fn read(handle: &flovyn_core::client::Handle, after: Option<EventId>) -> (Vec<EventId>, HashMap<u32, String>) {
    let (mut ids, mut shown) = (Vec::new(), HashMap::<u32, String>::new());
    let mut stream = handle.stream(after);
    while let Some(event) = stream.next().await.unwrap() {
        ids.push(event.id());
        match event {
            StreamEvent::Chunk(_, chunk) => shown.entry(chunk.sequence).or_default().push_str(&chunk.data),
            StreamEvent::Retract { op, .. } => drop(shown.remove(&op.1)),
            _ => {}
        }
    }
    (ids, shown)
}

rule!(rule_17_an_agents_own_words_are_shown_after_a_task_and_taken_back_by_a_claim, world, {
    let slow = job("slow", |_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(json!("done"))
        })
    });
    let host = |name: &'static str| {
        let talks = agent("talks", move |ctx| {
            Box::pin(async move {
                ctx.schedule::<Value>("slow", &1)?.await?;
                ctx.stream_token(name);
                match name {
                    "first" => std::future::pending().await,
                    _ => Ok(ctx.wait_for_signal::<Value>("end")?.await?),
                }
            })
        });
        talks.host().task(slow.clone()).unwrap()
    };
    let first = world.worker(host("first")).await;
    let handle = world.start("talks").await;
    let mut stream = handle.stream(None);
    let mut shown = String::new();
    let mut read_until = async |end: &str| {
        while shown != end {
            let next = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
            match next.unwrap_or_else(|_| panic!("shown is {shown:?}, not {end:?}")).unwrap() {
                Some(StreamEvent::Chunk(_, chunk)) => shown.push_str(&chunk.data),
                Some(StreamEvent::Retract { .. }) => shown.clear(),
                _ => {}
            }
        }
    };
    read_until("first").await;
    world.kill(&first).await;
    world.worker(host("second")).await;
    read_until("second").await;
    send(&handle, "end", "enough").await;
    assert_eq!(result(&handle).await, json!("enough"));
});

rule!(rule_17_streams_are_fenced, world, {
    let model = job("model", |ctx, _| {
        Box::pin(async move {
            for word in ["try", " "] {
                ctx.stream_token(&format!("{word}{}", ctx.attempt()));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            match ctx.attempt() {
                1 => std::future::pending().await,
                _ => Ok(json!("done")),
            }
        })
    });
    let host = |model: &Job| {
        let streams = agent("streams", |ctx| {
            Box::pin(async move {
                ctx.stream(ChunkKind::Data, "\"thinking\"");
                ctx.schedule::<Value>("model", &1)?.await
            })
        });
        streams.host().task(model.clone()).unwrap()
    };
    let first = world.worker(host(&model)).await;
    let handle = world.start("streams").await;
    let watching = tokio::spawn({
        let handle = handle.clone();
        async move { read(&handle, None).await }
    });
    until("the first attempt streams", || async { model.total() == 1 }).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    world.kill(&first).await;
    world.worker(host(&model)).await;
    assert_eq!(result(&handle).await, json!("done"));
    let (ids, shown) = watching.await.unwrap();
    assert!(shown.values().all(|text| !text.contains('1')), "{shown:?}");
    assert!(ids.windows(2).all(|two| two[0] <= two[1]), "{ids:?}");
    // Whoever resumes after an id ends with the same events.
    for at in 0..ids.len() {
        let ids_at = ids[at];
        let (rest, _) = read(&handle, Some(ids_at)).await;
        let durable = |ids: &[EventId]| {
            let mut later: Vec<_> = ids.iter().copied().filter(|id| *id > ids_at).collect();
            later.dedup();
            later
        };
        assert_eq!(durable(&rest), durable(&ids[at + 1..]), "after {ids_at}");
    }
});

rule!(rule_18_a_corrupt_checkpoint_is_noticed, world, {
    let counter = || {
        stateful("counter", |ctx| {
            Box::pin(async move {
                let mut done: u64 = ctx.state::<State>()?.0.as_u64().unwrap_or(0);
                while done < 4 {
                    say(ctx, format!("step {done}")).await?;
                    say(ctx, format!("more {done}")).await?;
                    if done == 3 {
                        ctx.wait_for_signal::<Value>("go")?.await?;
                    }
                    done += 1;
                    ctx.checkpoint(&done)?.await?;
                }
                Ok(json!(done))
            })
        })
    };
    for lost in [vec![3], vec![2, 3], vec![1, 2, 3]] {
        let echo = echo();
        let worker = world.forgetful(counter().task(echo.clone()).unwrap()).await;
        let handle = world.start("counter").await;
        waits_for(&handle, "go").await;
        for sequence in &lost {
            assert!((world.corrupt)(handle.id(), *sequence));
        }
        send(&handle, "go", ()).await;
        if lost.len() < 3 {
            // A segment more is replayed for each, from its complete tail: nothing is done twice.
            assert_eq!(result(&handle).await, json!(4));
            for step in 0..4 {
                assert_eq!(echo.times(format!("step {step}")), 1, "step {step}");
                assert_eq!(echo.times(format!("more {step}")), 1, "more {step}");
            }
        } else {
            has_status(&handle, Status::Paused).await;
            let run = handle.describe().await.unwrap();
            assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Quarantined));
            let failure = run.failure.unwrap();
            assert_eq!(failure.code, Code::CorruptCheckpoint);
            assert!(failure.message.contains("3, 2, 1"), "{}", failure.message);
        }
        worker.close(Duration::from_secs(5)).await.unwrap();
    }
});

rule!(rule_19_nothing_waits_in_memory_for_ever, world, {
    let dropped: Arc<Mutex<u64>> = Arc::default();
    struct Counted(Arc<Mutex<u64>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let counted = dropped.clone();
    let waiter = agent("waiter", move |ctx| {
        let alive = Counted(counted.clone());
        Box::pin(async move {
            let _alive = alive;
            say(ctx, "before").await?;
            let value: Value = ctx.wait_for_signal("go")?.await?;
            Ok(value)
        })
    });
    let echo = echo();
    let options = WorkerOptions { max_parked: 3, ..WorkerOptions::default() };
    let worker = world.runtime.worker(Arc::new(waiter.host().task(echo.clone()).unwrap()), options).await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..12 {
        handles.push(world.start("waiter").await);
    }
    for handle in &handles {
        waits_for(handle, "go").await;
    }
    until("three are kept", || async { worker.parked() == 3 && worker.active() == 0 }).await;
    until("nine were dropped", || async { *dropped.lock().unwrap() == 9 }).await;
    for (n, handle) in handles.iter().enumerate() {
        send(handle, "go", n).await;
    }
    for (n, handle) in handles.iter().enumerate() {
        assert_eq!(result(handle).await, json!(n));
    }
    assert_eq!(echo.total(), 12);
    until("nothing is left", || async { *dropped.lock().unwrap() == 21 && worker.parked() == 0 }).await;
});

/// Virtual time: the cache looks at ages with every heartbeat.
#[tokio::test(start_paused = true)]
async fn rule_19_no_run_is_put_away_twice_without_progress() {
    let world = World::memory();
    let entered: Arc<Mutex<u64>> = Arc::default();
    let told = entered.clone();
    let patient = agent("patient", move |ctx| {
        *told.lock().unwrap() += 1;
        Box::pin(async move {
            let both = (ctx.wait_for_signal::<Value>("a")?, ctx.wait_for_signal::<Value>("b")?);
            futures::future::try_join(both.0, both.1).await?;
            ctx.wait_for_signal::<Value>("c")?.await?;
            Ok(json!("end"))
        })
    });
    let options = WorkerOptions { max_parked_age: Duration::from_secs(1), ..WorkerOptions::default() };
    let worker = world.runtime.worker(Arc::new(patient.host()), options).await.unwrap();
    let handle = world.start("patient").await;
    waits_for(&handle, "a").await;
    let lives = || *entered.lock().unwrap();
    until("it is put away for its age", || async { worker.parked() == 0 && worker.active() == 0 }).await;
    // One of two signals brings it back and no further: it stays.
    send(&handle, "a", ()).await;
    until("it waits again", || async { lives() == 2 && worker.parked() == 1 }).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((worker.parked(), lives()), (1, 2));
    // The next op is progress: its age counts again.
    send(&handle, "b", ()).await;
    waits_for(&handle, "c").await;
    until("it is put away for its age", || async { worker.parked() == 0 && worker.active() == 0 }).await;
    assert_eq!(lives(), 2);
    send(&handle, "c", ()).await;
    assert_eq!(result(&handle).await, json!("end"));
    assert_eq!(lives(), 3);
}

rule!(rule_20_every_transition_is_told_once, world, {
    let retry = RetryPolicy { retries: 1, initial: Duration::ZERO, ..RetryPolicy::default() };
    let flaky = job("flaky", |ctx, _| {
        Box::pin(async move {
            if ctx.attempt() == 1 { Err(Error::new(Code::InvalidArgument, "no")) } else { Ok(json!("yes")) }
        })
    });
    let flaky = flaky.options(TaskOptions { retry, ..TaskOptions::default() });
    let life = agent("life", |ctx| {
        Box::pin(async move {
            ctx.step()?.await?;
            say(ctx, "one").await?;
            ctx.schedule::<Value>("flaky", &1)?.await?;
            ctx.wait_for_signal::<Value>("go")?.await?;
            ctx.step()?.await?;
            Ok(json!("end"))
        })
    });
    world.forgetful(life.host().task(echo()).unwrap().task(flaky).unwrap()).await;
    let limits = StartLimits { max_steps: Some(1), ..StartLimits::default() };
    let options = StartOptions { limits, ..StartOptions::default() };
    let handle = world.client().start("life", Payload::null(), options).await.unwrap();
    waits_for(&handle, "go").await;
    let early = handle.resume(ResumeRequest::default()).await.unwrap_err();
    assert_eq!(early.code(), Code::InvalidTransition);
    send(&handle, "go", ()).await;
    // A limit is an outcome of its own.
    has_status(&handle, Status::Paused).await;
    let reason = handle.describe().await.unwrap().wait.and_then(|wait| wait.reason);
    assert_eq!(reason, Some(WaitReason::StepLimit));
    handle.resume(ResumeRequest { max_steps: Some(5), ..ResumeRequest::default() }).await.unwrap();
    assert_eq!(result(&handle).await, json!("end"));
    let late = handle.resume(ResumeRequest::default()).await.unwrap_err();
    assert_eq!(late.code(), Code::InvalidTransition);
    let ended = handle.cancel(CancelMode::Hard, Duration::ZERO).await.unwrap();
    assert_eq!(ended.status, Status::Completed);

    let events = world.events(&handle).await;
    assert!(events.iter().zip(1..).all(|(event, number)| event.number == number), "the numbers have gaps");
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    use EventKind::*;
    let once = [Created, Signal, Paused, Continued, Completed, TaskRetry];
    for kind in once {
        assert_eq!(count(kind), 1, "{kind:?} in {events:#?}");
    }
    assert_eq!(count(TaskCompleted), 2);
    // Every claim follows a start, a wake-up or a resume.
    assert_eq!(count(Resumed), 1 + count(Woken) + count(Continued));
    assert_eq!(count(Waiting), count(Woken));
    assert!(events.last().is_some_and(|event| event.kind == Completed));
    let other = agent("other", |ctx| Box::pin(async move { say(ctx, 1).await }));
    world.worker(other.host().task(echo()).unwrap()).await;
    let handle = world.start("other").await;
    result(&handle).await;
    let refused = handle.signal("x", Payload::null(), flovyn_core::model::Delivery::NextStep, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::ExecutionClosed);
});

rule!(rule_20_a_run_has_so_many_open_tasks_and_no_more, world, {
    let eager = agent("eager", |ctx| {
        Box::pin(async move {
            let mut open = Vec::new();
            let refused = loop {
                match ctx.schedule::<Value>("nobody", &open.len()) {
                    Ok(step) => open.push(step),
                    Err(error) => break error,
                }
            };
            // What it was told it is told again.
            let go: Value = ctx.wait_for_signal("go")?.await?;
            Ok(json!([open.len(), refused.code().as_str(), go]))
        })
    });
    world.forgetful(eager.host()).await;
    let handle = world.start("eager").await;
    waits_for(&handle, "go").await;
    send(&handle, "go", 1).await;
    assert_eq!(result(&handle).await, json!([Batch::MOST_OPEN, "LimitReached", 1]));
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
});
