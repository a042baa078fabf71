//! The scripted server itself: how turns are chosen, what it refuses, what it records.

use super::{APIS, fake, provider, request};
use flovyn_toolkit::fake_llm::{FakeLlm, Order, Outcome, Script, Turn, When};
use flovyn_toolkit::message::{Message, ToolResult};
use flovyn_toolkit::provider::{Api, ErrorKind, Provider};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[tokio::test]
async fn a_long_run_needs_no_long_script() {
    let script = Script::from_toml(
        r#"
        [[turns]]
        repeat = 100
        text = "step {{i}}"
        toolCalls = [{ name = "read", arguments = { path = "file-{{i}}.txt", note = "{{pad:20}}" } }]
        [[turns]]
        text = "read {{turn}} times: {{result}}"
        "#,
    )
    .expect("a script");
    for api in APIS {
        let fake = fake(script.clone());
        let provider = provider(api, &fake);
        let mut told = vec![Message::user("go")];
        let last = loop {
            let answer = provider.generate(&request(&provider, told.clone())).await.expect("an answer");
            let calls: Vec<_> = answer
                .tool_calls()
                .map(|call| ToolResult::text(&call.id, &call.name, format!("{}!", call.arguments["path"])))
                .collect();
            told.push(answer.clone());
            if calls.is_empty() {
                break answer;
            }
            told.push(Message::tool(calls));
        };
        assert_eq!(last.text(), "read 101 times: \"file-100.txt\"!", "{api:?}");
        assert_eq!(fake.paid(), 101);
        // Asked again after a crash, a turn is the same.
        let again = provider.generate(&request(&provider, told[..11].to_vec())).await.expect("an answer");
        assert_eq!((again.text(), again.parts), (told[11].text(), told[11].parts.clone()));
    }
}

#[tokio::test]
async fn a_long_session_need_not_be_recorded() {
    let fake = FakeLlm::start_unrecorded(Script::new([Turn::text("yes")])).expect("a server");
    let provider = provider(APIS[0], &fake);
    provider.generate(&request(&provider, vec![Message::user("go")])).await.expect("an answer");
    let requests = fake.requests();
    assert_eq!((fake.paid(), requests.len(), &requests[0].body), (1, 1, &Value::Null));
}

#[tokio::test]
async fn turns_are_chosen_by_what_is_asked() {
    let when = |when| Turn::text("").when(when);
    let script = Script::new([
        Turn { text: Some("third".into()), ..when(When { nth: Some(3), ..When::default() }) },
        Turn {
            text: Some("weather".into()),
            ..when(When { last_user_contains: Some("rain".into()), ..When::default() })
        },
        Turn {
            text: Some("header".into()),
            ..when(When { header: BTreeMap::from([("X-Scene".into(), "b".into())]), ..When::default() })
        },
        Turn { text: Some("in order".into()), ..Turn::default() },
    ]);
    let fake = fake(script);
    let mut endpoint = super::endpoint(Api::OpenaiChat, &fake);
    let plain = provider(Api::OpenaiChat, &fake);
    endpoint.headers.push(("x-scene".into(), "b".into()));
    let marked = flovyn_toolkit::provider::HttpProvider::new(Api::OpenaiChat, endpoint).expect("a provider");
    let mut said = Vec::new();
    for (provider, text) in [(&plain, "will it rain?"), (&marked, "?"), (&plain, "rain"), (&plain, "?")] {
        said.push(provider.generate(&request(provider, vec![Message::user(text)])).await.expect("an answer").text());
    }
    assert_eq!(said, ["weather", "header", "third", "in order"]);
    assert_eq!(
        fake.requests().iter().map(|request| request.played).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(0), Some(3)]
    );
}

#[tokio::test]
async fn results_choose_turns_too_and_arrival_can_be_the_order() {
    let of = |id: &str| When { tool_call_id: Some(id.into()), ..When::default() };
    let mut script = Script::new([
        Turn::text("the second came").when(of("call_1_2")),
        Turn::text("any came").when(When { has_tool_result: Some(true), ..When::default() }),
        Turn::call("read", json!({})).and_call("read", json!({})),
        Turn::text("arrived second"),
    ]);
    script.order = Order::Arrival;
    let fake = fake(script);
    let provider = provider(Api::OpenaiChat, &fake);
    let mut told = vec![Message::user("?")];
    let first = provider.generate(&request(&provider, told.clone())).await.expect("an answer");
    assert_eq!(provider.generate(&request(&provider, told.clone())).await.expect("an answer").text(), "arrived second");
    let results: Vec<_> = first.tool_calls().map(|call| ToolResult::text(&call.id, "read", "x")).collect();
    told.extend([first, Message::tool(results)]);
    assert_eq!(provider.generate(&request(&provider, told)).await.expect("an answer").text(), "the second came");
}

#[tokio::test]
async fn a_request_beyond_the_script_is_refused_with_the_reason() {
    let fake = fake(Script::new([Turn::text("only")]));
    let provider = provider(Api::AnthropicMessages, &fake);
    let told = vec![Message::user("a"), Message::assistant("b"), Message::user("c")];
    let error = provider.generate(&request(&provider, told.clone())).await.expect_err("no such turn");
    assert!(error.kind == ErrorKind::InvalidRequest && error.message.contains("turn 2 of its conversation"), "{error}");
    assert!(matches!(&fake.requests()[0].outcome, Outcome::Refused { status: 400, .. }));
    let mut kept = Script::new([]);
    kept.otherwise = Some(Box::new(Turn::text("whatever")));
    let fake = super::fake(kept);
    let provider = super::provider(Api::AnthropicMessages, &fake);
    assert_eq!(provider.generate(&request(&provider, told)).await.expect("an answer").text(), "whatever");
}

