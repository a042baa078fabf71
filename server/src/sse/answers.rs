//! Waits for the answer of a turn. It is read from what is durable, so that the same turn has the same answer wherever it is asked for.

use super::projection::{Answer, Ending, Order, Projection, TurnLocation, Turns};
use super::turns::CONTENT;
use crate::rest::{Problem, UsageView};
use crate::service::{Service, checkpoint_id};
use flovyn_core::client::Following;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{ExecutionId, OrgId, SignalId};
use flovyn_core::model::{EventKind, StreamEvent};
use flovyn_core::payload::{Body, Encoding};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

/// A turn and what it has come to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Turn)]
pub(super) struct TurnView {
    /// The turn: the id of the signal that has begun it.
    turn_id: Uuid,
    /// `complete`, or `awaiting_human` where a person has to answer what is `pending`.
    #[schema(example = "complete")]
    status: &'static str,
    /// Why it stopped, in the agent's word: `end`, `length`, `refusal`, `max_turns`, `budget`, `interrupted`, …; `steered` where the
    /// next message came before its end, whose turn has the answer to both. Null while it awaits somebody.
    #[schema(example = "end")]
    stop_reason: Option<String>,
    /// The text of the last answer, or a value of the form that the agent was to give it; null where there is none.
    #[schema(value_type = Option<serde_json::Value>, example = "Crabs, urchins and clams.")]
    output: Option<Value>,
    /// The calls of tools, in their order.
    tool_calls: Vec<CallView>,
    /// What its model calls have cost.
    usage: UsageView,
    /// The last checkpoint at its end.
    checkpoint_id: Option<Uuid>,
    /// What people are asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<PendingView>,
}

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TurnToolCall)]
struct CallView {
    id: String,
    name: String,
    /// A text where the model has written no JSON object.
    #[schema(value_type = serde_json::Value)]
    arguments: Value,
    /// The text that the model got.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    /// `completed`, `failed`, `denied`, `awaiting_human` or, where the turn was left before its result, `open`.
    status: &'static str,
}

/// What a person is asked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TurnPending)]
struct PendingView {
    /// `approval`, answered among the `approvals` of the next turn, or `input`, among its `inputs`.
    kind: &'static str,
    /// The call.
    id: String,
    /// What the answer has to name.
    hash: String,
    /// The tool.
    name: String,
    /// Of an approval: the arguments of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    arguments: Option<Value>,
    /// Of an input: the questions, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    questions: Option<Value>,
}

/// What a turn has come to: its answer, or why it has none.
pub(super) type Outcome = std::result::Result<TurnView, Error>;

/// How the events of a turn are read.
#[derive(Debug, Clone)]
pub(super) enum Reading {
    /// From the message on that came behind an event, and that says a text.
    Message { before: String, text: Option<String>, order: Order },
    /// The turn that was under way at an event, whole.
    UnderWay { at: String },
}

/// Reads a turn until its end.
pub(super) struct Answers {
    service: Service,
    org: OrgId,
    run: ExecutionId,
    id: SignalId,
    reading: Reading,
    following: Following,
    answer: Answer,
    /// The last event that was read.
    last: String,
}

impl Answers {
    /// Reads a turn of a run that a signal has begun.
    pub(super) async fn new(
        service: Service,
        org: OrgId,
        run: ExecutionId,
        id: SignalId,
        reading: Reading,
    ) -> Result<Self> {
        let turns = Turns { storage: &*service.storage, org, run };
        let location = Self::location(&turns, &reading).await?;
        let counts_before = !matches!(reading, Reading::Message { order: Order::Behind(_), .. });
        let following = service.follow(org, run, &location.after).with_content_up_to(CONTENT);
        let (last, answer) = (location.after.clone(), Answer::new(location, counts_before));
        Ok(Self { service, org, run, id, reading, following, answer, last })
    }

    /// Where it is read.
    pub(super) async fn location(turns: &Turns<'_>, reading: &Reading) -> Result<TurnLocation> {
        let latest = turns.latest().await?;
        Ok(match reading.clone() {
            Reading::Message { before, text, order } => Turns::answer(before, latest, text, order),
            Reading::UnderWay { at } => Turns::whole(&turns.find(&at).await?, latest),
        })
    }

