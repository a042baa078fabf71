//! Markdown as rows of a terminal, while it is streamed: a block is settled when the next one begins.

use super::code;
use super::style::{Row, Span, Style, span, width_of, wrap};
use super::table::Table;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Text that comes in.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// What is not settled yet.
    open: String,
    /// Whether a block was settled before.
    began: bool,
    /// The code block that is open; its lines are settled one by one.
    fence: Option<Fence>,
}

/// A code block that has begun.
#[derive(Debug)]
struct Fence {
    /// The marks at its beginning.
    mark: String,
    language: String,
    /// Empty lines that are shown if a line follows.
    blank: usize,
}

impl Fence {
    /// The code block that begins with a line.
    fn begun_by(line: &str) -> Option<Self> {
        let first = line.chars().next().filter(|letter| matches!(letter, '`' | '~'))?;
        let rest = line.trim_start_matches(first);
        let mark = &line[..line.len() - rest.len()];
        let is_inline = first == '`' && rest.contains('`');
        let language = rest.trim().to_owned();
        (mark.len() >= 3 && !is_inline).then(|| Self { mark: mark.to_owned(), language, blank: 0 })
    }

    fn is_ended_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.mark.len() && line.trim_start_matches(&self.mark[..1]).is_empty()
    }

    fn line(&mut self, line: &str, width: usize, rows: &mut Vec<Row>) {
        if line.trim().is_empty() {
            self.blank += 1;
            return;
        }
        let margin = [span("  ", Style::PLAIN)];
        (0..std::mem::take(&mut self.blank)).for_each(|_| rows.push(margin.to_vec()));
        rows.extend(wrap(&code::spans(line.trim_end(), &self.language), width, &margin, &margin));
    }
}

impl Markdown {
    /// Takes more text and gives the rows that are settled by it.
    pub(crate) fn push(&mut self, text: &str, width: usize) -> Vec<Row> {
        self.open.push_str(text);
        let mut rows = Vec::new();
        loop {
            if let Some(mut fence) = self.fence.take() {
                let Some(end) = self.open.find('\n') else {
                    self.fence = Some(fence);
                    return rows;
                };
                let line: String = self.open.drain(..=end).collect();
                if !fence.is_ended_by(&line) {
                    fence.line(&line, width, &mut rows);
                    self.fence = Some(fence);
                }
            } else if let Some(fence) = self.open.split_once('\n').and_then(|(line, _)| Fence::begun_by(line)) {
                if std::mem::replace(&mut self.began, true) {
                    rows.push(Row::new());
                }
                if !fence.language.is_empty() {
                    rows.push(vec![span(format!("  {}", fence.language), Style::DIM)]);
                }
                self.fence = Some(fence);
                self.open.drain(..=self.open.find('\n').unwrap_or_default());
            } else if let Some(end) = settled(&self.open) {
                let block: String = self.open.drain(..end).collect();
                self.add(&block, width, &mut rows);
            } else {
                return rows;
            }
        }
    }

    /// The rows of what is not settled.
    pub(crate) fn tail(&self, width: usize) -> Vec<Row> {
        if let Some(fence) = &self.fence {
            let mut rows = Vec::new();
            let mut rest = Fence { mark: fence.mark.clone(), language: fence.language.clone(), blank: fence.blank };
            if !rest.mark.starts_with(self.open.trim()) {
                rest.line(&self.open, width, &mut rows);
            }
            return rows;
        }
        let mut rows = render(&self.open, width);
        if self.began && !rows.is_empty() {
            rows.insert(0, Row::new());
        }
        rows
    }

    /// Settles the rest.
    pub(crate) fn finish(&mut self, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        let block = std::mem::take(&mut self.open);
        match self.fence.take() {
            Some(mut fence) if !fence.is_ended_by(&block) => fence.line(&block, width, &mut rows),
            Some(_) => {}
            None => self.add(&block, width, &mut rows),
        }
        self.began = false;
        rows
    }

    /// Forgets what is not settled.
    pub(crate) fn drop_open(&mut self) {
        *self = Self::default();
    }

    fn add(&mut self, block: &str, width: usize, rows: &mut Vec<Row>) {
        let made = render(block, width);
        if !made.is_empty() {
            if std::mem::replace(&mut self.began, true) {
                rows.push(Row::new());
            }
            rows.extend(made);
        }
    }
}

/// Where the first block ends, if another one has begun: behind an empty line, outside of a fence, before a line that is
/// not indented; or before a code block, which is settled line by line.
fn settled(text: &str) -> Option<usize> {
    let (mut at, mut fence, mut blank) = (0, None::<&str>, false);
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if blank && fence.is_none() && at > 0 && !bare.is_empty() && !line.starts_with([' ', '\t']) {
            return Some(at);
        }
        if fence.is_none() && at > 0 && line.ends_with('\n') && Fence::begun_by(line).is_some() {
            return Some(at);
        }
        if !line.ends_with('\n') {
            return None;
        }
        match fence {
            Some(mark) if bare == mark => fence = None,
            None => fence = ["```", "~~~"].into_iter().find(|mark| bare.starts_with(mark)),
            Some(_) => {}
        }
        blank = bare.is_empty() && fence.is_none() && !text[..at].trim().is_empty();
        at += line.len();
    }
    None
}

