//! Joins a detached task. The end of the task may be known before the call.

use crate::id::TaskId;
use crate::journal::machine::Machine;
use crate::model::{Label, OpBody, OpKind, Wait};
use crate::payload::Digest;

pub(super) fn label(task: TaskId) -> Label {
    super::label(OpKind::Attach, "attach".into(), Digest::of_parts(&[task.0.as_bytes()]))
}

pub(super) fn record(machine: &mut Machine, index: usize, task: TaskId) -> OpBody {
    machine.segment.by_task.entry(task).or_default().push(index);
    machine.segment.ops[index].outcome = machine.run.task_results.get(&task).cloned().map(Box::new);
    OpBody::Attach { task }
}

pub(super) fn recover(machine: &mut Machine, index: usize, task: TaskId) {
    machine.segment.by_task.entry(task).or_default().push(index);
}

pub(super) fn wait(wait: &mut Wait) {
    wait.tasks = true;
}
