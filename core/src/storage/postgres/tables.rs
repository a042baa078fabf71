//! Statements whose text is the same in every dialect.

use super::fault::{Done, Fault};
use super::retention::{remove_one, remove_some};
use super::sets::{Value, row};
use super::tx::Tx;
use super::values::{Row, unreadable};
use crate::id::{ExecutionId, OrgId};
use crate::storage::sql::{Columns, Tables};
use uuid::Uuid;

impl Columns<Fault> for Row {
    fn int(&self, index: usize) -> Done<Option<i64>> {
        self.get(index)
    }

    fn text(&self, index: usize) -> Done<Option<String>> {
        self.get(index)
    }

    fn bytes(&self, index: usize) -> Done<Option<Vec<u8>>> {
        self.get(index)
    }

    fn id(&self, index: usize) -> Done<Uuid> {
        self.get(index)
    }

    fn id_opt(&self, index: usize) -> Done<Option<Uuid>> {
        self.get(index)
    }

    fn wrong(&self, index: usize, what: &str) -> Fault {
        unreadable(index, what)
    }
}

impl Tables for Tx<'_> {
    fn query<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        mut read: impl FnMut(&dyn Columns<Fault>) -> Done<R>,
    ) -> Done<Vec<R>> {
        self.all(sql, values, |row| read(row))
    }

    fn change<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        mut read: impl FnMut(&dyn Columns<Fault>) -> Done<R>,
    ) -> Done<Vec<R>> {
        self.execute_all(sql, values, |row| read(row))
    }

    fn newest_seal(&self, org: OrgId) -> Done<Option<Vec<u8>>> {
        // Transactions that add audit rows of an org come one after the other, since each row is sealed together with
        // the one before it.
        let alone = "SELECT pg_advisory_xact_lock(hashtextextended('flovyn audit ' || $1::uuid::text, 0))";
        let newest = "SELECT seal FROM audit WHERE org_id = $1 ORDER BY id DESC LIMIT 1";
        let asked = self.ask_all(&[(alone, row![org.0]), (newest, row![org.0])])?;
        asked.last().and_then(|rows| rows.first()).map_or(Ok(None), |row| row.get(0))
    }

    fn remove_one(&self, org: OrgId, id: ExecutionId) -> Done<()> {
        remove_one(self, org, id)
    }

    fn remove_some(&self, org: OrgId) -> Done<usize> {
        remove_some(self, org)
    }
}
