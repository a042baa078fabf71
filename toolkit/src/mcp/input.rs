//! Elicitation: the questions that a server asks a person during a call, and the answers, as plain data for signals and
//! forms.
//!
//! In the stateless protocol, such a call ends with the questions and an opaque state of the server. Both are in the
//! outcome, so no connection stays open meanwhile. A run may wait for days, move to another machine, and go on with
//! [`InputGiven`]. With the handshake the server waits with an open request. The outcome is the same, and has the token of the
//! call that waits in this process; if that is gone when the answer comes, the question is lost.

use super::call::{OpenQuestion, PendingInput};
use super::parked;
use super::sampling::Sampler;
use crate::tools::ToolOutcome;
use crate::tools::approval::CallHash;
use crate::tools::fault::Fault;
use flovyn_core::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The error code of an outcome that asks for input ([`ToolOutcome::error_code`]), and the field of its details with the request.
const INPUT_REQUIRED: (&str, &str) = ("input_required", "inputRequired");

/// A call that goes on once a person has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequired {
    /// The server's name in the configuration.
    pub server: String,
    /// The tool's name at its server.
    pub tool: String,
    /// The name under which the model called it.
    pub name: String,
    /// The model's arguments.
    pub arguments: Value,
    /// The questions, by the server's own keys.
    pub questions: BTreeMap<String, InputQuestion>,
    /// The state of the server, which it wants back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The answers to what the server asked besides and no person has to answer, by its keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, Value>,
    /// The task of the server that goes on with the answers, in place of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The call that waits in the process that has made it, in place of a state. Then the server knows of no keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_call: Option<String>,
    /// The requests to a model that a person is asked about, by the server's keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sampling: BTreeMap<String, Value>,
    /// Whether the call may be sent again if its answer is lost.
    #[serde(default)]
    pub may_repeat: bool,
    /// The hash that the answer has to name. It is made from the call, the questions and the state.
    pub hash: CallHash,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase")]
pub enum InputQuestion {
    /// A form.
    Form {
        /// What it is for.
        message: String,
        /// The JSON Schema of its content: an object of plain fields.
        schema: Value,
    },
    /// An address to visit. What the person enters there does not come back with the answer.
    Url {
        /// What it is for.
        message: String,
        /// The address. Show all of it, and open it only when the person says so.
        url: String,
    },
}

/// The answer of a person: the payload of the signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputAnswer {
    /// The hash of the request.
    pub hash: CallHash,
    /// The answers, by the keys of the questions.
    pub responses: BTreeMap<String, InputResponse>,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase")]
pub enum InputResponse {
    /// Yes, with the content of a form.
    Accept {
        /// The content, which has to match the schema of the form; none for an address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Value>,
    },
    /// No. The server decides what to do with the call.
    Decline,
    /// The question was closed without an answer.
    Cancel,
}

/// The argument of [`McpInputTask`](super::McpInputTask): a call with the answers to its questions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputGiven {
    /// The call.
    pub required: InputRequired,
    /// The answers.
    pub responses: BTreeMap<String, InputResponse>,
}

impl InputRequired {
    /// The questions of an outcome, if it has any.
    pub fn of(outcome: &ToolOutcome) -> Option<Self> {
        let (code, field) = INPUT_REQUIRED;
        let request = outcome.details.get(field).filter(|_| outcome.error_code() == Some(code))?;
        serde_json::from_value(request.clone()).ok()
    }

    /// Checks an answer, and returns what the call goes on with. None if the answer is for other questions.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: a question is not answered, or the content of a form does not match its schema.
    pub fn answered(self, answer: InputAnswer) -> Result<Option<InputGiven>> {
        if answer.hash != self.hash {
            return Ok(None);
        }
        for (key, question) in &self.questions {
            let wrong = |what: String| {
                let message = format!("the answer to {key:?} of {}: {what}", self.name);
                Error::new(Code::InvalidArgument, message)
            };
            match (question, answer.responses.get(key)) {
                (_, None) => return Err(wrong("it is missing; accept, decline or cancel".into())),
                (InputQuestion::Form { schema, .. }, Some(InputResponse::Accept { content })) => {
                    let validator = jsonschema::validator_for(schema)
                        .map_err(|error| wrong(format!("the server's form is no JSON Schema: {error}")))?;
                    let content = content.as_ref().unwrap_or(&Value::Null);
                    validator.validate(content).map_err(|error| wrong(format!("it does not fit the form: {error}")))?;
                }
                _ => {}
            }
        }
        let responses = answer.responses.into_iter().filter(|(key, _)| self.questions.contains_key(key)).collect();
        Ok(Some(InputGiven { required: self, responses }))
    }

