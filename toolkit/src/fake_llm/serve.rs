//! The server: connections, routes, and bodies that play their steps.

use super::State;
use super::checks::check;
use super::choose::{choose, next_fault, render};
use super::frames::{Plan, Step, plan};
use super::record::{Outcome, Recorded};
use super::request::ScriptedRequest;
use super::script::{FaultKind, Oddity, Pace, Turn};
use super::{oddities, wire_anthropic, wire_chat, wire_responses};
use crate::provider::Api;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The largest request: more than any conversation.
const MOST_BYTES: usize = 256 << 20;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// Serves until it is dropped.
pub(super) async fn serve(listener: std::net::TcpListener, state: Arc<State>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        // A connection that failed before it was taken is the client's loss.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _slow = stream.set_nodelay(true);
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            // A client that leaves in the middle is recorded with its request.
            let _left =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(state: &Arc<State>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let api = match (request.method(), path.rsplit('/').next().unwrap_or_default()) {
        (&Method::POST, "messages") => Api::AnthropicMessages,
        (&Method::POST, "completions") => Api::OpenaiChat,
        (&Method::POST, "responses") => Api::OpenaiResponses,
        (&Method::GET, "models") => return models(state),
        (&Method::GET, "requests") => return json_answer(StatusCode::OK, &json!(state.records.all())),
        (method, _) => {
            let message = format!("{method} {path} is nothing that this server knows");
            return refusal(StatusCode::NOT_FOUND, &message, None);
        }
    };
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MOST_BYTES).collect().await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request did not come to its end", None);
    };
    let bytes = body.to_bytes();
    let headers: BTreeMap<String, String> = head
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect();
    model_call(state, api, headers, &bytes).await
}

async fn model_call(state: &Arc<State>, api: Api, headers: BTreeMap<String, String>, bytes: &[u8]) -> Answer {
    let parsed = serde_json::from_slice::<Value>(bytes);
    let body = parsed.as_ref().cloned().unwrap_or(Value::Null);
    let request = ScriptedRequest::read(api, &body, bytes.len());
    let kept: BTreeMap<_, _> = headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "authorization" | "x-api-key"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let nth = state.records.arrive(|nth| Recorded {
        nth,
        api,
        model: request.model.clone(),
        headers: kept,
        body: body.clone(),
        turn: request.turn,
        played: None,
        outcome: Outcome::Answering,
    });
    let refuse = |status: u16, reason: String, wait: Option<f64>| {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let answer = refusal(status, &reason, wait);
        state.records.end(nth, Outcome::Refused { status: status.as_u16(), reason });
        answer
    };
    if let Err(error) = parsed {
        return refuse(400, format!("the request is no JSON: {error}"), None);
    }
    let key = headers.get("x-api-key").map(String::as_str);
    let key = key.or(headers.get("authorization").and_then(|value| value.strip_prefix("Bearer ")));
    if state.script.require.key.as_deref().is_some_and(|wanted| key != Some(wanted)) {
        return refuse(401, format!("the key {} is not the script's", key.unwrap_or("that is missing")), None);
    }
    let checked = check(&state.script, &request, &body, &state.issued.lock());
    if let Err((status, reason)) = checked {
        return refuse(status, reason, None);
    }
    let (index, turn, place) = match choose(&state.script, &request, nth, &headers) {
        Ok(chosen) => chosen,
        Err(reason) => return refuse(400, reason, None),
    };
    state.records.played(nth, index);
    let fault = next_fault(&mut state.plays.lock(), index, turn);
    match &fault {
        Some(FaultKind::Status { code, retry_after, message }) => {
            let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            state.records.end(nth, Outcome::Faulted);
            return refusal(status, message.as_deref().unwrap_or("played by the script"), *retry_after);
        }
        Some(FaultKind::SlowHead { ms }) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        _ => {}
    }
    let nothing = Turn { usage: turn.usage, ..Turn::default() };
    let said = if fault == Some(FaultKind::Empty) { &nothing } else { turn };
    let answer = render(index, said, place, &request);
    state.issued.lock().remember(&answer);
    let pace = turn.pace.unwrap_or(state.script.pace);
    let reasoning = state.script.reasoning;
    if !request.stream || turn.oddities.contains(&Oddity::Unstreamed) {
        state.records.end(nth, Outcome::Completed);
        let body = match api {
            Api::AnthropicMessages => wire_anthropic::whole(&answer),
            Api::OpenaiChat => wire_chat::whole(&answer, reasoning),
            Api::OpenaiResponses => wire_responses::whole(&answer),
        };
        return json_answer(StatusCode::OK, &oddities::of_whole(api, &turn.oddities, body));
    }
    let characters = if pace.chunk_chars == 0 { Pace::default().chunk_chars } else { pace.chunk_chars };
    let (frames, error): (_, fn(&str) -> _) = match api {
        Api::AnthropicMessages => (wire_anthropic::frames(&answer, characters), wire_anthropic::error),
        Api::OpenaiChat => (wire_chat::frames(&answer, characters, reasoning), wire_chat::error),
        Api::OpenaiResponses => (wire_responses::frames(&answer, characters), wire_responses::error),
    };
    let frames = oddities::of_frames(api, &turn.oddities, frames);
    stream(state, nth, plan(api, frames, error, pace, fault.as_ref()))
}

