//! A commit: it is checked in full first and then carried out in the contract's order. There is no rollback here, so a
//! check must not come after a write.

use super::rows::{RequestRow, Run};
use super::state::State;
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, OrgId, Slot};
use crate::journal::retry::{Verdict, after_attempt};
use crate::model::{
    Batch, BatchEnd, Checkpoint, CommitAnswer, CommitRequest, Committed, EventKind, Lease, NewCheckpoint, NewOp,
    OnceResult, OpBody, Persistence, Placement, RecordedBody, RecordedOp, SideEffects, Status, TaskOptions, TaskStatus,
    Wait, WaitReason,
};
use crate::storage::limits::too_many_open;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    pub(super) fn commit(&mut self, mut request: CommitRequest, now: Timestamp) -> Result<CommitAnswer> {
        let (org, id) = (request.org, request.execution);
        let child = |op: &NewOp| matches!(op.body, OpBody::Child(_));
        let asks = request.batch.draw.is_some() || request.batch.ops.iter().any(child);
        if let Some(answer) = self.run(org, id)?.admit(&request)? {
            return Ok(CommitAnswer { purse: self.told_purse((org, id), asks), ..answer });
        }
        let run = self.run(org, id)?;
        // A parked copy goes on by itself and takes the run up again, which may now be one too many of its concurrency
        // key.
        let taken_up = run.is_parked_with(request.lease) && run.exec.status != Status::Cancelling;
        if taken_up && self.is_key_held(run) {
            return Err(Error::new(
                Code::LeaseLost,
                format!("the run {id} cannot go on here: another run of its concurrency key is RUNNING; drop the work"),
            ));
        }
        self.name_parent_queue((org, id), &mut request.batch)?;
        self.store_payloads(org, &mut request.batch)?;
        let run = self.run(org, id)?;
        run.check_slots(&request.batch)?;
        let depths = self.depths(org, &request.batch)?;
        run.check_consumed(&request.batch)?;
        run.check_quiet(&request.batch)?;
        run.check_open(&request.batch)?;
        let state_hash = match &request.batch.end {
            BatchEnd::Checkpoint(new) => self.payloads.content_hash(org, &new.state)?,
            _ => [0; 32],
        };

        for op in &request.batch.ops {
            let slot = Slot { segment: request.batch.segment, sequence: op.sequence };
            match &op.body {
                OpBody::Entry(entry) => drop(self.entries.insert((org, entry.id), (id, slot))),
                OpBody::Task(task) => drop(self.tasks.insert((org, task.id), (id, slot))),
                _ => {}
            }
        }
        self.draw((org, id), &request.batch, now)?;
        self.bear_children((org, id), &request, now)?;
        self.deliver((org, id), &request.batch, now)?;
        self.check_answers((org, id), &request.batch, now)?;
        let run = self.run_mut(org, id)?;
        let orphaned = (request.batch.segment, request.batch.orphaned.clone());
        let answer = run.apply(request, depths, state_hash, now);
        self.cancel_orphans((org, id), &orphaned, now);
        self.after_hand_off((org, id), now)?;
        self.refresh((org, id), now);
        Ok(CommitAnswer { purse: self.told_purse((org, id), asks), ..answer })
    }

    fn store_payloads(&mut self, org: OrgId, batch: &mut Batch) -> Result<()> {
        let payloads = &mut self.payloads;
        for op in &mut batch.ops {
            match &mut op.body {
                OpBody::Entry(entry) => payloads.store(org, &mut entry.content)?,
                OpBody::Task(task) => payloads.store(org, &mut task.input)?,
                OpBody::Child(child) => payloads.store(org, &mut child.input)?,
                OpBody::Send(message) => {
                    if let Some(payload) = message.body.payload_mut() {
                        payloads.store(org, payload)?;
                    }
                }
                OpBody::Read { answer, .. } => payloads.store(org, answer)?,
                OpBody::Once { value, .. } => payloads.store(org, value)?,
                _ => {}
            }
        }
        for report in &mut batch.attempts {
            if let crate::model::AttemptResult::Completed(output) = &mut report.result {
                payloads.store(org, output)?;
            }
        }
        match &mut batch.end {
            BatchEnd::Checkpoint(new) => payloads.store(org, &mut new.state),
            BatchEnd::Complete(output) => payloads.store(org, output),
            BatchEnd::Cancelled(output) => payloads.store_some(org, output),
            _ => Ok(()),
        }
    }

    /// The depth of each new entry of a batch. Refuses an entry whose parent does not exist, and ids that exist
    /// already.
    fn depths(&self, org: OrgId, batch: &Batch) -> Result<BTreeMap<EntryId, u32>> {
        let mut depths = BTreeMap::new();
        for op in &batch.ops {
            match &op.body {
                OpBody::Entry(entry) => {
                    let above = entry.parent.map(|parent| {
                        depths.get(&parent).copied().or_else(|| self.entry(org, parent).map(|entry| entry.depth))
                    });
                    let depth = match above {
                        None => 0,
                        Some(Some(depth)) => depth + 1,
                        Some(None) => {
                            return Err(invalid(format!("{} follows an entry that does not exist", op.label)));
                        }
                    };
                    if self.entries.contains_key(&(org, entry.id)) || depths.insert(entry.id, depth).is_some() {
                        return Err(invalid(format!("the entry {} exists already", entry.id)));
                    }
                }
                OpBody::Task(task) if self.tasks.contains_key(&(org, task.id)) => {
                    return Err(invalid(format!("the task {} exists already", task.id)));
                }
                _ => {}
            }
        }
        Ok(depths)
    }
}

