//! The generator's agents in Rust; README.md says what a life is. One life on standard input, what came of it on the output.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{CancelMode, Delivery};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all, try_join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;

static LIFE: OnceLock<Value> = OnceLock::new();
static LOG: OnceLock<std::fs::File> = OnceLock::new();
static PLACES: AtomicU64 = AtomicU64::new(0);
static FOREIGN: OnceLock<mpsc::UnboundedSender<(Duration, tokio::sync::oneshot::Sender<()>)>> = OnceLock::new();

fn life() -> &'static Value {
    LIFE.get().unwrap_or(&Value::Null)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn millis(value: &Value) -> Duration {
    Duration::from_millis(count(value))
}

fn micros(value: &Value) -> Duration {
    Duration::from_micros(count(value))
}

fn die() {
    // SAFETY: sends a signal to this process, which ends it.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Writes down what happened; the process may end here.
fn note(mut words: Vec<Value>) {
    words.insert(0, life()["number"].clone());
    if let Some(mut log) = LOG.get() {
        let _ = log.write_all(format!("{}\n", Value::from(words)).as_bytes());
    }
    if Some(PLACES.fetch_add(1, Ordering::Relaxed) + 1) == life()["kill_at"].as_u64() {
        die();
    }
}

// ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Declares a task: its kind and what it does.
macro_rules! task {
    ($name:ident, $kind:literal, |$input:ident| -> $out:ty $body:block) => {
        struct $name;

        #[async_trait]
        impl TaskDefinition for $name {
            type Input = Value;
            type Output = $out;

            fn kind(&self) -> &str {
                $kind
            }

            async fn execute(&self, _: &TaskContext, $input: Value) -> Result<$out> $body
        }
    };
}

task!(Work, "work", |input| -> Value {
    note(vec!["start".into(), input["run"].clone(), input["number"].clone()]);
    tokio::time::sleep(millis(&input["ms"])).await;
    Ok(input["number"].clone())
});
task!(Fails, "fails", |input| -> Value {
    note(vec!["start".into(), input["run"].clone(), input["number"].clone()]);
    Err(Error::new(Code::TaskFailed, input["number"].to_string()))
});
task!(Decide, "decide", |input| -> () {
    note(vec!["decide".into(), input["run"].clone(), input["number"].clone(), input["seen"].clone()]);
    Ok(())
});

// ── what the code waits for outside of its context ───────────────────────────────────────────────────────────────────

/// Waits for something that the engine does not see.
async fn outside(how: &str, wait: Duration) {
    match how {
        "timer" => tokio::time::sleep(wait).await,
        "spin" => {
            for _ in 0..wait.as_millis() {
                tokio::task::yield_now().await;
            }
        }
        "thread" => drop(tokio::task::spawn_blocking(move || std::thread::sleep(wait)).await),
        "future" => {
            let (ended, end) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                std::thread::sleep(wait);
                let _ = ended.send(());
            });
            drop(end.await);
        }
        "event" => drop(tokio::spawn(tokio::time::sleep(wait)).await),
        _ => {
            let (ended, end) = tokio::sync::oneshot::channel();
            if let Some(foreign) = FOREIGN.get() {
                drop(foreign.send((wait, ended)));
                drop(end.await);
            }
        }
    }
}

// ── the agent ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// One life of one program.
struct Run<'a> {
    ctx: &'a dyn AgentContext,
    name: &'a str,
    seen: Mutex<Vec<Value>>,
}

