//! Every route and every method × every role × own and foreign org: who is refused, and how. The routes come from the
//! served document and the methods from the protocol, so what is added is in the matrix by itself.

mod house;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::id::OrgId;
use flovyn_core::model::{NewKey, TokenHash, fresh_token};
use flovyn_core::storage::remote::ORG_HEADER;
use flovyn_core::wire::raw;
use flovyn_core::wire::v2::worker_client::WorkerClient;
use flovyn_core::wire::v2::{Hint, HintsRequest};
use flovyn_server::{Access, ServerConfig, serve};
use futures::StreamExt;
use house::House;
use http_body_util::BodyExt;
use serde_json::Value;
use std::time::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;

const ROLES: [&str; 6] = ["viewer", "member", "worker", "exec:signal", "keys", "admin"];

/// A server that takes keys alone, and a key of each role in two orgs.
struct Matrix {
    house: House,
    own: OrgId,
    other: OrgId,
    keys: Vec<(&'static str, String)>,
    foreign: String,
}

impl Matrix {
    async fn open() -> Self {
        let house = House::open().await;
        let storage = house.runtime.storage().clone();
        let directory = storage.directory().expect("SQLite knows who may call");
        let mut tokens = Vec::new();
        let mut orgs = Vec::new();
        for name in ["own", "foreign"] {
            let org = directory.create_organization(name, "a test").await.unwrap().id;
            orgs.push(org);
            for role in ROLES {
                let (token, scopes, actor) = (fresh_token(), role.parse().unwrap(), "a test".to_owned());
                let hash = TokenHash::of(&token);
                directory
                    .create_key(NewKey { org, name: role.to_owned(), scopes, expires_in: None, hash, actor })
                    .await
                    .unwrap();
                tokens.push((role, token));
            }
        }
        let access = Access::keys_of(storage.clone());
        let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
        let serving = serve(storage, house.runtime.chunks().clone(), config).await.unwrap();
        let foreign = tokens.pop().expect("the admin of the other org").1;
        tokens.truncate(ROLES.len());
        Self { house: House { serving, ..house }, own: orgs[0], other: orgs[1], keys: tokens, foreign }
    }
}

/// Whether a role may use a route, said once more than the server says it.
fn may_use(role: &str, method: &str, route: &str) -> bool {
    let looks = method == "get";
    if route.starts_with("/api-keys") {
        return ["keys", "admin"].contains(&role);
    }
    if route == "/audit" {
        return role == "admin";
    }
    match role {
        "viewer" => looks,
        "member" | "admin" => true,
        "worker" => route.starts_with("/payloads"),
        "exec:signal" => method == "post" && route.ends_with("/signal"),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_whom_it_must() {
    let matrix = Matrix::open().await;
    let answer = matrix.house.raw("GET", "/openapi.json", &[], "").await;
    let api: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let mut cells = 0;
    for (path, item) in api["paths"].as_object().unwrap() {
        let Some(route) = path.strip_prefix("/api/orgs/{org}") else { continue };
        let asked = |org: &str| path.replace("{org}", org).replace(['{', '}'], "");
        for method in item.as_object().unwrap().keys() {
            let ask = async |org: &str, token: &str| {
                let bearer = format!("Bearer {token}");
                let headers = [("authorization", &bearer[..])];
                matrix.house.ask(&method.to_uppercase(), &asked(org), &headers, "{}").await.0
            };
            for (role, token) in &matrix.keys {
                let (status, allowed) = (ask("own", token).await, may_use(role, method, route));
                assert_eq!(status == 403, !allowed, "{role}: {method} {path} gives {status}");
                assert!(![401, 500].contains(&status), "{role}: {method} {path} gives {status}");
                // What may not be done is not told apart from what is not there.
                let elsewhere = ask("foreign", token).await;
                assert!(
                    elsewhere == 404 || (elsewhere == 403 && !allowed),
                    "{role}: {method} {path} gives {elsewhere}"
                );
                cells += 2;
            }
            assert_eq!(ask("own", &matrix.foreign).await, 404, "another org's admin: {method} {path}");
            for stranger in ["", "guessed", &fresh_token()] {
                assert_eq!(ask("own", stranger).await, 401, "{stranger:?}: {method} {path}");
            }
        }
    }
    println!("{cells} cells");
    assert!(cells > 250, "{cells} cells");
}

/// Whether a role may call a method, said once more than the server says it.
fn may_call(role: &str, service: &str, method: &str) -> bool {
    let looks = ["Get", "List"].iter().any(|start| method.starts_with(start))
        || ["Branch", "Journal", "Standings", "Unserved", "Watch", "Identify"].contains(&method);
    match (role, service) {
        (_, "Agents") if method == "Identify" => true,
        ("admin", _) => true,
        // The first protocol is the workers', who are sent signals by others.
        ("member" | "exec:signal", "AgentDispatch") => method == "SignalAgent",
        ("worker", "AgentDispatch") => method != "SignalAgent",
        ("worker", "TaskExecution" | "WorkerLifecycle") => true,
        ("viewer", "Agents") => looks,
        ("viewer" | "member", "Worker") => method == "Hints",
        ("member", "Agents") => true,
        ("worker", "Worker") => true,
        ("worker", "Agents") => {
            ["GetExecution", "Standings", "GetEntry", "Branch", "GetPayload", "PutPayload"].contains(&method)
        }
        ("exec:signal", "Agents") => method == "Signal",
        _ => false,
    }
}

/// The status of a call whose body means nothing to the method: enough to see who is let through.
async fn status(channel: &Channel, path: &str, token: Option<&str>, org: Option<OrgId>) -> Code {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = Request::new(HealthCheckRequest { service: String::new() });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    if let Some(org) = org {
        request.metadata_mut().insert(ORG_HEADER, org.to_string().parse().unwrap());
    }
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let path: PathAndQuery = path.parse().unwrap();
    // A stream that goes on was opened.
    let answer = tokio::time::timeout(Duration::from_millis(200), client.unary(request, path, codec)).await;
    answer.ok().and_then(Result::err).map_or(Code::Ok, |status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_refuses_whom_it_must() {
    let matrix = Matrix::open().await;
    let channel = Channel::from_shared(matrix.house.serving.url()).unwrap().connect().await.unwrap();
    let mut cells = 0;
    for (package, text) in [
        ("flovyn.v1", include_str!("../../proto/flovyn/v1/agent.proto")),
        ("flovyn.v1", include_str!("../../proto/flovyn/v1/flovyn.proto")),
        ("flovyn.v2", include_str!("../../proto/flovyn/v2/agents.proto")),
        ("flovyn.v2", include_str!("../../proto/flovyn/v2/worker.proto")),
    ] {
        let mut service = "";
        for line in text.lines().map(str::trim) {
            service = line.strip_prefix("service ").and_then(|rest| rest.split(' ').next()).unwrap_or(service);
            let Some(method) = line.strip_prefix("rpc ").and_then(|rest| rest.split('(').next()) else { continue };
            let path = format!("/{package}.{service}/{method}");
            for (role, token) in &matrix.keys {
                let code = status(&channel, &path, Some(token), None).await;
                assert_eq!(
                    code == Code::PermissionDenied,
                    !may_call(role, service, method),
                    "{role}: {path}: {code:?}"
                );
                assert!(![Code::Unauthenticated, Code::Unimplemented].contains(&code), "{role}: {path}: {code:?}");
                cells += 1;
            }
            for stranger in [None, Some("guessed"), Some(&fresh_token()[..])] {
                assert_eq!(status(&channel, &path, stranger, None).await, Code::Unauthenticated, "{path}");
            }
            // Calls that name an org, and those that name things of one: none reaches another's.
            let code = status(&channel, &path, Some(&matrix.foreign), Some(matrix.own)).await;
            assert_ne!(code, Code::Ok, "{path}");
            cells += 1;
        }
    }
    println!("{cells} cells");
    assert!(cells > 400, "{cells} cells");
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
    let worker = &matrix.keys.iter().find(|(role, _)| *role == "worker").expect("a worker's key").1;
    let (mut own, mut other) = (hints(&channel, worker).await, hints(&channel, &matrix.foreign).await);
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
