//! Makes the ids of calls unique in a conversation, whatever ids the provider has given.
//!
//! Some gateways give every call of an answer the same id, begin to count again in each answer, or give no ids. But
//! only the id says to which call a result belongs, and other providers refuse a conversation that has an id twice.

use super::{Message, ToolCall};
use serde_json::Value;
use std::collections::HashSet;

/// The ids of the calls of a conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallIds(HashSet<String>);

impl CallIds {
    /// The ids of the calls of messages.
    pub(crate) fn of(messages: &[Message]) -> Self {
        Self(messages.iter().flat_map(Message::tool_calls).map(|call| call.id.clone()).collect())
    }

    /// The id for a call. It is the one that the call came with; if that is empty, or if another call has it, it is
    /// made from that one. The same conversation always gets the same ids, so that the provider's cache of it stays
    /// valid.
    pub(crate) fn unique(&mut self, id: &str) -> String {
        let mut unique_id = id.to_owned();
        let mut times = 0;
        while unique_id.trim().is_empty() || !self.0.insert(unique_id.clone()) {
            times += 1;
            unique_id = format!("call_{}", &blake3::hash(format!("{id}\0{times}").as_bytes()).to_hex()[..24]);
        }
        unique_id
    }
}

/// Changes the data that a call's provider wants back, if it names the call too: its id and its name become the call's
/// own, and arguments that no provider could read become those of the call.
pub(crate) fn adapt_call(opaque: &mut Value, call: &ToolCall) {
    let Some(item) = opaque.get_mut("item").filter(|item| item.is_object()) else { return };
    for (field, value) in [("call_id", &call.id), ("name", &call.name)] {
        if let Some(place) = item.get_mut(field) {
            *place = Value::from(value.as_str());
        }
    }
    if call.raw_arguments.is_some() {
        item["arguments"] = Value::from(call.arguments.to_string());
    }
}