/// Says what became of a request when its body is gone.
struct Watched {
    state: Arc<State>,
    nth: u64,
    end: Outcome,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.state.records.end(self.nth, Outcome::Disconnected);
    }
}

fn stream(state: &Arc<State>, nth: u64, plan: Plan) -> Answer {
    let end = if plan.whole { Outcome::Completed } else { Outcome::Faulted };
    let watched = Watched { state: state.clone(), nth, end };
    let steps = VecDeque::from(plan.steps);
    let body = futures::stream::unfold((steps, watched), |(mut steps, watched)| async move {
        loop {
            match steps.pop_front() {
                Some(Step::Write(bytes)) => {
                    if steps.is_empty() {
                        watched.state.records.end(watched.nth, watched.end.clone());
                    }
                    return Some((Ok(Frame::data(Bytes::from(bytes))), (steps, watched)));
                }
                Some(Step::Wait(time)) if time.is_zero() => tokio::task::yield_now().await,
                Some(Step::Wait(time)) => tokio::time::sleep(time).await,
                Some(Step::Stall) => std::future::pending().await,
                Some(Step::Break) => {
                    watched.state.records.end(watched.nth, watched.end.clone());
                    return Some((Err(std::io::Error::other("broken by the script")), (VecDeque::new(), watched)));
                }
                None => {
                    watched.state.records.end(watched.nth, watched.end.clone());
                    return None;
                }
            }
        }
    });
    let body = BodyExt::boxed_unsync(StreamBody::new(body));
    respond(StatusCode::OK, "text/event-stream", body, None)
}

fn models(state: &State) -> Answer {
    let models: Vec<Value> = state
        .script
        .models
        .iter()
        .map(|id| json!({"id": id, "object": "model", "type": "model", "display_name": id, "created": 1, "owned_by": "fake"}))
        .collect();
    json_answer(StatusCode::OK, &json!({"object": "list", "data": models, "has_more": false}))
}

/// An error as all three wires say it.
fn refusal(status: StatusCode, message: &str, retry_after: Option<f64>) -> Answer {
    let code = match status.as_u16() {
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let body = json!({"type": "error", "error": {"type": code, "message": message}});
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    respond(status, "application/json", body, retry_after)
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    let bytes = oddities::bytes(&body.to_string());
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync();
    respond(status, "application/json", body, None)
}

fn respond(
    status: StatusCode,
    kind: &'static str,
    body: UnsyncBoxBody<Bytes, std::io::Error>,
    retry_after: Option<f64>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    let wait = retry_after.and_then(|seconds| hyper::header::HeaderValue::try_from(seconds.to_string()).ok());
    if let Some(wait) = wait {
        answer.headers_mut().insert("retry-after", wait);
    }
    answer
}
