//! Anthropic Messages: encodes a request.

use super::{Call, ModelError, ThinkingLevel, ThinkingSupport, ToolChoice, unsendable};
use crate::message::{CacheHint, Content, ExecutedBy, Media, MediaSource, Part, Role};
use serde_json::{Map, Value, json};

/// What the API takes of these at most.
const BREAKPOINTS: usize = 4;

pub(super) fn encode(call: &Call<'_>) -> Result<Map<String, Value>, ModelError> {
    let request = call.request;
    let mut system: Vec<Value> = Vec::new();
    system.extend(
        request.system.iter().filter(|text| !text.is_empty()).map(|text| json!({"type": "text", "text": text})),
    );
    let mut messages: Vec<Value> = Vec::new();
    for message in &call.messages {
        let role = match message.role {
            Role::System => {
                for part in &message.parts {
                    system.extend(block(part, call)?);
                }
                continue;
            }
            Role::Assistant => "assistant",
            Role::User | Role::Tool | Role::Other(_) => "user",
        };
        let mut blocks = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            blocks.extend(block(part, call)?);
        }
        // The API wants turns to alternate; what follows on the same side is the same turn.
        match messages.last_mut().filter(|last| last["role"] == role).and_then(|last| last["content"].as_array_mut()) {
            Some(content) => content.extend(blocks),
            None if blocks.is_empty() => {}
            None => messages.push(json!({"role": role, "content": blocks})),
        }
    }
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters}))
        .collect();
    if let Some(hint) = request.cache {
        let last_block = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut());
        // The prompt is tools, then system, then messages: each mark covers all that is before it.
        for marked in [last_block, system.last_mut().or(tools.last_mut())].into_iter().flatten() {
            mark(marked, hint);
        }
    }
    limit_breakpoints(&mut system, &mut messages);

    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("model", json!(request.model));
    put("stream", json!(true));
    let limit = request.max_tokens.or(call.info.max_output).unwrap_or(8_192);
    // The model refuses to think on a call that it is forced to make.
    let forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
    let (thinking, max_tokens) = if forced { (Vec::new(), limit) } else { thinking(call, limit) };
    put("max_tokens", json!(max_tokens));
    for (name, value) in thinking {
        put(name, value);
    }
    if !system.is_empty() {
        put("system", Value::Array(system));
    }
    put("messages", Value::Array(messages));
    if !tools.is_empty() {
        put("tools", Value::Array(tools));
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => put("tool_choice", json!({"type": "none"})),
            ToolChoice::Required => put("tool_choice", json!({"type": "any"})),
            ToolChoice::Tool(name) => put("tool_choice", json!({"type": "tool", "name": name})),
        }
    }
    if let Some(temperature) = call.temperature() {
        put("temperature", json!(temperature));
    }
    if !request.stop.is_empty() {
        put("stop_sequences", json!(request.stop));
    }
    Ok(body)
}

/// The fields that say how to think, and the limit with room for it.
fn thinking(call: &Call<'_>, limit: u64) -> (Vec<(&'static str, Value)>, u64) {
    let effort = |level| {
        json!({"effort": match level {
            ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::High => "high",
            ThinkingLevel::Max => "max",
        }})
    };
    match (call.effort(), call.info.thinking) {
        (Some(level), ThinkingSupport::Budget) => {
            let wanted = match level {
                ThinkingLevel::Off | ThinkingLevel::Minimal => 1_024,
                ThinkingLevel::Low => 4_096,
                ThinkingLevel::Medium => 10_240,
                ThinkingLevel::High => 20_480,
                ThinkingLevel::Max => 32_000,
            };
            // The budget is part of the limit and has to be under it; the API's least is 1024.
            let most = call.info.max_output.unwrap_or(u64::MAX);
            let limit = limit.max(2_048).min(most);
            let budget = wanted.min(limit.saturating_sub(1_024)).max(1_024);
            (vec![("thinking", json!({"type": "enabled", "budget_tokens": budget}))], limit)
        }
        // Newer models keep their thoughts to themselves unless asked to tell them.
        (Some(level), _) => {
            let adaptive = json!({"type": "adaptive", "display": "summarized"});
            (vec![("thinking", adaptive), ("output_config", effort(level))], limit)
        }
        (None, ThinkingSupport::Always) => (vec![("output_config", effort(ThinkingLevel::Low))], limit),
        // These think by themselves unless told not to.
        (None, ThinkingSupport::Adaptive) => (vec![("thinking", json!({"type": "disabled"}))], limit),
        (None, _) => (Vec::new(), limit),
    }
}

