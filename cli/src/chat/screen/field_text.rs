//! The text that the user writes: its cursor, and pasted text that is shown as one mark and sent whole.

use super::printable::shown;
use super::style::{Row, Span, Style, span};
use crate::chat::cost::grouped;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A paste with more lines or characters is shown as one mark.
const SHOWN_LINES: usize = 10;
const SHOWN_CHARACTERS: usize = 1_000;
/// Letters for private use stand for pastes in the text. They are replaced in what the user writes.
const FIRST_MARK: u32 = 0x10_0000;
const LAST_MARK: u32 = 0x10_fffd;

/// What a mark stands for.
#[derive(Debug)]
struct Paste {
    /// What is sent.
    text: String,
    /// What is shown.
    label: String,
}

/// Text with a cursor.
#[derive(Debug, Default)]
pub(crate) struct WrittenText {
    text: String,
    /// Where the next letter goes, in bytes; always between two letters.
    cursor: usize,
    pastes: Vec<Paste>,
    /// What was cut last.
    cut: String,
}

impl WrittenText {
    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text with all that was pasted.
    pub(crate) fn content(&self) -> String {
        self.whole(&self.text)
    }

    fn whole(&self, text: &str) -> String {
        if self.pastes.is_empty() {
            return text.to_owned();
        }
        let mut whole =
            String::with_capacity(text.len() + self.pastes.iter().map(|paste| paste.text.len()).sum::<usize>());
        for letter in text.chars() {
            match self.paste_of(letter) {
                Some(paste) => whole.push_str(&paste.text),
                None => whole.push(letter),
            }
        }
        whole
    }

    /// Takes the text with all that was pasted, and leaves nothing.
    pub(crate) fn take(&mut self) -> String {
        let content = self.content();
        let cut = std::mem::take(&mut self.cut);
        *self = Self { cut, ..Self::default() };
        content
    }

    /// Replaces the text; the cursor is at its end.
    pub(crate) fn set(&mut self, text: &str) {
        self.take();
        self.paste(text);
    }

    /// What is written before the cursor, and behind it. Pastes are marks in it.
    pub(crate) fn around_cursor(&self) -> (&str, &str) {
        self.text.split_at(self.cursor)
    }

