//! A session that this process has open: it follows its events, sends messages to it, and serves it once its tools are open.

use super::agents::addressed;
use super::approval_rules::ApprovalRules;
use super::external::ExternalAgent;
use super::feed::Feed;
use super::history::History;
use super::local_agents::LocalAgents;
use super::models::Models;
use super::options::Chat;
use super::session::{Session, Store};
use crate::Result;
use flovyn_core::Payload;
use flovyn_core::client::{Client, Handle};
use flovyn_core::id::ExecutionId;
use flovyn_core::model::Delivery as EngineDelivery;
use flovyn_core::worker::WorkerOptions;
use flovyn_toolkit::provider::ThinkingLevel;
use flovyn_toolkit::react::{
    APPROVAL, AgentConfig, AgentInput, AnswerLimits, Delivery, INPUT, InputReply, InputRequest, ModelChoice,
    OutputSpec, USER_MESSAGE, UserMessage,
};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};
use std::path::Path;

/// What this process says about its messages, and about a session that it starts.
#[derive(Debug, Clone, Default)]
pub(super) struct SessionOptions {
    /// What the answer to a message may use.
    pub limits: AnswerLimits,
    /// The form of the answer to a message.
    pub output: Option<OutputSpec>,
    /// How long the model thinks; else as the session has it.
    pub thinking: Option<ThinkingLevel>,
    /// The instructions of the user and of the project.
    pub instructions: String,
    /// More of the system prompt.
    pub system_prompt: Option<String>,
    /// The agent of others that sessions begin with; the built-in one unless given.
    pub agent: Option<ExternalAgent>,
}

/// An open session.
pub(super) struct LiveSession {
    /// The session.
    pub session: Session,
    /// For the runs below it.
    client: Client,
    /// Its events.
    pub feed: Feed,
    /// Approval requests that were open when it was resumed.
    pub approvals: Vec<ApprovalRequest>,
    /// Elicitations that were open when it was resumed.
    pub input_requests: Vec<InputRequest>,
    /// The model of the next message, where it changes.
    model: Option<ModelChoice>,
    /// The level of thinking of the next message, where it changes.
    thinking: Option<ThinkingLevel>,
    limits: AnswerLimits,
    output: Option<OutputSpec>,
}

impl LiveSession {
    /// Starts a session with a message.
    pub(super) async fn start(
        store: &Store,
        directory: &Path,
        model: ModelChoice,
        message: UserMessage,
        rules: &ApprovalRules,
        options: &SessionOptions,
    ) -> Result<Self> {
        let mut system_prompt = super::prompt::of(directory, &options.instructions);
        if let Some(more) = &options.system_prompt {
            system_prompt.push_str(&format!("\n\n{more}"));
        }
        let (limits, output) = (options.limits, options.output.clone());
        let thinking = message.thinking.or(options.thinking).unwrap_or_default();
        let input = AgentInput {
            system_prompt: Some(system_prompt),
            user_prompt: message.text,
            user_parts: message.parts,
            limits,
            output: output.clone(),
            model,
            working_directory: store.is_served_here().then(|| directory.display().to_string()),
            approvals: Some(rules.session_policy()),
            config: AgentConfig { thinking, ..AgentConfig::default() },
            ..AgentInput::default()
        };
        let input = if options.agent.is_some() { ExternalAgent::input(input) } else { input };
        let session = store.start(directory, input.chat(), options.agent.clone()).await?;
        let feed = Feed::new(store.client(), session.handle.id());
        Ok(Self {
            session,
            client: store.client(),
            feed,
            approvals: Vec::new(),
            input_requests: Vec::new(),
            model: None,
            thinking: None,
            limits,
            output,
        })
    }

    /// Resumes an existing session.
    pub(super) async fn resume(
        store: &Store,
        models: &Models,
        chat: &Chat,
        session: Session,
    ) -> Result<(Self, History)> {
        let model = match &session.agent {
            // An agent of others is told of its model when it is started.
            Some(_) => session.input.model.clone(),
            None => model_of(store, models, chat, Some(&session.input.model), None)?,
        };
        let history = History::of(store, &session).await?;
        let feed = Feed::resumed(store.client(), session.handle.id(), &history);
        let model = (model != session.input.model).then_some(model);
        let input_requests = history.input_requests.iter().map(|(request, _)| request.clone()).collect();
        Ok((
            Self {
                session,
                client: store.client(),
                feed,
                approvals: history.approvals.clone(),
                input_requests,
                model,
                thinking: chat.thinking.map(ThinkingLevel::from),
                limits: chat.limits(),
                output: chat.output_schema.clone(),
            },
            history,
        ))
    }

