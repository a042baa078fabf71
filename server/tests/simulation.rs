//! The real gRPC server and real workers over a network that is made up: links break, hosts die, time is virtual.
//!
//! What is durable is a backend in memory that outlives its server. Whatever happens, every run ends with what it would have
//! ended with, nothing lost, nothing doubled. `SEED` runs one sequence of faults alone, `SCALE` multiplies their number; ids
//! are random, so a seed repeats the faults and their moments, not every byte.

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Client, Handle, Outcome, StartOptions};
use flovyn_core::clock::{Clock, Timestamp};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::id::OrgId;
use flovyn_core::model::Delivery;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::Storage;
use flovyn_core::storage::conformance::random::Random;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::WorkerOptions;
use flovyn_core::{Error, Payload};
use flovyn_server::{Access, Identity, serve_connections};
use futures::future::try_join_all;
use futures::stream;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::server::Connected;
use turmoil::Builder;
use turmoil::net::{TcpListener, TcpStream};

const TOKEN: &str = "simulated";
const PORT: u16 = 9090;
const WORKERS: [&str; 3] = ["worker-0", "worker-1", "worker-2"];
const RUNS: u64 = 8;
/// Signals that each run waits for, and so its turns.
const TURNS: u64 = 5;
/// How long faults happen, and how long the runs may take after the last, in virtual time.
const TROUBLE: Duration = Duration::from_secs(60);
const HEAL: Duration = Duration::from_secs(240);

/// The simulation's time as the store's.
#[derive(Debug)]
struct Simulated;

impl Clock for Simulated {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000_000).after(turmoil::sim_elapsed().unwrap_or_default())
    }
}

/// A connection of the simulation, as a server takes it.
struct Wire(TcpStream);

impl Connected for Wire {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Makes connections of the simulation for a client.
struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(async { Ok(TokioIo::new(TcpStream::connect(("server", PORT)).await?)) })
    }
}

/// What was done outside of any database: the starts of the steps of each run, in order.
type Starts = Arc<Mutex<BTreeMap<u64, Vec<u64>>>>;

struct Trace(Starts);

#[derive(Serialize, Deserialize)]
struct Step {
    run: u64,
    step: u64,
}

#[async_trait]
impl TaskDefinition for Trace {
    type Input = Step;
    type Output = u64;

    fn kind(&self) -> &str {
        "trace"
    }

    async fn execute(&self, _: &TaskContext, Step { run, step }: Step) -> Result<u64> {
        self.0.lock().unwrap().entry(run).or_default().push(step);
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(step)
    }
}

/// Sums what it is told, with a checkpoint every other turn.
struct Sums;

#[derive(Default, Serialize, Deserialize, flovyn_core::agent::AgentState)]
struct Sum {
    turn: u64,
    total: u64,
}

#[async_trait]
impl AgentDefinition for Sums {
    type State = Sum;
    type Input = u64;
    type Output = u64;

    fn kind(&self) -> &str {
        "sums"
    }

    async fn execute(&self, ctx: &dyn AgentContext, run: u64) -> Result<u64> {
        let mut sum: Sum = ctx.state()?;
        while sum.turn < TURNS {
            let told: u64 = ctx.wait_for_signal("number")?.await?;
            ctx.schedule_task(&Trace(Starts::default()), &Step { run, step: sum.turn })?.await?;
            sum.turn += 1;
            sum.total += told;
            ctx.append_entry("assistant", &sum.turn)?;
            if sum.turn.is_multiple_of(2) {
                ctx.checkpoint(&sum)?.await?;
            }
        }
        Ok(sum.total)
    }
}

/// Asks again for as long as what is asked cannot be reached.
async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    loop {
        match ask().await {
            Err(error) if error.code() == Code::StorageUnavailable => {
                tokio::time::sleep(Duration::from_millis(200)).await
            }
            answer => return answer,
        }
    }
}

async fn connect() -> Result<Runtime> {
    let options = RemoteOptions { token: Some(TOKEN.into()) };
    let url = format!("http://server:{PORT}");
    insist(async || RemoteStorage::connect_through(&url, options.clone(), Connector).await)
        .await
        .map(|remote| Runtime::over(Arc::new(remote)))
}

/// A server's process: the listener and the house's keeping, over what outlives it.
async fn server(storage: Arc<dyn Storage>) -> turmoil::Result {
    let runtime = Runtime::over(storage.clone());
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    let connections = stream::unfold(listener, |listener| async {
        let connection = listener.accept().await.map(|(connection, _)| Wire(connection));
        Some((connection, listener))
    });
    serve_connections(storage, runtime.chunks().clone(), access, connections, stream::pending()).await?;
    Ok(())
}

/// A worker's process: serves until it dies.
async fn worker(starts: Starts) -> turmoil::Result {
    let runtime = connect().await?;
    let host = Arc::new(NativeHost::default().agent(Sums)?.task(Trace(starts))?);
    let _worker = insist(async || runtime.worker(host.clone(), WorkerOptions::default()).await).await?;
    std::future::pending().await
}

