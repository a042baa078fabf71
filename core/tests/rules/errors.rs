//! Rule 20: what an error does to its run, and how a run goes on after one.

use crate::rule;
use crate::world::*;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::Handle;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error};
use flovyn_core::journal::OnError;
use flovyn_core::model::{
    CancelMode, EventKind, ForkFrom, ResumeRequest, SideEffects, Status, TaskOptions, TaskStatus, WaitReason,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A task that fails until it is mended.
fn breaks(kind: &'static str, mended: &Arc<AtomicBool>) -> Job {
    let mended = mended.clone();
    job(kind, move |_, input| {
        let mended = mended.load(Ordering::Relaxed);
        Box::pin(async move { if mended { Ok(input) } else { Err(Error::new(Code::TaskFailed, "it is broken")) } })
    })
}

fn is_raised(message: &'static str) -> Error {
    Error::new(Code::AgentFailed, message).with("error_type", "ValueError")
}

async fn retry(handle: &Handle) -> Status {
    handle.retry(ResumeRequest::default()).await.unwrap().status
}

async fn reason(handle: &Handle) -> Option<WaitReason> {
    has_status(handle, Status::Paused).await;
    handle.describe().await.unwrap().wait.and_then(|wait| wait.reason)
}

rule!(rule_20_a_failed_run_goes_on_from_its_last_commit, world, {
    let mended = Arc::new(AtomicBool::new(false));
    let (echo, broken) = (echo(), breaks("broken", &mended));
    let agent = agent("order", |ctx| {
        Box::pin(async move {
            let first = say(ctx, "first").await?;
            let caught = ctx.schedule::<Value>("broken", &"caught")?.await.is_err();
            let second = say(ctx, "second").await?;
            let last: Value = ctx.schedule::<Value>("broken", &"last")?.await?;
            let word: Value = ctx.wait_for_signal("word")?.await?;
            Ok(json!([first, caught, second, last, word]))
        })
    });
    let host = agent.host().task(echo.clone()).unwrap().task(broken.clone()).unwrap();
    let handle = world.start("order").await;
    send(&handle, "word", "kept").await;
    world.worker(host).await;
    has_status(&handle, Status::Failed).await;
    // Broken still: it fails once more, and goes on once more.
    assert_eq!(retry(&handle).await, Status::Pending);
    until("it has failed again", || async {
        let failed = world.events(&handle).await;
        failed.iter().filter(|event| event.kind == EventKind::Failed).count() == 2
    })
    .await;
    mended.store(true, Ordering::Relaxed);
    retry(&handle).await;
    // What the code went on from is not tried again: it knows of that failure.
    assert_eq!(result(&handle).await, json!(["first", true, "second", "last", "kept"]));
    assert_eq!((echo.times("first"), echo.times("second")), (1, 1));
    assert_eq!((broken.times("caught"), broken.times("last")), (1, 3));
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
    let refused = handle.retry(ResumeRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidTransition);
});

rule!(rule_20_what_went_down_with_a_failed_run_comes_back_with_it, world, {
    let mended = Arc::new(AtomicBool::new(false));
    let broken = breaks("broken", &mended);
    let hung = |kind, effects| {
        let options = TaskOptions { side_effects: effects, ..TaskOptions::default() };
        let mended = mended.clone();
        job(kind, move |_, input| {
            let mended = mended.load(Ordering::Relaxed);
            Box::pin(async move { if mended { Ok(input) } else { std::future::pending().await } })
        })
        .options(options)
    };
    let (slow, pay) = (hung("slow", SideEffects::Idempotent), hung("pay", SideEffects::AtMostOnce));
    let started = (slow.clone(), pay.clone());
    let agent = agent("branches", |ctx| {
        Box::pin(async move {
            let slow = ctx.schedule::<Value>("slow", &1)?;
            let pay = ctx.schedule::<Value>("pay", &2)?;
            let night = ctx.sleep(Duration::from_secs(3_600))?;
            let broken = async {
                ctx.wait_for_signal::<Value>("now")?.await?;
                ctx.schedule::<Value>("broken", &3)?.await
            };
            let night = async { night.await.map(|_| ()) };
            let (slow, pay, broken, ()) = futures::try_join!(slow, pay, broken, night)?;
            Ok(json!([slow, pay, broken]))
        })
    });
    let host = agent.host().task(slow.clone()).unwrap().task(pay.clone()).unwrap().task(broken.clone()).unwrap();
    world.worker(host).await;
    let handle = world.start("branches").await;
    until("both run", || async { started.0.total() == 1 && started.1.total() == 1 }).await;
    send(&handle, "now", ()).await;
    has_status(&handle, Status::Failed).await;
    let of = |kind: &'static str| {
        let (world, handle) = (&world, &handle);
        async move { world.tasks(handle).await.into_iter().find(|task| task.new.kind == kind).unwrap().status }
    };
    assert_eq!((of("slow").await, of("pay").await), (TaskStatus::Cancelled, TaskStatus::Cancelled));
    mended.store(true, Ordering::Relaxed);
    world.clock.advance(Duration::from_secs(60));
    retry(&handle).await;
    until("what is harmless is done", || async {
        of("slow").await == TaskStatus::Completed && of("broken").await == TaskStatus::Completed
    })
    .await;
    // Nobody knows whether the payment was made.
    assert_eq!((of("pay").await, pay.total(), slow.total()), (TaskStatus::InDoubt, 1, 2));
    let task = world.tasks(&handle).await.into_iter().find(|task| task.new.kind == "pay").unwrap();
    let op = flovyn_core::id::OpId { execution: handle.id(), slot: task.slot, once: None };
    let answer = flovyn_core::model::Resolution::Result(flovyn_core::Payload::of("receipt").unwrap());
    handle.resolve(op, answer).await.unwrap();
    // Its hour began when the code first slept.
    assert!(!handle.status().await.unwrap().is_terminal());
    world.clock.advance(Duration::from_secs(3_600));
    assert_eq!(result(&handle).await, json!([1, "receipt", 3]));
});

