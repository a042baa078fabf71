//! A task: inline in this process, or by a queue.

use super::Rewording;
use crate::error::Result;
use crate::id::TaskId;
use crate::journal::machine::Machine;
use crate::journal::op::{Attempt, Detail, Op, TaskState};
use crate::model::{
    Label, LabelKey, NewTask, OpBody, OpKind, Placement, RecordedBody, RecordedOp, SideEffects, TaskOptions,
    TaskStatus, Wait, WaitReason, check_name,
};
use crate::payload::Payload;
use std::sync::Arc;

pub const REWORDING: Rewording = Rewording::OnceQuiet;

pub fn check(kind: &str, queue: &str, key: Option<&str>) -> Result<()> {
    check_name("the task's kind", kind)?;
    check_name("the queue", queue)?;
    key.map_or(Ok(()), |key| check_name("the key", key))
}

pub fn label(kind: &Arc<str>, input: &Payload, key: Option<&Arc<str>>) -> Result<Label> {
    let key = match key {
        Some(key) => LabelKey::Key(key.clone()),
        None => LabelKey::Digest(input.digest()?),
    };
    Ok(Label { kind: OpKind::Task, name: kind.clone(), key })
}

pub fn admit(machine: &mut Machine, options: &TaskOptions) -> bool {
    !machine.is_refused(options.reserve)
}

pub fn record(machine: &mut Machine, index: usize, kind: Arc<str>, new: NewTask) -> OpBody {
    machine.segment.by_task.entry(new.id).or_default().push(index);
    let is_inline = new.placement == Placement::Inline;
    machine.segment.ops[index].detail = Detail::Task(Box::new(TaskState {
        id: new.id,
        kind,
        options: new.options.clone(),
        status: if is_inline { TaskStatus::Running } else { TaskStatus::Pending },
        attempt: u32::from(is_inline),
        here: if is_inline { Attempt::Due } else { Attempt::Elsewhere },
        max_losses: new.options.max_losses,
        is_open: false,
    }));
    machine.count_open(index);
    if is_inline {
        machine.segment.starting.push(index);
    }
    OpBody::Task(new)
}

pub fn repeat(machine: &mut Machine, index: usize, kind: Arc<str>, options: TaskOptions) -> Option<TaskId> {
    machine.count_open(index);
    let task = machine.segment.ops[index].task_mut()?;
    (task.options, task.kind) = (options, kind);
    if task.is_to_start() {
        machine.segment.starting.push(index);
    }
    Some(task.id)
}

pub fn recover(machine: &mut Machine, index: usize, op: &mut Op, recorded: &RecordedOp) {
    let RecordedBody::Task { id, status, attempt, inline, at_most_once, max_losses, .. } = recorded.body else {
        return;
    };
    machine.segment.by_task.entry(id).or_default().push(index);
    let side_effects = if at_most_once { SideEffects::AtMostOnce } else { SideEffects::Idempotent };
    let is_lost = inline && status == TaskStatus::Running;
    op.detail = Detail::Task(Box::new(TaskState {
        id,
        kind: recorded.label.name.clone(),
        // The call that is made again says the others.
        options: TaskOptions { side_effects, ..TaskOptions::default() },
        status,
        attempt,
        here: if is_lost { Attempt::Lost } else { Attempt::Elsewhere },
        max_losses,
        is_open: false,
    }));
}

pub fn wait(op: &Op, wait: &mut Wait) {
    wait.tasks = true;
    if op.task().is_some_and(|task| task.status == TaskStatus::InDoubt) {
        wait.reason = Some(WaitReason::InDoubt);
    }
}

/// Whoever is to run it must learn of it.
pub fn is_urgent(new: &NewTask) -> bool {
    new.placement == Placement::Queue
}

/// A reservation has to be durable before its call starts.
pub fn decides(new: &NewTask) -> bool {
    new.options.reserve > 0
}
