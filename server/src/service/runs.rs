//! What is done to runs: started, signalled, steered. Both transports call these, so that a call means the same over each. An
//! act that changes the course of a run is in the audit before it is done.

use super::Service;
use super::audit::Act;
use super::requester::Requester;
use flovyn_core::client::{Client, FamilyWatching, Following, Watching};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{ExecutionId, OpId, OrgId};
use flovyn_core::model::{
    Cancellation, Created, Divergence, EventId, Execution, ForkRequest, MAX_ID, NewExecution, NewSignal, Resolution,
    ResumeRequest, Rows, SignalStored, Task,
};

impl Service {
    /// Starts a run, or gives the one that has its id with the same kind and input; durable when it returns.
    ///
    /// Errors: `ExecutionExists` where that one has another kind or input; `NotFound` where it is for a machine that is not there;
    /// `InvalidArgument` where its values are to stay on a machine and it is for none.
    pub(crate) async fn start(&self, mut new: NewExecution) -> Result<Created> {
        new.persistence.check(Rows::Elsewhere, &new.queue)?;
        self.route(&mut new).await?;
        self.storage.create_execution(new).await
    }

    /// As [`start`](Self::start), for a request that says all that it wants of the run: one that is there already has to be like it
    /// in everything else, too.
    ///
    /// Errors: `ExecutionExists`, with the field that differs.
    pub(crate) async fn start_exactly(&self, mut new: NewExecution) -> Result<Created> {
        new.persistence.check(Rows::Elsewhere, &new.queue)?;
        self.route(&mut new).await?;
        let requested = new.clone();
        let created = self.storage.create_execution(new).await?;
        match created.existing.then(|| difference(&created.execution.new, &requested)).flatten() {
            None => Ok(created),
            Some(field) => {
                let id = created.execution.new.id;
                let named = created.execution.new.key.clone().unwrap_or_else(|| id.to_string());
                let message = format!("the id {named:?} is taken by a run with another {field}; choose another id");
                Err(Error::new(Code::ExecutionExists, message).with("id", id).with("field", field))
            }
        }
    }

    /// Stores a signal and wakes the run that waits for it; it may come before the run waits. One that decides about a call, by the
    /// names and values of the built-in agent, is recorded behind it: who comes second decides nothing, and is not recorded.
    ///
    /// Errors: `PayloadTooLarge`; `ExecutionNotFound`.
    pub(crate) async fn signal(&self, by: &Requester, signal: NewSignal) -> Result<SignalStored> {
        signal.payload.check_size(self.storage.max_payload())?;
        let decided = decision(&signal);
        let stored = self.storage.store_signal(signal).await?;
        if let Some(subject) = decided {
            self.audit(by, Act::Answer, subject).await?;
        }
        Ok(stored)
    }

    /// Asks a run to stop. One that has ended stays as it is.
    pub(crate) async fn cancel(&self, by: &Requester, run: ExecutionId, how: Cancellation) -> Result<Execution> {
        self.audit(by, Act::Cancel, run).await?;
        self.storage.request_cancel(by.org, run, how).await
    }

    /// Removes a run that has ended, with all it has.
    pub(crate) async fn remove(&self, by: &Requester, run: ExecutionId) -> Result<()> {
        self.audit(by, Act::Remove, run).await?;
        self.storage.remove_execution(by.org, run).await
    }

    /// Lets a run go on that is paused, or has failed and is to be retried.
    pub(crate) async fn resume(&self, by: &Requester, run: ExecutionId, how: ResumeRequest) -> Result<Execution> {
        self.audit(by, Act::Resume, run).await?;
        self.storage.resume(by.org, run, how).await
    }

    /// Answers for a task that may or may not have taken effect; the first answer wins.
    pub(crate) async fn resolve_task(&self, by: &Requester, op: OpId, resolution: Resolution) -> Result<Task> {
        self.audit(by, Act::Resolve, &op).await?;
        self.storage.resolve_task(by.org, op, resolution).await
    }

    /// Decides about a run whose code no longer matches; a decision to fork gives the fork.
    pub(crate) async fn decide(&self, by: &Requester, run: ExecutionId, decision: Divergence) -> Result<Execution> {
        self.audit(by, Act::Decide, run).await?;
        self.storage.resolve_divergence(by.org, run, decision).await
    }

    /// Starts a run that shares another one's history up to a point.
    pub(crate) async fn fork(&self, by: &Requester, fork: ForkRequest) -> Result<Execution> {
        self.audit(by, Act::Fork, fork.execution).await?;
        self.storage.fork(fork).await
    }

    /// Follows the events of a run after a position.
    pub(crate) fn watch(&self, org: OrgId, run: ExecutionId, after: EventId) -> Watching {
        Client::new(self.storage.clone(), self.chunks.clone(), org).watch(run, after)
    }

    /// Follows the events of a run and of whoever it hands off to.
    pub(crate) fn follow(&self, org: OrgId, run: ExecutionId, after: &str) -> Following {
        Client::new(self.storage.clone(), self.chunks.clone(), org).follow(run, after)
    }

    /// Follows the events of a run and of all below it after a cursor.
    pub(crate) fn watch_family(&self, org: OrgId, run: ExecutionId, after: &str) -> FamilyWatching {
        Client::new(self.storage.clone(), self.chunks.clone(), org).watch_family(run, after)
    }
}

/// What a signal decides: the run, the call, and how.
fn decision(signal: &NewSignal) -> Option<String> {
    let is_answer = match signal.name.as_str() {
        "approval" => false,
        "input" => true,
        _ => return None,
    };
    let value: serde_json::Value = serde_json::from_slice(signal.payload.bytes().ok()?).ok()?;
    let call: String = value["id"].as_str()?.chars().filter(|letter| !letter.is_control()).take(MAX_ID).collect();
    let how = match (is_answer, value["approved"].as_bool()) {
        (true, _) => "answered",
        (false, Some(true)) => "approved",
        (false, _) => "denied",
    };
    Some(format!("{} {call} {how}", signal.execution))
}

/// The first field in which a run is not what was asked for. A budget may have been raised since.
fn difference(run: &NewExecution, requested: &NewExecution) -> Option<&'static str> {
    let limits = (&run.limits, &requested.limits);
    let total = requested.limits.max_total_steps;
    [
        ("queue", run.queue == requested.queue),
        ("metadata", run.metadata == requested.metadata),
        ("priority", run.priority == requested.priority),
        ("concurrencyKey", run.concurrency_key == requested.concurrency_key),
        ("concurrencyLimit", run.concurrency_limit == requested.concurrency_limit),
        ("maxSteps", limits.0.max_steps == limits.1.max_steps),
        ("maxTotalSteps", total.is_none() || limits.0.max_total_steps == total),
        ("maxTail", limits.0.max_tail == limits.1.max_tail),
        ("timeoutSeconds", limits.0.timeout == limits.1.timeout),
        ("startTimeoutSeconds", limits.0.start_timeout == limits.1.start_timeout),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}
