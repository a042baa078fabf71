//! Agents of every shape under forced re-entry and crashes at every commit.

#[path = "reentry/families.rs"]
mod families;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::Handle;
use flovyn_core::context::{AgentContext, AgentContextExt, Message, Selected};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::Outcome;
use flovyn_core::model::{CancelMode, Delivery, RetryPolicy, Status, TaskOptions};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::testing::{Harness, Proof};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all, try_join, try_join_all};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

/// A step that takes as long as its input says, in milliseconds.
struct Work;

#[async_trait]
impl TaskDefinition for Work {
    type Input = (String, u64);
    type Output = String;
    fn kind(&self) -> &str {
        "work"
    }
    async fn execute(&self, _: &TaskContext, (what, takes): (String, u64)) -> Result<String> {
        tokio::time::sleep(Duration::from_millis(takes)).await;
        Ok(format!("{what} done"))
    }
}

/// Fails as often as its input says, then gives its attempt.
struct Flaky;

#[async_trait]
impl TaskDefinition for Flaky {
    type Input = u32;
    type Output = String;
    fn kind(&self) -> &str {
        "flaky"
    }
    fn options(&self) -> TaskOptions {
        let retry = RetryPolicy { retries: 3, initial: Duration::from_secs(1), ..RetryPolicy::default() };
        TaskOptions { retry, ..TaskOptions::default() }
    }
    async fn execute(&self, ctx: &TaskContext, failures: u32) -> Result<String> {
        // Attempts of lost processes count too: a failure less is none the wiser.
        if failures >= 9 || (ctx.attempt() <= failures && failures > 0) {
            return Err(Error::new(Code::InvalidArgument, "not yet"));
        }
        Ok("at last".into())
    }
}

type Body = for<'a> fn(&'a dyn AgentContext) -> BoxFuture<'a, Result<String>>;

/// An agent without state made of one function.
struct Plain(Body);

#[async_trait]
impl AgentDefinition for Plain {
    type State = ();
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "plain"
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<String> {
        (self.0)(ctx).await
    }
}

fn harness(body: Body) -> Harness {
    Harness::new("plain", Payload::null(), move || {
        NativeHost::default().agent(Plain(body)).unwrap().task(Work).unwrap().task(Flaky).unwrap()
    })
}

async fn holds(harness: Harness, least_commits: u64) -> Proof {
    let proof = harness.check().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(proof.commits >= least_commits, "too few commits to prove much: {proof:#?}");
    assert!(proof.crashes as u64 >= proof.commits, "{proof:#?}");
    proof
}

fn work(ctx: &dyn AgentContext, what: &str, takes: u64) -> Result<flovyn_core::context::StepOf<String>> {
    ctx.schedule("work", &(what, takes))
}

/// Waits until the run waits for a signal, then sends it.
async fn send_when_waiting(handle: &Handle, name: &str, value: &str) {
    loop {
        let run = handle.describe().await.unwrap();
        let waits = run.wait.is_some_and(|wait| wait.signals.iter().any(|signal| signal == name));
        if run.status == Status::Waiting && waits {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let key = Some(format!("{name} {value}"));
    handle.signal(name, Payload::of(value).unwrap(), Delivery::NextStep, key).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sequence_of_steps_and_entries() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for step in 0..4 {
                ctx.append_entry("user", &format!("step {step}"))?;
                let result: String = work(ctx, &format!("step {step}"), 20)?.await?;
                ctx.append_entry("assistant", &result)?;
                ctx.sleep(Duration::from_secs(90))?.await?;
                all.push(format!("{result} {}", ctx.random_uuid()));
            }
            Ok(all.join(", "))
        })
    }
    let proof = holds(harness(body), 8).await;
    assert_eq!(proof.observed.unwrap().entries.len(), 8);
}

type Queue = Mutex<VecDeque<u64>>;
type Done = Mutex<Vec<(u64, String)>>;

