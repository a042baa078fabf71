//! Rules 9 to 13: leases, attempts, doubts, signals, awaits that were given up.

use crate::rule;
use crate::world::*;
use flovyn_core::Payload;
use flovyn_core::client::{StartOptions, StreamEvent};
use flovyn_core::context::{AgentContextExt, Selected};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OpId;
use flovyn_core::model::{
    AttemptResult, CancelMode, Delivery, PageRequest, RecordedBody, Resolution, RetryPolicy, SideEffects, Status,
    TaskOptions, TaskReport, TaskStatus, WaitReason,
};
use flovyn_core::storage::Heartbeat;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

rule!(rule_09_at_most_one_advances, world, {
    let steps = |gate: Arc<tokio::sync::Semaphore>| {
        let slow = job("slow", move |_, input| {
            let gate = gate.clone();
            Box::pin(async move {
                let _open = gate.acquire().await;
                Ok(input)
            })
        });
        let steps = agent("steps", |ctx| {
            Box::pin(async move {
                let one = say(ctx, 1).await?;
                let two = ctx.schedule::<Value>("slow", &2)?.await?;
                Ok(json!([one, two]))
            })
        });
        steps.host().task(slow).unwrap()
    };
    let (echo, shut) = (echo(), Arc::new(tokio::sync::Semaphore::new(0)));
    let old = world.worker(steps(shut.clone()).task(echo.clone()).unwrap()).await;
    let handle = world.start("steps").await;
    until("the slow step runs", || async { world.tasks(&handle).await.len() == 2 }).await;
    // Another process takes over; the old one still believes and then reports.
    let epoch = handle.describe().await.unwrap().epoch;
    world.storage.unregister_worker(ORG, old.id()).await.unwrap();
    let open = Arc::new(tokio::sync::Semaphore::new(9));
    world.worker(steps(open).task(echo.clone()).unwrap()).await;
    until("the epoch grew", || async { handle.describe().await.unwrap().epoch > epoch }).await;
    shut.add_permits(9);
    assert_eq!(result(&handle).await, json!([1, 2]));
    assert_eq!(echo.total(), 1);
    let beat = Heartbeat {
        org: ORG,
        worker: old.id(),
        ttl: Duration::from_secs(30),
        executions: vec![(handle.id(), epoch, 0)],
        tasks: Vec::new(),
        progress: Vec::new(),
    };
    assert_eq!(world.storage.heartbeat(beat).await.unwrap().lost_executions, [handle.id()]);

    // A lease that expires makes its run claimable; a panic ends the run at once.
    let handle = world.start("nobody").await;
    let claim = world.storage.claim_agents(claim_by(7, "nobody")).await.unwrap().remove(0);
    world.clock.advance(Duration::from_secs(31));
    world.storage.pass().await.unwrap();
    assert_eq!(handle.status().await.unwrap(), Status::Pending);
    let lost = world.storage.load_segment(ORG, handle.id(), claim.lease).await.unwrap_err();
    assert_eq!(lost.code(), Code::LeaseLost);
    world.worker(agent("broken", |_| Box::pin(async { panic!("on purpose") })).host()).await;
    let handle = world.start("broken").await;
    has_status(&handle, Status::Failed).await;
});

