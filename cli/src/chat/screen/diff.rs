//! Changes of files: unified diffs with the numbers of their lines, in which what has changed inside of a line stands out.

use super::style::{Row, Span, Style, span, wrap};
use serde_json::Value;
use std::collections::VecDeque;
use unicode_segmentation::UnicodeSegmentation;

/// Lines that have less than this part in common, in percent, are other lines: nothing in them stands out.
const LEAST_ALIKE: usize = 40;

/// The diffs of several files, as git writes them.
pub(crate) fn files(text: &str, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    // A line of a file may say the same behind its sign.
    let text = text.strip_prefix("diff --git ").unwrap_or(text);
    for part in text.split("\ndiff --git ").filter(|part| !part.trim().is_empty()) {
        let (head, diff) = part.split_once('\n').unwrap_or((part, ""));
        let name = head.rsplit_once(" b/").map_or(head, |(_, name)| name);
        let mut line = vec![span(name, Style::BOLD)];
        line.extend(counted(diff));
        rows.extend(wrap(&line, width, &[], &[]));
        rows.extend(changes(diff, width));
        rows.push(Row::new());
    }
    rows
}

/// How many lines a diff adds and removes, where it does.
pub(crate) fn counted(diff: &str) -> impl Iterator<Item = Span> {
    let (mut added, mut removed, mut is_inside) = (0, 0, false);
    for line in diff.lines() {
        is_inside |= line.starts_with("@@");
        added += usize::from(is_inside && line.starts_with('+'));
        removed += usize::from(is_inside && line.starts_with('-'));
    }
    let counts = [(added, '+', Style::GREEN), (removed, '-', Style::RED)];
    let some = counts.into_iter().filter(|(count, ..)| *count > 0);
    std::iter::once(span(" ", Style::PLAIN))
        .chain(some.map(|(count, sign, style)| span(format!(" {sign}{count}"), style)))
}

/// A changed line whose partner is not known yet.
struct Changed<'a> {
    number: usize,
    text: &'a str,
}

/// The changed lines of a unified diff with their numbers: removed ones by the old text, others by the new one.
pub(crate) fn changes(diff: &str, width: usize) -> Vec<Row> {
    let numbers = |line: &str| {
        let mut sides = line.strip_prefix("@@ -")?.split(" @@").next()?.split(" +");
        let mut start = || sides.next()?.split(',').next()?.parse::<usize>().ok();
        Some((start()?, start()?))
    };
    let largest = diff.lines().filter_map(numbers).map(|(old, new)| old.max(new) + 99).max().unwrap_or(0);
    let mut page = Page { width, digits: largest.to_string().len(), ..Page::default() };
    let (mut old, mut new) = (0, 0);
    for line in diff.lines() {
        if let Some(start) = numbers(line) {
            page.settle();
            if old > 0 || new > 0 {
                page.rows.push(page.margin("⋮").to_vec());
            }
            (old, new) = start;
            continue;
        }
        // What stands before the first part names the file.
        if old == 0 && new == 0 {
            continue;
        }
        match (line.chars().next(), line.get(1..).unwrap_or_default()) {
            (Some('-'), text) => {
                // Removed lines behind added ones belong to another change.
                if !page.added.is_empty() {
                    page.settle();
                }
                page.removed.push_back(Changed { number: old, text });
                old += 1;
            }
            (Some('+'), text) => {
                page.added.push_back(Changed { number: new, text });
                new += 1;
            }
            (Some(' '), text) => {
                page.settle();
                page.add(&new.to_string(), &[span(format!("  {text}"), Style::DIM)]);
                (old, new) = (old + 1, new + 1);
            }
            _ => {
                page.settle();
                page.add("", &[span(line, Style::DIM)]);
            }
        }
    }
    page.settle();
    page.rows
}

#[derive(Default)]
struct Page<'a> {
    width: usize,
    /// Columns of the numbers.
    digits: usize,
    rows: Vec<Row>,
    removed: VecDeque<Changed<'a>>,
    added: VecDeque<Changed<'a>>,
}

impl Page<'_> {
    fn margin(&self, number: &str) -> [Span; 2] {
        [span("  │ ", Style::DIM), span(format!("{number:>width$} ", width = self.digits), Style::DIM)]
    }

    fn add(&mut self, number: &str, line: &[Span]) {
        self.rows.extend(wrap(line, self.width, &self.margin(number), &self.margin("")));
    }

    /// Writes the lines of a change. Where as many were added as removed, each has a partner.
    fn settle(&mut self) {
        let (removed, added) = (std::mem::take(&mut self.removed), std::mem::take(&mut self.added));
        let has_partners = removed.len() == added.len();
        let common: Vec<_> = match has_partners {
            true => removed.iter().zip(&added).map(|(old, new)| common(old.text, new.text)).collect(),
            false => Vec::new(),
        };
        for (lines, sign, style) in [(removed, "- ", Style::RED), (added, "+ ", Style::GREEN)] {
            for (place, Changed { number, text }) in lines.into_iter().enumerate() {
                let mut line = vec![span(sign, style)];
                match common.get(place).copied().flatten() {
                    Some((start, end)) => line.extend([
                        span(&text[..start], style),
                        span(&text[start..text.len() - end], Style { reverse: true, ..style }),
                        span(&text[text.len() - end..], style),
                    ]),
                    None => line.push(span(text, style)),
                }
                self.add(&number.to_string(), &line);
            }
        }
    }
}

