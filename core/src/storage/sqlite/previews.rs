//! The rows of previews.

use super::fault::Done;
use super::tx::Tx;
use super::values::{blob, id};
use crate::id::WorkerId;
use crate::storage::sql::previews::PreviewRows;
use crate::streaming::{OpKey, PreviewRow, Progress, ProgressBySource, RunKey, Source};
use rusqlite::params;
use uuid::Uuid;

const ADD: &str = "INSERT OR IGNORE INTO preview (org_id, execution, segment, sequence, epoch, attempt, seq, data) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

const READ: &str = "SELECT p.segment, p.sequence, p.epoch, p.attempt, p.seq, p.data FROM preview p \
     LEFT JOIN json_each(?3) k ON k.value ->> 0 = p.segment AND k.value ->> 1 = p.sequence \
     WHERE p.org_id = ?1 AND p.execution = ?2 AND (k.value IS NULL \
     OR (p.epoch, p.attempt, p.seq) > (k.value ->> 2, k.value ->> 3, k.value ->> 4)) ORDER BY 1, 2, 3, 4, 5";

const IS_SERVED: &str = "SELECT w.served OR x.worker IS NULL FROM watch w \
     JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution \
     WHERE w.org_id = ?1 AND w.execution = ?2 AND w.reader = ?3";

const HANDED_OUT: &str = "SELECT t.segment, t.sequence, t.worker FROM agent_execution x JOIN task_execution t \
     ON t.place BETWEEN x.run << 31 AND x.run << 31 | 2147483647 WHERE x.org_id = ?1 AND x.id = ?2 \
     AND t.ended_at IS NULL AND t.lease_expires IS NOT NULL AND t.worker IS NOT NULL";

impl PreviewRows for Tx<'_> {
    fn add_previews(&self, (org, execution): RunKey, PreviewRow { source, last, data }: &PreviewRow) -> Done<()> {
        let ((segment, sequence), Progress { epoch, attempt, seq }) = (source.columns(), last);
        self.execute(ADD, params![blob(&org.0), blob(&execution.0), segment, sequence, epoch, attempt, seq, data])?;
        Ok(())
    }

    fn remove_previews(&self, (org, execution): RunKey, source: Source) -> Done<()> {
        let (segment, sequence) = source.columns();
        self.execute(
            "DELETE FROM preview WHERE org_id = ?1 AND execution = ?2 AND segment = ?3 AND sequence = ?4",
            params![blob(&org.0), blob(&execution.0), segment, sequence],
        )?;
        Ok(())
    }

    fn remove_all_previews(&self, (org, execution): RunKey) -> Done<()> {
        let sql = "DELETE FROM preview WHERE org_id = ?1 AND execution = ?2";
        self.execute(sql, [blob(&org.0), blob(&execution.0)])?;
        Ok(())
    }

    fn mark_served(&self, (org, execution): RunKey, reader: Uuid) -> Done<()> {
        self.execute(
            "UPDATE watch SET served = 1 WHERE org_id = ?1 AND execution = ?2 AND reader = ?3",
            [blob(&org.0), blob(&execution.0), blob(&reader)],
        )?;
        Ok(())
    }

    fn previews_beyond(
        &self,
        (org, execution): RunKey,
        reader: Uuid,
        known: &ProgressBySource,
    ) -> Done<(Vec<PreviewRow>, bool)> {
        let known = known.iter().map(|(source, last)| {
            let (segment, sequence) = source.columns();
            (segment, sequence, last.epoch, last.attempt, last.seq)
        });
        let known = serde_json::to_string(&known.collect::<Vec<_>>()).unwrap_or_else(|_| "[]".into());
        let (org, execution) = (blob(&org.0), blob(&execution.0));
        let served = self.first(IS_SERVED, [org, execution, blob(&reader)], |row| row.get(0))?;
        let rows = self.all(READ, params![org, execution, known], |row| {
            let last = Progress { epoch: row.get(2)?, attempt: row.get(3)?, seq: row.get(4)? };
            Ok(PreviewRow { source: Source::from_columns(row.get(0)?, row.get(1)?), last, data: row.get(5)? })
        })?;
        Ok((rows, served.unwrap_or(false)))
    }

    fn handed_out(&self, (org, execution): RunKey) -> Done<Vec<(OpKey, WorkerId)>> {
        self.all(HANDED_OUT, params![blob(&org.0), blob(&execution.0)], |row| {
            Ok(((row.get(0)?, row.get(1)?), WorkerId(id(row, 2)?)))
        })
    }
}
