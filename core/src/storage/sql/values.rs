//! Forms of values that the columns of every dialect share.

use crate::error::{Code, Error, Result};
use serde::Serialize;
use std::time::Duration;

/// A value as JSON text.
pub(in crate::storage) fn text_of<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        Error::new(Code::NotSerializable, format!("a row could not be written as JSON: {error}")).caused_by(error)
    })
}

/// A duration as a column value.
pub(in crate::storage) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The duration of a column.
pub(in crate::storage) fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0) as u64)
}
