//! A run that a call advances: its row, the lease of its holder, and commits as that holder.

use super::{Adapter, Caller, holder};
use flovyn_core::error::{Code, Error, Kind};
use flovyn_core::id::{ExecutionId, OrgId, RequestId, SignalId, Slot};
use flovyn_core::model::{
    Batch, BatchEnd, CommitAnswer, CommitRequest, Consumed, Execution, Label, LabelKey, Lease, NewOp, OpBody, OpKind,
};
use flovyn_core::payload::Digest;
use flovyn_core::sync::Mutex;
use flovyn_server::protocol::to_status;
use std::collections::HashMap;
use std::time::Duration;
use tonic::Status;

/// How often a call tries again when others write to its run.
pub(super) const MAX_CONFLICTS: usize = 16;
/// How often a commit whose outcome is unknown is sent.
const MAX_SENDS: u32 = 5;
/// Runs that are cached at a time.
const MAX_CACHED: usize = 10_000;

/// A run that a worker holds.
pub(super) struct LeasedRun {
    pub(super) run: Execution,
    pub(super) lease: Lease,
}

/// The contents of one commit.
pub(super) struct CommitPlan {
    pub(super) ops: Vec<(Label, OpBody)>,
    /// Signals that the first op consumes.
    pub(super) consumed: Vec<SignalId>,
    pub(super) end: BatchEnd,
}

impl CommitPlan {
    /// One op, and the run goes on.
    pub(super) fn op(kind: OpKind, name: &str, key: &str, body: OpBody) -> Self {
        let label = Label { kind, name: name.into(), key: LabelKey::Key(key.into()) };
        Self { ops: vec![(label, body)], consumed: Vec::new(), end: BatchEnd::Continue }
    }

    /// No op; how the batch ends.
    pub(super) fn end(end: BatchEnd) -> Self {
        Self { ops: Vec::new(), consumed: Vec::new(), end }
    }
}

/// The position in a run's journal after a commit. It holds until somebody else commits.
#[derive(Debug, Clone, Copy)]
pub(super) struct JournalPosition {
    /// The commit.
    pub(super) base: u64,
    pub(super) epoch: u64,
    pub(super) segment: u32,
    /// The next free slot, where it is known.
    pub(super) next: Option<u32>,
    /// The last event.
    pub(super) known: u64,
}

/// The journal positions that this process knows; they save reads.
#[derive(Default)]
pub(super) struct JournalPositions(Mutex<HashMap<(OrgId, ExecutionId), JournalPosition>>);

impl JournalPositions {
    pub(super) fn of(&self, run: &Execution) -> Option<JournalPosition> {
        self.0.lock().get(&(run.new.org, run.new.id)).copied()
    }

    pub(super) fn set(&self, run: &Execution, position: JournalPosition) {
        let mut positions = self.0.lock();
        if positions.len() >= MAX_CACHED {
            positions.clear();
        }
        positions.insert((run.new.org, run.new.id), position);
    }

    fn forget(&self, run: &Execution) {
        self.0.lock().remove(&(run.new.org, run.new.id));
    }
}

impl Adapter {
    /// A run that a worker holds.
    ///
    /// Errors: `InvalidTransition` where no worker holds it.
    pub(super) async fn leased_run(&self, caller: &Caller, id: &str) -> Result<LeasedRun, Status> {
        let run = self.run(caller, id).await?;
        let Some(worker) = holder(&run) else {
            let message = format!("the run {id} is {}: only a worker that has polled it may advance it", run.status);
            return Err(to_status(Error::new(Code::InvalidTransition, message).with("from", run.status)));
        };
        let lease = Lease { worker, epoch: run.epoch };
        Ok(LeasedRun { run, lease })
    }

    /// Commits as the run's holder; none where something was written since the run was read.
    pub(super) async fn commit(&self, leased: &LeasedRun, plan: CommitPlan) -> Result<Option<CommitAnswer>, Status> {
        let known = self.last_event(leased).await?;
        self.commit_after(leased, known, plan).await
    }

