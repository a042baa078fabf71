//! Options as host languages give them, read once for all languages.
//!
//! Python gives times in seconds and TypeScript in milliseconds; each names options its own way, and errors repeat that.

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OpId};
use crate::journal::{Call, MachineConfig, OnDivergence, OnError, REPLAY_TIMEOUT};
use crate::model::{ForkFrom, Placement, RetryPolicy, SideEffects, TaskOptions};
use crate::payload::Payload;
use crate::view::camel;
use crate::worker::WorkerOptions;
use serde::de::DeserializeOwned;
use serde::de::value::StrDeserializer;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A language in which agents are written on this boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Seconds and `snake_case=`.
    Python,
    /// Milliseconds and `camelCase:`.
    TypeScript,
}

impl Language {
    /// An option with its value, as the language writes it.
    fn option(self, name: &str, value: impl fmt::Debug) -> String {
        match self {
            Self::Python => format!("{name}={value:?}"),
            Self::TypeScript => format!("{}: {value:?}", camel(name)),
        }
    }

    fn units_per_second(self) -> f64 {
        match self {
            Self::Python => 1.0,
            Self::TypeScript => 1e3,
        }
    }

    /// A number of the language's as a duration; negative ones are over already.
    pub fn duration(self, number: f64) -> Result<Duration> {
        Duration::try_from_secs_f64((number / self.units_per_second()).max(0.0)).map_err(|_| {
            let unit = if self == Self::Python { "seconds" } else { "milliseconds" };
            invalid(format!("{number} is no number of {unit} that can be waited for"))
        })
    }

    fn optional_duration(self, number: Option<f64>) -> Result<Option<Duration>> {
        number.map(|number| self.duration(number)).transpose()
    }

    /// The pause that an error asks for; what cannot be waited for asks for none.
    pub fn pause(self, number: Option<f64>) -> Option<Duration> {
        Duration::try_from_secs_f64(number? / self.units_per_second()).ok()
    }

    /// The value of an option that is one of a few words: those that the type itself is read from.
    pub fn word<T: DeserializeOwned>(self, name: &str, word: &str) -> Result<T> {
        T::deserialize(StrDeserializer::<UnknownWord>::new(word)).map_err(|UnknownWord(known)| {
            let quoted: Vec<_> = known.iter().map(|word| format!("{word:?}")).collect();
            let known = match &quoted[..] {
                [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
                all => all.concat(),
            };
            invalid(format!("{} is unknown; pass {known}", self.option(name, word)))
        })
    }
}

/// Keeps of an error of serde's which words would have done.
#[derive(Debug)]
struct UnknownWord(&'static [&'static str]);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "known are {:?}", self.0)
    }
}

impl std::error::Error for UnknownWord {}

impl serde::de::Error for UnknownWord {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        Self(known)
    }
}

/// How an agent is declared; times are numbers of the language's.
#[derive(Debug)]
pub struct AgentDeclaration {
    /// Whether `checkpoint` ends a segment.
    pub stateful: bool,
    /// Identifies the agent's code.
    pub code: Option<String>,
    /// What to do when code and tail differ.
    pub on_divergence: String,
    /// What to do when an error leaves the code.
    pub on_error: Option<String>,
    /// Whether its awaits are told that the run shall stop.
    pub cancellable: bool,
    /// How long replay waits for a recorded call.
    pub replay_timeout: Option<f64>,
}

impl AgentDeclaration {
    /// What the engine needs to know of it.
    pub fn config(self, language: Language) -> Result<MachineConfig> {
        Ok(MachineConfig {
            stateful: self.stateful,
            code: self.code,
            on_divergence: OnDivergence::parse(&self.on_divergence)?,
            on_error: OnError::parse(self.on_error.as_deref())?,
            not_cancellable: !self.cancellable,
            // Nothing in JavaScript tells what a promise waits for.
            blind: language == Language::TypeScript,
            replay_timeout: language.optional_duration(self.replay_timeout)?.unwrap_or(REPLAY_TIMEOUT),
        })
    }
}

