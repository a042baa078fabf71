//! Reads stored values: whole into memory, whole into memory of the host, or part by part when their reader asks for
//! more.

use super::Storage;
use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::payload::{Body, ByteSource, ContentHash, Encoding, Payload};
use bytes::Bytes;
use std::sync::Arc;

/// How many bytes are read at once.
const PART: usize = 1 << 20;

/// Fetches a payload for a host. Its bytes are loaded into memory, but those of a blob are read only when they are
/// asked for.
pub async fn fetch(storage: &Arc<dyn Storage>, org: OrgId, payload: &Payload) -> Result<Payload> {
    if let Some(blob) = blob(storage, org, payload) {
        return Ok(blob);
    }
    let body = match &payload.body {
        Body::Stored { .. } | Body::Row { .. } => Body::Inline(storage.read_payload(org, payload).await?),
        there => there.clone(),
    };
    Ok(Payload { encoding: payload.encoding, body })
}

/// A stored blob as a payload that is read when it is asked for. None for any other payload.
pub fn blob(storage: &Arc<dyn Storage>, org: OrgId, payload: &Payload) -> Option<Payload> {
    let (hash, size) = payload.stored().filter(|_| payload.encoding == Encoding::Blob)?;
    Some(Payload::blob(Arc::new(StoredBlob { storage: storage.clone(), org, hash, size })))
}

/// Memory of a host for the bytes of a stored value, so that they are in memory only once.
pub trait Room: Send {
    /// Memory for the next bytes. All calls together ask for the size of the value.
    fn next(&mut self, length: usize) -> &mut [u8];
    /// The value, after all bytes were written.
    fn body(self: Box<Self>) -> Body;
}

/// Reads a stored value into memory of the host, and checks its hash.
pub async fn fill(storage: &dyn Storage, org: OrgId, payload: &Payload, mut room: Box<dyn Room>) -> Result<Payload> {
    let (hash, size) =
        payload.stored().ok_or_else(|| Error::new(Code::InvalidArgument, "the payload is not stored"))?;
    let mut hasher = blake3::Hasher::new();
    for offset in (0..size).step_by(PART) {
        let length = PART.min((size - offset) as usize);
        let part = storage.read_payload_part(org, payload, offset, length).await?;
        if part.len() != length {
            return Err(damaged(hash, size));
        }
        hasher.update(&part);
        room.next(length).copy_from_slice(&part);
    }
    match hasher.finalize().as_bytes() == &hash.0 {
        true => Ok(Payload { encoding: payload.encoding, body: room.body() }),
        false => Err(damaged(hash, size)),
    }
}

/// A part of some bytes.
pub(crate) fn part_of(bytes: &Bytes, offset: u64, length: usize) -> Result<Bytes> {
    check_part(bytes.len() as u64, offset, length)?;
    Ok(bytes.slice(offset as usize..offset as usize + length))
}

/// Refuses a part that is not inside the value.
pub(crate) fn check_part(size: u64, offset: u64, length: usize) -> Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::new(
            Code::InvalidArgument,
            format!("{length} bytes from {offset} were asked for, but the value has {size}; ask for less"),
        )),
    }
}

fn damaged(hash: ContentHash, size: u64) -> Error {
    let message = format!("a payload of {size} bytes ({hash:?}) is not what was stored; restore it from a backup");
    Error::new(Code::CorruptCheckpoint, message)
}

/// Blocks the caller's thread until there is an answer. If the thread is one of the async runtime, its other work is
/// first moved to the runtime's other threads: the future that brings the answer may be among it.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let wait = || futures::executor::block_on(answer);
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

/// A blob in a store. It has a name, by which it can be passed on without being read.
struct StoredBlob {
    storage: Arc<dyn Storage>,
    org: OrgId,
    hash: ContentHash,
    size: u64,
}

impl ByteSource for StoredBlob {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        into.copy_from_slice(&self.piece(offset, into.len())?);
        Ok(())
    }

    fn piece(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let payload = Payload { encoding: Encoding::Blob, body: Body::Stored { hash: self.hash, size: self.size } };
        let read = self.storage.read_payload_part(self.org, &payload, offset, length);
        wait(read).map_err(std::io::Error::other)
    }

    fn name(&self) -> Option<ContentHash> {
        Some(self.hash)
    }
}
