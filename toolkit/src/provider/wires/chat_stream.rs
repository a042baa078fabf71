//! OpenAI Chat Completions and compatible providers: decodes the chunks of a stream, with the deviations of the
//! providers.

use super::{Decoder, ModelError, failed, number, said, text};
use crate::message::call_ids::CallIds;
use crate::message::{Cost, CostBasis, ExecutedBy, Message, Origin, Stop};
use crate::provider::StreamEvent;
use crate::provider::assembly::{Assembly, Growing, StreamEnd};
use crate::provider::http::parse_error_body;
use serde_json::{Value, json};

pub(super) struct Stream {
    assembly: Assembly,
    /// The index of the part that has the thinking.
    thinking: Option<usize>,
    /// The index of the part that has the text.
    text: Option<usize>,
    /// Of each tool call: the provider's number, the provider's id, and the index of our part.
    calls: Vec<(u64, String, usize)>,
    /// The joined `reasoning_details`, which go back to the provider with the next call.
    details: Vec<Value>,
    /// How the stream ended. The wire says so before the usage and `[DONE]`.
    ending: Option<StreamEnd>,
}

impl Stream {
    pub(super) fn new(origin: &Origin, ids: CallIds) -> Self {
        let assembly = Assembly::new(origin, ids);
        Self { assembly, thinking: None, text: None, calls: Vec::new(), details: Vec::new(), ending: None }
    }

    fn count(&mut self, usage: &Value) {
        let tokens = |path: &str| number(usage, path).unwrap_or_default();
        let counted = self.assembly.usage();
        // DeepSeek has a field of its own for cache hits.
        counted.cache_read = tokens("/prompt_tokens_details/cached_tokens").max(tokens("/prompt_cache_hit_tokens"));
        counted.cache_write = tokens("/prompt_tokens_details/cache_write_tokens");
        counted.input = tokens("/prompt_tokens").saturating_sub(counted.cache_read + counted.cache_write);
        counted.output = tokens("/completion_tokens");
        counted.reasoning = tokens("/completion_tokens_details/reasoning_tokens").min(counted.output);
        if let Some(dollars) = usage.get("cost").and_then(Value::as_f64).filter(|cost| *cost >= 0.0) {
            counted.cost = Some(Cost {
                amount_micros: (dollars * 1e6).round() as u64,
                currency: "USD".to_owned(),
                basis: CostBasis::Provider,
                table_version: None,
            });
        }
    }

    fn delta(&mut self, delta: &Value, on: &mut (dyn FnMut(StreamEvent) + Send)) {
        let details = delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten();
        let mut detailed = String::new();
        for detail in details {
            detailed.push_str(text(detail, "/text").or(text(detail, "/summary")).unwrap_or_default());
            join_detail(&mut self.details, detail);
        }
        let plain =
            text(delta, "/reasoning_content").or(text(delta, "/reasoning")).filter(|thought| !thought.is_empty());
        let content = delta.get("content").unwrap_or(&Value::Null);
        let listed = said(content, true);
        let thought = plain.unwrap_or(if detailed.is_empty() { &listed } else { &detailed });
        if !thought.is_empty() || !self.details.is_empty() {
            let begin = |assembly: &mut Assembly, on: &mut (dyn FnMut(StreamEvent) + Send)| {
                assembly.begin(Growing::Thinking { text: String::new(), redacted: false }, on)
            };
            let part = *self.thinking.get_or_insert_with(|| begin(&mut self.assembly, on));
            self.assembly.grow(part, thought, on);
        }
        let answer = [content, &delta["refusal"]].map(|content| said(content, false));
        if let Some(content) = answer.iter().find(|content| !content.is_empty()) {
            let begin = |assembly: &mut Assembly, on: &mut (dyn FnMut(StreamEvent) + Send)| {
                assembly.begin(Growing::Text { text: String::new() }, on)
            };
            let part = *self.text.get_or_insert_with(|| begin(&mut self.assembly, on));
            self.assembly.grow(part, content, on);
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(call, on);
        }
    }

