//! Turns of agents of one's own, as the clients of the AI SDK and AG-UI ask for them: over HTTP, from a message to its answer.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::context::AgentContextExt;
use flovyn_core::journal::{ChildOptions, Completion};
use flovyn_core::model::TaskOptions;
use house::{BASE, House, TOKEN, agent, job};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

/// Agents that answer what they are sent by saying it twice: one that keeps messages, one that only streams, and one that has another
/// one answer.
fn speakers() -> NativeHost {
    let keeper = agent("keeper", |ctx, _| {
        Box::pin(async move {
            loop {
                let message: Value = ctx.wait_for_signal("userMessage")?.await?;
                ctx.append_entry("user", &message)?;
                if message["text"] == "end" {
                    return Ok(Value::Null);
                }
                let said: Value = ctx.schedule("say", &message)?.await?;
                ctx.append_entry("assistant", &said)?;
            }
        })
    });
    let streamer = agent("streamer", |ctx, _| {
        Box::pin(async move {
            loop {
                let message: Value = ctx.wait_for_signal("userMessage")?.await?;
                let _said: Value = ctx.schedule("say", &message)?.await?;
            }
        })
    });
    let front = agent("front", |ctx, input| {
        let end = Completion::WaitForChild;
        Box::pin(async move { match ctx.handoff_to_agent("keeper", &input, ChildOptions::default(), end).await? {} })
    });
    let say = job("say", TaskOptions::default(), |ctx, message| {
        Box::pin(async move {
            let text = message["text"].as_str().unwrap_or_default().to_owned();
            ctx.stream_token(&text);
            Ok(json!({ "text": text.repeat(2) }))
        })
    });
    let host = NativeHost::default().agent(keeper).unwrap().agent(streamer).unwrap().agent(front).unwrap();
    host.task(say).unwrap()
}

/// The frames of a stream, and whether it has ended well.
async fn read(house: &House, method: &str, path: &str, body: &Value) -> (u16, Vec<String>, bool) {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", &bearer[..]), ("content-type", "application/json")];
    let body = if method == "GET" { String::new() } else { body.to_string() };
    let mut answer = house.raw(method, path, &headers, body).await;
    let (status, mut text, mut is_whole) = (answer.status().as_u16(), String::new(), true);
    while let Some(frame) = answer.body_mut().frame().await {
        match frame {
            Ok(frame) => text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
            Err(_) => {
                is_whole = false;
                break;
            }
        }
    }
    (status, text.split_terminator("\n\n").map(str::to_owned).collect(), is_whole)
}

fn says(id: &str, text: &str) -> Value {
    json!({ "messages": [{ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] }] })
}

/// The text of an answer of the AI SDK.
fn text_of(frames: &[String]) -> String {
    let chunks = frames.iter().filter_map(|frame| serde_json::from_str::<Value>(frame.strip_prefix("data: ")?).ok());
    chunks
        .filter(|chunk| chunk["type"] == "text-delta")
        .map(|chunk| chunk["delta"].as_str().unwrap().to_owned())
        .collect()
}

