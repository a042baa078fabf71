//! Anthropic Messages: decodes the events of a stream.

use super::{Decoder, ErrorKind, ModelError, failed, number, said, text};
use crate::message::call_ids::CallIds;
use crate::message::{ExecutedBy, Message, Origin, Stop};
use crate::provider::StreamEvent;
use crate::provider::assembly::{Assembly, Growing, StreamEnd};
use serde_json::{Value, json};
use std::collections::HashMap;

pub(super) struct Stream {
    assembly: Assembly,
    /// The open blocks, by the provider's number.
    blocks: HashMap<u64, Block>,
    ending: Option<StreamEnd>,
    complete: bool,
}

struct Block {
    part: usize,
    /// Whether it has ended. Some servers give the next block the same number.
    ended: bool,
    /// The input that came with the beginning of a call, from servers that send it whole.
    input: Option<Value>,
    /// For a block that is kept unchanged: the block, and the text of its input so far.
    whole: Option<(Value, String)>,
}

impl Stream {
    pub(super) fn new(origin: &Origin, ids: CallIds) -> Self {
        Self { assembly: Assembly::new(origin, ids), blocks: HashMap::new(), ending: None, complete: false }
    }

    fn broken(&self, what: &str) -> ModelError {
        self.assembly.failed(ErrorKind::Protocol, format!("the provider's stream {what}; ask again"))
    }

    fn count(&mut self, usage: &Value) {
        let counted = self.assembly.usage();
        let set = |place: &mut u64, path: &str| {
            if let Some(tokens) = number(usage, path) {
                *place = tokens;
            }
        };
        set(&mut counted.input, "/input_tokens");
        set(&mut counted.cache_read, "/cache_read_input_tokens");
        set(&mut counted.cache_write, "/cache_creation_input_tokens");
        set(&mut counted.cache_write_1h, "/cache_creation/ephemeral_1h_input_tokens");
        set(&mut counted.output, "/output_tokens");
        set(&mut counted.reasoning, "/output_tokens_details/thinking_tokens");
    }

