//! Previews for readers in other processes: who reads, what was made, and when both go.

use super::commit::commit;
use super::values::row;
use super::{Backend, Statements, Tables};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{CommitAnswer, CommitRequest};
use crate::storage::previews::{Previews, Reader};
use crate::streaming::{Chunks, OpKey, PreviewRow, ProgressBySource, RunKey, Source, Superseded, WATCH_TTL};
use async_trait::async_trait;
use uuid::Uuid;

const WATCH: &str = "INSERT INTO watch (org_id, execution, reader, served, expires_at) \
     VALUES ($1, $2, $3, FALSE, $4) ON CONFLICT (org_id, execution, reader) \
     DO UPDATE SET expires_at = excluded.expires_at, served = watch.served AND NOT $5";

const READERS: &str = "SELECT w.org_id, w.execution, w.reader, \
     CAST(CASE WHEN w.served THEN 1 ELSE 0 END AS BIGINT), x.worker FROM watch w \
     JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution WHERE w.expires_at > $1 AND w.reader <> $2";

const UNREAD: &str = "DELETE FROM preview AS p WHERE NOT EXISTS \
     (SELECT 1 FROM watch w WHERE w.org_id = p.org_id AND w.execution = p.execution)";

/// The rows of previews.
pub(in crate::storage) trait PreviewRows: Tables {
    /// Adds a row, unless it is there.
    fn add_previews(&self, run: RunKey, row: &PreviewRow) -> Result<(), Self::Fault>;
    /// Removes the rows of one source of a run.
    fn remove_previews(&self, run: RunKey, source: Source) -> Result<(), Self::Fault>;
    /// Removes all rows of a run.
    fn remove_all_previews(&self, run: RunKey) -> Result<(), Self::Fault>;
    /// A reader has got what there was when it came.
    fn mark_served(&self, run: RunKey, reader: Uuid) -> Result<(), Self::Fault>;
    /// The rows of a run with previews that are not known, and whether the reader need not wait for more.
    fn previews_beyond(
        &self,
        run: RunKey,
        reader: Uuid,
        known: &ProgressBySource,
    ) -> Result<(Vec<PreviewRow>, bool), Self::Fault>;
    /// The tasks of a run that its queues have handed to workers, with these.
    fn handed_out(&self, run: RunKey) -> Result<Vec<(OpKey, WorkerId)>, Self::Fault>;
}

#[async_trait]
impl<B: Backend> Previews for B {
    async fn watch(&self, org: OrgId, execution: ExecutionId, process: Uuid, anew: bool) -> Result<()> {
        let expires_at = self.now().after(WATCH_TTL).0;
        self.write_alone("say that a run is read here", move |tx| {
            tx.apply(WATCH, row![org.0, execution.0, process, expires_at, anew])
        })
        .await
    }

    async fn readers(&self, but: Uuid) -> Result<Vec<Reader>> {
        let now = self.now();
        self.read_all("look who reads", move |tx| {
            tx.query(READERS, row![now.0, but], |row| {
                Ok(Reader {
                    org: OrgId(row.id(0)?),
                    execution: ExecutionId(row.id(1)?),
                    process: row.id(2)?,
                    served: row.int(3)? == Some(1),
                    holder: row.id_opt(4)?.map(WorkerId),
                })
            })
        })
        .await
    }

    async fn write_previews(&self, org: OrgId, execution: ExecutionId, served: Vec<Uuid>) -> Result<()> {
        let (chunks, mut rows, run) = (self.chunks().clone(), None, (org, execution));
        let written = self.write_later("write previews", execution, move |tx| {
            add(tx, run, rows.get_or_insert_with(|| chunks.take_rows(run)))?;
            served.iter().try_for_each(|reader| tx.mark_served(run, *reader))
        });
        written.await.inspect_err(|_| self.chunks().write_again(run))
    }

    async fn read_previews(
        &self,
        org: OrgId,
        execution: ExecutionId,
        process: Uuid,
        known: &ProgressBySource,
    ) -> Result<(Vec<PreviewRow>, bool)> {
        let known = known.clone();
        self.read("read previews", org, move |tx| tx.previews_beyond((org, execution), process, &known)).await
    }

    async fn handed_out(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<(OpKey, WorkerId)>> {
        self.read("look who has tasks of a run", org, move |tx| tx.handed_out((org, execution))).await
    }
}

/// What a commit of a run that is read elsewhere does beside its batch.
pub(in crate::storage) struct Beside {
    chunks: Chunks,
    run: RunKey,
    /// Taken once, also where the transaction is done again.
    rows: Option<Vec<PreviewRow>>,
    superseded: Superseded,
}

impl Beside {
    /// Of a commit, where its run is read elsewhere.
    pub(crate) fn of(chunks: &Chunks, request: &CommitRequest) -> Option<Self> {
        let run = (request.org, request.execution);
        let beside = || Self { chunks: chunks.clone(), run, rows: None, superseded: Superseded::by(&request.batch) };
        chunks.is_read_elsewhere(run).then(beside)
    }

    fn write<T: PreviewRows>(&mut self, tx: &T) -> Result<(), T::Fault> {
        let Self { chunks, run, rows, superseded } = self;
        add(tx, *run, rows.get_or_insert_with(|| chunks.take_rows(*run)))?;
        match superseded {
            Superseded::All => tx.remove_all_previews(*run),
            Superseded::Of(sources) => sources.iter().try_for_each(|source| tx.remove_previews(*run, *source)),
        }
    }
}

/// Makes a batch durable; where the run is read elsewhere, with the previews that were made before it and without those that
/// it supersedes.
pub(in crate::storage) fn commit_beside<T: Statements + PreviewRows>(
    tx: &T,
    request: &CommitRequest,
    beside: Option<&mut Beside>,
) -> Result<CommitAnswer, T::Fault> {
    let answer = commit(tx, request)?;
    if let Some(beside) = beside {
        beside.write(tx)?;
    }
    Ok(answer)
}

/// An attempt of a queue's task is over: what it streamed for readers elsewhere goes.
pub(in crate::storage) fn end_attempt<T: PreviewRows>(
    tx: &T,
    chunks: &Chunks,
    run: RunKey,
    op: OpKey,
) -> Result<(), T::Fault> {
    match chunks.is_read_elsewhere(run) {
        true => tx.remove_previews(run, Source::Task(op)),
        false => Ok(()),
    }
}

fn add<T: PreviewRows>(tx: &T, run: RunKey, rows: &[PreviewRow]) -> Result<(), T::Fault> {
    rows.iter().try_for_each(|row| tx.add_previews(run, row))
}

/// Whether readers have gone without a word.
pub(in crate::storage) fn lapsed<T: Tables>(tx: &T, now: Timestamp) -> Result<bool, T::Fault> {
    let lapsed = "SELECT 1 FROM watch WHERE expires_at <= $1 LIMIT 1";
    Ok(tx.one(lapsed, row![now.0], |_| Ok(()))?.is_some())
}

/// Takes away readers that have gone, and what nobody reads.
pub(in crate::storage) fn tidy<T: Tables>(tx: &T, now: Timestamp) -> Result<(), T::Fault> {
    tx.apply("DELETE FROM watch WHERE expires_at <= $1", row![now.0])?;
    tx.apply(UNREAD, row![])
}
