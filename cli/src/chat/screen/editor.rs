//! The line that the user writes, with what they wrote before; keys as a chat understands them.

use super::style::{Row, Style, span, wrap};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tui_input::{Input, InputRequest};
use unicode_width::UnicodeWidthChar;

/// How often the thread of the keys looks whether it shall end.
const LOOK: Duration = Duration::from_millis(200);
/// What the user's line begins with.
pub const MARK: &str = "› ";

/// What the user did.
#[derive(Debug, PartialEq, Eq)]
pub enum Pressed {
    /// A line is complete.
    Line(String),
    /// Enter, where nothing was written.
    Empty,
    /// What is done now shall stop.
    Stop,
    /// The chat shall end.
    Leave,
    /// The line or the terminal has changed.
    Changed,
}

/// The line, its history.
#[derive(Debug, Default)]
pub struct Editor {
    input: Input,
    past: Vec<String>,
    /// The place in `past` that is shown.
    at: usize,
}

impl Editor {
    /// Takes an event of the terminal.
    pub fn take(&mut self, event: Event) -> Pressed {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            Event::Paste(text) => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                for letter in text.chars() {
                    self.input.handle(InputRequest::InsertChar(letter));
                }
                Pressed::Changed
            }
            _ => Pressed::Changed,
        }
    }

    fn key(&mut self, KeyEvent { code, modifiers, .. }: KeyEvent) -> Pressed {
        use InputRequest::*;
        let control = modifiers.contains(KeyModifiers::CONTROL);
        let alt = modifiers.contains(KeyModifiers::ALT);
        let request = match code {
            KeyCode::Char('c') if control => return Pressed::Stop,
            KeyCode::Esc => return Pressed::Stop,
            KeyCode::Char('d') if control && self.is_empty() => return Pressed::Leave,
            KeyCode::Enter if !alt => return self.line(),
            KeyCode::Up => return self.look_back(),
            KeyCode::Down => return self.look_ahead(),
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
            _ => return Pressed::Changed,
        };
        self.input.handle(request);
        Pressed::Changed
    }

    fn line(&mut self) -> Pressed {
        let line = self.input.value_and_reset().trim().to_owned();
        if line.is_empty() {
            return Pressed::Empty;
        }
        if self.past.last() != Some(&line) {
            self.past.push(line.clone());
        }
        self.at = self.past.len();
        Pressed::Line(line)
    }

    fn look_back(&mut self) -> Pressed {
        self.at = self.at.saturating_sub(1);
        self.recall()
    }

    fn look_ahead(&mut self) -> Pressed {
        self.at = (self.at + 1).min(self.past.len());
        self.recall()
    }

    fn recall(&mut self) -> Pressed {
        self.input = Input::new(self.past.get(self.at).cloned().unwrap_or_default());
        Pressed::Changed
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.input.value().is_empty()
    }

    /// Takes what is written away, and gives it.
    pub fn take_text(&mut self) -> String {
        self.input.value_and_reset()
    }

    /// Writes a text in place of what is written.
    pub fn put_text(&mut self, text: String) {
        self.input = Input::new(text);
    }

    /// The rows of the line, and where in them the cursor is.
    pub fn rows(&self, width: usize) -> (Vec<Row>, (usize, usize)) {
        let text = self.input.value();
        let (mark, margin) = ([span(MARK, Style::CYAN)], [span("  ", Style::PLAIN)]);
        // A line is broken where it is full, so that the cursor is where its letter is.
        let room = width.saturating_sub(3).max(8);
        let (mut shown, mut row, mut column, mut cursor) = (String::new(), 0, 0, (0, 0));
        for (place, letter) in text.chars().chain([' ']).enumerate() {
            let wide = letter.width().unwrap_or(0);
            if letter != '\n' && column + wide > room {
                shown.push('\n');
                (row, column) = (row + 1, 0);
            }
            if place == self.input.cursor() {
                cursor = (row, column + 2);
            }
            shown.push(letter);
            (row, column) = if letter == '\n' { (row + 1, 0) } else { (row, column + wide) };
        }
        (wrap(&[span(shown, Style::PLAIN)], width, &mark, &margin), cursor)
    }
}

/// The events of the terminal, read by a thread of their own until this is dropped.
pub struct Keys {
    events: UnboundedReceiver<Event>,
    over: Arc<AtomicBool>,
}

impl Keys {
    /// Begins to read.
    pub fn open() -> std::io::Result<Self> {
        let (sender, events) = unbounded_channel();
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        std::thread::Builder::new().name("flovyn-keys".into()).spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let event = match poll(LOOK) {
                    Ok(false) => continue,
                    Ok(true) => read(),
                    Err(_) => return,
                };
                // The receiver or the terminal is gone.
                let Ok(event) = event else { return };
                if sender.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, over })
    }

    /// The next event; none when the terminal is gone.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
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
        text.chars().for_each(|letter| drop(editor.take(key(KeyCode::Char(letter)))));
    }

    #[test]
    fn lines_are_written_sent_and_recalled() {
        let mut editor = Editor::default();
        typed(&mut editor, "one");
        assert_eq!(editor.take(key(KeyCode::Enter)), Pressed::Line("one".into()));
        assert_eq!(editor.take(key(KeyCode::Enter)), Pressed::Empty, "an empty line is none");
        editor.take(Event::Paste("two\r\nthree".into()));
        assert_eq!(editor.take(key(KeyCode::Enter)), Pressed::Line("two\nthree".into()));
        editor.take(key(KeyCode::Up));
        editor.take(key(KeyCode::Up));
        assert_eq!(editor.take(key(KeyCode::Enter)), Pressed::Line("one".into()));
        assert_eq!(editor.take(Event::Key(KeyEvent::new(KeyCode::Char('d'), KeyModifiers::CONTROL))), Pressed::Leave);
    }

    #[test]
    fn the_cursor_is_where_its_letter_is() {
        let mut editor = Editor::default();
        typed(&mut editor, "abcdefghijkl");
        let (rows, cursor) = editor.rows(11);
        assert_eq!(rows.iter().map(|row| painted(row, false)).collect::<Vec<_>>(), ["› abcdefgh", "  ijkl "]);
        assert_eq!(cursor, (1, 6));
        editor.take(key(KeyCode::Home));
        assert_eq!(editor.rows(11).1, (0, 2));
        assert_eq!(Editor::default().rows(40).1, (0, 2));
    }
}
