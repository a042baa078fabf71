//! Random streams, sound and damaged: nothing panics, and no text is lost.

use super::*;
use crate::provider::StreamEvent;
use crate::provider::halves::{Joined, mark, settle};
use serde_json::json;

const APIS: [Api; 3] = [Api::AnthropicMessages, Api::OpenaiChat, Api::OpenaiResponses];
/// How many random streams of each wire are read.
const STREAMS: u64 = 1_500;

/// A piece of text as JSON, with halves of surrogate pairs among its characters.
fn piece(random: &mut fastrand::Rng) -> String {
    let letters = ["a", "ö", "🦦", "\\n", "\\\"", "\\\\", r"\ud83e", r"\udda6", r"\ud83e\udda6", " ", "{{", "\\u0000"];
    let length = random.usize(1..6);
    format!("\"{}\"", (0..length).map(|_| letters[random.usize(..letters.len())]).collect::<String>())
}

/// The text of pieces that follow each other.
fn joined(pieces: &[String]) -> String {
    let mut joined = Joined::default();
    let mut text: String = pieces
        .iter()
        .map(|piece| {
            joined.more(&serde_json::from_str::<String>(&mark(piece).unwrap_or_else(|| piece.clone())).expect("a text"))
        })
        .collect();
    text.extend(joined.end());
    text
}

/// The events of an answer of text in these pieces with one call between them.
fn events(api: Api, pieces: &[String], arguments: &str, random: &mut fastrand::Rng) -> Vec<String> {
    let call_id = ["", "c", "call_1"][random.usize(..3)];
    let name = ["note", "", "a.b"][random.usize(..3)];
    let arguments = json!(arguments).to_string();
    let stop = random.bool();
    let mut events = Vec::new();
    match api {
        Api::AnthropicMessages => {
            events.push(r#"{"type":"message_start","message":{"usage":{"input_tokens":9}}}"#.to_owned());
            events.push(
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
            );
            events.extend(pieces.iter().map(|piece| {
                format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{piece}}}}}"#)
            }));
            events.push(r#"{"type":"content_block_stop","index":0}"#.to_owned());
            events.push(format!(
                r#"{{"type":"content_block_start","index":1,"content_block":{{"type":"tool_use","id":"{call_id}","name":"{name}","input":{{}}}}}}"#
            ));
            events.push(format!(
                r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{arguments}}}}}"#
            ));
            events.push(r#"{"type":"content_block_stop","index":1}"#.to_owned());
            let stop = if stop { "tool_use" } else { "end_turn" };
            events.push(format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}"}},"usage":{{"output_tokens":3}}}}"#
            ));
            events.push(r#"{"type":"message_stop"}"#.to_owned());
        }
        Api::OpenaiChat => {
            events.extend(pieces.iter().map(|piece| format!(r#"{{"choices":[{{"delta":{{"content":{piece}}}}}]}}"#)));
            events.push(format!(
                r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"{call_id}","function":{{"name":"{name}","arguments":{arguments}}}}}]}}}}]}}"#
            ));
            let stop = if stop { "tool_calls" } else { "stop" };
            events.push(format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{stop}"}}]}}"#));
            events.push("[DONE]".to_owned());
        }
        Api::OpenaiResponses => {
            let all: String = pieces.iter().map(|piece| &piece[1..piece.len() - 1]).collect();
            events.extend(pieces.iter().map(|piece| {
                format!(r#"{{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":{piece}}}"#)
            }));
            events.push(format!(
                r#"{{"type":"response.output_item.done","output_index":0,"item":{{"type":"message","id":"m","content":[{{"type":"output_text","text":"{all}"}}]}}}}"#
            ));
            events.push(format!(
                r#"{{"type":"response.output_item.done","output_index":1,"item":{{"type":"function_call","id":"f","call_id":"{call_id}","name":"{name}","arguments":{arguments}}}}}"#
            ));
            events.push(r#"{"type":"response.completed","response":{"usage":{"output_tokens":3}}}"#.to_owned());
        }
    }
    events
}

