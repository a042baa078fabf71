//! Every route and every method × every role × own and foreign org: who is refused, and how. The routes come from the
//! served document and the methods from the protocol: one that is added there fails until it has its place here.

#[path = "matrix/calls.rs"]
mod calls;
mod house;
#[path = "matrix/narrow.rs"]
mod narrow;
#[path = "matrix/routes.rs"]
mod routes;
#[path = "matrix/world.rs"]
mod world;

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::{StartOptions, StreamEvent};
use flovyn_core::context::{AgentContextExt, TaskCall};
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::model::{ApiKey, Delivery, NewKey, Status, TaskOptions, TokenHash, fresh_token};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::{Directory, Storage, WorkerInfo};
use flovyn_core::wire::raw;
use flovyn_core::wire::v2::worker_client::WorkerClient;
use flovyn_core::wire::v2::{Hint, HintsRequest};
use flovyn_core::worker::WorkerOptions;
use flovyn_server::{Access, Extensions, ServeOptions, ServerConfig, serve_with};
use flovyn_server_v1::FirstProtocol;
use futures::StreamExt;
use house::{House, agent, job};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Request;
use tonic::transport::Channel;

const ROLES: [&str; 8] = ["viewer", "member", "worker", "worker:gpu", "exec:signal", "keys", "audit:read", "admin"];

/// A server that takes keys alone, and a key of each role in one of two orgs.
struct Matrix {
    house: House,
    own: OrgId,
    other: OrgId,
    keys: BTreeMap<&'static str, String>,
    /// Keys of an admin of the org that work no more.
    expired: String,
    revoked: String,
    /// The key of the other org's admin.
    foreign: String,
}

/// Makes a key; its token.
async fn key(directory: &dyn Directory, org: OrgId, role: &str, lasts: Option<Duration>) -> (String, ApiKey) {
    let (token, scopes, actor) = (fresh_token(), role.parse().unwrap(), "a test".to_owned());
    let hash = TokenHash::of(&token);
    let new = NewKey { org, name: role.to_owned(), scopes, expires_in: lasts, not_after: None, hash, actor };
    (token, directory.create_key(new).await.unwrap())
}

impl Matrix {
    async fn open() -> Self {
        let house = House::open().await;
        let storage = house.runtime.storage().clone();
        let directory = storage.server_side().unwrap();
        let own = directory.create_organization("own", "a test").await.unwrap().id;
        let other = directory.create_organization("foreign", "a test").await.unwrap().id;
        let mut keys = BTreeMap::new();
        for role in ROLES {
            keys.insert(role, key(directory, own, role, None).await.0);
        }
        let foreign = key(directory, other, "admin", None).await.0;
        let expired = key(directory, own, "admin", Some(Duration::from_millis(1))).await.0;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (revoked, row) = key(directory, own, "admin", None).await;
        directory.revoke_key(own, row.id, "a test").await.unwrap();
        let access = Access::keys_of(storage.clone());
        let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
        let extensions = Extensions { protocols: vec![Arc::new(FirstProtocol)], ..Extensions::default() };
        let options = ServeOptions { extensions, ..ServeOptions::default() };
        let serving = serve_with(storage.clone(), house.runtime.chunks().clone(), config, options).await.unwrap();
        Self { house: House { serving, ..house }, own, other, keys, expired, revoked, foreign }
    }

    fn storage(&self) -> &Arc<dyn Storage> {
        self.house.runtime.storage()
    }

