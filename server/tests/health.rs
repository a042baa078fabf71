//! What every server is expected to have: health, which needs no token, reflection, which does, and an end in order.

mod house;

use flovyn_core::error::Result;
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::runtime::Runtime;
use flovyn_core::wire::v2::agents_client::AgentsClient;
use flovyn_core::wire::v2::worker_client::WorkerClient;
use flovyn_core::wire::v2::{Empty, HintsRequest, PayloadHeader, PayloadPart, PollRequest, payload_part};
use flovyn_core::wire::{CHUNK, raw};
use flovyn_proto::v1;
use flovyn_proto::v1::worker_lifecycle_client::WorkerLifecycleClient;
use flovyn_server::protocol::Protocol;
use flovyn_server::{Access, Extensions, Identity, ServeOptions, ServerConfig, serve, serve_connections, serve_with};
use flovyn_server_v1::FirstProtocol;
use futures::stream;
use house::House;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ListServiceResponse, ServerReflectionRequest};

const TOKEN: &str = "health";

fn services() -> ServerReflectionRequest {
    ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) }
}

async fn listed(channel: Channel, token: Option<&str>) -> std::result::Result<ListServiceResponse, tonic::Status> {
    let mut request = Request::new(stream::iter([services()]));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    }
    let mut answers = ServerReflectionClient::new(channel).server_reflection_info(request).await?.into_inner();
    match answers.message().await?.and_then(|answer| answer.message_response) {
        Some(MessageResponse::ListServicesResponse(listed)) => Ok(listed),
        other => panic!("asked for services, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_for_everybody_and_reflection_for_callers() -> Result<()> {
    let house = Runtime::open("memory:").await?;
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve(house.storage().clone(), house.chunks().clone(), config).await?;
    let channel = Channel::from_shared(serving.url()).expect("a URL").connect().await.expect("it listens");

    for service in ["flovyn.v2.Agents", "flovyn.v2.Worker", ""] {
        let asked = HealthCheckRequest { service: service.into() };
        let told = HealthClient::new(channel.clone()).check(asked).await.expect("it answers").into_inner();
        assert_eq!(told.status(), ServingStatus::Serving, "{service:?}");
    }

    assert_eq!(listed(channel.clone(), None).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(listed(channel.clone(), Some("guessed")).await.unwrap_err().code(), Code::Unauthenticated);
    let names: Vec<_> = listed(channel, Some(TOKEN)).await.expect("a caller may").service;
    let names: Vec<_> = names.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"flovyn.v2.Agents") && names.contains(&"flovyn.v2.Worker"), "{names:?}");
    serving.stop().await
}

/// A protocol that a server is given is served, described and looked after like its own. Without it there is nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_protocol_is_served_where_it_is_given() -> Result<()> {
    let first: Arc<dyn Protocol> = Arc::new(FirstProtocol);
    for protocols in [Vec::new(), vec![first]] {
        let is_given = !protocols.is_empty();
        let house = Runtime::open("memory:").await?;
        let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
        let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
        let extensions = Extensions { protocols, ..Extensions::default() };
        let options = ServeOptions { extensions, ..ServeOptions::default() };
        let serving = serve_with(house.storage().clone(), house.chunks().clone(), config, options).await?;
        let channel = Channel::from_shared(serving.url()).expect("a URL").connect().await.expect("it listens");

        let asked = HealthCheckRequest { service: "flovyn.v1.WorkerLifecycle".into() };
        let healthy = HealthClient::new(channel.clone()).check(asked).await;
        assert_eq!(healthy.is_ok(), is_given, "{healthy:?}");
        let described = listed(channel.clone(), Some(TOKEN)).await.expect("a caller may").service;
        let described = described.iter().any(|service| service.name == "flovyn.v1.WorkerLifecycle");
        assert_eq!(described, is_given);
        let beat = v1::WorkerHeartbeatRequest { worker_id: WorkerId::fresh().to_string(), ..Default::default() };
        let mut request = Request::new(beat);
        request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().expect("a header"));
        let answer = WorkerLifecycleClient::new(channel).send_heartbeat(request).await;
        let wanted = if is_given { Code::Ok } else { Code::Unimplemented };
        assert_eq!(answer.map_or_else(|refused| refused.code(), |_| Code::Ok), wanted);
        serving.stop().await?;
    }
    Ok(())
}

/// Asks over a connection of its own; the status and the whole answer.
async fn ask(http: SocketAddr, path: &str) -> (u16, String) {
    let mut connection = TcpStream::connect(http).await.expect("it listens");
    let head = format!("GET {path} HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\n\r\n");
    connection.write_all(head.as_bytes()).await.expect("it is heard");
    heard(&mut connection).await
}

