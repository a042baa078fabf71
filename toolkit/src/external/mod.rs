//! External agents: somebody else's agent as a durable agent that owns its process.
//!
//! An [`ExternalAgent`] starts a program, speaks its protocol by a driver ([`ExternalAgentProtocol`]), and keeps what it says
//! as entries of the run. The program owns its content: after a crash of this process its session is resumed in another
//! one, and what it had said meanwhile is taken from its own records, once. After a crash of the program it is started
//! again, at most three times in a row.
//!
//! | driver | agents | messages while it works |
//! | --- | --- | --- |
//! | [`Acp`] | all that speak the Agent Client Protocol, and your own | end its turn and begin another |
//! | [`Claude`] | Claude Code, by its stream of JSON messages | steer it |
//! | [`Pi`] | Pi, by its RPC mode | steer it |
//!
//! A run takes an [`AgentInput`](crate::react::AgentInput), signals and approvals as the built-in agent does, and gives a
//! [`RunOutcome`](crate::react::RunOutcome). A worker of it serves the task [`ExternalTurns`] as well:
//!
//! ```no_run
//! use flovyn_core::client::StartOptions;
//! use flovyn_core::runtime::FlovynClient;
//! use flovyn_toolkit::external::ExternalAgent;
//! use flovyn_toolkit::react::{AgentInput, RunOutcome};
//!
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = ExternalAgent::acp("gemini", ["--experimental-acp"], "/src/app");
//! let flovyn = FlovynClient::builder().storage("sqlite:agents.db").agent(agent.clone()).task(agent.turns()).build().await?;
//! let _worker = flovyn.worker().await?;
//! let input = AgentInput { user_prompt: "Fix the failing test".into(), ..AgentInput::default() };
//! let run = flovyn.start(&agent, &input, StartOptions::with_id("fix")).await?;
//! let outcome: RunOutcome = run.result(None).await?.parse()?;
//! println!("{}", outcome.text);
//! # Ok(())
//! # }
//! ```

mod acp;
mod agent;
mod bridge;
mod claude;
mod event;
mod pi;
mod process;
mod protocol;
mod run;
mod state;
mod turns;

pub use acp::Acp;
pub use agent::ExternalAgent;
pub use claude::Claude;
pub use event::{Answer, ExternalEvent, Permission, Spent, ToolEnded, ToolStarted, TurnEnd, TurnEndReason, TurnLog};
pub use pi::Pi;
pub use process::{Launch, Outbox, Peer};
pub use protocol::{
    CatchUp, Controls, ExternalAgentProtocol, ExternalSession, Lost, SessionConfig, Snapshot, Spoken, SteeringRecord,
};
pub use state::{ExternalState, TurnState};
pub use turns::{ExternalTurns, Pulled, TurnInput};
