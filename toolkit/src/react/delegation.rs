//! Calls that give work to another agent: each starts a run of it below this one, and the end of that run is its result.
//!
//! The id of the child comes from the call, so a process that goes on after a crash finds the child that is there. A message
//! of the user that must not wait asks the children of the turn to stop; their calls get what they had so far.

use super::AgentEvent;
use super::delegate::{self, Delegate, Giving};
use super::questions::question_of;
use super::run::AgentRun;
use super::transcript::entry_type;
use crate::message::ToolCall;
use crate::tools::ToolOutcome;
use flovyn_core::context::{AgentContextExt, ChildNews, Step};
use flovyn_core::error::{Error, Result};
use flovyn_core::id::ExecutionId;
use flovyn_core::journal::ChildCall;
use flovyn_core::model::{Cancellation, ChildEvent};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// A child that works for a call.
#[derive(Clone)]
pub(super) struct Working {
    pub call: ToolCall,
    pub child: ExecutionId,
    /// The id of the child among those of the run.
    pub id: String,
    /// What it was started with.
    pub input: Value,
    pub delegate: Arc<Delegate>,
    /// Whether it was asked to stop.
    pub is_stopping: bool,
}

/// What is waited for of a child.
pub(super) struct News {
    pub news: ChildNews,
    /// The start of the child, which is kept as long as the child is waited for.
    _start: Step,
}

impl News {
    pub(super) fn new(news: ChildNews, start: Step) -> Self {
        Self { news, _start: start }
    }
}

/// The content of an `agent_spawn` entry: a child was started for a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpawn {
    /// The id of the call.
    pub id: String,
    /// The tool, as the model called it.
    pub name: String,
    /// The agent.
    pub kind: String,
    /// The run of it.
    pub child: ExecutionId,
}

impl AgentRun<'_> {
    /// Starts the child of a call; none where the call got its result at once.
    pub(super) fn delegate(&mut self, call: &ToolCall, delegate: &Arc<Delegate>) -> Result<Option<(Working, News)>> {
        let payload = delegate.input(Giving::Delegates, &call.arguments, self.input, &self.state.model)?;
        let (child_id, input) = (delegate::child_id(self.state.turn, &call.id), payload.parse()?);
        let options = delegate.options(Some(child_id.clone()));
        let child = ChildCall { kind: delegate.kind.as_str().into(), input: payload, options, hand_off: None };
        let (child, start) = match self.ctx.spawn_raw(child) {
            Ok(started) => started,
            Err(error) => return self.not_started(call, delegate, error).map(|()| None),
        };
        let (id, name, kind) = (call.id.clone(), call.name.clone(), delegate.kind.clone());
        let spawn = AgentSpawn { id, name, kind, child };
        self.record("assistant", entry_type::AGENT_SPAWN, &spawn)?;
        AgentEvent::AgentSpawn { spawn: &spawn }.emit(self.ctx);
        let (call, delegate) = (call.clone(), delegate.clone());
        let working = Working { call, child, id: child_id, input, delegate, is_stopping: false };
        let news = self.ctx.wait_for_child_event(child, None)?;
        Ok(Some((working, News::new(news, start))))
    }

    /// Gives a call whose child could not be started its result. An error of the run itself ends the run.
    pub(super) fn not_started(&mut self, call: &ToolCall, delegate: &Delegate, error: Error) -> Result<()> {
        match delegate::refusal_of(delegate, &error) {
            Some(outcome) => self.answer(call, outcome),
            None => Err(error),
        }
    }

    /// Handles what a child has told. Returns the child where it goes on.
    pub(super) async fn on_child_event(
        &mut self,
        working: Working,
        news: News,
        event: Result<ChildEvent>,
    ) -> Result<Option<(Working, News)>> {
        let event = match event {
            Ok(event) => self.loaded(event).await?,
            Err(error) => return self.not_started(&working.call, &working.delegate, error).map(|()| None),
        };
        if let ChildEvent::Request { request, name, payload } = &event {
            let question = question_of(name, payload);
            return self.on_question(working, *request, question).map(|()| None);
        }
        match delegate::end_of(&working.delegate, working.child, event)? {
            Some(outcome) => {
                let outcome = if working.is_stopping { interrupted(outcome) } else { outcome };
                self.answer(&working.call, outcome)?;
                Ok(None)
            }
            None => {
                let next = self.ctx.wait_for_child_event(working.child, None)?;
                Ok(Some((working, News { news: next, ..news })))
            }
        }
    }

    /// Asks a child to stop, unless it was asked before.
    pub(super) async fn stop_child(&mut self, working: &mut Working) -> Result<()> {
        if std::mem::replace(&mut working.is_stopping, true) {
            return Ok(());
        }
        match self.ctx.cancel_child(working.child, Cancellation::USUAL)?.await {
            // It has ended in the meantime.
            Err(error) if error.code() == flovyn_core::error::Code::ExecutionClosed => Ok(()),
            ended => ended,
        }
    }

    /// The event with its value in memory.
    async fn loaded(&self, event: ChildEvent) -> Result<ChildEvent> {
        Ok(match event {
            ChildEvent::Request { name, payload, request } => {
                ChildEvent::Request { name, payload: self.ctx.load(&payload).await?, request }
            }
            ChildEvent::Completed { output } => ChildEvent::Completed { output: self.ctx.load(&output).await? },
            ChildEvent::Cancelled { output: Some(output) } => {
                ChildEvent::Cancelled { output: Some(self.ctx.load(&output).await?) }
            }
            ChildEvent::BudgetExceeded { used, limit, output: Some(output) } => {
                ChildEvent::BudgetExceeded { used, limit, output: Some(self.ctx.load(&output).await?) }
            }
            other => other,
        })
    }
}

/// The outcome of a call whose child the user has stopped.
fn interrupted(outcome: ToolOutcome) -> ToolOutcome {
    match outcome.error_code() {
        Some("agent_stopped") => {
            let words = format!("The user has interrupted. {}", outcome.plain_text());
            ToolOutcome::error("interrupted", words).with_details(outcome.details)
        }
        _ => outcome,
    }
}
