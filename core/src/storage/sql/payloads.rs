//! Looks at values before a transaction begins: which ones a commit carries, and which are too large for a row.

use crate::error::Result;
use crate::model::{AttemptResult, BatchEnd, CommitRequest, OpBody};
use crate::payload::{Body, Content, INLINE_LIMIT, Payload};

/// All values that a commit carries.
pub(in crate::storage) fn payloads_of(request: &mut CommitRequest) -> impl Iterator<Item = &mut Payload> {
    let batch = &mut request.batch;
    let of_ops = batch.ops.iter_mut().filter_map(|op| match &mut op.body {
        OpBody::Entry(entry) => Some(&mut entry.content),
        OpBody::Task(task) => Some(&mut task.input),
        OpBody::Child(child) => Some(&mut child.input),
        OpBody::Send(message) => message.body.payload_mut(),
        OpBody::Read { answer, .. } => Some(answer),
        OpBody::Once { value, .. } => Some(value),
        _ => None,
    });
    let of_attempts = batch.attempts.iter_mut().filter_map(|report| match &mut report.result {
        AttemptResult::Completed(output) => Some(output),
        _ => None,
    });
    let of_end = match &mut batch.end {
        BatchEnd::Complete(output) | BatchEnd::Cancelled(Some(output)) => Some(output),
        BatchEnd::Checkpoint(new) => Some(&mut new.state),
        _ => None,
    };
    of_ops.chain(of_attempts).chain(of_end)
}

/// Whether a value fits into a row as it is.
pub(in crate::storage) fn fits(payload: &Payload) -> bool {
    matches!(&payload.body, Body::Inline(bytes) if bytes.len() <= INLINE_LIMIT)
}

/// The content of a value that is too large for a row. None if it fits, or is stored already. A small value that was
/// streamed is read into memory.
pub(super) fn large(payload: &mut Payload) -> Result<Option<Content>> {
    let content = match &payload.body {
        Body::Stored { .. } | Body::Kept { .. } => return Ok(None),
        Body::Inline(bytes) if bytes.len() <= INLINE_LIMIT => return Ok(None),
        Body::Inline(bytes) => Content::Memory(bytes.clone()),
        Body::Source(source) => Content::Source(source.clone()),
        Body::Row { .. } => return Err(payload.not_read()),
    };
    let size = content.size();
    if size <= INLINE_LIMIT as u64 {
        payload.body = Body::Inline(content.piece(0, size as usize)?);
        return Ok(None);
    }
    Ok(Some(content))
}
