//! The input of a run of the agent: the JSON of `POST /agent-executions`, in camelCase, or just a prompt.

use super::{AnswerLimits, Budget, OutputSpec, RetryConfig};
use crate::message::Part;
use crate::provider::ThinkingLevel;
use crate::tools::approval::ApprovalPolicy;
use crate::tools::excerpt;
use flovyn_core::model::PARENT_QUEUE;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;

/// The argument of a run. A text is read as the prompt of a run with defaults for the rest. The list `models` of a
/// definition is read as the model and its fallbacks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct AgentInput {
    /// The system prompt; that of the agent unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The first message of the user. It is empty, and has no parts, in a chat that begins with a signal.
    pub user_prompt: String,
    /// Images and documents of that message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_parts: Vec<Part>,
    /// What the answer to that message may use.
    #[serde(skip_serializing_if = "AnswerLimits::is_none")]
    pub limits: AnswerLimits,
    /// The form of the answer to that message alone, in place of the one of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSpec>,
    /// The model that is asked.
    pub model: ModelChoice,
    /// The model that is asked where neither this input nor the agent names one: that of the run which gives the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited_model: Option<ModelChoice>,
    /// The tools that the model may call, by name; all tools of the agent unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The configuration.
    pub config: AgentConfig,
    /// The directory of the host tools; the worker's own unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Which calls need the approval of a person. The worker has a policy too, and the stricter of the two counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<ApprovalPolicy>,
}

/// A model by its provider and its id there. The text `provider/model` is read as one, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ModelChoice {
    /// The provider's name in the worker's registry.
    pub provider: String,
    /// The model's id at the provider.
    pub model_id: String,
}

/// The configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentConfig {
    /// How many model calls the agent makes after a message of the user before it stops by itself.
    pub max_turns: u32,
    /// The most tokens of one answer, thinking included; the model's own limit unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature; the model's own unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Whose workers make the model calls; the run's own unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// How long the model thinks.
    pub thinking: ThinkingLevel,
    /// What happens when the model has finished.
    pub mode: Mode,
    /// The models that are asked, in order, if the chosen one fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<ModelChoice>,
    /// How many tool calls of one turn run at the same time.
    pub parallel_tools: usize,
    /// What the run may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// How a full window is compacted.
    pub compaction: CompactionConfig,
    /// How outages of models are waited for.
    pub retry: RetryConfig,
    /// How much of the result of one tool call the model is shown.
    pub results: ResultLimits,
    /// In how many turns, after a message of the user, the model may give work to delegates. Then it has to answer with what
    /// it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// The form that the run's answer has to have; in a chat, each answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSpec>,
}

/// Whose workers make the model calls of a run. The conversation is read there, by reference; what a call used is the run's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Those of the run that has started it, so that a child on a computer of somebody needs no key of a provider.
    Parent,
}

impl Via {
    /// The queue of these workers.
    pub(super) fn queue(self) -> String {
        match self {
            Self::Parent => PARENT_QUEUE.to_owned(),
        }
    }
}

/// How much of the result of one tool call the model is shown: the first and the last lines. The rest is kept, and the
/// model can read it with the tool `read_result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResultLimits {
    /// The most bytes.
    pub max_bytes: usize,
    /// The most lines.
    pub max_lines: usize,
}

/// What happens when the model has finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The run ends.
    #[default]
    OneShot,
    /// The run waits for the next message, however long that takes. It ends when it is cancelled.
    Chat,
}

/// How a full window is compacted: the model gets a summary in place of the old messages. Nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompactionConfig {
    /// Whether it is done at all.
    pub enabled: bool,
    /// The model's window in tokens. It replaces the size that the provider's catalogue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many tokens of the window are kept free for the next answer; at most a quarter of the window.
    pub reserve_tokens: u64,
    /// How many of the newest tokens are kept as they are; at most half of the window.
    pub keep_recent_tokens: u64,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self { enabled: true, window: None, reserve_tokens: 16_384, keep_recent_tokens: 20_000 }
    }
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self { max_bytes: excerpt::MAX_BYTES, max_lines: excerpt::MAX_LINES }
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            max_turns: 50,
            max_tokens: None,
            temperature: None,
            via: None,
            thinking: ThinkingLevel::Off,
            mode: Mode::OneShot,
            fallback: Vec::new(),
            parallel_tools: 8,
            budget: None,
            compaction: CompactionConfig::default(),
            results: ResultLimits::default(),
            max_rounds: None,
            output: None,
            retry: RetryConfig::default(),
        }
    }
}

