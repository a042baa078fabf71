//! Two real servers and real workers over a network that is made up: links break, hosts die, time is virtual.
//!
//! What is durable is a backend in memory that outlives its servers. Whatever happens, every run ends with what it would have
//! ended with, nothing lost, nothing doubled; who follows it over HTTP, from server to server, reads each event once. `SEED` runs one sequence of faults alone, `SCALE` multiplies their number; ids
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
use futures::future::{join, join_all, try_join_all};
use futures::{Stream, stream};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
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
const GRPC: u16 = 9090;
const HTTP: u16 = 8080;
static SERVERS: [&str; 2] = ["server", "twin"];
static WORKERS: [&str; 3] = ["worker-0", "worker-1", "worker-2"];
const RUNS: u64 = 6;
/// Those of them that are started, told and followed over HTTP.
const OVER_HTTP: u64 = 2;
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

/// Makes connections of the simulation for a client, to each server in turn.
struct Connector(usize);

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.0 += 1;
        let server = SERVERS[self.0 % SERVERS.len()];
        Box::pin(async move { Ok(TokioIo::new(TcpStream::connect((server, GRPC)).await?)) })
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

/// Connects to one server, and to the other where that cannot be reached.
async fn connect(mut first: usize) -> Result<Runtime> {
    let options = RemoteOptions { token: Some(TOKEN.into()) };
    let connecting = insist(async || {
        first += 1;
        RemoteStorage::connect_through("http://servers:9090", options.clone(), Connector(first)).await
    });
    connecting.await.map(|remote| Runtime::over(Arc::new(remote)))
}

/// What comes to a port.
async fn listen(port: u16) -> io::Result<impl Stream<Item = io::Result<Wire>>> {
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    Ok(stream::unfold(listener, |listener| async {
        let connection = listener.accept().await.map(|(connection, _)| Wire(connection));
        Some((connection, listener))
    }))
}

/// The process of a server: its listeners and housekeeping, over a storage that outlives it.
async fn server(storage: Arc<dyn Storage>) -> turmoil::Result {
    let runtime = Runtime::over(storage.clone());
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let (grpc, http) = (listen(GRPC).await?, listen(HTTP).await?);
    serve_connections(storage, runtime.chunks().clone(), access, grpc, http).await?;
    Ok(())
}

/// A worker's process: serves until it dies.
async fn worker(number: usize, starts: Starts) -> turmoil::Result {
    let runtime = connect(number).await?;
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
    let runtime = connect(0).await?;
    let handles = try_join_all((OVER_HTTP..RUNS).map(|run| talk(runtime.client(), run))).await?;
    for (run, handle) in (OVER_HTTP..).zip(&handles) {
        let outcome = insist(async || handle.outcome(Some(HEAL)).await).await?;
        let Outcome::Completed(output) = outcome else { panic!("run {run} ended with {outcome:?}") };
        assert_eq!(output.parse::<u64>()?, (0..TURNS).map(|turn| run * 1_000 + turn).sum::<u64>(), "run {run}");
        let entries = insist(async || handle.messages().await).await?;
        let turns = entries.iter().map(|entry| entry.new.content.parse()).collect::<Result<Vec<u64>>>()?;
        assert_eq!(turns, (1..=TURNS).collect::<Vec<_>>(), "run {run}");
    }
    Ok(())
}

