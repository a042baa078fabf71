//! Elicitations: MCP servers ask a person for input in the middle of a call. This file says how a person is asked,
//! which answers are accepted, and how the call goes on.

use super::run::AgentRun;
use super::transcript::entry_type;
use super::{AgentEvent, INPUT};
use crate::mcp::{InputAnswer, InputGiven, InputQuestion, InputRequired, McpInputTask};
use crate::message::ToolCall;
use crate::tools::approval::CallHash;
use flovyn_core::Payload;
use flovyn_core::context::{AgentContext, Step, TaskCall};
use flovyn_core::error::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The questions that a server asks before a call goes on: the content of an `input_request` entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequest {
    /// The id of the call.
    pub id: String,
    /// The tool, as the model called it.
    pub name: String,
    /// The server's name in the worker's configuration.
    pub server: String,
    /// The questions, by the server's own keys.
    pub questions: BTreeMap<String, InputQuestion>,
    /// The hash that the answer has to name.
    pub hash: CallHash,
}

/// The answer of a person: the payload of the signal [`INPUT`], and the content of an `input` entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputReply {
    /// The id of the call.
    pub id: String,
    /// The answers to the questions, and the hash of the request.
    #[serde(flatten)]
    pub answer: InputAnswer,
}

/// Why an answer was refused: the content of an `input_refused` entry. The questions are still open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRefused {
    /// The id of the call.
    pub id: String,
    /// The hash of the request.
    pub hash: CallHash,
    /// What is wrong with the answer.
    pub message: String,
}

/// The calls that wait for input, in the order of the requests.
#[derive(Default)]
pub(super) struct PendingElicitations(Vec<(ToolCall, InputRequired)>);

impl PendingElicitations {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks the questions of a server. The request is an entry, and it is durable before anybody can answer it.
    pub(super) fn ask(&mut self, run: &AgentRun<'_>, call: ToolCall, required: InputRequired) -> Result<()> {
        let request = InputRequest {
            id: call.id.clone(),
            name: call.name.clone(),
            server: required.server.clone(),
            questions: required.questions.clone(),
            hash: required.hash.clone(),
        };
        run.record("assistant", entry_type::INPUT_REQUEST, &request)?;
        AgentEvent::InputRequest { request: &request }.emit(run.ctx);
        self.0.push((call, required));
        Ok(())
    }

    /// Waits for the next answer.
    pub(super) fn wait(ctx: &dyn AgentContext) -> Result<Step> {
        ctx.wait_raw(INPUT, None)
    }

    /// Handles an answer, and returns the call that goes on with it. An answer to other questions has no effect. An
    /// answer that does not fit the questions is refused with the reason, and the questions stay open.
    pub(super) fn answered(&mut self, run: &AgentRun<'_>, payload: &Payload) -> Result<Option<(ToolCall, InputGiven)>> {
        let Ok(reply) = payload.parse::<InputReply>() else { return Ok(None) };
        let is_meant =
            |(call, required): &(ToolCall, InputRequired)| call.id == reply.id && required.hash == reply.answer.hash;
        let Some(place) = self.0.iter().position(is_meant) else { return Ok(None) };
        match self.0[place].1.clone().answered(reply.answer.clone()) {
            Ok(None) => Ok(None),
            Ok(Some(given)) => {
                run.record("user", entry_type::INPUT, &reply)?;
                let (call, _) = self.0.remove(place);
                Ok(Some((call, given)))
            }
            Err(error) => {
                let (id, hash, message) = (reply.id, reply.answer.hash, error.message().to_owned());
                let refused = InputRefused { id, hash, message };
                run.record("system", entry_type::INPUT_REFUSED, &refused)?;
                AgentEvent::InputRefused { refused: &refused }.emit(run.ctx);
                Ok(None)
            }
        }
    }

    /// Takes out all calls. An answer to one of their requests has no effect from now on. A call that waits for one with its
    /// server in this process is called off; with a server in another, that is for the process to find.
    pub(super) fn take(&mut self) -> Vec<ToolCall> {
        let open = std::mem::take(&mut self.0).into_iter();
        open.map(|(call, required)| {
            required.call_off();
            call
        })
        .collect()
    }
}

/// The task that continues a call. A server may ask again, so each answer has a task of its own.
pub(super) fn continue_call(call: &ToolCall, given: &InputGiven) -> Result<TaskCall> {
    Ok(TaskCall {
        kind: McpInputTask::KIND.to_owned(),
        input: Payload::of(given)?,
        options: Some(McpInputTask::call_options()),
        queue: None,
        key: Some(format!("{}:{}", call.id, given.required.hash.as_str())),
    })
}
