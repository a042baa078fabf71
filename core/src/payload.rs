//! Values as the engine sees them: bytes that it does not look into, with a size, a digest and a place.
//!
//! A payload is JSON by convention, or raw bytes. The engine never parses one on the hot path. The digest of an input
//! is taken of its RFC 8785 form, so that it is the same in every language.

use crate::canonical::canonical_json;
use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, Slot};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fs::File;
use std::sync::Arc;

/// The default limit for the size of one payload: 256 MiB.
pub const MAX_PAYLOAD: u64 = 256 * 1024 * 1024;

/// The highest limit that a backend may be opened with: 1 GiB.
pub const HIGHEST_CEILING: u64 = 1 << 30;

/// A store keeps payloads up to this size in the row that they belong to, and larger ones in the payload table.
pub const INLINE_LIMIT: usize = 8 * 1024;

/// How the bytes are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// UTF-8 JSON text.
    Json,
    /// Bytes as they are.
    Raw,
    /// Bytes as they are, which stay in their store or file until their reader asks for them.
    Blob,
}

/// The name of stored content: its BLAKE3 hash.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// Content that is read piece by piece, so that a large value does not have to be in memory twice.
pub trait ByteSource: Send + Sync {
    /// The number of bytes.
    fn size(&self) -> u64;
    /// Fills `into` from `offset`; an error if fewer bytes are there.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()>;
    /// A piece of the bytes. A source that has them in memory shares them instead of copying.
    fn piece(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let mut piece = vec![0; length];
        self.read_at(offset, &mut piece)?;
        Ok(piece.into())
    }
    /// The name of the content, if a store already has the content.
    fn name(&self) -> Option<ContentHash> {
        None
    }
    /// The host's own immutable value behind the bytes. A host that gets the payload back uses it instead of making a
    /// copy.
    fn host_value(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}

/// The bytes of a file, read when they are needed. Nobody may change the file until then.
pub struct FileSource {
    file: File,
    size: u64,
}

impl FileSource {
    /// All bytes that an open file has now.
    pub fn of(file: File) -> std::io::Result<Self> {
        Ok(Self { size: file.metadata()?.len(), file })
    }
}

impl ByteSource for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, into, offset)
    }

    #[cfg(not(unix))]
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(into)
    }
}

/// Bytes that this process has in memory or can read.
#[derive(Clone)]
#[doc(hidden)]
pub enum Content {
    /// In memory.
    Memory(Bytes),
    /// In a source that they are read from.
    Source(Arc<dyn ByteSource>),
}

impl Content {
    /// The number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Source(source) => source.size(),
        }
    }

    /// A piece of it. Bytes in memory are shared, never copied.
    pub fn piece(&self, offset: u64, length: usize) -> Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.slice(offset as usize..offset as usize + length)),
            Self::Source(source) => source.piece(offset, length).map_err(unreadable),
        }
    }

    /// Its name. All of it is read for that, piece by piece.
    pub fn hash(&self) -> Result<ContentHash> {
        let mut hasher = blake3::Hasher::new();
        match self {
            Self::Memory(bytes) => {
                hasher.update(bytes);
            }
            Self::Source(source) => for_each_chunk(&**source, |chunk| {
                hasher.update(chunk);
                Ok(())
            })?,
        }
        Ok(ContentHash(*hasher.finalize().as_bytes()))
    }

    /// Whether the next reading may give other bytes. That is so for a file.
    pub fn may_change(&self) -> bool {
        matches!(self, Self::Source(source) if source.host_value().is_none() && source.name().is_none())
    }
}

/// Smaller values are always loaded with their rows: a reference to the row would take as much room as the value.
const NAMED_FROM: usize = 64;

/// The row of a task, which holds its output while that is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct RowOf {
    /// The run.
    pub execution: ExecutionId,
    /// The op that scheduled the task.
    pub slot: Slot,
}

impl RowOf {
    /// The error for a row that does not hold the value.
    pub(crate) fn missing(&self) -> Error {
        let (execution, slot) = (self.execution, self.slot);
        let message = format!("no task {slot} of the run {execution} has an output in its row; load the run again");
        Error::new(Code::InvalidArgument, message)
    }
}

