//! Units of side-effecting work and how they are retried.

use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::{EntryId, ExecutionId, OrgId, Slot, TaskId, WorkerId};
use crate::payload::Payload;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a repeated start would do (rule 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideEffects {
    /// Running it again is harmless: the author's promise.
    #[default]
    Idempotent,
    /// It must not run twice; a lost attempt puts it in doubt.
    AtMostOnce,
    /// A lost attempt is settled by the author's `reconcile` function.
    Reconcile,
}

/// Pauses between attempts: saturating exponential backoff with jitter. The one after failure n is
/// `min(initial * factor^(n - 1), max)`, of which a part between `1 - jitter` and 1 is waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Attempts after the first that may fail.
    pub retries: u32,
    /// The first pause.
    pub initial: Duration,
    /// The longest pause.
    pub max: Duration,
    /// Growth per attempt; below 1 it counts as 1.
    pub factor: f64,
    /// The part of a pause that chance may take away, from 0 to 1.
    #[serde(skip_serializing_if = "is_usual_jitter")]
    pub jitter: f32,
    /// Error types that fail at once.
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
    /// `jitter` where nothing else is said.
    pub const USUAL_JITTER: f32 = 0.5;

    /// The policy of a task as a language gives it: the first pause and the longest in its unit, of which a second has
    /// `per_second`, growth and jitter, each under the name it has there.
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
    /// What a repeated start would do.
    pub side_effects: SideEffects,
    /// Outlives its segment; joined again by `attach`.
    pub detached: bool,
    /// A model call: a signal delivered `now` ends its attempt, with the tokens streamed so far as its result (rule 12).
    pub interruptible: bool,
    /// Tried again where it runs, by the session that holds it: a function that no other process has. To the store all its
    /// tries are one attempt; where the process is gone they are made anew.
    #[serde(skip_serializing_if = "is_not")]
    pub in_place: bool,
    /// The most tokens that one attempt may use: a model call that the run's budget has no room for is not begun. 0 reserves
    /// nothing.
    #[serde(skip_serializing_if = "is_nothing")]
    pub reserve: u32,
    /// Attempts in a row that may be lost with their process before a person must look, from 1 to
    /// [`MOST_LOSSES`](Self::MOST_LOSSES).
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

// What is not said is what it was before it could be: rows of older versions and new ones are alike.
fn is_usual(max_losses: &u32) -> bool {
    *max_losses == TaskOptions::USUAL_LOSSES
}

impl TaskOptions {
    /// `max_losses` where nothing else is said.
    pub const USUAL_LOSSES: u32 = 20;
    /// The highest `max_losses`.
    pub const MOST_LOSSES: u32 = 1_000;

    /// A number of lives as a language gives it, under the name it has there: a whole one from 1 to the most there may be.
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

    /// Refuses what contradicts itself, as what must not run twice and is to be tried again, and a number of lives that is none.
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
    /// It killed its worker too often; a person must look.
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
    /// The code users see.
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
    /// A failure of a code with a type and a message.
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

    pub fn serialize<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(code.as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let word = String::deserialize(deserializer)?;
        Code::parse(&word).ok_or_else(|| serde::de::Error::custom(format!("unknown error code {word:?}")))
    }
}

/// A task as an op asks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// UUIDv5 of the op id.
    pub id: TaskId,
    /// The function's name.
    pub kind: String,
    /// The queue it would be claimed from.
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
    /// Attempts started; the current one's number, from 1.
    pub attempt: u32,
    /// Attempts that returned an error or ran out of time.
    pub failed_attempts: u32,
    /// Attempts lost with their process since the last that ended by itself.
    pub losses: u32,
    /// The result, when completed.
    pub output: Option<Payload>,
    /// The last error.
    pub failure: Option<Failure>,
    /// Fraction and words of the last report.
    pub progress: Option<String>,
    /// Not to be claimed before.
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
    /// Nothing: it has not begun or is over, it is not that kind of task, or its attempt is inline and told by its session.
    None,
    /// Its claimed attempt is told to stop with its next heartbeat.
    Stop,
    /// It ends without a word: it waits for another attempt, and none is in flight that could hear.
    End,
}

impl Task {
    /// Whether the end of its run ends it too: a detached one goes on while an attempt runs, or while nobody knows whether it
    /// took effect; nobody would start another.
    pub(crate) fn ends_with_run(&self) -> bool {
        !self.new.options.detached || matches!(self.status, TaskStatus::Pending | TaskStatus::Quarantined)
    }
}

impl Task {
    /// Whether this attempt of it runs.
    pub(crate) fn is_running(&self, attempt: u32) -> bool {
        self.status == TaskStatus::Running && self.attempt == attempt
    }

    /// What a signal delivered `now` does to it.
    pub(crate) fn interruption(&self) -> Interruption {
        let NewTask { options, placement, .. } = &self.new;
        match self.status {
            _ if !options.interruptible || *placement != Placement::Queue => Interruption::None,
            TaskStatus::Running => Interruption::Stop,
            // Any other would be asked first whether it took effect.
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
    /// The task, input in memory or by reference.
    pub task: Task,
    /// Whether the author's `reconcile` runs instead of the function itself.
    pub reconcile: bool,
    /// The number of the run's event that says so: what the attempt streams stands behind it.
    pub event: u64,
}

/// How a claimed attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskReport {
    /// Tenant.
    pub org: OrgId,
    /// The task.
    pub task: TaskId,
    /// Which attempt this speaks for.
    pub attempt: u32,
    /// Who ran it.
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
