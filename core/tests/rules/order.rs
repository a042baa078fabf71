//! Rules 5 to 8: replay repeats order, reads and results, and survives edits.

use crate::rule;
use crate::world::*;
use flovyn_core::context::{AgentContext, AgentContextExt, Selected};
use flovyn_core::error::Result;
use flovyn_core::journal::OnDivergence;
use flovyn_core::model::{Divergence, Status, WaitReason};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

rule!(rule_05_replay_repeats_the_order, world, {
    let lives: Arc<Mutex<Vec<Vec<Value>>>> = Arc::default();
    let told = lives.clone();
    let racer = agent("racer", move |ctx| {
        let told = told.clone();
        Box::pin(async move {
            let mut order = Vec::new();
            let mut racing: FuturesUnordered<_> =
                (0..4).map(|n| ctx.schedule::<Value>("runner", &n)).collect::<Result<_>>()?;
            while let Some(arrived) = racing.next().await {
                order.push(arrived?);
            }
            let steps = (4..7).map(|n| ctx.schedule::<Value>("runner", &n));
            let steps = steps.map(|step| step.map(|step| step.step().task())).collect::<Result<Vec<_>>>()?;
            order.push(json!(steps.len()));
            let one = ctx.wait_raw("first", None)?;
            let two = ctx.wait_raw("second", None)?;
            let selected = Selected::first_of(vec![one, two]).await;
            order.push(json!(selected.index));
            drop(selected);
            told.lock().unwrap().push(order.clone());
            ctx.wait_for_signal::<Value>("end")?.await?;
            Ok(json!(order))
        })
    });
    let runner = job("runner", |_, input| {
        Box::pin(async move {
            // Whoever comes first: it differs from run to run.
            let takes = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) % 9;
            tokio::time::sleep(Duration::from_millis(takes)).await;
            Ok(input)
        })
    });
    world.forgetful(racer.host().task(runner).unwrap()).await;
    let handle = world.start("racer").await;
    waits_for(&handle, "second").await;
    send(&handle, "second", ()).await;
    waits_for(&handle, "end").await;
    // The loser's signal comes after the decision; a replay must not see it.
    send(&handle, "first", ()).await;
    send(&handle, "end", ()).await;
    let last = result(&handle).await;
    let lives = lives.lock().unwrap();
    assert!(lives.len() >= 2, "the run was not entered again");
    assert!(lives.iter().all(|life| json!(life) == last), "{lives:?}");
    assert_eq!(last[5], json!(1));
});

rule!(rule_06_reads_of_the_outside_are_recorded, world, {
    let lives: Arc<Mutex<Vec<Value>>> = Arc::default();
    let told = lives.clone();
    let reader = agent("reader", move |ctx| {
        let told = told.clone();
        Box::pin(async move {
            let before = ctx.has_signal("news")?;
            let drained: Vec<u64> = ctx.drain_signals("mail")?;
            let stop = ctx.check_cancellation()?;
            let (random, time) = (ctx.random_uuid(), ctx.current_time().0);
            told.lock().unwrap().push(json!([before, drained, stop, random, time]));
            ctx.wait_for_signal::<Value>("go")?.await?;
            let later = ctx.current_time().0;
            let after = ctx.has_signal("news")?;
            Ok(json!([before, after, drained, later > time]))
        })
    });
    let handle = world.start("reader").await;
    send(&handle, "mail", 1).await;
    send(&handle, "mail", 2).await;
    world.forgetful(reader.host()).await;
    waits_for(&handle, "go").await;
    world.clock.advance(Duration::from_secs(5));
    send(&handle, "news", ()).await;
    send(&handle, "mail", 3).await;
    send(&handle, "go", ()).await;
    assert_eq!(result(&handle).await, json!([false, true, [1, 2], true]));
    let lives = lives.lock().unwrap();
    assert!(lives.len() >= 2 && lives.iter().all(|life| *life == lives[0]), "{lives:?}");
});

rule!(rule_07_matching_is_exact, world, {
    let lives = Arc::new(AtomicU64::new(0));
    let counted = lives.clone();
    let prompts = agent("prompts", move |ctx| {
        let life = counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let same = join_all([ctx.schedule::<Value>("echo", "same")?, ctx.schedule::<Value>("echo", "same")?]).await;
            // A clock in the prompt: another input in every life.
            let reworded = say(ctx, json!(["at", life])).await?;
            ctx.wait_for_signal::<Value>("go")?.await?;
            let _ = same.into_iter().collect::<Result<Vec<_>>>()?;
            Ok(reworded)
        })
    });
    let echo = echo();
    world.forgetful(prompts.host().task(echo.clone()).unwrap()).await;
    let handle = world.start("prompts").await;
    waits_for(&handle, "go").await;
    send(&handle, "go", ()).await;
    assert_eq!(result(&handle).await, json!(["at", 0]));
    assert!(lives.load(Ordering::SeqCst) >= 2);
    assert_eq!((echo.times("same"), echo.total()), (2, 3));
    assert_eq!(world.warnings(&handle, "reworded").await, 1);
    let tasks = world.tasks(&handle).await;
    assert_ne!(tasks[0].new.id, tasks[1].new.id);
});