impl Run<'_> {
    fn saw(&self, value: Value) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(value);
    }

    fn seen(&self) -> Value {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone().into()
    }

    async fn work(&self, number: &Value, ms: &Value) -> Result<Value> {
        self.ctx.schedule_task(&Work, &json!({"run": self.name, "number": number, "ms": ms}))?.await
    }

    async fn step(&self, number: &Value, ms: &Value) -> Result<()> {
        self.saw(self.work(number, ms).await?);
        Ok(())
    }

    /// Does one node.
    fn execute<'b>(&'b self, node: &'b Value) -> BoxFuture<'b, Result<()>> {
        async move {
            let [kind, rest @ ..] = list(node) else { return Ok(()) };
            match (kind.as_str().unwrap_or_default(), rest) {
                ("step", [number, ms]) => self.step(number, ms).await?,
                ("fail", [number]) => {
                    let task = self.ctx.schedule_task(&Fails, &json!({"run": self.name, "number": number}))?;
                    match task.await {
                        Err(error) if error.code() == Code::Cancelled => return Err(error),
                        Err(_) => self.saw(format!("failed {number}").into()),
                        Ok(_) => {}
                    }
                }
                ("decide", [number]) => {
                    self.work(&json!(-(number.as_i64().unwrap_or_default())), &json!(0)).await?;
                    let input = json!({"run": self.name, "number": number, "seen": self.seen()});
                    self.ctx.schedule_task(&Decide, &input)?.await?;
                }
                ("sleep", [us]) => drop(self.ctx.sleep(micros(us))?.await?),
                ("signal", [name]) => self.saw(self.ctx.wait_for_signal(name.as_str().unwrap_or_default())?.await?),
                ("never", [number]) => {
                    let _: Value = self.ctx.wait_for_signal(&format!("never {number}"))?.await?;
                }
                ("outside", [how, ms]) => outside(how.as_str().unwrap_or_default(), millis(ms)).await,
                ("seq", [nodes]) => {
                    for one in list(nodes) {
                        self.execute(one).await?;
                    }
                }
                ("all", [variant, nodes]) => self.all(count(variant), list(nodes)).await?,
                ("race", [nodes]) => select_all(list(nodes).iter().map(|one| self.execute(one))).await.0?,
                ("pool", [workers, nodes]) => self.pool(count(workers), list(nodes)).await?,
                ("timeout", [ms, body, number]) => {
                    if let Ok(done) = tokio::time::timeout(millis(ms), self.execute(body)).await {
                        done?;
                    }
                    self.step(number, &json!(0)).await?;
                }
                ("limit", [us, body]) => match self.ctx.timeout(micros(us), self.execute(body)).await {
                    Err(error) if error.code() == Code::Timeout => {}
                    done => done??,
                },
                ("nest", [depth, body]) => self.nest(count(depth), body).await?,
                _ => return Err(Error::new(Code::InvalidArgument, format!("unknown node {node}"))),
            }
            Ok(())
        }
        .boxed()
    }

    /// Puts branches into branches.
    fn nest<'b>(&'b self, depth: u64, body: &'b Value) -> BoxFuture<'b, Result<()>> {
        match depth {
            0 => self.execute(body),
            depth if depth % 3 == 0 => async move {
                let mut branches = FuturesUnordered::from_iter([self.nest(depth - 1, body)]);
                branches.next().await.unwrap_or(Ok(()))
            }
            .boxed(),
            depth => async move { try_join_all([self.nest(depth - 1, body)]).await.map(drop) }.boxed(),
        }
    }

    /// Does all at once.
    async fn all(&self, variant: u64, nodes: &[Value]) -> Result<()> {
        let mut branches = nodes.iter().map(|node| self.execute(node));
        match variant % 4 {
            0 => try_join_all(branches).await.map(drop),
            1 => join_all(branches).await.into_iter().collect(),
            2 => {
                let mut branches: FuturesUnordered<_> = branches.collect();
                while let Some(done) = branches.next().await {
                    done?;
                }
                Ok(())
            }
            _ => {
                let (Some(one), Some(other)) = (branches.next(), branches.next()) else { return Ok(()) };
                let (one, other, others) = futures::join!(one, other, try_join_all(branches));
                one.and(other).and(others.map(drop))
            }
        }
    }

    /// Lets some workers do what is in a queue.
    async fn pool(&self, workers: u64, nodes: &[Value]) -> Result<()> {
        let queue = Mutex::new(nodes.iter().collect::<VecDeque<_>>());
        let next = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
        let worker = || async {
            while let Some(node) = next() {
                self.execute(node).await?;
            }
            Ok::<_, Error>(())
        };
        try_join_all((0..workers).map(|_| worker())).await.map(drop)
    }
}

