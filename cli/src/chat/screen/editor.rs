//! The line editor with its history, and the events of the keyboard.

use super::style::{Row, Style, span, wrap};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tui_input::{Input, InputRequest};
use unicode_width::UnicodeWidthChar;

/// How often the thread that reads keys checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
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
}

/// The line and its history.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    input: Input,
    history: Vec<String>,
    /// The index in `history` of the line that is shown.
    history_index: usize,
}

impl Editor {
    /// Handles an event of the terminal.
    pub(crate) fn handle(&mut self, event: Event) -> KeyAction {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            Event::Paste(text) => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                for letter in text.chars() {
                    self.input.handle(InputRequest::InsertChar(letter));
                }
                KeyAction::Changed
            }
            _ => KeyAction::Changed,
        }
    }

    fn key(&mut self, KeyEvent { code, modifiers, .. }: KeyEvent) -> KeyAction {
        use InputRequest::*;
        let control = modifiers.contains(KeyModifiers::CONTROL);
        let alt = modifiers.contains(KeyModifiers::ALT);
        let request = match code {
            KeyCode::Char('c') if control => return KeyAction::Stop,
            KeyCode::Esc => return KeyAction::Stop,
            KeyCode::Char('d') if control && self.is_empty() => return KeyAction::Leave,
            KeyCode::Enter if !alt => return self.line(),
            KeyCode::Up => return self.previous(),
            KeyCode::Down => return self.following(),
            KeyCode::Enter => InsertChar('\n'),
            KeyCode::Char('j') if control => InsertChar('\n'),
            KeyCode::Backspace if alt || control => DeletePrevWord,
            KeyCode::Char('w') if control => DeletePrevWord,
            KeyCode::Backspace => DeletePrevChar,
            KeyCode::Char('h') if control => DeletePrevChar,
            KeyCode::Delete => DeleteNextChar,
            KeyCode::Char('d') if control => DeleteNextChar,
            KeyCode::Char('u') if control => DeleteFromStart,
            KeyCode::Char('k') if control => DeleteTillEnd,
            KeyCode::Char('y') if control => Yank,
            KeyCode::Left if alt || control => GoToPrevWord,
            KeyCode::Char('b') if alt => GoToPrevWord,
            KeyCode::Left => GoToPrevChar,
            KeyCode::Char('b') if control => GoToPrevChar,
            KeyCode::Right if alt || control => GoToNextWord,
            KeyCode::Char('f') if alt => GoToNextWord,
            KeyCode::Right => GoToNextChar,
            KeyCode::Char('f') if control => GoToNextChar,
            KeyCode::Home => GoToStart,
            KeyCode::Char('a') if control => GoToStart,
            KeyCode::End => GoToEnd,
            KeyCode::Char('e') if control => GoToEnd,
            KeyCode::Char(letter) if !control && !alt => InsertChar(letter),
            _ => return KeyAction::Changed,
        };
        self.input.handle(request);
        KeyAction::Changed
    }

    fn line(&mut self) -> KeyAction {
        let line = self.input.value_and_reset().trim().to_owned();
        if line.is_empty() {
            return KeyAction::Empty;
        }
        if self.history.last() != Some(&line) {
            self.history.push(line.clone());
        }
        self.history_index = self.history.len();
        KeyAction::Line(line)
    }

    fn previous(&mut self) -> KeyAction {
        self.history_index = self.history_index.saturating_sub(1);
        self.show_history()
    }

    fn following(&mut self) -> KeyAction {
        self.history_index = (self.history_index + 1).min(self.history.len());
        self.show_history()
    }

    fn show_history(&mut self) -> KeyAction {
        self.input = Input::new(self.history.get(self.history_index).cloned().unwrap_or_default());
        KeyAction::Changed
    }

    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.value().is_empty()
    }

    /// Empties the line and returns its text.
    pub(crate) fn take_text(&mut self) -> String {
        self.input.value_and_reset()
    }

    /// Replaces the text of the line.
    pub(crate) fn set_text(&mut self, text: String) {
        self.input = Input::new(text);
    }

    /// The rows of the line, and the position of the cursor in them.
    pub(crate) fn rows(&self, width: usize) -> (Vec<Row>, (usize, usize)) {
        let text = self.input.value();
        let (mark, margin) = ([span(MARK, Style::CYAN)], [span("  ", Style::PLAIN)]);
        // Lines are broken where they are full, not between words, so that the column of the cursor can be computed.
        let room = width.saturating_sub(3).max(8);
        let (mut wrapped, mut row, mut column, mut cursor) = (String::new(), 0, 0, (0, 0));
        for (index, letter) in text.chars().chain([' ']).enumerate() {
            let wide = letter.width().unwrap_or(0);
            if letter != '\n' && column + wide > room {
                wrapped.push('\n');
                (row, column) = (row + 1, 0);
            }
            if index == self.input.cursor() {
                cursor = (row, column + 2);
            }
            wrapped.push(letter);
            (row, column) = if letter == '\n' { (row + 1, 0) } else { (row, column + wide) };
        }
        (wrap(&[span(wrapped, Style::PLAIN)], width, &mark, &margin), cursor)
    }
}

/// The events of the terminal, read by a thread of their own until this is dropped.
pub(crate) struct KeyEvents {
    events: UnboundedReceiver<Event>,
    stop: Arc<AtomicBool>,
}

impl KeyEvents {
    /// Begins to read.
    pub(crate) fn open() -> std::io::Result<Self> {
        let (sender, events) = unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stop_seen = stop.clone();
        std::thread::Builder::new().name("flovyn-keys".into()).spawn(move || {
            while !stop_seen.load(Ordering::Relaxed) {
                let event = match poll(POLL_INTERVAL) {
                    Ok(false) => continue,
                    Ok(true) => read(),
                    Err(_) => return,
                };
                // The terminal is gone.
                let Ok(event) = event else { return };
                if sender.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, stop })
    }

    /// The next event; none when the terminal is gone.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for KeyEvents {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn typed(editor: &mut Editor, text: &str) {
        text.chars().for_each(|letter| drop(editor.handle(key(KeyCode::Char(letter)))));
    }

    #[test]
    fn lines_are_written_sent_and_recalled() {
        let mut editor = Editor::default();
        typed(&mut editor, "one");
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Line("one".into()));
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Empty, "an empty line is none");
        editor.handle(Event::Paste("two\r\nthree".into()));
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Line("two\nthree".into()));
        editor.handle(key(KeyCode::Up));
        editor.handle(key(KeyCode::Up));
        assert_eq!(editor.handle(key(KeyCode::Enter)), KeyAction::Line("one".into()));
        assert_eq!(
            editor.handle(Event::Key(KeyEvent::new(KeyCode::Char('d'), KeyModifiers::CONTROL))),
            KeyAction::Leave
        );
    }

    #[test]
    fn the_cursor_is_where_its_letter_is() {
        let mut editor = Editor::default();
        typed(&mut editor, "abcdefghijkl");
        let (rows, cursor) = editor.rows(11);
        assert_eq!(rows.iter().map(|row| painted(row, false)).collect::<Vec<_>>(), ["› abcdefgh", "  ijkl "]);
        assert_eq!(cursor, (1, 6));
        editor.handle(key(KeyCode::Home));
        assert_eq!(editor.rows(11).1, (0, 2));
        assert_eq!(Editor::default().rows(40).1, (0, 2));
    }
}
