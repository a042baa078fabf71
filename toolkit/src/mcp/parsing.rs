//! Lenient parsing of a server's output. An answer that breaks the rules of JSON-RPC or of JSON still reaches the call
//! that waits for it: as its result if possible, and otherwise as an error that says so.
//!
//! The library drops such an answer, and the call would wait until its timeout. Valid messages are parsed by the
//! library; this file handles the others.

use rmcp::RoleClient;
use rmcp::model::{
    CustomRequest, CustomResult, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerRequest, ServerResult,
};
use rmcp::service::RxJsonRpcMessage;
use serde_json::{Deserializer, Map, Value, json};
use std::borrow::Cow;

pub(super) type Message = RxJsonRpcMessage<RoleClient>;

/// The mark of an error that this file has made, not the server.
const UNREADABLE: &str = "flovyn: the answer of the server could not be read";

/// The field of a listed tool that says whether it is called as a task, and where it is kept in the tool's metadata.
pub(super) const EXECUTION_FIELD: &str = "taskSupport";
pub(super) const TASK_SUPPORT: &str = "flovyn/taskSupport";

/// A parsed piece of a server's output.
#[derive(Debug)]
pub(super) enum Parsed {
    /// Messages; empty for a log line or an answer that nobody waits for.
    Messages(Vec<Message>),
    /// The beginning of a message.
    Unfinished,
}

/// Parses one line, or several lines of one message. `open` are the requests that wait for an answer.
pub(super) fn parse(bytes: &[u8], open: &[RequestId]) -> Parsed {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
    if bytes.is_empty() {
        return Parsed::Messages(Vec::new());
    }
    // An answer without an id, or with an unknown one, is handled below.
    if let Ok(message) = serde_json::from_slice::<Message>(bytes)
        && is_addressed(&message, open)
    {
        return Parsed::Messages(vec![with_task_support(introduced(message), bytes)]);
    }
    let text = String::from_utf8_lossy(bytes);
    // A server may log without a line end, so that its message follows on the same line.
    let starts = [Some(0), text.find("{\"jsonrpc\""), text.find('{')];
    let mut is_unfinished = false;
    for start in starts.into_iter().flatten() {
        let (values, is_cut) = values(&text[start..]);
        let messages: Vec<_> = values.into_iter().filter_map(|value| message(value, open)).collect();
        if !messages.is_empty() {
            return Parsed::Messages(messages);
        }
        is_unfinished |= is_cut && start == 0;
    }
    if is_unfinished { Parsed::Unfinished } else { Parsed::Messages(Vec::new()) }
}

/// An answer to the handshake, with what the server left out of it: who it is, or what it can do.
pub(super) fn introduced(message: Message) -> Message {
    match message {
        JsonRpcMessage::Response(mut answer) => {
            if let ServerResult::CustomResult(CustomResult(Value::Object(fields))) = &answer.result
                && fields.contains_key("protocolVersion")
            {
                let mut fields = fields.clone();
                fields.entry("capabilities").or_insert_with(|| json!({}));
                fields.entry("serverInfo").or_insert_with(|| json!({ "name": "unknown", "version": "" }));
                if let Ok(result) = serde_json::from_value(Value::Object(fields)) {
                    answer.result = result;
                }
            }
            JsonRpcMessage::Response(answer)
        }
        other => other,
    }
}

/// Whether a message is a list of tools that says which of them are called as tasks.
pub(super) fn lists_task_support(message: &Message, written: &[u8]) -> bool {
    matches!(message, JsonRpcMessage::Response(answer) if matches!(answer.result, ServerResult::ListToolsResult(_)))
        && written.windows(EXECUTION_FIELD.len()).any(|part| part == EXECUTION_FIELD.as_bytes())
}

