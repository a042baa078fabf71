//! Requests about a run from outside: start, signal, cancel, resume, and decisions about divergences.

use super::family::BY_PARENT;
use super::rows::{FactOf, Run};
use super::state::{State, not_found};
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, SignalId, Slot};
use crate::journal::retry::{MAX_LOSSES, after_error, last_life, unheard};
use crate::model::{
    CancelMode, Cancellation, Created, Delivery, Divergence, Entry, EventKind, Execution, ForkFrom, ForkRequest, Label,
    LabelKey, NewEntry, NewExecution, NewSignal, OpKind, Purse, RecordedBody, RecordedOp, ResumeRequest, SharedContext,
    SignalStored, Status, TaskStatus, UNDONE, UsageTotals, WaitReason, is_own_signal,
};
use crate::payload::Payload;
use crate::storage::limits::{self, DEFAULT_TAIL, DEFAULT_TOTAL_STEPS};
use serde_json::json;

/// A new run.
pub(super) fn fresh(mut new: NewExecution, now: Timestamp) -> Execution {
    let limits = &mut new.limits;
    if limits.max_steps.is_some() {
        limits.max_total_steps.get_or_insert(DEFAULT_TOTAL_STEPS);
    }
    Execution {
        status: Status::Pending,
        wait: None,
        output: None,
        failure: None,
        segment: 0,
        leaf: new.shared_context.as_ref().and_then(SharedContext::leaf),
        code: None,
        epoch: 0,
        worker: None,
        lease_expires: None,
        base: 0,
        cancel: None,
        step_count: 0,
        step_limit: new.limits.max_steps,
        tail_limit: new.limits.max_tail.unwrap_or(DEFAULT_TAIL),
        usage: UsageTotals::default(),
        purse: new.limits.budget.is_some().then(Purse::default),
        parent: None,
        handed_to: None,
        root: new.id,
        depth: 0,
        forked_from: None,
        losses: 0,
        created_at: now,
        updated_at: now,
        ended_at: None,
        new,
    }
}

impl State {
    pub(super) fn create(&mut self, new: NewExecution, now: Timestamp) -> Result<Created> {
        self.create_below(new, None, now)
    }

    pub(super) fn store_signal(&mut self, mut new: NewSignal, now: Timestamp) -> Result<SignalStored> {
        let run = self.run(new.org, new.execution)?;
        let same_key = new.idempotency_key.as_ref().and_then(|key| run.signal_keys.get(key)).copied();
        if let Some(id) = same_key.or_else(|| run.signal_ids.contains_key(&new.id).then_some(new.id)) {
            if !is_own_signal(&new.name) {
                self.payloads.store(new.org, &mut new.payload)?;
            }
            let run = self.run(new.org, new.execution)?;
            if let Some(known) = run.signals.values().find(|signal| signal.id == id) {
                new.repeats(&known.name, &known.payload)?;
            }
            return Ok(SignalStored { id, repeated: true, resumed: false });
        }
        if let Some(holder) = self.handed_to(new.org, new.execution) {
            return self.store_signal(NewSignal { execution: holder, ..new }, now);
        }
        if run.exec.status.is_terminal() {
            return Err(run.exec.takes_no_signals());
        }
        let pending = || run.signals.values().filter(|signal| signal.consumed_by.is_none()).count();
        if run.signals.len() >= limits::PENDING_SIGNALS && pending() >= limits::PENDING_SIGNALS {
            return Err(limits::mailbox_is_full(new.execution));
        }
        // A signal of the engine's own names a large value inside of it, and is read whole.
        if !is_own_signal(&new.name) {
            self.payloads.store(new.org, &mut new.payload)?;
        }
        let run = self.run_mut(new.org, new.execution)?;
        if let Some(key) = new.idempotency_key.clone() {
            run.signal_keys.insert(key, new.id);
        }
        let (org, execution, id) = (new.org, new.execution, new.id);
        let interrupts = new.delivery == Delivery::Now;
        let mut resumed = run.take_signal(new, now);
        if interrupts {
            let waits = run.exec.status == Status::Waiting;
            run.interrupt(now);
            resumed |= waits && run.exec.status != Status::Waiting;
        }
        self.refresh((org, execution), now);
        Ok(SignalStored { id, repeated: false, resumed })
    }