/// The bytes at the beginning and at the end that two lines have in common, at the borders of words; none where the lines
/// are not alike.
fn common(old: &str, new: &str) -> Option<(usize, usize)> {
    let same = |(old, new): &(&str, &str)| old == new;
    let length = |(word, _): (&str, &str)| word.len();
    let start: usize = words(old).into_iter().zip(words(new)).take_while(same).map(length).sum();
    let ends = words(&old[start..]).into_iter().rev().zip(words(&new[start..]).into_iter().rev());
    let end: usize = ends.take_while(same).map(length).sum();
    // The indentation of a line says nothing about what it is.
    let indent = old.len() - old.trim_start().len();
    let (alike, longer) = ((start + end).saturating_sub(indent), old.len().max(new.len()).saturating_sub(indent));
    (old != new && alike * 100 >= longer * LEAST_ALIKE).then_some((start, end))
}

/// The words of a line of code, and each other letter by itself.
fn words(line: &str) -> Vec<&str> {
    let is_word = |letter: &str| letter.starts_with(|first: char| first.is_alphanumeric() || first == '_');
    let (mut words, mut start, mut before) = (Vec::new(), 0, false);
    for (at, letter) in line.grapheme_indices(true) {
        if at > 0 && !(before && is_word(letter)) {
            words.push(&line[start..at]);
            start = at;
        }
        before = is_word(letter);
    }
    words.push(&line[start..]);
    words
}

/// The change of a call as the model wrote it, without the lines around it.
pub(crate) fn written_changes(arguments: &Value, width: usize) -> Vec<Row> {
    let margin = [span("  │ ", Style::DIM)];
    let replacements = std::iter::once(arguments).chain(arguments["edits"].as_array().into_iter().flatten());
    let lines = replacements.flat_map(|change| {
        let text = |name: &str| change[name].as_str();
        [
            (text("old_string"), '-', Style::RED),
            (text("new_string"), '+', Style::GREEN),
            (text("content"), '+', Style::GREEN),
        ]
    });
    lines
        .filter_map(|(text, sign, style)| Some((text?, sign, style)))
        .flat_map(|(text, sign, style)| text.lines().map(move |line| (format!("{sign} {line}"), style)))
        .flat_map(|(line, style)| wrap(&[span(line.trim_end(), style)], width, &margin, &margin))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    /// What stands out in each line.
    fn marked(diff: &str) -> Vec<String> {
        let marked = |row: &Row| row.iter().filter(|span| span.style.reverse).map(|span| span.text.clone()).collect();
        changes(diff, 60).iter().map(marked).collect()
    }

    #[test]
    fn what_has_changed_in_a_line_stands_out() {
        let diff = "@@ -1,2 +1,2 @@\n-    let size = input.len();\n-    two\n+    let size = input.chars().count();\n+    two!\n";
        assert_eq!(marked(diff), ["len", "", "chars().count", "!"]);
        assert_eq!(marked("@@ -1 +1 @@\n-    return a;\n+    loop { b() }\n"), ["", ""], "another line");
        assert_eq!(marked("@@ -1 +1,2 @@\n-one two three\n+one two\n+three\n"), ["", "", ""], "no partners");
        assert_eq!(marked("@@ -1 +1 @@\n-das ist größer 日本\n+das ist größer 日本語\n").len(), 2);
    }

    #[test]
    fn a_diff_says_how_much_it_changes() {
        let text = "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1 @@\n-a\n-b\n+c\n";
        let rows = |text: &str| files(text, 40).iter().map(|row| painted(row, false)).collect::<Vec<_>>();
        let expected = ["x.rs  +1 -2", "  │   1 - a", "  │   2 - b", "  │   1 + c", ""];
        assert_eq!(rows(text), expected);
        let other = "diff --git a/y.md b/y.md\n--- a/y.md\n+++ b/y.md\n@@ -1 +1,2 @@\n a\n+diff --git a/b c/d\n";
        let both = [&expected[..], &["y.md  +1", "  │   1   a", "  │   2 + diff --git a/b c/d", ""]].concat();
        assert_eq!(rows(&format!("{text}{other}")), both, "what a file says is no other file");
    }
}