/// A list of tools that keeps which of them are called as tasks. The library reads the field no more, for in the present
/// protocol it is the server that decides; what it keeps of a tool besides is its metadata.
pub(super) fn with_task_support(mut message: Message, written: &[u8]) -> Message {
    if lists_task_support(&message, written)
        && let Ok(written) = serde_json::from_slice::<Value>(written)
        && let JsonRpcMessage::Response(answer) = &mut message
        && let ServerResult::ListToolsResult(page) = &mut answer.result
    {
        for (tool, listed) in page.tools.iter_mut().zip(written["result"]["tools"].as_array().into_iter().flatten()) {
            if let Some(support) = listed["execution"][EXECUTION_FIELD].as_str() {
                tool.meta.get_or_insert_default().0.insert(TASK_SUPPORT.to_owned(), support.into());
            }
        }
    }
    message
}

/// Whether a message is no answer, or answers an open request.
pub(super) fn is_addressed(message: &Message, open: &[RequestId]) -> bool {
    match message {
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => true,
        JsonRpcMessage::Response(answer) => open.contains(&answer.id),
        JsonRpcMessage::Error(error) => error.id.as_ref().is_some_and(|id| open.contains(id)),
    }
}

/// The objects of a text: one, several in a row, or those of arrays. The flag tells whether the text ended within one.
fn values(text: &str) -> (Vec<Value>, bool) {
    let repaired = without_lone_surrogates(text);
    let mut values = Vec::new();
    for value in Deserializer::from_str(&repaired).into_iter::<Value>() {
        match value {
            Ok(Value::Array(batch)) => values.extend(batch),
            Ok(value) => values.push(value),
            Err(error) => return (values, error.is_eof() && repaired.starts_with(['{', '['])),
        }
    }
    (values, false)
}