/// The rows of a text.
pub(crate) fn render(text: &str, width: usize) -> Vec<Row> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page { width, ..Page::default() };
    Parser::new_ext(text, options).for_each(|event| page.take(event));
    page.end_line();
    page.rows
}

/// What the rows of a list item or a quotation begin with.
struct Margin {
    first: Option<Span>,
    rest: Span,
}

#[derive(Default)]
struct Page {
    width: usize,
    rows: Vec<Row>,
    line: Vec<Span>,
    styles: Vec<Style>,
    margins: Vec<Margin>,
    lists: Vec<Option<u64>>,
    link: Option<String>,
    /// The language of the code block that is open.
    code: Option<String>,
    table: Table,
}

impl Page {
    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.piece(&code, Style { colour: Some(6), ..self.style() }),
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => self.text(&text),
            Event::SoftBreak => self.text(" "),
            Event::HardBreak => self.text("\n"),
            Event::Rule => {
                self.begin_block();
                self.rows.push(vec![span("─".repeat(self.width.min(40)), Style::DIM)]);
            }
            Event::TaskListMarker(done) => {
                // It stands in place of the mark of its item.
                let mark = if done { span("☑ ", Style::GREEN) } else { span("☐ ", Style::PLAIN) };
                self.margins.last_mut().into_iter().for_each(|margin| margin.first = Some(mark.clone()));
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let style = self.style();
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { .. } => {
                self.begin_block();
                self.styles.push(Style { bold: true, colour: Some(5), ..style });
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.margins.push(Margin { first: None, rest: span("│ ", Style::DIM) });
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                if let CodeBlockKind::Fenced(language) = &kind
                    && !language.is_empty()
                {
                    self.rows.push(vec![span(format!("  {language}"), Style::DIM)]);
                }
                self.margins.push(Margin { first: None, rest: span("  ", Style::PLAIN) });
                self.code = Some(match &kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                });
            }
            Tag::List(number) => {
                self.begin_block();
                self.lists.push(number);
            }
            Tag::Item => {
                self.end_line();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                let rest = span(" ".repeat(mark.chars().count()), Style::PLAIN);
                self.margins.push(Margin { first: Some(span(mark, Style::CYAN)), rest });
            }
            Tag::Table(alignments) => {
                self.begin_block();
                self.table = Table::new(alignments);
            }
            Tag::TableHead | Tag::TableRow => self.table.begin_row(),
            Tag::Emphasis => self.styles.push(Style { italic: true, ..style }),
            Tag::Strong => self.styles.push(Style { bold: true, ..style }),
            Tag::Strikethrough => self.styles.push(Style { strike: true, ..style }),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.to_string());
                self.styles.push(Style { underline: true, ..style });
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.end_line();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) | TagEnd::Item => {
                self.end_line();
                self.margins.pop();
            }
            TagEnd::CodeBlock => {
                self.end_line();
                self.code = None;
                self.margins.pop();
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                self.table.add(cell);
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let shown = self.line.last().map(|span| span.text.clone());
                if let Some(link) = self.link.take().filter(|link| Some(link) != shown.as_ref()) {
                    self.piece(&format!(" ({link})"), Style::DIM);
                }
            }
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_line(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(language) = &self.code {
            for line in text.split_inclusive('\n') {
                self.line.extend(code::spans(line.trim_end_matches('\n'), language));
                if line.ends_with('\n') {
                    self.line.push(span("\n", Style::PLAIN));
                }
            }
            return;
        }
        self.piece(text, self.style());
    }

    fn piece(&mut self, text: &str, style: Style) {
        self.line.push(span(text, style));
    }

    /// Sets a block off from the one before, unless it is a part of a list or a quotation.
    fn begin_block(&mut self) {
        self.end_line();
        if !self.rows.is_empty() && self.margins.is_empty() && self.lists.is_empty() {
            self.rows.push(Row::new());
        }
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        // The line end of a code block's last line.
        while line.last().is_some_and(|last| last.text == "\n") {
            line.pop();
        }
        if let Some(last) = line.last_mut() {
            last.text.truncate(last.text.trim_end_matches('\n').len());
        }
        if line.is_empty() {
            return;
        }
        let rest: Row = self.margins.iter().map(|margin| margin.rest.clone()).collect();
        let first: Row =
            self.margins.iter_mut().map(|margin| margin.first.take().unwrap_or_else(|| margin.rest.clone())).collect();
        self.rows.extend(wrap(&line, self.width, &first, &rest));
    }

    fn end_table(&mut self) {
        let table = std::mem::take(&mut self.table);
        let margin: Row = self.margins.iter().map(|margin| margin.rest.clone()).collect();
        let rows = table.rows(self.width.saturating_sub(width_of(&margin)));
        self.rows.extend(rows.into_iter().map(|row| [margin.clone(), row].concat()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| painted(row, false)).collect()
    }

    #[test]
    fn blocks_are_rendered() {
        let text = "# Title\nSome **bold** and `code`.\n\n- one\n- two\n  1. nested\n\n> said\n\n```rust\nfn a() {}\n\nlet b;\n```\n";
        let expected = [
            "Title",
            "",
            "Some bold and code.",
            "",
            "• one",
            "• two",
            "  1. nested",
            "",
            "│ said",
            "",
            "  rust",
            "  fn a() {}",
            "  ",
            "  let b;",
        ];
        assert_eq!(texts(&render(text, 40)), expected);
        let bold = &render("Some **bold**", 40)[0];
        assert_eq!(painted(bold, true), "Some \u{1b}[1mbold\u{1b}[0m");
        assert_eq!(texts(&render("[a](http://b)", 40)), ["a (http://b)"]);
    }

    #[test]
    fn a_code_block_is_settled_line_by_line() {
        let mut markdown = Markdown::default();
        let mut rows = markdown.push("See:\n````rust\nfn a() {\n\n", 40);
        assert_eq!(texts(&rows), ["See:", "", "  rust", "  fn a() {"]);
        rows = markdown.push("}\n```\n", 40);
        assert_eq!(texts(&rows), ["  ", "  }", "  ```"], "a shorter mark is code");
        rows = markdown.push("````\nThen", 40);
        assert!(rows.is_empty(), "{rows:?}");
        assert_eq!(texts(&markdown.tail(40)), ["", "Then"]);
        let mut long = Markdown::default();
        let mut open = 0;
        long.push("```\n", 40);
        for line in 0..10_000 {
            assert_eq!(long.push(&format!("line {line}\n"), 40).len(), 1);
            open = open.max(long.tail(40).len());
        }
        assert_eq!(open, 0, "what is drawn again does not grow with the block");
    }

    #[test]
    fn tables_keep_alignment_and_style_and_fit_the_width() {
        let rows = render("| a | b |\n| - | -: |\n| `x` | 1 |\n| 日本 | 10 |\n", 40);
        let expected =
            ["┌──────┬────┐", "│ a    │  b │", "├──────┼────┤", "│ x    │  1 │", "│ 日本 │ 10 │", "└──────┴────┘"];
        assert_eq!(texts(&rows), expected);
        assert!(rows[3].iter().any(|span| span.text == "x" && span.style == Style::CYAN), "{:?}", rows[3]);
        let rows = render("| a | b |\n| - | - |\n| 1 | a rather long cell that is broken |\n| 2 | c |\n", 24);
        let expected = [
            "┌───┬──────────────────┐",
            "│ a │ b                │",
            "├───┼──────────────────┤",
            "│ 1 │ a rather long    │",
            "│   │ cell that is     │",
            "│   │ broken           │",
            "├───┼──────────────────┤",
            "│ 2 │ c                │",
            "└───┴──────────────────┘",
        ];
        assert_eq!(texts(&rows), expected);
        let many = "| a | b | c | d | e | f |\n|-|-|-|-|-|-|\n| one | two | three | four | five | six |\n";
        let rows = render(many, 30);
        assert!(rows.iter().all(|row| width_of(row) <= 30), "{:?}", texts(&rows));
        let rows = texts(&render("- x\n\n  | a |\n  | - |\n  | 1 |\n- [x] done\n- [ ] open", 30));
        assert!(rows.contains(&"  │ a │".to_owned()), "a table in a list stands below its item: {rows:?}");
        assert_eq!(rows[rows.len() - 2..], ["☑ done", "☐ open"]);
    }

    #[test]
    fn what_comes_in_pieces_is_the_same_as_the_whole() {
        let text = "First\nline.\n\n1. a\n\n   still a\n\n2. b\n\n```\ncode\n\nmore\n```\n\nLast *words*.";
        let whole = texts(&{
            let mut markdown = Markdown::default();
            let mut rows = markdown.push(text, 30);
            rows.extend(markdown.finish(30));
            rows
        });
        for size in [1, 2, 3, 7] {
            let mut markdown = Markdown::default();
            let letters: Vec<char> = text.chars().collect();
            let mut rows = Vec::new();
            for piece in letters.chunks(size) {
                rows.extend(markdown.push(&piece.iter().collect::<String>(), 30));
            }
            assert_eq!(texts(&markdown.tail(30)).last().map(String::as_str), Some("Last words."));
            rows.extend(markdown.finish(30));
            assert_eq!(texts(&rows), whole, "in pieces of {size}");
        }
        assert!(whole.contains(&"  more".to_owned()) && whole.contains(&"First line.".to_owned()), "{whole:?}");
    }
}