impl Run {
    /// The fence, in this order: lease, request id, base (rule 2). Returns the first answer if the request is known.
    fn admit(&self, request: &CommitRequest) -> Result<Option<CommitAnswer>> {
        let known = self.requests.get(&request.request_id).filter(|row| row.epoch == request.lease.epoch);
        if let Err(lost) = self.check_lease(request.lease) {
            // The sender's last commit may itself have ended the lease, by suspending or ending the run, and its answer
            // was lost. The same request still gets its answer, unless somebody else has claimed the run since.
            let ended = self.exec.worker.is_none() && self.exec.epoch == request.lease.epoch;
            if let Some(known) = known.filter(|_| ended) {
                return known.answer_to(request).map(Some);
            }
            if !self.is_parked_with(request.lease) {
                return Err(lost);
            }
        }
        if let Some(known) = known {
            return known.answer_to(request).map(Some);
        }
        if request.base != self.exec.base {
            return Err(Error::new(
                Code::OutOfOrder,
                format!("a commit follows commit {}, but the last one is {}", request.base, self.exec.base),
            )
            .with("base", request.base)
            .with("last", self.exec.base));
        }
        if request.batch.segment != self.exec.segment {
            return Err(Error::new(
                Code::OutOfOrder,
                format!("a commit is for segment {}, but the run is in {}", request.batch.segment, self.exec.segment),
            ));
        }
        request.batch.check()?;
        Ok(None)
    }

    /// Whether this worker suspended the run and nobody has claimed it since.
    fn is_parked_with(&self, lease: Lease) -> bool {
        let open = matches!(self.exec.status, Status::Waiting | Status::Pending | Status::Cancelling);
        open && self.exec.worker.is_none() && self.exec.epoch == lease.epoch && self.parked == Some(lease.worker)
    }

    fn check_slots(&self, batch: &Batch) -> Result<()> {
        let mut named = BTreeSet::new();
        let mut places = BTreeSet::new();
        for op in &batch.ops {
            if let Some(place) = &op.once
                && (self.once_places.contains_key(place) || !places.insert(place))
            {
                return Err(invalid(format!("the op {} of `once` {:?} was recorded before", place.n, place.name)));
            }
            let slot = Slot { segment: batch.segment, sequence: op.sequence };
            let there = self.ops.get(&slot).or_else(|| self.inherited.ops.get(&slot));
            if let Some(there) = there {
                return Err(Error::new(
                    Code::SlotTaken,
                    format!("the slot {slot} was given to {} and cannot be given to {}", there.label, op.label),
                )
                .with("slot", slot));
            }
            if !named.insert(slot) {
                return Err(
                    Error::new(Code::SlotTaken, format!("a commit names the slot {slot} twice")).with("slot", slot)
                );
            }
        }
        Ok(())
    }