async fn worker(ctx: &dyn AgentContext, queue: &Queue, done: &Done) -> Result<()> {
    loop {
        let item = queue.lock().unwrap().pop_front();
        let Some(item) = item else { return Ok(()) };
        let result = work(ctx, &format!("item {item}"), 10 + 13 * (item % 4))?.await?;
        done.lock().unwrap().push((item, result));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_pool_over_a_queue() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let (queue, done): (Queue, Done) = (Mutex::new((0..9).collect()), Mutex::default());
            try_join_all((0..3).map(|_| worker(ctx, &queue, &done))).await?;
            let mut done = done.into_inner().unwrap();
            done.sort();
            Ok(format!("{done:?}"))
        })
    }
    holds(harness(body).concurrent(), 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_wider_than_a_combinator_polls_at_once() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let steps: Result<Vec<_>> = (0..40).map(|n| work(ctx, &format!("part {n}"), 5 + n % 7)).collect();
            let all: Result<Vec<String>> = join_all(steps?).await.into_iter().collect();
            let mut unordered: futures::stream::FuturesUnordered<_> =
                (0..3).map(|n| work(ctx, &format!("late {n}"), 40 - 10 * n)).collect::<Result<_>>()?;
            let mut late = Vec::new();
            while let Some(result) = unordered.next().await {
                late.push(result?);
            }
            late.sort();
            Ok(format!("{} {late:?}", all?.len()))
        })
    }
    holds(harness(body).concurrent(), 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_around_each_step() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let mut said = Vec::new();
            for (what, takes) in [("quick", 10), ("slow", 90_000), ("quick", 10)] {
                let step = ctx.schedule_raw(flovyn_core::context::TaskCall {
                    kind: "work".into(),
                    input: Payload::of(&(what, takes))?,
                    options: None,
                    queue: None,
                    key: None,
                })?;
                let limit = ctx.sleep(Duration::from_secs(30))?;
                let first = Selected::first_of(vec![step, limit]).await;
                said.push(match first.outcome? {
                    Outcome::Fired => format!("{what} gave up"),
                    Outcome::Value(value) => value.parse()?,
                    other => format!("{other:?}"),
                });
            }
            Ok(said.join(", "))
        })
    }
    let proof = holds(harness(body), 4).await;
    assert_eq!(proof.observed.unwrap().outcome, r#"completed with "quick done, slow gave up, quick done""#);
}

#[tokio::test(start_paused = true)]
async fn nested_joins_with_identical_prompts() {
    async fn branch(ctx: &dyn AgentContext, name: &str) -> Result<String> {
        let same = try_join(work(ctx, "the same prompt", 20)?, work(ctx, "the same prompt", 20)?).await?;
        let own = work(ctx, &format!("after {name}"), 15)?.await?;
        Ok(format!("{same:?} {own}"))
    }
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let inner = try_join(branch(ctx, "a"), branch(ctx, "b"));
            let outer = try_join(inner, branch(ctx, "c")).await?;
            Ok(format!("{outer:?}"))
        })
    }
    let proof = holds(harness(body).concurrent(), 3).await;
    assert_eq!(proof.observed.unwrap().tasks.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn steps_that_fail_and_are_tried_again() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let fine: String = ctx.schedule("flaky", &0)?.await?;
            let doomed: Result<String> = ctx.schedule("flaky", &9)?.await;
            let doomed = doomed.expect_err("it fails every time");
            ctx.append_entry("tool", &doomed.message())?;
            Ok(format!("{fine} {}", doomed.code()))
        })
    }
    let proof = holds(harness(body), 3).await;
    assert!(proof.observed.unwrap().tasks[1].contains("after 4 failures"));
}

#[tokio::test(start_paused = true)]
async fn once_and_a_step_of_the_agents_own() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let plan: String = ctx
                .once("plan", &1, |inner| async move {
                    let draft = work(&inner, "draft", 10)?.await?;
                    Ok(format!("{draft}, checked"))
                })
                .await?;
            let own: String = ctx.run("shout", async { Ok("HELLO".to_owned()) })?.await?;
            let again: String = ctx.once("plan", &1, |_| async { Ok("never".to_owned()) }).await?;
            Ok(format!("{plan} {own} {again}"))
        })
    }
    let proof = holds(harness(body), 3).await;
    assert_eq!(proof.observed.unwrap().outcome, r#"completed with "draft done, checked HELLO draft done, checked""#);
}