/// JSON without escapes of lone surrogates, which some servers write and serde rejects.
fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let (mut kept, mut at) = (0, 0);
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    while let Some(found) = text[at..].find('\\') {
        let here = at + found;
        // What follows the backslash may be a character of several bytes; then it is no escape, and is read as it is.
        at = match (unit(here), unit(here + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => here + 12,
            (Some(0xd800..=0xdfff), _) => {
                repaired.push_str(&text[kept..here]);
                repaired.push_str("\\ufffd");
                kept = here + 6;
                kept
            }
            (Some(_), _) => here + 6,
            (None, _) => here + 1 + text[here + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if kept == 0 {
        return text.into();
    }
    repaired.push_str(&text[kept..]);
    repaired.into()
}

/// Makes a message of an object; none if it is not a message of this connection.
fn message(value: Value, open: &[RequestId]) -> Option<Message> {
    let Value::Object(fields) = value else { return None };
    let is_marked = fields.contains_key("jsonrpc");
    if fields.contains_key("method") {
        return is_marked.then(|| sent_by_server(fields)).flatten();
    }
    if !fields.contains_key("result") && !fields.contains_key("error") {
        let id = request_id(fields.get("id")?)?;
        let is_empty = is_marked && open.contains(&id);
        return is_empty.then(|| unreadable(id, "it has neither a result nor an error"));
    }
    let id = match (fields.get("id").filter(|id| !id.is_null()), open) {
        (Some(id), _) => request_id(id)?,
        // An error of a server that could not read the id belongs to the one request that there is.
        (None, [only]) if is_marked => only.clone(),
        // Of several open requests it cannot be known which it answers; the library has a rule for it before there is a connection.
        (None, _) => return serde_json::from_value(Value::Object(fields)).ok().filter(|_| is_marked),
    };
    // Logs in JSON have such fields too: an object counts as a message only if it has `jsonrpc` or answers an open request.
    if !is_marked && !open.contains(&id) {
        return None;
    }
    Some(answer(fields, id))
}

/// A request or a notification of the server. A request always comes to the handler, which answers it, even if only its
/// method can be read.
fn sent_by_server(mut fields: Map<String, Value>) -> Option<Message> {
    if let Ok(message) = serde_json::from_value(Value::Object(fields.clone())) {
        return Some(message);
    }
    let method = fields.remove("method")?.as_str()?.to_owned();
    let id = match fields.remove("id")? {
        Value::String(text) => RequestId::String(text.into()),
        id => request_id(&id)?,
    };
    let request = ServerRequest::CustomRequest(CustomRequest::new(method, fields.remove("params")));
    Some(JsonRpcMessage::request(request, id))
}

/// An id in the form in which it was sent. Some servers send numbers back as texts or as floating-point numbers.
fn request_id(id: &Value) -> Option<RequestId> {
    match id {
        Value::String(text) => Some(match text.trim().parse() {
            Ok(number) => RequestId::Number(number),
            Err(_) => RequestId::String(text.as_str().into()),
        }),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
            number.as_i64().or(whole.map(|float| float as i64)).map(RequestId::Number)
        }
        _ => None,
    }
}

fn answer(mut fields: Map<String, Value>, id: RequestId) -> Message {
    // Servers with JSON-RPC 1 send both fields, one of them as null.
    match (fields.get("error"), fields.get("result")) {
        (Some(Value::Null), Some(_)) => drop(fields.remove("error")),
        (Some(_), Some(_)) => drop(fields.remove("result")),
        _ => {}
    }
    if let Some(error) = fields.remove("error") {
        return JsonRpcMessage::error(error_data(error), Some(id));
    }
    fields.insert("jsonrpc".into(), "2.0".into());
    fields.insert("id".into(), id.clone().into_json_value());
    match serde_json::from_value(Value::Object(fields)) {
        Ok(message) => message,
        Err(error) => unreadable(id, &error.to_string()),
    }
}

fn error_data(error: Value) -> ErrorData {
    if let Ok(error) = serde_json::from_value(error.clone()) {
        return error;
    }
    let code = error.get("code").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
    let text = error.get("message").or_else(|| error.get("data")).unwrap_or(&error);
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    ErrorData::new(code.map_or(ErrorCode::INTERNAL_ERROR, ErrorCode), text, error.get("data").cloned())
}

/// The error for a call whose answer cannot be parsed.
pub(super) fn unreadable(id: RequestId, why: &str) -> Message {
    let error = ErrorData::new(ErrorCode::PARSE_ERROR, why.to_owned(), Some(json!({ "is": UNREADABLE })));
    JsonRpcMessage::error(error, Some(id))
}

/// Why an answer that is too long cannot be read.
pub(super) fn too_long(most: usize) -> String {
    format!("it is longer than {} MB", most >> 20)
}

/// What is wrong with an answer that came under an id of no request.
pub(super) fn stray(message: &Message) -> String {
    let id = match message {
        JsonRpcMessage::Response(answer) => Some(&answer.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    };
    match id {
        Some(id) => format!("it has the id {}, which no request has", id.clone().into_json_value()),
        None => "it has no id".to_owned(),
    }
}

/// Whether an error was made by [`unreadable`].
pub(super) fn is_unreadable(error: &ErrorData) -> bool {
    error.data.as_ref().and_then(|data| data.get("is")).is_some_and(|is| is == UNREADABLE)
}

/// Finds the end and the id of a message without keeping it.
#[derive(Debug, Default)]
pub(super) struct Scan {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    /// The last text that was read at the top level of the object, and whether the value of `id` comes next.
    text: Vec<u8>,
    is_id: bool,
    id: Vec<u8>,
}

/// The longest id that is looked for, in bytes.
const MAX_ID_LENGTH: usize = 128;

impl Scan {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.byte(byte));
    }

    fn byte(&mut self, byte: u8) {
        let at_top = self.depth == 1;
        if self.is_id && (self.in_text || !matches!(byte, b',' | b'}')) && self.id.len() <= MAX_ID_LENGTH {
            self.id.push(byte);
        }
        if self.in_text {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_text = false,
                _ if at_top && self.text.len() <= MAX_ID_LENGTH => self.text.push(byte),
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_text = true;
                self.text.clear();
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.is_id &= !at_top;
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if at_top && self.text == b"id" && self.id.is_empty() => self.is_id = true,
            b',' if at_top => self.is_id = false,
            _ => {}
        }
    }

    /// Whether every object and list that has begun has also ended.
    pub(super) fn is_whole(&self) -> bool {
        self.depth == 0 && !self.in_text
    }

    /// The id of the message.
    pub(super) fn id(&self) -> Option<RequestId> {
        request_id(&serde_json::from_slice(&self.id).ok()?)
    }
}

#[cfg(test)]
mod tests;