    /// Inserts what was typed.
    pub(crate) fn insert(&mut self, text: &str) {
        let is_mark = |letter: char| (FIRST_MARK..=LAST_MARK).contains(&u32::from(letter));
        let text = if text.contains(is_mark) { text.replace(is_mark, "\u{fffd}") } else { text.to_owned() };
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Inserts what was pasted. Line ends are those of this machine; what is long becomes a mark.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.to_owned() };
        let is_short = text.len() <= SHOWN_CHARACTERS && text.lines().count() <= SHOWN_LINES;
        match is_short {
            true => self.insert(&text),
            false => self.insert_marked(Paste { label: label(&text), text }),
        }
    }

    /// Inserts a word that is shown as a label, apart from what stands around it.
    pub(crate) fn attach(&mut self, text: String, label: String) {
        if !self.text[..self.cursor].is_empty() && !self.text[..self.cursor].ends_with(char::is_whitespace) {
            self.insert(" ");
        }
        self.insert_marked(Paste { text, label });
        if !self.text[self.cursor..].starts_with(char::is_whitespace) {
            self.insert(" ");
        }
    }

    fn insert_marked(&mut self, paste: Paste) {
        let mark = u32::try_from(self.pastes.len()).ok().map(|place| FIRST_MARK + place);
        match mark.filter(|mark| *mark <= LAST_MARK).and_then(char::from_u32) {
            Some(mark) => {
                self.pastes.push(paste);
                self.text.insert(self.cursor, mark);
                self.cursor += mark.len_utf8();
            }
            None => self.insert(&paste.text),
        }
    }

    fn paste_of(&self, letter: char) -> Option<&Paste> {
        let place = u32::from(letter).checked_sub(FIRST_MARK)?;
        self.pastes.get(usize::try_from(place).ok()?)
    }

    /// Replaces the bytes from a place to the cursor.
    pub(crate) fn replace_before(&mut self, start: usize, text: &str) {
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
        self.insert(text);
    }

    fn letter_before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn letter_behind(&self) -> usize {
        self.text[self.cursor..].graphemes(true).next().map_or(self.cursor, |letter| self.cursor + letter.len())
    }

    fn word_before(&self) -> usize {
        let before = &self.text[..self.cursor];
        let words = before.trim_end_matches(|letter: char| !is_word(letter));
        words.rfind(|letter| !is_word(letter)).map_or(0, |at| at + words[at..].chars().next().map_or(0, char::len_utf8))
    }

    fn word_behind(&self) -> usize {
        let behind = &self.text[self.cursor..];
        let start = behind.find(is_word).unwrap_or(behind.len());
        let end = behind[start..].find(|letter| !is_word(letter)).map_or(behind.len(), |end| start + end);
        self.cursor + end
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    /// Moves the cursor.
    pub(crate) fn go(&mut self, to: Motion) {
        self.cursor = self.end_of(to);
    }

    /// Deletes between the cursor and a place; more than a letter can be inserted again.
    pub(crate) fn delete(&mut self, to: Motion) {
        let place = self.end_of(to);
        let range = place.min(self.cursor)..place.max(self.cursor);
        let cut = self.whole(&self.text[range.clone()]);
        self.text.drain(range.clone());
        self.cursor = range.start;
        if !matches!(to, Motion::LetterBefore | Motion::LetterBehind) && !cut.is_empty() {
            self.cut = cut;
        }
    }

    /// Inserts what was deleted last.
    pub(crate) fn insert_cut(&mut self) {
        let cut = std::mem::take(&mut self.cut);
        self.paste(&cut);
        self.cut = cut;
    }

    fn end_of(&self, motion: Motion) -> usize {
        match motion {
            Motion::LetterBefore => self.letter_before(),
            Motion::LetterBehind => self.letter_behind(),
            Motion::WordBefore => self.word_before(),
            Motion::WordBehind => self.word_behind(),
            Motion::LineStart => self.line_start(),
            Motion::LineEnd => self.line_end(),
        }
    }

    /// Moves the cursor to the line above or below, if there is one.
    pub(crate) fn go_line(&mut self, down: bool) -> bool {
        let column = self.text[self.line_start()..self.cursor].graphemes(true).count();
        let start = if down {
            let end = self.line_end();
            if end == self.text.len() {
                return false;
            }
            end + 1
        } else {
            let start = self.line_start();
            if start == 0 {
                return false;
            }
            self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1)
        };
        let line = self.text[start..].split('\n').next().unwrap_or_default();
        self.cursor = start + line.graphemes(true).take(column).map(str::len).sum::<usize>();
        true
    }

    /// The rows of the text, and the position of the cursor in them. Lines are broken where they are full, not between words, so
    /// that letters stay where they are while one writes.
    pub(crate) fn rows(&self, width: usize, first: &[Span], rest: &[Span], max: usize) -> (Vec<Row>, (usize, usize)) {
        let margin = |row: usize| if row == 0 { first } else { rest };
        let columns = |spans: &[Span]| spans.iter().map(|span| span.text.width()).sum::<usize>();
        let mut rows = vec![first.to_vec()];
        let (mut column, mut cursor) = (columns(first), (0, columns(first)));
        let mut letters = self.text.grapheme_indices(true);
        loop {
            let letter = letters.next();
            let (text, style) = match letter {
                None => (String::new(), Style::PLAIN),
                Some((_, "\n")) => (String::new(), Style::PLAIN),
                Some((_, "\t")) => ("    ".to_owned(), Style::PLAIN),
                Some((_, letter)) => match letter.chars().next().and_then(|first| self.paste_of(first)) {
                    Some(paste) => (paste.label.clone(), Style::CYAN),
                    None => (shown(letter).unwrap_or_else(|| letter.to_owned()), Style::PLAIN),
                },
            };
            // The cursor needs a place behind the last letter.
            let wide = text.width();
            if column + wide.max(1) >= width.max(10) && letter.is_none_or(|(_, letter)| letter != "\n") {
                rows.push(rest.to_vec());
                column = columns(rest);
            }
            if letter.map_or(self.text.len(), |(at, _)| at) == self.cursor {
                cursor = (rows.len() - 1, column);
            }
            let Some((_, letter)) = letter else { break };
            if letter == "\n" {
                rows.push(margin(rows.len()).to_vec());
                column = columns(rest);
                continue;
            }
            column += wide;
            let row = rows.last_mut();
            row.into_iter().for_each(|row| {
                match row.last_mut().filter(|last| last.style == style && style == Style::PLAIN) {
                    Some(last) => last.text.push_str(&text),
                    None => row.push(span(&text, style)),
                }
            });
        }
        // Of a text that is higher than its room the part with the cursor is shown.
        let top = (cursor.0 + 1).saturating_sub(max.max(1)).min(rows.len());
        let rows: Vec<_> = rows.into_iter().skip(top).take(max.max(1)).collect();
        (rows, (cursor.0 - top, cursor.1))
    }
}