    /// As [`commit`](Self::commit); it suspends only if no fact has come after the event `known`.
    pub(super) async fn commit_after(
        &self,
        leased: &LeasedRun,
        known: u64,
        plan: CommitPlan,
    ) -> Result<Option<CommitAnswer>, Status> {
        let LeasedRun { run, lease } = leased;
        let next = if plan.ops.is_empty() { None } else { Some(self.next_slot(leased).await?) };
        let first = next.unwrap_or(0);
        let by = Slot { segment: run.segment, sequence: first };
        let ends_segment = matches!(plan.end, BatchEnd::Checkpoint(_));
        let ops: Vec<NewOp> = (first..)
            .zip(plan.ops)
            .map(|(sequence, (label, body))| NewOp { sequence, once: None, label, seen: Vec::new(), body })
            .collect();
        let is_current = |position: &JournalPosition| (position.base, position.segment) == (run.base, run.segment);
        let after = match next {
            Some(next) => Some(next.saturating_add(u32::try_from(ops.len()).unwrap_or(u32::MAX))),
            None => self.positions.of(run).filter(is_current).and_then(|position| position.next),
        };
        let request = CommitRequest {
            org: run.new.org,
            execution: run.new.id,
            lease: *lease,
            request_id: RequestId::fresh(),
            // Not needed: the same request is sent again unchanged.
            digest: Digest::default(),
            base: run.base,
            known,
            batch: Batch {
                consumed: plan.consumed.into_iter().map(|signal| Consumed { signal, by }).collect(),
                ..Batch::new(run.segment, ops, plan.end)
            },
            refused: Vec::new(),
            local: None,
        };
        match self.send(request).await {
            Ok(answer) => {
                let (segment, next) = if ends_segment { (run.segment + 1, Some(0)) } else { (run.segment, after) };
                let position =
                    JournalPosition { base: answer.number, epoch: run.epoch, segment, next, known: answer.high };
                self.positions.set(run, position);
                Ok(Some(answer))
            }
            Err(error) if matches!(error.code(), Code::OutOfOrder | Code::SlotTaken | Code::LeaseLost) => {
                self.positions.forget(run);
                Ok(None)
            }
            Err(error) => Err(to_status(error)),
        }
    }

    /// Sends a commit, and sends it again while its outcome is unknown.
    async fn send(&self, request: CommitRequest) -> Result<CommitAnswer, Error> {
        let mut sent = 1;
        loop {
            match self.storage().commit(request.clone()).await {
                Err(error) if error.kind() == Kind::Unavailable && sent < MAX_SENDS => {
                    tokio::time::sleep(Duration::from_millis(20 << sent)).await;
                    sent += 1;
                }
                answer => return answer,
            }
        }
    }

    /// The last event of the run that counts as known to the caller.
    pub(super) async fn last_event(&self, leased: &LeasedRun) -> Result<u64, Status> {
        let LeasedRun { run, .. } = leased;
        let position = self.positions.of(run);
        match position.filter(|position| (position.base, position.epoch) == (run.base, run.epoch)) {
            Some(position) => Ok(position.known),
            None => {
                let after = position.map_or(0, |position| position.known);
                Ok(self.storage().facts_after(run.new.org, run.new.id, after).await.map_err(to_status)?.1)
            }
        }
    }

    /// The next free slot of the run's segment.
    async fn next_slot(&self, leased: &LeasedRun) -> Result<u32, Status> {
        let run = &leased.run;
        let is_current = |position: &JournalPosition| (position.base, position.segment) == (run.base, run.segment);
        if let Some(next) = self.positions.of(run).filter(is_current).and_then(|position| position.next) {
            return Ok(next);
        }
        let ops = self.storage().journal(run.new.org, run.new.id, run.segment).await.map_err(to_status)?;
        let inherited = run.forked_from.filter(|from| from.segment == run.segment).and_then(|from| from.sequence);
        let last = ops.iter().map(|op| op.sequence).chain(inherited).max();
        Ok(last.map_or(0, |last| last.saturating_add(1)))
    }
}

/// The error of a call that has lost against other writers too often.
pub(super) fn too_many_conflicts(id: &str) -> Status {
    let message =
        format!("the run {id} was written to by others {MAX_CONFLICTS} times in a row; is it polled by two workers?");
    to_status(Error::new(Code::OutOfOrder, message))
}
