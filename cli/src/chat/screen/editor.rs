//! The line editor: what keys mean, its history, the search in it, and the menu of completions.

use super::field_text::{Motion, WrittenText};
use super::style::{Row, Style, span, wrap};
use crate::chat::completion::{Candidate, Candidates, Completions};
use crate::print::short;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use unicode_width::UnicodeWidthStr;

/// The prefix of the user's line.
pub(crate) const MARK: &str = "› ";

/// The meaning of a key in a chat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    /// A line is complete.
    Line(String),
    /// Enter, where nothing was written.
    Empty,
    /// Stop what the agent does.
    Stop,
    /// End the chat.
    Leave,
    /// The line or the terminal has changed.
    Changed,
    /// Show everything whole.
    Expand,
    /// Scroll what is asked by so many pages.
    Scroll(isize),
    /// Go on writing in the user's own editor.
    ExternalEditor,
    /// Another mode.
    NextMode,
    /// Take the image of the clipboard.
    PasteImage,
}

/// The line and its history.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    written: WrittenText,
    history: Vec<String>,
    /// The index in `history` of the line that is shown.
    history_index: usize,
    /// The line that was being written before the history was shown.
    before_history: String,
    search: Option<Search>,
    menu: Option<Menu>,
    completions: Completions,
}

/// A search in the history.
#[derive(Debug, Default)]
struct Search {
    query: String,
    /// The index in the history of what was found.
    found: Option<usize>,
}

/// The candidates for the word before the cursor.
#[derive(Debug)]
struct Menu {
    candidates: Candidates,
    selected: usize,
}

impl Editor {
    /// An editor with the lines of earlier sessions.
    pub(crate) fn new(history: Vec<String>, completions: Completions) -> Self {
        Self { history_index: history.len(), history, completions, ..Self::default() }
    }