rule!(rule_10_tasks_are_tried_as_often_as_they_may, world, {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = keys.clone();
    let retry = RetryPolicy { retries: 2, initial: Duration::from_millis(1), ..RetryPolicy::default() };
    let flaky = job("flaky", move |ctx, input| {
        told.lock().unwrap().push(ctx.task_id().to_string());
        Box::pin(async move {
            match input.as_str() {
                Some("once") if ctx.attempt() > 1 => Ok(json!("fine")),
                Some("final") => Err(Error::new(Code::NonRetryable, "never again")),
                _ => Err(Error::new(Code::InvalidArgument, "not now")),
            }
        })
    });
    let flaky = flaky.options(TaskOptions { retry, ..TaskOptions::default() });
    let tries = agent("tries", |ctx| {
        Box::pin(async move {
            let mut ends = Vec::new();
            for input in ["once", "always", "final"] {
                ends.push(match ctx.schedule::<Value>("flaky", input)?.await {
                    Ok(value) => value,
                    Err(error) => json!(error.code().as_str()),
                });
            }
            Ok(json!(ends))
        })
    });
    world.worker(tries.host().task(flaky.clone()).unwrap()).await;
    let handle = world.start("tries").await;
    let clock = world.clock.clone();
    let ticking = tokio::spawn(async move {
        loop {
            clock.advance(Duration::from_millis(5));
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let ends = result(&handle).await;
    ticking.abort();
    assert_eq!(ends[0], json!("fine"));
    assert_eq!((flaky.times("once"), flaky.times("always"), flaky.times("final")), (2, 3, 1));
    let keys = keys.lock().unwrap().clone();
    assert!(keys[0] == keys[1] && keys[2] == keys[3] && keys[3] == keys[4] && keys[1] != keys[2], "{keys:?}");
    let tasks = world.tasks(&handle).await;
    assert_eq!(tasks.iter().map(|task| task.failed_attempts).collect::<Vec<_>>(), [1, 3, 1]);

    // Another attempt runs from the queue; a run that is entered again meanwhile joins it.
    let open = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = open.clone();
    let retry = RetryPolicy { retries: 1, initial: Duration::ZERO, ..RetryPolicy::default() };
    let second = job("second", move |ctx, _| {
        let gate = gate.clone();
        Box::pin(async move {
            if ctx.attempt() == 1 {
                return Err(Error::new(Code::InvalidArgument, "not now"));
            }
            let _open = gate.acquire().await;
            Ok(json!(ctx.attempt()))
        })
    });
    let second = second.options(TaskOptions { retry, ..TaskOptions::default() });
    let joins = agent("joins", |ctx| {
        Box::pin(async move {
            let step = ctx.schedule::<Value>("second", &1)?;
            let (step, _) = futures::future::try_join(step, ctx.wait_for_signal::<Value>("go")?).await?;
            Ok(step)
        })
    });
    world.forgetful(joins.host().task(second.clone()).unwrap()).await;
    let handle = world.start("joins").await;
    waits_for(&handle, "go").await;
    until("the second attempt runs", || async { second.total() == 2 }).await;
    let epoch = handle.describe().await.unwrap().epoch;
    send(&handle, "go", ()).await;
    until("the run was entered again", || async { handle.describe().await.unwrap().epoch > epoch }).await;
    has_status(&handle, Status::Waiting).await;
    open.add_permits(9);
    assert_eq!(result(&handle).await, json!(2));
    assert_eq!(second.total(), 2);

    // Attempts lost with their process do not count, but twenty in a row need a person.
    let far = agent("far", |ctx| {
        Box::pin(async move {
            let call = flovyn_core::context::TaskCall {
                kind: "deadly".into(),
                input: Payload::of(&1)?,
                options: None,
                queue: Some("default".into()),
                key: None,
            };
            ctx.schedule_raw(call)?.await?;
            Ok(json!("survived"))
        })
    });
    world.forgetful(far.host()).await;
    let handle = world.start("far").await;
    let mut claimed = 0;
    until("it is quarantined", || {
        claimed += 1;
        let (storage, handle) = (world.storage.clone(), handle.clone());
        async move {
            let claim = claim_by(1_000 + claimed, "deadly");
            storage.claim_tasks(claim.clone()).await.unwrap();
            storage.unregister_worker(ORG, claim.worker).await.unwrap();
            handle.status().await.unwrap() == Status::Paused
        }
    })
    .await;
    let run = handle.describe().await.unwrap();
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Quarantined));
    let task = world.tasks(&handle).await.remove(0);
    assert_eq!((task.status, task.failed_attempts, task.attempt), (TaskStatus::Quarantined, 0, 20));
    let op = OpId { execution: handle.id(), slot: task.slot, once: None };
    handle.resolve(op, Resolution::Result(Payload::of(&1).unwrap())).await.unwrap();
    assert_eq!(result(&handle).await, json!("survived"));
});

rule!(rule_10_progress_is_kept_with_the_task, world, {
    let long = job("long", |ctx, _| {
        Box::pin(async move {
            for n in 0..=1_000 {
                ctx.report_progress(f64::from(n) / 2_000.0, "copying");
            }
            std::future::pending().await
        })
    });
    let copier = agent("copier", |ctx| Box::pin(async move { ctx.schedule::<Value>("long", &1)?.await }));
    world.worker(copier.host().task(long).unwrap()).await;
    let handle = world.start("copier").await;
    let mut events = handle.stream(Default::default());
    let half = json!({"fraction": 0.5, "message": "copying"});
    until("the last report is kept", || async {
        let task = world.tasks(&handle).await.pop();
        let kept = task.and_then(|task| task.progress).map(|kept| serde_json::from_str::<Value>(&kept).unwrap());
        kept == Some(half.clone())
    })
    .await;
    // Watchers see it at once, as a preview.
    let mut last = None;
    while last.as_ref() != Some(&half) {
        if let Some(StreamEvent::Chunk(_, chunk)) = events.next().await.unwrap() {
            last = serde_json::from_str(&chunk.data).ok();
        }
    }
});

rule!(rule_11_side_effects_are_not_repeated, world, {
    let options = |side_effects| TaskOptions { side_effects, ..TaskOptions::default() };
    let pay = job("pay", |_, _| Box::pin(std::future::pending())).options(options(SideEffects::AtMostOnce));
    let post = job("post", |_, _| Box::pin(std::future::pending())).options(options(SideEffects::Reconcile));
    let retry = RetryPolicy { retries: 1, ..RetryPolicy::default() };
    let twice = echo().options(TaskOptions { retry, ..options(SideEffects::AtMostOnce) });
    let refused = flovyn_core::agent::NativeHost::default().task(twice).err().map(|error| error.code());
    assert_eq!(refused, Some(Code::InvalidArgument));
    let careful = |pay: &Job, post: &Job| {
        let careful = agent("careful", |ctx| {
            Box::pin(async move {
                let paid = ctx.schedule::<Value>("pay", &1)?.await?;
                let posted = ctx.schedule::<Value>("post", &2)?.await?;
                Ok(json!([paid, posted]))
            })
        });
        careful.host().task(pay.clone()).unwrap().task(post.clone()).unwrap()
    };
    let first = world.worker(careful(&pay, &post)).await;
    let handle = world.start("careful").await;
    until("the payment runs", || async { pay.total() == 1 }).await;
    // Its intent was durable before its first instruction.
    assert_eq!(world.tasks(&handle).await.len(), 1);
    world.kill(&first).await;
    let second = world.worker(careful(&pay, &post)).await;
    until("a person is asked", || async {
        let run = handle.describe().await.unwrap();
        run.status == Status::Waiting && run.wait.is_some_and(|wait| wait.reason == Some(WaitReason::InDoubt))
    })
    .await;
    let task = world.tasks(&handle).await.remove(0);
    assert_eq!((task.status, pay.total()), (TaskStatus::InDoubt, 1));
    // The late result is accepted while in doubt; the first answer wins.
    let late = TaskReport {
        org: ORG,
        task: task.new.id,
        attempt: task.attempt,
        worker: first.id(),
        result: AttemptResult::Completed(Payload::of("receipt").unwrap()),
    };
    world.storage.report_task(late.clone()).await.unwrap();
    assert_eq!(world.storage.report_task(late).await.unwrap_err().code(), Code::LeaseLost);
    let op = OpId { execution: handle.id(), slot: task.slot, once: None };
    let late_answer = handle.resolve(op, Resolution::Retry).await.unwrap_err();
    assert_eq!(late_answer.code(), Code::InvalidTransition);
    // A lost attempt with a reconcile function asks that instead.
    until("the post runs", || async { post.total() == 1 }).await;
    world.kill(&second).await;
    world.worker(careful(&pay, &post)).await;
    assert_eq!(result(&handle).await, json!(["receipt", {"reconciled": 2}]));
    assert_eq!((pay.total(), post.total()), (1, 1));
});

rule!(rule_12_signals_are_kept_and_taken_once, world, {
    let listener = agent("listener", |ctx| {
        Box::pin(async move {
            let early: Vec<Value> = ctx.drain_signals("mail")?;
            let turn: Value = ctx.wait_for_signal("mail")?.await?;
            let mut rest = Vec::new();
            for _ in 0..2 {
                rest.push(ctx.wait_for_signal::<Value>("more")?.await?);
            }
            Ok(json!([early, turn, rest]))
        })
    });
    let options = StartOptions { id: Some("mailbox".into()), ..StartOptions::default() };
    let handle = world.client().start("listener", Payload::null(), options).await.unwrap();
    let send_as = async |name: &str, value: i32, delivery, key: Option<&str>| {
        handle.signal(name, Payload::of(&value).unwrap(), delivery, key.map(str::to_owned)).await
    };
    // Before anybody has claimed it; a turn's signal is not for a drain between steps.
    let first = send_as("mail", 1, Delivery::NextStep, Some("k")).await.unwrap();
    send_as("mail", 2, Delivery::NextTurn, None).await.unwrap();
    let again = send_as("mail", 1, Delivery::NextStep, Some("k")).await.unwrap();
    assert!(again.repeated && again.id == first.id && !first.repeated);
    world.forgetful(listener.host()).await;
    waits_for(&handle, "more").await;
    send(&handle, "more", 3).await;
    send(&handle, "more", 4).await;
    assert_eq!(result(&handle).await, json!([[1], 2, [3, 4]]));
    let stored = world.storage.signals(ORG, handle.id(), PageRequest::default()).await.unwrap().items;
    assert_eq!(stored.len(), 4);
    assert!(stored.iter().all(|signal| signal.consumed_by.is_some()));
    // After the end: a retry gets its first answer, anything new is refused.
    let late = send_as("mail", 1, Delivery::NextStep, Some("k")).await.unwrap();
    assert!(late.repeated && late.id == first.id);
    let refused = send_as("mail", 9, Delivery::NextStep, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::ExecutionClosed);
    assert!(refused.message().contains("\"mailbox\""), "it names the run as its user did: {refused}");
});

rule!(rule_12_what_a_drain_took_is_its_own_after_a_crash, world, {
    let collector = agent("collector", |ctx| {
        Box::pin(async move {
            let go = ctx.wait_for_signal::<Value>("go")?;
            let early: Vec<Value> = ctx.drain_signals("mail")?;
            go.await?;
            let late: Vec<Value> = ctx.drain_signals("mail")?;
            ctx.wait_for_signal::<Value>("end")?.await?;
            Ok(json!([early, late]))
        })
    });
    let handle = world.start("collector").await;
    send(&handle, "mail", 1).await;
    world.forgetful(collector.host()).await;
    waits_for(&handle, "go").await;
    send(&handle, "mail", 2).await;
    send(&handle, "go", ()).await;
    waits_for(&handle, "end").await;
    send(&handle, "end", ()).await;
    // As many as the first, and others.
    assert_eq!(result(&handle).await, json!([[1], [2]]));
    let stored = world.storage.signals(ORG, handle.id(), PageRequest::default()).await.unwrap().items;
    assert!(stored.iter().all(|signal| signal.consumed_by.is_some()), "{stored:?}");
});

rule!(rule_12_a_signal_now_cuts_the_model_call_short, world, {
    let model = job("model", |ctx, input| {
        Box::pin(async move {
            ctx.stream_token("once ");
            ctx.stream_token("upon");
            if input == json!("quick") { Ok(json!("the end")) } else { std::future::pending().await }
        })
    });
    let model = model.options(TaskOptions { interruptible: true, ..TaskOptions::default() });
    let deaf = job("deaf", |_, input| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(input)
        })
    });
    let teller = agent("teller", |ctx| {
        Box::pin(async move {
            let quick: Value = ctx.schedule("model", "quick")?.await?;
            let go: Value = ctx.wait_for_signal("go")?.await?;
            // What was there before a call does not cut it short; other tasks run on.
            let deaf = ctx.schedule::<Value>("deaf", "whole")?;
            let (deaf, slow) = futures::future::try_join(deaf, ctx.schedule::<Value>("model", "slow")?).await?;
            let steered: Vec<Value> = ctx.drain_signals("steer")?;
            ctx.wait_for_signal::<Value>("done")?.await?;
            Ok(json!([quick, go, deaf, slow, steered]))
        })
    });
    let worker = world.worker(teller.host().task(model.clone()).unwrap().task(deaf).unwrap()).await;
    let handle = world.start("teller").await;
    waits_for(&handle, "go").await;
    let now = async |value: &str| {
        handle.signal("steer", Payload::of(value).unwrap(), Delivery::Now, None).await.unwrap();
    };
    now("too late for the first").await;
    send(&handle, "go", 1).await;
    until("the second call runs", || async { model.times("slow") == 1 }).await;
    send(&handle, "steer", "patience").await;
    now("shorter").await;
    waits_for(&handle, "done").await;
    // Recorded once: the same on replay.
    worker.evict_parked();
    send(&handle, "done", ()).await;
    let steered = ["too late for the first", "patience", "shorter"];
    assert_eq!(result(&handle).await, json!(["the end", 1, "whole", "once upon", steered]));
    assert_eq!(model.total(), 2);
    let tasks = world.tasks(&handle).await;
    assert!(tasks.iter().all(|task| task.status == TaskStatus::Completed && task.attempt == 1), "{tasks:?}");
});

