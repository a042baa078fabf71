//! Previews for readers in other processes: who reads, what was made, and when both go.

use super::SqliteStorage;
use super::claims;
use super::fault::Done;
use super::tx::Tx;
use super::values::blob;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{CommitAnswer, CommitRequest, EventId, TaskReport};
use crate::storage::previews::{Previews, Reader};
use crate::storage::sql::Backend;
use crate::storage::sql::commit::commit;
use crate::streaming::{Chunks, FreeRow, OpKey, PreviewRow, Reach, Rows, RunKey, Superseded, Told, WATCH_TTL};
use async_trait::async_trait;
use rusqlite::params;
use uuid::Uuid;

const READ_FREE: &str = "SELECT p.segment, p.sequence, p.attempt, p.seq, p.data FROM task_preview p \
     LEFT JOIN json_each(?3) k ON k.value ->> 0 = p.segment AND k.value ->> 1 = p.sequence \
     WHERE p.org_id = ?1 AND p.execution = ?2 AND (k.value IS NULL OR (p.attempt, p.seq) > (k.value ->> 2, k.value ->> 3)) \
     ORDER BY 1, 2, 3, 4";

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
        let written =
            written.await.unwrap_or_else(|_| Err(crate::storage::sql::database_error::closed("write previews")));
        written.inspect_err(|_| self.0.chunks.rewind(run))
    }

    async fn read_previews(
        &self,
        org: OrgId,
        execution: ExecutionId,
        process: Uuid,
        after: &Reach,
    ) -> Result<(Rows, bool)> {
        let known = |(op, told): (&OpKey, &Told)| (op.0, op.1, told.0, told.1);
        let known: Vec<_> = after.tasks.iter().map(known).collect();
        let (known, after) = (serde_json::to_string(&known).unwrap_or_else(|_| "[]".into()), after.id);
        self.read_all("read previews", move |tx| {
            let served = tx.first(
                "SELECT w.served OR x.worker IS NULL FROM watch w \
                 JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution \
                 WHERE w.org_id = ?1 AND w.execution = ?2 AND w.reader = ?3",
                [blob(&org.0), blob(&execution.0), blob(&process)],
                |row| row.get(0),
            )?;
            let placed = tx.all(
                "SELECT number, chunk, segment, sequence, data FROM preview WHERE org_id = ?1 AND execution = ?2 \
                 AND (number, chunk) > (?3, ?4) ORDER BY number, chunk",
                params![blob(&org.0), blob(&execution.0), after.number, after.chunk],
                |row| {
                    Ok(PreviewRow {
                        last: EventId { number: row.get(0)?, chunk: row.get(1)? },
                        segment: row.get(2)?,
                        sequence: row.get(3)?,
                        data: row.get(4)?,
                    })
                },
            )?;
            let free = tx.all(READ_FREE, params![blob(&org.0), blob(&execution.0), known], |row| {
                let (op, told) = ((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?));
                Ok(FreeRow { op, told, data: row.get(4)? })
            })?;
            Ok((Rows { placed, free }, served.unwrap_or(false)))
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
    rows: Option<Rows>,
    superseded: Superseded,
}

impl Beside {
    /// Of a commit, where its run is read elsewhere.
    pub(super) fn of(chunks: &Chunks, request: &CommitRequest) -> Option<Self> {
        let run = (request.org, request.execution);
        let beside = || Self { chunks: chunks.clone(), run, rows: None, superseded: Superseded::by(&request.batch) };
        chunks.is_read(run).then(beside)
    }
}

/// Makes a batch durable, with the previews that were made before it and without those that it supersedes.
pub(super) fn commit_beside(tx: &Tx, request: &CommitRequest, beside: Option<&mut Beside>) -> Done<CommitAnswer> {
    let answer = commit(tx, request)?;
    let Some(Beside { chunks, run, rows, superseded }) = beside else { return Ok(answer) };
    insert(tx, *run, rows.get_or_insert_with(|| chunks.take_rows(*run)))?;
    let (org, execution) = (blob(&run.0.0), blob(&run.1.0));
    match superseded {
        Superseded::All => {
            tx.execute("DELETE FROM preview WHERE org_id = ?1 AND execution = ?2", [org, execution])?;
            tx.execute("DELETE FROM task_preview WHERE org_id = ?1 AND execution = ?2", [org, execution])?;
        }
        Superseded::Ops(ops) => {
            for &mut (segment, sequence) in ops {
                tx.execute(
                    "DELETE FROM preview WHERE org_id = ?1 AND execution = ?2 AND segment = ?3 AND sequence = ?4",
                    params![org, execution, segment, sequence],
                )?;
            }
        }
    }
    Ok(answer)
}

/// Records the end of an attempt of a queue's task; what it streamed for readers elsewhere goes.
pub(super) fn end_attempt(tx: &Tx, report: &TaskReport, chunks: &Chunks) -> Done<()> {
    let (execution, (segment, sequence)) = claims::report_task(tx, report)?;
    if chunks.is_read((report.org, execution)) {
        tx.execute(
            "DELETE FROM task_preview WHERE org_id = ?1 AND execution = ?2 AND segment = ?3 AND sequence = ?4",
            params![blob(&report.org.0), blob(&execution.0), segment, sequence],
        )?;
    }
    Ok(())
}

fn insert(tx: &Tx, run: RunKey, rows: &Rows) -> Done<()> {
    for FreeRow { op, told, data } in &rows.free {
        tx.execute(
            "INSERT OR IGNORE INTO task_preview (org_id, execution, segment, sequence, attempt, seq, data) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![blob(&run.0.0), blob(&run.1.0), op.0, op.1, told.0, told.1, data],
        )?;
    }
    for row in &rows.placed {
        tx.execute(
            "INSERT OR IGNORE INTO preview (org_id, execution, number, chunk, segment, sequence, data) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                blob(&run.0.0),
                blob(&run.1.0),
                row.last.number,
                row.last.chunk,
                row.segment,
                row.sequence,
                row.data
            ],
        )?;
    }
    Ok(())
}

/// Whether readers have gone without a word.
pub(super) fn lapsed(tx: &Tx, now: i64) -> Done<bool> {
    Ok(tx.first("SELECT 1 FROM watch WHERE expires_at <= ?1 LIMIT 1", [now], |_| Ok(()))?.is_some())
}

/// Takes away readers that have gone, and what nobody reads.
pub(super) fn tidy(tx: &Tx) -> Done<()> {
    tx.execute("DELETE FROM watch WHERE expires_at <= ?1", [tx.now.0])?;
    for table in ["preview", "task_preview"] {
        let unread = "NOT EXISTS (SELECT 1 FROM watch w WHERE w.org_id = p.org_id AND w.execution = p.execution)";
        tx.execute(&format!("DELETE FROM {table} AS p WHERE {unread}"), [])?;
    }
    Ok(())
}
