//! A worker of the first protocol: one channel, a bearer token and no other header, commands one by one.

use flovyn_proto::v1;
use flovyn_proto::v1::agent_dispatch_client::AgentDispatchClient;
use flovyn_proto::v1::suspend_agent_request::WaitCondition;
use flovyn_proto::v1::task_execution_client::TaskExecutionClient;
use flovyn_proto::v1::worker_lifecycle_client::WorkerLifecycleClient;
use futures::StreamExt;
use serde_json::Value;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use uuid::Uuid;

/// Adds the token to every call.
#[derive(Clone)]
pub(crate) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

type Authorized = InterceptedService<Channel, Bearer>;

/// The three services over one channel.
#[derive(Clone)]
pub(crate) struct Wire {
    pub agents: AgentDispatchClient<Authorized>,
    pub tasks: TaskExecutionClient<Authorized>,
    pub lifecycle: WorkerLifecycleClient<Authorized>,
}

impl Wire {
    pub(crate) async fn connect(url: &str, token: &str) -> Self {
        let channel = Channel::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
        let bearer = Bearer(format!("Bearer {token}").parse().unwrap());
        Self {
            agents: AgentDispatchClient::with_interceptor(channel.clone(), bearer.clone()),
            tasks: TaskExecutionClient::with_interceptor(channel.clone(), bearer.clone()),
            lifecycle: WorkerLifecycleClient::with_interceptor(channel, bearer),
        }
    }
}

/// A process that runs agents and tasks.
pub(crate) struct Worker {
    pub wire: Wire,
    /// Its own name for itself.
    pub name: String,
    /// What the server calls it.
    pub id: String,
    agents: Vec<String>,
}

impl Worker {
    pub(crate) async fn start(url: &str, token: &str, agents: &[&str], tasks: &[&str]) -> Self {
        Self::start_as(url, token, None, agents, tasks).await
    }

    /// Registers, under a name of the user's or the worker's own.
    pub(crate) async fn start_as(
        url: &str,
        token: &str,
        called: Option<&str>,
        agents: &[&str],
        tasks: &[&str],
    ) -> Self {
        let mut wire = Wire::connect(url, token).await;
        let name = format!("worker-{}", Uuid::new_v4());
        let request = v1::WorkerRegistrationRequest {
            worker_name: called.unwrap_or(&name).to_owned(),
            worker_version: "1.0.0".into(),
            worker_type: "UNIFIED".into(),
            org_id: "default".into(),
            host_name: "host".into(),
            process_id: "1".into(),
            tasks: tasks
                .iter()
                .map(|kind| v1::TaskCapability { kind: kind.to_string(), ..Default::default() })
                .collect(),
            agents: agents
                .iter()
                .map(|kind| v1::AgentCapability { kind: kind.to_string(), ..Default::default() })
                .collect(),
            ..Default::default()
        };
        let answer = wire.lifecycle.register_worker(request).await.unwrap().into_inner();
        assert!(answer.success && Uuid::parse_str(&answer.worker_id).is_ok(), "{answer:?}");
        Self { wire, name, id: answer.worker_id, agents: agents.iter().map(ToString::to_string).collect() }
    }

    pub(crate) fn poll_request(&self, seconds: i64) -> v1::PollAgentRequest {
        v1::PollAgentRequest {
            worker_id: self.id.clone(),
            org_id: "default".into(),
            queue: "default".into(),
            timeout_seconds: seconds,
            agent_capabilities: self.agents.clone(),
            worker_pool_id: None,
        }
    }

    pub(crate) async fn poll(&mut self, seconds: i64) -> Option<v1::AgentExecutionInfo> {
        let request = self.poll_request(seconds);
        self.wire.agents.poll_agent(request).await.unwrap().into_inner().agent_execution
    }

    /// Claims a run: its checkpoint and its entries, then user code may go on.
    pub(crate) async fn claim(&mut self) -> Ctx {
        let info = self.poll(10).await.expect("there is a run to claim");
        Ctx::enter(self.wire.clone(), info).await
    }