    /// Handles an event of the terminal.
    pub(crate) fn handle(&mut self, event: Event) -> KeyAction {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => match self.search.take() {
                Some(search) => self.search_key(search, key),
                None => self.key(key),
            },
            // What a terminal pastes that has something else than text.
            Event::Paste(text) if text.is_empty() => KeyAction::PasteImage,
            Event::Paste(text) => {
                self.search = None;
                self.menu = None;
                self.written.paste(&text);
                KeyAction::Changed
            }
            _ => KeyAction::Changed,
        }
    }

    fn key(&mut self, KeyEvent { code, modifiers, .. }: KeyEvent) -> KeyAction {
        let control = modifiers.contains(KeyModifiers::CONTROL);
        let alt = modifiers.contains(KeyModifiers::ALT);
        let menu = self.menu.take();
        match code {
            KeyCode::Esc if menu.is_some() => {}
            KeyCode::BackTab => return KeyAction::NextMode,
            KeyCode::Tab if modifiers.contains(KeyModifiers::SHIFT) => return KeyAction::NextMode,
            KeyCode::Tab => self.complete(menu),
            KeyCode::Up | KeyCode::Down if menu.is_some() => {
                self.menu = menu.map(|menu| menu.moved(code == KeyCode::Down));
            }
            KeyCode::Char('c') if control => return KeyAction::Stop,
            KeyCode::Esc => return KeyAction::Stop,
            KeyCode::Char('d') if control && self.is_empty() => return KeyAction::Leave,
            KeyCode::Char('o') if control => return KeyAction::Expand,
            KeyCode::Char('g') if control => return KeyAction::ExternalEditor,
            KeyCode::Char('v') if control => return KeyAction::PasteImage,
            KeyCode::Char('r') if control => self.search = Some(Search::default()),
            KeyCode::PageUp => return KeyAction::Scroll(-1),
            KeyCode::PageDown => return KeyAction::Scroll(1),
            KeyCode::Enter if alt || modifiers.contains(KeyModifiers::SHIFT) => self.written.insert("\n"),
            KeyCode::Char('j') if control => self.written.insert("\n"),
            KeyCode::Enter => return self.enter(menu),
            KeyCode::Up => self.above(),
            KeyCode::Char('p') if control => self.above(),
            KeyCode::Down => self.below(),
            KeyCode::Char('n') if control => self.below(),
            KeyCode::Backspace if alt || control => self.delete(Motion::WordBefore),
            KeyCode::Char('w') if control => self.delete(Motion::WordBefore),
            KeyCode::Backspace => self.delete(Motion::LetterBefore),
            KeyCode::Char('h') if control => self.delete(Motion::LetterBefore),
            KeyCode::Delete => self.delete(Motion::LetterBehind),
            KeyCode::Char('d') if control => self.delete(Motion::LetterBehind),
            KeyCode::Char('d') if alt => self.delete(Motion::WordBehind),
            KeyCode::Char('u') if control => self.delete(Motion::LineStart),
            KeyCode::Char('k') if control => self.delete(Motion::LineEnd),
            KeyCode::Char('y') if control => self.written.insert_cut(),
            KeyCode::Left if alt || control => self.written.go(Motion::WordBefore),
            KeyCode::Char('b') if alt => self.written.go(Motion::WordBefore),
            KeyCode::Left => self.written.go(Motion::LetterBefore),
            KeyCode::Char('b') if control => self.written.go(Motion::LetterBefore),
            KeyCode::Right if alt || control => self.written.go(Motion::WordBehind),
            KeyCode::Char('f') if alt => self.written.go(Motion::WordBehind),
            KeyCode::Right => self.written.go(Motion::LetterBehind),
            KeyCode::Char('f') if control => self.written.go(Motion::LetterBehind),
            KeyCode::Home => self.written.go(Motion::LineStart),
            KeyCode::Char('a') if control => self.written.go(Motion::LineStart),
            KeyCode::End => self.written.go(Motion::LineEnd),
            KeyCode::Char('e') if control => self.written.go(Motion::LineEnd),
            KeyCode::Char(letter) if !control && !alt => {
                self.written.insert(letter.encode_utf8(&mut [0; 4]));
                self.open_menu();
            }
            _ => {}
        }
        KeyAction::Changed
    }

    fn delete(&mut self, to: Motion) {
        self.written.delete(to);
        self.open_menu();
    }

    fn open_menu(&mut self) {
        let (before, behind) = self.written.around_cursor();
        let candidates = self.completions.find(before, behind);
        self.menu = candidates.map(|candidates| Menu { candidates, selected: 0 });
    }

    /// Completes the word before the cursor: with what is selected, or with the one candidate.
    fn complete(&mut self, menu: Option<Menu>) {
        match menu {
            Some(menu) => self.take_candidate(&menu),
            None => {
                self.open_menu();
                if let Some(menu) = self.menu.take_if(|menu| menu.candidates.list.len() == 1) {
                    self.take_candidate(&menu);
                }
            }
        }
    }

    fn take_candidate(&mut self, Menu { candidates, selected }: &Menu) {
        let Some(Candidate { text, .. }) = candidates.list.get(*selected) else { return };
        self.written.replace_before(candidates.start, &format!("{text} "));
    }

    /// Sends the line. A command that is being picked is completed and sent, a file completed.
    fn enter(&mut self, menu: Option<Menu>) -> KeyAction {
        if let Some(menu) = menu {
            let (before, _) = self.written.around_cursor();
            let word = &before[menu.candidates.start..];
            let is_whole = menu.candidates.list.iter().any(|candidate| candidate.text == word);
            if !is_whole {
                self.take_candidate(&menu);
                if !menu.candidates.is_command {
                    return KeyAction::Changed;
                }
            }
        }
        // A backslash at the end goes on in a new line: a way for every terminal.
        let (before, behind) = self.written.around_cursor();
        if behind.is_empty() && before.ends_with('\\') && !before.ends_with("\\\\") {
            self.written.replace_before(before.len() - 1, "\n");
            return KeyAction::Changed;
        }
        let content = self.written.take();
        let line = content.trim_end().trim_start_matches('\n');
        if line.is_empty() {
            return KeyAction::Empty;
        }
        self.remember(line);
        KeyAction::Line(line.to_owned())
    }

    fn remember(&mut self, line: &str) {
        if self.history.last().is_none_or(|last| last != line) {
            self.history.push(line.to_owned());
        }
        self.history_index = self.history.len();
        self.before_history.clear();
    }

    fn above(&mut self) {
        if !self.written.go_line(false) && self.history_index > 0 {
            if self.history_index == self.history.len() {
                self.before_history = self.written.content();
            }
            self.show_history(self.history_index - 1);
        }
    }

    fn below(&mut self) {
        if !self.written.go_line(true) && self.history_index < self.history.len() {
            self.show_history(self.history_index + 1);
        }
    }

    fn show_history(&mut self, index: usize) {
        self.history_index = index;
        let line = self.history.get(index).unwrap_or(&self.before_history).clone();
        self.written.set(&line);
    }

    /// A key during a search: letters narrow it, Ctrl-R finds an older line, Enter takes the line, Esc the one before.
    fn search_key(&mut self, mut search: Search, key: KeyEvent) -> KeyAction {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('r') if control => self.find(&mut search, true),
            KeyCode::Char('c' | 'g') if control => return KeyAction::Changed,
            KeyCode::Esc => return KeyAction::Changed,
            KeyCode::Backspace => {
                search.query.pop();
                search.found = None;
                self.find(&mut search, false);
            }
            KeyCode::Char(letter) if !control => {
                search.query.push(letter);
                self.find(&mut search, false);
            }
            code => {
                if let Some(found) = search.found {
                    self.before_history = self.written.content();
                    self.show_history(found);
                }
                return if matches!(code, KeyCode::Enter | KeyCode::Tab) { KeyAction::Changed } else { self.key(key) };
            }
        }
        self.search = Some(search);
        KeyAction::Changed
    }

    /// Finds the newest line with the query, from the one that is shown on, or an older one.
    fn find(&self, search: &mut Search, older: bool) {
        let end = search.found.map_or(self.history.len(), |found| if older { found } else { found + 1 });
        let is_match = |line: &&String| line.to_lowercase().contains(&search.query.to_lowercase());
        let lines = self.history[..end].iter().enumerate().rev();
        if let Some((found, _)) = lines.into_iter().find(|(_, line)| is_match(line)) {
            search.found = Some(found);
        }
    }

    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Whether the menu of completions is open below the line.
    pub(crate) fn has_menu(&self) -> bool {
        self.menu.is_some() && self.search.is_none()
    }

    /// What is written.
    pub(crate) fn text(&self) -> String {
        self.written.content()
    }

    /// Empties the line and returns its text.
    pub(crate) fn take_text(&mut self) -> String {
        self.menu = None;
        self.written.take()
    }

    /// Empties the line and keeps it in the history.
    pub(crate) fn put_aside(&mut self) -> String {
        let text = self.take_text();
        self.remember(&text);
        text
    }

    /// Inserts a word that is shown as a label.
    pub(crate) fn attach(&mut self, text: String, label: String) {
        self.menu = None;
        self.written.attach(text, label);
    }

    /// Replaces the text of the line.
    pub(crate) fn set_text(&mut self, text: &str) {
        self.menu = None;
        self.written.set(text);
    }

    /// Offers these prompts of MCP servers as commands, also to the line that is being written; a menu that was closed
    /// stays closed.
    pub(crate) fn set_prompts(&mut self, prompts: Vec<Candidate>) {
        let (before, behind) = self.written.around_cursor();
        let is_closed = self.menu.is_none() && self.completions.find(before, behind).is_some();
        self.completions.set_prompts(prompts);
        if is_closed {
            return;
        }
        let selected = self.menu.take().and_then(|menu| menu.candidates.list.into_iter().nth(menu.selected));
        self.open_menu();
        if let (Some(menu), Some(selected)) = (&mut self.menu, selected) {
            menu.selected = menu.candidates.list.iter().position(|one| *one == selected).unwrap_or_default();
        }
    }

    /// Looks for files anew.
    pub(crate) fn forget_files(&mut self) {
        self.completions.forget_files();
    }

    /// The rows of the line, at most so many, with the menu below; and the position of the cursor in them.
    pub(crate) fn rows(&self, width: usize, max: usize) -> (Vec<Row>, (usize, usize)) {
        if let Some(Search { query, found }) = &self.search {
            let line = found.and_then(|found| self.history.get(found)).map_or("", String::as_str);
            let asked = [span(format!("search: {query}"), Style::CYAN)];
            let mut rows = wrap(&asked, width, &[], &[]);
            rows.truncate(1);
            let column = super::style::width_of(&rows[0]).min(width.saturating_sub(1));
            rows.extend(wrap(
                &[span(short(line, 400), Style::PLAIN)],
                width,
                &[span(MARK, Style::CYAN)],
                &[span("  ", Style::PLAIN)],
            ));
            return (rows, (0, column));
        }
        let (mark, margin) = ([span(MARK, Style::CYAN)], [span("  ", Style::PLAIN)]);
        let (mut rows, cursor) = self.written.rows(width, &mark, &margin, max);
        if let Some(menu) = &self.menu {
            rows.extend(menu.rows(width));
        }
        (rows, cursor)
    }
}

