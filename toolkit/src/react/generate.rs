//! The model call as a durable task, `llm.generate`. It gets a reference to the conversation, and reads the messages
//! itself.
//!
//! The task streams text as tokens, and everything else as [`AgentEvent`]s. There are two kinds of failures:
//!
//! * The agent has to decide what to do: the window is full, the key is wrong. Such a failure is a result of the task.
//! * Waiting may help: the stream was cut, the provider is overloaded. Then the attempt fails, the engine retracts its
//!   tokens, and makes the next attempt after a pause, for hours and without a process. An agent that waits and asks
//!   again by itself, as the built-in one does, gets these failures as results too ([`OnFailure`]).
//!
//! So each failure is waited for in one place. Only an answer without anything in it is asked for again here, once.

use super::agent_tool::accept_part;
use super::compaction::Extract;
use super::output::{CheckedOutput, Output, OutputForm, OutputSpec};
use super::paid_failures::FailuresByTask;
use super::{AgentEvent, ModelChoice, Transcript};
use crate::message::{Content, Message, ModelError, Part, Role, Stop, Usage};
use crate::provider::{
    CacheHint, CancellationToken, ErrorKind, Model, ModelRequest, OnEvent, Registry, RetryPolicy, Retrying,
    StreamEvent, ThinkingLevel, ToolChoice, ToolSpec,
};
use async_trait::async_trait;
use flovyn_core::context::ContextRef;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{self, ChunkKind, TaskOptions};
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Asks a model to go on with a conversation.
#[derive(Clone)]
pub struct LlmGenerate {
    models: Arc<Registry>,
    policy: RetryPolicy,
    failures: FailuresByTask,
}

/// The argument of a model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateInput {
    /// The conversation; none if there are only `messages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextRef>,
    /// The conversation itself, where whoever asks the model cannot read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<Box<Transcript>>,
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
    /// What a failure does that waiting may heal.
    #[serde(default, skip_serializing_if = "OnFailure::is_usual")]
    pub on_failure: OnFailure,
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

/// What a failure of a model call does that waiting may heal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// It fails the attempt, and the engine makes another one after a pause.
    #[default]
    Retry,
    /// It is the result of the task, for an agent that waits and asks again by itself.
    Report,
    /// It fails the attempt however often the call was made. Of such a task a resumed run makes another attempt.
    Fail,
}

impl OnFailure {
    fn is_usual(&self) -> bool {
        *self == Self::Retry
    }
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
    /// What an answer without anything in it has used, after which the model was asked once more. It is part of the
    /// message's own usage where the engine [makes the retries](OnFailure::Retry).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<Box<Usage>>,
}

/// How often a failed call is tried again: with the pauses below, for about six hours.
const RETRIES: u32 = 100;

impl GenerateInput {
    /// Asks a model to go on with a conversation.
    pub fn new(model: ModelChoice, context: ContextRef) -> Self {
        Self {
            context: Some(context),
            transcript: None,
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
            on_failure: OnFailure::Retry,
            purpose: Purpose::Turn,
        }
    }
}

impl LlmGenerate {
    /// The task's kind.
    pub const KIND: &'static str = "llm.generate";

    /// A task that asks the models of a registry.
    pub fn new(models: impl Into<Arc<Registry>>) -> Self {
        Self { models: models.into(), policy: RetryPolicy::default(), failures: FailuresByTask::default() }
    }