    /// Does without an answer: the call that waits for it in this process, if one does, is called off.
    pub fn call_off(&self) {
        if let Some(token) = &self.open_call {
            parked::call_off(token);
        }
    }

    /// The outcome that asks for input. Callers that cannot ask treat it as an error.
    pub(super) fn into_outcome(self) -> ToolOutcome {
        let messages: Vec<_> = self.questions.values().map(|question| format!("- {}", question.message())).collect();
        let message = format!(
            "The MCP server {:?} needs an answer of a person before this call goes on:\n{}\nNobody was asked, so the call did not go on.",
            self.server,
            messages.join("\n")
        );
        let (code, field) = INPUT_REQUIRED;
        ToolOutcome::error(code, super::outcome::clean(&message)).with_details(json!({ field: self }))
    }

    /// The request for input that a server has answered a call with.
    pub(super) fn new(call: CallOrigin, asked: PendingInput) -> Result<Self, Fault> {
        let PendingInput { required: result, given, task, open } = asked;
        let CallOrigin { server, tool, name, arguments, may_repeat, sampler } = call;
        let unsupported = |what: String| {
            Fault::for_model(
                "mcp_error",
                format!("The MCP server {server:?} asks for {what} in the middle of this call, which it is not given."),
            )
        };
        let (mut questions, mut sampling) = (BTreeMap::new(), BTreeMap::new());
        let requests = result.input_requests.unwrap_or_default().into_iter();
        let requests = requests.map(|(key, request)| (key, serde_json::to_value(&request).unwrap_or_default()));
        let (open_call, asked) = match open {
            Some(OpenQuestion { token, method, parameters }) => {
                (Some(token), Some((OPEN_QUESTION.to_owned(), json!({ "method": method, "params": parameters }))))
            }
            None => (None, None),
        };
        for (key, written) in requests.chain(asked) {
            let text = |field: &str| written["params"][field].as_str().unwrap_or_default().to_owned();
            let message = text("message");
            let question = match (written["method"].as_str(), written["params"]["mode"].as_str(), &sampler) {
                (Some("elicitation/create"), Some("url"), _) => InputQuestion::Url { message, url: text("url") },
                (Some("elicitation/create"), ..) => {
                    InputQuestion::Form { message, schema: written["params"]["requestedSchema"].clone() }
                }
                (Some("sampling/createMessage"), _, Some(sampler)) => {
                    let message = sampler.question(&server, &written["params"]);
                    sampling.insert(key.clone(), written["params"].clone());
                    InputQuestion::Form { message, schema: allowed_schema() }
                }
                (method, ..) => return Err(unsupported(method.unwrap_or("something unknown").to_owned())),
            };
            questions.insert(key, question);
        }
        let state = result.request_state;
        let mut bound = json!({ "arguments": arguments, "questions": questions, "state": state });
        if !sampling.is_empty() {
            bound["sampling"] = json!(sampling);
        }
        if let Some(task) = &task {
            bound["task"] = json!(task);
        }
        if let Some(open_call) = &open_call {
            bound["openCall"] = json!(open_call);
        }
        let hash = CallHash::of(&name, &bound).map_err(Fault::Machine)?;
        Ok(Self { server, tool, name, arguments, questions, state, given, task, open_call, sampling, may_repeat, hash })
    }
}

impl InputQuestion {
    /// What it is for.
    pub fn message(&self) -> &str {
        match self {
            Self::Form { message, .. } | Self::Url { message, .. } => message,
        }
    }
}

/// The call that a request for input comes from.
#[derive(Clone)]
pub(super) struct CallOrigin {
    pub server: String,
    pub tool: String,
    pub name: String,
    pub arguments: Value,
    pub may_repeat: bool,
    /// What the server may ask of models, if it may.
    pub sampler: Option<Arc<Sampler>>,
}

