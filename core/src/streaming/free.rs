//! Rows of free previews: those of tasks that queues handed to workers of any process, told apart by op, attempt and seq.

use super::chunks::{Chunks, Kept, OpKey, RunKey, Told};
use super::outgoing::not_readable;
use crate::error::Result;
use crate::id::ExecutionId;
use crate::model::{Chunk, ChunkKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row holds about so many bytes at most.
const ROW: usize = 64 << 10;

/// Free previews of one attempt in a row, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct FreeRow {
    /// The op.
    pub op: OpKey,
    /// The attempt, and the seq of the last one.
    pub told: Told,
    /// The previews, as JSON.
    pub data: String,
}

/// A preview as its row has it: the durable event before it, seq, kind, data.
type Packed = (u64, u64, ChunkKind, Arc<str>);

impl FreeRow {
    /// The previews with the durable events that they follow.
    pub fn unpack(&self, execution: ExecutionId) -> Result<Vec<(u64, Chunk)>> {
        let packed: Vec<Packed> = serde_json::from_str(&self.data).map_err(not_readable)?;
        let ((segment, sequence), (attempt, _)) = (self.op, self.told);
        let unpacked = packed.into_iter().map(|(event, seq, kind, data)| {
            let epoch = Chunk::OF_A_QUEUE;
            (event, Chunk { execution, segment, sequence, epoch, attempt, seq, kind, data })
        });
        Ok(unpacked.collect())
    }

    /// Those of many attempts as rows.
    pub(super) fn pack<'a>(made: impl Iterator<Item = &'a Kept>) -> Vec<Self> {
        let mut open: BTreeMap<(OpKey, u32), (usize, Vec<Packed>)> = BTreeMap::new();
        let mut rows = Vec::new();
        for kept in made {
            let chunk = &*kept.chunk;
            let of = ((chunk.segment, chunk.sequence), chunk.attempt);
            let (size, packed) = open.entry(of).or_default();
            *size += chunk.data.len();
            packed.push((kept.event, chunk.seq, chunk.kind, chunk.data.clone()));
            if *size >= ROW {
                rows.extend(Self::of(of, packed));
                (*size, *packed) = (0, Vec::new());
            }
        }
        rows.extend(open.into_iter().filter_map(|(of, (_, packed))| Self::of(of, &packed)));
        rows
    }

    fn of((op, attempt): (OpKey, u32), packed: &[Packed]) -> Option<Self> {
        let (_, seq, ..) = packed.last()?;
        Some(Self { op, told: (attempt, *seq), data: serde_json::to_string(packed).ok()? })
    }
}

impl Chunks {
    /// Takes free previews from rows, in the order of their attempts' making.
    pub(super) fn deliver_free_rows(&self, run: RunKey, rows: &[FreeRow]) -> Result<()> {
        for row in rows {
            for (event, chunk) in row.unpack(run.1)? {
                self.deliver_free(event, run.0, chunk);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunks::{Place, Shown};
    use super::super::outgoing::{Read, Said};
    use super::*;
    use crate::id::OrgId;
    use crate::model::EventId;
    use parking_lot::Mutex;
    use uuid::Uuid;

    const RUN: RunKey = (OrgId::DEFAULT, ExecutionId(Uuid::from_u128(1)));

    fn say(hub: &Chunks, sequence: u32, attempt: u32, seq: u64, word: &str) {
        let (execution, epoch, kind) = (RUN.1, Chunk::OF_A_QUEUE, ChunkKind::Token);
        hub.publish(7, RUN.0, Chunk { execution, segment: 0, sequence, epoch, attempt, seq, kind, data: word.into() });
    }

    fn kept(hub: &Chunks) -> Vec<Shown> {
        hub.after(RUN, Place::default(), u64::MAX).0
    }

    fn words(hub: &Chunks) -> Vec<String> {
        let word = |shown: Shown| format!("{} {}", shown.chunk.sequence, shown.chunk.data);
        kept(hub).into_iter().map(word).collect()
    }

    fn elsewhere(anew: bool) -> Read {
        Read { run: RUN, held: Some(false), anew }
    }

    #[test]
    fn what_queues_handed_out_is_shared_whoever_holds_the_run() {
        let (one, two, there) = (Chunks::shared(), Chunks::shared(), Chunks::shared());
        let _bell = there.follow(RUN);
        say(&one, 3, 1, 1, "a");
        assert!(kept(&one).iter().all(|shown| !shown.free), "where nobody else reads, all have positions");
        [&one, &two].into_iter().for_each(|hub| hub.set_read([elsewhere(true)]));
        say(&two, 4, 2, 1, "x");
        say(&one, 3, 1, 2, "b");
        let first = [one.take_rows(RUN), two.take_rows(RUN)];
        assert!(first.iter().all(|rows| rows.placed.is_empty()));
        assert_eq!((first[0].free[0].op, first[0].free[0].told), ((0, 3), (1, 2)));
        for rows in first.iter().chain(&first) {
            there.deliver_rows(RUN, rows).unwrap();
        }
        assert_eq!(words(&there), ["3 a", "3 b", "4 x"]);
        assert!([&one, &two, &there].into_iter().all(|hub| kept(hub).iter().all(|shown| shown.free)));
        // Only what is new is written, until somebody comes who has nothing.
        assert!(one.waiting().is_empty() && one.take_rows(RUN).free.is_empty());
        say(&one, 3, 1, 3, "c");
        one.set_read([elsewhere(false)]);
        assert_eq!(one.waiting(), [RUN]);
        assert_eq!(one.take_rows(RUN).free[0].unpack(RUN.1).unwrap().len(), 1);
        one.set_read([elsewhere(true)]);
        let all = one.take_rows(RUN);
        assert_eq!(all.free[0].unpack(RUN.1).unwrap().len(), 3);
        there.deliver_rows(RUN, &all).unwrap();
        assert_eq!(words(&there), ["3 a", "3 b", "4 x", "3 c"]);
        assert_eq!(there.delivered(RUN).tasks, [((0, 3), (1, 3)), ((0, 4), (2, 1))].into());
    }

    #[test]
    fn of_what_is_heard_at_once_nothing_is_missing() {
        let (here, there) = (Chunks::shared(), Chunks::shared());
        let said: Arc<Mutex<Vec<Said>>> = Arc::default();
        let heard = said.clone();
        here.set_on_publish(Some(Arc::new(move |said| heard.lock().push(said))));
        here.set_read([elsewhere(true)]);
        for (attempt, seq, word) in [(1, 1, "a"), (1, 2, "b"), (1, 3, "c"), (2, 1, "d"), (2, 2, "e")] {
            say(&here, 3, attempt, seq, word);
        }
        let _bell = there.follow(RUN);
        let said = said.lock().clone();
        assert_eq!(said[0].id, EventId { number: 7, chunk: 0 });
        for n in [1, 0, 2, 1, 1, 4, 3, 2, 4] {
            there.hear(said[n].clone());
        }
        assert_eq!(words(&there), ["3 a", "3 b", "3 d", "3 e"], "what is missing comes by its rows");
    }

    #[test]
    fn a_row_that_is_not_readable_is_told() {
        let row = FreeRow { op: (0, 1), told: (1, 1), data: "{".into() };
        let error = row.unpack(RUN.1).unwrap_err().to_string();
        assert!(error.contains("not readable"), "{error}");
    }
}
