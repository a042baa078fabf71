//! Each fault has its name, and what may help is asked again.

use super::{APIS, endpoint, fake, provider, request, streamed};
use flovyn_toolkit::fake_llm::{FakeLlm, Fault, FaultKind, Outcome, Pace, Script, ScriptedCall, Turn};
use flovyn_toolkit::message::{Message, Stop};
use flovyn_toolkit::provider::{
    Api, CancellationToken, ErrorKind, Fallback, HttpProvider, Provider, RetryPolicy, Retrying, StreamEvent, Timeouts,
};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn turn() -> Turn {
    let mut turn = Turn::call("read", json!({"path": "a"})).thinking("hm");
    turn.text = Some("I look.".into());
    turn
}

fn asked() -> Vec<Message> {
    vec![Message::user("?")]
}

/// What comes of one call of a turn with a fault.
async fn with_fault(api: Api, kind: FaultKind) -> (FakeLlm, Result<Message, flovyn_toolkit::provider::ModelError>) {
    let fake = fake(Script::new([turn().fault(kind)]));
    let provider = provider(api, &fake);
    let answer = streamed(&provider, &request(&provider, asked())).await.0;
    (fake, answer)
}

#[tokio::test]
async fn each_fault_has_its_kind() {
    let status = |code| FaultKind::Status { code, retry_after: None, message: None };
    for api in APIS {
        for (fault, kind) in [
            (status(429), ErrorKind::RateLimited),
            (status(500), ErrorKind::Unavailable),
            (status(529), ErrorKind::Unavailable),
            (status(400), ErrorKind::InvalidRequest),
            (FaultKind::Error { after_events: 4, code: None }, ErrorKind::Unavailable),
            (
                FaultKind::Error { after_events: 0, code: Some("context_length_exceeded".into()) },
                ErrorKind::ContextOverflow,
            ),
            (FaultKind::Error { after_events: 2, code: Some("rate_limit_error".into()) }, ErrorKind::RateLimited),
            (FaultKind::Malformed { after_events: 5 }, ErrorKind::Protocol),
        ] {
            let (fake, answer) = with_fault(api, fault.clone()).await;
            assert_eq!(answer.expect_err("a fault").kind, kind, "{api:?} {fault:?}");
            assert_eq!(fake.paid(), 0);
        }
    }
}

