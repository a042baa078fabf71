//! Payloads: small ones in their row, large ones by reference, all of them whole.

use super::Factory;
use super::rig::{Holder, ORG, Rig, ended, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId, Slot};
use crate::model::{
    AttemptResult, BatchEnd, Fact, FactKind, ForkFrom, ForkRequest, NewExecution, OpBody, PageRequest, RecordedBody,
    Segment, TaskOptions,
};
use crate::payload::{Body, ByteSource, ContentHash, Encoding, INLINE_LIMIT, MAX_PAYLOAD, Payload, RowOf};
use crate::storage::stored::blob;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// Bytes that do not compress, by size.
fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

async fn same(rig: &Rig, payload: &Payload, bytes: &[u8]) {
    assert_eq!(payload.size(), bytes.len() as u64);
    match &payload.body {
        Body::Inline(inline) => assert!(inline.len() <= INLINE_LIMIT && inline == bytes),
        Body::Stored { hash, .. } => {
            assert!(bytes.len() > INLINE_LIMIT);
            assert_eq!(hash.0, *blake3::hash(bytes).as_bytes());
        }
        Body::Source(_) | Body::Kept { .. } | Body::Row { .. } => {
            panic!("rows hold no source, and nothing but names of what is large")
        }
    }
    let size = bytes.len();
    for (offset, length) in [(0, size), (0, size / 2), (size / 3, size / 2), (size, 0), (size.saturating_sub(9), 3)] {
        if offset + length <= size {
            let part = rig.storage.read_payload_part(ORG, payload, offset as u64, length).await.unwrap();
            assert!(part == bytes[offset..offset + length], "{length} bytes from {offset} of {size}");
        }
    }
    let beyond = rig.storage.read_payload_part(ORG, payload, size as u64, 1).await;
    assert_eq!(refused(beyond), Code::InvalidArgument);
    let read = rig.storage.read_payload(ORG, payload).await.unwrap();
    assert!(read == bytes, "{} bytes are read back whole", bytes.len());
}

async fn input(rig: &Rig, payload: Payload) -> crate::Result<Payload> {
    let new = NewExecution::new(ExecutionId(rig.uuid()), "agent", json(&1)).unwrap();
    let created = rig.storage.create_execution(NewExecution { input: payload, ..new }).await?;
    let read = rig.execution(created.execution.new.id).await.new.input;
    assert_eq!(read, created.execution.new.input);
    Ok(read)
}

/// Every size around the boundaries of rows and pieces is read back, as text and as bytes.
pub async fn every_size_is_read_back(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let sizes = [
        0,
        1,
        INLINE_LIMIT - 1,
        INLINE_LIMIT,
        INLINE_LIMIT + 1,
        64 * 1024,
        MIB - 1,
        MIB,
        MIB + 1,
        2 * MIB,
        5 * MIB,
        5 * MIB + 17,
    ];
    for (n, size) in sizes.into_iter().enumerate() {
        let bytes = noise(size, n as u64);
        let stored = input(&rig, Payload::raw(bytes.clone())).await.unwrap();
        assert_eq!(stored.encoding, Encoding::Raw);
        same(&rig, &stored, &bytes).await;
        // And what compresses well.
        let text = "a".repeat(size).into_bytes();
        let stored = input(&rig, Payload::json(text.clone())).await.unwrap();
        assert_eq!(stored.encoding, Encoding::Json);
        same(&rig, &stored, &text).await;
    }
    // Compressible at first, noise later, and the other way round.
    for front in [true, false] {
        let (mut bytes, mut rest) = (vec![7; 2 * MIB], noise(2 * MIB, 99));
        if !front {
            std::mem::swap(&mut bytes, &mut rest);
        }
        bytes.extend(rest);
        let stored = input(&rig, Payload::raw(bytes.clone())).await.unwrap();
        same(&rig, &stored, &bytes).await;
    }
}

/// A counting source that can fail.
struct Streamed {
    bytes: Vec<u8>,
    fails: bool,
}

impl ByteSource for Streamed {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        if self.fails && offset > 0 {
            return Err(std::io::Error::other("the disk is gone"));
        }
        let offset = offset as usize;
        into.copy_from_slice(&self.bytes[offset..offset + into.len()]);
        Ok(())
    }
}

