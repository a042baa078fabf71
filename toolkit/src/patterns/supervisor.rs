//! An agent whose model gives work to other agents, a bounded number of times, and answers then.

use crate::react::{AgentConfig, Delegate, ReactAgent};
use crate::tools::approval::ApprovalPolicy;
use flovyn_core::error::{Code, Error, Result};

/// How often a supervisor gives out work, unless it is said.
pub(crate) const ROUNDS: u32 = 10;

/// How a supervisor behaves.
pub(crate) const PROMPT: &str = "You lead a team of agents. Split what you are asked into parts, give each part to the agent that \
suits it best, several at once where they do not depend on each other, and say all that the agent has to know. Look at what \
comes back with a critical eye: ask again where it is not good enough. When you have what you need, answer by yourself: \
briefly, completely, and without naming the agents.";

/// An agent that leads others: in each of at most `rounds` turns its model may give work to any of them at the same time. The
/// last word is the model's.
///
/// # Errors
///
/// `InvalidArgument`: no agents, two of one name, or one without a description.
pub fn supervisor(
    kind: impl Into<String>,
    agents: impl IntoIterator<Item = Delegate>,
    rounds: Option<u32>,
) -> Result<ReactAgent> {
    let config = AgentConfig { max_rounds: Some(rounds.unwrap_or(ROUNDS)), ..AgentConfig::default() };
    let kind = kind.into();
    let leader = ReactAgent::new().named(&kind).with_system_prompt(PROMPT).with_config(&config);
    let leader = leader.with_approvals(ApprovalPolicy::default());
    let mut agents = agents.into_iter().peekable();
    if agents.peek().is_none() {
        return Err(Error::new(Code::InvalidArgument, format!("the supervisor {kind:?} has no agents; give it some")));
    }
    agents.try_fold(leader, ReactAgent::with_delegate)
}
