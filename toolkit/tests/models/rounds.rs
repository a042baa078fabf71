//! What a model says comes back to it unchanged, on every wire, and to another model in a form it takes.

use super::{APIS, endpoint, fake, provider, request, streamed};
use flovyn_toolkit::fake_llm::{
    FakeLlm, Outcome, Pace, Reasoning, Require, Script, ScriptedThinking, ScriptedUsage, Turn,
};
use flovyn_toolkit::message::{CacheHint, Content, CostBasis, Message, Part, Stop, ToolResult};
use flovyn_toolkit::provider::{
    Api, Endpoint, HttpProvider, ModelRequest, Provider, Quirks, Registry, StreamEvent, ThinkingField, ToolChoice,
};
use serde_json::{Value, json};

/// Thinks, speaks, calls two tools at once; then answers in text with umlauts and emoji.
fn script() -> Script {
    let used = ScriptedUsage {
        input: Some(1_000),
        cache_read: 2_000,
        cache_write: 300,
        cache_write_1h: 100,
        output: Some(50),
        reasoning: 20,
        cost_micros: None,
    };
    let mut first = Turn::call("read", json!({"path": "ä.txt", "lines": [1, 2]}))
        .and_call("read", json!({}))
        .thinking("Let me look: größer 🦦");
    first.text = Some("I look.".into());
    first.usage = used;
    let mut script = Script::new([first, Turn::text("Größe: 3 🦦, done.")]);
    script.require = Require { reasoning_content: true, ..Require::default() };
    script
}

fn results(answer: &Message) -> Message {
    let made = answer.tool_calls();
    Message::tool(made.map(|call| ToolResult::text(&call.id, &call.name, format!("contents for {}", call.id))))
}

/// A whole conversation of two calls, and its messages.
async fn conversation(provider: &HttpProvider) -> Vec<Message> {
    let mut told = vec![Message::user("How large is it?")];
    let (first, events) = streamed(provider, &request(provider, told.clone())).await;
    let first = first.expect("a first answer");
    assert!(matches!(&events[0], StreamEvent::Started { .. }), "{events:?}");
    told.extend([first.clone(), results(&first)]);
    let last = provider.generate(&request(provider, told.clone())).await.expect("a last answer");
    told.push(last);
    told
}

#[tokio::test]
async fn thinking_text_and_parallel_calls_go_round() {
    for api in APIS {
        let fake = fake(script());
        let provider = provider(api, &fake);
        let told = conversation(&provider).await;
        let first = &told[1];
        assert_eq!(first.thinking(), "Let me look: größer 🦦", "{api:?}");
        assert_eq!(first.text(), "I look.");
        let calls: Vec<_> = first.tool_calls().map(|call| (call.name.as_str(), call.arguments.clone())).collect();
        assert_eq!(calls, [("read", json!({"path": "ä.txt", "lines": [1, 2]})), ("read", json!({}))]);
        assert_eq!((first.stop(), told[3].stop()), (Stop::ToolUse, Stop::End));
        assert_eq!(told[3].text(), "Größe: 3 🦦, done.");
        let meta = first.assistant.as_ref().expect("an answer");
        assert_eq!((meta.origin.api.as_str(), meta.origin.provider.as_str()), (api.as_str(), provider.name()));
        assert!(meta.response_id.is_some() && meta.raw_stop.is_some() && meta.first_token_ms.is_some());
        assert_eq!(fake.paid(), 2, "the server found signatures, results and ids in order: {:?}", fake.requests());
        // And again after it was stored.
        let stored: Vec<Message> =
            serde_json::from_str(&serde_json::to_string(&told[..3]).expect("JSON")).expect("messages");
        provider.generate(&request(&provider, stored)).await.expect("the stored conversation is taken");
    }
}

