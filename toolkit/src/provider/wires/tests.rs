//! What refusals mean, whatever the words.

use super::*;
use crate::message::{Part, Role};
use crate::provider::{CacheHint, ToolSpec};
use serde_json::json;

#[test]
fn refusals_say_what_a_caller_can_do() {
    for (status, code, message, kind) in [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            ErrorKind::ContextOverflow,
        ),
        (400, "context_length_exceeded", "", ErrorKind::ContextOverflow),
        (400, "invalid_request_error", "messages.1: tool_use without tool_result", ErrorKind::InvalidRequest),
        (400, "invalid_request_error", "Your credit balance is too low", ErrorKind::QuotaExceeded),
        (401, "", "", ErrorKind::Unauthorized),
        (402, "", "", ErrorKind::QuotaExceeded),
        (404, "model_not_found", "", ErrorKind::UnknownModel),
        (429, "insufficient_quota", "", ErrorKind::QuotaExceeded),
        (429, "rate_limit_exceeded", "", ErrorKind::RateLimited),
        (500, "", "", ErrorKind::Unavailable),
        (529, "overloaded_error", "Overloaded", ErrorKind::Unavailable),
    ] {
        let error = refused(status, code, message);
        assert_eq!((error.kind, error.status), (kind, Some(status)), "{status} {code} {message}");
        assert!(!error.message.is_empty());
    }
    assert_eq!(failed("overloaded_error", "Overloaded").kind, ErrorKind::Unavailable);
    assert_eq!(failed("context_length_exceeded", "").kind, ErrorKind::ContextOverflow);
    assert_eq!(failed("never seen", "").kind, ErrorKind::Unavailable);
}

#[test]
fn paths_follow_what_each_client_takes_for_a_base() {
    assert_eq!(path(Api::AnthropicMessages, "https://api.anthropic.com"), "/v1/messages");
    assert_eq!(path(Api::AnthropicMessages, "https://proxy/v1"), "/messages");
    assert_eq!(path(Api::OpenaiChat, "https://api.openai.com/v1"), "/chat/completions");
    assert_eq!(path(Api::OpenaiResponses, "https://api.openai.com/v1"), "/responses");
}

/// The answer that a wire makes of events.
fn decoded(api: Api, before: &[Message], events: &[Value]) -> Result<Message, ModelError> {
    let request = ModelRequest::new("m", before.to_vec());
    let mut decoder = decoder(api, &request, &origin_of(api));
    for event in events {
        decoder.event(&event.to_string(), &mut |_| {})?;
    }
    decoder.finish()
}

fn origin_of(api: Api) -> Origin {
    Origin::new(api.as_str(), "local", "m")
}

/// The events of an answer with calls of `note`: each its number, its id and its text.
fn answer_of(api: Api, calls: &[(u64, Value, &str)]) -> Vec<Value> {
    let arguments = |text: &str| json!({"text": text}).to_string();
    let mut events = Vec::new();
    match api {
        Api::OpenaiChat => {
            let call = |(index, id, text): &(u64, Value, &str)| json!({"index": index, "id": id, "function": {"name": "note", "arguments": arguments(text)}});
            let calls: Vec<_> = calls.iter().map(call).collect();
            events.push(json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}));
        }
        Api::AnthropicMessages => {
            events.push(json!({"type": "message_start", "message": {"usage": {}}}));
            for (index, (_, id, text)) in calls.iter().enumerate() {
                events.extend([
                    json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "id": id, "name": "note", "input": {}}}),
                    json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": arguments(text)}}),
                    json!({"type": "content_block_stop", "index": index}),
                ]);
            }
            events.extend([
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}),
                json!({"type": "message_stop"}),
            ]);
        }
        Api::OpenaiResponses => {
            let item = |(_, id, text): &(u64, Value, &str)| json!({"type": "function_call", "call_id": id, "name": "note", "arguments": arguments(text), "status": "completed"});
            let items: Vec<_> = calls.iter().map(item).collect();
            events.push(json!({"type": "response.completed", "response": {"output": items}}));
        }
    }
    events
}

/// The ids of calls and the ids of results in the body of a request, in order.
fn ids_in(body: &Value, calls: &mut Vec<String>, results: &mut Vec<String>) {
    let id = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    match body {
        Value::Array(values) => values.iter().for_each(|value| ids_in(value, calls, results)),
        Value::Object(fields) => {
            match body["type"].as_str().unwrap_or_default() {
                "tool_use" | "function" => calls.push(id("id")),
                "function_call" => calls.push(id("call_id")),
                "tool_result" => results.push(id("tool_use_id")),
                "function_call_output" => results.push(id("call_id")),
                _ if body["role"] == "tool" => results.push(id("tool_call_id")),
                _ => {}
            }
            fields.values().for_each(|value| ids_in(value, calls, results));
        }
        _ => {}
    }
}

