//! Errors on their way to JavaScript: an engine error is thrown as JSON text, which `ts/errors.ts` makes an instance of.

use flovyn_core::Error;
use flovyn_core::error::Code;
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

/// An argument is wrong.
pub(crate) fn invalid(message: impl Into<String>) -> napi::Error {
    thrown(Error::new(Code::InvalidArgument, message.into()))
}
