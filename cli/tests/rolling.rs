//! A rolling restart: three servers over one PostgreSQL are ended and started again one after the other, while requests come
//! in through a balancer that knows nothing but connections. None is lost, over HTTP or gRPC, nor is a trace.
//!
//! `SCALE=10` is the full figure, 10,000 requests.
#![cfg(unix)]

mod house;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Outcome, StartOptions};
use flovyn_core::context::AgentContext;
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use house::{Serving, json, serve_by, signal};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::TcpIncoming;

const SERVERS: usize = 3;
/// Callers at a time, each over one connection that it keeps for as long as it may.
const OVER_HTTP: usize = 4;
const OVER_GRPC: usize = 2;
/// Requests at scale 1.
const REQUESTS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);

struct Echo;

#[async_trait]
impl AgentDefinition for Echo {
    type State = ();
    type Input = String;
    type Output = String;

    fn kind(&self) -> &str {
        "echo"
    }

    async fn execute(&self, _: &dyn AgentContext, word: String) -> Result<String> {
        Ok(word)
    }
}

/// A collector of traces: the ids of the runs that it was told of, each as often as it was.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> std::result::Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let spans = request.into_inner().resource_spans.into_iter();
        let spans = spans.flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans);
        for span in spans.filter(|span| span.name == "invoke_agent echo") {
            let id = span.attributes.iter().find(|pair| pair.key == "gen_ai.conversation.id");
            if let Some(Any::StringValue(id)) = id.and_then(|pair| pair.value.clone()?.value) {
                self.0.lock().unwrap().push(id);
            }
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (Collector, SocketAddr) {
    let (collector, listener) = (Collector::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap();
    let service = TraceServiceServer::new(collector.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    (collector, address)
}

/// Carries each connection to the next of these that accepts it, and knows nothing of what it says.
async fn balance(servers: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for turn in 0.. {
            let (mut caller, _) = listener.accept().await.unwrap();
            let servers = servers.clone();
            tokio::spawn(async move {
                for n in 0..servers.len() {
                    if let Ok(mut server) = TcpStream::connect(servers[(turn + n) % servers.len()]).await {
                        let _ = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The servers, each of which listens at the same addresses whenever it is started.
struct Fleet {
    serving: Vec<Serving>,
    files: Vec<(String, String)>,
}

impl Fleet {
    fn start(folder: &Path, db: &str, collector: SocketAddr) -> Self {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let held: Vec<_> = (0..SERVERS).map(|_| (free(), free())).collect();
        let files: Vec<_> = held
            .iter()
            .enumerate()
            .map(|(n, (grpc, http))| {
                let (grpc, http) = (grpc.local_addr().unwrap(), http.local_addr().unwrap());
                let config = format!(
                    "db = {db:?}\ngrpc = \"{grpc}\"\nhttp = \"{http}\"\ndrain = \"1s\"\n[otlp]\nendpoint = \"http://{collector}\"\n\
                     [limits]\ncreate = 0\npoll = 0\n"
                );
                (format!("server-{n}.toml"), config)
            })
            .collect();
        drop(held);
        let serving = files.iter().map(|(file, config)| serve_by(folder, file, config)).collect();
        Self { serving, files }
    }

    fn addresses(&self, of: impl Fn(&Serving) -> &str) -> Vec<SocketAddr> {
        self.serving.iter().map(|serving| of(serving).trim_start_matches("http://").parse().unwrap()).collect()
    }

    /// Ends one as whatever manages it does, and starts it again.
    fn restart(&mut self, folder: &Path, n: usize) {
        let (old, since) = (&mut self.serving[n].child, Instant::now());
        signal("-TERM", old);
        let ended = loop {
            if let Some(ended) = old.try_wait().unwrap() {
                break ended;
            }
            assert!(since.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(ended.code(), Some(0));
        let (file, config) = &self.files[n];
        self.serving[n] = serve_by(folder, file, config);
    }
}

/// What callers have in common.
#[derive(Default)]
struct Tally {
    over: AtomicBool,
    asked: AtomicUsize,
    lost: Mutex<Vec<String>>,
    started: Mutex<BTreeSet<String>>,
}

impl Tally {
    fn count(&self, id: String, answer: std::result::Result<(), String>) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(()) => drop(self.started.lock().unwrap().insert(id)),
            Err(why) => self.lost.lock().unwrap().push(format!("{id}: {why}")),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A caller over HTTP, which asks over one connection until the server says that it is the last time, as clients do.
struct Http {
    balancer: SocketAddr,
    token: String,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Http {
    async fn connected(&mut self) -> std::result::Result<SendRequest<Full<Bytes>>, String> {
        if let Some(mut open) = self.open.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        let told = |error: &dyn std::fmt::Display| format!("connect: {error}");
        let tcp = TcpStream::connect(self.balancer).await.map_err(|error| told(&error))?;
        let (sender, connection) = handshake(TokioIo::new(tcp)).await.map_err(|error| told(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Starts a run.
    async fn start(&mut self, id: &str) -> std::result::Result<(), String> {
        let mut sender = self.connected().await?;
        let body = serde_json::json!({ "kind": "echo", "id": id, "input": id }).to_string();
        let request = hyper::Request::post("/api/orgs/default/agent-executions")
            .header("host", self.balancer.to_string())
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let answer = sender.send_request(request).await.map_err(|error| format!("ask: {error:?}"))?;
        let (status, last) = (answer.status(), answer.headers().contains_key("connection"));
        let body = answer.into_body().collect().await.map_err(|error| format!("read: {error:?}"))?.to_bytes();
        self.open = (!last).then_some(sender);
        if status.is_success() { Ok(()) } else { Err(format!("{status} {}", String::from_utf8_lossy(&body))) }
    }
}

async fn connect(balancer: SocketAddr, token: &str) -> Result<Runtime> {
    let options = RemoteOptions { token: Some(token.to_owned()) };
    Ok(Runtime::over(Arc::new(RemoteStorage::connect(&format!("http://{balancer}"), options).await?)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing() -> Result<()> {
    let scale = std::env::var("SCALE").ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(1);
    let folder = tempfile::tempdir().expect("a folder");
    let db = Cluster::shared().fresh().expect("a database");
    let (collector, collecting) = collector().await;
    let mut fleet = Fleet::start(folder.path(), &db, collecting);
    let key = json(folder.path(), &["keys", "create", &db, "--name", "rolling"]);
    let token = key["token"].as_str().expect("a token").to_owned();
    let grpc = balance(fleet.addresses(|serving| &serving.grpc)).await;
    let http = balance(fleet.addresses(|serving| &serving.http)).await;

    let working = connect(grpc, &token).await?;
    let worker = working.worker(Arc::new(NativeHost::default().agent(Echo)?), WorkerOptions::default()).await?;
    let tally = Arc::new(Tally::default());
    let mut callers = Vec::new();
    for caller in 0..OVER_HTTP {
        let (mut client, tally) = (Http { balancer: http, token: token.clone(), open: None }, tally.clone());
        callers.push(tokio::spawn(async move {
            for n in (0..).take_while(|_| !tally.is_over()) {
                let id = format!("http-{caller}-{n}");
                let answer = client.start(&id).await;
                tally.count(id, answer);
            }
        }));
    }
    for caller in 0..OVER_GRPC {
        let (runtime, tally) = (connect(grpc, &token).await?, tally.clone());
        callers.push(tokio::spawn(async move {
            for n in (0..).take_while(|_| !tally.is_over()) {
                let id = format!("grpc-{caller}-{n}");
                let input = Payload::of(&id).expect("a word");
                let answer = runtime.client().start("echo", input, StartOptions::with_id(&id)).await;
                tally.count(id, answer.map(drop).map_err(|error| error.to_string()));
            }
        }));
    }

    let (counted, since) = (tally.clone(), Instant::now());
    let rolled = tokio::task::spawn_blocking(move || {
        let mut restarts = 0;
        while restarts < SERVERS || counted.asked.load(Ordering::Relaxed) < REQUESTS * scale {
            fleet.restart(folder.path(), restarts % SERVERS);
            restarts += 1;
        }
        counted.over.store(true, Ordering::Relaxed);
        (fleet, folder, restarts)
    });
    let (mut fleet, folder, restarts) = rolled.await.expect("all are restarted");
    for caller in callers {
        caller.await.expect("it asks until it is over");
    }
    let (asked, lost) = (tally.asked.load(Ordering::Relaxed), tally.lost.lock().unwrap().clone());
    println!(
        "{asked} requests during {restarts} restarts in {:.1} s, {} lost",
        since.elapsed().as_secs_f64(),
        lost.len()
    );
    assert!(lost.is_empty(), "{} of {asked} requests were lost: {:#?}", lost.len(), &lost[..lost.len().min(10)]);

    // All of them run, whichever server their worker was at.
    let started = tally.started.lock().unwrap().clone();
    let reader = Runtime::open(&db).await?;
    for id in &started {
        let outcome = reader.client().handle(id).await?.outcome(Some(PATIENCE)).await?;
        assert!(matches!(outcome, Outcome::Completed(_)), "{id}: {outcome:?}");
    }
    let _ = worker.close(PATIENCE).await;
    // With the last servers comes the last trace.
    for n in 0..SERVERS {
        fleet.restart(folder.path(), n);
    }
    let mut told = collector.0.lock().unwrap().clone();
    told.sort();
    let all: Vec<_> = started.into_iter().collect();
    assert_eq!((told.len(), &told), (all.len(), &all), "each run has one trace");
    reader.close().await
}