    pub(super) fn request_cancel(
        &mut self,
        org: OrgId,
        id: ExecutionId,
        cancel: Cancellation,
        by_parent: bool,
        now: Timestamp,
    ) -> Result<Execution> {
        if let Some(holder) = self.handed_to(org, id).filter(|_| !by_parent)
            && self.run(org, id)?.exec.status.is_terminal()
        {
            self.request_cancel(org, holder, cancel, false, now)?;
            return Ok(self.run(org, id)?.exec.clone());
        }
        let run = self.run_mut(org, id)?;
        let never_claimed = run.exec.status == Status::Pending && run.exec.epoch == 0;
        let mut below = Vec::new();
        match (cancel.mode, run.exec.status) {
            (_, status) if status.is_terminal() => {}
            (CancelMode::Hard, _) => {
                run.exec.cancel = Some((cancel, now));
                run.exec.epoch += 1;
                run.cancelled(now, None, if by_parent { BY_PARENT } else { "hard" });
            }
            (CancelMode::Graceful, Status::Cancelling) => {}
            (CancelMode::Graceful, status) if never_claimed || status == Status::Paused => {
                run.exec.cancel = Some((cancel, now));
                run.cancelled(now, None, if by_parent { BY_PARENT } else { "graceful" });
            }
            (CancelMode::Graceful, _) => {
                below.clone_from(&run.children);
                run.ask_to_stop(now, cancel, json!({ "mode": cancel.mode }));
            }
        }
        run.told_parent |= by_parent && run.exec.status.is_terminal();
        self.refresh((org, id), now);
        below.retain(|child| !self.is_detached(org, *child));
        for child in below {
            self.request_cancel(org, child, cancel, false, now)?;
        }
        Ok(self.run(org, id)?.exec.clone())
    }

    pub(super) fn resume(
        &mut self,
        org: OrgId,
        id: ExecutionId,
        mut request: ResumeRequest,
        now: Timestamp,
    ) -> Result<Execution> {
        let run = self.run(org, id)?;
        if request.request_id.is_some_and(|request| run.resumed.contains(&request)) {
            return Ok(run.exec.clone());
        }
        let exec = &run.exec;
        if let Some(holder) = self.handed_to(org, id) {
            if exec.status.is_terminal() {
                return Err(exec.was_handed_off(holder));
            }
            self.resume(org, holder, request, now)?;
            return Ok(self.run(org, id)?.exec.clone());
        }
        let reason = run.pause_reason();
        let failed = request.retry && exec.status == Status::Failed && exec.cancel.is_none();
        if reason.is_none() && !failed {
            return Err(exec.cannot(if request.retry { "retry" } else { "resume" }));
        }
        let budget = exec.budget_after(&request, reason)?;
        if let Some(total) = exec.new.limits.max_total_steps.filter(|total| exec.step_count >= *total) {
            return Err(Error::new(
                Code::StepLimitReached,
                format!("the run {id} has taken {} steps and may take {total} in all; start another", exec.step_count),
            )
            .with("steps", exec.step_count)
            .with("limit", total));
        }
        if failed && let Some(fork) = self.forked_since((org, id), run.high) {
            return Err(exec.was_forked(fork));
        }
        let depth = exec.leaf.and_then(|leaf| self.entry(org, leaf)).map_or(0, |leaf| leaf.depth + 1);
        self.payloads.store_some(org, &mut request.message)?;

        let run = self.run_mut(org, id)?;
        if failed {
            run.reopen(now);
        }
        let mut appended = None;
        if let Some(message) = request.message {
            appended = Some(run.append_message(message, depth, now)?);
        }
        run.resumed.extend(request.request_id);
        let limits = run.exec.new.limits.clone();
        if budget.is_some() {
            run.exec.purse.get_or_insert_default();
        }
        run.exec.new.limits.budget = budget;
        if let Some(more) = request.max_steps.or(limits.max_steps) {
            run.exec.step_limit = Some(run.exec.step_count.saturating_add(more));
        }
        if let Some(limit) = request.max_tail {
            run.exec.tail_limit = limit;
        } else if reason == Some(WaitReason::TailLimit) {
            run.exec.tail_limit = run.exec.tail_limit.saturating_add(limits.max_tail.unwrap_or(DEFAULT_TAIL));
        }
        if reason == Some(WaitReason::Quarantined) {
            run.retry_quarantined(now);
        }
        let from = reason.map_or_else(|| json!(Status::Failed.as_str()), |reason| json!(reason));
        run.unpause(now, EventKind::Continued, json!({ "from": from }));
        let again = failed || reason == Some(WaitReason::Error);
        if again {
            run.retry_unheard(now);
        }
        if let Some((entry, slot)) = appended {
            self.entries.insert((org, entry), (id, slot));
        }
        if again {
            self.meet_children((org, id), now)?;
        }
        let execution = self.run(org, id)?.exec.clone();
        self.refresh((org, id), now);
        Ok(execution)
    }

