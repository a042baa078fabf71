//! Large values: uploaded before the request that refers to them, and streamed when read.

use super::problem::Problem;
use super::request::{Caller, QueryParams};
use super::value::{PayloadRef, parse_hash};
use crate::service::{IDLE, Upload, check_size};
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flovyn_core::error::{Code, Error};
use flovyn_core::id::OrgId;
use flovyn_core::payload::{self, ContentHash, Encoding, Payload};
use flovyn_core::storage::Storage;
use futures::{StreamExt, stream};

/// Bytes read from the store at a time.
const PIECE: u64 = 1 << 20;

/// Stores a value of more than 8 KiB for a request that will refer to it within a day; at most 256 MiB. As
/// `application/json` it is JSON, else bytes as they are.
#[utoipa::path(
    operation_id = "put_payload",
    put, path = "/payloads", tag = "payloads",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = PayloadRef))
)]
pub(super) async fn put(
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, axum::Json<PayloadRef>), Problem> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let ceiling = caller.service.storage.max_payload();
    check_size(declared.unwrap_or(0), ceiling)?;
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let encoding = if kind.starts_with(b"application/json") { Encoding::Json } else { Encoding::Raw };
    let mut upload = Upload::new(ceiling)?;
    let mut pieces = body.into_data_stream();
    let cut = |why: String| Problem::from(Error::new(Code::InvalidArgument, why));
    loop {
        let idle = |_| cut(format!("the upload sent nothing for {} s; send it again", IDLE.as_secs()));
        match tokio::time::timeout(IDLE, pieces.next()).await.map_err(idle)? {
            Some(Ok(piece)) => upload.take(&piece)?,
            Some(Err(error)) => return Err(cut(format!("the upload broke after {} bytes: {error}", upload.size()))),
            None => break,
        }
    }
    if encoding == Encoding::Json {
        let checked = tokio::task::spawn_blocking(move || upload.check_json()).await;
        upload = checked.map_err(|error| Error::new(Code::StorageUnavailable, error.to_string()))??;
    }
    let (hash, size) = upload.store(&*caller.service.storage, caller.org(), encoding).await?;
    caller.service.metrics.uploaded(size);
    Ok((StatusCode::CREATED, axum::Json(PayloadRef::stored(&caller, hash, size, encoding))))
}

/// The bytes of a value that was told by reference.
#[utoipa::path(
    operation_id = "get_payload",
    get, path = "/payloads/{hash}", tag = "payloads",
    params(("size" = Option<u64>, Query, description = "Its number of bytes, as its reference says: saves looking for it")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"))
)]
pub(super) async fn get(caller: Caller, mut query: QueryParams) -> Result<Response, Problem> {
    let claimed_size = query.parse::<u64>("size", "a number of bytes")?;
    query.reject_unknown()?;
    let text = caller.named("hash").to_owned();
    let missing = || {
        let bytes = claimed_size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
        Problem::not_found(format!("no payload{bytes} has the hash {text:?} here; references tell hash and size"))
    };
    let hash = parse_hash(&text).ok_or_else(missing)?;
    let (storage, org) = (caller.service.storage.clone(), caller.org());
    let size = match claimed_size {
        // The last byte tells whether it is there and as long as said, before anything is answered.
        Some(size)
            if has_at_least(&*storage, org, hash, size).await?
                && !has_at_least(&*storage, org, hash, size + 1).await? =>
        {
            size
        }
        Some(_) => return Err(missing()),
        None => size_of(&*storage, org, hash).await?.ok_or_else(missing)?,
    };
    let payload = Payload { encoding: Encoding::Raw, body: payload::Body::Stored { hash, size } };
    let pieces = stream::unfold(Some(0), move |at: Option<u64>| {
        let (storage, payload) = (storage.clone(), payload.clone());
        async move {
            let at = at.filter(|at| *at < size)?;
            let length = PIECE.min(size - at);
            match storage.read_payload_part(org, &payload, at, length as usize).await {
                Ok(piece) => Some((Ok(piece), Some(at + length))),
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    let headers = [
        (header::ETAG, format!("\"{text}\"")),
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
        // What is named by its content never changes.
        (header::CACHE_CONTROL, "private, max-age=31536000, immutable".to_owned()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Whether a payload is there and has so many bytes, or more.
async fn has_at_least(storage: &dyn Storage, org: OrgId, hash: ContentHash, size: u64) -> Result<bool, Problem> {
    if size == 0 || size > payload::HIGHEST_CEILING {
        return Ok(false);
    }
    let payload = Payload { encoding: Encoding::Raw, body: payload::Body::Stored { hash, size } };
    match storage.read_payload_part(org, &payload, size - 1, 1).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Code::StorageUnavailable => Err(error.into()),
        Err(_) => Ok(false),
    }
}

/// The number of bytes of a payload, found by halving: the store tells which bytes there are. Nothing where there is none.
async fn size_of(storage: &dyn Storage, org: OrgId, hash: ContentHash) -> Result<Option<u64>, Problem> {
    let (mut there, mut beyond) = (0, payload::HIGHEST_CEILING + 1);
    while there + 1 < beyond {
        // Most are small, and where there is none the first look says so.
        let middle = if there == 0 { 1 } else { there.saturating_mul(2).min(there + (beyond - there) / 2) };
        match has_at_least(storage, org, hash, middle).await? {
            true => there = middle,
            false => beyond = middle,
        }
    }
    Ok((there > 0).then_some(there))
}
