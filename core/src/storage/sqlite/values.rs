//! Column values: ids, JSON, payloads, labels, and the integer keys that put the rows of a run side by side.
//!
//! A payload column holds text or bytes. Text is small JSON, so that people can read it with any SQLite tool. Bytes
//! begin with a tag:
//!
//! | tag | what follows |
//! | --- | --- |
//! | 0, 4 | raw bytes; those of a blob |
//! | 1, 2, 5 | hash and size of a value in the payload table: JSON, raw, blob |
//! | 3 | JSON, compressed with zstd |

use super::fault::Done;
use crate::error::{Code, Error};
use crate::id::OnceSlot;
use crate::model::{LabelKey, Seen};
use crate::payload::{Body, ContentHash, Digest, Encoding, INLINE_LIMIT, Payload};
use crate::storage::sql::database_error::corrupt;
pub(super) use crate::storage::sql::values::{duration, micros, text_of};
use bytes::Bytes;
use rusqlite::types::{FromSqlError, ToSqlOutput, Value, ValueRef};
use rusqlite::{Row, ToSql};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use uuid::Uuid;
use zstd::bulk::Compressor;

/// How many low bits of a key number the rows of one run.
pub(super) const SHIFT: u32 = 31;
/// The largest number a row may have in its run.
pub(super) const MAX_NUMBER: i64 = (1 << SHIFT) - 1;

/// The key of a run's row. Fails if the run has more rows of a kind than a key can number.
pub(super) fn key(run: i64, number: i64) -> Done<i64> {
    if (0..=MAX_NUMBER).contains(&number) {
        return Ok(run << SHIFT | number);
    }
    Err(Error::new(
        Code::InvalidArgument,
        format!("number {number} of a run is over {MAX_NUMBER}, the most a run may have; continue in a new run"),
    )
    .into())
}

/// The number of a row in its run.
pub(super) fn number_of(key: i64) -> u64 {
    (key & MAX_NUMBER) as u64
}

/// The first and the last key of a run.
pub(super) fn span(run: i64) -> (i64, i64) {
    (run << SHIFT, run << SHIFT | MAX_NUMBER)
}

/// JSON of at least this size is compressed if that saves an eighth.
const COMPRESS_FROM: usize = 1024;

thread_local! {
    static PACKER: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(1).ok());
}

/// The compressed form of JSON, with its tag. None if compression saves too little.
fn packed(json: &[u8]) -> Option<Vec<u8>> {
    // A value is unpacked into as much room as a row has for one. What is told of a run of the family may be longer.
    if !(COMPRESS_FROM..=INLINE_LIMIT).contains(&json.len()) {
        return None;
    }
    let packed = PACKER.with_borrow_mut(|packer| packer.as_mut()?.compress(json).ok())?;
    if packed.len() + 1 > json.len() - json.len() / 8 {
        return None;
    }
    let mut blob = Vec::with_capacity(packed.len() + 1);
    blob.push(3);
    blob.extend_from_slice(&packed);
    Some(blob)
}

/// A payload as a column value.
pub(super) struct Cell<'a>(pub &'a Payload);

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match (&self.0.body, self.0.encoding) {
            (Body::Inline(bytes), Encoding::Json) => match packed(bytes) {
                Some(blob) => ToSqlOutput::Owned(Value::Blob(blob)),
                None => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
            },
            (Body::Inline(bytes), encoding) => {
                let mut blob = Vec::with_capacity(bytes.len() + 1);
                blob.push(if encoding == Encoding::Blob { 4 } else { 0 });
                blob.extend_from_slice(bytes);
                ToSqlOutput::Owned(Value::Blob(blob))
            }
            (Body::Stored { .. } | Body::Kept { .. }, encoding) => {
                let Some((hash, size)) = self.0.stored() else { return Ok(ToSqlOutput::Owned(Value::Null)) };
                let mut blob = Vec::with_capacity(41);
                blob.push(match encoding {
                    Encoding::Json => 1,
                    Encoding::Raw => 2,
                    Encoding::Blob => 5,
                });
                blob.extend_from_slice(&hash.0);
                blob.extend_from_slice(&size.to_le_bytes());
                ToSqlOutput::Owned(Value::Blob(blob))
            }
            (Body::Source(_) | Body::Row { .. }, _) => {
                return Err(rusqlite::Error::ToSqlConversionFailure("a streamed payload was not stored first".into()));
            }
        })
    }
}

