//! Payloads of a commit that are too large for its message. They are sent after it as attachments, in chunks.

use super::v2::payload::Body;
use super::v2::{batch, commit_part, new_op, payload_part};
use super::{Parts, encoding_of, parts, v2, wrong};
use crate::error::{Code, Error, Result};
use crate::payload::{INLINE_LIMIT, Payload};
use bytes::Bytes;
use prost::Message;

/// A request over this size is sent in several parts.
const REQUEST: usize = 1 << 20;
/// How much memory an attachment takes beside its bytes.
const ATTACHMENT: u64 = 64;

/// Visits every payload of a commit. Both sides visit them in the same order, which is how the receiver knows where
/// each attachment belongs.
fn each_payload(request: &mut v2::CommitRequest, visit: &mut impl FnMut(&mut v2::Payload) -> Result<()>) -> Result<()> {
    let Some(batch) = &mut request.batch else { return Ok(()) };
    for op in &mut batch.ops {
        match &mut op.body {
            Some(new_op::Body::Entry(entry)) => entry.content.as_mut().map_or(Ok(()), &mut *visit)?,
            Some(new_op::Body::Task(task)) => task.input.as_mut().map_or(Ok(()), &mut *visit)?,
            Some(new_op::Body::Read(read)) => read.answer.as_mut().map_or(Ok(()), &mut *visit)?,
            Some(new_op::Body::OnceResult(once)) => once.value.as_mut().map_or(Ok(()), &mut *visit)?,
            _ => {}
        }
    }
    for attempt in &mut batch.attempts {
        if let Some(v2::AttemptResult { result: Some(v2::attempt_result::Result::Completed(output)) }) =
            &mut attempt.result
        {
            visit(output)?;
        }
    }
    match &mut batch.end {
        Some(batch::End::Checkpoint(saved)) => saved.state.as_mut().map_or(Ok(()), &mut *visit),
        Some(batch::End::Complete(output)) => visit(output),
        Some(batch::End::Cancelled(end)) => end.output.as_mut().map_or(Ok(()), &mut *visit),
        _ => Ok(()),
    }
}

/// The stream of a commit: the request, in several parts if it is large, and then its attachments.
pub fn commit_parts(mut request: v2::CommitRequest) -> Vec<v2::CommitPart> {
    let mut attached: Vec<(i32, Bytes)> = Vec::new();
    let detach = &mut |payload: &mut v2::Payload| {
        if let Some(Body::Inline(bytes)) = &mut payload.body
            && bytes.len() > INLINE_LIMIT
        {
            let bytes = std::mem::take(bytes);
            payload.body = Some(Body::Attached(attached.len() as u32));
            attached.push((payload.encoding, bytes));
        }
        Ok(())
    };
    // The visitor never fails.
    let _ = each_payload(&mut request, detach);
    let mut stream: Vec<_> = split(request).into_iter().map(commit_part::Part::Request).collect();
    for (encoding, bytes) in attached {
        let encoding = encoding_of(encoding);
        stream.extend(parts(encoding, bytes).filter_map(|part| part.part).map(|part| match part {
            payload_part::Part::Header(header) => commit_part::Part::Payload(header),
            payload_part::Part::Chunk(chunk) => commit_part::Part::Chunk(chunk),
        }));
    }
    stream.into_iter().map(|part| v2::CommitPart { part: Some(part) }).collect()
}

/// Splits a large request into several that give it again when they are merged. All but the first only hold more ops.
fn split(mut request: v2::CommitRequest) -> Vec<v2::CommitRequest> {
    let Some(batch) = &mut request.batch else { return vec![request] };
    if request_size(batch) <= REQUEST {
        return vec![request];
    }
    let ops = std::mem::take(&mut batch.ops);
    let mut all = vec![request];
    let (mut part, mut size) = (Vec::new(), 0);
    for op in ops {
        size += op.encoded_len();
        part.push(op);
        if size > REQUEST {
            all.push(continued(std::mem::take(&mut part)));
            size = 0;
        }
    }
    all.push(continued(part));
    all
}

fn request_size(batch: &v2::Batch) -> usize {
    batch.ops.iter().map(Message::encoded_len).sum()
}

fn continued(ops: Vec<v2::NewOp>) -> v2::CommitRequest {
    v2::CommitRequest { batch: Some(v2::Batch { ops, ..Default::default() }), ..Default::default() }
}

/// Puts a commit together from its stream.
#[derive(Debug, Default)]
pub struct Commit {
    request: Option<v2::CommitRequest>,
    attached: Vec<Payload>,
    current: Option<Parts>,
    taken: u64,
}

impl Commit {
    /// Takes the next part. The request and all attachments together may have at most `limit` bytes.
    pub fn push(&mut self, part: v2::CommitPart, limit: u64) -> Result<()> {
        match super::need(part.part, "commit.part")? {
            commit_part::Part::Request(more) => {
                self.count(more.encoded_len() as u64, limit)?;
                match &mut self.request {
                    None => self.request = Some(more),
                    Some(request) => {
                        let ops = more.batch.map(|batch| batch.ops).unwrap_or_default();
                        if let Some(batch) = &mut request.batch {
                            batch.ops.extend(ops);
                        }
                    }
                }
            }
            commit_part::Part::Payload(header) => {
                self.close()?;
                // An empty attachment takes memory too, so it counts.
                self.count(header.size.saturating_add(ATTACHMENT), limit)?;
                self.current = Some(Parts::begin(&header, limit)?);
            }
            commit_part::Part::Chunk(chunk) => match &mut self.current {
                Some(parts) => parts.push(&chunk)?,
                None => return Err(wrong("commit.chunk", "comes before the header of its payload")),
            },
        }
        Ok(())
    }

    /// The bytes that it takes so far, with those of the attachment that was announced last.
    pub fn size(&self) -> u64 {
        self.taken
    }

    /// The request, once its first part has come.
    pub fn head(&self) -> Option<&v2::CommitRequest> {
        self.request.as_ref()
    }

    /// Counts bytes before they are held in memory, and refuses them if they are too many.
    fn count(&mut self, bytes: u64, limit: u64) -> Result<()> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= limit {
            return Ok(());
        }
        let message = format!("a commit has more than {limit} bytes; store large values first, or commit more often");
        Err(Error::new(Code::PayloadTooLarge, message).with("size", self.taken).with("limit", limit))
    }

    fn close(&mut self) -> Result<()> {
        if let Some(parts) = self.current.take() {
            self.attached.push(parts.finish()?);
        }
        Ok(())
    }

    /// The request, with each attachment in its place.
    pub fn finish(mut self) -> Result<v2::CommitRequest> {
        self.close()?;
        let mut request = super::need(self.request, "commit.request")?;
        let attached = self.attached;
        each_payload(&mut request, &mut |payload| {
            if let Some(Body::Attached(n)) = payload.body {
                let found = attached.get(n as usize);
                let found = found.ok_or_else(|| wrong("payload.attached", "names an attachment that did not come"))?;
                payload.body = Some(Body::Inline(found.bytes()?.clone()));
            }
            Ok(())
        })?;
        Ok(request)
    }
}
