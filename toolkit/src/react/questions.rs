//! Questions of agents to whoever has given them their work: a child asks the run that has started it, and a run that nobody
//! has started asks a person.
//!
//! A model whose delegate asks something gets the question as the result of its call. It answers by the tool [`ANSWER`], or
//! passes the question on in the same way in which it would ask itself, by [`ESCALATE`].

use super::delegate::Giving;
use super::delegation::{News, Working};
use super::run::AgentRun;
use super::tool_calls::{Awaited, ToolCalls};
use crate::mcp::{InputQuestion, InputRequired, InputResponse};
use crate::message::ToolCall;
use crate::provider::ToolSpec;
use crate::tools::ToolOutcome;
use crate::tools::approval::CallHash;
use flovyn_core::Payload;
use flovyn_core::context::AgentContextExt;
use flovyn_core::error::{Code, Result};
use flovyn_core::journal::{ChildCall, Outcome};
use flovyn_core::model::ChildRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The tool by which a model asks whoever has given it its work.
pub(super) const ESCALATE: &str = "escalate";
/// The tool by which a model answers an agent that works for it.
pub(super) const ANSWER: &str = "answer_agent";
/// The name of the request by which a child asks.
pub(crate) const REQUEST: &str = "escalate";
/// The key of the question that a person is asked, and the field of the answer.
const FIELD: &str = "answer";

/// A question of a child that has no answer yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedByChild {
    /// The question.
    pub question: String,
    /// By which it is answered.
    pub request: ChildRequest,
    /// The tool that has started the child, as the model called it.
    pub name: String,
    /// The id of the child among those of the run.
    pub id: String,
    /// What it was started with.
    pub input: Value,
}

/// The arguments of a call of [`ANSWER`].
#[derive(Deserialize)]
struct AnswerGiven {
    id: String,
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    pass_on: bool,
}

/// What is wrong with a call of [`ANSWER`] that names no question.
fn unknown(id: &str) -> ToolOutcome {
    ToolOutcome::error("unknown_question", format!("No agent waits for an answer to {id:?}."))
}

/// The tool by which a model asks.
pub(super) fn escalate_spec() -> ToolSpec {
    ToolSpec {
        name: ESCALATE.to_owned(),
        description:
            "Ask whoever has given you this work, where you cannot go on without an answer. The result is the answer, \
                      which may take a while."
                .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "question": { "type": "string", "minLength": 1, "description": "All that is needed to answer it." } },
            "required": ["question"],
            "additionalProperties": false
        }),
    }
}

/// The tool by which a model answers. It is offered from the first question on.
pub(super) fn answer_spec() -> ToolSpec {
    ToolSpec {
        name: ANSWER.to_owned(),
        description:
            "Answer a question of an agent that works for you. The result is what the agent says then: its answer to \
                      the work that you gave it, or its next question."
                .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "id": { "type": "string", "description": "The id of the question." },
                "answer": { "type": "string", "description": "The answer." },
                "pass_on": { "type": "boolean", "description": "Ask the user in place of answering; the agent gets their answer." }
            },
            "required": ["id"],
            "additionalProperties": false
        }),
    }
}

/// The question of a request.
pub(crate) fn question_of(name: &str, payload: &Payload) -> String {
    let value: Value = payload.parse().unwrap_or_default();
    match (&value, value.get("question").and_then(Value::as_str)) {
        (Value::String(text), _) => text.clone(),
        (_, Some(question)) => question.to_owned(),
        _ => format!("{name}: {value}"),
    }
}

/// What a model is shown of the question of its delegate.
pub(super) fn asked(asked: &AskedByChild) -> ToolOutcome {
    let AskedByChild { name, id, question, request, .. } = asked;
    let words = format!(
        "The agent {name} asks: {question}\n\n[It waits for the answer. Give it with {ANSWER}: id={id:?}, and answer, or \
         pass_on where you do not know it.]"
    );
    ToolOutcome::text(words).with_details(json!({ "child": request.child, "asks": true }))
}

