//! The view of a task.

use super::run::Failure;
use super::show::{Moment, Opaque, Word, view};
use crate::id::OpId;
use crate::model::{Placement, SideEffects, TaskStatus};
use uuid::Uuid;

view! {
    /// A unit of work of a run, without its input and output.
    #[cfg_attr(feature = "openapi", schema(as = TaskView))]
    pub struct Task {
        /// Its UUID, which is also the idempotency key that its attempts carry.
        pub id: Uuid,
        /// The run.
        pub execution: Uuid,
        /// The op that scheduled it: what `resolve` takes.
        pub op: String,
        /// What runs it.
        pub kind: String,
        /// The queue it is in.
        pub queue: String,
        /// `inline` beside its agent, or `queue` for any worker.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub placement: Word<Placement>,
        /// PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, IN_DOUBT or QUARANTINED.
        #[cfg_attr(feature = "openapi", schema(value_type = String, example = "COMPLETED"))]
        pub status: Word<TaskStatus>,
        /// The attempt that runs or ran last, from 1.
        pub attempt: u32,
        /// Attempts that failed.
        pub failed_attempts: u32,
        /// Failed attempts after which it is not tried again.
        pub retries: u32,
        /// `idempotent`, `at_most_once`, …: what a lost attempt may have done.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub side_effects: Word<SideEffects>,
        /// The entry at which the conversation stood when it was asked for.
        pub entry: Option<Uuid>,
        /// Why it failed.
        pub failure: Option<Failure>,
        /// What it last said of how far it is: `fraction` and `message`.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
        pub progress: Option<Opaque>,
        /// When it was scheduled.
        pub created_at: Moment,
        /// When its first attempt began.
        pub started_at: Option<Moment>,
        /// When it ended.
        pub ended_at: Option<Moment>,
    }
}

impl Task {
    /// What is shown of a task.
    pub fn of(task: &crate::model::Task) -> Self {
        Self {
            id: task.new.id.0,
            execution: task.execution.0,
            op: op_of(task).to_string(),
            kind: task.new.kind.clone(),
            queue: task.new.queue.clone(),
            placement: Word(task.new.placement),
            status: Word(task.status),
            attempt: task.attempt,
            failed_attempts: task.failed_attempts,
            retries: task.new.options.retry.retries,
            side_effects: Word(task.new.options.side_effects),
            entry: task.new.entry.map(|entry| entry.0),
            failure: task.failure.as_ref().map(Failure::of),
            progress: task.progress.as_deref().map(Opaque::parsed),
            created_at: Moment(task.created_at),
            started_at: task.started_at.map(Moment),
            ended_at: task.ended_at.map(Moment),
        }
    }
}

/// The id of the op that scheduled a task.
pub fn op_of(task: &crate::model::Task) -> OpId {
    OpId { execution: task.execution, slot: task.slot, once: None }
}
