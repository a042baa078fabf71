//! The row of a run in memory: the columns that commands decide by, and the transitions that several commands share.
//!
//! A transition changes the row in memory and writes its event. The caller writes the row, with [`Run::save`].

use super::budgets;
use super::family::tell_parent;
use super::log::Log;
use super::tail::Point;
use super::values::{micros, text_of};
use super::{Dialect, Runs, Statements};
use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{EntryId, ExecutionId, WorkerId};
use crate::journal::retry::{MAX_LOSSES, quarantined, run_quarantined};
use crate::model::{
    Batch, BatchEnd, Cancellation, EventKind, Fact, FactKind, Failure, Lease, NewExecution, OpBody, Overrun,
    Persistence, SharedContext, Status, Task, TaskStatus, Wait, WaitReason, runners,
};
use crate::payload::Payload;
use crate::storage::limits::DEFAULT_TAIL;
use crate::storage::{ClaimRequest, PREFERENCE};
use serde_json::{Value, json};

/// A stop that was asked for.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct Stop {
    /// The number of its fact. 0 if the run ended at once, without one.
    pub number: u64,
    pub cancellation: Cancellation,
    /// When the grace ends.
    pub until: i64,
}

impl Stop {
    /// The fact of the request, which was stored at `at`.
    pub(in crate::storage) fn fact(&self, at: Timestamp) -> Fact {
        Fact { number: self.number, at, kind: FactKind::Cancel(self.cancellation) }
    }
}

/// The columns of a run's row that commands decide by.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Run<H> {
    /// Where its rows are, with what only the dialect knows of it.
    pub home: H,
    pub id: ExecutionId,
    pub status: Status,
    pub epoch: u64,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The worker that suspended it and may have it parked. Cleared by a claim.
    pub last_worker: Option<WorkerId>,
    pub lease_expires: Option<i64>,
    pub lease_ttl: i64,
    pub segment: u32,
    /// The number of the last commit of earlier epochs. That of the current epoch is on an event (`request.rs`).
    pub base: u64,
    /// The next free sequence of the segment, as of the same commit.
    pub top: u32,
    /// The number of the latest fact, as of the same commit.
    pub fact_high: u64,
    /// How many claims in a row were lost without a commit.
    pub losses: u32,
    pub step_count: u32,
    pub step_limit: Option<u32>,
    pub tail_limit: u32,
    pub leaf: Option<EntryId>,
    pub code: Option<String>,
    pub stop: Option<Stop>,
    /// When a delayed start comes.
    pub begins_at: Option<i64>,
    /// When its timeout is reached.
    pub ends_at: Option<i64>,
    /// Until when a worker must have begun it. None once one has.
    pub starts_by: Option<i64>,
    /// What it waits for, as JSON.
    pub wait: Option<String>,
    /// It may have a quarantined task.
    pub quarantined: bool,
    /// It is a fork.
    pub forked: bool,
    /// The number of the event of the last claim.
    pub claim_number: u64,
    pub concurrency_key: Option<String>,
    pub concurrency_limit: Option<u32>,
    /// Its place among the RUNNING runs of its key, on a database that several processes write: a unique index there
    /// keeps two transactions from taking the same place.
    pub concurrency_slot: u32,
    /// Until when only its last worker may claim it.
    pub prefer_until: Option<i64>,
    /// How many of its children have not ended.
    pub children: u32,
    /// How many runs are above it.
    pub depth: u32,
    /// The run that started it.
    pub parent: Option<ExecutionId>,
    /// The run at the top of its family; itself if it has no parent.
    pub root: ExecutionId,
    /// The run that it has given its work to.
    pub handed_to: Option<ExecutionId>,
    /// What it has of the budgets of its family, as JSON, as it was when the row was read. None where there are none: it
    /// has no budget, and no run above it had one when it was started.
    pub purse: Option<String>,
    /// What it was given of the conversation of its parent.
    pub shared_context: Option<SharedContext>,
    /// Whether its journal is kept.
    pub persistence: Persistence,
}

/// Where a fork comes from: its parent, and the place there.
#[derive(Debug)]
pub(in crate::storage) struct Origin<K> {
    pub parent: K,
    pub id: ExecutionId,
    pub point: Point,
}