impl AgentRun<'_> {
    /// Whether the model may answer agents that work for it. A tool of the user's with the same name hides the agent's.
    pub(super) fn answers_agents(&self) -> bool {
        self.state.was_asked && !self.tools.contains_key(ANSWER)
    }

    /// Asks whoever has given this run its work, for a call.
    pub(super) fn escalate(&mut self, tool_calls: &mut ToolCalls, call: ToolCall, question: &str) -> Result<()> {
        let step = self.ctx.request_raw(REQUEST, Payload::of(&json!({ "question": question }))?, None)?;
        tool_calls.wait(Awaited::Parent(call), step);
        Ok(())
    }

    /// Handles the end of a request. A run that nobody has started asks a person.
    pub(super) async fn on_parent_answer(
        &mut self,
        tool_calls: &mut ToolCalls,
        call: ToolCall,
        outcome: &Outcome,
    ) -> Result<()> {
        match outcome {
            Outcome::Value(answer) => {
                let value: Value = self.ctx.load(answer).await?.parse()?;
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.on_answer(tool_calls, call, Some(text)).await
            }
            Outcome::Failed(failure) if failure.code == Code::NoParent => {
                let question = self.question_of_call(&call).unwrap_or_default();
                let required = required(self.agent_kind(), &call, &question)?;
                tool_calls.ask_person(self, call, required)
            }
            _ => self.on_answer(tool_calls, call, None).await,
        }
    }

    /// Whether a call is one of those that ask.
    pub(super) fn is_question(&self, call: &ToolCall) -> bool {
        let escalates = self.tools.get(&call.name).is_some_and(|tool| tool.escalates);
        escalates || (call.name == ANSWER && self.answers_agents())
    }

    /// The question that a call asks, or passes on.
    fn question_of_call(&self, call: &ToolCall) -> Option<String> {
        match call.name.as_str() {
            ANSWER => Some(self.asked_by(call)?.question.clone()),
            _ => call.arguments["question"].as_str().map(str::to_owned),
        }
    }

    fn asked_by(&self, call: &ToolCall) -> Option<&AskedByChild> {
        let id = call.arguments["id"].as_str()?;
        self.state.asking.iter().find(|asked| asked.id == id)
    }

    /// Gives the answer to a question on: to the model that has asked, or to the child.
    pub(super) async fn on_answer(
        &mut self,
        tool_calls: &mut ToolCalls,
        call: ToolCall,
        answer: Option<String>,
    ) -> Result<()> {
        const UNANSWERED: &str =
            "Nobody has answered the question. Go on without an answer, or say what you cannot do.";
        match (call.name == ANSWER, answer) {
            (true, answer) => self.answer_child(tool_calls, call, answer.as_deref().unwrap_or(UNANSWERED)).await,
            (false, Some(answer)) => self.answer(&call, ToolOutcome::text(answer)),
            (false, None) => self.answer(&call, ToolOutcome::error("unanswered", UNANSWERED)),
        }
    }

    /// Handles a call of [`ANSWER`].
    pub(super) async fn answer_agent(&mut self, tool_calls: &mut ToolCalls, call: ToolCall) -> Result<()> {
        let given: AnswerGiven = match serde_json::from_value(call.arguments.clone()) {
            Ok(given) => given,
            Err(error) => {
                let words = format!("The arguments of {ANSWER} are wrong: {error}.");
                return self.answer(&call, ToolOutcome::error("invalid_arguments", words));
            }
        };
        let Some(asked) = self.asked_by(&call).cloned() else { return self.answer(&call, unknown(&given.id)) };
        match given {
            AnswerGiven { answer: Some(answer), pass_on: false, .. } => {
                self.answer_child(tool_calls, call, &answer).await
            }
            AnswerGiven { pass_on: true, .. } => self.escalate(tool_calls, call, &asked.question),
            AnswerGiven { .. } => {
                let words = format!("The arguments of {ANSWER} are wrong: give an answer, or pass_on.");
                self.answer(&call, ToolOutcome::error("invalid_arguments", words))
            }
        }
    }

    /// Answers a child, and waits for what it says then: that is the result of the call.
    async fn answer_child(&mut self, tool_calls: &mut ToolCalls, call: ToolCall, answer: &str) -> Result<()> {
        let id = call.arguments["id"].as_str().unwrap_or_default().to_owned();
        let Some(place) = self.state.asking.iter().position(|asked| asked.id == id) else {
            return self.answer(&call, unknown(&id));
        };
        let asked = self.state.asking.remove(place);
        let Some(delegate) = self.tools.get(&asked.name).and_then(|tool| tool.gives(Giving::Delegates)).cloned() else {
            let words = format!("The agent {} is there no more.", asked.name);
            return self.answer(&call, ToolOutcome::error("agent_gone", words));
        };
        // A later segment hears of a child that it joins again.
        let (options, input) = (delegate.options(Some(asked.id.clone())), Payload::of(&asked.input)?);
        let child = ChildCall { kind: delegate.kind.as_str().into(), input, options, hand_off: None };
        let (child, start) = self.ctx.spawn_raw(child)?;
        match self.ctx.respond(&asked.request, answer)?.await {
            Ok(()) => {}
            // It no longer waits for the answer; its end says why.
            Err(error) if matches!(error.code(), Code::AlreadyExists | Code::ExecutionClosed) => {}
            Err(error) => return Err(error),
        }
        let news = self.ctx.wait_for_child_event(child, None)?;
        let working = Working { call, child, id: asked.id, input: asked.input, delegate, is_stopping: false };
        tool_calls.children.push((working, News::new(news, start)));
        Ok(())
    }

    /// Takes note of a question of a child. The model gets it as the result of the call that the child works for.
    pub(super) fn on_question(&mut self, working: Working, request: ChildRequest, question: String) -> Result<()> {
        let Working { call, delegate, id, input, .. } = working;
        let name = delegate.name.clone();
        let one = AskedByChild { question, request, name, id, input };
        self.answer(&call, asked(&one))?;
        self.state.was_asked = true;
        self.state.asking.push(one);
        Ok(())
    }
}

/// The question as a person is asked it.
fn required(agent: &str, call: &ToolCall, question: &str) -> Result<InputRequired> {
    let questions = questions(question);
    let bound = json!({ "id": call.id, "arguments": call.arguments, "questions": questions });
    Ok(InputRequired {
        server: agent.to_owned(),
        tool: call.name.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        hash: CallHash::of(&call.name, &bound)?,
        questions,
        state: None,
        given: BTreeMap::new(),
        task: None,
        open_call: None,
        sampling: BTreeMap::new(),
        may_repeat: false,
    })
}

/// The form of a question.
pub(crate) fn questions(question: &str) -> BTreeMap<String, InputQuestion> {
    let schema = json!({
        "type": "object",
        "properties": { FIELD: { "type": "string", "title": "Answer" } },
        "required": [FIELD]
    });
    BTreeMap::from([(FIELD.to_owned(), InputQuestion::Form { message: question.to_owned(), schema })])
}

/// The answer of a person; none where they gave none.
pub(crate) fn answer_of(responses: &BTreeMap<String, InputResponse>) -> Option<String> {
    match responses.get(FIELD)? {
        InputResponse::Accept { content: Some(content) } => content[FIELD].as_str().map(str::to_owned),
        _ => None,
    }
}
