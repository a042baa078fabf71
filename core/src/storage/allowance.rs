//! How much of a tail's results a load brings along: those over it stay in their rows until replay comes to them.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::model::Task;
use crate::payload::{Body, Payload, RowOf};

/// Bytes of results that are loaded with their tail: most tails fit, and need nothing more.
const LOADED: usize = 1 << 20;

/// What is left of the bytes that one load brings along.
#[derive(Debug)]
pub(super) struct Allowance(usize);

impl Default for Allowance {
    fn default() -> Self {
        Self(LOADED)
    }
}

impl Allowance {
    /// Keeps of a task what the fact of its end needs.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub fn task(&mut self, task: &mut Task) {
        task.new.input = Payload::null();
        if let Some(output) = &mut task.output {
            self.fit(output, RowOf { execution: task.execution, slot: task.slot });
        }
    }

    /// Keeps a result, or leaves it in its row.
    pub fn fit(&mut self, value: &mut Payload, of: RowOf) {
        let Body::Inline(bytes) = &value.body else { return };
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            None => {
                self.0 = 0;
                value.leave_in(of);
            }
        }
    }
}
