//! A run's events over `text/event-stream`: resumed anywhere, across a killed worker, by many readers.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::context::{AgentContextExt, TaskCall};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{Chunk, ChunkKind, RetryPolicy, TaskOptions};
use flovyn_core::streaming::Chunks;
use flovyn_core::{Error, Payload, error::Code};
use flovyn_server::{Access, Identity, ServerConfig, serve};
use house::{BASE, Event, House, Shown, TOKEN, agent, job};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// An agent that lets a task speak, appends what it said, and ends when told to. The first attempt of the second speech fails
/// in the middle. What is said is with the server before an attempt ends: a preview that comes later is dropped.
fn speaker(house: &House) -> NativeHost {
    let chunks = house.runtime.chunks().clone();
    let speaker = agent("speaker", |ctx, input| {
        Box::pin(async move {
            ctx.wait_for_signal::<Value>("begin")?.await?;
            ctx.stream_data(&json!({ "type": "thinking_delta", "delta": "…\n" }))?;
            for part in 0..3 {
                let said: Value = ctx
                    .schedule("say", &json!({ "part": part, "words": input, "run": ctx.agent_execution_id() }))?
                    .await?;
                ctx.append_entry("assistant", &said)?;
            }
            ctx.wait_for_signal::<Value>("end")?.await?;
            Ok(Value::Null)
        })
    });
    let retry = RetryPolicy { retries: 1, initial: Duration::from_millis(1), ..RetryPolicy::default() };
    let say = job("say", TaskOptions { retry, ..TaskOptions::default() }, move |ctx, input| {
        let chunks = chunks.clone();
        Box::pin(async move {
            let (part, words) = (input["part"].as_u64().unwrap(), input["words"].as_u64().unwrap());
            let run = input["run"].as_str().unwrap().parse().unwrap();
            let heard = async |word: &str| {
                let there = || {
                    let kept = chunks.after((OrgId::DEFAULT, run), 0, u64::MAX).0;
                    kept.iter().any(|one| *one.chunk.data == *word)
                };
                while !there() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            for word in 0..words {
                let said = format!("{part}.{word}.{} ", ctx.attempt());
                ctx.stream_token(&said);
                let fails = part == 1 && ctx.attempt() == 1 && word == 1;
                if fails || word + 1 == words {
                    heard(&said).await;
                }
                if fails {
                    return Err(Error::new(Code::TaskFailed, "in the middle"));
                }
            }
            if part == 2 {
                ctx.stream_token("fin");
                heard("fin").await;
            }
            Ok(json!({ "text": format!("part {part}") }))
        })
    });
    NativeHost::default().agent(speaker).unwrap().task(say).unwrap()
}

/// Starts a speech that waits for its first signal.
async fn speech(house: &House, words: u64) -> (String, ExecutionId) {
    let run = house.post(BASE, json!({ "kind": "speaker", "input": words })).await;
    let id = run["id"].as_str().unwrap().to_owned();
    house.until(&id, "WAITING").await;
    let execution = id.parse().unwrap();
    (format!("{BASE}/{id}"), execution)
}

async fn signal(house: &House, run: &str, name: &str) {
    house.post(&format!("{run}/signal"), json!({ "signalName": name })).await;
}

/// Reads until the last word of a speech is there, so that what follows it has every preview before it.
async fn hear_it_out(house: &House, run: &str) {
    let mut events = house.events(&format!("{run}/stream/consolidated"), None).await;
    while events.next().await.expect("the speech has a last word").data["data"] != "fin" {}
}

/// Reads a stream that a client goes on with who shows this; what it shows at each durable event.
fn shown_at(mut shown: Shown, events: &[Event]) -> Vec<(Event, Shown)> {
    let mut at = Vec::new();
    for event in events {
        shown.take(event);
        if event.is_durable() {
            at.push((event.clone(), shown.clone()));
        }
    }
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_behind_any_event_a_client_shows_the_same() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speaker(&house)).await;
    let (run, execution) = speech(&house, 4).await;
    // Somebody reads on, so that the previews are kept behind the end.
    let _kept = house.runtime.chunks().follow((OrgId::DEFAULT, execution));
    signal(&house, &run, "begin").await;
    hear_it_out(&house, &run).await;
    signal(&house, &run, "end").await;
    house.until(run.rsplit('/').next().unwrap(), "COMPLETED").await;

    let all = format!("{run}/stream/consolidated");
    let whole = house.events(&all, None).await.rest().await;
    let names: Vec<_> = whole.iter().map(|event| &event.name[..]).collect();
    for name in ["agent.started", "agent.waiting", "data", "token", "task.retry", "retract", "entry", "agent.completed"]
    {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let mut last = "";
    for event in &whole {
        assert!(
            event.is_durable() != (event.id == last),
            "a preview has the id of the durable event before it: {event:?}"
        );
        last = &event.id;
        for field in ["agentExecutionId", "op", "epoch", "attempt", "seq"] {
            assert!(event.data.get(field).is_some(), "{field} of {event:?}");
        }
    }
    let thought = whole.iter().find(|event| event.name == "data").unwrap();
    assert_eq!(thought.data["data"], json!({ "type": "thinking_delta", "delta": "…\n" }));
    let retract = names.iter().position(|name| *name == "retract").unwrap();
    assert_eq!(names[retract + 1], "task.retry");
    assert!(whole[..retract].iter().any(|event| event.data["data"] == "1.1.1 "), "what is taken back was shown");

    let mut shown = Shown::default();
    for (at, event) in whole.iter().enumerate().take(whole.len() - 1) {
        shown.take(event);
        let stayed = shown_at(shown.clone(), &whole[at + 1..]);
        // Earlier versions gave previews and retractions ids of their own.
        for id in [event.id.clone(), format!("{}.7", event.id), format!("{}.r0", event.id)] {
            let resumed = house.events(&all, Some(&id)).await;
            assert_eq!(resumed.status, 200);
            assert_eq!(shown_at(shown.clone(), &resumed.rest().await), stayed, "behind {id}");
        }
    }
    // At the terminal event there is nothing more; `after` says the same, and the header is stronger.
    let last = &whole.last().unwrap().id;
    for (path, header) in
        [(all.clone(), Some(&last[..])), (format!("{all}?after={last}"), None), (format!("{all}?after=1"), Some(last))]
    {
        let ended = house.events(&path, header).await;
        assert_eq!((ended.status, ended.rest().await), (204, vec![]), "{path}");
    }
    let behind = house.events(&format!("{all}?after={}", whole[2].id), None).await.rest().await;
    assert_eq!(shown_at(Shown::default(), &behind), shown_at(Shown::default(), &whole[3..]));

    // The agent's own stream is the same without what is its tasks'.
    let own = house.events(&format!("{run}/stream"), None).await.rest().await;
    assert!(
        own.iter().all(|event| !event.name.starts_with("task.") && event.data["attempt"].as_u64().unwrap_or(0) == 0)
    );
    // Where several runs may tell, each says how deep it is.
    let shallow = |event: &Event| {
        let mut event = event.clone();
        assert_eq!(event.data.as_object_mut().unwrap().remove("depth"), Some(json!(0)), "{event:?}");
        event
    };
    let without: Vec<_> = whole.iter().map(shallow).collect();
    assert!(own.iter().all(|event| without.contains(event)));
    let mut shown = Shown::default();
    whole.iter().for_each(|event| shown.take(event));
    let parts = [0, 1, 2].map(|part| json!({ "text": format!("part {part}") }));
    assert_eq!(shown.entries, parts);
    assert!(!format!("{shown:?}").contains("1.0.1"), "the failed attempt is taken back: {shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_from_now_on_leaves_out_what_was() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speaker(&house)).await;
    let (run, _) = speech(&house, 1).await;
    for path in ["stream", "stream/consolidated"] {
        let path = format!("{run}/{path}");
        let mut before = house.events(&path, None).await;
        let mut known = Vec::new();
        while known.last().is_none_or(|event: &Event| event.name != "agent.waiting") {
            known.push(before.next().await.expect("it waits"));
        }
        // The stream says at once where it stands, and goes on there.
        let bearer = format!("Bearer {TOKEN}");
        let answer = house.raw("GET", &format!("{path}?after=latest"), &[("authorization", &bearer)], "").await;
        let answer = answer.into_body().frame().await.unwrap().unwrap();
        let position = format!("id: {}\n\n", known.last().unwrap().id);
        assert_eq!(answer.into_data().unwrap(), position);
    }
    let now = house.events(&format!("{run}/stream/consolidated?after=latest"), None).await;
    signal(&house, &run, "begin").await;
    hear_it_out(&house, &run).await;
    signal(&house, &run, "end").await;
    let heard = now.rest().await;
    let whole = house.events(&format!("{run}/stream/consolidated"), None).await.rest().await;
    let durable = |events: &[Event]| events.iter().filter(|event| event.is_durable()).cloned().collect::<Vec<_>>();
    let (heard, whole) = (durable(&heard), durable(&whole));
    assert_eq!(heard[..], whole[whole.len() - heard.len()..]);
    assert!(heard[0].name != "agent.started" && heard.len() > 6, "{heard:?}");
    let ended = house.events(&format!("{run}/stream?after=latest"), None).await;
    assert_eq!((ended.status, ended.rest().await), (204, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_listed_from_the_last_one_back() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speaker(&house)).await;
    let (run, _) = speech(&house, 1).await;
    signal(&house, &run, "begin").await;
    hear_it_out(&house, &run).await;
    signal(&house, &run, "end").await;
    house.until(run.rsplit('/').next().unwrap(), "COMPLETED").await;
    let listed = house.get(&format!("{run}/entries")).await["items"].clone();
    let mut back = Vec::new();
    let mut page = house.get(&format!("{run}/entries?order=desc&limit=2")).await;
    loop {
        back.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        page = house.get(&format!("{run}/entries?order=desc&limit=2&cursor={cursor}")).await;
    }
    back.reverse();
    assert_eq!((&json!(back), back.len()), (&listed, 3));
    let (status, refused) = house.ask("GET", &format!("{run}/entries?order=up"), &[], "").await;
    assert_eq!(status, 400);
    assert!(refused["detail"].as_str().unwrap().contains("give `asc` or `desc`"), "{refused}");
}

/// The list of a run's events says of each what the stream says.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_as_they_were_streamed() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speaker(&house)).await;
    let (run, _) = speech(&house, 4).await;
    signal(&house, &run, "begin").await;
    hear_it_out(&house, &run).await;
    signal(&house, &run, "end").await;
    house.until(run.rsplit('/').next().unwrap(), "COMPLETED").await;
    let streamed = house.events(&format!("{run}/stream/consolidated"), None).await.rest().await;
    let streamed: Vec<_> = streamed.into_iter().filter(house::Event::is_durable).collect();
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = house.get(&format!("{run}/events?limit=3{cursor}")).await;
        listed.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed.len(), streamed.len());
    for (listed, mut streamed) in listed.iter().zip(streamed) {
        // An entry is listed elsewhere, with what it says.
        let said = streamed.data.as_object_mut().unwrap();
        said.retain(|field, _| !["depth", "content", "metadata", "parentId", "turnId"].contains(&field.as_str()));
        let told = (listed["id"].to_string(), listed["event"].as_str().unwrap(), &listed["data"]);
        assert_eq!(told, (streamed.id, &*streamed.name, &streamed.data));
    }
    let named = house.get(&format!("{run}/events?event=entry,agent.completed&limit=2")).await;
    let names = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    };
    let rest = house
        .get(&format!("{run}/events?event=agent.completed&cursor={}", named["nextCursor"].as_str().unwrap_or("0")))
        .await;
    assert!(names(&named).iter().all(|name| name == "entry" || name == "agent.completed"), "{named}");
    assert_eq!((names(&rest), &rest["nextCursor"]), (vec!["agent.completed".to_owned()], &Value::Null));
    for wrong in ["event=agent.unheard", "limit=0", "limit=1001", "cursor=first", "after=1"] {
        let (status, problem) = house.ask("GET", &format!("{run}/events?{wrong}"), &[], "").await;
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_costs_a_watcher_nothing() {
    let host = |dies: bool| {
        let speaker = agent("speaker", |ctx, _| {
            Box::pin(async move {
                ctx.append_entry("user", "speak")?;
                let said: Value = ctx.schedule("say", &())?.await?;
                ctx.append_entry("assistant", &said)?;
                Ok(said)
            })
        });
        let say = job("say", TaskOptions::default(), move |ctx, _| {
            Box::pin(async move {
                ctx.stream_token(if dies { "half of " } else { "the whole " });
                ctx.stream_token(if dies { "it" } else { "of it" });
                match dies {
                    true => std::future::pending().await,
                    false => Ok("the whole of it".into()),
                }
            })
        });
        NativeHost::default().agent(speaker).unwrap().task(say).unwrap()
    };
    let house = std::sync::Arc::new(House::open().await);
    // A process of its own, as far as the server can tell.
    let process = tokio::runtime::Runtime::new().unwrap();
    let (first, inside) = (house.clone(), host(true));
    process.spawn(async move {
        let _worker = first.worker(inside).await;
        std::future::pending::<()>().await
    });
    house.post(BASE, json!({ "kind": "speaker", "id": "s" })).await;
    let mut events = house.events(&format!("{BASE}/s/stream/consolidated"), None).await;
    let (mut shown, mut seen) = (Shown::default(), Vec::new());
    while shown.made.values().all(|text| text != "half of it") {
        let event = events.next().await.unwrap();
        shown.take(&event);
        seen.push(event);
    }
    process.shutdown_background();
    let (_second, _) = house.worker(host(false)).await;
    for event in events.rest().await {
        shown.take(&event);
        seen.push(event);
    }
    assert_eq!(shown.entries, [json!("speak"), json!("the whole of it")]);
    assert!(shown.made.values().all(|text| !text.contains("half")), "{shown:?}");
    let names: Vec<_> = seen.iter().map(|event| &event.name[..]).collect();
    assert!(names.contains(&"agent.lease_lost") && names.contains(&"retract"), "{names:?}");
    assert_eq!(seen.last().unwrap().data["status"], "COMPLETED");
    let messages = house.get(&format!("{BASE}/s/messages")).await;
    let told: Vec<_> = messages["items"].as_array().unwrap().iter().map(|entry| entry["content"].clone()).collect();
    assert_eq!(told, shown.entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_of_one_run_read_the_same() {
    const READERS: usize = 1_000;
    let house = House::open().await;
    let (_worker, _) = house.worker(speaker(&house)).await;
    let (run, execution) = speech(&house, 100).await;
    let _kept = house.runtime.chunks().follow((OrgId::DEFAULT, execution));
    let bearer = format!("Bearer {TOKEN}");
    let path = format!("{run}/stream/consolidated");
    let mut reading = Vec::with_capacity(READERS);
    for _ in 0..READERS {
        let answer = house.raw("GET", &path, &[("authorization", &bearer)], "").await;
        assert_eq!(answer.status().as_u16(), 200);
        reading.push(tokio::spawn(async move { answer.into_body().collect().await.unwrap().to_bytes() }));
    }
    signal(&house, &run, "begin").await;
    hear_it_out(&house, &run).await;
    signal(&house, &run, "end").await;
    let mut read = Vec::with_capacity(READERS);
    for reader in reading {
        read.push(reader.await.unwrap());
    }
    let whole = house.raw("GET", &path, &[("authorization", &bearer)], "").await;
    let whole = whole.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&whole).unwrap();
    // Three speeches, the failed half of one, and the last word.
    assert_eq!(text.matches("event: token\n").count(), 100 * 3 + 2 + 1);
    assert!(text.contains("event: agent.completed\n"));
    // One that came long before the others has heard that the stream was quiet.
    let told = |bytes: &hyper::body::Bytes| {
        String::from_utf8_lossy(bytes).split("\n\n").filter(|event| *event != ":").collect::<String>()
    };
    let whole = told(&whole);
    let others: Vec<_> = read.iter().filter(|bytes| told(bytes) != whole).collect();
    assert!(others.is_empty(), "{} of {READERS} read something else", others.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_previews_are_told() {
    let house = House::open().await;
    let (_worker, _) = house.worker(speaker(&house)).await;
    let (run, execution) = speech(&house, 1).await;
    let mut events = house.events(&format!("{run}/stream/consolidated"), None).await;
    let waiting = loop {
        let event = events.next().await.unwrap();
        if event.name == "agent.waiting" {
            break event;
        }
    };
    // A server that was started anew has the rows and none of the previews; the next one of the worker reaches it.
    let chunks = Chunks::default();
    let access = Access::of([(TOKEN, Identity::operator())]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let anew = serve(house.runtime.storage().clone(), chunks.clone(), config).await.unwrap();
    let house = House { serving: anew, ..house };
    let number: u64 = waiting.id.parse().unwrap();
    let mut resumed = house.events(&format!("{run}/stream/consolidated"), Some(&format!("{number}.3"))).await;
    let chunk = Chunk {
        execution,
        segment: 0,
        sequence: 0,
        epoch: 1,
        attempt: 0,
        seq: 9,
        kind: ChunkKind::Token,
        data: "ninth".into(),
    };
    chunks.publish(number, OrgId::DEFAULT, chunk);
    let gap = resumed.next().await.unwrap();
    let token = resumed.next().await.unwrap();
    assert_eq!((&gap.name[..], &gap.id, &token.data["data"]), ("gap", &waiting.id, &json!("ninth")));
    assert_eq!((&gap.data["seq"], &gap.data["position"]), (&json!(number), &json!(gap.id)));
    assert_eq!(token.id, waiting.id);
}

/// A task that its queue handed out streams to the watchers as one in the agent's own process does.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_another_worker_is_watched_while_it_speaks() {
    let house = House::open().await;
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let say = job("say", TaskOptions::default(), move |ctx, _| {
        let open = open.clone();
        Box::pin(async move {
            ctx.stream_token(&format!("word {} ", ctx.attempt()));
            open.acquire().await.unwrap().forget();
            if ctx.attempt() == 1 {
                return Err(Error::new(Code::TaskFailed, "in the middle"));
            }
            ctx.stream_token("more");
            open.acquire().await.unwrap().forget();
            Ok("said".into())
        })
    });
    let asker = agent("asker", |ctx, _| {
        Box::pin(async move {
            // The options are the caller's: what it does not register it does not know.
            let retried = TaskCall {
                kind: "say".into(),
                input: Payload::null(),
                options: Some(TaskOptions {
                    retry: RetryPolicy { retries: 1, initial: Duration::from_millis(1), ..RetryPolicy::default() },
                    ..TaskOptions::default()
                }),
                queue: None,
                key: None,
            };
            ctx.schedule_raw(retried)?.await?;
            Ok(Value::Null)
        })
    });
    let _agents = house.worker(NativeHost::default().agent(asker).unwrap()).await;
    let _tasks = house.worker(NativeHost::default().task(say).unwrap()).await;

    let run = house.post(BASE, json!({ "kind": "asker" })).await;
    let id = run["id"].as_str().unwrap();
    let mut events = house.events(&format!("{BASE}/{id}/stream/consolidated"), None).await;
    let mut seen: Vec<String> = Vec::new();
    // Each word is seen before the task may go on.
    for wanted in ["word 1 ", "word 2 ", "more"] {
        loop {
            let event = events.next().await.expect("the run goes on");
            seen.push(event.name.clone());
            if event.name == "token" {
                assert_eq!(event.data["data"], wanted, "{seen:?}");
                gate.add_permits(1);
                break;
            }
        }
    }
    let rest: Vec<_> = events.rest().await.into_iter().map(|event| event.name).collect();
    assert!(seen.iter().any(|name| name == "retract"), "the failed attempt's word is void: {seen:?}");
    assert!(rest.contains(&"task.completed".to_owned()) && rest.last().unwrap() == "agent.completed", "{rest:?}");
    assert!(!rest.contains(&"token".to_owned()) && !rest.contains(&"gap".to_owned()), "{rest:?}");
}