rule!(rule_20_an_error_of_new_code_pauses_its_run, world, {
    let code = |version: &'static str, fails: bool| {
        agent("deployed", move |ctx| {
            Box::pin(async move {
                say(ctx, "paid").await?;
                if fails {
                    return Err(is_raised("a bad deploy"));
                }
                let word: Value = ctx.wait_for_signal("word")?.await?;
                if word == json!("no") { Err(is_raised("the word was no")) } else { Ok(word) }
            })
        })
        .version(version)
    };
    let echo = echo();
    let serve = async |agent: Agent| world.forgetful(agent.host().task(echo.clone()).unwrap()).await;
    let close = async |worker: flovyn_core::worker::Worker| worker.close(Duration::from_secs(5)).await.unwrap();
    for (word, ends) in [("yes", Status::Completed), ("no", Status::Failed)] {
        let good = serve(code("1", false)).await;
        let handle = world.start("deployed").await;
        waits_for(&handle, "word").await;
        close(good).await;
        let bad = serve(code("2", true)).await;
        send(&handle, "word", word).await;
        assert_eq!(reason(&handle).await, Some(WaitReason::Error));
        let failure = handle.describe().await.unwrap().failure.unwrap();
        assert_eq!((&*failure.error_type, &*failure.message), ("ValueError", "a bad deploy"));
        // The same code comes to the same, however often.
        handle.resume(ResumeRequest::default()).await.unwrap();
        assert_eq!(reason(&handle).await, Some(WaitReason::Error));
        close(bad).await;
        // What the code that did the work raises is the run's own failure.
        let mended = serve(code("1", false)).await;
        handle.resume(ResumeRequest::default()).await.unwrap();
        has_status(&handle, ends).await;
        close(mended).await;
    }
    assert_eq!(echo.times("paid"), 2);
});

rule!(rule_20_a_value_that_does_not_fit_pauses_its_run, world, {
    struct Typed;
    #[async_trait::async_trait]
    impl flovyn_core::agent::AgentDefinition for Typed {
        type State = ();
        type Input = Option<String>;
        type Output = String;
        fn kind(&self) -> &'static str {
            "typed"
        }
        async fn execute(
            &self,
            ctx: &dyn flovyn_core::context::AgentContext,
            _: Option<String>,
        ) -> flovyn_core::Result<String> {
            loop {
                let amount = ctx.wait_for_signal::<u32>("amount")?.await;
                match amount {
                    // The code may take it as it likes.
                    Err(error) if error.code() == Code::NotSerializable => {
                        say(ctx, "refused").await?;
                        return Ok(ctx.wait_for_signal::<u32>("again")?.await?.to_string());
                    }
                    amount => drop(amount?),
                }
            }
        }
    }
    let echo = echo();
    let host = NativeHost::default().agent(Typed).unwrap().task(echo.clone()).unwrap();
    let worker = world.worker(host).await;
    let start = async |input: Value| {
        let input = flovyn_core::Payload::of(&input).unwrap();
        world.client().start("typed", input, flovyn_core::client::StartOptions::default()).await.unwrap()
    };
    let input = start(json!({"not": "text"})).await;
    assert_eq!(reason(&input).await, Some(WaitReason::Error));
    let handle = start(Value::Null).await;
    send(&handle, "amount", 1).await;
    send(&handle, "amount", "much").await;
    send(&handle, "again", "more").await;
    assert_eq!(reason(&handle).await, Some(WaitReason::Error));
    assert_eq!(handle.describe().await.unwrap().failure.unwrap().code, Code::NotSerializable);
    assert_eq!(echo.times("refused"), 1);
    worker.close(Duration::from_secs(5)).await.unwrap();
});

