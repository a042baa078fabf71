//! Proof for agents, yours included: forced re-entry, crash injection, virtual time (feature `testing`).
//!
//! ```text
//!   Harness::new(kind, input, host)          the agent under proof
//!      .outside(|handle| async { … })        what people and programs do to it
//!      .check()                              undisturbed, then: re-entered at every suspension and every checkpoint,
//!                                            killed before and after every commit, every answer lost once
//! ```
//!
//! Each disturbed run must end as the undisturbed one: same outcome, entries, task results and journal, and no finished
//! step done twice. The first difference is told in words. [`CrashPoints`] is the part that other languages use.

mod clock;
mod crash;
mod harness;
#[cfg(feature = "remote")]
pub mod hostile;
mod observe;
#[cfg(all(feature = "postgres", unix))]
pub mod pgbouncer;
#[cfg(all(feature = "postgres", unix))]
pub mod postgres;

pub use crate::clock::ManualClock;
pub use crate::storage::conformance::faults::{Fault, FaultyStorage};
pub use crate::storage::guarded::Call;
pub use clock::VirtualClock;
pub use crash::{CrashPoint, CrashPoints, Ledger, Process};
pub use harness::{Harness, Proof};
pub use observe::Observed;
