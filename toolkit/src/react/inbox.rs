//! Messages of the user while the agent runs, and when they are delivered.

use super::{AnswerLimits, ModelChoice, OutputSpec, USER_MESSAGE};
use crate::message::{Message, Part, Role};
use crate::provider::ThinkingLevel;
use flovyn_core::Payload;
use flovyn_core::error::Result;
use flovyn_core::model::Delivery as EngineDelivery;
use flovyn_core::runtime::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message of the user: the payload of the signal `userMessage`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserMessage {
    /// The text.
    pub text: String,
    /// Images and documents of the message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// When it is delivered. The signal itself has to be sent with the same delivery: that is what interrupts a running
    /// model call.
    pub delivery: Delivery,
    /// The model that is asked from here on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// How long the model thinks from here on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// What the answer to it may use.
    #[serde(skip_serializing_if = "AnswerLimits::is_none")]
    pub limits: AnswerLimits,
    /// The form of the answer to it, in place of the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSpec>,
    /// Summarise the conversation so far, with attention to this text, which may be empty. Such a message says nothing. It is
    /// heard by a chat that waits for its user, and passed over at other times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact: Option<String>,
}

/// When a message is delivered. It is written with the engine's words; `steer`, `next` and `interrupt` can be read too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Before the next model call. The agent waits for tool calls that run, and skips those that have not started.
    #[default]
    #[serde(alias = "steer")]
    NextStep,
    /// When the model has finished.
    #[serde(alias = "next")]
    NextTurn,
    /// At once. A running model call and running tools end with what they have so far.
    #[serde(alias = "interrupt")]
    Now,
}

impl From<Delivery> for EngineDelivery {
    fn from(delivery: Delivery) -> Self {
        match delivery {
            Delivery::NextStep => Self::NextStep,
            Delivery::NextTurn => Self::NextTurn,
            Delivery::Now => Self::Now,
        }
    }
}

impl UserMessage {
    /// A message that is delivered before the next model call.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A message without a text that ends what runs now. The turn ends without another model call.
    pub fn interrupt() -> Self {
        Self::default().deliver(Delivery::Now)
    }

    /// A message that asks for a summary of the conversation, with attention to a text, which may be empty.
    pub fn compact(focus: impl Into<String>) -> Self {
        Self { compact: Some(focus.into()), ..Self::default() }
    }

    /// Whether it only ends what runs now: it has no content, and its delivery is at once.
    pub fn is_interrupt(&self) -> bool {
        self.delivery == Delivery::Now && self.text.is_empty() && self.parts.is_empty()
    }

    /// Sets when it is delivered.
    #[must_use]
    pub fn deliver(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// The signal that carries it. Two sends with the same key are one message, so that a send can be repeated.
    pub fn signal(&self, idempotency_key: Option<String>) -> Result<Incoming> {
        Ok(Incoming { delivery: self.delivery.into(), idempotency_key, ..Incoming::new(USER_MESSAGE, self)? })
    }

    /// Reads the payload of a signal. A payload that is not such an object becomes a message with the payload as its
    /// text.
    pub(crate) fn read(payload: &Payload) -> Self {
        let value: Value = payload.parse().unwrap_or_default();
        match value {
            Value::String(text) => Self::new(text),
            mut value => {
                let text = value.to_string();
                // A part that cannot be read is no reason to lose the message.
                for part in value.get_mut("parts").and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Err(error) = Part::deserialize(&*part) {
                        let why = format!("[An attachment was left out: {error}.]");
                        *part = serde_json::json!({ "type": "text", "text": why });
                    }
                }
                serde_json::from_value(value).unwrap_or_else(|_| Self::new(text))
            }
        }
    }

    /// The message in the form of the conversation.
    pub(super) fn message(&self) -> Message {
        let mut parts: Vec<Part> = Vec::with_capacity(self.parts.len() + 1);
        if !self.text.is_empty() || self.parts.is_empty() {
            parts.push(Part::text(&self.text));
        }
        parts.extend(self.parts.iter().cloned());
        Message::new(Role::User, parts)
    }
}

/// Whether messages, in this order, need an answer of the model. An interrupt cancels the messages before it, except
/// those that are delivered when the model has finished.
pub(super) fn need_an_answer(messages: &[UserMessage]) -> bool {
    let last = messages.iter().rposition(UserMessage::is_interrupt);
    let mut placed = messages.iter().enumerate();
    let says = |message: &UserMessage| message.compact.is_none();
    placed.any(|(place, message)| says(message) && (Some(place) > last || message.delivery == Delivery::NextTurn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_interrupt_takes_back_what_was_said_before_it() {
        let (word, later) = (UserMessage::new("a"), UserMessage::new("b").deliver(Delivery::NextTurn));
        let stop = UserMessage::interrupt();
        for (messages, wanted) in [
            (vec![], false),
            (vec![stop.clone()], false),
            (vec![word.clone(), stop.clone()], false),
            (vec![stop.clone(), word.clone()], true),
            (vec![later, stop.clone()], true),
            (vec![word.clone().deliver(Delivery::Now)], true),
            (vec![UserMessage::compact("")], false),
        ] {
            assert_eq!(need_an_answer(&messages), wanted, "{messages:?}");
        }
        let payload = Payload::of(&json!({"delivery": "interrupt"})).expect("JSON");
        assert!(UserMessage::read(&payload).is_interrupt());
        assert!(!UserMessage::new("").is_interrupt() && !word.deliver(Delivery::Now).is_interrupt());
    }

    #[test]
    fn the_words_of_both_vocabularies_are_read() {
        let words = [
            ("steer", Delivery::NextStep),
            ("next_step", Delivery::NextStep),
            ("next", Delivery::NextTurn),
            ("next_turn", Delivery::NextTurn),
            ("interrupt", Delivery::Now),
            ("now", Delivery::Now),
        ];
        for (word, delivery) in words {
            let payload = Payload::of(&json!({"text": "a", "delivery": word})).expect("JSON");
            assert_eq!(UserMessage::read(&payload), UserMessage::new("a").deliver(delivery), "{word}");
        }
        let signal = UserMessage::new("a").deliver(Delivery::NextTurn).signal(None).expect("a signal");
        assert_eq!(signal.delivery, EngineDelivery::NextTurn);
        assert_eq!(UserMessage::read(&signal.payload).delivery, Delivery::NextTurn);
    }

    #[test]
    fn whatever_comes_is_heard() {
        for (given, text) in [(json!("hi"), "hi"), (json!({"text": 5}), r#"{"text":5}"#), (json!([1]), "[1]")] {
            assert_eq!(UserMessage::read(&Payload::of(&given).expect("JSON")).message().text(), text);
        }
    }
}
