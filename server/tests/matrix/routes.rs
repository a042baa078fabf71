//! Every route × every role × own and foreign org. A route that is not in the table fails the test.

use super::world::World;
use super::{Matrix, ROLES};
use flovyn_core::id::{DefinitionId, EntryId, ExecutionId, KeyId, OpId, Slot, TaskId};
use flovyn_core::model::fresh_token;
use flovyn_core::payload::ContentHash;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

const LOOK: &[&str] = &["viewer", "member", "admin"];
const CHANGE: &[&str] = &["member", "admin"];
const SIGNAL: &[&str] = &["member", "admin", "exec:signal"];
const KEYS: &[&str] = &["keys", "admin"];
const AUDIT: &[&str] = &["admin", "audit:read"];
const FETCH: &[&str] = &["viewer", "member", "admin", "worker", "worker:gpu"];
const BRING: &[&str] = &["member", "admin", "worker", "worker:gpu"];

/// Who may use a route, said once more than the server says it; and what it answers where everything is in order: a run that
/// is not paused can not be resumed, and so on.
pub(super) const ROUTES: &[(&str, &str, &[&str], u16)] = &[
    ("post", "/agent-executions", CHANGE, 201),
    ("get", "/agent-executions", LOOK, 200),
    ("get", "/agent-executions/{id}", LOOK, 200),
    ("post", "/agent-executions/{id}/delete", CHANGE, 409),
    ("delete", "/agent-executions/{id}", CHANGE, 200),
    ("get", "/agent-executions/{id}/children", LOOK, 200),
    ("get", "/agent-executions/{id}/tree", LOOK, 200),
    ("post", "/agent-executions/{id}/cancel", CHANGE, 200),
    ("post", "/agent-executions/{id}/signal", SIGNAL, 200),
    ("post", "/agent-executions/{id}/resume", CHANGE, 409),
    ("post", "/agent-executions/{id}/retry", CHANGE, 409),
    ("post", "/agent-executions/{id}/resolve", CHANGE, 409),
    ("post", "/agent-executions/{id}/divergence", CHANGE, 409),
    ("post", "/agent-executions/{id}/fork", CHANGE, 201),
    ("get", "/agent-executions/{id}/entries", LOOK, 200),
    ("get", "/agent-executions/{id}/messages", LOOK, 200),
    ("get", "/agent-executions/{id}/messages/{entryId}", LOOK, 200),
    ("get", "/agent-executions/{id}/events", LOOK, 200),
    ("get", "/agent-executions/{id}/tasks", LOOK, 200),
    ("get", "/agent-executions/{id}/tool-calls", LOOK, 200),
    ("get", "/agent-executions/{id}/tool-calls/{taskId}", LOOK, 200),
    ("get", "/agent-executions/{id}/checkpoints", LOOK, 200),
    ("get", "/agent-executions/{id}/checkpoints/latest", LOOK, 200),
    ("get", "/agent-executions/{id}/checkpoints/{seq}", LOOK, 200),
    ("get", "/agent-executions/{id}/state", LOOK, 200),
    ("get", "/agent-executions/{id}/usage", LOOK, 200),
    ("get", "/agent-executions/{id}/stream", LOOK, 200),
    ("get", "/agent-executions/{id}/stream/consolidated", LOOK, 200),
    // Nobody answers it, and the request does not wait.
    ("post", "/agent-executions/{id}/turns", SIGNAL, 202),
    ("post", "/agent-executions/{id}/turns/stream", SIGNAL, 200),
    // No world has one yet.
    ("get", "/agent-executions/{id}/turns/{turnId}", LOOK, 404),
    ("post", "/agent-executions/{id}/ai-sdk", SIGNAL, 200),
    ("post", "/agent-executions/{id}/ag-ui", SIGNAL, 200),
    ("get", "/usage", LOOK, 200),
    ("put", "/payloads", BRING, 201),
    ("get", "/payloads/{hash}", FETCH, 200),
    ("post", "/agent-definitions", CHANGE, 201),
    ("get", "/agent-definitions", LOOK, 200),
    ("get", "/agent-definitions/{definition}", LOOK, 200),
    ("put", "/agent-definitions/{definition}", CHANGE, 200),
    ("delete", "/agent-definitions/{definition}", CHANGE, 204),
    ("post", "/agent-definitions/{definition}/ai-sdk", CHANGE, 200),
    ("post", "/agent-definitions/{definition}/ag-ui", CHANGE, 200),
    ("get", "/models", LOOK, 200),
    ("get", "/tools", LOOK, 200),
    ("get", "/queues", LOOK, 200),
    ("get", "/queues/unserved", LOOK, 200),
    ("get", "/queues/limits", LOOK, 200),
    ("put", "/queues/{queue}", CHANGE, 204),
    ("delete", "/queues/{queue}", CHANGE, 204),
    ("get", "/workers", LOOK, 200),
    ("get", "/audit", AUDIT, 200),
    ("post", "/browser-tokens", LOOK, 201),
    ("get", "/api-keys", KEYS, 200),
    ("post", "/api-keys", KEYS, 201),
    ("delete", "/api-keys/{keyId}", KEYS, 200),
    ("get", "/machines", LOOK, 200),
    // No world's code waits: of none could be said whose it is. A key of `keys` alone could not make the machine's.
    ("post", "/machines/pairings/{code}/approve", &["admin"], 404),
    ("delete", "/machines/{machine}", KEYS, 200),
    ("post", "/schedules", CHANGE, 200),
    ("get", "/schedules", LOOK, 200),
    ("get", "/schedules/{schedule}", LOOK, 200),
    ("delete", "/schedules/{schedule}", CHANGE, 204),
];