    pub(crate) async fn poll_task(&mut self, seconds: i64) -> Option<v1::TaskExecutionInfo> {
        let request = v1::PollTaskRequest {
            worker_id: self.name.clone(),
            org_id: "default".into(),
            timeout_seconds: seconds,
            queue: "default".into(),
            ..Default::default()
        };
        self.wire.tasks.poll_task(request).await.unwrap().into_inner().task
    }

    pub(crate) async fn task(&mut self) -> v1::TaskExecutionInfo {
        self.poll_task(10).await.expect("there is a task to run")
    }

    pub(crate) async fn complete(&mut self, task: &v1::TaskExecutionInfo, output: Value) -> Result<(), Status> {
        let request = v1::CompleteTaskRequest {
            task_execution_id: task.task_execution_id.clone(),
            output: output.to_string().into(),
        };
        self.wire.tasks.complete_task(request).await.map(drop)
    }

    pub(crate) async fn fail(&mut self, task: &v1::TaskExecutionInfo, error: &str) -> Result<(), Status> {
        let request =
            v1::FailTaskRequest { task_execution_id: task.task_execution_id.clone(), error: error.to_owned() };
        self.wire.tasks.fail_task(request).await.map(drop)
    }

    /// Claims a task `double` and carries it out.
    pub(crate) async fn double(&mut self) {
        let task = self.task().await;
        assert_eq!((task.kind.as_str(), task.workflow_execution_id.as_str()), ("double", ""));
        let input: Value = serde_json::from_slice(&task.input).unwrap();
        self.complete(&task, (input["n"].as_i64().unwrap() * 2).into()).await.unwrap();
    }
}

/// Why an agent's code stopped before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Suspended,
    Failed(String),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Failed(status.to_string())
    }
}

enum Command {
    Append(v1::AppendEntryRequest),
    Schedule(v1::ScheduleAgentTaskHeader, Value),
}

/// What an agent's code has: its input, its state as of the last checkpoint, its conversation, and a buffer of commands.
pub(crate) struct Ctx {
    pub wire: Wire,
    pub info: v1::AgentExecutionInfo,
    pub entries: Vec<v1::AgentEntry>,
    pub state: Value,
    pub leaf: Option<String>,
    buffer: Vec<Command>,
    streamed: i32,
}

impl Ctx {
    async fn enter(mut wire: Wire, info: v1::AgentExecutionInfo) -> Self {
        let id = info.id.clone();
        let (mut state, mut leaf) = (Value::Null, None);
        if info.current_checkpoint_seq >= 0 {
            let request = v1::GetCheckpointRequest { agent_execution_id: id.clone() };
            let answer = wire.agents.get_latest_checkpoint(request).await.unwrap().into_inner();
            let checkpoint = answer.checkpoint.expect("its number was told");
            assert_eq!(checkpoint.sequence, info.current_checkpoint_seq);
            state = serde_json::from_slice(&checkpoint.state).unwrap();
            leaf = checkpoint.leaf_entry_id;
        }
        let mut ctx = Self { wire, info, entries: Vec::new(), state, leaf, buffer: Vec::new(), streamed: 0 };
        ctx.entries = ctx.read_entries(None).await;
        ctx
    }

    pub(crate) fn id(&self) -> String {
        self.info.id.clone()
    }

    pub(crate) fn input(&self) -> Value {
        serde_json::from_slice(&self.info.input).unwrap()
    }

    pub(crate) async fn read_entries(&mut self, after: Option<String>) -> Vec<v1::AgentEntry> {
        let request = v1::GetEntriesRequest { agent_execution_id: self.id(), after_entry_id: after };
        let stream = self.wire.agents.get_entries(request).await.unwrap().into_inner();
        stream.map(|chunk| chunk.unwrap().entry.unwrap()).collect().await
    }

