//! Finds a text in a file: exactly, or else in one place where small differences are ignored.

use std::ops::Range;
use unicode_normalization::char::decompose_compatible;

/// How many near lines are named.
const NEAR_LINES: usize = 3;
/// How alike a line has to be to count as near, from 0 to 1.
const ALIKE: f64 = 0.6;
/// Files with more lines are not searched for near ones.
const MOST_LINES: usize = 20_000;

/// Where a text is.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// At these places, none overlapping another.
    Exact(Vec<Range<usize>>),
    /// Nowhere exactly, and in one place alone when spaces at line ends and the forms of letters, spaces, quotes and dashes
    /// are overlooked.
    Fuzzy(Range<usize>),
    /// Nowhere, or fuzzily in several places. The lines that come nearest to its first, by number.
    Nothing(Vec<(usize, String)>),
}

/// Finds a text in a file's text, both with plain line ends.
pub(super) fn find(text: &str, old: &str) -> Found {
    let exact: Vec<_> = text.match_indices(old).map(|(at, _)| at..at + old.len()).collect();
    if !exact.is_empty() {
        return Found::Exact(exact);
    }
    fuzzy(text, old).map_or_else(|| Found::Nothing(near(text, old)), Found::Fuzzy)
}

/// A text in its common form, and where each of its bytes comes from.
struct Common {
    text: String,
    /// The range of the source that each byte comes from.
    from: Vec<Range<usize>>,
}

impl Common {
    fn of(source: &str) -> Self {
        let mut common = Self { text: String::new(), from: Vec::new() };
        let mut at = 0;
        for line in source.split_inclusive('\n') {
            let body = line.trim_end();
            for (offset, character) in body.char_indices() {
                common.push(character, at + offset..at + offset + character.len_utf8());
            }
            if line.ends_with('\n') {
                let end = at + line.len();
                common.push('\n', end - 1..end);
            }
            at += line.len();
        }
        common
    }

    fn push(&mut self, character: char, from: Range<usize>) {
        let plain = match character {
            '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
            '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            _ if character.is_whitespace() && character != '\n' && character != '\t' => ' ',
            _ => character,
        };
        decompose_compatible(plain, |part| self.text.push(part));
        self.from.resize(self.text.len(), from);
    }

    /// Whether a place of the common text is between two characters of the source.
    fn is_between(&self, place: usize) -> bool {
        place == 0 || place == self.text.len() || self.from[place - 1] != self.from[place]
    }
}

/// The only place where a text is in its common form.
fn fuzzy(text: &str, old: &str) -> Option<Range<usize>> {
    let wanted = Common::of(old).text;
    if wanted.trim().is_empty() {
        return None;
    }
    let common = Common::of(text);
    // Steps by one character, so that two places that overlap count as two.
    let mut places = common.text.char_indices().map(|(at, _)| at).filter(|&at| {
        common.text[at..].starts_with(&wanted) && common.is_between(at) && common.is_between(at + wanted.len())
    });
    let (place, another) = (places.next()?, places.next());
    if another.is_some() {
        return None;
    }
    Some(common.from[place].start..common.from[place + wanted.len() - 1].end)
}

/// The lines that come nearest to a text's first line.
fn near(text: &str, old: &str) -> Vec<(usize, String)> {
    let Some(first) = old.lines().map(str::trim).find(|line| !line.is_empty()) else { return Vec::new() };
    if text.lines().nth(MOST_LINES).is_some() {
        return Vec::new();
    }
    let mut lines: Vec<(f64, usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (strsim::sorensen_dice(line.trim(), first), index + 1, line))
        .filter(|(alike, ..)| *alike >= ALIKE)
        .collect();
    lines.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    lines.truncate(NEAR_LINES);
    lines.sort_by_key(|&(_, number, _)| number);
    lines.into_iter().map(|(_, number, line)| (number, super::super::excerpt::prefix(line, 200).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_places_come_first() {
        assert_eq!(find("aXbX", "X"), Found::Exact(vec![1..2, 3..4]));
        assert_eq!(find("aaaa", "aa"), Found::Exact(vec![0..2, 2..4]));
        // Also where another place would match fuzzily.
        assert_eq!(find("“q” \"q\"", "\"q\""), Found::Exact(std::iter::once(8..11).collect()));
    }

    #[test]
    fn small_differences_are_overlooked_once() {
        for (text, old, expected) in [
            ("say “hi” now", "say \"hi\"", "say “hi”"),
            ("it’s – here", "it's - here", "it’s – here"),
            ("a\u{a0}b", "a b", "a\u{a0}b"),
            ("if x:   \n\ty\n", "if x:\n\ty", "if x:   \n\ty"),
            ("x = 1\ny\n", "x = 1  \ny", "x = 1\ny"),
            ("ﬁle", "file", "ﬁle"),
            ("cafe\u{301}", "café", "cafe\u{301}"),
            ("ｆｕｌｌ", "full", "ｆｕｌｌ"),
        ] {
            let Found::Fuzzy(range) = find(text, old) else { panic!("{old:?} in {text:?}: {:?}", find(text, old)) };
            assert_eq!(&text[range], expected);
        }
    }

    #[test]
    fn two_fuzzy_places_are_none() {
        assert!(matches!(find("“a” “a”", "\"a\""), Found::Nothing(_)));
        assert!(matches!(find("‘’‘’‘", "''"), Found::Nothing(_)), "overlapping places count");
        assert!(matches!(find("ﬁ", "i"), Found::Nothing(_)), "half a letter is no place");
        assert!(matches!(find("a\n\n", "   "), Found::Nothing(_)));
    }

    #[test]
    fn near_lines_are_named() {
        let text = "fn one() {\n    let total = sum(items);\n}\nfn two() {}\n";
        let Found::Nothing(near) = find(text, "let totals = sum(item);") else { panic!("found") };
        assert_eq!(near, [(2, "    let total = sum(items);".to_owned())]);
    }
}
