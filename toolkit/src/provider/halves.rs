//! Halves of surrogate pairs, and bytes that are no UTF-8, in what a model streams.
//!
//! JSON may write a character as two escapes, `\ud83e\udda6`. Some servers cut between the two, or send one of them
//! alone, and JSON with half of a pair cannot be read as text. [`mark`] puts a private character in place of such a
//! half, so that the event can be read, and [`as_text`] does so with bytes. [`Joined`] joins halves that follow each
//! other in a stream, and [`settle`] does the same in a whole text. What stays alone becomes U+FFFD.

use futures::{Stream, StreamExt};
use serde_json::Value;
use std::borrow::Cow;

/// What stands for the half with code `c` is the private character U+100000 + `c`.
const PRIVATE: u32 = 0x10_0000;
/// What stands for bytes that are no UTF-8: a second half, which no first half comes before.
const NO_TEXT: char = '\u{10DCFF}';

/// JSON with a private character in place of each escape that is half of a pair without the other. None if it has no
/// such escape.
pub(super) fn mark(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    let mut found = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let taken = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(high), Some(low)) if is_high(high) && is_low(low) => 12,
            (Some(half), _) if is_high(half) || is_low(half) => {
                out.extend(char::from_u32(PRIVATE + half));
                found = true;
                rest = &escape[6..];
                continue;
            }
            // An escaped backslash is passed over together with its escape.
            _ => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&escape[..taken]);
        rest = &escape[taken..];
    }
    out.push_str(rest);
    found.then_some(out)
}

/// The code unit of an escape `\uNNNN` at the start of a text.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

fn is_high(unit: u32) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low(unit: u32) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

/// The half that a character stands for.
fn half(character: char) -> Option<u32> {
    u32::from(character).checked_sub(PRIVATE).filter(|unit| is_high(*unit) || is_low(*unit))
}

/// Whether a text has a character that stands for half of a pair.
pub(super) fn has_half(text: &str) -> bool {
    text.chars().any(|character| half(character).is_some())
}

/// Whether a text has a half without the other.
pub(super) fn has_lone_half(text: &str) -> bool {
    let mut high = false;
    let lone = text.chars().any(|character| match (std::mem::take(&mut high), half(character)) {
        (true, Some(low)) if is_low(low) && character != NO_TEXT => false,
        (true, _) => true,
        (false, Some(unit)) => {
            high = is_high(unit);
            !high
        }
        (false, None) => false,
    });
    lone || high
}

/// A text with the character for each two halves that follow each other, and U+FFFD for each half that is alone.
pub(super) fn settle(text: &str) -> Cow<'_, str> {
    if !has_half(text) {
        return Cow::Borrowed(text);
    }
    let mut joined = Joined::default();
    let mut settled = joined.more(text);
    settled.extend(joined.end());
    Cow::Owned(settled)
}

/// The same for every text of a JSON value.
pub(super) fn settle_all(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(settled) = settle(text) {
                *text = settled;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_all),
        Value::Object(fields) => fields.values_mut().for_each(settle_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Joins halves across the pieces of a text.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// A first half at the end of the pieces so far.
    high: Option<u32>,
}

impl Joined {
    /// One more piece, as far as it is known.
    pub(super) fn more(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for character in piece.chars() {
            match (self.high.take(), half(character)) {
                (Some(high), Some(low)) if is_low(low) && character != NO_TEXT => {
                    out.extend(char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)));
                }
                (alone, found) => {
                    out.extend(alone.map(|_| char::REPLACEMENT_CHARACTER));
                    match found {
                        Some(high) if is_high(high) => self.high = Some(high),
                        Some(_) => out.push(char::REPLACEMENT_CHARACTER),
                        None => out.push(character),
                    }
                }
            }
        }
        out
    }

    /// Whether the next piece begins in the middle of a character.
    pub(super) fn is_open(&self) -> bool {
        self.high.is_some()
    }

    /// What is left at the end.
    pub(super) fn end(&mut self) -> Option<char> {
        self.high.take().map(|_| char::REPLACEMENT_CHARACTER)
    }
}

/// The same bytes with a private character in place of those that are no UTF-8. A character that is cut by the end of a
/// piece waits for the next one.
pub(super) fn as_text<E>(
    pieces: impl Stream<Item = Result<bytes::Bytes, E>>,
) -> impl Stream<Item = Result<bytes::Bytes, E>> {
    pieces.scan(Vec::new(), |rest, piece| {
        let piece = piece.map(|piece| {
            rest.extend_from_slice(&piece);
            whole(rest)
        });
        std::future::ready(Some(piece))
    })
}

/// Takes what is whole out of the bytes.
fn whole(bytes: &mut Vec<u8>) -> bytes::Bytes {
    let mut out = Vec::with_capacity(bytes.len());
    let mut left = 0;
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        out.extend_from_slice(chunk.valid().as_bytes());
        match chunk.invalid() {
            [] => {}
            // Up to three bytes at the end may be the beginning of a character.
            invalid if chunks.peek().is_none() && begins_a_character(invalid) => left = invalid.len(),
            _ => out.extend_from_slice(NO_TEXT.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes.drain(..bytes.len() - left);
    out.into()
}

fn begins_a_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_joined_or_replaced() {
        let read = |json: &str| serde_json::from_str::<String>(&mark(json).unwrap_or_else(|| json.to_owned()));
        for (json, text) in [
            (r#""plain""#, "plain"),
            (r#""\ud83e\udda6""#, "🦦"),
            (r#""a\ud83eb""#, "a\u{FFFD}b"),
            (r#""\udda6\ud83e""#, "\u{FFFD}\u{FFFD}"),
            (r#""\ud83e\ud83e\udda6""#, "\u{FFFD}🦦"),
            (r#""\\ud83e""#, "\\ud83e"),
            (r#""\\\ud83e\n""#, "\\\u{FFFD}\n"),
            (r#""\ud83eä""#, "\u{FFFD}ä"),
        ] {
            let read = read(json).expect(json);
            assert_eq!(settle(&read), text, "{json}");
            assert_eq!(has_lone_half(&read), text.contains('\u{FFFD}'), "{json}");
        }
        assert_eq!(mark(r#"{"a": "\u00e4\\"}"#), None);
        assert_eq!(mark("\\"), None);
        let pieces = [r#""x\ud83e""#, r#""\udda6y""#, r#""\ud83e""#].map(|json| read(json).expect("a text"));
        let mut joined = Joined::default();
        let texts: Vec<_> = pieces.iter().map(|piece| joined.more(piece)).collect();
        assert_eq!((texts, joined.end()), (vec!["x".to_owned(), "🦦y".to_owned(), String::new()], Some('\u{FFFD}')));
    }

    #[test]
    fn bytes_become_text_wherever_they_are_cut() {
        let text = "Größe 🦦\u{FFFD}".as_bytes();
        let mut broken = text.to_vec();
        broken.splice(3..3, [0xFF, 0xC3]);
        let expected = String::from_utf8_lossy(&broken).into_owned();
        for size in 1..broken.len() {
            let (mut rest, mut out) = (Vec::new(), Vec::new());
            for piece in broken.chunks(size) {
                rest.extend_from_slice(piece);
                out.extend_from_slice(&whole(&mut rest));
            }
            let out = String::from_utf8(out).expect("UTF-8");
            assert!(rest.is_empty() && has_lone_half(&out), "{size}");
            assert_eq!(settle(&out), expected, "{size}");
        }
    }
}
