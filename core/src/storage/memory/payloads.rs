//! The payload table: content of more than 8 KiB, by its hash. Each tenant has a content once.

use crate::error::{Code, Error, Result};
use crate::id::OrgId;
use crate::payload::{Body, ContentHash, INLINE_LIMIT, MAX_PAYLOAD, Payload, for_each_chunk};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Payloads(BTreeMap<(OrgId, ContentHash), Bytes>);

impl Payloads {
    /// Stores a large payload in the table and leaves only its name. A small one stays as it is.
    pub(super) fn store(&mut self, org: OrgId, payload: &mut Payload) -> Result<()> {
        payload.check_size(MAX_PAYLOAD)?;
        if let Body::Source(source) = &payload.body
            && let Some(hash) = source.name()
        {
            // The source may be a value of this same store, which cannot be read while the store is locked.
            payload.body = Body::Stored { hash, size: source.size() };
        }
        let bytes = match &payload.body {
            Body::Inline(bytes) => bytes.clone(),
            Body::Stored { hash, .. } | Body::Kept { hash, .. } => return self.content(org, hash).map(drop),
            Body::Row { .. } => return Err(payload.not_read()),
            Body::Source(source) => {
                let mut bytes = Vec::with_capacity(usize::try_from(source.size()).unwrap_or(0));
                for_each_chunk(&**source, |chunk| {
                    bytes.extend_from_slice(chunk);
                    Ok(())
                })?;
                bytes.into()
            }
        };
        payload.body = if bytes.len() <= INLINE_LIMIT {
            Body::Inline(bytes)
        } else {
            let hash = ContentHash(*blake3::hash(&bytes).as_bytes());
            let size = bytes.len() as u64;
            self.0.entry((org, hash)).or_insert(bytes);
            Body::Stored { hash, size }
        };
        Ok(())
    }

    /// Stores a payload, if there is one.
    pub(super) fn store_some(&mut self, org: OrgId, payload: &mut Option<Payload>) -> Result<()> {
        payload.as_mut().map_or(Ok(()), |payload| self.store(org, payload))
    }

    /// The bytes of a payload, checked against their hash.
    pub(super) fn read(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        let Some((hash, _)) = payload.stored() else {
            return payload.bytes().cloned();
        };
        let bytes = self.content(org, &hash)?;
        if blake3::hash(bytes).as_bytes() == &hash.0 {
            return Ok(bytes.clone());
        }
        Err(Error::new(Code::CorruptCheckpoint, format!("the stored content {hash:?} does not have its hash")))
    }

    /// The hash of a payload's content.
    pub(super) fn content_hash(&self, org: OrgId, payload: &Payload) -> Result<[u8; 32]> {
        Ok(*blake3::hash(&self.read(org, payload)?).as_bytes())
    }

    fn content(&self, org: OrgId, hash: &ContentHash) -> Result<&Bytes> {
        self.0.get(&(org, *hash)).ok_or_else(|| {
            Error::new(
                Code::InvalidArgument,
                format!("no content {hash:?} is stored here; send the bytes instead of a reference"),
            )
        })
    }
}
