//! A task: inline in this process, or by a queue.

use super::Rewording;
use crate::error::Result;
use crate::id::TaskId;
use crate::journal::account::Room;
use crate::journal::effect::{Effect, Outcome, StartTask};
use crate::journal::machine::{Machine, OpRef};
use crate::journal::op::{Attempt, Detail, Op, Place, TaskState};
use crate::model::{
    AttemptReport, AttemptResult, Failure, Label, LabelKey, NewTask, OpKind, Placement, RecordedBody, RecordedOp,
    SideEffects, TaskOptions, TaskStatus, Wait, WaitReason, check_kind, check_name,
};
use crate::payload::{Payload, RowOf};
use std::sync::Arc;
use std::time::Duration;

pub(super) const REWORDING: Rewording = Rewording::OnceQuiet;

pub(super) fn check(kind: &str, queue: &str, key: Option<&str>) -> Result<()> {
    check_kind("the task's kind", kind)?;
    check_name("the queue", queue)?;
    key.map_or(Ok(()), |key| check_name("the key", key))
}

pub(super) fn label(kind: &Arc<str>, input: &Payload, key: Option<&Arc<str>>) -> Result<Label> {
    let key = match key {
        Some(key) => LabelKey::Key(key.clone()),
        None => LabelKey::Digest(input.digest()?),
    };
    Ok(Label { kind: OpKind::Task, name: kind.clone(), key })
}

pub(super) fn admit(machine: &mut Machine, options: &TaskOptions) -> Room {
    machine.room(options.reserve)
}

pub(super) fn record(
    machine: &mut Machine,
    index: usize,
    id: TaskId,
    kind: Arc<str>,
    options: &TaskOptions,
    placement: Placement,
) {
    machine.segment.by_task.entry(id).or_default().push(index);
    let is_inline = placement == Placement::Inline;
    machine.segment.ops[index].detail = Detail::Task(Box::new(TaskState {
        id,
        kind,
        options: options.clone(),
        status: if is_inline { TaskStatus::Running } else { TaskStatus::Pending },
        attempt: u32::from(is_inline),
        here: if is_inline { Attempt::Due } else { Attempt::Elsewhere },
        max_losses: options.max_losses,
        is_open: false,
    }));
    machine.count_open(index);
    if is_inline {
        machine.segment.starting.push(index);
    }
}

pub(super) fn repeat(machine: &mut Machine, index: usize, kind: Arc<str>, options: TaskOptions) -> Option<TaskId> {
    machine.count_open(index);
    let task = machine.segment.ops[index].task_mut()?;
    (task.options, task.kind) = (options, kind);
    if task.is_to_start() {
        machine.segment.starting.push(index);
    }
    Some(task.id)
}

pub(super) fn recover(machine: &mut Machine, index: usize, op: &mut Op, recorded: &RecordedOp) {
    let RecordedBody::Task { id, status, attempt, inline, at_most_once, max_losses, .. } = recorded.body else {
        return;
    };
    machine.segment.by_task.entry(id).or_default().push(index);
    let side_effects = if at_most_once { SideEffects::AtMostOnce } else { SideEffects::Idempotent };
    let is_lost = inline && status == TaskStatus::Running;
    op.detail = Detail::Task(Box::new(TaskState {
        id,
        kind: recorded.label.name.clone(),
        // The other options come with the call that is made again.
        options: TaskOptions { side_effects, ..TaskOptions::default() },
        status,
        attempt,
        here: if is_lost { Attempt::Lost } else { Attempt::Elsewhere },
        max_losses,
        is_open: false,
    }));
}

pub(super) fn wait(op: &Op, wait: &mut Wait) {
    wait.tasks = true;
    if op.task().is_some_and(|task| task.status == TaskStatus::InDoubt) {
        wait.reason = Some(WaitReason::InDoubt);
    }
}

/// A task of a queue is urgent: another worker can run it only once it is stored.
pub(super) fn is_urgent(new: &NewTask) -> bool {
    new.placement == Placement::Queue
}

/// A reservation has to be durable before its call starts.
pub(super) fn decides(new: &NewTask) -> bool {
    new.options.reserve > 0
}

impl Machine {
    /// The label of the first unclaimed op that is recorded under the task's own name or one of its earlier names. The
    /// own label if there is none.
    pub(in crate::journal) fn recorded_as(&self, label: Label, aliases: &[Arc<str>], once: Option<&Arc<str>>) -> Label {
        if aliases.is_empty() || (self.segment.script.all_claimed() && self.segment.unfinished_once.is_empty()) {
            return label;
        }
        let labels = aliases.iter().map(|alias| Label { name: alias.clone(), ..label.clone() });
        let twins = std::iter::once(label.clone()).chain(labels);
        let found = twins.filter_map(|label| Some((self.segment.ops[self.twin(&label, once)?].sequence, label)));
        found.min_by_key(|(sequence, _)| *sequence).map_or(label, |(_, label)| label)
    }

    pub(in crate::journal) fn start_tasks(&mut self) {
        if self.segment.starting.is_empty() {
            return;
        }
        // An inline task may start beside its commit, to save time. Not if
        // * the lease may end soon: another worker could start the task too;
        // * the commit holds something that a replay would not come to;
        // * the run still waits in the store, where another worker may claim it;
        // * a branch waited for something outside: what the code decided then is no more repeatable than a read;
        // * the last claim was lost without a commit: a task may have killed that process. If it is not recorded before it starts,
        //   nobody counts how often it does.
        let decides = self.draft.decides || self.in_flight.as_ref().is_some_and(|flight| flight.decides);
        let beside = self.host.lease_fresh
            && !decides
            && !self.standing.is_waiting()
            && !self.host.races_outside
            && !self.run.was_lost;
        let mut waiting = Vec::new();
        for index in std::mem::take(&mut self.segment.starting) {
            let op = &self.segment.ops[index];
            let Some(task) = op.task().filter(|task| task.is_to_start() && !op.is_settled()) else { continue };
            if task.here == Attempt::Lost {
                if self.count_lost(index) {
                    waiting.push(index);
                }
                continue;
            }
            let idempotent = task.options.side_effects == SideEffects::Idempotent;
            let committed = op.is_durable() || (idempotent && beside && !op.is_held());
            if committed { self.start(index) } else { waiting.push(index) }
        }
        self.segment.starting = waiting;
    }

