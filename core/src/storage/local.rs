//! A store elsewhere, and beside it a file of this machine for the values of the runs that were started with persistence
//! "local": their entries, checkpoints and results of steps. The store gets [references](Reference) instead, and the
//! machine's workers the values.
//!
//! A commit writes the values first, so whatever the store refers to is there. All else is the store's: leases, signals, the
//! order of things, what the run has used, its output. So there is nothing that the two would have to agree about later.

use super::guarded::{Call, Gate, Guarded};
use super::local_reference::Reference;
use super::sqlite::{SqliteOptions, SqliteStorage};
use super::{AgentStorage, ClaimRequest, Storage};
use crate::error::{Code, Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, TaskId};
use crate::model::{
    AttemptResult, Batch, BatchEnd, Claim, ClaimedTask, CommitAnswer, CommitRequest, Committed, Entry, Fact, FactKind,
    Failure, Lease, LocalRun, OpBody, Persistence, Purse, RecordedBody, Segment, TaskReport,
};
use crate::payload::{Body, Content, ContentHash, Payload, RowOf};
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Values of a load that are put into memory at once; the others are read when they are needed.
const AT_ONCE: u64 = 1 << 20;

/// Gives a store a file for the values of local runs, which is opened for the first of them.
pub(crate) fn with_file(store: Arc<dyn Storage>, path: Option<PathBuf>) -> Arc<dyn Storage> {
    let values = LocalValues { path, file: OnceCell::new(), tasks: Mutex::default() };
    Arc::new(Guarded::over(store, values))
}

/// The file for values, and what its workers hold.
struct LocalValues {
    /// None where the process has no home.
    path: Option<PathBuf>,
    file: OnceCell<SqliteStorage>,
    /// The tasks of local runs that were claimed from a queue and have not ended.
    tasks: Mutex<HashMap<TaskId, ExecutionId>>,
}

/// Splits the values of a batch into those that stay here and those that others read.
fn split<'b>(run: &LocalRun, batch: &'b mut Batch) -> (Vec<&'b mut Payload>, Vec<&'b mut Payload>) {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for op in &mut batch.ops {
        match &mut op.body {
            OpBody::Entry(entry) => if run.entries { &mut own } else { &mut others }.push(&mut entry.content),
            OpBody::Task(task) => {
                let is_done_here = *task.queue == *run.queue;
                if is_done_here { &mut own } else { &mut others }.push(&mut task.input);
            }
            OpBody::Read { answer: value, .. } | OpBody::Once { value, .. } => own.push(value),
            OpBody::Child(child) => others.push(&mut child.input),
            OpBody::Send(message) => others.extend(message.body.payload_mut()),
            _ => {}
        }
    }
    own.extend(batch.attempts.iter_mut().filter_map(|report| output_of(&mut report.result)));
    match &mut batch.end {
        BatchEnd::Checkpoint(new) => own.push(&mut new.state),
        BatchEnd::Complete(output) | BatchEnd::Cancelled(Some(output)) => others.push(output),
        _ => {}
    }
    (own, others)
}

fn output_of(result: &mut AttemptResult) -> Option<&mut Payload> {
    match result {
        AttemptResult::Completed(output) => Some(output),
        _ => None,
    }
}

fn values_of(facts: &mut [Fact]) -> impl Iterator<Item = &mut Payload> {
    facts.iter_mut().filter_map(|fact| match &mut fact.kind {
        FactKind::Task { result: Ok(output), .. } => Some(output),
        _ => None,
    })
}

impl LocalValues {
    async fn file(&self) -> Result<&SqliteStorage> {
        let open = async || {
            let path = self.path.clone().ok_or_else(|| {
                let message =
                    "the values of a local run need a file, and neither FLOVYN_HOME nor HOME says where; set one";
                Error::new(Code::InvalidArgument, message)
            })?;
            let open = move || {
                make(&path).map_err(|error| {
                    let message = format!("the file {} for the values of local runs: {error}", path.display());
                    Error::new(Code::InvalidArgument, message).caused_by(error)
                })?;
                SqliteStorage::open(path, SqliteOptions::default())
            };
            tokio::task::spawn_blocking(open)
                .await
                .unwrap_or_else(|error| Err(Error::new(Code::StorageUnavailable, error.to_string())))
        };
        self.file.get_or_try_init(open).await
    }

    /// Keeps values of a run, and leaves references in their place. Returns the values by their hash.
    async fn keep(
        &self,
        org: OrgId,
        run: ExecutionId,
        own: Vec<&mut Payload>,
    ) -> Result<HashMap<ContentHash, Payload>> {
        let mut kept = Vec::with_capacity(own.len());
        for value in own {
            let hash = match value.stored() {
                // The store has given it by reference, and has it.
                Some((hash, _)) if self.file().await?.kept_values(org, vec![hash]).await?.is_empty() => continue,
                Some((hash, _)) => hash,
                None => hash_of(value).await?,
            };
            kept.push((hash, std::mem::replace(value, Reference::to(value, hash))));
        }
        if !kept.is_empty() {
            self.file().await?.keep_values(org, run, &mut kept).await?;
        }
        Ok(kept.into_iter().collect())
    }

