//! Tables of Markdown: as wide as what is in them, at most as wide as the terminal; what does not fit is broken inside of its cell.

use super::style::{Row, Style, span, width_of, wrap};
use pulldown_cmark::Alignment;

/// Columns that no cell is narrower than, where the terminal has room for them.
const NARROWEST: usize = 8;

/// A table, its head first.
#[derive(Debug, Default)]
pub(crate) struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Row>>,
}

impl Table {
    /// A table whose columns are set so.
    pub(crate) fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new() }
    }

    /// Begins a row.
    pub(crate) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    /// Adds a cell to the row that was begun last.
    pub(crate) fn add(&mut self, cell: Row) {
        self.rows.last_mut().into_iter().for_each(|row| row.push(cell.clone()));
    }

    /// Its rows on a screen, with thin lines around them, below the head, and between rows where one has several lines.
    pub(crate) fn rows(self, width: usize) -> Vec<Row> {
        let widths = self.widths(width);
        let line = |ends: [&str; 3]| {
            let dashes: Vec<_> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
            vec![span(format!("{}{}{}", ends[0], dashes.join(ends[1]), ends[2]), Style::DIM)]
        };
        let broken: Vec<Vec<Vec<Row>>> = self
            .rows
            .iter()
            .enumerate()
            .map(|(place, row)| {
                let cell = |(column, width): (usize, &usize)| {
                    let mut cell = row.get(column).cloned().unwrap_or_default();
                    if place == 0 {
                        cell.iter_mut().for_each(|span| span.style.bold = true);
                    }
                    wrap(&cell, *width, &[], &[])
                };
                widths.iter().enumerate().map(cell).collect()
            })
            .collect();
        let has_lines = broken.iter().flatten().any(|cell| cell.len() > 1);
        let mut rows = vec![line(["┌", "┬", "┐"])];
        for (place, cells) in broken.iter().enumerate() {
            if place == 1 || (place > 1 && has_lines) {
                rows.push(line(["├", "┼", "┤"]));
            }
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            rows.extend((0..height).map(|at| self.line(cells, at, &widths)));
        }
        rows.push(line(["└", "┴", "┘"]));
        rows
    }

    /// One row on the screen of a row of cells.
    fn line(&self, cells: &[Vec<Row>], at: usize, widths: &[usize]) -> Row {
        let mut line = vec![span("│", Style::DIM)];
        for (column, width) in widths.iter().enumerate() {
            let piece = cells.get(column).and_then(|cell| cell.get(at)).cloned().unwrap_or_default();
            let room = width.saturating_sub(width_of(&piece));
            let before = match self.alignments.get(column) {
                Some(Alignment::Right) => room,
                Some(Alignment::Center) => room / 2,
                _ => 0,
            };
            line.push(span(" ".repeat(before + 1), Style::PLAIN));
            line.extend(piece);
            line.push(span(" ".repeat(room - before + 1), Style::PLAIN));
            line.push(span("│", Style::DIM));
        }
        line
    }

    /// The columns of each cell: what it needs, but the widest give up what the terminal does not have.
    fn widths(&self, width: usize) -> Vec<usize> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let needed = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width_of(cell)).max().unwrap_or(0).max(1)
        };
        let mut widths: Vec<usize> = (0..count).map(needed).collect();
        // The lines between, and a blank on both sides of each cell.
        let room = width.saturating_sub(3 * count + 1);
        while widths.iter().sum::<usize>() > room {
            let narrowest = if count * NARROWEST <= room { NARROWEST } else { 1 };
            match widths.iter_mut().filter(|width| **width > narrowest).max() {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        widths
    }
}
