//! The request of a model call, and the known properties of models.

use super::OutputFormat;
pub use crate::message::CacheHint;
use crate::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One model call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelRequest {
    /// The model's id at the provider, without the provider's name.
    pub model: String,
    /// The system prompt. System messages of the conversation are added after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The conversation as it is stored. The provider adapts it to the model when it sends it.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Whether it has to call one.
    pub tool_choice: ToolChoice,
    /// The form that the answer's text has to have. Only for models that can be made to keep one
    /// ([`ModelInfo::structured`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputFormat>,
    /// The most tokens to generate, thinking included. If absent, the model's own limit, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature. It is not sent while a model thinks, because models accept none then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How long to think.
    pub thinking: ThinkingLevel,
    /// Texts at which to stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How long the provider keeps the system prompt, the tools and the conversation in its cache for the next call, if
    /// it has to be told. If absent, it keeps only what the hints on parts say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheHint>,
    /// An id that all calls of one conversation share, so that a provider can send them to the same cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Fields that are put into the provider's request body as they are. They replace fields that were made from the
    /// rest.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl ModelRequest {
    /// Asks a model to go on with a conversation.
    pub fn new(model: impl Into<String>, messages: Vec<Message>) -> Self {
        Self { model: model.into(), messages, ..Self::default() }
    }
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// Its name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// When and how to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// Whether a model has to call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must not call any.
    None,
    /// It has to call at least one. Anthropic's models do not think on such a call.
    Required,
    /// It has to call this one. Anthropic's models do not think on such a call.
    Tool(String),
}

/// How long a model thinks. What a level means depends on the model. A model that does not have a level uses the
/// nearest one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThinkingLevel {
    /// Not at all, if thinking can be switched off.
    #[default]
    Off,
    /// Very little.
    Minimal,
    /// A little.
    Low,
    /// As long as it would by itself.
    Medium,
    /// Long.
    High,
    /// As long as it can.
    Max,
}

/// How a model can be made to think.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThinkingSupport {
    /// It does not think.
    #[default]
    None,
    /// Thinking can be switched on or off.
    Toggle,
    /// It can be told how hard to think.
    Effort,
    /// It can be told how many tokens it may use for thinking.
    Budget,
    /// It decides itself whether to think. It can be told how hard to think, and thinking can be switched off.
    Adaptive,
    /// It always thinks, and can be told how hard.
    Always,
}

/// The properties of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelInfo {
    /// The provider's name in the registry.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The model's id at the provider.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// How many tokens prompt and answer may have together, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// How many tokens it generates at most, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// How it can be made to think.
    pub thinking: ThinkingSupport,
    /// Whether it takes images.
    pub images: bool,
    /// Whether it calls tools.
    pub tools: bool,
    /// Whether its provider can force its answers into the form of a JSON Schema.
    pub structured: bool,
    /// Whether it takes a temperature.
    pub temperature: bool,
}

impl Default for ModelInfo {
    fn default() -> Self {
        Self {
            provider: String::new(),
            id: String::new(),
            name: String::new(),
            context_window: None,
            max_output: None,
            thinking: ThinkingSupport::None,
            images: false,
            tools: true,
            structured: false,
            temperature: true,
        }
    }
}

impl ModelInfo {
    /// `provider/model`, by which the registry finds it.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.provider, self.id)
    }

    /// Whether it can think.
    pub fn can_think(&self) -> bool {
        self.thinking != ThinkingSupport::None
    }
}