/// Asks over a connection of its own.
async fn ask(server: &str, path: &str, after: Option<&str>, body: &Value) -> io::Result<Response<Incoming>> {
    let connection = TokioIo::new(TcpStream::connect((server, HTTP)).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(connection).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let mut request = Request::builder().uri(format!("/api/orgs/default/agent-executions{path}"));
    request = request.header("host", server).header("authorization", format!("Bearer {TOKEN}"));
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let body = match body {
        Value::Null => Bytes::new(),
        body => {
            request = request.method("POST").header("content-type", "application/json");
            body.to_string().into()
        }
    };
    let request = request.body(Full::new(body)).map_err(io::Error::other)?;
    sender.send_request(request).await.map_err(io::Error::other)
}

/// Asks one server after the other until one answers; whose turn it is first.
async fn answered(turn: usize, path: &str, after: Option<&str>, body: &Value) -> Response<Incoming> {
    for server in SERVERS.iter().cycle().skip(turn % SERVERS.len()) {
        let asked = tokio::time::timeout(Duration::from_secs(5), ask(server, path, after, body)).await;
        match asked {
            Ok(Ok(answer)) if answer.status().is_success() => return answer,
            Ok(Ok(answer)) if answer.status() != 503 => panic!("{path} was refused: {answer:?}"),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    unreachable!("there are servers")
}

/// An event's id and all of its lines.
type Told = (String, String);

/// Reads a stream of events to where it ends or breaks, or until so many were seen.
async fn listen_to(answer: Response<Incoming>, enough: usize, seen: &mut Vec<Told>) {
    let (mut body, mut text) = (answer.into_body(), String::new());
    // A server that lives says so every 15 s.
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_secs(20), body.frame()).await {
        let Ok(bytes) = frame.into_data() else { continue };
        text.push_str(std::str::from_utf8(&bytes).expect("no frame cuts a character"));
        while let Some((event, rest)) = text.split_once("\n\n") {
            let id = event.lines().find_map(|line| line.strip_prefix("id: "));
            seen.extend(id.map(|id| (id.to_owned(), event.to_owned())));
            if seen.len() >= enough {
                return;
            }
            text = rest.to_owned();
        }
    }
}

/// Follows a run to its end, behind the last event that came, from server to server. Leaves
/// streams that do not break, too, wherever they are.
async fn follow(path: &str) -> Vec<Told> {
    let mut seen = Vec::new();
    for turn in 0.. {
        let after = seen.last().map(|(id, _): &Told| id.clone());
        let answer = answered(turn, path, after.as_deref(), &Value::Null).await;
        if answer.status() == 204 {
            break;
        }
        let enough = seen.len() + 3;
        listen_to(answer, enough, &mut seen).await;
    }
    seen
}

/// Starts a run over HTTP, sends its signals and follows it.
async fn talk_over_http(run: u64) {
    let body = json!({ "kind": "sums", "id": format!("sum-{run}"), "input": run });
    answered(0, "", None, &body).await;
    let signals = async {
        for turn in 0..TURNS {
            let key = format!("turn {turn}");
            let server = usize::try_from(turn + run).expect("few turns");
            let body = json!({ "signalName": "number", "signalValue": run * 1_000 + turn, "idempotencyKey": key });
            answered(server, &format!("/sum-{run}/signal"), None, &body).await;
            tokio::time::sleep(TROUBLE / (TURNS as u32 + 1)).await;
        }
    };
    let path = format!("/sum-{run}/stream/consolidated");
    let (seen, ()) = join(follow(&path), signals).await;
    // What is told in one piece, however often it takes until nothing breaks in between.
    let whole = loop {
        let mut whole = Vec::new();
        listen_to(answered(0, &path, None, &Value::Null).await, usize::MAX, &mut whole).await;
        if whole.last().is_some_and(|(_, event)| event.contains("event: agent.completed\n")) {
            break whole;
        }
    };
    assert_eq!(seen, whole, "what was read of run {run}");
    let of = |name: &str| {
        let named = format!("event: {name}\n");
        let data = |event: &str| event.lines().find_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
        whole
            .iter()
            .filter(|(_, event)| event.contains(&named))
            .filter_map(|(_, event)| data(event))
            .collect::<Vec<_>>()
    };
    let entries: Vec<Value> = of("entry").into_iter().map(|mut entry: Value| entry["content"].take()).collect();
    assert_eq!(entries, (1..=TURNS).map(Value::from).collect::<Vec<_>>(), "run {run}");
    let sum: u64 = (0..TURNS).map(|turn| run * 1_000 + turn).sum();
    let ended = of("agent.completed");
    assert!(ended.len() == 1 && ended[0]["status"] == "COMPLETED", "run {run}: {ended:?}");
    let shown = answered(1, &format!("/sum-{run}"), None, &Value::Null).await.into_body().collect().await.unwrap();
    let shown: Value = serde_json::from_slice(&shown.to_bytes()).unwrap();
    assert_eq!(shown["output"], sum, "run {run}: {shown}");
}

/// What somebody sees who has HTTP alone.
async fn browser() -> turmoil::Result {
    join_all((0..OVER_HTTP).map(talk_over_http)).await;
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
    for name in SERVERS {
        let storage = storage.clone();
        sim.host(name, move || server(storage.clone()));
    }
    let starts = Starts::default();
    for (number, name) in WORKERS.into_iter().enumerate() {
        let starts = starts.clone();
        sim.host(name, move || worker(number, starts.clone()));
    }
    sim.client("customer", customer());
    sim.client("browser", browser());

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
    Cut(&'static str, &'static [&'static str]),
    Dead(&'static [&'static str]),
}

impl Fault {
    fn any(random: &mut Random) -> Self {
        let worker = random.below(WORKERS.len());
        let servers = match random.below(4) {
            0 => &SERVERS[..],
            one => &SERVERS[one % 2..][..1],
        };
        match random.below(9) {
            0 => Self::Cut("customer", servers),
            1 | 2 => Self::Cut("browser", servers),
            3 | 4 => Self::Cut(WORKERS[worker], servers),
            5 | 6 => Self::Dead(servers),
            _ => Self::Dead(&WORKERS[worker..][..1]),
        }
    }

    fn begin(&self, sim: &mut turmoil::Sim<'_>) {
        match self {
            Self::Cut(host, servers) => servers.iter().for_each(|server| sim.partition(*host, *server)),
            Self::Dead(hosts) => hosts.iter().for_each(|host| sim.crash(*host)),
        }
    }

    fn end(self, sim: &mut turmoil::Sim<'_>) {
        match self {
            Self::Cut(host, servers) => servers.iter().for_each(|server| sim.repair(host, *server)),
            Self::Dead(hosts) => hosts.iter().for_each(|host| sim.bounce(*host)),
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
        let refused = RemoteStorage::connect_through("http://servers:9090", options, Connector(1)).await;
        let error: Error = refused.expect_err("the token is none");
        assert!(error.message().contains("FLOVYN_TOKEN"), "{error}");
        Ok(())
    });
    sim.run().unwrap();
}
