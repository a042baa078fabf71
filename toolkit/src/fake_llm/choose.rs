//! Chooses the turn that answers a request, and fills in its texts.

use super::request::ScriptedRequest;
use super::script::{FaultKind, Order, Script, ScriptedThinking, Turn, When};
use super::template::TemplateValues;
use crate::message::Stop;
use crate::provider::Api;
use std::collections::{BTreeMap, HashMap};

/// An answer, ready to be put on a wire.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) thinking: Option<Thought>,
    pub(super) text: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) stop: Stop,
    pub(super) usage: Used,
}

#[derive(Debug, Clone)]
pub(super) struct Thought {
    pub(super) text: String,
    pub(super) signature: String,
    pub(super) redacted: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) json: String,
}

/// Tokens in disjoint buckets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) input: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) cache_write_1h: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
    pub(super) cost_micros: Option<u64>,
}

/// The turn that answers a request: its number and its place in its repetition, from 1.
pub(super) fn choose<'a>(
    script: &'a Script,
    request: &ScriptedRequest,
    nth: u64,
    headers: &BTreeMap<String, String>,
) -> Result<(usize, &'a Turn, u64), String> {
    let fits = |when: &When| fits(when, request, nth, headers);
    if let Some((index, turn)) = script.turns.iter().enumerate().find(|(_, turn)| turn.when.as_ref().is_some_and(fits))
    {
        return Ok((index, turn, 1));
    }
    let place = match script.order {
        Order::Conversation => request.turn,
        Order::Arrival => nth,
    };
    let mut left = place;
    for (index, turn) in script.turns.iter().enumerate().filter(|(_, turn)| turn.when.is_none()) {
        let places = u64::from(turn.repeat.max(1));
        if left <= places {
            return Ok((index, turn, left));
        }
        left -= places;
    }
    match &script.otherwise {
        Some(turn) => Ok((script.turns.len(), turn, left)),
        None => Err(format!(
            "the script has no turn for this request: it is number {nth}, turn {} of its conversation, the script has {} turns and no `otherwise`",
            request.turn,
            script.turns.len()
        )),
    }
}

fn fits(when: &When, request: &ScriptedRequest, nth: u64, headers: &BTreeMap<String, String>) -> bool {
    when.nth.is_none_or(|wanted| wanted == nth)
        && when.turn.is_none_or(|wanted| wanted == request.turn)
        && when.last_user_contains.as_ref().is_none_or(|text| request.last_user.contains(text.as_str()))
        && when.has_tool_result.is_none_or(|wanted| wanted == request.has_result)
        && when.tool_call_id.as_ref().is_none_or(|id| request.newest_results.contains(id))
        && when.model.as_ref().is_none_or(|model| *model == request.model)
        && when.header.iter().all(|(name, value)| headers.get(&name.to_lowercase()) == Some(value))
}

/// The turn with its texts filled in.
pub(super) fn render(index: usize, turn: &Turn, place: u64, request: &ScriptedRequest) -> Answer {
    let values = TemplateValues {
        i: place,
        turn: request.turn,
        last_user: request.last_user.clone(),
        result: request.result.clone(),
    };
    let thinking = turn.thinking.as_ref().map(|thinking| match thinking {
        ScriptedThinking::Text(text) => thought(values.fill(text), None, false),
        ScriptedThinking::Signed { text, signature, redacted } => {
            thought(values.fill(text), signature.clone(), *redacted)
        }
    });
    let prefix = if request.api == Api::AnthropicMessages { "toolu" } else { "call" };
    let calls: Vec<Call> = turn
        .tool_calls
        .iter()
        .enumerate()
        .map(|(number, call)| Call {
            id: call
                .id
                .as_ref()
                .map_or_else(|| format!("{prefix}_{}_{}", request.turn, number + 1), |id| values.fill(id)),
            name: call.name.clone(),
            json: call
                .raw_arguments
                .clone()
                .unwrap_or_else(|| serde_json::Value::Object(values.fill_all(&call.arguments)).to_string()),
        })
        .collect();
    let text = turn.text.as_ref().map(|text| values.fill(text));
    let length = |text: &str| text.chars().count() as u64;
    let text_length = text.as_deref().map_or(0, length)
        + thinking.as_ref().map_or(0, |thought| length(&thought.text))
        + calls.iter().map(|call| length(&call.json)).sum::<u64>();
    let scripted = &turn.usage;
    let usage = Used {
        input: scripted.input.unwrap_or(request.characters / 4),
        cache_read: scripted.cache_read,
        cache_write: scripted.cache_write,
        cache_write_1h: scripted.cache_write_1h,
        output: scripted.output.unwrap_or(text_length / 4 + 1),
        reasoning: scripted.reasoning,
        cost_micros: scripted.cost_micros,
    };
    let stop = turn.stop.unwrap_or(if calls.is_empty() { Stop::End } else { Stop::ToolUse });
    let id = format!("{}_{index}", request.turn);
    Answer { id, model: request.model.clone(), thinking, text, calls, stop, usage }
}

fn thought(text: String, signature: Option<String>, redacted: bool) -> Thought {
    let signature = signature.unwrap_or_else(|| sign(&text));
    Thought { text, signature, redacted }
}

/// The signature of a thought: it follows from the text, so that any process can check it.
pub(super) fn sign(text: &str) -> String {
    format!("sig-{}", &blake3::hash(text.as_bytes()).to_hex()[..32])
}

/// The fault of the next play of a turn, if it has one.
pub(super) fn next_fault(plays: &mut HashMap<usize, u32>, index: usize, turn: &Turn) -> Option<FaultKind> {
    if turn.faults.is_empty() {
        return None;
    }
    let answer = plays.entry(index).or_default();
    let now = *answer;
    *answer = answer.saturating_add(1);
    let mut before = 0u32;
    for fault in &turn.faults {
        before = before.saturating_add(fault.times);
        if now < before {
            return Some(fault.kind.clone());
        }
    }
    None
}