/// How a task is declared; times are numbers of the language's.
#[derive(Debug, Default)]
pub struct TaskDeclaration {
    /// Attempts after the first that may fail.
    pub retries: u32,
    /// The first pause between attempts, the longest, their growth, and the part that chance may take away.
    pub pauses: [Option<f64>; 4],
    /// The longest an attempt may take.
    pub timeout: Option<f64>,
    /// The longest silence between heartbeats.
    pub heartbeat_timeout: Option<f64>,
    /// The longest it may take in all.
    pub deadline: Option<f64>,
    /// How often in a row it may be lost with its process.
    pub max_losses: Option<f64>,
    /// Errors that are not tried again.
    pub no_retry: Vec<String>,
    /// The queue whose workers may run it.
    pub queue: Option<String>,
    /// What a repeated start would do.
    pub side_effects: String,
    /// Whether it outlives its segment.
    pub detached: bool,
    /// Whether a signal may cut it short.
    pub interruptible: bool,
    /// Whether it is tried again in the memory of the process.
    pub in_place: bool,
    /// Whether the worker of the agent runs it at once.
    pub inline: bool,
    /// Names it had before.
    pub aliases: Vec<String>,
}

/// Kind and options of a task, made once per declaration.
#[derive(Debug)]
pub struct TaskSpec {
    kind: Arc<str>,
    options: TaskOptions,
    placement: Placement,
    queue: Option<String>,
    aliases: Arc<[Arc<str>]>,
}

impl TaskSpec {
    /// Checks a declaration.
    pub fn declared(language: Language, kind: &str, given: TaskDeclaration) -> Result<Self> {
        let (pauses, losses) = match language {
            Language::Python => (["delay", "max_delay", "factor", "jitter"], "max_losses"),
            Language::TypeScript => (["delayMs", "maxDelayMs", "factor", "jitter"], "maxLosses"),
        };
        let retry = RetryPolicy::given(kind, pauses, language.units_per_second(), given.pauses)?;
        let side_effects: SideEffects = language.word("side_effects", &given.side_effects).map_err(|_| {
            invalid(format!(
                "{} of task {kind:?} is unknown; pass \"idempotent\" or \"at_most_once\", or give a reconcile function",
                language.option("side_effects", &given.side_effects)
            ))
        })?;
        let lives = |given| TaskOptions::lives(kind, losses, given);
        let options = TaskOptions {
            retry: RetryPolicy { retries: given.retries, no_retry: given.no_retry, ..retry },
            timeout: language.optional_duration(given.timeout)?,
            heartbeat_timeout: language.optional_duration(given.heartbeat_timeout)?,
            deadline: language.optional_duration(given.deadline)?,
            side_effects,
            detached: given.detached,
            interruptible: given.interruptible,
            in_place: given.in_place,
            max_losses: given.max_losses.map_or(Ok(TaskOptions::USUAL_LOSSES), lives)?,
            ..TaskOptions::default()
        };
        options.check(kind)?;
        Ok(Self {
            kind: kind.into(),
            options,
            placement: if given.inline { Placement::Inline } else { Placement::Queue },
            queue: given.queue,
            aliases: given.aliases.into_iter().map(Arc::from).collect(),
        })
    }

    /// A task that some worker of a queue runs.
    pub fn queued(kind: &str, options: TaskOptions, queue: String) -> Self {
        Self { kind: kind.into(), options, placement: Placement::Queue, queue: Some(queue), aliases: Arc::default() }
    }

    /// The queue whose workers may run it; that of the run that calls it where none is named.
    pub fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    /// The call that schedules it in a run of this queue.
    pub fn call(&self, input: Payload, key: Option<&str>, own: &str) -> Call {
        Call::Task {
            kind: self.kind.clone(),
            input,
            options: self.options.clone(),
            placement: self.placement,
            queue: self.queue().unwrap_or(own).to_owned(),
            key: key.map(Into::into),
            aliases: self.aliases.clone(),
        }
    }
}

/// How much a worker takes on.
#[derive(Debug)]
pub struct WorkerSettings {
    /// The queue it polls.
    pub queue: String,
    /// Runs that advance at the same time.
    pub max_agents: usize,
    /// Tasks that run at the same time, inline ones included.
    pub max_tasks: Option<usize>,
    /// Waiting runs kept in memory.
    pub max_parked: Option<usize>,
    /// Serve this run alone.
    pub only: Option<String>,
}

