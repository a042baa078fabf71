//! Captures the output of a command in bounded memory: its beginning and its end, in whole characters.

use crate::tools::excerpt::{HEAD_BYTES, HEAD_LINES, MAX_LINES, TAIL_BYTES, prefix, suffix};
use crate::tools::{Stream, TerminalEvent, TerminalSink};
use std::time::{Duration, Instant};

/// The shortest time between two pieces that are streamed.
const PAUSE: Duration = Duration::from_millis(50);
/// The most that is streamed at once, in bytes; the rest of a flood is only counted.
const BURST: usize = 64 * 1024;
/// How far a line end is looked for where the last output begins.
const SEEK: usize = 2_000;

/// Makes whole characters of bytes that come in pieces.
#[derive(Default)]
pub(super) struct Decoder(Vec<u8>);

impl Decoder {
    /// The characters that are complete; the beginning of another is kept.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.0.len());
        let mut used = 0;
        loop {
            match std::str::from_utf8(&self.0[used..]) {
                Ok(rest) => {
                    text.push_str(rest);
                    used = self.0.len();
                    break;
                }
                Err(error) => {
                    let valid = used + error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.0[used..valid]));
                    used = valid;
                    let Some(length) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    used += length;
                }
            }
        }
        self.0.drain(..used);
        text
    }

    /// The rest at the end: an incomplete character.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

/// The first and the last of a text that may be endless.
#[derive(Default)]
pub(crate) struct Capture {
    head: String,
    head_lines: usize,
    head_is_full: bool,
    tail: String,
    bytes: u64,
    lines: u64,
}

/// The captured output of a command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Captured {
    /// The first and the last of it, with a line between that says what is missing.
    pub text: String,
    /// All that was printed, in bytes.
    pub bytes: u64,
    /// What is missing, in bytes.
    pub missing: u64,
}

impl Capture {
    pub(crate) fn push(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.lines += text.matches('\n').count() as u64;
        let rest = if self.head_is_full { text } else { self.fill_head(text) };
        self.tail.push_str(rest);
        if self.tail.len() > 4 * TAIL_BYTES {
            let tail_length = suffix(&self.tail, TAIL_BYTES).len();
            self.tail.drain(..self.tail.len() - tail_length);
        }
    }

    fn fill_head<'t>(&mut self, text: &'t str) -> &'t str {
        let fitting = prefix(text, HEAD_BYTES - self.head.len());
        let lines = HEAD_LINES - self.head_lines;
        let end = fitting.match_indices('\n').nth(lines - 1).map_or(fitting.len(), |(at, _)| at + 1);
        let (part, rest) = text.split_at(end);
        self.head.push_str(part);
        self.head_lines += part.matches('\n').count();
        self.head_is_full = !rest.is_empty() || self.head_lines == HEAD_LINES;
        rest
    }

    pub(crate) fn finish(&self) -> Captured {
        let all = suffix(&self.tail, TAIL_BYTES);
        let most = MAX_LINES - HEAD_LINES;
        let ends = all.strip_suffix('\n').unwrap_or(all).rmatch_indices('\n').nth(most - 1);
        let mut tail = ends.map_or(all, |(at, _)| &all[at + 1..]);
        let mut missing = self.bytes - (self.head.len() + tail.len()) as u64;
        if missing == 0 {
            return Captured { text: format!("{}{tail}", self.head), bytes: self.bytes, missing };
        }
        if let Some(end) = prefix(tail, SEEK).find('\n').filter(|end| end + 1 < tail.len()) {
            tail = &tail[end + 1..];
            missing = self.bytes - (self.head.len() + tail.len()) as u64;
        }
        let shown = (self.head.matches('\n').count() + tail.matches('\n').count()) as u64;
        let gap = if self.head.ends_with('\n') { "" } else { "\n" };
        let lines = self.lines.saturating_sub(shown);
        let text = format!("{}{gap}[… {missing} bytes in {lines} lines are left out here …]\n{tail}", self.head);
        Captured { text, bytes: self.bytes, missing }
    }
}

/// Streams what is printed, at most every 50 ms.
pub(super) struct Streaming {
    sink: Option<TerminalSink>,
    waiting: Vec<TerminalEvent>,
    size: usize,
    dropped: u64,
    last: Option<Instant>,
}

impl Streaming {
    pub(super) fn new(sink: Option<TerminalSink>) -> Self {
        Self { sink, waiting: Vec::new(), size: 0, dropped: 0, last: None }
    }

    pub(super) fn push(&mut self, stream: Stream, text: &str) {
        if self.sink.is_none() || text.is_empty() {
            return;
        }
        let part = prefix(text, BURST - self.size);
        self.size += part.len();
        self.dropped += (text.len() - part.len()) as u64;
        match self.waiting.last_mut().filter(|last| last.stream == stream) {
            _ if part.is_empty() => {}
            Some(last) => last.data.push_str(part),
            None => self.waiting.push(TerminalEvent { stream, data: part.to_owned() }),
        }
    }

