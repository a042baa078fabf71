//! Patterns of signal names: `*` matches one or more characters except dots, `**` one or more of any; all else matches itself.

/// A piece of a pattern.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Char(char),
    /// One or more characters except dots.
    Star,
    /// One or more characters.
    Stars,
}

/// Whether a pattern matches a whole name.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // Which prefixes of the name the pieces so far match.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for piece in pieces(pattern) {
        let mut next = vec![false; name.len() + 1];
        for (at, &here) in name.iter().enumerate() {
            next[at + 1] = match piece {
                Piece::Char(char) => reached[at] && here == char,
                Piece::Star => (reached[at] || next[at]) && here != '.',
                Piece::Stars => reached[at] || next[at],
            };
        }
        reached = next;
    }
    reached[name.len()]
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        pieces.push(match char {
            '*' if chars.next_if_eq(&'*').is_some() => Piece::Stars,
            '*' => Piece::Star,
            char => Piece::Char(char),
        });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stop_at_dots_and_double_stars_do_not() {
        for (pattern, yes, no) in [
            ("child.*", &["child.a", "child.result"][..], &["child.", "child", "child.a.b", "a.child.b"][..]),
            ("child:*", &["child:a"], &["child:", "child:a.b"]),
            ("child.**", &["child.a", "child.a.b"], &["child.", "child"]),
            ("*.done", &["a.done"], &[".done", "a.b.done", "done"]),
            ("a*c*e", &["abcde", "abbcdde"], &["ace", "ab.cde"]),
            ("**", &["a", "a.b"], &[""]),
            ("a.c", &["a.c"], &["abc", "a.cd"]),
            ("a?[b]", &["a?[b]"], &["axb"]),
            ("", &[""], &["a"]),
            ("ä*", &["äö"], &["ä"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!matches(&"**a".repeat(50), &"b".repeat(5_000)));
    }
}
