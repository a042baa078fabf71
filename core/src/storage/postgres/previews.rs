//! The rows of previews.

use super::fault::Done;
use super::sets::{Set, Value, row};
use super::tx::Tx;
use crate::id::WorkerId;
use crate::storage::sql::previews::PreviewRows;
use crate::streaming::{OpKey, PreviewRow, Progress, ProgressBySource, RunKey, Source};
use uuid::Uuid;

static ROW: Set = Set::add(
    "preview",
    "org_id uuid, execution uuid, segment int, sequence int, epoch bigint, attempt int, seq bigint, data text",
);
static OF_SOURCE: Set = Set::delete("preview", 4, "org_id uuid, execution uuid, segment int, sequence int");
static OF_RUN: Set = Set::delete("preview", 2, "org_id uuid, execution uuid");
static SERVED: Set = Set::update("watch", 3, "org_id uuid, execution uuid, reader uuid, served boolean");

const READ: &str = "SELECT p.segment, p.sequence, p.epoch, p.attempt, p.seq, p.data FROM preview p \
     LEFT JOIN UNNEST($3::int[], $4::int[], $5::bigint[], $6::int[], $7::bigint[]) \
     AS k(segment, sequence, epoch, attempt, seq) ON k.segment = p.segment AND k.sequence = p.sequence \
     WHERE p.org_id = $1 AND p.execution = $2 AND (k.seq IS NULL \
     OR (p.epoch, p.attempt, p.seq) > (k.epoch, k.attempt, k.seq)) ORDER BY 1, 2, 3, 4, 5";

const IS_SERVED: &str = "SELECT w.served OR x.worker IS NULL FROM watch w \
     JOIN agent_execution x ON x.org_id = w.org_id AND x.id = w.execution \
     WHERE w.org_id = $1 AND w.execution = $2 AND w.reader = $3";

const HANDED_OUT: &str = "SELECT t.segment, t.sequence, t.worker FROM task_execution t \
     JOIN agent_execution x ON x.org_id = t.org_id AND x.run = t.run WHERE x.org_id = $1 AND x.id = $2 \
     AND t.ended_at IS NULL AND t.lease_expires IS NOT NULL AND t.worker IS NOT NULL";

impl PreviewRows for Tx<'_> {
    fn add_previews(&self, (org, execution): RunKey, PreviewRow { source, last, data }: &PreviewRow) -> Done<()> {
        let ((segment, sequence), Progress { epoch, attempt, seq }) = (source.columns(), *last);
        self.put(&ROW, row![org.0, execution.0, segment, sequence, epoch, attempt, seq, data]);
        Ok(())
    }

    fn remove_previews(&self, (org, execution): RunKey, source: Source) -> Done<()> {
        let (segment, sequence) = source.columns();
        self.put(&OF_SOURCE, row![org.0, execution.0, segment, sequence]);
        Ok(())
    }

    fn remove_all_previews(&self, (org, execution): RunKey) -> Done<()> {
        self.put(&OF_RUN, row![org.0, execution.0]);
        Ok(())
    }

    fn mark_served(&self, (org, execution): RunKey, reader: Uuid) -> Done<()> {
        self.put(&SERVED, row![org.0, execution.0, reader, true]);
        Ok(())
    }

    fn previews_beyond(
        &self,
        (org, execution): RunKey,
        reader: Uuid,
        known: &ProgressBySource,
    ) -> Done<(Vec<PreviewRow>, bool)> {
        let mut columns: [Vec<Value>; 5] = Default::default();
        for (source, last) in known {
            let (segment, sequence) = source.columns();
            let row = [segment.into(), sequence.into(), last.epoch.into(), last.attempt.into(), last.seq.into()];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let [segments, sequences, epochs, attempts, seqs] = columns;
        // One round trip for both.
        let found = self.ask_all(&[
            (IS_SERVED, row![org.0, execution.0, reader]),
            (READ, row![org.0, execution.0, segments, sequences, epochs, attempts, seqs]),
        ])?;
        let served = found[0].first().map_or(Ok(false), |row| row.get(0))?;
        let rows = found[1].iter().map(|row| {
            let last = Progress { epoch: row.get(2)?, attempt: row.get(3)?, seq: row.get(4)? };
            Ok(PreviewRow { source: Source::from_columns(row.get(0)?, row.get(1)?), last, data: row.get(5)? })
        });
        Ok((rows.collect::<Done<_>>()?, served))
    }

    fn handed_out(&self, (org, execution): RunKey) -> Done<Vec<(OpKey, WorkerId)>> {
        self.all(HANDED_OUT, row![org.0, execution.0], |row| Ok(((row.get(0)?, row.get(1)?), WorkerId(row.get(2)?))))
    }
}
