//! The stage of tests for Python: see `flovyn_core::host::stage`.

use crate::error::Failure;
use crate::hub::{Hub, spawn};
use crate::runtime::Runtime;
use crate::session::duration;
use flovyn_core::host::stage::{Mortal, Stage as Core};
use pyo3::prelude::*;
use std::sync::Arc;

/// A backend in memory whose time is moved by hand.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct Stage(Core);

#[pymethods]
impl Stage {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self(py.detach(Core::new).map_err(Failure::from)?))
    }

    /// Moves the time forward.
    fn advance(&self, seconds: f64) -> PyResult<()> {
        self.0.advance(duration(seconds)?);
        Ok(())
    }

    /// Seconds since 1970 on the stage's clock.
    fn now(&self) -> f64 {
        self.0.now().0 as f64 / 1e6
    }

    /// Does what time has brought; ends with the seconds of the next thing it will bring, or none.
    fn passed(&self, hub: &Hub, token: u64) -> PyResult<()> {
        let passed = self.0.passed();
        let runtime = self.0.host().block_on(async { tokio::runtime::Handle::current() }).map_err(Failure::from)?;
        spawn(&runtime, &hub.inbox, token, async move {
            Ok(serde_json::json!(passed.await?.map(|due| due.0 as f64 / 1e6)))
        });
        Ok(())
    }

    /// Begins a life.
    fn life(&self, py: Python<'_>) -> PyResult<Runtime> {
        let (runtime, mortal) = py.detach(|| self.0.life()).map_err(Failure::from)?;
        Runtime::of_life(py, self.0.host().clone(), runtime, mortal)
    }
}

/// Waits for the end of a life through a hub.
pub(crate) fn tell_end(
    mortal: Arc<Mortal>,
    runtime: &tokio::runtime::Handle,
    hub: &Hub,
    token: u64,
) -> tokio::task::AbortHandle {
    spawn(runtime, &hub.inbox, token, async move {
        mortal.ended().await;
        Ok(())
    })
}
