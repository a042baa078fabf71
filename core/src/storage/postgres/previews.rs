//! Previews for readers in other processes: who reads, what was made, and when both go.

use super::PostgresStorage;
use super::claims;
use super::committer::Before;
use super::fault::Done;
use super::sets::{Set, Value, row};
use super::tx::Tx;
use crate::error::Result;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{CommitAnswer, CommitRequest, TaskReport};
use crate::storage::previews::{Previews, Reader};
use crate::storage::sql::Backend;
use crate::storage::sql::commit::commit;
use crate::streaming::{Chunks, OpKey, PreviewRow, Progress, ProgressBySource, RunKey, Source, Superseded, WATCH_TTL};
use async_trait::async_trait;
use uuid::Uuid;

static ROW: Set = Set::add(
    "preview",
    "org_id uuid, execution uuid, segment int, sequence int, epoch bigint, attempt int, seq bigint, data text",
);
static OF_SOURCE: Set = Set::delete("preview", 4, "org_id uuid, execution uuid, segment int, sequence int");
static OF_RUN: Set = Set::delete("preview", 2, "org_id uuid, execution uuid");
static SERVED: Set = Set::update("watch", 3, "org_id uuid, execution uuid, reader uuid, served boolean");

pub(super) const WATCH: &str = "INSERT INTO watch (org_id, execution, reader, served, expires_at) \
     VALUES ($1, $2, $3, FALSE, $4) ON CONFLICT (org_id, execution, reader) \
     DO UPDATE SET expires_at = excluded.expires_at, served = watch.served AND NOT $5::boolean";

pub(super) const READERS: &str = "SELECT w.org_id, w.execution, w.reader, w.served, x.worker FROM watch w \
     JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution WHERE w.expires_at > $1 AND w.reader <> $2";

pub(super) const READ: &str = "SELECT p.segment, p.sequence, p.epoch, p.attempt, p.seq, p.data FROM preview p \
     LEFT JOIN UNNEST($3::int[], $4::int[], $5::bigint[], $6::int[], $7::bigint[]) \
     AS k(segment, sequence, epoch, attempt, seq) ON k.segment = p.segment AND k.sequence = p.sequence \
     WHERE p.org_id = $1 AND p.execution = $2 AND (k.seq IS NULL \
     OR (p.epoch, p.attempt, p.seq) > (k.epoch, k.attempt, k.seq)) ORDER BY 1, 2, 3, 4, 5";

pub(super) const HANDED_OUT: &str = "SELECT t.segment, t.sequence, t.worker FROM task_execution t \
     JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run WHERE x.org_id = $1 AND x.id = $2 \
     AND t.ended_at IS NULL AND t.lease_expires IS NOT NULL AND t.worker IS NOT NULL";

const IS_SERVED: &str = "SELECT w.served OR x.worker IS NULL FROM watch w \
     JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution \
     WHERE w.org_id = $1 AND w.execution = $2 AND w.reader = $3";

#[async_trait]
impl Previews for PostgresStorage {
    async fn watch(&self, org: OrgId, execution: ExecutionId, process: Uuid, anew: bool) -> Result<()> {
        self.write_alone("say that a run is read here", move |tx| {
            tx.execute(WATCH, row![org.0, execution.0, process, tx.now.after(WATCH_TTL), anew])
        })
        .await
    }

    async fn readers(&self, but: Uuid) -> Result<Vec<Reader>> {
        let now = self.now();
        self.read_all("look who reads", move |tx| {
            tx.all(READERS, row![now, but], |row| {
                Ok(Reader {
                    org: OrgId(row.get(0)?),
                    execution: ExecutionId(row.get(1)?),
                    process: row.get(2)?,
                    served: row.get(3)?,
                    holder: row.get::<Option<Uuid>>(4)?.map(WorkerId),
                })
            })
        })
        .await
    }

    async fn write_previews(&self, org: OrgId, execution: ExecutionId, served: Vec<Uuid>) -> Result<()> {
        self.check_process()?;
        let (chunks, mut rows, run) = (self.0.chunks.clone(), None, (org, execution));
        // Beside what the run's own committer has to write, and in its order.
        let written = self.0.committers.run("write previews", execution, Before::default(), move |tx| {
            put(tx, run, rows.get_or_insert_with(|| chunks.take_rows(run)));
            for reader in &served {
                tx.put(&SERVED, row![org.0, execution.0, *reader, true]);
            }
            Ok(())
        });
        written.await.inspect_err(|_| self.0.chunks.write_again(run))
    }

