//! The rules of a run, pure: no async, no I/O, no clock. Inputs in, effects out.
//!
//! ```text
//!            call, await_op, abandon, settle, task_ended, finish        (from the agent's host)
//!                                   │
//!   load ──► Machine ───────────────┤
//!            answered, facts, hold_elapsed, divergence_elapsed          (from the session)
//!                                   ▼
//!            Deliver, Start, Cancel ─► host        Commit, ArmHold, Parked, Finished ─► session
//! ```
//!
//! The session drives the [`Machine`] in production. The property tests drive it at millions of steps a second.

mod account;
mod call;
mod calling;
mod code;
mod committing;
mod config;
mod divergence;
mod draft;
mod effect;
mod facts;
mod host;
mod machine;
mod op;
mod open;
mod phase;
mod plan;
mod replay;
pub mod retry;
mod reword;
mod run;
mod segment;
#[cfg(test)]
mod tests;
mod transition;
#[cfg(test)]
mod wrong;

pub use call::{Answer, Call, Called, ChildCall, ChildOptions, Completion, OnceBegin, Question};
pub use config::{MachineConfig, OnDivergence, OnError, Outside, REPLAY_TIMEOUT};
pub use effect::{CommitDraft, Effect, Ending, Handed, Outcome, StartTask};
pub use machine::{Machine, OpRef};
