//! The journal: labels, ops, facts, segments, and commits with their answers.

use super::v2::{batch, commit_answer, fact, label, new_op, recorded_op, task_ended};
use super::{
    OfOrg, fixed, id, micros, need, of_word, raw, some_duration, some_id, some_micros, some_raw, v2, word, wrong,
};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{EntryId, ExecutionId, OnceSlot, OrgId, RequestId, SignalId, TaskId};
use crate::model::{
    Batch, BatchEnd, CommitAnswer, CommitRequest, Committed, Consumed, Entry, Fact, FactKind, Label, LabelKey,
    NewEntry, NewEvent, NewOp, OnceResult, OpBody, OpKind, RecordedBody, RecordedOp, Seen, Segment, Status,
};
use crate::payload::Digest;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

fn digest(digest: Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0)
}

impl From<&OnceSlot> for v2::OnceSlot {
    fn from(once: &OnceSlot) -> Self {
        Self { name: once.name.to_string(), n: once.n }
    }
}

impl From<v2::OnceSlot> for OnceSlot {
    fn from(wire: v2::OnceSlot) -> Self {
        Self { name: wire.name.into(), n: wire.n }
    }
}

impl From<&Label> for v2::Label {
    fn from(label: &Label) -> Self {
        let key = match &label.key {
            LabelKey::Key(key) => label::Key::Author(key.to_string()),
            LabelKey::Digest(found) => label::Key::Digest(digest(*found)),
        };
        Self { kind: label.kind as u32, name: label.name.to_string(), key: Some(key) }
    }
}

impl TryFrom<v2::Label> for Label {
    type Error = Error;
    fn try_from(wire: v2::Label) -> Result<Self> {
        let kind = u8::try_from(wire.kind).ok().and_then(OpKind::from_number);
        Ok(Self {
            kind: kind.ok_or_else(|| wrong("label.kind", &format!("is {}, which is unknown", wire.kind)))?,
            name: wire.name.into(),
            key: match need(wire.key, "label.key")? {
                label::Key::Author(key) => LabelKey::Key(key.into()),
                label::Key::Digest(digest) => LabelKey::Digest(Digest(fixed(&digest, "label.digest")?)),
            },
        })
    }
}

impl From<&NewEntry> for v2::NewEntry {
    fn from(new: &NewEntry) -> Self {
        Self {
            id: raw(new.id.0),
            parent: some_raw(new.parent.map(|parent| parent.0)),
            thread: new.thread.clone(),
            role: new.role.clone(),
            entry_type: new.entry_type.clone(),
            content: Some((&new.content).into()),
            turn_id: new.turn_id.clone(),
            metadata: new.metadata.clone(),
        }
    }
}

impl TryFrom<v2::NewEntry> for NewEntry {
    type Error = Error;
    fn try_from(wire: v2::NewEntry) -> Result<Self> {
        Ok(Self {
            id: EntryId(id(&wire.id, "entry.id")?),
            parent: some_id(&wire.parent, "entry.parent")?.map(EntryId),
            thread: wire.thread,
            role: wire.role,
            entry_type: wire.entry_type,
            content: need(wire.content, "entry.content")?.try_into()?,
            turn_id: wire.turn_id,
            metadata: wire.metadata,
        })
    }
}

impl From<&Entry> for v2::Entry {
    fn from(entry: &Entry) -> Self {
        Self {
            new: Some((&entry.new).into()),
            execution: raw(entry.execution.0),
            slot: Some(entry.slot.into()),
            depth: entry.depth,
            created_at: entry.created_at.0,
        }
    }
}

impl TryFrom<v2::Entry> for Entry {
    type Error = Error;
    fn try_from(wire: v2::Entry) -> Result<Self> {
        Ok(Self {
            new: need(wire.new, "entry.new")?.try_into()?,
            execution: ExecutionId(id(&wire.execution, "entry.execution")?),
            slot: need(wire.slot, "entry.slot")?.into(),
            depth: wire.depth,
            created_at: Timestamp(wire.created_at),
        })
    }
}

