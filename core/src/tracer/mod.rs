//! Shows people what a run does: one record for each thing that happens, to any number of sinks, and `tracing` spans.
//!
//! Tracing never decides anything. A slow or broken sink loses records, never work. The spans have stable names:
//!
//! | span | level | from, to | fields |
//! | --- | --- | --- | --- |
//! | `flovyn.execution` | info | a claim, the end of the activation or its parking | `execution`, `agent`, `key`, `epoch`, `traceparent`, `parent_run` |
//! | `flovyn.segment` | info | its first op here, its checkpoint | `segment`, `tail` |
//! | `flovyn.op` | debug | the call, its outcome handed over | `op`, `label`, `replayed` |
//! | `flovyn.task` | info | an attempt's start, its end | `task`, `kind`, `attempt` |

mod activation;
mod attempt;
mod background;
mod composite;
mod file;
mod record;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stdout;

pub(crate) use activation::{Activation, Named, Noted};
pub(crate) use attempt::Attempt;
pub use composite::CompositeTracer;
pub use file::FileTracer;
pub use record::{Trace, Traced};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteTracer;
pub use stdout::StdoutTracer;

use std::sync::Arc;

/// Takes the records of runs.
pub trait AgentTracer: Send + Sync + 'static {
    /// Takes a record. It is called on the engine's threads, so it must be quick and must not block.
    fn trace(&self, record: &Trace);

    /// Returns when every record that was taken so far is written. It may block.
    fn flush(&self) {}
}

impl<T: AgentTracer + ?Sized> AgentTracer for Arc<T> {
    fn trace(&self, record: &Trace) {
        (**self).trace(record);
    }

    fn flush(&self) {
        (**self).flush();
    }
}

/// The tracer of a worker, if it has one. Clones share it.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<dyn AgentTracer>>);

impl Tracer {
    /// Sends records to a tracer.
    pub fn new(tracer: impl AgentTracer) -> Self {
        Self(Some(Arc::new(tracer)))
    }

    /// Whether anybody takes records.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn trace(&self, record: impl FnOnce() -> Trace) {
        if let Some(tracer) = &self.0 {
            tracer.trace(&record());
        }
    }

    /// Returns when every record that was taken so far is written. It may block.
    pub fn flush(&self) {
        if let Some(tracer) = &self.0 {
            tracer.flush();
        }
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_on() { "Tracer(on)" } else { "Tracer(off)" })
    }
}
