//! Tokens of one run and of one user: every route × what such a token may see.

use super::routes::{ROUTES, body, path};
use super::world::World;
use super::{Matrix, key};
use crate::house::agent;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StartOptions;
use flovyn_core::context::AgentContextExt;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{ExecutionFilter, PageRequest};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::Storage;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::worker::WorkerOptions;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What is done to one run, and what a token that speaks may do besides. Whoever knows a payload's hash may read it.
const PAYLOAD: (&str, &str) = ("get", "/payloads/{hash}");

fn is_open(method: &str, route: &str, speaks: bool) -> bool {
    let of_run = route.starts_with("/agent-executions/{id}");
    let says = ["/signal", "/turns", "/turns/stream", "/ai-sdk", "/ag-ui"].iter().any(|end| route.ends_with(end));
    (method, route) == PAYLOAD || of_run && (method == "get" || (speaks && method == "post" && says))
}

impl Matrix {
    /// A token that the server makes on behalf of a member.
    async fn browser_token(&self, asked: Value) -> String {
        let (status, made) = self.post("/browser-tokens", &self.keys["member"], &asked).await;
        assert_eq!(status, 201, "{asked}: {made}");
        made["token"].as_str().unwrap().to_owned()
    }

    async fn post(&self, route: &str, token: &str, asked: &Value) -> (u16, Value) {
        self.json("POST", &format!("/api/orgs/own{route}"), token, asked.to_string()).await
    }

