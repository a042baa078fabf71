//! Previews for readers in other processes: who reads, what was made, and when both go.

use super::SqliteStorage;
use super::claims;
use super::fault::Done;
use super::tx::Tx;
use super::values::blob;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{CommitAnswer, CommitRequest, TaskReport};
use crate::storage::previews::{Previews, Reader};
use crate::storage::sql::Backend;
use crate::storage::sql::commit::commit;
use crate::streaming::{Chunks, OpKey, PreviewRow, Progress, ProgressBySource, RunKey, Source, Superseded, WATCH_TTL};
use async_trait::async_trait;
use rusqlite::params;
use uuid::Uuid;

const READ: &str = "SELECT p.segment, p.sequence, p.epoch, p.attempt, p.seq, p.data FROM preview p \
     LEFT JOIN json_each(?3) k ON k.value ->> 0 = p.segment AND k.value ->> 1 = p.sequence \
     WHERE p.org_id = ?1 AND p.execution = ?2 AND (k.value IS NULL \
     OR (p.epoch, p.attempt, p.seq) > (k.value ->> 2, k.value ->> 3, k.value ->> 4)) ORDER BY 1, 2, 3, 4, 5";

const HANDED_OUT: &str = "SELECT t.segment, t.sequence, t.worker FROM agent_execution x JOIN task_execution t \
     ON t.place BETWEEN x.run << 31 AND x.run << 31 | 2147483647 WHERE x.org_id = ?1 AND x.id = ?2 \
     AND t.ended_at IS NULL AND t.lease_expires IS NOT NULL AND t.worker IS NOT NULL";

#[async_trait]
impl Previews for SqliteStorage {
    async fn watch(&self, org: OrgId, execution: ExecutionId, process: Uuid, anew: bool) -> Result<()> {
        self.write_alone("say that a run is read here", move |tx| {
            tx.execute(
                "INSERT INTO watch (org_id, execution, reader, served, expires_at) VALUES (?1, ?2, ?3, 0, ?4) \
                 ON CONFLICT (org_id, execution, reader) DO UPDATE SET expires_at = excluded.expires_at, served = served AND NOT ?5",
                params![blob(&org.0), blob(&execution.0), blob(&process), tx.now.after(WATCH_TTL).0, anew],
            )?;
            Ok(())
        })
        .await
    }

    async fn readers(&self, but: Uuid) -> Result<Vec<Reader>> {
        let now = self.now();
        self.read_all("look who reads", move |tx| {
            tx.all(
                "SELECT w.org_id, w.execution, w.reader, w.served, x.worker FROM watch w \
                 JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution \
                 WHERE w.expires_at > ?1 AND w.reader <> ?2",
                params![now.0, blob(&but)],
                |row| {
                    Ok(Reader {
                        org: OrgId(super::values::id(row, 0)?),
                        execution: ExecutionId(super::values::id(row, 1)?),
                        process: super::values::id(row, 2)?,
                        served: row.get(3)?,
                        holder: super::values::id_opt(row, 4)?.map(WorkerId),
                    })
                },
            )
        })
        .await
    }

    async fn write_previews(&self, org: OrgId, execution: ExecutionId, served: Vec<Uuid>) -> Result<()> {
        let (chunks, mut rows) = (self.0.chunks.clone(), None);
        let run = (org, execution);
        // Losing the last of them costs nothing, so nobody waits for the disk.
        let written = self.0.writer.run_lazily("write previews", move |tx| {
            insert(tx, run, rows.get_or_insert_with(|| chunks.take_rows(run)))?;
            for reader in &served {
                tx.execute(
                    "UPDATE watch SET served = 1 WHERE org_id = ?1 AND execution = ?2 AND reader = ?3",
                    [blob(&org.0), blob(&execution.0), blob(reader)],
                )?;
            }
            Ok(())
        });
        let written = written.await.unwrap_or_else(|_| Err(crate::storage::sql::database_error::closed("write previews")));
        written.inspect_err(|_| self.0.chunks.write_again(run))
    }

