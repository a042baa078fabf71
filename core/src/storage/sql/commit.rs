//! A commit: the fence, then the batch in the contract's order, then its end and the answer, in one transaction.
//!
//! The usual step reads its run and the run's last event, and writes two rows (task, event). On PostgreSQL the reads
//! came with the lock, and the rows travel with the COMMIT. A check may come after some of the writes, where its data
//! is at hand: whoever runs the transaction undoes it when the commit is refused.

use super::budgets;
use super::family;
use super::hand_off::{can_hand_off, hand_off};
use super::log::Log;
use super::messages;
use super::op;
use super::request::Request;
use super::run::{Ending, Run};
use super::segment::inherited;
use super::tail::Recorded;
use super::task::TaskRow;
use super::values::micros;
use super::{CheckpointRow, Statements};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{Slot, WorkerId};
use crate::journal::retry::{Verdict, after_loss};
use crate::model::{
    AttemptReport, Batch, BatchEnd, Checkpoint, CommitAnswer, CommitRequest, Committed, Consumed, EventKind, Fact,
    NewCheckpoint, NewOp, OpBody, Persistence, Placement, Status, TaskStatus, WaitReason,
};
use crate::storage::limits::{may_open_too_many, too_many_open};
use serde_json::json;
use std::time::Duration;

/// Makes a batch durable. The order of checks is part of the contract: lease, then request id, then base (rule 2).
pub(in crate::storage) fn commit<T: Statements>(tx: &T, request: &CommitRequest) -> Result<CommitAnswer, T::Fault> {
    let mut run = tx.find_run(request.org, request.execution)?;
    let regained = match run.check_lease(request.lease) {
        Ok(()) => false,
        Err(lost) => {
            if run.worker.is_some() || run.epoch != request.lease.epoch {
                return Err(lost.into());
            }
            // The sender's last commit may itself have ended the lease, by suspending or ending the run, and its answer
            // was lost. The same request still gets its answer, unless somebody else has claimed the run since.
            if let Some(known) = tx.request_of(&run, request.request_id)? {
                return known_answer(tx, &run, &known, request);
            }
            // A parked copy may go on by itself and commit without a claim, as long as nobody else has claimed the run.
            let open = matches!(run.status, Status::Waiting | Status::Pending | Status::Cancelling);
            if !open || run.last_worker != Some(request.lease.worker) {
                return Err(lost.into());
            }
            true
        }
    };
    let (before, last) = tx.last_request(&run)?;
    let base = last.as_ref().map_or(run.base, |last| last.number);
    if base != request.base || last.as_ref().is_some_and(|last| last.id == request.request_id) {
        if let Some(known) = tx.request_of(&run, request.request_id)? {
            return known_answer(tx, &run, &known, request);
        }
        return Err(Error::new(
            Code::OutOfOrder,
            format!("a commit follows commit {}, but the last one is {base}", request.base),
        )
        .with("base", request.base)
        .with("last", base)
        .into());
    }
    let batch = &request.batch;
    if batch.segment != run.segment {
        return Err(Error::new(
            Code::OutOfOrder,
            format!("a commit is for segment {}, but the run is in {}", batch.segment, run.segment),
        )
        .into());
    }
    batch.check()?;
    let saved = (run.leaf, run.step_count, run.losses);
    let (quarantined, children) = (run.quarantined, run.children);
    if regained {
        if run.status != Status::Cancelling {
            if !tx.take_slot(&mut run)? {
                let why = "another run of its concurrency key is RUNNING; drop the work";
                let message = format!("the run {} cannot go on here: {why}", run.id);
                return Err(Error::new(Code::LeaseLost, message).into());
            }
            run.status = Status::Running;
        }
        run.wait = None;
        run.prefer_until = None;
        run.worker = Some(request.lease.worker);
        run.lease_expires = Some(tx.now().0.saturating_add(run.lease_ttl));
    }
    run.losses = 0;
    let kept = run.persistence.keeps_journal() || batch.end.is_terminal();
    if !kept {
        run.persistence = Persistence::Full;
    }

    let mut log = Log::of_commit(tx, &run, before);
    // As of the last commit, `fact_high` is the number of the latest fact, and `seen` that of the latest event. If the
    // sender knows all facts up to then, only events after `seen` can hold facts that it lacks.
    let (mut fact_high, seen) = last.as_ref().map_or((run.fact_high, 0), |last| (last.fact_high, last.high));
    let after = if request.known >= fact_high { request.known.max(seen) } else { request.known };
    let mut found = if after < before { tx.facts(&run, after, before, None)? } else { Vec::new() };

    let top = last.as_ref().map_or(run.top, |last| last.top.max(run.top));
    let over = run.limit_reached(batch, top);
    let stopped = budgets::draw(tx, &mut run, &mut log, batch)?;
    let (stops, over) = (stopped.is_some(), over.filter(|_| stopped.is_none()));
    let mut told = family::bear_children(tx, &mut run, &mut log, request)?;
    told.extend(messages::deliver(tx, &mut run, &mut log, batch)?);
    told.extend(messages::check_answers(tx, &mut run, &mut log, batch)?);
    told.splice(0..0, stopped);
    let news = !told.is_empty() || found.iter().any(|fact| fact.number > request.known);
    found.extend(told);
    let mut writing = Writing { tx, run, log, batch, number: base + 1, top, found, silent: Vec::new() };
    writing.apply()?;
    writing.check_open()?;
    let (committed, paused) = writing.end(over, news, regained, request.lease.worker)?;

    let Writing { run, log, top, found, .. } = writing;
    if let Some(fact) = found.last() {
        fact_high = fact_high.max(fact.number);
    }
    let moved = regained
        || stops
        || !kept
        || (quarantined, children) != (run.quarantined, run.children)
        || !matches!((committed, &batch.end), (Committed::Continue, BatchEnd::Continue | BatchEnd::Suspend(_)));
    if moved {
        run.save(tx)?;
    } else if saved != (run.leaf, run.step_count, run.losses) || batch.code.is_some() {
        tx.save_progress(&run)?;
    }
    let row = Request {
        number: base + 1,
        id: request.request_id,
        digest: request.digest,
        top,
        known: request.known,
        high: log.high,
        fact_high,
        committed,
        paused,
        at: tx.now(),
    };
    let high = log.high;
    log.record(&row, last.as_ref())?;
    Ok(CommitAnswer {
        number: row.number,
        committed,
        facts: found,
        high,
        now: tx.now(),
        cancel: run.stop.map(|stop| stop.cancellation),
        paused,
        purse: budgets::told(tx, &run, batch)?,
    })
}

