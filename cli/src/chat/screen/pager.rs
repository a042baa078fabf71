//! A page of rows that is longer than the screen, in the terminal's second screen, until the user closes it.

use super::style::{Row, Style, span, width_of, wrap};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// How the row below the page looks.
const REVERSE: Style = Style { reverse: true, ..Style::PLAIN };

/// Rows that are read on.
pub(crate) struct Pager {
    title: String,
    rows: Vec<Row>,
    top: usize,
}

impl Pager {
    /// Opens it at the end of the rows or at their beginning.
    pub(crate) fn open(title: impl Into<String>, rows: Vec<Row>, at_end: bool) -> Self {
        let top = if at_end { rows.len() } else { 0 };
        Self { title: title.into(), rows, top }
    }

    /// All of its rows.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// Takes an event of the terminal, whose rows are `height`; true when the user closes the page.
    pub(crate) fn handle(&mut self, event: &Event, height: usize) -> bool {
        let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return false };
        if *kind == KeyEventKind::Release {
            return false;
        }
        let page = height.saturating_sub(2).max(1);
        let top = self.top(height);
        let control = modifiers.contains(KeyModifiers::CONTROL);
        self.top = match code {
            KeyCode::Esc | KeyCode::Char('q') => return true,
            KeyCode::Char('c' | 'o' | 'd') if control => return true,
            KeyCode::Up | KeyCode::Char('k') => top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') | KeyCode::Enter => top + 1,
            KeyCode::PageUp | KeyCode::Char('b') => top.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ' | 'f') => top + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => self.rows.len(),
            _ => top,
        };
        false
    }

    fn top(&self, height: usize) -> usize {
        self.top.min(self.rows.len().saturating_sub(height.saturating_sub(1)))
    }

    /// What fills a screen of this size.
    pub(crate) fn page(&self, width: usize, height: usize) -> Vec<Row> {
        let room = height.saturating_sub(1).max(1);
        let top = self.top(height);
        let mut page: Vec<Row> = self.rows.iter().skip(top).take(room).cloned().collect();
        let last = (top + room).min(self.rows.len());
        page.resize(room, Row::new());
        let status =
            format!("{} · {last} of {} lines · ↑ ↓ PgUp PgDn Home End · q closes", self.title, self.rows.len());
        let mut status = wrap(&[span(status, REVERSE)], width, &[], &[]).swap_remove(0);
        status.push(span(" ".repeat(width.saturating_sub(width_of(&status))), REVERSE));
        page.push(status);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    #[test]
    fn a_page_is_scrolled_and_closed() {
        let rows = (1..=30).map(|line| vec![span(format!("line {line}"), Style::PLAIN)]).collect();
        let mut pager = Pager::open("All", rows, true);
        let first = |pager: &Pager| painted(&pager.page(90, 11)[0], false);
        let press = |pager: &mut Pager, code| pager.handle(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)), 11);
        assert_eq!(first(&pager), "line 21");
        for (code, shown) in [
            (KeyCode::Up, "line 20"),
            (KeyCode::PageUp, "line 11"),
            (KeyCode::Home, "line 1"),
            (KeyCode::Up, "line 1"),
            (KeyCode::Down, "line 2"),
            (KeyCode::End, "line 21"),
            (KeyCode::Down, "line 21"),
        ] {
            assert!(!press(&mut pager, code));
            assert_eq!(first(&pager), shown, "{code:?}");
        }
        let page = pager.page(90, 11);
        assert_eq!((page.len(), painted(&page[10], false).starts_with("All · 30 of 30 lines")), (11, true));
        assert!(press(&mut pager, KeyCode::Char('q')));
    }
}
