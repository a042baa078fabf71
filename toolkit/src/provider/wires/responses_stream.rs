//! OpenAI Responses: decodes the events of a stream.
//!
//! Events show the items while they grow. The message is made only of the finished items.

use super::{Decoder, ModelError, failed, number, said, text};
use crate::message::call_ids::CallIds;
use crate::message::{ExecutedBy, Message, Origin, Stop};
use crate::provider::StreamEvent;
use crate::provider::assembly::{Assembly, Growing, StreamEnd};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

pub(super) struct Stream {
    origin: Origin,
    ids: CallIds,
    /// The parts that are shown while they grow.
    assembly: Assembly,
    /// The number of our part, by the provider's number of the item and of the piece of content in it.
    parts: HashMap<(u64, u64), usize>,
    /// The finished items, by the provider's number.
    items: BTreeMap<u64, Value>,
    last_sequence: Option<u64>,
    ending: Option<StreamEnd>,
}

impl Stream {
    pub(super) fn new(origin: &Origin, ids: CallIds) -> Self {
        Self {
            origin: origin.clone(),
            assembly: Assembly::new(origin, ids.clone()),
            ids,
            parts: HashMap::new(),
            items: BTreeMap::new(),
            last_sequence: None,
            ending: None,
        }
    }

    fn count(&mut self, usage: &Value) {
        let tokens = |path: &str| number(usage, path).unwrap_or_default();
        let counted = self.assembly.usage();
        counted.cache_read = tokens("/input_tokens_details/cached_tokens");
        counted.cache_write = tokens("/input_tokens_details/cache_write_tokens");
        counted.input = tokens("/input_tokens").saturating_sub(counted.cache_read + counted.cache_write);
        counted.output = tokens("/output_tokens");
        counted.reasoning = tokens("/output_tokens_details/reasoning_tokens").min(counted.output);
    }

    fn item_added(&mut self, index: u64, item: &Value, on: &mut (dyn FnMut(StreamEvent) + Send)) {
        let growing = match text(item, "/type").unwrap_or_default() {
            "message" => return,
            "reasoning" => Growing::Thinking { text: String::new(), redacted: false },
            "function_call" => call(item, String::new(), false),
            kind => Growing::Custom { kind: format!("openai.{kind}"), value: Value::Null },
        };
        if !self.parts.contains_key(&(index, 0)) {
            let part = self.assembly.begin(growing, on);
            self.parts.insert((index, 0), part);
        }
    }

    fn grow(&mut self, event: &Value, part: u64, fresh: Option<Growing>, on: &mut (dyn FnMut(StreamEvent) + Send)) {
        let index = number(event, "/output_index").unwrap_or_default();
        let delta = text(event, "/delta").unwrap_or_default();
        let known = self.parts.get(&(index, part)).copied();
        let part = match (known, fresh) {
            (Some(part), _) => part,
            (None, Some(growing)) => {
                let begun = self.assembly.begin(growing, on);
                self.parts.insert((index, part), begun);
                begun
            }
            (None, None) => return,
        };
        self.assembly.grow(part, delta, on);
    }

    fn ended(&mut self, response: &Value, stop: Option<(Stop, &str)>) {
        if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
            self.count(usage);
        }
        // If the response repeats the items at its end, those count.
        if let Some(items) = response.get("output").and_then(Value::as_array).filter(|items| !items.is_empty()) {
            self.items = items.iter().cloned().enumerate().map(|(index, item)| (index as u64, item)).collect();
        }
        let calls = self.items.values().any(|item| text(item, "/type") == Some("function_call"));
        let (stop, raw) = match stop {
            Some(ending) => ending,
            None if calls => (Stop::ToolUse, "completed"),
            None => (Stop::End, "completed"),
        };
        self.ending = Some(StreamEnd { stop, raw: raw.to_owned() });
    }
}

/// A call in the form of the assembly.
fn call(item: &Value, json: String, closed: bool) -> Growing {
    let word = |path: &str| text(item, path).unwrap_or_default().to_owned();
    let id = super::word(item, "/call_id").unwrap_or_default();
    Growing::Call { id, name: word("/name"), json, by: ExecutedBy::Us, closed }
}

impl Decoder for Stream {
    fn read(&self, data: &str) -> Result<Value, ModelError> {
        self.assembly.read(data)
    }

