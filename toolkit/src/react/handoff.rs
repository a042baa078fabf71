//! Calls that hand the run off to another agent, which goes on with the conversation.
//!
//! Such a call is the last one of its turn: every call of it has its result first, the call itself too, for the successor goes
//! on from there. Where the handoff is refused, that result is replaced by one that says why.

use super::delegate::{Delegate, Giving};
use super::run::AgentRun;
use crate::message::ToolCall;
use crate::tools::ToolOutcome;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::journal::{ChildOptions, Completion};
use flovyn_core::model::SharedContext;
use serde_json::Value;

/// The result of calls that would hand off to more than one agent.
const ONE_ALONE: &str = "Not transferred: this turn transfers the conversation to another agent.";

impl AgentRun<'_> {
    /// Hands the run off by the first of these calls. Returns only where that is refused: then the calls have results that say
    /// why, and the run goes on.
    pub(super) async fn hand_off(&mut self, mut calls: Vec<ToolCall>) -> Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let call = calls.remove(0);
        let Some(delegate) = self.tools.get(&call.name).and_then(|tool| tool.gives(Giving::HandsOff)).cloned() else {
            return Ok(());
        };
        for other in &calls {
            self.answer(other, ToolOutcome::error("skipped", ONE_ALONE))?;
        }
        let result = ToolOutcome::text(format!("Asked {} to go on with the conversation.", delegate.name));
        let entry = self.append_outcome(&call, result)?;
        // What the user has said for after this turn is said to the successor.
        let queue = std::mem::take(&mut self.state.queue);
        self.add_user_messages(&queue)?;
        let input: Value = delegate.input(Giving::HandsOff, &call.arguments, self.input, &self.state.model)?.parse()?;
        let options = ChildOptions { shared_context: Some(SharedContext::read_only()), ..delegate.options(None) };
        let Err(refused) = self.ctx.handoff_to_agent(&delegate.kind, &input, options, Completion::WaitForChild).await;
        match refusal(&delegate, &refused) {
            Some(outcome) => self.correct_outcome(entry, &call, outcome),
            None => Err(refused),
        }
    }
}

/// The result of a call whose handoff was refused; none where the error is not about the handoff.
fn refusal(delegate: &Delegate, error: &Error) -> Option<ToolOutcome> {
    let name = &delegate.name;
    let words = match error.code() {
        Code::LimitReached => format!(
            "The conversation cannot be transferred to {name}: it was handed on too often ({}). Answer the user yourself.",
            error.message()
        ),
        Code::BudgetExceeded | Code::InvalidArgument | Code::PayloadTooLarge => {
            format!("The conversation cannot be transferred to {name}: {}", error.message())
        }
        _ => return None,
    };
    Some(ToolOutcome::error("transfer_refused", words))
}