impl Menu {
    fn moved(mut self, down: bool) -> Self {
        let all = self.candidates.list.len();
        self.selected = (self.selected + if down { 1 } else { all - 1 }) % all;
        self
    }

    fn rows(&self, width: usize) -> Vec<Row> {
        let longest = self.candidates.list.iter().map(|candidate| candidate.text.width()).max().unwrap_or(0);
        // The rows around the selected one.
        const ROWS: usize = 8;
        let top = (self.selected + 1).saturating_sub(ROWS);
        let shown = self.candidates.list.iter().enumerate().skip(top).take(ROWS);
        let row = |(index, candidate): (usize, &Candidate)| {
            let is_selected = index == self.selected;
            let (mark, style) = if is_selected { ("▸ ", Style::CYAN) } else { ("  ", Style::DIM) };
            let text = format!("{}{}  ", candidate.text, " ".repeat(longest - candidate.text.width()));
            let line = [span(mark, style), span(text, style), span(&candidate.about, Style::DIM)];
            wrap(&line, width, &[], &[]).swap_remove(0)
        };
        let mut rows: Vec<Row> = shown.map(row).collect();
        let below = self.candidates.list.len().saturating_sub(top + ROWS);
        if below > 0 {
            rows.push(vec![span(format!("  ↓ {below} more"), Style::DIM)]);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn with(modifiers: KeyModifiers, code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, modifiers))
    }