#[tokio::test]
async fn what_does_no_harm_is_tolerated() {
    for api in APIS {
        for fault in [
            FaultKind::Unknown { after_events: 0 },
            FaultKind::Unknown { after_events: 6 },
            FaultKind::SlowHead { ms: 30 },
            FaultKind::Stall { after_events: 4, ms: Some(30) },
        ] {
            let (fake, answer) = with_fault(api, fault.clone()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{api:?} {fault:?}: {error}"));
            assert_eq!((answer.tool_calls().count(), answer.text().as_str()), (1, "I look."));
            assert_eq!(fake.paid(), 1);
        }
    }
}

#[tokio::test]
async fn an_event_that_comes_twice_is_seen() {
    // Anthropic's blocks and Responses' frames are numbered; Chat's chunks are not.
    let begun_twice = FaultKind::Duplicate { event: 2 };
    let (_, answer) = with_fault(Api::AnthropicMessages, begun_twice).await;
    assert_eq!(answer.expect_err("a block that begins twice").kind, ErrorKind::Protocol);
    for event in 0..20 {
        let (_, answer) = with_fault(Api::OpenaiResponses, FaultKind::Duplicate { event }).await;
        assert_eq!(answer.expect("a frame that was already there").text(), "I look.", "event {event}");
    }
}

#[tokio::test]
async fn silence_ends_a_stream_and_pings_do_not() {
    for api in APIS {
        let stalled = fake(Script::new([turn().fault(FaultKind::Stall { after_events: 3, ms: None })]));
        let impatient = Timeouts { response: Duration::from_secs(5), idle: Duration::from_millis(120) };
        let provider = HttpProvider::new(api, endpoint(api, &stalled).timeouts(impatient)).expect("a provider");
        let error = provider.generate(&request(&provider, asked())).await.expect_err("silence");
        assert_eq!(error.kind, ErrorKind::Interrupted);
        assert!(error.message.contains("nothing came for 120ms"), "{error}");
        let left = stalled.wait_until(Duration::from_secs(5), |all| all[0].outcome == Outcome::Disconnected).await;
        left.expect("the client left");
        // Longer than the timer in all, and never that long without a byte.
        let mut slow = turn();
        slow.pace = Some(Pace { chunk_ms: 20, chunk_chars: 1, ..Pace::default() });
        let slow = fake(Script::new([slow]));
        let provider = HttpProvider::new(api, endpoint(api, &slow).timeouts(impatient)).expect("a provider");
        provider.generate(&request(&provider, asked())).await.expect("it never fell silent");
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_is_given_up() {
    let fake = fake(Script::new([turn().fault(FaultKind::SlowHead { ms: 60_000 })]));
    let brief = Timeouts { response: Duration::from_millis(80), idle: Duration::from_secs(5) };
    let provider =
        HttpProvider::new(Api::OpenaiChat, endpoint(Api::OpenaiChat, &fake).timeouts(brief)).expect("a provider");
    let error = provider.generate(&request(&provider, asked())).await.expect_err("no head");
    assert_eq!(error.kind, ErrorKind::Network);
    let url = fake.openai_url();
    drop(fake);
    let error = provider.generate(&request(&provider, asked())).await.expect_err("nobody is there");
    assert_eq!(error.kind, ErrorKind::Network);
    assert!(error.message.contains(&url), "{error}");
}

#[tokio::test]
async fn cancelling_and_dropping_close_the_connection() {
    for api in APIS {
        for by_token in [true, false] {
            let mut endless = turn();
            endless.text = Some("{{pad:100000}}".into());
            endless.pace = Some(Pace { chunk_ms: 5, chunk_chars: 10, ..Pace::default() });
            let fake = fake(Script::new([endless]));
            let provider = provider(api, &fake);
            let token = CancellationToken::new();
            let shown = tokio::sync::Notify::new();
            let body = request(&provider, asked());
            let mut on = |event: StreamEvent| {
                if event.is_content() {
                    shown.notify_one();
                }
            };
            let call = provider.stream(&body, &mut on, &token);
            if by_token {
                let (done, ()) = tokio::join!(call, async {
                    shown.notified().await;
                    token.cancel();
                });
                assert_eq!(done.expect_err("it was cancelled").kind, ErrorKind::Aborted);
            } else {
                tokio::select! {
                    _ = call => panic!("it has no end"),
                    () = shown.notified() => {}
                }
            }
            let seen = fake.wait_until(Duration::from_secs(5), |all| all[0].outcome == Outcome::Disconnected).await;
            seen.unwrap_or_else(|all| panic!("{api:?}: the server saw {:?}", all[0].outcome));
        }
    }
}

fn retrying(api: Api, fake: &FakeLlm, policy: RetryPolicy) -> Retrying {
    Retrying::new(Arc::new(provider(api, fake)), policy)
}

fn quick() -> RetryPolicy {
    RetryPolicy { base: Duration::from_millis(5), ..RetryPolicy::default() }
}

#[tokio::test]
async fn refusals_are_asked_again_and_the_wait_is_the_providers() {
    for api in APIS {
        let limited = FaultKind::Status { code: 429, retry_after: Some(0.15), message: None };
        let overloaded = FaultKind::Status { code: 529, retry_after: None, message: None };
        let fake = fake(Script::new([turn().fault(limited).fault(overloaded)]));
        let retrying = retrying(api, &fake, quick());
        let began = Instant::now();
        let (answer, events) = streamed(&retrying, &request(&provider(api, &fake), asked())).await;
        let answer = answer.expect("the third attempt");
        assert_eq!(answer.assistant.as_ref().map(|meta| meta.attempt), Some(3));
        assert!(began.elapsed() >= Duration::from_millis(150), "it waited {:?}", began.elapsed());
        let waits: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                StreamEvent::Retrying { attempt, delay_ms, .. } => Some((*attempt, *delay_ms)),
                _ => None,
            })
            .collect();
        assert_eq!((waits[0], waits[1].0), ((2, 150), 3));
        assert_eq!((fake.requests().len(), fake.paid()), (3, 1));
    }
}

#[tokio::test]
async fn what_no_attempt_can_help_is_not_asked_again() {
    let wrong = FaultKind::Status { code: 400, retry_after: None, message: None };
    let later = FaultKind::Status { code: 429, retry_after: Some(3_600.0), message: None };
    for (fault, kind) in [(wrong, ErrorKind::InvalidRequest), (later, ErrorKind::RateLimited)] {
        let fake = fake(Script::new([turn().fault(fault)]));
        let retrying = retrying(Api::OpenaiChat, &fake, quick());
        let error =
            retrying.generate(&request(&provider(Api::OpenaiChat, &fake), asked())).await.expect_err("an error");
        assert_eq!((error.kind, fake.requests().len()), (kind, 1));
    }
    let always = Fault { kind: FaultKind::Status { code: 500, retry_after: None, message: None }, times: 100 };
    let fake = fake(Script::new([Turn { faults: vec![always], ..turn() }]));
    let retrying = retrying(Api::OpenaiChat, &fake, quick());
    retrying.generate(&request(&provider(Api::OpenaiChat, &fake), asked())).await.expect_err("it never works");
    assert_eq!(fake.requests().len(), 4);
}

#[tokio::test]
async fn a_stream_that_broke_off_is_retracted_where_that_is_wanted() {
    for api in APIS {
        let cut = FaultKind::Error { after_events: 6, code: None };
        for after_content in [false, true] {
            let fake = fake(Script::new([turn().fault(cut.clone())]));
            let retrying = retrying(api, &fake, RetryPolicy { after_content, ..quick() });
            let (answer, events) = streamed(&retrying, &request(&provider(api, &fake), asked())).await;
            let retracted = events.iter().position(|event| matches!(event, StreamEvent::Retracted { .. }));
            if after_content {
                let after: String = events[retracted.expect("a retraction")..]
                    .iter()
                    .filter_map(|event| match event {
                        StreamEvent::TextDelta { delta, .. } => Some(delta.as_str()),
                        _ => None,
                    })
                    .collect();
                assert_eq!((answer.expect("the second attempt").text(), after), ("I look.".into(), "I look.".into()));
            } else {
                assert_eq!((answer.expect_err("the caller decides").kind, retracted), (ErrorKind::Unavailable, None));
            }
        }
    }
}

#[tokio::test]
async fn another_model_stands_in() {
    let down = Fault { kind: FaultKind::Status { code: 500, retry_after: None, message: None }, times: 100 };
    let broken = fake(Script::new([Turn { faults: vec![down], ..turn() }]));
    let sound = fake(Script::new([turn()]));
    let first: Arc<dyn Provider> = Arc::new(retrying(Api::AnthropicMessages, &broken, quick()));
    let second: Arc<dyn Provider> = Arc::new(provider(Api::OpenaiResponses, &sound));
    let fallback = Fallback::new((first.clone(), "claude-haiku-4-5".into()), [(second.clone(), "gpt-5".into())]);
    let body = request(&provider(Api::AnthropicMessages, &broken), asked());
    let (answer, events) = streamed(&fallback, &body).await;
    let origin = answer.expect("the second model's answer").assistant.expect("an answer").origin;
    assert_eq!((origin.provider.as_str(), origin.model.as_str()), ("openai", "gpt-5"));
    assert!(events.iter().any(|event| matches!(event, StreamEvent::FellBack { model, .. } if model == "openai/gpt-5")));
    assert_eq!(broken.requests().len(), 4);
    // All of them down: every reason is told.
    drop(sound);
    let error = fallback.generate(&body).await.expect_err("nobody is left");
    assert!(error.message.contains("anthropic/claude-haiku-4-5") && error.message.contains("openai/gpt-5"), "{error}");
    // What is wrong everywhere is not asked elsewhere.
    let wrong = fake(Script::new([turn().fault(FaultKind::Status { code: 400, retry_after: None, message: None })]));
    let fallback = Fallback::new(
        (Arc::new(provider(Api::OpenaiChat, &wrong)), "deepseek-v4-pro".into()),
        [(second, "gpt-5".into())],
    );
    assert_eq!(fallback.generate(&body).await.expect_err("a refusal").kind, ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn contradictions_are_told_to_the_model() {
    let raw =
        |json: &str| ScriptedCall { name: "read".into(), raw_arguments: Some(json.into()), ..ScriptedCall::default() };
    for api in APIS {
        for json in ["{\"path\": ", "[1]", "\"text\"", "{} {}"] {
            let fake = fake(Script::new([Turn { tool_calls: vec![raw(json)], ..Turn::default() }]));
            let provider = provider(api, &fake);
            let answer = provider.generate(&request(&provider, asked())).await.expect(json);
            let call = answer.tool_calls().next().expect("a call");
            assert_eq!((&call.arguments, call.raw_arguments.as_deref()), (&json!({}), Some(json)), "{api:?}");
            assert!(call.fault().is_some_and(|fault| fault.contains(json)), "{api:?} {call:?}");
        }
        // What the model has done counts, and not the reason that it gives for its end.
        for (turn, stop, calls) in [
            (Turn { stop: Some(Stop::ToolUse), ..Turn::text("no call") }, Stop::End, 0),
            (Turn { stop: Some(Stop::End), ..turn() }, Stop::ToolUse, 1),
        ] {
            let fake = fake(Script::new([turn]));
            let provider = provider(api, &fake);
            let answer = provider.generate(&request(&provider, asked())).await.expect("an answer");
            assert_eq!((answer.stop(), answer.tool_calls().count()), (stop, calls), "{api:?}");
        }
    }
}

#[tokio::test]
async fn what_a_cut_answer_has_used_is_known_or_estimated() {
    for api in APIS {
        let cut = FaultKind::Cut(flovyn_toolkit::fake_llm::Cut { after_events: Some(5), ..Default::default() });
        let (_, answer) = with_fault(api, cut).await;
        let usage = answer.expect_err("it was cut").usage.unwrap_or_else(|| panic!("{api:?}: nothing is known"));
        assert!(usage.is_estimate && usage.input > 0 && usage.output > 0, "{api:?}: {usage:?}");
        assert!(usage.cost.is_some(), "{api:?}: the price is known");
        let (_, answer) = with_fault(api, FaultKind::Status { code: 529, retry_after: None, message: None }).await;
        assert_eq!(answer.expect_err("it was refused").usage, None, "{api:?}: what was refused was not charged");
    }
}

#[tokio::test]
async fn what_was_cut_for_length_or_refused_calls_nothing() {
    for api in APIS {
        for stop in [Stop::Length, Stop::Refusal] {
            let fake = fake(Script::new([Turn { stop: Some(stop), ..turn() }]));
            let provider = provider(api, &fake);
            let answer = provider.generate(&request(&provider, asked())).await.expect("an answer");
            assert_eq!(
                (answer.stop(), answer.tool_calls().count(), answer.text().as_str()),
                (stop, 0, "I look."),
                "{api:?}"
            );
        }
    }
}
