//! Anthropic Messages: encodes a request.

use super::{Call, ModelError, ThinkingLevel, ThinkingSupport, ToolChoice, cache, unsendable};
use crate::message::{Content, ExecutedBy, Media, MediaSource, Part, Role};
use serde_json::{Map, Value, json};

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
        // The API wants the roles to alternate, so messages of one role in a row are joined.
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
        // The API's prompt is the tools, then the system prompt, then the messages. A mark caches all that is before
        // it.
        for marked in [last_block, system.last_mut().or(tools.last_mut())].into_iter().flatten() {
            cache::mark(marked, hint);
        }
    }
    cache::limit(tools.iter_mut().chain(&mut system).chain(cache::blocks_of(&mut messages)));

    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("model", json!(request.model));
    put("stream", json!(true));
    let limit = request.max_tokens.or(call.info.max_output).unwrap_or(8_192);
    // The API refuses thinking together with a forced tool call.
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
    if let Some(output) = &request.output {
        // How hard to think stands in the same object.
        let config = body.entry("output_config").or_insert_with(|| json!({}));
        config["format"] = json!({"type": "json_schema", "schema": output.schema});
    }
    Ok(body)
}

/// The request fields that turn thinking on or off, and `max_tokens` raised to leave room for the thinking.
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
            // `max_tokens` includes the thinking budget, which has to be smaller. The API accepts no budget under 1024.
            let most = call.info.max_output.unwrap_or(u64::MAX);
            let limit = limit.max(2_048).min(most);
            let budget = wanted.min(limit.saturating_sub(1_024)).max(1_024);
            (vec![("thinking", json!({"type": "enabled", "budget_tokens": budget}))], limit)
        }
        // Newer models do not return their thinking unless `display` asks for it.
        (Some(level), _) => {
            let adaptive = json!({"type": "adaptive", "display": "summarized"});
            (vec![("thinking", adaptive), ("output_config", effort(level))], limit)
        }
        (None, ThinkingSupport::Always) => (vec![("output_config", effort(ThinkingLevel::Low))], limit),
        // Adaptive models think by default, so that no thinking has to be asked for.
        (None, ThinkingSupport::Adaptive) => (vec![("thinking", json!({"type": "disabled"}))], limit),
        (None, _) => (Vec::new(), limit),
    }
}

/// A message part as a content block. None if the API has no block for the part, or its text is empty.
fn block(part: &Part, call: &Call<'_>) -> Result<Option<Value>, ModelError> {
    let opaque = part.opaque_for(call.origin);
    let mut block = match &part.content {
        // The decoder kept the provider's own block: it goes back unchanged.
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
                // The API refuses thinking without a signature, such as another model's. It is sent as text.
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
        cache::mark(&mut block, hint);
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
