//! Every method × every role × own and foreign org, each with a request that is in order: what is refused is refused for who
//! asks. A method that has no request here fails the test.

use super::world::{QUEUE, World, new_run, schedule};
use super::{Matrix, ROLES};
use bytes::{Buf, BufMut};
use flovyn_core::Payload;
use flovyn_core::id::{ExecutionId, OrgId, SignalId, WorkerId};
use flovyn_core::model::{AttemptResult, BatchEnd};
use flovyn_core::storage::remote::ORG_HEADER;
use flovyn_core::wire::{attach, raw, v2};
use flovyn_proto::v1;
use futures::stream;
use prost::Message;
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use uuid::Uuid;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a role may call a method, said once more than the server says it.
fn may_call(role: &str, service: &str, method: &str) -> bool {
    let looks = ["Get", "List"].iter().any(|start| method.starts_with(start))
        || ["Branch", "Journal", "Unserved", "Watch", "Identify", "Standings", "RollUps", "LastEvent"]
            .contains(&method);
    match (role, service) {
        (_, "Agents") if method == "Identify" => true,
        ("admin", _) => true,
        // The first protocol is the workers', who are sent signals by others.
        ("member" | "exec:signal", "AgentDispatch") => method == "SignalAgent",
        ("worker", "AgentDispatch") => method != "SignalAgent",
        ("worker" | "worker:gpu", "WorkerLifecycle") => true,
        ("worker", "TaskExecution") => true,
        // All else of the first protocol is about what is of a queue.
        ("worker:gpu", "AgentDispatch" | "TaskExecution") => false,
        ("viewer", "Agents") => looks,
        ("viewer" | "member", "Worker") => ["Hints"].contains(&method),
        ("member", "Agents") => true,
        // All else names a worker, a run or a preview of another queue.
        ("worker:gpu", "Worker") => method == "Hints",
        ("worker:gpu", "Agents") if method == "GetExecution" => false,
        ("worker", "Worker") => true,
        ("worker" | "worker:gpu", "Agents") => {
            ["GetExecution", "GetEntry", "Branch", "GetPayload", "PutPayload", "Standings"].contains(&method)
        }
        ("viewer" | "member", "Machines") => method == "ListMachines",
        ("keys", "Machines") => method == "RevokeMachine",
        ("worker", "Machines") => method == "AnnounceMachine",
        ("exec:signal", "Agents") => method == "Signal",
        _ => false,
    }
}

/// How a call ends that is in order: the run is not paused, the task is not in doubt, and it has no result yet.
fn well(method: &str) -> Code {
    match method {
        "Remove" | "Resume" | "ResolveTask" | "ResolveDivergence" => Code::FailedPrecondition,
        "SubmitCheckpoint" | "ReadRows" => Code::InvalidArgument,
        // No code waits: of none could be said whose it is.
        "ApprovePairing" => Code::NotFound,
        _ => Code::Ok,
    }
}

/// How a call ends that names things of another org: as where they are not there.
fn foreign(service: &str, method: &str) -> Code {
    match (service, method) {
        // These name nothing that another org could have.
        ("Agents", "Identify" | "Start" | "ListExecutions" | "ListQueues" | "ListWorkers" | "Unserved") => Code::Ok,
        ("Agents", "PutSchedule" | "ListSchedules" | "LimitQueue" | "ListQueueLimits" | "PutPayload") => Code::Ok,
        ("Worker", "Register" | "PollAgents" | "PollTasks" | "Hints") => Code::Ok,
        // A worker of another org is another one, and of what is not there nothing is told.
        ("Worker", "Unregister" | "Heartbeat" | "Publish") | ("Agents", "Standings" | "RollUps") => Code::Ok,
        ("WorkerLifecycle", "SendHeartbeat") | ("AgentDispatch", "StreamAgentData") => Code::Ok,
        ("Machines", "ListMachines" | "AnnounceMachine") => Code::Ok,
        ("Agents", "GetPayload") => Code::InvalidArgument,
        // These name the org.
        ("WorkerLifecycle", "RegisterWorker") | ("AgentDispatch", "PollAgent" | "SpawnChildAgent") => {
            Code::PermissionDenied
        }
        ("AgentDispatch", "SendParentSignal" | "SendChildSignal" | "PollChildEvents") => Code::PermissionDenied,
        ("TaskExecution", "PollTask") => Code::PermissionDenied,
        // No attempt of such a task runs.
        ("TaskExecution", _) => Code::FailedPrecondition,
        ("Worker", "ReportTask") => Code::Aborted,
        _ => Code::NotFound,
    }
}