    /// Puts the values into the place of references to them. Values in `known` need not be read.
    async fn resolve(
        &self,
        org: OrgId,
        values: Vec<&mut Payload>,
        known: &HashMap<ContentHash, Payload>,
    ) -> Result<HashMap<ContentHash, Payload>> {
        let mut named: Vec<_> =
            values.into_iter().filter_map(|value| Reference::hash_in(value).map(|hash| (hash, value))).collect();
        let unknown: Vec<_> = named.iter().map(|(hash, _)| *hash).filter(|hash| !known.contains_key(hash)).collect();
        let found = match unknown.is_empty() {
            true => HashMap::new(),
            false => self.file().await?.kept_values(org, unknown).await?,
        };
        let mut room = AT_ONCE;
        for (hash, value) in &mut named {
            let read = found.get(hash);
            let there = known.get(hash).or(read).ok_or_else(|| self.lost_value(*hash))?;
            let (size, hash) = (there.size(), *hash);
            **value = match &there.body {
                Body::Inline(_) if read.is_some() && size > room => {
                    Payload { encoding: there.encoding, body: Body::Stored { hash, size } }
                }
                _ => there.clone(),
            };
            room = room.saturating_sub(size);
        }
        Ok(found)
    }

    /// A value of this file, by its hash. None if the store has it.
    async fn value(&self, org: OrgId, hash: ContentHash) -> Result<Option<Payload>> {
        match self.file.get() {
            Some(file) => Ok(file.kept_values(org, vec![hash]).await?.remove(&hash)),
            None => Ok(None),
        }
    }

    /// The bytes of a reference, or these bytes themselves.
    async fn resolve_bytes(&self, org: OrgId, bytes: Bytes) -> Result<Bytes> {
        let Some(hash) = Reference::hash_of(&bytes) else { return Ok(bytes) };
        let file = self.file().await?;
        let value = file.kept_values(org, vec![hash]).await?.remove(&hash).ok_or_else(|| self.lost_value(hash))?;
        file.read_payload(org, &value).await
    }

    /// Brings values to the store that only this file has.
    async fn bring(&self, org: OrgId, others: Vec<&mut Payload>) -> Result<()> {
        for value in others {
            let Some((hash, _)) = value.stored() else { continue };
            if let Some(there) = self.value(org, hash).await? {
                value.body = Body::Inline(self.file().await?.read_payload(org, &there).await?);
            }
        }
        Ok(())
    }

    fn lost_value(&self, hash: ContentHash) -> Error {
        self.lost(&format!("no value {hash:?} of a run"))
    }

    /// The error for a file that has not what it should.
    fn lost(&self, what: &str) -> Error {
        let file = self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let message = format!(
            "the file {file} has {what}, which was started with persistence \"local\"; such a run goes on only with the file of the machine that began \
             it: put that file back, or start the work anew"
        );
        Error::new(Code::NotPersisted, message)
    }
}

