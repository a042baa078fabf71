//! The handle of a run, with which a caller watches and steers it.

use super::family::FamilyWatching;
use super::following::Following;
use super::tree::Tree;
use super::watch::Watching;
use crate::context::error_of;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OpId, OrgId, SignalId};
use crate::model::{
    CancelMode, Cancellation, Checkpoint, Delivery, Divergence, Entry, EventId, EventKind, Execution, Failure,
    ForkFrom, ForkRequest, NewSignal, Page, PageRequest, Resolution, ResumeRequest, RollUp, SignalStored, Status, Task,
    TaskStatus, Wait, WaitReason, machine_of,
};
use crate::payload::Payload;
use crate::storage::Storage;
use crate::storage::stored::fetch;
use crate::streaming::Chunks;
use crate::view::RunMachine;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It returned this.
    Completed(Payload),
    /// It failed.
    Failed(Failure),
    /// It was cancelled, with the output that its code left.
    Cancelled(Option<Payload>),
}

/// Where a run stands that goes on no further by itself.
#[derive(Debug, Clone)]
pub enum Halted {
    /// It has ended.
    Ended(Outcome),
    /// It, or whoever has its work, waits for a signal or a decision, or is paused.
    Waits(Box<Execution>),
}

/// The conversation of a run at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The entries of the main branch, contents in memory.
    pub entries: Vec<Entry>,
    /// The position of the last event of the run that the entries contain. A [`stream`](Handle::stream) after it goes on
    /// exactly there: nothing comes twice, and nothing is left out.
    pub position: EventId,
}

/// The handle of a run. Clones are handles of the same run.
///
/// ```
/// use flovyn_core::prelude::*;
///
/// #[agent]
/// async fn asking(ctx: Context) -> Result<u32> {
///     ctx.wait_for_signal("number")?.await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let flovyn = FlovynClient::builder().url("memory:").agent(Asking).build().await?;
/// # flovyn.worker().await?;
/// let handle = flovyn.start(&Asking, &(), StartOptions::default()).await?;
/// match handle.halted().await? {
///     Halted::Waits(run) => assert_eq!(run.wait.map(|wait| wait.signals), Some(vec!["number".to_owned()])),
///     Halted::Ended(outcome) => panic!("nobody has sent a number, and yet it ended: {outcome:?}"),
/// }
/// handle.send("number", &7).await?;
/// assert_eq!(handle.result_as::<u32>(Some(Duration::from_secs(10))).await?, 7);
/// # flovyn.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Handle {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    id: ExecutionId,
    key: Option<String>,
}