    async fn json(&self, method: &str, path: &str, token: &str, body: String) -> (u16, Value) {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &bearer[..]), ("content-type", "application/json")];
        let answer = self.house.raw(method, path, &headers, body).await;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn start_for(&self, user: &str) -> ExecutionId {
        let metadata = [("user".to_owned(), user.to_owned())].into();
        let options = StartOptions { metadata, ..StartOptions::default() };
        self.house.runtime.client_of(self.own).start("nobody", Payload::null(), options).await.unwrap().id()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_run_opens_that_run_alone() {
    let matrix = Matrix::open().await;
    let world = World::new(&**matrix.storage(), matrix.own).await;
    let other = World::new(&**matrix.storage(), matrix.own).await;
    for speaks in [false, true] {
        let access = if speaks { "speak" } else { "read" };
        let token = matrix.browser_token(json!({ "run": world.run.to_string(), "access": access })).await;
        for (method, route, _, well) in ROUTES {
            let ask = async |world: &World| {
                matrix.ask(method, &path("own", route, world), &token, &body(method, route, world)).await.0
            };
            let (own, foreign) = match is_open(method, route, speaks) {
                true if (*method, *route) == PAYLOAD => (*well, *well),
                true => (*well, 404),
                false => (403, 403),
            };
            assert_eq!((ask(&world).await, ask(&other).await), (own, foreign), "{access}: {method} {route}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_user_opens_the_runs_of_that_user() {
    let matrix = Matrix::open().await;
    let (anns, bobs) = (matrix.start_for("ann").await, matrix.start_for("bob").await);
    let token = matrix.browser_token(json!({ "user": "ann", "access": "speak", "expiresInSeconds": 60 })).await;
    let get = async |route: &str| matrix.json("GET", &format!("/api/orgs/own{route}"), &token, String::new()).await;
    for (run, status) in [(anns, 200), (bobs, 404)] {
        assert_eq!(get(&format!("/agent-executions/{run}")).await.0, status);
        let signal = json!({ "signalName": "go", "signalValue": 1 });
        assert_eq!(matrix.post(&format!("/agent-executions/{run}/signal"), &token, &signal).await.0, status);
    }
    for listing in ["/agent-executions", "/agent-executions?metadata.user=ann&roots=true"] {
        let (status, listed) = get(listing).await;
        let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect();
        assert_eq!((status, ids), (200, vec![json!(anns.to_string())]), "{listing}");
    }
    assert_eq!(get("/agent-executions?metadata.user=bob").await.0, 403);
    assert_eq!(get(&format!("/agent-executions?parent={bobs}")).await.1["items"], json!([]));
    for (method, route) in [("GET", "/usage"), ("GET", "/api-keys"), ("GET", "/agent-definitions"), ("GET", "/workers")]
    {
        assert_eq!(
            matrix.json(method, &format!("/api/orgs/own{route}"), &token, String::new()).await.0,
            403,
            "{route}"
        );
    }
    let start = json!({ "kind": "nobody", "metadata": { "user": "ann" } });
    assert_eq!(matrix.post("/agent-executions", &token, &start).await.0, 403);
}

/// What a run spawns belongs to it, and what stands beside it or above it does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_run_opens_what_it_spawns() {
    let matrix = Matrix::open().await;
    let lead = agent("lead", |ctx, depth| {
        Box::pin(async move {
            let depth = depth.as_u64().unwrap();
            match depth {
                0 => ctx.wait_for_signal::<Value>("go")?.await,
                _ => ctx.spawn_agent::<Value>("lead", &(depth - 1))?.await,
            }
        })
    });
    let host = Arc::new(NativeHost::default().agent(lead).unwrap());
    let options = RemoteOptions { token: Some(matrix.keys["worker"].clone()) };
    let remote = RemoteStorage::connect(&matrix.house.serving.url(), options).await.unwrap();
    let _worker = Runtime::over(Arc::new(remote)).worker(host, WorkerOptions::default()).await.unwrap();
    let client = matrix.house.runtime.client_of(matrix.own);
    let options = StartOptions { metadata: [("user".to_owned(), "ann".to_owned())].into(), ..StartOptions::default() };
    let top = client.start("lead", Payload::of(&2).unwrap(), options).await.unwrap().id();
    let below = async |run: ExecutionId| loop {
        let filter = ExecutionFilter { parent: Some(run), ..ExecutionFilter::default() };
        let found = matrix.storage().executions(matrix.own, filter, PageRequest::default()).await.unwrap();
        if let Some(run) = found.items.first() {
            return run.new.id;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let middle = below(top).await;
    let last = below(middle).await;
    for (asked, opened) in [
        (json!({ "run": top.to_string() }), [200, 200, 200]),
        (json!({ "run": middle.to_string() }), [404, 200, 200]),
        (json!({ "run": last.to_string() }), [404, 404, 200]),
        (json!({ "user": "ann" }), [200, 200, 200]),
        (json!({ "user": "bob" }), [404, 404, 404]),
    ] {
        let token = matrix.browser_token(asked.clone()).await;
        for (run, status) in [top, middle, last].into_iter().zip(opened) {
            let path = format!("/api/orgs/own/agent-executions/{run}/messages");
            assert_eq!(matrix.json("GET", &path, &token, String::new()).await.0, status, "{asked}: {run}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_a_browser_gives_no_more_than_its_maker_has() {
    let matrix = Matrix::open().await;
    let world = World::new(&**matrix.storage(), matrix.own).await;
    let run = world.run.to_string();
    let ask = async |role: &str, asked: Value| matrix.post("/browser-tokens", &matrix.keys[role], &asked).await;
    assert_eq!(ask("viewer", json!({ "run": run })).await.0, 201);
    assert_eq!(ask("viewer", json!({ "run": run, "access": "speak" })).await.0, 403);
    let wrong = [
        json!({}),
        json!({ "run": run, "user": "ann" }),
        json!({ "user": "" }),
        json!({ "user": "ann,keys" }),
        json!({ "user": "ann keys" }),
        json!({ "user": "a".repeat(201) }),
        json!({ "run": run, "access": "write" }),
        json!({ "run": run, "expiresInSeconds": 59 }),
        json!({ "run": run, "expiresInSeconds": 86_401 }),
    ];
    for asked in wrong {
        let (status, problem) = ask("member", asked.clone()).await;
        assert_eq!(status, 400, "{asked}: {problem}");
    }
    let (status, problem) = ask("member", json!({ "run": "never-started" })).await;
    assert_eq!((status, problem["code"].as_str()), (404, Some("ExecutionNotFound")), "{problem}");
    let made = ask("member", json!({ "run": run })).await.1;
    let token = made["token"].as_str().unwrap();
    assert_eq!(matrix.post("/browser-tokens", token, &json!({ "run": run })).await.0, 403, "it makes none itself");
    // It is ended by its id before its time.
    let gone = format!("/api/orgs/own/api-keys/{}", made["id"].as_str().unwrap());
    assert_eq!(matrix.json("DELETE", &gone, &matrix.keys["admin"], String::new()).await.0, 200);
    assert!(made["expiresAt"].is_string() && made["scopes"] == json!(format!("run:{run}:read")));
}

/// Over gRPC such a token opens nothing: it is for pages.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_a_browser_is_for_rest_alone() {
    let matrix = Matrix::open().await;
    let world = World::new(&**matrix.storage(), matrix.own).await;
    let directory = matrix.storage().server_side().unwrap();
    let token = key(directory, matrix.own, &format!("run:{}:speak", world.run), None).await.0;
    let options = RemoteOptions { token: Some(token) };
    let url = matrix.house.serving.url();
    let refused = match RemoteStorage::connect(&url, options).await {
        Err(error) => error,
        Ok(storage) => {
            let storage: Arc<dyn Storage> = Arc::new(storage);
            storage.execution(matrix.own, world.run).await.unwrap_err()
        }
    };
    assert!(refused.message().contains("exec:read"), "{refused}");
}
