//! The parts of a message: their content, and the data that their provider wants back.

use super::Usage;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Its content.
    #[serde(flatten)]
    pub content: Content,
    /// The data that its provider wants back with it, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Opaque>,
    /// Set if the prompt up to this part is worth caching.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheHint>,
}

/// The content of a part, by its `type`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    /// Text.
    #[serde(rename_all = "camelCase")]
    Text {
        /// The text.
        text: String,
    },
    /// What a model thought.
    Thinking(Thinking),
    /// An image, a document or another file.
    Media(Media),
    /// A tool that a model calls.
    ToolCall(ToolCall),
    /// The result of a tool.
    ToolResult(ToolResult),
    /// Something of one provider, such as a compaction or a search that it ran.
    Custom(Custom),
    /// A part of a type that this version does not know: its whole object, which is written again as it was read.
    #[serde(untagged)]
    Unrecognized(Map<String, Value>),
}

/// What a model thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Thinking {
    /// The thought, or the provider's summary of it. It may be empty.
    pub text: String,
    /// Whether the provider does not show the thought: then only the opaque blob has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

/// An image, a document or another file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// Its media type, such as `image/png`.
    pub mime: String,
    /// Where its bytes are.
    pub source: MediaSource,
    /// Its file name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MediaSource {
    /// In this text, as standard base64 with padding.
    Base64(String),
    /// At this address, from which the provider fetches them.
    Url(String),
    /// At the provider, under this id.
    ProviderFile(String),
}

/// A tool that a model calls. It exists only after the provider has said that the message is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The id that the result has to name.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments that are executed: a JSON object.
    pub arguments: Value,
    /// The text that the model has written in place of arguments, if that is no JSON object. `arguments` is empty then,
    /// and the call is not to be run: [`fault`](Self::fault) says what to tell the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_arguments: Option<String>,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "ExecutedBy::is_us")]
    pub executed_by: ExecutedBy,
}

/// Who runs a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecutedBy {
    /// The program.
    #[default]
    Us,
    /// The provider has run it, for instance a web search. It is sent back with the conversation, and the program never
    /// runs it.
    Provider,
}

impl ExecutedBy {
    fn is_us(&self) -> bool {
        *self == Self::Us
    }
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text and media that the model sees.
    pub content: Vec<Part>,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Details for people and programs. They are never sent to a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Tokens and cost of model calls that the tool has made itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Something of one provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Custom {
    /// The kind of thing it is, after the provider's name: `anthropic.compaction`.
    pub kind: String,
    /// The provider's own object.
    pub value: Value,
}

/// The wire protocol, the provider and the model that something came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// The wire protocol: `anthropic-messages`, `openai-chat`, `openai-responses`, or the own word of another provider.
    pub api: String,
    /// The provider's name in the registry.
    pub provider: String,
    /// The model's id at the provider.
    pub model: String,
}

impl Origin {
    /// Makes an origin.
    pub fn new(api: impl Into<String>, provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { api: api.into(), provider: provider.into(), model: model.into() }
    }
}

/// Data that a provider wants back with a part, unchanged. It is sent only to the same protocol, provider and model
/// that it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opaque {
    /// The origin that has made it.
    #[serde(flatten)]
    pub origin: Origin,
    /// The provider's own data.
    pub data: Value,
}

/// How long the prompt up to a part is worth caching. Only some providers can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CacheHint {
    /// The provider's usual time, five minutes at Anthropic.
    Short,
    /// An hour, if the provider offers that.
    Long,
}

impl Part {
    /// A part without data of a provider.
    pub fn new(content: Content) -> Self {
        Self { content, provider: None, cache: None }
    }

