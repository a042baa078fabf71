//! Waits and ends of runs.
//!
//! A run must not be suspended when its wait is over already. So the last event is read first, then the rows that decide the wait;
//! the commit suspends only if no fact has come after that event, else the rows are read again.

use super::leased_run::{CommitPlan, LeasedRun, MAX_CONFLICTS, too_many_conflicts};
use super::{Adapter, Caller, convert};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, TaskId};
use flovyn_core::model::{
    BatchEnd, Committed, Ends, Execution, ExecutionFilter, Failure, MAX_PAGE, PageRequest, Status as RunStatus,
    TaskStatus, Until, Wait, WaitReason, child_signal, event_signal,
};
use flovyn_proto::v1;
use flovyn_proto::v1::suspend_agent_request::WaitCondition;
use flovyn_server::protocol::to_status;
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

/// The ends that a wait still needs; none where it is over.
fn open_ends(ends: Vec<(String, Option<bool>)>, until: Until) -> Option<Ends> {
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
    /// Suspends a run, or makes it claimable at once where the wait is over.
    pub(super) async fn suspend(&self, caller: &Caller, wire: v1::SuspendAgentRequest) -> Result<(), Status> {
        let awaited = Awaited::read(wire.wait_condition)?;
        for _ in 0..MAX_CONFLICTS {
            let leased = self.leased_run(caller, &wire.agent_execution_id).await?;
            if leased.run.status == RunStatus::Cancelling {
                // The protocol cannot ask its worker to clean up.
                if self.commit(&leased, CommitPlan::end(BatchEnd::Cancelled(None))).await?.is_some() {
                    return Ok(());
                }
                continue;
            }
            let known = self.last_event(&leased).await?;
            let Some(wait) = self.wait(&leased, &awaited).await? else {
                match self.storage().release(caller.org, leased.run.new.id, leased.lease).await {
                    Ok(()) => return Ok(()),
                    Err(error) if error.code() == Code::LeaseLost => continue,
                    Err(error) => return Err(to_status(error)),
                }
            };
            let answer = self.commit_after(&leased, known, CommitPlan::end(BatchEnd::Suspend(wait))).await?;
            if answer.is_some_and(|answer| answer.committed != Committed::Continue) {
                return Ok(());
            }
        }
        Err(too_many_conflicts(&wire.agent_execution_id))
    }

    /// The wait of a run by the current rows; none where it is over.
    async fn wait(&self, leased: &LeasedRun, awaited: &Awaited) -> Result<Option<Wait>, Status> {
        let run = &leased.run;
        match awaited {
            Awaited::Signal(name) => {
                let there = self.mailbox(leased).await?.iter().any(|signal| signal.name == *name);
                if there {
                    return Ok(None);
                }
                // What a child of the second protocol tells comes by a name of the child's, whatever its author calls it.
                let mut signals = vec![name.clone()];
                signals.extend(self.open_children(run).await?.into_iter().map(event_signal));
                Ok(Some(Wait { signals, reason: Some(WaitReason::Signal), ..Wait::default() }))
            }
            Awaited::Tasks(ids, until) => {
                let mut ends = Vec::with_capacity(ids.len());
                for id in ids {
                    let task = self.find(run, *id).await?.ok_or_else(|| not_found(run, "task", id))?;
                    let ended = task.status.is_terminal().then_some(task.status == TaskStatus::Completed);
                    ends.push((id.to_string(), ended));
                }
                let wait =
                    |ends| Wait { tasks: true, ends: Some(ends), reason: Some(WaitReason::Task), ..Wait::default() };
                Ok(open_ends(ends, *until).map(wait))
            }
            Awaited::Children(ids, until) => {
                let mut ends = Vec::with_capacity(ids.len());
                for id in ids {
                    let child = self.child(run.new.org, run.new.id, *id).await?;
                    let ended = child.status.is_terminal().then_some(child.status == RunStatus::Completed);
                    ends.push((child_signal(*id), ended));
                }
                let wait = |ends| Wait { ends: Some(ends), reason: Some(WaitReason::Signal), ..Wait::default() };
                Ok(open_ends(ends, *until).map(wait))
            }
        }
    }

    /// The children of a run that have not ended.
    async fn open_children(&self, run: &Execution) -> Result<Vec<ExecutionId>, Status> {
        let statuses = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let filter = ExecutionFilter { parent: Some(run.new.id), statuses, ..ExecutionFilter::default() };
        let (mut children, mut part) = (Vec::new(), PageRequest { limit: MAX_PAGE, after: None });
        loop {
            let page = self.storage().executions(run.new.org, filter.clone(), part.clone()).await.map_err(to_status)?;
            children.extend(page.items.into_iter().map(|child| child.new.id));
            match page.next {
                Some(next) => part.after = Some(next),
                None => return Ok(children),
            }
        }
    }

    /// Ends a run; a run that has ended with that status already stays as it is.
    pub(super) async fn finish(&self, caller: &Caller, id: &str, end: BatchEnd) -> Result<(), Status> {
        let ended = if matches!(end, BatchEnd::Fail(_)) { RunStatus::Failed } else { RunStatus::Completed };
        for _ in 0..MAX_CONFLICTS {
            if self.run(caller, id).await?.status == ended {
                return Ok(());
            }
            let leased = self.leased_run(caller, id).await?;
            self.cancel_open_tasks(&leased).await?;
            if self.commit(&leased, CommitPlan::end(end.clone())).await?.is_some() {
                return Ok(());
            }
        }
        Err(too_many_conflicts(id))
    }

    /// Cancels the open tasks of a run that ends.
    async fn cancel_open_tasks(&self, leased: &LeasedRun) -> Result<(), Status> {
        let run = &leased.run.new;
        for (id, _) in self.scheduled(&leased.run).await?.into_iter().filter(|(_, open)| *open) {
            self.unfenced()?.cancel_task(run.org, run.id, id).await.map_err(to_status)?;
        }
        Ok(())
    }
}

/// Whether a worker reports a transport error of one of its own calls. That is no failure of the run or task, which is given to
/// another worker. The worker's library words such errors like this, and gives them no type.
pub(super) fn is_transport_failure(failure_type: Option<&str>, error: &str) -> bool {
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

fn not_found(run: &Execution, what: &str, id: impl std::fmt::Display) -> Status {
    let message = format!("the run {} has no {what} {id}, and would wait for it for ever", run.new.id);
    to_status(Error::new(Code::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_when_its_ends_decide_it() {
        let open = |ends: &[Option<bool>], until| {
            let ends = ends.iter().enumerate().map(|(n, end)| (n.to_string(), *end)).collect();
            open_ends(ends, until).map(|ends| ends.open.into_iter().collect::<Vec<_>>().join(""))
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