rule!(rule_20_its_agent_says_what_an_error_does, world, {
    for (policy, status) in [(OnError::Fail, Status::Failed), (OnError::Pause, Status::Paused)] {
        let mended = Arc::new(AtomicBool::new(false));
        let broken = breaks("broken", &mended);
        let agent = agent("decided", |ctx| Box::pin(async move { ctx.schedule::<Value>("broken", &1)?.await }));
        let worker = world.worker(agent.on_error(policy).host().task(broken.clone()).unwrap()).await;
        let handle = world.start("decided").await;
        has_status(&handle, status).await;
        mended.store(true, Ordering::Relaxed);
        retry(&handle).await;
        assert_eq!(result(&handle).await, json!(1));
        assert_eq!(broken.total(), 2);
        worker.close(Duration::from_secs(5)).await.unwrap();
    }
});

rule!(rule_20_an_end_that_was_forked_stays, world, {
    let agent = agent("ended", |_| Box::pin(async move { Err(is_raised("enough")) }));
    world.worker(agent.host()).await;
    let handle = world.start("ended").await;
    has_status(&handle, Status::Failed).await;
    handle.fork(ForkFrom::Latest, None, None, None).await.unwrap();
    let refused = handle.retry(ResumeRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidTransition);
    assert!(refused.message().contains("forked"), "{refused:?}");
});

rule!(rule_20_a_pausing_error_pauses_its_run_which_goes_on_where_it_was, world, {
    let mended = Arc::new(AtomicBool::new(false));
    let broken = breaks("broken", &mended);
    let (echo, entered) = (echo(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let entries = entered.clone();
    let agent = stateful("outage", move |ctx| {
        entries.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let State(done) = ctx.state()?;
            if done.is_null() {
                say(ctx, "before the checkpoint").await?;
                ctx.checkpoint(&State(json!("one")))?.await?;
            }
            say(ctx, "behind it").await?;
            match ctx.schedule::<Value>("broken", &1)?.await {
                // Nothing later knows of what has failed, so it is tried again.
                Err(error) => Err(error.pausing()),
                Ok(done) => Ok(json!([done, ctx.wait_for_signal::<Value>("word")?.await?])),
            }
        })
    });
    let worker = world.forgetful(agent.task(echo.clone()).unwrap().task(broken.clone()).unwrap()).await;
    let handle = world.start("outage").await;
    assert_eq!(reason(&handle).await, Some(WaitReason::Error));
    assert!(handle.describe().await.unwrap().failure.unwrap().message.ends_with("it is broken"));
    // A signal does not wake it, and is not lost.
    send(&handle, "word", "kept").await;
    assert_eq!(handle.status().await.unwrap(), Status::Paused);
    handle.resume(ResumeRequest::default()).await.unwrap();
    until("it is tried again", || async { broken.times(1) == 2 }).await;
    assert_eq!(reason(&handle).await, Some(WaitReason::Error));
    mended.store(true, Ordering::Relaxed);
    handle.resume(ResumeRequest::default()).await.unwrap();
    assert_eq!(result(&handle).await, json!([1, "kept"]));
    assert_eq!((echo.times("before the checkpoint"), echo.times("behind it"), broken.times(1)), (1, 1, 3));
    assert!(entered.load(Ordering::Relaxed) >= 3, "each attempt entered the code");
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
    worker.close(Duration::from_secs(5)).await.unwrap();
});

rule!(rule_20_a_run_that_was_asked_to_stop_is_not_paused, world, {
    let agent = agent("stopped", |ctx| {
        Box::pin(async move {
            let word = ctx.wait_for_signal::<Value>("word")?.await;
            word.map_err(Error::pausing)
        })
    });
    let _worker = world.worker(agent.host()).await;
    let handle = world.start("stopped").await;
    waits_for(&handle, "word").await;
    handle.cancel(CancelMode::Graceful, Duration::from_secs(60)).await.unwrap();
    until("it is over", || async { handle.status().await.unwrap().is_terminal() }).await;
    assert_eq!(handle.status().await.unwrap(), Status::Cancelled);
});
