//! Turns over plain HTTP: one request from a message to its answer, the same one for the same key.

mod house;

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::context::{AgentContext, AgentContextExt, Message};
use flovyn_core::error::Result;
use flovyn_core::model::{TaskOptions, Usage};
use house::{BASE, House, TOKEN, agent, job, served};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What no text of a model or of a user may break.
const HOSTILE: &str = "a\0b\r\n\r\ndata: [DONE]\n\nevent: done\n\u{202e}\u{feff}\u{1f9a6}\u{2028}\"\\</script>";

fn entry(ctx: &dyn AgentContext, role: &str, kind: &str, content: &Value) -> Result<()> {
    let (role, entry_type) = (role.to_owned(), kind.to_owned());
    let entry = Message { role, content: Payload::of(content)?, entry_type, turn_id: None, metadata: None };
    ctx.append_message(entry).map(drop)
}

fn answer(parts: Value) -> Value {
    json!({ "role": "assistant", "parts": parts })
}

/// Agents that write entries as the built-in one does: one that answers twice what it is sent, through a task that may be held; one that
/// asks whether its call may run; one that keeps only what it answers; and one that listens for something else.
fn agents(gate: &Arc<Notify>) -> NativeHost {
    let talker = agent("talker", |ctx, _| {
        Box::pin(async move {
            loop {
                let message: Value = ctx.wait_for_signal("userMessage")?.await?;
                let text = message["text"].as_str().unwrap_or_default();
                entry(ctx, "user", "message", &json!({ "role": "user", "parts": [{ "type": "text", "text": text }] }))?;
                match text {
                    "end" => return Ok(json!({ "text": "bye", "stopReason": "length", "output": { "n": 1 } })),
                    "fail" => {
                        return Err(flovyn_core::error::Error::new(flovyn_core::error::Code::AgentFailed, "no luck"));
                    }
                    _ => {}
                }
                let said: Value = ctx.schedule("say", &message)?.await?;
                ctx.record_usage("p/m", Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() })?;
                entry(ctx, "assistant", "message", &answer(json!([{ "type": "text", "text": said["text"] }])))?;
                entry(ctx, "system", "answer_end", &json!({ "stopReason": "end", "turns": 1 }))?;
            }
        })
    });
    let asker = agent("asker", |ctx, _| {
        Box::pin(async move {
            loop {
                let message: Value = ctx.wait_for_signal("userMessage")?.await?;
                entry(
                    ctx,
                    "user",
                    "message",
                    &json!({ "role": "user", "parts": [{ "type": "text", "text": message["text"] }] }),
                )?;
                let call = json!({ "type": "toolCall", "id": "c1", "name": "rm", "arguments": { "path": "/" } });
                entry(ctx, "assistant", "message", &answer(json!([{ "type": "text", "text": "May I?" }, call])))?;
                let asked = json!({ "id": "c1", "hash": "h1", "name": "rm", "arguments": { "path": "/" } });
                entry(ctx, "assistant", "approval_request", &asked)?;
                let decision: Value = ctx.wait_for_signal("approval")?.await?;
                entry(ctx, "user", "approval", &decision)?;
                let said = if decision["approved"] == true { "gone" } else { "denied" };
                let result = json!({ "type": "toolResult", "id": "c1", "name": "rm", "isError": said == "denied",
                    "content": [{ "type": "text", "text": said }] });
                entry(ctx, "tool_result", "message", &json!({ "role": "tool_result", "parts": [result] }))?;
                entry(
                    ctx,
                    "assistant",
                    "message",
                    &answer(json!([{ "type": "text", "text": format!("It is {said}.") }])),
                )?;
                let end = json!({ "stopReason": "end", "turns": 2, "output": { "verdict": said } });
                entry(ctx, "system", "answer_end", &end)?;
            }
        })
    });
    let terse = agent("terse", |ctx, _| {
        Box::pin(async move {
            loop {
                let message: Value = ctx.wait_for_signal("userMessage")?.await?;
                ctx.append_entry("assistant", &format!("re: {}", message["text"].as_str().unwrap_or_default()))?;
            }
        })
    });
    let counter = agent("counter", |ctx, _| {
        Box::pin(async move {
            for count in 0.. {
                let message: Value = ctx.wait_for_signal("userMessage")?.await?;
                ctx.append_entry("user", &message)?;
                if count == 0 {
                    ctx.schedule::<Value>("say", &json!({ "text": "hold" }))?.await?;
                }
                ctx.append_entry("assistant", &format!("{} {count}", message["text"].as_str().unwrap_or_default()))?;
            }
            Ok(Value::Null)
        })
    });
    let deaf = agent("deaf", |ctx, _| Box::pin(async move { ctx.wait_for_signal::<Value>("go")?.await }));
    let gate = gate.clone();
    let say = job("say", TaskOptions::default(), move |ctx, message| {
        let gate = gate.clone();
        Box::pin(async move {
            let text = message["text"].as_str().unwrap_or_default().to_owned();
            ctx.stream_token(&text);
            if text == "hold" {
                gate.notified().await;
            }
            Ok(json!({ "text": text.repeat(2) }))
        })
    });
    let host = NativeHost::default().agent(talker).unwrap().agent(asker).unwrap();
    host.agent(terse).unwrap().agent(counter).unwrap().agent(deaf).unwrap().task(say).unwrap()
}

