//! How a task is declared.

use crate::session::duration;
use flovyn_core::Error;
use flovyn_core::error::Code;
use flovyn_core::journal::Call;
use flovyn_core::model::{Placement, RetryPolicy, SideEffects, TaskOptions};
use flovyn_core::payload::Payload;
use pyo3::prelude::*;
use std::sync::Arc;

use crate::error::Failure;

/// Kind and options of a task, made once per declaration.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct TaskSpec {
    kind: Arc<str>,
    options: TaskOptions,
    placement: Placement,
    queue: String,
    aliases: Arc<[Arc<str>]>,
}

impl TaskSpec {
    /// A task that some worker of a queue runs, this one too.
    pub(crate) fn queued(kind: &str, options: TaskOptions, queue: &str) -> Self {
        let queue = queue.to_owned();
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

#[pymethods]
impl TaskSpec {
    /// The queue whose workers may run it.
    #[getter]
    fn queue(&self) -> &str {
        &self.queue
    }

    #[new]
    #[pyo3(signature = (
        kind, *, retries=0, retry=None, timeout=None, heartbeat_timeout=None, deadline=None, max_losses=None, no_retry=Vec::new(), queue=None,
        side_effects="idempotent", detached=false, interruptible=false, in_place=false, inline=true, aliases=Vec::new(),
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        kind: &str,
        retries: u32,
        retry: Option<(f64, f64, f64, f64)>,
        timeout: Option<f64>,
        heartbeat_timeout: Option<f64>,
        deadline: Option<f64>,
        max_losses: Option<i64>,
        no_retry: Vec<String>,
        queue: Option<String>,
        side_effects: &str,
        detached: bool,
        interruptible: bool,
        in_place: bool,
        inline: bool,
        aliases: Vec<String>,
    ) -> PyResult<Self> {
        let side_effects = match side_effects {
            "idempotent" => SideEffects::Idempotent,
            "at_most_once" => SideEffects::AtMostOnce,
            "reconcile" => SideEffects::Reconcile,
            other => {
                return Err(invalid(format!(
                    "side_effects={other:?} of task {kind:?} is unknown; pass \"idempotent\" or \"at_most_once\", or give reconcile="
                )));
            }
        };
        if side_effects == SideEffects::AtMostOnce && retries > 0 {
            return Err(invalid(format!(
                "task {kind:?} is at_most_once and has retries={retries}; an error of such a task is final, so drop one of the two"
            )));
        }
        let options = TaskOptions {
            retry: RetryPolicy { retries, no_retry, ..pauses(kind, retry)? },
            timeout: timeout.map(duration).transpose()?,
            heartbeat_timeout: heartbeat_timeout.map(duration).transpose()?,
            deadline: deadline.map(duration).transpose()?,
            side_effects,
            detached,
            interruptible,
            in_place,
            max_losses: max_losses.map_or(Ok(TaskOptions::USUAL_LOSSES), |given| lives(kind, given))?,
            ..TaskOptions::default()
        };
        let placement = if inline { Placement::Inline } else { Placement::Queue };
        let queue = queue.unwrap_or_else(|| "default".into());
        let aliases = aliases.into_iter().map(Arc::from).collect();
        Ok(Self { kind: kind.into(), options, placement, queue, aliases })
    }
}

/// The pauses as they were given: the first, the longest, their growth, and what chance may take away.
fn pauses(kind: &str, given: Option<(f64, f64, f64, f64)>) -> PyResult<RetryPolicy> {
    let Some((delay, max, factor, jitter)) = given else { return Ok(RetryPolicy::default()) };
    let names = ["delay", "max_delay", "factor", "jitter"];
    RetryPolicy::given(kind, names, 1.0, [Some(delay), Some(max), Some(factor), Some(jitter)])
        .map_err(|error| Failure::Engine(error).into())
}

/// A number of lives as it was given, where it is one.
fn lives(kind: &str, given: i64) -> PyResult<u32> {
    TaskOptions::lives(kind, "max_losses", given as f64).map_err(|error| Failure::Engine(error).into())
}

fn invalid(message: String) -> PyErr {
    Failure::Engine(Error::new(Code::InvalidArgument, message)).into()
}