impl From<&NewOp> for v2::NewOp {
    fn from(op: &NewOp) -> Self {
        use new_op::Body;
        let body = match &op.body {
            OpBody::Entry(entry) => Body::Entry(entry.into()),
            OpBody::Task(task) => Body::Task(task.into()),
            OpBody::Child(child) => Body::Child((&**child).into()),
            OpBody::Send(message) => Body::Send((&**message).into()),
            OpBody::Signal { timeout } => Body::Signal(v2::SignalOp { timeout: some_micros(*timeout) }),
            OpBody::Timer { duration } => Body::Timer(v2::TimerOp { duration: micros(*duration) }),
            OpBody::Read { answer, count } => Body::Read(v2::ReadOp { answer: Some(answer.into()), count: *count }),
            OpBody::Abandon { target } => Body::Abandon(v2::AbandonOp { target: *target }),
            OpBody::Attach { task } => Body::Attach(v2::AttachOp { task: raw(task.0) }),
            OpBody::Usage { model, usage } => {
                Body::Usage(v2::UsageOp { model: model.clone(), usage: Some(usage.into()) })
            }
            OpBody::StepMark => Body::Step(v2::Empty {}),
            OpBody::Flush => Body::Flush(v2::Empty {}),
            OpBody::Once { digest: found, value } => {
                Body::OnceResult(v2::OnceOp { digest: digest(*found), value: Some(value.into()) })
            }
        };
        Self {
            sequence: op.sequence,
            once: op.once.as_ref().map(Into::into),
            label: Some((&op.label).into()),
            seen: op.seen.iter().map(|seen| seen.0).collect(),
            body: Some(body),
        }
    }
}

impl TryFrom<v2::NewOp> for NewOp {
    type Error = Error;
    fn try_from(wire: v2::NewOp) -> Result<Self> {
        use new_op::Body;
        let body = match need(wire.body, "op.body")? {
            Body::Entry(entry) => OpBody::Entry(entry.try_into()?),
            Body::Task(task) => OpBody::Task(task.try_into()?),
            // The store knows the org of the batch.
            Body::Child(child) => OpBody::Child(Box::new(child.into_model(OrgId::DEFAULT)?)),
            Body::Send(message) => OpBody::Send(Box::new(message.try_into()?)),
            Body::Signal(signal) => OpBody::Signal { timeout: some_duration(signal.timeout) },
            Body::Timer(timer) => OpBody::Timer { duration: Duration::from_micros(timer.duration) },
            Body::Read(read) => {
                OpBody::Read { answer: need(read.answer, "read.answer")?.try_into()?, count: read.count }
            }
            Body::Abandon(abandon) => OpBody::Abandon { target: abandon.target },
            Body::Attach(attach) => OpBody::Attach { task: TaskId(id(&attach.task, "attach.task")?) },
            Body::Usage(usage) => OpBody::Usage { model: usage.model, usage: usage.usage.unwrap_or_default().into() },
            Body::Step(_) => OpBody::StepMark,
            Body::Flush(_) => OpBody::Flush,
            Body::OnceResult(once) => OpBody::Once {
                digest: Digest(fixed(&once.digest, "once.digest")?),
                value: need(once.value, "once.value")?.try_into()?,
            },
        };
        Ok(Self {
            sequence: wire.sequence,
            once: wire.once.map(Into::into),
            label: need(wire.label, "op.label")?.try_into()?,
            seen: wire.seen.into_iter().map(Seen).collect(),
            body,
        })
    }
}

impl From<&RecordedOp> for v2::RecordedOp {
    fn from(op: &RecordedOp) -> Self {
        use recorded_op::Body;
        let body = match &op.body {
            RecordedBody::Entry { id, parent, thread } => Body::Entry(v2::RecordedEntry {
                id: raw(id.0),
                parent: some_raw(parent.map(|parent| parent.0)),
                thread: thread.clone(),
            }),
            RecordedBody::Task { id, status, attempt, inline, at_most_once, detached, max_losses } => {
                Body::Task(v2::RecordedTask {
                    id: raw(id.0),
                    status: word(status),
                    attempt: *attempt,
                    inline: *inline,
                    at_most_once: *at_most_once,
                    detached: *detached,
                    max_losses: super::task::said(*max_losses),
                })
            }
            RecordedBody::Signal => Body::Signal(v2::Empty {}),
            RecordedBody::Child { id } => Body::Child(raw(id.0)),
            RecordedBody::Send(sent) => Body::Send((*sent).into()),
            RecordedBody::Timer => Body::Timer(v2::Empty {}),
            RecordedBody::Read { answer, count } => {
                Body::Read(v2::ReadOp { answer: Some(answer.into()), count: *count })
            }
            RecordedBody::Abandon { target } => Body::Abandon(v2::AbandonOp { target: *target }),
            RecordedBody::Attach { task } => Body::Attach(v2::AttachOp { task: raw(task.0) }),
            RecordedBody::Usage => Body::Usage(v2::Empty {}),
            RecordedBody::StepMark => Body::Step(v2::Empty {}),
            RecordedBody::Flush => Body::Flush(v2::Empty {}),
            RecordedBody::Once { value } => Body::OnceValue(value.into()),
        };
        Self {
            segment: op.segment,
            sequence: op.sequence,
            once: op.once.as_ref().map(Into::into),
            label: Some((&op.label).into()),
            seen: op.seen.iter().map(|seen| seen.0).collect(),
            body: Some(body),
        }
    }
}

