//! The endpoints that front ends of others speak to: a message of the user in, the stream of the turn that answers it out.

use super::projection::{AgUi, AiSdk, Order, Position, Projection, TurnLocation, Turns, Writer, remember};
use super::sent::{AgUiRequest, AiSdkRequest, Sent, UserMessage};
use super::{Reader, stream};
use crate::limits::Rate;
use crate::rest::{Caller, Json, Problem, QueryParams};
use crate::service::{AgentInput, DEFINITION};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::{ExecutionId, SignalId};
use flovyn_core::model::{Delivery, Entry, Execution, MAX_ID, NewSignal, SignalStored, Status};
use flovyn_core::payload::{Body, Encoding};
use serde_json::{Value, json};
use std::str::FromStr;

/// The signals that the built-in agent waits for.
pub(super) const USER_MESSAGE: &str = "userMessage";
pub(super) const APPROVAL: &str = "approval";
pub(super) const INPUT: &str = "input";
/// The metadata of a run that a message has started: the id of the message.
const FIRST_MESSAGE: &str = "firstMessage";

/// Entries with larger content are shown as far as they were streamed.
pub(super) const CONTENT: u64 = 4 << 20;
/// Of the conversation before a turn a reader gets so many entries, with so much in them together.
const HISTORY: usize = 2_000;
const HISTORY_BYTES: u64 = 4 << 20;

/// A protocol of others, as requests name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The UI message stream of the AI SDK.
    AiSdk,
    /// AG-UI.
    AgUi,
}

impl FromStr for Format {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text {
            "ai-sdk" => Ok(Self::AiSdk),
            "ag-ui" => Ok(Self::AgUi),
            other => Err(Problem::invalid(format!(
                "the format {other:?} is none; there are `ai-sdk` and `ag-ui`, and without one the run's own events come"
            ))),
        }
    }
}

/// Takes a message of `useChat` and streams the answer, as `?format=ai-sdk` does.
///
/// The last message is read: one of the user goes to the run as the signal `userMessage`, once however often it is sent, by its id;
/// in one of the agent the answers to approvals. The stream ends where the agent waits for its user, or for a decision.
#[utoipa::path(
    post, path = "/agent-executions/{id}/ai-sdk", tag = "front ends", request_body = AiSdkRequest,
    params(("resets" = Option<bool>, Query, description = "`true` for `ai` 7 and later, which knows `reset-step`")),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(super) async fn ai_sdk(
    caller: Caller,
    query: QueryParams,
    Json(body): Json<AiSdkRequest>,
) -> Result<Response, Problem> {
    let (run, writer) = (caller.execution(), ai_sdk_writer(query)?);
    let sent = body.sent()?;
    let location = send(&caller, run, sent).await?;
    answer(caller, run, location, writer).await
}

/// Takes a run of AG-UI's `HttpAgent` and streams its events.
///
/// The last message, or the answers to interrupts in `resume`, go to the run. A run of AG-UI is a turn of ours: it ends where the agent
/// waits for its user, and with interrupts where a person has to decide.
#[utoipa::path(
    post, path = "/agent-executions/{id}/ag-ui", tag = "front ends", request_body = AgUiRequest,
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(super) async fn ag_ui(
    caller: Caller,
    query: QueryParams,
    Json(body): Json<AgUiRequest>,
) -> Result<Response, Problem> {
    query.reject_unknown()?;
    let run = caller.execution();
    let sent = body.sent()?;
    let location = send(&caller, run, sent).await?;
    answer(caller, run, location, ag_ui_writer(body)).await
}

