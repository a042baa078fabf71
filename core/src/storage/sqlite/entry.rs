//! The statements about entries.

use super::fault::Done;
use super::run::Run;
use super::tx::Tx;
use super::values::{Cell, blob, id, id_opt, label_key, payload, seen_bytes, span};
use crate::clock::Timestamp;
use crate::id::{EntryId, ExecutionId, OrgId, Slot};
use crate::model::{Entry, NewEntry, NewOp};
use crate::payload::Body;
use crate::storage::sql::database_error::unknown;
use crate::storage::sql::{Entries, Ops};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Row, ToSql, params};

/// Content of at least this size is not stored again if a task's output is the same.
const REPEATED_FROM: usize = 256;
/// How many ops back such a task is looked for.
const REPEATED_WITHIN: i64 = 64;

/// So many entries of other branches are passed over on the way to a parent before it is looked up by its id.
const OTHERS_BETWEEN: usize = 16;

/// A SELECT of the columns of an [`Entry`], without its WHERE clause. `e` is the entry.
macro_rules! select_entry {
    () => {
        "SELECT e.place, e.segment, e.sequence, e.id, e.parent_id, e.depth, e.thread, e.role, e.entry_type, e.turn_id, \
         e.metadata, e.created_at, coalesce(e.content, o.output), x.id FROM agent_entry e \
         JOIN agent_execution x ON x.run = e.place >> 31 LEFT JOIN task_execution o ON o.place = e.output_of "
    };
}
pub(super) use select_entry;

/// Reads the columns of `select_entry!`.
pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        new: NewEntry {
            id: entry_id(row)?,
            parent: id_opt(row, 4)?.map(EntryId),
            thread: row.get(6)?,
            role: row.get(7)?,
            entry_type: row.get(8)?,
            content: payload(row, 12)?,
            turn_id: row.get(9)?,
            metadata: row.get(10)?,
        },
        execution: ExecutionId(id(row, 13)?),
        slot: Slot { segment: row.get(1)?, sequence: row.get(2)? },
        depth: row.get(5)?,
        created_at: Timestamp(row.get(11)?),
    })
}

fn entry_id(row: &Row<'_>) -> rusqlite::Result<EntryId> {
    id(row, 3).map(EntryId)
}

/// One entry of an org.
pub(super) fn one_entry(tx: &Tx, org: OrgId, id: EntryId) -> Done<Entry> {
    let sql = concat!(select_entry!(), "WHERE e.id = ?1 AND x.org_id = ?2");
    Ok(tx.first(sql, [blob(&id.0), blob(&org.0)], entry)?.ok_or_else(|| unknown("entry", id))?)
}

impl Entries for Tx<'_> {
    fn depth_above(&self, run: &Run, parent: EntryId) -> Done<Option<u32>> {
        self.depth_of(run.home.org, parent)
    }

    fn put_entry(&self, run: &Run, slot: Slot, op: &NewOp, new: &NewEntry, depth: u32) -> Done<()> {
        let place = Self::place(run, slot.sequence)?;
        let cell = Cell(&new.content);
        let content = cell.to_sql()?;
        let output_of = match &new.content.body {
            Body::Inline(bytes) if bytes.len() >= REPEATED_FROM => task_with(self, run, place, &content)?,
            _ => None,
        };
        self.execute(
            "INSERT INTO agent_entry (place, segment, sequence, id, parent_id, depth, thread, role, entry_type, turn_id, \
             metadata, label_name, label_key, seen, once_name, once_n, created_at, output_of, content) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            params![
                place,
                slot.segment,
                slot.sequence,
                blob(&new.id.0),
                new.parent.as_ref().map(|parent| blob(&parent.0)),
                depth,
                new.thread,
                new.role,
                new.entry_type,
                new.turn_id,
                new.metadata,
                (*op.label.name != *new.role).then_some(&*op.label.name),
                label_key(&op.label.key),
                seen_bytes(&op.seen),
                op.once.as_ref().map(|once| &*once.name),
                op.once.as_ref().map(|once| once.n),
                self.now.0,
                output_of,
                output_of.is_none().then_some(content),
            ],
        )?;
        Ok(())
    }

    fn depth_of(&self, org: OrgId, entry: EntryId) -> Done<Option<u32>> {
        self.first(
            "SELECT e.depth FROM agent_entry e JOIN agent_execution x ON x.run = e.place >> 31 \
             WHERE e.id = ?1 AND x.org_id = ?2",
            [blob(&entry.0), blob(&org.0)],
            |row| row.get(0),
        )
    }

    fn slot_of_entry(&self, run: &Run, entry: EntryId) -> Done<Option<Slot>> {
        self.first(
            "SELECT segment, sequence FROM agent_entry WHERE id = ?1 AND run = ?2",
            params![blob(&entry.0), run.home.run],
            |row| Ok(Slot { segment: row.get(0)?, sequence: row.get(1)? }),
        )
    }

    fn last_entry(&self, run: &Run, until: Slot) -> Done<Option<EntryId>> {
        let (low, high) = (span(run.home.run).0, Self::place(run, until.sequence)?);
        self.first(
            "SELECT id FROM agent_entry WHERE place BETWEEN ?1 AND ?2 AND thread = '' ORDER BY place DESC LIMIT 1",
            [low, high],
            |row| id(row, 0).map(EntryId),
        )
    }

    fn branch(&self, org: OrgId, leaf: EntryId, after: Option<EntryId>) -> Done<Vec<Entry>> {
        const PLACE: &str = "SELECT e.place FROM agent_entry e JOIN agent_execution x ON x.run = e.place >> 31 \
             WHERE e.id = ?1 AND x.org_id = ?2";
        const BACKWARDS: &str = concat!(select_entry!(), "WHERE e.place BETWEEN ?1 AND ?2 ORDER BY e.place DESC");
        let wanted = |id: &EntryId| Some(*id) != after;
        let mut branch: Vec<Entry> = Vec::new();
        let mut next = Some(leaf).filter(wanted);
        while let Some(id) = next {
            let place: i64 = self
                .first(PLACE, [blob(&id.0), blob(&org.0)], |row| row.get(0))?
                .ok_or_else(|| unknown("entry", id))?;
            // A parent is most often the row before, so rows are read in their order instead of each by its id.
            let mut others = 0;
            self.each(BACKWARDS, [span(place >> 31).0, place], |row| {
                if next != Some(entry_id(row)?) {
                    others += 1;
                    return Ok(others < OTHERS_BETWEEN);
                }
                others = 0;
                let found = entry(row)?;
                next = found.new.parent.filter(wanted);
                branch.push(found);
                Ok(next.is_some())
            })?;
        }
        branch.reverse();
        Ok(branch)
    }
}

/// The task among the run's last ops whose output equals an entry's content. An agent usually appends what a model or a
/// tool has answered: it is stored once, in the task's row.
fn task_with(tx: &Tx, run: &Run, place: i64, content: &ToSqlOutput<'_>) -> Done<Option<i64>> {
    let low = span(run.home.run).0.max(place - REPEATED_WITHIN);
    tx.first(
        "SELECT place FROM task_execution WHERE place BETWEEN ?1 AND ?2 \
         AND octet_length(output) = octet_length(?3) AND output = ?3 ORDER BY place DESC LIMIT 1",
        params![low, place, content],
        |row| row.get(0),
    )
}
