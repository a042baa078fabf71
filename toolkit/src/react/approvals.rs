//! Tool calls that wait for the approval of a person: how a person is asked, and which answers count.

use super::run::AgentRun;
use super::transcript::entry_type;
use super::{APPROVAL, AgentEvent};
use crate::message::ToolCall;
use crate::tools::Effect;
use crate::tools::approval::{ApprovalAnswer, ApprovalRequest, ApprovalScope, ApprovalTerms, Rule, Verdict};
use flovyn_core::Payload;
use flovyn_core::context::{AgentContext, Step};
use flovyn_core::error::Result;
use serde::Serialize;

/// The calls that wait for approval, in the order of the model's message.
#[derive(Default)]
pub(super) struct PendingApprovals(Vec<(ToolCall, ApprovalRequest)>);

/// What an answer decides.
pub(super) enum ApprovalDecision {
    /// The call may run.
    Approved {
        /// The call, with the arguments that the person gave it.
        call: ToolCall,
        /// Whether these are others than the model's.
        is_changed: bool,
        /// The rules that allow calls which are alike from now on.
        allows: Vec<Rule>,
    },
    /// The call may not run. The model gets this text.
    Denied(ToolCall, String),
    /// The answer is for none of the calls that wait.
    Nothing,
}

/// What the model is told where a call was approved on terms that cannot be read.
const UNREADABLE: &str = "The user allowed this call on terms that could not be read, so it did not run.";

/// An answer as it is kept.
#[derive(Serialize)]
struct Recorded<'a> {
    #[serde(flatten)]
    answer: &'a ApprovalAnswer,
    #[serde(flatten)]
    terms: &'a ApprovalTerms,
}

impl PendingApprovals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks for the approval of a call. The request is an entry, and it is durable before anything else happens to the
    /// call.
    pub(super) fn ask(&mut self, run: &AgentRun<'_>, call: ToolCall, effect: Effect) -> Result<()> {
        let request = ApprovalRequest::new(&call.id, &call.name, effect, &call.arguments)?;
        run.record("assistant", entry_type::APPROVAL_REQUEST, &request)?;
        AgentEvent::ApprovalRequest { request: &request }.emit(run.ctx);
        self.0.push((call, request));
        Ok(())
    }

    /// Waits for the next answer.
    pub(super) fn wait(ctx: &dyn AgentContext) -> Result<Step> {
        ctx.wait_raw(APPROVAL, None)
    }

    /// Handles an answer. One for another call, or for this call with other arguments, has no effect.
    pub(super) fn answered(&mut self, run: &AgentRun<'_>, payload: &Payload) -> Result<ApprovalDecision> {
        let Ok(answer) = payload.parse::<ApprovalAnswer>() else { return Ok(ApprovalDecision::Nothing) };
        let verdict = |request: &ApprovalRequest| request.answered(&answer);
        let meant = self.0.iter().position(|(_, request)| verdict(request) != Verdict::OfAnotherCall);
        let Some(place) = meant else { return Ok(ApprovalDecision::Nothing) };
        let read = payload.parse::<ApprovalTerms>();
        let is_readable = read.is_ok();
        let terms = read.unwrap_or_default();
        run.record("user", entry_type::APPROVAL, &Recorded { answer: &answer, terms: &terms })?;
        let (mut call, mut request) = self.0.remove(place);
        Ok(match verdict(&request) {
            // Somebody may have meant other arguments: what the model wrote is not run in their place.
            Verdict::Approved if !is_readable => ApprovalDecision::Denied(call, UNREADABLE.to_owned()),
            Verdict::Approved => {
                let given = terms.arguments.filter(|given| *given != call.arguments);
                let is_changed = given.is_some();
                if let Some(given) = given {
                    (call.arguments, request.arguments) = (given.clone(), given);
                }
                let allows = if terms.scope == ApprovalScope::Run { request.alike() } else { Vec::new() };
                ApprovalDecision::Approved { call, is_changed, allows }
            }
            Verdict::Denied(reason) => {
                let because = reason.map_or_else(String::new, |reason| format!(" They said: {reason}"));
                ApprovalDecision::Denied(call, format!("The user did not allow this call.{because}"))
            }
            Verdict::OfAnotherCall => ApprovalDecision::Nothing,
        })
    }

    /// Takes out all calls. An answer to one of their requests has no effect from now on.
    pub(super) fn take(&mut self) -> Vec<ToolCall> {
        std::mem::take(&mut self.0).into_iter().map(|(call, _)| call).collect()
    }
}