impl Handle {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        chunks: Chunks,
        org: OrgId,
        id: ExecutionId,
        key: Option<String>,
    ) -> Self {
        Self { storage, chunks, org, id, key }
    }

    /// The run's id.
    pub fn id(&self) -> ExecutionId {
        self.id
    }

    /// The org of the run.
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// The user's own name for it.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Everything about the run.
    pub async fn describe(&self) -> Result<Execution> {
        self.storage.execution(self.org, self.id).await
    }

    /// The machine that a run is for, as far as the backend knows it; none for a run of any other queue.
    #[doc(hidden)]
    pub async fn machine(&self, run: &Execution) -> Result<Option<RunMachine>> {
        if machine_of(&run.new.queue).is_none() {
            return Ok(None);
        }
        let machines = self.storage.machines(self.org).await?;
        Ok(RunMachine::of(&run.new.queue, &machines, self.storage.clock().now()))
    }

    /// What the run has used together with all runs below it, and how many these are: one query, whatever their number.
    pub async fn roll_up(&self) -> Result<RollUp> {
        self.storage.roll_ups(self.org, &[self.id]).await?.pop().ok_or_else(|| gone(self.id))
    }

    /// The run and those below it, each with what it and all below it have used: at most `limit` of those below, whole
    /// generations first.
    pub async fn tree(&self, limit: usize) -> Result<Tree> {
        Tree::below(&*self.storage, self.org, self.describe().await?, limit).await
    }

    /// The kinds and queues of the run's own work, its agent and its tasks, that waits although no live worker serves
    /// it. Of a run that has handed off it is the work of whoever has it.
    pub async fn unserved(&self) -> Result<Vec<(String, String)>> {
        let missing = self.storage.unserved(self.org).await?.into_iter().map(|(kind, queue, _)| (kind, queue));
        let missing: BTreeSet<_> = missing.collect();
        let mut waiting = BTreeSet::new();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let run = self.holder(self.describe().await?).await?;
        let id = run.new.id;
        if run.status == Status::Pending {
            waiting.insert((run.new.kind, run.new.queue));
        }
        let mut page = PageRequest { limit: 1_000, after: None };
        loop {
            let tasks = self.storage.tasks(self.org, id, page).await?;
            let pending = tasks.items.into_iter().filter(|task| task.status == TaskStatus::Pending);
            waiting.extend(pending.map(|task| (task.new.kind, task.new.queue)));
            match tasks.next {
                Some(next) => page = PageRequest { limit: 1_000, after: Some(next) },
                None => return Ok(missing.intersection(&waiting).cloned().collect()),
            }
        }
    }

    /// Where it is in its life.
    pub async fn status(&self) -> Result<Status> {
        Ok(self.describe().await?.status)
    }

    /// Waits for the end. When `timeout` has passed, it fails with `Timeout`, or with `InDoubt` if the run waits for a
    /// decision about a task.
    pub async fn outcome(&self, timeout: Option<Duration>) -> Result<Outcome> {
        let wait = async {
            let mut watch = self.storage.hints().watch(self.org, self.id);
            loop {
                let execution = self.describe().await?;
                if let Some(outcome) = self.ended(&execution).await? {
                    return Ok(outcome);
                }
                watch.ended().await;
            }
        };
        let Some(limit) = timeout else { return wait.await };
        match tokio::time::timeout(limit, wait).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.late(limit).await),
        }
    }

    /// The error for a caller that has waited for the end for `limit`. It says what the run waits for, as far as that
    /// is known.
    pub async fn late(&self, limit: Duration) -> Error {
        let held = async { self.holder(self.describe().await?).await };
        held.await.map_or_else(|error| error, |execution| self.still_open(&execution, limit))
    }

    /// The run that has the work of a run now: itself, or the last one of its handoffs.
    async fn holder(&self, mut run: Execution) -> Result<Execution> {
        while let Some(next) = run.handed_to {
            run = match self.storage.execution(self.org, next).await {
                Err(gone) if gone.code() == Code::ExecutionNotFound => return Ok(run),
                found => found?,
            };
        }
        Ok(run)
    }

    /// Waits until the run ends or cannot go on by itself.
    pub async fn halted(&self) -> Result<Halted> {
        Ok(match self.outcome_or_wait().await? {
            Ok(outcome) => Halted::Ended(outcome),
            Err(execution) => Halted::Waits(execution),
        })
    }

    /// As [`halted`](Self::halted): the inner error is the run that waits.
    pub async fn outcome_or_wait(&self) -> Result<Result<Outcome, Box<Execution>>> {
        let watch = |run| self.storage.hints().watch(self.org, run);
        let (mut own, mut held) = (watch(self.id), (self.id, watch(self.id)));
        loop {
            let execution = self.describe().await?;
            if let Some(outcome) = self.ended(&execution).await? {
                return Ok(Ok(outcome));
            }
            let mut execution = self.holder(execution).await?;
            if execution.new.id != held.0 {
                held = (execution.new.id, watch(execution.new.id));
                execution = self.storage.execution(self.org, held.0).await?;
            }
            let reason = execution.wait.as_ref().and_then(|wait| wait.reason);
            let stuck = match execution.status {
                Status::Paused => true,
                // What comes of a child lets it go on, whatever else it waits for.
                Status::Waiting if execution.wait.as_ref().is_some_and(Wait::is_for_child) => false,
                Status::Waiting => matches!(reason, Some(WaitReason::Signal | WaitReason::InDoubt)),
                _ => false,
            };
            if stuck {
                return Ok(Err(Box::new(execution)));
            }
            tokio::select! {
                () = own.changed() => {}
                () = held.1.changed() => {}
            }
        }
    }

    /// As [`result`](Self::result), read as a `T`.
    pub async fn result_as<T: DeserializeOwned>(&self, timeout: Option<Duration>) -> Result<T> {
        self.result(timeout).await?.parse()
    }

    /// As [`outcome`](Self::outcome), but a run without a result is an error: `AgentFailed`, with the type of the error that
    /// left the agent as [`Error::error_type`], or `AgentCancelled`.
    pub async fn result(&self, timeout: Option<Duration>) -> Result<Payload> {
        match self.outcome(timeout).await? {
            Outcome::Completed(output) => Ok(output),
            Outcome::Failed(failure) => Err(Error::new(
                Code::AgentFailed,
                format!("run {} failed: {}: {}", self.name(), failure.error_type, failure.message),
            )
            .with("error_type", &failure.error_type)
            .caused_by(error_of(&failure))),
            Outcome::Cancelled(_) => {
                Err(Error::new(Code::AgentCancelled, format!("run {} was cancelled", self.name())))
            }
        }
    }

    fn name(&self) -> String {
        self.key.clone().unwrap_or_else(|| self.id.to_string())
    }

    async fn ended(&self, execution: &Execution) -> Result<Option<Outcome>> {
        Ok(Some(match execution.status {
            Status::Completed => {
                Outcome::Completed(self.load(execution.output.clone().unwrap_or_else(Payload::null)).await?)
            }
            Status::Failed => Outcome::Failed(execution.failure.clone().unwrap_or_else(|| {
                Failure::new(Code::AgentFailed, "unknown", "the run failed without a recorded error")
            })),
            Status::Cancelled => Outcome::Cancelled(match execution.output.clone() {
                Some(output) => Some(self.load(output).await?),
                None => None,
            }),
            _ => return Ok(None),
        }))
    }

    async fn load(&self, payload: Payload) -> Result<Payload> {
        fetch(&self.storage, self.org, &payload).await
    }

    fn still_open(&self, execution: &Execution, limit: Duration) -> Error {
        let reason = execution.wait.as_ref().and_then(|wait| wait.reason);
        let (code, why) = match reason {
            Some(WaitReason::InDoubt) => {
                (Code::InDoubt, "a task may or may not have taken effect; answer with resolve()".to_owned())
            }
            Some(WaitReason::Signal) if execution.wait.as_ref().is_some_and(Wait::is_for_parent) => {
                (Code::Timeout, "it waits for an answer of its parent".to_owned())
            }
            Some(WaitReason::Signal) => {
                let names = execution.wait.as_ref().map(|wait| wait.from_outside().join(", ")).unwrap_or_default();
                (Code::Timeout, format!("it waits for a signal ({names})"))
            }
            Some(reason) => {
                let why =
                    execution.failure.as_ref().map(|failure| format!("{}: {}", failure.error_type, failure.message));
                let why = why.unwrap_or_else(|| format!("{reason:?}"));
                (Code::Timeout, format!("its status is {} ({why})", execution.status))
            }
            None => (Code::Timeout, format!("its status is {}", execution.status)),
        };
        let told = format!("run {} has not ended within {limit:?}: {why}", self.name());
        match self.storage.hints().outage().now() {
            Some(refusal) => Error::new(code, format!("{told}; {refusal}")),
            None => Error::new(code, told),
        }
    }

    /// Events of the run from the start, or after a position, until the terminal one.
    pub fn stream(&self, after: Option<EventId>) -> Watching {
        Watching::new(self.storage.clone(), self.chunks.clone(), self.org, self.id, after.unwrap_or_default())
    }

    /// As [`stream`](Self::stream), with the events of whoever has the work of this run once it has handed off: those of the
    /// successor come behind the event of the handoff, and the end of this run is the last event.
    pub fn follow(&self, after: Option<&str>) -> Following {
        let after = after.unwrap_or_default();
        Following::new(self.storage.clone(), self.chunks.clone(), self.org, self.id, after)
    }

    /// As [`stream`](Self::stream), with the events of all runs below it, those that are born meanwhile included. It goes on
    /// after the cursor of one of its events, and ends when the run has ended and all is told of those below that have.
    pub fn stream_family(&self, after: Option<&str>) -> FamilyWatching {
        FamilyWatching::new(self.storage.clone(), self.chunks.clone(), self.org, self.id, after.unwrap_or_default())
    }

    /// Sends a signal with a serialisable value, to be seen by the run's next step. It is durable when this returns. See
    /// [`signal`](Self::signal) for one that may be sent again without being there twice.
    pub async fn send<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<SignalStored> {
        self.signal(name, Payload::of(value)?, Delivery::default(), None).await
    }

    /// Sends a signal. It is durable when this returns. A repeated idempotency key gets the answer of the first send.
    pub async fn signal(
        &self,
        name: &str,
        payload: Payload,
        delivery: Delivery,
        idempotency_key: Option<String>,
    ) -> Result<SignalStored> {
        payload.check_size(self.storage.max_payload())?;
        let signal = NewSignal {
            org: self.org,
            execution: self.id,
            id: SignalId::fresh(),
            name: name.to_owned(),
            payload,
            delivery,
            idempotency_key,
        };
        signal.check()?;
        self.storage.store_signal(signal).await
    }

    /// Asks the run to stop. The request is durable when this returns.
    pub async fn cancel(&self, mode: CancelMode, grace: Duration) -> Result<Execution> {
        self.storage.request_cancel(self.org, self.id, Cancellation { mode, grace }).await
    }

    /// Removes a run that has ended, with everything that belongs to it. Its id is free again.
    ///
    /// Errors: `InvalidTransition` while it goes on, while a fork reads its history, or while a detached task of it runs.
    pub async fn delete(&self) -> Result<()> {
        self.storage.remove_execution(self.org, self.id).await
    }

    /// Continues a paused run.
    pub async fn resume(&self, request: ResumeRequest) -> Result<Execution> {
        self.storage.resume(self.org, self.id, request).await
    }

    /// Goes on with a run that has failed or is paused, from its last commit, under its own id and with its signals. A
    /// failed step is tried again, unless the code has already gone on after its error. Steps that are done stay done.
    pub async fn retry(&self, request: ResumeRequest) -> Result<Execution> {
        self.storage.resume(self.org, self.id, ResumeRequest { retry: true, ..request }).await
    }

    /// Starts a new run that shares this run's conversation up to a point.
    pub async fn fork(
        &self,
        from: ForkFrom,
        id: Option<&str>,
        state: Option<Payload>,
        input: Option<Payload>,
    ) -> Result<Handle> {
        let (fork, key) = match id {
            Some(id) => (ExecutionId::of_key(self.org, id), uuid::Uuid::parse_str(id).is_err().then(|| id.to_owned())),
            None => (ExecutionId::fresh(), None),
        };
        let request = ForkRequest { org: self.org, execution: self.id, id: fork, key, from, state, input };
        let execution = self.storage.fork(request).await?;
        Ok(Self { id: execution.new.id, key: execution.new.key, ..self.clone() })
    }

    /// Decides about a task that is in doubt or quarantined.
    pub async fn resolve(&self, op: OpId, resolution: Resolution) -> Result<Task> {
        self.storage.resolve_task(self.org, op, resolution).await
    }

    /// Decides about a divergence. With `Fork` it returns the handle of the fork, otherwise that of this run.
    pub async fn resolve_divergence(&self, decision: Divergence) -> Result<Handle> {
        let execution = self.storage.resolve_divergence(self.org, self.id, decision).await?;
        Ok(Self { id: execution.new.id, key: execution.new.key, ..self.clone() })
    }

    /// The entries of the main branch, contents in memory. Of a run that has handed off, those of whoever has its work
    /// follow, over any number of handoffs.
    pub async fn messages(&self) -> Result<Vec<Entry>> {
        let mut run = self.describe().await?;
        run.check_kept()?;
        let mut entries = self.branch(&run).await?;
        while let Some(next) = run.handed_to {
            run = match self.storage.execution(self.org, next).await {
                Err(gone) if gone.code() == Code::ExecutionNotFound => break,
                found => found?,
            };
            let goes_on = run.first_leaf().is_some_and(|first| entries.iter().any(|entry| entry.new.id == first));
            let more = self.branch(&run).await?;
            if goes_on {
                entries = more;
            } else {
                entries.extend(more);
            }
        }
        Ok(entries)
    }

    async fn branch(&self, run: &Execution) -> Result<Vec<Entry>> {
        let Some(leaf) = run.leaf else { return Ok(Vec::new()) };
        let mut entries = self.storage.branch(self.org, leaf, None).await?;
        for entry in &mut entries {
            entry.new.content = self.load(entry.new.content.clone()).await?;
        }
        Ok(entries)
    }

    /// The entries of the main branch, and the position after them. What the run appends meanwhile comes with the
    /// stream.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let standing = self.storage.standings(self.org, &[self.id]).await?;
        let high = standing.iter().find(|one| one.execution == self.id).map_or(0, |one| one.high);
        let mut entries = self.messages().await?;
        let mut at = high;
        loop {
            let events = self.storage.events(self.org, self.id, at, 1_000).await?;
            let Some(last) = events.last() else { break };
            at = last.number;
            for event in events.iter().filter(|event| event.kind == EventKind::Entry) {
                let later = event.data["entry"].as_str();
                let begins = entries.iter().position(|entry| later == Some(&*entry.new.id.to_string()));
                entries.truncate(begins.unwrap_or(entries.len()));
            }
        }
        Ok(Snapshot { entries, position: EventId { number: high } })
    }

    /// The argument that the run was started with, in memory.
    pub async fn input(&self) -> Result<Payload> {
        self.load(self.describe().await?.new.input).await
    }

    /// The output of the run, also the one that a cancelled run has left; none before its end.
    pub async fn output(&self) -> Result<Option<Payload>> {
        match self.describe().await?.output {
            Some(output) => self.load(output).await.map(Some),
            None => Ok(None),
        }
    }

    /// The state of the checkpoint with this sequence, or of the last one. None if there is no such checkpoint.
    pub async fn state(&self, sequence: Option<u32>) -> Result<Option<Payload>> {
        let mut found = None;
        let mut page = PageRequest { limit: 1_000, after: None };
        loop {
            let checkpoints = self.checkpoints(page).await?;
            let wanted = |one: &Checkpoint| sequence.is_none_or(|sequence| one.sequence == sequence);
            found = checkpoints.items.into_iter().rfind(wanted).or(found);
            match checkpoints.next {
                Some(next) => page = PageRequest { limit: 1_000, after: Some(next) },
                None => break,
            }
        }
        match found {
            Some(checkpoint) => self.load(checkpoint.saved.state).await.map(Some),
            None => Ok(None),
        }
    }

    /// All entries of the run, on all branches, with their contents in memory.
    pub async fn entries(&self, page: PageRequest) -> Result<Page<Entry>> {
        let mut page = self.kept(self.storage.entries(self.org, self.id, page).await?).await?;
        for entry in &mut page.items {
            entry.new.content = self.load(entry.new.content.clone()).await?;
        }
        Ok(page)
    }

    /// Its checkpoints, oldest first.
    pub async fn checkpoints(&self, page: PageRequest) -> Result<Page<Checkpoint>> {
        self.kept(self.storage.checkpoints(self.org, self.id, page).await?).await
    }

    /// Its tasks, in order.
    pub async fn tasks(&self, page: PageRequest) -> Result<Page<Task>> {
        self.kept(self.storage.tasks(self.org, self.id, page).await?).await
    }

    /// A page of its journal. An empty one is no answer for a run that has none.
    async fn kept<T>(&self, page: Page<T>) -> Result<Page<T>> {
        if page.items.is_empty() {
            self.describe().await?.check_kept()?;
        }
        Ok(page)
    }
}

/// The error for a run that is not there any more.
pub(super) fn gone(run: ExecutionId) -> Error {
    Error::new(Code::ExecutionNotFound, format!("no run has the id {run}")).with("id", run)
}
