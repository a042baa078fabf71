//! What a turn over plain HTTP is asked with, read into the signals that it sends.

use super::projection::Approval;
use super::sent::UserMessage;
use super::turns::{APPROVAL, INPUT};
use crate::rest::Problem;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// What is said to a run: a message, or answers to what it asks.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "message": "What do otters eat?" }))]
pub(super) struct TurnRequest {
    /// What the user says.
    message: Option<String>,
    /// Files beside it.
    #[serde(default)]
    attachments: Vec<Attachment>,
    /// The model that answers, from here on: `provider/model`, or `{"provider", "modelId"}`.
    #[schema(value_type = Option<serde_json::Value>)]
    model_override: Option<Value>,
    /// When the message is read, where the run is at work: `next_turn` (default), once it has answered what came before; `next_step`,
    /// before its next step; `now`.
    delivery: Option<String>,
    /// Answers to approvals, instead of a message.
    #[serde(default)]
    approvals: Vec<ApprovalGiven>,
    /// Answers to questions, instead of a message.
    #[serde(default)]
    inputs: Vec<InputGiven>,
    /// Results of tools that the caller runs: refused, no agent has such tools.
    #[schema(value_type = Option<serde_json::Value>)]
    tool_results: Option<Value>,
    /// Makes a retried request one turn; the header Idempotency-Key does the same.
    pub(super) idempotency_key: Option<String>,
}

/// A file of a message: its bytes, or where they are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "mediaType": "image/png", "url": "https://example.com/otter.png" }))]
struct Attachment {
    /// Such as `image/png`.
    media_type: String,
    /// Its bytes in base64.
    data: Option<String>,
    /// An http(s) address, or a data URL.
    url: Option<String>,
    /// Its name.
    name: Option<String>,
}

/// Whether a call may run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "id": "call_1", "hash": "9f3c…", "approved": true }))]
struct ApprovalGiven {
    /// The call: the `id` of what is pending.
    id: String,
    /// Its `hash`, which binds the answer to what was shown.
    hash: String,
    /// Whether it may run.
    approved: bool,
    /// Of a refusal: what the model is given as its reason.
    reason: Option<String>,
    /// The arguments with which the call runs, in place of those that the model has written.
    #[schema(value_type = Option<serde_json::Value>)]
    arguments: Option<Value>,
    /// `run`: later calls that are alike may run, too.
    scope: Option<String>,
}

/// The answers to what a tool asks of a person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "id": "call_1", "hash": "9f3c…", "responses": { "day": { "action": "accept", "content": { "day": "Monday" } } } }))]
struct InputGiven {
    /// The call: the `id` of what is pending.
    id: String,
    /// Its `hash`.
    hash: String,
    /// The answers, by the names of the questions.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    responses: Map<String, Value>,
}

/// What a turn begins with.
#[derive(Debug, PartialEq)]
pub(super) enum Begins {
    /// A message of the user.
    Message(UserMessage),
    /// Answers to what was asked. There is at least one.
    Decisions(Vec<Decision>),
}

/// An answer to what was asked.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    /// The signal that brings it.
    pub(super) name: &'static str,
    /// The key under which it is sent once.
    pub(super) key: String,
    /// Its value.
    pub(super) value: Value,
}

impl TurnRequest {
    /// Reads what it sends.
    pub(super) fn begins(self) -> Result<Begins, Problem> {
        if self.tool_results.is_some() {
            return Err(Problem::invalid(
                "toolResults are for tools that the caller runs, and no agent here has such tools: workers run them all; leave it out",
            ));
        }
        let decides = !self.approvals.is_empty() || !self.inputs.is_empty();
        let speaks = self.message.is_some() || !self.attachments.is_empty() || self.model_override.is_some();
        match (speaks, decides) {
            (true, true) => Err(Problem::invalid(
                "a turn is begun by a message or by answers to what was asked; send the answers first, and the message as the next turn",
            )),
            (false, false) => Err(Problem::invalid(
                "there is nothing to send; give a message, such as {\"message\": \"Hello\"}, or approvals or inputs that answer what is pending",
            )),
            (true, false) => Ok(Begins::Message(self.user_message()?)),
            (false, true) if self.delivery.is_some() => {
                Err(Problem::invalid("answers are read at once, so a delivery means nothing here; leave it out"))
            }
            (false, true) => {
                let approvals = self.approvals.into_iter().map(ApprovalGiven::decision);
                Ok(Begins::Decisions(approvals.chain(self.inputs.into_iter().map(InputGiven::decision)).collect()))
            }
        }
    }

    fn user_message(self) -> Result<UserMessage, Problem> {
        let text = self.message.unwrap_or_default();
        let delivery = Some(self.delivery.unwrap_or_else(|| "next_turn".to_owned()));
        let model = self.model_override.map(model).transpose()?;
        let mut message = UserMessage { id: String::new(), text, parts: Vec::new(), delivery, model };
        for Attachment { media_type, data, url, name } in self.attachments {
            if media_type.split_once('/').is_none_or(|(kind, subtype)| kind.is_empty() || subtype.is_empty()) {
                return Err(Problem::invalid(format!(
                    "the mediaType {media_type:?} of an attachment is none; there are such as image/png and application/pdf"
                )));
            }
            let url = match (data, url) {
                (Some(data), None) => format!("data:{media_type};base64,{data}"),
                (None, Some(url)) => url,
                _ => return Err(Problem::invalid("an attachment has its bytes as data, or a url: give one of them")),
            };
            message.add_file(&media_type, &url, name.as_deref())?;
        }
        match message.text.is_empty() && message.parts.is_empty() {
            true => Err(Problem::invalid("the message is empty; write something, or attach a file")),
            false => Ok(message),
        }
    }
}

