//! Tools as durable tasks, and their recovery after a worker's death.
//!
//! The tasks of tools that only read are idempotent. All others are reconciled: after a death, the next attempt reads
//! the record of the call. If the file has the new content, the call is done. If it has the old content, it is written
//! again. If it has any other content, the model is told. A command is never run again: the model is told that its
//! outcome is unknown, and gets what it has printed.

use super::bash::interrupted;
use super::directory::{WorkingDirectory, hash};
use super::environment::Scratch;
use super::process::{Capture, end_marked};
use super::record::{CallRecord, CallRecords, Progress};
use super::seen::Lineage;
use super::{Effect, Recovery, Tool, ToolEnvironment, ToolOutcome, Toolbox};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{ChunkKind, SideEffects, TaskOptions};
use flovyn_core::sync::Mutex;
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of how many sessions the changes of files are remembered.
const MOST_SESSIONS: usize = 1_000;

/// The argument of a tool's task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallInput {
    /// The model's arguments.
    pub arguments: Value,
    /// The working directory of the session; the worker's own unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    /// The run that calls. Changes that a run has made itself do not make its other edits stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The hash of the file's content that the model has seen (`FilesSeen`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

impl ToolCallInput {
    /// A call in the worker's own working directory.
    pub fn new(arguments: Value) -> Self {
        Self { arguments, working_directory: None, session: None, seen: None }
    }
}

/// What the tools of a worker may use: its environment, the directories that sessions may name, and the records of
/// calls.
#[derive(Clone)]
pub struct ToolHost(Arc<Host>);

struct Host {
    environment: ToolEnvironment,
    roots: Vec<PathBuf>,
    records: CallRecords,
    sessions: Mutex<HashMap<String, OfSession>>,
}

/// What the calls of one session share.
#[derive(Clone, Default)]
struct OfSession {
    lineage: Lineage,
    scratch: Arc<Scratch>,
}

impl ToolHost {
    /// Serves sessions in the environment's working directory, and in directories beneath it.
    pub fn new(environment: ToolEnvironment, records: CallRecords) -> Self {
        let roots = vec![environment.directory.path().to_owned()];
        Self(Arc::new(Host { environment, roots, records, sessions: Mutex::default() }))
    }

    /// Also serves sessions in these directories, and in directories beneath them. Each of these directories has to
    /// exist.
    pub fn with_roots(self, roots: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let Host { environment, roots: known, records, .. } = &*self.0;
        let mut all = known.clone();
        for root in roots {
            all.push(WorkingDirectory::open(root)?.path().to_owned());
        }
        let (environment, records) = (environment.clone(), records.clone());
        Ok(Self(Arc::new(Host { environment, roots: all, records, sessions: Mutex::default() })))
    }

    /// The environment of a session's call, without the parts that belong to one attempt. The error is the outcome for
    /// the model if the directory is not served.
    fn environment(&self, input: &ToolCallInput) -> Result<ToolEnvironment, Box<ToolOutcome>> {
        let host = &*self.0;
        let mut environment = host.environment.clone();
        if let Some(requested) = &input.working_directory {
            let refused = |message: String| Box::new(ToolOutcome::error("working_directory", message));
            let opened = WorkingDirectory::open(host.environment.directory.path().join(requested));
            let directory =
                opened.map_err(|error| refused(format!("This session cannot work here: {}.", error.message())))?;
            if !host.roots.iter().any(|root| directory.path().starts_with(root)) {
                let roots: Vec<_> = host.roots.iter().map(|root| root.display().to_string()).collect();
                return Err(refused(format!(
                    "The worker does not serve the working directory {}, only {} and what is beneath.",
                    requested.display(),
                    roots.join(", ")
                )));
            }
            environment.directory = directory;
        }
        if let Some(session) = &input.session {
            let mut sessions = host.sessions.lock();
            if sessions.len() >= MOST_SESSIONS && !sessions.contains_key(session) {
                // If a session is forgotten, its model only has to read files again, and its commands get another `/tmp`.
                sessions.clear();
            }
            let open =
                || OfSession { lineage: Lineage::open(host.records.changes_of(session)), ..OfSession::default() };
            let OfSession { lineage, scratch } = sessions.entry(session.clone()).or_insert_with(open).clone();
            (environment.lineage, environment.scratch) = (lineage, scratch);
        }
        environment.enter_added(&input.arguments);
        environment.records = Some(host.records.clone());
        environment.seen = input.seen.clone();
        environment.knows_reads = input.session.is_some();
        Ok(environment)
    }

    fn record(&self, ctx: &TaskContext, input: &ToolCallInput) -> Result<CallRecord> {
        // Two stores may have runs with the same id. The digest of the input makes the names of their calls differ.
        let digest = Payload::of(input)?.digest()?;
        Ok(self.0.records.of(format!("{}-{digest:?}", ctx.task_id())))
    }
}

/// A tool as a durable task of the kind `tool.NAME`.
#[derive(Clone)]
pub struct ToolTask {
    kind: String,
    name: String,
    tool: Arc<dyn Tool>,
    toolbox: Toolbox,
    host: ToolHost,
}

impl ToolTask {
    /// The tasks of all tools of a toolbox.
    pub fn all(toolbox: &Toolbox, host: &ToolHost) -> Vec<Self> {
        toolbox.names().filter_map(|name| Self::new(toolbox, name, host)).collect()
    }

