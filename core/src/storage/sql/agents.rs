//! The port [`AgentStorage`], written once for all SQL backends.

use super::backend::Backend;
use super::payloads::{fits, payloads_of};
use super::segment::{Loaded, load, prepare};
use super::{Entries, Events, Payloads, Runs, Tables, Tasks, budgets, executions, fork, stop};
use crate::error::Result;
use crate::id::{EntryId, ExecutionId, OpId, OrgId};
use crate::model::machine::check_named;
use crate::model::{
    AttemptResult, Cancellation, ClaimedTask, CommitAnswer, CommitRequest, Created, Divergence, Entry, Execution, Fact,
    ForkRequest, Lease, NewExecution, NewSignal, Purse, Resolution, ResumeRequest, Segment, SignalStored, Task,
};
use crate::payload::{Body, Payload, RowOf};
use crate::storage::stored::{check_part, part_of};
use crate::storage::{AgentStorage, ClaimRequest, Standing};
use async_trait::async_trait;
use bytes::Bytes;

/// Uploads the large values of a commit, so that its rows only name them. Results of tasks stay in memory beside that:
/// the answer hands them back to the session, which need not read them again.
async fn settle_batch<B: Backend>(store: &B, request: &mut CommitRequest) -> Result<()> {
    let org = request.org;
    for report in &mut request.batch.attempts {
        if let AttemptResult::Completed(output) = &mut report.result {
            store.settle_and_keep(org, output).await?;
        }
    }
    for payload in payloads_of(request) {
        if !matches!(payload.body, Body::Kept { .. }) {
            store.settle(org, payload).await?;
        }
    }
    Ok(())
}

#[async_trait]
impl<B: Backend> AgentStorage for B {
    async fn create_execution(&self, mut new: NewExecution) -> Result<Created> {
        new.check()?;
        check_named(&new.queue)?;
        self.settle(new.org, &mut new.input).await?;
        self.write_new("start a run", new.id, move |tx| executions::create(tx, &new)).await
    }

    async fn load_segment(&self, org: OrgId, execution: ExecutionId, lease: Lease) -> Result<Segment> {
        loop {
            let loaded = self.read("load a run's segment", org, move |tx| load(tx, org, execution, lease)).await?;
            match loaded {
                Loaded::Segment(segment) => return Ok(*segment),
                Loaded::NeedsWriting => {
                    self.write("settle a run before it is loaded", org, execution, move |tx| {
                        prepare(tx, org, execution, lease)
                    })
                    .await??;
                }
            }
        }
    }

    async fn facts_after(
        &self,
        org: OrgId,
        execution: ExecutionId,
        after: u64,
    ) -> Result<(Vec<Fact>, u64, Option<Purse>)> {
        self.read("read a run's facts", org, move |tx| {
            let run = tx.find_run(org, execution)?;
            let high = tx.high(&run)?;
            Ok((tx.facts(&run, after, high, Some(run.segment))?, high, budgets::shared(&run)))
        })
        .await
    }

    async fn standings(&self, org: OrgId, executions: &[ExecutionId]) -> Result<Vec<Standing>> {
        let ids = executions.to_vec();
        self.read("look how far runs have come", org, move |tx| tx.standings(org, &ids)).await
    }

    async fn commit(&self, mut request: CommitRequest) -> Result<CommitAnswer> {
        if !payloads_of(&mut request).all(|payload| fits(payload)) {
            // Boxed: large values are rare, and this future would make those of all commits as large as itself.
            Box::pin(settle_batch(self, &mut request)).await?;
        }
        self.commit_batch(request).await
    }

    fn brings_tasks(&self) -> bool {
        false
    }

    async fn commit_and_claim(
        &self,
        request: CommitRequest,
        _: &ClaimRequest,
    ) -> Result<(CommitAnswer, Vec<ClaimedTask>)> {
        Ok((self.commit(request).await?, Vec::new()))
    }

    async fn store_signal(&self, mut signal: NewSignal) -> Result<SignalStored> {
        signal.check()?;
        self.settle(signal.org, &mut signal.payload).await?;
        self.store(signal).await
    }

    async fn request_cancel(&self, org: OrgId, execution: ExecutionId, cancel: Cancellation) -> Result<Execution> {
        self.write_family("cancel a run", org, execution, move |tx| stop::request_cancel(tx, org, execution, cancel))
            .await
    }

    async fn remove_execution(&self, org: OrgId, execution: ExecutionId) -> Result<()> {
        self.write_alone("remove a run", move |tx| tx.remove_one(org, execution)).await
    }

    async fn resume(&self, org: OrgId, execution: ExecutionId, mut request: ResumeRequest) -> Result<Execution> {
        if let Some(message) = &mut request.message {
            self.settle(org, message).await?;
        }
        self.write("resume a run", org, execution, move |tx| executions::resume(tx, org, execution, &request)).await
    }

    async fn resolve_task(&self, org: OrgId, op: OpId, mut resolution: Resolution) -> Result<Task> {
        if let Resolution::Result(output) = &mut resolution {
            self.settle(org, output).await?;
        }
        self.write("resolve a task", org, op.execution, move |tx| executions::resolve_task(tx, org, &op, &resolution))
            .await
    }

    async fn resolve_divergence(&self, org: OrgId, execution: ExecutionId, decision: Divergence) -> Result<Execution> {
        let asked = "resolve a divergence";
        self.write(asked, org, execution, move |tx| executions::resolve_divergence(tx, org, execution, decision)).await
    }

    async fn fork(&self, mut request: ForkRequest) -> Result<Execution> {
        request.check()?;
        let org = request.org;
        let digest = request.input.as_ref().map(Payload::digest).transpose()?;
        for payload in request.state.iter_mut().chain(request.input.iter_mut()) {
            self.settle(org, payload).await?;
        }
        self.write("fork a run", org, request.execution, move |tx| fork::fork(tx, &request, digest)).await
    }

    fn max_payload(&self) -> u64 {
        Backend::max_payload(self)
    }

    async fn store_payload(&self, org: OrgId, mut payload: Payload) -> Result<Payload> {
        self.settle(org, &mut payload).await?;
        Ok(payload)
    }

    async fn read_rows(&self, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>> {
        let of = of.to_vec();
        self.read("read results of a run", org, move |tx| tx.outputs(org, &of)).await
    }

    async fn read_payload(&self, org: OrgId, payload: &Payload) -> Result<Bytes> {
        match &payload.body {
            Body::Inline(bytes) => Ok(bytes.clone()),
            Body::Stored { hash, size } => {
                let (hash, size) = (*hash, *size);
                self.read("read a payload", org, move |tx| tx.payload(org, &hash, size)).await
            }
            Body::Kept { content, .. } => content.piece(0, usize::try_from(content.size()).unwrap_or(usize::MAX)),
            Body::Row { of, .. } => self.read_rows(org, &[*of]).await?.pop().ok_or_else(|| of.missing()),
            Body::Source(_) => payload.bytes().cloned(),
        }
    }

    async fn read_payload_part(&self, org: OrgId, payload: &Payload, offset: u64, length: usize) -> Result<Bytes> {
        let Some((hash, size)) = payload.stored() else { return part_of(payload.bytes()?, offset, length) };
        check_part(size, offset, length)?;
        self.read("read a part of a payload", org, move |tx| tx.payload_part(org, &hash, offset, length)).await
    }

    async fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Result<Vec<Entry>> {
        self.read("read a branch", org, move |tx| tx.branch(org, leaf, after)).await
    }
}