    fn check_consumed(&self, batch: &Batch) -> Result<()> {
        let mut taken = BTreeMap::new();
        for consumed in &batch.consumed {
            let number = State::signal_number(self, consumed.signal)?;
            let by = self.signals.get(&number).and_then(|signal| signal.consumed_by);
            // Ops that this batch orphans give their signals back first.
            let by = by.filter(|by| by.segment != batch.segment || !batch.orphaned.contains(&by.sequence));
            let by = taken.insert(consumed.signal, consumed.by).or(by);
            if by.is_some_and(|by| by != consumed.by) {
                return Err(Error::new(
                    Code::InvalidTransition,
                    format!("the signal {} is already consumed by another op", consumed.signal),
                ));
            }
        }
        Ok(())
    }

    /// A checkpoint needs every task that does not outlive its segment to have ended.
    fn check_quiet(&self, batch: &Batch) -> Result<()> {
        if !matches!(batch.end, BatchEnd::Checkpoint(_)) {
            return Ok(());
        }
        let open = self.open_after(batch, |options| !options.detached);
        if open.is_empty() {
            return Ok(());
        }
        let label = |slot: &Slot| {
            let own = self.ops.get(slot).map(|op| &op.label);
            let new = batch.ops.iter().find(|op| op.sequence == slot.sequence).map(|op| &op.label);
            own.or(new).map_or_else(|| slot.to_string(), |label| format!("{slot} {label}"))
        };
        let names: Vec<_> = open.iter().map(label).collect();
        Err(Error::new(
            Code::OpenOperations,
            format!("a checkpoint needs every op to be settled, but these are open: {}", names.join(", ")),
        )
        .with("operations", names.join(", ")))
    }

    /// Refuses a batch after which the run would have more open tasks than it may.
    fn check_open(&self, batch: &Batch) -> Result<()> {
        let all = self.tasks.len() + batch.ops.len();
        if all <= Batch::MOST_OPEN || !batch.calls_tasks() || self.open_after(batch, |_| true).len() <= Batch::MOST_OPEN
        {
            return Ok(());
        }
        Err(too_many_open(self.exec.new.id))
    }

    /// The tasks that are open after a batch, of those whose options `counts` accepts.
    fn open_after(&self, batch: &Batch, counts: impl Fn(&TaskOptions) -> bool) -> BTreeSet<Slot> {
        let slot = |sequence| Slot { segment: batch.segment, sequence };
        let there = |slot: &&Slot| self.tasks.get(slot).is_some_and(|row| counts(&row.task.new.options));
        let mut open: BTreeSet<Slot> = self.open.iter().filter(there).copied().collect();
        let new =
            |op: &NewOp| matches!(&op.body, OpBody::Task(task) if counts(&task.options)).then(|| slot(op.sequence));
        open.extend(batch.ops.iter().filter_map(new));
        let orphaned: BTreeSet<Slot> = batch.orphaned.iter().copied().map(slot).collect();
        open.retain(|place| !orphaned.contains(place) && !self.ends_in(batch, *place));
        open
    }

    /// Whether the batch reports the end of a task's current attempt, and that attempt ends the task: no other one
    /// follows.
    fn ends_in(&self, batch: &Batch, place: Slot) -> bool {
        let Some((_, index)) = self.reported_attempt(batch, place) else { return false };
        let result = batch.attempts[index].result.clone();
        let verdict = match self.tasks.get(&place) {
            Some(row) => after_attempt(&row.task, result),
            None => {
                let new = batch.ops.iter().find_map(|op| match &op.body {
                    OpBody::Task(task) if op.sequence == place.sequence => Some(task.clone()),
                    _ => None,
                });
                let Some(new) = new else { return false };
                let mut scratch = Run::new(self.exec.clone());
                scratch.add_task(place, new, Timestamp::default());
                match scratch.tasks.get(&place) {
                    Some(row) => after_attempt(&row.task, result),
                    None => return false,
                }
            }
        };
        matches!(verdict, Verdict::Complete(_) | Verdict::Fail(_) | Verdict::Cancel)
    }

