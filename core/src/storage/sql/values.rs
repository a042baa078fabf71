//! Forms of values that the columns of every dialect share.

use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use serde::Serialize;
use std::time::Duration;
use uuid::Uuid;

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

/// A column value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::storage) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Id(Uuid),
    Text(String),
    Bytes(Vec<u8>),
    /// An array parameter, where the dialect has one.
    List(Vec<Value>),
}

macro_rules! values {
    ($($from:ty => $make:expr;)+) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                #[allow(clippy::redundant_closure_call)]
                ($make)(value)
            }
        }
    )+};
}

values! {
    bool => Value::Bool;
    u8 => |value| Value::Int(i64::from(value));
    i32 => |value| Value::Int(i64::from(value));
    u32 => |value| Value::Int(i64::from(value));
    i64 => Value::Int;
    // Counters never come near the sign.
    u64 => |value| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
    Uuid => Value::Id;
    String => Value::Text;
    &String => |value: &String| Value::Text(value.clone());
    &str => |value: &str| Value::Text(value.to_owned());
    Vec<u8> => Value::Bytes;
    &[u8] => |value: &[u8]| Value::Bytes(value.to_vec());
    Vec<Value> => Value::List;
    Timestamp => |value: Timestamp| Value::Int(value.0);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A list of values, as parameters or as a row.
macro_rules! row {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::storage::sql::values::Value::from($value)),*]
    };
}
pub(in crate::storage) use row;
