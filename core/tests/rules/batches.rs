//! Rules 1 to 4: what leaves the process, when, and what is sure once it has.

use crate::rule;
use crate::world::*;
use flovyn_core::Payload;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::RequestId;
use flovyn_core::model::{
    Batch, BatchEnd, CommitAnswer, CommitRequest, EventKind, PageRequest, ResumeRequest, Status, TaskStatus, WaitReason,
};
use flovyn_core::payload::Digest;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::Storage;
use flovyn_core::storage::guarded::{Call as Called, Gate, Guarded};
use flovyn_core::testing::{Call, Fault, FaultyStorage};
use flovyn_core::worker::WorkerOptions;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

rule!(rule_01_nothing_leaves_before_a_commit_point, world, {
    let (storage, seen) = (world.storage.clone(), Arc::new(AtomicUsize::new(99)));
    let before = seen.clone();
    let lazy = agent("lazy", move |ctx| {
        let (storage, before) = (storage.clone(), before.clone());
        Box::pin(async move {
            ctx.append_entry("user", "one")?;
            ctx.append_entry("user", "two")?;
            let page = storage.entries(ORG, ctx.agent_execution_id(), PageRequest::default()).await?;
            before.store(page.items.len(), Ordering::SeqCst);
            ctx.flush()?.await?;
            let page = storage.entries(ORG, ctx.agent_execution_id(), PageRequest::default()).await?;
            Ok(json!(page.items.len()))
        })
    });
    let quick = agent("quick", |ctx| Box::pin(async move { say(ctx, "now").await }));
    world.worker(lazy.host().agent(quick).unwrap().task(echo()).unwrap()).await;
    let handle = world.start("lazy").await;
    assert_eq!(result(&handle).await, json!(2));
    assert_eq!(seen.load(Ordering::SeqCst), 0);
    // A step that ends at once is one commit with its op, and the end another.
    let handle = world.start("quick").await;
    assert_eq!(result(&handle).await, json!("now"));
    assert!(handle.describe().await.unwrap().base <= 3);
});

rule!(rule_02_a_batch_is_atomic_and_a_lost_answer_costs_nothing, world, {
    // Through the engine: every second answer of the store is lost.
    let faulty = Arc::new(FaultyStorage::new(world.storage.clone()));
    for n in 1..30 {
        let fault = if n % 4 == 1 { Fault::FailBefore } else { Fault::ExecuteThenError };
        faulty.inject(Call::Commit, 2 * n, fault);
    }
    let steps = agent("steps", |ctx| {
        Box::pin(async move {
            for n in 0..5 {
                ctx.append_entry("user", &n)?;
                say(ctx, n).await?;
            }
            Ok(json!("all"))
        })
    });
    let echo = echo();
    let runtime = Runtime::over(faulty.clone());
    runtime.worker(Arc::new(steps.host().task(echo.clone()).unwrap()), WorkerOptions::default()).await.unwrap();
    let handle = world.start("steps").await;
    assert_eq!(result(&handle).await, json!("all"));
    assert!(faulty.injected() >= 3, "{}", faulty.injected());
    assert_eq!((echo.total(), handle.messages().await.unwrap().len()), (5, 5));
    assert_eq!(world.journal(&handle, 0).await.len(), 10);

    // By hand: the order of the checks.
    let handle = world.start("nobody").await;
    let claim = world.storage.claim_agents(claim_by(7, "nobody")).await.unwrap().remove(0);
    let request = |base, id: u128, digest: u8| CommitRequest {
        org: ORG,
        execution: handle.id(),
        lease: claim.lease,
        request_id: RequestId(uuid::Uuid::from_u128(id)),
        digest: Digest([digest; 16]),
        base,
        known: 0,
        batch: Batch::new(0, vec![], BatchEnd::Continue),
        refused: Vec::new(),
        local: None,
    };
    let first = world.storage.commit(request(0, 1, 1)).await.unwrap();
    let again = world.storage.commit(request(0, 1, 1)).await.unwrap();
    assert_eq!((first.number, first.high), (again.number, again.high));
    let refused = async |request| world.storage.commit(request).await.unwrap_err().code();
    assert_eq!(refused(request(0, 1, 2)).await, Code::OutOfOrder);
    assert_eq!(refused(request(5, 2, 1)).await, Code::OutOfOrder);
    world.storage.unregister_worker(ORG, claim.lease.worker).await.unwrap();
    world.storage.claim_agents(claim_by(8, "nobody")).await.unwrap();
    assert_eq!(refused(request(0, 1, 1)).await, Code::LeaseLost);
});

