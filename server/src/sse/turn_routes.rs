//! Turns over plain HTTP: a message in, the answer out, in one request.

use super::answers::{AnsweredTurn, Answers, Reading, TurnView};
use super::projection::{Mail, Order, Projection, Writer, user_text};
use super::turn_request::{Begins, Decision, TurnRequest};
use super::turns::{APPROVAL, CONTENT, INPUT, USER_MESSAGE, delivery, no_such_run, turns};
use super::{Reader, stream};
use crate::rest::{Caller, Json, Problem, QueryParams, idempotency_key};
use crate::service::StreamPermit;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flovyn_core::Payload;
use flovyn_core::error::{Code, Error};
use flovyn_core::id::SignalId;
use flovyn_core::model::{Delivery, Execution, MAX_ID, NewSignal, Status, StreamEvent};
use flovyn_core::payload::{Body, Encoding};
use futures::FutureExt;
use futures::future::select;
use serde::Serialize;
use serde_json::Value;
use std::pin::pin;
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

/// A turn that goes on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TurnUnderWay)]
pub(super) struct UnderWay {
    /// The turn.
    turn_id: Uuid,
    /// `running`.
    #[schema(example = "running")]
    status: &'static str,
    /// Where its answer is; so says `Location`.
    href: String,
    /// What to do.
    detail: &'static str,
}

const GOES_ON: &str =
    "the turn goes on; GET href with `Prefer: wait=30`, or send the same request again with its Idempotency-Key";

/// Sends a message and answers when its turn ends: where the run waits for the next message, for a person, or has ended.
///
/// With an Idempotency-Key a retried request is the same turn, with the same answer, also once it has ended. `Prefer: wait=N` bounds the
/// wait: after N seconds the answer is 202, with where to look. Instead of a message there may be answers to what was asked.
#[utoipa::path(
    post, path = "/agent-executions/{id}/turns", tag = "turns", request_body = TurnRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: answer after N seconds at the latest"),
    ),
    responses(
        (status = 200, description = "The turn has ended", body = TurnView),
        (status = 202, description = "The turn goes on; `Location` says where its answer will be", body = UnderWay),
    )
)]
pub(super) async fn turn(
    caller: Caller,
    query: QueryParams,
    headers: HeaderMap,
    Json(body): Json<TurnRequest>,
) -> Result<Response, Problem> {
    query.reject_unknown()?;
    let wait = wait_of(&headers)?;
    // Nothing is sent by who may not wait for its answer.
    let open = caller.open_stream().await?;
    let (id, reading) = send(&caller, &headers, body).await?;
    answer(&caller, &open, id, reading, wait).await
}

/// Sends a message and streams its turn: the events `thought`, `message`, `tool_call` and `tool_result`, and last `done` with what the
/// turn without a stream is answered with.
///
/// Sent again with the same Idempotency-Key the same turn is streamed from its start.
#[utoipa::path(
    post, path = "/agent-executions/{id}/turns/stream", tag = "turns", request_body = TurnRequest,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(super) async fn stream_turn(
    caller: Caller,
    query: QueryParams,
    headers: HeaderMap,
    Json(body): Json<TurnRequest>,
) -> Result<Response, Problem> {
    query.reject_unknown()?;
    let (id, reading) = send(&caller, &headers, body).await?;
    let (run, org) = (caller.execution(), caller.org());
    let location = Answers::location(&turns(&caller, run), &reading).await?;
    let following = caller.service.follow(org, run, &location.after).with_content_up_to(CONTENT);
    let shown = Projection::new(following, location, Writer::Plain);
    let answers = Answers::new(caller.service.clone(), org, run, id, reading).await?;
    stream(caller, Reader::Answered(Box::new(AnsweredTurn::new(shown, answers))), None).await
}

/// The answer of a turn; 202 while it goes on. `Prefer: wait=N` waits N seconds for it.
#[utoipa::path(
    operation_id = "turn_of_id",
    get, path = "/agent-executions/{id}/turns/{turnId}", tag = "turns",
    params(("Prefer" = Option<String>, Header, description = "`wait=N`: wait N seconds for its end")),
    responses((status = 200, body = TurnView), (status = 202, description = "The turn goes on", body = UnderWay))
)]
pub(super) async fn turn_of_id(caller: Caller, query: QueryParams, headers: HeaderMap) -> Result<Response, Problem> {
    query.reject_unknown()?;
    let wait = wait_of(&headers)?.unwrap_or_default();
    let named = caller.named("turnId");
    let known = match named.parse::<SignalId>() {
        Ok(id) => turns(&caller, caller.run().await?.new.id).mail(id, "").await?,
        Err(_) => None,
    };
    let known = known.filter(|mail| [USER_MESSAGE, APPROVAL, INPUT].contains(&&*mail.signal.name));
    let Some(mail) = known else {
        return Err(Problem::not_found(format!(
            "{named:?} is no turn of this run; the answer to a turn names its turnId"
        )));
    };
    let text = match mail.signal.name == USER_MESSAGE {
        true => text_of(&caller, &mail.signal.payload).await?,
        false => None,
    };
    let id = mail.signal.id;
    let reading = reading(&caller, mail, text).await?;
    let open = caller.open_stream().await?;
    answer(&caller, &open, id, reading, Some(wait)).await
}