async fn start(house: &House, kind: &str) -> String {
    let run = house.post(BASE, json!({ "kind": kind })).await;
    let id = run["id"].as_str().unwrap();
    house.until(id, "WAITING").await;
    format!("{BASE}/{id}")
}

/// A turn under a key, with what the request prefers.
async fn turn(house: &House, run: &str, key: &str, prefer: &str, body: &Value) -> (u16, Value) {
    let headers = [("idempotency-key", key), ("prefer", prefer)];
    house.ask("POST", &format!("{run}/turns"), &headers, &body.to_string()).await
}

fn says(text: &str) -> Value {
    json!({ "message": text })
}

async fn messages(house: &House, run: &str, role: &str) -> usize {
    let listed = house.get(&format!("{run}/messages")).await;
    listed["items"].as_array().unwrap().iter().filter(|entry| entry["role"] == role).count()
}

/// The events of a streamed turn, by their names.
async fn streamed(house: &House, run: &str, key: &str, body: &Value) -> Vec<(String, Value)> {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", &bearer[..]), ("content-type", "application/json"), ("idempotency-key", key)];
    let answer = house.raw("POST", &format!("{run}/turns/stream"), &headers, body.to_string()).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let text = String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let events = text.split_terminator("\n\n").map(|frame| {
        let (name, data) = frame.split_once('\n').unwrap_or_else(|| panic!("{frame:?}"));
        let (name, data) = (name.strip_prefix("event: ").unwrap(), data.strip_prefix("data: ").unwrap());
        (name.to_owned(), serde_json::from_str(data).unwrap())
    });
    events.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_has_one_request_a_turn() {
    let house = House::open().await;
    let (_worker, _) = house.worker(agents(&Arc::default())).await;
    let run = start(&house, "talker").await;
    for (key, text) in [("k1", "otter "), ("k2", HOSTILE)] {
        let (status, answer) = turn(&house, &run, key, "", &says(text)).await;
        assert_eq!(status, 200, "{answer:#}");
        assert_eq!((&answer["status"], &answer["stopReason"]), (&json!("complete"), &json!("end")), "{answer:#}");
        assert_eq!(answer["output"], text.repeat(2));
        assert_eq!(answer["toolCalls"], json!([]));
        assert_eq!(answer["usage"]["total"]["outputTokens"], 2, "{answer:#}");
        assert_eq!(answer["usage"]["models"]["p/m"]["inputTokens"], 3);
        assert!(answer["pending"].is_null());
    }
    // Without a key each request is a message of its own.
    for _ in 0..2 {
        assert_eq!(house.post(&format!("{run}/turns"), says("again")).await["output"], "againagain");
    }
    assert_eq!(messages(&house, &run, "user").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_turn() {
    let (house, gate) = (House::open().await, Arc::new(Notify::new()));
    let (_worker, _) = house.worker(agents(&gate)).await;
    let run = start(&house, "talker").await;
    let hold = says("hold");
    let (first, second, ()) =
        tokio::join!(turn(&house, &run, "k1", "", &hold), turn(&house, &run, "k1", "", &hold), async {
            while messages(&house, &run, "user").await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            gate.notify_one();
        });
    assert_eq!((first.0, &first.1["output"]), (200, &json!("holdhold")), "{:#}", first.1);
    assert_eq!(first, second);
    // Later turns, also of the same text, change nothing about it.
    let later = turn(&house, &run, "k2", "", &says("otter")).await;
    assert_ne!(later.1["turnId"], first.1["turnId"]);
    assert_eq!(turn(&house, &run, "k1", "", &hold).await, first);
    assert_eq!(turn(&house, &run, "k2", "wait=0", &says("otter")).await, later);
    let body = json!({ "message": "hold", "idempotencyKey": "k1" }).to_string();
    assert_eq!(house.ask("POST", &format!("{run}/turns"), &[], &body).await, first);
    let by_id = format!("{run}/turns/{}", first.1["turnId"].as_str().unwrap());
    assert_eq!(house.ask("GET", &by_id, &[], "").await, first);
    assert_eq!(messages(&house, &run, "user").await, 2);
    let (status, problem) = turn(&house, &run, "k1", "", &says("frog")).await;
    assert_eq!((status, &problem["code"]), (409, &json!("AlreadyExists")), "{problem:#}");
    // And after the end of the run.
    turn(&house, &run, "k3", "", &says("end")).await;
    assert_eq!(turn(&house, &run, "k1", "", &hold).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_wait_is_shown_where_to_look() {
    let (house, gate) = (House::open().await, Arc::new(Notify::new()));
    let (_worker, _) = house.worker(agents(&gate)).await;
    let run = start(&house, "talker").await;
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", &bearer[..]),
        ("content-type", "application/json"),
        ("idempotency-key", "k1"),
        ("prefer", "wait=0"),
    ];
    let answer = house.raw("POST", &format!("{run}/turns"), &headers, says("hold").to_string()).await;
    assert_eq!(answer.status(), 202);
    let at = answer.headers()["location"].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((&body["status"], &body["href"]), (&json!("running"), &json!(at)), "{body:#}");
    assert_eq!(house.ask("GET", &at, &[], "").await.0, 202);
    assert_eq!(turn(&house, &run, "k1", "wait=1", &says("hold")).await, (202, body.clone()));
    // A message that comes meanwhile waits for its turn.
    let (status, next) = turn(&house, &run, "k2", "wait=0", &says("otter")).await;
    assert_eq!((status, &next["status"]), (202, &json!("running")), "{next:#}");
    gate.notify_one();
    let (status, whole) = turn(&house, &run, "k1", "", &says("hold")).await;
    assert_eq!((status, &whole["output"], &whole["turnId"]), (200, &json!("holdhold"), &body["turnId"]));
    assert_eq!(house.ask("GET", &at, &[("prefer", "wait=60")], "").await, (200, whole));
    assert_eq!(turn(&house, &run, "k2", "", &says("otter")).await.1["output"], "otterotter");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_say_the_same_have_a_turn_each() {
    let (house, gate) = (House::open().await, Arc::new(Notify::new()));
    let (_worker, _) = house.worker(agents(&gate)).await;
    let run = start(&house, "counter").await;
    for key in ["k0", "k1", "k2", "k3"] {
        assert_eq!(turn(&house, &run, key, "wait=0", &says("go on")).await.0, 202);
    }
    gate.notify_one();
    let mut ids = std::collections::BTreeSet::new();
    for (count, key) in ["k0", "k1", "k2", "k3"].into_iter().enumerate() {
        let (_, answer) = turn(&house, &run, key, "", &says("go on")).await;
        assert_eq!(answer["output"], format!("go on {count}"), "{answer:#}");
        ids.insert(answer["turnId"].to_string());
    }
    assert_eq!(ids.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_at_another_server() {
    let (house, gate) = (House::open().await, Arc::new(Notify::new()));
    let run = start_unserved(&house, "talker").await;
    // The first server stops while the turn is under way; who asks it gets where to look.
    let asked = tokio::spawn({
        let (address, run) = (house.serving.http(), run.clone());
        async move { post_to(address, &format!("{run}/turns"), "k1", &says("hold")).await }
    });
    while house.get(&format!("{run}/events")).await["items"].as_array().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    house.serving.stop().await.unwrap();
    let left = asked.await.unwrap();
    assert!(left.is_none() || left.as_ref().is_some_and(|(status, _)| *status == 202), "{left:?}");

    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let serving = served(&house.runtime, anywhere, anywhere).await;
    let remote = house::remote(&serving).await;
    let _worker = remote.worker(Arc::new(agents(&gate)), Default::default()).await.unwrap();
    gate.notify_one();
    let (status, whole) = post_to(serving.http(), &format!("{run}/turns"), "k1", &says("hold")).await.unwrap();
    assert_eq!((status, &whole["output"]), (200, &json!("holdhold")), "{whole:#}");
    let again = post_to(serving.http(), &format!("{run}/turns"), "k1", &says("hold")).await.unwrap();
    assert_eq!(again, (200, whole));
}

async fn start_unserved(house: &House, kind: &str) -> String {
    let run = house.post(BASE, json!({ "kind": kind })).await;
    format!("{BASE}/{}", run["id"].as_str().unwrap())
}

/// As [`turn`], at an address; none where the connection was cut.
async fn post_to(address: SocketAddr, path: &str, key: &str, body: &Value) -> Option<(u16, Value)> {
    use http_body_util::Full;
    use hyper::body::Bytes;
    let connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(connection);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::post(path)
        .header("host", address.to_string())
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let answer = sender.send_request(request).await.ok()?;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&bytes).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_has_to_decide_ends_a_turn_until_it_is_decided() {
    let house = House::open().await;
    let (_worker, _) = house.worker(agents(&Arc::default())).await;
    for (approved, said, status) in [(true, "gone", "completed"), (false, "denied", "denied")] {
        let run = start(&house, "asker").await;
        let (_, asks) = turn(&house, &run, "k1", "", &says("clean up")).await;
        let call = json!({ "id": "c1", "name": "rm", "arguments": { "path": "/" }, "status": "awaiting_human" });
        let pending =
            json!({ "kind": "approval", "id": "c1", "hash": "h1", "name": "rm", "arguments": { "path": "/" } });
        assert_eq!(asks["status"], "awaiting_human", "{asks:#}");
        assert_eq!((&asks["toolCalls"], &asks["pending"]), (&json!([call]), &json!([pending.clone()])));
        assert_eq!((&asks["output"], &asks["stopReason"]), (&json!("May I?"), &Value::Null));
        assert_eq!(turn(&house, &run, "k1", "", &says("clean up")).await.1, asks);
        // The run waits for the decision alone: a message would lie there.
        let (refused, problem) = turn(&house, &run, "k2", "", &says("well?")).await;
        assert_eq!((refused, &problem["code"]), (409, &json!("InvalidTransition")), "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains("approval"));

        let answer = json!({ "approvals": [{ "id": "c1", "hash": "h1", "approved": approved }] });
        let (_, rest) = turn(&house, &run, "d1", "", &answer).await;
        let done = json!({
            "id": "c1", "name": "rm", "arguments": { "path": "/" }, "result": said, "isError": !approved, "status": status,
        });
        assert_eq!((&rest["status"], &rest["toolCalls"]), (&json!("complete"), &json!([done])), "{rest:#}");
        // The agent has given its answer a form.
        assert_eq!(rest["output"], json!({ "verdict": said }));
        for (key, body) in [("d1", &answer), ("k1", &says("clean up"))] {
            let mut again = turn(&house, &run, key, "", body).await.1;
            again["turnId"] = rest["turnId"].clone();
            assert_eq!(again, rest, "{key}");
        }
        let other = json!({ "approvals": [{ "id": "c1", "hash": "h1", "approved": !approved }] });
        assert_eq!(turn(&house, &run, "d2", "", &other).await.0, 409);
        let (late, problem) =
            turn(&house, &run, "d3", "", &json!({ "approvals": [{ "id": "c9", "hash": "h", "approved": true }] }))
                .await;
        assert!(late == 409 && problem["detail"].as_str().unwrap().contains("asks nothing"), "{problem:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_keep_no_messages_of_their_users_answer_too() {
    let house = House::open().await;
    let (_worker, _) = house.worker(agents(&Arc::default())).await;
    let run = start(&house, "terse").await;
    let first = turn(&house, &run, "k1", "", &says("a")).await;
    let second = turn(&house, &run, "k2", "", &says("b")).await;
    assert_eq!((&first.1["output"], &second.1["output"]), (&json!("re: a"), &json!("re: b")), "{second:#?}");
    assert_eq!(turn(&house, &run, "k1", "", &says("a")).await, first);
    // One that is sent before the run listens.
    let early = start_unserved(&house, "terse").await;
    assert_eq!(turn(&house, &early, "k1", "", &says("c")).await.1["output"], "re: c");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_answered_is_refused_in_words() {
    let house = House::open().await;
    let (_worker, _) = house.worker(agents(&Arc::default())).await;
    let (deaf, failing, ending) =
        (start(&house, "deaf").await, start(&house, "talker").await, start(&house, "talker").await);
    let ended = turn(&house, &ending, "k1", "", &says("end")).await;
    assert_eq!(
        (ended.0, &ended.1["output"], &ended.1["stopReason"]),
        (200, &json!({ "n": 1 }), &json!("length")),
        "{ended:#?}"
    );
    for (run, key, body, status, part) in [
        (&failing, "k1", says("fail"), 409, "no luck"),
        (&failing, "k1", says("fail"), 409, "retry"),
        (&failing, "k2", says("a"), 409, "takes no more signals"),
        (&ending, "k2", says("a"), 409, "takes no more signals"),
        (&deaf, "k1", says("a"), 409, "waits for go"),
        (&deaf, "k1", json!({}), 400, "there is nothing to send"),
        (&deaf, "k1", json!({ "message": "a", "delivery": "odd" }), 400, "next_turn"),
        (&deaf, "k1", json!({ "message": "a", "toolResults": [] }), 400, "workers run them all"),
        (&deaf, "k1", json!({ "massage": "a" }), 400, "massage"),
        (&format!("{BASE}/nobody"), "k1", says("a"), 404, "nobody"),
    ] {
        let (found, problem) = turn(&house, run, key, "", &body).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(found == status && detail.contains(part), "{body}: {found} {problem:#}");
    }
    for (method, path, prefer, status, part) in [
        ("POST", format!("{deaf}/turns"), "wait=soon", 400, "wait=N"),
        ("POST", format!("{deaf}/turns?odd=1"), "", 400, "means nothing here"),
        ("GET", format!("{deaf}/turns/odd"), "", 404, "no turn of this run"),
        ("GET", format!("{deaf}/turns/0198c0de-0000-7000-8000-000000000000"), "", 404, "no turn of this run"),
    ] {
        let body = if method == "GET" { String::new() } else { says("a").to_string() };
        let (found, problem) = house.ask(method, &path, &[("prefer", prefer)], &body).await;
        assert!(found == status && problem["detail"].as_str().unwrap().contains(part), "{path}: {found} {problem:#}");
    }
    // What has failed is streamed to its end, too.
    let events = streamed(&house, &failing, "k1", &says("fail")).await;
    let (name, done) = events.last().unwrap();
    assert_eq!((&name[..], &done["status"], &done["error"]["code"]), ("done", &json!("failed"), &json!("AgentFailed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_streamed_and_its_answer_comes_last() {
    let house = House::open().await;
    let (_worker, _) = house.worker(agents(&Arc::default())).await;
    let run = start(&house, "asker").await;
    let events = streamed(&house, &run, "k1", &says("clean up")).await;
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["message", "tool_call", "done"], "{events:#?}");
    assert_eq!(events[0].1["delta"], "May I?");
    assert_eq!((&events[1].1["name"], &events[1].1["arguments"]), (&json!("rm"), &json!({ "path": "/" })));
    assert_eq!(events[2].1, turn(&house, &run, "k1", "", &says("clean up")).await.1);

    let answer = json!({ "approvals": [{ "id": "c1", "hash": "h1", "approved": true }] });
    let events = streamed(&house, &run, "d1", &answer).await;
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["message", "tool_call", "tool_result", "message", "done"], "{events:#?}");
    assert_eq!((&events[2].1["result"], &events[3].1["delta"]), (&json!("gone"), &json!("It is gone.")));
    assert_eq!(events[4].1["output"], json!({ "verdict": "gone" }));
    // The same key streams the same turn.
    let again = streamed(&house, &run, "k1", &says("clean up")).await;
    assert_eq!(again[..4], events[..4]);

    let run = start(&house, "talker").await;
    let events = streamed(&house, &run, "k1", &says(HOSTILE)).await;
    let written = |events: &[(String, Value)]| {
        let deltas = events.iter().filter(|(name, _)| name == "message").map(|(_, data)| data["delta"].as_str());
        deltas.map(Option::unwrap_or_default).collect::<String>()
    };
    assert_eq!(written(&events), HOSTILE.repeat(2));
    assert_eq!(events.last().unwrap().1["output"], HOSTILE.repeat(2));
    assert_eq!(written(&streamed(&house, &run, "k1", &says(HOSTILE)).await), HOSTILE.repeat(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_a_run_that_was_paused_has_its_answer_once_it_goes_on() {
    let house = House::open().await;
    let (_worker, _) = house.worker(agents(&Arc::default())).await;
    let run = house.post(BASE, json!({ "kind": "talker", "maxTail": 2 })).await;
    let run = format!("{BASE}/{}", run["id"].as_str().unwrap());
    let (status, problem) = turn(&house, &run, "k1", "", &says("otter")).await;
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 409 && detail.contains("paused") && detail.contains("resume"), "{problem:#}");
    assert_eq!(turn(&house, &run, "k1", "", &says("otter")).await, (status, problem));
    house.post(&format!("{run}/resume"), json!({ "maxTail": 1000 })).await;
    let (status, whole) = turn(&house, &run, "k1", "", &says("otter")).await;
    assert_eq!((status, &whole["output"]), (200, &json!("otterotter")), "{whole:#}");
}
