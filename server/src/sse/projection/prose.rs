//! What an op writes before its result is durable, and how it is reconciled with the entry that is.

use super::part::{Piece, Prose, TurnPart};
use flovyn_core::id::ExecutionId;
use flovyn_core::model::Chunk;
use std::cmp::Ordering;

/// An op of a run, or of one that has its work after it.
pub(super) type OpKey = (ExecutionId, (u32, u32));

/// The pieces that one op writes. Pieces of one kind that follow each other are one.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) op: OpKey,
    /// Its place among what is written in the turn.
    pub(super) place: usize,
    /// Whether its task has ended, so that its entry is next.
    pub(super) is_done: bool,
    attempt: (u64, u32),
    seq: u64,
    segments: Vec<Segment>,
    /// Whether something else came in between, so that what follows is a piece of its own.
    is_cut: bool,
}

#[derive(Debug)]
struct Segment {
    prose: Prose,
    text: String,
    is_open: bool,
}

/// How a chunk stands to what is known of its op.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It goes on with it.
    Next,
    /// It is known, or of an attempt that is over.
    Known,
    /// It is of a later attempt: what is known is void.
    Anew,
}

impl Draft {
    /// A draft of an op, in a place of a turn.
    pub(super) fn new(op: OpKey, place: usize) -> Self {
        Self { op, place, is_done: false, attempt: (0, 0), seq: 0, segments: Vec::new(), is_cut: false }
    }

    /// Compares a chunk of its op with what it has.
    pub(super) fn standing(&self, chunk: &Chunk) -> Standing {
        match (chunk.epoch, chunk.attempt).cmp(&self.attempt) {
            Ordering::Less => Standing::Known,
            Ordering::Greater if self.segments.is_empty() => Standing::Next,
            Ordering::Greater => Standing::Anew,
            Ordering::Equal if chunk.seq <= self.seq => Standing::Known,
            Ordering::Equal => Standing::Next,
        }
    }

    /// Notes that it has a chunk.
    pub(super) fn advance(&mut self, chunk: &Chunk) {
        (self.attempt, self.seq) = ((chunk.epoch, chunk.attempt), chunk.seq);
    }

    /// Ends the piece that is written, because something else comes.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Adds text to it.
    pub(super) fn write(&mut self, turn: &str, prose: Prose, text: &str, parts: &mut Vec<TurnPart>) {
        if text.is_empty() {
            return;
        }
        let goes_on = self.segments.last().is_some_and(|last| last.prose == prose && !self.is_cut);
        self.is_cut = false;
        if !goes_on {
            self.close_thought(turn, parts);
            parts.push(TurnPart::Opened(self.piece(turn, self.segments.len(), prose)));
            self.segments.push(Segment { prose, text: String::new(), is_open: true });
        }
        parts.push(TurnPart::Grew(self.piece(turn, self.segments.len() - 1, prose), text.to_owned()));
        if let Some(last) = self.segments.last_mut() {
            last.text.push_str(text);
        }
    }

    /// Brings it in accord with what is durable. What it lacks is added; if it says something else it is void, and all is said
    /// anew. `is_all` says whether nothing else is in its step.
    pub(super) fn settle(&mut self, turn: &str, written: &[(Prose, String)], is_all: bool, parts: &mut Vec<TurnPart>) {
        if !self.begins(written) {
            parts.push(TurnPart::Voided { pieces: self.empty(turn), is_all });
        }
        let (last, known) = (self.segments.len().saturating_sub(1), self.segments.len());
        for (index, (prose, text)) in written.iter().enumerate().skip(last) {
            let has = if index < known { self.segments[index].text.len() } else { 0 };
            if index >= known {
                self.cut();
            }
            self.write(turn, *prose, &text[has..], parts);
        }
        self.close(turn, parts);
    }

    /// Ends all of its pieces.
    pub(super) fn close(&mut self, turn: &str, parts: &mut Vec<TurnPart>) {
        for index in 0..self.segments.len() {
            self.close_segment(turn, index, parts);
        }
    }

    /// Takes out its pieces, each with whether it is open.
    pub(super) fn empty(&mut self, turn: &str) -> Vec<(Piece, bool)> {
        let segments = std::mem::take(&mut self.segments);
        self.is_cut = false;
        let piece = |(index, segment): (usize, Segment)| (self.piece(turn, index, segment.prose), segment.is_open);
        segments.into_iter().enumerate().map(piece).collect()
    }

    /// Whether it has written nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The piece that a call belongs to: the last text, or one that stands for it.
    pub(super) fn piece_of_calls(&self, turn: &str) -> String {
        match self.segments.iter().rposition(|segment| segment.prose == Prose::Text) {
            Some(index) => self.piece(turn, index, Prose::Text).id,
            None => format!("{turn}-{}", self.place),
        }
    }

    /// Whether it is the beginning of what is durable.
    pub(super) fn begins(&self, written: &[(Prose, String)]) -> bool {
        let last = self.segments.len().saturating_sub(1);
        self.segments.len() <= written.len()
            && self.segments.iter().zip(written).enumerate().all(|(index, (segment, (prose, text)))| {
                let same = if index == last { text.starts_with(&segment.text) } else { *text == segment.text };
                segment.prose == *prose && same
            })
    }

    /// A thought is over as soon as something follows it; a text stays open, because it may still be void.
    fn close_thought(&mut self, turn: &str, parts: &mut Vec<TurnPart>) {
        let last = self.segments.len().wrapping_sub(1);
        if self.segments.get(last).is_some_and(|segment| segment.prose == Prose::Thinking) {
            self.close_segment(turn, last, parts);
        }
    }

    fn close_segment(&mut self, turn: &str, index: usize, parts: &mut Vec<TurnPart>) {
        if std::mem::take(&mut self.segments[index].is_open) {
            parts.push(TurnPart::Closed(self.piece(turn, index, self.segments[index].prose)));
        }
    }

    fn piece(&self, turn: &str, index: usize, prose: Prose) -> Piece {
        Piece { id: format!("{turn}-{}-{index}", self.place), prose }
    }
}
