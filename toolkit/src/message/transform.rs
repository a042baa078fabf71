//! A stored conversation made fit for the model that it goes to next.
//!
//! Whatever a conversation went through (a crash between call and result, another model, an aborted answer), what comes out
//! is one that every provider takes: each call has exactly one result right behind it, nothing of a failed answer is
//! left, and nothing opaque reaches anyone but its origin.

use super::call_ids::{CallIds, rename_within};
use super::{Content, ExecutedBy, Message, Origin, Part, Role, ToolResult};
use std::collections::{HashMap, VecDeque};

/// What the text of a result says where a call never got one.
pub const NO_RESULT: &str = "No result provided";

/// What becomes of thoughts that another model had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForeignThinking {
    /// They are told as plain text.
    #[default]
    AsText,
    /// They are left out.
    Drop,
}

/// The model that a conversation goes to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its wire, provider and id.
    pub origin: Origin,
    /// What becomes of others' thoughts.
    pub thinking: ForeignThinking,
    /// Whether it takes images and documents; where not, a line of text says that there was one.
    pub media: bool,
}

/// Makes a conversation fit for a model.
///
/// Messages of the target's `origin` itself keep their opaque blobs, ids and thoughts as they are. Of others' messages thoughts become
/// text or go, redacted thoughts and blobs go, what a provider ran itself goes, and the ids of calls are rewritten by
/// [`portable_id`]. Answers that failed are left out together with the results of their calls; a call without a result
/// gets an error that says so; of two results for a call the first counts; results of nobody's call go. A call whose id an
/// earlier one has, or that has none, gets another together with its result. Doing it twice changes nothing more.
pub fn for_model(messages: &[Message], target: &Target) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut rest = messages;
    let mut ids = CallIds::default();
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        match &message.role {
            Role::Assistant => {
                let answered_by = after.iter().position(|next| next.role == Role::Assistant).unwrap_or(after.len());
                if message.stop().is_answer() {
                    answer(message, &after[..answered_by], target, &mut ids, &mut out);
                }
            }
            Role::System | Role::User | Role::Tool => {
                let mut adapted = message.clone();
                adapted.parts.retain(|part| !matches!(part.content, Content::ToolResult(_)));
                adapt_media(&mut adapted.parts, target);
                if !adapted.parts.is_empty() {
                    // Only results make a tool message; what else it carries is told as a user would.
                    adapted.role = if adapted.role == Role::Tool { Role::User } else { adapted.role };
                    out.push(adapted);
                }
            }
            Role::Other(_) => {}
        }
    }
    out
}

/// The id of a call as any provider takes it: `call_` and 24 hex digits that depend on the given id alone. Such an id
/// stays as it is.
pub fn portable_id(id: &str) -> String {
    let digits = id.strip_prefix("call_").unwrap_or_default();
    if digits.len() == 24 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return id.to_owned();
    }
    format!("call_{}", &blake3::hash(id.as_bytes()).to_hex()[..24])
}

fn answer(message: &Message, after: &[Message], target: &Target, ids: &mut CallIds, out: &mut Vec<Message>) {
    let native = message.assistant.as_ref().is_some_and(|meta| meta.origin == target.origin);
    let mut adapted = message.clone();
    if !native {
        adapted.parts = message.parts.iter().filter_map(|part| foreign(part, target.thinking)).collect();
    }
    adapt_media(&mut adapted.parts, target);
    let mut results: HashMap<&str, VecDeque<&Part>> = HashMap::new();
    for part in after.iter().flat_map(|message| &message.parts) {
        if let Content::ToolResult(result) = &part.content {
            results.entry(&result.id).or_default().push_back(part);
        }
    }
    let call_ids: Vec<String> = message
        .tool_calls()
        .map(|call| if native { ids.unique(&call.id) } else { ids.unique(&portable_id(&call.id)) })
        .collect();
    let mut remaining = call_ids.iter();
    for part in &mut adapted.parts {
        if let Content::ToolCall(call) = &mut part.content
            && call.executed_by == ExecutedBy::Us
            && let Some(id) = remaining.next()
        {
            call.id.clone_from(id);
            part.provider.iter_mut().for_each(|opaque| rename_within(&mut opaque.data, id));
        }
    }
    let answers: Vec<Part> = message
        .tool_calls()
        .zip(call_ids)
        .map(|(call, id)| {
            // Calls under one id were answered under one id, one after the other.
            let result = results.get_mut(call.id.as_str()).and_then(VecDeque::pop_front).cloned();
            let mut part = result.unwrap_or_else(|| ToolResult::error(&call.id, &call.name, NO_RESULT).into());
            if let Content::ToolResult(result) = &mut part.content {
                adapt_media(&mut result.content, target);
                result.id = id;
            }
            part
        })
        .collect();
    if adapted.parts.is_empty() {
        return;
    }
    out.push(adapted);
    if !answers.is_empty() {
        out.push(Message::new(Role::Tool, answers));
    }
}

fn foreign(part: &Part, thinking: ForeignThinking) -> Option<Part> {
    let content = match &part.content {
        Content::Thinking(thought) if thought.redacted || thought.text.trim().is_empty() => return None,
        Content::Thinking(thought) => match thinking {
            ForeignThinking::AsText => Content::Text { text: thought.text.clone() },
            ForeignThinking::Drop => return None,
        },
        Content::ToolCall(call) if call.executed_by == ExecutedBy::Provider => return None,
        Content::Custom(_) | Content::Unrecognized(_) => return None,
        other => other.clone(),
    };
    Some(Part { content, provider: None, cache: part.cache })
}

/// Keeps what the target takes.
fn adapt_media(parts: &mut Vec<Part>, target: &Target) {
    parts.retain(|part| !matches!(part.content, Content::Unrecognized(_)));
    for part in parts.iter_mut().filter(|_| !target.media) {
        if let Content::Media(media) = &part.content {
            let text = format!("[{} left out: this model takes text only]", media.mime);
            part.content = Content::Text { text };
            part.provider = None;
        }
    }
}