impl TryFrom<v2::RecordedOp> for RecordedOp {
    type Error = Error;
    fn try_from(wire: v2::RecordedOp) -> Result<Self> {
        use recorded_op::Body;
        let body = match need(wire.body, "op.body")? {
            Body::Entry(entry) => RecordedBody::Entry {
                id: EntryId(id(&entry.id, "entry.id")?),
                parent: some_id(&entry.parent, "entry.parent")?.map(EntryId),
                thread: entry.thread,
            },
            Body::Task(task) => RecordedBody::Task {
                id: TaskId(id(&task.id, "task.id")?),
                status: of_word(&task.status, "task.status")?,
                attempt: task.attempt,
                inline: task.inline,
                at_most_once: task.at_most_once,
                detached: task.detached,
                max_losses: task.max_losses.unwrap_or(crate::model::TaskOptions::USUAL_LOSSES),
            },
            Body::Signal(_) => RecordedBody::Signal,
            Body::Send(sent) => RecordedBody::Send(sent.try_into()?),
            Body::Child(child) => RecordedBody::Child { id: ExecutionId(id(&child, "child.id")?) },
            Body::Timer(_) => RecordedBody::Timer,
            Body::Read(read) => {
                RecordedBody::Read { answer: need(read.answer, "read.answer")?.try_into()?, count: read.count }
            }
            Body::Abandon(abandon) => RecordedBody::Abandon { target: abandon.target },
            Body::Attach(attach) => RecordedBody::Attach { task: TaskId(id(&attach.task, "attach.task")?) },
            Body::Usage(_) => RecordedBody::Usage,
            Body::Step(_) => RecordedBody::StepMark,
            Body::Flush(_) => RecordedBody::Flush,
            Body::OnceValue(value) => RecordedBody::Once { value: value.try_into()? },
        };
        Ok(Self {
            segment: wire.segment,
            sequence: wire.sequence,
            once: wire.once.map(Into::into),
            label: need(wire.label, "op.label")?.try_into()?,
            seen: wire.seen.into_iter().map(Seen).collect(),
            body,
        })
    }
}

impl From<&Fact> for v2::Fact {
    fn from(fact: &Fact) -> Self {
        let kind = match &fact.kind {
            FactKind::Task { task, result } => {
                let result = match result {
                    Ok(output) => task_ended::Result::Output(output.into()),
                    Err(failure) => task_ended::Result::Failure(failure.into()),
                };
                fact::Kind::Task(v2::TaskEnded { task: raw(task.0), result: Some(result) })
            }
            FactKind::Timer { slot } => fact::Kind::Timer((*slot).into()),
            FactKind::Signal(signal) => fact::Kind::Signal(signal.into()),
            FactKind::Cancel(cancel) => fact::Kind::Cancel((*cancel).into()),
        };
        Self { number: fact.number, at: fact.at.0, kind: Some(kind) }
    }
}

impl TryFrom<v2::Fact> for Fact {
    type Error = Error;
    fn try_from(wire: v2::Fact) -> Result<Self> {
        let kind = match need(wire.kind, "fact.kind")? {
            fact::Kind::Task(ended) => FactKind::Task {
                task: TaskId(id(&ended.task, "fact.task")?),
                result: match need(ended.result, "fact.result")? {
                    task_ended::Result::Output(output) => Ok(output.try_into()?),
                    task_ended::Result::Failure(failure) => Err(failure.try_into()?),
                },
            },
            fact::Kind::Timer(slot) => FactKind::Timer { slot: slot.into() },
            fact::Kind::Signal(signal) => FactKind::Signal(signal.try_into()?),
            fact::Kind::Cancel(cancel) => FactKind::Cancel(cancel.into()),
        };
        Ok(Self { number: wire.number, at: Timestamp(wire.at), kind })
    }
}

