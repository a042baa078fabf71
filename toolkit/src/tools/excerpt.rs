//! The part of a text that a model is shown: limits on lines and bytes, and cuts between characters.

/// The most lines of one result.
pub const MAX_LINES: usize = 2_000;
/// The most bytes of one result.
pub const MAX_BYTES: usize = 50 * 1024;
/// The longest line that `read` shows, in characters.
pub const READ_LINE: usize = 2_000;
/// The longest line that `grep` shows, in characters.
pub const GREP_LINE: usize = 500;
/// How many of the first bytes of a command's output are kept.
pub const HEAD_BYTES: usize = 10 * 1024;
/// How many of the last bytes of a command's output are kept.
pub const TAIL_BYTES: usize = 40 * 1024;
/// How many of the first lines of a command's output are kept. The last lines get the rest of [`MAX_LINES`].
pub const HEAD_LINES: usize = 400;

/// The longest prefix that has at most `bytes` bytes and ends between two characters.
pub fn prefix(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The longest suffix that has at most `bytes` bytes and starts between two characters.
pub fn suffix(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A line cut to `characters` characters. If something was cut off, the end of the line says how much.
pub fn line(text: &str, characters: usize) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(characters) {
        None => text.into(),
        Some((end, _)) => {
            let all = characters + text[end..].chars().count();
            format!("{} [cut at {characters} of {all} characters]", &text[..end]).into()
        }
    }
}

/// The first whole lines of a text that fit both limits, and whether something was left out.
pub fn head(text: &str, lines: usize, bytes: usize) -> (&str, bool) {
    let end = text.match_indices('\n').nth(lines.saturating_sub(1)).map_or(text.len(), |(at, _)| at + 1);
    if end <= bytes {
        return (&text[..end], end < text.len());
    }
    let fitting = prefix(text, bytes);
    let whole = fitting.rfind('\n').map_or(fitting.len(), |at| at + 1);
    (&fitting[..whole], true)
}

/// A size for people: `312 bytes`, `4.5 KB`, `2.0 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{:.1} KB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_fall_between_characters() {
        let text = "aé🦦z";
        for bytes in 0..=text.len() {
            assert!(prefix(text, bytes).len() <= bytes && suffix(text, bytes).len() <= bytes);
            assert!(text.starts_with(prefix(text, bytes)) && text.ends_with(suffix(text, bytes)));
        }
        assert_eq!((prefix(text, 2), prefix(text, 3), suffix(text, 4), suffix(text, 5)), ("a", "aé", "z", "🦦z"));
        assert_eq!(line("🦦🦦🦦", 2), "🦦🦦 [cut at 2 of 3 characters]");
        assert_eq!(line("🦦🦦", 2), "🦦🦦");
    }

    #[test]
    fn heads_are_whole_lines_under_both_caps() {
        let text = "one\ntwo\nthree\n";
        for (lines, bytes, expected) in [
            (9, 99, (text, false)),
            (3, 14, (text, false)),
            (2, 99, ("one\ntwo\n", true)),
            (9, 13, ("one\ntwo\n", true)),
            (9, 5, ("one\n", true)),
            (9, 2, ("on", true)),
        ] {
            assert_eq!(head(text, lines, bytes), expected, "{lines} lines, {bytes} bytes");
        }
        assert_eq!(head("", 1, 1), ("", false));
    }
}
