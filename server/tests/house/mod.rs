//! A server over a database of its own, workers over the wire, and an HTTP client that hides nothing.
#![allow(dead_code, missing_docs)]

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::context::AgentContext;
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::model::TaskOptions;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::{Worker, WorkerOptions};
use flovyn_server::{Access, Identity, ServerConfig, Serving, serve};
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

pub(crate) const TOKEN: &str = "house";
pub(crate) const BASE: &str = "/api/orgs/default/agent-executions";

/// A server that is up.
pub(crate) struct House {
    pub runtime: Runtime,
    pub serving: Serving,
    pub folder: tempfile::TempDir,
}

/// A server over a runtime's backend.
pub(crate) async fn served(runtime: &Runtime, grpc: SocketAddr, http: SocketAddr) -> Serving {
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc, http, access };
    serve(runtime.storage().clone(), runtime.chunks().clone(), config).await.unwrap()
}

/// A door to a server that knows its address and nothing else.
pub(crate) async fn remote(serving: &Serving) -> Runtime {
    let options = RemoteOptions { token: Some(TOKEN.into()) };
    Runtime::over(Arc::new(RemoteStorage::connect(&serving.url(), options).await.unwrap()))
}

impl House {
    pub(crate) async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("runs.db").display());
        Self::over(&url, folder).await
    }

    /// A server over a database that others may serve too.
    pub(crate) async fn over(url: &str, folder: tempfile::TempDir) -> Self {
        let runtime = Runtime::open(url).await.unwrap();
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let serving = served(&runtime, anywhere, anywhere).await;
        Self { runtime, serving, folder }
    }

    /// A door that knows the server's address and nothing else.
    pub(crate) async fn remote(&self) -> Runtime {
        remote(&self.serving).await
    }

    /// A worker behind such a door.
    pub(crate) async fn worker(&self, host: NativeHost) -> (Runtime, Worker) {
        let remote = self.remote().await;
        let worker = remote.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
        (remote, worker)
    }

    /// Asks with these headers as they are.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let address = self.serving.http();
        let connection = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap()
    }

    /// Asks with the token and a JSON body; the status and the JSON of the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> (u16, Value) {
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![("authorization", &bearer[..]), ("content-type", "application/json")];
        headers.retain(|(name, _)| !more.iter().any(|(given, _)| given == name));
        headers.extend(more);
        let answer = self.raw(method, path, &headers, body.to_owned()).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into()))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, &[], "").await;
        assert_eq!(status, 200, "{path}: {body:#}");
        body
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask("POST", path, &[], &body.to_string()).await;
        assert!(status < 300, "{path}: {answer:#}");
        answer
    }

    /// Waits until a run has a status.
    pub(crate) async fn until(&self, id: &str, wanted: &str) -> Value {
        for _ in 0..4_000 {
            let run = self.get(&format!("{BASE}/{id}")).await;
            if run["status"] == wanted {
                return run;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("run {id} never became {wanted}: {:#}", self.get(&format!("{BASE}/{id}")).await);
    }

    /// Opens a stream of events.
    pub(crate) async fn events(&self, path: &str, after: Option<&str>) -> Events {
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![("authorization", &bearer[..])];
        headers.extend(after.map(|id| ("last-event-id", id)));
        let answer = self.raw("GET", path, &headers, "").await;
        Events {
            status: answer.status().as_u16(),
            body: answer.into_body(),
            text: String::new(),
            read: VecDeque::new(),
        }
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
}

impl Event {
    /// Whether it is there for good, with an id of its own.
    pub(crate) fn is_durable(&self) -> bool {
        !["token", "data", "progress", "stream_error", "retract", "gap"].contains(&&*self.name)
    }
}

/// A stream of events as its bytes come.
pub(crate) struct Events {
    pub status: u16,
    body: Incoming,
    text: String,
    read: VecDeque<Event>,
}

impl Events {
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Some(event);
            }
            let frame = self.body.frame().await?.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&frame).expect("no frame cuts a character"));
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                self.read.extend(read(event));
                self.text = rest.to_owned();
            }
        }
    }

    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        assert_eq!(self.text, "", "the stream ends with an event");
        events
    }
}

/// What a client shows: previews by op, and the entries that replaced them.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Shown {
    pub made: BTreeMap<String, String>,
    pub entries: Vec<Value>,
}

impl Shown {
    pub(crate) fn take(&mut self, event: &Event) {
        let op = event.data["op"].as_str().unwrap_or_default().to_owned();
        match &event.name[..] {
            "token" => self.made.entry(op).or_default().push_str(event.data["data"].as_str().unwrap()),
            "retract" => drop(self.made.remove(&op)),
            "gap" => self.made.clear(),
            "entry" => self.entries.push(event.data["content"].clone()),
            _ => {}
        }
    }
}

/// An event of its lines; none for a comment.
fn read(lines: &str) -> Option<Event> {
    let field =
        |name: &str| lines.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()));
    let data = serde_json::from_str(&field("data")?).unwrap();
    Some(Event { id: field("id").expect("every event has an id"), name: field("event").unwrap(), data })
}

type Body = dyn for<'a> Fn(&'a dyn AgentContext, Value) -> BoxFuture<'a, Result<Value>> + Send + Sync;

/// An agent made of a closure.
pub(crate) struct Agent(&'static str, Box<Body>);

pub(crate) fn agent(
    kind: &'static str,
    body: impl for<'a> Fn(&'a dyn AgentContext, Value) -> BoxFuture<'a, Result<Value>> + Send + Sync + 'static,
) -> Agent {
    Agent(kind, Box::new(body))
}

#[async_trait]
impl AgentDefinition for Agent {
    type State = ();
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        self.0
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, input: Value) -> Result<Value> {
        (self.1)(ctx, input).await
    }
}

type Work = dyn for<'a> Fn(&'a TaskContext, Value) -> BoxFuture<'a, Result<Value>> + Send + Sync;

/// A task made of a closure.
pub(crate) struct Job(&'static str, TaskOptions, Box<Work>);

pub(crate) fn job(
    kind: &'static str,
    options: TaskOptions,
    work: impl for<'a> Fn(&'a TaskContext, Value) -> BoxFuture<'a, Result<Value>> + Send + Sync + 'static,
) -> Job {
    Job(kind, options, Box::new(work))
}

#[async_trait]
impl TaskDefinition for Job {
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        self.0
    }

    fn options(&self) -> TaskOptions {
        self.1.clone()
    }

    async fn execute(&self, ctx: &TaskContext, input: Value) -> Result<Value> {
        (self.2)(ctx, input).await
    }
}