    pub(super) fn resolve_divergence(
        &mut self,
        org: OrgId,
        id: ExecutionId,
        decision: Divergence,
        now: Timestamp,
    ) -> Result<Execution> {
        let run = self.run_mut(org, id)?;
        if run.pause_reason() != Some(WaitReason::Divergence) {
            return Err(run.exec.cannot("decide about a divergence of"));
        }
        match decision {
            Divergence::Stay => Ok(run.exec.clone()),
            Divergence::Continue => {
                run.exec.code = Some("mixed".into());
                run.unpause(now, EventKind::Continued, json!({ "from": WaitReason::Divergence }));
                let execution = run.exec.clone();
                self.refresh((org, id), now);
                Ok(execution)
            }
            Divergence::Fork => {
                let name = format!("divergence-{}", run.high);
                let fork = ExecutionId(uuid::Uuid::new_v5(&id.0, name.as_bytes()));
                let from = ForkFrom::Latest;
                let request = ForkRequest { org, execution: id, id: fork, key: None, from, state: None, input: None };
                self.fork(request, now)
            }
        }
    }

    /// A fork that was made of a run since its end. `end` is the number of the event of the end.
    fn forked_since(&self, (org, id): (OrgId, ExecutionId), end: u64) -> Option<ExecutionId> {
        let of_end =
            |run: &&Run| run.exec.forked_from.is_some_and(|point| point.execution == id) && run.forked_high >= end;
        let forks = self.runs.iter().filter(|((of, _), _)| *of == org).map(|(_, run)| run);
        forks.filter(of_end).map(|run| run.exec.new.id).next()
    }

    /// An entry by its id.
    pub(super) fn entry(&self, org: OrgId, id: EntryId) -> Option<&Entry> {
        let (execution, slot) = self.entries.get(&(org, id))?;
        self.runs.get(&(org, *execution))?.entries.get(slot)
    }

    /// The number of a signal of a run.
    pub(super) fn signal_number(run: &Run, id: SignalId) -> Result<u64> {
        run.signal_ids.get(&id).copied().ok_or_else(|| {
            Error::new(Code::InvalidArgument, format!("the run {} has no signal {id} to consume", run.exec.new.id))
        })
    }

    /// The run and the slot of a task.
    pub(super) fn task_place(&self, org: OrgId, id: crate::id::TaskId) -> Result<(ExecutionId, Slot)> {
        self.tasks.get(&(org, id)).copied().ok_or_else(|| not_found("task", id))
    }
}

