//! Several tracers as one.

use super::{AgentTracer, Trace};

/// Hands every record to several tracers, in the order they were added.
#[derive(Default)]
pub struct CompositeTracer(Vec<Box<dyn AgentTracer>>);

impl CompositeTracer {
    /// No tracers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    #[must_use]
    pub fn with(mut self, tracer: impl AgentTracer) -> Self {
        self.0.push(Box::new(tracer));
        self
    }
}

impl AgentTracer for CompositeTracer {
    fn trace(&self, record: &Trace) {
        for tracer in &self.0 {
            tracer.trace(record);
        }
    }

    fn flush(&self) {
        for tracer in &self.0 {
            tracer.flush();
        }
    }
}
