//! The records that tracers take, and their form as a line of text.

use crate::clock::Timestamp;
use crate::id::{ExecutionId, TaskId};
use crate::model::{AttemptResult, Status, Usage};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something that a run did in this process. As JSON it is one flat object with camelCase names, whose `what` names the
/// kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The store's time, in microseconds since the Unix epoch.
    pub at: Timestamp,
    /// The run.
    pub execution: ExecutionId,
    /// Its kind; unknown for an attempt claimed from a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The claim under which it happened; 0 for an attempt claimed from a queue.
    pub epoch: u64,
    /// The segment it happened in.
    pub segment: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: Traced,
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Traced {
    /// An activation began; `tail` recorded ops are replayed first.
    Activated {
        /// Ops to replay.
        tail: usize,
    },
    /// A parked copy went on under a new claim, without replay.
    Resumed,
    /// The agent called an op.
    Op {
        /// Its name in the journal.
        op: String,
        /// What it does: `task fetch_page`, `signal userMessage`.
        label: String,
        /// Whether it was recorded before, and is not done again.
        replayed: bool,
    },
    /// A model call was accounted for.
    Usage {
        /// The model.
        model: String,
        /// The cost.
        usage: Usage,
        /// Whether it was recorded before, and does not count again.
        replayed: bool,
    },
    /// An attempt of a task started in this process.
    TaskStarted {
        /// The task.
        task: TaskId,
        /// The function.
        kind: Arc<str>,
        /// From 1.
        attempt: u32,
    },
    /// An attempt of a task ended in this process.
    TaskEnded {
        /// The task.
        task: TaskId,
        /// The function.
        kind: Arc<str>,
        /// From 1.
        attempt: u32,
        /// How long it ran.
        duration_micros: u64,
        /// Type and message of what it raised; none if it returned.
        error: Option<String>,
    },
    /// A checkpoint is durable; `segment` is the one it starts.
    Checkpoint,
    /// The run waits; its copy stays in memory.
    Parked,
    /// The run ended or paused.
    Ended {
        /// Its status at the end.
        status: Status,
        /// Type and message of the error, if it failed.
        error: Option<String>,
    },
    /// The copy was dropped. The run goes on from its journal.
    Dropped {
        /// Why it was dropped.
        reason: String,
    },
}

impl Traced {
    pub(super) fn task_ended(
        (task, kind, attempt): (TaskId, &Arc<str>, u32),
        duration: Duration,
        result: &AttemptResult,
    ) -> Self {
        let error = match result {
            AttemptResult::Completed(_) => None,
            AttemptResult::Failed { failure, .. } => Some(format!("{}: {}", failure.error_type, failure.message)),
            AttemptResult::Cancelled => Some("cancelled".to_owned()),
            AttemptResult::NotDone | AttemptResult::Released => Some("given back".to_owned()),
        };
        let duration_micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self::TaskEnded { task, kind: kind.clone(), attempt, duration_micros, error }
    }

    /// The word for the kind, the same as in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Activated { .. } => "activated",
            Self::Resumed => "resumed",
            Self::Op { .. } => "op",
            Self::Usage { .. } => "usage",
            Self::TaskStarted { .. } => "task_started",
            Self::TaskEnded { .. } => "task_ended",
            Self::Checkpoint => "checkpoint",
            Self::Parked => "parked",
            Self::Ended { .. } => "ended",
            Self::Dropped { .. } => "dropped",
        }
    }
}

impl fmt::Display for Trace {
    /// One line with the agent, the run's short name, the segment and what happened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.execution.to_string();
        let agent = self.agent.as_deref().unwrap_or("task of");
        write!(f, "{agent} {} [{}] ", &run[run.len() - 8..], self.segment)?;
        let again = |replayed: bool| if replayed { " (replayed)" } else { "" };
        match &self.what {
            Traced::Activated { tail: 0 } => write!(f, "activated, epoch {}", self.epoch),
            Traced::Activated { tail } => write!(f, "activated, epoch {}, {tail} ops to replay", self.epoch),
            Traced::Op { label, replayed, .. } => write!(f, "{label}{}", again(*replayed)),
            Traced::Usage { model, usage, replayed } => {
                let Usage { input_tokens, output_tokens, .. } = usage;
                write!(f, "usage {model}: {input_tokens} in, {output_tokens} out{}", again(*replayed))
            }
            Traced::TaskStarted { kind, attempt, .. } => write!(f, "{kind} attempt {attempt} started"),
            Traced::TaskEnded { kind, attempt, duration_micros, error, .. } => {
                let millis = *duration_micros as f64 / 1000.0;
                match error {
                    None => write!(f, "{kind} attempt {attempt} done in {millis:.1} ms"),
                    Some(error) => write!(f, "{kind} attempt {attempt} failed after {millis:.1} ms: {error}"),
                }
            }
            Traced::Ended { status, error: None } => write!(f, "{status}"),
            Traced::Ended { status, error: Some(error) } => write!(f, "{status}: {error}"),
            Traced::Dropped { reason } => write!(f, "dropped: {reason}"),
            what => f.write_str(what.word()),
        }
    }
}
