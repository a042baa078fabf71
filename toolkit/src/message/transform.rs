//! Adapts a stored conversation to the model that gets it next.
//!
//! A conversation may have gone through a crash between a call and its result, a change of the model, or an aborted
//! answer. The adapted one is accepted by every provider: each call has exactly one result right after it, nothing of a
//! failed answer is left, and opaque data goes only to its origin.

use super::call_ids::{CallIds, adapt_call};
use super::{Content, ExecutedBy, Message, Origin, Part, Role, ToolResult};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

/// The text of the result that is added for a call which never got one.
pub const NO_RESULT: &str = "No result provided";

/// The most characters of a tool's name.
const LONGEST_NAME: usize = 64;

/// What is done with thoughts of another model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForeignThinking {
    /// They are sent as plain text.
    #[default]
    AsText,
    /// They are left out.
    Drop,
}

/// The model that a conversation is adapted to.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its wire protocol, provider and id.
    pub origin: Origin,
    /// What is done with thoughts of other models.
    pub thinking: ForeignThinking,
    /// Whether it takes images and documents. If not, a line of text says that there was one.
    pub media: bool,
}

/// Adapts a conversation to a model.
///
/// * Messages of the target's own `origin` keep their opaque blobs, ids and thoughts as they are.
/// * In messages of other origins, thoughts become text or are removed. Redacted thoughts, blobs, and calls that a
///   provider has run itself are removed. The ids of calls are replaced by [`portable_id`].
/// * Answers that failed are removed together with the results of their calls.
/// * A call without a result gets an error as its result. Of two results of one call, the first counts. A result
///   without a call is removed.
/// * A call that has no id, or the id of an earlier call, gets another id, and so does its result. A name that no tool
///   may have is changed.
///
/// Adapting the adapted conversation again changes nothing.
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
                    // A tool message may only hold results, so what else it holds becomes a message of the user.
                    adapted.role = if adapted.role == Role::Tool { Role::User } else { adapted.role };
                    out.push(adapted);
                }
            }
            Role::Other(_) => {}
        }
    }
    out
}

/// A tool's name that every provider accepts. Models call tools that do not exist by names that no tool may have, and
/// a provider refuses a conversation with such a name.
fn portable_name(name: &str) -> Cow<'_, str> {
    let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    match name.len() {
        0 => Cow::Borrowed("unnamed"),
        1..=LONGEST_NAME if name.chars().all(fits) => Cow::Borrowed(name),
        _ => name.chars().take(LONGEST_NAME).map(|character| if fits(character) { character } else { '_' }).collect(),
    }
}

/// An id of a call that every provider accepts: `call_` and 24 hex digits, which are made from the given id only. An id
/// that already has this form stays as it is.
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
            call.name = portable_name(&call.name).into_owned();
            part.provider.iter_mut().for_each(|opaque| adapt_call(&mut opaque.data, call));
        }
    }
    let answers: Vec<Part> = message
        .tool_calls()
        .zip(call_ids)
        .map(|(call, id)| {
            // Calls with the same id have results with the same id, in the order of the calls.
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

/// Removes parts of unknown types, and replaces media by a line of text if the target takes none.
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
