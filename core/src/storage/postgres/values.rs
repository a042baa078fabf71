//! Column values: reading a row, and the forms of payloads, labels and lists in their columns.
//!
//! A payload column holds bytes that begin with a tag:
//!
//! | tag | what follows |
//! | --- | --- |
//! | 0, 6 | raw bytes; those of a blob |
//! | 1, 2, 5 | hash and size of a value in the payload table: JSON, raw, blob |
//! | 3 | JSON, compressed with zstd |
//! | 4 | JSON |
//!
//! People can read JSON by `convert_from(substr(input, 2), 'UTF8')`.

use super::fault::{Done, Fault};
use crate::error::{Code, Error};
use crate::id::{OnceSlot, OrgId, Slot};
use crate::model::{LabelKey, Seen};
use crate::payload::{Body, ContentHash, Digest, Encoding, INLINE_LIMIT, Payload};
use crate::storage::sql::database_error::corrupt;
pub(super) use crate::storage::sql::values::{duration, micros, text_of};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use tokio_postgres::types::FromSql;
use uuid::Uuid;
use zstd::bulk::Compressor;

/// Where the rows of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::storage) struct Key {
    pub org: OrgId,
    pub run: i64,
}

/// Where an op is: its run and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::storage) struct Place {
    pub key: Key,
    pub slot: Slot,
}

/// A row that was read.
pub(super) struct Row(pub tokio_postgres::Row);

/// A type that a column can be read as.
pub(super) trait FromColumn: Sized {
    fn read(row: &Row, index: usize) -> Done<Self>;
}

impl Row {
    /// The value of a column.
    pub(super) fn get<T: FromColumn>(&self, index: usize) -> Done<T> {
        T::read(self, index)
    }

    /// The bytes of a column, borrowed from the row.
    pub(super) fn bytes(&self, index: usize) -> Done<&[u8]> {
        self.raw(index, "bytes")
    }

    fn raw<'a, T: FromSql<'a>>(&'a self, index: usize, what: &str) -> Done<T> {
        self.0.try_get(index).map_err(|error| {
            let name = self.0.columns().get(index).map_or("?", |column| column.name());
            Fault::Unreadable(format!("column {name} holds no {what}: {error}"))
        })
    }
}

macro_rules! columns {
    ($($ty:ty = $raw:ty, $convert:expr;)+) => {$(
        impl FromColumn for $ty {
            fn read(row: &Row, index: usize) -> Done<Self> {
                <Option<$ty>>::read(row, index)?.ok_or_else(|| unreadable(index, stringify!($ty)))
            }
        }

        impl FromColumn for Option<$ty> {
            fn read(row: &Row, index: usize) -> Done<Self> {
                let raw = row.raw::<Option<$raw>>(index, stringify!($ty))?;
                #[allow(clippy::redundant_closure_call)]
                raw.map(|raw| ($convert)(raw).ok_or_else(|| unreadable(index, stringify!($ty)))).transpose()
            }
        }
    )+};
}

columns! {
    bool = bool, Some;
    i32 = i32, Some;
    i64 = i64, Some;
    u8 = i16, |raw: i16| u8::try_from(raw).ok();
    u32 = i32, |raw: i32| u32::try_from(raw).ok();
    u64 = i64, |raw: i64| u64::try_from(raw).ok();
    String = String, Some;
    Vec<u8> = Vec<u8>, Some;
    Uuid = Uuid, Some;
    [u8; 16] = &[u8], |raw: &[u8]| raw.try_into().ok();
    [u8; 32] = &[u8], |raw: &[u8]| raw.try_into().ok();
}

/// JSON of at least this size is compressed if that saves an eighth.
const COMPRESS_FROM: usize = 1024;

thread_local! {
    static PACKER: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(1).ok());
}

/// The compressed form of JSON. None if compression saves too little.
fn packed(json: &[u8]) -> Option<Vec<u8>> {
    // A value is unpacked into as much room as a row has for one. What is told of a run of the family may be longer.
    if !(COMPRESS_FROM..=INLINE_LIMIT).contains(&json.len()) {
        return None;
    }
    let packed = PACKER.with_borrow_mut(|packer| packer.as_mut()?.compress(json).ok())?;
    (packed.len() < json.len() - json.len() / 8).then_some(packed)
}

fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    bytes.push(tag);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// A payload as a column value.
pub(super) fn cell(payload: &Payload) -> Done<Vec<u8>> {
    Ok(match (&payload.body, payload.encoding) {
        (Body::Inline(bytes), Encoding::Json) => match packed(bytes) {
            Some(packed) => tagged(3, &[&packed]),
            None => tagged(4, &[bytes]),
        },
        (Body::Inline(bytes), Encoding::Raw) => tagged(0, &[bytes]),
        (Body::Inline(bytes), Encoding::Blob) => tagged(6, &[bytes]),
        (Body::Stored { .. } | Body::Kept { .. } | Body::Source(_) | Body::Row { .. }, encoding) => {
            if let Some((hash, size)) = payload.stored() {
                let tag = match encoding {
                    Encoding::Json => 1,
                    Encoding::Raw => 2,
                    Encoding::Blob => 5,
                };
                return Ok(tagged(tag, &[&hash.0, &size.to_le_bytes()]));
            }
            return Err(Error::new(Code::InvalidArgument, "a streamed payload was not stored first").into());
        }
    })
}

