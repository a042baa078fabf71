//! The world of tests for JavaScript: see `flovyn_core::host::test_world`.

use crate::error::thrown;
use crate::hub::{Abort, Hub, Reply};
use crate::runtime::Runtime;
use crate::value::duration;
use flovyn_core::host::test_world::TestWorld as Core;
use napi_derive::napi;

/// A backend in memory whose time is moved by hand.
#[napi]
pub struct TestWorld(Core);

#[napi]
impl TestWorld {
    #[napi(constructor)]
    pub fn new() -> napi::Result<Self> {
        Core::new().map(Self).map_err(thrown)
    }

    /// Moves the time forward.
    #[napi]
    pub fn advance(&self, ms: f64) -> napi::Result<()> {
        self.0.advance(duration(ms)?);
        Ok(())
    }

    /// Milliseconds since 1970 on its clock.
    #[napi]
    pub fn now(&self) -> f64 {
        self.0.now().0 as f64 / 1e3
    }

    /// Does what time has brought; ends with the milliseconds of the next thing it will bring as JSON text, or `null`.
    #[napi]
    pub fn passed(&self, hub: &Hub, token: u32) -> Abort {
        let passed = self.0.passed();
        hub.inbox.spawn(&self.0.host().handle(), token, async move {
            Ok(Reply::Facts(serde_json::json!(passed.await?.map(|due| due.0 as f64 / 1e3))))
        })
    }

    /// Starts a process.
    #[napi]
    pub fn start_process(&self) -> napi::Result<Runtime> {
        let (core, store) = self.0.start_process().map_err(thrown)?;
        Ok(Runtime::of_process(self.0.host().clone(), core, store))
    }
}
