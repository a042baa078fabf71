//! Records on the terminal.

use super::background::{Background, Sink};
use super::{AgentTracer, Trace};
use crate::error::{Code, Error, Result};
use std::io::Write;

/// Prints one line per record. Dropping it prints what is queued.
pub struct StdoutTracer(Background);

impl StdoutTracer {
    /// Starts to print.
    pub fn new() -> Result<Self> {
        Background::start(Terminal).map(Self).map_err(|error| {
            Error::new(Code::StorageUnavailable, format!("the tracer's thread could not be started: {error}"))
                .caused_by(error)
        })
    }
}

impl AgentTracer for StdoutTracer {
    fn trace(&self, record: &Trace) {
        self.0.send(record);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

struct Terminal;

impl Sink for Terminal {
    fn write(&mut self, batch: &[Trace]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        for record in batch {
            writeln!(out, "{record}")?;
        }
        out.flush()
    }
}
