//! Colours of code: words, texts, numbers and comments of one line, for the languages that people paste most. A line is looked at by
//! itself, so what goes on over several lines is coloured only where it begins.

use super::style::{Span, Style, span};

/// How a language writes what is coloured.
struct Family {
    languages: &'static [&'static str],
    comment: &'static str,
    /// The marks around texts.
    quotes: &'static str,
}

const FAMILIES: &[Family] = &[
    Family { languages: &["rust", "rs"], comment: "//", quotes: "\"" },
    Family {
        languages: &[
            "c",
            "cpp",
            "c++",
            "cs",
            "csharp",
            "dart",
            "go",
            "java",
            "javascript",
            "js",
            "jsx",
            "kotlin",
            "kt",
            "php",
            "proto",
            "scala",
            "swift",
            "ts",
            "tsx",
            "typescript",
            "zig",
        ],
        comment: "//",
        quotes: "\"'`",
    },
    Family {
        languages: &[
            "bash",
            "dockerfile",
            "elixir",
            "make",
            "makefile",
            "perl",
            "py",
            "python",
            "r",
            "rb",
            "ruby",
            "sh",
            "shell",
            "toml",
            "yaml",
            "yml",
            "zsh",
        ],
        comment: "#",
        quotes: "\"'",
    },
    Family { languages: &["haskell", "hs", "lua", "sql"], comment: "--", quotes: "\"'" },
    Family { languages: &["json", "jsonc"], comment: "//", quotes: "\"" },
];

const WORDS: &[&str] = &[
    "abstract",
    "and",
    "as",
    "async",
    "await",
    "begin",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "def",
    "default",
    "defer",
    "del",
    "delete",
    "do",
    "done",
    "elif",
    "else",
    "end",
    "enum",
    "esac",
    "except",
    "export",
    "extends",
    "extern",
    "false",
    "fi",
    "final",
    "finally",
    "fn",
    "for",
    "from",
    "func",
    "function",
    "go",
    "goto",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "is",
    "lambda",
    "let",
    "local",
    "loop",
    "match",
    "mod",
    "module",
    "mut",
    "new",
    "nil",
    "none",
    "not",
    "null",
    "or",
    "package",
    "pass",
    "private",
    "protected",
    "pub",
    "public",
    "raise",
    "return",
    "select",
    "self",
    "static",
    "struct",
    "super",
    "switch",
    "then",
    "this",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "unsafe",
    "use",
    "using",
    "var",
    "void",
    "where",
    "while",
    "with",
    "yield",
    "update",
    "insert",
    "into",
    "values",
    "create",
    "table",
    "join",
    "group",
    "order",
    "by",
    "set",
];

const WORD: Style = Style { colour: Some(5), ..Style::PLAIN };
const NUMBER: Style = Style::YELLOW;
const TEXT: Style = Style::GREEN;
const COMMENT: Style = Style { italic: true, ..Style::DIM };

/// A line of code in its colours. A language that is not known has one colour.
pub(crate) fn spans(line: &str, language: &str) -> Vec<Span> {
    let language = language.split([' ', ',', '{']).next().unwrap_or_default().to_lowercase();
    if matches!(language.as_str(), "diff" | "patch") {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::GREEN,
            Some(b'-') => Style::RED,
            _ => Style::DIM,
        };
        return vec![span(line, style)];
    }
    let Some(family) = FAMILIES.iter().find(|family| family.languages.contains(&language.as_str())) else {
        return vec![span(line, Style::CYAN)];
    };
    let mut spans: Vec<Span> = Vec::new();
    let mut add = |text: &str, style| match spans.last_mut().filter(|last| last.style == style) {
        Some(last) => last.text.push_str(text),
        None => spans.push(span(text, style)),
    };
    let mut rest = line;
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        // A comment mark of one letter begins one only behind a space: `$#` and `a#b` are none.
        let is_comment =
            rest.starts_with(family.comment) && (family.comment.len() > 1 || before == ' ' || before == '\t');
        let (end, style) = if is_comment {
            (rest.len(), COMMENT)
        } else if family.quotes.contains(letter) {
            (closing(rest, letter), TEXT)
        } else if letter.is_ascii_digit() && !before.is_alphanumeric() && before != '_' {
            let is_number = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
            (rest.find(|letter| !is_number(letter)).unwrap_or(rest.len()), NUMBER)
        } else if letter.is_alphabetic() || letter == '_' {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let word = &rest[..end];
            let is_word =
                WORDS.contains(&word) || (family.comment == "--" && WORDS.contains(&word.to_lowercase().as_str()));
            (end, if is_word { WORD } else { Style::PLAIN })
        } else {
            (letter.len_utf8(), Style::PLAIN)
        };
        add(&rest[..end], style);
        before = rest[..end].chars().next_back().unwrap_or(' ');
        rest = &rest[end..];
    }
    spans
}

/// Where a text ends that begins with a mark: behind the same mark, else at the end of the line.
fn closing(rest: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if letter == mark && !is_escaped {
            return at + letter.len_utf8();
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coloured(line: &str, language: &str) -> Vec<(String, Style)> {
        let plain = |span: &Span| span.style == Style::PLAIN;
        spans(line, language).into_iter().filter(|span| !plain(span)).map(|span| (span.text, span.style)).collect()
    }

    #[test]
    fn words_texts_numbers_and_comments_have_colours() {
        let piece = |text: &str, style| (text.to_owned(), style);
        let line = "let a = \"b \\\" // c\" + 0x1f; // if 日本";
        let expected =
            [piece("let", WORD), piece("\"b \\\" // c\"", TEXT), piece("0x1f", NUMBER), piece("// if 日本", COMMENT)];
        assert_eq!(coloured(line, "rust"), expected);
        assert_eq!(coloured("fn a<'a>(x1: &'a str)", "rs"), [piece("fn", WORD)], "a lifetime is no text");
        assert_eq!(coloured("echo $# '# no' # yes", "sh"), [piece("'# no'", TEXT), piece("# yes", COMMENT)]);
        assert_eq!(
            coloured("SELECT 1 -- one", "SQL"),
            [piece("SELECT", WORD), piece("1", NUMBER), piece("-- one", COMMENT)]
        );
        assert_eq!(coloured("anything", "brainfuck"), [piece("anything", Style::CYAN)]);
        for line in ["", "\"", "'ü", "#"] {
            let whole: String = spans(line, "python").into_iter().map(|span| span.text).collect();
            assert_eq!(whole, line, "nothing is lost");
        }
    }
}