    fn call(&mut self, call: &Value, on: &mut (dyn FnMut(StreamEvent) + Send)) {
        let id = super::word(call, "/id").filter(|id| !id.is_empty());
        let id = id.as_deref();
        let name = text(call, "/function/name").filter(|name| !name.is_empty());
        let index = number(call, "/index");
        let known = match (index, id) {
            // Some servers number every call 0, so the id has to be the same too.
            (Some(index), Some(id)) => self.calls.iter().rev().find(|(at, known, _)| *at == index && known == id),
            (Some(index), None) => self.calls.iter().rev().find(|(at, _, _)| *at == index),
            (None, Some(id)) => self.calls.iter().rev().find(|(_, known, _)| known == id),
            (None, None) => self.calls.last(),
        };
        let arguments = match call.pointer("/function/arguments") {
            Some(Value::String(json)) => json.clone(),
            None | Some(Value::Null) => String::new(),
            // Some local servers send the arguments as a JSON object, whole, in place of a string.
            Some(arguments) => arguments.to_string(),
        };
        let known = known.map(|(_, _, part)| *part);
        let piece = known.map_or(Piece::More, |part| self.classify(part, name, &arguments));
        let part = match (known, name.map(str::to_owned)) {
            (Some(_), _) if piece == Piece::Repeated => return,
            (Some(part), name) => match piece {
                Piece::NewCall(known) => self.begin_call(index, id, name.unwrap_or(known), on),
                Piece::More | Piece::Repeated => part,
            },
            // Without a name there is no such tool, and the model is told so.
            (None, name) => self.begin_call(index, id, name.unwrap_or_default(), on),
        };
        if let (Some(given), Some(Growing::Call { name, .. })) = (name, self.assembly.part(part))
            && name.is_empty()
        {
            given.clone_into(name);
        }
        // Gemini puts the signature of a call here, and wants it back.
        if let (Some(extra), Some(place)) = (call.get("extra_content"), self.assembly.opaque(part)) {
            *place = Some(json!({"extra_content": extra}));
        }
        self.assembly.grow(part, &arguments, on);
    }

    fn begin_call(
        &mut self,
        index: Option<u64>,
        id: Option<&str>,
        name: String,
        on: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> usize {
        let number = index.unwrap_or(self.calls.len() as u64);
        let id = id.map_or_else(|| format!("call_{number}"), str::to_owned);
        let growing = Growing::Call { id: id.clone(), name, json: String::new(), by: ExecutedBy::Us, closed: false };
        let part = self.assembly.begin(growing, on);
        self.calls.push((number, id, part));
        part
    }

    /// Tells what a piece is that comes with the number and the id of a call that has begun.
    fn classify(&mut self, part: usize, name: Option<&str>, arguments: &str) -> Piece {
        let Some(Growing::Call { name: known, json, .. }) = self.assembly.part(part) else { return Piece::More };
        if name.is_some_and(|name| !known.is_empty() && name != known) {
            return Piece::NewCall(known.clone());
        }
        let whole = |json: &str| serde_json::from_str::<serde_json::Map<String, Value>>(json).ok();
        // The arguments are one JSON object. If it is complete and another one begins, the piece cannot be more of it.
        let (true, Some(before)) = (arguments.trim_start().starts_with('{'), whole(json)) else { return Piece::More };
        let is_same_tool = name.is_none_or(|name| name == known);
        match whole(arguments) {
            Some(now) if is_same_tool && now == before => Piece::Repeated,
            // Some servers begin a call with an empty object in place of an empty string.
            _ if is_same_tool && before.is_empty() => {
                json.clear();
                Piece::More
            }
            _ => Piece::NewCall(known.clone()),
        }
    }
}

/// What a piece is that comes with the number and the id of a call that has begun.
#[derive(PartialEq, Eq)]
enum Piece {
    /// More of the call's arguments.
    More,
    /// The whole call again, as some servers send it at the end. The call is made once.
    Repeated,
    /// A new call: some servers give all calls one number and one id. Has the name of the call before.
    NewCall(String),
}

/// Adds a piece of `reasoning_details`. A piece that continues the last detail is joined to it; encrypted ones come
/// whole.
fn join_detail(details: &mut Vec<Value>, piece: &Value) {
    let same = |last: &Value| {
        ["type", "index", "id"].iter().all(|name| piece.get(name).is_none() || last.get(name) == piece.get(name))
    };
    let Some(last) =
        details.last_mut().filter(|last| same(last) && text(piece, "/type") != Some("reasoning.encrypted"))
    else {
        return details.push(piece.clone());
    };
    for (name, value) in piece.as_object().into_iter().flatten() {
        match (value.as_str(), last.get(name).and_then(Value::as_str)) {
            (Some(more), Some(before)) if ["text", "summary"].contains(&name.as_str()) => {
                last[name] = json!(format!("{before}{more}"));
            }
            _ if value.is_null() => {}
            _ => last[name] = value.clone(),
        }
    }
}

impl Decoder for Stream {
    fn read(&self, data: &str) -> Result<Value, ModelError> {
        self.assembly.read(data)
    }

