//! Sampling: a server asks a model of the registry, if its configuration allows that, within its budget. What its calls have
//! used is handed to the run whose tool call ends next, which counts it as its own.

use super::config::McpSampling;
use super::outcome::{clean, of_blocks};
use crate::message::{AssistantMeta, Message, Role, Stop};
use crate::provider::{CancellationToken, ModelRequest, Provider, Registry, RetryPolicy, Retrying};
use crate::tools::excerpt;
use flovyn_core::sync::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// How much of a request a person is shown, in bytes.
const MAX_SHOWN: usize = 32 * 1024;
/// How many characters a token has at least, to bound a prompt before it is sent.
const TOKEN: u64 = 4;

/// What one server may ask of models, and what it has asked.
pub(super) struct Sampler {
    pub config: McpSampling,
    models: Mutex<Option<Arc<Registry>>>,
    spent: Mutex<Spent>,
}

#[derive(Default)]
struct Spent {
    calls: u32,
    tokens: u64,
    /// The calls that no run has counted yet.
    uncounted: Vec<SampledCall>,
}

/// A model call of a server, as it is in the details of the tool call that ends after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SampledCall {
    /// The model, by its provider and its id.
    pub model: String,
    /// Its usage, its end and its times.
    pub meta: AssistantMeta,
}

/// The field of the details of an outcome with the calls.
pub(crate) const SAMPLED: &str = "sampled";

impl Sampler {
    pub(super) fn new(config: McpSampling) -> Self {
        Self { config, models: Mutex::default(), spent: Mutex::default() }
    }

    pub(super) fn set_models(&self, models: &Arc<Registry>) {
        *self.models.lock() = Some(models.clone());
    }

    /// The calls that no run has counted yet, each once.
    pub(super) fn take_uncounted(&self) -> Vec<SampledCall> {
        std::mem::take(&mut self.spent.lock().uncounted)
    }

    /// What a person is asked before a call: what the server wants the model to be told.
    pub(super) fn question(&self, server: &str, parameters: &Value) -> String {
        let system = parameters["systemPrompt"].as_str().map(|system| format!("\n\nsystem: {system}"));
        let messages = parameters["messages"].as_array().map_or(&[] as &[_], Vec::as_slice);
        let said = messages.iter().map(|message| {
            let role = message["role"].as_str().unwrap_or("user");
            let blocks = message["content"].as_array().map_or(std::slice::from_ref(&message["content"]), Vec::as_slice);
            let shown = blocks.iter().map(|block| match block["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", block["type"].as_str().unwrap_or("content")),
            });
            format!("\n\n{role}: {}", shown.collect::<Vec<_>>().join(" "))
        });
        let said = system.into_iter().chain(said).collect::<String>();
        let cut = if said.len() > MAX_SHOWN { " […]" } else { "" };
        let said = format!("{}{cut}", excerpt::prefix(&said, MAX_SHOWN));
        let (model, most) = (&self.config.model, parameters["maxTokens"].as_u64().unwrap_or_default());
        clean(&format!("May the MCP server {server:?} ask the model {model} for up to {most} tokens?{said}"))
            .into_owned()
    }

    /// Makes a call, and returns the result as the protocol has it. The error says to the server why there is none.
    pub(super) async fn answer(&self, parameters: &Value) -> Result<Value, String> {
        let Some(models) = self.models.lock().clone() else { return Err("there are no models here".into()) };
        let mut messages = Vec::new();
        for message in parameters["messages"].as_array().into_iter().flatten() {
            let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
            messages.push(Message::new(role, of_blocks(&message["content"]).await));
        }
        if messages.is_empty() {
            return Err("there are no messages in the request".into());
        }
        if parameters["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
            return Err("the model is not given tools of a server's own".into());
        }
        let model = models.resolve(&self.config.model).map_err(|error| error.message)?;
        let wanted = parameters["maxTokens"].as_u64().filter(|&most| most > 0);
        let wanted = wanted.into_iter().chain(model.info.max_output).min().unwrap_or(1_024);
        let reserved = self.reserve(parameters.to_string().len() as u64 / TOKEN, wanted)?;
        let request = ModelRequest {
            system: parameters["systemPrompt"].as_str().map(str::to_owned),
            max_tokens: Some(reserved.answer),
            temperature: parameters["temperature"].as_f64(),
            stop: serde_json::from_value(parameters["stopSequences"].clone()).unwrap_or_default(),
            ..ModelRequest::new(&model.info.id, messages)
        };
        // The server waits in the middle of a call, with a request that is open and ends with this process. So this call is
        // outside of the run's own waits, which need no process and last for hours, and this is its one owner of retries: it
        // makes a call again that was refused for the moment, and none that has shown something.
        let provider = Retrying::new(model.provider, RetryPolicy { after_content: false, ..RetryPolicy::default() });
        let ended = provider.stream(&request, &mut |_| {}, &CancellationToken::new()).await;
        match ended {
            Ok(message) => {
                let meta = message.assistant.clone().unwrap_or_default();
                self.settle(&reserved, meta.clone());
                let text: String = message.parts.iter().filter_map(|part| part.as_text()).collect();
                let reason = match meta.stop {
                    Stop::Length => "maxTokens",
                    _ => "endTurn",
                };
                let content = json!({ "type": "text", "text": text });
                let spoke = meta.response_model.unwrap_or(meta.origin.model);
                Ok(json!({ "role": "assistant", "content": content, "model": spoke, "stopReason": reason }))
            }
            Err(error) => {
                let usage = error.usage.as_deref().cloned().unwrap_or_default();
                self.settle(&reserved, AssistantMeta { usage, stop: Stop::Error, ..AssistantMeta::default() });
                Err(format!("the model {} did not answer: {}", self.config.model, error.message))
            }
        }
    }

    /// Takes a call out of the budget before it is made.
    fn reserve(&self, prompt: u64, wanted: u64) -> Result<Reserved, String> {
        let McpSampling { max_calls, max_tokens, .. } = self.config;
        let mut spent = self.spent.lock();
        if spent.calls >= max_calls {
            return Err(format!("its budget of {max_calls} model calls is used up"));
        }
        let left = max_tokens.saturating_sub(spent.tokens).saturating_sub(prompt);
        if left == 0 {
            return Err(format!("what is left of its budget of {max_tokens} tokens is too little for this prompt"));
        }
        let answer = wanted.min(left);
        spent.calls += 1;
        spent.tokens += prompt + answer;
        Ok(Reserved { tokens: prompt + answer, answer })
    }

    /// Puts back what a call did not use.
    fn settle(&self, reserved: &Reserved, meta: AssistantMeta) {
        let mut spent = self.spent.lock();
        spent.tokens = spent.tokens.saturating_sub(reserved.tokens).saturating_add(meta.usage.total());
        spent.uncounted.push(SampledCall { model: self.config.model.clone(), meta });
    }
}