type Steps = &'static [&'static str];

fn script(version: &'static str, steps: Steps) -> Agent {
    fn body(ctx: &dyn AgentContext, steps: Steps) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move {
            let mut said = Vec::new();
            for step in steps {
                ctx.append_entry("user", step)?;
                said.push(say(ctx, *step).await?);
            }
            ctx.wait_for_signal::<Value>("go")?.await?;
            Ok(json!(said))
        })
    }
    agent("script", move |ctx| body(ctx, steps)).version(version)
}

rule!(rule_08_a_decision_holds_for_the_code_it_was_made_for, world, {
    fn body(ctx: &dyn AgentContext, steps: Steps) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move {
            for step in steps {
                say(ctx, *step).await?;
            }
            for signal in ["go", "on", "end"] {
                ctx.wait_for_signal::<Value>(signal)?.await?;
            }
            Ok(json!(steps))
        })
    }
    let said = |version: &str, steps: Steps| {
        let agent = agent("said", move |ctx| body(ctx, steps)).version(version).policy(OnDivergence::Pause);
        agent.host().task(echo()).unwrap()
    };
    let first = world.forgetful(said("1", &["a", "b"])).await;
    let handle = world.start("said").await;
    waits_for(&handle, "go").await;
    first.close(Duration::from_secs(5)).await.unwrap();
    let second = world.forgetful(said("2", &["b"])).await;
    send(&handle, "go", ()).await;
    has_status(&handle, Status::Paused).await;
    handle.resolve_divergence(Divergence::Continue).await.unwrap();
    // The decided edit is met again at every entry, and is not asked about again.
    waits_for(&handle, "on").await;
    send(&handle, "on", ()).await;
    waits_for(&handle, "end").await;
    second.close(Duration::from_secs(5)).await.unwrap();
    // Nobody has decided about the next edit.
    let third = world.forgetful(said("3", &[])).await;
    send(&handle, "end", ()).await;
    has_status(&handle, Status::Paused).await;
    handle.resolve_divergence(Divergence::Continue).await.unwrap();
    assert_eq!(result(&handle).await, json!([]));
    third.close(Duration::from_secs(5)).await.unwrap();
});

rule!(rule_08_an_edit_costs_the_edited_step_alone, world, {
    let edits: [(Steps, &[&str]); 4] = [
        (&["a", "new", "b", "c"], &["new"]),
        (&["a", "c"], &[]),
        (&["c", "a", "b"], &[]),
        (&["a", "other", "c", "d"], &["other", "d"]),
    ];
    for (steps, cost) in edits {
        let echo = echo();
        let old = world.forgetful(script("1", &["a", "b", "c"]).host().task(echo.clone()).unwrap()).await;
        let handle = world.start("script").await;
        waits_for(&handle, "go").await;
        old.close(Duration::from_secs(5)).await.unwrap();
        let new = world.forgetful(script("2", steps).host().task(echo.clone()).unwrap()).await;
        send(&handle, "go", ()).await;
        assert_eq!(result(&handle).await, json!(steps));
        for step in ["a", "b", "c"] {
            assert_eq!(echo.times(step), 1, "{step} with {steps:?}");
        }
        assert_eq!(echo.total(), 3 + cost.len(), "{steps:?}");
        assert!(world.warnings(&handle, "diverged").await > 0);
        new.close(Duration::from_secs(5)).await.unwrap();
    }
    for policy in [OnDivergence::Fail, OnDivergence::Pause] {
        let echo = echo();
        let old = world.forgetful(script("1", &["a", "b"]).host().task(echo.clone()).unwrap()).await;
        let handle = world.start("script").await;
        waits_for(&handle, "go").await;
        old.close(Duration::from_secs(5)).await.unwrap();
        let new = world.forgetful(script("2", &["b"]).policy(policy).host().task(echo.clone()).unwrap()).await;
        send(&handle, "go", ()).await;
        if policy == OnDivergence::Fail {
            has_status(&handle, Status::Failed).await;
            let failure = handle.describe().await.unwrap().failure.unwrap();
            assert_eq!(failure.code, flovyn_core::error::Code::Diverged);
        } else {
            has_status(&handle, Status::Paused).await;
            let reason = handle.describe().await.unwrap().wait.and_then(|wait| wait.reason);
            assert_eq!(reason, Some(WaitReason::Divergence));
            handle.resolve_divergence(Divergence::Continue).await.unwrap();
            assert_eq!(result(&handle).await, json!(["b"]));
        }
        assert_eq!(echo.total(), 2);
        new.close(Duration::from_secs(5)).await.unwrap();
    }
});