    /// A part with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text { text: text.into() })
    }

    /// A part with an image or a document, from its bytes in base64.
    pub fn media(mime: impl Into<String>, base64: impl Into<String>) -> Self {
        let source = MediaSource::Base64(base64.into());
        Self::new(Content::Media(Media { mime: mime.into(), source, name: None }))
    }

    /// Marks the prompt up to this part as worth caching.
    #[must_use]
    pub fn cached(mut self, hint: CacheHint) -> Self {
        self.cache = Some(hint);
        self
    }

    /// Adds the data that the provider wants back with it.
    #[must_use]
    pub fn with_opaque(mut self, origin: &Origin, data: Value) -> Self {
        self.provider = Some(Opaque { origin: origin.clone(), data });
        self
    }

    /// Its text, if it is a text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text { text } => Some(text),
            _ => None,
        }
    }

    /// The data that the provider wants back, if it came from this origin.
    pub fn opaque_for(&self, origin: &Origin) -> Option<&Value> {
        self.provider.as_ref().filter(|opaque| opaque.origin == *origin).map(|opaque| &opaque.data)
    }
}

/// How many characters of unreadable arguments their fault repeats.
const SHOWN_ARGUMENTS: usize = 1_000;

impl ToolCall {
    /// A call that the program has to run.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self { id: id.into(), name: name.into(), arguments, raw_arguments: None, executed_by: ExecutedBy::Us }
    }

    /// What is wrong with the arguments that the model has written, in words for the model; none if they can be read.
    pub fn fault(&self) -> Option<String> {
        let written = self.raw_arguments.as_deref()?;
        let found = match serde_json::from_str::<Value>(written) {
            Ok(Value::Object(_)) => "have bytes that are no text, or half of a surrogate pair".to_owned(),
            Ok(_) => "are no JSON object".to_owned(),
            Err(error) => format!("are no JSON ({error})"),
        };
        let shown: String = written.chars().take(SHOWN_ARGUMENTS).collect();
        let rest = if shown.len() < written.len() { "…" } else { "" };
        Some(format!(
            "The arguments of this call of {} {found}, so it was not run. Call it again with one JSON object. They were:\n{shown}{rest}",
            self.name
        ))
    }
}

impl ToolResult {
    /// A result with a text.
    pub fn text(id: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        let content = vec![Part::text(text)];
        Self { id: id.into(), name: name.into(), content, is_error: false, details: None, usage: None }
    }

    /// A result that tells the model that the tool has failed.
    pub fn error(id: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(id, name, text) }
    }
}

impl From<Thinking> for Part {
    fn from(thinking: Thinking) -> Self {
        Self::new(Content::Thinking(thinking))
    }
}

impl From<ToolCall> for Part {
    fn from(call: ToolCall) -> Self {
        Self::new(Content::ToolCall(call))
    }
}

impl From<ToolResult> for Part {
    fn from(result: ToolResult) -> Self {
        Self::new(Content::ToolResult(result))
    }
}

impl From<Custom> for Part {
    fn from(custom: Custom) -> Self {
        Self::new(Content::Custom(custom))
    }
}

impl<'de> Deserialize<'de> for Part {
    /// A part of a known type has to be well formed, or it is an error. Only a part of an unknown type is kept as it
    /// is.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Text {
            text: String,
        }
        fn of<T: serde::de::DeserializeOwned, E: serde::de::Error>(fields: Map<String, Value>) -> Result<T, E> {
            serde_json::from_value(Value::Object(fields)).map_err(E::custom)
        }
        let mut fields = Map::<String, Value>::deserialize(deserializer)?;
        let known = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let provider = fields.remove("provider").filter(|given| !given.is_null());
        let cache = fields.remove("cache").filter(|given| !given.is_null());
        let content = match known.as_str() {
            "text" => Content::Text { text: of::<Text, D::Error>(fields)?.text },
            "thinking" => Content::Thinking(of(fields)?),
            "media" => Content::Media(of(fields)?),
            "toolCall" => Content::ToolCall(of(fields)?),
            "toolResult" => Content::ToolResult(of(fields)?),
            "custom" => Content::Custom(of(fields)?),
            _ => {
                fields.extend(provider.map(|given| ("provider".to_owned(), given)));
                fields.extend(cache.map(|given| ("cache".to_owned(), given)));
                return Ok(Self::new(Content::Unrecognized(fields)));
            }
        };
        let provider = provider.map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let cache = cache.map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        Ok(Self { content, provider, cache })
    }
}
