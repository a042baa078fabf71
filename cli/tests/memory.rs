//! What a server needs while much goes through it: a process of its own, whose memory is looked at from outside (Linux).
#![cfg(target_os = "linux")]

mod house;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::journal::Outcome;
use flovyn_core::model::{Delivery, Status};
use flovyn_core::payload::{Body, ByteSource};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use futures::{StreamExt, TryStreamExt, stream};
use house::{Serving, json, serve};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;

const MIB: u64 = 1 << 20;
const LARGE: u64 = 200 * MIB;
/// What a payload of any size may add to a server; a thousand readers three times as much.
const BOUND: u64 = 64 * MIB;
const PATIENCE: Duration = Duration::from_secs(300);

/// Noise that is made where it is read.
struct Noise;

impl ByteSource for Noise {
    fn size(&self) -> u64 {
        LARGE
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let mut noise = blake3::Hasher::new().finalize_xof();
        noise.set_position(offset);
        noise.fill(into);
        Ok(())
    }
}

impl Noise {
    fn piece(number: u64) -> Bytes {
        let mut bytes = vec![0; MIB as usize];
        Noise.read_at(number * MIB, &mut bytes).unwrap();
        bytes.into()
    }

    fn hash() -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for number in 0..LARGE / MIB {
            hasher.update(&Self::piece(number));
        }
        hasher.finalize()
    }
}

/// A server, and who may call it.
struct House {
    server: Serving,
    token: String,
    _folder: tempfile::TempDir,
}

impl House {
    fn open(db: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = db.unwrap_or("sqlite:agents.db");
        json(folder.path(), &["migrate", db]);
        let key = json(folder.path(), &["keys", "create", db, "--name", "test"]);
        let server = serve(folder.path(), db, 0);
        Self { server, token: key["token"].as_str().unwrap().to_owned(), _folder: folder }
    }

    async fn connect(&self) -> Runtime {
        let options = RemoteOptions { token: Some(self.token.clone()) };
        Runtime::over(Arc::new(RemoteStorage::connect(&self.server.grpc, options).await.unwrap()))
    }

    fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.child.id())).unwrap();
        let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        found.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// What the server has now; the peak is of what comes from here on.
    fn mark(&self) -> (u64, u64) {
        std::fs::write(format!("/proc/{}/clear_refs", self.server.child.id()), "5").unwrap();
        (self.memory("VmRSS:"), self.memory("RssFile:"))
    }

    /// How far it grew at most since the mark, without the pages of its own program that it came to.
    fn grown(&self, mark: (u64, u64)) -> u64 {
        let program = self.memory("RssFile:").saturating_sub(mark.1);
        self.memory("VmHWM:").saturating_sub(mark.0 + program)
    }

    async fn ask<B>(&self, method: &str, path: &str, more: &[(&str, &str)], body: B, window: u32) -> Response<Incoming>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let socket = TcpSocket::new_v4().unwrap();
        if window > 0 {
            socket.set_recv_buffer_size(window).unwrap();
        }
        let connection = socket.connect(self.server.http.parse().unwrap()).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(format!("/api/orgs/default{path}"));
        request = request.header("host", &self.server.http).header("authorization", format!("Bearer {}", self.token));
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        sender.send_request(request.body(body).unwrap()).await.unwrap()
    }

    /// Follows a run's events; nothing is read until somebody reads.
    async fn follow(&self, run: &str, after: Option<&str>, window: u32) -> Incoming {
        let headers: Vec<_> = after.map(|id| ("last-event-id", id)).into_iter().collect();
        let path = format!("/agent-executions/{run}/stream/consolidated");
        let answer = self.ask("GET", &path, &headers, Full::<Bytes>::default(), window).await;
        assert_eq!(answer.status(), 200);
        answer.into_body()
    }
}

/// Makes a large value, and looks at it again when told to.
struct Relay;

#[async_trait]
impl AgentDefinition for Relay {
    type State = ();
    type Input = ();
    type Output = String;

