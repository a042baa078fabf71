//! What a reader of a family resumes after, as one text.
//!
//! `17` is a run of whose family nobody else has been told of: its 17th event. `17~40_38.3_2.9e.1` adds that its children
//! are known up to the one with the number 40 in the store, and of those the ones that are still followed: number 38, of
//! which 3 events were given, and number 40, of which 9 were, the last one that of its end (`e`), with children known up
//! to 41. Numbers of runs are told as what they exceed the one before by. Whoever is known and not named has ended, and all
//! of its events were given: so the text is as long as few runs are open, however many have ended.

use crate::error::{Code, Error, Result};
use crate::model::EventId;
use std::fmt::Write as _;

/// How much of one run was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Its number in the store; 0 for the run that is read itself.
    pub birth: u64,
    /// Its last event that was given.
    pub at: u64,
    /// That was its end.
    pub ended: bool,
    /// The highest number of those of its children that are known; 0 where none is.
    pub known: u64,
}

/// The text of a family of which so much was given. The first mark is that of the run which is read, the others follow by
/// their numbers.
pub(super) fn text(top: Mark, others: impl Iterator<Item = Mark>) -> String {
    let mut text = top.at.to_string();
    if top.known == 0 {
        return text;
    }
    // Writing to a text cannot fail.
    let _ = write!(text, "~{}", top.known);
    let mut before = 0;
    for mark in others {
        let end = if mark.ended { "e" } else { "" };
        let _ = write!(text, "_{}.{}{end}", mark.birth - before, mark.at);
        if mark.known > 0 {
            let _ = write!(text, ".{}", mark.known.saturating_sub(mark.birth));
        }
        before = mark.birth;
    }
    text
}

/// Reads it back: the run itself, then the others. An empty text stands for the start, the id of an event for that event.
///
/// Errors: `InvalidArgument` for a text that no stream has given.
pub(super) fn parse(text: &str) -> Result<(Mark, Vec<Mark>)> {
    if text.is_empty() {
        return Ok(Default::default());
    }
    let Some((at, family)) = text.split_once('~') else {
        let id: EventId = text.parse()?;
        return Ok((Mark { at: id.number, ..Mark::default() }, Vec::new()));
    };
    let read = || {
        let mut parts = family.split('_');
        let top = Mark { at: at.parse().ok()?, known: parts.next()?.parse().ok()?, ..Mark::default() };
        let mut before: u64 = 0;
        let mut others = Vec::new();
        for part in parts {
            let mut fields = part.split('.');
            before = before.checked_add(fields.next()?.parse().ok().filter(|more| *more > 0)?)?;
            let at = fields.next()?;
            let known = match fields.next() {
                Some(more) => before.checked_add(more.parse().ok()?)?,
                None => 0,
            };
            let mark =
                Mark { birth: before, at: at.trim_end_matches('e').parse().ok()?, ended: at.ends_with('e'), known };
            others.push(mark);
            if fields.next().is_some() {
                return None;
            }
        }
        Some((top, others))
    };
    read().ok_or_else(|| {
        let message = format!("{text:?} is no cursor; pass the id of an event of this stream");
        Error::new(Code::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back() {
        let top = Mark { at: 17, known: 40, ..Mark::default() };
        let others = vec![
            Mark { birth: 38, at: 3, ..Mark::default() },
            Mark { birth: 40, at: 9, ended: true, known: 41 },
            Mark { birth: 41, ..Mark::default() },
        ];
        let told = text(top, others.iter().copied());
        assert_eq!(told, "17~40_38.3_2.9e.1_1.0");
        assert_eq!(parse(&told).unwrap(), (top, others));
        let alone = Mark { at: 17, ..Mark::default() };
        assert_eq!(text(alone, std::iter::empty()), "17");
        assert_eq!(parse("17").unwrap(), (alone, Vec::new()));
        assert_eq!(parse("17.3").unwrap(), (alone, Vec::new()), "an id of an earlier version");
        assert_eq!(parse("").unwrap(), Default::default());
    }

    #[test]
    fn what_no_stream_gave_is_refused() {
        for wrong in ["x", "~", "1~", "1~2_", "1~2_0.1", "1~2_1", "1~2_1.x", "1~2_1.1.1.1", "1~2_-1.1", "1~2_1.e"] {
            assert_eq!(parse(wrong).unwrap_err().code(), Code::InvalidArgument, "{wrong}");
        }
        assert!(parse(&format!("1~2_{}.1_1.1", u64::MAX)).is_err());
    }
}