async fn heard(connection: &mut TcpStream) -> (u16, String) {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("it answers");
    let status = answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {answer}"));
    (status, answer)
}

const QUEUES: &str = "/api/orgs/default/queues";

/// Asks over a connection of its own that may be used further; the status, and whether the server keeps it.
async fn kept(http: SocketAddr, path: &str) -> (u16, bool) {
    let mut connection = TcpStream::connect(http).await.expect("it listens");
    kept_open(&mut connection, http, path).await
}

async fn kept_open(connection: &mut TcpStream, http: SocketAddr, path: &str) -> (u16, bool) {
    let head = format!("GET {path} HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer {}\r\n\r\n", house::TOKEN);
    connection.write_all(head.as_bytes()).await.expect("it is heard");
    let mut answer = Vec::new();
    let mut ended = false;
    // Whole once its body has come, however it is cut.
    while !ended && !whole(&answer) {
        ended = connection.read_buf(&mut answer).await.expect("it answers") == 0;
    }
    let answer = String::from_utf8(answer).expect("a text");
    let says = answer.contains("\r\nconnection: close\r\n");
    if says {
        assert_eq!(connection.read(&mut [0]).await.expect("it is closed in order"), 0);
    }
    (answer[9..12].parse().expect("a status"), !says)
}

/// Whether an answer is all there, by its length.
fn whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// A server that will end takes calls as before, and asks with each answer to be called no further; over gRPC it sends word.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_will_end_takes_its_callers_elsewhere() {
    let house = House::open().await;
    let http = house.serving.http();
    let mut before = TcpStream::connect(http).await.expect("it listens");
    assert_eq!(kept_open(&mut before, http, QUEUES).await, (200, true));
    let mut old = h2(house.serving.grpc()).await;
    assert_eq!(old.call().await, Ok(200));
    house.post(house::BASE, json!({ "kind": "nobody", "id": "r" })).await;
    let mut events = house.events(&format!("{}/r/stream", house::BASE), None).await;
    assert_eq!(events.next().await.expect("the start").name, "agent.started");

    house.serving.drain();
    assert_eq!(kept(http, "/_/ready").await, (503, false));
    assert_eq!(kept_open(&mut before, http, QUEUES).await, (200, false), "the next answer says so");
    for _ in 0..3 {
        assert_eq!(kept(http, QUEUES).await, (200, false));
    }
    house.post(&format!("{}/r/signal", house::BASE), json!({ "signalName": "more" })).await;
    assert!(events.next().await.is_some(), "streams go on");

    // GOAWAY: the client is told that no call is taken on this connection any more, and the next one takes all.
    tokio::time::timeout(Duration::from_secs(10), old.gone).await.expect("it is told").expect("in order");
    let mut new = h2(house.serving.grpc()).await;
    assert_eq!(new.call().await, Ok(200));
    tokio::time::timeout(Duration::from_secs(10), new.gone).await.expect("it is told").expect("in order");

    house.serving.stop().await.expect("it ends");
    assert_eq!(events.next().await, None);
    assert!(TcpStream::connect(http).await.is_err(), "whoever distributes connections takes them elsewhere");
}

/// A connection of HTTP/2, and what ends with it.
struct H2 {
    sender: hyper::client::conn::http2::SendRequest<http_body_util::Empty<hyper::body::Bytes>>,
    gone: tokio::task::JoinHandle<()>,
}

async fn h2(grpc: SocketAddr) -> H2 {
    let tcp = TokioIo::new(TcpStream::connect(grpc).await.expect("it listens"));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), tcp).await.expect("it speaks HTTP/2");
    let gone = tokio::spawn(async move { connection.await.expect("it ends in order") });
    H2 { sender, gone }
}

impl H2 {
    async fn call(&mut self) -> std::result::Result<u16, String> {
        let path = "http://localhost/grpc.health.v1.Health/Check";
        let request = hyper::Request::post(path).header("content-type", "application/grpc");
        let request = request.body(http_body_util::Empty::new()).expect("a request");
        self.sender
            .send_request(request)
            .await
            .map(|answer| answer.status().as_u16())
            .map_err(|error| error.to_string())
    }
}

fn known<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {}", house::TOKEN).parse().expect("a header"));
    request
}