    /// Tokens that open nothing.
    fn foreign_tokens(&self) -> [(&'static str, String); 5] {
        [
            ("an expired key", self.expired.clone()),
            ("a revoked key", self.revoked.clone()),
            ("no token", String::new()),
            ("a guess", "guessed".to_owned()),
            ("a token of nobody", fresh_token()),
        ]
    }
}

/// The stream of hints that a token gets.
async fn hints(channel: &Channel, token: &str) -> tonic::Streaming<Hint> {
    let mut request = Request::new(HintsRequest::default());
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    WorkerClient::new(channel.clone()).hints(request).await.unwrap().into_inner()
}

/// The runs that a stream names, until it names this one.
async fn named_until(stream: &mut tonic::Streaming<Hint>, run: &[u8]) -> Vec<Vec<u8>> {
    let mut named = Vec::new();
    while named.last().is_none_or(|last| last != run) {
        let hint = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.unwrap().unwrap().unwrap();
        named.extend(Some(hint.execution.to_vec()).filter(|id| !id.is_empty()));
    }
    named
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_hears_of_the_runs_of_its_org_alone() {
    let matrix = Matrix::open().await;
    let channel = Channel::from_shared(matrix.house.serving.url()).unwrap().connect().await.unwrap();
    let (mut own, mut other) = (hints(&channel, &matrix.keys["worker"]).await, hints(&channel, &matrix.foreign).await);
    let start = async |org: OrgId| {
        let client = matrix.house.runtime.client_of(org);
        let handle = client.start("nobody", Payload::null(), StartOptions::default()).await.unwrap();
        raw(handle.id().0)
    };
    let first = start(matrix.own).await;
    assert_eq!(named_until(&mut own, &first).await.len(), 1);
    // Hints come in the order of what they tell of: what the other org was told of the first run would be there by now.
    let second = start(matrix.other).await;
    assert_eq!(named_until(&mut other, &second).await, [second.to_vec()]);
    let third = start(matrix.own).await;
    let named = named_until(&mut own, &third).await;
    assert!(named.iter().all(|run| *run == third), "{named:?}");
}

/// What a key of one queue is refused of others it has of its own: a worker with nothing else runs, waits, replays and ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_queue_is_enough_to_serve_it() {
    let matrix = Matrix::open().await;
    let options = RemoteOptions { token: Some(matrix.keys["worker:gpu"].clone()) };
    let storage = RemoteStorage::connect(&matrix.house.serving.url(), options).await.unwrap();
    let remote = Runtime::over(Arc::new(storage));
    let patient = agent("patient", |ctx, _| {
        Box::pin(async move {
            // Too large for a page of the tail: replay asks for it.
            let large: Value = ctx.schedule("large", &())?.await?;
            let said: Value = ctx.wait_for_signal("go")?.await?;
            Ok(json!([large.as_str().map(str::len), said]))
        })
    });
    let large = job("large", TaskOptions::default(), |_, _| Box::pin(async { Ok(json!("x".repeat(20_000))) }));
    let host = NativeHost::default().agent(patient).unwrap().task(large).unwrap();
    let options = WorkerOptions { queue: "gpu".into(), max_parked: 0, ..WorkerOptions::default() };
    let _worker = remote.worker(Arc::new(host), options).await.unwrap();
    let client = matrix.house.runtime.client_of(matrix.own);
    let options = StartOptions { queue: Some("gpu".into()), ..StartOptions::default() };
    let handle = client.start("patient", Payload::null(), options).await.unwrap();
    while handle.status().await.unwrap() != Status::Waiting {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    handle.signal("go", Payload::of(&1).unwrap(), Delivery::default(), None).await.unwrap();
    let told: Value = handle.result(Some(Duration::from_secs(20))).await.unwrap().parse().unwrap();
    assert_eq!(told, json!([20_000, 1]));
    let elsewhere = client.start("patient", Payload::null(), StartOptions::default()).await.unwrap();
    let storage = remote.storage();
    let of_others = WorkerInfo {
        org: matrix.own,
        id: WorkerId::fresh(),
        name: "one of others".into(),
        queues: vec!["gpu".into(), "default".into()],
        elsewhere: false,
    };
    for refused in [
        storage.register_worker(of_others).await,
        storage.execution(matrix.own, elsewhere.id()).await.map(|_| ()),
        storage.facts_after(matrix.own, elsewhere.id(), 0).await.map(|_| ()),
    ] {
        let refused = refused.unwrap_err();
        assert!(refused.message().contains("\"default\""), "{refused}");
    }
}

/// A task of a queue may stream into a run of another; nothing else of that run is its queue's.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_queue_shows_what_its_tasks_stream() {
    let matrix = Matrix::open().await;
    let asks = agent("asks", |ctx, _| {
        Box::pin(async move {
            let (kind, queue) = ("sings".to_owned(), Some("gpu".to_owned()));
            ctx.schedule_raw(TaskCall { kind, input: Payload::null(), options: None, queue, key: None })?.await?;
            Ok(Value::Null)
        })
    });
    let sings = job("sings", TaskOptions::default(), |ctx, _| {
        Box::pin(async move {
            ["la ", "la"].into_iter().for_each(|word| ctx.stream_token(word));
            Ok(Value::Null)
        })
    });
    let (mut workers, mut clients) = (Vec::new(), Vec::new());
    for (role, queue, host) in [
        ("worker", "default", NativeHost::default().agent(asks).unwrap()),
        ("worker:gpu", "gpu", NativeHost::default().task(sings).unwrap()),
    ] {
        let options = RemoteOptions { token: Some(matrix.keys[role].clone()) };
        let remote = RemoteStorage::connect(&matrix.house.serving.url(), options).await.unwrap();
        let options = WorkerOptions { queue: queue.into(), ..WorkerOptions::default() };
        let runtime = Runtime::over(Arc::new(remote));
        workers.push(runtime.worker(Arc::new(host), options).await.unwrap());
        clients.push(runtime);
    }
    let client = matrix.house.runtime.client_of(matrix.own);
    let handle = client.start("asks", Payload::null(), StartOptions::default()).await.unwrap();
    let (mut sung, mut shown) = (String::new(), handle.stream(None));
    while let Some(event) = shown.next().await.unwrap() {
        if let StreamEvent::Chunk(_, chunk) = event {
            sung.push_str(&chunk.data);
        }
    }
    assert_eq!(sung, "la la");
    // The other queue's worker stays whose it is.
    let (theirs, storage) = (workers[0].id(), clients[1].storage());
    let taken =
        WorkerInfo { org: matrix.own, id: theirs, name: "taken".into(), queues: vec!["gpu".into()], elsewhere: false };
    for refused in [
        storage.register_worker(taken).await.unwrap_err(),
        storage.unregister_worker(matrix.own, theirs).await.unwrap_err(),
    ] {
        assert!(refused.message().contains("serves the queue \"default\""), "{refused}");
    }
}
