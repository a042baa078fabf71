//! An answer on OpenAI's Responses wire.

use super::choose::{Answer, Used};
use super::frames::{Frame, pieces};
use crate::message::Stop;
use serde_json::{Value, json};

pub(super) fn frames(answer: &Answer, characters: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut send = |mut event: Value| {
        event["sequence_number"] = json!(frames.len());
        frames.push(Frame::named(event));
    };
    let mut begun = whole(answer);
    begun["status"] = json!("in_progress");
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    begun["incomplete_details"] = Value::Null;
    send(json!({"type": "response.created", "response": begun}));
    send(json!({"type": "response.in_progress", "response": begun}));
    for (index, item) in items(answer).into_iter().enumerate() {
        let mut added = item.clone();
        let id = item["id"].clone();
        match item["type"].as_str().unwrap_or_default() {
            "reasoning" => {
                added["summary"] = json!([]);
                added["encrypted_content"] = json!("");
            }
            "message" => {
                added["content"] = json!([]);
                added["status"] = json!("in_progress");
            }
            _ => {
                added["arguments"] = json!("");
                added["status"] = json!("in_progress");
            }
        }
        send(json!({"type": "response.output_item.added", "output_index": index, "item": added}));
        let place = json!({"item_id": id, "output_index": index});
        let mut event = |kind: &str, more: Value| {
            let mut event = place.clone();
            event["type"] = json!(format!("response.{kind}"));
            for (name, value) in more.as_object().into_iter().flatten() {
                event[name] = value.clone();
            }
            send(event);
        };
        match item["type"].as_str().unwrap_or_default() {
            "reasoning" => {
                for part in item["summary"].as_array().into_iter().flatten() {
                    let text = part["text"].as_str().unwrap_or_default();
                    event(
                        "reasoning_summary_part.added",
                        json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
                    );
                    for piece in pieces(text, characters) {
                        event("reasoning_summary_text.delta", json!({"summary_index": 0, "delta": piece}));
                    }
                    event("reasoning_summary_text.done", json!({"summary_index": 0, "text": text}));
                    event("reasoning_summary_part.done", json!({"summary_index": 0, "part": part}));
                }
            }
            "message" => {
                let text = item["content"][0]["text"].as_str().unwrap_or_default();
                event(
                    "content_part.added",
                    json!({"content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}),
                );
                for piece in pieces(text, characters) {
                    event("output_text.delta", json!({"content_index": 0, "delta": piece, "logprobs": []}));
                }
                event("output_text.done", json!({"content_index": 0, "text": text, "logprobs": []}));
                event("content_part.done", json!({"content_index": 0, "part": item["content"][0]}));
            }
            _ => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                for piece in pieces(arguments, characters) {
                    event("function_call_arguments.delta", json!({"delta": piece}));
                }
                event("function_call_arguments.done", json!({"arguments": arguments}));
            }
        }
        send(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let ended = if is_complete(answer.stop) { "response.completed" } else { "response.incomplete" };
    send(json!({"type": ended, "response": whole(answer)}));
    frames
}

/// The answer that is not streamed.
pub(super) fn whole(answer: &Answer) -> Value {
    let reason = if answer.stop == Stop::Refusal { "content_filter" } else { "max_output_tokens" };
    let incomplete = if is_complete(answer.stop) { Value::Null } else { json!({"reason": reason}) };
    json!({
        "id": format!("resp_{}", answer.id), "object": "response", "created_at": 1, "model": answer.model,
        "status": if incomplete.is_null() { "completed" } else { "incomplete" }, "incomplete_details": incomplete,
        "error": null, "instructions": null, "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "temperature": 1, "top_p": 1, "output": items(answer), "usage": usage(&answer.usage),
    })
}

pub(super) fn error(code: &str) -> Frame {
    let error = json!({"code": code, "message": "played by the script"});
    Frame::named(
        json!({"type": "response.failed", "response": {"object": "response", "status": "failed", "error": error}}),
    )
}

fn is_complete(stop: Stop) -> bool {
    !matches!(stop, Stop::Length | Stop::Refusal)
}

fn items(answer: &Answer) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thought) = &answer.thinking {
        let summary =
            if thought.redacted { json!([]) } else { json!([{"type": "summary_text", "text": thought.text}]) };
        items.push(json!({"type": "reasoning", "id": format!("rs_{}", answer.id), "summary": summary, "encrypted_content": thought.signature}));
    }
    if let Some(text) = &answer.text {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        items.push(json!({"type": "message", "id": format!("msg_{}", answer.id), "role": "assistant", "status": "completed", "content": content}));
    }
    items.extend(answer.calls.iter().enumerate().map(|(index, call)| {
        json!({
            "type": "function_call", "id": format!("fc_{}_{index}", answer.id), "call_id": call.id, "name": call.name,
            "arguments": call.json, "status": "completed",
        })
    }));
    items
}

fn usage(used: &Used) -> Value {
    let input = used.input + used.cache_read + used.cache_write;
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output, "output_tokens_details": {"reasoning_tokens": used.reasoning}, "total_tokens": input + used.output,
    })
}