fn known_answer<T: Statements>(
    tx: &T,
    run: &Run<T::Home>,
    known: &Request,
    request: &CommitRequest,
) -> Result<CommitAnswer, T::Fault> {
    if known.digest == request.digest {
        return Ok(CommitAnswer { purse: budgets::told(tx, run, &request.batch)?, ..known.answer(tx, run)? });
    }
    Err(Error::new(
        Code::OutOfOrder,
        format!("the request {} was made before with another content", request.request_id),
    )
    .into())
}

/// A batch on its way into the rows.
struct Writing<'a, T: Statements> {
    tx: &'a T,
    run: Run<T::Home>,
    log: Log<'a, T>,
    batch: &'a Batch,
    /// The number of this commit.
    number: u64,
    /// The next free sequence.
    top: u32,
    /// Facts that the sender does not know, those of the batch itself included.
    found: Vec<Fact>,
    /// New tasks whose first attempt also ends in this batch. They are written once, with their end, and have no event
    /// of their start.
    silent: Vec<(TaskRow<T::Place>, &'a NewOp)>,
}

impl<'a, T: Statements> Writing<'a, T> {
    fn apply(&mut self) -> Result<(), T::Fault> {
        let batch = self.batch;
        for op in &batch.ops {
            self.write_op(op)?;
        }
        for &(sequence, attempt) in &batch.restarted {
            self.restart(sequence, attempt)?;
        }
        for report in &batch.attempts {
            self.end_attempt(report)?;
        }
        for &(sequence, count) in &batch.read_counts {
            self.tx.count_reads(T::place(&self.run, sequence)?, count)?;
        }
        for &sequence in &batch.orphaned {
            self.orphan(sequence)?;
        }
        for consumed in &batch.consumed {
            self.consume(consumed)?;
        }
        for &sequence in &batch.disarmed {
            self.tx.disarm(T::place(&self.run, sequence)?)?;
        }
        for event in &batch.events {
            match event.sequence {
                Some(sequence) => self.log.about(event.kind, self.slot(sequence), event.data.to_string())?,
                None => self.log.event(event.kind, &event.data)?,
            };
        }
        if let Some(code) = &batch.code {
            self.run.code = Some(code.clone());
        }
        Ok(())
    }

