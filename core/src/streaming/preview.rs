//! Previews as they travel between processes: what makes one, how far its maker has come, and the rows that carry many.
//!
//! A preview is told apart by its run, its source and its [`Progress`]: no two processes have to agree on anything else.

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::{Chunk, ChunkKind};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A row holds about so many bytes at most.
const ROW_BYTES: usize = 64 << 10;
/// Where a row says that the agent itself made its previews.
const AGENT_SEQUENCE: i32 = -1;

/// A run, whatever else has its id in another org.
pub type RunKey = (OrgId, ExecutionId);

/// An op of a run, by segment and sequence.
pub type OpKey = (u32, u32);

/// How far the previews of each source have come.
pub type ProgressBySource = HashMap<Source, Progress>;

/// A preview on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The run's org.
    pub org: OrgId,
    /// The durable event that it follows, as far as its maker knows.
    pub after: u64,
    /// The preview.
    pub chunk: Arc<Chunk>,
}

/// Takes previews to readers elsewhere. What it brings from there goes to [`Chunks::receive`](super::Chunks::receive) or
/// [`Chunks::receive_rows`](super::Chunks::receive_rows), which drop repeats.
pub trait PreviewTransport: Send + Sync {
    /// Takes one along. It must be quick and must not block; it may lose previews.
    fn publish(&self, preview: &Preview);
}

/// What makes previews and counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The agent itself, whichever op it called last.
    Agent,
    /// A task.
    Task(OpKey),
}

impl Source {
    /// The source of a preview.
    pub fn of(chunk: &Chunk) -> Self {
        match chunk.attempt {
            Chunk::OF_AN_AGENT => Self::Agent,
            _ => Self::Task((chunk.segment, chunk.sequence)),
        }
    }

    /// Its segment and sequence in rows.
    pub fn columns(self) -> (u32, i32) {
        match self {
            Self::Agent => (0, AGENT_SEQUENCE),
            Self::Task((segment, sequence)) => (segment, i32::try_from(sequence).unwrap_or(i32::MAX)),
        }
    }

    /// The source that rows name.
    pub fn from_columns(segment: u32, sequence: i32) -> Self {
        u32::try_from(sequence).map_or(Self::Agent, |sequence| Self::Task((segment, sequence)))
    }
}

/// How far a source has come. A later claim counts more than a later attempt, and that more than a later preview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Progress {
    /// The claim of the run; the same for all attempts of a task that its queue handed out.
    pub epoch: u64,
    /// The attempt.
    pub attempt: u32,
    /// The last preview of the attempt, from 1.
    pub seq: u64,
}

impl Progress {
    /// The progress of a source that has just made this.
    pub fn of(chunk: &Chunk) -> Self {
        Self { epoch: chunk.epoch, attempt: chunk.attempt, seq: chunk.seq }
    }

    /// Whether nothing is missing between this and what comes next.
    pub fn is_followed_by(self, next: Self) -> bool {
        match (next.epoch, next.attempt).cmp(&(self.epoch, self.attempt)) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => next.seq == self.seq + 1,
            std::cmp::Ordering::Greater => next.seq == 1,
        }
    }
}

/// Previews of one attempt in a row, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewRow {
    /// What made them.
    pub source: Source,
    /// The last one of them.
    pub last: Progress,
    /// The previews, as JSON.
    pub data: String,
}

/// A preview as its row has it: its place among all that its process has made, the durable event before it, op, seq, kind, data.
type Packed = (u64, u64, OpKey, u64, ChunkKind, Arc<str>);