    /// Buffers an entry under an id of the worker's own.
    pub(crate) fn append(&mut self, role: &str, content: Value) -> String {
        let id = Uuid::new_v4().to_string();
        self.buffer.push(Command::Append(v1::AppendEntryRequest {
            agent_execution_id: self.id(),
            parent_id: self.leaf.replace(id.clone()),
            entry_type: "MESSAGE".into(),
            role: Some(role.to_owned()),
            content: content.to_string().into(),
            idempotency_key: Some(id.clone()),
            ..Default::default()
        }));
        id
    }

    /// Buffers a task under a key that follows from run, kind and input; the id that follows from the key.
    pub(crate) fn schedule(&mut self, kind: &str, input: Value) -> String {
        let header = self.header(kind, &input);
        let key = header.idempotency_key.clone().unwrap();
        self.buffer.push(Command::Schedule(header, input));
        task_id(&key)
    }

    /// What a task is scheduled with. Keys are the worker's own: a server must not look into them.
    pub(crate) fn header(&self, kind: &str, input: &Value) -> v1::ScheduleAgentTaskHeader {
        let run = Uuid::parse_str(&self.info.id).unwrap();
        let hash = blake3::hash(format!("{run}:{kind}:{input}").as_bytes()).to_hex();
        v1::ScheduleAgentTaskHeader {
            agent_execution_id: self.id(),
            task_kind: kind.to_owned(),
            idempotency_key: Some(format!("task:{}", &hash[..32])),
            ..Default::default()
        }
    }

    /// Schedules a task at once: the header, then the input in two parts.
    pub(crate) async fn send_task(
        &mut self,
        header: v1::ScheduleAgentTaskHeader,
        input: &Value,
    ) -> Result<v1::ScheduleAgentTaskResponse, Status> {
        use v1::schedule_agent_task_chunk::Chunk;
        let bytes = input.to_string().into_bytes();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let chunk = |chunk| v1::ScheduleAgentTaskChunk { chunk: Some(chunk) };
        let parts = vec![
            chunk(Chunk::Header(header)),
            chunk(Chunk::InputChunk(first.to_vec().into())),
            chunk(Chunk::InputChunk(second.to_vec().into())),
        ];
        Ok(self.wire.agents.schedule_agent_task(futures::stream::iter(parts)).await?.into_inner())
    }

    /// Sends what is buffered, one by one in the order of the code.
    pub(crate) async fn flush(&mut self) -> Result<(), Status> {
        for command in std::mem::take(&mut self.buffer) {
            match command {
                Command::Append(request) => {
                    let id = request.idempotency_key.clone().unwrap();
                    let answer = self.wire.agents.append_entry(request).await?.into_inner();
                    assert_eq!(answer.entry_id, id);
                }
                Command::Schedule(header, input) => drop(self.send_task(header, &input).await?),
            }
        }
        Ok(())
    }

    pub(crate) async fn checkpoint(&mut self) -> Result<i32, Status> {
        self.flush().await?;
        let request = v1::SubmitCheckpointRequest {
            agent_execution_id: self.id(),
            leaf_entry_id: self.leaf.clone(),
            state: self.state.to_string().into(),
            cumulative_token_usage: None,
        };
        Ok(self.wire.agents.submit_checkpoint(request).await?.into_inner().sequence)
    }

    pub(crate) async fn results(&mut self, tasks: &[String]) -> Vec<v1::TaskResultEntry> {
        let request =
            v1::GetAgentTaskResultsRequest { agent_execution_id: self.id(), task_execution_ids: tasks.to_vec() };
        self.wire.agents.get_agent_task_results(request).await.unwrap().into_inner().results
    }

    /// Waits for all of some tasks; the first that failed fails it.
    pub(crate) async fn join_all(&mut self, tasks: &[String]) -> Result<Vec<Value>, Stop> {
        self.flush().await?;
        let results = self.results(tasks).await;
        assert_eq!(results.len(), tasks.len());
        if let Some(failed) = results.iter().find(|result| ["FAILED", "CANCELLED"].contains(&&*result.status)) {
            return Err(Stop::Failed(failed.error.clone().unwrap_or_default()));
        }
        if results.iter().all(|result| result.status == "COMPLETED") {
            let output =
                |result: &v1::TaskResultEntry| serde_json::from_slice(result.output.as_ref().unwrap()).unwrap();
            return Ok(results.iter().map(output).collect());
        }
        self.suspend(on_tasks(tasks, v1::WaitMode::All)).await
    }

