//! Units of side-effecting work and how they are retried.

use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId, WorkerId};
use crate::payload::Payload;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What happens if the task is started a second time (rule 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffects {
    /// Running it again does no harm. The author promises that.
    #[default]
    Idempotent,
    /// It must not run twice; a lost attempt puts it in doubt.
    AtMostOnce,
    /// A lost attempt is settled by the author's `reconcile` function.
    Reconcile,
}

/// Pauses between attempts: exponential backoff with an upper bound and with jitter. The pause after failure n is
/// `min(initial * factor^(n - 1), max)`, times a random number between `1 - jitter` and 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// How often a failed task is tried again.
    pub retries: u32,
    /// The first pause.
    pub initial: Duration,
    /// The longest pause.
    pub max: Duration,
    /// The factor by which each pause is longer than the one before; below 1 it counts as 1.
    pub factor: f64,
    /// The part of a pause, from 0 to 1, that may be left out at random.
    #[serde(skip_serializing_if = "is_usual_jitter")]
    pub jitter: f32,
    /// Types of errors that are not tried again.
    pub no_retry: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 0,
            initial: Duration::from_millis(200),
            max: Duration::from_secs(60),
            factor: 2.0,
            jitter: Self::USUAL_JITTER,
            no_retry: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// The default of `jitter`.
    pub const USUAL_JITTER: f32 = 0.5;

    /// Makes the policy of a task from what a language binding was given: the first pause, the longest pause, the
    /// growth and the jitter. `per_second` is how many units of the language's time make a second. `names` are the
    /// names that the four have in the language, for errors.
    pub fn given(kind: &str, names: [&str; 4], per_second: f64, given: [Option<f64>; 4]) -> crate::Result<Self> {
        let usual = Self::default();
        let [initial, max, factor, jitter] = given;
        let refused = |which: usize, given: f64, what: &str| {
            let name = names[which];
            crate::Error::new(
                Code::InvalidArgument,
                format!("the retry policy of task {kind:?} has {name}={given}; {what}"),
            )
        };
        let seconds = |which: usize, given: Option<f64>, usual: Duration| {
            let Some(given) = given else { return Ok(usual) };
            Duration::try_from_secs_f64(given / per_second)
                .map_err(|_| refused(which, given, "a pause is a number from 0 of what can be waited for"))
        };
        let policy = Self {
            initial: seconds(0, initial, usual.initial)?,
            max: seconds(1, max, usual.max)?,
            factor: factor.unwrap_or(usual.factor),
            jitter: jitter.map_or(usual.jitter, |jitter| jitter as f32),
            ..usual
        };
        if !policy.factor.is_finite() || policy.factor < 1.0 {
            return Err(refused(2, policy.factor, "pauses grow by a number from 1, which is a pause that stays"));
        }
        if !(0.0..=1.0).contains(&policy.jitter) {
            return Err(refused(
                3,
                policy.jitter.into(),
                "chance takes away a part of a pause from 0 (nothing) to 1 (all)",
            ));
        }
        Ok(policy)
    }
}

/// How a task is to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOptions {
    /// Retries and pauses.
    pub retry: RetryPolicy,
    /// The longest one attempt may take.
    pub timeout: Option<Duration>,
    /// The longest silence between heartbeats.
    pub heartbeat_timeout: Option<Duration>,
    /// The longest all attempts together may take, from scheduling.
    pub deadline: Option<Duration>,
    /// What happens if it is started a second time.
    pub side_effects: SideEffects,
    /// Whether it outlives its segment. `attach` waits for it again.
    pub detached: bool,
    /// Whether a signal delivered `now` ends its attempt, with the tokens streamed so far as its result (rule 12).
    /// Model calls have it set.
    pub interruptible: bool,
    /// Whether the session that runs it also tries it again. That is for a function which no other process has. The
    /// store sees one attempt for all the tries. When the process is lost, the next one starts the tries anew.
    #[serde(skip_serializing_if = "is_not")]
    pub in_place: bool,
    /// The most tokens that one attempt may use. A model call is not begun when less than this is left of the run's
    /// budget. 0 reserves nothing.
    #[serde(skip_serializing_if = "is_nothing")]
    pub reserve: u32,
    /// How many attempts in a row may be lost with their process before the task is quarantined for a person to look
    /// at, from
    /// 1 to [`MOST_LOSSES`](Self::MOST_LOSSES).
    #[serde(skip_serializing_if = "is_usual")]
    pub max_losses: u32,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            timeout: None,
            heartbeat_timeout: None,
            deadline: None,
            side_effects: SideEffects::default(),
            detached: false,
            interruptible: false,
            in_place: false,
            reserve: 0,
            max_losses: Self::USUAL_LOSSES,
        }
    }
}

