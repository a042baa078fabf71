//! Payloads on their own, in pieces.

use super::streams::ResponseStream;
use super::to_status;
use crate::service::{IDLE, Upload, check_size};
use bytes::Bytes;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OrgId;
use flovyn_core::payload::{Body, ContentHash, Encoding, Payload};
use flovyn_core::storage::Storage;
use flovyn_core::wire::v2::payload_part::Part;
use flovyn_core::wire::{CHUNK, encoding, stored, v2};
use futures::{StreamExt, stream};
use std::sync::Arc;
use tonic::{Status, Streaming};

/// Bytes read from the store at a time.
const PIECE: usize = 1 << 20;

fn refused(message: impl Into<String>) -> Status {
    to_status(Error::new(Code::InvalidArgument, message))
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
    check_size(header.size, storage.max_payload()).map_err(to_status)?;
    let mut upload = Upload::new(storage.max_payload()).map_err(to_status)?;
    while let Some(part) = next(&mut stream).await? {
        let Part::Chunk(chunk) = part else { return Err(refused("an upload has one header")) };
        if chunk.len() > CHUNK || upload.size() + chunk.len() as u64 > header.size {
            return Err(refused(format!(
                "a chunk of {} bytes exceeds the {CHUNK} of a chunk or the {} that were declared",
                chunk.len(),
                header.size
            )));
        }
        upload.take(&chunk).map_err(to_status)?;
    }
    if upload.size() != header.size || upload.hash().0[..] != header.hash[..] {
        return Err(refused(format!(
            "the {} bytes that came are not the {} declared, or have another hash; send them again",
            upload.size(),
            header.size
        )));
    }
    let encoding = encoding(header.encoding).map_err(to_status)?;
    let (hash, size) = upload.store(&**storage, org, encoding).await.map_err(to_status)?;
    Ok(stored(&hash, size))
}

async fn next(stream: &mut Streaming<v2::PayloadPart>) -> Result<Option<Part>, Status> {
    let part = tokio::time::timeout(IDLE, stream.next()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("the upload sent nothing for 30 s"))?;
    Ok(part.transpose()?.and_then(|part| part.part))
}

/// Sends a stored payload or a part of it, read piece by piece.
pub(super) fn send(
    storage: &Arc<dyn Storage>,
    org: OrgId,
    wire: v2::GetPayloadRequest,
) -> Result<ResponseStream<v2::PayloadPart>, Status> {
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
                Err(error) => Some((Err(to_status(error)), None)),
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