/// The answer of a stream, and the text that was shown.
fn decoded(api: Api, events: &[String]) -> (Result<Message, ModelError>, String) {
    let mut shown = String::new();
    let mut on = |event: StreamEvent| {
        if let StreamEvent::TextDelta { delta, .. } = event {
            shown.push_str(&delta);
        }
    };
    let mut decoder = decoder(api, &ModelRequest::new("m", Vec::new()), &Origin::new(api.as_str(), "local", "m"));
    for event in events {
        match decoder.event(event, &mut on) {
            Ok(false) => {}
            Ok(true) => break,
            Err(error) => return (Err(error), shown),
        }
    }
    (decoder.finish(), shown)
}

#[test]
fn no_text_is_lost_whatever_is_wrong_with_the_calls() {
    for api in APIS {
        for seed in 0..STREAMS {
            let mut random = fastrand::Rng::with_seed(seed);
            let pieces: Vec<_> = (0..random.usize(0..5)).map(|_| piece(&mut random)).collect();
            let arguments = ["{\"text\":\"a\"}", "null", "", "[1]", "{\"te", r#"{"a":"\ud83d"}"#, "{}{}"];
            let arguments = arguments[random.usize(..arguments.len())];
            let events = events(api, &pieces, arguments, &mut random);
            let answer = decoded(api, &events).0.unwrap_or_else(|error| panic!("{api:?} {seed}: {error}\n{events:#?}"));
            assert_eq!(answer.text(), joined(&pieces), "{api:?} {seed}: {events:#?}");
            let calls: Vec<_> = answer.tool_calls().collect();
            assert!(calls.len() == 1 && calls[0].arguments.is_object() && !calls[0].id.is_empty(), "{api:?} {seed}");
            let readable = ["{\"text\":\"a\"}", "null", ""].contains(&arguments);
            assert_eq!(calls[0].fault().is_none(), readable, "{api:?} {seed}: {arguments}");
            assert_eq!(answer.stop(), crate::message::Stop::ToolUse, "{api:?} {seed}");
        }
    }
}

#[test]
fn damaged_streams_are_read_or_refused() {
    let values =
        [json!(null), json!(7), json!([]), json!({}), json!("x"), json!([{"type": "text", "text": "y"}]), json!(true)];
    let (mut read, mut refused) = (0, 0);
    for api in APIS {
        for seed in 0..STREAMS {
            let mut random = fastrand::Rng::with_seed(seed);
            let pieces: Vec<_> = (0..random.usize(0..5)).map(|_| piece(&mut random)).collect();
            let mut events = events(api, &pieces, "{\"text\":\"a\"}", &mut random);
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..events.len());
                match random.u8(..6) {
                    0 => drop(events.remove(at)),
                    1 => events.insert(at, events[at].clone()),
                    2 => events.swap(at, 0),
                    3 => {
                        let end = random.usize(..=events[at].len());
                        let text: String = events[at].chars().take(end).collect();
                        events[at] = text;
                    }
                    _ => events[at] = changed(&events[at], &values[random.usize(..values.len())], &mut random),
                }
                if events.is_empty() {
                    break;
                }
            }
            let (answer, shown) = decoded(api, &events);
            match answer {
                Ok(answer) => {
                    read += 1;
                    // The message of Responses is made of its finished items, whatever was shown before.
                    if api != Api::OpenaiResponses {
                        let text = answer.text();
                        let rest = text.strip_prefix(&*settle(&shown));
                        assert!(
                            rest.is_some_and(|rest| rest.chars().all(|left| left == '\u{FFFD}')),
                            "{api:?} {seed}: {shown:?} {text:?}"
                        );
                    }
                    serde_json::to_string(&answer).expect("a message can be stored");
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.is_retryable(), "{api:?} {seed}: {error:?}");
                }
            }
        }
    }
    assert!(read > 1_000 && refused > 500, "{read} read, {refused} refused");
}

/// An event with another value in a random place.
fn changed(event: &str, value: &Value, random: &mut fastrand::Rng) -> String {
    let Ok(mut event) = serde_json::from_str::<Value>(event) else { return event.to_owned() };
    let mut places = Vec::new();
    list_places(&event, String::new(), &mut places);
    if let Some(place) = event.pointer_mut(&places[random.usize(..places.len())]) {
        place.clone_from(value);
    }
    event.to_string()
}

fn list_places(value: &Value, here: String, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, inner)| list_places(inner, format!("{here}/{name}"), places));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, inner)| list_places(inner, format!("{here}/{at}"), places));
        }
        _ => {}
    }
    places.push(here);
}