/// Starts a run and sends its signals, each once however often it must be repeated.
async fn talk(client: Client, run: u64) -> Result<Handle> {
    let input = Payload::of(&run)?;
    let options = || StartOptions::with_id(format!("sum-{run}"));
    let handle = insist(async || client.start("sums", input.clone(), options()).await).await?;
    for turn in 0..TURNS {
        let number = Payload::of(&(run * 1_000 + turn))?;
        let key = Some(format!("turn {turn}"));
        insist(async || handle.signal("number", number.clone(), Delivery::default(), key.clone()).await).await?;
        tokio::time::sleep(TROUBLE / (TURNS as u32 + 1)).await;
    }
    Ok(handle)
}

/// What somebody sees who asks the server.
async fn customer() -> turmoil::Result {
    let runtime = connect().await?;
    let handles = try_join_all((0..RUNS).map(|run| talk(runtime.client(), run))).await?;
    for (run, handle) in (0..).zip(&handles) {
        let outcome = insist(async || handle.outcome(Some(HEAL)).await).await?;
        let Outcome::Completed(output) = outcome else { panic!("run {run} ended with {outcome:?}") };
        assert_eq!(output.parse::<u64>()?, (0..TURNS).map(|turn| run * 1_000 + turn).sum::<u64>(), "run {run}");
        let entries = insist(async || handle.messages().await).await?;
        let turns = entries.iter().map(|entry| entry.new.content.parse()).collect::<Result<Vec<u64>>>()?;
        assert_eq!(turns, (1..=TURNS).collect::<Vec<_>>(), "run {run}");
    }
    Ok(())
}

/// One fault after the other; each is over before the next begins.
fn play(seed: u64) {
    let mut random = Random(seed);
    let mut sim = Builder::new()
        .rng_seed(seed)
        .tick_duration(Duration::from_millis(5))
        .simulation_duration(TROUBLE + HEAL)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(20))
        .build();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(Simulated)));
    sim.host("server", move || server(storage.clone()));
    let starts = Starts::default();
    for name in WORKERS {
        let starts = starts.clone();
        sim.host(name, move || worker(starts.clone()));
    }
    sim.client("customer", customer());

    let (mut next, mut over): (Duration, Option<(Duration, Fault)>) = (Duration::from_secs(1), None);
    let mut faults = 0;
    loop {
        let done = sim.step().unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
        if done {
            break;
        }
        let now = sim.elapsed();
        if let Some((_, fault)) = over.take_if(|(at, _)| *at <= now) {
            fault.end(&mut sim);
        } else if over.is_none() && now >= next && now < TROUBLE {
            let fault = Fault::any(&mut random);
            fault.begin(&mut sim);
            faults += 1;
            let lasts = Duration::from_millis(100 + random.below(8_000) as u64);
            over = Some((now + lasts, fault));
            next = now + lasts + Duration::from_millis(random.below(3_000) as u64);
        }
    }
    assert!(faults > 3, "SEED={seed}: only {faults} faults happened");
    check(seed, &starts.lock().unwrap());
}

/// No step ran again once the next one of its run had begun, for then it was finished.
fn check(seed: u64, starts: &BTreeMap<u64, Vec<u64>>) {
    assert_eq!(starts.len() as u64, RUNS, "SEED={seed}");
    for (run, steps) in starts {
        let mut once = steps.clone();
        once.dedup();
        assert_eq!(once, (0..TURNS).collect::<Vec<_>>(), "SEED={seed}: the steps of run {run} began as {steps:?}");
    }
}

/// What goes wrong for a while.
enum Fault {
    Cut(&'static str),
    Dead(&'static str),
}

impl Fault {
    fn any(random: &mut Random) -> Self {
        let worker = WORKERS[random.below(WORKERS.len())];
        match random.below(6) {
            0 => Self::Cut("customer"),
            1 | 2 => Self::Cut(worker),
            3 => Self::Dead("server"),
            _ => Self::Dead(worker),
        }
    }

    fn begin(&self, sim: &mut turmoil::Sim<'_>) {
        match self {
            Self::Cut(host) => sim.partition(*host, "server"),
            Self::Dead(host) => sim.crash(*host),
        }
    }

    fn end(self, sim: &mut turmoil::Sim<'_>) {
        match self {
            Self::Cut(host) => sim.repair(host, "server"),
            Self::Dead(host) => sim.bounce(host),
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_is_lost_or_doubled_whatever_breaks() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..4 * number("SCALE").unwrap_or(1),
    };
    for seed in seeds {
        play(seed);
    }
}

/// A refusal that the simulation cannot cause would hide in `insist`.
#[test]
fn a_wrong_token_is_told_at_once() {
    let mut sim = Builder::new().build();
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(Arc::new(Simulated)));
    sim.host("server", move || server(storage.clone()));
    sim.client("stranger", async {
        let options = RemoteOptions { token: Some("guessed".into()) };
        let refused = RemoteStorage::connect_through("http://server:9090", options, Connector).await;
        let error: Error = refused.expect_err("the token is none");
        assert!(error.message().contains("FLOVYN_TOKEN"), "{error}");
        Ok(())
    });
    sim.run().unwrap();
}
