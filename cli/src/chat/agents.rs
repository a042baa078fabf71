//! The agents that work below a session: their cards, and the ids of what they ask.
//!
//! A child asks for approvals by the ids of its own calls. In the chat such an id is written with the run of the child before
//! it, so that the answer finds its way back.

use super::cost::Tally;
use super::feed::ChatEvent;
use super::screen::style::{Row, Style, span, wrap};
use crate::print::short;
use flovyn_core::id::ExecutionId;
use flovyn_toolkit::message::Message;
use flovyn_toolkit::react::{AgentSpawn, LlmCall};
use serde_json::Value;
use std::collections::VecDeque;

/// What is between the run of an agent and the id of its call.
const OF: char = '/';
/// What an id of an agent's call begins with.
const AGENT: &str = "agent:";
/// Lines of what an agent does that its card keeps.
const LINES: usize = 4;
/// Characters of such a line.
const LINE: usize = 160;

/// The id by which the chat knows a call of an agent.
pub(super) fn address(run: ExecutionId, call: &str) -> String {
    // An agent further below has written its own run before it.
    if addressed(call).is_some() { call.to_owned() } else { format!("{AGENT}{run}{OF}{call}") }
}

/// The agent of such an id, and the id of its call.
pub(super) fn addressed(id: &str) -> Option<(ExecutionId, &str)> {
    let (run, call) = id.strip_prefix(AGENT)?.split_once(OF)?;
    Some((run.parse::<uuid::Uuid>().map(ExecutionId).ok()?, call))
}

/// The model call that an event tells of, of whichever agent.
pub(super) fn model_call(event: &ChatEvent) -> Option<&LlmCall> {
    match event {
        ChatEvent::ModelCalled(call) => Some(call),
        ChatEvent::OfAgent { event, .. } => model_call(event),
        _ => None,
    }
}

/// An agent that works, or has worked, below the session.
#[derive(Debug)]
pub(super) struct AgentCard {
    /// The call that it works for, its agent and its run.
    pub spawn: AgentSpawn,
    /// How it stands.
    pub state: String,
    /// What its model calls cost, with those of agents below it.
    pub cost: Tally,
    /// What it did last.
    lines: VecDeque<String>,
}

impl AgentCard {
    /// An agent that begins.
    pub(super) fn new(spawn: AgentSpawn) -> Self {
        Self { spawn, state: "working".to_owned(), cost: Tally::default(), lines: VecDeque::new() }
    }

    /// Takes what it has told.
    pub(super) fn apply(&mut self, event: &ChatEvent) {
        if let Some(call) = model_call(event) {
            self.cost.add(call.usage.as_ref());
        }
        match event {
            ChatEvent::AssistantMessage(message) => self.said(message),
            ChatEvent::ToolEnded { .. } => self.state = "working".to_owned(),
            ChatEvent::ApprovalRequested(_) => self.state = "waits for approval".to_owned(),
            ChatEvent::InputRequested(_) => self.state = "asks".to_owned(),
            ChatEvent::ApprovalAnswered(_) | ChatEvent::InputAnswered(_) => self.state = "working".to_owned(),
            ChatEvent::Sleeping(sleeping) => self.state = if *sleeping { "waits" } else { "working" }.to_owned(),
            ChatEvent::Unserved => self.state = "no worker serves it".to_owned(),
            ChatEvent::AgentStarted(spawn) => self.line(format!("{}: begins", spawn.name)),
            ChatEvent::Notice(text) => self.line(text.clone()),
            ChatEvent::SessionEnded(None) => self.state = "done".to_owned(),
            ChatEvent::SessionEnded(Some(why)) => self.state = short(why, LINE),
            _ => {}
        }
    }

    fn said(&mut self, message: &Message) {
        if let Some(first) = message.text().lines().find(|line| !line.trim().is_empty()) {
            self.line(first.to_owned());
        }
        for call in message.tool_calls() {
            let about = match &call.arguments {
                Value::Object(fields) => fields.values().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
                _ => String::new(),
            };
            self.line(format!("● {} {about}", call.name));
        }
    }

    fn line(&mut self, text: String) {
        self.lines.push_back(short(text.trim(), LINE));
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    /// How it stands and what it has cost, in a few words.
    pub(super) fn stand(&self) -> String {
        let cost = self.cost.cost().filter(|_| !self.cost.is_empty());
        match cost {
            Some(cost) => format!("{} · {cost}", self.state),
            None => self.state.clone(),
        }
    }

    /// The rows below its call, while it works.
    pub(super) fn rows(&self, width: usize) -> Vec<Row> {
        let margin = [span("  │ ", Style::DIM)];
        let mut rows = wrap(&[span(self.stand(), Style::CYAN)], width, &margin, &margin);
        let lines = self.lines.iter().flat_map(|line| wrap(&[span(line, Style::DIM)], width, &margin, &margin));
        rows.extend(lines);
        rows
    }

    /// Its line in a list.
    pub(super) fn listed(&self, number: usize) -> String {
        format!("{number}  {}  {}", self.spawn.name, self.stand())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::screen::style::painted;
    use flovyn_toolkit::message::{Part, ToolCall};
    use serde_json::json;

    #[test]
    fn an_answer_finds_its_way_back_to_the_agent_that_asks() {
        let run = ExecutionId(uuid::Uuid::from_u128(7));
        let id = address(run, "toolu_1/2");
        assert_eq!(addressed(&id), Some((run, "toolu_1/2")));
        assert_eq!(address(ExecutionId(uuid::Uuid::from_u128(8)), &id), id, "one further below keeps its address");
        assert_eq!((addressed("toolu_1"), addressed("agent:x/y")), (None, None));
    }

    #[test]
    fn a_card_says_how_an_agent_stands_and_what_it_does() {
        let spawn =
            AgentSpawn { id: "a".into(), name: "scout".into(), kind: "scout".into(), child: ExecutionId::default() };
        let mut card = AgentCard::new(spawn);
        let mut said = Message::assistant("Let me look.\nMore.");
        let call = json!({ "id": "b", "name": "read", "arguments": { "path": "a.rs" } });
        let call: ToolCall = serde_json::from_value(call).unwrap();
        said.parts.push(Part::from(call));
        card.apply(&ChatEvent::AssistantMessage(said));
        let texts: Vec<_> = card.rows(60).iter().map(|row| painted(row, false)).collect();
        assert_eq!(texts, ["  │ working", "  │ Let me look.", "  │ ● read a.rs"]);
        card.apply(&ChatEvent::SessionEnded(None));
        assert_eq!(card.listed(1), "1  scout  done");
    }
}