fn one(message: impl Message) -> Vec<Vec<u8>> {
    vec![message.encode_to_vec()]
}

/// The request of a method about a world.
fn request(service: &str, method: &str, world: &World) -> Vec<Vec<u8>> {
    let execution = raw(world.run.0);
    let lease: Option<v2::Lease> = Some(world.lease.into());
    let (worker, fresh) = (raw(world.lease.worker.0), || raw(Uuid::new_v4()));
    let null = || Some(v2::Payload::from(&Payload::null()));
    let page = v2::PageRequest { limit: 10, after: None };
    let list = || v2::ListRequest { execution: execution.clone(), page: Some(page.clone()) };
    let poll = || v2::PollRequest {
        worker: fresh(),
        queue: QUEUE.into(),
        kinds: vec!["unheard of".into()],
        limit: 1,
        ttl: 30_000_000,
        ..Default::default()
    };
    let (run, task, org) = (world.run.to_string(), world.task.to_string(), world.org.to_string());
    let slot = Some(v2::Slot { segment: 1, sequence: 0 });
    match (service, method) {
        ("Agents", "Identify" | "ListQueues" | "Unserved" | "ListQueueLimits") => one(v2::Empty {}),
        ("Agents", "Start") => one(v2::NewExecution::from(&new_run(world.org))),
        ("Agents", "Signal") => one(v2::SignalRequest {
            execution,
            id: raw(SignalId::fresh().0),
            name: "go".into(),
            payload: null(),
            ..Default::default()
        }),
        ("Agents", "Cancel") => {
            let cancel = Some(v2::Cancellation { hard: false, grace: 30_000_000 });
            one(v2::CancelRequest { execution, cancel })
        }
        ("Agents", "Resume") => one(v2::ResumeRequest { execution, ..Default::default() }),
        ("Agents", "ResolveTask") => {
            let retry = v2::resolve_task_request::Resolution::Retry(v2::Empty {});
            one(v2::ResolveTaskRequest { op_id: world.op.to_string(), resolution: Some(retry) })
        }
        ("Agents", "ResolveDivergence") => one(v2::ResolveDivergenceRequest { execution, decision: "stay".into() }),
        ("Agents", "Fork") => {
            let from = Some(v2::fork_request::From::Latest(v2::Empty {}));
            one(v2::ForkRequest { execution, id: raw(ExecutionId::fresh().0), from, ..Default::default() })
        }
        ("Agents", "GetExecution" | "LastEvent" | "Remove") => one(v2::IdRequest { id: execution }),
        ("Agents", "Standings") => one(v2::StandingsRequest { executions: vec![execution] }),
        ("Agents", "RollUps") => one(v2::RollUpsRequest { executions: vec![execution] }),
        ("Agents", "ListDescendants") => one(v2::ListDescendantsRequest { execution, limit: 10 }),
        ("Agents", "ListExecutions") => {
            one(v2::ListExecutionsRequest { parent: execution, page: Some(page), ..Default::default() })
        }
        ("Agents", "GetEntry") => one(v2::IdRequest { id: raw(world.entry.0) }),
        ("Agents", "Branch") => one(v2::BranchRequest { leaf: raw(world.entry.0), after: None }),
        ("Agents", "GetTask") => one(v2::TaskRequest { execution, id: raw(world.task.0) }),
        ("Agents", "ListEntries" | "ListLatestEntries" | "ListTasks" | "ListCheckpoints" | "ListSignals") => {
            one(list())
        }
        ("Agents", "ListEvents") => one(v2::ListEventsRequest { execution, after: 0, limit: 10 }),
        ("Agents", "Journal") => one(v2::JournalRequest { execution, segment: 1 }),
        ("Agents", "ListWorkers" | "ListSchedules") => one(page),
        ("Agents", "Watch") => one(v2::WatchRequest { execution, ..Default::default() }),
        ("Agents", "PutSchedule") => one(v2::ScheduleSpec::from(&schedule(&Uuid::new_v4().to_string()))),
        ("Agents", "GetSchedule" | "DeleteSchedule") => one(v2::ScheduleRequest { id: world.schedule.clone() }),
        ("Agents", "LimitQueue") => one(v2::QueueLimit { queue: "narrow".into(), concurrency: Some(1), rate: None }),
        ("Agents", "GetPayload") => {
            let stored = v2::Stored { hash: world.payload.0.0.to_vec().into(), size: world.payload.1 };
            one(v2::GetPayloadRequest { payload: Some(stored), offset: 0, length: None })
        }
        ("Agents", "PutPayload") => {
            let bytes = vec![7; 20_000];
            let hash = blake3::hash(&bytes).as_bytes().to_vec().into();
            let header = v2::PayloadHeader { encoding: v2::Encoding::Raw.into(), size: 20_000, hash };
            let parts = [v2::payload_part::Part::Header(header), v2::payload_part::Part::Chunk(bytes.into())];
            parts.into_iter().flat_map(|part| one(v2::PayloadPart { part: Some(part) })).collect()
        }
        ("Worker", "Register") => one(v2::RegisterRequest { worker, name: "one".into(), queues: vec![QUEUE.into()] }),
        ("Worker", "Unregister") => one(v2::UnregisterRequest { worker }),
        ("Worker", "Heartbeat") => {
            let held = v2::HeldExecution { execution, epoch: world.lease.epoch, known: world.known };
            one(v2::HeartbeatRequest { worker, ttl: 30_000_000, executions: vec![held], ..Default::default() })
        }
        ("Worker", "PollAgents" | "PollTasks") => one(poll()),
        ("Worker", "LoadSegment") => one(v2::LoadSegmentRequest { execution, lease }),
        ("Worker", "ReadRows") => one(v2::ReadRowsRequest { rows: vec![v2::RowOf { execution, slot }] }),
        ("Worker", "Commit") => {
            let commit = v2::CommitRequest::from(&world.next(1, Vec::new(), BatchEnd::Continue));
            attach::commit_parts(commit).iter().flat_map(|part| one(part.clone())).collect()
        }
        ("Worker", "FactsAfter") => one(v2::FactsAfterRequest { execution, after: 0 }),
        ("Worker", "ReportTask") => one(v2::ReportTaskRequest {
            task: raw(world.task.0),
            attempt: 1,
            worker,
            result: Some((&AttemptResult::Completed(Payload::null())).into()),
        }),
        ("Worker", "Release") => one(v2::ReleaseRequest { execution, lease }),
        ("Worker", "Hints") => one(v2::HintsRequest::default()),
        ("Worker", "Publish") => {
            let chunk = v2::Chunk {
                execution,
                segment: 1,
                epoch: world.lease.epoch,
                attempt: 1,
                seq: 1,
                data: "a word".into(),
                ..Default::default()
            };
            one(v2::PublishRequest { chunks: vec![v2::PublishedChunk { chunk: Some(chunk), after: world.known }] })
        }
        ("Machines", "ListMachines") => one(v2::Empty {}),
        ("Machines", "ApprovePairing") => {
            one(v2::ApprovePairingRequest { code: "BCDF-GHJK".into(), ..Default::default() })
        }
        ("Machines", "AnnounceMachine") => {
            one(v2::AnnounceMachineRequest { name: world.machine.clone(), offers: Some("{}".into()) })
        }
        ("Machines", "RevokeMachine") => one(v2::RevokeMachineRequest { name: world.machine.clone() }),
        ("AgentDispatch", "PollAgent") => one(v1::PollAgentRequest {
            worker_id: WorkerId::fresh().to_string(),
            org_id: org,
            queue: QUEUE.into(),
            agent_capabilities: vec!["unheard of".into()],
            ..Default::default()
        }),
        ("AgentDispatch", "GetEntries") => one(v1::GetEntriesRequest { agent_execution_id: run, after_entry_id: None }),
        ("AgentDispatch", "AppendEntry") => one(v1::AppendEntryRequest {
            agent_execution_id: run,
            entry_type: "MESSAGE".into(),
            content: "1".into(),
            ..Default::default()
        }),
        ("AgentDispatch", "GetLatestCheckpoint") => one(v1::GetCheckpointRequest { agent_execution_id: run }),
        ("AgentDispatch", "SubmitCheckpoint") => {
            one(v1::SubmitCheckpointRequest { agent_execution_id: run, state: "1".into(), ..Default::default() })
        }
        ("AgentDispatch", "ScheduleAgentTask") => {
            let header =
                v1::ScheduleAgentTaskHeader { agent_execution_id: run, task_kind: "work".into(), ..Default::default() };
            let chunks = [
                v1::schedule_agent_task_chunk::Chunk::Header(header),
                v1::schedule_agent_task_chunk::Chunk::InputChunk("1".into()),
            ];
            chunks.into_iter().flat_map(|chunk| one(v1::ScheduleAgentTaskChunk { chunk: Some(chunk) })).collect()
        }
        ("AgentDispatch", "GetAgentTaskResult") => {
            one(v1::GetAgentTaskResultRequest { agent_execution_id: run, task_execution_id: task })
        }
        ("AgentDispatch", "GetAgentTaskResults") => {
            one(v1::GetAgentTaskResultsRequest { agent_execution_id: run, task_execution_ids: vec![task] })
        }
        ("AgentDispatch", "GetAgentTaskCount") => one(v1::GetAgentTaskCountRequest { agent_execution_id: run }),
        ("AgentDispatch", "CancelAgentTask") => {
            one(v1::CancelAgentTaskRequest { agent_execution_id: run, task_execution_id: task, reason: None })
        }
        ("AgentDispatch", "CompleteAgent") => {
            one(v1::CompleteAgentRequest { agent_execution_id: run, output: "1".into() })
        }
        ("AgentDispatch", "FailAgent") => {
            one(v1::FailAgentRequest { agent_execution_id: run, error: "no".into(), ..Default::default() })
        }
        ("AgentDispatch", "SuspendAgent") => {
            let on = v1::suspend_agent_request::WaitCondition::WaitForSignal("never".into());
            one(v1::SuspendAgentRequest { agent_execution_id: run, reason: None, wait_condition: Some(on) })
        }
        ("AgentDispatch", "ResumeAgent") => one(v1::ResumeAgentRequest {
            agent_execution_id: world.child.to_string(),
            worker_id: WorkerId::fresh().to_string(),
        }),
        ("AgentDispatch", "SignalAgent") => {
            one(v1::SignalAgentRequest { agent_execution_id: run, signal_name: "go".into(), signal_value: "1".into() })
        }
        ("AgentDispatch", "ConsumeSignals") => one(v1::ConsumeSignalsRequest {
            agent_execution_id: run,
            signal_name: Some("said".into()),
            signal_pattern: None,
        }),
        ("AgentDispatch", "HasSignal") => {
            one(v1::HasSignalRequest { agent_execution_id: run, signal_name: "said".into() })
        }
        ("AgentDispatch", "StreamAgentData") => one(v1::StreamAgentDataRequest {
            agent_execution_id: run,
            event_type: v1::AgentStreamEventType::AgentToken.into(),
            payload: "{\"text\":\"a word\"}".into(),
            ..Default::default()
        }),
        ("AgentDispatch", "SpawnChildAgent") => one(v1::SpawnChildAgentRequest {
            org_id: org,
            parent_execution_id: run,
            agent_kind: "agent".into(),
            input: "1".into(),
            mode: "REMOTE".into(),
            ..Default::default()
        }),
        ("AgentDispatch", "SendParentSignal") => one(v1::SendParentSignalRequest {
            org_id: org,
            child_execution_id: world.child.to_string(),
            signal_name: "go".into(),
            payload: "1".into(),
        }),
        ("AgentDispatch", "SendChildSignal") => one(v1::SendChildSignalRequest {
            org_id: org,
            parent_execution_id: run,
            child_execution_id: world.child.to_string(),
            signal_name: "go".into(),
            payload: "1".into(),
        }),
        ("AgentDispatch", "PollChildEvents") => one(v1::PollChildEventsRequest {
            org_id: org,
            parent_execution_id: run,
            child_execution_ids: vec![world.child.to_string()],
        }),
        ("WorkerLifecycle", "RegisterWorker") => one(v1::WorkerRegistrationRequest {
            worker_name: format!("worker-{}", world.lease.worker),
            worker_type: "UNIFIED".into(),
            org_id: org,
            ..Default::default()
        }),
        ("WorkerLifecycle", "SendHeartbeat") => {
            one(v1::WorkerHeartbeatRequest { worker_id: world.lease.worker.to_string(), ..Default::default() })
        }
        ("TaskExecution", "PollTask") => one(v1::PollTaskRequest {
            worker_id: WorkerId::fresh().to_string(),
            org_id: org,
            queue: QUEUE.into(),
            ..Default::default()
        }),
        ("TaskExecution", "CompleteTask") => {
            one(v1::CompleteTaskRequest { task_execution_id: task, output: "1".into() })
        }
        ("TaskExecution", "FailTask") => one(v1::FailTaskRequest { task_execution_id: task, error: "no".into() }),
        ("TaskExecution", "ReportProgress") => {
            one(v1::ReportProgressRequest { task_execution_id: task, progress: 0.5, details: "half".into() })
        }
        ("TaskExecution", "LogMessage") => {
            one(v1::LogMessageRequest { task_execution_id: task, level: "INFO".into(), message: "a line".into() })
        }
        ("TaskExecution", "StreamTaskData") => one(v1::StreamTaskDataRequest {
            task_execution_id: task,
            r#type: v1::StreamEventType::Token.into(),
            payload: "{\"type\":\"token\",\"text\":\"a word\"}".into(),
            ..Default::default()
        }),
        ("TaskExecution", "Heartbeat") => one(v1::HeartbeatRequest { task_execution_id: task }),
        ("TaskExecution", "CancelTask") => one(v1::CancelTaskRequest { task_execution_id: task }),
        _ => panic!("{service}/{method} has no request here; write one that is in order"),
    }
}

