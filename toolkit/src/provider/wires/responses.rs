//! OpenAI Responses without state at the provider: encodes a request.

use super::chat::{effort, result_text};
use super::{Call, ModelError, ThinkingSupport, ToolChoice, address, unsendable};
use crate::message::{Content, ExecutedBy, Media, Message, Part, Role};
use serde_json::{Map, Value, json};

pub(super) fn encode(call: &Call<'_>) -> Result<Map<String, Value>, ModelError> {
    let request = call.request;
    let mut input: Vec<Value> = Vec::new();
    for message in &call.messages {
        match message.role {
            Role::System => input.push(json!({"role": "developer", "content": message.text()})),
            Role::User => input.push(json!({"role": "user", "content": content(&message.parts)?})),
            Role::Assistant => answer(message, call, &mut input),
            Role::Tool => {
                for result in message.tool_results() {
                    let text: Vec<_> = result.content.iter().filter_map(Part::as_text).collect();
                    let plain = text.len() == result.content.len();
                    let output =
                        if plain { json!(result_text(result, &text.join("\n"), 0)) } else { content(&result.content)? };
                    input.push(json!({"type": "function_call_output", "call_id": result.id, "output": output}));
                }
            }
            Role::Other(_) => {}
        }
    }
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("model", json!(request.model));
    put("input", Value::Array(input));
    put("stream", json!(true));
    put("store", json!(false));
    if let Some(system) = request.system.as_ref().filter(|text| !text.is_empty()) {
        put("instructions", json!(system));
    }
    if let Some(limit) = request.max_tokens {
        put("max_output_tokens", json!(limit));
    }
    if let Some(temperature) = call.temperature() {
        put("temperature", json!(temperature));
    }
    if let (Some(field), Some(session)) = (&call.quirks.session_field, &request.session) {
        put(field, json!(session));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &crate::provider::ToolSpec| json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": false});
        put("tools", request.tools.iter().map(tool).collect());
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => put("tool_choice", json!("none")),
            ToolChoice::Required => put("tool_choice", json!("required")),
            ToolChoice::Tool(name) => put("tool_choice", json!({"type": "function", "name": name})),
        }
    }
    if let Some(output) = &request.output {
        let format = json!({"type": "json_schema", "name": output.name, "schema": output.schema, "strict": true});
        put("text", json!({"format": format}));
    }
    if call.info.thinking != ThinkingSupport::None {
        // The provider keeps nothing, so it sends its thoughts encrypted, and they are sent back with the conversation.
        put("include", json!(["reasoning.encrypted_content"]));
        match call.effort() {
            Some(level) => put("reasoning", json!({"effort": effort(level), "summary": "auto"})),
            None if call.info.thinking == ThinkingSupport::Always => {}
            None => put("reasoning", json!({"effort": "none"})),
        }
    }
    Ok(body)
}

fn content(parts: &[Part]) -> Result<Value, ModelError> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        match &part.content {
            Content::Text { text } => blocks.push(json!({"type": "input_text", "text": text})),
            Content::Media(media) => blocks.push(file(media)?),
            _ => {}
        }
    }
    Ok(Value::Array(blocks))
}

fn file(media: &Media) -> Result<Value, ModelError> {
    match media.mime.as_str() {
        mime if mime.starts_with("image/") => {
            Ok(json!({"type": "input_image", "image_url": address(media)?, "detail": "auto"}))
        }
        "application/pdf" => {
            let name = media.name.as_deref().unwrap_or("document.pdf");
            Ok(json!({"type": "input_file", "filename": name, "file_data": address(media)?}))
        }
        _ => Err(unsendable(media, "is neither an image nor a PDF")),
    }
}

/// The items of an answer. Those that this model has made are sent back unchanged; the others as messages and calls.
fn answer(message: &Message, call: &Call<'_>, input: &mut Vec<Value>) {
    for part in &message.parts {
        let item = part.opaque_for(call.origin).and_then(|data| data.get("item"));
        match (&part.content, item) {
            // One item may have several texts, which follow each other. It is sent once, with the first of them.
            (_, Some(item)) if input.last() != Some(item) => input.push(item.clone()),
            (Content::Text { text }, None) if !text.is_empty() => {
                input.push(json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]}));
            }
            (Content::ToolCall(tool_call), None) if tool_call.executed_by == ExecutedBy::Us => input.push(json!({
                "type": "function_call", "call_id": tool_call.id, "name": tool_call.name, "arguments": tool_call.arguments.to_string(),
            })),
            _ => {}
        }
    }
}
