//! Statements whose text is the same in every dialect.

use super::fault::{Done, Fault};
use super::retention::{remove_one, remove_some};
use super::tx::Tx;
use super::values::{blob, id, id_opt, unreadable};
use crate::id::{ExecutionId, OrgId};
use crate::storage::sql::values::Value;
use crate::storage::sql::{Columns, Tables};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql, params_from_iter};
use uuid::Uuid;

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Id(id) => ValueRef::Blob(blob(id)),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::List(_) => return Err(rusqlite::Error::ToSqlConversionFailure("SQLite has no lists".into())),
        }))
    }
}

impl Columns<Fault> for Row<'_> {
    fn int(&self, index: usize) -> Done<Option<i64>> {
        Ok(self.get(index)?)
    }

    fn text(&self, index: usize) -> Done<Option<String>> {
        Ok(self.get(index)?)
    }

    fn bytes(&self, index: usize) -> Done<Option<Vec<u8>>> {
        Ok(self.get(index)?)
    }

    fn id(&self, index: usize) -> Done<Uuid> {
        Ok(id(self, index)?)
    }

    fn id_opt(&self, index: usize) -> Done<Option<Uuid>> {
        Ok(id_opt(self, index)?)
    }

    fn wrong(&self, index: usize, what: &str) -> Fault {
        unreadable(index, what).into()
    }
}

impl Tables for Tx<'_> {
    fn query<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        mut read: impl FnMut(&dyn Columns<Fault>) -> Done<R>,
    ) -> Done<Vec<R>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        // SQLite numbers the parameters `$1`, `$2`, … in the order in which they first appear.
        let in_order = |place: usize| statement.parameter_name(place) == Some(&format!("${place}"));
        debug_assert!((1..=statement.parameter_count()).all(in_order), "{sql}");
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    fn change<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        read: impl FnMut(&dyn Columns<Fault>) -> Done<R>,
    ) -> Done<Vec<R>> {
        self.query(sql, values, read)
    }

    fn newest_seal(&self, org: OrgId) -> Done<Option<Vec<u8>>> {
        let sql = "SELECT seal FROM audit WHERE org_id = ?1 ORDER BY id DESC LIMIT 1";
        Ok(self.first(sql, [blob(&org.0)], |row| row.get(0))?.flatten())
    }

    fn remove_one(&self, org: OrgId, id: ExecutionId) -> Done<()> {
        remove_one(self, org, id)
    }

    fn remove_some(&self, org: OrgId) -> Done<usize> {
        remove_some(self, org)
    }
}
