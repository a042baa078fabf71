//! The generator's agents in Rust; README.md says what a life is. One life on standard input, what came of it on the output.

mod crashes;
mod steering;

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt, StepOf};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::TaskId;
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, join_all, select, select_all, select_ok, try_join_all};
use futures::stream::{self, FuturesOrdered, FuturesUnordered, StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
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

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes down what happened; the process may end here.
fn note(number: u64, mut words: Vec<Value>) {
    words.insert(0, number.into());
    if let Some(mut log) = LOG.get() {
        // All lines are as long, and no page ends within one: a kill can tear a write where its next page begins.
        let _ = log.write_all(format!("{:<255}\n", Value::from(words).to_string()).as_bytes());
    }
    if Some(PLACES.fetch_add(1, Ordering::Relaxed) + 1) == life()["kill_at"].as_u64() {
        die();
    }
}

/// A run in one of its lives, and what it did last: for who has to explain why it does not end.
struct Copy {
    key: String,
    life: u64,
    story: Mutex<VecDeque<String>>,
}

impl Copy {
    /// Writes down what happened to it.
    fn note(&self, what: &str, rest: &[&Value]) {
        let mut words: Vec<Value> = vec![what.into(), self.key.clone().into()];
        words.extend(rest.iter().copied().cloned());
        note(self.life, words);
    }

    /// Remembers what it does.
    fn tell(&self, what: &str, node: &Value) {
        let node: String = node.to_string().chars().take(90).collect();
        let mut story = locked(&self.story);
        story.push_back(format!("{} ms {what} {node}", BEGAN.elapsed().as_millis()));
        if story.len() > 60 {
            story.pop_front();
        }
    }
}

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The latest copy of each run.
static RUNS: LazyLock<Mutex<HashMap<String, Arc<Copy>>>> = LazyLock::new(Mutex::default);
/// The life of a run that dies within this process; that of others is the process's.
static LIVES: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);
/// Who has called a task in this process: a fork's inputs are those of its parent, so they do not tell.
static CALLERS: LazyLock<Mutex<HashMap<TaskId, Arc<Copy>>>> = LazyLock::new(Mutex::default);

fn caller(ctx: &TaskContext) -> Result<Arc<Copy>> {
    let missing = || Error::new(Code::InvalidArgument, "nobody called this task");
    locked(&CALLERS).get(&ctx.task_id()).cloned().ok_or_else(missing)
}

/// Says on the error output what this process knows of a run that has not ended.
fn explain(key: &str) {
    let copy = locked(&RUNS).get(key).cloned();
    let Some(copy) = copy else {
        eprintln!("[{key}] its code was not entered in this process");
        return;
    };
    for line in &*locked(&copy.story) {
        eprintln!("[{key}] {line}");
    }
}

// ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Declares a task: its kind and what it does.
macro_rules! task {
    ($name:ident, $kind:literal, |$ctx:ident, $input:ident| -> $out:ty $body:block) => {
        struct $name;

        #[async_trait]
        impl TaskDefinition for $name {
            type Input = Value;
            type Output = $out;

            fn kind(&self) -> &str {
                $kind
            }

            async fn execute(&self, $ctx: &TaskContext, $input: Value) -> Result<$out> $body
        }
    };
}

task!(Work, "work", |ctx, input| -> Value {
    caller(ctx)?.note("start", &[&input["number"]]);
    tokio::time::sleep(millis(&input["ms"])).await;
    Ok(input["number"].clone())
});
task!(Fails, "fails", |ctx, input| -> Value {
    caller(ctx)?.note("start", &[&input["number"]]);
    Err(Error::new(Code::TaskFailed, input["number"].to_string()))
});
task!(Decide, "decide", |ctx, input| -> () {
    caller(ctx)?.note("decide", &[&input["number"], &input["seen"]]);
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
        "executor" => {
            let (ended, end) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                std::thread::sleep(wait);
                ended.send(())
            });
            drop(tokio::task::spawn_blocking(move || end.recv()).await);
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
    copy: Arc<Copy>,
    seen: Mutex<Vec<Value>>,
    decided: Mutex<Map<String, Value>>,
}

