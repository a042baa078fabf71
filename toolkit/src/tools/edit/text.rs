//! A text file whose byte order mark and line endings stay as they are while models speak of plain lines.

use std::borrow::Cow;
use std::ops::Range;

/// A file's text, and the same with plain line ends.
pub(super) struct FileText<'f> {
    /// With its line ends, without its byte order mark.
    original: &'f str,
    mark: &'f str,
    plain: Cow<'f, str>,
    /// Where a carriage return was left out of the plain text, ascending.
    returns: Vec<usize>,
}

/// A text with plain line ends.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

impl<'f> FileText<'f> {
    pub(super) fn new(content: &'f str) -> Self {
        let (mark, original) =
            content.split_at(if content.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
        let returns = original.match_indices("\r\n").enumerate().map(|(before, (at, _))| at - before).collect();
        Self { original, mark, plain: plain(original), returns }
    }

    /// The text with plain line ends. Ranges are of this text.
    pub(super) fn plain(&self) -> &str {
        &self.plain
    }

    /// The line of a place, from 1.
    pub(super) fn line_of(&self, place: usize) -> usize {
        self.plain[..place].matches('\n').count() + 1
    }

    /// The whole file with other texts in some ranges, which ascend and do not overlap. Each line end of a new text is as the
    /// one that it takes the place of, or else as the one before.
    pub(super) fn spliced<'n>(&self, splices: impl Iterator<Item = (Range<usize>, &'n str)>) -> String {
        let mut whole = String::with_capacity(self.original.len() + self.mark.len());
        whole.push_str(self.mark);
        let mut copied = 0;
        for (range, new) in splices {
            whole.push_str(&self.original[copied..self.in_original(range.start)]);
            let mut ends =
                self.plain[range.clone()].match_indices('\n').map(|(at, _)| self.has_return(range.start + at));
            let mut with_return = self.ending_near(range.start);
            for piece in plain(new).split_inclusive('\n') {
                match piece.strip_suffix('\n') {
                    None => whole.push_str(piece),
                    Some(line) => {
                        with_return = ends.next().unwrap_or(with_return);
                        whole.push_str(line);
                        whole.push_str(if with_return { "\r\n" } else { "\n" });
                    }
                }
            }
            copied = self.in_original(range.end);
        }
        whole.push_str(&self.original[copied..]);
        whole
    }

    fn in_original(&self, place: usize) -> usize {
        place + self.returns.partition_point(|&at| at < place)
    }

    fn has_return(&self, line_end: usize) -> bool {
        self.returns.binary_search(&line_end).is_ok()
    }

    /// The ending of the line at a place; of the line before where it is the last.
    fn ending_near(&self, place: usize) -> bool {
        let end = self.plain[place..].find('\n').map(|at| place + at).or_else(|| self.plain[..place].rfind('\n'));
        end.is_some_and(|end| self.has_return(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(content: &str, old: &str, new: &str) -> String {
        let text = FileText::new(content);
        let at = text.plain().find(old).unwrap();
        text.spliced(std::iter::once((at..at + old.len(), new)))
    }

    #[test]
    fn line_ends_stay_as_they_are() {
        for (content, old, new, expected) in [
            ("a\r\nb\r\nc\r\n", "b\nc", "x\ny", "a\r\nx\r\ny\r\n"),
            ("a\nb\r\nc\n", "a\nb\nc", "1\n2\n3", "1\n2\r\n3\n"),
            ("a\r\nb\nc\r\n", "b", "x\ny", "a\r\nx\ny\nc\r\n"),
            ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
            ("a\r\nb\r\n", "\n", "", "ab\r\n"),
            ("a\r\nb\r\n", "a\n", "a\r\nz\r\n", "a\r\nz\r\nb\r\n"),
            ("\u{feff}a\r\nb", "a", "x", "\u{feff}x\r\nb"),
            ("a\rb\n", "b", "c", "a\rc\n"),
            ("one", "one", "1\n2", "1\n2"),
        ] {
            assert_eq!(replaced(content, old, new), expected, "{content:?}: {old:?} → {new:?}");
        }
    }

    #[test]
    fn lines_are_counted_in_the_plain_text() {
        let text = FileText::new("\u{feff}a\r\nb\r\nc");
        assert_eq!(text.plain(), "a\nb\nc");
        assert_eq!([0, 1, 2, 4].map(|place| text.line_of(place)), [1, 1, 2, 3]);
    }
}
