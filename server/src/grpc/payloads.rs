//! Payloads on their own: uploads are spooled to a file, so that the server never holds a large one.

use super::streams::Answers;
use super::told;
use bytes::Bytes;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OrgId;
use flovyn_core::payload::{Body, ByteSource, ContentHash, Encoding, MAX_PAYLOAD, Payload};
use flovyn_core::storage::Storage;
use flovyn_core::wire::v2::payload_part::Part;
use flovyn_core::wire::{CHUNK, encoding, stored, v2};
use futures::{StreamExt, stream};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Status, Streaming};

/// An upload that sends nothing for so long is cut.
const IDLE: Duration = Duration::from_secs(30);

/// Bytes read from the store at a time.
const PIECE: usize = 1 << 20;

/// A spooled upload.
struct Spool {
    file: File,
    size: u64,
}

impl ByteSource for Spool {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, into, offset)
    }
}

fn refused(message: impl Into<String>) -> Status {
    told(Error::new(Code::InvalidArgument, message))
}

/// Takes an upload.
pub(super) async fn receive(
    storage: &Arc<dyn Storage>,
    org: OrgId,
    mut stream: Streaming<v2::PayloadPart>,
) -> Result<v2::Stored, Status> {
    let Some(Part::Header(header)) = next(&mut stream).await? else {
        return Err(refused("an upload starts with a header that declares its length and hash"));
    };
    let limit =
        Payload { encoding: Encoding::Raw, body: Body::Stored { hash: ContentHash([0; 32]), size: header.size } };
    limit.check_size(MAX_PAYLOAD).map_err(told)?;
    let file = tempfile::tempfile().map_err(|error| unavailable(&error))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    let (mut hasher, mut taken) = (blake3::Hasher::new(), 0u64);
    while let Some(part) = next(&mut stream).await? {
        let Part::Chunk(chunk) = part else { return Err(refused("an upload has one header")) };
        taken += chunk.len() as u64;
        if chunk.len() > CHUNK || taken > header.size {
            return Err(refused(format!(
                "a chunk of {} bytes exceeds the {CHUNK} of a chunk or the {} that were declared",
                chunk.len(),
                header.size
            )));
        }
        hasher.update(&chunk);
        writer.write_all(&chunk).map_err(|error| unavailable(&error))?;
    }
    if taken != header.size || hasher.finalize().as_bytes()[..] != header.hash[..] {
        return Err(refused(format!(
            "the {taken} bytes that came are not the {} declared, or have another hash; send them again",
            header.size
        )));
    }
    let file = writer.into_inner().map_err(|error| unavailable(error.error()))?;
    let encoding = encoding(header.encoding).map_err(told)?;
    let payload = Payload { encoding, body: Body::Source(Arc::new(Spool { file, size: header.size })) };
    match storage.store_payload(org, payload).await.map_err(told)?.body {
        Body::Stored { hash, size } => Ok(stored(&hash, size)),
        _ => Err(refused(format!("a payload of {} bytes is small; send it in place", header.size))),
    }
}

async fn next(stream: &mut Streaming<v2::PayloadPart>) -> Result<Option<Part>, Status> {
    let part = tokio::time::timeout(IDLE, stream.next()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("the upload sent nothing for 30 s"))?;
    Ok(part.transpose()?.and_then(|part| part.part))
}

fn unavailable(error: &std::io::Error) -> Status {
    told(Error::new(
        Code::StorageUnavailable,
        format!("the server cannot spool an upload: {error}; send it again later"),
    ))
}

/// Sends a stored payload or a part of it, read piece by piece.
pub(super) fn send(
    storage: &Arc<dyn Storage>,
    org: OrgId,
    wire: v2::GetPayloadRequest,
) -> Result<Answers<v2::PayloadPart>, Status> {
    let named = wire.payload.ok_or_else(|| refused("the field payload is missing"))?;
    let hash: [u8; 32] = named.hash[..].try_into().map_err(|_| refused("a hash has 32 bytes"))?;
    let payload = Payload { encoding: Encoding::Raw, body: Body::Stored { hash: ContentHash(hash), size: named.size } };
    let from = wire.offset;
    let to = wire.length.map_or(named.size, |length| from.saturating_add(length));
    if from > to || to > named.size {
        return Err(refused(format!(
            "the bytes {from} to {to} of a payload of {} were asked for; ask for some that it has",
            named.size
        )));
    }
    let whole = from == 0 && to == named.size;
    let header = v2::PayloadHeader {
        encoding: v2::Encoding::Raw.into(),
        size: to - from,
        hash: if whole { named.hash } else { Default::default() },
    };
    let header = v2::PayloadPart { part: Some(Part::Header(header)) };
    let storage = storage.clone();
    let pieces = stream::unfold(Some(from), move |at| {
        let (storage, payload) = (storage.clone(), payload.clone());
        async move {
            let at = at.filter(|at| *at < to)?;
            let length = PIECE.min((to - at) as usize);
            match storage.read_payload_part(org, &payload, at, length).await {
                Ok(piece) => Some((Ok(piece), Some(at + length as u64))),
                Err(error) => Some((Err(told(error)), None)),
            }
        }
    });
    let chunks = pieces.flat_map(|piece: Result<Bytes, Status>| {
        stream::iter(match piece {
            Ok(piece) => {
                let part = |at: usize| v2::PayloadPart {
                    part: Some(Part::Chunk(piece.slice(at..(at + CHUNK).min(piece.len())))),
                };
                (0..piece.len()).step_by(CHUNK).map(part).map(Ok).collect::<Vec<_>>()
            }
            Err(status) => vec![Err(status)],
        })
    });
    Ok(Box::pin(stream::once(async { Ok(header) }).chain(chunks)))
}
