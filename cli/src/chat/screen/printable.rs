//! Text of tools as a terminal would show it, without letting it act on the terminal of the chat.

/// Pictures of the control characters, in their order.
const PICTURES: &str = "␀␁␂␃␄␅␆␇␈␉␊␋␌␍␎␏␐␑␒␓␔␕␖␗␘␙␚␛␜␝␞␟";
/// Bytes of each picture.
const PICTURE: usize = 3;

/// What is shown in place of a character that a terminal would obey, or that nobody would see; none for others.
pub(crate) fn shown(letter: &str) -> Option<String> {
    let mut characters = letter.chars();
    let first = characters.next()?;
    match first {
        '\0'..='\u{1f}' => {
            let at = first as usize * PICTURE;
            Some(PICTURES[at..at + PICTURE].to_owned())
        }
        '\u{7f}' => Some("␡".to_owned()),
        _ if first.is_control() || is_hidden(first) => Some(name(first)),
        // The flags of regions are the one use of tags; elsewhere they carry text that nobody sees.
        '\u{1f3f4}' => None,
        _ if characters.clone().any(is_tag) => {
            let rest = characters.map(|letter| if is_tag(letter) { name(letter) } else { letter.to_string() });
            Some(std::iter::once(first.to_string()).chain(rest).collect())
        }
        _ => None,
    }
}

/// Marks that turn the direction of text, and letters without a width that join nothing.
fn is_hidden(letter: char) -> bool {
    matches!(letter, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}') || is_tag(letter)
}

fn is_tag(letter: char) -> bool {
    matches!(letter, '\u{e0000}'..='\u{e007f}')
}

fn name(letter: char) -> String {
    format!("‹U+{:04X}›", u32::from(letter))
}

/// The output of a program as it would stand on a terminal: a carriage return goes back to the beginning of its line, a
/// backspace one letter; colours and other sequences are left out.
pub(crate) fn folded(text: &str) -> String {
    if !text.contains(['\r', '\u{8}', '\u{1b}']) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), "\n"),
            None => (line, ""),
        };
        fold_line(line, &mut out);
        out.push_str(end);
    }
    out
}

fn fold_line(line: &str, out: &mut String) {
    if !line.contains(['\r', '\u{8}', '\u{1b}']) {
        return out.push_str(line);
    }
    let (mut letters, mut at) = (Vec::new(), 0_usize);
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\r' => at = 0,
            '\u{8}' => at = at.saturating_sub(1),
            '\u{1b}' => {
                if let Some((end, clears)) = sequence(rest.as_str()) {
                    rest = rest.as_str()[end..].chars();
                    if clears {
                        letters.truncate(at);
                    }
                } else {
                    put(&mut letters, &mut at, letter);
                }
            }
            letter => put(&mut letters, &mut at, letter),
        }
    }
    out.extend(letters);
}

fn put(letters: &mut Vec<char>, at: &mut usize, letter: char) {
    match letters.get_mut(*at) {
        Some(place) => *place = letter,
        None => letters.push(letter),
    }
    *at += 1;
}

/// Where a sequence behind an escape ends, and whether it clears the rest of the line; none for an escape alone.
fn sequence(rest: &str) -> Option<(usize, bool)> {
    match rest.chars().next()? {
        '[' => {
            let end = rest[1..].find(|letter: char| ('@'..='~').contains(&letter))? + 1;
            let clears = matches!(&rest[1..=end], "K" | "0K" | "2K");
            Some((end + 1, clears))
        }
        ']' => {
            let bell = rest.find('\u{7}').map(|at| at + 1);
            let close = rest.find("\u{1b}\\").map(|at| at + 2);
            Some((bell.into_iter().chain(close).min()?, false))
        }
        '(' | ')' => Some((rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at), false)),
        '=' | '>' | '7' | '8' => Some((1, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_folded_as_on_a_terminal() {
        for (given, expected) in [
            ("one\r\ntwo\r\n", "one\ntwo\n"),
            ("10%\r 50%\r100%\ndone", "100%\ndone"),
            ("abcdef\rxy", "xycdef"),
            ("abcdef\r\u{1b}[Kxy", "xy"),
            ("a\u{8}b", "b"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}text\u{1b}]8;;http://a\u{1b}\\link", "textlink"),
            ("cut \u{1b}[3", "cut \u{1b}[3"),
            ("ü\rö", "ö"),
        ] {
            assert_eq!(folded(given), expected, "{given:?}");
        }
    }

    #[test]
    fn what_would_act_or_hide_is_shown() {
        for (given, expected) in [
            ("\u{1b}", Some("␛")),
            ("\u{7f}", Some("␡")),
            ("\u{9b}", Some("‹U+009B›")),
            ("\u{202e}", Some("‹U+202E›")),
            ("a\u{e0041}", Some("a‹U+E0041›")),
            ("a", None),
            ("e\u{301}", None),
            ("👨‍👩‍👧", None),
        ] {
            assert_eq!(shown(given).as_deref(), expected, "{given:?}");
        }
    }
}
