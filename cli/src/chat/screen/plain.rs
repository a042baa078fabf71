//! The screen of `--plain`, for screen readers and terminals that can only print: lines are printed once, in plain letters, and the
//! user's line is the terminal's own.

use super::style::{Row, painted};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::io::{BufRead, Result, Write, stdin, stdout};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Letters for drawing, and what is printed in their place.
const DRAWN: [(&str, &str); 19] = [
    ("  │ ", "    "),
    ("│", "|"),
    ("● ", "* "),
    ("› ", "> "),
    ("▸ ", "* "),
    ("─", "-"),
    ("┌", "+"),
    ("┐", "+"),
    ("└", "+"),
    ("┘", "+"),
    ("┬", "+"),
    ("┴", "+"),
    ("├", "+"),
    ("┤", "+"),
    ("┼", "+"),
    ("■ ", ""),
    ("• ", "- "),
    ("⎿ ", "  with "),
    ("↕ ", ""),
];

/// Prints what is settled, and questions when they change.
#[derive(Debug, Default)]
pub(crate) struct PlainScreen {
    /// What was asked last.
    asked: Vec<String>,
}

impl PlainScreen {
    /// Prints rows, and what the user is asked unless it was printed before.
    pub(crate) fn show(&mut self, stay: &[Row], asked: &[Row]) -> Result<()> {
        let mut out = stdout().lock();
        for row in stay {
            writeln!(out, "{}", plain(row))?;
        }
        let asked: Vec<_> = asked.iter().map(plain).collect();
        if asked != self.asked {
            asked.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            self.asked = asked;
        }
        out.flush()
    }
}

fn plain(row: &Row) -> String {
    let mut text = painted(row, false);
    if !text.is_ascii() {
        for (drawn, printed) in DRAWN {
            text = text.replace(drawn, printed);
        }
    }
    text.trim_end().to_owned()
}

/// Lines of standard input as the keys that would write them.
pub(crate) fn lines() -> Result<UnboundedReceiver<Event>> {
    let (sender, events) = unbounded_channel();
    // It ends with the process: nothing can stop a thread that reads a line.
    std::thread::Builder::new().name("flovyn-lines".into()).spawn(move || {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        for line in stdin().lock().lines().map_while(Result::ok) {
            let enter = key(KeyCode::Enter, KeyModifiers::NONE);
            if sender.send(Event::Paste(line)).is_err() || sender.send(enter).is_err() {
                return;
            }
        }
        let _ = sender.send(key(KeyCode::Char('d'), KeyModifiers::CONTROL));
    })?;
    Ok(events)
}
