//! The statements about checkpoints.

use super::fault::Done;
use super::run::{Home, Run};
use super::sets::{Set, row};
use super::tx::Tx;
use super::values::{Key, Row, cell, json, payload, text_of};
use crate::clock::Timestamp;
use crate::id::ExecutionId;
use crate::model::{Checkpoint, NewCheckpoint};
use crate::storage::sql::{CheckpointRow, Checkpoints};

/// A SELECT of the columns of [`checkpoint`], without its WHERE clause.
macro_rules! select_checkpoint {
    () => {
        "SELECT c.sequence, c.leaves, c.metadata, c.usage, c.hash, c.created_at, c.state, x.id FROM agent_checkpoint c \
         JOIN agent_execution x ON x.org_id = c.org_id AND x.run = c.run "
    };
}
pub(super) use select_checkpoint;

/// Reads the columns of `select_checkpoint!`.
pub(super) fn checkpoint(row: &Row) -> Done<Checkpoint> {
    Ok(Checkpoint {
        execution: ExecutionId(row.get(7)?),
        sequence: row.get(0)?,
        saved: NewCheckpoint { state: payload(row, 6)?, leaves: json(row, 1)?, metadata: row.get(2)? },
        usage: json(row, 3)?,
        hash: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
    })
}

static CHECKPOINT: Set = Set::insert(
    "agent_checkpoint",
    "org_id uuid, run bigint, sequence int, leaves text, metadata text, usage text, hash bytea, created_at bigint, \
     state bytea",
);

impl Checkpoints for Tx<'_> {
    fn checkpoint_at(&self, key: Key, sequence: u32) -> Done<Option<Checkpoint>> {
        let sql = concat!(select_checkpoint!(), "WHERE c.org_id = $1 AND c.run = $2 AND c.sequence = $3");
        self.first(sql, row![key.org.0, key.run, sequence], checkpoint)
    }

    fn has_checkpoint(&self, run: &Run, sequence: u32) -> Done<bool> {
        let sql = "SELECT sequence FROM agent_checkpoint WHERE org_id = $1 AND run = $2 AND sequence = $3";
        let found = self.first(sql, row![run.home.key.org.0, run.home.key.run, sequence], |row| row.get::<u32>(0))?;
        Ok(found.is_some())
    }

    fn newest_checkpoint(&self, run: &Run) -> Done<Option<u32>> {
        let sql = "SELECT sequence FROM agent_checkpoint WHERE org_id = $1 AND run = $2 ORDER BY sequence DESC LIMIT 1";
        self.first(sql, row![run.home.key.org.0, run.home.key.run], |row| row.get(0))
    }

    fn checkpoint_numbers(&self, run: &Run) -> Done<Vec<u32>> {
        let sql = "SELECT sequence FROM agent_checkpoint WHERE org_id = $1 AND run = $2 ORDER BY sequence DESC";
        self.all(sql, row![run.home.key.org.0, run.home.key.run], |row| row.get(0))
    }

    fn checkpoints(&self, run: &Run) -> Done<Vec<Checkpoint>> {
        let sql = concat!(select_checkpoint!(), "WHERE c.org_id = $1 AND c.run = $2 ORDER BY c.sequence DESC");
        self.all(sql, row![run.home.key.org.0, run.home.key.run], checkpoint)
    }

    fn put_checkpoint(&self, run: &Run, row: CheckpointRow<'_>) -> Done<()> {
        self.put(
            &CHECKPOINT,
            row![
                run.home.key.org.0,
                run.home.key.run,
                row.sequence,
                text_of(&row.saved.leaves)?,
                &row.saved.metadata,
                text_of(row.usage)?,
                &row.hash[..],
                row.created_at,
                cell(&row.saved.state)?,
            ],
        );
        Ok(())
    }

    fn advance(_: &mut Home, _: u32) {}
}
