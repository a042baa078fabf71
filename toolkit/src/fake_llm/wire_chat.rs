//! An answer on OpenAI's chat wire.

use super::choose::{Answer, Used};
use super::frames::{Frame, pieces};
use super::script::Reasoning;
use crate::message::Stop;
use serde_json::{Value, json};

pub(super) fn frames(answer: &Answer, characters: usize, reasoning: Reasoning) -> Vec<Frame> {
    let chunk = |delta: Value, finish: Value| {
        Frame::plain(&json!({
            "id": id(answer), "object": "chat.completion.chunk", "created": 1, "model": answer.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }))
    };
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut delta = |delta: Value| frames.push(chunk(delta, Value::Null));
    if let Some(thought) = &answer.thinking {
        for piece in pieces(&thought.text, characters) {
            delta(match reasoning {
                Reasoning::Content => json!({"reasoning_content": piece}),
                Reasoning::Details => {
                    let detail = json!({"type": "reasoning.text", "text": piece, "index": 0, "format": "fake"});
                    json!({"reasoning": piece, "reasoning_details": [detail]})
                }
            });
        }
        if reasoning == Reasoning::Details {
            let detail =
                json!({"type": "reasoning.text", "signature": thought.signature, "index": 0, "format": "fake"});
            delta(json!({"reasoning_details": [detail]}));
        }
    }
    for piece in pieces(answer.text.as_deref().unwrap_or_default(), characters) {
        delta(json!({"content": piece}));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        delta(json!({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}));
        for piece in pieces(&call.json, characters) {
            delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
        }
    }
    frames.push(chunk(json!({}), json!(reason(answer.stop))));
    frames.push(Frame::plain(&json!({
        "id": id(answer), "object": "chat.completion.chunk", "created": 1, "model": answer.model, "choices": [],
        "usage": usage(&answer.usage),
    })));
    frames.push(Frame { event: None, data: "[DONE]".to_owned() });
    frames
}

/// The answer that is not streamed.
pub(super) fn whole(answer: &Answer, reasoning: Reasoning) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if let Some(thought) = &answer.thinking {
        match reasoning {
            Reasoning::Content => message["reasoning_content"] = json!(thought.text),
            Reasoning::Details => {
                message["reasoning"] = json!(thought.text);
                message["reasoning_details"] = json!([{"type": "reasoning.text", "text": thought.text, "signature": thought.signature, "index": 0}]);
            }
        }
    }
    if !answer.calls.is_empty() {
        let call = |call: &super::choose::Call| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}});
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    json!({
        "id": id(answer), "object": "chat.completion", "created": 1, "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason(answer.stop)}], "usage": usage(&answer.usage),
    })
}

pub(super) fn error(code: &str) -> Frame {
    Frame::plain(&json!({"error": {"message": "played by the script", "type": code, "code": code}}))
}

fn id(answer: &Answer) -> String {
    format!("chatcmpl-{}", answer.id)
}

fn usage(used: &Used) -> Value {
    let prompt = used.input + used.cache_read + used.cache_write;
    let mut usage = json!({
        "prompt_tokens": prompt, "completion_tokens": used.output, "total_tokens": prompt + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    });
    if let Some(micros) = used.cost_micros {
        usage["cost"] = json!(micros as f64 / 1e6);
    }
    usage
}

fn reason(stop: Stop) -> &'static str {
    match stop {
        Stop::ToolUse => "tool_calls",
        Stop::Length => "length",
        Stop::Refusal => "content_filter",
        Stop::End | Stop::Aborted | Stop::Error | Stop::Interrupted | Stop::Deferred => "stop",
    }
}
