//! Patterns of families: agents that lead other agents, made of what every agent has.
//!
//! [`supervisor`] is the built-in agent with delegates and a bound, [`PlanAndExecute`] has a model plan what other agents do, and
//! [`escalate`] asks whoever has given a run its work. All of it survives a crash at any moment, and no call is paid twice.

mod escalation;
mod plan;
mod plan_and_execute;
mod supervisor;

pub use escalation::escalate;
pub use plan::{Plan, PlannedTask};
pub use plan_and_execute::{PlanAndExecute, PlanInput, PlanOutcome, TaskReport};
pub use supervisor::supervisor;
pub(crate) use supervisor::{PROMPT as SUPERVISOR_PROMPT, ROUNDS as SUPERVISOR_ROUNDS};