/// A streamed payload is stored like any other; one that cannot be read stores nothing.
pub async fn sources_are_read(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    for size in [100, INLINE_LIMIT, INLINE_LIMIT + 1, 5 * MIB + 3] {
        let bytes = noise(size, 5);
        let source = Arc::new(Streamed { bytes: bytes.clone(), fails: false });
        for encoding in [Encoding::Raw, Encoding::Blob] {
            let payload = Payload { encoding, body: Body::Source(source.clone()) };
            let stored = input(&rig, payload).await.unwrap();
            assert_eq!(stored.encoding, encoding);
            same(&rig, &stored, &bytes).await;
            // A blob is passed on by its name: what comes back is read part by part.
            let Some(blob) = blob(&rig.storage, ORG, &stored) else { continue };
            let again = input(&rig, blob).await.unwrap();
            same(&rig, &again, &bytes).await;
        }
    }
    let source = Arc::new(Streamed { bytes: noise(3 * MIB, 6), fails: true });
    let payload = Payload { encoding: Encoding::Raw, body: Body::Source(source) };
    let new = NewExecution { input: payload, ..rig.new_run() };
    assert_eq!(refused(rig.storage.create_execution(new.clone()).await), Code::InvalidArgument);
    assert_eq!(refused(rig.storage.execution(ORG, new.id).await), Code::ExecutionNotFound);
}

/// Large payloads come back by reference from every place that has one.
pub async fn every_place_takes_large_payloads(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let large = |seed: u64| noise(20_000 + seed as usize, seed);
    let payload = |seed: u64| Payload::raw(large(seed));
    let mut holder = rig.running().await;
    let mut signal = rig.new_signal(holder.id, "s");
    signal.payload = payload(1);
    rig.storage.store_signal(signal).await.unwrap();
    let mut entry = holder.entry_of("", None, payload(2));
    if let OpBody::Entry(new) = &mut entry.body {
        holder.leaf = Some(new.id);
    }
    let ops = vec![
        entry,
        holder.task_of(crate::model::Placement::Inline, TaskOptions::default(), payload(3)),
        holder.read(payload(4)),
        holder.once("o", payload(5)),
    ];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.attempts.push(ended(1, 1, AttemptResult::Completed(payload(6))));
    let answer = holder.commit_batch(batch).await;
    let task = rig.task(holder.id, holder.task_id(1)).await;
    same(&rig, &task.new.input, &large(3)).await;
    same(&rig, task.output.as_ref().unwrap(), &large(6)).await;
    same(&rig, &rig.mailbox(holder.id).await[0].payload, &large(1)).await;
    let entries = rig.storage.branch(ORG, holder.leaf.unwrap(), None).await.unwrap();
    same(&rig, &entries[0].new.content, &large(2)).await;
    assert_eq!(answer.facts.len(), 2);
    for fact in holder.load().await.facts {
        match fact.kind {
            crate::model::FactKind::Task { result, .. } => same(&rig, &result.unwrap(), &large(6)).await,
            crate::model::FactKind::Signal(signal) => same(&rig, &signal.payload, &large(1)).await,
            other => panic!("{other:?}"),
        }
    }
    for op in holder.load().await.tail {
        match op.body {
            RecordedBody::Read { answer, .. } => same(&rig, &answer, &large(4)).await,
            RecordedBody::Once { value } => same(&rig, &value, &large(5)).await,
            _ => {}
        }
    }
    same(&rig, &holder.load().await.once[0].value, &large(5)).await;
    holder.checkpoint(vec![], payload(7)).await;
    same(&rig, &holder.load().await.checkpoint.unwrap().saved.state, &large(7)).await;
    let page = rig.storage.checkpoints(ORG, holder.id, PageRequest::default()).await.unwrap();
    same(&rig, &page.items[0].saved.state, &large(7)).await;
    let fork = ForkRequest {
        org: ORG,
        execution: holder.id,
        id: ExecutionId(rig.uuid()),
        key: None,
        from: ForkFrom::Latest,
        state: Some(payload(8)),
        input: Some(payload(9)),
    };
    let fork = rig.storage.fork(fork).await.unwrap();
    same(&rig, &fork.new.input, &large(9)).await;
    assert_eq!(fork.new.input_digest, payload(9).digest().unwrap());
    let forked = rig.claim(fork.new.id).await.load().await;
    same(&rig, &forked.checkpoint.unwrap().saved.state, &large(8)).await;
    holder.end(vec![], BatchEnd::Complete(payload(10))).await;
    same(&rig, &rig.execution(holder.id).await.output.unwrap(), &large(10)).await;
}

/// What is stored may be passed on by reference; what is not stored here may not.
pub async fn references_are_passed_on(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let bytes = noise(50_000, 1);
    let stored = input(&rig, Payload::raw(bytes.clone())).await.unwrap();
    assert!(matches!(stored.body, Body::Stored { .. }));
    let again = input(&rig, stored.clone()).await.unwrap();
    same(&rig, &again, &bytes).await;
    let unknown = Payload { encoding: Encoding::Raw, body: Body::Stored { hash: ContentHash([3; 32]), size: 9_000 } };
    let new = NewExecution { input: unknown.clone(), ..rig.new_run() };
    assert_eq!(refused(rig.storage.create_execution(new).await), Code::InvalidArgument);
    assert_eq!(refused(rig.storage.read_payload(ORG, &unknown).await), Code::InvalidArgument);
    // Content belongs to its tenant.
    let stranger = OrgId(rig.uuid());
    assert_eq!(refused(rig.storage.read_payload(stranger, &stored).await), Code::InvalidArgument);
}