/// Posts a body as it is.
async fn post(fake: &FakeLlm, path: &str, body: &Value) -> (u16, Value) {
    // Nothing is encrypted here; the client wants to know by what all the same.
    let _again = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let sent = client.post(format!("{}{path}", fake.url())).json(body).send().await.expect("a response");
    (sent.status().as_u16(), sent.json().await.expect("JSON"))
}

#[tokio::test]
async fn malformed_conversations_are_refused_as_the_real_ones_would() {
    let fake = fake(Script { otherwise: Some(Box::new(Turn::text("fine"))), ..Script::default() });
    let used = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}});
    let user = json!({"role": "user", "content": "a"});
    let anthropic = |messages: Value| json!({"model": "m", "max_tokens": 9, "messages": messages});
    let call = json!({"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let chat = |messages: Value| json!({"model": "m", "messages": messages});
    let made = json!({"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"});
    let responses = |input: Value| json!({"model": "m", "input": input});
    for (path, body, why) in [
        ("/v1/messages", json!({"model": "m", "messages": [user]}), "max_tokens"),
        ("/v1/messages", anthropic(json!([])), "at least one message"),
        ("/v1/messages", anthropic(json!([{"role": "assistant", "content": "a"}])), "first message must use"),
        ("/v1/messages", anthropic(json!([user, {"role": "assistant", "content": [used]}])), "without `tool_result`"),
        (
            "/v1/messages",
            anthropic(json!([user, {"role": "assistant", "content": [used]}, user])),
            "without `tool_result`",
        ),
        (
            "/v1/messages",
            anthropic(json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t9"}]}])),
            "unexpected `tool_use_id`",
        ),
        (
            "/v1/messages",
            anthropic(
                json!([user, {"role": "assistant", "content": [{"type": "tool_use", "id": "a|b", "name": "n", "input": {}}]}]),
            ),
            "should match pattern",
        ),
        (
            "/v1/messages",
            anthropic(
                json!([user, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "made up"}]}]),
            ),
            "Invalid `signature`",
        ),
        ("/v1/messages", anthropic(json!([{"role": "user", "content": [{"type": "text", "text": ""}]}])), "non-empty"),
        (
            "/v1/messages",
            anthropic(
                json!([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "*"}}]}]),
            ),
            "no base64",
        ),
        (
            "/v1/chat/completions",
            chat(json!([user, {"role": "assistant", "tool_calls": [call]}, user])),
            "must be followed by tool messages",
        ),
        (
            "/v1/chat/completions",
            chat(json!([user, {"role": "tool", "tool_call_id": "c1", "content": "x"}])),
            "preceding message",
        ),
        (
            "/v1/chat/completions",
            chat(
                json!([{"role": "assistant", "tool_calls": [{"id": "x".repeat(41), "function": {"arguments": "{}"}}]}]),
            ),
            "maximum length 40",
        ),
        ("/v1/responses", responses(json!([made])), "No tool output found"),
        (
            "/v1/responses",
            responses(json!([{"type": "function_call_output", "call_id": "c1", "output": "x"}])),
            "No tool call found",
        ),
        (
            "/v1/responses",
            responses(json!([{"type": "reasoning", "summary": [], "encrypted_content": "made up"}])),
            "could not be verified",
        ),
        ("/v1/responses", json!({"input": "no model"}), "model"),
    ] {
        let (status, answer) = post(&fake, path, &body).await;
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && said.contains(why), "{path} {body}: {status} {answer}");
    }
    assert_eq!((fake.paid(), fake.requests().len()), (0, 17));
    // What is well formed is answered, also in one piece.
    let (status, answer) = post(&fake, "/v1/messages", &anthropic(json!([user]))).await;
    assert_eq!((status, &answer["content"][0]["text"]), (200, &json!("fine")));
    let (_, answer) = post(&fake, "/v1/chat/completions", &chat(json!([user]))).await;
    assert_eq!(answer["choices"][0]["message"]["content"], json!("fine"));
    let (_, answer) = post(&fake, "/v1/responses", &responses(json!("hello"))).await;
    assert_eq!(answer["output"][0]["content"][0]["text"], json!("fine"));
    assert_eq!(fake.paid(), 3);
    assert_eq!(post(&fake, "/v1/nothing", &json!({})).await.0, 404);
}

#[tokio::test]
async fn requests_are_logged_as_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("requests.jsonl");
    let file = folder.path().join("script.toml");
    std::fs::write(&file, "[[turns]]\ntext = \"hi\"\nfaults = [{ status = { code = 529 } }]\n").expect("written");
    let fake = FakeLlm::start_at(Script::from_file(&file).expect("a script"), 0, Some(&log)).expect("a server");
    let provider = provider(Api::OpenaiResponses, &fake);
    provider.generate(&request(&provider, vec![Message::user("?")])).await.expect_err("a fault");
    provider.generate(&request(&provider, vec![Message::user("?")])).await.expect("an answer");
    let text = std::fs::read_to_string(&log).expect("a log");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        lines.iter().map(|line| line["outcome"].as_str()).collect::<Vec<_>>(),
        [Some("faulted"), Some("completed")]
    );
    assert_eq!(lines[1]["body"]["model"], "gpt-5");
    std::fs::write(&file, "[[turns]]\ntxt = \"hi\"\n").expect("written");
    let error = Script::from_file(&file).expect_err("no such field").to_string();
    assert!(error.contains("script.toml") && error.contains("txt"), "{error}");
}