    fn kind(&self) -> &str {
        "relay"
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> flovyn_core::Result<String> {
        let made = ctx.run_raw("make", Box::pin(async { Ok(Payload::blob(Arc::new(Noise))) }))?.await?;
        let _: Value = ctx.wait_for_signal("again")?.await?;
        let Outcome::Value(value) = made else { panic!("{made:?}") };
        let mut hasher = blake3::Hasher::new();
        match &value.body {
            Body::Source(source) => {
                for number in 0..value.size() / MIB {
                    hasher.update(&source.piece(number * MIB, MIB as usize).unwrap());
                }
            }
            _ => {
                hasher.update(value.bytes()?);
            }
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

async fn worker(house: &House, agent: impl AgentDefinition) -> (Runtime, flovyn_core::worker::Worker) {
    let runtime = house.connect().await;
    let host = NativeHost::default().agent(agent).unwrap();
    let worker = runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    (runtime, worker)
}

/// From a worker to the server, and from the server to another worker.
async fn relay(db: Option<&str>) {
    let house = House::open(db);
    let (first, _serving) = worker(&house, Relay).await;
    let mark = house.mark();
    let run = first.client().start("relay", Payload::null(), StartOptions::with_id("relay")).await.unwrap();
    let made = async {
        while run.status().await.unwrap() != Status::Waiting {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, made).await.expect("the value is stored");
    first.close().await.unwrap();
    let up = house.grown(mark);

    let (second, _serving) = worker(&house, Relay).await;
    let run = second.client().handle("relay").await.unwrap();
    run.signal("again", Payload::of(&1).unwrap(), Delivery::NextStep, None).await.unwrap();
    let hash: String = run.result(Some(PATIENCE)).await.unwrap().parse().unwrap();
    assert_eq!(hash, Noise::hash().to_hex().to_string(), "the other worker reads the same bytes");
    second.close().await.unwrap();
    let grown = house.grown(mark);
    assert!(grown < BOUND, "the server grew by {} MiB on the way up and {} MiB in all", up / MIB, grown / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_value_goes_through_a_server_on_sqlite() {
    relay(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_value_goes_through_a_server_on_postgresql() {
    let cluster = Cluster::start("").unwrap();
    relay(Some(&cluster.fresh().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_value_goes_through_rest() {
    let house = House::open(None);
    let mark = house.mark();
    let pieces = stream::iter(0..LARGE / MIB).map(|number| Ok::<_, Infallible>(Frame::data(Noise::piece(number))));
    let answer = house.ask("PUT", "/payloads", &[], StreamBody::new(pieces), 0).await;
    assert_eq!(answer.status(), 201);
    let stored = answer.into_body().collect().await.unwrap().to_bytes();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let hash = Noise::hash().to_hex().to_string();
    assert!(stored.to_string().contains(&hash), "{stored}");
    let path = format!("/payloads/{hash}?size={LARGE}");
    let answer = house.ask("GET", &path, &[], Full::<Bytes>::default(), 0).await;
    assert_eq!(answer.status(), 200);
    let mut hasher = blake3::Hasher::new();
    let mut body = answer.into_body().into_data_stream();
    while let Some(piece) = body.try_next().await.unwrap() {
        hasher.update(&piece);
    }
    assert_eq!(hasher.finalize().to_hex().to_string(), hash);
    let grown = house.grown(mark);
    assert!(grown < BOUND, "the server grew by {} MiB", grown / MIB);
}

/// Appends much once it is told to.
struct Talker;

/// Entries of a talker, and their bytes: more than sockets hold.
const ENTRIES: u64 = 500;
const ENTRY: usize = 16 << 10;

#[async_trait]
impl AgentDefinition for Talker {
    type State = ();
    type Input = ();
    type Output = u64;

    fn kind(&self) -> &str {
        "talker"
    }

    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> flovyn_core::Result<u64> {
        let _: Value = ctx.wait_for_signal("begin")?.await?;
        for number in 0..ENTRIES {
            ctx.append_entry("assistant", &format!("{number:06}{}", "x".repeat(ENTRY)))?;
            ctx.flush()?.await?;
        }
        Ok(ENTRIES)
    }
}

/// The events of a body that ends: whole ones by their ids, in order. What was cut in the middle does not count.
fn events(text: &str) -> Vec<(String, String)> {
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
    };
    whole.split("\n\n").filter_map(|event| Some((field(event, "id")?, event.to_owned()))).collect()
}

/// Reads to the end; the stream may be cut.
async fn rest(body: Incoming) -> String {
    let mut body = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(Ok(piece)) = body.next().await {
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// As many readers as a key may have, of whom all but one take nothing, cost what is bounded; each is cut, and one comes back without a gap.
#[tokio::test(flavor = "multi_thread")]
async fn readers_that_do_not_read_are_cut_and_miss_nothing() {
    const READERS: usize = 999;
    let house = House::open(None);
    let (runtime, _serving) = worker(&house, Talker).await;
    let run = runtime.client().start("talker", Payload::null(), StartOptions::with_id("talk")).await.unwrap();
    while run.status().await.unwrap() != Status::Waiting {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mark = house.mark();
    let mut silent = Vec::with_capacity(READERS);
    for _ in 0..READERS {
        silent.push(house.follow("talk", None, 8 << 10).await);
    }
    let reads = house.follow("talk", None, 0).await;
    run.signal("begin", Payload::of(&1).unwrap(), Delivery::NextStep, None).await.unwrap();
    run.result(Some(PATIENCE)).await.unwrap();
    let whole =
        events(&tokio::time::timeout(PATIENCE, rest(reads)).await.expect("a reader that reads gets to the end"));
    assert_eq!(whole.iter().filter(|(_, event)| event.contains("event: entry\n")).count() as u64, ENTRIES);
    // Longer than a silent reader is borne with.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let grown = house.grown(mark);
    assert!(grown < 3 * BOUND, "{READERS} readers that take nothing cost {} MiB", grown / MIB);

    for slow in silent.into_iter().take(3) {
        let mut seen = events(&tokio::time::timeout(PATIENCE, rest(slow)).await.expect("it was cut"));
        assert!(seen.len() < whole.len(), "a reader that takes nothing is cut");
        let last = seen.last().map(|(id, _)| id.clone());
        seen.extend(events(&rest(house.follow("talk", last.as_deref(), 0).await).await));
        assert!(seen == whole, "what came before the cut and after it is everything");
    }
}
