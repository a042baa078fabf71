//! The model call as a durable task, `llm.generate`. It gets a reference to the conversation, and reads the messages
//! itself.
//!
//! The task streams text as tokens, and everything else as [`AgentEvent`]s. There are two kinds of failures:
//!
//! * The agent has to decide what to do: the window is full, the key is wrong, the provider asks for a long wait. Such
//!   a failure is a result of the task.
//! * Trying again may help: the stream was cut, the provider is overloaded. Then the attempt fails, and the engine
//!   retracts its tokens before the next attempt.

use super::compaction::Extract;
use super::output::{CheckedOutput, OutputForm, OutputSpec};
use super::{AgentEvent, ModelChoice, Transcript};
use crate::message::{Message, ModelError};
use crate::provider::{
    CacheHint, CancellationToken, ErrorKind, ModelRequest, OnEvent, Provider, Registry, RetryPolicy, Retrying,
    StreamEvent, ThinkingLevel, ToolChoice, ToolSpec,
};
use async_trait::async_trait;
use flovyn_core::context::ContextRef;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{self, TaskOptions};
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Asks a model to go on with a conversation.
#[derive(Clone)]
pub struct LlmGenerate {
    models: Arc<Registry>,
    policy: RetryPolicy,
}

/// The argument of a model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateInput {
    /// The conversation; none if there are only `messages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextRef>,
    /// Messages after the conversation. They are for this call only and do not become part of the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// The model.
    pub model: ModelChoice,
    /// The most tokens of the answer; the model's own limit unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How long the model thinks.
    #[serde(default)]
    pub thinking: ThinkingLevel,
    /// The system prompt. The system messages of the conversation come after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The tools that the model may call, in place of those that the conversation offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolSpec>>,
    /// Whether the model has to call a tool. Unless given, the model decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// The form that the answer has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputSpec>,
    /// Whether nothing of the answer is streamed to the run's readers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quiet: bool,
    /// The purpose of the call.
    #[serde(default, skip_serializing_if = "Purpose::is_turn")]
    pub purpose: Purpose,
}

/// The purpose of a model call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// The model writes the next message of the conversation, and may call the tools that the conversation offers.
    #[default]
    Turn,
    /// The model summarises a part of the conversation.
    Summary(Extract),
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Purpose {
    fn is_turn(&self) -> bool {
        *self == Self::Turn
    }
}

/// The result of a model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Generated {
    /// An answer.
    Reply(Box<Reply>),
    /// There is no answer, and making the same call again would not help now.
    Failed {
        /// Why there is none.
        error: ModelError,
    },
    /// The user has interrupted the call. This is the text until then.
    Interrupted(String),
}

/// An answer, with facts about the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The message.
    pub message: Message,
    /// The model's window in tokens, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// The answer, checked, if it has to have a form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<CheckedOutput>,
    /// The number of the task's attempt, from 1. The attempts before it were lost or have failed.
    pub attempt: u32,
}

/// How often a failed call is tried again.
const RETRIES: u32 = 4;

impl GenerateInput {
    /// Asks a model to go on with a conversation.
    pub fn new(model: ModelChoice, context: ContextRef) -> Self {
        Self {
            context: Some(context),
            messages: Vec::new(),
            model,
            max_tokens: None,
            temperature: None,
            thinking: ThinkingLevel::Off,
            system: None,
            tools: None,
            tool_choice: None,
            output: None,
            quiet: false,
            purpose: Purpose::Turn,
        }
    }
}

impl LlmGenerate {
    /// The task's kind.
    pub const KIND: &'static str = "llm.generate";

    /// A task that asks the models of a registry. A call that fails before it has shown anything is made again within
    /// the attempt.
    pub fn new(models: impl Into<Arc<Registry>>) -> Self {
        Self { models: models.into(), policy: RetryPolicy::default() }
    }

