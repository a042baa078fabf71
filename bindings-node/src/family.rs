//! What the runs of a family tell each other, as an activation sees it.

use crate::error::thrown;
use crate::session::{Session, failure_json};
use crate::value::{Wire, WireOut, duration, payload, to_js};
use flovyn_core::host::{EventParts, Language, OutcomeCode, child_of, request_of};
use flovyn_core::journal::Call;
use flovyn_core::model::{Cancellation, ChildEvent, MessageBody};
use napi::Env;
use napi::bindgen_prelude::{Array, Either};
use napi_derive::napi;

#[napi]
impl Session {
    fn send(&self, body: MessageBody, once: Option<String>) -> napi::Result<u32> {
        Ok(self.0.call(Call::Send(body), once.as_deref()).map_err(thrown)?.op.0)
    }

    /// Tells the parent something.
    #[napi]
    pub fn call_tell(&self, name: String, value: Wire<'_>, once: Option<String>) -> napi::Result<u32> {
        self.send(MessageBody::ToParent { name, payload: payload(value), is_request: false }, once)
    }

    /// Asks the parent.
    #[napi]
    pub fn call_request(
        &self,
        name: String,
        value: Wire<'_>,
        timeout_ms: Option<f64>,
        once: Option<String>,
    ) -> napi::Result<u32> {
        let timeout = timeout_ms.map(duration).transpose()?;
        Ok(self.0.request(&name, payload(value), timeout, once.as_deref()).map_err(thrown)?.0)
    }

    /// Sends a child a signal.
    #[napi]
    pub fn call_send(
        &self,
        child: String,
        name: String,
        value: Wire<'_>,
        delivery: String,
        once: Option<String>,
    ) -> napi::Result<u32> {
        let child = child_of(&child).map_err(thrown)?;
        let delivery = Language::TypeScript.word("delivery", &delivery).map_err(thrown)?;
        self.send(MessageBody::ToChild { child, name, payload: payload(value), delivery }, once)
    }

    /// Answers a request of a child.
    #[napi]
    pub fn call_answer(
        &self,
        child: String,
        request: String,
        value: Wire<'_>,
        once: Option<String>,
    ) -> napi::Result<u32> {
        let request = request_of(&child, &request).map_err(thrown)?;
        self.send(MessageBody::Answer { child: request.child, request: request.id, payload: payload(value) }, once)
    }

    /// Asks a child to stop.
    #[napi]
    pub fn call_stop(
        &self,
        child: String,
        mode: String,
        grace_ms: Option<f64>,
        once: Option<String>,
    ) -> napi::Result<u32> {
        let child = child_of(&child).map_err(thrown)?;
        let mode = Language::TypeScript.word("mode", &mode).map_err(thrown)?;
        let grace = grace_ms.map(duration).transpose()?.unwrap_or(Cancellation::USUAL_GRACE);
        self.send(MessageBody::Stop { child, how: Cancellation { mode, grace } }, once)
    }

    /// Waits for what a child tells next, or for its end.
    #[napi]
    pub fn call_child_event(&self, child: String, timeout_ms: Option<f64>, once: Option<String>) -> napi::Result<u32> {
        let timeout = timeout_ms.map(duration).transpose()?;
        Ok(self.0.child_event(&child, timeout, once.as_deref()).map_err(thrown)?.0)
    }
}

/// What has happened to a child as an array `[kind, name, child, request, failure, value]`, or why the value cannot be shown.
pub(crate) fn event_parts<'env>(
    env: &'env Env,
    event: ChildEvent,
) -> napi::Result<(OutcomeCode, Either<Array<'env>, String>)> {
    let value = event.payload().cloned().map(|value| to_js(env, WireOut(value))).transpose()?;
    let parts = EventParts::of(event);
    let failure = parts.failure.as_ref().map(failure_json);
    let overrun = parts.overrun.and_then(|overrun| serde_json::to_string(&overrun).ok());
    let mut list = env.create_array(7)?;
    list.set(0, parts.kind)?;
    list.set(1, parts.name)?;
    list.set(2, parts.child)?;
    list.set(3, parts.request)?;
    list.set(4, failure)?;
    list.set(5, overrun)?;
    // Its value is the last part, also where there is none.
    match value {
        Some(Ok(value)) => list.set(6, value)?,
        Some(Err(text)) => return Ok((OutcomeCode::Unreadable, Either::B(text))),
        None => {}
    }
    Ok((OutcomeCode::Event, Either::A(list)))
}
