//! Families of both protocols: a parent of the first with children of the second, and the other way round.

use crate::house::{Agent, BASE, agent};
use crate::lives::{all, child_events, first};
use crate::worker::{Ctx, Stop};
use crate::{Rig, on_each};
use flovyn_core::agent::NativeHost;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error};
use flovyn_core::model::{Cancellation, ChildEvent};
use flovyn_core::testing::postgres::Cluster;
use flovyn_proto::v1;
use flovyn_proto::v1::suspend_agent_request::WaitCondition;
use serde_json::{Value, json};

/// An agent of the second protocol that tells its parent what it does, waits for its word, and returns.
fn scout() -> Agent {
    agent("scout", |ctx, input| {
        Box::pin(async move {
            if input == "fails" {
                return Err(Error::new(Code::AgentFailed, "no luck"));
            }
            ctx.signal_parent("child.progress", &0.5)?.await?;
            // Large enough to be stored beside the signal.
            ctx.signal_parent("child.map", &"rivers ".repeat(20_000))?.await?;
            let guidance = ctx.wait_for_signal::<Value>("guidance")?.await?;
            ctx.signal_parent("child.found", &guidance)?.await?;
            Ok(json!({ "looked": input, "guided": guidance }))
        })
    })
}

async fn spawn(parent: &mut Ctx, kind: &str, input: Value) -> String {
    let request = v1::SpawnChildAgentRequest {
        org_id: "default".into(),
        parent_execution_id: parent.id(),
        agent_kind: kind.into(),
        input: input.to_string().into(),
        mode: "REMOTE".into(),
        ..Default::default()
    };
    parent.wire.agents.spawn_child_agent(request).await.unwrap().into_inner().child_execution_id
}

async fn tell_child(parent: &mut Ctx, child: &str, name: &str, value: Value) -> bool {
    let request = v1::SendChildSignalRequest {
        org_id: "default".into(),
        parent_execution_id: parent.id(),
        child_execution_id: child.to_owned(),
        signal_name: name.into(),
        payload: value.to_string().into(),
    };
    parent.wire.agents.send_child_signal(request).await.unwrap().into_inner().delivered
}

async fn tell_parent(child: &mut Ctx, name: &str, value: Value) -> bool {
    let request = v1::SendParentSignalRequest {
        org_id: "default".into(),
        child_execution_id: child.id(),
        signal_name: name.into(),
        payload: value.to_string().into(),
    };
    child.wire.agents.send_parent_signal(request).await.unwrap().into_inner().delivered
}

fn signal(name: &str) -> WaitCondition {
    WaitCondition::WaitForSignal(name.to_owned())
}

async fn a_parent_of_the_first(rig: &mut Rig) {
    let id = rig.start("chat", json!("parent")).await;
    let mut parent = rig.worker.claim().await;
    let children =
        [spawn(&mut parent, "scout", json!("otters")).await, spawn(&mut parent, "scout", json!("fails")).await];
    parent.wait_on(signal("child.progress")).await.unwrap();
    assert_eq!(rig.status(&id).await, "WAITING", "nobody serves its children yet");
    let (_remote, _worker) = rig.house.worker(NativeHost::default().agent(scout()).unwrap()).await;

    // It is woken by what the child tells, and hears it by the name that the child gave it, once.
    let mut parent = rig.worker.claim().await;
    while !parent.has_signal("child.progress").await {
        // By the map, or by what its other child has to tell.
        parent.wait_on(signal("child.progress")).await.unwrap();
        parent = rig.worker.claim().await;
    }
    let heard = parent.consume(Some("child.progress"), None).await;
    let told: Vec<_> = heard.iter().map(|signal| (&*signal.signal_name, &signal.signal_value[..])).collect();
    assert_eq!(told, [("child.progress", &b"0.5"[..])]);
    assert!(parent.consume(Some("child.progress"), None).await.is_empty());
    while !parent.has_signal("child.map").await {
        parent.wait_on(signal("child.map")).await.unwrap();
        parent = rig.worker.claim().await;
    }
    let map = parent.consume(Some("child.map"), None).await.remove(0).signal_value;
    let map: String = serde_json::from_slice(&map).unwrap();
    assert_eq!(map.len(), 140_000);

    // Its word goes down, and the ends come up.
    assert!(tell_child(&mut parent, &children[0], "guidance", json!("deeper")).await);
    parent.wait_on(all(&children)).await.unwrap();
    let mut parent = rig.worker.claim().await;
    let events = child_events(&mut parent, &children).await;
    let ends: Vec<_> = events.iter().map(|event| (&event.child_execution_id, &*event.event_type)).collect();
    assert_eq!(ends, [(&children[0], "completed"), (&children[1], "failed")]);
    let output: Value = serde_json::from_slice(events[0].output.as_ref().unwrap()).unwrap();
    assert_eq!(output, json!({ "looked": "otters", "guided": "deeper" }));
    assert!(events[1].error.as_ref().unwrap().contains("no luck"), "{events:?}");
    let found = parent.consume(None, Some("**")).await;
    assert_eq!(found.iter().map(|signal| &*signal.signal_name).collect::<Vec<_>>(), ["child.found"]);
    assert!(!tell_child(&mut parent, &children[0], "guidance", json!("late")).await);
    parent.complete(json!("joined")).await.unwrap();
    let run = rig.house.until(&id, "COMPLETED").await;
    let child = rig.house.get(&format!("{BASE}/{}", children[0])).await;
    assert_eq!((&child["parent"], &child["root"], &child["depth"]), (&run["id"], &run["id"], &json!(1)));
    assert_eq!(rig.house.get(&format!("{BASE}/{id}/children")).await["items"].as_array().unwrap().len(), 2);
}