    /// Sets how often a call is made again within an attempt.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = RetryPolicy { after_content: false, ..policy };
        self
    }

    /// The options with which a model call is scheduled: it may be interrupted, and failed attempts are made again.
    pub fn call_options() -> TaskOptions {
        TaskOptions {
            retry: model::RetryPolicy {
                retries: RETRIES,
                initial: Duration::from_millis(200),
                max: Duration::from_secs(30),
                ..model::RetryPolicy::default()
            },
            interruptible: true,
            ..TaskOptions::default()
        }
    }

    /// Makes a model call outside of a run. Nothing is recorded.
    ///
    /// # Errors
    ///
    /// Those of the provider. It is also an error if the input refers to the conversation of a run, because only a task
    /// of that run can read it.
    pub async fn ask_alone(&self, input: &GenerateInput) -> Result<Reply, ModelError> {
        if input.context.is_some() {
            let message = "a context reference stands for the conversation of a run, and only its agent can ask with it; outside of \
                           one give messages";
            return Err(ModelError::new(ErrorKind::InvalidRequest, message));
        }
        self.ask(&Transcript::default(), input, &mut |_| {}, 1).await
    }

    async fn ask_of_run(&self, ctx: &TaskContext, input: &GenerateInput) -> Result<Reply, ModelError> {
        let entries = match &input.context {
            Some(context) => ctx.messages(context).await,
            None => Ok(Vec::new()),
        };
        let transcript = entries.and_then(|entries| Transcript::of(&entries)).map_err(|error| {
            let message = format!("the conversation cannot be read: {}", error.message());
            ModelError::new(ErrorKind::Network, message)
        })?;
        let streams = input.purpose.is_turn() && !input.quiet;
        let on = &mut |event: StreamEvent| {
            if streams {
                stream_preview(ctx, &event);
            }
        };
        self.ask(&transcript, input, on, ctx.attempt()).await
    }

    async fn ask(
        &self,
        transcript: &Transcript,
        input: &GenerateInput,
        on: OnEvent<'_>,
        attempt: u32,
    ) -> Result<Reply, ModelError> {
        let resolved = self.models.resolve(&input.model.to_string())?;
        let (mut messages, mut tools) = match &input.purpose {
            Purpose::Turn => {
                let offered = input.tools.as_deref().unwrap_or(transcript.tools());
                (transcript.messages_before(!input.messages.is_empty()), offered.to_vec())
            }
            Purpose::Summary(extract) => (extract.prompt(transcript), Vec::new()),
        };
        messages.extend(input.messages.iter().cloned());
        let output = input.output.as_ref().map(OutputSpec::compile).transpose();
        let output = output.map_err(|error| ModelError::new(ErrorKind::InvalidRequest, error.message()))?;
        // The limit may come from a budget, which may have room for more tokens than the model can generate.
        let max_tokens = input.max_tokens.map(|most| resolved.info.max_output.map_or(most, |can| most.min(can)));
        let mut tool_choice = input.tool_choice.clone().unwrap_or_default();
        let mut format = None;
        match output.as_ref().map(|output| output.form(&resolved.info, &messages)) {
            Some(OutputForm::Native(native)) => format = Some(native),
            Some(OutputForm::Tool(tool)) => {
                // A forced call takes a model's thinking away, so a model that is to think is only asked for it.
                if tools.is_empty() && input.thinking == ThinkingLevel::Off && tool_choice == ToolChoice::Auto {
                    tool_choice = ToolChoice::Tool(tool.name.clone());
                }
                tools.push(tool);
            }
            None => {}
        }
        let request = ModelRequest {
            system: input.system.clone(),
            tools,
            tool_choice,
            output: format,
            max_tokens,
            temperature: input.temperature,
            thinking: input.thinking,
            cache: input.purpose.is_turn().then_some(CacheHint::Short),
            session: input.context.as_ref().map(|context| context.execution.to_string()),
            ..ModelRequest::new(&resolved.info.id, messages)
        };
        let provider = Retrying::new(resolved.provider, self.policy);
        let message = provider.stream(&request, on, &CancellationToken::new()).await?;
        let output = output.and_then(|output| output.check(&message));
        Ok(Reply { message, context_window: resolved.info.context_window, output, attempt })
    }
}

#[async_trait]
impl TaskDefinition for LlmGenerate {
    type Input = GenerateInput;
    type Output = Generated;

    fn kind(&self) -> &str {
        Self::KIND
    }

    fn options(&self) -> TaskOptions {
        Self::call_options()
    }

    async fn execute(&self, ctx: &TaskContext, input: GenerateInput) -> Result<Generated> {
        match self.ask_of_run(ctx, &input).await {
            Ok(reply) => Ok(Generated::Reply(Box::new(reply))),
            // If the provider asks for a long wait, the error goes to the agent, which can wait without keeping a
            // process.
            Err(error) if error.is_retryable() && error.retry_after_ms.is_none() => {
                let kind = serde_json::to_value(error.kind).unwrap_or_default();
                let kind = kind.as_str().unwrap_or_default().to_owned();
                Err(Error::new(Code::TaskFailed, error.message).with("error_type", kind))
            }
            Err(error) => Ok(Generated::Failed { error }),
        }
    }
}

/// Streams previews of an answer.
fn stream_preview(ctx: &TaskContext, event: &StreamEvent) {
    match event {
        StreamEvent::TextDelta { delta, .. } => ctx.stream_token(delta),
        StreamEvent::ThinkingDelta { delta, .. } => AgentEvent::ThinkingDelta { delta }.emit_from_task(ctx),
        StreamEvent::ToolCallDelta { part, delta } => {
            AgentEvent::ToolCallDelta { part: *part, delta }.emit_from_task(ctx);
        }
        StreamEvent::Retrying { attempt, delay_ms, reason } => {
            AgentEvent::Retrying { attempt: *attempt, delay_ms: *delay_ms, reason }.emit_from_task(ctx);
        }
        StreamEvent::Started { .. }
        | StreamEvent::ToolCallStart { .. }
        | StreamEvent::Retracted { .. }
        | StreamEvent::FellBack { .. } => {}
    }
}
