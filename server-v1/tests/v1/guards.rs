//! What stands between workers: whose a run is, who may speak for it, and how long.

use crate::house::{BASE, House, TOKEN};
use crate::worker::{Wire, Worker};
use crate::{house_over, on_each, serve_first};
use flovyn_core::clock::{ManualClock, Timestamp};
use flovyn_core::id::OrgId;
use flovyn_core::model::{NewKey, TokenHash, fresh_token};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_proto::v1;
use flovyn_server::{Access, ServerConfig};
use serde_json::json;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_advanced_while_it_is_held() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let append = |id: &str| v1::AppendEntryRequest {
            agent_execution_id: id.to_owned(),
            content: "1".into(),
            ..Default::default()
        };
        let agents = &mut rig.worker.wire.agents.clone();
        assert_eq!(agents.append_entry(append(&id)).await.unwrap_err().code(), Code::FailedPrecondition, "PENDING");
        let ctx = rig.worker.claim().await;
        agents.append_entry(append(&id)).await.unwrap();
        ctx.complete(json!("done")).await.unwrap();
        assert_eq!(agents.append_entry(append(&id)).await.unwrap_err().code(), Code::FailedPrecondition, "COMPLETED");
        let unknown = Uuid::new_v4().to_string();
        assert_eq!(agents.append_entry(append(&unknown)).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(agents.append_entry(append("no id")).await.unwrap_err().code(), Code::InvalidArgument);
        // Ending it once more the same way changes nothing; another way is refused.
        let complete = v1::CompleteAgentRequest { agent_execution_id: id.clone(), output: "2".into() };
        agents.complete_agent(complete).await.unwrap();
        assert_eq!(rig.house.get(&format!("{BASE}/{id}")).await["output"], "done");
        let fail = v1::FailAgentRequest { agent_execution_id: id.clone(), error: "no".into(), ..Default::default() };
        assert_eq!(agents.fail_agent(fail).await.unwrap_err().code(), Code::FailedPrecondition);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_as_it_was() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let open = ctx.schedule("double", json!({ "n": 1 }));
        ctx.flush().await.unwrap();
        let fail = v1::FailAgentRequest {
            agent_execution_id: id.clone(),
            error: "Agent 'chat' not found".into(),
            stack_trace: None,
            failure_type: Some("AGENT_NOT_FOUND".into()),
        };
        ctx.wire.agents.fail_agent(fail).await.unwrap();
        let run = rig.house.get(&format!("{BASE}/{id}")).await;
        assert_eq!((&run["status"], &run["error"]), (&json!("FAILED"), &json!("Agent 'chat' not found")));
        assert_eq!(run["failure"]["type"], "AGENT_NOT_FOUND");
        let tasks = rig.tasks(&id).await;
        assert_eq!((&tasks[0]["id"], &tasks[0]["status"]), (&json!(open), &json!("CANCELLED")));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_asked_to_stop_ends_where_its_worker_would_wait_or_begin() {
    on_each(async |rig| {
        let running = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        rig.house.ask("DELETE", &format!("{BASE}/{running}"), &[], "").await;
        assert_eq!(rig.status(&running).await, "CANCELLING");
        ctx.append("assistant", json!("tidied up"));
        assert!(ctx.wait_for_signal("never").await.is_err());
        assert_eq!(rig.status(&running).await, "CANCELLED");
        let waiting = rig.start("chat", json!(2)).await;
        assert!(rig.worker.claim().await.wait_for_signal("never").await.is_err());
        rig.house.ask("DELETE", &format!("{BASE}/{waiting}"), &[], "").await;
        assert!(rig.worker.poll(1).await.is_none(), "no worker enters it again");
        assert_eq!(rig.status(&waiting).await, "CANCELLED");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_are_not_served() {
    on_each(async |rig| {
        let channel = tonic::transport::Channel::from_shared(rig.house.serving.url()).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let mut request = tonic::Request::new(());
        request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let path = PathAndQuery::from_static("/flovyn.v1.WorkflowDispatch/PollWorkflow");
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        assert_eq!(client.unary(request, path, codec).await.unwrap_err().code(), Code::Unimplemented);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_org_that_a_call_names_is_that_of_its_token() {
    on_each(async |rig| {
        for (org, wanted) in [
            ("default".to_owned(), None),
            (OrgId::DEFAULT.to_string(), None),
            (String::new(), None),
            (Uuid::new_v4().to_string(), Some(Code::PermissionDenied)),
            ("elsewhere".to_owned(), Some(Code::PermissionDenied)),
        ] {
            let request = v1::PollAgentRequest { org_id: org.clone(), ..rig.worker.poll_request(0) };
            let refused = rig.worker.wire.agents.poll_agent(request).await.err().map(|status| status.code());
            assert_eq!(refused, wanted, "{org:?}");
        }
        let mut stranger = Wire::connect(&rig.house.serving.url(), "guessed").await;
        let refused = stranger.agents.poll_agent(rig.worker.poll_request(0)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_queue_acts_on_runs_of_that_queue() {
    let house = House::open().await;
    let storage = house.runtime.storage().clone();
    let directory = storage.server_side().unwrap();
    let org = directory.create_organization("otters", "a test").await.unwrap().id;
    let key = async |org: OrgId, scopes: &str| {
        let token = fresh_token();
        let (name, scopes, actor) = (scopes.to_owned(), scopes.parse().unwrap(), "a test".to_owned());
        let hash = TokenHash::of(&token);
        directory
            .create_key(NewKey { org, name, scopes, expires_in: None, not_after: None, hash, actor })
            .await
            .unwrap();
        token
    };
    let (member, gpu, all) = (key(org, "member").await, key(org, "worker:gpu").await, key(org, "worker").await);
    let foreign = key(OrgId::DEFAULT, "worker").await;
    let access = Access::keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve_first(&house.runtime, config).await;
    let house = House { serving, ..house };
    let bearer = format!("Bearer {member}");
    let body = json!({ "kind": "chat", "queue": "default" }).to_string();
    let (status, run) =
        house.ask("POST", "/api/orgs/otters/agent-executions", &[("authorization", &bearer[..])], &body).await;
    assert_eq!(status, 201, "{run:#}");
    let id = run["id"].as_str().unwrap().to_owned();

    let url = house.serving.url();
    let poll = v1::PollAgentRequest {
        worker_id: Uuid::new_v4().to_string(),
        org_id: "otters".into(),
        queue: "default".into(),
        agent_capabilities: vec!["chat".into()],
        ..Default::default()
    };
    let mut of_gpu = Wire::connect(&url, &gpu).await;
    assert_eq!(of_gpu.agents.poll_agent(poll.clone()).await.unwrap_err().code(), Code::PermissionDenied);
    let mut of_all = Wire::connect(&url, &all).await;
    assert_eq!(of_all.agents.poll_agent(poll).await.unwrap().into_inner().agent_execution.unwrap().id, id);
    let append =
        || v1::AppendEntryRequest { agent_execution_id: id.clone(), content: "1".into(), ..Default::default() };
    let mut stranger = Wire::connect(&url, &foreign).await;
    assert_eq!(of_gpu.agents.append_entry(append()).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(stranger.agents.append_entry(append()).await.unwrap_err().code(), Code::NotFound);
    let read = || v1::GetEntriesRequest { agent_execution_id: id.clone(), after_entry_id: None };
    assert_eq!(of_gpu.agents.get_entries(read()).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(stranger.agents.get_entries(read()).await.unwrap_err().code(), Code::NotFound);
    of_all.agents.append_entry(append()).await.unwrap();
}

/// A server on a driven clock: what time brings comes when the test says so.
pub(crate) async fn driven() -> (House, ManualClock) {
    let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
    let storage = Arc::new(MemoryStorage::new(Arc::new(clock.clone())));
    let house = house_over(Runtime::over(storage), tempfile::tempdir().unwrap()).await;
    (house, clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lasts_ninety_seconds_from_the_last_sign() {
    let (house, clock) = driven().await;
    let storage = house.runtime.storage().clone();
    let pass_after = async |seconds| {
        clock.advance(Duration::from_secs(seconds));
        storage.pass().await.unwrap();
    };
    for called in [None, Some("a name that several share")] {
        let url = house.serving.url();
        let mut worker = Worker::start_as(&url, TOKEN, called, &["chat"], &["double"]).await;
        let id = house.post(BASE, json!({ "kind": "chat" })).await["id"].as_str().unwrap().to_owned();
        let standing = async || {
            let tasks = house.get(&format!("{BASE}/{id}/tasks")).await;
            let run = house.get(&format!("{BASE}/{id}")).await;
            [run["status"].clone(), tasks["tasks"][0]["status"].clone()]
        };
        let mut ctx = worker.claim().await;
        let task = ctx.schedule("double", json!({ "n": 1 }));
        ctx.flush().await.unwrap();
        let claimed = worker.task().await;
        pass_after(80).await;
        // One sign is for everything that the worker holds, whatever it calls itself where it polls for tasks, and whatever
        // of it the call is about.
        for sign in ["a heartbeat", "a commit", "a read", "a preview", "a call about the task"] {
            match sign {
                "a heartbeat" => {
                    let beat = v1::WorkerHeartbeatRequest { worker_id: worker.id.clone(), ..Default::default() };
                    worker.wire.lifecycle.send_heartbeat(beat).await.unwrap();
                }
                "a commit" => {
                    ctx.append("user", json!(1));
                    ctx.flush().await.unwrap();
                }
                "a read" => assert_eq!(ctx.results(from_ref(&task)).await[0].status, "RUNNING"),
                "a preview" => {
                    let shown = ctx.stream(v1::AgentStreamEventType::AgentToken, json!({ "text": "t" })).await;
                    assert!(shown.unwrap());
                }
                _ => {
                    let log = v1::LogMessageRequest { task_execution_id: task.clone(), ..Default::default() };
                    worker.wire.tasks.log_message(log).await.unwrap();
                }
            }
            pass_after(80).await;
            assert_eq!(standing().await, ["RUNNING", "RUNNING"], "80 s after {sign}");
        }
        pass_after(11).await;
        assert_eq!(standing().await, ["PENDING", "PENDING"]);
        let late = ctx.checkpoint().await.unwrap_err();
        assert_eq!(late.code(), Code::FailedPrecondition);
        assert_eq!(worker.complete(&claimed, json!(2)).await.unwrap_err().code(), Code::FailedPrecondition);
        // Another goes on with what is there.
        let mut second = Worker::start(&url, TOKEN, &["chat"], &["double"]).await;
        let mut ctx = second.claim().await;
        assert_eq!(ctx.entries.len(), 1);
        let again = second.task().await;
        assert_eq!((again.task_execution_id, again.execution_count), (task.clone(), 2));
        assert!(ctx.cancel_task(&task).await.cancelled);
        ctx.complete(json!(0)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_tasks_that_it_has_registered() {
    on_each(async |rig| {
        rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let (known, other) = (ctx.schedule("double", json!({ "n": 1 })), ctx.schedule("other", json!({})));
        ctx.flush().await.unwrap();
        assert_eq!(rig.worker.task().await.task_execution_id, known);
        assert!(rig.worker.poll_task(0).await.is_none(), "the other kind stays for who can run it");
        // Under a name that several share, the connection tells who polls.
        let url = rig.house.serving.url();
        let mut named = Worker::start_as(&url, TOKEN, Some("shared"), &[], &["else"]).await;
        assert!(named.poll_task(0).await.is_none());
        // One that nobody knows may run anything.
        (named.wire, named.name) = (Wire::connect(&url, TOKEN).await, "worker-unknown".into());
        assert_eq!(named.task().await.task_execution_id, other);
    })
    .await;
}
