//! Makes the ids of calls unique in a conversation, whatever ids the provider gave.
//!
//! Some gateways give every call of an answer the same id, count anew in each answer, or give none. A result belongs to its
//! call by the id alone, and other providers refuse a conversation with one id twice.

use super::Message;
use serde_json::Value;
use std::collections::HashSet;

/// The ids that calls of a conversation have.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallIds(HashSet<String>);

impl CallIds {
    /// Those of messages.
    pub fn of(messages: &[Message]) -> Self {
        Self(messages.iter().flat_map(Message::tool_calls).map(|call| call.id.clone()).collect())
    }

    /// The id for a call: the one that it came with, or where that is empty or another call has it one made of it. It is the same
    /// whenever the same conversation is read again, so that what a provider cached of it stays good.
    pub fn unique(&mut self, id: &str) -> String {
        let mut unique_id = id.to_owned();
        let mut times = 0;
        while unique_id.trim().is_empty() || !self.0.insert(unique_id.clone()) {
            times += 1;
            unique_id = format!("call_{}", &blake3::hash(format!("{id}\0{times}").as_bytes()).to_hex()[..24]);
        }
        unique_id
    }
}

/// Puts the id of a call into what its provider wants back with it, where that names the call too.
pub(crate) fn rename_within(opaque: &mut Value, id: &str) {
    if let Some(place) = opaque.get_mut("item").and_then(|item| item.get_mut("call_id")) {
        *place = Value::from(id);
    }
}
