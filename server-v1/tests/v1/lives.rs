//! Whole lives of runs: through restarts of workers and servers, over several servers, with children.

use crate::house::{BASE, TOKEN};
use crate::worker::{Ctx, Stop, Wire, Worker};
use crate::{Rig, house_over, on_each};
use flovyn_core::runtime::Runtime;
use flovyn_core::testing::postgres::Cluster;
use flovyn_proto::v1;
use flovyn_proto::v1::suspend_agent_request::WaitCondition;
use serde_json::{Value, json};
use uuid::Uuid;

/// An agent: two tasks, what came of them, a word of its user.
async fn chat(ctx: &mut Ctx) -> Result<Value, Stop> {
    let tasks = [ctx.schedule("double", json!({ "n": 1 })), ctx.schedule("double", json!({ "n": 2 }))];
    let doubled = ctx.join_all(&tasks).await?;
    if ctx.state.is_null() {
        ctx.append("assistant", json!({ "doubled": doubled }));
        ctx.state = json!({ "asked": true });
        ctx.checkpoint().await?;
    }
    ctx.stream(v1::AgentStreamEventType::AgentToken, json!({ "text": "waiting" })).await?;
    let word = ctx.wait_for_signal("userMessage").await?;
    let said = ctx.append("user", word.clone());
    Ok(json!({ "doubled": doubled, "word": word, "said": said }))
}

/// Claims the run and runs its code until that ends or waits.
async fn go_on(worker: &mut Worker) {
    let mut ctx = worker.claim().await;
    let ended = chat(&mut ctx).await;
    ctx.end(ended).await.unwrap();
}