#[test]
fn each_call_has_an_id_of_its_own_whatever_its_provider_said() {
    for api in [Api::OpenaiChat, Api::AnthropicMessages, Api::OpenaiResponses] {
        for id in [json!("call_1"), json!(""), json!(7), Value::Null] {
            let mut conversation = vec![Message::user("go")];
            for turn in ["one", "two"] {
                let (first, second) = (format!("{turn} a"), format!("{turn} b"));
                let events = answer_of(api, &[(0, id.clone(), &first), (1, id.clone(), &second)]);
                let answer =
                    decoded(api, &conversation, &events).unwrap_or_else(|error| panic!("{api:?} {id}: {error:?}"));
                let arguments: Vec<_> = answer.tool_calls().map(|call| call.arguments["text"].clone()).collect();
                assert_eq!(arguments, [json!(first), json!(second)], "{api:?} {id}");
                assert_eq!(
                    decoded(api, &conversation, &events).expect("an answer"),
                    answer,
                    "{api:?}: read again it is the same"
                );
                let results = answer.tool_calls().map(|call| {
                    crate::message::ToolResult::text(&call.id, &call.name, format!("noted {}", call.arguments["text"]))
                });
                let results: Vec<_> = results.collect();
                conversation.extend([answer, Message::tool(results)]);
            }
            let request = ModelRequest::new("m", conversation);
            let body =
                encode(api, &request, &ModelInfo::default(), &origin_of(api), &Quirks::default()).expect("a body");
            let (mut calls, mut results) = (Vec::new(), Vec::new());
            ids_in(&Value::Object(body), &mut calls, &mut results);
            let distinct: std::collections::BTreeSet<_> = calls.iter().collect();
            assert_eq!((calls.len(), distinct.len()), (4, 4), "{api:?} {id}: {calls:?}");
            assert_eq!(calls, results, "{api:?} {id}");
            assert!(calls.iter().all(|id| !id.is_empty()), "{api:?}: {calls:?}");
        }
    }
}

/// Anthropic refuses a request with more than four marks, those of tools included, whoever hands it on.
#[test]
fn a_request_has_no_more_cache_marks_than_the_api_accepts() {
    for (api, system) in [
        (Api::AnthropicMessages, None),
        (Api::AnthropicMessages, Some("be brief")),
        (Api::OpenaiChat, None),
        (Api::OpenaiChat, Some("be brief")),
    ] {
        let marked = (0..5).map(|n| Part::text(n.to_string()).cached(CacheHint::Short)).collect();
        let messages = system.map(Message::system).into_iter().chain([Message::new(Role::User, marked)]);
        let mut request = ModelRequest::new("m", messages.collect());
        request.cache = Some(CacheHint::Short);
        request.tools =
            vec![ToolSpec { name: "note".into(), description: String::new(), parameters: json!({"type": "object"}) }];
        let quirks = Quirks { cache_control: true, ..Quirks::default() };
        let body = encode(api, &request, &ModelInfo::default(), &origin_of(api), &quirks).expect("a body");
        let body = Value::Object(body);
        assert_eq!(body.to_string().matches("cache_control").count(), 4, "{api:?}: {body:#}");
        let shared = match (api, system) {
            (Api::AnthropicMessages, None) => &body["tools"][0],
            (Api::AnthropicMessages, Some(_)) => &body["system"][0],
            _ => &body["messages"][0]["content"][0],
        };
        assert!(shared["cache_control"].is_object(), "what all calls share stays marked: {api:?}: {body:#}");
    }
}

#[test]
fn calls_under_one_number_and_one_id_are_told_apart_by_what_they_say() {
    let id = || json!("call_1");
    let texts = |events: &[Value]| {
        let answer = decoded(Api::OpenaiChat, &[], events)?;
        Ok::<_, ModelError>(answer.tool_calls().map(|call| call.arguments.clone()).collect::<Vec<_>>())
    };
    let one = json!({"text": "a"});
    let two = json!({"text": "b"});
    let answer = answer_of(Api::OpenaiChat, &[(0, id(), "a"), (0, id(), "b"), (0, id(), "b")]);
    assert_eq!(texts(&answer).expect("calls"), [one.clone(), two], "what is said twice under one id is made once");
    let piece = |name: Value, arguments: &str| json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": name, "arguments": arguments}}]}}]});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    let pieces = |pieces: &[&str]| {
        let mut events: Vec<_> = pieces.iter().map(|arguments| piece(json!("note"), arguments)).collect();
        events.push(end.clone());
        texts(&events)
    };
    assert_eq!(
        pieces(&["", "{\"te", "xt\":\"a\"", "}", ""]).expect("calls"),
        std::slice::from_ref(&one),
        "id and name with each piece"
    );
    assert_eq!(pieces(&["{}", "{\"text\":", "\"a\"}"]).expect("calls"), [one], "an empty object in place of none");
    assert_eq!(pieces(&["{}", "{}"]).expect("calls"), [json!({})]);
    let neither = decoded(Api::OpenaiChat, &[], &[piece(json!("note"), "{}"), piece(json!("note"), "x"), end.clone()]);
    let call = neither.expect("an answer").tool_calls().next().cloned().expect("a call");
    assert!(call.fault().is_some_and(|fault| fault.contains("{}x")), "the model is told what it has written: {call:?}");
}