async fn start(house: &House, kind: &str, more: Value) -> String {
    let mut body = json!({ "kind": kind });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let run = house.post(BASE, body).await;
    let id = run["id"].as_str().unwrap().to_owned();
    house.until(&id, "WAITING").await;
    format!("{BASE}/{id}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_answered_once_and_its_answer_can_be_read_again() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speakers()).await;
    let run = start(&house, "keeper", json!({})).await;
    let quiet = format!("{run}/stream?format=ai-sdk");
    assert_eq!(read(&house, "GET", &quiet, &Value::Null).await, (204, vec![], true));

    for (id, text) in [("m1", "otter "), ("m2", "frog ")] {
        let (status, frames, is_whole) = read(&house, "POST", &format!("{run}/ai-sdk"), &says(id, text)).await;
        assert_eq!((status, is_whole, text_of(&frames)), (200, true, text.repeat(2)), "{frames:#?}");
        assert_eq!(frames.last().unwrap(), "data: [DONE]");
        let again = read(&house, "POST", &format!("{run}/ai-sdk"), &says(id, text)).await.1;
        assert_eq!(text_of(&again), text.repeat(2), "{again:#?}");
        let position = frames[0].strip_prefix("id: ").expect("a stream begins with what it is read again from");
        for position in [position, frames.iter().filter_map(|frame| frame.strip_prefix("id: ")).next_back().unwrap()] {
            let position = position.replace('+', "%2B");
            let again = read(&house, "GET", &format!("{quiet}&after={position}"), &Value::Null).await.1;
            assert_eq!(text_of(&again), text.repeat(2), "{position}: {again:#?}");
        }
        assert_eq!(read(&house, "GET", &quiet, &Value::Null).await.0, 204);
    }
    let entries = house.get(&format!("{run}/messages")).await;
    assert_eq!(entries["items"].as_array().unwrap().len(), 4, "{entries:#}");

    let (_, events, _) = read(&house, "GET", &format!("{run}/stream?format=ag-ui"), &Value::Null).await;
    let snapshot: Value = serde_json::from_str(events[1].strip_prefix("data: ").unwrap()).unwrap();
    let contents: Vec<_> = snapshot["messages"].as_array().unwrap().iter().map(|one| &one["content"]).collect();
    assert_eq!(contents, ["otter ", "otter otter ", "frog ", "frog frog "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_keep_no_messages_and_those_that_hand_off_answer_too() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speakers()).await;
    let streams = start(&house, "streamer", json!({})).await;
    for (id, text) in [("m1", "otter "), ("m2", "frog ")] {
        let (_, frames, _) = read(&house, "POST", &format!("{streams}/ai-sdk"), &says(id, text)).await;
        assert_eq!(text_of(&frames), text, "{frames:#?}");
    }
    let front = start(&house, "front", json!({ "input": {} })).await;
    for (id, text) in [("m1", "otter "), ("m2", "frog ")] {
        let (_, frames, _) = read(&house, "POST", &format!("{front}/ai-sdk"), &says(id, text)).await;
        assert_eq!(text_of(&frames), text.repeat(2), "{frames:#?}");
        let (status, _, _) = read(&house, "GET", &format!("{front}/stream?format=ai-sdk"), &Value::Null).await;
        assert_eq!(status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_in_words() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speakers()).await;
    let run = start(&house, "keeper", json!({})).await;
    let ended = start(&house, "keeper", json!({})).await;
    let (_, frames, _) = read(&house, "POST", &format!("{ended}/ai-sdk"), &says("m1", "end")).await;
    assert!(frames.contains(&r#"data: {"finishReason":"stop","type":"finish"}"#.to_owned()), "{frames:#?}");
    let paused = start(&house, "keeper", json!({ "maxTail": 5 })).await;
    read(&house, "POST", &format!("{paused}/ai-sdk"), &says("m1", "otter")).await;
    house.until(paused.rsplit('/').next().unwrap(), "PAUSED").await;
    for (method, path, body, status, part) in [
        ("GET", format!("{run}/stream?format=odd"), Value::Null, 400, "there are `ai-sdk` and `ag-ui`"),
        ("GET", format!("{run}/stream?format=ai-sdk&after=900"), Value::Null, 400, "the run has no event 900"),
        (
            "GET",
            format!("{run}/stream?format=ai-sdk&after=odd"),
            Value::Null,
            400,
            "no id that a stream of this run gave",
        ),
        ("GET", format!("{run}/stream?format=ai-sdk&resets=odd"), Value::Null, 400, "true or false"),
        ("POST", format!("{run}/ai-sdk?odd=1"), says("m", "a"), 400, "means nothing here"),
        ("POST", format!("{run}/ai-sdk"), json!({}), 400, "there is no message"),
        ("POST", format!("{run}/ag-ui"), json!({}), 400, "threadId"),
        (
            "POST",
            format!("{run}/ai-sdk"),
            json!({ "messages": says("m", "a")["messages"], "delivery": "odd" }),
            400,
            "next_turn",
        ),
        ("POST", format!("{ended}/ai-sdk"), says("m2", "a"), 409, "takes no more signals"),
        ("POST", format!("{paused}/ai-sdk"), says("m2", "a"), 409, "resume"),
    ] {
        let (found, said) = house.ask(method, &path, &[], &body.to_string()).await;
        let detail = said["detail"].as_str().unwrap_or_default();
        assert!(found == status && detail.contains(part), "{method} {path}: {found} {said:#}");
    }
    // Another text under a known id.
    read(&house, "POST", &format!("{run}/ai-sdk"), &says("m1", "otter")).await;
    let (status, _) = house.ask("POST", &format!("{run}/ai-sdk"), &[], &says("m1", "frog").to_string()).await;
    assert_eq!(status, 409);
}

/// The clients take the end of a stream for that of the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_does_not_end() {
    let house = House::open().await;
    let run = house.post(BASE, json!({ "kind": "nobody" })).await;
    let path = format!("{BASE}/{}/ai-sdk", run["id"].as_str().unwrap());
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", &bearer[..]), ("content-type", "application/json")];
    let mut answer = house.raw("POST", &path, &headers, says("m1", "otter").to_string()).await;
    let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"id: "), "{first:?}");
    let stopping = tokio::spawn(house.serving.stop());
    let end = tokio::time::timeout(Duration::from_secs(60), answer.body_mut().frame()).await.unwrap();
    assert!(matches!(end, Some(Err(_))), "{end:?}");
    stopping.await.unwrap().unwrap();
}