    /// Reads what is there already; whether the turn has ended with it.
    pub(super) async fn catch_up(&mut self) -> Result<bool> {
        while !self.answer.is_complete() && !self.answer.is_caught_up() {
            if !self.read().await? {
                return Ok(true);
            }
        }
        Ok(self.answer.is_complete())
    }

    /// Reads the next event; false behind the last one.
    async fn read(&mut self) -> Result<bool> {
        let Some(event) = self.following.next().await? else {
            self.answer.end();
            return Ok(false);
        };
        self.answer.take(&event);
        if let StreamEvent::Durable(_) = &event.event {
            self.last = event.cursor.to_string();
        }
        Ok(true)
    }

    /// The answer, once the turn has ended. Whoever drops the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Outcome> {
        loop {
            while !self.answer.is_complete() && self.read().await? {}
            if self.answer.has_begun || self.answer.failure.is_some() {
                return self.outcome().await;
            }
            let storage = self.service.storage.clone();
            let turns = Turns { storage: &*storage, org: self.org, run: self.run };
            if self.answer.ended_with == Some(EventKind::Waiting) {
                let found = turns.find(&self.last).await?;
                if !found.is_over && found.asked.is_some() {
                    let earlier = Reading::UnderWay { at: self.last.clone() };
                    return self.behind(Self::location(&turns, &earlier).await?).await;
                }
            }
            let mail = turns.mail(self.id, "").await?;
            if mail.is_some_and(|mail| mail.signal.consumed_by.is_none()) {
                return Ok(Err(self.unheard()));
            }
            match &mut self.reading {
                // Its agent appends no messages of its user: whatever it has appended behind it is the answer.
                Reading::Message { before, order: order @ Order::Behind(_), .. } => {
                    *order = Order::Next;
                    let location = Turns::answer(before.clone(), self.last.clone(), None, Order::Next);
                    self.following = self.service.follow(self.org, self.run, before).with_content_up_to(CONTENT);
                    self.answer = Answer::new(location, true);
                }
                _ => return self.outcome().await,
            }
        }
    }

    /// The turn waits behind one in which people are asked: they are to answer that first.
    async fn behind(&mut self, location: TurnLocation) -> Result<Outcome> {
        let mut following = self.service.follow(self.org, self.run, &location.after).with_content_up_to(CONTENT);
        let mut earlier = Answer::new(TurnLocation { until: self.last.clone(), ..location }, false);
        while !earlier.is_complete() {
            let Some(event) = following.next().await? else { break };
            earlier.take(&event);
        }
        let mut view = self.view(&self.answer, None);
        (view.status, view.stop_reason, view.pending) = ("awaiting_human", None, pending(&earlier));
        Ok(Ok(view))
    }

    async fn outcome(&mut self) -> Result<Outcome> {
        if let Some((message, code)) = &self.answer.failure {
            let next = match self.answer.ended_with {
                Some(EventKind::Failed) => "POST /agent-executions/{id}/retry tries it again from its last commit",
                Some(EventKind::Paused) => "POST /agent-executions/{id}/resume lets it go on",
                _ => "the run goes on: send another turn",
            };
            let error = Error::new(Code::AgentFailed, format!("the turn has no answer: {message} ({next})"));
            let error = code.iter().fold(error, |error, code| error.with("error", code));
            return Ok(Err(error.with("turn", self.id)));
        }
        Ok(match self.answer.ending {
            Some(Ending::Cancelled) => {
                let message = "the turn has no answer: the run was cancelled; start another one, or fork it";
                Err(Error::new(Code::AgentCancelled, message).with("turn", self.id))
            }
            None => Err(self.unheard()),
            Some(_) => {
                let output = match (self.answer.ended_with, self.answer.run) {
                    (Some(EventKind::Completed), Some(run)) => self.output(run).await?,
                    _ => None,
                };
                Ok(self.view(&self.answer, output))
            }
        })
    }

    fn unheard(&self) -> Error {
        let ended = self.answer.ended_with.is_some_and(EventKind::is_terminal);
        let (code, message) = match ended {
            true => {
                (Code::ExecutionClosed, "the run has ended before it read the message; start another one, or fork it")
            }
            false => (
                Code::InvalidTransition,
                "the run does not listen: it waits for other signals than `userMessage`, so the message lies in its mailbox; \
                 POST /agent-executions/{id}/signal sends what it waits for",
            ),
        };
        Error::new(code, message).with("id", self.run).with("turn", self.id)
    }

    /// What a run has returned; none of what is large.
    async fn output(&mut self, run: ExecutionId) -> Result<Option<Value>> {
        let storage = self.service.storage.clone();
        let Some(output) = storage.execution(self.org, run).await?.output else { return Ok(None) };
        let bytes = match &output.body {
            _ if output.encoding != Encoding::Json || output.size() > CONTENT => return Ok(None),
            Body::Inline(bytes) => bytes.clone(),
            _ => storage.read_payload(self.org, &output).await?,
        };
        Ok(serde_json::from_slice(&bytes).ok().filter(|value: &Value| !value.is_null()))
    }

    fn view(&self, answer: &Answer, returned: Option<Value>) -> TurnView {
        let pending = pending(answer);
        let mut stop_reason = match &answer.ending {
            Some(Ending::Done(word)) if pending.is_empty() => Some(word.clone()),
            Some(Ending::Steered) => Some(answer.stop_before_next().unwrap_or("steered").to_owned()),
            _ => None,
        };
        let mut structured = answer.structured.clone();
        let mut otherwise = returned;
        // What the built-in agent returns has the answer in it, and why it stopped.
        if let Some(Value::Object(outcome)) = &mut otherwise
            && let (Some(Value::String(_)), Some(Value::String(word))) =
                (outcome.get("text"), outcome.get("stopReason"))
        {
            stop_reason = Some(word.clone());
            structured = outcome.remove("output").filter(|output| !output.is_null());
            otherwise = outcome.remove("text").filter(|text| *text != "");
        }
        let output = structured.or_else(|| answer.text().map(Value::String)).or(otherwise);
        TurnView {
            turn_id: self.id.0,
            status: if pending.is_empty() { "complete" } else { "awaiting_human" },
            stop_reason,
            output,
            tool_calls: calls(answer, &pending),
            usage: UsageView::of(&answer.usage),
            checkpoint_id: answer.checkpoint.map(|(run, sequence)| checkpoint_id(run, sequence)),
            pending,
        }
    }
}

