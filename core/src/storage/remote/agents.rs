//! The writes and reads of one run, as calls of a server.

use super::{Pieces, RemoteStorage, collect, pieces};
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OpId, OrgId, SignalId};
use crate::model::{
    AttemptResult, BatchEnd, Cancellation, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry,
    Execution, Fact, ForkFrom, ForkRequest, Lease, NewExecution, NewSignal, OpBody, Purse, Resolution, ResumeRequest,
    Segment, SignalStored, Task,
};
use crate::payload::{Body, ContentHash, Encoding, INLINE_LIMIT, Payload, RowOf};
use crate::storage::{AgentStorage, ClaimRequest, Standing};
use crate::wire::v2::{fork_request, payload_part, resolve_task_request};
use crate::wire::{OfOrg, Parts, attach, error_of_status, facts, id, micros, parts, raw, stored, v2, word};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use tokio::sync::mpsc;
use tonic::Streaming;

/// The most parts of an upload that wait for the connection.
const AHEAD: usize = 16;
/// The most runs that one call asks for.
const STANDINGS: usize = 1_000;
/// The most bytes of payloads that a commit carries itself. The others are uploaded before it.
const CARRIED: usize = 16 << 20;

#[async_trait]
impl AgentStorage for RemoteStorage {
    async fn create_execution(&self, mut new: NewExecution) -> Result<Created> {
        let org = new.org;
        self.settle(org, &mut new.input).await?;
        let answer = self.agents().start(self.ask(org, v2::NewExecution::from(&new))).await;
        let answer = answer.map_err(|status| error_of_status("start a run", &status))?.into_inner();
        let execution = answer.execution.unwrap_or_default().into_model(org)?;
        Ok(Created { execution, existing: answer.existing })
    }

    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment> {
        let asked = "load a run's journal";
        let request = v2::LoadSegmentRequest { execution: raw(execution.0), lease: Some(lease.into()) };
        let stream = self.worker().load_segment(self.ask(org, request)).await;
        let mut stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        let mut whole = v2::Segment::default();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|status| error_of_status(asked, &status))?;
            if part.execution.is_some() {
                (whole.execution, whole.checkpoint) = (part.execution, part.checkpoint);
                (whole.high, whole.now) = (part.high, part.now);
            }
            whole.tail.extend(part.tail);
            whole.facts.extend(part.facts);
            whole.once.extend(part.once);
        }
        whole.into_model(org)
    }

    async fn facts_after(
        &self,
        org: OrgId,
        execution: ExecutionId,
        after: u64,
    ) -> Result<(Vec<Fact>, u64, Option<Purse>)> {
        let asked = "read the news of a run";
        let request = v2::FactsAfterRequest { execution: raw(execution.0), after };
        let stream = self.worker().facts_after(self.ask(org, request)).await;
        let stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        let (mut all, mut high, mut purse) = (Vec::new(), after, None);
        let read = |part: v2::FactsAfterResponse| Ok((facts(part.facts)?, part.high, part.purse));
        for (part, to, told) in collect(asked, stream, read).await? {
            all.extend(part);
            (high, purse) = (to, told);
        }
        Ok((all, high, purse.map(Into::into)))
    }

    async fn standings(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<Standing>> {
        let mut all = Vec::with_capacity(executions.len());
        for some in executions.chunks(STANDINGS) {
            let request = v2::StandingsRequest { executions: some.iter().map(|id| raw(id.0)).collect() };
            let answer = self.agents().standings(self.ask(org, request)).await;
            let answer = answer.map_err(|status| error_of_status("look how far runs have come", &status))?;
            for one in answer.into_inner().items {
                let execution = ExecutionId(id(&one.execution, "execution")?);
                all.push(Standing { execution, high: one.high, ended: one.ended });
            }
        }
        Ok(all)
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitAnswer> {
        self.send(request, None).await.map(|(answer, _)| answer)
    }

    fn brings_tasks(&self) -> bool {
        true
    }

    async fn commit_and_claim(
        &self,
        request: CommitRequest,
        wanted: &ClaimRequest,
    ) -> Result<(CommitAnswer, Vec<ClaimedTask>)> {
        let wanted = v2::WantedTasks {
            queue: wanted.queue.clone(),
            kinds: wanted.kinds.to_vec(),
            limit: wanted.limit.try_into().unwrap_or(u32::MAX),
            ttl: micros(wanted.ttl),
        };
        self.send(request, Some(wanted)).await
    }

    async fn store_signal(&self, mut signal: NewSignal) -> Result<SignalStored> {
        let org = signal.org;
        self.settle(org, &mut signal.payload).await?;
        let request = v2::SignalRequest {
            execution: raw(signal.execution.0),
            id: raw(signal.id.0),
            name: signal.name,
            payload: Some((&signal.payload).into()),
            delivery: v2::Delivery::from(signal.delivery).into(),
            idempotency_key: signal.idempotency_key,
        };
        let answer = self.agents().signal(self.ask(org, request)).await;
        let answer = answer.map_err(|status| error_of_status("signal a run", &status))?.into_inner();
        let id = SignalId(id(&answer.id, "signal.id")?);
        Ok(SignalStored { id, repeated: answer.repeated, resumed: answer.resumed })
    }

    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution> {
        let request = v2::CancelRequest { execution: raw(execution.0), cancel: Some(cancel.into()) };
        let answer = self.agents().cancel(self.ask(org, request)).await;
        answer.map_err(|status| error_of_status("cancel a run", &status))?.into_inner().into_model(org)
    }

    async fn remove_execution(&self, org: OrgId, execution: ExecutionId) -> Result<()> {
        let answer = self.agents().remove(self.ask(org, v2::IdRequest { id: raw(execution.0) })).await;
        answer.map_err(|status| error_of_status("remove a run", &status)).map(|_| ())
    }

    async fn resume(&self, org: OrgId, execution: ExecutionId, mut request: ResumeRequest) -> Result<Execution> {
        if let Some(message) = &mut request.message {
            self.settle(org, message).await?;
        }
        let request = v2::ResumeRequest {
            execution: raw(execution.0),
            retry: request.retry,
            max_steps: request.max_steps,
            max_tail: request.max_tail,
            budget: request.budget,
            message: request.message.as_ref().map(Into::into),
            request_id: request.request_id.map(|id| raw(id.0)).unwrap_or_default(),
        };
        let answer = self.agents().resume(self.ask(org, request)).await;
        answer.map_err(|status| error_of_status("resume a run", &status))?.into_inner().into_model(org)
    }

    async fn resolve_task(&self, org: OrgId, op: OpId, mut resolution: Resolution) -> Result<Task> {
        if let Resolution::Result(result) = &mut resolution {
            self.settle(org, result).await?;
        }
        let resolution = match &resolution {
            Resolution::Result(result) => resolve_task_request::Resolution::Result(result.into()),
            Resolution::Error(failure) => resolve_task_request::Resolution::Error(failure.into()),
            Resolution::Retry => resolve_task_request::Resolution::Retry(v2::Empty {}),
        };
        let request = v2::ResolveTaskRequest { op_id: op.to_string(), resolution: Some(resolution) };
        let answer = self.agents().resolve_task(self.ask(org, request)).await;
        answer.map_err(|status| error_of_status("resolve a task", &status))?.into_inner().into_model(org)
    }

    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution> {
        let request = v2::ResolveDivergenceRequest { execution: raw(execution.0), decision: word(&decision) };
        let answer = self.agents().resolve_divergence(self.ask(org, request)).await;
        answer.map_err(|status| error_of_status("decide a divergence", &status))?.into_inner().into_model(org)
    }

    async fn fork(&self, mut request: ForkRequest) -> Result<Execution> {
        let org = request.org;
        for payload in request.state.iter_mut().chain(&mut request.input) {
            self.settle(org, payload).await?;
        }
        let from = match request.from {
            ForkFrom::Checkpoint(sequence) => fork_request::From::Checkpoint(sequence),
            ForkFrom::Entry(entry) => fork_request::From::Entry(raw(entry.0)),
            ForkFrom::Op(slot) => fork_request::From::Op(slot.into()),
            ForkFrom::Latest => fork_request::From::Latest(v2::Empty {}),
        };
        let request = v2::ForkRequest {
            execution: raw(request.execution.0),
            id: raw(request.id.0),
            key: request.key,
            from: Some(from),
            state: request.state.as_ref().map(Into::into),
            input: request.input.as_ref().map(Into::into),
        };
        let answer = self.agents().fork(self.ask(org, request)).await;
        answer.map_err(|status| error_of_status("fork a run", &status))?.into_inner().into_model(org)
    }

    fn max_payload(&self) -> u64 {
        self.0.max_payload
    }

    async fn store_payload(&self, org: OrgId, mut payload: Payload) -> Result<Payload> {
        self.settle(org, &mut payload).await?;
        Ok(payload)
    }

    async fn read_rows(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>> {
        let asked = "read results of a run";
        let request = v2::ReadRowsRequest { rows: of.iter().map(Into::into).collect() };
        let stream = self.worker().read_rows(self.ask(org, request)).await;
        let stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        let values = collect(asked, stream, |part| Ok(part.values)).await?.concat();
        match values.len() == of.len() {
            true => Ok(values),
            false => Err(Error::new(
                Code::StorageUnavailable,
                format!("{asked}: {} of {} came; ask again", values.len(), of.len()),
            )),
        }
    }

    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        if let Some(of) = payload.row() {
            return self.read_rows(org, &[of]).await?.pop().ok_or_else(|| of.missing());
        }
        let Some((hash, size)) = payload.stored() else { return Ok(payload.bytes()?.clone()) };
        let (header, mut stream) = self.open_payload(org, payload, 0, None).await?;
        let mut whole = Parts::begin(&header, size)?;
        while let Some(chunk) = chunk(&mut stream).await? {
            whole.push(&chunk)?;
        }
        let whole = whole.finish()?;
        if header.hash[..] != hash.0 {
            let message = format!("read a payload: {hash:?} was asked for and another one came; ask again");
            return Err(Error::new(Code::StorageUnavailable, message));
        }
        Ok(whole.bytes()?.clone())
    }

    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes> {
        if payload.stored().is_none() {
            return crate::storage::stored::part_of(payload.bytes()?, offset, length);
        }
        let (header, mut stream) = self.open_payload(org, payload, offset, Some(length as u64)).await?;
        let mut part = BytesMut::with_capacity(length.min(1 << 20));
        while let Some(chunk) = chunk(&mut stream).await? {
            part.extend_from_slice(&chunk);
        }
        match part.len() as u64 == header.size {
            true => Ok(part.freeze()),
            false => Err(Error::new(Code::StorageUnavailable, "read a payload: a part of it did not come; ask again")),
        }
    }

    async fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>> {
        let asked = "read a conversation";
        let request = v2::BranchRequest { leaf: raw(leaf.0), after: after.map(|id| raw(id.0)) };
        let stream = self.agents().branch(self.ask(org, request)).await;
        let stream = stream.map_err(|status| error_of_status(asked, &status))?.into_inner();
        collect(asked, stream, TryInto::try_into).await
    }
}

impl RemoteStorage {
    /// Sends a commit, with a request for tasks that its answer may bring.
    async fn send(
        &self,
        mut request: CommitRequest,
        wanted: Option<v2::WantedTasks>,
    ) -> Result<(CommitAnswer, Vec<ClaimedTask>)> {
        request.check_values()?;
        let (org, execution, known) = (request.org, request.execution, request.known);
        self.settle_batch(&mut request).await?;
        self.0.outbox.sent(Some(execution)).await;
        let wire = v2::CommitRequest { wanted, ..(&request).into() };
        let stream = futures::stream::iter(attach::commit_parts(wire));
        let answer = self.worker().commit(self.ask(org, stream)).await;
        let mut answer = answer.map_err(|status| error_of_status("commit", &status))?.into_inner();
        let (more, tasks) = (answer.more, std::mem::take(&mut answer.tasks));
        let mut answer: CommitAnswer = answer.try_into()?;
        if more {
            let (facts, high, purse) = self.facts_after(org, execution, known).await?;
            (answer.facts, answer.high) = (facts, high);
            answer.purse = purse.or(answer.purse);
        }
        Ok((answer, tasks.into_iter().map(|task| task.into_model(org)).collect::<Result<_>>()?))
    }

    /// The header of a stored payload, and the stream of its chunks.
    async fn open_payload(
        &self,
        org: OrgId,
        payload: &Payload,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(v2::PayloadHeader, Streaming<v2::PayloadPart>)> {
        let payload = payload.stored().map(|(hash, size)| stored(&hash, size));
        let request = v2::GetPayloadRequest { payload, offset, length };
        let stream = self.agents().get_payload(self.ask(org, request)).await;
        let mut stream = stream.map_err(|status| error_of_status(READ, &status))?.into_inner();
        match next(&mut stream).await? {
            Some(payload_part::Part::Header(header)) => Ok((header, stream)),
            _ => Err(Error::new(Code::StorageUnavailable, "read a payload: the server sent none of it; ask again")),
        }
    }

    async fn settle_batch(&self, request: &mut CommitRequest) -> Result<()> {
        let (org, batch) = (request.org, &mut request.batch);
        let of_ops = batch.ops.iter_mut().filter_map(|op| match &mut op.body {
            OpBody::Entry(entry) => Some(&mut entry.content),
            OpBody::Task(task) => Some(&mut task.input),
            OpBody::Child(child) => Some(&mut child.input),
            OpBody::Send(message) => message.body.payload_mut(),
            OpBody::Once { value, .. } => Some(value),
            _ => None,
        });
        let of_attempts = batch.attempts.iter_mut().filter_map(|attempt| match &mut attempt.result {
            AttemptResult::Completed(output) => Some(output),
            _ => None,
        });
        let of_end = match &mut batch.end {
            BatchEnd::Checkpoint(saved) => Some(&mut saved.state),
            BatchEnd::Complete(output) | BatchEnd::Cancelled(Some(output)) => Some(output),
            _ => None,
        };
        let mut carried = 0;
        for payload in of_ops.chain(of_attempts).chain(of_end) {
            self.settle(org, payload).await?;
            let Body::Inline(bytes) = &payload.body else { continue };
            carried += bytes.len();
            if carried > CARRIED && bytes.len() > INLINE_LIMIT {
                carried -= bytes.len();
                payload.body = self.upload(org, payload).await?;
            }
        }
        Ok(())
    }

    /// Streams a payload to the server, and returns its name there.
    pub(super) async fn upload(&self, org: OrgId, payload: &Payload) -> Result<Body> {
        let asked = "store a payload";
        let (encoding, pieces) = (payload.encoding, pieces(payload)?);
        let (sender, receiver) = mpsc::channel(AHEAD);
        let reading = tokio::task::spawn_blocking(move || send_pieces(encoding, &pieces, &sender));
        let stream = futures::stream::unfold(receiver, |mut parts| async {
            let part = parts.recv().await?;
            Some((part, parts))
        });
        let answer = self.agents().put_payload(self.ask(org, stream)).await;
        reading.await.map_err(|error| Error::new(Code::InvalidArgument, format!("{asked}: {error}")))??;
        let answer = answer.map_err(|status| error_of_status(asked, &status))?.into_inner();
        let hash: [u8; 32] = answer.hash[..].try_into().map_err(|_| {
            Error::new(Code::StorageUnavailable, format!("{asked}: the server answered without a hash; ask again"))
        })?;
        Ok(Body::Stored { hash: ContentHash(hash), size: answer.size })
    }
}

/// Sends the parts of a payload. Stops without an error if the call has ended: its answer says why.
fn send_pieces(encoding: Encoding, pieces: &Pieces, to: &mpsc::Sender<v2::PayloadPart>) -> Result<()> {
    let source = match pieces {
        Pieces::Memory(bytes) => {
            for part in parts(encoding, bytes.clone()) {
                if to.blocking_send(part).is_err() {
                    break;
                }
            }
            return Ok(());
        }
        Pieces::Source(source) => source,
    };
    let mut hasher = blake3::Hasher::new();
    crate::payload::for_each_chunk(&**source, |chunk| {
        hasher.update(chunk);
        Ok(())
    })?;
    let header = v2::PayloadHeader {
        encoding: v2::Encoding::from(encoding).into(),
        size: source.size(),
        hash: Bytes::copy_from_slice(hasher.finalize().as_bytes()),
    };
    let send = |part| to.blocking_send(v2::PayloadPart { part: Some(part) }).is_ok();
    if !send(payload_part::Part::Header(header)) {
        return Ok(());
    }
    crate::payload::for_each_chunk(&**source, |piece| {
        for chunk in piece.chunks(crate::wire::CHUNK) {
            send(payload_part::Part::Chunk(Bytes::copy_from_slice(chunk)));
        }
        Ok(())
    })
}

const READ: &str = "read a payload";

async fn next(stream: &mut Streaming<v2::PayloadPart>) -> Result<Option<payload_part::Part>> {
    let part = stream.next().await.transpose().map_err(|status| error_of_status(READ, &status))?;
    Ok(part.and_then(|part| part.part))
}

async fn chunk(stream: &mut Streaming<v2::PayloadPart>) -> Result<Option<Bytes>> {
    match next(stream).await? {
        Some(payload_part::Part::Chunk(chunk)) => Ok(Some(chunk)),
        _ => Ok(None),
    }
}
