//! What a model is shown of a response: the text of a page, a text as it is, an image, or a line about other bytes.

use crate::message::Part;
use crate::tools::image;
use encoding_rs::{Encoding, UTF_8};

/// How wide a page is set, in characters.
const WIDTH: usize = 120;
/// In how many of the first bytes a page may say how its text is encoded.
const DECLARATION: usize = 1_024;

/// How deep elements may be in each other.
const DEEPEST: usize = 256;
/// Elements that hold nothing, or whose end may be left out: they say nothing about the depth.
const LEVEL: [&str; 26] = [
    "area", "base", "body", "br", "col", "colgroup", "dd", "dt", "embed", "head", "hr", "html", "img", "input", "li",
    "link", "meta", "option", "p", "source", "tbody", "td", "th", "thead", "tr", "wbr",
];

/// The part for the body of a response. `raw` shows a page as its HTML.
pub(super) fn part(content_type: &str, body: &[u8], raw: bool) -> Part {
    let mime = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let begin = String::from_utf8_lossy(&body[..body.len().min(DECLARATION)]).to_ascii_lowercase();
    let is_page = match mime.as_str() {
        "text/html" | "application/xhtml+xml" => true,
        "" => begin.trim_start().starts_with("<!doctype html") || begin.trim_start().starts_with("<html"),
        _ => false,
    };
    let is_text = is_page
        || mime.starts_with("text/")
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || matches!(
            mime.as_str(),
            "application/json" | "application/xml" | "application/javascript" | "application/yaml"
        );
    if !is_text {
        return image::part_of_bytes(body);
    }
    let declared = charset(&content_type.to_ascii_lowercase()).or_else(|| charset(&begin).filter(|_| is_page));
    let text = declared.unwrap_or(UTF_8).decode(body).0;
    Part::text(match is_page && !raw {
        true => text_of_page(&text).unwrap_or_else(|| without_tags(&text)),
        false => text.into_owned(),
    })
}

/// The encoding that a text names after `charset=`.
fn charset(text: &str) -> Option<&'static Encoding> {
    let named = text.split("charset=").nth(1)?.trim_start_matches(['"', '\'', ' ']);
    let end = named.find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_:".contains(letter)));
    Encoding::for_label(&named.as_bytes()[..end.unwrap_or(named.len())])
}

/// The text of a page, with marks for headings and lists, and its links as footnotes. None if it cannot be set.
fn text_of_page(html: &str) -> Option<String> {
    if is_too_deep(html) {
        return None;
    }
    let text = html2text::config::plain().no_link_wrapping().string_from_read(html.as_bytes(), WIDTH).ok()?;
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim_end) {
        // Empty elements leave many empty lines, of which one is enough.
        if !line.is_empty() || lines.last().is_some_and(|last: &&str| !last.is_empty()) {
            lines.push(line);
        }
    }
    Some(lines.join("\n"))
}

/// Whether elements are so deep in each other that setting the page would take minutes. People write no such pages.
fn is_too_deep(html: &str) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0);
    for tag in html.split('<').skip(1) {
        let is_end = tag.starts_with('/');
        let name = tag.trim_start_matches('/').split(|letter: char| !letter.is_ascii_alphanumeric()).next();
        let name = name.unwrap_or_default().to_ascii_lowercase();
        if name.is_empty() || LEVEL.contains(&name.as_str()) {
            continue;
        }
        depth = if is_end { depth.saturating_sub(1) } else { depth + 1 };
        deepest = deepest.max(depth);
    }
    deepest > DEEPEST
}

/// A page without its tags.
fn without_tags(html: &str) -> String {
    let after_tags = html.split('<').skip(1).filter_map(|tag| Some(tag.split_once('>')?.1.trim()));
    let first = html.split('<').next().map(str::trim);
    first.into_iter().chain(after_tags).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content_type: &str, body: &[u8]) -> String {
        part(content_type, body, false).as_text().unwrap_or("(an image)").to_owned()
    }

    #[test]
    fn a_page_becomes_text() {
        let page = "<html><head><title>T</title><style>b{}</style></head><body><script>alert(1)</script><h1>Otters</h1>\
                    <p>They <b>hold</b> <a href=\"https://a.b/c\">hands</a>.</p><ul><li>one<li>two</ul>\
                    <pre>a  b\n c</pre><div></div><div></div></body></html>";
        let shown = text("text/html; charset=utf-8", page.as_bytes());
        assert!(
            shown.starts_with("# Otters\n") && shown.contains("[hands][1].") && shown.contains("* one\n* two"),
            "{shown}"
        );
        assert!(shown.contains("a  b\n c") && shown.contains("[1]: https://a.b/c"), "{shown}");
        assert!(!shown.contains("alert") && !shown.contains("b{}") && !shown.contains("\n\n\n"), "{shown}");
        assert_eq!(part("text/html", page.as_bytes(), true).as_text(), Some(page));
    }

    #[test]
    fn the_text_of_every_type_is_decoded() {
        for (content_type, body, shown) in [
            ("text/plain; charset=ISO-8859-1", &b"caf\xe9"[..], "caf\u{e9}"),
            ("text/html", b"<html><meta charset='shift_jis'><p>\x82\xa9\x82\xed", "\u{304b}\u{308f}"),
            ("application/json", b"{\"a\": 1}", "{\"a\": 1}"),
            ("application/vnd.api+json", b"{}", "{}"),
            ("", b"<!DOCTYPE html><p>a", "a"),
            ("", b"plain", "plain"),
            ("application/octet-stream", b"\x7fELF\0\xff", "[6 bytes of binary data (application/x-elf): not shown."),
        ] {
            assert!(text(content_type, body).starts_with(shown), "{content_type}: {}", text(content_type, body));
        }
    }

    #[test]
    fn a_page_of_any_depth_is_no_danger() {
        let deep = format!("{}x{}", "<div>".repeat(50_000), "</div>".repeat(50_000));
        assert!(text("text/html", deep.as_bytes()).contains('x'));
        // Ends that people leave out are no depth.
        let long = format!("<ul>{}</ul>", "<li>otter<p>holds<br>hands".repeat(2_000));
        assert!(text("text/html", long.as_bytes()).starts_with("* otter"));
        let broken = "<table><tr><td><table><p></b></i><li><a href=x>y".repeat(200);
        assert!(text("text/html", broken.as_bytes()).contains('y'));
    }
}