rule!(rule_12_an_end_and_an_interruption_are_one_of_both, world, {
    // Each call ends by itself at about the moment the signal comes; whoever is first decides, for good.
    let model = job("model", |ctx, _| {
        Box::pin(async move {
            ctx.stream_token("half");
            tokio::time::sleep(Duration::from_millis(ctx.task_id().0.as_u128() as u64 % 8)).await;
            Ok(json!("whole"))
        })
    });
    let model = model.options(TaskOptions { interruptible: true, ..TaskOptions::default() });
    let teller = agent("teller", |ctx| {
        Box::pin(async move {
            let said: Value = ctx.schedule("model", &())?.await?;
            let steered: Value = ctx.wait_for_signal("steer")?.await?;
            Ok(json!([said, steered]))
        })
    });
    world.forgetful(teller.host().task(model.clone()).unwrap()).await;
    let mut runs = Vec::new();
    for n in 1..=24 {
        let handle = world.start("teller").await;
        until("the call runs", || async { model.total() >= n }).await;
        handle.signal("steer", Payload::of(&1).unwrap(), Delivery::Now, None).await.unwrap();
        runs.push(handle);
    }
    for handle in runs {
        let told = result(&handle).await;
        let task = world.tasks(&handle).await.remove(0);
        let recorded: Value = task.output.unwrap().parse().unwrap();
        assert!(["half", "whole"].iter().any(|said| recorded == json!(said)), "{recorded}");
        assert_eq!(told, json!([recorded, 1]));
    }
});

