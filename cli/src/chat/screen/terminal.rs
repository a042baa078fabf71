//! The terminal: settled rows scroll up, a few live rows at its end are redrawn.

use super::plain::PlainScreen;
use super::style::{Row, painted, width_of};
use crossterm::cursor::{Hide, MoveDown, MoveTo, MoveToColumn, MoveUp, Show};
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags,
    PushKeyboardEnhancementFlags,
};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use std::cmp::Ordering;
use std::io::{Result, Stdout, Write, stdout};

/// A terminal in raw mode; it is as before when this is dropped.
pub(crate) struct Terminal {
    out: Stdout,
    colour: bool,
    /// The rows that are drawn anew, with their columns, as they are on the screen.
    drawn: Vec<(String, usize)>,
    /// The place of the cursor in them.
    cursor: (usize, usize),
    /// The columns of the terminal when they were drawn.
    columns: usize,
    /// The second screen is shown.
    is_paging: bool,
    /// Where nothing is drawn, only printed.
    plain: Option<PlainScreen>,
}

impl Terminal {
    /// Takes the terminal of standard output.
    pub(crate) fn open(colour: bool) -> Result<Self> {
        let mut terminal = Self {
            out: stdout(),
            colour,
            drawn: Vec::new(),
            cursor: (0, 0),
            columns: 0,
            is_paging: false,
            plain: None,
        };
        terminal.resume()?;
        Ok(terminal)
    }

    /// Takes it for printing only.
    pub(crate) fn plain() -> Self {
        let plain = Some(PlainScreen::default());
        Self { out: stdout(), colour: false, drawn: Vec::new(), cursor: (0, 0), columns: 0, is_paging: false, plain }
    }

    /// The screen that only prints, if it is one.
    pub(crate) fn as_plain(&mut self) -> Option<&mut PlainScreen> {
        self.plain.as_mut()
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        // A terminal that does not know its size is taken for a usual one.
        let (columns, rows) = size().unwrap_or((80, 24));
        let or_usual = |size: u16, usual| if size == 0 { usual } else { usize::from(size) };
        (or_usual(columns, 80), or_usual(rows, 24))
    }

    /// Writes rows that stay, then those that are drawn anew, with the cursor in one of them. Rows that are on the screen
    /// already are not written again.
    pub(crate) fn show(&mut self, stay: &[Row], live: &[Row], cursor: (usize, usize)) -> Result<()> {
        if let Some(plain) = &mut self.plain {
            return plain.show(stay, &[]);
        }
        let (columns, height) = self.size();
        let max = height.saturating_sub(1).max(1);
        let cut = live.len().saturating_sub(max);
        let (live, row) = (&live[cut..], cursor.0.saturating_sub(cut));
        let fresh: Vec<_> = live.iter().map(|row| (painted(row, self.colour), width_of(row))).collect();
        let cursor = (row, cursor.1);
        let is_same_size = columns == self.columns;
        if stay.is_empty() && is_same_size && fresh == self.drawn && cursor == self.cursor {
            return Ok(());
        }
        queue!(self.out, BeginSynchronizedUpdate, Hide)?;
        let mut first = 0;
        if stay.is_empty() && is_same_size && !self.drawn.is_empty() && !fresh.is_empty() {
            let same = self.drawn.iter().zip(&fresh).take_while(|(old, new)| old == new).count();
            first = same.min(self.drawn.len() - 1).min(fresh.len() - 1);
            match first.cmp(&self.cursor.0) {
                Ordering::Less => queue!(self.out, MoveUp(rows(self.cursor.0 - first)))?,
                Ordering::Greater => queue!(self.out, MoveDown(rows(first - self.cursor.0)))?,
                Ordering::Equal => {}
            }
            queue!(self.out, MoveToColumn(0), Clear(ClearType::FromCursorDown))?;
        } else {
            self.erase()?;
        }
        for row in stay {
            queue!(self.out, Print(painted(row, self.colour)), Print("\r\n"))?;
        }
        for (index, (text, _)) in fresh.iter().enumerate().skip(first) {
            if index > first {
                queue!(self.out, Print("\r\n"))?;
            }
            queue!(self.out, Print(text))?;
        }
        let below = fresh.len().saturating_sub(row + 1);
        if below > 0 {
            queue!(self.out, MoveUp(rows(below)))?;
        }
        queue!(self.out, MoveToColumn(rows(cursor.1)), Show, EndSynchronizedUpdate)?;
        (self.drawn, self.cursor, self.columns) = (fresh, cursor, columns);
        self.out.flush()
    }

    /// Fills the second screen with a page; the first stays as it is.
    pub(crate) fn show_page(&mut self, page: &[Row]) -> Result<()> {
        queue!(self.out, BeginSynchronizedUpdate)?;
        if !std::mem::replace(&mut self.is_paging, true) {
            queue!(self.out, EnterAlternateScreen, Hide)?;
        }
        queue!(self.out, Clear(ClearType::All))?;
        for (index, row) in page.iter().enumerate() {
            queue!(self.out, MoveTo(0, rows(index)), Print(painted(row, self.colour)))?;
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.out.flush()
    }

    /// Gives the terminal to another program.
    pub(crate) fn pause(&mut self) -> Result<()> {
        if self.plain.is_some() {
            return Ok(());
        }
        self.erase()?;
        execute!(self.out, PopKeyboardEnhancementFlags, DisableBracketedPaste, Show)?;
        disable_raw_mode()
    }

    /// Takes it back.
    pub(crate) fn resume(&mut self) -> Result<()> {
        if self.plain.is_some() {
            return Ok(());
        }
        enable_raw_mode()?;
        // Terminals that do not know the protocol of kitty pass over it; those that do tell Shift-Enter from Enter.
        let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
        execute!(self.out, EnableBracketedPaste, PushKeyboardEnhancementFlags(flags))
    }

    /// Goes back to the first screen.
    pub(crate) fn leave_page(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_paging) {
            execute!(self.out, LeaveAlternateScreen, Show)?;
        }
        Ok(())
    }

    fn erase(&mut self) -> Result<()> {
        // A terminal that has become narrower has broken the rows that no longer fit, that of the cursor too.
        let columns = self.size().0.max(1);
        let broken = |(_, width): &(String, usize)| width.div_ceil(columns).max(1);
        let above = self.drawn.iter().take(self.cursor.0).map(broken).sum::<usize>() + self.cursor.1 / columns;
        if above > 0 {
            queue!(self.out, MoveUp(rows(above)))?;
        }
        self.drawn.clear();
        self.cursor = (0, 0);
        queue!(self.out, MoveToColumn(0), Clear(ClearType::FromCursorDown))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.leave_page();
        let _ = self.pause();
    }
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