/// Where the cursor can go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Motion {
    LetterBefore,
    LetterBehind,
    WordBefore,
    WordBehind,
    LineStart,
    LineEnd,
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// What stands for a paste.
fn label(paste: &str) -> String {
    match paste.lines().count() {
        lines @ 2.. => format!("[pasted {} lines]", grouped(lines as u64)),
        _ => format!("[pasted {} characters]", grouped(paste.chars().count() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    fn texts(written: &WrittenText, width: usize) -> Vec<String> {
        let (rows, _) = written.rows(width, &[span("› ", Style::CYAN)], &[span("  ", Style::PLAIN)], 99);
        rows.iter().map(|row| painted(row, false)).collect()
    }

    #[test]
    fn a_long_paste_is_a_mark_and_is_sent_whole() {
        let mut written = WrittenText::default();
        let long: String = (0..3_214).map(|line| format!("line {line}\r\n")).collect();
        written.insert("see ");
        written.paste(&long);
        written.insert("!");
        assert_eq!(texts(&written, 60), ["› see [pasted 3,214 lines]!"]);
        assert_eq!(written.content(), format!("see {}!", long.replace("\r\n", "\n")));
        written.go(Motion::LetterBefore);
        written.delete(Motion::LetterBefore);
        assert_eq!(written.content(), "see !", "a paste is deleted as one letter");
        written.paste("a\r\nb\rc");
        assert_eq!(written.content(), "see a\nb\nc!");
        written.set(&"x".repeat(2_000));
        assert_eq!(texts(&written, 60), ["› [pasted 2,000 characters]"]);
        written.delete(Motion::LineStart);
        written.insert_cut();
        assert_eq!(written.content().len(), 2_000);
    }

    #[test]
    fn a_label_stands_for_a_word_apart() {
        let mut written = WrittenText::default();
        written.insert("see:it");
        (0..2).for_each(|_| written.go(Motion::LetterBefore));
        written.attach("@\"/a b.png\"".into(), "[image, 34 KB]".into());
        assert_eq!(texts(&written, 60), ["› see: [image, 34 KB] it"]);
        assert_eq!(written.content(), "see: @\"/a b.png\" it");
    }

    #[test]
    fn letters_are_what_readers_take_for_them() {
        let mut written = WrittenText::default();
        written.insert("a👨‍👩‍👧e\u{301}日");
        for left in ["a👨‍👩‍👧e\u{301}", "a👨‍👩‍👧", "a", ""] {
            written.delete(Motion::LetterBefore);
            assert_eq!(written.content(), left);
        }
        written.insert("日本語日本語");
        assert_eq!(texts(&written, 10), ["› 日本語", "  日本語"]);
        assert_eq!(written.rows(10, &[span("› ", Style::CYAN)], &[span("  ", Style::PLAIN)], 99).1, (1, 8));
        let (rows, cursor) = written.rows(10, &[span("› ", Style::CYAN)], &[span("  ", Style::PLAIN)], 1);
        assert_eq!((painted(&rows[0], false).as_str(), cursor), ("  日本語", (0, 8)));
    }

    #[test]
    fn the_cursor_goes_by_words_and_lines() {
        let mut written = WrittenText::default();
        written.insert("one two\nthree\nfour five");
        written.go(Motion::WordBefore);
        assert_eq!(written.around_cursor().1, "five");
        assert!(written.go_line(false));
        assert_eq!(written.around_cursor().1, "\nfour five", "the line is shorter");
        assert!(written.go_line(false) && !written.go_line(false));
        assert_eq!(written.around_cursor().0, "one t");
        written.delete(Motion::LineEnd);
        written.go(Motion::LineStart);
        written.go(Motion::WordBehind);
        written.delete(Motion::WordBehind);
        assert_eq!(written.content(), "one\nthree\nfour five");
        assert!(written.go_line(true) && written.go_line(true) && !written.go_line(true));
    }
}