impl<H> Run<H> {
    /// A new run, which is not stored yet.
    pub(in crate::storage) fn new(home: H, new: &NewExecution, now: Timestamp) -> Self {
        Self {
            home,
            id: new.id,
            status: Status::Pending,
            epoch: 0,
            worker: None,
            last_worker: None,
            lease_expires: None,
            lease_ttl: 0,
            segment: 0,
            base: 0,
            top: 0,
            fact_high: 0,
            losses: 0,
            step_count: 0,
            step_limit: new.limits.max_steps,
            tail_limit: new.limits.max_tail.unwrap_or(DEFAULT_TAIL),
            leaf: new.shared_context.as_ref().and_then(SharedContext::leaf),
            code: None,
            stop: None,
            begins_at: new.delay.map(|delay| now.after(delay).0),
            ends_at: new.limits.timeout.map(|timeout| now.after(timeout).0),
            starts_by: new.limits.start_timeout.map(|limit| now.after(new.delay.unwrap_or_default()).after(limit).0),
            wait: None,
            quarantined: false,
            forked: false,
            claim_number: 0,
            concurrency_key: new.concurrency_key.clone(),
            concurrency_limit: new.concurrency_limit,
            concurrency_slot: 0,
            prefer_until: None,
            children: 0,
            depth: 0,
            parent: None,
            root: new.id,
            handed_to: None,
            purse: new.limits.budget.is_some().then(|| "{}".to_owned()),
            shared_context: new.shared_context.clone(),
            persistence: new.persistence,
        }
    }

    /// Where its conversation stands, if its parent sees that.
    pub(in crate::storage) fn seen_leaf(&self) -> Option<EntryId> {
        self.leaf.filter(|_| self.shared_context.as_ref().is_some_and(SharedContext::is_seen))
    }

    /// What it waits for.
    pub(in crate::storage) fn wait(&self) -> Option<Wait> {
        self.wait.as_deref().and_then(|text| serde_json::from_str(text).ok())
    }

    /// Sets what it waits for.
    pub(in crate::storage) fn set_wait(&mut self, wait: Option<&Wait>) -> Result<(), Error> {
        self.wait = wait.map(text_of).transpose()?;
        Ok(())
    }