async fn whole_life(rig: &mut Rig) {
    let url = rig.house.serving.url();
    let id = rig.start("chat", json!({ "hello": "world" })).await;
    let seen = rig.house.events(&format!("{BASE}/{id}/stream"), None).await;
    go_on(&mut rig.worker).await;
    assert_eq!(rig.status(&id).await, "WAITING");
    rig.worker.double().await;
    assert_eq!(rig.status(&id).await, "WAITING");
    rig.worker.double().await;
    assert_eq!(rig.status(&id).await, "PENDING");
    // The worker is gone; another goes on, and dies while it advances the run: its lease would end some day.
    rig.worker = Worker::start(&url, TOKEN, &["chat"], &["double"]).await;
    go_on(&mut rig.worker).await;
    assert_eq!(rig.status(&id).await, "WAITING");
    assert!(rig.signal(&id, "userMessage", json!({ "text": "thanks" })).await);
    rig.worker = Worker::start(&url, TOKEN, &["chat"], &["double"]).await;
    go_on(&mut rig.worker).await;

    let run = rig.house.get(&format!("{BASE}/{id}")).await;
    assert_eq!((&run["status"], &run["output"]["doubled"]), (&json!("COMPLETED"), &json!([2, 4])));
    assert_eq!(run["output"]["word"], json!({ "text": "thanks" }));
    assert!(run["completedAt"].is_string() && run["queue"] == "default" && run["orgId"].is_string());
    let entries = rig.house.get(&format!("{BASE}/{id}/messages")).await["items"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 2);
    assert_eq!((&entries[1]["id"], &entries[1]["parentId"]), (&run["output"]["said"], &entries[0]["id"]));
    let tasks = rig.tasks(&id).await;
    assert_eq!(tasks.len(), 2);
    for task in &tasks {
        assert_eq!((&task["status"], &task["kind"]), (&json!("COMPLETED"), &json!("double")));
        assert!(task["createdAt"].is_string() && task["output"].is_number());
    }
    let events = seen.rest().await;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    let count = |name: &str| names.iter().filter(|seen| **seen == name).count();
    assert_eq!((names.first(), names.last()), (Some(&"agent.started"), Some(&"agent.completed")));
    assert_eq!((count("agent.resumed"), count("agent.waiting"), count("agent.checkpoint")), (3, 2, 3), "{names:?}");
    assert_eq!((count("entry"), count("agent.signal")), (2, 1));
    let numbers: Vec<u64> = events.iter().filter_map(|event| event.data["seq"].as_u64()).collect();
    assert!(!numbers.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_from_start_to_end() {
    on_each(whole_life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_on_postgres() {
    let db = Cluster::shared().fresh().expect("a database");
    let mut rig = Rig::open(&db).await;
    whole_life(&mut rig).await;
    family(&mut rig).await;
    rig.close().await;
}

/// Every command goes to the other of two servers, which know nothing of each other but their database.
#[tokio::test(flavor = "multi_thread")]
async fn any_server_serves_any_command() {
    let rig = Rig::open("sqlite").await;
    let file = format!("sqlite:{}", rig.house.folder.path().join("runs.db").display());
    let second = house_over(Runtime::open(&file).await.unwrap(), tempfile::tempdir().unwrap()).await;
    let urls = [rig.house.serving.url(), second.serving.url()];
    let mut wires = [Wire::connect(&urls[0], TOKEN).await, Wire::connect(&urls[1], TOKEN).await];
    let mut worker = Worker::start(&urls[0], TOKEN, &["chat"], &["double"]).await;
    let id = rig.start("chat", json!(1)).await;
    let mut ctx = worker.claim().await;
    let mut wanted = Vec::new();
    for n in 0..20 {
        wires.swap(0, 1);
        ctx.wire = wires[0].clone();
        wanted.push(ctx.append("user", json!(n)));
        ctx.flush().await.unwrap();
        if n % 5 == 4 {
            assert_eq!(ctx.checkpoint().await.unwrap(), n / 5 + 1);
        }
        if n % 3 == 0 {
            ctx.schedule("double", json!({ "n": n }));
            ctx.flush().await.unwrap();
        }
    }
    // Tasks that one server has scheduled are polled at the other, and reported at the first.
    let mut elsewhere = Worker::start(&urls[1], TOKEN, &[], &["double"]).await;
    for _ in 0..7 {
        let task = elsewhere.task().await;
        worker.complete(&task, json!(0)).await.unwrap();
    }
    let entries = ctx.read_entries(None).await;
    assert_eq!(entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>(), wanted);
    ctx.complete(json!("both")).await.unwrap();
    assert_eq!(rig.status(&id).await, "COMPLETED");
    second.serving.stop().await.unwrap();
    second.runtime.close().await.unwrap();
    rig.close().await;
}

/// The server goes away between any two commands and comes back on the same file.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_goes_on() {
    let mut rig = Rig::open("sqlite").await;
    let id = rig.start("chat", json!(1)).await;
    let mut ctx = rig.worker.claim().await;
    let mut wanted = Vec::new();
    for n in 0..6 {
        let folder = rig.house.folder;
        rig.house.serving.stop().await.unwrap();
        rig.house.runtime.close().await.unwrap();
        let file = format!("sqlite:{}", folder.path().join("runs.db").display());
        rig.house = house_over(Runtime::open(&file).await.unwrap(), folder).await;
        // A worker never registers twice: it only connects again, under the id it was given.
        let wire = Wire::connect(&rig.house.serving.url(), TOKEN).await;
        (ctx.wire, rig.worker.wire) = (wire.clone(), wire);
        wanted.push(ctx.append("user", json!(n)));
        ctx.schedule("double", json!({ "n": n }));
        ctx.schedule("other", json!({ "n": n }));
        ctx.flush().await.unwrap();
        rig.worker.double().await;
        assert!(rig.worker.poll_task(0).await.is_none(), "what it has registered is still known");
        let beat = v1::WorkerHeartbeatRequest { worker_id: rig.worker.id.clone(), ..Default::default() };
        rig.worker.wire.lifecycle.send_heartbeat(beat).await.unwrap();
        if n % 2 == 0 {
            ctx.checkpoint().await.unwrap();
        }
    }
    let entries = ctx.read_entries(None).await;
    assert_eq!(entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>(), wanted);
    ctx.complete(json!("back")).await.unwrap();
    assert_eq!(rig.status(&id).await, "COMPLETED");
    let tasks = rig.tasks(&id).await;
    assert_eq!(tasks.iter().filter(|task| task["status"] == "COMPLETED").count(), 6);
    assert_eq!(tasks.iter().filter(|task| task["status"] == "CANCELLED").count(), 6, "nobody ran the others");
    rig.close().await;
}

async fn spawn(ctx: &mut Ctx, input: Value) -> String {
    let request = v1::SpawnChildAgentRequest {
        org_id: "default".into(),
        parent_execution_id: ctx.id(),
        agent_kind: "chat".into(),
        input: input.to_string().into(),
        mode: "REMOTE".into(),
        max_budget_tokens: Some(1_000),
        ..Default::default()
    };
    let answer = ctx.wire.agents.spawn_child_agent(request).await.unwrap().into_inner();
    assert_eq!(answer.status, "PENDING");
    assert!(Uuid::parse_str(&answer.child_execution_id).is_ok());
    answer.child_execution_id
}

pub(crate) async fn child_events(ctx: &mut Ctx, children: &[String]) -> Vec<v1::ChildEventInfo> {
    let request = v1::PollChildEventsRequest {
        org_id: "default".into(),
        parent_execution_id: ctx.id(),
        child_execution_ids: children.to_vec(),
    };
    ctx.wire.agents.poll_child_events(request).await.unwrap().into_inner().events
}

pub(crate) fn all(children: &[String]) -> WaitCondition {
    WaitCondition::WaitForAllChildren(v1::WaitForAllChildren { child_execution_ids: children.to_vec() })
}

pub(crate) fn first(children: &[String]) -> WaitCondition {
    WaitCondition::WaitForChildEvent(v1::WaitForChildEvent { child_execution_ids: children.to_vec() })
}

/// A parent, three children, and what they tell each other.
async fn family(rig: &mut Rig) {
    let id = rig.start("chat", json!("parent")).await;
    let mut parent = rig.worker.claim().await;
    let mut children = Vec::new();
    for n in 0..3 {
        children.push(spawn(&mut parent, json!(n)).await);
    }
    assert!(child_events(&mut parent, &children).await.is_empty());
    for route in [format!("{BASE}/{id}/children"), format!("{BASE}?parent={id}"), format!("{BASE}?root={id}")] {
        let listed = rig.house.get(&route).await;
        let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect();
        assert_eq!(json!(ids), json!(children.iter().rev().collect::<Vec<_>>()), "{route}");
    }
    parent.wait_on(first(&children)).await.unwrap();
    assert_eq!(rig.status(&id).await, "WAITING");

    // The first child ends well, after words with its parent.
    let mut child = rig.worker.claim().await;
    assert_eq!((child.info.parent_execution_id.as_deref(), child.info.queue.as_str()), (Some(&id[..]), "default"));
    let up = v1::SendParentSignalRequest {
        org_id: "default".into(),
        child_execution_id: child.id(),
        signal_name: "child.progress".into(),
        payload: "0.5".into(),
    };
    assert!(child.wire.agents.send_parent_signal(up.clone()).await.unwrap().into_inner().delivered);
    assert_eq!(rig.status(&id).await, "WAITING", "it waits for an end, not for a signal");
    let ended = child.id();
    child.complete(json!("well")).await.unwrap();
    assert_eq!(rig.status(&id).await, "PENDING");

    let mut parent = rig.worker.claim().await;
    assert_eq!(parent.id(), id, "the oldest comes first");
    assert_eq!(parent.consume(None, Some("child.*")).await.len(), 1);
    assert!(parent.consume(None, Some("**")).await.is_empty(), "how children ended is no author's signal");
    for _ in 0..2 {
        let events = child_events(&mut parent, &children).await;
        let told: Vec<_> = events.iter().map(|event| (event.child_execution_id.clone(), &*event.event_type)).collect();
        assert_eq!(told, [(ended.clone(), "completed")]);
        assert_eq!(events[0].output.as_deref(), Some(&b"\"well\""[..]));
    }
    let down = |child: &str| v1::SendChildSignalRequest {
        org_id: "default".into(),
        parent_execution_id: id.clone(),
        child_execution_id: child.to_owned(),
        signal_name: "cancel".into(),
        payload: "null".into(),
    };
    let left: Vec<String> = children.iter().filter(|child| **child != ended).cloned().collect();
    let mut send = async |child: &str| {
        parent.wire.agents.send_child_signal(down(child)).await.map(|answer| answer.into_inner().delivered)
    };
    assert!(send(&left[0]).await.unwrap());
    assert!(!send(&ended).await.unwrap(), "it has ended");
    assert_eq!(send(&id).await.unwrap_err().code(), tonic::Code::NotFound, "it is no child");
    // One end was there before: waiting for the first is over at once, waiting for all is not.
    parent.wait_on(all(&children)).await.unwrap();
    assert_eq!(rig.status(&id).await, "WAITING");
    for (n, end) in ["fails", "is stopped"].into_iter().enumerate() {
        assert_eq!(rig.status(&id).await, "WAITING", "before the child that {end}");
        let mut child = rig.worker.claim().await;
        assert_eq!(child.consume(Some("cancel"), None).await.len(), usize::from(child.id() == left[0]));
        if n == 0 {
            child.end(Err(Stop::Failed("no luck".into()))).await.unwrap();
        } else {
            let path = format!("{BASE}/{}/cancel", child.id());
            rig.house.post(&path, json!({ "mode": "hard" })).await;
        }
    }
    assert_eq!(rig.status(&id).await, "PENDING");
    let mut parent = rig.worker.claim().await;
    let events = child_events(&mut parent, &children).await;
    assert_eq!(
        events.iter().map(|event| &event.child_execution_id).collect::<Vec<_>>(),
        children.iter().collect::<Vec<_>>()
    );
    assert_eq!(events.iter().filter(|event| event.event_type == "failed").count(), 2);
    assert!(events.iter().any(|event| event.error.as_deref() == Some("no luck")));
    parent.wait_on(first(&children)).await.unwrap();
    assert_eq!(rig.status(&id).await, "PENDING");
    let parent = rig.worker.claim().await;
    parent.complete(json!("joined")).await.unwrap();
    let run = rig.house.get(&format!("{BASE}/{}", children[0])).await;
    assert_eq!((&run["parentId"], &run["rootId"]), (&json!(id), &json!(id)));
    assert_eq!(rig.status(&id).await, "COMPLETED");
    // Words to a parent that has ended are not delivered.
    let mut late = rig.worker.wire.agents.clone();
    assert!(!late.send_parent_signal(up).await.unwrap().into_inner().delivered);
}

#[tokio::test(flavor = "multi_thread")]
async fn children_tell_their_parent() {
    on_each(family).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_definition_and_its_tasks_say_where_they_come_from() {
    on_each(async |rig| {
        let otters = json!({ "slug": "otters", "kind": "chat", "queue": "rivers" });
        let otters = rig.house.post("/api/orgs/default/agent-definitions", otters).await["id"].clone();
        rig.start("chat", json!("of no definition")).await;
        let plain = rig.worker.claim().await;
        assert_eq!(plain.info.agent_definition_id, None);
        plain.complete(json!(0)).await.unwrap();

        let above = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let body = json!({ "agentDefinitionId": "otters", "queue": "default" }).to_string();
        let (status, run) = rig.house.ask("POST", BASE, &[("traceparent", above)], &body).await;
        assert_eq!(status, 201, "{run:#}");
        let mut ctx = rig.worker.claim().await;
        assert_eq!(json!(ctx.info.agent_definition_id), otters);
        ctx.schedule("double", json!({ "n": 1 }));
        ctx.flush().await.unwrap();
        assert_eq!(rig.worker.task().await.traceparent, above);

        // A child goes where it is told to, else where its template's runs go, else where its parent is.
        for (template, queue, wanted) in [
            (Some("otters"), None, "rivers"),
            (Some("otters"), Some("lakes"), "lakes"),
            (Some("unheard"), None, "default"),
            (None, None, "default"),
        ] {
            let request = v1::SpawnChildAgentRequest {
                parent_execution_id: ctx.id(),
                agent_kind: "chat".into(),
                queue: queue.map(str::to_owned),
                template_slug: template.map(str::to_owned),
                ..Default::default()
            };
            let child = ctx.wire.agents.spawn_child_agent(request).await.unwrap().into_inner().child_execution_id;
            let child = rig.house.get(&format!("{BASE}/{child}")).await;
            assert_eq!((&child["queue"], &child["metadata"]["template"]), (&json!(wanted), &json!(template)));
            let of_otters = template == Some("otters");
            assert_eq!(child["metadata"].get("agentDefinition"), of_otters.then_some(&otters), "{child:#}");
        }
    })
    .await;
}
