//! Conversions between the wire and the model.

use super::Adapter;
use bytes::Bytes;
use flovyn_core::Payload;
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OrgId;
use flovyn_core::model::{Failure, TaskStatus};
use flovyn_core::wire::MAX_MESSAGE;
use flovyn_server::protocol::to_status;
use serde::de::IgnoredAny;
use tonic::Status;
use uuid::Uuid;

/// What a message may hold beside its values.
const ENVELOPE: usize = 64 << 10;

/// An id of a request.
pub(super) fn uuid(text: &str, field: &str) -> Result<Uuid, Status> {
    Uuid::parse_str(text)
        .map_err(|error| Status::invalid_argument(format!("{field} is {text:?}, which is no UUID ({error})")))
}

/// A value of a request; an empty one is `null`.
pub(super) fn value(bytes: Bytes) -> Payload {
    if bytes.is_empty() {
        Payload::null()
    } else if serde_json::from_slice::<IgnoredAny>(&bytes).is_ok() {
        Payload::json(bytes)
    } else {
        Payload::raw(bytes)
    }
}

/// Milliseconds since the Unix epoch.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.0 / 1_000
}

/// A number as the wire has it, in 32 bits.
pub(super) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The name of a status. Tasks that wait for a person count as open.
pub(super) fn task_status(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Pending | TaskStatus::Quarantined => "PENDING",
        TaskStatus::Running | TaskStatus::InDoubt => "RUNNING",
        TaskStatus::Completed => "COMPLETED",
        TaskStatus::Failed => "FAILED",
        TaskStatus::Cancelled => "CANCELLED",
    }
}

/// The message of a failure.
pub(super) fn message(failure: Option<&Failure>) -> String {
    failure.map_or_else(|| "it failed without a word".to_owned(), |failure| failure.message.clone())
}

/// Whether values of so many bytes fit into one message.
pub(super) fn fits(size: u64) -> bool {
    size <= (MAX_MESSAGE - ENVELOPE) as u64
}

/// The error of a value that does not fit.
pub(super) fn too_large(what: &str, size: u64) -> Error {
    let limit = MAX_MESSAGE - ENVELOPE;
    let message = format!(
        "{what} has {size} bytes, and a message of flovyn.v1 holds {limit}; keep it smaller, or run this by a worker of flovyn.v2"
    );
    Error::new(Code::PayloadTooLarge, message).with("size", size).with("limit", limit)
}

impl Adapter {
    /// The bytes of a stored value.
    pub(super) async fn bytes(&self, org: OrgId, payload: &Payload) -> Result<Bytes, Status> {
        match payload.bytes() {
            Ok(bytes) => Ok(bytes.clone()),
            Err(_) => self.storage().read_payload(org, payload).await.map_err(to_status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::payload::Encoding;

    #[test]
    fn values_are_json_where_they_are() {
        assert_eq!(value(Bytes::new()), Payload::null());
        assert_eq!(value(Bytes::from_static(b"{\"a\":1}")).encoding, Encoding::Json);
        assert_eq!(value(Bytes::from_static(b"{a")).encoding, Encoding::Raw);
    }

    #[test]
    fn a_message_has_a_size() {
        assert!(fits(1 << 20) && fits((MAX_MESSAGE - ENVELOPE) as u64) && !fits(MAX_MESSAGE as u64));
        assert!(too_large("the input", 5 << 20).message().contains("5242880 bytes"));
    }
}
