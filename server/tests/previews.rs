//! Previews reach readers of other processes through rows: several servers over one PostgreSQL, several programs over one
//! SQLite file. Nobody reads elsewhere: nothing is written.

mod house;

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::StreamEvent;
use flovyn_core::context::{AgentContextExt, TaskCall};
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::journal::Outcome;
use flovyn_core::model::{EventId, TaskOptions};
use flovyn_core::runtime::Runtime;
use flovyn_core::streaming::ProgressBySource;
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use house::{BASE, Event, Events, House, Shown, agent, job};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(30);

/// An agent that lets a task speak and appends what it said. A task that dies stops in the middle.
fn speaker(dies: bool) -> NativeHost {
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
}

/// An agent whose task says a word a permit.
fn teller(permits: Arc<Semaphore>) -> NativeHost {
    let teller = agent("teller", |ctx, words| {
        Box::pin(async move {
            let said: Value = ctx.schedule("tell", &words)?.await?;
            ctx.append_entry("assistant", &said)?;
            Ok(said)
        })
    });
    let tell = job("tell", TaskOptions::default(), move |ctx, words| {
        let permits = permits.clone();
        Box::pin(async move {
            let mut said = String::new();
            for word in 0..words.as_u64().unwrap() {
                permits.acquire().await.unwrap().forget();
                let word = format!("{word} ");
                ctx.stream_token(&word);
                said.push_str(&word);
            }
            permits.acquire().await.unwrap().forget();
            Ok(said.into())
        })
    });
    NativeHost::default().agent(teller).unwrap().task(tell).unwrap()
}

/// An agent whose tasks speak and are over at once, one in the worker and one of the queue.
fn quick() -> NativeHost {
    let quick = agent("quick", |ctx, _| {
        Box::pin(async move {
            for (task, queue) in [("say", None), ("call", Some("default".to_owned()))] {
                let input = Payload::null();
                ctx.schedule_raw(TaskCall { kind: task.into(), input, options: None, queue, key: None })?.await?;
            }
            Ok(Value::Null)
        })
    });
    let speak = |kind| {
        job(kind, TaskOptions::default(), move |ctx, _| {
            Box::pin(async move {
                ["a ", "quick ", kind].into_iter().for_each(|word| ctx.stream_token(word));
                Ok(Value::Null)
            })
        })
    };
    NativeHost::default().agent(quick).unwrap().task(speak("say")).unwrap().task(speak("call")).unwrap()
}

/// An agent whose two tasks are of another queue, and these, which sing a word a permit each.
fn choir(permits: Arc<[Semaphore; 2]>) -> (NativeHost, NativeHost) {
    let choir = agent("choir", |ctx, words| {
        Box::pin(async move {
            let part = |part: usize| -> flovyn_core::Result<_> {
                let input = Payload::of(&json!([part, words]))?;
                let queue = Some("voices".to_owned());
                ctx.schedule_raw(TaskCall { kind: "sing".into(), input, options: None, queue, key: None })
            };
            let parts = [part(0)?, part(1)?];
            ctx.append_entry("assistant", &"sing")?;
            for part in parts {
                let Outcome::Value(sung) = part.await? else { unreachable!("a task has a result") };
                ctx.append_entry("assistant", &sung.parse::<Value>()?)?;
            }
            Ok(Value::Null)
        })
    });
    let sing = job("sing", TaskOptions::default(), move |ctx, input| {
        let permits = permits.clone();
        Box::pin(async move {
            let (part, words): (usize, u64) = serde_json::from_value(input).unwrap();
            let (permits, mut sung) = (&permits[part], String::new());
            for word in 0..words {
                permits.acquire().await.unwrap().forget();
                let word = format!("{} ", part + 10 * word as usize);
                ctx.stream_token(&word);
                sung.push_str(&word);
            }
            permits.acquire().await.unwrap().forget();
            Ok(sung.into())
        })
    });
    (NativeHost::default().agent(choir).unwrap(), NativeHost::default().task(sing).unwrap())
}

