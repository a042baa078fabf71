//! Machines over REST: how one is let in, found, given work and revoked; how often codes and pairings are tried.

use super::{ask, keyed};
use crate::house::House;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::id::{OpId, OrgId, RequestId, Slot, TaskId, WorkerId};
use flovyn_core::model::{
    Batch, BatchEnd, CommitRequest, Label, LabelKey, NewOp, NewTask, OpBody, OpKind, Placement, TaskOptions,
};
use flovyn_core::payload::{Digest, Payload};
use flovyn_core::storage::machines::{Approval, machine_queue};
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::{AgentStorage, ClaimRequest, Storage, WorkSource};
use serde_json::{Value, json};
use std::time::Duration;

/// Asks as a machine that has no token.
async fn request(house: &House, name: &str) -> (u16, Value) {
    house
        .ask("POST", "/machines/pairings", &[("authorization", "")], &json!({ "name": name, "host": "h" }).to_string())
        .await
}

async fn collect(house: &House, secret: &str) -> (u16, Value) {
    house.ask("GET", "/machines/pairings", &[("authorization", &format!("Bearer {secret}"))], "").await
}

fn word<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name}: {value:#}"))
}

/// A machine of the org `default`, without its key.
async fn enrol(storage: &dyn Storage, name: &str) -> String {
    let pairing = storage.request_pairing(name, "a host").await.unwrap();
    let (code, actor) = (pairing.code, "a test".to_owned());
    let approval = Approval { code, name: None, owner: None, actor, not_after: None };
    storage.approve_pairing(OrgId::DEFAULT, approval).await.unwrap();
    storage.collect_pairing(&pairing.secret).await.unwrap().unwrap().token
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_paired_and_revoked() {
    let (house, admin, _) = keyed(House::open().await, "admin").await;
    let (status, pairing) = request(&house, "laptop").await;
    assert_eq!(status, 201, "{pairing:#}");
    let (code, secret) = (word(&pairing, "code"), word(&pairing, "secret"));
    assert_eq!(
        collect(&house, secret).await,
        (200, json!({ "state": "waiting", "name": null, "org": null, "token": null }))
    );
    assert_eq!(request(&house, "a/b").await.0, 400);
    assert_eq!(collect(&house, "fp_guessed").await.0, 404);
    assert_eq!(house.ask("GET", "/machines/pairings", &[("authorization", "")], "").await.0, 401);

    let approve = format!("/machines/pairings/{code}/approve");
    let (status, approved) = ask(&house, &admin, "POST", &approve, json!({ "owner": "ann" })).await;
    assert_eq!((status, word(&approved, "name"), word(&approved, "owner")), (200, "laptop", "ann"), "{approved:#}");
    assert!(word(&approved, "host").starts_with("h at 127.0.0.1"), "{approved:#}");
    assert_eq!(ask(&house, &admin, "POST", &approve, json!({})).await.0, 404, "once");
    let (status, paired) = collect(&house, secret).await;
    assert_eq!((status, word(&paired, "state"), word(&paired, "org")), (200, "paired", "default"), "{paired:#}");
    assert_eq!(collect(&house, secret).await.0, 404, "once");
    let token = word(&paired, "token");
    // What it may: its own queue, and nothing else.
    for (method, path) in [("GET", "/agent-executions"), ("GET", "/machines"), ("POST", "/agent-executions")] {
        assert_eq!(ask(&house, token, method, path, json!({ "kind": "x" })).await.0, 403, "{path}");
    }
    let (_, listed) = ask(&house, &admin, "GET", "/machines", json!({})).await;
    let machine = &listed["items"][0];
    assert_eq!(
        (word(machine, "name"), &machine["live"], &machine["offers"]["host"]),
        ("laptop", &json!(true), &approved["host"])
    );

    // The name is taken; under another name the second is let in.
    let (_, second) = request(&house, "laptop").await;
    let approve = format!("/machines/pairings/{}/approve", word(&second, "code"));
    let (status, clash) = ask(&house, &admin, "POST", &approve, json!({})).await;
    assert!(status == 409 && word(&clash, "detail").contains("\"laptop\" is taken by a machine of ann"), "{clash:#}");
    assert_eq!(ask(&house, &admin, "POST", &approve, json!({ "name": "desktop" })).await.0, 200);

    let (status, revoked) = ask(&house, &admin, "DELETE", "/machines/laptop", json!({})).await;
    assert!(status == 200 && revoked["live"] == json!(false) && revoked["revokedAt"].is_string(), "{revoked:#}");
    assert_eq!(ask(&house, token, "GET", "/agent-executions", json!({})).await.0, 401, "at once, here");
    assert_eq!(ask(&house, &admin, "DELETE", "/machines/laptop", json!({})).await.0, 404);
    let (_, audit) = ask(&house, &admin, "GET", "/audit", json!({})).await;
    let acts: Vec<_> = audit["items"].as_array().unwrap().iter().map(|row| word(row, "action")).collect();
    for act in ["machine.approved", "machine.paired", "machine.revoked", "key.revoked"] {
        assert!(acts.contains(&act), "{act}: {acts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lets_no_machine_in_that_it_could_not_give_a_key() {
    let (house, keeper, _) = keyed(House::open().await, "keys").await;
    let pairing = house.runtime.storage().request_pairing("laptop", "").await.unwrap();
    let approve = format!("/machines/pairings/{}/approve", pairing.code);
    let (status, refused) = ask(&house, &keeper, "POST", &approve, json!({})).await;
    assert!(status == 403 && word(&refused, "detail").contains("scope worker"), "{refused:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_and_pairings_are_tried_so_often_in_a_minute() {
    let (house, admin, _) = keyed(House::open().await, "admin").await;
    for _ in 0..10 {
        assert_eq!(request(&house, "laptop").await.0, 201);
    }
    let (status, refused) = request(&house, "laptop").await;
    assert!(status == 429 && word(&refused, "detail").contains("from this address"), "{refused:#}");
    for _ in 0..20 {
        assert_eq!(ask(&house, &admin, "POST", "/machines/pairings/BCDF-GHJK/approve", json!({})).await.0, 404);
    }
    // The right one is not looked up either: whoever guesses learns nothing.
    let pairing = house.runtime.storage().request_pairing("laptop", "").await.unwrap();
    let approve = format!("/machines/pairings/{}/approve", pairing.code);
    let (status, refused) = ask(&house, &admin, "POST", &approve, json!({})).await;
    assert!(status == 429 && word(&refused, "detail").contains("wrong within a minute"), "{refused:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_started_on_a_machine() {
    let (house, admin, _) = keyed(House::open().await, "admin").await;
    let start = async |body: Value| ask(&house, &admin, "POST", "/agent-executions", body).await;
    let (status, refused) = start(json!({ "kind": "coder", "machine": "laptop" })).await;
    assert!(status == 404 && word(&refused, "detail").contains("there is none"), "{refused:#}");
    enrol(&**house.runtime.storage(), "laptop").await;
    // The only one needs no name.
    for machine in ["", "laptop"] {
        let (status, run) = start(json!({ "kind": "coder", "machine": machine })).await;
        assert_eq!((status, word(&run, "queue")), (201, machine_queue("laptop").as_str()), "{run:#}");
    }
    let (status, refused) = start(json!({ "kind": "coder", "machine": "laptop", "queue": "gpu" })).await;
    assert!(status == 400 && word(&refused, "detail").contains("not both"), "{refused:#}");
    let (_, run) = start(json!({ "kind": "coder", "machine": "", "id": "one" })).await;
    let (_, shown) = ask(&house, &admin, "GET", "/agent-executions/one", json!({})).await;
    assert_eq!(shown["machine"], json!({ "name": "laptop", "live": true, "seenAt": null }), "{shown:#}");
    enrol(&**house.runtime.storage(), "desktop").await;
    let (status, refused) = start(json!({ "kind": "coder", "machine": "" })).await;
    let told = word(&refused, "detail");
    assert!(
        status == 404 && told.contains("desktop (never seen)") && told.contains("laptop (never seen)"),
        "{refused:#}"
    );
    // The same start again is the same run, whatever machines there are by then.
    let (status, again) = start(json!({ "kind": "coder", "machine": "", "id": "one" })).await;
    assert_eq!((status, &again["id"]), (200, &run["id"]), "{again:#}");
    ask(&house, &admin, "DELETE", "/machines/laptop", json!({})).await;
    let (_, shown) = ask(&house, &admin, "GET", "/agent-executions/one", json!({})).await;
    assert_eq!(shown["machine"]["live"], json!(false), "{shown:#}");
    let (status, again) = start(json!({ "kind": "coder", "machine": "laptop", "id": "one" })).await;
    assert_eq!((status, &again["id"]), (200, &run["id"]), "{again:#}");
}

/// What a machine that does not run our code may try: a task of its run for another machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_has_no_other_machine_do_its_tasks() {
    let (house, ..) = keyed(House::open().await, "admin").await;
    let token = enrol(&**house.runtime.storage(), "laptop").await;
    enrol(&**house.runtime.storage(), "desktop").await;
    let options = StartOptions::on_machine(Some("laptop"));
    let run = house.runtime.client().start("coder", Payload::null(), options).await.unwrap();
    let options = RemoteOptions { token: Some(token) };
    let laptop = RemoteStorage::connect(&house.serving.url(), options).await.unwrap();
    let claim = ClaimRequest {
        org: OrgId::DEFAULT,
        worker: WorkerId::fresh(),
        queue: machine_queue("laptop"),
        kinds: ["coder".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_secs(30),
        only: None,
    };
    let claimed = laptop.claim_agents(claim).await.unwrap().remove(0);
    let commit = |queue: &str| {
        let (execution, slot) = (run.id(), Slot { segment: 0, sequence: 0 });
        let task = NewTask {
            id: TaskId(OpId { execution, slot, once: None }.uuid()),
            kind: "tool.bash".into(),
            queue: queue.into(),
            input: Payload::null(),
            options: TaskOptions::default(),
            placement: Placement::Queue,
            entry: None,
        };
        let label = Label { kind: OpKind::Task, name: "tool.bash".into(), key: LabelKey::Key("one".into()) };
        let op = NewOp { sequence: 0, once: None, label, seen: Vec::new(), body: OpBody::Task(task) };
        CommitRequest {
            org: OrgId::DEFAULT,
            execution,
            lease: claimed.lease,
            request_id: RequestId::fresh(),
            digest: Digest::of_parts(&[queue.as_bytes()]),
            base: 0,
            known: claimed.high,
            batch: Batch::new(0, vec![op], BatchEnd::Continue),
            refused: Vec::new(),
            local: None,
        }
    };
    let refused = laptop.commit(commit(&machine_queue("desktop"))).await.unwrap_err();
    assert!(refused.code() == Code::PermissionDenied && refused.message().contains("desktop"), "{refused}");
    laptop.commit(commit("default")).await.unwrap();
}