    /// Streams what waits, unless that was done a moment ago.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.last.is_none_or(|last| now.duration_since(last) >= PAUSE) && !self.waiting.is_empty() {
            self.last = Some(now);
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        let Some(sink) = &self.sink else { return };
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0
            && let Some(last) = self.waiting.last_mut()
        {
            last.data.push_str(&format!("\n[… {dropped} bytes are not streamed …]\n"));
        }
        self.size = 0;
        self.waiting.drain(..).for_each(|event| sink(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_never_torn() {
        let text = "aé🦦 ende\n";
        for size in 1..=text.len() {
            let mut decoder = Decoder::default();
            let pieces: Vec<_> = text.as_bytes().chunks(size).map(|piece| decoder.decode(piece)).collect();
            assert_eq!(pieces.concat() + &decoder.finish(), text, "pieces of {size}");
            assert!(!pieces.concat().contains('\u{fffd}'));
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"a\xffb\xf0\x9f"), "a\u{fffd}b");
        assert_eq!(decoder.decode(b"x"), "\u{fffd}x");
        assert_eq!(decoder.decode(b"\xc3"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    fn captured(pieces: impl Iterator<Item = String>) -> Captured {
        let mut capture = Capture::default();
        pieces.for_each(|piece| capture.push(&piece));
        assert!(capture.head.len() + capture.tail.len() <= HEAD_BYTES + 4 * TAIL_BYTES);
        capture.finish()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let lines = (HEAD_BYTES + TAIL_BYTES) / 100;
        let text: String = (0..lines).map(|line| format!("{line:099}\n")).collect();
        for size in [1, 7, 4_096, text.len()] {
            let whole = captured(text.as_bytes().chunks(size).map(|piece| String::from_utf8_lossy(piece).into_owned()));
            assert_eq!((whole.text == text, whole.missing), (true, 0), "pieces of {size}");
        }
        assert_eq!(captured(std::iter::empty()).text, "");
    }

    #[test]
    fn of_a_flood_the_first_and_the_last_are_kept() {
        let flood = captured((0..100_000).map(|line| format!("{line}: 🦦🦦🦦🦦🦦🦦🦦🦦🦦🦦\n")));
        assert!(flood.text.starts_with("0: 🦦") && flood.text.ends_with("99999: 🦦🦦🦦🦦🦦🦦🦦🦦🦦🦦\n"));
        assert!(flood.text.len() <= HEAD_BYTES + TAIL_BYTES + 100, "{}", flood.text.len());
        assert!(!flood.text.contains('\u{fffd}'));
        let note = flood.text.lines().find(|line| line.starts_with("[…")).unwrap();
        assert!(note.contains(&flood.missing.to_string()), "{note}");
        let shown = flood.text.lines().filter(|line| line.contains(": 🦦")).count() as u64;
        // Both ends of the gap may hold a part of a line.
        let left: u64 = note.split(" in ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((100_000 - shown).abs_diff(left) <= 2, "{shown} lines shown, {left} left out");
    }

    #[test]
    fn many_short_lines_are_cut_too() {
        let short = captured((0..10_000).map(|_| "\n".to_owned()));
        assert!(short.text.lines().count() <= MAX_LINES + 1, "{}", short.text.lines().count());
        assert!(short.missing > 0);
        let just = captured((0..MAX_LINES).map(|_| "x\n".to_owned()));
        assert_eq!((just.missing, just.text.lines().count()), (0, MAX_LINES));
    }

    #[test]
    fn a_line_without_end_is_cut_at_characters() {
        let flood = captured((0..100).map(|_| "🦦".repeat(1_000)));
        assert!(flood.missing > 0 && !flood.text.contains('\u{fffd}'));
        assert!(flood.text.len() <= HEAD_BYTES + TAIL_BYTES + 100);
    }

    #[test]
    fn streams_are_told_apart_and_floods_are_cut() {
        let got = std::sync::Arc::new(flovyn_core::sync::Mutex::new(Vec::new()));
        let into = got.clone();
        let mut streaming = Streaming::new(Some(std::sync::Arc::new(move |event| into.lock().push(event))));
        let start = Instant::now();
        streaming.push(Stream::Stdout, "a");
        streaming.tick(start);
        streaming.push(Stream::Stdout, "b");
        streaming.push(Stream::Stdout, "c");
        streaming.push(Stream::Stderr, "d");
        streaming.tick(start + PAUSE / 2);
        assert_eq!(got.lock().len(), 1, "a piece too early");
        streaming.tick(start + PAUSE);
        let event = |stream, data: &str| TerminalEvent { stream, data: data.into() };
        let expected = [event(Stream::Stdout, "a"), event(Stream::Stdout, "bc"), event(Stream::Stderr, "d")];
        assert_eq!(*got.lock(), expected);
        assert_eq!(
            serde_json::to_value(&expected[2]).unwrap(),
            serde_json::json!({"type": "terminal", "stream": "stderr", "data": "d"})
        );
        got.lock().clear();
        (0..100).for_each(|_| streaming.push(Stream::Stdout, &"🦦".repeat(10_000)));
        streaming.flush();
        let all: String = got.lock().iter().map(|event| event.data.clone()).collect();
        assert!(all.len() < BURST + 100 && all.contains("are not streamed"), "{}", all.len());
    }
}