/// The key of the question of a server of the handshake, which asks one at a time.
pub(super) const OPEN_QUESTION: &str = "question";

/// The field of the form that lets a server ask a model.
const ALLOWED: &str = "allow";

fn allowed_schema() -> Value {
    let allow = json!({ "type": "boolean", "title": "Allow it", "default": false });
    json!({ "type": "object", "properties": { ALLOWED: allow }, "required": [ALLOWED] })
}

impl InputResponse {
    /// Whether a person lets a server ask a model.
    pub(super) fn allows(&self) -> bool {
        matches!(self, Self::Accept { content: Some(content) } if content[ALLOWED] == true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(written: Value) -> PendingInput {
        PendingInput::new(serde_json::from_value(written).expect("a result"))
    }

    fn required() -> InputRequired {
        let call = CallOrigin {
            server: "s".into(),
            tool: "t".into(),
            name: "mcp__s__t".into(),
            arguments: json!({ "a": 1 }),
            may_repeat: false,
            sampler: None,
        };
        let schema = json!({ "type": "object", "properties": { "n": { "type": "string" } }, "required": ["n"] });
        let written = json!({ "resultType": "input_required", "requestState": "opaque", "inputRequests": {
            "name": { "method": "elicitation/create", "params": { "mode": "form", "message": "Your name?", "requestedSchema": schema } },
            "site": { "method": "elicitation/create", "params": { "mode": "url", "message": "Log in", "url": "https://h/login" } },
        }});
        InputRequired::new(call, asked(written)).expect("questions")
    }

    #[test]
    fn questions_survive_the_outcome() {
        let required = required();
        let outcome = required.clone().into_outcome();
        assert!(outcome.is_error && outcome.plain_text().contains("- Your name?\n- Log in"), "{outcome:?}");
        let stored: ToolOutcome = serde_json::from_value(serde_json::to_value(&outcome).unwrap()).unwrap();
        assert_eq!(InputRequired::of(&stored), Some(required));
        assert_eq!(InputRequired::of(&ToolOutcome::text("done")), None);
    }

    #[test]
    fn an_answer_is_good_for_its_questions_alone() {
        let accept = |content| InputResponse::Accept { content: Some(content) };
        let answer = |responses: Vec<(&str, InputResponse)>| InputAnswer {
            hash: required().hash,
            responses: responses.into_iter().map(|(key, response)| (key.to_owned(), response)).collect(),
        };
        let good = answer(vec![
            ("name", accept(json!({ "n": "x" }))),
            ("site", InputResponse::Decline),
            ("other", InputResponse::Cancel),
        ]);
        let given = required().answered(good.clone()).expect("it fits").expect("it is for these");
        assert_eq!((given.responses.len(), given.required), (2, required()));
        let mut elsewhere = good;
        elsewhere.hash = CallHash::of("mcp__s__t", &json!({})).unwrap();
        assert_eq!(required().answered(elsewhere).expect("it is no mistake"), None);
        for (responses, expected) in [
            (vec![("name", accept(json!({ "n": 3 }))), ("site", InputResponse::Decline)], "does not fit the form"),
            (vec![("name", InputResponse::Accept { content: None }), ("site", InputResponse::Decline)], "does not fit"),
            (vec![("name", InputResponse::Decline)], "\"site\""),
        ] {
            let error = required().answered(answer(responses)).expect_err(expected);
            assert!(error.message().contains(expected), "{error}");
        }
        let written = serde_json::to_value(InputResponse::Accept { content: None }).unwrap();
        assert_eq!(written, json!({ "action": "accept" }), "as the protocol has it");
    }

    #[test]
    fn what_only_a_model_could_answer_is_refused() {
        let call = CallOrigin {
            server: "s".into(),
            tool: "t".into(),
            name: "n".into(),
            arguments: json!({}),
            may_repeat: true,
            sampler: None,
        };
        let written = json!({ "resultType": "input_required", "inputRequests": { "x": { "method": "sampling/createMessage",
            "params": { "messages": [], "maxTokens": 5 } } } });
        let refused = InputRequired::new(call, asked(written));
        assert!(
            matches!(refused, Err(Fault::ForModel("mcp_error", message)) if message.contains("sampling/createMessage"))
        );
    }
}
