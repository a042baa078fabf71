//! Limits of what comes from outside, the same on every backend. A name that an index cannot hold would make a commit
//! fail that others share, so it is refused before anything is written.

use super::unfenced::Serves;
use super::{ClaimRequest, Heartbeat, WorkerInfo};
use crate::error::{Code, Error, Result};
use crate::model::{
    Batch, ForkRequest, LabelKey, MessageBody, NewExecution, NewOp, NewSignal, OpBody, ScheduleSpec, check_concurrency,
    check_id, check_kind, check_name, check_signal, check_text,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest lease. For so long others cannot take the work of a worker that died without a sign.
const MAX_LEASE: Duration = Duration::from_secs(3_600);
/// The most bytes of all names and values of a run's metadata together.
pub const MAX_METADATA: usize = 16 * 1024;
/// The most kinds or queues that one worker serves.
const MAX_SERVED: usize = 1_000;

impl NewExecution {
    /// Errors: `InvalidArgument` for a name, a key or metadata that no backend takes.
    pub(crate) fn check(&self) -> Result<()> {
        check_kind("the agent's kind", &self.kind)?;
        check_name("the queue", &self.queue)?;
        self.key.as_deref().map_or(Ok(()), check_id)?;
        optional("the concurrency key", self.concurrency_key.as_deref())?;
        optional("the trace parent", self.traceparent.as_deref())?;
        optional("the budget", self.limits.budget.as_deref())?;
        check_concurrency(self.concurrency_key.as_deref(), self.concurrency_limit)?;
        check_metadata(&self.metadata)
    }
}

impl NewSignal {
    /// Errors: `InvalidArgument` for a name or a key that no backend takes, and for a name of the engine's own signals.
    pub(crate) fn check(&self) -> Result<()> {
        check_signal(&self.name)?;
        optional("the idempotency key", self.idempotency_key.as_deref())
    }
}

impl ForkRequest {
    /// Errors: `InvalidArgument` for a key that no backend takes.
    pub(crate) fn check(&self) -> Result<()> {
        self.key.as_deref().map_or(Ok(()), check_id)
    }
}

impl ScheduleSpec {
    /// Errors: `InvalidArgument` for a name, a key or metadata that no backend takes.
    pub(crate) fn check(&self) -> Result<()> {
        check_kind("the agent's kind", &self.kind)?;
        check_name("the queue", &self.queue)?;
        optional("the time zone", self.timezone.as_deref())?;
        optional("the concurrency key", self.concurrency_key.as_deref())?;
        check_concurrency(self.concurrency_key.as_deref(), self.concurrency_limit)?;
        check_metadata(&self.metadata)
    }
}

impl Batch {
    /// Errors: `LimitReached` if it holds more than one commit may; `InvalidArgument` for a name that no backend takes.
    /// The engine refuses such names at the call already, but a batch can come from another program.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_size()?;
        optional("the code", self.code.as_deref())?;
        self.ops.iter().try_for_each(check_op)
    }
}

impl WorkerInfo {
    /// Errors: `InvalidArgument` for a name that no backend takes, and for too many queues.
    pub(crate) fn check(&self) -> Result<()> {
        check_name("the worker's name", &self.name)?;
        check_list("queue", &self.queues)
    }
}

impl Serves {
    /// Errors: `InvalidArgument` for a name that no backend takes, and for too many of them.
    pub(crate) fn check(&self) -> Result<()> {
        check_list("agent", &self.agents)?;
        check_list("task", &self.tasks)
    }
}

impl ClaimRequest {
    /// Errors: `InvalidArgument` for a name that no backend takes, too many kinds, and a lease that is too long.
    pub(crate) fn check(&self) -> Result<()> {
        check_name("the queue", &self.queue)?;
        check_list("kind", &self.kinds)?;
        check_lease(self.ttl)
    }
}

impl Heartbeat {
    /// Errors: `InvalidArgument` for a lease that is too long.
    pub(crate) fn check(&self) -> Result<()> {
        check_lease(self.ttl)
    }
}

fn check_op(op: &NewOp) -> Result<()> {
    check_name("the op's name", &op.label.name)?;
    if let LabelKey::Key(key) = &op.label.key {
        check_name("the key", key)?;
    }
    if let Some(once) = &op.once {
        check_name("the name of a once", &once.name)?;
    }
    match &op.body {
        OpBody::Entry(entry) => {
            check_name("the role", entry.role.as_str())?;
            check_name("the entry's type", &entry.entry_type)?;
            check_name("the thread", &entry.thread)?;
            optional("the turn's id", entry.turn_id.as_deref())?;
            entry.metadata.as_deref().map_or(Ok(()), |metadata| check_text("the metadata", metadata))
        }
        OpBody::Task(task) => {
            check_name("the task's kind", &task.kind)?;
            check_name("the queue", &task.queue)
        }
        OpBody::Child(child) => child.check(),
        OpBody::Send(message) => match &message.body {
            MessageBody::ToChild { name, .. } => check_signal(name),
            body => check_name("the signal", body.name()),
        },
        OpBody::Usage { model, .. } => check_name("the model", model),
        _ => Ok(()),
    }
}

fn optional(what: &str, name: Option<&str>) -> Result<()> {
    name.map_or(Ok(()), |name| check_name(what, name))
}

fn check_list(what: &str, names: &[String]) -> Result<()> {
    if names.len() > MAX_SERVED {
        let message = format!("a worker names {} {what}s and may name {MAX_SERVED}: start several", names.len());
        return Err(Error::new(Code::InvalidArgument, message).with("limit", MAX_SERVED));
    }
    names.iter().try_for_each(|name| check_name(what, name))
}

fn check_lease(ttl: Duration) -> Result<()> {
    if ttl > MAX_LEASE {
        let message = format!("a lease of {ttl:?} was asked for; ask for at most {MAX_LEASE:?} and renew it");
        return Err(Error::new(Code::InvalidArgument, message));
    }
    Ok(())
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<()> {
    let mut size = 0;
    for (name, value) in metadata {
        check_name("the name of metadata", name)?;
        check_text("the metadata", value)?;
        size += name.len() + value.len();
    }
    if size > MAX_METADATA {
        let message =
            format!("metadata has {size} bytes and may have {MAX_METADATA}; put what is large into the input");
        return Err(Error::new(Code::InvalidArgument, message).with("limit", MAX_METADATA));
    }
    Ok(())
}
