//! The rows of one run, and the transitions that all calls share: it is woken, paused or ended, and its events are
//! numbered.
//!
//! Every transition here emits exactly one event. A run never looks at another run: what it needs of others (depths of
//! entries, inherited ops) is passed to it.

use crate::clock::Timestamp;
use crate::error::{Code, Error};
use crate::id::{ExecutionId, OnceSlot, RequestId, SignalId, Slot, WorkerId};
use crate::model::{
    Cancellation, Checkpoint, CommitAnswer, CommitRequest, Entry, Event, EventKind, Execution, Fact, FactKind, Failure,
    OnceResult, Persistence, Placement, RecordedBody, RecordedOp, Signal, Status, Task, TaskStatus, Wait, WaitReason,
    left_running,
};
use crate::payload::{Digest, Payload};
use crate::storage::PREFERENCE;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// All that is stored of one run.
#[derive(Debug)]
pub(super) struct Run {
    pub exec: Execution,
    /// The number of its last event.
    pub high: u64,
    /// Since when its timeout runs.
    pub opened_at: Timestamp,
    /// Until when a worker must have begun it. None once one has.
    pub starts_by: Option<Timestamp>,
    /// For a fork: the number of the parent's last event when the fork was made.
    pub forked_high: u64,
    /// It cannot be claimed before this time.
    pub visible_at: Timestamp,
    pub requests: BTreeMap<RequestId, RequestRow>,
    pub ops: BTreeMap<Slot, RecordedOp>,
    /// Finished `once`s by name.
    pub once: BTreeMap<Arc<str>, OnceResult>,
    /// The slots of ops inside `once`s, by their place there.
    pub once_places: BTreeMap<OnceSlot, Slot>,
    pub entries: BTreeMap<Slot, Entry>,
    pub tasks: BTreeMap<Slot, TaskRow>,
    /// Tasks that have not ended.
    pub open: BTreeSet<Slot>,
    pub checkpoints: BTreeMap<u32, Checkpoint>,
    /// Signals by their number, which is the order of the mailbox.
    pub signals: BTreeMap<u64, Signal>,
    pub signal_ids: BTreeMap<SignalId, u64>,
    pub signal_keys: BTreeMap<String, SignalId>,
    /// Armed timers.
    pub timers: BTreeMap<Slot, Timestamp>,
    /// Disarmed timers, with the time for which they were set.
    pub disarmed: BTreeMap<Slot, Timestamp>,
    pub facts: BTreeMap<u64, FactRow>,
    pub events: Vec<Event>,
    /// Resume requests that were carried out.
    pub resumed: BTreeSet<RequestId>,
    pub inherited: Inherited,
    /// The worker that suspended it under the present epoch, and may go on with it without a claim.
    pub parked: Option<WorkerId>,
    /// Until when only that worker may claim it.
    pub prefer_until: Option<Timestamp>,
    /// The worker whose process has the timer that it waits for.
    pub timed_by: Option<WorkerId>,
    /// The length of the holder's lease.
    pub ttl: Duration,
    /// The epoch in which it had an event that no worker serves it.
    pub no_worker: Option<u64>,
    /// Runs that were started later have a higher one.
    pub born: u64,
    /// Its parent was told of its end, or needs not be told.
    pub told_parent: bool,
    /// Its children that have not ended, in the order in which they were started.
    pub children: Vec<ExecutionId>,
    /// When housekeeping has to look at it next.
    pub due: Option<Timestamp>,
}

/// What a fork has inherited from its parent, as the parent was when the fork was made.
#[derive(Debug, Default, Clone)]
pub(super) struct Inherited {
    pub ops: BTreeMap<Slot, RecordedOp>,
    /// In the parent's order, with number 0.
    pub facts: Vec<Fact>,
    pub once: BTreeMap<Arc<str>, OnceResult>,
}

#[derive(Debug)]
pub(super) struct RequestRow {
    pub epoch: u64,
    pub digest: Digest,
    pub answer: CommitAnswer,
}

impl RequestRow {
    /// The answer to a request that was made before.
    pub(super) fn answer_to(&self, request: &CommitRequest) -> crate::Result<CommitAnswer> {
        if self.digest == request.digest {
            return Ok(self.answer.clone());
        }
        Err(Error::new(
            Code::OutOfOrder,
            format!("the request {} was made before with another content", request.request_id),
        ))
    }
}