    async fn read_previews(
        &self,
        org: OrgId,
        execution: ExecutionId,
        process: Uuid,
        known: &ProgressBySource,
    ) -> Result<(Vec<PreviewRow>, bool)> {
        let mut columns: [Vec<Value>; 5] = Default::default();
        for (source, last) in known {
            let (segment, sequence) = source.columns();
            let row = [segment.into(), sequence.into(), last.epoch.into(), last.attempt.into(), last.seq.into()];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let [segments, sequences, epochs, attempts, seqs] = columns;
        let questions = [
            (IS_SERVED, row![org.0, execution.0, process]),
            (READ, row![org.0, execution.0, segments, sequences, epochs, attempts, seqs]),
        ];
        self.read("read previews", org, move |tx| {
            let found = tx.ask_all(&questions)?;
            let served = found[0].first().map_or(Ok(false), |row| row.get(0))?;
            let rows = found[1].iter().map(|row| {
                let last = Progress { epoch: row.get(2)?, attempt: row.get(3)?, seq: row.get(4)? };
                Ok(PreviewRow { source: Source::from_columns(row.get(0)?, row.get(1)?), last, data: row.get(5)? })
            });
            let rows = rows.collect::<Done<Vec<_>>>()?;
            Ok((rows, served))
        })
        .await
    }

    async fn handed_out(&self, org: OrgId, execution: ExecutionId) -> Result<Vec<(OpKey, WorkerId)>> {
        self.read("look who has tasks of a run", org, move |tx| {
            tx.all(HANDED_OUT, row![org.0, execution.0], |row| Ok(((row.get(0)?, row.get(1)?), WorkerId(row.get(2)?))))
        })
        .await
    }
}

/// What a commit of a run that is read elsewhere does beside its batch.
struct Beside {
    chunks: Chunks,
    run: RunKey,
    rows: Option<Vec<PreviewRow>>,
    superseded: Superseded,
}

impl Beside {
    fn put(&mut self, tx: &Tx) {
        let (run, chunks) = (self.run, &self.chunks);
        put(tx, run, self.rows.get_or_insert_with(|| chunks.take_rows(run)));
        match &self.superseded {
            Superseded::All => tx.put(&OF_RUN, row![run.0.0, run.1.0]),
            Superseded::Of(sources) => sources.iter().for_each(|source| remove(tx, run, *source)),
        }
    }
}

impl PostgresStorage {
    /// Makes a batch durable; where the run is read elsewhere, with the previews that were made before it and without
    /// those that it supersedes.
    pub(super) fn commit_beside(&self, request: CommitRequest) -> impl Future<Output = Result<CommitAnswer>> + Send {
        let (chunks, run) = (&self.0.chunks, (request.org, request.execution));
        let mut beside = chunks.is_read_elsewhere(run).then(|| Beside {
            chunks: chunks.clone(),
            run,
            rows: None,
            superseded: Superseded::by(&request.batch),
        });
        let read = beside.is_some();
        let commit = self.write("commit a batch", run.0, run.1, move |tx| {
            let answer = commit(tx, &request)?;
            if let Some(beside) = &mut beside {
                beside.put(tx);
            }
            Ok(answer)
        });
        async move {
            commit.await.inspect_err(|_| {
                if read {
                    self.0.chunks.write_again(run);
                }
            })
        }
    }
}

impl PostgresStorage {
    /// Records the end of an attempt of a queue's task; what it streamed for readers elsewhere goes.
    pub(super) async fn end_attempt(&self, run: ExecutionId, report: TaskReport) -> Result<()> {
        let (chunks, org) = (self.0.chunks.clone(), report.org);
        self.write("report a task", org, run, move |tx| {
            let op = claims::report_task(tx, run, &report)?;
            if chunks.is_read_elsewhere((org, run)) {
                remove(tx, (org, run), Source::Task(op));
            }
            Ok(())
        })
        .await
    }
}

fn put(tx: &Tx, run: RunKey, rows: &[PreviewRow]) {
    for PreviewRow { source, last, data } in rows {
        let (segment, sequence) = source.columns();
        tx.put(&ROW, row![run.0.0, run.1.0, segment, sequence, last.epoch, last.attempt, last.seq, data]);
    }
}

fn remove(tx: &Tx, run: RunKey, source: Source) {
    let (segment, sequence) = source.columns();
    tx.put(&OF_SOURCE, row![run.0.0, run.1.0, segment, sequence]);
}

/// Whether readers have gone without a word.
pub(super) fn lapsed(tx: &Tx) -> Done<bool> {
    let sql = "SELECT TRUE FROM watch WHERE expires_at <= $1 LIMIT 1";
    Ok(tx.first(sql, row![tx.now], |_| Ok(()))?.is_some())
}

/// Takes away readers that have gone, and what nobody reads.
pub(super) fn tidy(tx: &Tx) -> Done<()> {
    tx.execute("DELETE FROM watch WHERE expires_at <= $1", row![tx.now])?;
    let unread = "DELETE FROM preview p WHERE NOT EXISTS \
         (SELECT FROM watch w WHERE w.org_id = p.org_id AND w.execution = p.execution)";
    tx.execute(unread, row![])
}