/// Facts read back.
pub fn facts(wire: Vec<v2::Fact>) -> Result<Vec<Fact>> {
    wire.into_iter().map(TryInto::try_into).collect()
}

impl From<&OnceResult> for v2::OnceResult {
    fn from(once: &OnceResult) -> Self {
        Self { name: once.name.to_string(), digest: digest(once.digest), value: Some((&once.value).into()) }
    }
}

impl TryFrom<v2::OnceResult> for OnceResult {
    type Error = Error;
    fn try_from(wire: v2::OnceResult) -> Result<Self> {
        Ok(Self {
            name: Arc::from(wire.name),
            digest: Digest(fixed(&wire.digest, "once.digest")?),
            value: need(wire.value, "once.value")?.try_into()?,
        })
    }
}

impl super::OfOrg for v2::Segment {
    type Model = Segment;
    fn into_model(self, org: OrgId) -> Result<Segment> {
        Ok(Segment {
            execution: need(self.execution, "segment.execution")?.into_model(org)?,
            checkpoint: self.checkpoint.map(TryInto::try_into).transpose()?,
            tail: self.tail.into_iter().map(TryInto::try_into).collect::<Result<_>>()?,
            facts: facts(self.facts)?,
            once: self.once.into_iter().map(TryInto::try_into).collect::<Result<_>>()?,
            high: self.high,
            now: Timestamp(self.now),
        })
    }
}

fn pairs(pairs: &[(u32, u32)]) -> Vec<v2::Pair> {
    pairs.iter().map(|(sequence, value)| v2::Pair { sequence: *sequence, value: *value }).collect()
}

fn of_pairs(wire: Vec<v2::Pair>) -> Vec<(u32, u32)> {
    wire.into_iter().map(|pair| (pair.sequence, pair.value)).collect()
}

impl From<&BatchEnd> for batch::End {
    fn from(end: &BatchEnd) -> Self {
        match end {
            BatchEnd::Continue => Self::Continue(v2::Empty {}),
            BatchEnd::Suspend(wait) => Self::Suspend(wait.into()),
            BatchEnd::Checkpoint(saved) => Self::Checkpoint(saved.into()),
            BatchEnd::HandOff { to, immediate } => Self::HandOff(v2::HandOff { to: raw(to.0), immediate: *immediate }),
            BatchEnd::Complete(output) => Self::Complete(output.into()),
            BatchEnd::Fail(failure) => Self::Fail(failure.into()),
            BatchEnd::Cancelled(output) => {
                Self::Cancelled(v2::CancelledEnd { output: output.as_ref().map(Into::into) })
            }
            BatchEnd::Pause { reason, failure } => {
                Self::Pause(v2::Pause { reason: word(reason), failure: failure.as_ref().map(Into::into) })
            }
        }
    }
}

impl TryFrom<batch::End> for BatchEnd {
    type Error = Error;
    fn try_from(wire: batch::End) -> Result<Self> {
        Ok(match wire {
            batch::End::Continue(_) => Self::Continue,
            batch::End::Suspend(wait) => Self::Suspend(wait.try_into()?),
            batch::End::Checkpoint(saved) => Self::Checkpoint(saved.try_into()?),
            batch::End::HandOff(end) => {
                Self::HandOff { to: ExecutionId(id(&end.to, "hand_off.to")?), immediate: end.immediate }
            }
            batch::End::Complete(output) => Self::Complete(output.try_into()?),
            batch::End::Fail(failure) => Self::Fail(failure.try_into()?),
            batch::End::Cancelled(end) => Self::Cancelled(end.output.map(TryInto::try_into).transpose()?),
            batch::End::Pause(pause) => Self::Pause {
                reason: of_word(&pause.reason, "pause.reason")?,
                failure: pause.failure.map(TryInto::try_into).transpose()?,
            },
        })
    }
}

impl From<&Batch> for v2::Batch {
    fn from(batch: &Batch) -> Self {
        Self {
            segment: batch.segment,
            ops: batch.ops.iter().map(Into::into).collect(),
            attempts: batch.attempts.iter().map(Into::into).collect(),
            restarted: pairs(&batch.restarted),
            read_counts: pairs(&batch.read_counts),
            consumed: batch
                .consumed
                .iter()
                .map(|consumed| v2::Consumed { signal: raw(consumed.signal.0), by: Some(consumed.by.into()) })
                .collect(),
            disarmed: batch.disarmed.clone(),
            orphaned: batch.orphaned.clone(),
            events: batch
                .events
                .iter()
                .map(|event| v2::NewEvent {
                    kind: word(&event.kind),
                    sequence: event.sequence,
                    data: event.data.to_string(),
                })
                .collect(),
            code: batch.code.clone(),
            end: Some((&batch.end).into()),
            draw: batch.draw.map(Into::into),
        }
    }
}

