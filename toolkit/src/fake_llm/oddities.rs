//! What some servers do otherwise than the wire that they speak says: wrong bytes, wrong numbers, wrong shapes.

use super::frames::Frame;
use super::script::Oddity;
use crate::provider::Api;
use serde_json::{Value, json};

/// Stands for half of a surrogate pair until the bytes are written.
pub(super) const HALF: char = '\u{E000}';
/// Stands for a byte that is no UTF-8 until the bytes are written.
pub(super) const BYTE: char = '\u{E001}';

/// The bytes of JSON, with what two of its characters stand for.
pub(super) fn bytes(json: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(json.len());
    for character in json.chars() {
        match character {
            HALF => bytes.extend_from_slice(b"\\ud83d"),
            BYTE => bytes.push(0xFF),
            other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The frames as a server with these oddities sends them.
pub(super) fn of_frames(api: Api, oddities: &[Oddity], frames: Vec<Frame>) -> Vec<Frame> {
    let changed = |frame: Frame| match serde_json::from_str::<Value>(&frame.data) {
        Ok(mut data) => {
            oddities.iter().for_each(|oddity| change(api, *oddity, &mut data));
            Frame { data: data.to_string(), ..frame }
        }
        Err(_) => frame,
    };
    frames.into_iter().map(changed).collect()
}

/// The whole answer of such a server.
pub(super) fn of_whole(api: Api, oddities: &[Oddity], mut body: Value) -> Value {
    oddities.iter().for_each(|oddity| change(api, *oddity, &mut body));
    body
}

fn change(api: Api, oddity: Oddity, data: &mut Value) {
    match (oddity, api) {
        (Oddity::OneIndex, Api::AnthropicMessages) => set(data, "/index", &json!(0)),
        (Oddity::OneIndex, Api::OpenaiResponses) => set(data, "/output_index", &json!(0)),
        (Oddity::OneIndex, Api::OpenaiChat) => set(data, "/choices/0/delta/tool_calls/0/index", &json!(0)),
        (Oddity::ContentList, Api::AnthropicMessages) => {
            listed(data, "/delta/text");
            (0..9).for_each(|block| listed(data, &format!("/content/{block}/text")));
        }
        (Oddity::ContentList, Api::OpenaiChat) => {
            listed(data, "/choices/0/delta/content");
            listed(data, "/choices/0/message/content");
        }
        (Oddity::ContentList, Api::OpenaiResponses) => {
            unlisted(data, "/item/content");
            (0..9).for_each(|item| unlisted(data, &format!("/response/output/{item}/content")));
            (0..9).for_each(|item| unlisted(data, &format!("/output/{item}/content")));
        }
        (Oddity::Unstreamed, _) => {}
    }
}

fn set(data: &mut Value, path: &str, value: &Value) {
    if let Some(place) = data.pointer_mut(path) {
        place.clone_from(value);
    }
}

fn listed(data: &mut Value, path: &str) {
    if let Some(place) = data.pointer_mut(path).filter(|place| place.is_string()) {
        *place = json!([{"type": "text", "text": place.take()}]);
    }
}

fn unlisted(data: &mut Value, path: &str) {
    if let Some(place) = data.pointer_mut(path)
        && let Some(text) = place.pointer("/0/text").cloned()
    {
        *place = text;
    }
}