#[derive(Debug)]
pub(super) struct TaskRow {
    pub task: Task,
    /// The claim of the run under which an inline attempt started.
    pub epoch: u64,
    /// When the lease of a claimed attempt ends.
    pub lease_expires: Option<Timestamp>,
    /// When the attempt last gave a sign of life.
    pub sign_at: Timestamp,
    /// Its next or current attempt asks `reconcile` what became of the one before.
    pub reconcile: bool,
    /// The run was asked to stop while the task was open.
    pub stop: bool,
    /// It was scheduled inline. It may be on a queue by now.
    pub born_inline: bool,
    /// Since when it was visible in the wait for which its run had an event that no worker serves it.
    pub no_worker: Option<Timestamp>,
}

/// A fact, which refers to the row that it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct FactRow {
    pub at: Timestamp,
    pub what: FactOf,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum FactOf {
    Task(Slot),
    Timer(Slot),
    Signal,
    Cancel(Cancellation),
}

/// What may wake a waiting run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause<'a> {
    Task(Slot),
    Timer,
    Signal(&'a str),
}

impl Run {
    /// A run without rows.
    pub(super) fn new(exec: Execution) -> Self {
        let visible_at = exec.created_at.after(exec.new.delay.unwrap_or_default());
        Self {
            opened_at: exec.created_at,
            starts_by: exec.new.limits.start_timeout.map(|limit| visible_at.after(limit)),
            forked_high: 0,
            visible_at,
            exec,
            high: 0,
            requests: BTreeMap::new(),
            ops: BTreeMap::new(),
            once: BTreeMap::new(),
            once_places: BTreeMap::new(),
            entries: BTreeMap::new(),
            tasks: BTreeMap::new(),
            open: BTreeSet::new(),
            checkpoints: BTreeMap::new(),
            signals: BTreeMap::new(),
            signal_ids: BTreeMap::new(),
            signal_keys: BTreeMap::new(),
            timers: BTreeMap::new(),
            disarmed: BTreeMap::new(),
            facts: BTreeMap::new(),
            events: Vec::new(),
            resumed: BTreeSet::new(),
            inherited: Inherited::default(),
            parked: None,
            prefer_until: None,
            timed_by: None,
            ttl: Duration::ZERO,
            no_worker: None,
            born: 0,
            told_parent: false,
            children: Vec::new(),
            due: None,
        }
    }

    /// Stores an event under the next number.
    pub(super) fn emit(&mut self, now: Timestamp, kind: EventKind, about: Option<Slot>, data: Value) -> u64 {
        self.high += 1;
        self.exec.updated_at = now;
        self.events.push(Event {
            execution: self.exec.new.id,
            number: self.high,
            at: now,
            kind,
            segment: about.map_or(self.exec.segment, |slot| slot.segment),
            sequence: about.map(|slot| slot.sequence),
            data,
        });
        self.high
    }

    /// Stores the fact of the event with this number.
    pub(super) fn fact(&mut self, number: u64, at: Timestamp, what: FactOf) {
        self.facts.insert(number, FactRow { at, what });
    }

    /// Ends its wait. For a moment only a worker that has it parked may claim it, since there it goes on without a
    /// replay.
    pub(super) fn end_wait(&mut self, now: Timestamp) {
        if self.parked.is_some() && self.exec.wait.take().is_some_and(|wait| wait.parked) {
            self.prefer_until = Some(now.after(PREFERENCE));
        }
        self.exec.wait = None;
    }

    /// Makes it PENDING. One whose values stay on a machine waits for that machine again, as long as for its first start.
    pub(super) fn await_machine(&mut self, now: Timestamp) {
        self.exec.status = Status::Pending;
        if self.exec.new.persistence == Persistence::Local {
            self.starts_by = self.exec.new.limits.start_timeout.map(|limit| now.after(limit));
        }
    }

    /// Makes a waiting run runnable if this cause is what it waits for. Returns whether it is.
    pub(super) fn wake(&mut self, now: Timestamp, cause: Cause<'_>) -> bool {
        let waits = matches!(self.exec.status, Status::Waiting | Status::Cancelling);
        let Some(wait) = self.exec.wait.as_mut().filter(|_| waits) else { return false };
        let (met, reason) = match cause {
            Cause::Task(slot) => {
                let ended = self.tasks.get(&slot).map(|row| &row.task);
                let take = |task: &Task| wait.take_task(&task.new.id.to_string(), task.status == TaskStatus::Completed);
                (ended.is_some_and(take), "task")
            }
            Cause::Timer => (wait.timers, "timer"),
            Cause::Signal(name) => (wait.take_signal(name), "signal"),
        };
        match self.exec.status {
            Status::Waiting if met => {
                self.end_wait(now);
                self.await_machine(now);
                self.emit(now, EventKind::Woken, None, json!({ "reason": reason }));
                true
            }
            Status::Cancelling if met => {
                self.end_wait(now);
                true
            }
            _ => false,
        }
    }