/// Streams and long polls of a server that is told to end are ended, calls in flight are not; whoever comes late is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_finishes_what_it_has_begun() {
    let house = House::open().await;
    let http = house.serving.http();
    house.post(house::BASE, json!({ "kind": "nobody", "id": "r" })).await;
    assert_eq!(ask(http, "/_/ready").await.0, 200);
    let bytes = vec![7; CHUNK];

    // An upload over each protocol, half of it.
    let (parts, mut given) = mpsc::channel(1);
    let channel = Channel::from_shared(house.serving.url()).expect("a URL").connect().await.expect("it listens");
    let mut agents = AgentsClient::new(channel.clone());
    let sent = stream::poll_fn(move |cx| given.poll_recv(cx));
    let mut uploader = agents.clone();
    let upload = tokio::spawn(async move { uploader.put_payload(known(sent)).await });
    let hash = blake3::hash(&bytes).as_bytes().to_vec().into();
    let header = PayloadHeader { encoding: 1, size: CHUNK as u64, hash };
    for part in [payload_part::Part::Header(header), payload_part::Part::Chunk(bytes[..10].to_vec().into())] {
        parts.send(PayloadPart { part: Some(part) }).await.expect("it is taken");
    }
    let mut put = TcpStream::connect(http).await.expect("it listens");
    let head = format!(
        "PUT /api/orgs/default/payloads HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer {}\r\ncontent-length: {CHUNK}\r\n\
         content-type: application/octet-stream\r\nexpect: 100-continue\r\n\r\n",
        house::TOKEN
    );
    put.write_all(head.as_bytes()).await.expect("it is heard");
    let mut goes_on = [0; 25];
    put.read_exact(&mut goes_on).await.expect("it is served");
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");

    // What goes on for as long as the server does.
    let mut hints = WorkerClient::new(channel.clone());
    let poll = PollRequest {
        worker: raw(uuid::Uuid::new_v4()),
        queue: "default".into(),
        kinds: vec!["other".into()],
        limit: 1,
        ttl: 30_000_000,
        wait: 3_600_000_000,
        ..PollRequest::default()
    };
    let mut poller = hints.clone();
    let mut polling = pin!(poller.poll_agents(known(poll)));
    // It is on its way before what follows.
    assert!(futures::poll!(&mut polling).is_pending());
    let mut hints = hints.hints(known(HintsRequest::default())).await.expect("it is served").into_inner();
    let asked = HealthCheckRequest::default();
    let mut health = HealthClient::new(channel).watch(asked).await.expect("it is served").into_inner();
    let serving = health.message().await.expect("it tells").expect("it tells");
    assert_eq!(serving.status(), ServingStatus::Serving);
    let mut events = house.events(&format!("{}/r/stream", house::BASE), None).await;
    assert_eq!(events.next().await.expect("the start").name, "agent.started");
    // Behind those, on their connection: they are being served.
    agents.identify(known(Empty {})).await.expect("it is served");

    let House { runtime: _runtime, serving, folder: _folder } = house;
    let ending = tokio::spawn(serving.stop());
    let ended = async {
        assert_eq!(events.next().await, None);
        assert!(polling.await.expect("it is answered").into_inner().claims.is_empty());
        while hints.message().await.expect("it ends in order").is_some() {}
        let told = health.message().await.expect("it tells").expect("it tells");
        assert_eq!(told.status(), ServingStatus::NotServing);
        assert!(health.message().await.expect("it ends in order").is_none());
    };
    tokio::time::timeout(Duration::from_secs(15), ended).await.expect("streams end although calls are in flight");

    // Whoever is not taken elsewhere is answered, and asked to go.
    assert_eq!(ask(http, "/_/ready").await.0, 503);
    assert_eq!(ask(http, "/_/health").await.0, 200);
    assert_eq!(kept(http, QUEUES).await, (200, false));
    assert!(!ending.is_finished(), "calls are in flight");

    put.write_all(&bytes).await.expect("it is heard");
    assert_eq!(heard(&mut put).await.0, 201);
    assert_eq!(ask(http, "/_/ready").await.0, 503, "one is still in flight");
    let rest = payload_part::Part::Chunk(bytes[10..].to_vec().into());
    parts.send(PayloadPart { part: Some(rest) }).await.expect("it is taken");
    drop(parts);
    let stored = upload.await.expect("it ends").expect("it is stored").into_inner();
    assert_eq!(stored.size, CHUNK as u64);
    ending.await.expect("it ends").expect("it ends in order");
}

#[tokio::test]
async fn connections_that_have_ended_are_not_asked_for_again() -> Result<()> {
    // `unfold` panics when it is read after its end.
    let ended = || Box::pin(stream::unfold((), |()| async { None::<(std::io::Result<TcpStream>, ())> }));
    for _ in 0..32 {
        let house = Runtime::open("memory:").await?;
        let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
        let served = serve_connections(house.storage().clone(), house.chunks().clone(), access, ended(), ended());
        let _still_serving = tokio::time::timeout(Duration::from_millis(5), served).await;
    }
    Ok(())
}
