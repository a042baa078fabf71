//! Refuses the same requests as the real APIs: with a call without a result, an unsigned or changed thought, an id
//! that is malformed.

use super::choose::{Answer, Thought, sign};
use super::output_format;
use super::request::ScriptedRequest;
use super::script::Script;
use crate::provider::Api;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// What was given out with a signature.
#[derive(Debug, Default)]
pub(super) struct Issued {
    /// Signatures that do not follow from their text.
    signatures: HashMap<String, String>,
    /// The thought that came before each call.
    calls: HashMap<String, String>,
}

impl Issued {
    /// Remembers what an answer has to come back with.
    pub(super) fn remember(&mut self, answer: &Answer) {
        let Some(Thought { text, signature, .. }) = &answer.thinking else { return };
        if *signature != sign(text) {
            self.signatures.insert(text.clone(), signature.clone());
        }
        for call in &answer.calls {
            self.calls.insert(call.id.clone(), signature.clone());
        }
    }

    fn signature(&self, text: &str) -> String {
        self.signatures.get(text).cloned().unwrap_or_else(|| sign(text))
    }

    fn is_known(&self, signature: &str) -> bool {
        self.signatures.values().any(|known| known == signature)
    }
}

/// A refusal: the status and why.
pub(super) type Refusal = (u16, String);

/// Says what is wrong with a request.
pub(super) fn check(script: &Script, request: &ScriptedRequest, body: &Value, issued: &Issued) -> Result<(), Refusal> {
    let wrong = |why: String| Err((400, why));
    if request.model.is_empty() {
        return wrong("model: Field required".to_owned());
    }
    let checked = match request.api {
        Api::AnthropicMessages => anthropic(body, issued),
        Api::OpenaiChat => chat(script, body, issued),
        Api::OpenaiResponses => responses(body, issued),
    };
    checked.and_then(|()| output_format::check(request.api, body)).or_else(wrong)
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn well_formed(id: &str, most: usize) -> bool {
    !id.is_empty()
        && id.len() <= most
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn anthropic(body: &Value, issued: &Issued) -> Result<(), String> {
    if body["max_tokens"].as_u64().is_none_or(|limit| limit == 0) {
        return Err("max_tokens: Field required".to_owned());
    }
    let budget = body["thinking"]["budget_tokens"].as_u64();
    if budget.is_some_and(|budget| budget < 1_024 || Some(budget) >= body["max_tokens"].as_u64()) {
        return Err("max_tokens must be greater than thinking.budget_tokens, which must be at least 1024".to_owned());
    }
    let thinks = matches!(word(&body["thinking"], "type"), "enabled" | "adaptive");
    if thinks && body.get("temperature").is_some_and(|temperature| temperature.as_f64() != Some(1.0)) {
        return Err("temperature may only be set to 1 when thinking is enabled".to_owned());
    }
    let marks = body.to_string().matches("\"cache_control\":").count();
    if marks > 4 {
        return Err(format!("A maximum of 4 blocks with cache_control may be provided. Found {marks}."));
    }
    let messages: Vec<&Value> = list(body, "messages").collect();
    match messages.first() {
        None => return Err("messages: at least one message is required".to_owned()),
        Some(first) if first["role"] != "user" => {
            return Err("messages: first message must use the \"user\" role".to_owned());
        }
        Some(_) => {}
    }
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let blocks: Vec<&Value> = list(message, "content").collect();
        if message["content"].as_str().is_some_and(str::is_empty)
            || (message["content"].is_array() && blocks.is_empty())
        {
            return Err(format!("messages.{at}: content must not be empty"));
        }
        if message["role"] == "user" {
            for block in blocks.iter().filter(|block| block["type"] == "tool_result") {
                let id = word(block, "tool_use_id");
                if !open.remove(id) {
                    return Err(format!("messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}"));
                }
            }
        }
        if let Some(id) = open.first() {
            return Err(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}",
                at.saturating_sub(1)
            ));
        }
        for (number, block) in blocks.iter().enumerate() {
            let here = format!("messages.{at}.content.{number}");
            match word(block, "type") {
                "text" if word(block, "text").is_empty() => {
                    return Err(format!("{here}.text: text content blocks must be non-empty"));
                }
                "thinking" => {
                    let signature = word(block, "signature");
                    if signature != issued.signature(word(block, "thinking")) {
                        return Err(format!("{here}: Invalid `signature` in `thinking` block"));
                    }
                }
                "redacted_thinking" if !issued.is_known(word(block, "data")) && word(block, "data") != sign("") => {
                    return Err(format!("{here}: Invalid `data` in `redacted_thinking` block"));
                }
                "tool_use" => {
                    let id = word(block, "id");
                    if !well_formed(id, 64) {
                        return Err(format!(
                            "{here}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
                        ));
                    }
                    if !block["input"].is_object() {
                        return Err(format!("{here}.tool_use.input: Input should be a valid dictionary"));
                    }
                    let wanted = issued.calls.get(id);
                    let has = |signature: &String| {
                        blocks
                            .iter()
                            .any(|block| word(block, "signature") == *signature || word(block, "data") == *signature)
                    };
                    if thinks && wanted.is_some_and(|signature| !has(signature)) {
                        return Err(format!(
                            "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block",
                            word(blocks[0], "type")
                        ));
                    }
                    open.insert(id);
                }
                "image" if block["source"]["type"] == "base64" => image(word(&block["source"], "data"), &here)?,
                _ => {}
            }
        }
    }
    match open.first() {
        Some(id) => {
            Err(format!("messages: `tool_use` ids were found without `tool_result` blocks immediately after: {id}"))
        }
        None => Ok(()),
    }
}

