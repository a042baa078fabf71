//! The statements about entries.

use super::fault::Done;
use super::run::Run;
use super::sets::{Set, row};
use super::tx::Tx;
use super::values::{Row, cell, label_key, payload, seen_bytes};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OrgId, Slot};
use crate::model::{Entry, NewEntry, NewOp};
use crate::storage::sql::Entries;
use crate::storage::sql::database_error::unknown;
use uuid::Uuid;

/// A SELECT of the columns of an [`Entry`], without its WHERE clause. `e` is the entry, `x` its run.
macro_rules! select_entry {
    () => {
        "SELECT e.segment, e.sequence, e.id, e.parent_id, e.depth, e.thread, e.role, e.entry_type, e.turn_id, e.metadata, \
         e.created_at, e.content, x.id FROM agent_entry e \
         JOIN agent_execution x ON x.org_id = e.org_id AND x.run = e.run "
    };
}
pub(super) use select_entry;

/// Reads the columns of `select_entry!`.
pub(super) fn entry(row: &Row) -> Done<Entry> {
    Ok(Entry {
        new: NewEntry {
            id: EntryId(row.get(2)?),
            parent: row.get::<Option<Uuid>>(3)?.map(EntryId),
            thread: row.get(5)?,
            role: row.get(6)?,
            entry_type: row.get(7)?,
            content: payload(row, 11)?,
            turn_id: row.get(8)?,
            metadata: row.get(9)?,
        },
        execution: ExecutionId(row.get(12)?),
        slot: Slot { segment: row.get(0)?, sequence: row.get(1)? },
        depth: row.get(4)?,
        created_at: Timestamp(row.get(10)?),
    })
}

static ENTRY: Set = Set::insert(
    "agent_entry",
    "org_id uuid, run bigint, segment int, sequence int, id uuid, parent_id uuid, depth int, thread text, role text, \
     entry_type text, turn_id text, metadata text, label_name text, label_key bytea, seen bytea, once_name text, \
     once_n int, created_at bigint, content bytea",
);

/// One entry of an org.
pub(super) fn one_entry(tx: &Tx, org: OrgId, id: EntryId) -> Done<Entry> {
    let sql = concat!(select_entry!(), "WHERE e.org_id = $1 AND e.id = $2");
    Ok(tx.first(sql, row![org.0, id.0], entry)?.ok_or_else(|| unknown("entry", id))?)
}

impl Entries for Tx<'_> {
    /// Asks the database only if neither this transaction has written the parent, nor the statement that locked the run
    /// has read it as the run's leaf.
    fn depth_above(&self, run: &Run, parent: EntryId) -> Done<Option<u32>> {
        if let Some(depth) = self.depths.borrow().get(&parent) {
            return Ok(Some(*depth));
        }
        match run.home.last.as_ref().and_then(|last| last.leaf) {
            Some((leaf, depth)) if leaf == parent => Ok(Some(depth)),
            _ => self.depth_of(run.home.key.org, parent),
        }
    }

    fn put_entry(&self, run: &Run, slot: Slot, op: &NewOp, new: &NewEntry, depth: u32) -> Done<()> {
        self.put(
            &ENTRY,
            row![
                run.home.key.org.0,
                run.home.key.run,
                slot.segment,
                slot.sequence,
                new.id.0,
                new.parent.map(|parent| parent.0),
                depth,
                &new.thread,
                &new.role,
                &new.entry_type,
                new.turn_id.as_deref(),
                new.metadata.as_deref(),
                (*op.label.name != *new.role).then_some(&*op.label.name),
                label_key(&op.label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                self.now,
                cell(&new.content)?,
            ],
        );
        self.depths.borrow_mut().insert(new.id, depth);
        Ok(())
    }

    fn depth_of(&self, org: OrgId, entry: EntryId) -> Done<Option<u32>> {
        let sql = "SELECT depth FROM agent_entry WHERE org_id = $1 AND id = $2";
        self.first(sql, row![org.0, entry.0], |row| row.get(0))
    }

    fn slot_of_entry(&self, run: &Run, entry: EntryId) -> Done<Option<Slot>> {
        self.first(
            "SELECT segment, sequence FROM agent_entry WHERE org_id = $1 AND id = $2 AND run = $3",
            row![run.home.key.org.0, entry.0, run.home.key.run],
            |row| Ok(Slot { segment: row.get(0)?, sequence: row.get(1)? }),
        )
    }

    fn last_entry(&self, run: &Run, until: Slot) -> Done<Option<EntryId>> {
        self.first(
            "SELECT id FROM agent_entry WHERE org_id = $1 AND run = $2 AND segment = $3 AND sequence <= $4 AND thread = '' \
             ORDER BY segment DESC, sequence DESC LIMIT 1",
            row![run.home.key.org.0, run.home.key.run, until.segment, until.sequence],
            |row| row.get(0).map(EntryId),
        )
    }

    fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Done<Vec<Entry>> {
        const ABOVE: &str = concat!(
            "WITH RECURSIVE above AS (SELECT id, parent_id FROM agent_entry WHERE org_id = $1 AND id = $2 \
             UNION ALL SELECT p.id, p.parent_id FROM above JOIN agent_entry p ON p.org_id = $1 AND p.id = above.parent_id \
             WHERE above.parent_id IS DISTINCT FROM $3) ",
            select_entry!(),
            "JOIN above ON above.id = e.id WHERE e.org_id = $1 ORDER BY e.depth"
        );
        if after == Some(leaf) {
            return Ok(Vec::new());
        }
        let branch = self.all(ABOVE, row![org.0, leaf.0, after.map(|id| id.0)], entry)?;
        if branch.is_empty() {
            return Err(unknown("entry", leaf).into());
        }
        Ok(branch)
    }
}
