//! What operators do and see over REST: keys, workers, queues, and the audit of it all.

mod house;
#[path = "operators/machines.rs"]
mod machines;

use flovyn_core::agent::NativeHost;
use flovyn_core::context::AgentContextExt;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{CancelMode, Cancellation, NewKey, QueueLimit, ScheduleSpec, TokenHash, fresh_token};
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::{AgentStorage, Queues, Schedules};
use flovyn_server::{Access, ServerConfig, serve};
use house::{BASE, House, agent};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const ORG: &str = "/api/orgs/default";

/// A server that takes keys alone, and a key of the org `default` with these scopes.
async fn keyed(house: House, scopes: &str) -> (House, String, String) {
    keyed_for(house, scopes, None).await
}

async fn keyed_for(house: House, scopes: &str, expires_in: Option<Duration>) -> (House, String, String) {
    let storage = house.runtime.storage().clone();
    let directory = storage.server_side().unwrap();
    let token = fresh_token();
    let (name, scopes, actor) = ("first".to_owned(), scopes.parse().unwrap(), "a test".to_owned());
    let hash = TokenHash::of(&token);
    let key =
        directory.create_key(NewKey { org: OrgId::DEFAULT, name, scopes, expires_in, not_after: None, hash, actor });
    let id = key.await.unwrap().id.to_string();
    let access = Access::keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve(storage.clone(), house.runtime.chunks().clone(), config).await.unwrap();
    (House { serving, ..house }, token, id)
}

