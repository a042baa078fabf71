//! Reads results that a load has left in their rows, a page of them as replay comes to them.

use super::facts::place_of;
use super::fault::Done;
use super::run::Run;
use super::tx::Tx;
use super::values::payload_opt;
use crate::id::OrgId;
use crate::payload::RowOf;
use crate::storage::sql::Runs;
use bytes::Bytes;

/// The results of some tasks, in the order asked.
pub(super) fn read(tx: &Tx, org: OrgId, of: &[RowOf]) -> Done<Vec<Bytes>> {
    let mut values = Vec::with_capacity(of.len());
    let mut run: Option<Run> = None;
    for row in of {
        let found = match run.take() {
            Some(run) if run.id == row.execution => run,
            _ => tx.find_run(org, row.execution)?,
        };
        let place = place_of(tx, run.insert(found), row.slot)?;
        let sql = "SELECT output FROM task_execution WHERE place = ?1";
        let output = tx.first(sql, [place], |row| payload_opt(row, 0))?.flatten();
        values.push(output.ok_or_else(|| row.missing())?.bytes()?.clone());
    }
    Ok(values)
}
