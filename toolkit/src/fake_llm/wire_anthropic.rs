//! An answer on Anthropic's wire.

use super::choose::{Answer, Used};
use super::frames::{Frame, pieces};
use crate::message::Stop;
use serde_json::{Value, json};

pub(super) fn frames(answer: &Answer, characters: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut message = whole(answer);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"]["output_tokens"] = json!(1);
    frames.push(Frame::named(json!({"type": "message_start", "message": message})));
    frames.push(Frame::named(json!({"type": "ping"})));
    for (index, block) in blocks(answer).into_iter().enumerate() {
        let mut start = block.clone();
        let mut deltas = Vec::new();
        let mut delta = |field: &str, kind: &str, name: &str| {
            let text = block[field].as_str().map(str::to_owned).unwrap_or_else(|| block[field].to_string());
            deltas.extend(pieces(&text, characters).into_iter().map(|piece| json!({"type": kind, name: piece})));
        };
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                delta("text", "text_delta", "text");
                start["text"] = json!("");
            }
            "thinking" => {
                delta("thinking", "thinking_delta", "thinking");
                deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
                start["thinking"] = json!("");
                start["signature"] = json!("");
            }
            "tool_use" => {
                let json = &answer.calls
                    [index - (usize::from(answer.thinking.is_some()) + usize::from(answer.text.is_some()))]
                .json;
                deltas.push(json!({"type": "input_json_delta", "partial_json": ""}));
                deltas.extend(
                    pieces(json, characters)
                        .into_iter()
                        .map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
                );
                start["input"] = json!({});
            }
            _ => {}
        }
        frames.push(Frame::named(json!({"type": "content_block_start", "index": index, "content_block": start})));
        frames.extend(
            deltas
                .into_iter()
                .map(|delta| Frame::named(json!({"type": "content_block_delta", "index": index, "delta": delta}))),
        );
        frames.push(Frame::named(json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": reason(answer.stop), "stop_sequence": null});
    frames.push(Frame::named(json!({"type": "message_delta", "delta": delta, "usage": usage(&answer.usage)})));
    frames.push(Frame::named(json!({"type": "message_stop"})));
    frames
}

/// The answer that is not streamed.
pub(super) fn whole(answer: &Answer) -> Value {
    json!({
        "id": format!("msg_{}", answer.id), "type": "message", "role": "assistant", "model": answer.model,
        "content": blocks(answer), "stop_reason": reason(answer.stop), "stop_sequence": null, "usage": usage(&answer.usage),
    })
}

pub(super) fn error(code: &str) -> Frame {
    Frame::named(json!({"type": "error", "error": {"type": code, "message": "played by the script"}}))
}

fn blocks(answer: &Answer) -> Vec<Value> {
    let mut blocks = Vec::new();
    if let Some(thought) = &answer.thinking {
        blocks.push(if thought.redacted {
            json!({"type": "redacted_thinking", "data": thought.signature})
        } else {
            json!({"type": "thinking", "thinking": thought.text, "signature": thought.signature})
        });
    }
    blocks.extend(answer.text.iter().map(|text| json!({"type": "text", "text": text})));
    blocks.extend(answer.calls.iter().map(|call| {
        // What is no JSON is given as its text.
        let input = serde_json::from_str(&call.json).unwrap_or_else(|_| json!(call.json));
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": Value::clone(&input)})
    }));
    blocks
}

fn usage(used: &Used) -> Value {
    json!({
        "input_tokens": used.input, "cache_read_input_tokens": used.cache_read, "cache_creation_input_tokens": used.cache_write,
        "cache_creation": {"ephemeral_5m_input_tokens": used.cache_write.saturating_sub(used.cache_write_1h), "ephemeral_1h_input_tokens": used.cache_write_1h},
        "output_tokens": used.output, "output_tokens_details": {"thinking_tokens": used.reasoning},
    })
}

fn reason(stop: Stop) -> &'static str {
    match stop {
        Stop::ToolUse => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refusal => "refusal",
        Stop::Deferred => "pause_turn",
        Stop::End | Stop::Aborted | Stop::Error | Stop::Interrupted => "end_turn",
    }
}