/// A part as a block of content; none where there is nothing to say.
fn block(part: &Part, call: &Call<'_>) -> Result<Option<Value>, ModelError> {
    let opaque = part.opaque_for(call.origin);
    let mut block = match &part.content {
        // A block that was kept whole goes back whole.
        _ if opaque.is_some_and(|data| data.get("block").is_some()) => {
            return Ok(opaque.and_then(|data| data.get("block")).cloned());
        }
        Content::Text { text } if text.is_empty() => return Ok(None),
        Content::Text { text } => json!({"type": "text", "text": text}),
        Content::Thinking(thought) => {
            let data = |name: &str| opaque.and_then(|data| data.get(name)).and_then(Value::as_str);
            return Ok(match (data("signature"), data("data")) {
                (Some(signature), _) => {
                    Some(json!({"type": "thinking", "thinking": thought.text, "signature": signature}))
                }
                (None, Some(data)) => Some(json!({"type": "redacted_thinking", "data": data})),
                // A thought that nobody signed is only text.
                (None, None) if thought.text.trim().is_empty() => None,
                (None, None) => Some(json!({"type": "text", "text": thought.text})),
            });
        }
        Content::Media(media) => file(media)?,
        Content::ToolCall(tool_call) if tool_call.executed_by == ExecutedBy::Provider => return Ok(None),
        Content::ToolCall(tool_call) => {
            json!({"type": "tool_use", "id": tool_call.id, "name": tool_call.name, "input": tool_call.arguments})
        }
        Content::ToolResult(result) => {
            let mut content = Vec::with_capacity(result.content.len());
            for part in &result.content {
                content.extend(self::block(part, call)?);
            }
            let mut block = json!({"type": "tool_result", "tool_use_id": result.id, "content": content});
            if result.is_error {
                block["is_error"] = json!(true);
            }
            block
        }
        Content::Custom(_) | Content::Unrecognized(_) => return Ok(None),
    };
    if let Some(hint) = part.cache {
        mark(&mut block, hint);
    }
    Ok(Some(block))
}

fn file(media: &Media) -> Result<Value, ModelError> {
    let source = match &media.source {
        MediaSource::Base64(data) => json!({"type": "base64", "media_type": media.mime, "data": data}),
        MediaSource::Url(url) => json!({"type": "url", "url": url}),
        MediaSource::ProviderFile(id) => json!({"type": "file", "file_id": id}),
    };
    match media.mime.as_str() {
        "application/pdf" => Ok(json!({"type": "document", "source": source})),
        mime if mime.starts_with("image/") => Ok(json!({"type": "image", "source": source})),
        _ => Err(unsendable(media, "is neither an image nor a PDF")),
    }
}

fn mark(block: &mut Value, hint: CacheHint) {
    block["cache_control"] = match hint {
        CacheHint::Short => json!({"type": "ephemeral"}),
        CacheHint::Long => json!({"type": "ephemeral", "ttl": "1h"}),
    };
}

/// Takes the earliest marks of the conversation away until the API takes what is left.
fn limit_breakpoints(system: &mut [Value], messages: &mut [Value]) {
    let in_messages = messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten();
    let mut marked: Vec<&mut Value> =
        system.iter_mut().chain(in_messages).filter(|block| block.get("cache_control").is_some()).collect();
    // One is left for the tools, whose mark is not among these.
    let surplus = marked.len().saturating_sub(BREAKPOINTS);
    // The first is the system prompt's, which every call shares.
    for block in marked.iter_mut().skip(1).take(surplus) {
        if let Some(fields) = block.as_object_mut() {
            fields.remove("cache_control");
        }
    }
}