    /// Errors: `LimitReached` if the run has more open tasks after the batch than it may.
    fn check_open(&self) -> Result<(), T::Fault> {
        let over =
            may_open_too_many(self.batch, self.log.high) && self.tx.has_more_open(&self.run, Batch::MOST_OPEN)?;
        if over { Err(too_many_open(self.run.id).into()) } else { Ok(()) }
    }

    fn slot(&self, sequence: u32) -> Slot {
        Slot { segment: self.batch.segment, sequence }
    }

    fn write_op(&mut self, op: &'a NewOp) -> Result<(), T::Fault> {
        let slot = self.slot(op.sequence);
        if op.sequence < self.top {
            self.check_free(slot, op)?;
        }
        self.top = self.top.max(op.sequence.saturating_add(1));
        let (tx, run, log) = (self.tx, &mut self.run, &mut self.log);
        match &op.body {
            OpBody::Entry(new) => return op::append(tx, run, log, slot, op, new),
            OpBody::Task(new) => {
                let place = T::place(run, op.sequence)?;
                let mut task = TaskRow::new(run, T::org(&run.home), place, slot, new, tx.now());
                if new.is_for_parent() {
                    // A fork of a child has no parent: its own workers have to do.
                    let whose = run.parent.unwrap_or(run.id);
                    task.task.new.queue = tx.execution_of(T::org(&run.home), whose)?.new.queue;
                }
                let ends = |report: &AttemptReport| report.sequence == op.sequence && report.attempt == 1;
                if new.placement == Placement::Queue {
                    task.emit(run, log, EventKind::TaskScheduled, json!({}))?;
                } else if self.batch.attempts.iter().any(ends) {
                    self.silent.push((task, op));
                    return Ok(());
                } else {
                    task.emit(run, log, EventKind::TaskStarted, json!({}))?;
                }
                return task.insert(tx, run, op);
            }
            OpBody::Usage { model, usage } => {
                let mut totals = tx.usage(run)?;
                totals.add(model, usage);
                tx.put_usage(run, &totals)?;
                log.about(EventKind::Usage, slot, json!({ "model": model, "usage": usage }).to_string())?;
            }
            OpBody::StepMark => run.step_count = run.step_count.saturating_add(1),
            _ => {}
        }
        op::insert(tx, run, slot, op)
    }

    /// Refuses an op whose slot another op has: one of this batch, of the run, or of the parent that the run was forked
    /// from.
    fn check_free(&self, slot: Slot, op: &NewOp) -> Result<(), T::Fault> {
        let silent = self.silent.iter().find(|(task, _)| task.task.slot == slot).map(|(_, op)| op.label.clone());
        let place = T::place(&self.run, slot.sequence)?;
        let mut there = silent.map_or_else(|| self.tx.label_at(place), |label| Ok(Some(label)))?;
        if there.is_none() && self.run.forked {
            let inherited = inherited(self.tx, T::key(&self.run.home))?.ops;
            let same = |op: &Recorded| op.slot() == slot;
            there = inherited.into_iter().find(same).map(|op| op.op.label);
        }
        match there {
            None => Ok(()),
            Some(there) => Err(Error::new(
                Code::SlotTaken,
                format!("the slot {slot} was given to {there} and cannot be given to {}", op.label),
            )
            .with("slot", slot)
            .into()),
        }
    }