rule!(rule_13_a_timer_of_the_host_starts_anew_with_its_run, world, {
    // The first two lives would wait for an hour; the third gives up at once.
    let lives = Arc::new(Mutex::new(0));
    let patient = || {
        let lives = lives.clone();
        agent("patient", move |ctx| {
            let life = {
                let mut lives = lives.lock().unwrap();
                *lives += 1;
                *lives
            };
            Box::pin(async move {
                let patience = Duration::from_millis(if life < 3 { 3_600_000 } else { 1 });
                let signal = tokio::time::timeout(patience, ctx.wait_for_signal::<Value>("never")?).await;
                Ok(json!([life, signal.is_err()]))
            })
        })
    };
    let first = world.worker(patient().host()).await;
    let handle = world.start("patient").await;
    waits_for(&handle, "never").await;
    world.kill(&first).await;
    let second = world.forgetful(patient().host()).await;
    until("the second life waits", || async { *lives.lock().unwrap() == 2 && second.parked() == 1 }).await;
    waits_for(&handle, "never").await;
    second.evict_parked();
    assert_eq!(result(&handle).await, json!([3, true]));
    let given_up = world.journal(&handle, 0).await;
    assert!(matches!(given_up[1].body, RecordedBody::Abandon { target: 0 }), "{given_up:?}");
});