/// As the endpoint of a run, for a predefined agent: `id` names the run, which the first message starts.
#[utoipa::path(
    operation_id = "ai_sdk_of_definition",
    post, path = "/agent-definitions/{definition}/ai-sdk", tag = "front ends", request_body = AiSdkRequest,
    params(("resets" = Option<bool>, Query, description = "`true` for `ai` 7 and later, which knows `reset-step`")),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(super) async fn ai_sdk_of_definition(
    caller: Caller,
    query: QueryParams,
    Json(body): Json<AiSdkRequest>,
) -> Result<Response, Problem> {
    let writer = ai_sdk_writer(query)?;
    let id = body.id.clone().ok_or_else(|| Problem::invalid("there is no id; it names the run of the chat"))?;
    let sent = body.sent()?;
    let (run, location) = start_or_send(&caller, &id, sent).await?;
    answer(caller, run, location, writer).await
}

/// As the endpoint of a run, for a predefined agent: `threadId` names the run, which the first message starts.
#[utoipa::path(
    operation_id = "ag_ui_of_definition",
    post, path = "/agent-definitions/{definition}/ag-ui", tag = "front ends", request_body = AgUiRequest,
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(super) async fn ag_ui_of_definition(
    caller: Caller,
    query: QueryParams,
    Json(body): Json<AgUiRequest>,
) -> Result<Response, Problem> {
    query.reject_unknown()?;
    let sent = body.sent()?;
    let (run, location) = start_or_send(&caller, &body.thread_id, sent).await?;
    answer(caller, run, location, ag_ui_writer(body)).await
}

/// The stream of the turn that is under way, or of what is behind a position that such a stream has given.
pub(super) async fn current(caller: Caller, format: Format, after: String, resets: bool) -> Result<Response, Problem> {
    let run = caller.run().await?;
    let id = run.new.id;
    let turns = turns(&caller, id);
    let (location, message) = match &after[..] {
        "" => {
            let latest = turns.latest().await?;
            let found = turns.find(&latest).await?;
            let is_over = found.is_over || run.status.is_terminal() || run.status == Status::Paused;
            let location = (!is_over).then(|| Turns::whole(&found, latest));
            (location, found.message.filter(|_| !is_over))
        }
        after => {
            let (location, message) = turns.again(Position::parse(after)).await?;
            (Some(location), message)
        }
    };
    match format {
        Format::AiSdk if location.is_none() => Ok(StatusCode::NO_CONTENT.into_response()),
        Format::AiSdk => project(caller, id, location, Writer::AiSdk(AiSdk { resets })).await,
        Format::AgUi => {
            let writer = with_history(&caller, &run, message.as_deref(), after.is_empty()).await?;
            project(caller, id, location, writer).await
        }
    }
}

pub(super) fn turns(caller: &Caller, run: ExecutionId) -> Turns<'_> {
    Turns { storage: &*caller.service.storage, org: caller.org(), run }
}

fn ai_sdk_writer(mut query: QueryParams) -> Result<Writer, Problem> {
    let resets = resets(&mut query)?;
    query.reject_unknown()?;
    Ok(Writer::AiSdk(AiSdk { resets }))
}

/// Whether the reader knows `reset-step`.
pub(super) fn resets(query: &mut QueryParams) -> Result<bool, Problem> {
    Ok(query.parse("resets", "true or false")?.unwrap_or(false))
}

fn ag_ui_writer(body: AgUiRequest) -> Writer {
    Writer::AgUi { writer: AgUi::new(body.thread_id, body.run_id, body.messages), with_messages: false }
}

async fn answer(caller: Caller, run: ExecutionId, location: TurnLocation, writer: Writer) -> Result<Response, Problem> {
    project(caller, run, Some(location), writer).await
}

async fn project(
    caller: Caller,
    run: ExecutionId,
    location: Option<TurnLocation>,
    writer: Writer,
) -> Result<Response, Problem> {
    let is_ai_sdk = matches!(writer, Writer::AiSdk(_));
    let projection = match location {
        Some(location) => {
            let following = caller.service.follow(caller.org(), run, &location.after).with_content_up_to(CONTENT);
            Projection::new(following, location, writer)
        }
        None => Projection::at_rest(writer),
    };
    let response = stream(caller, Reader::Turn(Box::new(projection)), None).await?;
    Ok(match is_ai_sdk {
        true => ([("x-vercel-ai-ui-message-stream", "v1")], response).into_response(),
        false => response,
    })
}