/// A model as the built-in agent reads it.
fn model(given: Value) -> Result<Value, Problem> {
    let is_text = |name: &str| given[name].as_str().is_some_and(|text| !text.is_empty());
    let names_both = match &given {
        Value::String(reference) => {
            reference.split_once('/').is_some_and(|(provider, model)| !provider.is_empty() && !model.is_empty())
        }
        Value::Object(fields) => fields.len() == 2 && is_text("provider") && is_text("modelId"),
        _ => false,
    };
    match names_both {
        true => Ok(given),
        false => Err(Problem::invalid(format!(
            "the modelOverride {given} names no model; write provider/model, or {{\"provider\": …, \"modelId\": …}}"
        ))),
    }
}

impl ApprovalGiven {
    fn decision(self) -> Decision {
        let mut value = json!({ "id": self.id, "hash": self.hash, "approved": self.approved });
        for (name, given) in [
            ("reason", self.reason.map(Value::String)),
            ("arguments", self.arguments),
            ("scope", self.scope.map(Value::String)),
        ] {
            if let Some(given) = given {
                value[name] = given;
            }
        }
        let approval = Approval { call: self.id, hash: self.hash, name: String::new(), arguments: Value::Null };
        Decision { name: APPROVAL, key: approval.id(), value }
    }
}

impl InputGiven {
    fn decision(self) -> Decision {
        // An answer that does not fit is refused by the agent, and another one may follow.
        let given = Value::Object(self.responses).to_string();
        let key =
            format!("{}:{}:{}", self.hash, self.id, uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, given.as_bytes()));
        let responses: Value = serde_json::from_str(&given).unwrap_or_default();
        Decision { name: INPUT, key, value: json!({ "id": self.id, "hash": self.hash, "responses": responses }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Begins, Problem> {
        serde_json::from_value::<TurnRequest>(body).unwrap().begins()
    }

    #[test]
    fn a_message_goes_with_its_files_and_its_model() {
        let body = json!({ "message": " hi\n", "modelOverride": "p/m", "delivery": "now", "attachments": [
            { "mediaType": "image/png", "data": "AA==", "name": "a.png" },
            { "mediaType": "image/png", "url": "https://a/b" },
        ] });
        let Ok(Begins::Message(message)) = read(body) else { panic!() };
        let parts = json!([
            { "type": "media", "mime": "image/png", "source": { "base64": "AA==" }, "name": "a.png" },
            { "type": "media", "mime": "image/png", "source": { "url": "https://a/b" } },
        ]);
        assert_eq!(message.value(), json!({ "text": " hi\n", "parts": parts, "delivery": "now", "model": "p/m" }));
        let Ok(Begins::Message(plain)) = read(json!({ "message": "hi" })) else { panic!() };
        assert_eq!(plain.value(), json!({ "text": "hi", "delivery": "next_turn" }));
    }

    #[test]
    fn answers_are_bound_to_what_was_shown() {
        let body = json!({
            "approvals": [{ "id": "c:1", "hash": "abc", "approved": true, "arguments": { "x": 1 }, "scope": "run" }],
            "inputs": [{ "id": "c2", "hash": "abd", "responses": { "day": { "action": "decline" } } }],
        });
        let Ok(Begins::Decisions(decisions)) = read(body) else { panic!() };
        let [approval, input] = &decisions[..] else { panic!("{decisions:?}") };
        assert_eq!((approval.name, &approval.key[..]), ("approval", "abc:c:1"));
        let terms = json!({ "id": "c:1", "hash": "abc", "approved": true, "arguments": { "x": 1 }, "scope": "run" });
        assert_eq!(approval.value, terms);
        let answer = json!({ "id": "c2", "hash": "abd", "responses": { "day": { "action": "decline" } } });
        assert_eq!((input.name, &input.value), ("input", &answer));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_what_to_do() {
        let file = |file: Value| json!({ "message": "a", "attachments": [file] });
        let answer = json!({ "id": "c", "hash": "h", "approved": true });
        for (body, part) in [
            (json!({}), "there is nothing to send"),
            (json!({ "message": "" }), "write something"),
            (json!({ "modelOverride": "p/m" }), "write something"),
            (json!({ "message": "a", "modelOverride": "m" }), "provider/model"),
            (json!({ "message": "a", "modelOverride": { "provider": "p" } }), "provider/model"),
            (json!({ "message": "a", "approvals": [answer] }), "send the answers first"),
            (json!({ "delivery": "now", "approvals": [answer] }), "leave it out"),
            (json!({ "message": "a", "toolResults": [] }), "workers run them all"),
            (file(json!({ "mediaType": "png", "data": "AA==" })), "image/png"),
            (file(json!({ "mediaType": "image/png" })), "give one of them"),
            (file(json!({ "mediaType": "image/png", "url": "file:///etc/passwd" })), "data URL in base64"),
        ] {
            let problem = format!("{:?}", read(body.clone()).unwrap_err());
            assert!(problem.contains(part), "{body}: {part} in {problem}");
        }
    }
}