fn is_not(flag: &bool) -> bool {
    !flag
}

fn is_nothing(reserve: &u32) -> bool {
    *reserve == 0
}

fn is_usual_jitter(jitter: &f32) -> bool {
    *jitter == RetryPolicy::USUAL_JITTER
}

// The default is not written, so that a row with it is the same as one that a version without this field has written.
fn is_usual(max_losses: &u32) -> bool {
    *max_losses == TaskOptions::USUAL_LOSSES
}

impl TaskOptions {
    /// The default of `max_losses`.
    pub const USUAL_LOSSES: u32 = 20;
    /// The highest `max_losses`.
    pub const MOST_LOSSES: u32 = 1_000;

    /// Makes `max_losses` from the number that a language binding was given: a whole number from 1 to
    /// [`MOST_LOSSES`](Self::MOST_LOSSES). `name` is its name in the language, for errors.
    pub fn lives(kind: &str, name: &str, given: f64) -> crate::Result<u32> {
        let most = Self::MOST_LOSSES;
        if given.fract() == 0.0 && (1.0..=f64::from(most)).contains(&given) {
            return Ok(given as u32);
        }
        let usual = Self::USUAL_LOSSES;
        Err(crate::Error::new(
            Code::InvalidArgument,
            format!(
                "task {kind:?} has {name}={given}; an attempt may be lost with its process from 1 to {most} times in a row \
                 before the task is quarantined, and {usual} times unless you say so"
            ),
        ))
    }

    /// Refuses options that contradict each other, such as retries of a task that must not run twice, and a
    /// `max_losses` out of range.
    pub fn check(&self, kind: &str) -> crate::Result<()> {
        Self::lives(kind, "max_losses", f64::from(self.max_losses))?;
        if self.side_effects == SideEffects::AtMostOnce && self.retry.retries > 0 {
            return Err(crate::Error::new(
                Code::InvalidArgument,
                format!(
                    "task {kind:?} is at_most_once and has retries={}; an error it returns is final, so drop the retries \
                     or declare it idempotent",
                    self.retry.retries
                ),
            ));
        }
        Ok(())
    }
}

/// Who runs a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The worker that runs the agent, at once.
    Inline,
    /// Any worker of the task's queue.
    Queue,
}

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskStatus {
    /// May be claimed from its queue once it is visible.
    Pending,
    /// An attempt runs.
    Running,
    /// It has a result.
    Completed,
    /// It failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Nobody knows whether it took effect.
    InDoubt,
    /// Too many of its attempts in a row were lost with their process; a person must look.
    Quarantined,
}

impl TaskStatus {
    /// Whether nothing more will happen to it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Why a task or a run failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The error code that users see.
    #[serde(with = "code_word")]
    pub code: Code,
    /// The class or type of the original error.
    pub error_type: String,
    /// Its message.
    pub message: String,
    /// Where it was raised, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The task's kind, for a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The task's id, for a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Attempts that returned an error or ran out of time, for a task; lost ones do not count.
    #[serde(default)]
    pub attempts: u32,
}

impl Failure {
    /// Whether it is what the await of a child ends with that its budget has stopped.
    pub(crate) fn is_of_childs_budget(&self) -> bool {
        self.code == Code::BudgetExceeded && self.kind.is_some() && self.task.is_none()
    }

    /// A failure with a code, a type and a message, and nothing about a task.
    pub fn new(code: Code, error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            error_type: error_type.into(),
            message: message.into(),
            traceback: None,
            kind: None,
            task: None,
            attempts: 0,
        }
    }
}

mod code_word {
    use crate::error::Code;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(code.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let word = String::deserialize(deserializer)?;
        Code::parse(&word).ok_or_else(|| serde::de::Error::custom(format!("unknown error code {word:?}")))
    }
}