impl Serialize for AgentInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for AgentInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(user_prompt) => Ok(Self { user_prompt, ..Self::default() }),
            Value::Object(mut fields) => {
                let models = fields.remove("models").map(serde_json::from_value::<Vec<ModelChoice>>);
                let models = models.transpose().map_err(D::Error::custom)?.unwrap_or_default();
                let input = Self::deserialize(Value::Object(fields)).map_err(D::Error::custom)?;
                Ok(input.with_models(models))
            }
            other => Self::deserialize(other).map_err(D::Error::custom),
        }
    }
}

impl Serialize for ModelChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ModelChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(reference) => Ok(Self::parse(&reference)),
            other => Self::deserialize(other).map_err(D::Error::custom),
        }
    }
}

impl AgentInput {
    /// A run with this model, as `provider/model`, and this prompt.
    pub fn new(model: &str, prompt: impl Into<String>) -> Self {
        Self { model: ModelChoice::parse(model), user_prompt: prompt.into(), ..Self::default() }
    }

    /// Takes over the models of a definition, in their order: the first becomes the run's model unless it has one, and
    /// the others become its fallbacks unless it has some.
    fn with_models(mut self, models: Vec<ModelChoice>) -> Self {
        let mut models = models.into_iter();
        if self.model.is_empty() {
            self.model = models.next().unwrap_or_default();
        }
        if self.config.fallback.is_empty() {
            self.config.fallback = models.filter(|model| *model != self.model).collect();
        }
        self
    }

    /// A run that is a chat, which goes on until it is cancelled.
    #[must_use]
    pub fn chat(mut self) -> Self {
        self.config.mode = Mode::Chat;
        self
    }
}

impl ModelChoice {
    /// Whether it names no model. Then the agent's own is asked.
    pub fn is_empty(&self) -> bool {
        self.provider.is_empty() && self.model_id.is_empty()
    }

    /// Reads `provider/model`. The id of the model may contain slashes.
    pub fn parse(reference: &str) -> Self {
        let (provider, model) = reference.split_once('/').unwrap_or(("", reference));
        Self { provider: provider.to_owned(), model_id: model.to_owned() }
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_input_of_sessions_is_read() {
        let given = json!({
            "systemPrompt": "You are a helpful coding assistant.",
            "userPrompt": "Analyze the top 10 trending repositories.",
            "model": {"provider": "openrouter", "modelId": "deepseek/deepseek-chat-v3-0324"},
            "tools": ["read", "run-sandbox"],
            "config": {"maxTurns": 25, "maxTokens": 16384, "temperature": 0.7, "thinking": "medium"},
            "workingDirectory": "/srv/project",
        });
        let input: AgentInput = serde_json::from_value(given.clone()).expect("an input");
        assert_eq!(input.model, ModelChoice::parse("openrouter/deepseek/deepseek-chat-v3-0324"));
        assert_eq!((input.config.max_turns, input.config.thinking), (25, ThinkingLevel::Medium));
        assert_eq!((input.config.mode, input.config.parallel_tools), (Mode::OneShot, 8), "the rest is the usual");
        let written = serde_json::to_value(&input).expect("JSON");
        for (field, value) in given.as_object().expect("an object").iter().filter(|(field, _)| *field != "config") {
            assert_eq!(&written[field], value);
        }
        assert_eq!(serde_json::from_value::<AgentInput>(written).expect("an input"), input);
    }

    #[test]
    fn a_text_is_a_prompt_and_a_model_may_be_a_text() {
        let input: AgentInput = serde_json::from_value(json!("Why?")).expect("an input");
        assert_eq!((input.user_prompt.as_str(), input.model.is_empty()), ("Why?", true));
        let input: AgentInput =
            serde_json::from_value(json!({"model": "openrouter/z-ai/glm-4.7", "userPrompt": "Why?"}))
                .expect("an input");
        assert_eq!(input, AgentInput::new("openrouter/z-ai/glm-4.7", "Why?"));
        let named = json!({"models": [{"provider": "a", "modelId": "b"}, "c/d"], "userPrompt": "Why?"});
        let input: AgentInput = serde_json::from_value(named).expect("an input");
        let fallback = vec![ModelChoice::parse("c/d")];
        assert_eq!((input.model, input.config.fallback), (ModelChoice::parse("a/b"), fallback.clone()));
        let own = json!({"models": ["a/b", "c/d"], "model": "a/b", "userPrompt": "Why?"});
        let input: AgentInput = serde_json::from_value(own).expect("an input");
        assert_eq!(input.config.fallback, fallback, "what is asked first is no fallback");
        assert_eq!(
            serde_json::from_value::<AgentInput>(json!({"models": []})).expect("an input"),
            AgentInput::default()
        );
        let wrong = serde_json::from_value::<AgentInput>(json!({"config": {"maxTurns": "many"}}));
        assert!(wrong.expect_err("no number").to_string().contains("u32"));
    }
}
