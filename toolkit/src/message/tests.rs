//! The seven rules of the message model, and what a conversation becomes for another model.

use super::transform::{ForeignThinking, NO_RESULT, Target, for_model, portable_id};
use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn origin(model: &str) -> Origin {
    Origin::new("anthropic-messages", "anthropic", model)
}

fn target(model: &str) -> Target {
    Target { origin: origin(model), thinking: ForeignThinking::AsText, media: true }
}

fn answer(model: &str, stop: Stop, parts: Vec<Part>) -> Message {
    let meta = AssistantMeta { origin: origin(model), stop, attempt: 1, ..AssistantMeta::default() };
    Message { role: Role::Assistant, parts, assistant: Some(meta) }
}

fn signed(model: &str, text: &str) -> Part {
    let thinking = Thinking { text: text.to_owned(), redacted: text.is_empty() };
    Part::from(thinking).with_opaque(&origin(model), json!({"signature": "s"}))
}

fn call(id: &str) -> Part {
    ToolCall::new(id, "read", json!({"path": "a"})).into()
}

/// A conversation of a model that thought, called two tools and got both results.
fn worked(model: &str) -> Vec<Message> {
    vec![
        Message::user("go"),
        answer(
            model,
            Stop::ToolUse,
            vec![signed(model, "hm"), signed(model, ""), Part::text("ok"), call("c1"), call("c2")],
        ),
        Message::tool([ToolResult::text("c1", "read", "one"), ToolResult::error("c2", "read", "two")]),
    ]
}

#[test]
fn rule_1_buckets_are_disjoint_and_add_up() {
    let usage = Usage {
        input: 1,
        cache_read: 10,
        cache_write: 100,
        cache_write_1h: 60,
        output: 1_000,
        reasoning: 900,
        is_estimate: false,
        cost: None,
    };
    assert_eq!((usage.prompt(), usage.total()), (111, 1_111));
    let counted = flovyn_core::model::Usage::from(&usage);
    assert_eq!((counted.input_tokens, counted.cache_read_tokens, counted.cache_write_tokens), (1, 10, 100));
    assert_eq!((counted.calls, counted.output_tokens, counted.cost_micros), (1, 1_000, None));
}

#[test]
fn rule_2_costs_are_integers_with_a_basis_or_null() {
    let unknown = serde_json::to_value(Usage::default()).expect("JSON");
    assert_eq!(unknown["cost"], Value::Null);
    assert!(unknown.as_object().is_some_and(|fields| fields.contains_key("cost")), "null is written, not left out");
    let cost = json!({"amountMicros": 12, "currency": "USD", "basis": "provider"});
    let read: Cost = serde_json::from_value(cost.clone()).expect("a cost");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), cost);
    let float = json!({"amountMicros": 1.5, "currency": "USD", "basis": "table"});
    assert!(serde_json::from_value::<Cost>(float).is_err(), "no floats");
    let later = json!({"amountMicros": 1, "currency": "USD", "basis": "oracle"});
    assert_eq!(serde_json::from_value::<Cost>(later).expect("a cost").basis, CostBasis::Unknown);
    let euros = Usage { cost: Some(Cost { currency: "EUR".into(), ..read }), ..Usage::default() };
    assert_eq!(euros.cost_micros(), None);
}