    fn event(&mut self, data: &str, on: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<bool, ModelError> {
        if data == "[DONE]" {
            // Some servers give no reason.
            self.ending.get_or_insert_with(|| StreamEnd { stop: Stop::End, raw: String::new() });
            return Ok(true);
        }
        let chunk = self.read(data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            let body = parse_error_body(data);
            let error =
                match chunk.pointer("/error/code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()) {
                    Some(status) => super::refused(status, &body.code, &body.message),
                    None => failed(&body.code, &body.message),
                };
            return Err(self.assembly.failed(error.kind, error.message));
        }
        self.assembly.start(text(&chunk, "/id"), text(&chunk, "/model"), on);
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.count(usage);
        }
        if let Some(delta) = chunk.pointer("/choices/0/delta") {
            self.delta(delta, on);
        }
        if let Some(raw) = text(&chunk, "/choices/0/finish_reason") {
            let stop = match raw {
                "tool_calls" | "function_call" => Stop::ToolUse,
                "length" => Stop::Length,
                "content_filter" => Stop::Refusal,
                "error" => {
                    let error = failed("", "finish_reason is error");
                    return Err(self.assembly.failed(error.kind, error.message));
                }
                _ => Stop::End,
            };
            self.ending = Some(StreamEnd { stop, raw: raw.to_owned() });
        }
        Ok(false)
    }

    fn finish(mut self: Box<Self>) -> Result<Message, ModelError> {
        let Some(ending) = self.ending else { return Err(self.assembly.interrupted()) };
        // This wire does not end calls one by one: the finish reason ends them all.
        for (_, _, part) in &self.calls {
            if let Some(Growing::Call { closed, .. }) = self.assembly.part(*part) {
                *closed = true;
            }
        }
        if let (Some(part), false) = (self.thinking, self.details.is_empty()) {
            if let Some(Growing::Thinking { text, redacted }) = self.assembly.part(part) {
                *redacted = text.is_empty();
            }
            if let Some(place) = self.assembly.opaque(part) {
                *place = Some(json!({"reasoning_details": self.details}));
            }
        }
        Ok(self.assembly.complete(ending))
    }
}

/// The events of a response that came whole: one chunk with all of the message.
pub(super) fn events_of_whole(mut body: Value) -> Vec<Value> {
    if let Some(choice) = body.pointer_mut("/choices/0").and_then(Value::as_object_mut) {
        if let Some(mut message) = choice.remove("message") {
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
            for (index, call) in calls.into_iter().flatten().enumerate() {
                if let Some(call) = call.as_object_mut() {
                    call.insert("index".to_owned(), json!(index));
                }
            }
            choice.insert("delta".to_owned(), message);
        }
        let ended = choice.get("finish_reason").is_some_and(Value::is_string);
        if !ended {
            choice.insert("finish_reason".to_owned(), json!("stop"));
        }
    }
    vec![body]
}
