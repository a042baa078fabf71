//! What children on workers of the second protocol tell a parent of the first. Such a parent knows signals alone, so it gets them by
//! the names that their senders gave them.

use flovyn_core::Payload;
use flovyn_core::id::SignalId;
use flovyn_core::model::{EVENT_SIGNALS, Signal, is_own_signal};
use flovyn_core::payload::{Body, ContentHash, Encoding};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The payload of a signal that tells of a child.
#[derive(Deserialize)]
struct News {
    name: String,
    request: Option<SignalId>,
    value: Option<Value>,
}

/// The value in it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Value {
    Json(Box<RawValue>),
    Bytes { encoding: Encoding, bytes: Vec<u8> },
    Stored { encoding: Encoding, hash: [u8; 32], size: u64 },
}

/// A signal as its author has sent it. None for what the engine tells a run itself, such as an end, and for a request: a worker of
/// the first protocol has no call that would answer it.
pub(super) fn as_sent(signal: Signal) -> Option<Signal> {
    if !is_own_signal(&signal.name) {
        return Some(signal);
    }
    if !signal.name.starts_with(EVENT_SIGNALS) {
        return None;
    }
    let News { name, request: None, value } = signal.payload.parse().ok()? else { return None };
    let payload = value.map_or_else(Payload::null, Value::payload);
    Some(Signal { name, payload, ..signal })
}

impl Value {
    fn payload(self) -> Payload {
        match self {
            Self::Json(json) => Payload::json(String::from(Box::<str>::from(json))),
            Self::Bytes { encoding, bytes } => Payload { encoding, body: Body::Inline(bytes.into()) },
            Self::Stored { encoding, hash, size } => {
                Payload { encoding, body: Body::Stored { hash: ContentHash(hash), size } }
            }
        }
    }
}