/// What a call may use.
struct Reserved {
    tokens: u64,
    answer: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Usage;

    #[test]
    fn a_budget_holds_for_calls_and_for_tokens() {
        let config = McpSampling { max_calls: 3, max_tokens: 1_000, ..McpSampling::new("p/m") };
        let sampler = Sampler::new(config);
        let used = |output| AssistantMeta { usage: Usage { output, ..Usage::default() }, ..AssistantMeta::default() };
        let first = sampler.reserve(100, 500).expect("it fits");
        assert_eq!(first.answer, 500);
        assert_eq!(sampler.reserve(100, 500).expect("less fits beside it").answer, 300);
        sampler.settle(&first, used(200));
        assert_eq!(sampler.take_uncounted().len(), 1);
        assert_eq!(sampler.reserve(350, 500).expect("what was not used is there again").answer, 50);
        let error = sampler.reserve(1, 1).err().expect("three calls were made");
        assert_eq!(error, "its budget of 3 model calls is used up");
        let poor = Sampler::new(McpSampling { max_tokens: 10, ..McpSampling::new("p/m") });
        assert!(poor.reserve(10, 5).err().expect("no room").contains("its budget of 10 tokens"));
    }

    #[test]
    fn a_person_is_shown_what_the_model_would_be_told() {
        let sampler = Sampler::new(McpSampling::new("p/m"));
        let asked = json!({ "systemPrompt": "Be brief.", "maxTokens": 50, "messages": [
            { "role": "user", "content": { "type": "text", "text": "What do otters eat?" } },
            { "role": "user", "content": [{ "type": "image", "data": "" }, { "type": "text", "text": "And this one?" }] } ] });
        assert_eq!(
            sampler.question("s", &asked),
            "May the MCP server \"s\" ask the model p/m for up to 50 tokens?\n\nsystem: Be brief.\n\nuser: What do otters eat?\
             \n\nuser: [image] And this one?"
        );
        let long =
            json!({ "messages": [{ "role": "user", "content": "x" }, { "content": { "text": "y".repeat(40_000) } }] });
        assert!(sampler.question("s", &long).ends_with("y […]"));
    }
}