/// Where a payload's bytes are.
#[derive(Clone)]
pub enum Body {
    /// In memory.
    Inline(Bytes),
    /// In the store's payload table; `AgentStorage::read_payload` fetches them.
    Stored {
        /// Names the content.
        hash: ContentHash,
        /// Its length in bytes.
        size: u64,
    },
    /// In the row of a task: the fact of the task's end was loaded without its output. `AgentStorage::read_rows`
    /// fetches the bytes. A store refuses such a payload in what is written to it.
    Row {
        /// The row.
        of: RowOf,
        /// Its length in bytes.
        size: u64,
    },
    /// In a file or another place of the caller's, read while it is stored.
    Source(Arc<dyn ByteSource>),
    /// In the payload table, and still in the process that has sent it. Only the answer to a commit has this, so that
    /// the sender does not read back what it has just sent. Rows and journals never hold it.
    Kept {
        /// Names the content.
        hash: ContentHash,
        /// The content that was stored.
        content: Content,
    },
}

/// One value: an input, an output, a state, an entry's content, a signal.
#[derive(Clone)]
pub struct Payload {
    /// How to read the bytes.
    pub encoding: Encoding,
    /// Where they are.
    pub body: Body,
}

impl Payload {
    /// JSON text. It is not checked; the caller must know that it is JSON.
    pub fn json(bytes: impl Into<Bytes>) -> Self {
        Self { encoding: Encoding::Json, body: Body::Inline(bytes.into()) }
    }

    /// Bytes as they are.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self { encoding: Encoding::Raw, body: Body::Inline(bytes.into()) }
    }

    /// The bytes of a source, which are read when they are stored. Whoever gets the payload has a reference, and reads
    /// the bytes only if it asks for them.
    pub fn blob(source: Arc<dyn ByteSource>) -> Self {
        Self { encoding: Encoding::Blob, body: Body::Source(source) }
    }

    /// JSON `null`.
    pub fn null() -> Self {
        Self::json(Bytes::from_static(b"null"))
    }

    /// Serialises a value to JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        serde_json::to_vec(value).map(Self::json).map_err(|error| {
            Error::new(Code::NotSerializable, format!("the value has no JSON form: {error}")).caused_by(error)
        })
    }

    /// Reads the JSON into a type.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        let bytes = self.bytes()?;
        serde_json::from_slice(bytes).map_err(|error| {
            Error::new(
                Code::NotSerializable,
                format!(
                    "a payload of {} bytes is not the expected {}: {error}",
                    bytes.len(),
                    std::any::type_name::<T>()
                ),
            )
            .caused_by(error)
        })
    }

    /// The length in bytes.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::Inline(bytes) => bytes.len() as u64,
            Body::Stored { size, .. } | Body::Row { size, .. } => *size,
            Body::Source(source) => source.size(),
            Body::Kept { content, .. } => content.size(),
        }
    }

    /// Hash and size of content that is stored.
    pub fn stored(&self) -> Option<(ContentHash, u64)> {
        match &self.body {
            Body::Stored { hash, size } => Some((*hash, *size)),
            Body::Kept { hash, content } => Some((*hash, content.size())),
            Body::Inline(_) | Body::Source(_) | Body::Row { .. } => None,
        }
    }

    /// The row that holds the bytes, if they were not loaded with it.
    pub fn row(&self) -> Option<RowOf> {
        match &self.body {
            Body::Row { of, .. } => Some(*of),
            _ => None,
        }
    }

    /// Drops the bytes from memory and refers to the row that holds them, unless they are few.
    pub(crate) fn leave_in(&mut self, of: RowOf) {
        if let Body::Inline(bytes) = &self.body
            && bytes.len() >= NAMED_FROM
        {
            self.body = Body::Row { of, size: bytes.len() as u64 };
        }
    }

    /// The hash of content that is in memory or stored. It is zero for content that is neither.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn settled_hash(&self) -> [u8; 32] {
        match &self.body {
            Body::Inline(bytes) => *blake3::hash(bytes).as_bytes(),
            _ => self.stored().map_or([0; 32], |(hash, _)| hash.0),
        }
    }

    /// The error of a store that is to write a payload whose bytes are still in a row.
    pub(crate) fn not_read(&self) -> Error {
        let message =
            format!("a value of {} bytes is still in its row; read it before it is stored again", self.size());
        Error::new(Code::InvalidArgument, message)
    }

    /// Turns a [`Body::Kept`] into a [`Body::Stored`], and returns the content that it held.
    pub fn let_go(&mut self) -> Option<(ContentHash, Content)> {
        let (hash, size) = self.stored()?;
        match std::mem::replace(&mut self.body, Body::Stored { hash, size }) {
            Body::Kept { hash, content } => Some((hash, content)),
            _ => None,
        }
    }

    /// The bytes, where they are in memory.
    pub fn bytes(&self) -> Result<&Bytes> {
        match &self.body {
            Body::Inline(bytes) => Ok(bytes),
            Body::Stored { hash, size } => Err(Error::new(
                Code::InvalidArgument,
                format!("a payload of {size} bytes ({hash:?}) was read before it was fetched from the store"),
            )),
            Body::Kept { content: Content::Memory(bytes), .. } => Ok(bytes),
            Body::Row { .. } => Err(self.not_read()),
            Body::Source(_) | Body::Kept { .. } => {
                Err(Error::new(Code::InvalidArgument, "a streamed payload has no bytes in memory"))
            }
        }
    }

    /// Refuses a payload over the limit before anything is written.
    pub fn check_size(&self, limit: u64) -> Result<()> {
        let size = self.size();
        if size <= limit {
            return Ok(());
        }
        Err(Error::new(
            Code::PayloadTooLarge,
            format!(
                "a payload of {size} bytes is over the limit of {limit} bytes; store it elsewhere and pass a reference"
            ),
        )
        .with("size", size)
        .with("limit", limit))
    }

    /// The digest by which two inputs are compared: 16 bytes of BLAKE3, of the RFC 8785 form for JSON and of the bytes
    /// for anything else.
    pub fn digest(&self) -> Result<Digest> {
        let mut hasher = blake3::Hasher::new();
        match (&self.body, self.encoding) {
            (Body::Inline(bytes), Encoding::Json) => {
                hasher.update(&canonical_json(bytes)?);
            }
            (Body::Inline(bytes), Encoding::Raw | Encoding::Blob) => {
                hasher.update(b"raw\0");
                hasher.update(bytes);
            }
            (Body::Stored { hash, .. } | Body::Kept { hash, .. }, _) => {
                hasher.update(b"stored\0");
                hasher.update(&hash.0);
            }
            (Body::Row { .. }, _) => return Err(self.not_read()),
            (Body::Source(source), Encoding::Json) => {
                let text = Content::Source(source.clone()).piece(0, source.size() as usize)?;
                hasher.update(&canonical_json(&text)?);
            }
            (Body::Source(source), Encoding::Raw | Encoding::Blob) => {
                hasher.update(b"raw\0");
                for_each_chunk(&**source, |chunk| {
                    hasher.update(chunk);
                    Ok(())
                })?;
            }
        }
        Ok(Digest::from_hash(&hasher.finalize()))
    }
}

