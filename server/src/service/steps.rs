//! In which step of its run something was asked for: the journal has each step's beginning, no row has its number.

use flovyn_core::error::Result;
use flovyn_core::id::{ExecutionId, OrgId, Slot};
use flovyn_core::model::{RecordedBody, RecordedOp};
use flovyn_core::storage::Storage;
use futures::{StreamExt, TryStreamExt, stream};

/// Segments that are read at a time.
const AT_A_TIME: usize = 8;

/// How many steps a run had begun at each of some places, which come in order. A fork counts from where it began.
pub(crate) async fn steps_at(storage: &dyn Storage, org: OrgId, run: ExecutionId, places: &[Slot]) -> Result<Vec<u32>> {
    let Some(last) = places.last() else { return Ok(Vec::new()) };
    let journals = stream::iter(0..=last.segment).map(|segment| async move {
        let ops = storage.journal(org, run, segment).await?;
        Ok((segment, ops.iter().filter(|op| op.segment == segment).filter_map(begins).collect::<Vec<_>>()))
    });
    let journals = journals.buffered(AT_A_TIME);
    let counted = journals.try_fold((Vec::new(), 0), |(mut counts, before), (segment, steps)| async move {
        for place in places.iter().filter(|place| place.segment == segment) {
            counts.push(before + count(steps.iter().filter(|step| **step < place.sequence)));
        }
        Ok((counts, before + count(steps.iter())))
    });
    Ok(counted.await?.0)
}

/// The place of an op that begins a step.
fn begins(op: &RecordedOp) -> Option<u32> {
    matches!(op.body, RecordedBody::Step).then_some(op.sequence)
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}