fn payload_of(bytes: &[u8]) -> Option<Payload> {
    let (tag, rest) = bytes.split_first()?;
    match tag {
        0 => Some(Payload::raw(Bytes::copy_from_slice(rest))),
        6 => Some(Payload { encoding: Encoding::Blob, body: Body::Inline(Bytes::copy_from_slice(rest)) }),
        1 | 2 | 5 => {
            let (hash, size) = rest.split_at_checked(32)?;
            let body = Body::Stored {
                hash: ContentHash(hash.try_into().ok()?),
                size: u64::from_le_bytes(size.try_into().ok()?),
            };
            let encoding = match tag {
                1 => Encoding::Json,
                2 => Encoding::Raw,
                _ => Encoding::Blob,
            };
            Some(Payload { encoding, body })
        }
        3 => zstd::bulk::decompress(rest, INLINE_LIMIT).ok().map(Payload::json),
        4 => Some(Payload::json(Bytes::copy_from_slice(rest))),
        _ => None,
    }
}

/// The error for a column that does not hold a value of this kind.
pub(super) fn unreadable(index: usize, what: &str) -> Fault {
    Fault::Unreadable(format!("column {index} holds no {what}"))
}

/// Reads a payload column.
pub(super) fn payload(row: &Row, index: usize) -> Done<Payload> {
    payload_opt(row, index)?.ok_or_else(|| unreadable(index, "payload"))
}

/// Reads a payload column that may be empty.
pub(super) fn payload_opt(row: &Row, index: usize) -> Done<Option<Payload>> {
    let bytes = row.raw::<Option<&[u8]>>(index, "payload")?;
    bytes.map(|bytes| payload_of(bytes).ok_or_else(|| unreadable(index, "payload"))).transpose()
}

/// Reads a JSON column; an empty one gives the default.
pub(super) fn json<T: DeserializeOwned + Default>(row: &Row, index: usize) -> Done<T> {
    Ok(json_opt(row, index)?.unwrap_or_default())
}

/// Reads a JSON column that may be empty.
pub(super) fn json_opt<T: DeserializeOwned>(row: &Row, index: usize) -> Done<Option<T>> {
    let text = row.raw::<Option<&str>>(index, "JSON")?;
    text.map(|text| serde_json::from_str(text).map_err(|_| unreadable(index, "JSON"))).transpose()
}

/// A label's key as a column value: tag 1 and the author's text, or tag 0 and a digest.
pub(super) fn label_key(key: &LabelKey) -> Vec<u8> {
    match key {
        LabelKey::Key(text) => tagged(1, &[text.as_bytes()]),
        LabelKey::Digest(digest) => tagged(0, &[&digest.0]),
    }
}

/// Reads a label's key.
pub(super) fn read_label_key(row: &Row, index: usize) -> Done<LabelKey> {
    let found = match row.raw::<&[u8]>(index, "label")?.split_first() {
        Some((1, text)) => std::str::from_utf8(text).ok().map(|text| LabelKey::Key(text.into())),
        Some((0, digest)) => digest.try_into().ok().map(|digest| LabelKey::Digest(Digest(digest))),
        _ => None,
    };
    found.ok_or_else(|| unreadable(index, "label"))
}

/// The outcomes an op has seen as a column value.
pub(super) fn seen_bytes(seen: &[Seen]) -> Option<Vec<u8>> {
    (!seen.is_empty()).then(|| seen.iter().flat_map(|seen| seen.0.to_le_bytes()).collect())
}

/// Reads the outcomes an op has seen.
pub(super) fn read_seen(row: &Row, index: usize) -> Done<Vec<Seen>> {
    let Some(bytes) = row.raw::<Option<&[u8]>>(index, "list of outcomes")? else { return Ok(Vec::new()) };
    let (numbers, _) = bytes.as_chunks::<4>();
    Ok(numbers.iter().map(|number| Seen(u32::from_le_bytes(*number))).collect())
}

/// Reads an op's place inside a `once`.
pub(super) fn read_once(row: &Row, index: usize) -> Done<Option<OnceSlot>> {
    let name: Option<String> = row.get(index)?;
    Ok(match name {
        Some(name) => Some(OnceSlot { name: name.into(), n: row.get(index + 1)? }),
        None => None,
    })
}

/// Reads an enum column that holds the place of a value in a table.
pub(super) fn one_of<T: Copy>(all: &[T], index: usize, row: &Row) -> Done<T> {
    let place: u8 = row.get(index)?;
    all.get(usize::from(place)).copied().ok_or_else(|| unreadable(index, "known value"))
}

/// The error for a row that is missing but must exist.
pub(super) fn missing(what: &str) -> Error {
    corrupt(format!("{what} is missing; the database may have been edited by hand"))
}
