//! The model call as a durable task, `llm.generate`: it is given a reference to the conversation and reads that itself.
//!
//! The task streams text as tokens and the rest as [`AgentEvent`]s. What went wrong in a way that the agent decides about (a
//! window that is full, a key that is wrong, a provider that asks for a long wait) is a result; what may pass (a cut
//! stream, an overloaded provider) is a failed attempt, whose tokens the engine retracts before the next one.

use super::compaction::Extract;
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
    /// The conversation; none where `messages` say it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextRef>,
    /// What is said after it, for this call alone: it becomes no part of the conversation.
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
    /// How to behave, before what the conversation itself says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The tools that the model may call, in place of those that the conversation offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolSpec>>,
    /// Whether it has to call one; as it sees fit unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether the run's readers are kept from the answer while it is made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quiet: bool,
    /// What it is asked for.
    #[serde(default, skip_serializing_if = "Purpose::is_turn")]
    pub purpose: Purpose,
}

/// What a model is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// The next message of the conversation, with the tools that it offers.
    #[default]
    Turn,
    /// A summary of a part of it.
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

/// What a model call gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Generated {
    /// An answer.
    Reply(Box<Reply>),
    /// None, and asking again in the same way would not help now.
    Failed {
        /// Why.
        error: ModelError,
    },
    /// The user interrupted it; the text so far.
    Interrupted(String),
}

/// An answer, and what is known of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The message.
    pub message: Message,
    /// The model's window in tokens, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Which attempt of the task this was, from 1: those before were lost or failed.
    pub attempt: u32,
}

/// Attempts after the first that may fail.
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
            quiet: false,
            purpose: Purpose::Turn,
        }
    }
}

impl LlmGenerate {
    /// The task's kind.
    pub const KIND: &'static str = "llm.generate";

    /// Asks the models of a registry. What fails before anything was shown is asked again within the attempt.
    pub fn new(models: Registry) -> Self {
        Self { models: Arc::new(models), policy: RetryPolicy::default() }
    }

    /// Asks again within an attempt by a policy.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = RetryPolicy { after_content: false, ..policy };
        self
    }

    /// How a model call is run, wherever it is scheduled: it may be interrupted, and attempts that fail are made again.
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

    /// Asks outside of a run: nothing is recorded.
    ///
    /// # Errors
    ///
    /// The provider's, or that the input refers to the conversation of a run, which only a task of that run can read.
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
        let (mut messages, tools) = match &input.purpose {
            Purpose::Turn => {
                let offered = input.tools.as_deref().unwrap_or(transcript.tools());
                (transcript.messages_before(!input.messages.is_empty()), offered.to_vec())
            }
            Purpose::Summary(extract) => (extract.prompt(transcript), Vec::new()),
        };
        messages.extend(input.messages.iter().cloned());
        // A budget may have room for more than the model can say.
        let max_tokens = input.max_tokens.map(|most| resolved.info.max_output.map_or(most, |can| most.min(can)));
        let request = ModelRequest {
            system: input.system.clone(),
            tools,
            tool_choice: input.tool_choice.clone().unwrap_or_default(),
            max_tokens,
            temperature: input.temperature,
            thinking: input.thinking,
            cache: input.purpose.is_turn().then_some(CacheHint::Short),
            session: input.context.as_ref().map(|context| context.execution.to_string()),
            ..ModelRequest::new(&resolved.info.id, messages)
        };
        let provider = Retrying::new(resolved.provider, self.policy);
        let message = provider.stream(&request, on, &CancellationToken::new()).await?;
        Ok(Reply { message, context_window: resolved.info.context_window, attempt })
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
            // A long wait is the agent's: it waits without a process.
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
