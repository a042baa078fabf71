//! Errors on their way to JavaScript: an engine error is thrown as JSON text, which `ts/errors.ts` makes an instance of.

use flovyn_core::Error;
use flovyn_core::error::Code;
use flovyn_core::model::Failure;
use serde_json::{Map, Value, json};

/// What the message of a thrown engine error begins with.
const MARK: &str = "flovyn:";

/// An engine error as JSON text: code, message, context, whether it may be tried again.
pub(crate) fn text(error: &Error) -> String {
    let context: Map<String, Value> =
        error.context().iter().map(|(name, value)| ((*name).to_string(), json!(value))).collect();
    json!({
        "code": error.code().as_str(),
        "message": error.message(),
        "context": context,
        "retryable": error.is_retryable(),
    })
    .to_string()
}

/// An engine error, ready to be thrown.
pub(crate) fn thrown(error: Error) -> napi::Error {
    napi::Error::from_reason(format!("{MARK}{}", text(&error)))
}

/// What was thrown because of one value, as JSON text. The rest is thrown on: JavaScript takes no value any more.
pub(crate) fn of_value(error: napi::Error) -> napi::Result<String> {
    if error.status != napi::Status::GenericFailure {
        return Err(error);
    }
    Ok(match error.reason.strip_prefix(MARK) {
        Some(text) => text.to_owned(),
        None => text(&Error::new(Code::NotSerializable, format!("a value cannot be shown: {}", error.reason))),
    })
}

/// A failure of a task by the JSON text of an error, and whether it may be tried again.
pub(crate) fn failure_of(text: &str) -> (Failure, bool) {
    let parsed: Value = serde_json::from_str(text).unwrap_or_default();
    let code = parsed["code"].as_str().and_then(Code::parse).unwrap_or(Code::TaskFailed);
    let message = parsed["message"].as_str().unwrap_or_default();
    (Failure::new(code, code.as_str(), message), parsed["retryable"] == true)
}

/// An argument is wrong.
pub(crate) fn invalid(message: impl Into<String>) -> napi::Error {
    thrown(Error::new(Code::InvalidArgument, message.into()))
}