    /// When housekeeping must look at it next.
    pub(in crate::storage) fn due(&self, now: i64) -> Option<i64> {
        [
            self.begins_at.filter(|at| self.status == Status::Pending && *at > now),
            self.lease_expires.filter(|_| self.worker.is_some()),
            self.stop.map(|stop| stop.until).filter(|_| self.status == Status::Cancelling),
            self.ends_at.filter(|_| !self.status.is_terminal()),
            self.starts_by.filter(|_| self.status == Status::Pending),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// How many runs of its key may be RUNNING.
    pub(in crate::storage) fn key_limit(&self) -> usize {
        runners(self.concurrency_limit)
    }

    /// Whether it may be claimed now.
    pub(in crate::storage) fn is_ready(&self, now: Timestamp) -> bool {
        self.is_claimable() && self.begins_at.is_none_or(|at| at <= now.0)
    }

    /// Ends its wait. For a moment only a worker that has it parked may claim it, since there it goes on without a
    /// replay.
    pub(in crate::storage) fn end_wait(&mut self, now: Timestamp) {
        if self.last_worker.is_some() && self.wait().is_some_and(|wait| wait.parked) {
            self.prefer_until = Some(now.after(PREFERENCE).0);
        }
        self.wait = None;
    }

    /// Writes the row, and announces what follows from it.
    pub(in crate::storage) fn save<T: Runs<Home = H>>(&self, tx: &T) -> Result<(), T::Fault> {
        tx.save_run(self)?;
        self.announce(tx);
        Ok(())
    }

    /// Announces what follows from its present state: that a run can be claimed, and when housekeeping has to look.
    pub(in crate::storage) fn announce<T: Dialect<Home = H>>(&self, tx: &T) {
        // A run that is not RUNNING leaves its place of the concurrency key to another.
        let frees = self.concurrency_key.is_some() && self.status != Status::Running;
        if self.is_ready(tx.now()) || frees {
            tx.agents_ready();
        }
        if let Some(due) = self.due(tx.now().0) {
            tx.due(due);
        }
    }

    /// Hands it to a worker that claims it.
    pub(in crate::storage) fn hand_to(&mut self, claim: &ClaimRequest, now: Timestamp) {
        self.epoch += 1;
        self.worker = Some(claim.worker);
        self.last_worker = None;
        self.prefer_until = None;
        self.starts_by = None;
        self.lease_expires = Some(now.after(claim.ttl).0);
        self.lease_ttl = micros(claim.ttl);
        if self.status == Status::Pending {
            self.status = Status::Running;
        }
    }

    /// Ends the holder's lease.
    pub(in crate::storage) fn drop_holder(&mut self) {
        self.worker = None;
        self.lease_expires = None;
    }

    /// Whether a worker may claim it, apart from a delayed start.
    pub(in crate::storage) fn is_claimable(&self) -> bool {
        match self.status {
            Status::Pending => true,
            Status::Cancelling => self.worker.is_none() && self.wait.is_none(),
            _ => false,
        }
    }

    /// Why it is paused, if it is.
    pub(in crate::storage) fn pause_reason(&self) -> Option<WaitReason> {
        self.wait().filter(|_| self.status == Status::Paused).and_then(|wait| wait.reason)
    }

    /// Pauses it until somebody resumes it.
    pub(in crate::storage) fn pause<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        reason: WaitReason,
        failure: Option<&Failure>,
    ) -> Result<(), T::Fault> {
        self.status = Status::Paused;
        self.drop_holder();
        self.last_worker = None;
        self.prefer_until = None;
        self.set_wait(Some(&Wait { reason: Some(reason), ..Wait::default() }))?;
        let mut data = json!({ "reason": reason });
        if let Some(failure) = failure {
            data["error"] = json!(failure);
        }
        log.event(EventKind::Paused, &data)?;
        log.tx.put_failure(self, failure)
    }

    /// Makes it PENDING. One whose values stay on a machine waits for that machine again, as long as for its first start.
    fn await_machine<T: Statements<Home = H>>(&mut self, log: &Log<'_, T>) -> Result<(), T::Fault> {
        self.status = Status::Pending;
        if self.persistence == Persistence::Local {
            let limits = log.tx.execution_of(T::org(&self.home), self.id)?.new.limits;
            self.starts_by = limits.start_timeout.map(|limit| log.tx.now().after(limit).0);
        }
        Ok(())
    }

    /// Makes a paused run runnable.
    pub(in crate::storage) fn unpause<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        kind: EventKind,
        data: &Value,
    ) -> Result<(), T::Fault> {
        self.await_machine(log)?;
        self.wait = None;
        self.losses = self.losses.min(MAX_LOSSES - 1);
        log.event(kind, data)?;
        log.tx.put_failure(self, None)
    }

