//! The process that is killed: the built-in agent with the host tools, on one SQLite file, through a meter.

use crate::plan::CALLS;
use crate::worker_process;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Result;
use flovyn_core::model::{FactKind, RecordedBody, Segment};
use flovyn_core::runtime::AgentBuilder;
use flovyn_core::storage::Storage;
use flovyn_core::storage::guarded::{Call, Gate, Guarded};
use flovyn_core::storage::sqlite::{SqliteOptions, SqliteStorage};
use flovyn_core::task::LocalTaskExecutor;
use flovyn_toolkit::provider::{Api, Endpoint, ModelInfo, Registry, RetryPolicy};
use flovyn_toolkit::react::{AgentInput, LlmGenerate, ReactAgent, ReactState, RunOutcome};
use flovyn_toolkit::tools::approval::ApprovalPolicy;
use flovyn_toolkit::tools::{CallRecords, Sandbox, ToolEnvironment, ToolHost, ToolTask, Toolbox};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The run.
pub(crate) const RUN: &str = "run";
/// The header that says in which life a model was asked.
pub(crate) const LIFE: &str = "x-life";
const LOADS: &str = "loads";

/// The file that the run is kept in.
pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("agents.db")
}

/// Says where the model is, and in which life it is asked.
pub(crate) fn tell(folder: &Path, url: &str, life: usize) {
    let told = serde_json::to_vec(&(url, life)).expect("JSON");
    fs::write(folder.join("model.new"), told).expect("it is written");
    fs::rename(folder.join("model.new"), folder.join("model")).expect("it is replaced");
}

#[test]
#[ignore = "the worker process that the other tests start and kill"]
fn process() {
    worker_process::serve(work);
}

async fn work(folder: &Path) -> Result<RunOutcome> {
    let (url, life): (String, usize) =
        serde_json::from_slice(&fs::read(folder.join("model")).expect("a model")).expect("JSON");
    let window = ModelInfo { id: "m".into(), context_window: Some(1_000_000), ..ModelInfo::default() };
    let mut endpoint = Endpoint::new("fake", url).models([window]);
    endpoint.headers.push((LIFE.into(), life.to_string()));
    let mut models = Registry::new();
    models.add(Api::AnthropicMessages, endpoint).expect("an address");
    // One try within an attempt: every request is an attempt of the engine's.
    let generate = LlmGenerate::new(models).with_policy(RetryPolicy::never());

    let environment = ToolEnvironment::open(folder.join("work"))?.with_sandbox(Sandbox::Off);
    let host = ToolHost::new(environment, CallRecords::open(folder.join("records"))?);
    let toolbox = Toolbox::host()?;
    let agent = ReactAgent::new().with_approvals(ApprovalPolicy::allow_all()).with_toolbox(&toolbox)?;
    let tasks = ToolTask::all(&toolbox, &host);
    let executor = LocalTaskExecutor::new().register(generate)?;
    let executor = tasks.into_iter().try_fold(executor, LocalTaskExecutor::register)?;

    let meter = Meter { life, file: folder.join(LOADS) };
    let store: Arc<dyn Storage> = Arc::new(SqliteStorage::open(database(folder), SqliteOptions::default())?);
    let store: Arc<dyn Storage> = Arc::new(Guarded::over(store, meter));
    let agents = AgentBuilder::new().storage(store).task_executor(executor).build().await?;
    let mut input = AgentInput::new("fake/m", "Do all that there is to do.");
    input.config.max_turns = CALLS as u32 + 1;
    let outcome = agents.execute_with(agent, &input, StartOptions::with_id(RUN)).await?;
    agents.close().await?;
    Ok(outcome)
}

/// What a process read to take the run up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Which process, from 0.
    pub life: usize,
    /// Answers of the model that were durable.
    pub answered: u64,
    /// Ops of the tail.
    pub ops: usize,
    /// Bytes of the checkpoint and of the tail's results.
    pub bytes: u64,
}

impl Load {
    /// All that the processes of a folder noted.
    pub(crate) fn all(folder: &Path) -> Vec<Self> {
        let noted = fs::read_to_string(folder.join(LOADS)).expect("notes");
        noted.lines().map(|line| serde_json::from_str(line).expect("a note")).collect()
    }
}

/// Notes what recovery reads.
struct Meter {
    life: usize,
    file: PathBuf,
}

impl Gate for Meter {
    async fn pass<T: Send>(&self, _call: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        body.await
    }

    fn loaded(&self, segment: &Segment) {
        let state = segment.checkpoint.as_ref().map(|checkpoint| &checkpoint.saved.state);
        let turns = state.map_or(0, |state| state.parse::<ReactState>().expect("a state").turn);
        let results = segment.facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::Task { task, result: Ok(result) } => Some((task, result)),
            _ => None,
        });
        let asks = segment.tail.iter().filter(|op| &*op.label.name == LlmGenerate::KIND);
        let asks = asks.filter_map(|op| match &op.body {
            RecordedBody::Task { id, .. } => Some(*id),
            _ => None,
        });
        let asks: Vec<_> = asks.collect();
        let answers = results.clone().filter(|(task, _)| asks.contains(task)).count() as u64;
        let bytes = results.map(|(_, result)| result.size()).sum::<u64>() + state.map_or(0, |state| state.size());
        let load = Load { life: self.life, answered: u64::from(turns) + answers, ops: segment.tail.len(), bytes };
        let mut line = serde_json::to_vec(&load).expect("JSON");
        line.push(b'\n');
        let file = File::options().create(true).append(true).open(&self.file);
        file.and_then(|mut file| file.write_all(&line)).expect("a note");
    }
}