/// Makes the file, for its user alone, unless it is there. SQLite gives the files beside it the same rights.
fn make(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// The hash of a value's bytes. A streamed one is read for it.
async fn hash_of(value: &Payload) -> Result<ContentHash> {
    let content = match &value.body {
        Body::Source(source) => Content::Source(source.clone()),
        _ => Content::Memory(value.bytes()?.clone()),
    };
    match content {
        Content::Memory(_) => content.hash(),
        Content::Source(_) => tokio::task::spawn_blocking(move || content.hash())
            .await
            .unwrap_or_else(|error| Err(Error::new(Code::StorageUnavailable, error.to_string()))),
    }
}

impl Gate for LocalValues {
    async fn pass<T: Send>(&self, _: Call, body: impl Future<Output = Result<T>> + Send) -> Result<T> {
        body.await
    }

    async fn claim(&self, inner: &dyn Storage, claim: ClaimRequest) -> Result<Vec<Claim>> {
        let org = claim.org;
        let mut claims = inner.claim_agents(claim).await?;
        for claim in &mut claims {
            if let Some(news) = &mut claim.news
                && let Err(error) = self.resolve(org, values_of(news).collect(), &HashMap::new()).await
            {
                // The holder asks for the facts itself, and is told why there are none.
                tracing::debug!(%error, run = %claim.execution.new.id, "the news of a local run could not be read");
                claim.news = None;
            }
        }
        Ok(claims)
    }

    async fn load(&self, inner: &dyn Storage, org: OrgId, run: ExecutionId, lease: Lease) -> Result<Segment> {
        let mut segment = inner.load_segment(org, run, lease).await?;
        if segment.execution.new.persistence != Persistence::Local {
            return Ok(segment);
        }
        let mut values: Vec<_> = values_of(&mut segment.facts).collect();
        values.extend(segment.checkpoint.as_mut().map(|checkpoint| &mut checkpoint.saved.state));
        values.extend(segment.once.iter_mut().map(|once| &mut once.value));
        values.extend(segment.tail.iter_mut().filter_map(|op| match &mut op.body {
            RecordedBody::Read { answer: value, .. } | RecordedBody::Once { value } => Some(value),
            _ => None,
        }));
        let found = self.resolve(org, values, &HashMap::new()).await?;
        let (file, execution) = (self.file().await?, &segment.execution);
        if execution.base == 0 || execution.forked_from.is_some() {
            // It begins here. The values of a fork stay as long as it does, and not as long as the run that it was forked from.
            file.keep_values(org, run, &mut found.into_iter().collect::<Vec<_>>()).await?;
        } else if !file.knows(org, run).await? {
            return Err(self.lost(&format!("nothing of the run {run}")));
        }
        Ok(segment)
    }

    async fn facts(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        run: ExecutionId,
        after: u64,
    ) -> Result<(Vec<Fact>, u64, Option<Purse>)> {
        let (mut facts, high, purse) = inner.facts_after(org, run, after).await?;
        self.resolve(org, values_of(&mut facts).collect(), &HashMap::new()).await?;
        Ok((facts, high, purse))
    }

    async fn commit(&self, inner: &dyn Storage, mut request: CommitRequest) -> Result<CommitAnswer> {
        let (org, run) = (request.org, request.execution);
        let Some(local) = request.local.take() else {
            let mut answer = inner.commit(request).await?;
            self.resolve(org, values_of(&mut answer.facts).collect(), &HashMap::new()).await?;
            return Ok(answer);
        };
        let (own, others) = split(&local, &mut request.batch);
        self.bring(org, others).await?;
        let kept = self.keep(org, run, own).await?;
        let mut answer = inner.commit(request).await?;
        self.resolve(org, values_of(&mut answer.facts).collect(), &kept).await?;
        if matches!(answer.committed, Committed::Finished(status) if status.is_terminal()) {
            self.file().await?.end_values(org, run).await?;
        }
        Ok(answer)
    }

    async fn claim_tasks(&self, inner: &dyn Storage, claim: ClaimRequest) -> Result<Vec<ClaimedTask>> {
        let (org, worker) = (claim.org, claim.worker);
        let mut claims = Vec::new();
        for mut claimed in inner.claim_tasks(claim).await? {
            let task = &mut claimed.task;
            if Reference::hash_in(&task.new.input).is_some() {
                let (id, attempt) = (task.new.id, task.attempt);
                match self.resolve(org, vec![&mut task.new.input], &HashMap::new()).await {
                    Ok(_) => drop(self.tasks.lock().insert(id, task.execution)),
                    // Its run cannot go on either. It is told so when it is taken up, which this makes it be.
                    Err(error) if error.code() == Code::NotPersisted => {
                        let failure = Failure::new(error.code(), "WorkerLost", error.message());
                        let result = AttemptResult::Failed { failure, retryable: false, pause: None };
                        inner.report_task(TaskReport { org, task: id, attempt, worker, result }).await?;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            claims.push(claimed);
        }
        Ok(claims)
    }

    async fn report(&self, inner: &dyn Storage, mut report: TaskReport) -> Result<()> {
        let run = self.tasks.lock().get(&report.task).copied();
        if let (Some(run), Some(output)) = (run, output_of(&mut report.result)) {
            self.keep(report.org, run, vec![output]).await?;
        }
        let (task, reported) = (report.task, inner.report_task(report).await);
        if reported.as_ref().err().is_none_or(|error| error.code() == Code::LeaseLost) {
            self.tasks.lock().remove(&task);
        }
        reported
    }

    async fn results(&self, inner: &dyn Storage, org: OrgId, of: &[RowOf]) -> Result<Vec<Bytes>> {
        let mut rows = inner.read_rows(org, of).await?;
        for bytes in &mut rows {
            *bytes = self.resolve_bytes(org, std::mem::take(bytes)).await?;
        }
        Ok(rows)
    }

    async fn read(&self, inner: &dyn Storage, org: OrgId, payload: &Payload) -> Result<Bytes> {
        if let Some((hash, _)) = payload.stored()
            && let Some(value) = self.value(org, hash).await?
        {
            return self.file().await?.read_payload(org, &value).await;
        }
        self.resolve_bytes(org, inner.read_payload(org, payload).await?).await
    }

    async fn read_part(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        payload: &Payload,
        offset: u64,
        length: usize,
    ) -> Result<Bytes> {
        if let Some((hash, _)) = payload.stored()
            && let Some(value) = self.value(org, hash).await?
        {
            return self.file().await?.read_payload_part(org, &value, offset, length).await;
        }
        inner.read_payload_part(org, payload, offset, length).await
    }

    async fn branch(
        &self,
        inner: &dyn Storage,
        org: OrgId,
        leaf: EntryId,
        after: Option<EntryId>,
    ) -> Result<Vec<Entry>> {
        let mut entries = inner.branch(org, leaf, after).await?;
        let contents = entries.iter_mut().map(|entry| &mut entry.new.content).collect();
        self.resolve(org, contents, &HashMap::new()).await?;
        Ok(entries)
    }

    fn close(&self, inner: &dyn Storage) {
        if let Some(file) = self.file.get() {
            file.close();
        }
        inner.close();
    }
}
