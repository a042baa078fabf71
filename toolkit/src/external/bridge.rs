//! What an external agent says, as the run keeps it: entries of the conversation, events of the stream, what was used, and
//! permissions as approvals.

use super::event::{Answer, Permission, Record, ToolEnded, ToolStarted, TurnEndReason};
use super::run::{Came, Run};
use super::turns::Pulled;
use crate::message::{AssistantMeta, Message, Part, Role, Thinking, ToolCall, ToolResult};
use crate::react::{
    APPROVAL, AgentEvent, Delivery, LlmCall, ModelChoice, ToolCallEnd, ToolCallRef, ToolCallStart, UserMessage,
    entry_type,
};
use crate::tools::approval::{ApprovalAnswer, ApprovalRequest, ApprovalTerms, Decision, Verdict};
use crate::tools::excerpt;
use flovyn_core::Payload;
use flovyn_core::context::Message as NewMessage;
use flovyn_core::error::Result;
use flovyn_core::model::Usage;
use serde::Serialize;
use serde_json::json;

/// Marks entries that an external agent is the source of.
const EXTERNAL: &str = r#"{"external":true}"#;
/// The most of a tool's result that is kept, in bytes.
const MOST_RESULT: usize = 256 * 1024;
/// Why a call does not run that a person has approved with other arguments.
const CHANGED: &str = "They want it with other arguments, which this agent takes from nobody but itself.";