fn chat(script: &Script, body: &Value, issued: &Issued) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, message) in list(body, "messages").enumerate() {
        let role = word(message, "role");
        if role == "tool" {
            let id = word(message, "tool_call_id");
            if !open.remove(id) {
                return Err(format!(
                    "messages.[{at}]: messages with role 'tool' must be a response to a preceding message with 'tool_calls' ({id})"
                ));
            }
            continue;
        }
        if let Some(id) = open.first() {
            return Err(unanswered(id));
        }
        for block in list(message, "content").filter(|block| block["type"] == "image_url") {
            let url = word(&block["image_url"], "url");
            if let Some((_, data)) = url.split_once(";base64,") {
                image(data, &format!("messages.[{at}]"))?;
            }
        }
        if role != "assistant" {
            continue;
        }
        for detail in list(message, "reasoning_details").filter(|detail| detail["signature"].is_string()) {
            if word(detail, "signature") != issued.signature(word(detail, "text")) {
                return Err(format!("messages.[{at}]: invalid signature in reasoning_details"));
            }
        }
        for call in list(message, "tool_calls") {
            let id = word(call, "id");
            if id.is_empty() || id.len() > 40 {
                return Err(format!(
                    "Invalid 'messages[{at}].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length {}.",
                    id.len()
                ));
            }
            if serde_json::from_str::<Value>(word(&call["function"], "arguments")).is_err() {
                return Err(format!("messages.[{at}]: function.arguments is not JSON"));
            }
            open.insert(id);
        }
        if script.require.reasoning_content && !open.is_empty() && !message["reasoning_content"].is_string() {
            return Err("The `reasoning_content` in the thinking mode must be passed back to the API.".to_owned());
        }
    }
    open.first().map_or(Ok(()), |id| Err(unanswered(id)))
}

fn unanswered(id: &str) -> String {
    format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
    )
}

fn responses(body: &Value, issued: &Issued) -> Result<(), String> {
    let items: Vec<&Value> = list(body, "input").collect();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut thoughts: BTreeSet<&str> = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        match word(item, "type") {
            "reasoning" => {
                let summaries: Vec<_> = list(item, "summary").map(|part| word(part, "text")).collect();
                let signature = word(item, "encrypted_content");
                if signature != issued.signature(&summaries.join("\n\n")) {
                    return Err(format!("input[{at}]: the encrypted content could not be verified"));
                }
                thoughts.insert(signature);
            }
            "function_call" => {
                let id = word(item, "call_id");
                if id.is_empty() || id.len() > 64 {
                    return Err(format!(
                        "Invalid 'input[{at}].call_id': string too long. Expected a string with maximum length 64"
                    ));
                }
                let needed = issued.calls.get(id).filter(|_| item["id"].is_string());
                if needed.is_some_and(|signature| !thoughts.contains(signature.as_str())) {
                    return Err(format!(
                        "Item '{}' of type 'function_call' was provided without its required 'reasoning' item.",
                        word(item, "id")
                    ));
                }
                open.insert(id);
            }
            "function_call_output" => {
                let id = word(item, "call_id");
                if !open.remove(id) {
                    return Err(format!("No tool call found for function call output with call_id {id}."));
                }
            }
            _ => {
                for part in list(item, "content").filter(|part| part["type"] == "input_image") {
                    if let Some((_, data)) = word(part, "image_url").split_once(";base64,") {
                        image(data, &format!("input[{at}]"))?;
                    }
                }
            }
        }
    }
    open.first().map_or(Ok(()), |id| Err(format!("No tool output found for function call {id}.")))
}

fn image(data: &str, here: &str) -> Result<(), String> {
    use base64::Engine;
    match base64::engine::general_purpose::STANDARD.decode(data) {
        Ok(bytes) if !bytes.is_empty() => Ok(()),
        Ok(_) => Err(format!("{here}: image cannot be empty")),
        Err(error) => Err(format!("{here}: image is no base64: {error}")),
    }
}