    fn event(&mut self, data: &str, on: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<bool, ModelError> {
        if data == "[DONE]" {
            return Ok(self.ending.is_some());
        }
        let event = self.read(data)?;
        // An event that was sent twice has the same number both times.
        let sequence = number(&event, "/sequence_number");
        if sequence.is_some() && sequence <= self.last_sequence {
            return Ok(false);
        }
        self.last_sequence = sequence.or(self.last_sequence);
        let index = number(&event, "/output_index").unwrap_or_default();
        match text(&event, "/type").unwrap_or_default() {
            "response.created" | "response.in_progress" => {
                self.assembly.start(text(&event, "/response/id"), text(&event, "/response/model"), on);
            }
            "response.output_item.added" => self.item_added(index, &event["item"], on),
            "response.output_text.delta" | "response.refusal.delta" => {
                let piece = number(&event, "/content_index").unwrap_or_default();
                self.grow(&event, piece, Some(Growing::Text { text: String::new() }), on);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.grow(&event, 0, Some(Growing::Thinking { text: String::new(), redacted: false }), on);
            }
            // The summaries are paragraphs of one thought.
            "response.reasoning_summary_part.added" if number(&event, "/summary_index").is_some_and(|at| at > 0) => {
                let between = json!({"output_index": index, "delta": "\n\n"});
                self.grow(&between, 0, None, on);
            }
            "response.function_call_arguments.delta" => self.grow(&event, 0, None, on),
            "response.output_item.done" => {
                // Some servers give several items one number.
                let item = &event["item"];
                let other = |known: &Value| ["id", "call_id"].iter().any(|name| known.get(*name) != item.get(*name));
                let mut place = index;
                while self.items.get(&place).is_some_and(other) {
                    place += 1;
                }
                self.items.insert(place, item.clone());
            }
            "response.completed" => {
                self.ended(&event["response"], None);
                return Ok(true);
            }
            "response.incomplete" => {
                let raw = text(&event, "/response/incomplete_details/reason").unwrap_or("incomplete");
                let stop = if raw == "content_filter" { Stop::Refusal } else { Stop::Length };
                self.ended(&event["response"], Some((stop, raw)));
                return Ok(true);
            }
            "response.failed" | "error" => {
                let word = |name: &str| {
                    let places = [format!("/response/error/{name}"), format!("/error/{name}"), format!("/{name}")];
                    places.iter().find_map(|path| text(&event, path)).unwrap_or_default().to_owned()
                };
                let error = failed(&word("code"), &word("message"));
                return Err(self.assembly.failed(error.kind, error.message));
            }
            _ => {}
        }
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Result<Message, ModelError> {
        let Some(ending) = self.ending else { return Err(self.assembly.interrupted()) };
        let mut whole = Assembly::new(&self.origin, self.ids);
        whole.meta = self.assembly.meta;
        let quiet: &mut (dyn FnMut(StreamEvent) + Send) = &mut |_| {};
        for item in self.items.values() {
            let opaque = json!({"item": item});
            let list = |name: &str| item.get(name).and_then(Value::as_array).into_iter().flatten();
            let kind = text(item, "/type").unwrap_or_default();
            let growing: Vec<Growing> = match kind {
                "message" => {
                    let texts: Vec<_> = match &item["content"] {
                        Value::Array(pieces) => pieces.iter().map(|piece| said(piece, false)).collect(),
                        content => vec![said(content, false)],
                    };
                    texts.into_iter().map(|text| Growing::Text { text }).collect()
                }
                "reasoning" => {
                    let summaries: Vec<_> =
                        list("summary").chain(list("content")).filter_map(|piece| text(piece, "/text")).collect();
                    let hidden = summaries.is_empty() && text(item, "/encrypted_content").is_some();
                    vec![Growing::Thinking { text: summaries.join("\n\n"), redacted: hidden }]
                }
                "function_call" => {
                    let done = matches!(text(item, "/status"), None | Some("completed"));
                    // Some servers give the arguments as an object in place of its text.
                    let arguments = match &item["arguments"] {
                        Value::String(json) => json.clone(),
                        Value::Null => String::new(),
                        arguments => arguments.to_string(),
                    };
                    vec![call(item, arguments, done)]
                }
                kind => vec![Growing::Custom { kind: format!("openai.{kind}"), value: item.clone() }],
            };
            for growing in growing {
                let part = whole.begin(growing, quiet);
                if let Some(place) = whole.opaque(part) {
                    *place = Some(opaque.clone());
                }
            }
        }
        Ok(whole.complete(ending))
    }
}

/// The events of a response that came whole.
pub(super) fn events_of_whole(response: &Value) -> Vec<Value> {
    let ended = match text(response, "/status").unwrap_or_default() {
        "incomplete" => "response.incomplete",
        "failed" => "response.failed",
        _ => "response.completed",
    };
    ["response.created", ended].map(|kind| json!({"type": kind, "response": response})).to_vec()
}