/// Sends what was sent to a run; where the turn is that answers it.
async fn send(caller: &Caller, run: ExecutionId, sent: Sent) -> Result<TurnLocation, Problem> {
    let turns = turns(caller, run);
    let at = turns.latest().await.map_err(|error| no_such_run(caller, error))?;
    if caller.service.storage.execution(caller.org(), run).await?.status == Status::Paused {
        let message = "the run is paused, and answers nothing; POST /agent-executions/{id}/resume lets it go on";
        return Err(Error::new(Code::InvalidTransition, message).with("id", run).into());
    }
    let found = turns.find(&at).await?;
    match sent {
        Sent::Message(message) => {
            let delivery = delivery(&message)?;
            let value = Payload::of(&message.value())?;
            let stored = signal(caller, run, USER_MESSAGE, value, delivery, &message.id).await?;
            let latest = turns.latest().await?;
            if stored.repeated {
                return Ok(Turns::whole(&turns.find(&latest).await?, latest));
            }
            let text = Some(message.text).filter(|text| !text.is_empty());
            Ok(Turns::answer(at, latest, text, Order::first(stored.resumed || found.is_over)))
        }
        Sent::Answers(answers) => {
            let mut is_news = false;
            for answer in answers {
                let value = Payload::of(&answer.value())?;
                is_news |= !signal(caller, run, APPROVAL, value, Delivery::NextStep, &answer.id).await?.repeated;
            }
            // Sent again, they are answered with what followed them.
            let at = found.asked.clone().filter(|_| !is_news).unwrap_or(at);
            Ok(Turns::rest(&found, at, turns.latest().await?))
        }
    }
}

async fn signal(
    caller: &Caller,
    run: ExecutionId,
    name: &str,
    payload: Payload,
    delivery: Delivery,
    key: &str,
) -> Result<SignalStored, Problem> {
    let signal = NewSignal {
        org: caller.org(),
        execution: run,
        id: SignalId::fresh(),
        name: name.to_owned(),
        payload,
        delivery,
        idempotency_key: Some(key.to_owned()),
    };
    caller.service.signal(&caller.by, signal).await.map_err(|error| no_such_run(caller, error))
}

pub(super) fn delivery(message: &UserMessage) -> Result<Delivery, Problem> {
    let Some(word) = &message.delivery else { return Ok(Delivery::NextStep) };
    let read = serde_json::from_value(json!(word));
    read.map_err(|_| Problem::invalid(format!("the delivery {word:?} is none; there are next_step, next_turn and now")))
}

/// Says how a run comes to be, where there is none.
pub(super) fn no_such_run(caller: &Caller, error: Error) -> Problem {
    if error.code() != Code::ExecutionNotFound {
        return error.into();
    }
    let id = caller.named("id");
    let detail = format!(
        "no run of this org has the id {id:?}; start it with POST /agent-executions, or send to /agent-definitions/…, where the \
         first message starts it"
    );
    Problem::from(Error::new(Code::ExecutionNotFound, detail))
}

