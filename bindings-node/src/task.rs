//! How a task is declared.

use crate::error::invalid;
use crate::value::duration;
use flovyn_core::journal::Call;
use flovyn_core::model::{Placement, RetryPolicy, SideEffects, TaskOptions};
use flovyn_core::payload::Payload;
use napi_derive::napi;
use std::sync::Arc;

/// Pauses between attempts as they are declared.
#[napi(object)]
pub struct Pauses {
    pub delay_ms: Option<f64>,
    pub factor: Option<f64>,
    pub max_delay_ms: Option<f64>,
    pub jitter: Option<f64>,
}

/// Options of a task as they are declared; times are milliseconds.
#[napi(object)]
pub struct TaskSettings {
    pub retries: u32,
    pub retry: Option<Pauses>,
    pub timeout_ms: Option<f64>,
    pub heartbeat_timeout_ms: Option<f64>,
    pub deadline_ms: Option<f64>,
    pub max_losses: Option<f64>,
    pub no_retry: Vec<String>,
    pub queue: Option<String>,
    pub side_effects: String,
    pub detached: bool,
    pub interruptible: bool,
    pub in_place: bool,
    pub inline: bool,
    pub aliases: Vec<String>,
}

/// Kind and options of a task, made once per declaration.
#[napi]
pub struct TaskSpec {
    kind: Arc<str>,
    options: TaskOptions,
    placement: Placement,
    queue: String,
    aliases: Arc<[Arc<str>]>,
}

impl TaskSpec {
    /// A task of the toolkit, which a worker claims from a queue.
    pub(crate) fn queued(kind: String, options: TaskOptions, queue: String) -> Self {
        Self { kind: kind.into(), options, placement: Placement::Queue, queue, aliases: Arc::default() }
    }

    /// The call that schedules it.
    pub(crate) fn call(&self, input: Payload, key: Option<Arc<str>>) -> Call {
        Call::Task {
            kind: self.kind.clone(),
            input,
            options: self.options.clone(),
            placement: self.placement,
            queue: self.queue.clone(),
            key,
            aliases: self.aliases.clone(),
        }
    }
}

#[napi]
impl TaskSpec {
    /// Checks and keeps a declaration.
    #[napi(constructor)]
    pub fn new(kind: String, settings: TaskSettings) -> napi::Result<Self> {
        let side_effects = match &*settings.side_effects {
            "idempotent" => SideEffects::Idempotent,
            "at_most_once" => SideEffects::AtMostOnce,
            "reconcile" => SideEffects::Reconcile,
            other => {
                return Err(invalid(format!(
                    "sideEffects: {other:?} of task {kind:?} is unknown; pass \"idempotent\" or \"at_most_once\", or give reconcile"
                )));
            }
        };
        if side_effects == SideEffects::AtMostOnce && settings.retries > 0 {
            return Err(invalid(format!(
                "task {kind:?} is at_most_once and has retries: {}; an error of such a task is final, so drop one of the two",
                settings.retries
            )));
        }
        let options = TaskOptions {
            retry: RetryPolicy {
                retries: settings.retries,
                no_retry: settings.no_retry,
                ..pauses(&kind, settings.retry)?
            },
            timeout: settings.timeout_ms.map(duration).transpose()?,
            heartbeat_timeout: settings.heartbeat_timeout_ms.map(duration).transpose()?,
            deadline: settings.deadline_ms.map(duration).transpose()?,
            side_effects,
            detached: settings.detached,
            interruptible: settings.interruptible,
            in_place: settings.in_place,
            max_losses: settings.max_losses.map_or(Ok(TaskOptions::USUAL_LOSSES), |given| lives(&kind, given))?,
            ..TaskOptions::default()
        };
        let placement = if settings.inline { Placement::Inline } else { Placement::Queue };
        let queue = settings.queue.unwrap_or_else(|| "default".into());
        let aliases = settings.aliases.into_iter().map(Arc::from).collect();
        Ok(Self { kind: kind.into(), options, placement, queue, aliases })
    }

    /// The queue whose workers may run it.
    #[napi(getter)]
    pub fn queue(&self) -> &str {
        &self.queue
    }
}

/// Pauses as they were given.
fn pauses(kind: &str, given: Option<Pauses>) -> napi::Result<RetryPolicy> {
    let Some(given) = given else { return Ok(RetryPolicy::default()) };
    let names = ["delayMs", "maxDelayMs", "factor", "jitter"];
    RetryPolicy::given(kind, names, 1e3, [given.delay_ms, given.max_delay_ms, given.factor, given.jitter])
        .map_err(crate::error::thrown)
}

/// A number of lives as it was given, where it is one.
fn lives(kind: &str, given: f64) -> napi::Result<u32> {
    TaskOptions::lives(kind, "maxLosses", given).map_err(crate::error::thrown)
}
