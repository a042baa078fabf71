//! What is shown of what is stored: one set of fields and names, for REST, `--json`, Python and TypeScript.
//!
//! A view is made of a row of the model by `of`. It never holds payloads: those may be large or stored elsewhere, and each
//! face reads them in its own way. What a face shows beside a view (older names, links) it adds itself; `docs/names.md`
//! lists all of it. For people and programs that look at runs; nothing here is on the way of a step.

mod run;
mod show;
mod task;
mod tree;
mod work;

pub use run::{Failure, Fork, Run, Stop, Usage, Waits};
pub(crate) use show::camel;
pub use show::{Moment, Opaque, Show, Style, Word};
pub use task::{Task, op_of};
pub use tree::{Checkpoint, Entry, Event};
pub use work::{LimitedQueue, Op, QueueLoad, Schedule, Served, Worker};
