//! How providers that speak OpenAI's chat wire differ from OpenAI, as data.

use serde::{Deserialize, Serialize};

/// How a provider differs. The default is OpenAI itself on either of its wires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quirks {
    /// The field that limits the tokens to generate.
    pub max_tokens_field: String,
    /// How it is told to think.
    pub thinking: ThinkingField,
    /// The field in which thoughts go back to it; none where it does not want them.
    pub reasoning_field: Option<String>,
    /// Whether that field has to be there on every assistant message with tool calls while thinking, empty or not.
    pub reasoning_required: bool,
    /// Whether thoughts come and go back as `reasoning_details`.
    pub reasoning_details: bool,
    /// Whether `finish_reason: stop` beside tool calls means that the calls are to be made.
    pub stop_with_calls: bool,
    /// Whether it takes `cache_control` on parts of content.
    pub cache_control: bool,
    /// Whether it has to be asked for the cost (`usage: {include: true}`).
    pub usage_include: bool,
    /// The field for what calls of one conversation share; none where it has none.
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
            stop_with_calls: false,
            cache_control: false,
            usage_include: false,
            session_field: Some("prompt_cache_key".to_owned()),
        }
    }
}

/// How a provider is told to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThinkingField {
    /// Not at all.
    None,
    /// `reasoning_effort: "low"`.
    ReasoningEffort,
    /// `reasoning: {effort: "low"}` or `{enabled: false}`.
    Reasoning,
    /// `thinking: {type: "enabled"}` or `"disabled"`.
    Typed,
}
