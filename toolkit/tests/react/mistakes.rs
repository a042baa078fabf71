//! What models and their servers do wrong, on every wire, streamed and not: the model is told once or asked once more, the
//! run completes, and every paid call is in the usage.

use super::*;
use flovyn_toolkit::fake_llm::{Fault, FaultKind, Oddity, Pace, ScriptedCall};
use flovyn_toolkit::message::Stop;
use flovyn_toolkit::react::{Delivery, LlmCall};
use std::collections::BTreeSet;

/// A mistake: the turns with it, how many calls are paid, and what is in the conversation then.
struct Mistake {
    name: &'static str,
    turns: Vec<Turn>,
    paid: usize,
    told: Vec<&'static str>,
}

fn mistake(name: &'static str, turn: Turn, paid: usize, told: &[&'static str]) -> Mistake {
    Mistake { name, turns: vec![turn, Turn::text("Done.")], paid, told: told.to_vec() }
}

/// Calls of `note` with this text in place of arguments, and with these ids.
fn raw(arguments: &str, ids: &[&str]) -> Turn {
    let call = |id: &&str| ScriptedCall {
        id: Some((*id).to_owned()).filter(|id| id != "-"),
        name: "note".into(),
        raw_arguments: Some(arguments.to_owned()),
        ..ScriptedCall::default()
    };
    Turn { tool_calls: ids.iter().map(call).collect(), ..Turn::default() }
}

fn note(text: &str) -> Turn {
    Turn::call("note", json!({"text": text}))
}

fn named(name: &str) -> Turn {
    Turn::call(name, json!({}))
}

