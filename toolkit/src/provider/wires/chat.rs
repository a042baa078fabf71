//! OpenAI Chat Completions and compatible providers: encodes a request.

use super::{Call, ModelError, ThinkingLevel, ThinkingSupport, ToolChoice, address, cache, unsendable};
use crate::message::{CacheHint, Content, ExecutedBy, Media, Message, Part, Role, ToolResult};
use crate::provider::quirks::ThinkingField;
use serde_json::{Map, Value, json};

pub(super) fn encode(call: &Call<'_>) -> Result<Map<String, Value>, ModelError> {
    let (request, quirks) = (call.request, call.quirks);
    let mut messages: Vec<Value> = Vec::new();
    let system = request.system.iter().filter(|text| !text.is_empty());
    messages.extend(system.map(|text| json!({"role": "system", "content": text})));
    for message in &call.messages {
        match message.role {
            Role::System => messages.push(json!({"role": "system", "content": message.text()})),
            Role::User => messages.push(json!({"role": "user", "content": content(&message.parts, call)?})),
            Role::Assistant => messages.push(assistant(message, call)),
            Role::Tool => results(message, call, &mut messages)?,
            Role::Other(_) => {}
        }
    }
    if let (Some(hint), true) = (request.cache, quirks.cache_control) {
        let end = messages.len().saturating_sub(1);
        for (index, message) in messages.iter_mut().enumerate() {
            if index == end || (index == 0 && message["role"] == "system") {
                mark_last(&mut message["content"], hint);
            }
        }
    }
    cache::limit(cache::blocks_of(&mut messages));
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("model", json!(request.model));
    put("messages", Value::Array(messages));
    put("stream", json!(true));
    put("stream_options", json!({"include_usage": true}));
    if quirks.usage_include {
        put("usage", json!({"include": true}));
    }
    if let Some(limit) = request.max_tokens {
        put(&quirks.max_tokens_field, json!(limit));
    }
    if let Some(temperature) = call.temperature() {
        put("temperature", json!(temperature));
    }
    if !request.stop.is_empty() {
        put("stop", json!(request.stop));
    }
    if let (Some(field), Some(session)) = (&quirks.session_field, &request.session) {
        put(field, json!(session));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::provider::ToolSpec| json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}});
        put("tools", request.tools.iter().map(tool).collect());
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => put("tool_choice", json!("none")),
            ToolChoice::Required => put("tool_choice", json!("required")),
            ToolChoice::Tool(name) => put("tool_choice", json!({"type": "function", "function": {"name": name}})),
        }
    }
    if let Some(output) = &request.output {
        let schema = json!({"name": output.name, "schema": output.schema, "strict": true});
        put("response_format", json!({"type": "json_schema", "json_schema": schema}));
    }
    if let Some((name, value)) = thinking(call) {
        put(name, value);
    }
    Ok(body)
}

/// The request field that turns thinking on or off.
fn thinking(call: &Call<'_>) -> Option<(&'static str, Value)> {
    let can = call.info.thinking != ThinkingSupport::None;
    let always = call.info.thinking == ThinkingSupport::Always;
    match (call.quirks.thinking, call.effort()) {
        (ThinkingField::None, _) => None,
        (_, None) if !can || always => None,
        (ThinkingField::ReasoningEffort, Some(level)) => Some(("reasoning_effort", json!(effort(level)))),
        (ThinkingField::ReasoningEffort, None) => Some(("reasoning_effort", json!("none"))),
        (ThinkingField::Reasoning, Some(level)) => Some(("reasoning", json!({"effort": effort(level)}))),
        (ThinkingField::Reasoning, None) => Some(("reasoning", json!({"enabled": false}))),
        (ThinkingField::Typed, _) if always => None,
        (ThinkingField::Typed, Some(_)) => Some(("thinking", json!({"type": "enabled"}))),
        (ThinkingField::Typed, None) => Some(("thinking", json!({"type": "disabled"}))),
    }
}

/// OpenAI's words for how hard to think.
pub(super) fn effort(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off => "none",
        ThinkingLevel::Minimal => "minimal",
        ThinkingLevel::Low => "low",
        ThinkingLevel::Medium => "medium",
        ThinkingLevel::High => "high",
        ThinkingLevel::Max => "xhigh",
    }
}