    /// The number of the attempt that a task is at after the batch's ops and restarts, and the index of the report of
    /// its end in the batch. None if the batch does not report it.
    fn reported_attempt(&self, batch: &Batch, place: Slot) -> Option<(u32, usize)> {
        if place.segment != batch.segment {
            return None;
        }
        let attempt = match self.tasks.get(&place) {
            Some(row) if !row.can_end() => return None,
            Some(row) if batch.restarted.contains(&(place.sequence, row.task.attempt + 1)) && row.runs_inline() => {
                row.task.attempt + 1
            }
            Some(row) => row.task.attempt,
            None => 1,
        };
        let index =
            batch.attempts.iter().position(|report| report.sequence == place.sequence && report.attempt == attempt)?;
        Some((attempt, index))
    }

    fn apply(
        &mut self,
        request: CommitRequest,
        depths: BTreeMap<EntryId, u32>,
        state_hash: [u8; 32],
        now: Timestamp,
    ) -> CommitAnswer {
        let CommitRequest { lease, request_id, digest, known, batch, .. } = request;
        let before = self.high;
        let slot = |sequence| Slot { segment: batch.segment, sequence };

        let taken_up = self.is_parked_with(lease);
        if taken_up {
            self.parked = None;
            self.prefer_until = None;
            if self.exec.status != Status::Cancelling {
                self.exec.status = Status::Running;
            }
            self.exec.wait = None;
            self.exec.worker = Some(lease.worker);
            self.exec.lease_expires = Some(now.after(self.ttl));
        }
        self.exec.base += 1;
        self.exec.losses = 0;
        if !self.exec.new.persistence.keeps_journal() && !batch.end.is_terminal() {
            self.exec.new.persistence = Persistence::Full;
        }
        self.exec.updated_at = now;
        // A task that starts and ends in this batch has one event, that of its end.
        let silent: BTreeSet<Slot> = batch
            .ops
            .iter()
            .map(|op| slot(op.sequence))
            .chain(batch.restarted.iter().map(|(sequence, _)| slot(*sequence)))
            .filter(|place| self.reported_attempt(&batch, *place).is_some())
            .collect();
        let over = self.will_be_over(&batch);
        for op in &batch.ops {
            let depth = match &op.body {
                OpBody::Entry(entry) => depths.get(&entry.id).copied().unwrap_or(0),
                _ => 0,
            };
            self.write_op(slot(op.sequence), op, depth, &silent, now);
        }
        for &(sequence, attempt) in &batch.restarted {
            self.restart(slot(sequence), attempt, silent.contains(&slot(sequence)), now);
        }
        for report in &batch.attempts {
            let place = slot(report.sequence);
            let Some(row) = self.tasks.get_mut(&place) else { continue };
            if row.can_end() && row.task.attempt == report.attempt {
                if row.runs_inline() {
                    let length = i64::try_from(report.duration.as_micros()).unwrap_or(i64::MAX);
                    row.task.started_at = Some(Timestamp(now.0.saturating_sub(length)));
                }
                self.end_reported(place, report, now);
            }
        }
        for &(sequence, new_count) in &batch.read_counts {
            if let Some(RecordedBody::Read { count, .. }) = self.ops.get_mut(&slot(sequence)).map(|op| &mut op.body) {
                *count = new_count;
            }
        }
        for &sequence in &batch.orphaned {
            self.orphan(slot(sequence), now);
        }
        for consumed in &batch.consumed {
            let number = self.signal_ids.get(&consumed.signal);
            if let Some(signal) = number.and_then(|number| self.signals.get_mut(number)) {
                signal.consumed_by = Some(consumed.by);
            }
        }
        for &sequence in &batch.disarmed {
            self.disarm(slot(sequence));
        }
        for event in batch.events {
            self.emit(now, event.kind, event.sequence.map(slot), event.data);
        }
        if let Some(code) = batch.code {
            self.exec.code = Some(code);
        }

        let pause = over.or_else(|| {
            let quarantined = self.has_open(TaskStatus::Quarantined) && self.exec.status == Status::Running;
            quarantined.then_some(WaitReason::Quarantined)
        });
        let (committed, paused) = self.end(batch.end, pause, (before, known), state_hash, now);
        if taken_up && self.exec.worker.is_some() {
            self.emit_resumed(now);
        }
        let answer = CommitAnswer {
            number: self.exec.base,
            committed,
            facts: self.facts_after(known, None),
            high: self.high,
            now,
            cancel: self.exec.cancel.map(|(cancel, _)| cancel),
            paused,
            purse: None,
        };
        let row = RequestRow { epoch: lease.epoch, digest, answer: answer.clone() };
        self.requests.insert(request_id, row);
        answer
    }

