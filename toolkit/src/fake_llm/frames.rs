//! A response as steps: when each piece is written, and which faults occur between them.

use super::oddities;
use super::script::{Cut, CutEnd, FaultKind, Pace};
use crate::provider::Api;
use serde_json::Value;
use std::time::Duration;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) event: Option<String>,
    pub(super) data: String,
}

impl Frame {
    /// An event that says its type twice, as Anthropic and Responses have it.
    pub(super) fn named(data: Value) -> Self {
        Self { event: data["type"].as_str().map(str::to_owned), data: data.to_string() }
    }

    /// An event of data alone, as Chat has it.
    pub(super) fn plain(data: &Value) -> Self {
        Self { event: None, data: data.to_string() }
    }

    fn bytes(&self) -> Vec<u8> {
        let event = self.event.as_ref().map_or(String::new(), |event| format!("event: {event}\n"));
        oddities::bytes(&format!("{event}data: {}\n\n", self.data))
    }
}

/// What the server does next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Wait(Duration),
    Write(Vec<u8>),
    /// Nothing, until the client leaves.
    Stall,
    /// Breaks the connection.
    Break,
}

/// The steps of a response.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Whether all of the answer is in them: what a provider would charge.
    pub(super) whole: bool,
}

/// Plans a response of events.
pub(super) fn plan(
    api: Api,
    mut frames: Vec<Frame>,
    error: impl Fn(&str) -> Frame,
    pace: Pace,
    fault: Option<&FaultKind>,
) -> Plan {
    let count = frames.len();
    let at = |events: usize| events.min(count);
    let mut stall = None;
    let mut cut = None;
    let mut whole = true;
    match fault {
        Some(FaultKind::Error { after_events, code }) => {
            frames.truncate(at(*after_events));
            frames.push(error(code.as_deref().unwrap_or("overloaded_error")));
            whole = false;
        }
        Some(FaultKind::Cut(place)) => {
            frames.truncate(at(place.after_events.unwrap_or(count)));
            cut = Some(*place);
            whole = false;
        }
        Some(FaultKind::Stall { after_events, ms }) => {
            stall = Some((at(*after_events), *ms));
            whole = ms.is_some();
        }
        Some(FaultKind::Malformed { after_events }) => {
            frames.insert(at(*after_events), Frame { event: None, data: "{\"type\": \"content_bl".to_owned() });
            whole = false;
        }
        Some(FaultKind::Duplicate { event }) => {
            if let Some(frame) = frames.get(*event).cloned() {
                frames.insert(*event, frame);
            }
        }
        Some(FaultKind::Unknown { after_events }) => frames.insert(at(*after_events), unheard_of(api)),
        Some(FaultKind::Status { .. } | FaultKind::SlowHead { .. } | FaultKind::Empty) | None => {}
    }
    let mut steps = Vec::new();
    if pace.ttft_ms > 0 {
        steps.push(Step::Wait(Duration::from_millis(pace.ttft_ms)));
    }
    let mut room = cut.and_then(|cut: Cut| cut.after_bytes).unwrap_or(usize::MAX);
    for (number, frame) in frames.iter().enumerate() {
        if stall.is_some_and(|(after, _)| after == number) {
            steps.push(pause(stall));
        }
        if number > 0 && pace.chunk_ms > 0 {
            steps.push(Step::Wait(Duration::from_millis(pace.chunk_ms)));
        }
        let mut bytes = frame.bytes();
        bytes.truncate(room);
        room -= bytes.len();
        if !bytes.is_empty() {
            steps.push(Step::Write(bytes));
        }
    }
    if stall.is_some_and(|(after, _)| after >= frames.len()) {
        steps.push(pause(stall));
    }
    if cut.is_some_and(|cut| cut.end == CutEnd::Broken) {
        // What was written has to leave before the connection does.
        steps.push(Step::Wait(Duration::from_millis(3)));
        steps.push(Step::Break);
    }
    Plan { steps: if pace.write_bytes > 0 { rewritten(steps, pace.write_bytes) } else { steps }, whole }
}

fn pause(stall: Option<(usize, Option<u64>)>) -> Step {
    match stall.and_then(|(_, ms)| ms) {
        Some(ms) => Step::Wait(Duration::from_millis(ms)),
        None => Step::Stall,
    }
}

/// The same bytes in writes of this size, each with a moment between, so that they arrive apart.
fn rewritten(steps: Vec<Step>, size: usize) -> Vec<Step> {
    let mut out = Vec::new();
    for step in steps {
        match step {
            Step::Write(bytes) => {
                for piece in bytes.chunks(size) {
                    out.push(Step::Write(piece.to_vec()));
                    out.push(Step::Wait(Duration::ZERO));
                }
            }
            other => out.push(other),
        }
    }
    out
}

fn unheard_of(api: Api) -> Frame {
    match api {
        Api::AnthropicMessages => Frame::named(serde_json::json!({"type": "never_heard_of", "value": 1})),
        Api::OpenaiChat => Frame::plain(&serde_json::json!({"object": "never.heard.of", "choices": [], "value": 1})),
        Api::OpenaiResponses => Frame::named(serde_json::json!({"type": "response.never_heard_of", "value": 1})),
    }
}

/// Text in pieces of so many characters.
pub(super) fn pieces(text: &str, characters: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(characters.max(1)).map(|piece| piece.iter().collect()).collect()
}
