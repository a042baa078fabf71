//! Payloads on the wire: in their message, by reference, or in chunks after a header with their length and hash.

use super::v2::payload::Body as Wire;
use super::v2::payload_part::Part;
use super::{CHUNK, fixed, id, need, raw, v2, wrong};
use crate::error::{Code, Error, Result};
use crate::id::ExecutionId;
use crate::payload::{Body, ContentHash, Encoding, Payload, RowOf};
use bytes::{Bytes, BytesMut};

impl From<Encoding> for v2::Encoding {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json,
            Encoding::Raw => Self::Raw,
            Encoding::Blob => Self::Blob,
        }
    }
}

/// The encoding of a number on the wire.
pub fn encoding(number: i32) -> Result<Encoding> {
    match v2::Encoding::try_from(number) {
        Ok(v2::Encoding::Json) => Ok(Encoding::Json),
        Ok(v2::Encoding::Raw) => Ok(Encoding::Raw),
        Ok(v2::Encoding::Blob) => Ok(Encoding::Blob),
        Err(_) => Err(wrong("encoding", &format!("is {number}, which is unknown"))),
    }
}

impl From<&Payload> for v2::Payload {
    /// A streamed payload must have been uploaded before; it has no form of its own on the wire.
    fn from(payload: &Payload) -> Self {
        let body = match &payload.body {
            Body::Inline(bytes) => Some(Wire::Inline(bytes.clone())),
            Body::Stored { .. } | Body::Kept { .. } => {
                payload.stored().map(|(hash, size)| Wire::Stored(stored(&hash, size)))
            }
            Body::Row { of, size } => Some(Wire::Row(v2::RowValue { row: Some(of.into()), size: *size })),
            Body::Source(_) => None,
        };
        Self { encoding: v2::Encoding::from(payload.encoding).into(), body }
    }
}

impl From<&RowOf> for v2::RowOf {
    fn from(of: &RowOf) -> Self {
        Self { execution: raw(of.execution.0), slot: Some(of.slot.into()) }
    }
}

impl TryFrom<v2::RowOf> for RowOf {
    type Error = Error;
    fn try_from(wire: v2::RowOf) -> Result<Self> {
        let execution = ExecutionId(id(&wire.execution, "row_of.execution")?);
        Ok(Self { execution, slot: need(wire.slot, "row_of.slot")?.into() })
    }
}

/// A reference to stored content.
pub fn stored(hash: &ContentHash, size: u64) -> v2::Stored {
    v2::Stored { hash: Bytes::copy_from_slice(&hash.0), size }
}

impl TryFrom<v2::Payload> for Payload {
    type Error = Error;
    fn try_from(wire: v2::Payload) -> Result<Self> {
        let body = match need(wire.body, "payload.body")? {
            Wire::Inline(bytes) => Body::Inline(bytes),
            Wire::Stored(stored) => {
                Body::Stored { hash: ContentHash(fixed(&stored.hash, "stored.hash")?), size: stored.size }
            }
            Wire::Row(value) => Body::Row { of: need(value.row, "row_value.row")?.try_into()?, size: value.size },
            Wire::Attached(_) => return Err(wrong("payload.attached", "names an attachment that did not come")),
        };
        Ok(Self { encoding: encoding(wire.encoding)?, body })
    }
}

/// As [`encoding`], where the number is our own.
pub(super) fn encoding_of(number: i32) -> Encoding {
    encoding(number).unwrap_or(Encoding::Json)
}

/// The parts of a payload whose bytes are in memory: its header, then chunks.
pub fn parts(encoding: Encoding, bytes: Bytes) -> impl Iterator<Item = v2::PayloadPart> {
    let header = v2::PayloadHeader {
        encoding: v2::Encoding::from(encoding).into(),
        size: bytes.len() as u64,
        hash: Bytes::copy_from_slice(blake3::hash(&bytes).as_bytes()),
    };
    let chunks = (0..bytes.len()).step_by(CHUNK).map(move |at| bytes.slice(at..(at + CHUNK).min(bytes.len())));
    let part = |part| v2::PayloadPart { part: Some(part) };
    std::iter::once(part(Part::Header(header))).chain(chunks.map(move |chunk| part(Part::Chunk(chunk))))
}

