//! How a task is declared.

use crate::error::OrRaise;
use flovyn_core::host::{Language, TaskDeclaration, TaskSpec as Core};
use pyo3::prelude::*;

/// Kind and options of a task, made once per declaration.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct TaskSpec(pub(crate) Core);

#[pymethods]
impl TaskSpec {
    /// The queue whose workers may run it.
    #[getter]
    fn queue(&self) -> Option<&str> {
        self.0.queue()
    }

    #[new]
    #[pyo3(signature = (
        kind, *, retries=0, retry=None, timeout=None, heartbeat_timeout=None, deadline=None, max_losses=None, no_retry=Vec::new(), queue=None,
        side_effects=String::from("idempotent"), detached=false, interruptible=false, in_place=false, inline=true, aliases=Vec::new(),
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
        side_effects: String,
        detached: bool,
        interruptible: bool,
        in_place: bool,
        inline: bool,
        aliases: Vec<String>,
    ) -> PyResult<Self> {
        let declared = TaskDeclaration {
            retries,
            pauses: retry.map_or([None; 4], |(delay, max, factor, jitter)| [delay, max, factor, jitter].map(Some)),
            timeout,
            heartbeat_timeout,
            deadline,
            max_losses: max_losses.map(|most| most as f64),
            no_retry,
            queue,
            side_effects,
            detached,
            interruptible,
            in_place,
            inline,
            aliases,
        };
        Core::declared(Language::Python, kind, declared).map(Self).or_raise()
    }
}
