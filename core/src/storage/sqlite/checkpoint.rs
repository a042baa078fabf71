//! The statements about checkpoints.

use super::fault::Done;
use super::run::{Home, Run};
use super::tx::Tx;
use super::values::{Cell, json, key, number_of, payload, span, text_of};
use crate::clock::Timestamp;
use crate::id::ExecutionId;
use crate::model::{Checkpoint, NewCheckpoint};
use crate::storage::sql::{CheckpointRow, Checkpoints};
use rusqlite::{Row, params};

/// A SELECT of the columns of [`checkpoint`], without its WHERE clause.
macro_rules! select_checkpoint {
    () => {
        "SELECT c.key, c.leaves, c.metadata, c.usage, c.hash, c.created_at, c.state, x.id FROM agent_checkpoint c \
         JOIN agent_execution x ON x.run = c.key >> 31 "
    };
}
pub(super) use select_checkpoint;

/// The number of a checkpoint, by its key: that of the segment that it starts.
fn sequence_of(key: i64) -> u32 {
    number_of(key) as u32
}

/// Reads the columns of `select_checkpoint!`.
pub(super) fn checkpoint(row: &Row<'_>) -> rusqlite::Result<Checkpoint> {
    Ok(Checkpoint {
        execution: ExecutionId(super::values::id(row, 7)?),
        sequence: sequence_of(row.get(0)?),
        saved: NewCheckpoint { state: payload(row, 6)?, leaves: json(row, 1)?, metadata: row.get(2)? },
        usage: json(row, 3)?,
        hash: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
    })
}

impl Checkpoints for Tx<'_> {
    fn checkpoint_at(&self, run: i64, sequence: u32) -> Done<Option<Checkpoint>> {
        let key = key(run, i64::from(sequence))?;
        self.first(concat!(select_checkpoint!(), "WHERE c.key = ?1"), [key], checkpoint)
    }

    fn has_checkpoint(&self, run: &Run, sequence: u32) -> Done<bool> {
        let key = key(run.home.run, i64::from(sequence))?;
        Ok(self.first("SELECT 1 FROM agent_checkpoint WHERE key = ?1", [key], |_| Ok(()))?.is_some())
    }

    fn newest_checkpoint(&self, run: &Run) -> Done<Option<u32>> {
        let (low, high) = span(run.home.run);
        let sql = "SELECT key FROM agent_checkpoint WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1";
        self.first(sql, [low, high], |row| row.get(0).map(sequence_of))
    }

    fn checkpoint_numbers(&self, run: &Run) -> Done<Vec<u32>> {
        let (low, high) = span(run.home.run);
        let sql = "SELECT key FROM agent_checkpoint WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC";
        self.all(sql, [low, high], |row| row.get(0).map(sequence_of))
    }

    fn checkpoints(&self, run: &Run) -> Done<Vec<Checkpoint>> {
        let (low, high) = span(run.home.run);
        let sql = concat!(select_checkpoint!(), "WHERE c.key BETWEEN ?1 AND ?2 ORDER BY c.key DESC");
        self.all(sql, [low, high], checkpoint)
    }

    fn put_checkpoint(&self, run: &Run, row: CheckpointRow<'_>) -> Done<()> {
        self.execute(
            "INSERT INTO agent_checkpoint (key, start, leaves, metadata, usage, hash, created_at, state) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                key(run.home.run, i64::from(row.sequence))?,
                run.home.start + i64::from(row.ops),
                text_of(&row.saved.leaves)?,
                row.saved.metadata,
                text_of(row.usage)?,
                &row.hash[..],
                row.created_at.0,
                Cell(&row.saved.state),
            ],
        )?;
        Ok(())
    }

    fn advance(home: &mut Home, ops: u32) {
        home.start += i64::from(ops);
    }
}