/// Puts a payload together from its chunks. It refuses more bytes, or other bytes, than its header has declared.
#[derive(Debug)]
pub struct Parts {
    encoding: Encoding,
    size: u64,
    hash: [u8; 32],
    bytes: BytesMut,
}

impl Parts {
    /// Begins with a header. A payload over `limit` is refused before any of its bytes is taken.
    pub fn begin(header: &v2::PayloadHeader, limit: u64) -> Result<Self> {
        if header.size > limit {
            return Err(Error::new(
                Code::PayloadTooLarge,
                format!(
                    "a payload of {} bytes is over the limit of {limit} bytes; store it elsewhere and pass a reference",
                    header.size
                ),
            )
            .with("size", header.size)
            .with("limit", limit));
        }
        // The sender may declare any size, so memory is only reserved for the first MiB and grows as bytes come.
        let room = usize::try_from(header.size).unwrap_or(usize::MAX).min(1 << 20);
        Ok(Self {
            encoding: encoding(header.encoding)?,
            size: header.size,
            hash: fixed(&header.hash, "payload.hash")?,
            bytes: BytesMut::with_capacity(room),
        })
    }

    /// Whether every declared byte is here.
    pub fn is_complete(&self) -> bool {
        self.bytes.len() as u64 == self.size
    }

    /// Takes the next chunk.
    pub fn push(&mut self, chunk: &[u8]) -> Result<()> {
        if chunk.len() > CHUNK {
            return Err(wrong("chunk", &format!("has {} bytes, a chunk has at most {CHUNK}", chunk.len())));
        }
        if (self.bytes.len() + chunk.len()) as u64 > self.size {
            return Err(wrong("chunk", &format!("exceeds the {} bytes that were declared", self.size)));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// The payload, once its length and hash are the declared ones.
    pub fn finish(self) -> Result<Payload> {
        if !self.is_complete() {
            return Err(wrong("chunk", &format!("ends after {} of {} bytes", self.bytes.len(), self.size)));
        }
        let bytes = self.bytes.freeze();
        if blake3::hash(&bytes).as_bytes() != &self.hash {
            return Err(wrong("payload.hash", "is not the hash of the bytes that came"));
        }
        Ok(Payload { encoding: self.encoding, body: Body::Inline(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: &Bytes) -> Vec<Part> {
        parts(Encoding::Raw, bytes.clone()).map(|part| part.part.unwrap()).collect()
    }

    fn received(parts: Vec<Part>, limit: u64) -> Result<Payload> {
        let mut parts = parts.into_iter();
        let Some(Part::Header(header)) = parts.next() else { panic!("no header") };
        let mut whole = Parts::begin(&header, limit)?;
        for part in parts {
            let Part::Chunk(chunk) = part else { panic!("two headers") };
            whole.push(&chunk)?;
        }
        whole.finish()
    }

    #[test]
    fn a_payload_of_any_length_arrives_as_it_left() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17] {
            let bytes: Bytes = (0..length).map(|n| (n * 7) as u8).collect::<Vec<_>>().into();
            assert_eq!(received(sent(&bytes), 1 << 30).unwrap(), Payload::raw(bytes));
        }
    }

    #[test]
    fn what_was_cut_changed_or_too_much_is_refused() {
        let bytes: Bytes = vec![7; CHUNK + 9].into();
        let mut short = sent(&bytes);
        short.pop();
        assert!(received(short, 1 << 30).unwrap_err().message().contains("ends after"));
        let mut changed = sent(&bytes);
        changed[2] = Part::Chunk(vec![8; 9].into());
        assert!(received(changed, 1 << 30).unwrap_err().message().contains("hash"));
        let mut long = sent(&bytes);
        long.push(Part::Chunk(vec![7].into()));
        assert!(received(long, 1 << 30).unwrap_err().message().contains("exceeds"));
        let error = received(sent(&bytes), 10).unwrap_err();
        assert!(error.code() == Code::PayloadTooLarge && error.message().contains("65545"), "{error}");
    }
}