/// Starts a run of a predefined agent with its first message, or sends to the one that is there.
async fn start_or_send(caller: &Caller, id: &str, sent: Sent) -> Result<(ExecutionId, TurnLocation), Problem> {
    if !(1..=MAX_ID).contains(&id.len()) {
        return Err(Problem::invalid(format!("the id of the chat has {} bytes; give it 1 to {MAX_ID}", id.len())));
    }
    let (org, run) = (caller.org(), ExecutionId::of_key(caller.org(), id));
    let definition = caller.service.definition(org, caller.named("definition")).await?;
    let known = match caller.service.storage.execution(org, run).await {
        Ok(known) => known,
        Err(error) if error.code() == Code::ExecutionNotFound => {
            let Sent::Message(message) = sent else {
                return Err(Problem::invalid(format!("there is no run {id:?} that could have asked for an approval")));
            };
            start(caller, id, &message).await?;
            return Ok((run, Turns::first()));
        }
        Err(error) => return Err(error.into()),
    };
    let metadata = &known.new.metadata;
    if metadata.get(DEFINITION) != Some(&definition.id.to_string()) {
        let message = format!("the id {id:?} is taken by a run of another agent; choose another id");
        return Err(Error::new(Code::ExecutionExists, message).with("id", run).into());
    }
    match &sent {
        // It has started the run.
        Sent::Message(message) if metadata.get(FIRST_MESSAGE) == Some(&message.id) => {
            let turns = turns(caller, run);
            let latest = turns.latest().await?;
            Ok((run, Turns::whole(&turns.find(&latest).await?, latest)))
        }
        _ => Ok((run, send(caller, run, sent).await?)),
    }
}

async fn start(caller: &Caller, id: &str, message: &UserMessage) -> Result<(), Problem> {
    caller.service.count(Rate::Create, caller.org(), &caller.by.who).await?;
    let said = AgentInput {
        system_prompt: None,
        user_prompt: Some(json!(message.text)),
        models: None,
        tools: None,
        config: None,
    };
    let (spec, mut input) = caller.service.start_of_definition(caller.org(), caller.named("definition"), said).await?;
    if let Value::Object(config) = &mut input["config"] {
        config.entry("mode").or_insert_with(|| json!("chat"));
    }
    if !message.parts.is_empty() {
        input["userParts"] = message.parts.clone().into();
    }
    let metadata = spec.metadata.into_iter().chain([(FIRST_MESSAGE.to_owned(), message.id.clone())]).collect();
    let options =
        StartOptions { id: Some(id.to_owned()), queue: Some(spec.queue), metadata, ..StartOptions::default() };
    caller.service.start(options.execution(caller.org(), &spec.kind, Payload::of(&input)?)?).await?;
    Ok(())
}

/// A writer of AG-UI that knows the conversation up to the entry of a message, or all of it.
async fn with_history(
    caller: &Caller,
    run: &Execution,
    upto: Option<&str>,
    with_messages: bool,
) -> Result<Writer, Problem> {
    let name = upto.unwrap_or("at-rest").to_owned();
    let mut writer = AgUi::new(caller.named("id").to_owned(), name, Vec::new());
    let storage = &caller.service.storage;
    let mut branch = match run.leaf {
        Some(leaf) => storage.branch(caller.org(), leaf, None).await?,
        None => Vec::new(),
    };
    if let Some(location) = branch.iter().position(|entry| upto.is_some_and(|upto| entry.new.id.to_string() == upto)) {
        branch.truncate(location + 1);
    }
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for entry in branch.iter().rev().take(HISTORY) {
        bytes += entry.new.content.size();
        if bytes > HISTORY_BYTES {
            break;
        }
        entries.push(as_event(caller, entry).await?);
    }
    entries.reverse();
    remember(&mut writer, &entries);
    Ok(Writer::AgUi { writer, with_messages })
}

/// An entry as its event has it.
async fn as_event(caller: &Caller, entry: &Entry) -> Result<Value, Problem> {
    let new = &entry.new;
    let mut event = json!({ "entry": new.id, "role": new.role, "entry_type": new.entry_type });
    let bytes = match &new.content.body {
        _ if new.content.encoding != Encoding::Json => None,
        Body::Inline(bytes) => Some(bytes.clone()),
        Body::Stored { .. } => Some(caller.service.storage.read_payload(caller.org(), &new.content).await?),
        _ => None,
    };
    if let Some(bytes) = bytes {
        event["content"] = serde_json::from_slice(&bytes).unwrap_or_default();
    }
    Ok(event)
}
