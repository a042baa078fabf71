//! Limits how many bytes of results a load brings with a tail. The results beyond that stay in their rows until replay
//! comes to them.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::model::Task;
use crate::payload::{Body, Payload, RowOf};

/// The most bytes of results that are loaded with a tail. Most tails need no more.
const LOADED: usize = 1 << 20;

/// How many bytes of results one load may still bring.
#[derive(Debug)]
pub(super) struct Allowance(usize);

impl Default for Allowance {
    fn default() -> Self {
        Self(LOADED)
    }
}

impl Allowance {
    /// Drops what the fact of a task's end does not need, and the result too if there is no room for it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn task(&mut self, task: &mut Task) {
        task.new.input = Payload::null();
        if let Some(output) = &mut task.output {
            self.fit(output, RowOf { execution: task.execution, slot: task.slot });
        }
    }

    /// Keeps a result if there is room for it, else leaves it in its row.
    pub(super) fn fit(&mut self, value: &mut Payload, of: RowOf) {
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