/// The same content has the same name, wherever it is used.
pub async fn equal_content_is_one(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let bytes = noise(30_000, 1);
    let one = input(&rig, Payload::raw(bytes.clone())).await.unwrap();
    let two = input(&rig, Payload::raw(bytes.clone())).await.unwrap();
    let text = input(&rig, Payload { encoding: Encoding::Json, ..Payload::raw(bytes) }).await.unwrap();
    let name = |payload: &Payload| match payload.body {
        Body::Stored { hash, .. } => hash,
        _ => panic!("it is stored by reference"),
    };
    assert_eq!(name(&one), name(&two));
    assert_eq!((name(&one), text.encoding), (name(&text), Encoding::Json));
}

struct Huge(u64);

impl ByteSource for Huge {
    fn size(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        panic!("a payload over the limit is not even read")
    }
}

/// A payload over the limit is refused before anything is written.
pub async fn too_large_is_refused(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let huge = || Payload { encoding: Encoding::Raw, body: Body::Source(Arc::new(Huge(MAX_PAYLOAD + 1))) };
    let new = NewExecution { input: huge(), ..rig.new_run() };
    assert_eq!(refused(rig.storage.create_execution(new).await), Code::PayloadTooLarge);
    let mut holder: Holder<'_> = rig.running().await;
    let mut signal = rig.new_signal(holder.id, "s");
    signal.payload = huge();
    assert_eq!(refused(rig.storage.store_signal(signal).await), Code::PayloadTooLarge);
    let ops = vec![holder.entry("a"), holder.entry_of("", None, huge())];
    assert_eq!(refused(holder.try_commit(holder.batch(ops, BatchEnd::Continue)).await), Code::PayloadTooLarge);
    assert!(rig.storage.journal(ORG, holder.id, 0).await.unwrap().is_empty());
    assert_eq!(rig.high(holder.id).await, 2);
}

/// Of the results of a tail a load brings about a MiB along; the others are read from their rows, by forks too.
pub async fn a_long_tail_stays_in_its_rows(factory: &dyn Factory) {
    const OPS: usize = 400;
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let text = |n: usize| noise(3_000, n as u64).iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>();
    for first in (0..OPS).step_by(100) {
        let sequence = holder.next;
        let ops = (0..100).map(|_| holder.inline(TaskOptions::default())).collect();
        let mut batch = holder.batch(ops, BatchEnd::Continue);
        batch.attempts = (0..100)
            .map(|n| ended(sequence + n, 1, AttemptResult::Completed(json(&text(first + n as usize)))))
            .collect();
        holder.commit_batch(batch).await;
    }
    let last = holder.slot(holder.next - 1);
    let fork = ForkRequest {
        org: ORG,
        execution: holder.id,
        from: ForkFrom::Op(last),
        id: ExecutionId(rig.uuid()),
        key: None,
        state: None,
        input: None,
    };
    let fork = rig.storage.fork(fork).await.unwrap();
    whole(&rig, &holder.load().await, OPS, text).await;
    holder.end(Vec::new(), BatchEnd::Complete(json(&0))).await;
    whole(&rig, &rig.claim(fork.new.id).await.load().await, OPS, text).await;
}

/// A segment has the values of its facts, in their order, few of them at hand.
async fn whole(rig: &Rig, segment: &Segment, count: usize, text: impl Fn(usize) -> String) {
    let value = |fact: &Fact| match &fact.kind {
        FactKind::Task { result: Ok(value), .. } => value.clone(),
        other => panic!("{other:?}"),
    };
    let values: Vec<Payload> = segment.facts.iter().map(value).collect();
    assert_eq!(values.len(), count);
    let there: usize = values.iter().filter_map(|value| value.bytes().ok()).map(|bytes| bytes.len()).sum();
    assert!((MIB - 10_000..=MIB).contains(&there), "{there} bytes were loaded");
    let left: Vec<_> = values.iter().filter_map(Payload::row).collect();
    let mut read = rig.storage.read_rows(ORG, &left).await.unwrap().into_iter();
    for (n, value) in values.iter().enumerate() {
        let expected = json(&text(n));
        assert_eq!(value.size(), expected.size());
        if value.row().is_some() {
            assert_eq!(read.next().as_ref(), expected.bytes().ok());
        }
        assert_eq!(rig.storage.read_payload(ORG, value).await.unwrap(), *expected.bytes().unwrap());
    }
    // What is named is read before it is stored again.
    let named = values.iter().find(|value| value.row().is_some()).expect("some values are left");
    assert_eq!(refused(rig.storage.store_payload(ORG, named.clone()).await), Code::InvalidArgument);
    let nowhere = RowOf { execution: segment.execution.new.id, slot: Slot { segment: 0, sequence: 1 << 20 } };
    assert_eq!(refused(rig.storage.read_rows(ORG, &[nowhere]).await), Code::InvalidArgument);
}