    /// Counts a lost inline attempt, which the holder of this claim starts again. At the limit of losses the task is
    /// quarantined.
    fn restart(&mut self, sequence: u32, attempt: u32) -> Result<(), T::Fault> {
        let Some(mut row) = self.inline(sequence, attempt.wrapping_sub(1))? else { return Ok(()) };
        let silent = self.batch.attempts.iter().any(|report| report.sequence == sequence && report.attempt == attempt);
        if !silent && after_loss(&row.task) == Verdict::Quarantine {
            return row.lose_attempt(&mut self.run, &mut self.log);
        }
        row.task.attempt = attempt;
        row.task.losses += 1;
        row.task.worker = self.run.worker;
        row.task.started_at = Some(self.tx.now());
        row.epoch = self.run.epoch;
        if !silent {
            row.emit(&self.run, &mut self.log, EventKind::TaskStarted, json!({}))?;
        }
        row.save(self.tx)
    }

    fn inline(&self, sequence: u32, attempt: u32) -> Result<Option<TaskRow<T::Place>>, T::Fault> {
        let row = self.tx.task_at(T::place(&self.run, sequence)?)?;
        Ok(row.filter(|row| row.runs_inline() && row.task.attempt == attempt))
    }

    fn end_attempt(&mut self, report: &AttemptReport) -> Result<(), T::Fault> {
        let (tx, run, log) = (self.tx, &mut self.run, &mut self.log);
        let started = |length: Duration| Timestamp(tx.now().0.saturating_sub(micros(length)));
        let silent = self.silent.iter().position(|(task, _)| task.task.slot.sequence == report.sequence);
        if let Some(index) = silent.filter(|_| report.attempt == 1) {
            let (mut task, op) = self.silent.swap_remove(index);
            task.task.started_at = Some(started(report.duration));
            self.found.extend(task.end_reported(run, log, report)?);
            return task.insert(tx, run, op);
        }
        let Some(mut row) = tx.task_at(T::place(run, report.sequence)?)? else { return Ok(()) };
        if !row.can_end() || row.task.attempt != report.attempt {
            return Ok(());
        }
        if row.runs_inline() {
            row.task.started_at = Some(started(report.duration));
        }
        self.found.extend(row.end_reported(run, log, report)?);
        row.save(tx)
    }

    fn consume(&self, consumed: &Consumed) -> Result<(), T::Fault> {
        match self.tx.consumer(&self.run, consumed.signal)? {
            None => Err(Error::new(
                Code::InvalidArgument,
                format!("the run {} has no signal {} to consume", self.run.id, consumed.signal),
            )
            .into()),
            Some(Some(by)) if consumed.by != by => Err(Error::new(
                Code::InvalidTransition,
                format!("the signal {} is already consumed by another op", consumed.signal),
            )
            .into()),
            Some(Some(_)) => Ok(()),
            Some(None) => self.tx.consume(&self.run, consumed.signal, consumed.by, self.number),
        }
    }

    fn orphan(&mut self, sequence: u32) -> Result<(), T::Fault> {
        let place = T::place(&self.run, sequence)?;
        self.tx.disarm(place)?;
        self.tx.give_back(&self.run, self.slot(sequence), self.number)?;
        if let Some(mut task) = self.tx.task_at(place)?.filter(|task| !task.task.status.is_terminal()) {
            task.cancel(&mut self.run, &mut self.log)?;
            self.found.extend(task.fact());
        }
        if self.run.children > 0
            && let Some(child) = self.tx.child_at(place)?
        {
            self.run.give_child_up(self.tx, child)?;
        }
        Ok(())
    }