/// A parent of the second protocol: what its child says, a word to it, and how it ends.
fn lead() -> Agent {
    agent("lead", |ctx, input| {
        Box::pin(async move {
            let child = ctx.spawn_agent::<Value>("chat", &input)?;
            let said = ctx.wait_for_signal::<Value>("child.progress")?.await?;
            ctx.signal_child(&child, "guidance", &"deeper")?.await?;
            if input == "stops" {
                ctx.wait_for_signal::<Value>("child.ready")?.await?;
                ctx.cancel_child(&child, Cancellation::USUAL)?.await?;
            }
            let end = match ctx.wait_for_child_event(&child, None)?.await? {
                ChildEvent::Completed { output } => json!({ "completed": output.parse::<Value>()? }),
                ChildEvent::Failed { error } => json!({ "failed": error.message }),
                ChildEvent::Cancelled { .. } => json!("cancelled"),
                other => json!(format!("{other:?}")),
            };
            let awaited = child.await;
            Ok(json!({ "said": said, "end": end, "code": awaited.err().map(|error| error.code().as_str()) }))
        })
    })
}

async fn a_parent_of_the_second(rig: &mut Rig) {
    let (_remote, _worker) = rig.house.worker(NativeHost::default().agent(lead()).unwrap()).await;
    for (input, end, code) in [
        ("otters", json!({ "completed": { "guided": "deeper" } }), Value::Null),
        ("fails", json!({ "failed": "no luck" }), json!("ChildFailed")),
        ("stops", json!("cancelled"), json!("ChildCancelled")),
    ] {
        let id = rig.start("lead", json!(input)).await;
        let mut child = rig.worker.claim().await;
        assert_eq!(child.info.parent_execution_id.as_deref(), Some(&*id));
        assert_eq!((&child.info.input[..], &*child.info.queue), (json!(input).to_string().as_bytes(), "default"));
        assert!(tell_parent(&mut child, "child.progress", json!(0.5)).await);
        child.wait_on(signal("guidance")).await.unwrap();
        let mut child = rig.worker.claim().await;
        let word = child.consume(Some("guidance"), None).await;
        assert_eq!(&word[0].signal_value[..], b"\"deeper\"");
        let run = child.id();
        match input {
            "otters" => child.complete(json!({ "guided": "deeper" })).await.unwrap(),
            "fails" => child.end(Err(Stop::Failed("no luck".into()))).await.unwrap(),
            // One that is asked to stop ends where it would wait.
            _ => {
                assert!(tell_parent(&mut child, "child.ready", Value::Null).await);
                rig.house.until(&run, "CANCELLING").await;
                child.wait_on(signal("never")).await.unwrap();
            }
        }
        let ended = rig.house.until(&id, "COMPLETED").await;
        assert_eq!(ended["output"], json!({ "said": 0.5, "end": end, "code": code }), "{input}");
        let mut wire = rig.worker.wire.clone();
        let late = v1::SendParentSignalRequest {
            org_id: "default".into(),
            child_execution_id: run,
            signal_name: "late".into(),
            payload: "1".into(),
        };
        assert!(!wire.agents.send_parent_signal(late).await.unwrap().into_inner().delivered);
    }
}

/// Three runs, one below the other, of which the middle one alone is of the first protocol.
async fn one_of_the_first_between_two_of_the_second(rig: &mut Rig) {
    let host = NativeHost::default().agent(lead()).unwrap().agent(scout()).unwrap();
    let (_remote, _worker) = rig.house.worker(host).await;
    let id = rig.start("lead", json!("otters")).await;
    let mut middle = rig.worker.claim().await;
    let below = [spawn(&mut middle, "scout", json!("seals")).await];
    assert!(tell_child(&mut middle, &below[0], "guidance", json!("wider")).await);
    assert!(tell_parent(&mut middle, "child.progress", json!(0.1)).await);
    middle.wait_on(first(&below)).await.unwrap();
    let mut middle = rig.worker.claim().await;
    let events = child_events(&mut middle, &below).await;
    let output: Value = serde_json::from_slice(events[0].output.as_ref().unwrap()).unwrap();
    middle.complete(output).await.unwrap();
    let ended = rig.house.until(&id, "COMPLETED").await;
    let passed = json!({ "completed": { "looked": "seals", "guided": "wider" } });
    assert_eq!((&ended["output"]["end"], &ended["output"]["said"]), (&passed, &json!(0.1)));
    let tree = rig.house.get(&format!("{BASE}/{id}/tree")).await;
    let lowest = &tree["children"][0]["children"][0];
    assert_eq!((&lowest["id"], &lowest["depth"], &lowest["root"]), (&json!(below[0]), &json!(2), &ended["id"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_of_the_first_protocol_leads_children_of_the_second() {
    on_each(a_parent_of_the_first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_of_the_second_protocol_leads_children_of_the_first() {
    on_each(a_parent_of_the_second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_may_alternate_between_protocols() {
    on_each(one_of_the_first_between_two_of_the_second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn families_of_both_protocols_on_postgres() {
    let db = Cluster::shared().fresh().expect("a database");
    let mut rig = Rig::open(&db).await;
    a_parent_of_the_first(&mut rig).await;
    a_parent_of_the_second(&mut rig).await;
    one_of_the_first_between_two_of_the_second(&mut rig).await;
    rig.close().await;
}