#[tokio::test(start_paused = true)]
async fn signals_before_and_after_the_wait() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let early: String = ctx.wait_for_signal("early")?.await?;
            work(ctx, "between", 25)?.await?;
            let late: String = ctx.wait_for_signal("late")?.await?;
            let never = ctx.wait_for_signal_within::<String>("never", Duration::from_secs(60))?.await;
            ctx.append_entry("system", &never.expect_err("nobody sends it").code().as_str())?;
            Ok(format!("{early} {late}"))
        })
    }
    let harness = harness(body).outside(|handle| async move {
        let key = Some("early".to_owned());
        handle.signal("early", Payload::of("a").unwrap(), Delivery::NextStep, key).await.unwrap();
        send_when_waiting(&handle, "late", "b").await;
    });
    let proof = holds(harness, 4).await;
    assert_eq!(proof.observed.unwrap().outcome, r#"completed with "a b""#);
}

#[tokio::test(start_paused = true)]
async fn threads_of_the_conversation() {
    async fn research(ctx: &dyn AgentContext, topic: &str, takes: u64) -> Result<usize> {
        let thread = ctx.thread(topic);
        thread.append_entry("user", &format!("about {topic}"))?;
        let found = work(&thread, topic, takes)?.await?;
        thread.append_message(Message {
            role: "assistant".into(),
            content: Payload::of(&found)?,
            entry_type: "message".into(),
            turn_id: None,
            metadata: None,
        })?;
        Ok(thread.messages().await?.len())
    }
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            ctx.append_entry("user", "compare")?;
            let both = try_join(research(ctx, "north", 10), research(ctx, "south", 35)).await?;
            ctx.append_entry("assistant", "compared")?;
            Ok(format!("{both:?}, {} in the main thread", ctx.messages().await?.len()))
        })
    }
    let proof = holds(harness(body).concurrent(), 2).await;
    assert_eq!(proof.observed.unwrap().outcome, r#"completed with "(3, 3), 2 in the main thread""#);
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_time_to_tidy_up() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            ctx.append_entry("user", "go")?;
            let waited: Result<String> = ctx.wait_for_signal("never")?.await;
            let stopped = waited.expect_err("the run is asked to stop");
            let tidied = work(ctx, "tidy up", 20)?.await?;
            ctx.append_entry("system", &tidied)?;
            Err(stopped)
        })
    }
    let harness = harness(body).outside(|handle| async move {
        while handle.status().await.unwrap() != Status::Waiting {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        handle.cancel(CancelMode::Graceful, Duration::from_secs(60)).await.unwrap();
    });
    let proof = holds(harness, 3).await;
    let observed = proof.observed.unwrap();
    assert_eq!(observed.outcome, "cancelled, kept nothing");
    assert_eq!(observed.entries.len(), 2);
}

/// What a loop keeps between its turns.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Turns {
    turn: u32,
    background: Option<flovyn_core::id::TaskId>,
    heard: Vec<String>,
}

impl flovyn_core::agent::AgentState for Turns {}

/// A loop with state: a draw, a signal, a step and a checkpoint in every turn; a background task across them.
struct Loop;