impl WorkerSettings {
    /// What the engine's worker takes.
    pub fn options(self) -> Result<WorkerOptions> {
        let usual = WorkerOptions::default();
        Ok(WorkerOptions {
            queue: self.queue,
            max_agents: self.max_agents,
            max_tasks: self.max_tasks.unwrap_or(usual.max_tasks),
            // A worker that is to run no tasks still has to run its own agents' steps.
            count_inline: self.max_tasks.is_some_and(|most| most > 0),
            max_parked: self.max_parked.unwrap_or(usual.max_parked),
            only: self.only.as_deref().map(run_id).transpose()?,
            ..usual
        })
    }
}

/// Where a fork starts: at one place at most.
pub fn fork_from(checkpoint: Option<u32>, entry: Option<&str>, op: Option<&str>) -> Result<ForkFrom> {
    match (checkpoint, entry, op) {
        (None, None, None) => Ok(ForkFrom::Latest),
        (Some(sequence), None, None) => Ok(ForkFrom::Checkpoint(sequence)),
        (None, Some(entry), None) => {
            let parsed = entry.parse().map_err(|_| invalid(format!("{entry:?} is no entry id")))?;
            Ok(ForkFrom::Entry(parsed))
        }
        (None, None, Some(op)) => Ok(ForkFrom::Op(op_id(op)?.slot)),
        _ => Err(invalid("a fork starts at one place: give checkpoint, entry or op, not several".into())),
    }
}

/// The id of an op.
pub fn op_id(text: &str) -> Result<OpId> {
    OpId::parse(text).ok_or_else(|| invalid(format!("{text:?} is no op id; describe() and tasks() name them")))
}

/// The id of a run, which is no key.
pub fn run_id(text: &str) -> Result<ExecutionId> {
    text.parse().map_err(|error| invalid(format!("{text:?} is no UUID: {error}")))
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CancelMode, Delivery};

    fn message<T: fmt::Debug>(result: Result<T>) -> String {
        result.expect_err("it is refused").message().to_owned()
    }

    #[test]
    fn words_are_read_by_the_types_that_they_name() {
        assert_eq!(Language::Python.word::<Delivery>("delivery", "next_turn").unwrap(), Delivery::NextTurn);
        assert_eq!(Language::TypeScript.word::<CancelMode>("mode", "hard").unwrap(), CancelMode::Hard);
        assert_eq!(
            message(Language::Python.word::<Delivery>("delivery", "later")),
            "delivery=\"later\" is unknown; pass \"next_step\", \"next_turn\" or \"now\""
        );
        assert_eq!(
            message(Language::TypeScript.word::<CancelMode>("mode", "soft")),
            "mode: \"soft\" is unknown; pass \"graceful\" or \"hard\""
        );
    }

    #[test]
    fn times_are_of_the_unit_of_their_language() {
        assert_eq!(Language::Python.duration(1.5).unwrap(), Duration::from_millis(1_500));
        assert_eq!(Language::TypeScript.duration(1.5).unwrap(), Duration::from_micros(1_500));
        assert_eq!(Language::TypeScript.duration(-1.0).unwrap(), Duration::ZERO);
        assert!(message(Language::Python.duration(f64::INFINITY)).contains("number of seconds"));
        assert!(message(Language::TypeScript.duration(1e30)).contains("number of milliseconds"));
        assert_eq!(Language::Python.pause(Some(-1.0)), None);
    }

    #[test]
    fn declarations_that_contradict_themselves_are_refused() {
        let declared = |side_effects: &str, retries| {
            let given = TaskDeclaration { side_effects: side_effects.into(), retries, ..TaskDeclaration::default() };
            TaskSpec::declared(Language::TypeScript, "pay", given)
        };
        assert!(declared("at_most_once", 0).is_ok());
        assert!(message(declared("at_most_once", 2)).contains("task \"pay\" is at_most_once and has retries=2"));
        assert!(message(declared("none", 0)).contains("sideEffects: \"none\" of task \"pay\" is unknown"));
    }

    #[test]
    fn a_fork_starts_at_one_place() {
        assert!(matches!(fork_from(None, None, None), Ok(ForkFrom::Latest)));
        assert!(matches!(fork_from(Some(2), None, None), Ok(ForkFrom::Checkpoint(2))));
        assert!(message(fork_from(Some(2), Some("x"), None)).contains("one place"));
        assert!(message(fork_from(None, None, Some("x"))).contains("is no op id"));
        assert!(message(fork_from(None, Some("x"), None)).contains("is no entry id"));
    }
}