/// Reads a source in pieces of 1 MiB.
pub fn for_each_chunk(source: &dyn ByteSource, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0u8; 1 << 20];
    let mut offset = 0;
    while offset < source.size() {
        let length = buffer.len().min((source.size() - offset) as usize);
        source.read_at(offset, &mut buffer[..length]).map_err(unreadable)?;
        each(&buffer[..length])?;
        offset += length as u64;
    }
    Ok(())
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Code::InvalidArgument, format!("a streamed payload could not be read: {error}")).caused_by(error)
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.body {
            Body::Inline(bytes) if bytes.len() <= 200 => write!(f, "{}", String::from_utf8_lossy(bytes)),
            _ => write!(f, "<{} bytes>", self.size()),
        }
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        if self.encoding != other.encoding {
            return false;
        }
        let name = |payload: &Self| match &payload.body {
            Body::Inline(bytes) => Some(ContentHash(*blake3::hash(bytes).as_bytes())),
            _ => payload.stored().map(|(hash, _)| hash),
        };
        match (&self.body, &other.body) {
            (Body::Inline(a), Body::Inline(b)) => a == b,
            (Body::Row { of: a, .. }, Body::Row { of: b, .. }) => a == b,
            (Body::Source(_) | Body::Row { .. }, _) | (_, Body::Source(_) | Body::Row { .. }) => false,
            _ => name(self) == name(other),
        }
    }
}

/// 16 bytes of a hash, by which two values are compared.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The first half of a BLAKE3 hash.
    pub fn from_hash(hash: &blake3::Hash) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.as_bytes()[..16]);
        Self(digest)
    }

    /// The digest of several parts. The length goes before each part: otherwise "ab", "c" would have the digest of "a",
    /// "bc".
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self::from_hash(&hasher.finalize())
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_do_not_see_key_order_or_white_space() {
        let a = Payload::json(&br#"{"b": 1.0, "a": [true, null]}"#[..]).digest().unwrap();
        let b = Payload::json(&br#"{"a":[true,null],"b":1}"#[..]).digest().unwrap();
        assert_eq!(a, b);
        assert_ne!(a, Payload::raw(&br#"{"a":[true,null],"b":1}"#[..]).digest().unwrap());
    }

    #[test]
    fn an_oversize_payload_names_size_and_limit() {
        let error = Payload::raw(vec![0; 11]).check_size(10).unwrap_err();
        assert_eq!(error.code(), Code::PayloadTooLarge);
        assert!(error.message().contains("11") && error.message().contains("10"), "{error}");
    }
}
