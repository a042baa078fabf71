//! The terminal: settled rows scroll up, a few live rows at its end are redrawn.

use super::style::{Row, painted};
use crossterm::cursor::{Hide, MoveToColumn, MoveUp, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use std::io::{Result, Stdout, Write, stdout};

/// A terminal in raw mode; it is as before when this is dropped.
pub(crate) struct Terminal {
    out: Stdout,
    colour: bool,
    /// Rows between the first that is drawn anew and the one with the cursor.
    above: usize,
}

impl Terminal {
    /// Takes the terminal of standard output.
    pub(crate) fn open(colour: bool) -> Result<Self> {
        enable_raw_mode()?;
        let mut out = stdout();
        execute!(out, EnableBracketedPaste)?;
        Ok(Self { out, colour, above: 0 })
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        // A terminal that does not know its size is taken for a usual one.
        let (columns, rows) = size().unwrap_or((80, 24));
        let or_usual = |size: u16, usual| if size == 0 { usual } else { usize::from(size) };
        (or_usual(columns, 80), or_usual(rows, 24))
    }

    /// Writes rows that stay, then those that are drawn anew, with the cursor in one of them.
    pub(crate) fn show(&mut self, stay: &[Row], live: &[Row], cursor: (usize, usize)) -> Result<()> {
        let max = self.size().1.saturating_sub(1).max(1);
        let cut = live.len().saturating_sub(max);
        let (live, row) = (&live[cut..], cursor.0.saturating_sub(cut));
        queue!(self.out, BeginSynchronizedUpdate, Hide)?;
        self.erase()?;
        for row in stay {
            queue!(self.out, Print(painted(row, self.colour)), Print("\r\n"))?;
        }
        for (index, row) in live.iter().enumerate() {
            if index > 0 {
                queue!(self.out, Print("\r\n"))?;
            }
            queue!(self.out, Print(painted(row, self.colour)))?;
        }
        let below = live.len().saturating_sub(row + 1);
        if below > 0 {
            queue!(self.out, MoveUp(rows(below)))?;
        }
        queue!(self.out, MoveToColumn(rows(cursor.1)), Show, EndSynchronizedUpdate)?;
        self.above = row;
        self.out.flush()
    }

    fn erase(&mut self) -> Result<()> {
        if self.above > 0 {
            queue!(self.out, MoveUp(rows(self.above)))?;
        }
        self.above = 0;
        queue!(self.out, MoveToColumn(0), Clear(ClearType::FromCursorDown))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.erase();
        let _ = execute!(self.out, DisableBracketedPaste, Show);
        let _ = disable_raw_mode();
    }
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