fn mistakes() -> Vec<Mistake> {
    let text = |text: &str| Turn::text(text);
    let two = || note("a").and_call("note", json!({"text": "b"}));
    vec![
        mistake("null for arguments", raw("null", &["-"]), 2, &["= noted", "Done."]),
        mistake("no text for arguments", raw("", &["-"]), 2, &["= noted", "Done."]),
        mistake("arguments that are cut", raw("{\"text\": ", &["-"]), 2, &["are no JSON (EOF", "Done."]),
        mistake("arguments in a list", raw("[1]", &["-"]), 2, &["are no JSON object", "Done."]),
        mistake("two objects for arguments", raw("{} {}", &["-"]), 2, &["are no JSON (trailing", "Done."]),
        mistake("an escaped half in arguments", raw(r#"{"text":"\ud83d"}"#, &["-"]), 2, &["are no JSON", "Done."]),
        mistake("a half in arguments", note("{{half}}"), 2, &["half of a surrogate pair", "Done."]),
        mistake("a byte in arguments", note("{{byte}}"), 2, &["bytes that are no text", "Done."]),
        mistake("a half in text", text("a{{half}}b"), 1, &["assistant: a\u{FFFD}b"]),
        mistake("a byte in text", text("a{{byte}}b"), 1, &["assistant: a\u{FFFD}b"]),
        mistake("one id twice", raw("{}", &["same", "same"]), 2, &["= noted", "= noted", "Done."]),
        mistake("no ids", raw("{}", &["", ""]), 2, &["= noted", "= noted", "Done."]),
        mistake("one number", two().odd(Oddity::OneIndex), 2, &["= noted a", "= noted b", "Done."]),
        mistake("calls at the end", Turn { stop: Some(Stop::End), ..two() }, 2, &["= noted a", "= noted b", "Done."]),
        mistake("no calls", Turn { stop: Some(Stop::ToolUse), ..text("Well.") }, 1, &["assistant: Well."]),
        mistake("content of another shape", text("Well, well.").odd(Oddity::ContentList), 1, &["Well, well."]),
        mistake("nothing, once", text("Well.").fault(FaultKind::Empty), 2, &["assistant: Well."]),
        mistake("nothing but a thought", Turn::default().thinking("hm"), 2, &[]),
        mistake("nothing at all", Turn::default(), 2, &[]),
        mistake("a space", text(" "), 2, &[]),
        mistake("a tool that is none", named("functions.note"), 2, &["There is no tool", "Done."]),
        mistake("a tool without a name", named(""), 2, &["There is no tool", "Done."]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_told_or_asked_once_more() {
    for provider in ["fake", "other", "third"] {
        for streamed in [true, false] {
            for Mistake { name, mut turns, paid, told: expected } in mistakes() {
                let here = format!("{name}, {provider}, streamed: {streamed}");
                if !streamed {
                    turns = turns.into_iter().map(|turn| turn.odd(Oddity::Unstreamed)).collect();
                }
                let lab = Lab::new(turns).await;
                let input = AgentInput::new(&format!("{provider}/m"), "Go.");
                let run = lab.start(&input).await;
                let ended = run.result(Some(PATIENCE)).await.unwrap_or_else(|error| panic!("{here}: {error}"));
                let outcome: RunOutcome = ended.parse().expect("an outcome");
                let said = told(&run).await;
                assert_eq!(lab.fake.paid(), paid, "{here}: {said:#?}");
                assert_eq!(lab.fake.requests().len(), paid, "{here}: all were answered");
                let usage = &outcome.usage.0[&format!("{provider}/m")];
                assert_eq!(usage.calls, paid as u64, "{here}");
                assert!(usage.output_tokens > 0, "{here}");
                // Calls run side by side, and which of them ends first is open.
                let mut rest = said[2..].to_vec();
                for expected in expected {
                    let found = rest.iter().position(|line| line.contains(expected));
                    rest.remove(found.unwrap_or_else(|| panic!("{here}: {expected:?} in {said:#?}")));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_for_all_calls_of_all_turns_is_many_in_the_record() {
    for provider in ["fake", "other", "third"] {
        let lab = Lab::new([raw("{}", &["c", "c"]), raw("{}", &["c", "c"]), Turn::text("Done.")]).await;
        let (outcome, run) = lab.ends(&AgentInput::new(&format!("{provider}/m"), "Go.")).await;
        assert_eq!((outcome.text.as_str(), lab.fake.paid()), ("Done.", 3), "{provider}");
        let messages: Vec<Message> = of_type(&run, "message").await;
        let calls: BTreeSet<_> = messages.iter().flat_map(Message::tool_calls).map(|call| &call.id).collect();
        assert_eq!(calls.len(), 4, "{provider}: {calls:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_nobody_can_read_is_asked_for_once_more_and_then_a_person_decides() {
    for provider in ["fake", "other", "third"] {
        let input = AgentInput::new(&format!("{provider}/m"), "Go.");
        let malformed = || FaultKind::Malformed { after_events: 6 };
        let slow = || Turn { pace: Some(Pace { chunk_chars: 1, ..Pace::default() }), ..Turn::text("Here it is.") };
        let lab = Lab::new([slow().fault(malformed())]).await;
        let (outcome, run) = lab.ends(&input).await;
        assert_eq!((outcome.text.as_str(), lab.fake.requests().len()), ("Here it is.", 2), "{provider}");
        let calls: Vec<LlmCall> = of_type(&run, "llm_call").await;
        let estimates: Vec<_> =
            calls.iter().map(|call| call.usage.as_ref().is_some_and(|used| used.is_estimate)).collect();
        assert_eq!(estimates, [true, false], "{provider}: what was shown is in the usage");

        let always = Fault { kind: malformed(), times: 99 };
        let lab = Lab::new([Turn { faults: vec![always], ..slow() }]).await;
        let run = lab.start(&input).await;
        outages::paused(&run).await;
        assert_eq!(lab.fake.requests().len(), 2, "{provider}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_user_interrupts_is_in_the_usage() {
    let pace = Some(Pace { chunk_ms: 20, chunk_chars: 10, ..Pace::default() });
    let lab = Lab::new([Turn { pace, ..Turn::text("{{pad:90000}}") }, Turn::text("Done.")]).await;
    let run = lab.start(&ask("Go.")).await;
    let mut events = run.stream(None);
    while let Some(event) = events.next().await.expect("the events can be read") {
        if matches!(event, StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token) {
            break;
        }
    }
    say(&run, UserMessage::new("Stop.").deliver(Delivery::Now)).await;
    let outcome = outcome(&run).await;
    let usage = &outcome.usage.0["fake/m"];
    assert_eq!((outcome.text.as_str(), usage.calls), ("Done.", 2));
    let calls: Vec<LlmCall> = of_type(&run, "llm_call").await;
    let cut = calls[0].usage.as_ref().expect("an estimate");
    assert!(cut.is_estimate && cut.input > 0 && cut.output > 0, "{cut:?}");
}
