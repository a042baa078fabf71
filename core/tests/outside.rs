//! Branches that wait outside of the context before their first step (rules 5, 7 and 8): what the other branches decide is
//! the same after every crash and every forced re-entry, and nobody is told of a divergence.

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::journal::OnDivergence;
use flovyn_core::model::Delivery;
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::testing::Harness;
use flovyn_core::{Error, Payload};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future::BoxFuture};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

struct Ping;

#[async_trait]
impl TaskDefinition for Ping {
    type Input = u32;
    type Output = u32;
    fn kind(&self) -> &str {
        "ping"
    }
    async fn execute(&self, _: &TaskContext, n: u32) -> Result<u32> {
        Ok(n)
    }
}

/// How a branch waits before its steps.
type Wait = fn() -> BoxFuture<'static, ()>;

/// How the branches are joined.
#[derive(Clone, Copy)]
enum Join {
    Both,
    Unordered,
    Select,
}

/// How it waits, how often, and how its branches are joined.
struct Watched(Wait, u32, Join);

#[async_trait]
impl AgentDefinition for Watched {
    type State = ();
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "watched"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    fn on_divergence(&self) -> OnDivergence {
        OnDivergence::Fail
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<String> {
        let seen = AtomicU32::new(0);
        let beat = async {
            for n in 0..self.1 {
                (self.0)().await;
                ctx.schedule_task(&Ping, &n)?.await?;
                seen.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<_, Error>(String::new())
        };
        let decide = async {
            let said: String = ctx.wait_for_signal("go")?.await?;
            let decision = format!("{said} after {}", seen.load(Ordering::SeqCst));
            ctx.run(&decision, async { Ok(()) })?.await?;
            let _: String = ctx.wait_for_signal("end")?.await?;
            Ok(decision)
        };
        match self.2 {
            Join::Both => futures::join!(beat, decide).1,
            Join::Unordered => {
                let mut branches = FuturesUnordered::from_iter([beat.boxed(), decide.boxed()]);
                let mut last = Ok(String::new());
                while let Some(done) = branches.next().await {
                    last = done.map(|said| if said.is_empty() { last.unwrap_or_default() } else { said });
                }
                last
            }
            Join::Select => {
                let (beat, decide) = (std::pin::pin!(beat), std::pin::pin!(decide));
                match futures::future::select(beat, decide).await {
                    futures::future::Either::Left((_, decide)) => decide.await,
                    futures::future::Either::Right((said, _)) => said,
                }
            }
        }
    }
}

/// `after` is when the root is told to decide: by then the other branch has come to its steps, whatever was killed before.
async fn holds(wait: Wait, steps: u32, join: Join, after: Duration) {
    let say = |name: &'static str| (name, Payload::of(&"said").unwrap(), Some(name.to_owned()));
    let host = move || NativeHost::default().agent(Watched(wait, steps, join)).unwrap().task(Ping).unwrap();
    let checked = Harness::new("watched", Payload::of(&()).unwrap(), host)
        .outside(move |handle| async move {
            for (name, value, key) in [say("go"), say("end")] {
                tokio::time::sleep(after).await;
                let _ = handle.signal(name, value, Delivery::default(), key).await;
            }
        })
        .check()
        .await;
    assert!(checked.is_ok(), "{checked:?}");
}

fn timer() -> BoxFuture<'static, ()> {
    tokio::time::sleep(Duration::from_millis(300)).boxed()
}

fn spawned() -> BoxFuture<'static, ()> {
    async { drop(tokio::spawn(tokio::time::sleep(Duration::from_millis(300))).await) }.boxed()
}

fn yields() -> BoxFuture<'static, ()> {
    async {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
    }
    .boxed()
}

fn told() -> BoxFuture<'static, ()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = tell.send(());
    });
    told.map(drop).boxed()
}

#[tokio::test(start_paused = true)]
async fn rule_05_a_branch_that_waits_outside_is_waited_for() {
    for join in [Join::Both, Join::Unordered, Join::Select] {
        for wait in [timer as Wait, spawned, yields, told] {
            holds(wait, 3, join, Duration::from_secs(4)).await;
        }
    }
}

/// A wait far longer than any patience with edited code.
#[tokio::test(start_paused = true)]
async fn rule_08_unchanged_code_is_not_judged_by_time() {
    fn long() -> BoxFuture<'static, ()> {
        tokio::time::sleep(Duration::from_secs(8)).boxed()
    }
    holds(long, 1, Join::Both, Duration::from_secs(120)).await;
}
