//! A session that this process takes part in: it is followed and spoken to, and served once its tools are there.

use super::approving::Standing;
use super::feed::Feed;
use super::history::History;
use super::models::Models;
use super::options::Chat;
use super::serving::Serving;
use super::session::{Session, Store};
use crate::Result;
use flovyn_core::Payload;
use flovyn_core::model::Delivery as EngineDelivery;
use flovyn_core::worker::WorkerOptions;
use flovyn_toolkit::react::{
    APPROVAL, AgentInput, Delivery, INPUT, InputReply, InputRequest, ModelChoice, USER_MESSAGE, UserMessage,
};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};
use std::path::Path;

/// A session in the hands of its user.
pub struct Talk {
    /// The session.
    pub session: Session,
    /// What happens in it.
    pub feed: Feed,
    /// Requests that were open when it was taken up.
    pub asked: Vec<ApprovalRequest>,
    /// What MCP servers had asked by then.
    pub inquired: Vec<InputRequest>,
    /// The model that the next message asks for, where that is another than before.
    model: Option<ModelChoice>,
}

impl Talk {
    /// Starts a session with a prompt.
    pub async fn begin(
        store: &Store,
        directory: &Path,
        model: ModelChoice,
        prompt: &str,
        standing: &Standing,
    ) -> Result<Self> {
        let input = AgentInput {
            system_prompt: Some(super::prompt::of(directory)),
            user_prompt: prompt.to_owned(),
            model,
            working_directory: store.is_served_here().then(|| directory.display().to_string()),
            approvals: Some(standing.demands()),
            ..AgentInput::default()
        };
        let session = store.start(directory, input.chat()).await?;
        let feed = Feed::new(&session.handle);
        Ok(Self { session, feed, asked: Vec::new(), inquired: Vec::new(), model: None })
    }

    /// Takes up a session that exists.
    pub async fn resume(store: &Store, models: &Models, chat: &Chat, session: Session) -> Result<(Self, History)> {
        let model = model_of(store, models, chat, Some(&session.input.model))?;
        let history = History::of(store, &session).await?;
        let feed = Feed::resumed(&session.handle, &history);
        let model = (model != session.input.model).then_some(model);
        let inquired = history.inquired.iter().map(|(request, _)| request.clone()).collect();
        Ok((Self { session, feed, asked: history.asked.clone(), inquired, model }, history))
    }

    /// Works for the session in this process, until its store is closed; not where nothing is served here, or not yet.
    pub async fn serve(&self, store: &Store, serving: Option<&Serving>) -> Result {
        let Some(kit) = serving.and_then(Serving::kit) else { return Ok(()) };
        let options = WorkerOptions {
            queue: self.session.queue.clone(),
            only: Some(self.session.handle.id()),
            name: format!("flovyn chat {}", std::process::id()),
            ..WorkerOptions::default()
        };
        store.runtime().worker(kit.host(), options).await?;
        Ok(())
    }

    /// Says something; durable when returned.
    pub async fn say(&mut self, text: &str, delivery: Delivery) -> Result {
        self.send(UserMessage::new(text).deliver(delivery)).await
    }

    async fn send(&mut self, message: UserMessage) -> Result {
        let signal = UserMessage { model: self.model.take(), ..message }.signal(None)?;
        self.session.handle.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await?;
        Ok(())
    }

    /// Ends what the agent does, without a word; durable when returned.
    pub async fn interrupt(&mut self) -> Result {
        self.send(UserMessage::interrupt()).await
    }

    /// Answers a request; durable when returned.
    pub async fn decide(&self, answer: &ApprovalAnswer) -> Result {
        let payload = Payload::of(answer)?;
        self.session.handle.signal(APPROVAL, payload, EngineDelivery::NextStep, None).await?;
        Ok(())
    }

    /// Answers what a server asks; durable when returned.
    pub async fn reply(&self, reply: &InputReply) -> Result {
        let payload = Payload::of(reply)?;
        self.session.handle.signal(INPUT, payload, EngineDelivery::NextStep, None).await?;
        Ok(())
    }

    /// Asks another model from the next message on.
    pub fn ask(&mut self, model: ModelChoice) {
        self.model = Some(model);
    }
}

/// The model of a session. That of a server's session is not looked for here: its workers have the keys.
pub fn model_of(store: &Store, models: &Models, chat: &Chat, session: Option<&ModelChoice>) -> Result<ModelChoice> {
    match (store.is_served_here(), chat.model.as_deref(), session) {
        (false, Some(named), _) => Ok(ModelChoice::parse(named)),
        (false, None, Some(session)) => Ok(session.clone()),
        (_, named, session) => models.choose(named, session),
    }
}