struct Generated;

#[async_trait]
impl AgentDefinition for Generated {
    type State = ();
    type Input = String;
    type Output = Value;

    fn kind(&self) -> &str {
        "generated"
    }

    fn version(&self) -> Option<String> {
        life()["version"].as_str().map(str::to_owned)
    }

    async fn execute(&self, ctx: &dyn AgentContext, name: String) -> Result<Value> {
        let programs = list(&life()["programs"]);
        let program = programs.iter().find(|program| program["name"] == name.as_str()).unwrap_or(&Value::Null);
        let run = Run { ctx, name: &name, seen: Mutex::default() };
        let body = async {
            for node in list(&program["body"]) {
                run.execute(node).await?;
            }
            Ok::<_, Error>(())
        };
        let background = try_join_all(list(&program["background"]).iter().map(|node| run.execute(node)));
        futures::try_join!(background, body)?;
        Ok(run.seen())
    }
}

// ── a life ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Starts a run, sends what it is sent, and waits for its end.
async fn steer(client: &Client, program: &Value) -> Result<Value> {
    let name = program["name"].as_str().unwrap_or_default();
    let handle = client.start("generated", Payload::of(&name)?, StartOptions::with_id(name)).await?;
    for (number, signal) in list(&program["signals"]).iter().enumerate() {
        let [ms, signal, value] = list(signal) else { continue };
        tokio::time::sleep(millis(ms)).await;
        let (signal, key) = (signal.as_str().unwrap_or_default(), Some(number.to_string()));
        match handle.signal(signal, Payload::of(value)?, Delivery::default(), key).await {
            Err(error) if error.code() == Code::ExecutionClosed => break,
            sent => drop(sent?),
        }
    }
    if !program["cancel"].is_null() && count(&life()["number"]) > 1 {
        tokio::time::sleep(millis(&program["cancel"])).await;
        handle.cancel(CancelMode::Graceful, Duration::from_secs(5)).await?;
    }
    let timeout = Duration::from_secs(count(&life()["timeout"]));
    Ok(match handle.result(Some(timeout)).await {
        Ok(result) => json!({"name": name, "result": result.parse::<Value>()?}),
        Err(error) if error.code() == Code::AgentCancelled => json!({"name": name, "cancelled": true}),
        Err(error) => json!({"name": name, "error": error.to_string()}),
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let given: Value = serde_json::from_reader(std::io::stdin())
        .map_err(|error| Error::new(Code::InvalidArgument, format!("no life was given: {error}")))?;
    let life = LIFE.get_or_init(|| given);
    let path = life["log"].as_str().unwrap_or_default();
    let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
    LOG.get_or_init(|| log.expect("the log can be opened"));
    if let Some(ms) = life["kill_ms"].as_u64() {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(ms));
            die();
        });
    }
    let (foreign, mut asked) = mpsc::unbounded_channel();
    FOREIGN.get_or_init(|| foreign);
    tokio::spawn(async move {
        while let Some((wait, ended)) = asked.recv().await {
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                let _ = ended.send(());
            });
        }
    });
    let mut flovyn = FlovynClient::builder()
        .url(life["url"].as_str().unwrap_or_default())
        .agent(Generated)
        .task(Work)
        .task(Fails)
        .task(Decide);
    if let Some(most) = life["max_parked"].as_u64() {
        flovyn = flovyn.max_parked(usize::try_from(most).unwrap_or(usize::MAX));
    }
    let flovyn = flovyn.build().await?;
    flovyn.worker().await?;
    let mut runs: FuturesUnordered<_> =
        list(&life["programs"]).iter().map(|program| steer(flovyn.client(), program)).collect();
    while let Some(told) = runs.next().await {
        println!("{}", told?);
    }
    flovyn.close().await
}
