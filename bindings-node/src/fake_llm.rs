//! The scripted model server for JavaScript's tests: see `flovyn_toolkit::fake_llm`.

use crate::error::invalid;
use flovyn_toolkit::fake_llm::{FakeLlm as Core, Script};
use napi_derive::napi;

/// A scripted model server on loopback. It ends with `close`, or when it is collected.
#[napi]
pub struct FakeLlm(Option<Core>);

#[napi]
impl FakeLlm {
    /// Starts a server that answers by a script, given as JSON text.
    #[napi(constructor)]
    pub fn new(script: String) -> napi::Result<Self> {
        let script: Script = serde_json::from_str(&script)
            .map_err(|error| invalid(format!("the script of the model cannot be used: {error}")))?;
        let started = Core::start(script);
        let started = started.map_err(|error| invalid(format!("the scripted model cannot be served: {error}")))?;
        Ok(Self(Some(started)))
    }

    fn core(&self) -> napi::Result<&Core> {
        self.0.as_ref().ok_or_else(|| invalid("the scripted model is closed"))
    }

    /// Its address, as Anthropic's clients take it.
    #[napi(getter)]
    pub fn url(&self) -> napi::Result<String> {
        Ok(self.core()?.url())
    }

    /// Its address, as OpenAI's clients take it.
    #[napi(getter)]
    pub fn openai_url(&self) -> napi::Result<String> {
        Ok(self.core()?.openai_url())
    }

    /// Responses that were sent to their end.
    #[napi(getter)]
    pub fn paid(&self) -> napi::Result<u32> {
        Ok(self.core()?.paid() as u32)
    }

    /// All requests so far, as JSON text.
    #[napi]
    pub fn requests(&self) -> napi::Result<String> {
        serde_json::to_string(&self.core()?.requests())
            .map_err(|error| invalid(format!("a request has no JSON form: {error}")))
    }

    /// Ends the server and its connections.
    #[napi]
    pub fn close(&mut self) {
        self.0 = None;
    }
}
