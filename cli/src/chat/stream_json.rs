//! The events of `--output-format stream-json`, with the names that Claude Code gives them.

use flovyn_toolkit::message::{Content, Media, MediaSource, Message, Part, Stop, ToolResult, Usage};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use serde_json::{Value, json};
use std::time::Duration;

/// An answer of the model.
pub(super) fn assistant(message: &Message, session: &str) -> Value {
    let mut line = json!({
        "type": "assistant",
        "message": { "type": "message", "role": "assistant", "content": content(&message.parts) },
        "session_id": session,
    });
    if let Some(meta) = &message.assistant {
        let said = &mut line["message"];
        said["model"] = json!(format!("{}/{}", meta.origin.provider, meta.origin.model));
        said["id"] = json!(meta.response_id);
        said["stop_reason"] = json!(stop(meta.stop));
        said["usage"] = usage(&meta.usage);
        if let Some(error) = &meta.error {
            line["error"] = json!(error.message);
        }
    }
    line
}

/// A message of the user.
pub(super) fn user(message: &Message, session: &str) -> Value {
    json!({
        "type": "user",
        "message": { "role": "user", "content": content(&message.parts) },
        "session_id": session,
    })
}

/// The result of a tool.
pub(super) fn tool_result(result: &ToolResult, duration: Option<Duration>, session: &str) -> Value {
    let mut line = json!({
        "type": "user",
        "message": { "role": "user", "content": [of_result(result)] },
        "tool_name": result.name,
        "session_id": session,
    });
    if let Some(duration) = duration {
        line["duration_ms"] = json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    }
    line
}

/// A call that was refused.
pub(super) fn denial(request: &ApprovalRequest) -> Value {
    json!({ "tool_name": request.name, "tool_use_id": request.id, "tool_input": request.arguments })
}

fn content(parts: &[Part]) -> Vec<Value> {
    parts.iter().map(|part| block(&part.content)).collect()
}

fn block(content: &Content) -> Value {
    match content {
        Content::Text { text } => json!({ "type": "text", "text": text }),
        Content::Thinking(thinking) => json!({ "type": "thinking", "thinking": thinking.text }),
        Content::ToolCall(call) => {
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments })
        }
        Content::ToolResult(result) => of_result(result),
        Content::Media(media) => of_media(media),
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}

fn of_result(result: &ToolResult) -> Value {
    let content = content(&result.content);
    json!({ "type": "tool_result", "tool_use_id": result.id, "content": content, "is_error": result.is_error })
}

fn of_media(media: &Media) -> Value {
    let kind = if media.mime.starts_with("image/") { "image" } else { "document" };
    let source = match &media.source {
        MediaSource::Base64(data) => json!({ "type": "base64", "media_type": media.mime, "data": data }),
        MediaSource::Url(url) => json!({ "type": "url", "url": url }),
        MediaSource::ProviderFile(id) => json!({ "type": "file", "file_id": id }),
    };
    json!({ "type": kind, "source": source })
}

fn stop(stop: Stop) -> Value {
    match stop {
        Stop::End => json!("end_turn"),
        Stop::ToolUse => json!("tool_use"),
        Stop::Length => json!("max_tokens"),
        Stop::Refusal => json!("refusal"),
        other => json!(other),
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    })
}