    /// Ends it with the output or failure of `end`, and tells its parent. Open tasks are cancelled, except detached ones
    /// that run, and timers are disarmed. Returns the facts of the cancelled tasks.
    pub(in crate::storage) fn finish<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        end: Ending<'_>,
    ) -> Result<Vec<Fact>, T::Fault> {
        let (output, failure) = end.left();
        let (facts, overrun) = self.end(log, end)?;
        tell_parent(log.tx, self, output, failure, overrun)?;
        Ok(facts)
    }

    /// As [`finish`](Self::finish), but tells its parent nothing. Returns also how its budget stopped it, if that did.
    pub(super) fn end<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        end: Ending<'_>,
    ) -> Result<(Vec<Fact>, Option<Overrun>), T::Fault> {
        let (output, failure) = end.left();
        let (status, kind, data) = match end {
            Ending::Completed(_) => (Status::Completed, EventKind::Completed, json!({})),
            Ending::Failed(failure) => (Status::Failed, EventKind::Failed, json!({ "error": failure })),
            Ending::Cancelled(_, by) => (Status::Cancelled, EventKind::Cancelled, json!({ "reason": by })),
        };
        let facts = self.wind_up(log, status)?;
        self.status = status;
        log.event(kind, &data)?;
        if let Some(output) = output {
            log.tx.refer(self, output)?;
        }
        log.tx.put_end(self, output, failure)?;
        Ok((facts, budgets::settle(log.tx, self)?))
    }

    /// Its code does nothing more, and it becomes `status`: its open tasks are cancelled, except detached ones that run, its
    /// timers are disarmed, and its children taken along. Returns the facts of the cancelled tasks.
    pub(super) fn wind_up<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        status: Status,
    ) -> Result<Vec<Fact>, T::Fault> {
        // Before the tasks are cancelled: their ends would wake the run otherwise.
        self.wait = None;
        self.prefer_until = None;
        let mut facts = Vec::new();
        for mut task in log.tx.open_at_end(self)? {
            task.cancel(self, log)?;
            facts.extend(task.fact());
        }
        self.take_children_along(log, status)?;
        log.tx.disarm_all(self)?;
        self.drop_holder();
        Ok(facts)
    }

    /// Asks it to stop, and tells its open tasks. `data` is that of the event. Returns the fact of the request.
    pub(in crate::storage) fn ask_to_stop<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        cancellation: Cancellation,
        data: &Value,
    ) -> Result<Fact, T::Fault> {
        let now = log.tx.now();
        // A run that has handed off has no code to be told.
        if self.handed_to.is_none() {
            self.end_wait(now);
        }
        self.status = Status::Cancelling;
        let number = log.event(EventKind::Cancelling, data)?;
        let stop = Stop { number, cancellation, until: now.after(cancellation.grace).0 };
        self.stop = Some(stop);
        for mut task in log.tx.open_attached(self)? {
            task.stop = true;
            task.save(log.tx)?;
        }
        Ok(stop.fact(now))
    }

    /// Makes a waiting run runnable if this cause is what it waits for. Returns whether it is.
    pub(in crate::storage) fn wake<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        cause: Cause<'_>,
    ) -> Result<bool, T::Fault> {
        if !matches!(self.status, Status::Waiting | Status::Cancelling) {
            return Ok(false);
        }
        let Some(mut wait) = self.wait() else { return Ok(false) };
        let (met, reason) = match cause {
            Cause::Task(task) => {
                (wait.take_task(&task.new.id.to_string(), task.status == TaskStatus::Completed), "task")
            }
            Cause::Timer => (wait.timers, "timer"),
            Cause::Signal(name) => (wait.take_signal(name), "signal"),
        };
        if met {
            self.end_wait(log.tx.now());
            if self.status == Status::Waiting {
                self.await_machine(log)?;
                log.event(EventKind::Woken, &json!({ "reason": reason }))?;
            }
        } else if wait.ends.is_some() {
            self.set_wait(Some(&wait))?;
        }
        Ok(met)
    }

    /// Sets the reason of its wait anew: `in_doubt` while it has a task in doubt. Called when a task changes its
    /// status.
    pub(in crate::storage) fn review_wait<T: Statements<Home = H>>(&mut self, tx: &T) -> Result<(), T::Fault> {
        if !matches!(self.status, Status::Waiting | Status::Cancelling) {
            return Ok(());
        }
        let Some(mut wait) = self.wait().filter(|wait| wait.tasks) else { return Ok(()) };
        if tx.has_open(self, TaskStatus::InDoubt)? {
            wait.reason = Some(WaitReason::InDoubt);
        } else if wait.reason == Some(WaitReason::InDoubt) {
            wait.reason = Some(WaitReason::Task);
        }
        Ok(self.set_wait(Some(&wait))?)
    }

    /// Pauses the run if it has a quarantined task. False if it has none.
    pub(in crate::storage) fn quarantine<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
    ) -> Result<bool, T::Fault> {
        let Some(task) = log.tx.open_with(self, TaskStatus::Quarantined)?.into_iter().next() else {
            self.quarantined = false;
            return Ok(false);
        };
        let task = &task.task;
        self.pause(log, WaitReason::Quarantined, Some(&quarantined(task)))?;
        Ok(true)
    }

    /// Gives it back unfinished, so that another worker can claim it.
    pub(in crate::storage) fn give_back<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        self.drop_holder();
        self.last_worker = None;
        if self.status == Status::Running {
            self.await_machine(log)?;
            log.event(EventKind::Woken, &json!({ "reason": "released" }))?;
            if self.quarantined {
                self.quarantine(log)?;
            }
        }
        Ok(())
    }

    /// The limit that the ops of a batch reach, if any. `top` is the next free sequence of its segment.
    pub(in crate::storage) fn limit_reached(&self, batch: &Batch, top: u32) -> Option<WaitReason> {
        if self.status != Status::Running || batch.ops.is_empty() {
            return None;
        }
        let steps = batch.ops.iter().filter(|op| matches!(op.body, OpBody::StepMark)).count();
        let total = self.step_count.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if steps > 0 && self.step_limit.is_some_and(|limit| total > limit) {
            return Some(WaitReason::StepLimit);
        }
        let stateless = self.segment == 0 && !matches!(batch.end, BatchEnd::Checkpoint(_));
        let long = top as usize + batch.ops.len() >= self.tail_limit as usize;
        (stateless && long).then_some(WaitReason::TailLimit)
    }

    /// Makes it WAITING, by a commit of its holder.
    pub(in crate::storage) fn suspend<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
        wait: &Wait,
        sender: WorkerId,
    ) -> Result<(), T::Fault> {
        self.drop_holder();
        self.last_worker = Some(sender);
        if self.status == Status::Running {
            self.status = Status::Waiting;
        }
        self.set_wait(Some(wait))?;
        self.review_wait(log.tx)?;
        let reason = if wait.tasks { self.wait().and_then(|wait| wait.reason) } else { wait.reason };
        let data = json!({ "reason": reason, "signals": wait.signals, "timers": wait.timers });
        log.event(EventKind::Waiting, &data)?;
        Ok(())
    }

    /// Its lease has expired. Another worker may claim it, unless too many leases were lost in a row.
    pub(in crate::storage) fn lose_holder<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        self.drop_holder();
        self.last_worker = None;
        self.losses += 1;
        let running = self.status == Status::Running;
        if running {
            self.await_machine(log)?;
        }
        log.event(EventKind::LeaseLost, &json!({ "epoch": self.epoch, "losses": self.losses }))?;
        if running && self.losses >= MAX_LOSSES {
            self.pause(log, WaitReason::Quarantined, Some(&run_quarantined(self.losses)))?;
        } else if running && self.quarantined {
            self.quarantine(log)?;
        }
        Ok(())
    }

    /// Whether it waits for a timer that exists only in this worker's process.
    pub(in crate::storage) fn is_timed_by(&self, worker: WorkerId) -> bool {
        let waits = self.status == Status::Waiting && self.last_worker == Some(worker);
        waits && self.wait().is_some_and(|wait| wait.host_timer)
    }

    /// The process with the timer that it waits for is gone. It is entered again, and its code starts the timer anew.
    pub(in crate::storage) fn lose_host_timer<T: Statements<Home = H>>(
        &mut self,
        log: &mut Log<'_, T>,
    ) -> Result<(), T::Fault> {
        self.last_worker = None;
        self.wait = None;
        self.await_machine(log)?;
        log.event(EventKind::Woken, &json!({ "reason": "host_timer" }))?;
        Ok(())
    }

    /// Refuses a worker that does not hold it under this epoch.
    pub(in crate::storage) fn check_lease(&self, lease: Lease) -> Result<(), Error> {
        let held = matches!(self.status, Status::Running | Status::Cancelling);
        if held && self.epoch == lease.epoch && self.worker == Some(lease.worker) {
            return Ok(());
        }
        Err(Error::new(
            Code::LeaseLost,
            format!(
                "the worker {} at epoch {} no longer holds the run {}: it is {} at epoch {}; drop the work",
                lease.worker, lease.epoch, self.id, self.status, self.epoch
            ),
        )
        .with("epoch", self.epoch)
        .with("status", self.status))
    }
}

