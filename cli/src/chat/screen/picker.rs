//! A list of which the user picks one.

use super::style::{Row, Style, span, wrap};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Items that are shown at a time.
const SHOWN: usize = 10;

/// A list of items, narrowed by what is typed.
#[derive(Debug)]
pub(crate) struct Picker {
    title: String,
    /// What is picked, and how it is shown.
    items: Vec<(String, String)>,
    typed: String,
    selected: usize,
}

/// What a key did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// Nothing is picked yet.
    NotYet,
    /// The user wants none.
    Nothing,
    /// This one.
    Item(String),
}

impl Picker {
    /// A list under a title.
    pub(crate) fn new(title: impl Into<String>, items: Vec<(String, String)>) -> Self {
        Self { title: title.into(), items, typed: String::new(), selected: 0 }
    }

    fn matching(&self) -> Vec<&(String, String)> {
        let typed = self.typed.to_lowercase();
        self.items.iter().filter(|(_, shown)| shown.to_lowercase().contains(&typed)).collect()
    }

    /// Takes an event of the terminal.
    pub(crate) fn handle(&mut self, event: &Event) -> Picked {
        if let Event::Paste(text) = event {
            (self.typed, self.selected) = (text.trim().to_owned(), 0);
        }
        let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return Picked::NotYet };
        if *kind == KeyEventKind::Release {
            return Picked::NotYet;
        }
        let all = self.matching().len();
        match code {
            KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => return Picked::Nothing,
            KeyCode::Esc => return Picked::Nothing,
            KeyCode::Enter => {
                return self
                    .matching()
                    .get(self.selected)
                    .map_or(Picked::NotYet, |(item, _)| Picked::Item(item.clone()));
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab => self.selected = (self.selected + 1).min(all.saturating_sub(1)),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(SHOWN),
            KeyCode::PageDown => self.selected = (self.selected + SHOWN).min(all.saturating_sub(1)),
            KeyCode::Backspace => {
                self.typed.pop();
                self.selected = 0;
            }
            KeyCode::Char(letter) => {
                self.typed.push(*letter);
                self.selected = 0;
            }
            _ => {}
        }
        Picked::NotYet
    }

    /// The rows of the list.
    pub(crate) fn rows(&self, width: usize) -> Vec<Row> {
        let matching = self.matching();
        let typed = if self.typed.is_empty() { String::new() } else { format!(": {}", self.typed) };
        let mut rows = wrap(&[span(format!("{}{typed}", self.title), Style::BOLD)], width, &[], &[]);
        let top = (self.selected + 1).saturating_sub(SHOWN);
        for (index, (_, shown)) in matching.iter().enumerate().skip(top).take(SHOWN) {
            let (mark, style) = if index == self.selected { ("▸ ", Style::CYAN) } else { ("  ", Style::PLAIN) };
            rows.extend(wrap(&[span(shown, style)], width, &[span(mark, style)], &[]).into_iter().take(1));
        }
        let hidden = matching.len().saturating_sub(top + SHOWN);
        let more = if hidden > 0 { format!("{hidden} more · ") } else { String::new() };
        let how = format!("  {more}↑ ↓ and Enter pick, letters narrow the list, Esc closes it");
        rows.extend(wrap(&[span(how, Style::DIM)], width, &[], &[]));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    #[test]
    fn an_item_is_picked() {
        let items = (1..=30).map(|number| (number.to_string(), format!("item {number}"))).collect();
        let mut picker = Picker::new("Which", items);
        let press = |picker: &mut Picker, code| picker.handle(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        (0..12).for_each(|_| assert_eq!(press(&mut picker, KeyCode::Down), Picked::NotYet));
        let rows: Vec<_> = picker.rows(80).iter().map(|row| painted(row, false)).collect();
        assert_eq!((rows[0].as_str(), rows[1].as_str(), rows[10].as_str()), ("Which", "  item 4", "▸ item 13"));
        assert!(rows[11].contains("17 more"));
        "29".chars().for_each(|letter| assert_eq!(press(&mut picker, KeyCode::Char(letter)), Picked::NotYet));
        assert_eq!(press(&mut picker, KeyCode::Enter), Picked::Item("29".into()));
        assert_eq!(press(&mut picker, KeyCode::Esc), Picked::Nothing);
    }
}
