//! What a store has of a value that is in a file of the machine which runs its run: JSON, so that whoever reads it there sees
//! what it is.

use crate::error::{Code, Error, Result};
use crate::model::Entry;
use crate::payload::{Body, ContentHash, Encoding, Payload};
use serde::{Deserialize, Serialize};

/// What every reference begins with.
const BEGIN: &[u8] = br#"{"$local":{"#;
/// The most bytes of one.
const LONGEST: usize = 192;

/// The value that a reference stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    bytes: u64,
    encoding: Encoding,
    hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<T> {
    #[serde(rename = "$local")]
    local: T,
}

impl Reference {
    /// For a value with this hash.
    #[cfg(feature = "sqlite")]
    pub(crate) fn to(value: &Payload, hash: ContentHash) -> Payload {
        let reference = Self { bytes: value.size(), encoding: value.encoding, hash: format!("{hash:?}") };
        // Three plain fields always have a JSON form.
        Payload::of(&Written { local: reference }).unwrap_or_else(|_| Payload::null())
    }

    /// The hash of the value that a payload stands for. None if it stands for itself.
    pub(crate) fn hash_in(payload: &Payload) -> Option<ContentHash> {
        let Body::Inline(bytes) = &payload.body else { return None };
        Self::hash_of(bytes).filter(|_| payload.encoding == Encoding::Json)
    }

    /// As [`hash_in`](Self::hash_in), of the bytes of a payload.
    pub(crate) fn hash_of(bytes: &[u8]) -> Option<ContentHash> {
        if bytes.len() > LONGEST || !bytes.starts_with(BEGIN) {
            return None;
        }
        let written: Written<Self> = serde_json::from_slice(bytes).ok()?;
        blake3::Hash::from_hex(&written.local.hash).ok().map(|hash| ContentHash(*hash.as_bytes()))
    }
}

/// Refuses entries whose contents are on the machine that runs their run, and not here.
pub(crate) fn check_contents(entries: &[Entry]) -> Result<()> {
    let Some(entry) = entries.iter().find(|entry| Reference::hash_in(&entry.new.content).is_some()) else {
        return Ok(());
    };
    let run = entry.execution;
    let message = format!(
        "the entries of the run {run} are in a file of the machine that runs it (persistence \"local\"), and cannot be read here; send \
         what is needed by value, or start such runs with \"full\""
    );
    Err(Error::new(Code::NotPersisted, message).with("id", run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_stands_for_one_value_and_nothing_else_does() {
        for value in [Payload::null(), Payload::raw(vec![0xff; 70_000]), Payload::json("\"é\"")] {
            let hash = ContentHash(*blake3::hash(value.bytes().unwrap()).as_bytes());
            let reference = Reference::to(&value, hash);
            assert!(reference.size() as usize <= LONGEST, "{}", reference.size());
            assert_eq!((Reference::hash_in(&reference), Reference::hash_in(&value)), (Some(hash), None));
        }
        for other in [r#"{"$local":{}}"#, r#"{"$local":{"bytes":1,"encoding":"json","hash":"00"}}"#, r#"{"$local":7}"#]
        {
            assert_eq!(Reference::hash_in(&Payload::json(other)), None, "{other}");
        }
    }
}