/// An agent that waits for a signal in each of its rounds, and whose task then says the round's word and waits for leave.
fn waiter(leave: Arc<Semaphore>) -> NativeHost {
    let waiter = agent("waiter", |ctx, rounds| {
        Box::pin(async move {
            for round in 0..rounds.as_u64().unwrap() {
                let _: Value = ctx.wait_for_signal("say")?.await?;
                let _: Value = ctx.schedule("word", &round)?.await?;
                ctx.append_entry("assistant", &round)?;
            }
            Ok(Value::Null)
        })
    });
    let word = job("word", TaskOptions::default(), move |ctx, round| {
        let leave = leave.clone();
        Box::pin(async move {
            ctx.stream_token(&format!("word {round}"));
            leave.acquire().await.unwrap().forget();
            Ok(Value::Null)
        })
    });
    NativeHost::default().agent(waiter).unwrap().task(word).unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A server with a worker that ends all at once, as a killed process does.
struct Process(Option<tokio::runtime::Runtime>);

impl Process {
    async fn start(db: String) -> (Self, WorkerId) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (ready, worker) = oneshot::channel();
        runtime.spawn(async move {
            let house = House::over(&db, folder()).await;
            let (_remote, worker) = house.worker(speaker(true)).await;
            ready.send(worker.id()).unwrap();
            std::future::pending::<()>().await
        });
        (Self(Some(runtime)), worker.await.unwrap())
    }

    fn kill(&mut self) {
        self.0.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time").expect("the stream goes on")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_at_another_server_sees_tokens_and_the_death_of_the_first() {
    let db = Cluster::shared().fresh().unwrap();
    let two = House::over(&db, folder()).await;
    let (mut one, worker) = Process::start(db).await;
    two.post(BASE, json!({ "kind": "speaker", "id": "s" })).await;
    let stream = format!("{BASE}/s/stream/consolidated");
    let mut events = two.events(&stream, None).await;
    let (mut shown, mut seen) = (Shown::default(), Vec::new());
    while shown.made.values().all(|text| text != "half of it") {
        let event = next(&mut events).await;
        shown.take(&event);
        seen.push(event);
    }
    assert!(shown.entries.iter().all(|entry| entry == "speak"), "the tokens came before what they announce");
    one.kill();
    two.runtime.storage().cut_leases(OrgId::DEFAULT, worker, Duration::ZERO).await.unwrap();
    let (_second, _) = two.worker(speaker(false)).await;
    let rest = tokio::time::timeout(PATIENCE, events.rest()).await.expect("the run ends");
    for event in rest {
        shown.take(&event);
        seen.push(event);
    }
    assert_eq!(shown.entries, [json!("speak"), json!("the whole of it")]);
    assert!(shown.made.values().all(|text| !text.contains("half")), "{shown:?}");
    let names: Vec<_> = seen.iter().map(|event| &event.name[..]).collect();
    assert!(names.contains(&"retract") && !names.contains(&"gap"), "{names:?}");
    assert_eq!(names.last(), Some(&"agent.completed"));
    let messages = two.get(&format!("{BASE}/s/messages")).await;
    let told: Vec<_> = messages["items"].as_array().unwrap().iter().map(|entry| entry["content"].clone()).collect();
    assert_eq!(told, shown.entries);
}

/// While a run waits nobody holds it, and whoever looks sees so. What its worker makes once it goes on is read elsewhere all the
/// same, in every round, whoever wakes it and whether the reader came before or while it waited.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_come_to_other_servers_after_each_wait() {
    const ROUNDS: u64 = 6;
    let db = Cluster::shared().fresh().unwrap();
    let (one, two) = (House::over(&db, folder()).await, House::over(&db, folder()).await);
    let leave = Arc::new(Semaphore::new(0));
    let (_remote, _worker) = one.worker(waiter(leave.clone())).await;
    one.post(BASE, json!({ "kind": "waiter", "id": "w", "input": ROUNDS })).await;
    let stream = format!("{BASE}/w/stream/consolidated");
    let mut events = two.events(&stream, None).await;
    for round in 0..ROUNDS {
        let waiting = loop {
            let event = next(&mut events).await;
            if event.name == "agent.waiting" {
                break event.id;
            }
        };
        // By now everybody has looked.
        tokio::time::sleep(Duration::from_millis(300)).await;
        if round % 3 == 2 {
            events = two.events(&stream, Some(&waiting)).await;
        }
        let waker = [&one, &two][round as usize % 2];
        waker.post(&format!("{BASE}/w/signal"), json!({ "signalName": "say", "signalValue": round })).await;
        loop {
            let event = next(&mut events).await;
            if event.name == "token" {
                assert_eq!(event.data["data"], json!(format!("word {round}")));
                break;
            }
        }
        leave.add_permits(1);
    }
    let rest = tokio::time::timeout(PATIENCE, events.rest()).await.expect("the run ends");
    assert_eq!(rest.last().unwrap().name, "agent.completed");
    assert_eq!(rows(&two.runtime, "w").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_resumed_at_either_server_and_shows_the_same() {
    const WORDS: usize = 24;
    let db = Cluster::shared().fresh().unwrap();
    let (one, two) = (House::over(&db, folder()).await, House::over(&db, folder()).await);
    let permits = Arc::new(Semaphore::new(0));
    let (_remote, _worker) = one.worker(teller(permits.clone())).await;
    one.post(BASE, json!({ "kind": "teller", "id": "t", "input": WORDS })).await;
    let stream = format!("{BASE}/t/stream/consolidated");
    let mut whole = one.events(&stream, None).await;
    let said = |words: usize| (0..words).map(|word| format!("{word} ")).collect::<String>();
    let (mut seen, mut shown): (Vec<Event>, Shown) = (Vec::new(), Shown::default());
    for (turn, words) in (3..=WORDS).step_by(3).enumerate() {
        let house = if turn % 2 == 0 { &two } else { &one };
        let mut events = house.events(&stream, seen.last().map(|event| &event.id[..])).await;
        permits.add_permits(3);
        while shown.made.values().all(|text| text.len() < said(words).len()) {
            let event = next(&mut events).await;
            shown.take(&event);
            seen.push(event);
        }
        assert_eq!(shown.made.values().collect::<Vec<_>>(), [&said(words)], "at turn {turn}");
        if words == WORDS {
            permits.add_permits(1);
            for event in tokio::time::timeout(PATIENCE, events.rest()).await.expect("the run ends") {
                shown.take(&event);
                seen.push(event);
            }
        }
    }
    let (mut all, mut stayed) = (Vec::new(), Shown::default());
    while let Some(event) = tokio::time::timeout(PATIENCE, whole.next()).await.expect("the run ends") {
        stayed.take(&event);
        all.push(event);
    }
    assert_eq!(shown, stayed, "read in pieces at two servers, it is what the worker's own server told");
    let durable = |events: &[Event]| events.iter().filter(|event| event.is_durable()).cloned().collect::<Vec<_>>();
    assert_eq!(durable(&seen), durable(&all), "what is durable comes once");
    assert!(seen.iter().all(|event| event.name != "gap"), "nothing was lost: {seen:?}");
    assert!(all.iter().all(|event| event.name != "gap" && event.name != "retract"), "who stays is told once: {all:?}");
    assert!(seen.is_sorted_by_key(|event| event.id.parse::<u64>().unwrap()), "{seen:?}");
    // The end of the run has taken its rows.
    assert_eq!(rows(&two.runtime, "t").await, 0);
}

/// The rows of previews that a run has.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_before_a_result_is_shown_before_it() {
    let house = House::open().await;
    let (remote, _worker) = house.worker(quick()).await;
    let other = house.remote().await;
    let runs = (0..50).flat_map(|_| [remote.client(), other.client()]).map(|client| async move {
        let handle = client.start("quick", Payload::null(), Default::default()).await.unwrap();
        let (mut watching, mut said) = (handle.stream(None), String::new());
        while let Some(event) = watching.next().await.unwrap() {
            match event {
                StreamEvent::Chunk(_, chunk) => said.push_str(&chunk.data),
                StreamEvent::Durable(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(said, "a quick saya quick call");
    });
    tokio::time::timeout(PATIENCE, futures::future::join_all(runs)).await.expect("the runs end");
}

/// The holder of a run, the workers of its tasks and its readers are at four servers; a reader that goes from one to the next
/// shows at each moment what one that stays does.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_queues_are_seen_from_every_server_and_resumed_at_any() {
    const WORDS: usize = 8;
    let db = Cluster::shared().fresh().unwrap();
    let mut houses = Vec::new();
    for _ in 0..4 {
        houses.push(House::over(&db, folder()).await);
    }
    let permits = Arc::new([const { Semaphore::const_new(0) }; 2]);
    let sing_on = || permits.iter().for_each(|part| part.add_permits(1));
    let (agents, _) = choir(permits.clone());
    let (_remote, _worker) = houses[0].worker(agents).await;
    let mut singers = Vec::new();
    for house in &houses[1..3] {
        let remote = house.remote().await;
        let options = WorkerOptions { queue: "voices".into(), max_tasks: 1, ..Default::default() };
        let worker = remote.worker(Arc::new(choir(permits.clone()).1), options).await.unwrap();
        singers.push((remote, worker));
    }
    houses[3].post(BASE, json!({ "kind": "choir", "id": "c", "input": WORDS })).await;
    let stream = format!("{BASE}/c/stream/consolidated");
    let (mut shown, mut last) = (Shown::default(), None::<String>);
    let mut facts = Vec::new();
    let part = |part: usize, words: usize| (0..words).map(|word| format!("{} ", part + 10 * word)).collect::<String>();
    let sung = |shown: &Shown| -> usize { shown.made.values().map(|part| part.split_whitespace().count()).sum() };
    for turn in 0.. {
        let house = &houses[turn % houses.len()];
        let mut events = house.events(&stream, last.as_deref()).await;
        sing_on();
        let until = 2 * (turn + 1);
        loop {
            let event = next(&mut events).await;
            shown.take(&event);
            last = Some(event.id.clone());
            facts.extend((event.name == "entry" || event.name.starts_with("task.")).then(|| event.id.clone()));
            if sung(&shown) >= until {
                break;
            }
        }
        let parts: Vec<_> = shown.made.values().cloned().collect();
        assert_eq!(parts, [part(0, turn + 1), part(1, turn + 1)], "at turn {turn}");
        if until == 2 * WORDS {
            sing_on();
            for event in tokio::time::timeout(PATIENCE, events.rest()).await.expect("the run ends") {
                shown.take(&event);
                facts.extend((event.name == "entry" || event.name.starts_with("task.")).then_some(event.id));
            }
            break;
        }
    }
    assert_eq!(shown.entries, [json!("sing"), json!(part(0, WORDS)), json!(part(1, WORDS))]);
    let mut once = facts.clone();
    once.dedup();
    assert_eq!(once, facts, "nothing durable is told twice");
    assert_eq!(rows(&houses[3].runtime, "c").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_where_it_was_with_a_server_that_was_started_anew() {
    const WORDS: usize = 6;
    let House { runtime, serving, folder: _folder } = House::open().await;
    let permits = Arc::new(Semaphore::new(2));
    let host = Arc::new(teller(permits.clone()));
    let _worker = runtime.worker(host, WorkerOptions::default()).await.unwrap();
    let remote = house::remote(&serving).await;
    let input = Payload::of(&WORDS).unwrap();
    let handle = remote.client().start("teller", input, Default::default()).await.unwrap();
    let (mut watching, mut said, mut entries) = (handle.stream(None), String::new(), Vec::new());
    let (mut serving, mut stopped) = (Some(serving), false);
    let all = async {
        while let Some(event) = watching.next().await.unwrap() {
            match event {
                StreamEvent::Chunk(_, chunk) => said.push_str(&chunk.data),
                // What is open is told again.
                StreamEvent::Retract { .. } => said.clear(),
                StreamEvent::Durable(event) => entries.extend(event.data.get("content").cloned()),
                other => panic!("{other:?}"),
            }
            if said == "0 1 " && !stopped {
                let old = serving.take().unwrap();
                let again = (old.grpc(), old.http());
                old.stop().await.unwrap();
                permits.add_permits(WORDS - 1);
                serving = Some(house::served(&runtime, again.0, again.1).await);
                stopped = true;
            }
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("the run ends");
    assert_eq!((said.as_str(), entries), ("0 1 2 3 4 5 ", vec![json!("0 1 2 3 4 5 ")]));
}

async fn rows(runtime: &Runtime, id: &str) -> usize {
    let previews = runtime.storage().previews().expect("rows");
    let id = ExecutionId::of_key(OrgId::DEFAULT, id);
    let (rows, _) =
        previews.read_previews(OrgId::DEFAULT, id, Uuid::nil(), &ProgressBySource::default()).await.unwrap();
    rows.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reader_elsewhere_nothing_is_written() {
    let db = Cluster::shared().fresh().unwrap();
    let house = House::over(&db, folder()).await;
    let other = Runtime::open(&db).await.unwrap();
    let permits = Arc::new(Semaphore::new(3));
    let (_remote, _worker) = house.worker(teller(permits.clone())).await;
    let run = house.post(BASE, json!({ "kind": "teller", "input": 3 })).await;
    let id = run["id"].as_str().unwrap();
    let mut events = house.events(&format!("{BASE}/{id}/stream/consolidated"), None).await;
    let mut words = 0;
    while words < 3 {
        words += usize::from(next(&mut events).await.name == "token");
    }
    assert!(other.storage().previews().unwrap().readers(Uuid::nil()).await.unwrap().is_empty());
    assert_eq!(rows(&other, id).await, 0);
    // Somebody comes late, and gets what was said before.
    let there = other.client().handle(id).await.unwrap();
    let mut watching = other.client().watch(there.id(), EventId::default());
    let mut said = String::new();
    while said != "0 1 2 " {
        let event = tokio::time::timeout(PATIENCE, watching.next()).await.unwrap().unwrap().expect("the run goes on");
        match event {
            StreamEvent::Chunk(_, chunk) => said.push_str(&chunk.data),
            StreamEvent::Gap(at) => panic!("previews were lost before {at}"),
            _ => {}
        }
    }
    assert!(rows(&other, id).await > 0);
    permits.add_permits(1);
    house.until(id, "COMPLETED").await;
    assert_eq!(rows(&other, id).await, 0);
    other.close().await.unwrap();
}

/// The folder of the file that a process of this test shares with it.
const SHARED: &str = "FLOVYN_TEST_SHARED";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other process of the test below"]
async fn the_other_process() {
    let Ok(url) = std::env::var(SHARED) else { return };
    let runtime = Runtime::open(&url).await.unwrap();
    let _worker = runtime.worker(Arc::new(speaker(true)), WorkerOptions::default()).await.unwrap();
    std::future::pending::<()>().await;
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_sees_the_tokens_of_another_that_shares_its_file() {
    let folder = folder();
    let url = format!("sqlite:{}", folder.path().join("runs.db").display());
    let here = Runtime::open(&url).await.unwrap();
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env(SHARED, &url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let other = Killed(other.unwrap());
    let handle = here.client().start("speaker", Payload::null(), Default::default()).await.unwrap();
    let mut watching = here.client().watch(handle.id(), EventId::default());
    let (mut said, mut retracted, mut gaps) = (String::new(), false, 0);
    let mut other = Some(other);
    let mut second = None;
    let end = tokio::time::timeout(PATIENCE, async {
        while let Some(event) = watching.next().await.unwrap() {
            match event {
                StreamEvent::Chunk(_, chunk) => said.push_str(&chunk.data),
                StreamEvent::Retract { .. } => {
                    retracted = true;
                    said.clear();
                }
                StreamEvent::Gap(_) => gaps += 1,
                StreamEvent::Durable(_) => {}
            }
            if said == "half of it" && other.is_some() {
                drop(other.take());
                second = Some(here.worker(Arc::new(speaker(false)), WorkerOptions::default()).await.unwrap());
            }
        }
    });
    end.await.expect("the run ends");
    assert!(second.is_some(), "the tokens of the other process were seen");
    assert!(retracted && gaps == 0);
    assert_eq!(said, "the whole of it");
    let messages: Vec<Value> =
        handle.messages().await.unwrap().iter().map(|entry| entry.new.content.parse().unwrap()).collect();
    assert_eq!(messages, [json!("speak"), json!("the whole of it")]);
    here.close().await.unwrap();
}