    /// The limit of the run that the ops of a batch reach, if any.
    fn will_be_over(&self, batch: &Batch) -> Option<WaitReason> {
        if self.exec.status != Status::Running {
            return None;
        }
        let steps = batch.ops.iter().filter(|op| matches!(op.body, OpBody::StepMark)).count();
        let total = self.exec.step_count.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if steps > 0 && self.exec.step_limit.is_some_and(|limit| total > limit) {
            return Some(WaitReason::StepLimit);
        }
        let stateless = self.exec.segment == 0 && !matches!(batch.end, BatchEnd::Checkpoint(_));
        let tail = self.top() as usize + batch.ops.len();
        let long = !batch.ops.is_empty() && tail >= self.exec.tail_limit as usize;
        (stateless && long).then_some(WaitReason::TailLimit)
    }

    fn write_op(&mut self, slot: Slot, op: &NewOp, depth: u32, silent: &BTreeSet<Slot>, now: Timestamp) {
        let body = match &op.body {
            OpBody::Entry(new) => {
                self.append_entry(slot, new.clone(), depth, now);
                RecordedBody::Entry { id: new.id, parent: new.parent, thread: new.thread.clone() }
            }
            OpBody::Task(new) => {
                self.add_task(slot, new.clone(), now);
                let inline = new.placement == Placement::Inline;
                if !inline {
                    self.emit_task(slot, EventKind::TaskScheduled, json!({}), now);
                } else if !silent.contains(&slot) {
                    self.emit_task(slot, EventKind::TaskStarted, json!({}), now);
                }
                RecordedBody::Task {
                    id: new.id,
                    status: TaskStatus::Pending,
                    attempt: 0,
                    inline,
                    at_most_once: new.options.side_effects == SideEffects::AtMostOnce,
                    detached: new.options.detached,
                    max_losses: new.options.max_losses,
                }
            }
            OpBody::Signal { timeout } => {
                if let Some(timeout) = timeout {
                    self.timers.insert(slot, now.after(*timeout));
                }
                RecordedBody::Signal
            }
            OpBody::Timer { duration } => {
                self.timers.insert(slot, now.after(*duration));
                RecordedBody::Timer
            }
            OpBody::Child(child) => RecordedBody::Child { id: child.id },
            OpBody::Read { answer, count } => RecordedBody::Read { answer: answer.clone(), count: *count },
            OpBody::Abandon { target } => RecordedBody::Abandon { target: *target },
            OpBody::Attach { task } => RecordedBody::Attach { task: *task },
            OpBody::Usage { model, usage } => {
                self.exec.usage.add(model, usage);
                self.emit(now, EventKind::Usage, Some(slot), json!({ "model": model, "usage": usage }));
                RecordedBody::Usage
            }
            OpBody::StepMark => {
                self.exec.step_count = self.exec.step_count.saturating_add(1);
                RecordedBody::StepMark
            }
            OpBody::Send(message) => RecordedBody::Send(message.sent()),
            OpBody::Flush => RecordedBody::Flush,
            OpBody::Once { digest, value } => {
                let name = op.once.as_ref().map_or(&op.label.name, |once| &once.name).clone();
                let result = OnceResult { name: name.clone(), digest: *digest, value: value.clone() };
                self.once.insert(name, result);
                RecordedBody::Once { value: value.clone() }
            }
        };
        let recorded = RecordedOp {
            segment: slot.segment,
            sequence: op.sequence,
            once: op.once.clone(),
            label: op.label.clone(),
            seen: op.seen.clone(),
            body,
        };
        self.once_places.extend(op.once.clone().map(|place| (place, slot)));
        self.ops.insert(slot, recorded);
    }