#[async_trait]
impl AgentDefinition for Loop {
    type State = Turns;
    type Input = u32;
    type Output = String;
    fn kind(&self) -> &str {
        "loop"
    }
    async fn execute(&self, ctx: &dyn AgentContext, turns: u32) -> Result<String> {
        let mut state: Turns = ctx.state()?;
        let greeting: String =
            ctx.once("greeting", &(), |inner| async move { work(&inner, "greet", 5)?.await }).await?;
        if state.background.is_none() {
            let options = TaskOptions { detached: true, ..TaskOptions::default() };
            let call = flovyn_core::context::TaskCall {
                kind: "work".into(),
                input: Payload::of(&("background", 500))?,
                options: Some(options),
                queue: None,
                key: None,
            };
            state.background = ctx.schedule_raw(call)?.task();
        }
        while state.turn < turns {
            let drawn = ctx.random_uuid();
            let heard: String = ctx.wait_for_signal("say")?.await?;
            ctx.append_entry("user", &format!("{heard} {drawn}"))?;
            let answer = work(ctx, &heard, 15)?.await?;
            ctx.append_entry("assistant", &answer)?;
            state.heard.push(heard);
            state.turn += 1;
            ctx.checkpoint(&state)?.await?;
        }
        let background = state.background.ok_or_else(|| Error::new(Code::InvalidArgument, "no background task"))?;
        let late = ctx.attach(background)?.await?;
        Ok(format!("{greeting}, {:?}, {late:?}", state.heard))
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_with_state_and_a_task_across_its_segments() {
    let harness = Harness::new("loop", Payload::of(&3u32).unwrap(), || {
        NativeHost::default().agent(Loop).unwrap().task(Work).unwrap()
    })
    .outside(|handle| async move {
        for value in ["one", "two", "three"] {
            send_when_waiting(&handle, "say", value).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    let proof = holds(harness, 8).await;
    assert_eq!(proof.observed.unwrap().entries.len(), 6);
}

/// Fails once, and is soon tried again.
struct Again;

#[async_trait]
impl TaskDefinition for Again {
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "again"
    }
    fn options(&self) -> TaskOptions {
        let retry = RetryPolicy { retries: 9, initial: Duration::from_millis(1), ..RetryPolicy::default() };
        TaskOptions { retry, ..TaskOptions::default() }
    }
    async fn execute(&self, ctx: &TaskContext, (): ()) -> Result<String> {
        if ctx.attempt() == 1 { Err(Error::new(Code::InvalidArgument, "not yet")) } else { Ok("marrow again".into()) }
    }
}

/// The values of a local run are in a file, and the store has references to them: nothing of that shows. In real time, since
/// the file takes some.
#[tokio::test]
async fn family_13_a_local_run_goes_on_from_its_file() {
    fn body(ctx: &dyn AgentContext) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let long = "marrow ".repeat(20_000);
            let same: String = work(ctx, &long, 5)?.await?;
            ctx.append_entry("tool", &same)?;
            let mut small = String::new();
            for step in 0..3 {
                small = work(ctx, &format!("marrow {step}"), 5)?.await?;
                ctx.append_entry("assistant", &small)?;
            }
            let flaky: String = ctx.schedule("again", &())?.await?;
            let heard: String = ctx.wait_for_signal("go")?.await?;
            let kept = ctx.once("once", &"marrow", async |_| work(ctx, "marrow once", 5)?.await).await?;
            let all = ctx.messages().await?;
            let read: usize = all.iter().map(|entry| entry.new.content.size() as usize).sum();
            Ok(format!("{} {small} {flaky} {heard} {kept} {read} {}", same.len(), all.len()))
        })
    }
    let folder = tempfile::tempdir().unwrap();
    let host = move || NativeHost::default().agent(Plain(body)).unwrap().task(Work).unwrap().task(Again).unwrap();
    let harness = Harness::new("plain", Payload::null(), host)
        .by_attempt()
        .outside(|handle| async move { send_when_waiting(&handle, "go", "went").await })
        .local(folder.path());
    let proof = holds(harness, 6).await;
    let observed = proof.observed.unwrap();
    let stored = [observed.entries.as_slice(), &observed.tasks, &observed.journal].concat().join(" ");
    assert!(!stored.contains("marrow") && stored.contains("$local"), "the store has none of it: {stored}");
}

#[tokio::test]
async fn family_13_a_local_run_has_its_state_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::new("loop", Payload::of(&3u32).unwrap(), || {
        NativeHost::default().agent(Loop).unwrap().task(Work).unwrap()
    })
    .outside(|handle| async move {
        for value in ["one", "two", "three"] {
            send_when_waiting(&handle, "say", value).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .local(folder.path());
    assert_eq!(holds(harness, 8).await.observed.unwrap().entries.len(), 6);
}
