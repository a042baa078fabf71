//! The number of the step in which something happened. It is counted from the journal, which records where each step begins.

use flovyn_core::error::{Error, Result};
use flovyn_core::id::{ExecutionId, OrgId, Slot};
use flovyn_core::model::{RecordedBody, RecordedOp};
use flovyn_core::storage::Storage;
use flovyn_core::sync::Mutex;
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::sync::Arc;

/// Segments that are read at a time.
const AT_A_TIME: usize = 8;
/// Runs that are remembered at a time.
const MAX_CACHED: usize = 1_000;

/// The steps of segments that have ended, which no longer change: a conversation is read again and again. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<EndedSegments>>);

/// The segments of runs that have ended, from the first.
type EndedSegments = HashMap<(OrgId, ExecutionId), Vec<StepStarts>>;

/// Where the steps of a segment begin.
type StepStarts = Arc<[u32]>;

impl Steps {
    /// How many steps a run had begun at each of some places, whose segments come in order. A fork counts from where it began.
    pub(crate) async fn at(
        &self,
        storage: &dyn Storage,
        org: OrgId,
        run: ExecutionId,
        places: &[Slot],
    ) -> Result<Vec<u32>> {
        let Some(last) = places.last() else { return Ok(Vec::new()) };
        let mut segments = self.0.lock().get(&(org, run)).cloned().unwrap_or_default();
        let cached = u32::try_from(segments.len()).unwrap_or(u32::MAX);
        let read = stream::iter(cached..=last.segment).map(|segment| async move {
            let ops = storage.journal(org, run, segment).await?;
            Ok::<_, Error>(ops.iter().filter(|op| op.segment == segment).filter_map(begins).collect::<StepStarts>())
        });
        segments.extend(read.buffered(AT_A_TIME).try_collect::<Vec<_>>().await?);
        // A segment that another one comes after has ended.
        self.remember((org, run), &segments[..last.segment as usize]);
        let (mut counts, mut before) = (Vec::with_capacity(places.len()), 0);
        for (segment, steps) in (0..=last.segment).zip(&segments) {
            for place in places.iter().filter(|place| place.segment == segment) {
                counts.push(before + count(steps.iter().filter(|step| **step < place.sequence)));
            }
            before += count(steps.iter());
        }
        Ok(counts)
    }

    fn remember(&self, run: (OrgId, ExecutionId), ended: &[StepStarts]) {
        let mut cached = self.0.lock();
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        let of_run = cached.entry(run).or_default();
        if of_run.len() < ended.len() {
            *of_run = ended.to_vec();
        }
    }
}

/// The place of an op that begins a step.
fn begins(op: &RecordedOp) -> Option<u32> {
    matches!(op.body, RecordedBody::StepMark).then_some(op.sequence)
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}
