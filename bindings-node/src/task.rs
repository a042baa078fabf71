//! How a task is declared.

use crate::error::thrown;
use flovyn_core::host::{Language, TaskDeclaration, TaskSpec as Core};
use napi_derive::napi;

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
pub struct TaskSpec(pub(crate) Core);

#[napi]
impl TaskSpec {
    /// Checks and keeps a declaration.
    #[napi(constructor)]
    pub fn new(kind: String, settings: TaskSettings) -> napi::Result<Self> {
        let pauses = settings
            .retry
            .map_or([None; 4], |pauses| [pauses.delay_ms, pauses.max_delay_ms, pauses.factor, pauses.jitter]);
        let declared = TaskDeclaration {
            retries: settings.retries,
            pauses,
            timeout: settings.timeout_ms,
            heartbeat_timeout: settings.heartbeat_timeout_ms,
            deadline: settings.deadline_ms,
            max_losses: settings.max_losses,
            no_retry: settings.no_retry,
            queue: settings.queue,
            side_effects: settings.side_effects,
            detached: settings.detached,
            interruptible: settings.interruptible,
            in_place: settings.in_place,
            inline: settings.inline,
            aliases: settings.aliases,
        };
        Core::declared(Language::TypeScript, &kind, declared).map(Self).map_err(thrown)
    }

    /// The queue whose workers may run it.
    #[napi(getter)]
    pub fn queue(&self) -> Option<&str> {
        self.0.queue()
    }
}
