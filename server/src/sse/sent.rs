//! What the clients of others send, read into what a run takes: a message of its user, or answers about calls.

use super::projection::Approval;
use crate::rest::Problem;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// What is read of a message that says nothing.
const NOTHING: &str = "the last message has neither a text nor a file; write something";

/// A request of the AI SDK's `DefaultChatTransport`. What `useChat` is given as `body` may stand beside it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AiSdkRequest {
    /// The id of the chat; of a predefined agent it names the run.
    pub(super) id: Option<String>,
    /// The conversation, of which the last message is read.
    #[serde(default)]
    #[schema(value_type = Vec<serde_json::Value>)]
    messages: Vec<Value>,
    /// The last message alone, instead of `messages`.
    #[schema(value_type = Option<serde_json::Value>)]
    message: Option<Value>,
    /// `submit-message`.
    trigger: Option<String>,
    /// When the message is read: `next_step` (default), `next_turn` or `now`.
    delivery: Option<String>,
}

/// A request of AG-UI's `HttpAgent`: a `RunAgentInput`. Tools, context and state of the client are not used.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgUiRequest {
    /// The thread; of a predefined agent it names the run.
    pub(super) thread_id: String,
    /// The client's name for the turn.
    pub(super) run_id: String,
    /// The conversation, of which the last message is read.
    #[serde(default)]
    #[schema(value_type = Vec<serde_json::Value>)]
    pub(super) messages: Vec<Value>,
    /// Answers to the interrupts with which the last turn ended.
    #[serde(default)]
    resume: Option<Vec<ResumeEntry>>,
    /// Beside it: `delivery`.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    forwarded_props: Value,
}

/// An answer to an interrupt.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ResumeEntry {
    /// The interrupt.
    interrupt_id: String,
    /// `resolved` or `cancelled`.
    status: String,
    /// Of a resolved one: `{"approved": true}`, or false with a `reason`.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Value,
}

/// What was sent.
#[derive(Debug, PartialEq)]
pub(super) enum Sent {
    /// A message of the user.
    Message(UserMessage),
    /// Answers about calls.
    Answers(Vec<Answer>),
}

/// A message of the user.
#[derive(Debug, PartialEq)]
pub(super) struct UserMessage {
    /// Its id at the client: sent again it is the same message.
    pub(super) id: String,
    /// Its first text.
    pub(super) text: String,
    /// What else it has, as parts of the built-in agent's messages.
    pub(super) parts: Vec<Value>,
    /// When it is read.
    pub(super) delivery: Option<String>,
    /// The model that is asked from here on.
    pub(super) model: Option<Value>,
}

/// Whether a call may run.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    /// The id that it answers to.
    pub(super) id: String,
    call: String,
    hash: String,
    approved: bool,
    reason: Option<String>,
}

impl UserMessage {
    /// The value of the signal that brings it.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({ "text": self.text });
        if !self.parts.is_empty() {
            value["parts"] = self.parts.clone().into();
        }
        if let Some(delivery) = &self.delivery {
            value["delivery"] = delivery.clone().into();
        }
        if let Some(model) = &self.model {
            value["model"] = model.clone();
        }
        value
    }

    fn new(id: Option<&str>, delivery: Option<String>) -> Result<Self, Problem> {
        let id = id.filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| Problem::invalid("the last message has no id; give it one of its own"))?;
        Ok(Self { id: id.to_owned(), text: String::new(), parts: Vec::new(), delivery, model: None })
    }

    fn add_text(&mut self, text: &str) {
        match self.text.is_empty() {
            true => text.clone_into(&mut self.text),
            false => self.parts.push(json!({ "type": "text", "text": text })),
        }
    }

    pub(super) fn add_file(&mut self, mime: &str, url: &str, name: Option<&str>) -> Result<(), Problem> {
        let source = match url.strip_prefix("data:").map(|data| data.split_once(";base64,")) {
            Some(Some((_, base64))) => json!({ "base64": base64 }),
            None if url.starts_with("https://") || url.starts_with("http://") => json!({ "url": url }),
            _ => {
                let shown: String = url.chars().take(40).collect();
                return Err(Problem::invalid(format!(
                    "the file at {shown:?} cannot be read; send its bytes as a data URL in base64, or an http(s) address"
                )));
            }
        };
        let mut part = json!({ "type": "media", "mime": mime, "source": source });
        if let Some(name) = name {
            part["name"] = name.into();
        }
        self.parts.push(part);
        Ok(())
    }

    fn checked(self) -> Result<Self, Problem> {
        match self.text.is_empty() && self.parts.is_empty() {
            true => Err(Problem::invalid(NOTHING)),
            false => Ok(self),
        }
    }
}