#[tokio::test]
async fn events_tell_the_whole_message_whatever_the_writes_cut_through() {
    for api in APIS {
        for write_bytes in [1, 7, 0] {
            let mut script = script();
            script.pace = Pace { chunk_chars: 3, write_bytes, ..Pace::default() };
            let fake = fake(script);
            let provider = provider(api, &fake);
            let (answer, events) = streamed(&provider, &request(&provider, vec![Message::user("?")])).await;
            let answer = answer.expect("an answer");
            let mut said = vec![String::new(); answer.parts.len()];
            for event in events {
                match event {
                    StreamEvent::TextDelta { part, delta }
                    | StreamEvent::ThinkingDelta { part, delta }
                    | StreamEvent::ToolCallDelta { part, delta } => said[part].push_str(&delta),
                    StreamEvent::ToolCallStart { part, id, name } => {
                        let Content::ToolCall(call) = &answer.parts[part].content else {
                            panic!("part {part} is no call")
                        };
                        assert_eq!((&call.id, &call.name), (&id, &name));
                    }
                    StreamEvent::Started { .. } => {}
                    other => panic!("{other:?} was not to happen"),
                }
            }
            for (part, said) in answer.parts.iter().zip(&said) {
                match &part.content {
                    Content::Text { text } => assert_eq!(text, said),
                    Content::Thinking(thinking) => assert_eq!(&thinking.text, said),
                    Content::ToolCall(call) => {
                        assert_eq!(call.arguments, serde_json::from_str::<Value>(said).expect("JSON"))
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn usage_is_disjoint_and_priced() {
    for (api, micros) in [
        // 1000×1 + 2000×0.1 + 200×1.25 + 100×2 + 50×5
        (Api::AnthropicMessages, 1_000 + 200 + 250 + 200 + 250),
        // 1000×0.435 + 2000×0.003625 + 300×0.435 + 50×0.87 = 616.25
        (Api::OpenaiChat, 616),
        // 1000×1.25 + 2000×0.125 + 300×1.25 + 50×10
        (Api::OpenaiResponses, 1_250 + 250 + 375 + 500),
    ] {
        let fake = fake(script());
        let provider = provider(api, &fake);
        let answer = provider.generate(&request(&provider, vec![Message::user("?")])).await.expect("an answer");
        let usage = answer.usage().expect("usage");
        assert_eq!(
            (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning),
            (1_000, 2_000, 300, 50, 20),
            "{api:?}"
        );
        let cost = usage.cost.as_ref().expect("a known price");
        assert_eq!((cost.amount_micros, cost.basis), (micros, CostBasis::Table), "{api:?}");
        let mut unknown = request(&provider, vec![Message::user("?")]);
        unknown.model = "never-priced".into();
        unknown.thinking = Default::default();
        let answer = provider.generate(&unknown).await.expect("an answer");
        assert_eq!(answer.usage().expect("usage").cost, None, "unknown is null, never 0");
    }
}

#[tokio::test]
async fn a_cost_that_the_provider_tells_is_taken() {
    let mut turn = Turn::text("hi");
    turn.usage.cost_micros = Some(1_234);
    let fake = fake(Script::new([turn]));
    let provider = provider(Api::OpenaiChat, &fake);
    let answer = provider.generate(&request(&provider, vec![Message::user("?")])).await.expect("an answer");
    let cost = answer.usage().and_then(|usage| usage.cost.clone()).expect("a cost");
    assert_eq!((cost.amount_micros, cost.basis, cost.table_version), (1_234, CostBasis::Provider, None));
}

#[tokio::test]
async fn a_conversation_goes_on_at_every_other_wire() {
    for from in APIS {
        for to in APIS.into_iter().filter(|to| *to != from) {
            let (first, second) = (fake(script()), fake(script()));
            let told = conversation(&provider(from, &first)).await;
            let other = provider(to, &second);
            // The second server never issued these calls: it takes them only in a form that is everyone's.
            let answer = other.generate(&request(&other, told[..3].to_vec())).await;
            assert_eq!(answer.expect("an answer").text(), "Größe: 3 🦦, done.", "{from:?} to {to:?}");
            let sent = second.requests()[0].body.to_string();
            assert!(sent.contains("größer"), "the thought goes as text: {sent}");
            assert!(!sent.contains("sig-"), "no signature reaches another model: {sent}");
        }
    }
}

#[tokio::test]
async fn redacted_thoughts_go_back_and_nowhere_else() {
    for api in [Api::AnthropicMessages, Api::OpenaiResponses] {
        let mut script = script();
        script.turns[0].thinking =
            Some(ScriptedThinking::Signed { text: String::new(), signature: None, redacted: true });
        let fake = fake(script);
        let told = conversation(&provider(api, &fake)).await;
        assert!(matches!(&told[1].parts[0].content, Content::Thinking(thinking) if thinking.redacted), "{api:?}");
        assert_eq!(fake.paid(), 2);
        let mut other = endpoint(api, &fake);
        other.provider = "other".into();
        let other = HttpProvider::new(api, other).expect("a provider");
        other.generate(&request(&other, told[..3].to_vec())).await.expect("an answer");
        let sent = fake.requests().pop().expect("a request").body.to_string();
        assert!(!sent.contains("sig-") && !sent.contains("redacted"), "{sent}");
    }
}

#[tokio::test]
async fn images_go_in_prompts_and_in_results() {
    let png = "iVBORw0KGgo=";
    for api in APIS {
        let fake = fake(script());
        let provider = provider(api, &fake);
        let mut asked = Message::user("What is this?");
        asked.parts.push(Part::media("image/png", png));
        let first = provider.generate(&request(&provider, vec![asked.clone()])).await.expect("an answer");
        let mut shown = results(&first);
        if let Content::ToolResult(result) = &mut shown.parts[0].content {
            result.content.push(Part::media("image/png", png));
        }
        provider.generate(&request(&provider, vec![asked, first, shown])).await.expect("an answer");
        let sent: Vec<_> =
            fake.requests().iter().map(|request| request.body.to_string().matches(png).count()).collect();
        assert_eq!(sent, [1, 2], "{api:?}");
        // A model that takes none is told that there was one.
        let mut blind = endpoint(api, &fake);
        blind.models[0].images = false;
        let blind = HttpProvider::new(api, blind).expect("a provider");
        let mut again = Message::user("And now?");
        again.parts.push(Part::media("image/png", png));
        blind.generate(&request(&blind, vec![again])).await.expect("an answer");
        let last = fake.requests().pop().expect("a request").body.to_string();
        assert!(!last.contains(png) && last.contains("image/png left out"), "{last}");
    }
}

#[tokio::test]
async fn cache_marks_are_few_and_cover_system_and_newest() {
    let fake = fake(script());
    let provider = provider(Api::AnthropicMessages, &fake);
    let mut told: Vec<_> = (0..9)
        .map(|n| {
            Message::new(flovyn_toolkit::message::Role::User, vec![Part::text(format!("{n}")).cached(CacheHint::Short)])
        })
        .collect();
    told.push(Message::user("newest"));
    let mut asked = request(&provider, told);
    asked.cache = Some(CacheHint::Long);
    provider.generate(&asked).await.expect("the server counts the marks");
    let body = fake.requests()[0].body.clone();
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
    let newest =
        body["messages"][0]["content"].as_array().and_then(|blocks| blocks.last()).cloned().unwrap_or_default();
    assert_eq!((&newest["text"], &newest["cache_control"]["ttl"]), (&json!("newest"), &json!("1h")));
    assert_eq!(body.to_string().matches("cache_control").count(), 4);
}

#[tokio::test]
async fn openrouter_gets_its_reasoning_details_back() {
    let mut script = script();
    script.reasoning = Reasoning::Details;
    script.require.reasoning_content = false;
    let fake = fake(script);
    let registry = Registry::from_variables(|name| match name {
        "OPENROUTER_BASE_URL" => Some(fake.openai_url()),
        "OPENROUTER_API_KEY" => Some("k".into()),
        _ => None,
    });
    let model = registry.expect("a registry").resolve("openrouter/z-ai/glm-4.7").expect("a model");
    let mut asked = ModelRequest::new(&model.info.id, vec![Message::user("?")]);
    asked.thinking = flovyn_toolkit::provider::ThinkingLevel::High;
    asked.cache = Some(CacheHint::Short);
    let first = model.provider.generate(&asked).await.expect("an answer");
    let made = results(&first);
    asked.messages.extend([first, made]);
    model.provider.generate(&asked).await.expect("the signature came back");
    let body = &fake.requests()[1].body;
    let detail = &body["messages"][1]["reasoning_details"][0];
    assert_eq!(
        (&detail["text"], detail["signature"].is_string()),
        (&json!("Let me look: größer 🦦"), true),
        "pieces are joined: {body}"
    );
    assert_eq!((&body["reasoning"]["effort"], &body["usage"]["include"]), (&json!("high"), &json!(true)));
    assert!(body["messages"][0]["content"][0]["cache_control"].is_null() && body.get("max_tokens").is_none());
}

#[tokio::test]
async fn reasoning_content_is_there_even_when_there_was_none() {
    let mut script = script();
    script.turns[0].thinking = None;
    let fake = fake(script);
    let told = conversation(&provider(Api::OpenaiChat, &fake)).await;
    assert_eq!(told[1].thinking(), "");
    assert_eq!(fake.requests()[1].body["messages"][2]["reasoning_content"], json!(""));
    // Without the quirk, the server refuses as DeepSeek does.
    let plain = Quirks { thinking: ThinkingField::Typed, ..Quirks::default() };
    let other = HttpProvider::new(Api::OpenaiChat, endpoint(Api::OpenaiChat, &fake).quirks(plain)).expect("a provider");
    let error = other.generate(&request(&other, told[..3].to_vec())).await.expect_err("a refusal");
    assert!(error.message.contains("reasoning_content"), "{error}");
}

#[tokio::test]
async fn a_demanded_tool_is_called_without_thinking() {
    let fake = fake(script());
    let provider = provider(Api::AnthropicMessages, &fake);
    let mut asked = request(&provider, vec![Message::user("?")]);
    asked.tool_choice = ToolChoice::Tool("read".into());
    provider.generate(&asked).await.expect("an answer");
    let body = &fake.requests()[0].body;
    assert_eq!((&body["tool_choice"]["name"], body.get("thinking")), (&json!("read"), None));
}

#[tokio::test]
async fn models_are_listed_and_keys_are_asked_for() {
    let script = Script {
        models: vec!["gpt-5".into(), "other".into()],
        require: Require { key: Some("right".into()), ..Require::default() },
        ..script()
    };
    let fake = fake(script);
    for api in APIS {
        let right = HttpProvider::new(api, endpoint(api, &fake).key(" right\n")).expect("a provider");
        let listed: Vec<_> = right.models().await.expect("a list").into_iter().map(|model| model.id).collect();
        assert_eq!(listed, ["gpt-5", "other"]);
        right.generate(&request(&right, vec![Message::user("?")])).await.expect("an answer");
        let wrong = HttpProvider::new(api, endpoint(api, &fake).key("wrong-key")).expect("a provider");
        let error = wrong.generate(&request(&wrong, vec![Message::user("?")])).await.expect_err("a refusal");
        assert_eq!(error.kind, flovyn_toolkit::provider::ErrorKind::Unauthorized);
        assert!(
            !format!("{error:?}").contains("wrong-key"),
            "the server echoes the key, the error does not: {error:?}"
        );
    }
    assert!(
        fake.requests().iter().all(|request| !serde_json::to_string(&request.headers).expect("JSON").contains("right"))
    );
    assert_eq!(
        fake.requests()
            .iter()
            .filter(|request| matches!(request.outcome, Outcome::Refused { status: 401, .. }))
            .count(),
        3
    );
}

#[tokio::test]
async fn extra_fields_and_headers_reach_the_provider() {
    let fake: FakeLlm = fake(script());
    let mut endpoint: Endpoint = endpoint(Api::OpenaiResponses, &fake);
    endpoint.headers.push(("x-title".into(), "tests".into()));
    let provider = HttpProvider::new(Api::OpenaiResponses, endpoint).expect("a provider");
    let mut asked = request(&provider, vec![Message::user("?")]);
    asked.extra.insert("service_tier".into(), json!("flex"));
    asked.session = Some("run-1".into());
    provider.generate(&asked).await.expect("an answer");
    let recorded = &fake.requests()[0];
    assert_eq!((&recorded.body["service_tier"], &recorded.body["prompt_cache_key"]), (&json!("flex"), &json!("run-1")));
    assert_eq!(recorded.headers["x-title"], "tests");
    assert_eq!(recorded.body["store"], json!(false));
}