    /// Counts an attempt that was lost with its process, and tells whether there is another one. The next attempt
    /// starts only after the count is durable: it may kill the process just as fast, and would never be counted
    /// otherwise.
    fn count_lost(&mut self, index: usize) -> bool {
        let op = &mut self.segment.ops[index];
        let sequence = op.sequence;
        let Some(task) = op.task_mut() else { return false };
        task.attempt += 1;
        // At the limit no other attempt starts. The commit with this count makes the store quarantine the task.
        let another = task.attempt <= task.max_losses;
        task.here = if another { Attempt::Due } else { Attempt::Elsewhere };
        self.draft.restarted.push((sequence, task.attempt));
        self.draft.urgent = true;
        op.place = Place::Recounted;
        another
    }

    fn start(&mut self, index: usize) {
        let reference = self.reference(index);
        let id = self.id_of(index);
        let Some(task) = self.segment.ops[index].task_mut() else { return };
        task.here = Attempt::Running;
        self.segment.active.push(index);
        let interruptible = task.options.interruptible;
        self.effects.push_back(Effect::Start(StartTask {
            op: reference,
            id,
            task: task.id,
            kind: task.kind.clone(),
            attempt: task.attempt,
            options: task.options.clone(),
        }));
        if interruptible && self.has_interrupt() {
            self.effects.push_back(Effect::Interrupt(reference));
        }
    }

    /// An inline attempt has ended. A report that is late, or of another attempt, is ignored.
    pub fn task_ended(&mut self, op: OpRef, attempt: u32, result: AttemptResult, duration: Duration) {
        let Some(index) = self.index(op) else { return };
        let sequence = self.segment.ops[index].sequence;
        let Some(task) = self.segment.ops[index].task_mut() else { return };
        if task.here != Attempt::Running || task.attempt != attempt || self.phase.is_over() {
            return;
        }
        task.here = Attempt::Ended;
        self.draft.attempt(AttemptReport { sequence, attempt, result, duration, ended_at: None });
        self.plan();
    }

    /// Stops the attempt of a task that runs here. How it ends no longer matters.
    pub(in crate::journal) fn stop_attempt(&mut self, index: usize) {
        let Some(task) = self.segment.ops[index].task_mut().filter(|task| task.here == Attempt::Running) else {
            return;
        };
        task.here = Attempt::Elsewhere;
        self.segment.active.retain(|active| *active != index);
        let reference = self.reference(index);
        self.effects.push_back(Effect::CancelTask(reference));
    }

    /// Interrupts the model calls that run here: they end with the text that they have streamed so far (rule 12).
    pub(in crate::journal) fn interrupt(&mut self) {
        let calls = self.segment.active.iter().filter(|index| self.segment.ops[**index].is_interruptible());
        let calls: Vec<_> = calls.map(|index| Effect::Interrupt(self.reference(*index))).collect();
        self.effects.extend(calls);
    }

    /// Drops the value of a result that was handed over, and keeps only where its row is: parked runs should be small.
    /// A loaded result is left alone, since its row may belong to another run, the parent of a fork.
    pub(in crate::journal) fn leave_result(&mut self, index: usize) {
        let op = &mut self.segment.ops[index];
        let Some(task) = op.task().filter(|_| !op.is_recorded()).map(|task| task.id) else { return };
        let row = RowOf { execution: self.run.execution, slot: op.slot() };
        for (_, outcome) in self.run.task_results.get_mut(&task).into_iter().chain(op.outcome.as_deref_mut()) {
            if let Some(value) = outcome.payload_mut() {
                value.leave_in(row);
            }
        }
    }

    /// Applies the end of a task: its own op ends, and so do all ops that join it.
    pub(in crate::journal) fn apply_task(
        &mut self,
        order: u64,
        task: TaskId,
        result: std::result::Result<Payload, Failure>,
    ) {
        let status = if result.is_ok() { TaskStatus::Completed } else { TaskStatus::Failed };
        let outcome = match result {
            Ok(value) => Outcome::Value(value),
            Err(failure) => Outcome::Failed(failure),
        };
        for index in self.segment.by_task.get(&task).cloned().unwrap_or_default() {
            let op = &mut self.segment.ops[index];
            if op.outcome.is_none() {
                op.outcome = Some(Box::new((order, outcome.clone())));
            }
            if let Some(task) = op.task_mut() {
                task.ended(status);
            }
        }
        self.run.task_results.entry(task).or_insert((order, outcome));
    }

    /// The ends of these attempts are durable. If one was not the end of its task, the next attempt comes from the
    /// queue.
    pub(in crate::journal) fn attempts_are_stored(&mut self, attempts: &[usize]) {
        self.segment.active.retain(|index| !attempts.contains(index));
        for index in attempts {
            let op = &mut self.segment.ops[*index];
            let is_over = op.outcome.is_some();
            if let Some(task) = op.task_mut() {
                task.here = Attempt::Elsewhere;
                if !is_over {
                    task.status = TaskStatus::Pending;
                }
            }
        }
    }
}