/// The content of a message: a string if there is only text, which every server accepts, and otherwise an array of
/// parts.
fn content(parts: &[Part], call: &Call<'_>) -> Result<Value, ModelError> {
    let cached = call.quirks.cache_control && parts.iter().any(|part| part.cache.is_some());
    if !cached && parts.iter().all(|part| part.as_text().is_some()) {
        let texts: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
        return Ok(json!(texts.join("\n")));
    }
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        let mut block = match &part.content {
            Content::Text { text } => json!({"type": "text", "text": text}),
            Content::Media(media) => file(media)?,
            _ => continue,
        };
        if let (Some(hint), true) = (part.cache, call.quirks.cache_control) {
            cache::mark(&mut block, hint);
        }
        blocks.push(block);
    }
    Ok(Value::Array(blocks))
}

fn file(media: &Media) -> Result<Value, ModelError> {
    match media.mime.as_str() {
        mime if mime.starts_with("image/") => Ok(json!({"type": "image_url", "image_url": {"url": address(media)?}})),
        "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("document.pdf");
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": address(media)?}}))
        }
        _ => Err(unsendable(media, "is neither an image nor a PDF")),
    }
}

fn assistant(message: &Message, call: &Call<'_>) -> Value {
    let mut body = json!({"role": "assistant"});
    let text = message.text();
    let calls: Vec<Value> = message.parts.iter().filter_map(|part| tool_call(part, call)).collect();
    body["content"] = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
    let mut details: Vec<Value> = Vec::new();
    let mut thought = String::new();
    for part in &message.parts {
        if let Content::Thinking(thinking) = &part.content {
            thought.push_str(&thinking.text);
            let opaque = part.opaque_for(call.origin).and_then(|data| data.get("reasoning_details"));
            details.extend(opaque.and_then(Value::as_array).into_iter().flatten().cloned());
        }
    }
    if call.quirks.reasoning_details && !details.is_empty() {
        body["reasoning_details"] = Value::Array(details);
    }
    if let Some(field) = &call.quirks.reasoning_field {
        let thinks = call.effort().is_some() || call.info.thinking == ThinkingSupport::Always;
        let required = call.quirks.reasoning_required && thinks && !calls.is_empty();
        if required || !thought.is_empty() {
            body[field] = json!(thought);
        }
    }
    if !calls.is_empty() {
        body["tool_calls"] = Value::Array(calls);
    }
    body
}

fn tool_call(part: &Part, call: &Call<'_>) -> Option<Value> {
    let Content::ToolCall(call_part) = &part.content else { return None };
    if call_part.executed_by == ExecutedBy::Provider {
        return None;
    }
    let function = json!({"name": call_part.name, "arguments": call_part.arguments.to_string()});
    let mut body = json!({"id": call_part.id, "type": "function", "function": function});
    if let Some(extra) = part.opaque_for(call.origin).and_then(|data| data.get("extra_content")) {
        body["extra_content"] = extra.clone();
    }
    Some(body)
}

/// Adds messages with the results of tools. Media of the results follow in a message of the user, because only such a
/// message may hold them.
fn results(message: &Message, call: &Call<'_>, messages: &mut Vec<Value>) -> Result<(), ModelError> {
    let mut files: Vec<Value> = Vec::new();
    for result in message.tool_results() {
        let text: Vec<_> = result.content.iter().filter_map(Part::as_text).collect();
        let media: Vec<_> =
            result.content.iter().filter(|part| matches!(part.content, Content::Media(_))).cloned().collect();
        messages.push(
            json!({"role": "tool", "tool_call_id": result.id, "content": result_text(result, &text.join("\n"), media.len())}),
        );
        if !media.is_empty() {
            files.push(json!({"type": "text", "text": format!("Files of the result of {}:", result.id)}));
            files.extend(content(&media, call)?.as_array().into_iter().flatten().cloned());
        }
    }
    if !files.is_empty() {
        messages.push(json!({"role": "user", "content": files}));
    }
    Ok(())
}

/// The text of a result. The protocol cannot say that a tool has failed, so the text does. It also needs a text for a
/// result that only has files.
pub(super) fn result_text(result: &ToolResult, text: &str, files: usize) -> String {
    match (result.is_error, text.is_empty(), files) {
        (true, _, _) => format!("Error: {text}"),
        (false, true, 1..) => "The result is in the files of the next message.".to_owned(),
        (false, _, _) => text.to_owned(),
    }
}

/// Marks the last block of a content, which may be a text yet.
fn mark_last(content: &mut Value, hint: CacheHint) {
    if let Some(text) = content.as_str().filter(|text| !text.is_empty()) {
        *content = json!([{"type": "text", "text": text}]);
    }
    if let Some(last) = content.as_array_mut().and_then(|blocks| blocks.last_mut()) {
        cache::mark(last, hint);
    }
}