    /// Sets how often a call [outside of a run](Self::ask_alone) is made again.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The options with which a model call is scheduled: it may be interrupted, and failed attempts are made again.
    pub fn call_options() -> TaskOptions {
        TaskOptions {
            retry: model::RetryPolicy {
                retries: RETRIES,
                initial: Duration::from_millis(500),
                max: Duration::from_secs(300),
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
        let resolved = self.resolve(input)?;
        let retrying = Retrying::new(resolved.provider, self.policy);
        let model = Model { provider: Arc::new(retrying), info: resolved.info };
        self.ask(&model, &Transcript::default(), input, &mut |_| {}, 1).await
    }

    fn resolve(&self, input: &GenerateInput) -> Result<Model, ModelError> {
        self.models.resolve(&input.model.to_string())
    }

    async fn ask_of_run(&self, ctx: &TaskContext, input: &GenerateInput) -> Result<Reply, ModelError> {
        let transcript = match (&input.transcript, &input.context) {
            (Some(carried), _) => Ok((**carried).clone()),
            (None, Some(context)) => ctx.messages(context).await.and_then(|entries| Transcript::of(&entries)),
            (None, None) => Ok(Transcript::default()),
        };
        let transcript = transcript.map_err(|error| {
            let message = format!("the conversation cannot be read: {}", error.message());
            ModelError::new(ErrorKind::Network, message)
        })?;
        let streams = input.purpose.is_turn() && !input.quiet;
        let mut shown = false;
        let on = &mut |event: StreamEvent| {
            if streams {
                shown |= event.is_content();
                stream_preview(ctx, &event);
            }
        };
        let answered = self.ask(&self.resolve(input)?, &transcript, input, on, ctx.attempt()).await;
        if shown && answered.is_err() {
            // The engine retracts what an attempt has shown only if another attempt follows.
            ctx.stream(ChunkKind::Void, "");
        }
        answered
    }

    async fn ask(
        &self,
        resolved: &Model,
        transcript: &Transcript,
        input: &GenerateInput,
        on: OnEvent<'_>,
        attempt: u32,
    ) -> Result<Reply, ModelError> {
        let (mut messages, mut tools) = match &input.purpose {
            Purpose::Turn => {
                let offered = input.tools.as_deref().unwrap_or(transcript.tools());
                (transcript.messages_before(!input.messages.is_empty()), offered.to_vec())
            }
            Purpose::Summary(extract) => (extract.prompt(transcript), Vec::new()),
        };
        messages.extend(accepted(&input.messages)?);
        let offered = tools.iter().map(|tool| tool.name.as_str());
        let refuse = |output| Output::refuse_name(offered).map(|()| output);
        let output = input.output.as_ref().map(|output| output.compile().and_then(refuse)).transpose();
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
        let token = CancellationToken::new();
        let mut message = resolved.provider.stream(&request, on, &token).await?;
        let mut empty = None;
        if is_empty(&message) {
            let used = message.usage().cloned().unwrap_or_default();
            // If nobody answers the second time, the first answer is the last word: it was paid.
            match resolved.provider.stream(&request, on, &token).await {
                Ok(mut second) => {
                    match &mut second.assistant {
                        Some(meta) if input.on_failure.is_usual() => meta.usage.add(&used),
                        _ => empty = Some(Box::new(used)),
                    }
                    message = second;
                }
                Err(error) => tracing::warn!(%error, "a model that had said nothing could not be asked once more"),
            }
        }
        let output = output.and_then(|output| output.check(&message));
        Ok(Reply { message, context_window: resolved.info.context_window, output, attempt, empty })
    }
}

/// The messages that are said after the conversation, with their images and documents checked. One that cannot be used is
/// an error: whoever asks can still do something about it.
fn accepted(given: &[Message]) -> Result<Vec<Message>, ModelError> {
    let accept = |at: usize, number: usize, part: &Part| {
        accept_part(part.clone()).map_err(|why| {
            let message = format!("messages[{at}].parts[{number}] cannot be used: {why}");
            ModelError::new(ErrorKind::InvalidRequest, message)
        })
    };
    let mut messages = given.to_vec();
    for (at, message) in messages.iter_mut().enumerate() {
        // What a model has written is taken as it is, also where a newer version has stored it.
        if message.role == Role::Assistant {
            continue;
        }
        for (number, part) in message.parts.iter_mut().enumerate() {
            if matches!(part.content, Content::Media(_) | Content::Unrecognized(_)) {
                *part = accept(at, number, part)?;
            }
        }
    }
    Ok(messages)
}

/// Whether a message that has come to its end holds nothing for anybody.
fn is_empty(message: &Message) -> bool {
    let says = |part: &Part| match &part.content {
        Content::Text { text } => !text.trim().is_empty(),
        Content::Thinking(_) => false,
        _ => true,
    };
    message.stop() == Stop::End && !message.parts.iter().any(says)
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
        let error = match self.ask_of_run(ctx, &input).await {
            Ok(reply) => {
                self.failures.forget(ctx.task_id());
                return Ok(Generated::Reply(Box::new(reply)));
            }
            Err(error) => error,
        };
        let is_result = !error.is_retryable()
            || match input.on_failure {
                OnFailure::Report => true,
                OnFailure::Retry => self.failures.is_last(ctx.task_id(), error.kind),
                OnFailure::Fail => false,
            };
        if is_result {
            self.failures.forget(ctx.task_id());
            return Ok(Generated::Failed { error });
        }
        let kind = serde_json::to_value(error.kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default().to_owned();
        let failed = Error::new(Code::TaskFailed, error.message).with("error_type", kind);
        Err(match error.retry_after_ms {
            Some(millis) => failed.retry_after(Duration::from_millis(millis)),
            None => failed,
        })
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
        StreamEvent::Started { .. }
        | StreamEvent::ToolCallStart { .. }
        | StreamEvent::Retracted { .. }
        | StreamEvent::Retrying { .. }
        | StreamEvent::FellBack { .. } => {}
    }
}
