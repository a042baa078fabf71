//! Reads results that a load has left in their rows, a page of them as replay comes to them.

use super::fault::Done;
use super::sets::{Value, row};
use super::tx::Tx;
use super::values::payload;
use crate::id::{OrgId, Slot};
use crate::payload::RowOf;
use crate::storage::sql::Runs;
use bytes::Bytes;
use std::collections::HashMap;

const OUTPUTS: &str = "SELECT t.segment, t.sequence, t.output FROM task_execution t \
     JOIN UNNEST($3::int[], $4::int[]) AS k(segment, sequence) ON t.segment = k.segment AND t.sequence = k.sequence \
     WHERE t.org_id = $1 AND t.run = $2 AND t.output IS NOT NULL";

/// The results of some tasks, in the order asked.
pub(super) fn read(tx: &Tx, org: OrgId, of: &[RowOf]) -> Done<Vec<Bytes>> {
    let mut found: HashMap<RowOf, Bytes> = HashMap::with_capacity(of.len());
    for row in of {
        if found.contains_key(row) {
            continue;
        }
        // The tail of a fork has rows of its parents too, so the rows can be of several runs.
        let execution = row.execution;
        let key = tx.find_run(org, execution)?.home.key;
        let (segments, sequences): (Vec<Value>, Vec<Value>) = of
            .iter()
            .filter(|row| row.execution == execution)
            .map(|row| (Value::from(row.slot.segment), Value::from(row.slot.sequence)))
            .unzip();
        let outputs = tx.all(OUTPUTS, row![key.org.0, key.run, segments, sequences], |row| {
            Ok((Slot { segment: row.get(0)?, sequence: row.get(1)? }, payload(row, 2)?))
        })?;
        for (slot, output) in outputs {
            found.insert(RowOf { execution, slot }, output.bytes()?.clone());
        }
        if !found.contains_key(row) {
            return Err(row.missing().into());
        }
    }
    of.iter().map(|row| found.get(row).cloned().ok_or_else(|| row.missing().into())).collect()
}
