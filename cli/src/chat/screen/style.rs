//! Rows of styled text: how they are wrapped to a width and written with or without colours.

use super::printable::shown;
use std::borrow::Cow;
use std::fmt::Write;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Columns of a tab.
const TAB: usize = 4;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underline: bool,
    pub strike: bool,
    /// One of the terminal's eight own colours.
    pub colour: Option<u8>,
}

impl Style {
    pub(crate) const PLAIN: Self =
        Self { bold: false, dim: false, italic: false, underline: false, strike: false, colour: None };
    pub(crate) const BOLD: Self = Self { bold: true, ..Self::PLAIN };
    pub(crate) const DIM: Self = Self { dim: true, ..Self::PLAIN };
    pub(crate) const RED: Self = Self { colour: Some(1), ..Self::PLAIN };
    pub(crate) const GREEN: Self = Self { colour: Some(2), ..Self::PLAIN };
    pub(crate) const YELLOW: Self = Self { colour: Some(3), ..Self::PLAIN };
    pub(crate) const CYAN: Self = Self { colour: Some(6), ..Self::PLAIN };
}

/// A piece of text of one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub text: String,
    pub style: Style,
}

/// A row of a terminal.
pub(crate) type Row = Vec<Span>;

/// A piece of text.
pub(crate) fn span(text: impl Into<String>, style: Style) -> Span {
    Span { text: text.into(), style }
}

/// Breaks text into rows of a width, between words where there are some. The first row begins with `first`, the others with
/// `rest`. Characters that a terminal would obey or hide are shown.
pub(crate) fn wrap<'s>(spans: &'s [Span], width: usize, first: &[Span], rest: &[Span]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut lines = vec![Vec::new()];
    for Span { text, style } in spans {
        for letter in text.graphemes(true) {
            let Some(line) = lines.last_mut() else { continue };
            let mut add = |text: Cow<'s, str>| line.push(Letter { width: text.width(), text, style: *style });
            match letter {
                "\n" | "\r\n" => lines.push(Vec::new()),
                "\t" => (0..TAB).for_each(|_| add(" ".into())),
                letter => add(shown(letter).map_or(Cow::Borrowed(letter), Cow::Owned)),
            }
        }
    }
    for line in lines {
        let mut remaining = line.as_slice();
        loop {
            let prefix = if rows.is_empty() { first } else { rest };
            let room = width.saturating_sub(width_of(prefix)).max(8);
            let (row, after) = break_at(remaining, room);
            rows.push(joined(prefix, row));
            remaining = after;
            if remaining.is_empty() {
                break;
            }
        }
    }
    rows
}

/// What a reader takes for one character.
struct Letter<'a> {
    text: Cow<'a, str>,
    width: usize,
    style: Style,
}

/// The letters that fit, and those behind them without the space that the break replaces.
fn break_at<'l, 'a>(letters: &'l [Letter<'a>], room: usize) -> (&'l [Letter<'a>], &'l [Letter<'a>]) {
    let mut used = 0;
    let Some(end) = letters.iter().position(|letter| {
        used += letter.width;
        used > room
    }) else {
        return (letters, &[]);
    };
    let space = letters[..=end].iter().rposition(|letter| letter.text == " ").filter(|place| *place > 0);
    match space {
        Some(place) => (&letters[..place], &letters[place + 1..]),
        None => letters.split_at(end.max(1)),
    }
}

fn joined(prefix: &[Span], letters: &[Letter<'_>]) -> Row {
    let mut row = prefix.to_vec();
    let mut last = None;
    for Letter { text, style, .. } in letters {
        match row.last_mut().filter(|_| last == Some(*style)) {
            Some(span) => span.text.push_str(text),
            None => row.push(span(text.as_ref(), *style)),
        }
        last = Some(*style);
    }
    row
}

/// Columns that a row takes.
pub(crate) fn width_of(row: &[Span]) -> usize {
    row.iter().map(|span| span.text.width()).sum()
}

/// The text of a row for a terminal.
pub(crate) fn painted(row: &[Span], colour: bool) -> String {
    let mut out = String::new();
    for Span { text, style } in row {
        let codes = if colour { codes(*style) } else { String::new() };
        if codes.is_empty() {
            out.push_str(text);
        } else {
            let _ = write!(out, "\u{1b}[{codes}m{text}\u{1b}[0m");
        }
    }
    out
}

fn codes(style: Style) -> String {
    let flags = [(style.bold, 1), (style.dim, 2), (style.italic, 3), (style.underline, 4), (style.strike, 9)];
    let set = flags.iter().filter(|(set, _)| *set).map(|(_, code)| *code);
    let colour = style.colour.map(|colour| 30 + colour);
    set.chain(colour).map(|code: u8| code.to_string()).collect::<Vec<_>>().join(";")
}

/// Text without what would move the cursor of a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| painted(row, false)).collect()
    }

    #[test]
    fn text_is_broken_between_words() {
        let text = [span("one ", Style::PLAIN), span("two", Style::BOLD), span(" three\nfour", Style::PLAIN)];
        let rows = wrap(&text, 12, &[span("- ", Style::DIM)], &[span("  ", Style::PLAIN)]);
        assert_eq!(texts(&rows), ["- one two", "  three", "  four"]);
        assert_eq!(painted(&rows[0], true), "\u{1b}[2m- \u{1b}[0mone \u{1b}[1mtwo\u{1b}[0m");
    }

    #[test]
    fn long_words_wide_letters_and_control_letters_fit() {
        let rows = wrap(&[span("abcdefghijklmnopqrst", Style::PLAIN)], 8, &[], &[]);
        assert_eq!(texts(&rows), ["abcdefgh", "ijklmnop", "qrst"]);
        let rows = wrap(&[span("日本語日本語", Style::PLAIN)], 8, &[], &[]);
        assert_eq!(texts(&rows), ["日本語日", "本語"]);
        assert!(rows.iter().all(|row| width_of(row) <= 8));
        let rows = wrap(&[span("a\u{1b}[2Jb\rc", Style::PLAIN)], 20, &[], &[]);
        assert_eq!(texts(&rows), ["a␛[2Jb␍c"]);
        let family = "👨‍👩‍👧";
        let rows = wrap(&[span(family.repeat(5), Style::PLAIN)], 8, &[], &[]);
        assert_eq!(texts(&rows), [family.repeat(4), family.to_owned()], "no row ends within an emoji");
    }
}