    /// The end of the batch. `over` is a limit that was reached. `news` tells that there are facts from before the
    /// batch which the sender does not know: then it must not suspend, since one of them may be what it waits for.
    fn end(
        &mut self,
        over: Option<WaitReason>,
        news: bool,
        regained: bool,
        sender: WorkerId,
    ) -> Result<(Committed, Option<WaitReason>), T::Fault> {
        let (tx, run, log) = (self.tx, &mut self.run, &mut self.log);
        let mut pause = over;
        if pause.is_none() && run.quarantined && run.status == Status::Running {
            run.quarantined = tx.has_open(run, TaskStatus::Quarantined)?;
            pause = run.quarantined.then_some(WaitReason::Quarantined);
        }
        match &self.batch.end {
            BatchEnd::Complete(output) => self.found.extend(run.finish(log, Ending::Completed(output))?),
            BatchEnd::Fail(failure) => self.found.extend(run.finish(log, Ending::Failed(failure))?),
            BatchEnd::Cancelled(output) => {
                self.found.extend(run.finish(log, Ending::Cancelled(output.as_ref(), "agent"))?);
            }
            BatchEnd::Pause { .. } if run.status == Status::Cancelling => {
                self.found.extend(run.finish(log, Ending::Cancelled(None, "graceful"))?);
            }
            BatchEnd::Pause { reason, failure } => run.pause(log, *reason, failure.as_ref())?,
            BatchEnd::Checkpoint(new) => {
                checkpoint(tx, run, log, self.top, new)?;
                self.top = 0;
                return self.go_on(pause, regained);
            }
            BatchEnd::HandOff { to, immediate } if pause.is_none() && can_hand_off(tx, run, *to)? => {
                self.found.extend(hand_off(run, log, *to, *immediate)?);
            }
            BatchEnd::HandOff { .. } => return self.go_on(pause, regained),
            BatchEnd::Suspend(wait) if pause.is_none() && !news => {
                run.suspend(log, wait, sender)?;
                return Ok((Committed::Suspended, None));
            }
            BatchEnd::Continue | BatchEnd::Suspend(_) => return self.go_on(pause, regained),
        }
        Ok((Committed::Finished(run.status), None))
    }

    fn go_on(
        &mut self,
        pause: Option<WaitReason>,
        regained: bool,
    ) -> Result<(Committed, Option<WaitReason>), T::Fault> {
        let (run, log) = (&mut self.run, &mut self.log);
        match pause {
            None => {
                if regained {
                    let worker = run.worker.map(|worker| worker.to_string());
                    log.event(EventKind::Resumed, &json!({ "epoch": run.epoch, "worker": worker }))?;
                }
                return Ok((Committed::Continue, None));
            }
            Some(WaitReason::Quarantined) => {
                run.quarantine(log)?;
            }
            Some(reason) => run.pause(log, reason, None)?,
        }
        // The caller writes the run's row. A pause ends the sender's lease.
        Ok((Committed::Finished(run.status), pause))
    }
}

/// Ends the segment with a checkpoint, and begins the next one.
fn checkpoint<T: Statements>(
    tx: &T,
    run: &mut Run<T::Home>,
    log: &mut Log<'_, T>,
    ops: u32,
    saved: &NewCheckpoint,
) -> Result<(), T::Fault> {
    let open = tx.open_attached(run)?;
    if !open.is_empty() {
        let mut names = Vec::with_capacity(open.len());
        for row in &open {
            let label = tx.label_at(row.place)?.map(|label| label.to_string()).unwrap_or_default();
            names.push(format!("{} {label}", row.task.slot));
        }
        let names = names.join(", ");
        return Err(Error::new(
            Code::OpenOperations,
            format!("a checkpoint needs every op to be settled, but these are open: {names}"),
        )
        .with("operations", names)
        .into());
    }
    let sequence = run.segment + 1;
    let usage = tx.usage(run)?;
    let hash = Checkpoint::content_hash(sequence, &saved.state.settled_hash(), &saved.leaves, &usage);
    let row = CheckpointRow { sequence, ops, saved, usage: &usage, hash: &hash, created_at: tx.now() };
    store_checkpoint(tx, run, row)?;
    tx.disarm_all(run)?;
    run.segment = sequence;
    T::advance(&mut run.home, ops);
    run.top = 0;
    log.segment = sequence;
    log.event(EventKind::Checkpoint, &json!({ "sequence": sequence }))?;
    Ok(())
}

/// Writes a checkpoint with its state.
pub(in crate::storage) fn store_checkpoint<T: Statements>(
    tx: &T,
    run: &Run<T::Home>,
    row: CheckpointRow<'_>,
) -> Result<(), T::Fault> {
    tx.refer(run, &row.saved.state)?;
    tx.put_checkpoint(run, row)
}
