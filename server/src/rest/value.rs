//! Values over HTTP: JSON inlined; larger values, and those that are no JSON, by reference.

use super::problem::Problem;
use super::request::Caller;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flovyn_core::payload::{Body, ContentHash, Encoding, Payload};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Values up to this size are inlined in the answer about one resource.
pub(super) const IN_PLACE: u64 = 1 << 20;
/// In listings, only values that are stored in the row are inlined.
pub(super) const IN_ROW: u64 = 0;

/// A value that is not in place: `GET href` for its bytes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PayloadRef {
    /// BLAKE3 of the bytes, in hex. A small value that is no JSON has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// The number of bytes.
    size: u64,
    /// `json` or `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    /// Where the bytes are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    href: Option<String>,
    /// The bytes of a small value that is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl PayloadRef {
    /// The reference to stored content.
    pub(super) fn stored(caller: &Caller, hash: ContentHash, size: u64, encoding: Encoding) -> Self {
        let href = format!("/api/orgs/{}/payloads/{hash:?}?size={size}", caller.named("org"));
        let encoding = word(encoding);
        Self { hash: Some(format!("{hash:?}")), size, encoding, href: Some(href), base64: None }
    }

    /// The payload it names.
    fn payload(self) -> Result<Payload, Problem> {
        let hash = self.hash.as_deref().and_then(parse_hash);
        let hash = hash.ok_or_else(|| Problem::invalid("a reference has the hash that PUT /payloads answered"))?;
        let encoding = match self.encoding.as_deref() {
            None | Some("json") => Encoding::Json,
            Some("raw") => Encoding::Raw,
            Some(other) => return Err(Problem::invalid(format!("the encoding {other:?} is neither json nor raw"))),
        };
        Ok(Payload { encoding, body: Body::Stored { hash, size: self.size } })
    }
}

fn word(encoding: Encoding) -> Option<String> {
    Some(if encoding == Encoding::Json { "json" } else { "raw" }.into())
}

/// The hash of its 64 hex digits.
pub(super) fn parse_hash(text: &str) -> Option<ContentHash> {
    blake3::Hash::from_hex(text).ok().map(|hash| ContentHash(*hash.as_bytes()))
}

/// A value in an answer: inlined or by reference.
pub(super) type ValueOrRef = (Option<Box<RawValue>>, Option<PayloadRef>);

/// A payload in an answer; stored JSON is fetched up to a size.
pub(super) async fn to_value(caller: &Caller, payload: &Payload, fetch: u64) -> Result<ValueOrRef, Problem> {
    let json = payload.encoding == Encoding::Json;
    let bytes = match &payload.body {
        Body::Inline(bytes) => bytes.clone(),
        Body::Stored { size, .. } if json && *size <= fetch => {
            caller.service.storage.read_payload(caller.org(), payload).await?
        }
        _ => {
            let Some((hash, size)) = payload.stored() else { return Ok((None, None)) };
            return Ok((None, Some(PayloadRef::stored(caller, hash, size, payload.encoding))));
        }
    };
    let text = json.then(|| String::from_utf8(bytes.to_vec()).ok()).flatten();
    if let Some(value) = text.and_then(|text| RawValue::from_string(text).ok()) {
        return Ok((Some(value), None));
    }
    let (size, encoding, base64) = (payload.size(), word(payload.encoding), Some(BASE64.encode(&bytes)));
    Ok((None, Some(PayloadRef { hash: None, size, encoding, href: None, base64 })))
}

/// As [`to_value`], for a value that may be missing.
pub(super) async fn to_optional_value(
    caller: &Caller,
    payload: Option<&Payload>,
    fetch: u64,
) -> Result<ValueOrRef, Problem> {
    match payload {
        Some(payload) => to_value(caller, payload, fetch).await,
        None => Ok((None, None)),
    }
}

/// The payload of a value in a request, inlined or by reference.
pub(super) fn payload_from(
    name: &str,
    value: Option<Box<RawValue>>,
    reference: Option<PayloadRef>,
) -> Result<Option<Payload>, Problem> {
    match (value, reference) {
        (Some(_), Some(_)) => Err(Problem::invalid(format!("{name} and {name}Ref are both given; give one of them"))),
        (Some(value), None) => Ok(Some(Payload::json(Box::<str>::from(value).into_string()))),
        (None, Some(reference)) => reference.payload().map(Some),
        (None, None) => Ok(None),
    }
}

/// Reads a field that is there, also where it is `null`.
pub(super) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