/// Waits for the answer of a turn, as long as the caller wants to.
async fn answer(
    caller: &Caller,
    open: &StreamPermit,
    id: SignalId,
    reading: Reading,
    wait: Option<Duration>,
) -> Result<Response, Problem> {
    let mut answers = Answers::new(caller.service.clone(), caller.org(), caller.execution(), id, reading).await?;
    if answers.catch_up().await? {
        return Ok(axum::Json(answers.next().await??).into_response());
    }
    let (stopped, lapsed) = (caller.service.stopped(), caller.service.access.until_revoked(open.who()));
    let ends = async {
        let cut = async { select(pin!(stopped), pin!(lapsed)).map(drop).await };
        match wait {
            // What comes first ends it.
            Some(wait) => tokio::time::timeout(wait, cut).await.unwrap_or_default(),
            None => cut.await,
        }
    };
    tokio::select! {
        biased;
        outcome = answers.next() => Ok(axum::Json(outcome??).into_response()),
        () = ends => {
            let href = format!("/api/orgs/{}/agent-executions/{}/turns/{id}", caller.named("org"), caller.execution());
            let at: [(HeaderName, String); 1] = [(header::LOCATION, href.clone())];
            let body = UnderWay { turn_id: id.0, status: "running", href, detail: GOES_ON };
            Ok((StatusCode::ACCEPTED, at, axum::Json(body)).into_response())
        }
    }
}

/// Sends what begins a turn, once by its key; the turn, and how it is read.
async fn send(caller: &Caller, headers: &HeaderMap, body: TurnRequest) -> Result<(SignalId, Reading), Problem> {
    let key = body.idempotency_key.clone().or(idempotency_key(headers)?);
    if key.as_ref().is_some_and(|key| !(1..=MAX_ID).contains(&key.len())) {
        return Err(Problem::invalid(format!("an idempotencyKey has 1 to {MAX_ID} bytes")));
    }
    let (run, begins) = (caller.execution(), body.begins()?);
    let turns = turns(caller, run);
    let at = turns.latest().await.map_err(|error| no_such_run(caller, error))?;
    let holder = caller.service.storage.execution(caller.org(), turns.holder(&at).await?).await?;
    let (signals, text) = match begins {
        Begins::Message(message) => {
            let (value, delivery) = (Payload::of(&message.value())?, delivery(&message)?);
            let signal = signal(caller, USER_MESSAGE, key, value, delivery);
            (vec![signal], Some(message.text).filter(|text| !text.is_empty()))
        }
        Begins::Decisions(decisions) => {
            let signals = decisions.into_iter().map(|Decision { name, key, value }| {
                Ok(signal(caller, name, Some(key), Payload::of(&value)?, Delivery::NextStep))
            });
            (signals.collect::<Result<_, Error>>()?, None)
        }
    };
    if let Some(refusal) = refusal(&holder, &signals) {
        // What was sent before is read again, whatever the run does now.
        if turns.mail(signals[0].id, "").await?.is_none() {
            return Err(refusal.with("id", run).into());
        }
    }
    let mut first = None;
    for signal in signals {
        let stored = caller.service.signal(&caller.by, signal).await.map_err(|error| no_such_run(caller, error))?;
        first.get_or_insert(stored);
    }
    let stored = first.ok_or_else(|| Problem::invalid("there is nothing to send"))?;
    let mail = turns.mail(stored.id, if stored.repeated { "" } else { &at }).await?;
    let mail = mail.ok_or_else(|| {
        Problem::from(Error::new(Code::NotPersisted, "the run has not kept the message, so its turn cannot be read"))
    })?;
    Ok((stored.id, reading(caller, mail, text).await?))
}

