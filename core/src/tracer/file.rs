//! Records in a file, one JSON object a line.

use super::background::{Background, Sink};
use super::{AgentTracer, Trace};
use crate::error::{Code, Error, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Appends records to a file as JSON lines. Dropping it writes what is queued.
pub struct FileTracer(Background);

impl FileTracer {
    /// Opens the file, creating it where it is missing; its folder must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|file| Background::start(Lines(file))).map(Self).map_err(|error| {
            let message = format!("traces cannot be written to {}: {error}; name a file that can be", path.display());
            Error::new(Code::InvalidArgument, message).caused_by(error)
        })
    }
}

impl AgentTracer for FileTracer {
    fn trace(&self, record: &Trace) {
        self.0.send(record);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

struct Lines(File);

impl Sink for Lines {
    fn write(&mut self, batch: &[Trace]) -> std::io::Result<()> {
        let mut lines = Vec::new();
        for record in batch {
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        self.0.write_all(&lines)
    }
}
