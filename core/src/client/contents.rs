//! The contents of entries, which their events carry to a reader, so that it ends with the exact transcript.

use crate::error::Result;
use crate::id::OrgId;
use crate::model::{Event, EventKind};
use crate::payload::{Body, Encoding};
use crate::storage::Storage;
use crate::streaming::Chunks;
use serde_json::json;
use std::sync::Arc;

/// Where contents are read from, and which are left there.
pub(super) struct Contents {
    storage: Arc<dyn Storage>,
    chunks: Chunks,
    org: OrgId,
    /// Entries with more bytes are told without their content.
    pub(super) limit: u64,
}

impl Contents {
    pub(super) fn of(storage: Arc<dyn Storage>, chunks: Chunks, org: OrgId) -> Self {
        Self { storage, chunks, org, limit: u64::MAX }
    }

    /// Whether an event is that of an entry which is still without its content, or whose content a server has left out
    /// although it is wanted here.
    pub(super) fn are_lacking(&self, event: &Event) -> bool {
        let left = event.data["content_size"].as_u64();
        event.kind == EventKind::Entry
            && (event.data.get("parent").is_none() || left.is_some_and(|size| size <= self.limit))
    }

    /// Gives the event of an entry its content. Tells how many bytes that adds.
    pub(super) async fn fill(&self, mut event: Event) -> Result<(Event, u64)> {
        let id = event.data["entry"].as_str().and_then(|id| id.parse().ok());
        let Some(id) = id.filter(|_| self.are_lacking(&event)) else { return Ok((event, 0)) };
        let (org, reads) = (self.org, self.chunks.reads());
        let entry = reads.entries.run((org, id), async || self.storage.entry(org, id).await).await?;
        let content = &entry.new.content;
        let mut size = 0;
        if content.size() > self.limit {
            event.data["content_size"] = content.size().into();
            event.data["content_hash"] = content.stored().map(|(hash, _)| format!("{hash:?}")).into();
        } else if content.encoding == Encoding::Json {
            let content = match &content.body {
                Body::Stored { hash, .. } => {
                    let read = async || self.storage.read_payload(org, content).await;
                    reads.payloads.run((org, *hash), read).await?
                }
                _ => content.bytes()?.clone(),
            };
            size = content.len() as u64;
            event.data.as_object_mut().map(|data| (data.remove("content_size"), data.remove("content_hash")));
            event.data["content"] = serde_json::from_slice(&content).unwrap_or_default();
        }
        event.data["parent"] = json!(entry.new.parent);
        event.data["turn_id"] = json!(entry.new.turn_id);
        Ok((event, size))
    }
}