impl PreviewRow {
    /// Previews as rows, each of one attempt, so that its end can remove them. They come with their places among all that this
    /// process has made.
    pub(super) fn pack<'a>(previews: impl Iterator<Item = (u64, &'a Preview)>) -> Vec<Self> {
        let mut open: BTreeMap<(Source, u64, u32), (usize, Vec<Packed>)> = BTreeMap::new();
        let mut rows = Vec::new();
        for (index, preview) in previews {
            let chunk = &*preview.chunk;
            let attempt = (Source::of(chunk), chunk.epoch, chunk.attempt);
            let (size, packed) = open.entry(attempt).or_default();
            *size += chunk.data.len();
            let op = (chunk.segment, chunk.sequence);
            packed.push((index, preview.after, op, chunk.seq, chunk.kind, chunk.data.clone()));
            if *size >= ROW_BYTES {
                rows.extend(Self::of(attempt, packed));
                (*size, *packed) = (0, Vec::new());
            }
        }
        rows.extend(open.into_iter().filter_map(|(attempt, (_, packed))| Self::of(attempt, &packed)));
        rows
    }

    fn of((source, epoch, attempt): (Source, u64, u32), packed: &[Packed]) -> Option<Self> {
        let seq = packed.last()?.3;
        Some(Self { source, last: Progress { epoch, attempt, seq }, data: serde_json::to_string(packed).ok()? })
    }

    /// The previews of rows that were read together. Those of one process come in the order in which it made them; those of one
    /// source come in its order, whatever processes they passed through.
    pub fn unpack((org, execution): RunKey, rows: &[Self]) -> Result<Vec<Preview>> {
        let mut by_source: BTreeMap<Source, Vec<(u64, Preview)>> = BTreeMap::new();
        for row in rows {
            let packed: Vec<Packed> = serde_json::from_str(&row.data).map_err(|error| {
                Error::new(Code::StorageUnavailable, format!("a row of previews is not readable: {error}"))
            })?;
            let Progress { epoch, attempt, .. } = row.last;
            by_source.entry(row.source).or_default().extend(packed.into_iter().map(
                |(index, after, (segment, sequence), seq, kind, data)| {
                    let chunk = Chunk { execution, segment, sequence, epoch, attempt, seq, kind, data };
                    (index, Preview { org, after, chunk: Arc::new(chunk) })
                },
            ));
        }
        let mut all = Vec::new();
        for mut previews in by_source.into_values() {
            previews.sort_by_key(|(_, preview)| Progress::of(&preview.chunk));
            // Sorting by this keeps the order within the source, even where two processes have counted it.
            let mut latest = (0, 0);
            all.extend(previews.into_iter().map(|(index, preview)| {
                latest = latest.max((preview.after, index));
                (latest, preview)
            }));
        }
        all.sort_by_key(|(made, _)| *made);
        Ok(all.into_iter().map(|(_, preview)| preview).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const RUN: RunKey = (OrgId::DEFAULT, ExecutionId(Uuid::from_u128(1)));

    fn preview(after: u64, sequence: u32, attempt: u32, seq: u64) -> Preview {
        let (epoch, kind, data) = (Chunk::OF_A_QUEUE, ChunkKind::Token, format!("{sequence}.{seq}").into());
        let chunk = Chunk { execution: RUN.1, segment: 2, sequence, epoch, attempt, seq, kind, data };
        Preview { org: RUN.0, after, chunk: Arc::new(chunk) }
    }

    #[test]
    fn rows_read_back_in_the_order_of_making() {
        let made = [preview(7, 3, 1, 1), preview(7, 5, 0, 1), preview(7, 3, 1, 2), preview(9, 5, 0, 2)];
        let rows = PreviewRow::pack((1..).zip(&made));
        let sources: Vec<_> = rows.iter().map(|row| (row.source, row.last.seq)).collect();
        assert_eq!(sources, [(Source::Agent, 2), (Source::Task((2, 3)), 2)]);
        assert_eq!(PreviewRow::unpack(RUN, &rows).unwrap(), made);
        for row in &rows {
            let (segment, sequence) = row.source.columns();
            assert_eq!(Source::from_columns(segment, sequence), row.source);
        }
    }

    #[test]
    fn a_source_that_changed_processes_stays_in_order() {
        let first = [preview(9, 3, 1, 1), preview(9, 3, 1, 2), preview(9, 3, 1, 3)];
        let then = [preview(7, 3, 1, 4), preview(9, 3, 1, 5)];
        let mut rows = PreviewRow::pack((1..).zip(&then));
        rows.extend(PreviewRow::pack((10..).zip(&first)));
        assert_eq!(PreviewRow::unpack(RUN, &rows).unwrap(), [&first[..], &then].concat());
    }

    #[test]
    fn large_previews_make_several_rows() {
        let large: Vec<_> = (1..=3).map(|seq| preview(7, 3, 1, seq)).collect();
        let data: Arc<str> = "x".repeat(ROW_BYTES).into();
        let large = large.into_iter().map(|preview| {
            let chunk = Chunk { data: data.clone(), ..(*preview.chunk).clone() };
            Preview { chunk: Arc::new(chunk), ..preview }
        });
        let large: Vec<_> = large.collect();
        let rows = PreviewRow::pack((1..).zip(&large));
        assert_eq!(rows.iter().map(|row| row.last.seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(PreviewRow::unpack(RUN, &rows).unwrap(), large);
    }

    #[test]
    fn nothing_is_missing_where_the_next_preview_or_attempt_begins() {
        let at = |epoch, attempt, seq| Progress { epoch, attempt, seq };
        for (next, follows) in [
            (at(2, 2, 6), true),
            (at(2, 2, 7), false),
            (at(2, 2, 5), false),
            (at(2, 3, 1), true),
            (at(2, 3, 2), false),
            (at(3, 1, 1), true),
            (at(2, 1, 1), false),
            (at(1, 9, 1), false),
        ] {
            assert_eq!(at(2, 2, 5).is_followed_by(next), follows, "{next:?}");
        }
        assert!(Progress::default().is_followed_by(at(0, 1, 1)));
    }

    #[test]
    fn a_row_that_is_not_readable_is_an_error() {
        let row = PreviewRow { source: Source::Agent, last: Progress::default(), data: "{".into() };
        let error = PreviewRow::unpack(RUN, &[row]).unwrap_err().to_string();
        assert!(error.contains("not readable"), "{error}");
    }
}