rule!(rule_02_a_batch_that_is_too_large_goes_in_parts, world, {
    const ENTRIES: usize = 2 * Batch::MOST + 1_000;
    let writer = agent("writer", |ctx| {
        Box::pin(async move {
            for n in 0..ENTRIES {
                ctx.append_entry("user", &n)?;
            }
            let go: Value = ctx.wait_for_signal("go")?.await?;
            Ok(go)
        })
    });
    world.forgetful(writer.host()).await;
    let handle = world.start("writer").await;
    waits_for(&handle, "go").await;
    assert_eq!(handle.describe().await.unwrap().base, 3);
    send(&handle, "go", 7).await;
    assert_eq!(result(&handle).await, json!(7));
    assert_eq!(world.journal(&handle, 0).await.len(), ENTRIES + 1);
    assert_eq!(world.warnings(&handle, "diverged").await, 0);
});

rule!(rule_02_a_refused_batch_pauses_its_run, world, {
    let steps = agent("steps", |ctx| {
        Box::pin(async move {
            for n in 0..3 {
                ctx.append_entry("user", &n)?;
                say(ctx, n).await?;
            }
            Ok(json!("all"))
        })
    });
    let echo = echo();
    let strict = Arc::new(Guarded::over(world.storage.clone(), Strict(AtomicUsize::new(0))));
    let runtime = Runtime::over(strict);
    runtime.worker(Arc::new(steps.host().task(echo.clone()).unwrap()), WorkerOptions::default()).await.unwrap();
    let handle = world.start("steps").await;
    has_status(&handle, Status::Paused).await;
    let run = handle.describe().await.unwrap();
    assert_eq!(run.wait.unwrap().reason, Some(WaitReason::Quarantined));
    let told = world.events(&handle).await.pop().unwrap();
    assert_eq!((told.kind, &told.data["error"]["message"]), (EventKind::Paused, &json!("that is too much")));
    // Nothing of it was stored, and nothing before it is lost.
    assert_eq!(handle.messages().await.unwrap().len(), 1);
    handle.resume(ResumeRequest::default()).await.unwrap();
    assert_eq!(result(&handle).await, json!("all"));
    assert_eq!((echo.total(), handle.messages().await.unwrap().len()), (4, 3), "the refused step alone ran again");
});

/// A store that takes no second commit with a task's end, once.
struct Strict(AtomicUsize);

impl Gate for Strict {
    async fn pass<T: Send>(&self, _: Called, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        body.await
    }

    async fn commit(&self, inner: &dyn Storage, request: CommitRequest) -> Result<CommitAnswer> {
        let ends = usize::from(!request.batch.attempts.is_empty());
        if ends == 1 && self.0.fetch_add(1, Ordering::SeqCst) == 1 {
            return Err(Error::new(Code::PayloadTooLarge, "that is too much"));
        }
        inner.commit(request).await
    }
}

rule!(rule_03_a_wake_up_is_never_lost, world, {
    let waiter = agent("waiter", |ctx| {
        Box::pin(async move {
            let mut all = Vec::new();
            for _ in 0..2 {
                all.push(ctx.wait_for_signal::<u64>("go")?.await?);
            }
            Ok(json!(all))
        })
    });
    world.worker(waiter.host()).await;
    let runs = (0..40u64).map(|n| {
        let world = &world;
        async move {
            let handle = world.start("waiter").await;
            // Somewhere around the claim, the commit and the suspension.
            for value in [n, n + 1] {
                for _ in 0..(n * 7 + value * 3) % 23 {
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(Duration::from_micros((n * 137 + value * 61) % 2_500)).await;
                send(&handle, "go", value).await;
            }
            assert_eq!(result(&handle).await, json!([n, n + 1]));
        }
    });
    futures::future::join_all(runs).await;
});

rule!(rule_04_an_outcome_is_durable_before_the_agent_sees_it, world, {
    let storage = world.storage.clone();
    let checks = agent("checks", move |ctx| {
        let storage = storage.clone();
        Box::pin(async move {
            let mut durable = 0;
            for n in 0..6 {
                let step = ctx.schedule::<u64>("echo", &n)?;
                let id = step.step().task().expect("a task has an id");
                let value = step.await?;
                let task = storage.task(ORG, ctx.agent_execution_id(), id).await?;
                let stored: u64 = task.output.unwrap_or_else(Payload::null).parse()?;
                durable += usize::from(task.status == TaskStatus::Completed && stored == value);
            }
            Ok(json!(durable))
        })
    });
    world.worker(checks.host().task(echo()).unwrap()).await;
    let handle = world.start("checks").await;
    assert_eq!(result(&handle).await, json!(6));
});