/// Stands for the queue of the run that has started this one, in place of the queue of a task: its workers run the task,
/// which stays this run's own. The store puts the parent's queue in its place when the task is stored.
pub const PARENT_QUEUE: &str = "parent/";

/// A task as the op that schedules it describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// UUIDv5 of the op id.
    pub id: TaskId,
    /// The function's name.
    pub kind: String,
    /// The queue from which it is claimed if it is not run inline, or if it is tried again; [`PARENT_QUEUE`] for that of the
    /// run's parent.
    pub queue: String,
    /// The argument.
    pub input: Payload,
    /// How to run it.
    pub options: TaskOptions,
    /// Who runs it.
    pub placement: Placement,
    /// The assistant entry that asked for it.
    pub entry: Option<EntryId>,
}

impl NewTask {
    /// Whether the workers of its run's parent run it.
    pub(crate) fn is_for_parent(&self) -> bool {
        self.queue == PARENT_QUEUE
    }
}

/// A stored task.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// As asked for.
    pub new: NewTask,
    /// Tenant.
    pub org: OrgId,
    /// The run that asked.
    pub execution: ExecutionId,
    /// The op that asked.
    pub slot: Slot,
    /// Where it is in its life.
    pub status: TaskStatus,
    /// How many attempts were started, which is the number of the current one.
    pub attempt: u32,
    /// Attempts that returned an error or ran out of time.
    pub failed_attempts: u32,
    /// How many attempts were lost with their process since the last one that ended by itself.
    pub losses: u32,
    /// The result, when completed.
    pub output: Option<Payload>,
    /// The last error.
    pub failure: Option<Failure>,
    /// The fraction and the message of the last report of progress.
    pub progress: Option<String>,
    /// It cannot be claimed before this time.
    pub visible_at: Timestamp,
    /// Who runs it.
    pub worker: Option<WorkerId>,
    /// When it was scheduled.
    pub created_at: Timestamp,
    /// When its last attempt started.
    pub started_at: Option<Timestamp>,
    /// When it reached a terminal status.
    pub ended_at: Option<Timestamp>,
}

/// What a signal delivered `now` does to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// Nothing: it has not begun, it is over, it is not interruptible, or it runs inline, where its session stops it.
    None,
    /// The answer to its next heartbeat tells its attempt to stop.
    Stop,
    /// It ends at once: it waits for another attempt, and no attempt runs that could be told to stop.
    End,
}

impl Task {
    /// Whether the end of its run ends it too. A detached task goes on while an attempt runs, and stays while nobody
    /// knows whether it took effect. One that waits for an attempt ends, because nobody starts attempts for a run that
    /// has ended.
    pub(crate) fn ends_with_run(&self) -> bool {
        !self.new.options.detached || matches!(self.status, TaskStatus::Pending | TaskStatus::Quarantined)
    }

    /// Whether the attempt of this number runs.
    pub(crate) fn is_running(&self, attempt: u32) -> bool {
        self.status == TaskStatus::Running && self.attempt == attempt
    }

    /// What a signal delivered `now` does to it.
    pub(crate) fn interruption(&self) -> Interruption {
        let NewTask { options, placement, .. } = &self.new;
        match self.status {
            _ if !options.interruptible || *placement != Placement::Queue => Interruption::None,
            TaskStatus::Running => Interruption::Stop,
            // Only an idempotent task can end here. For any other, it has to be found out first whether it took effect.
            TaskStatus::Pending if self.failed_attempts > 0 && options.side_effects == SideEffects::Idempotent => {
                Interruption::End
            }
            _ => Interruption::None,
        }
    }
}

/// An attempt handed to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedTask {
    /// The task. Its input is in memory or a reference.
    pub task: Task,
    /// Whether the author's `reconcile` runs instead of the function itself.
    pub reconcile: bool,
    /// The number of the event that says the attempt has started. Watchers see what the attempt streams after that
    /// event.
    pub event: u64,
}

/// How a claimed attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskReport {
    /// Tenant.
    pub org: OrgId,
    /// The task.
    pub task: TaskId,
    /// The number of the attempt that has ended.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// Its end.
    pub result: super::AttemptResult,
}

/// A person's or a program's answer to a task in doubt or quarantined.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// It took effect and this is its result.
    Result(Payload),
    /// It failed.
    Error(Failure),
    /// Run it again.
    Retry,
}
