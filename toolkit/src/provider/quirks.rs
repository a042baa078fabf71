//! Quirks: the differences between OpenAI and other providers that speak OpenAI's chat protocol, as data.

use serde::{Deserialize, Serialize};

/// How a provider differs. The default is OpenAI itself, with either of its protocols.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quirks {
    /// The field that limits the tokens to generate.
    pub max_tokens_field: String,
    /// The field that turns thinking on.
    pub thinking: ThinkingField,
    /// The field in which thoughts are sent back to it; none if it does not want them.
    pub reasoning_field: Option<String>,
    /// Whether every assistant message with tool calls needs that field while the model thinks, even if it is empty.
    pub reasoning_required: bool,
    /// Whether it sends thoughts, and gets them back, as `reasoning_details`.
    pub reasoning_details: bool,
    /// Whether it takes `cache_control` on parts of content.
    pub cache_control: bool,
    /// Whether it only says what a call cost if it is asked to (`usage: {include: true}`).
    pub usage_include: bool,
    /// The field for an id that all calls of one conversation share; none if it has no such field.
    pub session_field: Option<String>,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            max_tokens_field: "max_completion_tokens".to_owned(),
            thinking: ThinkingField::ReasoningEffort,
            reasoning_field: None,
            reasoning_required: false,
            reasoning_details: false,
            cache_control: false,
            usage_include: false,
            session_field: Some("prompt_cache_key".to_owned()),
        }
    }
}

/// The field of a request that turns thinking on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThinkingField {
    /// There is no such field.
    None,
    /// `reasoning_effort: "low"`.
    ReasoningEffort,
    /// `reasoning: {effort: "low"}` or `{enabled: false}`.
    Reasoning,
    /// `thinking: {type: "enabled"}` or `"disabled"`.
    Typed,
}