async fn ask(house: &House, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let more = [("authorization", &bearer[..]), ("x-request-id", "request-of-a-test")];
    let body = if method == "GET" { String::new() } else { body.to_string() };
    house.ask(method, &format!("{ORG}{path}"), &more, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_listed_and_revoked() {
    let (house, admin, _) = keyed(House::open().await, "admin").await;
    let (status, made) = ask(&house, &admin, "POST", "/api-keys", json!({ "name": "ci", "scopes": "viewer" })).await;
    assert_eq!((status, &made["scopes"]), (201, &json!("exec:read")), "{made:#}");
    let (created, expires) = (made["createdAt"].as_str().unwrap(), made["expiresAt"].as_str().unwrap());
    assert!(created < expires, "{made:#}");
    let viewer = made["token"].as_str().unwrap();
    assert_eq!(ask(&house, viewer, "GET", "/agent-executions", json!({})).await.0, 200);
    for path in ["/api-keys", "/audit"] {
        assert_eq!(ask(&house, viewer, "GET", path, json!({})).await.0, 403, "{path}");
    }
    let (_, listed) = ask(&house, &admin, "GET", "/api-keys", json!({})).await;
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|key| &key["name"]).collect();
    assert_eq!(names, ["first", "ci"]);
    assert!(!listed.to_string().contains(viewer), "a token is shown once");

    // One that nobody has used yet, so no server remembers it.
    let (_, unused) = ask(&house, &admin, "POST", "/api-keys", json!({ "name": "unused", "neverExpires": true })).await;
    assert_eq!(unused["expiresAt"], Value::Null);
    let path = format!("/api-keys/{}", unused["id"].as_str().unwrap());
    let (status, revoked) = ask(&house, &admin, "DELETE", &path, json!({})).await;
    assert_eq!(status, 200);
    assert!(revoked["revokedAt"].is_string());
    assert_eq!(ask(&house, &admin, "DELETE", &path, json!({})).await.1, revoked);
    let token = unused["token"].as_str().unwrap();
    assert_eq!(ask(&house, token, "GET", "/agent-executions", json!({})).await.0, 401);

    for (body, wanted) in [
        (json!({}), 400),
        (json!({ "name": "" }), 400),
        (json!({ "name": "x", "scopes": "root" }), 400),
        (json!({ "name": "x", "expiresInDays": 0 }), 400),
        (json!({ "name": "x", "expiresInDays": 366 }), 400),
        (json!({ "name": "x", "expiresInDays": 5, "neverExpires": true }), 400),
    ] {
        assert_eq!(ask(&house, &admin, "POST", "/api-keys", body.clone()).await.0, wanted, "{body}");
    }
    let unknown = "/api-keys/0194b3a0-0000-7000-8000-000000000000";
    assert_eq!(ask(&house, &admin, "DELETE", unknown, json!({})).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gives_no_more_than_it_has() {
    let (house, keeper, _) = keyed(House::open().await, "keys worker:gpu").await;
    let make = async |scopes: &str| {
        ask(&house, &keeper, "POST", "/api-keys", json!({ "name": "x", "scopes": scopes })).await.0
    };
    for more in ["admin", "viewer", "worker", "worker:cpu", "keys audit:read"] {
        assert_eq!(make(more).await, 403, "{more}");
    }
    assert_eq!((make("keys").await, make("worker:gpu").await), (201, 201));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_outlives_none_that_made_it() {
    let hour = Duration::from_secs(3_600);
    let (house, keeper, maker) = keyed_for(House::open().await, "keys exec:read", Some(hour)).await;
    let make = async |body: Value| {
        let (status, made) = ask(&house, &keeper, "POST", "/api-keys", body).await;
        (status, made["expiresAt"].as_str().map(str::to_owned), made["detail"].to_string())
    };
    let named = |mut body: Value| {
        body["name"] = "x".into();
        body["scopes"] = "exec:read".into();
        body
    };
    for longer in [json!({ "neverExpires": true }), json!({ "expiresInDays": 1 })] {
        let (status, _, why) = make(named(longer)).await;
        assert!(status == 403 && why.contains("outlives"), "{status}: {why}");
    }
    let (status, ends, _) = make(named(json!({}))).await;
    assert_eq!(status, 201);
    let (_, keys) = ask(&house, &keeper, "GET", "/api-keys", json!({})).await;
    let own = keys["items"].as_array().unwrap().iter().find(|key| key["id"] == *maker).unwrap();
    assert!(ends.as_deref() <= own["expiresAt"].as_str(), "{ends:?} and {own}");
}

fn remote_schedule() -> ScheduleSpec {
    ScheduleSpec {
        id: String::new(),
        kind: "nobody".into(),
        queue: "default".into(),
        input: "null".into(),
        cron: "0 * * * *".into(),
        timezone: None,
        metadata: BTreeMap::new(),
        priority: 0,
        concurrency_key: None,
        concurrency_limit: None,
        paused: false,
    }
}

/// That there is no such run is found by the act itself, which the audit had before.
#[tokio::test(flavor = "multi_thread")]
async fn an_act_on_no_run_is_refused_and_read_back() {
    let (house, admin, _) = keyed(House::open().await, "admin").await;
    let id = ExecutionId::of_key(OrgId::DEFAULT, "otter").to_string();
    let op = format!("{id}-0-0");
    for (path, body, act, subject) in [
        ("cancel", json!({}), "execution.cancel", &id),
        ("delete", json!({}), "execution.remove", &id),
        ("resume", json!({}), "execution.resume", &id),
        ("retry", json!({}), "execution.resume", &id),
        ("resolve", json!({ "opId": op, "retry": true }), "task.resolve", &op),
        ("divergence", json!({ "decision": "continue" }), "divergence.decide", &id),
        ("fork", json!({}), "execution.fork", &id),
        // Who sends a signal changes no course of a run: nothing new is in the audit.
        ("signal", json!({ "signalName": "go" }), "execution.fork", &id),
    ] {
        let (status, problem) = ask(&house, &admin, "POST", &format!("/agent-executions/otter/{path}"), body).await;
        assert_eq!((status, &problem["code"]), (404, &json!("ExecutionNotFound")), "{path}: {problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains("\"otter\""), "{path}: {problem:#}");
        let (_, page) = ask(&house, &admin, "GET", "/audit?limit=1", json!({})).await;
        let row = &page["items"][0];
        assert_eq!((&row["action"], &row["subject"]), (&json!(act), &json!(subject)), "{path}");
    }
}

/// What people decide about calls is listed by its action; a second decision under the same key is none.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_about_calls_are_read_back() {
    let (house, admin, _) = keyed(House::open().await, "admin").await;
    let (_, run) = ask(&house, &admin, "POST", "/agent-executions", json!({ "kind": "nobody", "id": "r" })).await;
    let run = run["id"].as_str().unwrap();
    let send = async |name: &str, value: Value, key: &str| {
        let body = json!({ "signalName": name, "signalValue": value, "idempotencyKey": key });
        ask(&house, &admin, "POST", "/agent-executions/r/signal", body).await.0
    };
    assert_eq!(send("approval", json!({ "id": "c\n1", "approved": true }), "k1").await, 200);
    assert_eq!(send("approval", json!({ "id": "c\n1", "approved": false }), "k1").await, 409);
    assert_eq!(send("approval", json!({ "id": "c2" }), "k2").await, 200);
    assert_eq!(send("input", json!({ "id": "c3", "responses": {} }), "k3").await, 200);
    let none = [("approval", json!(7)), ("approval", json!({})), ("go", json!({ "id": "c4", "approved": true }))];
    for (place, (name, value)) in none.into_iter().enumerate() {
        assert_eq!(send(name, value, &format!("none {place}")).await, 200);
    }
    let (mut subjects, mut path) = (Vec::new(), "/audit?action=approval.decide&limit=1".to_owned());
    loop {
        let (status, page) = ask(&house, &admin, "GET", &path, json!({})).await;
        assert_eq!(status, 200, "{page:#}");
        subjects.extend(page["items"].as_array().unwrap().iter().map(|row| row["subject"].clone()));
        let Some(next) = page["nextCursor"].as_str() else { break };
        path = format!("/audit?action=approval.decide&limit=1&cursor={next}");
    }
    assert_eq!(subjects, [format!("{run} c3 answered"), format!("{run} c2 denied"), format!("{run} c1 approved")]);
    for wrong in ["limit=0", "limit=1001", "cursor=x"] {
        assert_eq!(ask(&house, &admin, "GET", &format!("/audit?action=a&{wrong}"), json!({})).await.0, 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_is_read_back() {
    let (house, admin, id) = keyed(House::open().await, "admin").await;
    let (_, run) = ask(&house, &admin, "POST", "/agent-executions", json!({ "kind": "nobody", "id": "r" })).await;
    let run = run["id"].as_str().unwrap().to_owned();
    let acts = [
        ("resume", json!({}), "execution.resume", run.clone()),
        ("resolve", json!({ "opId": format!("{run}-0-0"), "retry": true }), "task.resolve", format!("{run}-0-0")),
        ("divergence", json!({ "decision": "continue" }), "divergence.decide", run.clone()),
        ("fork", json!({}), "execution.fork", run.clone()),
        ("cancel", json!({ "mode": "hard" }), "execution.cancel", run.clone()),
    ];
    for (path, body, ..) in &acts {
        ask(&house, &admin, "POST", &format!("/agent-executions/r/{path}"), body.clone()).await;
    }
    ask(&house, &admin, "DELETE", "/agent-executions/r", json!({})).await;
    // The same over gRPC.
    let options = RemoteOptions { token: Some(admin.clone()) };
    let remote = RemoteStorage::connect(&house.serving.url(), options).await.unwrap();
    let cancel = Cancellation { mode: CancelMode::Hard, grace: Duration::ZERO };
    remote.request_cancel(OrgId::DEFAULT, run.parse().unwrap(), cancel).await.unwrap();

    // And what runs go by.
    let definition = json!({ "slug": "helper", "kind": "nobody" });
    let (_, made) = ask(&house, &admin, "POST", "/agent-definitions", definition.clone()).await;
    let helper = made["id"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned();
    let schedule = json!({ "id": "nightly", "kind": "nobody", "cron": "0 3 * * *" });
    let rules = [
        ("PUT", "/agent-definitions/helper", definition, "definition.put", helper.clone()),
        ("DELETE", "/agent-definitions/helper", json!({}), "definition.delete", helper),
        ("POST", "/schedules", schedule, "schedule.put", "nightly".to_owned()),
        ("DELETE", "/schedules/nightly", json!({}), "schedule.delete", "nightly".to_owned()),
        ("PUT", "/queues/gpu", json!({ "concurrency": 2 }), "queue.limit", "gpu".to_owned()),
        ("DELETE", "/queues/gpu", json!({}), "queue.limit", "gpu".to_owned()),
    ];
    for (method, path, body, ..) in &rules {
        let (status, answer) = ask(&house, &admin, method, path, body.clone()).await;
        assert!(status < 300, "{method} {path}: {answer:#}");
    }
    let spec = ScheduleSpec { id: "hourly".into(), ..remote_schedule() };
    remote.put_schedule(OrgId::DEFAULT, spec).await.unwrap();
    remote.delete_schedule(OrgId::DEFAULT, "hourly").await.unwrap();
    remote.limit_queue(OrgId::DEFAULT, "cpu", QueueLimit::default()).await.unwrap();

    let (mut rows, mut path) = (Vec::new(), "/audit?limit=3".to_owned());
    loop {
        let (status, page) = ask(&house, &admin, "GET", &path, json!({})).await;
        assert_eq!(status, 200, "{page:#}");
        rows.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["nextCursor"].as_str() else { break };
        path = format!("/audit?limit=3&cursor={next}");
    }
    let told = |row: &Value| (row["action"].as_str().unwrap().to_owned(), row["subject"].as_str().unwrap().to_owned());
    let rows: Vec<_> = rows.iter().filter(|row| !row["action"].as_str().unwrap().starts_with("key.")).collect();
    let mut expected: Vec<_> =
        acts.iter().map(|(.., action, subject)| ((*action).to_owned(), subject.clone())).collect();
    expected.extend([("execution.cancel".to_owned(), run.clone()), ("execution.cancel".to_owned(), run.clone())]);
    expected.push(("definition.put".to_owned(), "helper".to_owned()));
    expected.extend(rules.iter().map(|(.., action, subject)| ((*action).to_owned(), subject.clone())));
    let over_grpc = [("schedule.put", "hourly"), ("schedule.delete", "hourly"), ("queue.limit", "cpu")];
    expected.extend(over_grpc.map(|(action, subject)| (action.to_owned(), subject.to_owned())));
    expected.reverse();
    assert_eq!(rows.iter().map(|row| told(row)).collect::<Vec<_>>(), expected);
    let actor = format!("key {id} request ");
    assert!(rows.iter().all(|row| row["actor"].as_str().unwrap().starts_with(&actor)), "{rows:#?}");
    let of_test = rows.iter().filter(|row| row["actor"].as_str().unwrap().ends_with("request-of-a-test"));
    assert_eq!(of_test.count(), 6 + 1 + rules.len(), "all but those over gRPC");

    let wrong = ask(&house, &admin, "GET", "/audit?cursor=x", json!({})).await;
    assert_eq!(wrong.0, 400, "{:#}", wrong.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_id_of_its_request() {
    let house = House::open().await;
    let of =
        |answer: &hyper::Response<hyper::body::Incoming>| answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(of(&house.raw("GET", "/_/health", &[("x-request-id", "mine-1")], "").await), "mine-1");
    let (one, two) = (house.raw("GET", BASE, &[], "").await, house.raw("GET", "/nowhere", &[], "").await);
    assert_ne!(of(&one), of(&two));
    let forged = house.raw("GET", "/_/health", &[("x-request-id", "two words")], "").await;
    assert_ne!(of(&forged), "two words");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_and_workers_are_shown() {
    let house = House::open().await;
    let waits = agent("waits", |ctx, _| {
        Box::pin(async move {
            ctx.wait_for_signal::<Value>("go")?.await?;
            Ok(Value::Null)
        })
    });
    house.post(BASE, json!({ "kind": "waits", "id": "w" })).await;
    house.post(BASE, json!({ "kind": "lonely" })).await;
    let load = |kind: &str, queued: u64, unserved: u64| json!({ "queue": "default", "kind": kind, "queued": queued, "running": 0, "unserved": unserved });
    let queues = house.get(&format!("{ORG}/queues")).await;
    assert_eq!(queues["items"], json!([load("lonely", 1, 1), load("waits", 1, 1)]));
    let none = house.get(&format!("{ORG}/workers")).await;
    assert_eq!(none, json!({ "items": [], "nextCursor": null }));

    let host = NativeHost::default().agent(waits).unwrap();
    let (_remote, worker) = house.worker(host).await;
    house.until("w", "WAITING").await;
    let queues = house.get(&format!("{ORG}/queues")).await;
    assert_eq!(queues["items"], json!([load("lonely", 1, 1), load("waits", 0, 0)]));
    let workers = house.get(&format!("{ORG}/workers?limit=10")).await;
    let shown = &workers["items"][0];
    assert_eq!((&shown["id"], &shown["alive"]), (&json!(worker.id().to_string()), &json!(true)), "{workers:#}");
    assert_eq!(shown["serves"], json!([{ "kind": "waits", "queue": "default" }]));
}
