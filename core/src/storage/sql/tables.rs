//! Statements about tables that no commit touches: each has one text for all dialects.
//!
//! A text names its values `$1`, `$2`, … in the order in which they first appear: SQLite numbers them in that order,
//! whatever their names. It uses only SQL that both dialects understand. A statement that needs more belongs to its
//! dialect.

use super::Dialect;
use super::values::Value;
use crate::clock::Timestamp;
use crate::id::{ExecutionId, OrgId};
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// A row that was read.
pub(in crate::storage) trait Columns<F> {
    /// The number in a column.
    fn int(&self, index: usize) -> Result<Option<i64>, F>;
    /// The text in a column.
    fn text(&self, index: usize) -> Result<Option<String>, F>;
    /// The bytes in a column.
    fn bytes(&self, index: usize) -> Result<Option<Vec<u8>>, F>;
    /// The id in a column.
    fn id(&self, index: usize) -> Result<Uuid, F>;
    /// The id in a column, where there is one.
    fn id_opt(&self, index: usize) -> Result<Option<Uuid>, F>;
    /// The error for a column that does not hold a value of this kind.
    fn wrong(&self, index: usize, what: &str) -> F;
}

/// A number that must be there.
pub(in crate::storage) fn number<F>(row: &dyn Columns<F>, index: usize) -> Result<i64, F> {
    row.int(index)?.ok_or_else(|| row.wrong(index, "number"))
}

/// A text that must be there.
pub(in crate::storage) fn text<F>(row: &dyn Columns<F>, index: usize) -> Result<String, F> {
    row.text(index)?.ok_or_else(|| row.wrong(index, "text"))
}

/// A moment that must be there.
pub(in crate::storage) fn moment<F>(row: &dyn Columns<F>, index: usize) -> Result<Timestamp, F> {
    number(row, index).map(Timestamp)
}

/// A moment that may be there.
pub(in crate::storage) fn moment_opt<F>(row: &dyn Columns<F>, index: usize) -> Result<Option<Timestamp>, F> {
    Ok(row.int(index)?.map(Timestamp))
}

/// The value of JSON that may be there.
pub(in crate::storage) fn json_opt<T: DeserializeOwned, F>(row: &dyn Columns<F>, index: usize) -> Result<Option<T>, F> {
    let Some(text) = row.text(index)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|_| row.wrong(index, "JSON"))
}

/// The value of JSON, or the default value if there is none.
pub(in crate::storage) fn json<T: DeserializeOwned + Default, F>(row: &dyn Columns<F>, index: usize) -> Result<T, F> {
    Ok(json_opt(row, index)?.unwrap_or_default())
}

/// Statements whose text is the same in every dialect.
pub(in crate::storage) trait Tables: Dialect {
    /// All rows of a query.
    fn query<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        read: impl FnMut(&dyn Columns<Self::Fault>) -> Result<R, Self::Fault>,
    ) -> Result<Vec<R>, Self::Fault>;
    /// Changes rows. Returns all rows that the statement returns.
    fn change<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        read: impl FnMut(&dyn Columns<Self::Fault>) -> Result<R, Self::Fault>,
    ) -> Result<Vec<R>, Self::Fault>;
    /// The seal of the newest row of an org's audit. It is locked: nobody else adds a row before the transaction ends,
    /// which would break the chain of seals.
    fn newest_seal(&self, org: OrgId) -> Result<Option<Vec<u8>>, Self::Fault>;
    /// Removes a run that has ended and that no other needs, with all its rows.
    fn remove_one(&self, org: OrgId, id: ExecutionId) -> Result<(), Self::Fault>;
    /// Removes some runs of an org, which is being removed, with all their rows. Returns how many.
    fn remove_some(&self, org: OrgId) -> Result<usize, Self::Fault>;

    /// Changes rows.
    fn apply(&self, sql: &'static str, values: Vec<Value>) -> Result<(), Self::Fault> {
        self.change(sql, values, |_| Ok(())).map(drop)
    }

    /// Changes rows with a statement that returns them. True if there were any.
    fn changes_any(&self, sql: &'static str, values: Vec<Value>) -> Result<bool, Self::Fault> {
        Ok(!self.change(sql, values, |_| Ok(()))?.is_empty())
    }

    /// The first row of a query.
    fn one<R>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        read: impl FnMut(&dyn Columns<Self::Fault>) -> Result<R, Self::Fault>,
    ) -> Result<Option<R>, Self::Fault> {
        Ok(self.query(sql, values, read)?.into_iter().next())
    }
}