rule!(rule_13_what_was_given_up_stays_given_up, world, {
    let lives: Arc<Mutex<Vec<usize>>> = Arc::default();
    let told = lives.clone();
    let chooser = agent("chooser", move |ctx| {
        let told = told.clone();
        Box::pin(async move {
            let slow = ctx.wait_raw("never", None)?;
            let task = ctx.schedule_raw(flovyn_core::context::TaskCall {
                kind: "stuck".into(),
                input: Payload::null(),
                options: None,
                queue: None,
                key: None,
            })?;
            let quick = ctx.wait_raw("quick", None)?;
            let selected = Selected::first_of(vec![slow, task, quick]).await;
            told.lock().unwrap().push(selected.index);
            drop(selected);
            // The signal that came too late is still there for who asks anew.
            ctx.wait_for_signal::<Value>("go")?.await?;
            let late: Value = ctx.wait_for_signal("never")?.await?;
            Ok(late)
        })
    });
    let stuck = job("stuck", |_, _| Box::pin(std::future::pending()));
    world.forgetful(chooser.host().task(stuck.clone()).unwrap()).await;
    let handle = world.start("chooser").await;
    until("the task runs", || async { stuck.total() == 1 }).await;
    send(&handle, "quick", ()).await;
    waits_for(&handle, "go").await;
    send(&handle, "never", "late").await;
    send(&handle, "go", ()).await;
    assert_eq!(result(&handle).await, json!("late"));
    let lives = lives.lock().unwrap().clone();
    assert!(lives.len() >= 2 && lives.iter().all(|index| *index == 2), "{lives:?}");
    let given_up = world.journal(&handle, 0).await;
    let given_up = given_up.iter().filter(|op| matches!(op.body, RecordedBody::Abandon { .. })).count();
    assert_eq!((given_up, world.warnings(&handle, "abandoned").await), (2, 2));
    assert_eq!(world.tasks(&handle).await[0].status, TaskStatus::Cancelled);
    assert_eq!(stuck.total(), 1);
    // A stop is told once to each branch, and recorded.
    let polite = agent("polite", |ctx| {
        Box::pin(async move {
            let stopped = ctx.wait_for_signal::<Value>("never")?.await.unwrap_err();
            say(ctx, "bye").await?;
            Err(stopped)
        })
    });
    let echo = echo();
    world.forgetful(polite.host().task(echo.clone()).unwrap()).await;
    let handle = world.start("polite").await;
    waits_for(&handle, "never").await;
    handle.cancel(CancelMode::Graceful, Duration::from_secs(60)).await.unwrap();
    has_status(&handle, Status::Cancelled).await;
    assert_eq!(echo.times("bye"), 1);
});