impl Run<'_> {
    /// Keeps what an exchange brought, in its order; the permission that is asked for, if one is.
    pub(super) fn keep(&mut self, pulled: &Pulled) -> Result<Option<Permission>> {
        let mut asked = None;
        let mut parts = Vec::new();
        let mut started = Vec::new();
        for record in &pulled.records {
            // An agent that was resumed may tell again of a call that its last process had begun, or that has ended with it.
            let heard = &self.turn_state().heard.tools;
            let is_known = match record {
                Record::ToolStart(tool) => heard.contains_key(&tool.id),
                Record::ToolEnd(tool) => heard.get(&tool.id) == Some(&true),
                _ => false,
            };
            if is_known {
                continue;
            }
            self.turn_state().heard.note(record);
            match record {
                Record::Text { text } => {
                    self.turn_state().text.clone_from(text);
                    parts.push(Part::text(text));
                }
                Record::Thinking { text } => parts.push(thinking(text)),
                Record::ToolStart(tool) => {
                    self.turn_state().open.insert(tool.id.clone(), tool.name.clone());
                    parts.push(ToolCall::new(&tool.id, &tool.name, tool.arguments.clone()).into());
                    started.push(tool);
                }
                Record::ToolEnd(tool) => {
                    self.say_parts(&mut parts)?;
                    self.on_start(&mut started);
                    self.on_tool_end(tool)?;
                }
                Record::Permission(permission) => asked = Some(permission.clone()),
                Record::Spent(spent) => {
                    self.say_parts(&mut parts)?;
                    let meta = AssistantMeta { usage: spent.usage.clone(), ..AssistantMeta::default() };
                    let model = ModelChoice::parse(&spent.model);
                    self.record("assistant", entry_type::LLM_CALL, &LlmCall::of(&model, "external", &meta))?;
                    let usage = Usage::from(&spent.usage);
                    self.state.usage.add(&spent.model, &usage);
                    self.ctx.record_usage(&spent.model, usage)?;
                    self.state.model = Some(spent.model.clone());
                }
                Record::TurnEnd(end) => {
                    if let Some(message) = end.message.as_ref().filter(|_| end.reason != TurnEndReason::Error) {
                        self.warn(message)?;
                    }
                }
                Record::Warning { text } => self.warn(text)?,
            }
        }
        self.say_parts(&mut parts)?;
        self.on_start(&mut started);
        if let Some(snapshot) = &pulled.snapshot {
            // The cursor is that of the last turn that has ended: a process that resumes looks for what came after it.
            let ended = pulled.records.iter().any(|record| matches!(record, Record::TurnEnd(_)));
            let before = self.state.session.take().filter(|before| before.session_id == snapshot.session_id);
            let mut now = snapshot.clone();
            if let Some(before) = before {
                if !ended {
                    now.cursor = before.cursor;
                }
                // The version is asked for once.
                if before.agent.starts_with(&now.agent) {
                    now.agent = before.agent;
                }
            }
            self.state.session = Some(now);
        }
        if pulled.records.iter().any(|record| matches!(record, Record::ToolEnd(_) | Record::TurnEnd(_))) {
            self.turn_state().deaths = 0;
        }
        Ok(asked)
    }

    fn on_start(&self, started: &mut Vec<&ToolStarted>) {
        for tool in started.drain(..) {
            let ToolStarted { id, name, arguments } = tool;
            let tool_call = ToolCallStart { id, name, arguments, external: true };
            AgentEvent::ToolCallStart { tool_call }.emit(self.ctx);
        }
    }

    fn on_tool_end(&mut self, tool: &ToolEnded) -> Result<()> {
        let name = self.turn_state().open.remove(&tool.id).unwrap_or_else(|| "other".to_owned());
        let mut content = excerpt::prefix(&tool.content, MOST_RESULT).to_owned();
        if content.len() < tool.content.len() {
            content.push_str(&format!("\n[… {} bytes are left out here …]", tool.content.len() - content.len()));
        }
        let result = ToolCallEnd { content: &content, is_error: tool.is_error };
        let tool_call = ToolCallRef { id: &tool.id, name: &name, external: true };
        AgentEvent::ToolCallEnd { tool_call, result }.emit(self.ctx);
        let mut result = ToolResult::text(&tool.id, &name, content);
        result.is_error = tool.is_error;
        self.append(&Message::tool([result]))
    }

    /// Gives each call that has no result one.
    pub(super) fn close_open_calls(&mut self, why: &str) -> Result<()> {
        let Some(turn) = &self.state.turn else { return Ok(()) };
        let ids: Vec<_> = turn.open.keys().cloned().collect();
        ids.into_iter().try_for_each(|id| self.on_tool_end(&ToolEnded { id, content: why.to_owned(), is_error: true }))
    }

    fn say_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        match parts.is_empty() {
            true => Ok(()),
            false => self.append(&Message::new(Role::Assistant, std::mem::take(parts))),
        }
    }

    /// Appends a message to the conversation.
    pub(super) fn append(&mut self, message: &Message) -> Result<()> {
        let role = match &message.role {
            Role::System => "system",
            Role::Assistant => "assistant",
            Role::Tool => "tool_result",
            Role::User | Role::Other(_) => "user",
        };
        self.record(role, entry_type::MESSAGE, message)
    }

    /// Appends an entry.
    pub(super) fn record(&self, role: &str, kind: &str, content: &impl Serialize) -> Result<()> {
        let metadata = (role != "user").then(|| EXTERNAL.to_owned());
        let entry = NewMessage {
            role: role.to_owned(),
            content: Payload::of(content)?,
            entry_type: kind.to_owned(),
            turn_id: Some(self.state.turns.to_string()),
            metadata,
        };
        self.ctx.append_message(entry).map(drop)
    }

    /// Tells people something that ends nothing.
    pub(super) fn warn(&self, text: &str) -> Result<()> {
        AgentEvent::Status { status: "running", turn: self.state.turns, reason: Some(text) }.emit(self.ctx);
        self.record("system", entry_type::WARNING, &json!({ "text": text }))
    }

    /// Appends messages of the user, and gives them as one text. What no external agent can be told is named.
    pub(super) fn append_prompt(&mut self, messages: &[UserMessage]) -> Result<String> {
        let mut texts = Vec::with_capacity(messages.len());
        for message in messages {
            let refused = [
                ("attachments", !message.parts.is_empty()),
                ("another model", message.model.is_some()),
                ("a level of thinking", message.thinking.is_some()),
                ("limits", !message.limits.is_none()),
                ("a form of the answer", message.output.is_some()),
            ];
            let refused: Vec<_> = refused.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
            if !refused.is_empty() {
                self.warn(&format!(
                    "An external agent cannot be given {}; the text was sent without.",
                    refused.join(", ")
                ))?;
            }
            self.append(&Message::user(&message.text))?;
            texts.push(message.text.as_str());
        }
        Ok(texts.join("\n\n"))
    }

    /// Decides about a permission: as was answered before, by the policies, or by a person.
    pub(super) async fn decide(&mut self, permission: &Permission) -> Result<Answer> {
        if self.turn_state().is_interrupted {
            return Ok(Answer::Withdrawn);
        }
        let Permission { name, effect, arguments, .. } = permission;
        let request = ApprovalRequest::new(format!("external-{}", self.state.asked), name, *effect, arguments)?;
        let hash = request.hash.as_str().to_owned();
        if let Some(answer) = self.turn_state().answers.get(&hash) {
            return Ok(answer.clone());
        }
        let words = self.approvals.iter().map(|approvals| approvals.decide(name, *effect, arguments));
        match words.max().unwrap_or(Decision::Ask) {
            Decision::Allow => Ok(Answer::Allow),
            Decision::Deny => Ok(Answer::Deny(Some("The policy of this run does not allow it.".to_owned()))),
            Decision::Ask => {
                self.state.asked += 1;
                let answer = self.ask(request).await?;
                if answer != Answer::Withdrawn {
                    self.turn_state().answers.insert(hash, answer.clone());
                }
                Ok(answer)
            }
        }
    }

    /// Asks a person, and waits however long that takes.
    async fn ask(&mut self, request: ApprovalRequest) -> Result<Answer> {
        self.record("assistant", entry_type::APPROVAL_REQUEST, &request)?;
        AgentEvent::ApprovalRequest { request: &request }.emit(self.ctx);
        self.status("waiting_for_approval");
        let mut approval = self.ctx.wait_raw(APPROVAL, None)?;
        loop {
            let outcome = match self.next(&mut approval).await? {
                Came::Step(outcome) => outcome,
                Came::Message(message) => {
                    let waits = message.delivery == Delivery::NextTurn;
                    self.on_message(message).await?;
                    match waits {
                        true => continue,
                        // Whoever says something else has not allowed it.
                        false => return Ok(Answer::Withdrawn),
                    }
                }
            };
            let answer = outcome.payload().and_then(|payload| payload.parse::<ApprovalAnswer>().ok());
            let verdict = answer.as_ref().map_or(Verdict::OfAnotherCall, |answer| request.answered(answer));
            let Some(answer) = answer.filter(|_| verdict != Verdict::OfAnotherCall) else {
                // Only here: a wait that nobody polls any more would hold up the next checkpoint.
                approval = self.ctx.wait_raw(APPROVAL, None)?;
                continue;
            };
            self.record("user", entry_type::APPROVAL, &answer)?;
            self.status("running");
            let terms = outcome.payload().and_then(|payload| payload.parse::<ApprovalTerms>().ok());
            let is_changed = terms.is_none_or(|terms| terms.arguments.is_some_and(|given| given != request.arguments));
            return Ok(match verdict {
                Verdict::Denied(reason) => Answer::Deny(reason),
                // The agent runs what it has asked about, or nothing.
                _ if is_changed => Answer::Deny(Some(CHANGED.to_owned())),
                _ => Answer::Allow,
            });
        }
    }
}

fn thinking(text: &str) -> Part {
    Part::from(Thinking { text: text.to_owned(), ..Thinking::default() })
}