/// A route's path with the ids of a world.
pub(super) fn path(org: &str, route: &str, world: &World) -> String {
    let hash: String = world.payload.0.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let names = [
        ("{id}", world.run.to_string()),
        ("{entryId}", world.entry.to_string()),
        ("{taskId}", world.task.to_string()),
        ("{seq}", "1".to_owned()),
        ("{hash}", hash),
        ("{definition}", world.definition.to_string()),
        ("{queue}", "narrow".to_owned()),
        ("{keyId}", world.key.to_string()),
        ("{schedule}", world.schedule.clone()),
        ("{machine}", world.machine.clone()),
        ("{code}", "BCDF-GHJK".to_owned()),
        ("{turnId}", Uuid::nil().to_string()),
    ];
    let route = names.iter().fold(route.to_owned(), |route, (name, id)| route.replace(name, id));
    assert!(!route.contains('{'), "{route} names what no world has");
    format!("/api/orgs/{org}{route}")
}

/// A body that a route takes.
pub(super) fn body(method: &str, route: &str, world: &World) -> Value {
    let fresh = Uuid::new_v4();
    match (method, route) {
        ("post", "/agent-executions") => json!({ "kind": "nobody" }),
        ("post", "/agent-executions/{id}/signal") => json!({ "signalName": "go", "signalValue": 1 }),
        ("post", "/agent-executions/{id}/resolve") => json!({ "opId": world.op.to_string(), "retry": true }),
        ("post", "/agent-executions/{id}/divergence") => json!({ "decision": "stay" }),
        ("post" | "put", "/agent-definitions" | "/agent-definitions/{definition}") => {
            json!({ "slug": format!("d-{fresh}"), "kind": "agent" })
        }
        ("post", route) if route.contains("/turns") => json!({ "message": "hi" }),
        ("post", route) if route.ends_with("/ai-sdk") => {
            let text = json!({ "type": "text", "text": "hi" });
            json!({ "id": fresh, "messages": [{ "id": fresh, "role": "user", "parts": [text] }] })
        }
        ("post", route) if route.ends_with("/ag-ui") => {
            let message = json!({ "id": fresh, "role": "user", "content": "hi" });
            json!({ "threadId": fresh, "runId": fresh, "messages": [message] })
        }
        ("put", "/queues/{queue}") => json!({ "concurrency": 3 }),
        // None that the caller's own key lacks.
        ("post", "/api-keys") => json!({ "name": "a key", "scopes": "keys" }),
        ("post", "/browser-tokens") => json!({ "run": world.run.to_string() }),
        ("post", "/schedules") => json!({ "kind": "agent", "cron": "0 4 1 1 *" }),
        ("put", "/payloads") => json!("x".repeat(20_000)),
        _ => json!({}),
    }
}