    /// Sets the reason of its wait anew: `in_doubt` while it has a task in doubt. Called when a task changes its
    /// status.
    pub(super) fn review_wait(&mut self) {
        let in_doubt = self.has_open(TaskStatus::InDoubt);
        let waits = matches!(self.exec.status, Status::Waiting | Status::Cancelling);
        if let Some(wait) = self.exec.wait.as_mut().filter(|wait| waits && wait.tasks) {
            if in_doubt {
                wait.reason = Some(WaitReason::InDoubt);
            } else if wait.reason == Some(WaitReason::InDoubt) {
                wait.reason = Some(WaitReason::Task);
            }
        }
    }

    /// Whether an open task has this status.
    pub(super) fn has_open(&self, status: TaskStatus) -> bool {
        self.open.iter().any(|slot| self.tasks.get(slot).is_some_and(|row| row.task.status == status))
    }

    /// Why it is paused, if it is.
    pub(super) fn pause_reason(&self) -> Option<WaitReason> {
        self.exec.wait.as_ref().filter(|_| self.exec.status == Status::Paused).and_then(|wait| wait.reason)
    }

    /// Whether a worker may claim it, apart from a delayed start.
    pub(super) fn is_claimable(&self) -> bool {
        match self.exec.status {
            Status::Pending => true,
            Status::Cancelling => self.exec.worker.is_none() && self.exec.wait.is_none(),
            _ => false,
        }
    }

    /// Ends the holder's lease. The epoch stays.
    pub(super) fn clear_holder(&mut self) {
        self.exec.worker = None;
        self.exec.lease_expires = None;
    }

    /// Pauses it until somebody resumes it.
    pub(super) fn pause(&mut self, now: Timestamp, reason: WaitReason, failure: Option<Failure>) {
        self.clear_holder();
        self.parked = None;
        self.prefer_until = None;
        self.exec.status = Status::Paused;
        self.exec.wait = Some(Wait { reason: Some(reason), ..Wait::default() });
        let mut data = json!({ "reason": reason });
        if let Some(failure) = &failure {
            data["error"] = json!(failure);
        }
        self.exec.failure = failure;
        self.emit(now, EventKind::Paused, None, data);
    }

    /// Ends it with an output.
    pub(super) fn complete(&mut self, now: Timestamp, output: Payload) {
        self.exec.output = Some(output);
        self.finish(now, Status::Completed, EventKind::Completed, json!({}));
    }

    /// Ends it with an error.
    pub(super) fn fail(&mut self, now: Timestamp, failure: Failure) {
        let data = json!({ "error": failure });
        self.exec.failure = Some(failure);
        self.finish(now, Status::Failed, EventKind::Failed, data);
    }

    /// Ends it as cancelled, with a partial output if there is one.
    pub(super) fn cancelled(&mut self, now: Timestamp, output: Option<Payload>, reason: &str) {
        self.exec.output = output;
        self.exec.failure = None;
        self.finish(now, Status::Cancelled, EventKind::Cancelled, json!({ "reason": reason }));
    }

    /// Ends what ends with the work of its code.
    pub(super) fn end_tasks(&mut self, now: Timestamp) {
        // Before the tasks are cancelled: their ends would wake the run otherwise.
        self.exec.wait = None;
        self.prefer_until = None;
        let ends = |slot: &&Slot| self.tasks.get(slot).is_some_and(|row| row.task.ends_with_run());
        for slot in self.open.iter().filter(ends).copied().collect::<Vec<_>>() {
            self.cancel_task(slot, now);
        }
    }

    pub(super) fn warn_of_children(&mut self, now: Timestamp) {
        let left: Vec<_> = self.children.iter().copied().filter(|child| Some(*child) != self.exec.handed_to).collect();
        if !left.is_empty() {
            self.emit(now, EventKind::Warning, None, left_running(left.into_iter()));
        }
    }

    fn finish(&mut self, now: Timestamp, status: Status, kind: EventKind, data: Value) {
        self.end_tasks(now);
        if status == Status::Completed {
            self.warn_of_children(now);
        }
        self.disarmed.append(&mut self.timers);
        self.clear_holder();
        self.exec.status = status;
        self.exec.ended_at = Some(now);
        self.emit(now, kind, None, data);
    }