    /// The task of one tool; none if the toolbox has no tool of this name.
    pub fn new(toolbox: &Toolbox, name: &str, host: &ToolHost) -> Option<Self> {
        let tool = toolbox.get(name)?.clone();
        let (toolbox, host) = (toolbox.clone(), host.clone());
        Some(Self { kind: Self::kind_of(name), name: name.to_owned(), tool, toolbox, host })
    }

    /// The kind of a tool's task.
    pub fn kind_of(name: &str) -> String {
        format!("tool.{name}")
    }

    /// The options with which the task of a tool has to be scheduled, everywhere.
    pub fn options_of(tool: &dyn Tool) -> TaskOptions {
        let side_effects = match tool.recovery() {
            Recovery::Again => SideEffects::Idempotent,
            Recovery::Compare | Recovery::Report => SideEffects::Reconcile,
        };
        TaskOptions { side_effects, ..TaskOptions::default() }
    }

    async fn run(&self, ctx: &TaskContext, input: ToolCallInput) -> Result<ToolOutcome> {
        let mut environment = match self.host.environment(&input) {
            Ok(environment) => environment,
            Err(outcome) => return Ok(*outcome),
        };
        let (streams, stops) = (ctx.clone(), ctx.clone());
        environment = environment.with_stop(move || stops.is_cancelled()).with_terminal(move |event| {
            if let Ok(event) = serde_json::to_string(&event) {
                streams.stream(ChunkKind::Data, &event);
            }
        });
        if let Err(outcome) = self.toolbox.check(&self.name, &input.arguments) {
            return Ok(*outcome);
        }
        if self.tool.effect() == Effect::Read {
            return self.toolbox.call(&self.name, input.arguments, &environment).await;
        }
        let record = self.host.record(ctx, &input)?;
        record.clear()?;
        if self.tool.recovery() == Recovery::Report {
            record.note(&Progress::Started)?;
        }
        environment.record = Some(record.clone());
        let outcome = self.toolbox.call(&self.name, input.arguments, &environment).await?;
        record.note(&Progress::Ended { outcome: outcome.clone() })?;
        Ok(outcome)
    }

    fn settle(&self, record: &CallRecord, input: &ToolCallInput) -> Result<Option<ToolOutcome>> {
        let recovered = |outcome: ToolOutcome| Some(outcome.with_details(serde_json::json!({ "recovered": true })));
        match (record.load()?, self.tool.recovery()) {
            (Some(Progress::Ended { outcome }), _) => Ok(recovered(outcome)),
            (Some(Progress::Replacing { path, before, after, outcome }), _) => {
                let environment = match self.host.environment(input) {
                    Ok(environment) => environment,
                    Err(outcome) => return Ok(Some(*outcome)),
                };
                Ok(match present(&environment, &path)? {
                    found if found.as_ref() == Some(&after) => {
                        if !environment.lineage.has_made(&path, &after) {
                            environment.lineage.changed(&path, before.as_deref(), &after);
                        }
                        recovered(outcome)
                    }
                    found if found == before => None,
                    _ => recovered(changed_meanwhile(&path)),
                })
            }
            // There is no record. It would be durable before the first effect, so the call has had none and may run.
            (None, Recovery::Again | Recovery::Compare) => Ok(None),
            (Some(Progress::Started) | None, _) => {
                end_marked(record.name());
                Ok(recovered(interrupted(printed(&record.output()).as_deref())))
            }
        }
    }
}

#[async_trait]
impl TaskDefinition for ToolTask {
    type Input = ToolCallInput;
    type Output = ToolOutcome;

    fn kind(&self) -> &str {
        &self.kind
    }

    fn options(&self) -> TaskOptions {
        Self::options_of(&*self.tool)
    }

    async fn execute(&self, ctx: &TaskContext, input: ToolCallInput) -> Result<ToolOutcome> {
        self.run(ctx, input).await
    }

    async fn reconcile(&self, ctx: &TaskContext, input: ToolCallInput) -> Result<Option<ToolOutcome>> {
        let (task, record) = (self.clone(), self.host.record(ctx, &input)?);
        let settled = tokio::task::spawn_blocking(move || task.settle(&record, &input)).await;
        settled.map_err(|error| Error::new(Code::TaskFailed, format!("a tool's thread ended early: {error}")))?
    }
}

/// The hash of a file's present content; none if there is no file.
fn present(environment: &ToolEnvironment, path: &Path) -> Result<Option<String>> {
    match environment.directory.dir().read(path) {
        Ok(bytes) => Ok(Some(hash(&bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let message = format!("the file {} of an interrupted call cannot be read: {error}", path.display());
            Err(Error::new(Code::TaskFailed, message).caused_by(error))
        }
    }
}

fn changed_meanwhile(path: &Path) -> ToolOutcome {
    let message = format!(
        "Interrupted: the worker died while it changed {path:?}, and the file now has neither the content of before nor that of \
         after. Nothing was done to it again. Read it, then decide."
    );
    ToolOutcome::error("changed_meanwhile", message)
}

/// The first and the last of what a command printed before its worker died.
fn printed(output: &Path) -> Option<String> {
    let bytes = std::fs::read(output).ok()?;
    let mut capture = Capture::default();
    capture.push(&String::from_utf8_lossy(&bytes));
    Some(capture.finish().text)
}

#[cfg(test)]
mod tests;
