//! The messages between servers, encoded and decoded. Bytes that cannot be decoded are ignored.

use bytes::Bytes;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::Chunk;
use flovyn_core::streaming::{Change, Hints, News, Preview};
use flovyn_core::wire::{id, raw, v2};
use prost::Message;
use std::sync::Arc;

/// The hint that anything may have changed.
pub(super) fn encode_everything() -> Bytes {
    v2::Hint { everything: true, ..Default::default() }.encode_to_vec().into()
}

pub(super) fn encode_hint(news: News) -> Bytes {
    let hint = match news {
        News::Agents => v2::Hint { agents: true, ..Default::default() },
        News::Tasks => v2::Hint { tasks: true, ..Default::default() },
        News::Timers => v2::Hint { timers: true, ..Default::default() },
        News::Run(Change { org, execution, high, ended, .. }) => {
            v2::Hint { execution: raw(execution.0), org: raw(org.0), high, ended, ..Default::default() }
        }
    };
    hint.encode_to_vec().into()
}

/// Announces a hint of another server in this process.
pub(super) fn apply_hint(bytes: &[u8], hints: &Hints) {
    let Ok(hint) = v2::Hint::decode(bytes) else { return };
    if hint.everything {
        return hints.everything_changed();
    }
    let changes = [(hint.agents, News::Agents), (hint.tasks, News::Tasks), (hint.timers, News::Timers)];
    changes.into_iter().filter(|(changed, _)| *changed).for_each(|(_, news)| hints.receive(news));
    if let (Ok(org), Ok(execution)) = (id(&hint.org, "org"), id(&hint.execution, "execution")) {
        let (org, execution) = (OrgId(org), ExecutionId(execution));
        hints.receive(News::Run(Change { org, execution, high: hint.high, ended: hint.ended, here: false }));
    }
}

/// Encodes a preview: 16 bytes of its org, 8 of the durable event before it, then the chunk.
pub(super) fn encode_preview(preview: &Preview) -> Option<Bytes> {
    let chunk = v2::Chunk::from(&*preview.chunk);
    let mut bytes = Vec::with_capacity(24 + chunk.encoded_len());
    bytes.extend_from_slice(preview.org.0.as_bytes());
    bytes.extend_from_slice(&preview.after.to_be_bytes());
    chunk.encode(&mut bytes).ok()?;
    Some(bytes.into())
}

pub(super) fn decode_preview(bytes: &[u8]) -> Option<Preview> {
    let (org, rest) = bytes.split_first_chunk::<16>()?;
    let (after, chunk) = rest.split_first_chunk::<8>()?;
    let chunk: Chunk = v2::Chunk::decode(chunk).ok()?.try_into().ok()?;
    let org = OrgId(uuid::Uuid::from_bytes(*org));
    Some(Preview { org, after: u64::from_be_bytes(*after), chunk: Arc::new(chunk) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::model::ChunkKind;

    #[test]
    fn a_preview_reads_back() {
        let execution = ExecutionId::fresh();
        let chunk = Chunk {
            execution,
            segment: 1,
            sequence: 2,
            epoch: 3,
            attempt: 4,
            seq: 5,
            kind: ChunkKind::Token,
            data: "wörd".into(),
        };
        let preview = Preview { org: OrgId::fresh(), after: 8, chunk: Arc::new(chunk) };
        let bytes = encode_preview(&preview).unwrap();
        assert_eq!(decode_preview(&bytes), Some(preview));
        for cut in 0..bytes.len() {
            // A cut message decodes to nothing or to another preview; it never panics.
            let _ = decode_preview(&bytes[..cut]);
        }
        assert_eq!(decode_preview(&bytes[..24]), None);
    }

    #[test]
    fn a_hint_reads_back() {
        let hints = Hints::default();
        let heard: Arc<flovyn_core::sync::Mutex<Vec<Option<Change>>>> = Arc::default();
        let into = heard.clone();
        let _listening = hints.listen(move |change| into.lock().push(change));
        let change =
            Change { org: OrgId::fresh(), execution: ExecutionId::fresh(), high: 9, ended: Some(true), here: false };
        apply_hint(&encode_hint(News::Run(change)), &hints);
        apply_hint(&encode_hint(News::Agents), &hints);
        apply_hint(b"\xff\xff", &hints);
        apply_hint(&encode_everything(), &hints);
        assert_eq!(*heard.lock(), [Some(change), None]);
    }
}