    async fn read_previews(
        &self,
        org: OrgId,
        execution: ExecutionId,
        process: Uuid,
        known: &ProgressBySource,
    ) -> Result<(Vec<PreviewRow>, bool)> {
        let known = known.iter().map(|(source, last)| {
            let (segment, sequence) = source.columns();
            (segment, sequence, last.epoch, last.attempt, last.seq)
        });
        let known = serde_json::to_string(&known.collect::<Vec<_>>()).unwrap_or_else(|_| "[]".into());
        self.read_all("read previews", move |tx| {
            let served = tx.first(
                "SELECT w.served OR x.worker IS NULL FROM watch w \
                 JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution \
                 WHERE w.org_id = ?1 AND w.execution = ?2 AND w.reader = ?3",
                [blob(&org.0), blob(&execution.0), blob(&process)],
                |row| row.get(0),
            )?;
            let rows = tx.all(READ, params![blob(&org.0), blob(&execution.0), known], |row| {
                let last = Progress { epoch: row.get(2)?, attempt: row.get(3)?, seq: row.get(4)? };
                Ok(PreviewRow { source: Source::from_columns(row.get(0)?, row.get(1)?), last, data: row.get(5)? })
            })?;
            Ok((rows, served.unwrap_or(false)))
        })
        .await
    }

    async fn handed_out(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<(OpKey, WorkerId)>> {
        self.read_all("look who has tasks of a run", move |tx| {
            tx.all(HANDED_OUT, params![blob(&org.0), blob(&execution.0)], |row| {
                Ok(((row.get(0)?, row.get(1)?), WorkerId(super::values::id(row, 2)?)))
            })
        })
        .await
    }
}

/// What a commit of a run that is read elsewhere does beside its batch.
pub(super) struct Beside {
    chunks: Chunks,
    run: RunKey,
    rows: Option<Vec<PreviewRow>>,
    superseded: Superseded,
}

impl Beside {
    /// Of a commit, where its run is read elsewhere.
    pub(super) fn of(chunks: &Chunks, request: &CommitRequest) -> Option<Self> {
        let run = (request.org, request.execution);
        let beside = || Self { chunks: chunks.clone(), run, rows: None, superseded: Superseded::by(&request.batch) };
        chunks.is_read_elsewhere(run).then(beside)
    }
}

/// Makes a batch durable, with the previews that were made before it and without those that it supersedes.
pub(super) fn commit_beside(tx: &Tx, request: &CommitRequest, beside: Option<&mut Beside>) -> Done<CommitAnswer> {
    let answer = commit(tx, request)?;
    let Some(Beside { chunks, run, rows, superseded }) = beside else { return Ok(answer) };
    insert(tx, *run, rows.get_or_insert_with(|| chunks.take_rows(*run)))?;
    match superseded {
        Superseded::All => {
            tx.execute("DELETE FROM preview WHERE org_id = ?1 AND execution = ?2", [blob(&run.0.0), blob(&run.1.0)])?;
        }
        Superseded::Of(sources) => sources.iter().try_for_each(|source| remove(tx, *run, *source))?,
    }
    Ok(answer)
}

/// Records the end of an attempt of a queue's task; what it streamed for readers elsewhere goes.
pub(super) fn end_attempt(tx: &Tx, report: &TaskReport, chunks: &Chunks) -> Done<()> {
    let (execution, op) = claims::report_task(tx, report)?;
    let run = (report.org, execution);
    if chunks.is_read_elsewhere(run) {
        remove(tx, run, Source::Task(op))?;
    }
    Ok(())
}

fn insert(tx: &Tx, run: RunKey, rows: &[PreviewRow]) -> Done<()> {
    for PreviewRow { source, last, data } in rows {
        let (segment, sequence) = source.columns();
        let Progress { epoch, attempt, seq } = last;
        tx.execute(
            "INSERT OR IGNORE INTO preview (org_id, execution, segment, sequence, epoch, attempt, seq, data) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![blob(&run.0.0), blob(&run.1.0), segment, sequence, epoch, attempt, seq, data],
        )?;
    }
    Ok(())
}

fn remove(tx: &Tx, run: RunKey, source: Source) -> Done<()> {
    let (segment, sequence) = source.columns();
    tx.execute(
        "DELETE FROM preview WHERE org_id = ?1 AND execution = ?2 AND segment = ?3 AND sequence = ?4",
        params![blob(&run.0.0), blob(&run.1.0), segment, sequence],
    )?;
    Ok(())
}

/// Whether readers have gone without a word.
pub(super) fn lapsed(tx: &Tx, now: i64) -> Done<bool> {
    Ok(tx.first("SELECT 1 FROM watch WHERE expires_at <= ?1 LIMIT 1", [now], |_| Ok(()))?.is_some())
}

/// Takes away readers that have gone, and what nobody reads.
pub(super) fn tidy(tx: &Tx) -> Done<()> {
    tx.execute("DELETE FROM watch WHERE expires_at <= ?1", [tx.now.0])?;
    tx.execute(
        "DELETE FROM preview AS p \
         WHERE NOT EXISTS (SELECT 1 FROM watch w WHERE w.org_id = p.org_id AND w.execution = p.execution)",
        [],
    )?;
    Ok(())
}
