//! What makes the ends of one family cheap: they are written by one committer, which reads for all of them at once.
//!
//! An end is told the parent, so it needs the parent's row. In several committers the ends of one family would wait for
//! that row in turn, one transaction each. So this process remembers which parent the runs have that it has handed out,
//! and sends their last commits to the committer of the parent, where they share transactions.

use super::sets::row;
use super::signal::known_id;
use super::task::select_task;
use super::tx::Question;
use crate::id::{ExecutionId, OrgId, SignalId};
use crate::model::{Batch, BatchEnd, ChildEnd, Claim, CommitRequest, OpBody};
use crate::sync::Mutex;
use std::collections::HashMap;

/// Parents that are remembered. Of more the commits go where those of the run itself go, which costs time alone.
const MOST: usize = 65_536;

/// The parents of runs that this process has handed out.
#[derive(Default)]
pub(super) struct Parents(Mutex<HashMap<(OrgId, ExecutionId), ExecutionId>>);

impl Parents {
    /// Remembers those of claims.
    pub(super) fn note(&self, claims: &[Claim]) {
        let of = |claim: &Claim| Some(((claim.execution.new.org, claim.execution.new.id), claim.execution.parent?));
        let mut children = claims.iter().filter_map(of).peekable();
        if children.peek().is_none() {
            return;
        }
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.extend(children);
    }

    /// The parent of a run that a commit ends or that tells its parent something.
    pub(super) fn of(&self, request: &CommitRequest) -> Option<ExecutionId> {
        self.0.lock().get(&(request.org, request.execution)).copied()
    }
}

fn is_end(batch: &Batch) -> bool {
    matches!(batch.end, BatchEnd::Complete(_) | BatchEnd::Fail(_) | BatchEnd::Cancelled(_))
}

/// What is asked together with the lock of a run, before the command begins: its answers are true until the command
/// writes what they are about.
#[derive(Default)]
pub(super) struct Ahead {
    /// Whether a signal is known.
    pub signal: Option<(SignalId, Question)>,
    /// The open tasks of a run.
    pub tasks: Option<((OrgId, ExecutionId), Question)>,
}

impl Ahead {
    /// What the end of a child asks.
    pub(super) fn of_end(request: &CommitRequest) -> Self {
        let CommitRequest { org, execution, batch, .. } = request;
        if !is_end(batch) {
            return Self::default();
        }
        let told = ChildEnd::id(*execution);
        let is_of_task = batch.ops.iter().any(|op| matches!(op.body, OpBody::Task(_)))
            || !(batch.attempts.is_empty() && batch.restarted.is_empty() && batch.orphaned.is_empty());
        let open = concat!(
            select_task!(),
            "WHERE t.org_id = $1 AND t.run = (SELECT run FROM agent_execution WHERE org_id = $1 AND id = $2) \
             AND t.ended_at IS NULL ORDER BY t.segment, t.sequence"
        );
        let tasks = ((*org, *execution), (open, row![org.0, execution.0]));
        Self { signal: Some((told, known_id(*org, told))), tasks: (!is_of_task).then_some(tasks) }
    }

    pub(super) fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        let signal = self.signal.iter().map(|(_, question)| question.clone());
        signal.chain(self.tasks.iter().map(|(_, question)| question.clone()))
    }
}