    pub(crate) async fn wait_for_signal(&mut self, name: &str) -> Result<Value, Stop> {
        if let Some(signal) = self.consume(Some(name), None).await.into_iter().next() {
            return Ok(serde_json::from_slice(&signal.signal_value).unwrap());
        }
        self.suspend(WaitCondition::WaitForSignal(name.to_owned())).await
    }

    pub(crate) async fn consume(&mut self, name: Option<&str>, pattern: Option<&str>) -> Vec<v1::AgentSignal> {
        let request = v1::ConsumeSignalsRequest {
            agent_execution_id: self.id(),
            signal_name: name.map(str::to_owned),
            signal_pattern: pattern.map(str::to_owned),
        };
        self.wire.agents.consume_signals(request).await.unwrap().into_inner().signals
    }

    pub(crate) async fn has_signal(&mut self, name: &str) -> bool {
        let request = v1::HasSignalRequest { agent_execution_id: self.id(), signal_name: name.to_owned() };
        self.wire.agents.has_signal(request).await.unwrap().into_inner().has_signal
    }

    /// Checkpoints and waits; the code ends here.
    pub(crate) async fn suspend<T>(&mut self, on: WaitCondition) -> Result<T, Stop> {
        self.checkpoint().await?;
        self.wait_on(on).await?;
        Err(Stop::Suspended)
    }

    pub(crate) async fn wait_on(&mut self, on: WaitCondition) -> Result<(), Status> {
        let request = v1::SuspendAgentRequest { agent_execution_id: self.id(), reason: None, wait_condition: Some(on) };
        self.wire.agents.suspend_agent(request).await.map(drop)
    }

    pub(crate) async fn cancel_task(&mut self, task: &str) -> v1::CancelAgentTaskResponse {
        let request = v1::CancelAgentTaskRequest {
            agent_execution_id: self.id(),
            task_execution_id: task.to_owned(),
            reason: None,
        };
        self.wire.agents.cancel_agent_task(request).await.unwrap().into_inner()
    }

    /// Streams one event: a stream of its own with one message.
    pub(crate) async fn stream(&mut self, kind: v1::AgentStreamEventType, payload: Value) -> Result<bool, Status> {
        let event = v1::StreamAgentDataRequest {
            agent_execution_id: self.id(),
            sequence: self.streamed,
            event_type: kind.into(),
            payload: payload.to_string(),
            timestamp_ms: 1,
        };
        self.streamed += 1;
        Ok(self.wire.agents.stream_agent_data(futures::stream::iter([event])).await?.into_inner().acknowledged)
    }

    pub(crate) async fn complete(mut self, output: Value) -> Result<(), Status> {
        self.flush().await?;
        let request = v1::CompleteAgentRequest { agent_execution_id: self.id(), output: output.to_string().into() };
        self.wire.agents.complete_agent(request).await.map(drop)
    }

    /// Ends the run as its code ended.
    pub(crate) async fn end(mut self, ended: Result<Value, Stop>) -> Result<(), Status> {
        match ended {
            Ok(output) => self.complete(output).await,
            Err(Stop::Suspended) => Ok(()),
            Err(Stop::Failed(error)) => {
                let request = v1::FailAgentRequest {
                    agent_execution_id: self.id(),
                    error,
                    stack_trace: None,
                    failure_type: None,
                };
                self.wire.agents.fail_agent(request).await.map(drop)
            }
        }
    }
}

pub(crate) fn task_id(key: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).to_string()
}

pub(crate) fn on_tasks(tasks: &[String], mode: v1::WaitMode) -> WaitCondition {
    WaitCondition::WaitForTasks(v1::WaitForTasks { task_ids: tasks.to_vec(), mode: mode.into() })
}