/// How a run ends, and what it leaves behind.
#[derive(Clone, Copy)]
pub(in crate::storage) enum Ending<'a> {
    Completed(&'a Payload),
    Failed(&'a Failure),
    /// A partial output, and who ended it.
    Cancelled(Option<&'a Payload>, &'static str),
}

impl<'a> Ending<'a> {
    /// The end of a run whose successor has ended with this.
    pub(super) fn of_successor(status: Status, output: Option<&'a Payload>, failure: Option<&'a Failure>) -> Self {
        match (status, output, failure) {
            (Status::Completed, Some(output), _) => Self::Completed(output),
            (Status::Failed, _, Some(failure)) => Self::Failed(failure),
            _ => Self::Cancelled(output, "handed_off"),
        }
    }

    /// Its output and its failure.
    fn left(self) -> (Option<&'a Payload>, Option<&'a Failure>) {
        match self {
            Self::Completed(output) => (Some(output), None),
            Self::Failed(failure) => (None, Some(failure)),
            Self::Cancelled(output, _) => (output, None),
        }
    }
}

/// What may wake a waiting run.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) enum Cause<'a> {
    Task(&'a Task),
    Timer,
    Signal(&'a str),
}

/// The error for an unknown run.
pub(in crate::storage) fn not_found(execution: ExecutionId) -> Error {
    Error::new(
        Code::ExecutionNotFound,
        format!("no run has the id {execution}; check the id and that this is the database it was started in"),
    )
    .with("execution", execution)
}
