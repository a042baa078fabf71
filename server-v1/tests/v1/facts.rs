//! One test for each fact of the first protocol.

use crate::house::BASE;
use crate::on_each;
use crate::worker::{Ctx, Stop, on_tasks, task_id};
use flovyn_proto::v1;
use flovyn_proto::v1::suspend_agent_request::WaitCondition;
use futures::StreamExt;
use serde_json::{Value, json};
use std::slice::from_ref;
use std::time::Duration;
use tonic::Code;
use uuid::Uuid;

/// Schedules tasks `double` of these numbers at once; their ids.
async fn doubles(ctx: &mut Ctx, numbers: &[i64]) -> Vec<String> {
    let tasks = numbers.iter().map(|n| ctx.schedule("double", json!({ "n": n }))).collect();
    ctx.flush().await.unwrap();
    tasks
}

async fn statuses(ctx: &mut Ctx, tasks: &[String]) -> Vec<String> {
    ctx.results(tasks).await.into_iter().map(|result| result.status).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn v01_a_task_has_the_id_that_its_key_gives() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let header = ctx.header("double", &json!({ "n": 2 }));
        let derived = task_id(header.idempotency_key.as_ref().unwrap());
        let answer = ctx.send_task(header, &json!({ "n": 2 })).await.unwrap();
        assert_eq!(answer.task_execution_id, derived);
        assert!(answer.idempotency_key_used && answer.idempotency_key_new);
        assert_eq!(statuses(&mut ctx, from_ref(&derived)).await, ["PENDING"]);
        assert_eq!(rig.tasks(&id).await[0]["id"], json!(derived));
        assert_eq!(rig.worker.task().await.task_execution_id, derived);
        // Without a key the server names it.
        let header = v1::ScheduleAgentTaskHeader { idempotency_key: None, ..ctx.header("double", &json!(0)) };
        let answer = ctx.send_task(header, &json!({ "n": 2 })).await.unwrap();
        assert!(!answer.idempotency_key_used && !answer.idempotency_key_new);
        assert_eq!(statuses(&mut ctx, from_ref(&answer.task_execution_id)).await, ["PENDING"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v02_tasks_are_told_apart_by_their_keys_alone() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[1, 2, 1]).await;
        assert!(tasks[0] == tasks[2] && tasks[0] != tasks[1]);
        assert_eq!(rig.tasks(&id).await.len(), 2);
        // The key is of the worker: the same one with another input is the same task.
        let header = ctx.header("double", &json!({ "n": 1 }));
        let answer = ctx.send_task(header, &json!({ "n": 9 })).await.unwrap();
        assert_eq!((answer.task_execution_id.as_str(), answer.idempotency_key_new), (tasks[0].as_str(), false));
        let request = v1::GetAgentTaskCountRequest { agent_execution_id: id.clone() };
        assert_eq!(ctx.wire.agents.get_agent_task_count(request).await.unwrap().into_inner().task_count, 2);
        ctx.complete(json!(0)).await.unwrap();
        // The key names the run: another run has tasks of its own.
        let other = rig.start("chat", json!(2)).await;
        let mut ctx = rig.worker.claim().await;
        assert_ne!(doubles(&mut ctx, &[1]).await[0], tasks[0]);
        assert_eq!(rig.tasks(&other).await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v03_a_known_key_is_the_task_that_is_there_whatever_became_of_it() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[1]).await;
        rig.worker.double().await;
        let header = |ctx: &Ctx, n: i64| v1::ScheduleAgentTaskHeader {
            max_retries: Some(0),
            ..ctx.header("double", &json!({ "n": n }))
        };
        let (failing, cancelled) = (header(&ctx, 2), header(&ctx, 3));
        let second = ctx.send_task(failing.clone(), &json!({ "n": 2 })).await.unwrap().task_execution_id;
        let task = rig.worker.task().await;
        rig.worker.fail(&task, "no").await.unwrap();
        let third = ctx.send_task(cancelled.clone(), &json!({ "n": 3 })).await.unwrap().task_execution_id;
        assert!(ctx.cancel_task(&third).await.cancelled);
        // Checkpoints do not make keys forget.
        ctx.checkpoint().await.unwrap();
        let wanted = ["COMPLETED", "FAILED", "CANCELLED"];
        let all = [tasks[0].clone(), second, third];
        for (n, header) in [header(&ctx, 1), failing, cancelled].into_iter().enumerate() {
            let answer = ctx.send_task(header, &json!({ "n": n + 1 })).await.unwrap();
            assert_eq!(answer.task_execution_id, all[n]);
            assert!(answer.idempotency_key_used && !answer.idempotency_key_new);
        }
        assert_eq!(statuses(&mut ctx, &all).await, wanted);
        assert_eq!(rig.tasks(&id).await.len(), 3);
        assert!(rig.worker.poll_task(0).await.is_none(), "nothing runs again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v04_an_entry_has_the_id_that_the_worker_gives() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let first = ctx.append("user", json!({ "text": "hello" }));
        let second = ctx.append("assistant", json!({ "text": "hi" }));
        assert_eq!(ctx.checkpoint().await.unwrap(), 1);
        // The same entry once more is the one that is there.
        let again = v1::AppendEntryRequest {
            agent_execution_id: ctx.id(),
            entry_type: "MESSAGE".into(),
            role: Some("user".into()),
            content: json!({ "text": "other" }).to_string().into(),
            idempotency_key: Some(first.clone()),
            ..Default::default()
        };
        let answer = ctx.wire.agents.append_entry(again).await.unwrap().into_inner();
        assert_eq!((answer.entry_id.as_str(), answer.already_existed), (first.as_str(), true));
        let usage =
            v1::TokenUsage { input_tokens: 7, output_tokens: 5, cache_read_tokens: Some(2), ..Default::default() };
        let call = v1::AppendEntryRequest {
            agent_execution_id: ctx.id(),
            parent_id: Some(second.clone()),
            entry_type: "LLM_CALL".into(),
            content: json!({ "model": "m" }).to_string().into(),
            turn_id: Some("t1".into()),
            token_usage: Some(usage),
            ..Default::default()
        };
        let third = ctx.wire.agents.append_entry(call).await.unwrap().into_inner().entry_id;
        assert!(Uuid::parse_str(&third).is_ok());

        let entries = ctx.read_entries(None).await;
        let ids: Vec<_> = entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, [&first, &second, &third]);
        assert_eq!((&entries[0].parent_id, &entries[1].parent_id), (&None, &Some(first.clone())));
        assert_eq!((entries[0].entry_type.as_str(), entries[0].role.as_deref()), ("MESSAGE", Some("user")));
        assert_eq!(serde_json::from_slice::<Value>(&entries[0].content).unwrap(), json!({ "text": "hello" }));
        assert!(entries[0].created_at_ms > 1_600_000_000_000);
        assert_eq!((entries[2].entry_type.as_str(), entries[2].turn_id.as_deref()), ("LLM_CALL", Some("t1")));
        assert_eq!((&entries[2].role, &entries[2].token_usage), (&None, &Some(usage)));
        let rest = ctx.read_entries(Some(first.clone())).await;
        assert_eq!(rest.iter().map(|entry| &entry.id).collect::<Vec<_>>(), [&second, &third]);
        let request = v1::GetCheckpointRequest { agent_execution_id: id.clone() };
        let kept = ctx.wire.agents.get_latest_checkpoint(request).await.unwrap().into_inner().checkpoint.unwrap();
        assert_eq!(kept.leaf_entry_id, Some(second));
        assert_eq!(rig.house.get(&format!("{BASE}/{id}/entries")).await["items"][0]["id"], json!(first));

        // A parent that is not there, and an id of another run's entry, are refused.
        let orphan = v1::AppendEntryRequest {
            agent_execution_id: ctx.id(),
            parent_id: Some(Uuid::new_v4().to_string()),
            content: "1".into(),
            ..Default::default()
        };
        assert_eq!(ctx.wire.agents.append_entry(orphan).await.unwrap_err().code(), Code::InvalidArgument);
        ctx.complete(json!(0)).await.unwrap();
        rig.start("chat", json!(2)).await;
        let mut other = rig.worker.claim().await;
        let taken = v1::AppendEntryRequest {
            agent_execution_id: other.id(),
            content: "1".into(),
            idempotency_key: Some(first),
            ..Default::default()
        };
        assert_eq!(other.wire.agents.append_entry(taken).await.unwrap_err().code(), Code::InvalidArgument);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v05_results_are_one_for_each_id_in_the_order_asked() {
    on_each(async |rig| {
        rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[1, 2, 3]).await;
        rig.worker.double().await;
        let unknown = Uuid::new_v4().to_string();
        let asked = [tasks[2].clone(), unknown.clone(), tasks[0].clone(), tasks[2].clone(), tasks[1].clone()];
        let results = ctx.results(&asked).await;
        assert_eq!(
            results.iter().map(|result| &result.task_execution_id).collect::<Vec<_>>(),
            asked.iter().collect::<Vec<_>>()
        );
        assert_eq!(results.iter().filter(|result| result.status == "COMPLETED").count(), 1);
        // One that is not there is told as an end, not as something to wait for.
        assert_eq!(results[1].status, "FAILED");
        assert!(results[1].error.as_ref().unwrap().contains(&unknown));
        let done = results.iter().find(|result| result.status == "COMPLETED").unwrap();
        assert!(["2", "4", "6"].contains(&std::str::from_utf8(done.output.as_ref().unwrap()).unwrap()));
        let request = v1::GetAgentTaskResultRequest {
            agent_execution_id: ctx.id(),
            task_execution_id: done.task_execution_id.clone(),
        };
        let one = ctx.wire.agents.get_agent_task_result(request).await.unwrap().into_inner();
        assert_eq!((one.status.as_str(), &one.output, one.error), ("COMPLETED", &done.output, None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v06_a_wait_is_decided_with_the_change_to_waiting() {
    on_each(async |rig| {
        // What is there already is no reason to wait.
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[1]).await;
        rig.worker.double().await;
        ctx.wait_on(on_tasks(&tasks, v1::WaitMode::All)).await.unwrap();
        assert_eq!(rig.status(&id).await, "PENDING");
        let mut ctx = rig.worker.claim().await;
        assert!(!rig.signal(&id, "go", json!(1)).await, "it runs");
        ctx.wait_on(WaitCondition::WaitForSignal("go".into())).await.unwrap();
        assert_eq!(rig.status(&id).await, "PENDING");
        // What is not there is waited for, and only that.
        let mut ctx = rig.worker.claim().await;
        assert_eq!(ctx.consume(Some("go"), None).await.len(), 1);
        ctx.wait_on(WaitCondition::WaitForSignal("go".into())).await.unwrap();
        assert_eq!(rig.status(&id).await, "WAITING");
        assert!(!rig.signal(&id, "stop", json!(1)).await);
        assert_eq!(rig.status(&id).await, "WAITING");
        assert!(rig.signal(&id, "go", json!(2)).await);
        assert_eq!(rig.status(&id).await, "PENDING");
        // Whichever comes first, a signal that races with the wait is not lost.
        for round in 0..30 {
            let mut ctx = rig.worker.claim().await;
            while !ctx.consume(Some("go"), None).await.is_empty() {}
            let waiting = ctx.wait_on(WaitCondition::WaitForSignal("go".into()));
            let (waited, _) = tokio::join!(waiting, rig.signal(&id, "go", json!(round)));
            waited.unwrap();
            assert_eq!(rig.status(&id).await, "PENDING", "round {round}");
        }
        let mut ctx = rig.worker.claim().await;
        assert_eq!(
            ctx.wait_on(on_tasks(&[Uuid::new_v4().to_string()], v1::WaitMode::All)).await.unwrap_err().code(),
            Code::InvalidArgument
        );
        let request = v1::SuspendAgentRequest { agent_execution_id: id, reason: None, wait_condition: None };
        assert_eq!(ctx.wire.agents.suspend_agent(request).await.unwrap_err().code(), Code::InvalidArgument);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v07_a_race_goes_on_until_one_succeeds_or_none_is_left() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let mut tasks = Vec::new();
        for n in 1..=3 {
            let header =
                v1::ScheduleAgentTaskHeader { max_retries: Some(0), ..ctx.header("double", &json!({ "n": n })) };
            tasks.push(ctx.send_task(header, &json!({ "n": n })).await.unwrap().task_execution_id);
        }
        ctx.wait_on(on_tasks(&tasks, v1::WaitMode::Any)).await.unwrap();
        let first = rig.worker.task().await;
        rig.worker.fail(&first, "no").await.unwrap();
        assert_eq!(rig.status(&id).await, "WAITING", "a failure decides nothing");
        let second = rig.worker.task().await;
        rig.worker.complete(&second, json!(4)).await.unwrap();
        assert_eq!(rig.status(&id).await, "PENDING");
        // All ids again, the failed one included: the success that is there ends the wait at once.
        let mut ctx = rig.worker.claim().await;
        ctx.wait_on(on_tasks(&tasks, v1::WaitMode::Any)).await.unwrap();
        assert_eq!(rig.status(&id).await, "PENDING");
        let mut ctx = rig.worker.claim().await;
        let left: Vec<String> = tasks.iter().filter(|task| **task != second.task_execution_id).cloned().collect();
        ctx.wait_on(on_tasks(&left, v1::WaitMode::Any)).await.unwrap();
        assert_eq!(rig.status(&id).await, "WAITING");
        let third = rig.worker.task().await;
        rig.worker.fail(&third, "no").await.unwrap();
        assert_eq!(rig.status(&id).await, "PENDING", "none is left");
        // Waiting for all ends with the last, not with each.
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[7, 8, 9]).await;
        ctx.wait_on(on_tasks(&tasks, v1::WaitMode::All)).await.unwrap();
        for left in [2, 1, 0] {
            assert_eq!(rig.status(&id).await, "WAITING", "{left} left");
            rig.worker.double().await;
        }
        assert_eq!(rig.status(&id).await, "PENDING");
        let mut ctx = rig.worker.claim().await;
        assert_eq!(ctx.join_all(&tasks).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v08_a_cancelled_task_stays_cancelled() {
    on_each(async |rig| {
        rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[1]).await;
        let running = rig.worker.task().await;
        let pending = doubles(&mut ctx, &[2]).await;
        for task in [&tasks[0], &pending[0]] {
            let answer = ctx.cancel_task(task).await;
            assert_eq!((answer.cancelled, answer.status.as_str()), (true, "CANCELLED"));
        }
        let again = ctx.cancel_task(&tasks[0]).await;
        assert_eq!((again.cancelled, again.status.as_str()), (false, "CANCELLED"));
        // Its worker was not told, and what it brings late changes nothing.
        for late in [rig.worker.complete(&running, json!(2)).await, rig.worker.fail(&running, "late").await] {
            assert_eq!(late.unwrap_err().code(), Code::FailedPrecondition);
        }
        assert_eq!(statuses(&mut ctx, &[tasks[0].clone(), pending[0].clone()]).await, ["CANCELLED", "CANCELLED"]);
        assert!(rig.worker.poll_task(0).await.is_none());
        let done = doubles(&mut ctx, &[3]).await;
        rig.worker.double().await;
        let answer = ctx.cancel_task(&done[0]).await;
        assert_eq!((answer.cancelled, answer.status.as_str()), (false, "COMPLETED"));
        let request = v1::CancelAgentTaskRequest {
            agent_execution_id: ctx.id(),
            task_execution_id: Uuid::new_v4().to_string(),
            reason: None,
        };
        assert_eq!(ctx.wire.agents.cancel_agent_task(request).await.unwrap_err().code(), Code::NotFound);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v09_a_task_has_its_time_from_when_it_was_scheduled() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let mut tasks = Vec::new();
        for n in [1, 2] {
            let header =
                v1::ScheduleAgentTaskHeader { timeout_ms: Some(300), ..ctx.header("double", &json!({ "n": n })) };
            tasks.push(ctx.send_task(header, &json!({ "n": n })).await.unwrap().task_execution_id);
        }
        // One is claimed and never reported, the other is never claimed.
        let claimed = rig.worker.task().await;
        ctx.wait_on(on_tasks(&tasks, v1::WaitMode::All)).await.unwrap();
        rig.house.until(&id, "PENDING").await;
        let mut ctx = rig.worker.claim().await;
        for result in ctx.results(&tasks).await {
            assert_eq!(result.status, "FAILED");
            assert!(result.error.as_ref().unwrap().contains("timed out"), "{result:?}");
        }
        assert!(rig.tasks(&id).await.iter().all(|task| task["error"].as_str().unwrap().contains("timed out")));
        assert!(rig.worker.poll_task(0).await.is_none(), "it is not tried again");
        assert_eq!(rig.worker.complete(&claimed, json!(2)).await.unwrap_err().code(), Code::FailedPrecondition);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v10_a_task_is_tried_four_times() {
    on_each(async |rig| {
        rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        let tasks = doubles(&mut ctx, &[1]).await;
        for attempt in 1..=4 {
            assert_eq!(statuses(&mut ctx, &tasks).await, ["PENDING"]);
            let task = rig.worker.task().await;
            assert_eq!((&task.task_execution_id, task.execution_count), (&tasks[0], attempt));
            rig.worker.fail(&task, &format!("double: attempt {attempt} \u{2713}")).await.unwrap();
        }
        assert!(rig.worker.poll_task(0).await.is_none());
        let result = ctx.results(&tasks).await.remove(0);
        assert_eq!((result.status.as_str(), result.error.as_deref()), ("FAILED", Some("double: attempt 4 \u{2713}")));
        let header = v1::ScheduleAgentTaskHeader { max_retries: Some(1), ..ctx.header("double", &json!({ "n": 2 })) };
        let second = ctx.send_task(header, &json!({ "n": 2 })).await.unwrap().task_execution_id;
        let task = rig.worker.task().await;
        rig.worker.fail(&task, "once").await.unwrap();
        rig.worker.double().await;
        assert_eq!(statuses(&mut ctx, from_ref(&second)).await, ["COMPLETED"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v11_signals_of_a_name_come_one_at_a_time() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        for n in 1..=3 {
            rig.signal(&id, "userMessage", json!({ "text": n })).await;
        }
        rig.signal(&id, "other", json!(0)).await;
        let mut ctx = rig.worker.claim().await;
        let mut seen = Vec::new();
        while let [signal] = &ctx.consume(Some("userMessage"), None).await[..] {
            assert_eq!(signal.signal_name, "userMessage");
            seen.push(serde_json::from_slice::<Value>(&signal.signal_value).unwrap()["text"].clone());
        }
        assert_eq!(seen, [1, 2, 3]);
        let has =
            |ctx: &Ctx, name: &str| v1::HasSignalRequest { agent_execution_id: ctx.id(), signal_name: name.into() };
        for (name, wanted) in [("userMessage", false), ("other", true)] {
            let request = has(&ctx, name);
            assert_eq!(ctx.wire.agents.has_signal(request).await.unwrap().into_inner().has_signal, wanted, "{name}");
        }
        // What was consumed stays so, also for the next holder.
        ctx.checkpoint().await.unwrap();
        ctx.wait_on(WaitCondition::WaitForSignal("other".into())).await.unwrap();
        let mut ctx = rig.worker.claim().await;
        assert!(ctx.consume(Some("userMessage"), None).await.is_empty());
        assert_eq!(ctx.wait_for_signal("other").await.unwrap(), json!(0));
        assert!(matches!(ctx.wait_for_signal("other").await, Err(Stop::Suspended)));
        assert_eq!(rig.status(&id).await, "WAITING");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v12_a_pattern_takes_all_signals_it_matches() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        for name in ["child.a", "child.a.b", "child.", "child:x", "child.b"] {
            rig.signal(&id, name, json!(name)).await;
        }
        let taken = async |ctx: &mut Ctx, pattern: &str| {
            let signals = ctx.consume(Some("child."), Some(pattern)).await;
            signals.into_iter().map(|signal| signal.signal_name).collect::<Vec<_>>()
        };
        assert_eq!(taken(&mut ctx, "child.*").await, ["child.a", "child.b"]);
        assert_eq!(taken(&mut ctx, "child.*").await, Vec::<String>::new());
        assert_eq!(taken(&mut ctx, "child:*").await, ["child:x"]);
        assert_eq!(taken(&mut ctx, "child.**").await, ["child.a.b"]);
        assert_eq!(taken(&mut ctx, "**").await, ["child."]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v13_a_claim_is_one_workers_and_of_what_it_can_run() {
    on_each(async |rig| {
        let unknown = rig.start("unknown", json!(1)).await;
        let body = json!({ "kind": "chat", "input": 1, "queue": "gpu" });
        let elsewhere = rig.house.post(BASE, body).await["id"].as_str().unwrap().to_owned();
        assert!(rig.worker.poll(0).await.is_none());
        for id in [&unknown, &elsewhere] {
            assert_eq!(rig.status(id).await, "PENDING");
        }
        // Of many polls for one run, one gets it.
        let id = rig.start("chat", json!(1)).await;
        let polls = (0..8).map(|_| {
            let (mut agents, request) = (rig.worker.wire.agents.clone(), rig.worker.poll_request(0));
            async move { agents.poll_agent(request).await.unwrap().into_inner().agent_execution }
        });
        let claimed: Vec<_> = futures::future::join_all(polls).await.into_iter().flatten().collect();
        assert_eq!(claimed.iter().map(|info| info.id.as_str()).collect::<Vec<_>>(), [&id]);
        let info = &claimed[0];
        assert_eq!(
            (info.kind.as_str(), info.queue.as_str(), info.persistence_mode.as_str()),
            ("chat", "default", "REMOTE")
        );
        assert_eq!((&info.input[..], info.current_checkpoint_seq, &info.parent_execution_id), (&b"1"[..], -1, &None));
        assert_eq!(serde_json::from_slice::<Value>(&info.metadata).unwrap(), json!({}));
        assert_eq!(rig.status(&id).await, "RUNNING");
        // A poll that was given up claims nothing.
        let gone = rig.worker.poll(30);
        assert!(tokio::time::timeout(Duration::from_millis(300), gone).await.is_err());
        // A later call on its connection was answered: the server has read that the poll is over.
        assert!(rig.worker.poll(0).await.is_none());
        tokio::time::sleep(Duration::from_millis(200)).await;
        let late = rig.start("chat", json!(2)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(rig.status(&late).await, "PENDING");
        assert_eq!(rig.worker.poll(5).await.unwrap().id, late);
        // Any kind, where none is named.
        let any = v1::PollAgentRequest { agent_capabilities: vec![], ..rig.worker.poll_request(1) };
        let claimed = rig.worker.wire.agents.poll_agent(any).await.unwrap().into_inner().agent_execution.unwrap();
        assert_eq!(claimed.id, unknown);
        // One by its id.
        let request =
            v1::ResumeAgentRequest { agent_execution_id: elsewhere.clone(), worker_id: rig.worker.id.clone() };
        let resumed = rig.worker.wire.agents.resume_agent(request.clone()).await.unwrap().into_inner();
        assert!(resumed.success && resumed.agent.is_some_and(|agent| agent.id == elsewhere));
        assert!(!rig.worker.wire.agents.resume_agent(request).await.unwrap().into_inner().success);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v14_checkpoints_are_numbered_from_one() {
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut ctx = rig.worker.claim().await;
        assert_eq!(ctx.info.current_checkpoint_seq, -1);
        let request = v1::GetCheckpointRequest { agent_execution_id: id.clone() };
        assert!(ctx.wire.agents.get_latest_checkpoint(request).await.unwrap().into_inner().checkpoint.is_none());
        for wanted in 1..=3 {
            ctx.state = json!({ "turn": wanted });
            assert_eq!(ctx.checkpoint().await.unwrap(), wanted);
        }
        ctx.wait_on(WaitCondition::WaitForSignal("go".into())).await.unwrap();
        rig.signal(&id, "go", json!(1)).await;
        let ctx = rig.worker.claim().await;
        assert_eq!((ctx.info.current_checkpoint_seq, &ctx.state), (3, &json!({ "turn": 3 })));
        assert_eq!(rig.house.get(&format!("{BASE}/{id}")).await["currentCheckpointSeq"], 3);
        // As existing clients read them.
        let listed = rig.house.get(&format!("{BASE}/{id}/checkpoints")).await["checkpoints"].clone();
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.iter().map(|one| one["sequence"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        for one in listed {
            assert!(Uuid::parse_str(one["id"].as_str().unwrap()).is_ok() && one["createdAt"].is_string());
            assert_eq!((&one["agentExecutionId"], &one["state"]["turn"]), (&json!(id), &one["sequence"]));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v15_a_run_goes_on_from_its_first_line() {
    on_each(async |rig| {
        let id = rig.start("chat", json!({ "question": 42 })).await;
        let mut ctx = rig.worker.claim().await;
        let said = ctx.append("user", json!({ "text": "kept" }));
        let tasks = vec![ctx.schedule("double", json!({ "n": 21 }))];
        ctx.state = json!({ "step": 1 });
        assert!(matches!(ctx.join_all(&tasks).await, Err(Stop::Suspended)));
        rig.worker.double().await;
        let mut ctx = rig.worker.claim().await;
        assert_eq!((ctx.id(), ctx.input()), (id, json!({ "question": 42 })));
        assert_eq!((&ctx.state, ctx.leaf.as_ref()), (&json!({ "step": 1 }), Some(&said)));
        assert_eq!(ctx.entries.iter().map(|entry| &entry.id).collect::<Vec<_>>(), [&said]);
        let again = vec![ctx.schedule("double", json!({ "n": 21 }))];
        assert_eq!(again, tasks);
        assert_eq!(ctx.join_all(&again).await.unwrap(), [json!(42)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v16_a_poll_may_find_nothing_and_waits_for_what_comes() {
    on_each(async |rig| {
        assert!(rig.worker.poll(0).await.is_none());
        assert!(rig.worker.poll(1).await.is_none());
        assert!(rig.worker.poll_task(0).await.is_none());
        let mut agents = rig.worker.wire.agents.clone();
        let request = rig.worker.poll_request(30);
        let poll = tokio::spawn(async move { agents.poll_agent(request).await.unwrap().into_inner().agent_execution });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let id = rig.start("chat", json!(1)).await;
        let claimed = tokio::time::timeout(Duration::from_secs(10), poll).await.unwrap().unwrap().unwrap();
        assert_eq!(claimed.id, id);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v17_streams_succeed_and_are_seen() {
    use v1::AgentStreamEventType::{AgentData, AgentError, AgentProgress, AgentToken, AgentToolEnd, AgentToolStart};
    on_each(async |rig| {
        let id = rig.start("chat", json!(1)).await;
        let mut seen = rig.house.events(&format!("{BASE}/{id}/stream"), None).await;
        let mut ctx = rig.worker.claim().await;
        ctx.append("user", json!("hello"));
        ctx.flush().await.unwrap();
        for (kind, payload) in [
            (AgentToken, json!({ "text": "Hel" })),
            (AgentToken, json!({ "text": "lo" })),
            (AgentData, json!({ "data": { "type": "thinking_delta", "delta": "hm" } })),
            (AgentProgress, json!({ "progress": 0.5, "details": null })),
            (AgentError, json!({ "message": "odd", "code": null })),
            (AgentToolStart, json!({ "tool_call": { "id": "1" } })),
            (AgentToolEnd, json!({ "tool_call": { "id": "1" } })),
        ] {
            assert!(ctx.stream(kind, payload).await.unwrap());
        }
        let mut names = Vec::new();
        let mut text = String::new();
        while !names.contains(&"progress".to_owned()) || names.iter().filter(|name| *name == "data").count() < 3 {
            let event = seen.next().await.expect("the stream goes on");
            if event.name == "token" {
                text.push_str(event.data["data"].as_str().unwrap());
            }
            names.push(event.name);
        }
        assert_eq!(text, "Hello");
        assert!(names.contains(&"stream_error".to_owned()), "{names:?}");
        // A task's come beside them.
        doubles(&mut ctx, &[1]).await;
        let mut both = rig.house.events(&format!("{BASE}/{id}/stream/consolidated"), None).await;
        let task = rig.worker.task().await;
        let event = v1::StreamTaskDataRequest {
            task_execution_id: task.task_execution_id.clone(),
            r#type: v1::StreamEventType::Token.into(),
            payload: json!({ "type": "token", "text": "of a task" }).to_string(),
            ..Default::default()
        };
        let tasks = &mut rig.worker.wire.tasks;
        assert!(tasks.stream_task_data(event).await.unwrap().into_inner().acknowledged);
        while both.next().await.expect("the stream goes on").data["data"] != "of a task" {}
        let id_of = || task.task_execution_id.clone();
        let progress =
            v1::ReportProgressRequest { task_execution_id: id_of(), progress: 0.25, details: "a quarter".into() };
        tasks.report_progress(progress).await.unwrap();
        let line = v1::LogMessageRequest { task_execution_id: id_of(), level: "INFO".into(), message: "here".into() };
        tasks.log_message(line).await.unwrap();
        tasks.heartbeat(v1::HeartbeatRequest { task_execution_id: id_of() }).await.unwrap();
        rig.worker.complete(&task, json!(2)).await.unwrap();
        // What nobody can see any more harms nothing.
        let mut late = ctx.wire.agents.clone();
        ctx.complete(json!(0)).await.unwrap();
        let event = |id: &str| v1::StreamAgentDataRequest {
            agent_execution_id: id.into(),
            payload: "no JSON".into(),
            event_type: AgentToken.into(),
            ..Default::default()
        };
        let events = [event(&id), event(&Uuid::new_v4().to_string()), event("no id")];
        late.stream_agent_data(futures::stream::iter(events).boxed()).await.unwrap();
    })
    .await;
}
