//! Waits and ends of runs.
//!
//! Whether a wait is over already is decided with the change to WAITING: the last event is noted, then the rows are looked
//! at, and the commit suspends only where no fact has come after that event; else they are looked at again.

use super::held::{Held, Step, TRIES, crowded};
use super::{Adapter, Caller, convert};
use crate::grpc::told;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, TaskId};
use flovyn_core::model::{
    BatchEnd, Committed, Ends, Execution, Failure, Status as RunStatus, TaskStatus, Until, Wait, WaitReason,
    child_signal,
};
use flovyn_proto::v1;
use flovyn_proto::v1::suspend_agent_request::WaitCondition;
use std::collections::BTreeSet;
use tonic::Status;
use uuid::Uuid;

/// What a run waits for.
enum Awaited {
    Signal(String),
    Tasks(Vec<TaskId>, Until),
    Children(Vec<ExecutionId>, Until),
}

impl Awaited {
    fn read(condition: Option<WaitCondition>) -> Result<Self, Status> {
        let tasks = |named: Vec<String>| ids(&named, "task_ids", TaskId);
        let children = |named: Vec<String>| ids(&named, "child_execution_ids", ExecutionId);
        Ok(match condition {
            None => return Err(Status::invalid_argument("no wait_condition is given; name what the run waits for")),
            Some(WaitCondition::WaitForSignal(name)) => Self::Signal(name),
            Some(WaitCondition::WaitForTask(id)) => Self::Tasks(tasks(vec![id])?, Until::All),
            Some(WaitCondition::WaitForTasks(wait)) => {
                // A failure among several does not decide a race: the worker would ask again with all ids, those that
                // have failed included, until one has succeeded or none is left.
                let until = if wait.mode() == v1::WaitMode::Any { Until::Success } else { Until::All };
                Self::Tasks(tasks(wait.task_ids)?, until)
            }
            Some(WaitCondition::WaitForChildEvent(wait)) => {
                Self::Children(children(wait.child_execution_ids)?, Until::First)
            }
            Some(WaitCondition::WaitForAllChildren(wait)) => {
                Self::Children(children(wait.child_execution_ids)?, Until::All)
            }
        })
    }
}

fn ids<T>(named: &[String], field: &str, make: fn(Uuid) -> T) -> Result<Vec<T>, Status> {
    named.iter().map(|id| convert::uuid(id, field).map(make)).collect()
}

/// Those of several that are still open; none where they have decided the wait.
fn undecided(ends: Vec<(String, Option<bool>)>, until: Until) -> Option<Ends> {
    let ended = ends.iter().filter_map(|(_, success)| *success).collect::<Vec<_>>();
    let over = match until {
        Until::All => false,
        Until::First => !ended.is_empty(),
        Until::Success => ended.contains(&true),
    };
    let open: BTreeSet<String> = ends.into_iter().filter(|(_, end)| end.is_none()).map(|(name, _)| name).collect();
    (!over && !open.is_empty()).then_some(Ends { open, until })
}

impl Adapter {
    /// Makes a run wait, or claimable at once where the wait is over.
    pub(super) async fn suspend(&self, caller: &Caller, wire: v1::SuspendAgentRequest) -> Result<(), Status> {
        let awaited = Awaited::read(wire.wait_condition)?;
        for _ in 0..TRIES {
            let held = self.held(caller, &wire.agent_execution_id).await?;
            if held.run.status == RunStatus::Cancelling {
                // Its worker cannot be told to tidy up.
                if self.commit(&held, Step::end(BatchEnd::Cancelled(None))).await?.is_some() {
                    return Ok(());
                }
                continue;
            }
            let known = self.known(&held).await?;
            let Some(wait) = self.wait(&held, &awaited).await? else {
                match self.storage().release(caller.org, held.run.new.id, held.lease).await {
                    Ok(()) => return Ok(()),
                    Err(error) if error.code() == Code::LeaseLost => continue,
                    Err(error) => return Err(told(error)),
                }
            };
            let answer = self.commit_after(&held, known, Step::end(BatchEnd::Suspend(wait))).await?;
            if answer.is_some_and(|answer| answer.committed != Committed::Continue) {
                return Ok(());
            }
        }
        Err(crowded(&wire.agent_execution_id))
    }