    fn block_start(
        &mut self,
        index: u64,
        block: &Value,
        on: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<(), ModelError> {
        if self.blocks.get(&index).is_some_and(|block| !block.ended) {
            return Err(self.broken(&format!("began block {index} twice")));
        }
        let word = |name: &str| text(block, name).unwrap_or_default().to_owned();
        let kind = word("/type");
        let id = super::word(block, "/id").unwrap_or_default();
        let call = |by| Growing::Call { id: id.clone(), name: word("/name"), json: String::new(), by, closed: false };
        let mut whole = None;
        let (growing, start, opaque) = match kind.as_str() {
            "text" => (Growing::Text { text: String::new() }, said(&block["text"], false), None),
            "thinking" => {
                let signature = text(block, "/signature").filter(|signature| !signature.is_empty());
                let opaque = signature.map(|signature| json!({"signature": signature}));
                (Growing::Thinking { text: String::new(), redacted: false }, word("/thinking"), opaque)
            }
            "redacted_thinking" => {
                let data = json!({"data": word("/data")});
                (Growing::Thinking { text: String::new(), redacted: true }, String::new(), Some(data))
            }
            "tool_use" => (call(ExecutedBy::Us), String::new(), None),
            // Blocks of tools that the provider runs, of their results, of compactions, and of any kind that is not
            // known yet are sent back as they came.
            "server_tool_use" | "mcp_tool_use" => {
                whole = Some((block.clone(), String::new()));
                (call(ExecutedBy::Provider), String::new(), None)
            }
            _ => {
                whole = Some((block.clone(), String::new()));
                (Growing::Custom { kind: format!("anthropic.{kind}"), value: block.clone() }, String::new(), None)
            }
        };
        let part = self.assembly.begin(growing, on);
        self.assembly.grow(part, &start, on);
        if let (Some(place), Some(data)) = (self.assembly.opaque(part), opaque) {
            *place = Some(data);
        }
        let input = block.get("input").filter(|input| kind == "tool_use" && **input != json!({})).cloned();
        self.blocks.insert(index, Block { part, ended: false, input, whole });
        Ok(())
    }

    fn block_delta(
        &mut self,
        index: u64,
        delta: &Value,
        on: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<(), ModelError> {
        let Some(block) = self.blocks.get_mut(&index) else {
            return Err(self.broken(&format!("went on with block {index}, which never began")));
        };
        let part = block.part;
        match text(delta, "/type").unwrap_or_default() {
            "text_delta" => self.assembly.grow(part, &said(&delta["text"], false), on),
            "thinking_delta" => self.assembly.grow(part, text(delta, "/thinking").unwrap_or_default(), on),
            "input_json_delta" => {
                let json = text(delta, "/partial_json").unwrap_or_default();
                if let Some((_, input)) = &mut block.whole {
                    input.push_str(json);
                }
                self.assembly.grow(part, json, on);
            }
            "signature_delta" => {
                let more = text(delta, "/signature").unwrap_or_default();
                if let Some(place) = self.assembly.opaque(part) {
                    let before = place.as_ref().and_then(|data| text(data, "/signature")).unwrap_or_default();
                    *place = Some(json!({"signature": format!("{before}{more}")}));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn block_stop(&mut self, index: u64) -> Result<(), ModelError> {
        let Some(Block { part, ended, input, whole }) = self.blocks.get_mut(&index) else {
            return Err(self.broken(&format!("ended block {index}, which never began")));
        };
        let (part, input) = (*part, input.take());
        *ended = true;
        if let Some((mut block, written)) = whole.take() {
            if let (Ok(input), Some(fields)) = (serde_json::from_str::<Value>(&written), block.as_object_mut()) {
                fields.insert("input".to_owned(), input);
            }
            if let Some(Growing::Custom { value, .. }) = self.assembly.part(part) {
                value.clone_from(&block);
            }
            if let Some(place) = self.assembly.opaque(part) {
                *place = Some(json!({"block": block}));
            }
        }
        if let Some(Growing::Call { closed, json, .. }) = self.assembly.part(part) {
            *closed = true;
            if let Some(input) = input.filter(|_| json.trim().is_empty()) {
                // Some give the text of the arguments.
                *json = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
            }
        }
        Ok(())
    }
}

impl Decoder for Stream {
    fn read(&self, data: &str) -> Result<Value, ModelError> {
        self.assembly.read(data)
    }

    fn event(&mut self, data: &str, on: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<bool, ModelError> {
        let event = self.read(data)?;
        let index = number(&event, "/index").unwrap_or_default();
        match text(&event, "/type").unwrap_or_default() {
            "message_start" => {
                self.count(&event["message"]["usage"]);
                self.assembly.start(text(&event, "/message/id"), text(&event, "/message/model"), on);
            }
            "content_block_start" => self.block_start(index, &event["content_block"], on)?,
            "content_block_delta" => self.block_delta(index, &event["delta"], on)?,
            "content_block_stop" => self.block_stop(index)?,
            "message_delta" => {
                self.count(&event["usage"]);
                if let Some(raw) = text(&event, "/delta/stop_reason") {
                    let stop = match raw {
                        "end_turn" | "stop_sequence" => Stop::End,
                        "tool_use" => Stop::ToolUse,
                        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
                        "refusal" => Stop::Refusal,
                        "pause_turn" => Stop::Deferred,
                        _ => Stop::End,
                    };
                    self.ending = Some(StreamEnd { stop, raw: raw.to_owned() });
                }
            }
            "message_stop" => {
                // Some servers give no reason.
                self.ending.get_or_insert_with(|| StreamEnd { stop: Stop::End, raw: String::new() });
                self.complete = true;
                return Ok(true);
            }
            "error" => {
                let code = text(&event, "/error/type").unwrap_or_default();
                let error = failed(code, text(&event, "/error/message").unwrap_or_default());
                return Err(self.assembly.failed(error.kind, error.message));
            }
            _ => {}
        }
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Result<Message, ModelError> {
        match self.ending {
            Some(ending) if self.complete => Ok(self.assembly.complete(ending)),
            _ => Err(self.assembly.interrupted()),
        }
    }
}

/// The events of a response that came whole.
pub(super) fn events_of_whole(message: &Value) -> Vec<Value> {
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": message["stop_reason"].as_str().unwrap_or("end_turn")});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": message["usage"]}));
    events.push(json!({"type": "message_stop"}));
    events
}