    /// Counts a lost inline attempt, which the holder of this claim starts again. At the limit of losses the task is
    /// quarantined.
    fn restart(&mut self, slot: Slot, attempt: u32, silent: bool, now: Timestamp) {
        let (worker, epoch) = (self.exec.worker, self.exec.epoch);
        let row = self.tasks.get_mut(&slot).filter(|row| row.runs_inline() && row.task.attempt + 1 == attempt);
        let Some(row) = row else { return };
        if !silent && crate::journal::retry::after_loss(&row.task) == Verdict::Quarantine {
            return self.lose_attempt(slot, now);
        }
        row.task.attempt = attempt;
        row.task.losses += 1;
        row.task.worker = worker;
        row.task.started_at = Some(now);
        row.epoch = epoch;
        if !silent {
            self.emit_task(slot, EventKind::TaskStarted, json!({}), now);
        }
    }

    fn orphan(&mut self, slot: Slot, now: Timestamp) {
        self.disarm(slot);
        for signal in self.signals.values_mut().filter(|signal| signal.consumed_by == Some(slot)) {
            signal.consumed_by = None;
        }
        self.cancel_task(slot, now);
    }

    /// The end of a batch. `pause` is a limit that was reached. `seen` has the run's highest number before the batch,
    /// and the highest one that the sender knows: if a fact lies between them, the sender must not suspend, since it
    /// may be what it waits for.
    fn end(
        &mut self,
        end: BatchEnd,
        pause: Option<WaitReason>,
        seen: (u64, u64),
        state_hash: [u8; 32],
        now: Timestamp,
    ) -> (Committed, Option<WaitReason>) {
        let cancelling = self.exec.status == Status::Cancelling;
        match end {
            BatchEnd::Complete(output) => self.complete(now, output),
            BatchEnd::Fail(failure) => self.fail(now, failure),
            BatchEnd::Cancelled(output) => self.cancelled(now, output, "agent"),
            BatchEnd::Pause { .. } if cancelling => self.cancelled(now, None, "graceful"),
            BatchEnd::Pause { reason, failure } => self.pause(now, reason, failure),
            BatchEnd::Checkpoint(new) => {
                self.checkpoint(new, state_hash, now);
                return self.go_on(pause, now);
            }
            BatchEnd::HandOff { to, immediate } if pause.is_none() && !cancelling && self.children.contains(&to) => {
                self.hand_off(now, to, immediate);
            }
            BatchEnd::Continue | BatchEnd::HandOff { .. } => return self.go_on(pause, now),
            BatchEnd::Suspend(_) if pause.is_some() => return self.go_on(pause, now),
            BatchEnd::Suspend(wait) => {
                let (before, known) = seen;
                let newer = self.facts.range(known.saturating_add(1)..).next();
                if newer.is_some_and(|(number, _)| *number <= before) {
                    return (Committed::Continue, None);
                }
                self.suspend(wait, now);
                return (Committed::Suspended, None);
            }
        }
        (Committed::Finished(self.exec.status), None)
    }

    fn go_on(&mut self, pause: Option<WaitReason>, now: Timestamp) -> (Committed, Option<WaitReason>) {
        match pause {
            None => return (Committed::Continue, None),
            Some(WaitReason::Quarantined) => self.quarantine(now),
            Some(reason) => self.pause(now, reason, None),
        }
        (Committed::Finished(self.exec.status), pause)
    }

    fn suspend(&mut self, wait: Wait, now: Timestamp) {
        if self.exec.status == Status::Running {
            self.exec.status = Status::Waiting;
        }
        self.parked = self.exec.worker;
        self.clear_holder();
        self.exec.wait = Some(wait);
        self.review_wait();
        let wait = self.exec.wait.clone().unwrap_or_default();
        let data = json!({ "reason": wait.reason, "signals": wait.signals, "timers": wait.timers });
        self.emit(now, EventKind::Waiting, None, data);
    }

    fn checkpoint(&mut self, saved: NewCheckpoint, state_hash: [u8; 32], now: Timestamp) {
        let sequence = self.exec.segment + 1;
        let usage = self.exec.usage.clone();
        let hash = Checkpoint::content_hash(sequence, &state_hash, &saved.leaves, &usage);
        let execution = self.exec.new.id;
        self.checkpoints.insert(sequence, Checkpoint { execution, sequence, saved, usage, hash, created_at: now });
        self.disarmed.append(&mut self.timers);
        self.exec.segment = sequence;
        self.emit(now, EventKind::Checkpoint, None, json!({ "sequence": sequence }));
    }
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}
