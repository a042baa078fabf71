//! Rows of styled text: how they are wrapped to a width and written with or without colours.

use super::printable::shown;
use std::borrow::Cow;
use std::fmt::Write;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that are left for text behind a prefix, however narrow the terminal is.
const LEAST_ROOM: usize = 8;
/// What no row begins with, where it follows a letter of two columns.
const NOT_FIRST: &str = "、。，．！？：；）」』】〉》ーっッ…";
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
    /// Ground and letters change places.
    pub reverse: bool,
    /// One of the terminal's eight own colours.
    pub colour: Option<u8>,
}

impl Style {
    pub(crate) const PLAIN: Self =
        Self { bold: false, dim: false, italic: false, underline: false, strike: false, reverse: false, colour: None };
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
            let mut add = |text: Cow<'s, str>| line.push(Letter { width: room_for(&text), text, style: *style });
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
            let least = if prefix.is_empty() { 1 } else { LEAST_ROOM };
            let room = width.saturating_sub(width_of(prefix)).max(least);
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

/// Writes items one behind the other, with dots between them; a row ends between items, unless one is longer than a row.
pub(crate) fn flow(items: &[Row], width: usize, first: &[Span], rest: &[Span]) -> Vec<Row> {
    const DOT: &str = " · ";
    let mut lines: Vec<Row> = Vec::new();
    for item in items {
        let prefix = if lines.len() > 1 { rest } else { first };
        match lines.last_mut() {
            Some(line) if width_of(prefix) + width_of(line) + DOT.width() + width_of(item) <= width => {
                line.push(span(DOT, Style::PLAIN));
                line.extend_from_slice(item);
            }
            _ => lines.push(item.clone()),
        }
    }
    let wrapped = |(place, line): (usize, &Row)| wrap(line, width, if place == 0 { first } else { rest }, rest);
    lines.iter().enumerate().flat_map(wrapped).collect()
}

/// What a reader takes for one character.
struct Letter<'a> {
    text: Cow<'a, str>,
    width: usize,
    style: Style,
}

/// The columns that a letter may take: many terminals do not join the parts of an emoji.
fn room_for(letter: &str) -> usize {
    letter.width().max(letter.chars().filter_map(UnicodeWidthChar::width).sum())
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
    // An indentation is no place to break: the row would be empty.
    let indent = letters.iter().take_while(|letter| letter.text == " ").count();
    match (indent + 1..=end).rev().find(|place| may_break(letters, *place)) {
        Some(place) if letters[place].text == " " => (&letters[..place], &letters[place + 1..]),
        Some(place) => letters.split_at(place),
        None => letters.split_at(end.max(1)),
    }
}

/// Whether a row may end before a letter: at a space, and on both sides of letters of two columns, which scripts without
/// spaces have.
fn may_break(letters: &[Letter<'_>], place: usize) -> bool {
    let (before, letter) = (&letters[place - 1], &letters[place]);
    let is_wide = before.width > 1 || letter.width > 1;
    letter.text == " " || (is_wide && before.text != " " && !NOT_FIRST.contains(letter.text.as_ref()))
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
    let flags = [
        (style.bold, 1),
        (style.dim, 2),
        (style.italic, 3),
        (style.underline, 4),
        (style.reverse, 7),
        (style.strike, 9),
    ];
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
    fn items_stay_whole() {
        let items = ["y yes", "n no", "a always", "p in this project"].map(|item| vec![span(item, Style::PLAIN)]);
        let (first, rest) = ([span("Now?  ", Style::BOLD)], [span("      ", Style::PLAIN)]);
        assert_eq!(
            texts(&flow(&items, 30, &first, &rest)),
            ["Now?  y yes · n no · a always", "      p in this project"]
        );
        assert_eq!(texts(&flow(&items[3..], 17, &first, &rest)), ["Now?  p in this", "      project"]);
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
        let rows = wrap(&[span("see 日本語、日本語", Style::PLAIN)], 11, &[], &[]);
        assert_eq!(texts(&rows), ["see 日本", "語、日本語"], "a row is filled, and begins with no comma");
        let rows = wrap(&[span("    abcdefghij", Style::PLAIN)], 8, &[], &[]);
        assert_eq!(texts(&rows), ["    abcd", "efghij"], "an indentation is no row");
        let family = "👨‍👩‍👧";
        let rows = wrap(&[span(family.repeat(5), Style::PLAIN)], 8, &[], &[]);
        assert_eq!(texts(&rows), [family; 5], "no row ends within an emoji, nor where its parts have a letter each");
    }
}