#[test]
fn rule_3_raw_arguments_are_kept_only_where_they_differ() {
    let plain = serde_json::to_value(call("c1")).expect("JSON");
    assert_eq!(plain, json!({"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}));
    let mut repaired = ToolCall::new("c1", "read", json!({}));
    repaired.raw_arguments = Some("{".into());
    assert_eq!(serde_json::to_value(Part::from(repaired)).expect("JSON")["rawArguments"], "{");
}

#[test]
fn rule_4_details_are_beside_what_the_model_sees() {
    let mut result = ToolResult::text("c1", "read", "short");
    result.details = Some(json!({"lines": 3}));
    let written = serde_json::to_value(Part::from(result)).expect("JSON");
    assert_eq!(written["content"], json!([{"type": "text", "text": "short"}]));
    assert_eq!(written["details"], json!({"lines": 3}));
}

#[test]
fn rule_5_another_model_gets_text_and_portable_ids_and_nothing_opaque() {
    let fit = for_model(&worked("a"), &target("b"));
    let texts: Vec<_> = fit[1].parts.iter().map(|part| part.as_text().unwrap_or("call")).collect();
    assert_eq!(texts, ["hm", "ok", "call", "call"], "the redacted thought is gone");
    assert!(fit.iter().flat_map(|message| &message.parts).all(|part| part.provider.is_none()));
    let calls: Vec<_> = fit[1].tool_calls().map(|call| call.id.clone()).collect();
    let results: Vec<_> = fit[2].tool_results().map(|result| result.id.clone()).collect();
    assert_eq!(calls, results);
    assert_eq!(calls, [portable_id("c1"), portable_id("c2")]);
    assert!(calls[0].len() == 29 && calls[0] != calls[1]);
    let dropped = for_model(&worked("a"), &Target { thinking: ForeignThinking::Drop, ..target("b") });
    assert_eq!(dropped[1].text(), "ok");
    assert_eq!(for_model(&worked("a"), &target("a")), worked("a"), "its own words come back as they are");
}

#[test]
fn rule_6_an_interrupted_answer_is_no_part_of_the_conversation() {
    for kind in [ErrorKind::Interrupted, ErrorKind::Aborted, ErrorKind::Unavailable] {
        let failed = Message::failed(origin("a"), ModelError::new(kind, "x"));
        assert!(!failed.stop().is_answer());
        let conversation = [Message::user("go"), failed, Message::user("again")];
        assert_eq!(for_model(&conversation, &target("a")), [Message::user("go"), Message::user("again")]);
    }
    // One that was stored with calls leaves neither them nor their results behind.
    let mut broken = worked("a");
    if let Some(meta) = &mut broken[1].assistant {
        meta.stop = Stop::Interrupted;
    }
    assert_eq!(for_model(&broken, &target("a")), [Message::user("go")]);
    assert!(ErrorKind::Interrupted.is_retryable() && !ErrorKind::Aborted.is_retryable());
}

#[test]
fn rule_7_what_is_unknown_survives_a_round_trip() {
    let newer = json!({
        "role": "oracle",
        "parts": [
            {"type": "hologram", "depth": 3, "provider": {"any": "thing"}, "cache": "forever", "nested": [{"type": "text"}]},
            {"type": "custom", "kind": "anthropic.compaction", "value": {"a": [1]}},
            {"type": "toolResult", "id": "c", "name": "n", "content": [{"type": "hologram"}]},
        ],
    });
    let read: Message = serde_json::from_value(newer.clone()).expect("a message");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), newer);
    let text = serde_json::to_string(&read).expect("JSON");
    assert_eq!(serde_json::from_str::<Message>(&text).expect("a message"), read);
    assert!(for_model(&[read], &target("a")).is_empty(), "and reaches no model");
    // A known type is not unknown because it is malformed.
    for wrong in [
        json!({"type": "text"}),
        json!({"type": "toolCall", "id": 1}),
        json!({"type": "text", "text": "a", "provider": 1}),
    ] {
        assert!(serde_json::from_value::<Part>(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn every_kind_of_part_comes_back_as_it_went() {
    let file = Media {
        mime: "application/pdf".into(),
        source: MediaSource::ProviderFile("f".into()),
        name: Some("a.pdf".into()),
    };
    let mut searched = ToolCall::new("s", "web_search", json!({}));
    searched.executed_by = ExecutedBy::Provider;
    let mut messages = worked("a");
    messages[0].parts.extend([
        Part::media("image/png", "AAAA").cached(CacheHint::Long),
        Part::new(Content::Media(file)),
        Part::from(searched),
        Part::from(Custom { kind: "openai.compaction".into(), value: json!(null) }),
    ]);
    let meta = messages[1].assistant.as_mut().expect("an answer");
    meta.usage = Usage { input: 5, cache_write_1h: 2, ..Usage::default() };
    meta.error =
        Some(ModelError { retry_after_ms: Some(5), status: Some(429), ..ModelError::new(ErrorKind::RateLimited, "x") });
    let text = serde_json::to_string(&messages).expect("JSON");
    assert!(
        text.contains(r#""cacheWrite1h":2"#)
            && text.contains(r#""executedBy":"provider""#)
            && text.contains(r#""api":"anthropic-messages""#)
    );
    assert_eq!(serde_json::from_str::<Vec<Message>>(&text).expect("messages"), messages);
}

#[test]
fn orphans_are_repaired_in_place() {
    let mut conversation = worked("a");
    conversation[2] = Message::tool([
        ToolResult::text("c2", "read", "late"),
        ToolResult::text("c2", "read", "twice"),
        ToolResult::text("c9", "read", "nobody's"),
    ]);
    conversation.insert(2, Message::user("in between"));
    let fit = for_model(&conversation, &target("a"));
    let results: Vec<_> = fit[2]
        .tool_results()
        .map(|result| (result.id.as_str(), result.is_error, result.content[0].as_text()))
        .collect();
    assert_eq!(results, [("c1", true, Some(NO_RESULT)), ("c2", false, Some("late"))]);
    assert_eq!(fit[3], Message::user("in between"));
    assert_eq!(fit.len(), 4);
}

#[test]
fn images_are_told_of_where_they_cannot_be_sent() {
    let mut conversation = worked("a");
    conversation[0].parts.push(Part::media("image/png", "AAAA"));
    if let Content::ToolResult(result) = &mut conversation[2].parts[0].content {
        result.content.push(Part::media("image/png", "AAAA"));
    }
    let blind = Target { media: false, ..target("a") };
    let text = serde_json::to_string(&for_model(&conversation, &blind)).expect("JSON");
    assert_eq!(text.matches("[image/png left out: this model takes text only]").count(), 2);
    assert!(!text.contains("AAAA"));
}

/// Whatever a conversation went through, every provider takes what comes out.
#[test]
fn any_conversation_becomes_a_valid_one() {
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let models = ["a", "b"];
        let mut conversation = Vec::new();
        for _ in 0..rng.usize(0..12) {
            let model = models[rng.usize(0..2)];
            let id = |rng: &mut fastrand::Rng| format!("c{}", rng.u8(0..6));
            conversation.push(match rng.u8(0..5) {
                0 => Message::user("u"),
                1 => Message::system("s"),
                2 | 3 => {
                    let stop =
                        [Stop::End, Stop::ToolUse, Stop::ToolUse, Stop::Interrupted, Stop::Error][rng.usize(0..5)];
                    let mut parts = vec![signed(model, if rng.bool() { "t" } else { "" }), Part::text("x")];
                    let ids: Vec<_> = (0..rng.usize(0..3)).map(|_| id(&mut rng)).collect();
                    parts.extend(ids.iter().map(|id| call(id)));
                    answer(model, stop, parts)
                }
                _ => Message::tool(
                    (0..rng.usize(0..4)).map(|_| ToolResult::text(id(&mut rng), "read", "r")).collect::<Vec<_>>(),
                ),
            });
        }
        for model in models {
            let fit = for_model(&conversation, &target(model));
            let ids: Vec<_> = fit.iter().flat_map(Message::tool_calls).map(|call| &call.id).collect();
            assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "seed {seed}: no id stands for two calls");
            for (at, message) in fit.iter().enumerate() {
                assert!(message.stop().is_answer(), "seed {seed}");
                let calls: Vec<_> = message.tool_calls().map(|call| &call.id).collect();
                let next: Vec<_> = fit
                    .get(at + 1)
                    .map(|next| next.tool_results().map(|result| &result.id).collect())
                    .unwrap_or_default();
                assert_eq!(calls, next, "seed {seed}: each call has its result right behind, in order");
                if message.role == Role::Tool {
                    assert!(at > 0 && fit[at - 1].tool_calls().count() == message.parts.len(), "seed {seed}");
                }
                for opaque in message.parts.iter().filter_map(|part| part.provider.as_ref()) {
                    assert_eq!(opaque.origin, origin(model), "seed {seed}");
                }
            }
            assert_eq!(for_model(&fit, &target(model)), fit, "seed {seed}: once is enough");
        }
    }
}

#[test]
fn calls_under_one_id_get_ids_and_results_of_their_own() {
    let results = |texts: &[&str]| Message::tool(texts.iter().map(|text| ToolResult::text("c1", "read", *text)));
    let turn = || answer("a", Stop::ToolUse, vec![call("c1"), call("c1"), call("")]);
    let conversation = [Message::user("go"), turn(), results(&["one", "two"]), turn(), results(&["three"])];
    for model in ["a", "b"] {
        let fit = for_model(&conversation, &target(model));
        let calls: Vec<_> = fit.iter().flat_map(Message::tool_calls).map(|call| call.id.clone()).collect();
        let answers: Vec<_> = fit.iter().flat_map(Message::tool_results).collect();
        let ids: BTreeSet<_> = calls.iter().collect();
        assert_eq!((calls.len(), ids.len()), (6, 6), "{calls:?}");
        assert!(calls.iter().eq(answers.iter().map(|result| &result.id)), "{answers:?}");
        let texts: Vec<_> = answers.iter().map(|result| result.content[0].as_text().unwrap_or_default()).collect();
        assert_eq!(texts, ["one", "two", NO_RESULT, "three", NO_RESULT, NO_RESULT]);
        assert_eq!(for_model(&fit, &target(model)), fit, "once is enough");
        // What was said before stays as it was when more is said.
        assert_eq!(for_model(&conversation[..3], &target(model)), fit[..3]);
    }
}
