//! A request in the form that scripts match, independent of its wire.

use crate::provider::Api;
use serde_json::Value;

/// The parts of a request that a script can match.
#[derive(Debug, Clone)]
pub(super) struct ScriptedRequest {
    pub(super) api: Api,
    pub(super) model: String,
    pub(super) stream: bool,
    /// Answers in the conversation, plus one.
    pub(super) turn: u64,
    /// The newest text of a user.
    pub(super) last_user: String,
    /// The calls that the newest results answer.
    pub(super) newest_results: Vec<String>,
    /// The text of the newest result.
    pub(super) result: String,
    pub(super) has_result: bool,
    /// Characters of the request, by which tokens are counted.
    pub(super) characters: u64,
}

impl ScriptedRequest {
    pub(super) fn read(api: Api, body: &Value, length: usize) -> Self {
        let list = match api {
            Api::AnthropicMessages | Api::OpenaiChat => &body["messages"],
            Api::OpenaiResponses => &body["input"],
        };
        let mut request = Self {
            api,
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            stream: body["stream"].as_bool().unwrap_or(false),
            turn: 1,
            last_user: String::new(),
            newest_results: Vec::new(),
            result: String::new(),
            has_result: false,
            characters: length as u64,
        };
        if let (Api::OpenaiResponses, Some(text)) = (api, list.as_str()) {
            request.last_user = text.to_owned();
        }
        let mut answering = false;
        for item in list.as_array().into_iter().flatten() {
            let (answers, results, user_text) = match api {
                Api::AnthropicMessages => anthropic(item),
                Api::OpenaiChat => chat(item),
                Api::OpenaiResponses => response_item(item),
            };
            // An answer is one, however many items it consists of.
            if answers && !answering {
                request.turn += 1;
                request.newest_results.clear();
            }
            answering = answers;
            for (id, text) in results {
                request.has_result = true;
                request.newest_results.push(id);
                request.result = text;
            }
            if let Some(user_text) = user_text.filter(|text| !text.is_empty()) {
                request.last_user = user_text;
            }
        }
        request
    }
}

/// Whether it is (part of) an answer; the results in it; what a user says in it.
type Item = (bool, Vec<(String, String)>, Option<String>);

fn anthropic(message: &Value) -> Item {
    if message["role"] == "assistant" {
        return (true, Vec::new(), None);
    }
    let blocks = message["content"].as_array().into_iter().flatten();
    let results = blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| (word(&block["tool_use_id"]), texts(&block["content"])));
    (false, results.collect(), Some(texts(&message["content"])))
}

fn chat(message: &Value) -> Item {
    match message["role"].as_str().unwrap_or_default() {
        "assistant" => (true, Vec::new(), None),
        "tool" => (false, vec![(word(&message["tool_call_id"]), texts(&message["content"]))], None),
        "user" => (false, Vec::new(), Some(texts(&message["content"]))),
        _ => (false, Vec::new(), None),
    }
}

fn response_item(item: &Value) -> Item {
    match item["type"].as_str().unwrap_or("message") {
        "function_call_output" => (false, vec![(word(&item["call_id"]), texts(&item["output"]))], None),
        "message" if item["role"] == "user" => (false, Vec::new(), Some(texts(&item["content"]))),
        "message" => (item["role"] == "assistant", Vec::new(), None),
        _ => (true, Vec::new(), None),
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of content: a string, or the texts of its parts.
pub(super) fn texts(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}
