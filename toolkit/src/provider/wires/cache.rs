//! Marks up to which a provider caches the prompt, in the form that Anthropic and those who resell it take.

use crate::message::CacheHint;
use serde_json::{Value, json};

/// The most marked blocks that the API accepts in a request.
const MOST: usize = 4;

/// Marks a block.
pub(super) fn mark(block: &mut Value, hint: CacheHint) {
    block["cache_control"] = match hint {
        CacheHint::Short => json!({"type": "ephemeral"}),
        CacheHint::Long => json!({"type": "ephemeral", "ttl": "1h"}),
    };
}

/// Removes marks from the earliest blocks until no more than the API accepts are left. The blocks come in the order of
/// the prompt: tools, system prompt, messages.
pub(super) fn limit<'a>(blocks: impl Iterator<Item = &'a mut Value>) {
    let mut marked: Vec<&mut Value> = blocks.filter(|block| block.get("cache_control").is_some()).collect();
    let surplus = marked.len().saturating_sub(MOST);
    // The first one stays: it is that of the tools or of the system prompt, and every call of the conversation shares it.
    for block in marked.iter_mut().skip(1).take(surplus) {
        if let Some(fields) = block.as_object_mut() {
            fields.remove("cache_control");
        }
    }
}

/// The blocks of messages.
pub(super) fn blocks_of(messages: &mut [Value]) -> impl Iterator<Item = &mut Value> {
    messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten()
}
