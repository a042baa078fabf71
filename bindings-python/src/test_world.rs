//! The world of tests for Python: see `flovyn_core::host::test_world`.

use crate::error::OrRaise;
use crate::hub::{Hub, spawn};
use crate::runtime::Runtime;
use crate::value::duration;
use flovyn_core::host::test_world::{CrashableStore, TestWorld as Core};
use pyo3::prelude::*;
use std::sync::Arc;

/// A backend in memory whose time is moved by hand.
#[pyclass(frozen, module = "flovyn._native")]
pub(crate) struct TestWorld(Core);

#[pymethods]
impl TestWorld {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self(py.detach(Core::new).or_raise()?))
    }

    /// Moves the time forward.
    fn advance(&self, seconds: f64) -> PyResult<()> {
        self.0.advance(duration(seconds)?);
        Ok(())
    }

    /// Seconds since 1970 on its clock.
    fn now(&self) -> f64 {
        self.0.now().0 as f64 / 1e6
    }

    /// Does what time has brought; ends with the seconds of the next thing it will bring, or none.
    fn passed(&self, hub: &Hub, token: u64) -> PyResult<()> {
        let passed = self.0.passed();
        spawn(&self.0.host().handle(), &hub.inbox, token, async move {
            Ok(serde_json::json!(passed.await?.map(|due| due.0 as f64 / 1e6)))
        });
        Ok(())
    }

    /// Starts a process.
    fn start_process(&self, py: Python<'_>) -> PyResult<Runtime> {
        let (runtime, store) = py.detach(|| self.0.start_process()).or_raise()?;
        Ok(Runtime::of_process(self.0.host().clone(), runtime, store))
    }
}

/// Waits for the crash of a process through a hub.
pub(crate) fn wait_for_crash(
    store: Arc<CrashableStore>,
    runtime: &tokio::runtime::Handle,
    hub: &Hub,
    token: u64,
) -> tokio::task::AbortHandle {
    spawn(runtime, &hub.inbox, token, async move {
        store.crashed().await;
        Ok(())
    })
}