fn payload_of(value: ValueRef<'_>) -> Option<Payload> {
    let blob = match value {
        ValueRef::Text(text) => return Some(Payload::json(Bytes::copy_from_slice(text))),
        ValueRef::Blob(blob) => blob,
        _ => return None,
    };
    let (tag, rest) = blob.split_first()?;
    let encoding = match tag {
        1 => Encoding::Json,
        4 | 5 => Encoding::Blob,
        _ => Encoding::Raw,
    };
    match tag {
        0 | 4 => Some(Payload { encoding, body: Body::Inline(Bytes::copy_from_slice(rest)) }),
        1 | 2 | 5 => {
            let (hash, size) = rest.split_at_checked(32)?;
            let body = Body::Stored {
                hash: ContentHash(hash.try_into().ok()?),
                size: u64::from_le_bytes(size.try_into().ok()?),
            };
            Some(Payload { encoding, body })
        }
        3 => zstd::bulk::decompress(rest, INLINE_LIMIT).ok().map(Payload::json),
        _ => None,
    }
}

/// The error for a column that does not hold a value of this kind.
pub(super) fn unreadable(index: usize, what: &str) -> rusqlite::Error {
    let error = FromSqlError::Other(format!("column {index} holds no {what}").into());
    rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Blob, Box::new(error))
}

/// Reads a payload column.
pub(super) fn payload(row: &Row<'_>, index: usize) -> rusqlite::Result<Payload> {
    payload_of(row.get_ref(index)?).ok_or_else(|| unreadable(index, "payload"))
}

/// Reads a payload column that may be empty.
pub(super) fn payload_opt(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Payload>> {
    match row.get_ref(index)? {
        ValueRef::Null => Ok(None),
        value => payload_of(value).map(Some).ok_or_else(|| unreadable(index, "payload")),
    }
}

/// Reads an id column.
pub(super) fn id(row: &Row<'_>, index: usize) -> rusqlite::Result<Uuid> {
    row.get::<_, [u8; 16]>(index).map(Uuid::from_bytes)
}

/// Reads an id column that may be empty.
pub(super) fn id_opt(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Uuid>> {
    Ok(row.get::<_, Option<[u8; 16]>>(index)?.map(Uuid::from_bytes))
}

/// An id as a column value.
pub(super) fn blob(id: &Uuid) -> &[u8] {
    id.as_bytes()
}

/// Reads a JSON column; an empty one gives the default.
pub(super) fn json<T: DeserializeOwned + Default>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
    Ok(json_opt(row, index)?.unwrap_or_default())
}

/// Reads a JSON column that may be empty.
pub(super) fn json_opt<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<T>> {
    match row.get_ref(index)? {
        ValueRef::Null => Ok(None),
        ValueRef::Text(text) => serde_json::from_slice(text).map(Some).map_err(|_| unreadable(index, "JSON")),
        _ => Err(unreadable(index, "JSON")),
    }
}

/// A label's key as a column value: text for the author's, a blob for a digest.
pub(super) fn label_key(key: &LabelKey) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match key {
        LabelKey::Key(text) => ValueRef::Text(text.as_bytes()),
        LabelKey::Digest(digest) => ValueRef::Blob(&digest.0),
    })
}

/// Reads a label's key.
pub(super) fn read_label_key(row: &Row<'_>, index: usize) -> rusqlite::Result<LabelKey> {
    match row.get_ref(index)? {
        ValueRef::Text(text) => Ok(LabelKey::Key(String::from_utf8_lossy(text).into())),
        ValueRef::Blob(bytes) => {
            bytes.try_into().map(|bytes| LabelKey::Digest(Digest(bytes))).map_err(|_| unreadable(index, "digest"))
        }
        _ => Err(unreadable(index, "label")),
    }
}

/// The outcomes an op has seen as a column value.
pub(super) fn seen_bytes(seen: &[Seen]) -> Option<Vec<u8>> {
    (!seen.is_empty()).then(|| seen.iter().flat_map(|seen| seen.0.to_le_bytes()).collect())
}

/// Reads the outcomes an op has seen.
pub(super) fn read_seen(row: &Row<'_>, index: usize) -> rusqlite::Result<Vec<Seen>> {
    let Some(bytes) = row.get_ref(index)?.as_blob_or_null().map_err(|_| unreadable(index, "list of outcomes"))? else {
        return Ok(Vec::new());
    };
    let (numbers, _) = bytes.as_chunks::<4>();
    Ok(numbers.iter().map(|number| Seen(u32::from_le_bytes(*number))).collect())
}

/// Reads an op's place inside a `once`.
pub(super) fn read_once(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<OnceSlot>> {
    let name: Option<String> = row.get(index)?;
    Ok(match name {
        Some(name) => Some(OnceSlot { name: name.into(), n: row.get(index + 1)? }),
        None => None,
    })
}

/// Reads an enum column that holds the place of a value in a table.
pub(super) fn one_of<T: Copy>(all: &[T], index: usize, row: &Row<'_>) -> rusqlite::Result<T> {
    let place: usize = row.get(index)?;
    all.get(place).copied().ok_or_else(|| unreadable(index, "known value"))
}

/// The error for a row that is missing but must exist.
pub(super) fn missing(what: &str) -> Error {
    corrupt(format!("{what} is missing; the file may have been edited by hand"))
}
