//! Views: the form in which stored data is shown. REST, `--json`, Python and TypeScript all use the same fields and
//! names.
//!
//! `of` makes a view from a value of the model. A view never holds payloads, because those may be large or stored
//! elsewhere; each of the four reads them in its own way. What one of them shows beside a view (older names, links) it adds
//! itself;
//! `docs/names.md` lists all of that. Views are for people and programs that look at runs: no step of a run makes one.

mod run;
mod show;
mod task;
mod tree;
mod work;

pub use run::{Failure, Fork, RollUp, Run, Stop, Usage, Waits};
pub(crate) use show::camel;
pub use show::{Moment, Opaque, Show, Style, Word};
pub use task::{Task, op_of};
pub use tree::{Checkpoint, Entry, Event};
pub use work::{LimitedQueue, Op, QueueLoad, RunMachine, Schedule, Served, Worker};
