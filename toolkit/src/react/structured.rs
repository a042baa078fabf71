//! How a run whose answer has a form ends: with a value of that form, or with an error after the last attempt.

use super::output::{CheckedOutput, final_call, result};
use super::run::{AgentRun, TurnEnd};
use super::{Mode, StopReason};
use crate::message::Message;
use crate::tools::ToolOutcome;
use flovyn_core::error::{Code, Error, Result};

/// The result of calls beside the final answer.
const BESIDE: &str = "Not run: it was called together with the final answer.";
/// The result of the call with the final answer.
const TAKEN: &str = "Taken as the final answer.";

impl AgentRun<'_> {
    /// Takes over a checked answer, whose message is in the conversation already.
    pub(super) fn on_output(&mut self, message: &Message, checked: CheckedOutput) -> Result<TurnEnd> {
        for call in message.tool_calls().filter(|call| Some(*call) != final_call(message)) {
            self.answer(call, ToolOutcome::error("skipped", BESIDE))?;
        }
        match checked {
            CheckedOutput::Value(value) => {
                if let Some(call) = final_call(message) {
                    self.append_message(&Message::tool([result(call, TAKEN, false)]))?;
                }
                let text = if final_call(message).is_some() { value.to_string() } else { message.text() };
                self.state.output = Some(value);
                Ok(TurnEnd::Stopped(StopReason::End, text))
            }
            CheckedOutput::Fault { message: fault, again } => {
                again.iter().try_for_each(|message| self.append_message(message))?;
                self.state.output_faults += 1;
                let retries = self.output_form().map_or(0, |form| form.retries);
                if self.state.output_faults > retries {
                    let asked = self.state.output_faults;
                    let said = format!("the model was asked {asked} times and gave no answer of the form: {fault}");
                    if self.input.config.mode == Mode::Chat {
                        return Ok(TurnEnd::Stopped(StopReason::InvalidOutput, said));
                    }
                    return Err(Error::new(Code::AgentFailed, said).with("error_type", "invalid_output"));
                }
                match self.state.since_user >= self.max_turns() {
                    true => Ok(TurnEnd::Stopped(StopReason::MaxTurns, message.text())),
                    false => Ok(TurnEnd::More),
                }
            }
        }
    }
}