impl Run<'_> {
    fn saw(&self, value: Value) {
        locked(&self.seen).push(value);
    }

    /// Remembers whose a task is.
    fn call<T>(&self, step: StepOf<T>) -> StepOf<T> {
        if let Some(task) = step.step().task() {
            locked(&CALLERS).insert(task, self.copy.clone());
        }
        step
    }

    async fn work(&self, number: &Value, ms: &Value) -> Result<Value> {
        let input = json!({"run": self.name, "number": number, "ms": ms});
        self.call(self.ctx.schedule_task(&Work, &input)?).await
    }

    async fn step(&self, number: &Value, ms: &Value) -> Result<()> {
        self.saw(self.work(number, ms).await?);
        Ok(())
    }

    async fn decide(&self, number: &Value) -> Result<()> {
        self.work(&json!(-(number.as_i64().unwrap_or_default())), &json!(0)).await?;
        let seen = Value::from(locked(&self.seen).clone());
        locked(&self.decided).insert(number.to_string(), seen.clone());
        let input = json!({"run": self.name, "number": number, "seen": seen});
        self.call(self.ctx.schedule_task(&Decide, &input)?).await
    }

    /// Does one node.
    fn execute<'b>(&'b self, node: &'b Value) -> BoxFuture<'b, Result<()>> {
        async move {
            self.copy.tell("begins", node);
            let done = self.one(node).await;
            self.copy.tell(if done.is_ok() { "ends" } else { "fails" }, node);
            done
        }
        .boxed()
    }

    async fn one(&self, node: &Value) -> Result<()> {
        let [kind, rest @ ..] = list(node) else { return Ok(()) };
        match (kind.as_str().unwrap_or_default(), rest) {
            ("step", [number, ms]) => self.step(number, ms).await?,
            ("fail", [number]) => {
                let task = self.ctx.schedule_task(&Fails, &json!({"run": self.name, "number": number}))?;
                match self.call(task).await {
                    Err(error) if error.code() == Code::Cancelled => return Err(error),
                    Err(_) => self.saw(format!("failed {number}").into()),
                    Ok(_) => {}
                }
            }
            ("decide", [number]) => self.decide(number).await?,
            ("run", [number]) => {
                let (copy, given) = (self.copy.clone(), number.clone());
                let work = async move {
                    copy.note("start", &[&given]);
                    Ok(given)
                };
                self.saw(self.ctx.run(&format!("run {number}"), work)?.await?);
            }
            ("once", [number]) => {
                let work = |ctx: flovyn_core::context::Context| async move {
                    let input = json!({"run": self.name, "number": number, "ms": 0});
                    self.call(ctx.schedule_task(&Work, &input)?).await
                };
                self.saw(self.ctx.once(&format!("once {number}"), number, work).await?);
            }
            ("entry", [number]) => drop(self.ctx.append_entry("user", number)?),
            ("drain", [name]) => {
                let drained: Vec<Value> = self.ctx.drain_signals(name.as_str().unwrap_or_default())?;
                self.saw(drained.into());
            }
            ("within", [us, number]) => {
                match self.ctx.wait_for_signal_within::<Value>(&format!("never {number}"), micros(us))?.await {
                    Err(error) if error.code() == Code::SignalTimeout => self.saw(format!("late {number}").into()),
                    other => drop(other?),
                }
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
            ("all", [variant, nodes]) => self.all(count(variant) % 8, list(nodes)).await?,
            ("race", [variant, nodes]) => self.race(count(variant) % 6, list(nodes)).await?,
            ("pool", [variant, workers, nodes]) => {
                self.pool(count(variant) % 4, count(workers) as usize, list(nodes)).await?;
            }
            ("timeout", [ms, body, number]) => {
                self.timeout(count(number) % 3, millis(ms), body).await?;
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

    /// Gives a node so much time of the host's.
    async fn timeout(&self, variant: u64, limit: Duration, body: &Value) -> Result<()> {
        let doing = self.execute(body);
        match variant {
            0 => tokio::time::timeout(limit, doing).await.unwrap_or(Ok(())),
            1 => tokio::select! {
                done = doing => done,
                () = tokio::time::sleep(limit) => Ok(()),
            },
            _ => match select(doing, pin!(tokio::time::sleep(limit))).await {
                Either::Left((done, _)) => done,
                Either::Right(_) => Ok(()),
            },
        }
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

    /// The futures of nodes.
    fn begun<'b>(&'b self, nodes: &'b [Value]) -> std::vec::IntoIter<BoxFuture<'b, Result<()>>> {
        let branches: Vec<_> = nodes.iter().map(|node| self.execute(node)).collect();
        branches.into_iter()
    }

    /// Does all at once.
    async fn all(&self, variant: u64, nodes: &[Value]) -> Result<()> {
        let mut branches = self.begun(nodes);
        match variant {
            0 => try_join_all(branches).await.map(drop),
            1 => join_all(branches).await.into_iter().collect(),
            2 => {
                let mut branches: FuturesUnordered<_> = branches.collect();
                while let Some(done) = branches.next().await {
                    done?;
                }
                Ok(())
            }
            3 => branches.collect::<FuturesOrdered<_>>().try_collect().await,
            4 => stream::iter(branches).buffer_unordered(nodes.len()).try_collect().await,
            5 => stream::iter(branches.map(Ok)).try_for_each_concurrent(None, |branch| branch).await,
            6 => {
                let (Some(mut one), Some(mut other)) = (branches.next(), branches.next()) else { return Ok(()) };
                let mut others = pin!(try_join_all(branches));
                let mut left = [true; 3];
                while left.contains(&true) {
                    tokio::select! {
                        biased;
                        done = &mut one, if left[0] => { left[0] = false; done?; }
                        done = &mut other, if left[1] => { left[1] = false; done?; }
                        done = &mut others, if left[2] => { left[2] = false; done?; }
                    }
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

    /// Goes on with the first and gives the others up.
    async fn race(&self, variant: u64, nodes: &[Value]) -> Result<()> {
        let mut branches = self.begun(nodes);
        match variant {
            0 => select_all(branches).await.0,
            1 => branches.collect::<FuturesUnordered<_>>().next().await.unwrap_or(Ok(())),
            2 => select_ok(branches).await.map(drop),
            3 => stream::iter(branches).buffer_unordered(nodes.len()).next().await.unwrap_or(Ok(())),
            _ => {
                let (Some(one), Some(other)) = (branches.next(), branches.next()) else { return Ok(()) };
                let third = branches.next().unwrap_or_else(|| std::future::pending().boxed());
                if variant == 4 {
                    let rest = pin!(select(other, third).map(|first| first.factor_first().0));
                    return select(one, rest).await.factor_first().0;
                }
                tokio::select! {
                    biased;
                    done = one => done,
                    done = other => done,
                    done = third => done,
                }
            }
        }
    }

    /// Lets some workers do what is in a queue.
    async fn pool(&self, variant: u64, workers: usize, nodes: &[Value]) -> Result<()> {
        match variant {
            0 => {
                let branches = stream::iter(self.begun(nodes).map(Ok));
                branches.try_for_each_concurrent(workers, |branch| branch).await
            }
            1 => {
                let gate = tokio::sync::Semaphore::new(workers);
                let gated = |node| {
                    let gate = &gate;
                    async move {
                        let _inside = gate.acquire().await;
                        self.execute(node).await
                    }
                };
                try_join_all(nodes.iter().map(gated)).await.map(drop)
            }
            2 => {
                let (sender, receiver) = mpsc::channel(1);
                let receiver = tokio::sync::Mutex::new(receiver);
                let send = async {
                    let sender = sender;
                    for node in nodes {
                        let _ = sender.send(node).await;
                    }
                    Ok::<_, Error>(())
                };
                let worker = || async {
                    loop {
                        let next = receiver.lock().await.recv().await;
                        let Some(node) = next else { return Ok::<_, Error>(()) };
                        self.execute(node).await?;
                    }
                };
                tokio::try_join!(send, try_join_all((0..workers).map(|_| worker()))).map(drop)
            }
            _ => {
                let queue = Mutex::new(nodes.iter().collect::<VecDeque<_>>());
                let next = || locked(&queue).pop_front();
                let worker = || async {
                    while let Some(node) = next() {
                        self.execute(node).await?;
                    }
                    Ok::<_, Error>(())
                };
                try_join_all((0..workers).map(|_| worker())).await.map(drop)
            }
        }
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
        let key = ctx.key().unwrap_or_default().to_owned();
        let life = locked(&LIVES).get(&key).copied().unwrap_or_else(|| count(&life()["number"]));
        let copy = Arc::new(Copy { key: key.clone(), life, story: Mutex::default() });
        locked(&RUNS).insert(key, copy.clone());
        let run = Run { ctx, name: &name, copy, seen: Mutex::default(), decided: Mutex::default() };
        let body = async {
            for node in list(&program["body"]) {
                run.execute(node).await?;
            }
            Ok::<_, Error>(())
        };
        let background = try_join_all(list(&program["background"]).iter().map(|node| run.execute(node)));
        futures::try_join!(background, body)?;
        let (seen, decided) = (locked(&run.seen).clone(), locked(&run.decided).clone());
        Ok(json!({"seen": seen, "decided": decided}))
    }
}

// ── a life ───────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    let Some(url) = life["url"].as_str() else { return crashes::die_all(life).await };
    let mut flovyn = FlovynClient::builder().url(url).agent(Generated).task(Work).task(Fails).task(Decide);
    if let Some(most) = life["max_parked"].as_u64() {
        flovyn = flovyn.max_parked(usize::try_from(most).unwrap_or(usize::MAX));
    }
    let flovyn = flovyn.build().await?;
    flovyn.worker().await?;
    let mut runs: FuturesUnordered<_> =
        list(&life["programs"]).iter().map(|program| steering::steer(flovyn.client(), program)).collect();
    while let Some(ended) = runs.next().await {
        ended?;
    }
    flovyn.close().await
}