impl Answer {
    /// The value of the signal that brings it.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({ "id": self.call, "hash": self.hash, "approved": self.approved });
        if let Some(reason) = &self.reason {
            value["reason"] = reason.clone().into();
        }
        value
    }

    fn new(id: &str, approved: bool, reason: Option<&str>) -> Result<Self, Problem> {
        let (hash, call) = Approval::of_id(id).ok_or_else(|| {
            Problem::invalid(format!("{id:?} is no id of an approval that a stream of this run gave"))
        })?;
        let (call, hash) = (call.to_owned(), hash.to_owned());
        Ok(Self { id: id.to_owned(), call, hash, approved, reason: reason.map(str::to_owned) })
    }
}

impl AiSdkRequest {
    /// Reads the last message.
    pub(super) fn sent(self) -> Result<Sent, Problem> {
        if self.trigger.as_deref() == Some("regenerate-message") {
            return Err(Problem::invalid(
                "a durable run does not write an answer again; send another message, or fork the run before the message",
            ));
        }
        let last = self.message.or_else(|| self.messages.into_iter().next_back());
        let last = last.ok_or_else(|| Problem::invalid("there is no message; send the conversation as `messages`"))?;
        let parts = last["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        match last["role"].as_str() {
            Some("user") => {
                let mut message = UserMessage::new(last["id"].as_str(), self.delivery)?;
                for part in parts {
                    match part["type"].as_str() {
                        Some("text") => message.add_text(part["text"].as_str().unwrap_or_default()),
                        Some("file") => {
                            let text = |name: &str| part[name].as_str();
                            let (mime, url) = (text("mediaType").unwrap_or_default(), text("url").unwrap_or_default());
                            message.add_file(mime, url, text("filename"))?;
                        }
                        // What a page keeps for itself.
                        _ => {}
                    }
                }
                Ok(Sent::Message(message.checked()?))
            }
            Some("assistant") => {
                let answered = parts.iter().filter(|part| part["state"] == "approval-responded");
                let answers = answered.map(|part| {
                    let approval = &part["approval"];
                    let (id, reason) = (approval["id"].as_str().unwrap_or_default(), approval["reason"].as_str());
                    Answer::new(id, approval["approved"] == true, reason)
                });
                let answers = answers.collect::<Result<Vec<_>, _>>()?;
                match answers.is_empty() {
                    true => Err(Problem::invalid(
                        "the last message is the agent's and answers no approval, so there is nothing to send; the agent \
                         runs its tools itself",
                    )),
                    false => Ok(Sent::Answers(answers)),
                }
            }
            role => Err(Problem::invalid(format!("the last message has the role {role:?}; send one of the user"))),
        }
    }
}