    /// What a run waits for as the rows are now; nothing where the wait is over.
    async fn wait(&self, held: &Held, awaited: &Awaited) -> Result<Option<Wait>, Status> {
        let run = &held.run;
        match awaited {
            Awaited::Signal(name) => {
                let there = self.mailbox(held).await?.iter().any(|signal| signal.name == *name);
                let (signals, reason) = (vec![name.clone()], Some(WaitReason::Signal));
                Ok((!there).then(|| Wait { signals, reason, ..Wait::default() }))
            }
            Awaited::Tasks(ids, until) => {
                let mut ends = Vec::with_capacity(ids.len());
                for id in ids {
                    let task = self.find(run, *id).await?.ok_or_else(|| missing(run, "task", id))?;
                    let ended = task.status.is_terminal().then_some(task.status == TaskStatus::Completed);
                    ends.push((id.to_string(), ended));
                }
                let wait =
                    |ends| Wait { tasks: true, ends: Some(ends), reason: Some(WaitReason::Task), ..Wait::default() };
                Ok(undecided(ends, *until).map(wait))
            }
            Awaited::Children(ids, until) => {
                let mut ends = Vec::with_capacity(ids.len());
                for id in ids {
                    let child = self.child(run.new.org, run.new.id, *id).await?;
                    let ended = child.status.is_terminal().then_some(child.status == RunStatus::Completed);
                    ends.push((child_signal(*id), ended));
                }
                let wait = |ends| Wait { ends: Some(ends), reason: Some(WaitReason::Signal), ..Wait::default() };
                Ok(undecided(ends, *until).map(wait))
            }
        }
    }

    /// Ends a run; one that has ended so already stays as it is.
    pub(super) async fn finish(&self, caller: &Caller, id: &str, end: BatchEnd) -> Result<(), Status> {
        let ended = if matches!(end, BatchEnd::Fail(_)) { RunStatus::Failed } else { RunStatus::Completed };
        for _ in 0..TRIES {
            if self.run(caller, id).await?.status == ended {
                return Ok(());
            }
            let held = self.held(caller, id).await?;
            self.cancel_open(&held).await?;
            if self.commit(&held, Step::end(end.clone())).await?.is_some() {
                return Ok(());
            }
        }
        Err(crowded(id))
    }

    /// Cancels what a run that ends leaves open: nobody would run it.
    async fn cancel_open(&self, held: &Held) -> Result<(), Status> {
        let run = &held.run.new;
        for (id, _) in self.scheduled(&held.run).await?.into_iter().filter(|(_, open)| *open) {
            self.unfenced()?.cancel_task(run.org, run.id, id).await.map_err(told)?;
        }
        Ok(())
    }
}

/// Whether a worker reports that one of its own calls met no server, which is nobody's failure: what it holds is for somebody
/// to go on with. Its library words it so, and names no type.
pub(super) fn met_no_server(failure_type: Option<&str>, error: &str) -> bool {
    let words = ["Unavailable", "Cancelled", "Unknown"].map(|word| format!("status: {word}"));
    failure_type.unwrap_or_default().is_empty()
        && error.starts_with("gRPC error: ")
        && (words[0..2].iter().any(|word| error.contains(word))
            || error.contains(&words[2]) && (error.contains("transport error") || error.contains("h2 protocol error")))
}

/// The failure that a worker reports.
pub(super) fn failure(wire: v1::FailAgentRequest) -> Failure {
    let error_type = wire.failure_type.filter(|word| !word.is_empty()).unwrap_or_else(|| "Error".into());
    let mut failure = Failure::new(Code::AgentFailed, error_type, wire.error);
    failure.traceback = wire.stack_trace;
    failure
}

fn missing(run: &Execution, what: &str, id: impl std::fmt::Display) -> Status {
    let message = format!("the run {} has no {what} {id}, and would wait for it for ever", run.new.id);
    told(Error::new(Code::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_when_its_ends_decide_it() {
        let open = |ends: &[Option<bool>], until| {
            let ends = ends.iter().enumerate().map(|(n, end)| (n.to_string(), *end)).collect();
            undecided(ends, until).map(|ends| ends.open.into_iter().collect::<Vec<_>>().join(""))
        };
        let (ok, failed) = (Some(true), Some(false));
        assert_eq!(open(&[ok, None, failed, None], Until::All).as_deref(), Some("13"));
        assert_eq!(open(&[ok, failed], Until::All), None);
        assert_eq!(open(&[], Until::All), None);
        assert_eq!(open(&[failed, None, None], Until::Success).as_deref(), Some("12"));
        assert_eq!(open(&[failed, ok, None], Until::Success), None);
        assert_eq!(open(&[failed, failed], Until::Success), None);
        assert_eq!(open(&[None, None], Until::First).as_deref(), Some("01"));
        assert_eq!(open(&[None, failed], Until::First), None);
    }
}
