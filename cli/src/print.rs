//! The output of the commands: tables for people, JSON for programs, colours only on a terminal.

use crate::Result;
use crate::args::When;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use flovyn_core::clock::Timestamp;
use flovyn_core::model::Status;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// Where a command writes, and how.
pub(crate) struct Output {
    out: Box<dyn Write>,
    json: bool,
    colour: bool,
    terminal: bool,
}

impl Output {
    /// Standard output.
    pub(crate) fn of_terminal(json: bool, when: When) -> Self {
        let out = std::io::stdout();
        let terminal = out.is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = match when {
            When::Auto => terminal && !plain,
            When::Always => true,
            When::Never => false,
        };
        Self { out: Box::new(out), json, colour: colour && !json, terminal }
    }

    /// Whether programs read it.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether colours are used.
    pub(crate) fn has_colours(&self) -> bool {
        self.colour
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn value(&mut self, value: &impl Serialize) -> Result {
        serde_json::to_writer(&mut self.out, value).map_err(std::io::Error::from)?;
        self.line("")
    }

    /// Writes a line and lets it be seen.
    pub(crate) fn line(&mut self, text: &str) -> Result {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Writes text without ending the line.
    pub(crate) fn part(&mut self, text: &str) -> Result {
        write!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Writes a heading with an empty line before it.
    pub(crate) fn heading(&mut self, text: &str) -> Result {
        match self.colour {
            true => self.line(&format!("\n\u{1b}[1m{text}\u{1b}[0m")),
            false => self.line(&format!("\n{text}")),
        }
    }

    /// Dims text that people may skip.
    pub(crate) fn dim(&self, text: &str) -> String {
        if self.colour { format!("\u{1b}[2m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Writes a table. Fits the terminal; elsewhere every cell is whole and no line is wrapped.
    pub(crate) fn table(&mut self, head: &[&str], rows: Vec<Vec<Cell>>) -> Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if self.terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if !head.is_empty() {
            table
                .set_header(head.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)).collect::<Vec<_>>());
        }
        for row in rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let text: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        self.line(&text.join("\n"))
    }

    /// Writes names with their values, one a line.
    pub(crate) fn facts(&mut self, facts: Vec<(&str, Cell)>) -> Result {
        let facts = facts.into_iter().map(|(name, value)| vec![Cell::new(name).add_attribute(Attribute::Dim), value]);
        self.table(&[], facts.collect())
    }
}

/// A status in its colour.
pub(crate) fn status(status: Status) -> Cell {
    let colour = match status {
        Status::Completed => Color::Green,
        Status::Failed => Color::Red,
        Status::Waiting | Status::Paused => Color::Yellow,
        Status::Running | Status::Pending => Color::Cyan,
        Status::Cancelling | Status::Cancelled => Color::Magenta,
    };
    Cell::new(status.as_str()).fg(colour)
}

/// The word of a value whose JSON form is a string.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// A moment as RFC 3339 in UTC.
pub(crate) fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map(|at| format!("{at:.3}")).unwrap_or_else(|_| at.0.to_string())
}

/// How long ago something was: `12s`, `5m`, `3h`, `4d`.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(at).as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long something took: `3.2ms`, `1.5s`, `2m 5s`.
pub(crate) fn took(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{:.1}ms", duration.as_secs_f64() * 1000.0),
        1..60 => format!("{:.1}s", duration.as_secs_f64()),
        seconds => format!("{}m {}s", seconds / 60, seconds % 60),
    }
}

/// A value without the quotes of JSON, where it is text.
pub(crate) fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A path as people write it: from their home.
pub(crate) fn short_path(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home.canonicalize().ok()?).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// The start of a text on one line, at most so many characters.
pub(crate) fn short(text: &str, limit: usize) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
