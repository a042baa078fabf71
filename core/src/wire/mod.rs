//! The model in its form on the wire, and back. The server and the remote storage share it; nothing else names wire types.
//!
//! Every model type has `From<&Model> for v2::Message` and `TryFrom<v2::Message> for Model`. If a field of a message is
//! missing or wrong, the error is `InvalidArgument` and names the field. Orgs are not on the wire: the token of a call
//! names its org.

pub mod attach;
mod budget;
mod catalog;
mod error;
mod execution;
mod journal;
mod machine;
mod message;
mod payload;
mod queue;
mod schedule;
mod task;

pub use catalog::{delivery, execution_filter, list_executions};
#[cfg(feature = "remote")]
pub(crate) use error::REFUSED;
pub use error::{error_of_status, status_of_error};
pub use flovyn_proto::{CHUNK, DESCRIPTORS, MAX_MESSAGE, v2};
pub use journal::facts;
use payload::encoding_of;
pub use payload::{Parts, encoding, parts, stored};
pub use queue::{limit_of_queue, queue_limit};

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::time::Duration;
use uuid::Uuid;

/// A message that belongs to the org which the token of its call names.
pub trait OfOrg {
    /// The model type that it is the form of.
    type Model;
    /// Reads it back.
    fn into_model(self, org: OrgId) -> Result<Self::Model>;
}

/// The error for a wrong field.
fn wrong(field: &str, found: &str) -> Error {
    Error::new(
        Code::InvalidArgument,
        format!("the field {field} of a message {found}; client and server may be of different versions"),
    )
}

/// A field that must be there.
fn need<T>(value: Option<T>, field: &str) -> Result<T> {
    value.ok_or_else(|| wrong(field, "is missing"))
}

/// An id of 16 bytes.
pub fn id(bytes: &[u8], field: &str) -> Result<Uuid> {
    Uuid::from_slice(bytes).map_err(|_| wrong(field, &format!("has {} bytes, an id has 16", bytes.len())))
}

/// An id that may be absent.
fn some_id(bytes: &[u8], field: &str) -> Result<Option<Uuid>> {
    if bytes.is_empty() { Ok(None) } else { id(bytes, field).map(Some) }
}

/// The bytes of an id.
pub fn raw(id: Uuid) -> Bytes {
    Bytes::copy_from_slice(id.as_bytes())
}

/// The bytes of an id that may be absent.
fn some_raw(id: Option<Uuid>) -> Bytes {
    id.map(raw).unwrap_or_default()
}

/// Bytes of a fixed length, such as a digest.
fn fixed<const N: usize>(bytes: &[u8], field: &str) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| wrong(field, &format!("has {} bytes instead of {N}", bytes.len())))
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn some_micros(duration: Option<Duration>) -> Option<u64> {
    duration.map(micros)
}

fn some_duration(value: Option<u64>) -> Option<Duration> {
    value.map(Duration::from_micros)
}

fn some_time(value: Option<i64>) -> Option<Timestamp> {
    value.map(Timestamp)
}

/// The word for a value of an enum, the same as in JSON.
pub fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The value of an enum for a word.
pub fn of_word<T: DeserializeOwned>(text: &str, field: &str) -> Result<T> {
    let text: serde::de::value::StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(text).map_err(|error| wrong(field, &format!("is no word that is known here: {error}")))
}