impl Run {
    /// Makes a paused run runnable.
    pub(super) fn unpause(&mut self, now: Timestamp, kind: EventKind, data: serde_json::Value) {
        self.await_machine(now);
        self.exec.wait = None;
        self.exec.failure = None;
        self.exec.losses = self.exec.losses.min(MAX_LOSSES - 1);
        self.emit(now, kind, None, data);
    }

    fn retry_quarantined(&mut self, now: Timestamp) {
        for slot in self.open.clone() {
            let Some(row) = self.tasks.get_mut(&slot) else { continue };
            if row.task.status == TaskStatus::Quarantined {
                row.task.losses = last_life(&row.task);
                self.retry_task(slot, std::time::Duration::ZERO, None, now);
            }
        }
    }

    /// Opens a failed run again.
    fn reopen(&mut self, now: Timestamp) {
        self.exec.status = Status::Pending;
        self.opened_at = now;
        self.starts_by = self.exec.new.limits.start_timeout.map(|limit| now.after(limit));
        self.exec.ended_at = None;
        self.parked = None;
    }

    /// Opens the tasks again that failed before the error or were cancelled by it, arms the timers that it disarmed,
    /// and takes back the awaits that were given up while the error ended the code.
    fn retry_unheard(&mut self, now: Timestamp) {
        let ops: Vec<RecordedOp> = self.own_tail().map(|(slot, op)| self.recorded(*slot, op)).collect();
        let unheard = unheard(&ops.iter().collect::<Vec<_>>());
        for slot in unheard.undone {
            if let Some(op) = self.ops.get_mut(&slot) {
                op.label.key = LabelKey::Key(UNDONE.into());
            }
        }
        for slot in unheard.timers {
            self.timers.extend(self.disarmed.remove(&slot).map(|at| (slot, at)));
        }
        for slot in unheard.tasks {
            let Some(row) = self.tasks.get_mut(&slot) else { continue };
            let Some(verdict) = after_error(&row.task) else { continue };
            let task = &mut row.task;
            (task.status, task.ended_at, task.output) = (TaskStatus::Running, None, None);
            (task.failed_attempts, task.losses) = (0, 0);
            row.stop = false;
            self.open.insert(slot);
            self.facts.retain(|_, row| !matches!(row.what, FactOf::Task(of) if of == slot));
            self.carry_out(slot, verdict, None, now);
        }
    }

    fn append_message(&mut self, message: Payload, depth: u32, now: Timestamp) -> Result<(EntryId, Slot)> {
        let segment = self.exec.segment;
        let slot = Slot { segment, sequence: self.top() };
        let id = EntryId(OpId { execution: self.exec.new.id, slot, once: None }.uuid());
        let parent = self.exec.leaf;
        let new = NewEntry {
            id,
            parent,
            thread: String::new(),
            role: "user".into(),
            entry_type: "message".into(),
            content: message,
            turn_id: None,
            metadata: None,
        };
        let key = LabelKey::Key("flovyn:resume".into());
        let op = RecordedOp {
            segment: slot.segment,
            sequence: slot.sequence,
            once: None,
            label: Label { kind: OpKind::Entry, name: "resume".into(), key },
            seen: Vec::new(),
            body: RecordedBody::Entry { id, parent, thread: String::new() },
        };
        self.ops.insert(slot, op);
        self.append_entry(slot, new, depth, now);
        Ok((id, slot))
    }

    /// Writes an entry. An entry of the main thread becomes the run's leaf.
    pub(super) fn append_entry(&mut self, slot: Slot, new: NewEntry, depth: u32, now: Timestamp) {
        let mut data = json!({ "entry": new.id.to_string(), "role": new.role, "entry_type": new.entry_type });
        if let Some(metadata) = new.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok()) {
            data["metadata"] = metadata;
        }
        if new.thread.is_empty() {
            self.exec.leaf = Some(new.id);
        }
        let entry = Entry { new, execution: self.exec.new.id, slot, depth, created_at: now };
        self.entries.insert(slot, entry);
        self.emit(now, EventKind::Entry, Some(slot), data);
    }
}