fn pending(answer: &Answer) -> Vec<PendingView> {
    let approvals = answer.approvals().iter().map(|approval| PendingView {
        kind: "approval",
        id: approval.call.clone(),
        hash: approval.hash.clone(),
        name: approval.name.clone(),
        arguments: Some(approval.arguments.clone()),
        questions: None,
    });
    let asks = matches!(answer.ending, Some(Ending::Done(_) | Ending::Asks(_)));
    let questions = answer.questions().iter().filter(|_| asks).map(|asked| {
        let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
        let (id, hash, name) = (text("id"), text("hash"), text("name"));
        PendingView { kind: "input", id, hash, name, arguments: None, questions: Some(asked["questions"].clone()) }
    });
    approvals.chain(questions).collect()
}

fn calls(answer: &Answer, pending: &[PendingView]) -> Vec<CallView> {
    let calls = answer.calls.iter().map(|call| CallView {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        result: call.result.as_ref().map(|(text, _)| text.clone()),
        is_error: call.result.as_ref().map(|(_, is_error)| *is_error),
        status: match &call.result {
            _ if call.is_denied => "denied",
            Some((_, true)) => "failed",
            Some((_, false)) => "completed",
            None if pending.iter().any(|asked| asked.id == call.id) => "awaiting_human",
            None => "open",
        },
    });
    calls.collect()
}

/// A turn as it is shown, and its answer as the last event.
pub(super) struct AnsweredTurn {
    shown: Projection,
    answers: Answers,
    is_done: bool,
}

impl AnsweredTurn {
    /// Shows a turn, then its answer.
    pub(super) fn new(shown: Projection, answers: Answers) -> Self {
        Self { shown, answers, is_done: false }
    }

    /// Looks whether the events can be read from where they are to be.
    pub(super) async fn begin(&mut self) -> Result<bool> {
        self.shown.begin().await
    }

    /// The next frames; none after the last ones. Whoever drops the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(frames) = self.shown.next().await? {
            return Ok(Some(frames));
        }
        if self.is_done {
            return Ok(None);
        }
        let done = match self.answers.next().await? {
            Ok(view) => serde_json::to_value(view).unwrap_or_default(),
            Err(error) => {
                json!({ "turnId": self.answers.id.0, "status": "failed", "error": Problem::from(error).body() })
            }
        };
        self.is_done = true;
        Ok(Some(format!("event: done\ndata: {done}\n\n").into_bytes()))
    }
}
