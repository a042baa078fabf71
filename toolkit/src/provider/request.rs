//! The request of a model call, and the known properties of models.

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
    /// How to behave; system messages of the conversation follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The conversation, as it is stored; it is made fit for the model on the way.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Whether it has to call one.
    pub tool_choice: ToolChoice,
    /// The most tokens to generate, thinking included. Absent: the model's own limit as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature. Models that think take none, and are sent none while they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How long to think.
    pub thinking: ThinkingLevel,
    /// Texts at which to stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How long the provider keeps system prompt, tools and conversation for the next call, where it has to be told.
    /// Absent: not at all, beside the hints on parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheHint>,
    /// What calls of one conversation share, so that a provider can send them to the same cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Fields put into the provider's request body as they are, over those made from the rest.
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
    /// As it sees fit.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one. Anthropic's models do not think on such a call.
    Required,
    /// This one. Anthropic's models do not think on such a call.
    Tool(String),
}

/// How long a model thinks. What a level means is up to each model; one without levels takes the nearest it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThinkingLevel {
    /// Not at all, where it can be switched off.
    #[default]
    Off,
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// As it would by itself.
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
    /// It is switched on or off.
    Toggle,
    /// It is told how hard to think.
    Effort,
    /// It is told how many tokens it may think with.
    Budget,
    /// It decides by itself, is told how hard to think, and can be switched off.
    Adaptive,
    /// It thinks always, and can be told how hard.
    Always,
}

/// What is known of a model.
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
    /// Tokens that prompt and answer may have together, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// The most tokens it generates, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// How it can be made to think.
    pub thinking: ThinkingSupport,
    /// Whether it takes images.
    pub images: bool,
    /// Whether it calls tools.
    pub tools: bool,
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