/// How the turn is read that a signal has begun.
async fn reading(caller: &Caller, mail: Mail, text: Option<String>) -> Result<Reading, Problem> {
    let Mail { signal, before } = mail;
    if signal.name != USER_MESSAGE {
        return Ok(Reading::UnderWay { at: before });
    }
    let turns = turns(caller, caller.execution());
    let found = turns.find(&before).await?;
    if found.is_over {
        return Ok(Reading::Message { before, text, order: Order::Next });
    }
    // Who says the same again is not taken for who said it first: so many messages like it came, and so many were read.
    let (mut from, mut others) = (None, 0_usize);
    for earlier in turns.earlier_mail(&before, USER_MESSAGE).await? {
        if text.is_none() || text_of(caller, &earlier.signal.payload).await? == text {
            from.get_or_insert(earlier.before);
            others += 1;
        }
    }
    if let Some(from) = from {
        let mut following = caller.service.follow(caller.org(), caller.execution(), &from).with_content_up_to(CONTENT);
        while let Some(event) = following.next().await? {
            if user_text(&event.event).is_some_and(|said| text.as_deref().is_none_or(|text| text == said)) {
                others = others.saturating_sub(1);
            }
            if matches!(event.event, StreamEvent::Durable(_)) && *event.cursor == *before {
                break;
            }
        }
    }
    Ok(Reading::Message { before, text, order: Order::Behind(others) })
}

/// A signal whose id follows from its key, so that it is known again.
fn signal(caller: &Caller, name: &str, key: Option<String>, payload: Payload, delivery: Delivery) -> NewSignal {
    let execution = caller.execution();
    let known = key.as_ref().map(|key| Uuid::new_v5(&execution.0, format!("turn\0{name}\0{key}").as_bytes()));
    NewSignal {
        org: caller.org(),
        execution,
        id: known.map_or_else(SignalId::fresh, SignalId),
        name: name.to_owned(),
        payload,
        delivery,
        idempotency_key: key,
    }
}

/// Why a run reads no such signals now; none where it does, or may.
fn refusal(run: &Execution, signals: &[NewSignal]) -> Option<Error> {
    if run.status == Status::Paused {
        let message = "the run is paused, and answers nothing; POST /agent-executions/{id}/resume lets it go on";
        return Some(Error::new(Code::InvalidTransition, message));
    }
    let wait = run.wait.as_ref().filter(|wait| run.status == Status::Waiting && !wait.signals.is_empty())?;
    let goes_on = wait.timers || wait.tasks || wait.host_timer || wait.ends.is_some();
    let unread = signals.iter().find(|signal| !wait.signals.contains(&signal.name))?;
    if goes_on {
        return None;
    }
    let awaited = wait.signals.join(", ");
    let message = match &unread.name[..] {
        USER_MESSAGE => format!(
            "the run does not listen for messages: it waits for {awaited}; POST /agent-executions/{{id}}/signal sends that"
        ),
        _ => format!(
            "the run asks nothing that this would answer: it waits for {awaited}; who came first may have answered it already"
        ),
    };
    Some(Error::new(Code::InvalidTransition, message))
}

/// What a message says; none of what is large.
async fn text_of(caller: &Caller, payload: &Payload) -> Result<Option<String>, Problem> {
    let bytes = match &payload.body {
        _ if payload.encoding != Encoding::Json || payload.size() > CONTENT => return Ok(None),
        Body::Inline(bytes) => bytes.clone(),
        _ => caller.service.storage.read_payload(caller.org(), payload).await?,
    };
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let text = value["text"].as_str().or(value.as_str());
    Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
}

/// How long a caller wants to wait (RFC 7240); none where it does not say.
fn wait_of(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    for header in headers.get_all("prefer") {
        let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
        for preference in text.split([',', ';']) {
            let Some((name, value)) = preference.split_once('=') else { continue };
            if !name.trim().eq_ignore_ascii_case("wait") {
                continue;
            }
            let seconds = value.trim().trim_matches('"').parse::<u32>();
            let seconds = seconds.map_err(|_| {
                Problem::invalid(format!(
                    "the preference {:?} is none; write wait=N with a number of seconds",
                    preference.trim()
                ))
            })?;
            return Ok(Some(Duration::from_secs(seconds.into())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_among_other_preferences() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", header::HeaderValue::from_static(text));
            wait_of(&headers).ok()
        };
        for (text, seconds) in [("wait=10", 10), ("respond-async, Wait = 0", 0), ("handling=lenient; wait=\"7\"", 7)] {
            assert_eq!(read(text), Some(Some(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(read("respond-async"), Some(None));
        assert_eq!(wait_of(&HeaderMap::new()).ok(), Some(None));
        for wrong in ["wait=-1", "wait=soon", "wait=1.5", "wait="] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