impl TryFrom<v2::Batch> for Batch {
    type Error = Error;
    fn try_from(wire: v2::Batch) -> Result<Self> {
        let consumed = |consumed: v2::Consumed| {
            Ok(Consumed {
                signal: SignalId(id(&consumed.signal, "consumed.signal")?),
                by: need(consumed.by, "consumed.by")?.into(),
            })
        };
        let event = |event: v2::NewEvent| {
            Ok(NewEvent {
                kind: of_word(&event.kind, "event.kind")?,
                sequence: event.sequence,
                data: super::catalog::json(&event.data, "event.data")?,
            })
        };
        Ok(Self {
            segment: wire.segment,
            ops: wire.ops.into_iter().map(TryInto::try_into).collect::<Result<_>>()?,
            attempts: wire.attempts.into_iter().map(TryInto::try_into).collect::<Result<_>>()?,
            restarted: of_pairs(wire.restarted),
            read_counts: of_pairs(wire.read_counts),
            consumed: wire.consumed.into_iter().map(consumed).collect::<Result<_>>()?,
            disarmed: wire.disarmed,
            orphaned: wire.orphaned,
            events: wire.events.into_iter().map(event).collect::<Result<_>>()?,
            code: wire.code,
            end: need(wire.end, "batch.end")?.try_into()?,
            draw: wire.draw.map(Into::into),
        })
    }
}

impl From<&CommitRequest> for v2::CommitRequest {
    fn from(request: &CommitRequest) -> Self {
        Self {
            execution: raw(request.execution.0),
            lease: Some(request.lease.into()),
            request_id: raw(request.request_id.0),
            digest: digest(request.digest),
            base: request.base,
            known: request.known,
            batch: Some((&request.batch).into()),
            wanted: None,
        }
    }
}

impl super::OfOrg for v2::CommitRequest {
    type Model = CommitRequest;
    fn into_model(self, org: OrgId) -> Result<CommitRequest> {
        Ok(CommitRequest {
            org,
            execution: ExecutionId(id(&self.execution, "commit.execution")?),
            lease: need(self.lease, "commit.lease")?.try_into()?,
            request_id: RequestId(id(&self.request_id, "commit.request_id")?),
            digest: Digest(fixed(&self.digest, "commit.digest")?),
            base: self.base,
            known: self.known,
            batch: need(self.batch, "commit.batch")?.try_into()?,
            refused: Vec::new(),
            local: None,
        })
    }
}

impl From<&CommitAnswer> for v2::CommitAnswer {
    fn from(answer: &CommitAnswer) -> Self {
        Self {
            number: answer.number,
            committed: Some(match answer.committed {
                Committed::Continue => commit_answer::Committed::Continue(v2::Empty {}),
                Committed::Suspended => commit_answer::Committed::Suspended(v2::Empty {}),
                Committed::Finished(status) => commit_answer::Committed::Finished(status.as_str().into()),
            }),
            facts: answer.facts.iter().map(Into::into).collect(),
            high: answer.high,
            now: answer.now.0,
            cancel: answer.cancel.map(Into::into),
            paused: answer.paused.as_ref().map(word),
            more: false,
            tasks: Vec::new(),
            purse: answer.purse.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v2::CommitAnswer> for CommitAnswer {
    type Error = Error;
    fn try_from(wire: v2::CommitAnswer) -> Result<Self> {
        let committed = match need(wire.committed, "answer.committed")? {
            commit_answer::Committed::Continue(_) => Committed::Continue,
            commit_answer::Committed::Suspended(_) => Committed::Suspended,
            commit_answer::Committed::Finished(status) => Committed::Finished(
                Status::parse(&status).ok_or_else(|| wrong("answer.finished", &format!("is {status:?}")))?,
            ),
        };
        Ok(Self {
            number: wire.number,
            committed,
            facts: facts(wire.facts)?,
            high: wire.high,
            now: Timestamp(wire.now),
            cancel: wire.cancel.map(Into::into),
            paused: wire.paused.map(|reason| of_word(&reason, "answer.paused")).transpose()?,
            purse: wire.purse.map(Into::into),
        })
    }
}
