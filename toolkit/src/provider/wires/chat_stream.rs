//! OpenAI Chat Completions and compatible providers: decodes the chunks of a stream.

use super::{Decoder, ErrorKind, ModelError, failed, number, object, text};
use crate::message::call_ids::CallIds;
use crate::message::{Cost, CostBasis, ExecutedBy, Message, Origin, Stop};
use crate::provider::StreamEvent;
use crate::provider::assembly::{Assembly, Growing, StreamEnd};
use crate::provider::http::parse_error_body;
use serde_json::{Value, json};

pub(super) struct Stream {
    assembly: Assembly,
    /// Whether `stop` beside tool calls means that they are to be made.
    lenient: bool,
    thinking: Option<usize>,
    text: Option<usize>,
    /// The provider's number and id of each call, and our part.
    calls: Vec<(u64, String, usize)>,
    details: Vec<Value>,
    ending: Option<StreamEnd>,
}

impl Stream {
    pub(super) fn new(origin: &Origin, ids: CallIds, lenient: bool) -> Self {
        let assembly = Assembly::new(origin, ids);
        Self { assembly, lenient, thinking: None, text: None, calls: Vec::new(), details: Vec::new(), ending: None }
    }

    fn count(&mut self, usage: &Value) {
        let tokens = |path: &str| number(usage, path).unwrap_or_default();
        let counted = self.assembly.usage();
        // DeepSeek says the hits in a field of its own.
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

    fn delta(&mut self, delta: &Value, on: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<(), ModelError> {
        let details = delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten();
        let mut detailed = String::new();
        for detail in details {
            detailed.push_str(text(detail, "/text").or(text(detail, "/summary")).unwrap_or_default());
            join_detail(&mut self.details, detail);
        }
        let plain =
            text(delta, "/reasoning_content").or(text(delta, "/reasoning")).filter(|thought| !thought.is_empty());
        let thought = plain.unwrap_or(&detailed);
        if !thought.is_empty() || !self.details.is_empty() {
            let begin = |assembly: &mut Assembly, on: &mut (dyn FnMut(StreamEvent) + Send)| {
                assembly.begin(Growing::Thinking { text: String::new(), redacted: false }, on)
            };
            let part = *self.thinking.get_or_insert_with(|| begin(&mut self.assembly, on));
            self.assembly.grow(part, thought, on);
        }
        if let Some(content) = text(delta, "/content").or(text(delta, "/refusal")).filter(|content| !content.is_empty())
        {
            let begin = |assembly: &mut Assembly, on: &mut (dyn FnMut(StreamEvent) + Send)| {
                assembly.begin(Growing::Text { text: String::new() }, on)
            };
            let part = *self.text.get_or_insert_with(|| begin(&mut self.assembly, on));
            self.assembly.grow(part, content, on);
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(call, on)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Value, on: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<(), ModelError> {
        let id = super::word(call, "/id").filter(|id| !id.is_empty());
        let id = id.as_deref();
        let name = text(call, "/function/name").filter(|name| !name.is_empty());
        let index = number(call, "/index");
        let known = match (index, id) {
            // Some servers number every call 0 and tell them apart by id alone.
            (Some(index), Some(id)) => self.calls.iter().rev().find(|(at, known, _)| *at == index && known == id),
            (Some(index), None) => self.calls.iter().rev().find(|(at, _, _)| *at == index),
            (None, Some(id)) => self.calls.iter().rev().find(|(_, known, _)| known == id),
            (None, None) => self.calls.last(),
        };
        let arguments = match call.pointer("/function/arguments") {
            Some(Value::String(json)) => json.clone(),
            // Some local servers send the object itself, once.
            Some(arguments @ Value::Object(_)) => arguments.to_string(),
            _ => String::new(),
        };
        let known = known.map(|(_, _, part)| *part);
        let next = known.map_or(Next::GoesOn, |part| self.next(part, name, &arguments));
        let part = match (known, name.map(str::to_owned)) {
            (Some(_), _) if next == Next::Again => return Ok(()),
            (Some(part), name) => match next {
                Next::Another(known) => self.begin_call(index, id, name.unwrap_or(known), on),
                Next::GoesOn | Next::Again => part,
            },
            (None, Some(name)) => self.begin_call(index, id, name, on),
            (None, None) => {
                let message = "the provider's stream went on with a tool call that never began; ask again";
                return Err(self.assembly.failed(ErrorKind::Protocol, message.to_owned()));
            }
        };
        // Gemini signs calls here.
        if let (Some(extra), Some(place)) = (call.get("extra_content"), self.assembly.opaque(part)) {
            *place = Some(json!({"extra_content": extra}));
        }
        self.assembly.grow(part, &arguments, on);
        Ok(())
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

    /// What a piece is to the call that has its number and its id.
    fn next(&mut self, part: usize, name: Option<&str>, arguments: &str) -> Next {
        let Some(Growing::Call { name: known, json, .. }) = self.assembly.part(part) else { return Next::GoesOn };
        let whole = |json: &str| serde_json::from_str::<serde_json::Map<String, Value>>(json).ok();
        // Nothing can follow a whole object, so that this is no more of it.
        let (true, Some(before)) = (arguments.trim_start().starts_with('{'), whole(json)) else { return Next::GoesOn };
        let is_same_tool = name.is_none_or(|name| name == known);
        match whole(arguments) {
            Some(now) if is_same_tool && now == before => Next::Again,
            // Some servers begin with an empty object in place of none.
            _ if is_same_tool && before.is_empty() => {
                json.clear();
                Next::GoesOn
            }
            _ => Next::Another(known.clone()),
        }
    }
}

/// What a piece is to the call that has its number and its id.
#[derive(PartialEq, Eq)]
enum Next {
    /// More of it.
    GoesOn,
    /// The same once more, as some servers say at the end. Twice the same under one id is made once.
    Again,
    /// Another call, of a server that gives all of them one number and one id; the name of the one before.
    Another(String),
}

/// Adds a piece of `reasoning_details`: what goes on with the last one is joined to it.
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
    fn event(&mut self, data: &str, on: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<bool, ModelError> {
        if data == "[DONE]" {
            return Ok(self.ending.is_some());
        }
        let chunk = object(data)?;
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
            self.delta(delta, on)?;
        }
        if let Some(raw) = text(&chunk, "/choices/0/finish_reason") {
            let stop = match raw {
                "tool_calls" | "function_call" => Stop::ToolUse,
                "stop" if self.lenient && self.assembly.has_calls() => Stop::ToolUse,
                "length" => Stop::Length,
                "content_filter" => Stop::Refusal,
                "error" => return Err(failed("", "finish_reason is error")),
                _ => Stop::End,
            };
            self.ending = Some(StreamEnd { stop, raw: raw.to_owned() });
        }
        Ok(false)
    }

    fn finish(mut self: Box<Self>) -> Result<Message, ModelError> {
        let Some(ending) = self.ending else { return Err(self.assembly.interrupted()) };
        // This wire closes all calls with the reason it finished for.
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
        self.assembly.complete(ending)
    }
}
