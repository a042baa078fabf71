//! Joins a detached task. The end of the task may be known before the call.

use crate::id::TaskId;
use crate::journal::machine::Machine;
use crate::model::{Label, OpBody, OpKind, Wait};
use crate::payload::Digest;

pub fn label(task: TaskId) -> Label {
    super::label(OpKind::Attach, "attach".into(), Digest::of_parts(&[task.0.as_bytes()]))
}

pub fn record(machine: &mut Machine, index: usize, task: TaskId) -> OpBody {
    machine.segment.by_task.entry(task).or_default().push(index);
    machine.segment.ops[index].outcome = machine.run.task_results.get(&task).cloned();
    OpBody::Attach { task }
}

pub fn recover(machine: &mut Machine, index: usize, task: TaskId) {
    machine.segment.by_task.entry(task).or_default().push(index);
}

pub fn wait(wait: &mut Wait) {
    wait.tasks = true;
}