impl AgUiRequest {
    /// Reads the last message, or the answers to interrupts.
    pub(super) fn sent(&self) -> Result<Sent, Problem> {
        if let Some(entries) = self.resume.as_ref().filter(|entries| !entries.is_empty()) {
            return Ok(Sent::Answers(entries.iter().map(ResumeEntry::answer).collect::<Result<_, _>>()?));
        }
        let last = self.messages.last();
        let last = last.ok_or_else(|| Problem::invalid("there is no message; send the conversation as `messages`"))?;
        if last["role"] != "user" {
            let role = &last["role"];
            return Err(Problem::invalid(format!(
                "the last message has the role {role}; send one of the user, or answer the interrupts in `resume`"
            )));
        }
        let delivery = self.forwarded_props["delivery"].as_str().map(str::to_owned);
        let mut message = UserMessage::new(last["id"].as_str(), delivery)?;
        match &last["content"] {
            Value::String(text) => message.add_text(text),
            Value::Array(parts) => {
                for part in parts {
                    let source = &part["source"];
                    let mime = source["mimeType"].as_str().unwrap_or("application/octet-stream");
                    let value = source["value"].as_str().unwrap_or_default();
                    match (part["type"].as_str(), source["type"].as_str()) {
                        (Some("text"), _) => message.add_text(part["text"].as_str().unwrap_or_default()),
                        (_, Some("data")) => message.add_file(mime, &format!("data:{mime};base64,{value}"), None)?,
                        (_, Some("url")) => message.add_file(mime, value, None)?,
                        (kind, source) => {
                            return Err(Problem::invalid(format!(
                                "the last message has a part {kind:?} with the source {source:?}; send text, data or a url"
                            )));
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(Sent::Message(message.checked()?))
    }
}

impl ResumeEntry {
    fn answer(&self) -> Result<Answer, Problem> {
        let id = &self.interrupt_id;
        match (&self.status[..], &self.payload["approved"]) {
            ("cancelled", _) => Answer::new(id, false, Some("The user has not decided.")),
            ("resolved", Value::Bool(approved)) => Answer::new(id, *approved, self.payload["reason"].as_str()),
            ("resolved", _) => Err(Problem::invalid(format!(
                "the answer to {id:?} does not decide; its payload is {{\"approved\": true}}, or false with a reason"
            ))),
            (status, _) => {
                Err(Problem::invalid(format!("{id:?} has the status {status:?}; there are resolved and cancelled")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ai_sdk(body: Value) -> Result<Sent, Problem> {
        serde_json::from_value::<AiSdkRequest>(body).unwrap().sent()
    }

    fn ag_ui(body: Value) -> Result<Sent, Problem> {
        serde_json::from_value::<AgUiRequest>(body).unwrap().sent()
    }

    #[test]
    fn the_last_message_of_a_chat_is_read() {
        let user = json!({ "id": "m2", "role": "user", "parts": [
            { "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==", "filename": "a.png" },
            { "type": "text", "text": " hi\n" }, { "type": "data-x", "data": 1 }, { "type": "text", "text": "and" },
        ] });
        let body = json!({ "id": "c", "messages": [{ "id": "m1", "role": "user", "parts": [] }, user], "more": 1 });
        let Ok(Sent::Message(message)) = ai_sdk(body) else { panic!() };
        assert_eq!((&message.id[..], &message.text[..]), ("m2", " hi\n"));
        let parts = json!([
            { "type": "media", "mime": "image/png", "source": { "base64": "AA==" }, "name": "a.png" },
            { "type": "text", "text": "and" },
        ]);
        assert_eq!(message.value(), json!({ "text": " hi\n", "parts": parts }));

        let part =
            json!({ "type": "image", "source": { "type": "url", "value": "https://a/b", "mimeType": "image/png" } });
        let user = json!({ "id": "m", "role": "user", "content": [{ "type": "text", "text": "hi" }, part] });
        let body =
            json!({ "threadId": "t", "runId": "r", "messages": [user], "forwardedProps": { "delivery": "now" } });
        let Ok(Sent::Message(message)) = ag_ui(body) else { panic!() };
        let parts = json!([{ "type": "media", "mime": "image/png", "source": { "url": "https://a/b" } }]);
        assert_eq!(message.value(), json!({ "text": "hi", "parts": parts, "delivery": "now" }));
    }

    #[test]
    fn answers_are_bound_to_what_was_shown() {
        let part = |state: &str, approval: Value| json!({ "type": "tool-x", "toolCallId": "c:1", "state": state, "approval": approval });
        let parts = json!([
            part("output-available", json!({ "id": "0:0", "approved": true })),
            part("approval-responded", json!({ "id": "abc:c:1", "approved": false, "reason": "no" })),
        ]);
        let Ok(Sent::Answers(answers)) =
            ai_sdk(json!({ "messages": [{ "id": "a", "role": "assistant", "parts": parts }] }))
        else {
            panic!()
        };
        let values: Vec<_> = answers.iter().map(Answer::value).collect();
        assert_eq!(values, [json!({ "id": "c:1", "hash": "abc", "approved": false, "reason": "no" })]);

        let resume = json!([
            { "interruptId": "abc:c", "status": "resolved", "payload": { "approved": true } },
            { "interruptId": "abd:d", "status": "cancelled" },
        ]);
        let Ok(Sent::Answers(answers)) = ag_ui(json!({ "threadId": "t", "runId": "r", "resume": resume })) else {
            panic!()
        };
        let values: Vec<_> = answers.iter().map(|answer| answer.value()["approved"].clone()).collect();
        assert_eq!(values, [json!(true), json!(false)]);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_what_to_do() {
        let of = |message: Value| json!({ "threadId": "t", "runId": "r", "messages": [message] });
        let user = |parts: Value| of(json!({ "id": "m", "role": "user", "parts": parts }));
        for (body, part) in [
            (json!({}), "there is no message"),
            (json!({ "trigger": "regenerate-message", "messages": [] }), "fork the run"),
            (user(json!([])), "write something"),
            (of(json!({ "role": "user", "parts": [{ "type": "text", "text": "a" }] })), "has no id"),
            (user(json!([{ "type": "file", "url": "blob:x" }])), "data URL in base64"),
            (of(json!({ "id": "m", "role": "assistant", "parts": [] })), "answers no approval"),
            (of(json!({ "id": "m", "role": "system", "parts": [] })), "one of the user"),
        ] {
            let problem = format!("{:?}", ai_sdk(body).unwrap_err());
            assert!(problem.contains(part), "{part} in {problem}");
        }
        let resume = |entry: Value| json!({ "threadId": "t", "runId": "r", "resume": [entry] });
        for (body, part) in [
            (json!({ "threadId": "t", "runId": "r" }), "there is no message"),
            (of(json!({ "id": "m", "role": "assistant" })), "in `resume`"),
            (of(json!({ "id": "m", "role": "user", "content": [{ "type": "image" }] })), "send text, data or a url"),
            (resume(json!({ "interruptId": "a:b", "status": "resolved" })), "does not decide"),
            (resume(json!({ "interruptId": "a:b", "status": "odd" })), "there are resolved and cancelled"),
            (resume(json!({ "interruptId": "a", "status": "cancelled" })), "no id of an approval"),
        ] {
            let problem = format!("{:?}", ag_ui(body).unwrap_err());
            assert!(problem.contains(part), "{part} in {problem}");
        }
    }
}