    /// Asks it to stop, and tells its open tasks. `data` is that of the event.
    pub(super) fn ask_to_stop(&mut self, now: Timestamp, how: Cancellation, data: Value) {
        self.exec.cancel = Some((how, now.after(how.grace)));
        // A run that has handed off has no code to be told.
        if self.exec.handed_to.is_none() {
            self.end_wait(now);
        }
        self.exec.status = Status::Cancelling;
        let number = self.emit(now, EventKind::Cancelling, None, data);
        self.fact(number, now, FactOf::Cancel(how));
        for slot in self.open_attached() {
            if let Some(row) = self.tasks.get_mut(&slot) {
                row.stop = true;
            }
        }
    }

    /// Disarms the timer of an op. The time for which it was set is kept.
    pub(super) fn disarm(&mut self, slot: Slot) {
        self.disarmed.extend(self.timers.remove(&slot).map(|at| (slot, at)));
    }

    /// Open tasks that do not outlive their segment.
    pub(super) fn open_attached(&self) -> Vec<Slot> {
        let attached = |slot: &&Slot| self.tasks.get(slot).is_some_and(|row| !row.task.new.options.detached);
        self.open.iter().filter(attached).copied().collect()
    }

    /// One of its own ops as the journal shows it. A task has its present status and attempt.
    pub(super) fn recorded(&self, slot: Slot, op: &RecordedOp) -> RecordedOp {
        let mut op = op.clone();
        if let (RecordedBody::Task { status, attempt, inline, .. }, Some(row)) = (&mut op.body, self.tasks.get(&slot)) {
            *status = row.task.status;
            *attempt = row.task.attempt;
            *inline = row.task.new.placement == Placement::Inline;
        }
        op
    }

    /// Whether an op of an older segment still counts, because its `once` has no result.
    pub(super) fn in_unfinished_once(&self, slot: Slot) -> bool {
        let op = self.ops.get(&slot).or_else(|| self.inherited.ops.get(&slot));
        op.and_then(|op| op.once.as_ref())
            .is_some_and(|once| !self.once.contains_key(&once.name) && !self.inherited.once.contains_key(&once.name))
    }

    /// Its own ops that its code runs over again.
    pub(super) fn own_tail(&self) -> impl Iterator<Item = (&Slot, &RecordedOp)> {
        self.ops.iter().filter(|(slot, _)| slot.segment >= self.exec.segment || self.in_unfinished_once(**slot))
    }

    /// Its own facts with a number above `after`, in order. With `from`, only those that matter from that segment on.
    pub(super) fn facts_after(&self, after: u64, from: Option<u32>) -> Vec<Fact> {
        let counts = |slot: Slot| from.is_none_or(|from| slot.segment >= from || self.in_unfinished_once(slot));
        let mut facts = Vec::new();
        for (&number, row) in self.facts.range(after.saturating_add(1)..) {
            let kind = match row.what {
                FactOf::Task(slot) => self
                    .tasks
                    .get(&slot)
                    .filter(|row| counts(slot) || row.task.new.options.detached)
                    .map(|row| FactKind::Task { task: row.task.new.id, result: outcome(&row.task) }),
                FactOf::Timer(slot) => counts(slot).then_some(FactKind::Timer { slot }),
                FactOf::Signal => self
                    .signals
                    .get(&number)
                    .filter(|signal| signal.consumed_by.is_none_or(counts))
                    .map(|signal| FactKind::Signal(signal.clone())),
                FactOf::Cancel(cancel) => Some(FactKind::Cancel(cancel)),
            };
            facts.extend(kind.map(|kind| Fact { number, at: row.at, kind }));
        }
        facts
    }
}

/// The result or the failure of a task that has ended.
pub(super) fn outcome(task: &Task) -> Result<Payload, Failure> {
    match (&task.output, &task.failure) {
        (Some(output), _) if task.status == TaskStatus::Completed => Ok(output.clone()),
        (_, Some(failure)) => Err(failure.clone()),
        _ => Err(Failure::new(Code::TaskFailed, "Unknown", "the task ended without a result")),
    }
}

impl TaskRow {
    /// Whether the end of its current attempt may still be reported.
    pub(super) fn can_end(&self) -> bool {
        matches!(self.task.status, TaskStatus::Running | TaskStatus::InDoubt)
    }

    /// Whether its attempt runs in the worker that holds the run.
    pub(super) fn runs_inline(&self) -> bool {
        self.task.status == TaskStatus::Running && self.task.new.placement == Placement::Inline
    }
}