    /// Starts a worker of the session in this process, until its store is closed; does nothing where the tools are not open here.
    pub(super) async fn serve(&self, store: &Store, local_agents: Option<&LocalAgents>) -> Result {
        let Some(toolkit) = local_agents.and_then(LocalAgents::toolkit) else { return Ok(()) };
        let options = WorkerOptions {
            queue: self.session.queue.clone(),
            only: Some(self.session.handle.id()),
            name: format!("flovyn chat {}", std::process::id()),
            ..WorkerOptions::default()
        };
        store.runtime().worker(toolkit.host(), options).await?;
        Ok(())
    }

    /// Sends a message; durable when returned.
    pub(super) async fn send_text(&mut self, text: &str, delivery: Delivery) -> Result {
        self.send(UserMessage::new(text).deliver(delivery)).await
    }

    /// Sends a message with all that belongs to it; durable when returned.
    pub(super) async fn send(&mut self, message: UserMessage) -> Result {
        let (model, limits, output) = (self.model.take(), self.limits, self.output.clone());
        let thinking = message.thinking.or(self.thinking.take());
        let signal = UserMessage { model, thinking, limits, output, ..message }.signal(None)?;
        self.session.handle.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await?;
        Ok(())
    }

    /// Stops what the agent does, without a message; durable when returned.
    pub(super) async fn interrupt(&mut self) -> Result {
        self.send(UserMessage::interrupt()).await
    }

    /// Answers an approval request; durable when returned.
    pub(super) async fn answer_approval(&self, answer: &ApprovalAnswer) -> Result {
        let (handle, id) = self.asked_by(&answer.id).await?;
        let payload = Payload::of(&ApprovalAnswer { id, ..answer.clone() })?;
        handle.signal(APPROVAL, payload, EngineDelivery::NextStep, None).await?;
        Ok(())
    }

    /// The run that asks by an id, and the id by which it does: the session, or an agent below it.
    async fn asked_by(&self, id: &str) -> Result<(Handle, String)> {
        Ok(match addressed(id) {
            Some((run, id)) => (self.client.handle(&run.to_string()).await?, id.to_owned()),
            None => (self.session.handle.clone(), id.to_owned()),
        })
    }

    /// The run of an agent below the session.
    pub(super) async fn agent(&self, run: ExecutionId) -> Result<Handle> {
        Ok(self.client.handle(&run.to_string()).await?)
    }

    /// Answers an elicitation; durable when returned.
    pub(super) async fn answer_input(&self, reply: &InputReply) -> Result {
        let (handle, id) = self.asked_by(&reply.id).await?;
        let payload = Payload::of(&InputReply { id, ..reply.clone() })?;
        handle.signal(INPUT, payload, EngineDelivery::NextStep, None).await?;
        Ok(())
    }

    /// What the answer to a message of this process may use.
    pub(super) fn limits(&self) -> AnswerLimits {
        self.limits
    }

    /// Changes the model from the next message on.
    pub(super) fn set_model(&mut self, model: ModelChoice) {
        self.model = Some(model);
    }
}

/// The model of a session. The model of a server's session is not resolved here, since its workers have the keys.
pub(super) fn model_of(
    store: &Store,
    models: &Models,
    chat: &Chat,
    session: Option<&ModelChoice>,
    settings: Option<&str>,
) -> Result<ModelChoice> {
    match (store.is_served_here(), chat.model.as_deref(), session) {
        (false, Some(named), _) => Ok(ModelChoice::parse(&models.named(named))),
        (false, None, Some(session)) => Ok(session.clone()),
        (false, None, None) if settings.is_some() => {
            Ok(ModelChoice::parse(&models.named(settings.unwrap_or_default())))
        }
        (_, named, session) => models.choose(named, session, settings),
    }
}