impl Matrix {
    /// The status of a request; of one that is refused also what is told.
    pub(super) async fn ask(&self, method: &str, path: &str, token: &str, body: &Value) -> (u16, String) {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &bearer[..]), ("content-type", "application/json"), ("prefer", "wait=0")];
        let body = if method == "get" { String::new() } else { body.to_string() };
        let answer = self.house.raw(&method.to_uppercase(), path, &headers, body).await;
        let status = answer.status().as_u16();
        // A stream that goes on is not read to its end.
        if status < 400 {
            return (status, String::new());
        }
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    async fn served(&self) -> BTreeSet<(String, String)> {
        let answer = self.house.raw("GET", "/openapi.json", &[], "").await;
        let api: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
        let mut served = BTreeSet::new();
        for (path, item) in api["paths"].as_object().unwrap() {
            let Some(route) = path.strip_prefix("/api/orgs/{org}") else { continue };
            served.extend(item.as_object().unwrap().keys().map(|method| (method.clone(), route.to_owned())));
        }
        served
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_whom_it_must() {
    let matrix = Matrix::open().await;
    let known: BTreeSet<_> = ROUTES.iter().map(|row| (row.0.to_owned(), row.1.to_owned())).collect();
    assert_eq!(matrix.served().await, known, "the document and the table are of the same routes");
    let other = World::new(&**matrix.storage(), matrix.other).await;
    let before = other.told(&**matrix.storage()).await;
    let mut cells = 0;
    for (method, route, may, well) in ROUTES {
        let mut world = World::new(&**matrix.storage(), matrix.own).await;
        for role in ROLES {
            let (token, allowed) = (&matrix.keys[role], may.contains(&role));
            let (status, told) =
                matrix.ask(method, &path("own", route, &world), token, &body(method, route, &world)).await;
            assert_eq!(status, if allowed { *well } else { 403 }, "{role}: {method} {route}: {told}");
            if allowed {
                world = World::new(&**matrix.storage(), matrix.own).await;
            }
            // Another org, and things of another org: what may not be done is not told apart from what is not there.
            // What a key must have besides its scope is asked once its org is known.
            let is_let_in = allowed || (*route == "/machines/pairings/{code}/approve" && KEYS.contains(&role));
            for asked in [path("foreign", route, &other), path("foreign", route, &world)] {
                let (status, told) = matrix.ask(method, &asked, token, &body(method, route, &other)).await;
                assert_eq!(status, if is_let_in { 404 } else { 403 }, "{role}: {method} {asked}: {told}");
            }
            if route.contains('{') && !route.contains("{queue}") {
                let asked = path("own", route, &other);
                let (status, told) = matrix.ask(method, &asked, token, &body(method, route, &other)).await;
                assert_eq!(status, if allowed { 404 } else { 403 }, "{role}: {method} {asked}: {told}");
            }
            cells += 4;
        }
        let own = path("own", route, &world);
        let (status, told) = matrix.ask(method, &own, &matrix.foreign, &body(method, route, &world)).await;
        assert_eq!(status, 404, "another org's admin: {method} {route}: {told}");
        for (name, foreign) in matrix.foreign_tokens() {
            let (status, told) = matrix.ask(method, &own, &foreign, &body(method, route, &world)).await;
            assert_eq!(status, 401, "{name}: {method} {route}: {told}");
            cells += 1;
        }
    }
    assert_eq!(other.told(&**matrix.storage()).await, before, "nothing of the other org has changed");
    println!("{cells} cells");
}

/// What is of another org, and another org itself, are told as what was never there.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_foreign_is_told_as_what_is_not_there() {
    let matrix = Matrix::open().await;
    let other = World::new(&**matrix.storage(), matrix.other).await;
    let fresh = Uuid::new_v4;
    let (run, slot) = (ExecutionId::fresh(), Slot { segment: 1, sequence: 0 });
    let unknown = World {
        run,
        op: OpId { execution: run, slot, once: None },
        entry: EntryId(fresh()),
        task: TaskId(fresh()),
        payload: (ContentHash([7; 32]), 9),
        definition: DefinitionId(fresh()),
        schedule: format!("tick-{}", fresh()),
        key: KeyId(fresh()),
        machine: format!("m-{}", fresh()),
        ..World::new(&**matrix.storage(), matrix.own).await
    };
    // With the ids of each in its place, they are the same.
    let plain = |told: String, world: &World, org: &str| {
        let path = path(org, "/{id}/{entryId}/{taskId}/{hash}/{definition}/{keyId}/{schedule}/{machine}", world);
        let words = ["ORG", "RUN", "ENTRY", "TASK", "HASH", "DEFINITION", "KEY", "SCHEDULE", "MACHINE"];
        let ids = path.split('/').skip(3).zip(words);
        ids.fold(told, |told, (id, word)| told.replace(id, word))
    };
    for (method, route, _, _) in ROUTES {
        let ask = async |org: &str, world: &World| {
            let token = &matrix.keys["admin"];
            let (status, told) = matrix.ask(method, &path(org, route, world), token, &body(method, route, world)).await;
            (status, plain(told, world, org))
        };
        assert_eq!(ask("foreign", &other).await, ask("nowhere-at-all", &other).await, "{method} {route}");
        if route.contains('{') && !route.contains("{queue}") {
            let (foreign, nothing) = (ask("own", &other).await, ask("own", &unknown).await);
            assert_eq!((foreign.0, &foreign), (404, &nothing), "{method} {route}");
        }
    }
    let foreign = fresh_token();
    assert_eq!(matrix.ask("get", "/api/orgs/own/agent-executions", &foreign, &json!({})).await.0, 401);
}