    fn typed(editor: &mut Editor, text: &str) {
        text.chars().for_each(|letter| drop(editor.handle(key(KeyCode::Char(letter)))));
    }

    fn shown(editor: &Editor) -> Vec<String> {
        editor.rows(60, 20).0.iter().map(|row| painted(row, false).trim_end().to_owned()).collect()
    }

    #[test]
    fn lines_are_written_sent_and_recalled() {
        let mut editor = Editor::default();
        typed(&mut editor, "one");
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Line("one".into()));
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Empty, "an empty line is none");
        typed(&mut editor, "half\\");
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Changed, "a backslash goes on in a new line");
        assert_eq!(editor.take_text(), "half\n");
        typed(&mut editor, "two");
        editor.handle(with(KeyModifiers::SHIFT, KeyCode::Enter));
        editor.handle(with(KeyModifiers::ALT, KeyCode::Enter));
        editor.handle(Event::Paste("three\r\nfour".into()));
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Line("two\n\nthree\nfour".into()));
        typed(&mut editor, "draft");
        editor.handle(key(KeyCode::Up));
        (0..4).for_each(|_| drop(editor.handle(key(KeyCode::Up))));
        assert_eq!(editor.text(), "one", "first through the lines of the last one");
        (0..5).for_each(|_| drop(editor.handle(key(KeyCode::Down))));
        assert_eq!(editor.text(), "draft", "what was being written comes back");
        assert_eq!(editor.put_aside(), "draft");
        editor.handle(key(KeyCode::Up));
        assert_eq!(editor.take_text(), "draft");
        assert_eq!(editor.handle(with(KeyModifiers::CONTROL, KeyCode::Char('d'))), KeyAction::Leave);
    }

    #[test]
    fn the_history_is_searched() {
        let history = ["make test", "cargo test --lib", "ls"].map(str::to_owned).to_vec();
        let mut editor = Editor::new(history, Completions::default());
        let control_r = || with(KeyModifiers::CONTROL, KeyCode::Char('r'));
        editor.handle(control_r());
        typed(&mut editor, "tes");
        assert_eq!(shown(&editor), ["search: tes", "› cargo test --lib"]);
        editor.handle(control_r());
        assert_eq!(shown(&editor), ["search: tes", "› make test"]);
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Changed, "it is taken, not sent");
        assert_eq!(editor.text(), "make test");
        editor.handle(control_r());
        assert_eq!(editor.handle(key(KeyCode::Esc)), KeyAction::Changed);
        assert_eq!(editor.text(), "make test", "as before");
    }

    #[test]
    fn a_menu_completes_commands() {
        let command = |name: &str| Candidate { text: name.to_owned(), about: format!("about {name}") };
        let commands = vec![command("/model"), command("/mcp"), command("/cost")];
        let mut editor = Editor::new(Vec::new(), Completions::new(commands, std::path::Path::new("/nowhere")));
        typed(&mut editor, "/m");
        assert_eq!(shown(&editor), ["› /m", "▸ /model  about /model", "  /mcp    about /mcp"]);
        editor.handle(key(KeyCode::Down));
        editor.handle(key(KeyCode::Tab));
        assert_eq!(editor.text(), "/mcp ");
        editor.take_text();
        typed(&mut editor, "/co");
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Line("/cost".into()));
        typed(&mut editor, "/mo");
        assert_eq!(editor.handle(key(KeyCode::Esc)), KeyAction::Changed, "it closes the menu");
        assert_eq!(editor.handle(key(KeyCode::Esc)), KeyAction::Stop);
    }

    #[test]
    fn prompts_that_come_late_are_offered_to_what_is_written() {
        let command = |name: &str| Candidate { text: name.to_owned(), about: String::new() };
        let commands = vec![command("/model"), command("/mcp")];
        let mut editor = Editor::new(Vec::new(), Completions::new(commands, std::path::Path::new("/nowhere")));
        typed(&mut editor, "/mcp__e");
        assert_eq!(shown(&editor), ["› /mcp__e"]);
        editor.set_prompts(vec![command("/mcp__e__ask")]);
        assert_eq!(shown(&editor), ["› /mcp__e", "▸ /mcp__e__ask"]);
        editor.take_text();
        typed(&mut editor, "/m");
        editor.handle(key(KeyCode::Down));
        editor.set_prompts(vec![command("/mcp__a"), command("/mcp__e__ask")]);
        assert_eq!(shown(&editor)[1..], ["  /model", "▸ /mcp", "  /mcp__a", "  /mcp__e__ask"], "what was selected is");
        editor.handle(key(KeyCode::Esc));
        editor.set_prompts(Vec::new());
        assert_eq!(shown(&editor), ["› /m"], "the user has closed it");
    }

    #[test]
    fn the_cursor_is_where_its_letter_is() {
        let mut editor = Editor::default();
        typed(&mut editor, "abcdefghijkl");
        let (rows, cursor) = editor.rows(11, 20);
        assert_eq!(rows.iter().map(|row| painted(row, false)).collect::<Vec<_>>(), ["› abcdefgh", "  ijkl"]);
        assert_eq!(cursor, (1, 6));
        editor.handle(key(KeyCode::Home));
        assert_eq!(editor.rows(11, 20).1, (0, 2));
        assert_eq!(Editor::default().rows(40, 20).1, (0, 2));
    }
}
