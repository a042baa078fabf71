//! What recovery reads: the last undamaged checkpoint, and the tail since it with its facts. Also the branch above a
//! leaf.

use super::rows::Run;
use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, Slot};
use crate::model::{
    Checkpoint, Entry, FactKind, Failure, Lease, RecordedBody, RecordedOp, Segment, SideEffects, Status, WaitReason,
};
use crate::payload::RowOf;
use crate::storage::allowance::Allowance;
use bytes::Bytes;
use std::collections::BTreeMap;

impl State {
    pub(super) fn load_segment(
        &mut self,
        org: OrgId,
        id: ExecutionId,
        lease: Lease,
        now: Timestamp,
    ) -> Result<Segment> {
        let run = self.run(org, id)?;
        run.check_lease(lease)?;
        let checkpoint = run.checkpoints.values().rev().find(|checkpoint| self.is_good(org, checkpoint)).cloned();
        if checkpoint.is_none() && !run.checkpoints.is_empty() {
            return Err(self.give_up(org, id, now));
        }
        let run = self.run_mut(org, id)?;
        run.judge_inline(lease.epoch, now);
        let from = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.sequence);
        let mut once = run.inherited.once.clone();
        once.extend(run.once.clone());
        let run = self.run(org, id)?;
        let mut facts = run.inherited.facts.clone();
        facts.extend(run.facts_after(0, Some(from)));
        let mut allowance = Allowance::default();
        for fact in &mut facts {
            if let FactKind::Task { task, result: Ok(value) } = &mut fact.kind
                && let Some(&(execution, slot)) = self.tasks.get(&(org, *task))
            {
                allowance.fit(value, RowOf { execution, slot });
            }
        }
        let mut segment = Segment {
            execution: run.exec.clone(),
            checkpoint,
            tail: run.tail(from).into_values().collect(),
            facts,
            once: once.into_values().collect(),
            high: run.high,
            now,
        };
        for op in &mut segment.tail {
            self.count_reads(org, id, op);
        }
        self.refresh((org, id), now);
        Ok(segment)
    }

    /// A result that a load has left in its row.
    pub(super) fn row_value(&self, org: OrgId, of: &RowOf) -> Result<Bytes> {
        let task = self.run(org, of.execution)?.tasks.get(&of.slot);
        task.and_then(|row| row.task.output.as_ref()).ok_or_else(|| of.missing())?.bytes().cloned()
    }

    /// Sets the count of a read. For a read that a fork has inherited, it is the present count of the run that owns it.
    fn count_reads(&self, org: OrgId, mut id: ExecutionId, op: &mut RecordedOp) {
        let RecordedBody::Read { count, .. } = &mut op.body else { return };
        let slot = Slot { segment: op.segment, sequence: op.sequence };
        while let Some(run) = self.runs.get(&(org, id)) {
            if let Some(RecordedBody::Read { count: present, .. }) = run.ops.get(&slot).map(|op| &op.body) {
                *count = *present;
                return;
            }
            let Some(point) = run.exec.forked_from else { return };
            id = point.execution;
        }
    }

    fn is_good(&self, org: OrgId, checkpoint: &Checkpoint) -> bool {
        self.payloads.content_hash(org, &checkpoint.saved.state).is_ok_and(|state| {
            let leaves = &checkpoint.saved.leaves;
            checkpoint.hash == Checkpoint::content_hash(checkpoint.sequence, &state, leaves, &checkpoint.usage)
        })
    }

    /// Pauses a run whose checkpoints are all damaged: a person must look.
    fn give_up(&mut self, org: OrgId, id: ExecutionId, now: Timestamp) -> Error {
        let run = match self.run_mut(org, id) {
            Ok(run) => run,
            Err(error) => return error,
        };
        let tried: Vec<_> = run.checkpoints.keys().rev().map(|sequence| sequence.to_string()).collect();
        let message = format!("no checkpoint of the run {id} has its hash; tried {}", tried.join(", "));
        if run.exec.status == Status::Cancelling {
            run.cancelled(now, None, "graceful");
        } else {
            let failure = Failure::new(Code::CorruptCheckpoint, "CorruptCheckpoint", message.clone());
            run.pause(now, WaitReason::Quarantined, Some(failure));
        }
        self.refresh((org, id), now);
        Error::new(Code::CorruptCheckpoint, message).with("tried", tried.join(", "))
    }

    pub(super) fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>> {
        let mut branch = Vec::new();
        let mut next = Some(leaf);
        while let Some(id) = next.filter(|id| Some(*id) != after) {
            let entry = self.entry(org, id).ok_or_else(|| not_found("entry", id))?;
            next = entry.new.parent;
            branch.push(entry.clone());
        }
        branch.reverse();
        Ok(branch)
    }
}

impl Run {
    /// The next free sequence of the current segment. For a fork it is above the point that it starts from.
    pub(super) fn top(&self) -> u32 {
        let segment = self.exec.segment;
        let of_segment = Slot { segment, sequence: 0 }..=Slot { segment, sequence: u32::MAX };
        let own = self.ops.range(of_segment).next_back().map(|(slot, _)| slot.sequence);
        let point = self.exec.forked_from.filter(|point| point.segment == segment).and_then(|point| point.sequence);
        own.max(point).map_or(0, |last| last.saturating_add(1))
    }

    /// The ops from a segment on, and those of unfinished `once`s before it.
    pub(super) fn tail(&self, from: u32) -> BTreeMap<Slot, RecordedOp> {
        let counts = |slot: &Slot| slot.segment >= from || self.in_unfinished_once(*slot);
        let inherited = self.inherited.ops.iter().filter(|(slot, _)| counts(slot));
        let own = self.ops.iter().filter(|(slot, _)| counts(slot));
        let inherited = inherited.map(|(slot, op)| (*slot, op.clone()));
        inherited.chain(own.map(|(slot, op)| (*slot, self.recorded(*slot, op)))).collect()
    }

    /// Judges inline attempts of earlier claims, which were lost with their worker, unless they are idempotent and can
    /// simply be started again.
    fn judge_inline(&mut self, epoch: u64, now: Timestamp) {
        for slot in self.open.clone() {
            let lost = self.tasks.get(&slot).is_some_and(|row| {
                let careful = row.task.new.options.side_effects != SideEffects::Idempotent;
                row.runs_inline() && row.epoch < epoch && careful
            });
            if lost {
                self.lose_attempt(slot, now);
            }
        }
    }
}