/// Messages as their bytes.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length).to_vec()))
    }
}

/// How a call ends, or whether it goes on.
async fn call(
    channel: &Channel,
    path: &str,
    token: Option<&str>,
    org: Option<OrgId>,
    messages: Vec<Vec<u8>>,
) -> (Code, String) {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = Request::new(stream::iter(messages));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    if let Some(org) = org {
        request.metadata_mut().insert(ORG_HEADER, org.to_string().parse().unwrap());
    }
    let to: PathAndQuery = path.parse().unwrap();
    let answer = async {
        let mut answer = client.streaming(request, to, Bytes).await?.into_inner();
        // These go on: nothing may come of the one for long, and the other has begun with what there is.
        let goes_on = path.ends_with("/Hints") || path.ends_with("/Watch") && answer.message().await?.is_some();
        while !goes_on && answer.message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    match tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{path} does not answer")) {
        Ok(()) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

fn methods() -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for (package, text) in [
        ("flovyn.v1", include_str!("../../../proto/flovyn/v1/agent.proto")),
        ("flovyn.v1", include_str!("../../../proto/flovyn/v1/flovyn.proto")),
        ("flovyn.v2", include_str!("../../../proto/flovyn/v2/agents.proto")),
        ("flovyn.v2", include_str!("../../../proto/flovyn/v2/machines.proto")),
        ("flovyn.v2", include_str!("../../../proto/flovyn/v2/worker.proto")),
    ] {
        let mut service = "";
        for line in text.lines().map(str::trim) {
            service = line.strip_prefix("service ").and_then(|rest| rest.split(' ').next()).unwrap_or(service);
            let Some(method) = line.strip_prefix("rpc ").and_then(|rest| rest.split('(').next()) else { continue };
            // These are for callers that have no token yet.
            if ["RequestPairing", "CollectPairing"].contains(&method) {
                continue;
            }
            all.push((service.to_owned(), method.to_owned(), format!("/{package}.{service}/{method}")));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_refuses_whom_it_must() {
    let matrix = Matrix::open().await;
    let channel = Channel::from_shared(matrix.house.serving.url()).unwrap().connect().await.unwrap();
    let other = World::new(&**matrix.storage(), matrix.other).await;
    let before = other.told(&**matrix.storage()).await;
    let (mut cells, mut wrong) = (0, Vec::new());
    for (service, method, path) in methods() {
        let mut check = |who: &str, told: (Code, String), wanted: Code| {
            cells += 1;
            if told.0 != wanted {
                wrong.push(format!("{who}: {path} gives {:?} and not {wanted:?}: {}", told.0, told.1));
            }
        };
        let mut world = World::new(&**matrix.storage(), matrix.own).await;
        for role in ROLES {
            let (token, allowed) = (Some(&matrix.keys[role][..]), may_call(role, &service, &method));
            let own = call(&channel, &path, token, None, request(&service, &method, &world)).await;
            check(role, own, if allowed { well(&method) } else { Code::PermissionDenied });
            if allowed {
                world = World::new(&**matrix.storage(), matrix.own).await;
            }
            // The other org by the header, with the ids of either; and its things alone.
            for of in [&world, &other] {
                let named = call(&channel, &path, token, Some(matrix.other), request(&service, &method, of)).await;
                check(&format!("{role} as the other org"), named, Code::PermissionDenied);
            }
            let things = call(&channel, &path, token, None, request(&service, &method, &other)).await;
            // What is not there is of no queue.
            let allowed = allowed || role == "worker:gpu" && may_call("worker", &service, &method);
            let of_queues = ["Register", "PollAgents", "PollTasks", "Publish", "AnnounceMachine"];
            let names_queue = role == "worker:gpu" && of_queues.contains(&&method[..]);
            let wanted = if allowed && !names_queue { foreign(&service, &method) } else { Code::PermissionDenied };
            check(&format!("{role} about the other org"), things, wanted);
        }
        for (name, foreign) in matrix.foreign_tokens() {
            let told = call(&channel, &path, Some(&foreign), None, request(&service, &method, &world)).await;
            check(name, told, Code::Unauthenticated);
        }
        let nobody = call(&channel, &path, None, None, request(&service, &method, &world)).await;
        check("nobody", nobody, Code::Unauthenticated);
    }
    assert!(wrong.is_empty(), "{} of {cells} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let after = other.told(&**matrix.storage()).await;
    assert_eq!(after, before, "nothing of the other org has changed");
    println!("{cells} cells");
}
