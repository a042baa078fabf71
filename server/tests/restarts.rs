//! What a client shows stays exact when the process that told it is gone: previews that died with it are void.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::context::AgentContextExt;
use flovyn_core::id::OrgId;
use flovyn_core::model::TaskOptions;
use flovyn_core::storage::ClaimRequest;
use flovyn_core::worker::{Worker, WorkerOptions};
use house::{BASE, Event, Events, House, Shown, agent, job, served};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

const PATIENCE: Duration = Duration::from_secs(30);
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// An agent whose task says these words, one a permit, and appends them.
fn teller(words: &'static [&'static str], permits: Arc<Semaphore>) -> NativeHost {
    let teller = agent("teller", |ctx, _| {
        Box::pin(async move {
            let said: Value = ctx.schedule("tell", &())?.await?;
            ctx.append_entry("assistant", &said)?;
            Ok(said)
        })
    });
    let tell = job("tell", TaskOptions::default(), move |ctx, _| {
        let permits = permits.clone();
        Box::pin(async move {
            for word in words {
                permits.acquire().await.unwrap().forget();
                ctx.stream_token(word);
            }
            permits.acquire().await.unwrap().forget();
            Ok(words.concat().into())
        })
    });
    NativeHost::default().agent(teller).unwrap().task(tell).unwrap()
}

/// A server in a process that ends all at once, as a killed one does.
struct Life {
    process: Option<tokio::runtime::Runtime>,
    house: House,
}

impl Life {
    async fn begin(file: &Path, (grpc, http): (SocketAddr, SocketAddr)) -> Self {
        let process = tokio::runtime::Runtime::new().unwrap();
        let url = format!("sqlite:{}", file.display());
        let (ready, house) = oneshot::channel();
        process.spawn(async move {
            let runtime = flovyn_core::runtime::Runtime::open(&url).await.unwrap();
            let serving = served(&runtime, grpc, http).await;
            let folder = tempfile::tempdir().unwrap();
            assert!(ready.send(House { runtime, serving, folder }).is_ok());
        });
        Self { process: Some(process), house: house.await.unwrap() }
    }

    /// A worker that dies with the server.
    async fn worker(&self, host: NativeHost) -> Worker {
        let runtime = self.house.runtime.clone();
        let process = self.process.as_ref().unwrap();
        process
            .spawn(async move { runtime.worker(Arc::new(host), WorkerOptions::default()).await })
            .await
            .unwrap()
            .unwrap()
    }

    fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.house.serving.grpc(), self.house.serving.http())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.process.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time").expect("the stream goes on")
}

/// Reads until a client shows a text; where it was then.
async fn until(events: &mut Events, shown: &mut Shown, text: &str) -> String {
    loop {
        let event = next(events).await;
        shown.take(&event);
        if shown.made.values().any(|made| made == text) {
            return event.id;
        }
    }
}

async fn rest(events: Events, shown: &mut Shown) -> Vec<String> {
    let rest = tokio::time::timeout(PATIENCE, events.rest()).await.expect("the run ends");
    rest.iter().for_each(|event| shown.take(event));
    rest.into_iter().map(|event| event.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_from_a_process_that_is_gone_is_void_once_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let stream = format!("{BASE}/t/stream/consolidated");
    let mut shown = Shown::default();
    let (first, worker) = {
        let life = Life::begin(&file, (ANYWHERE, ANYWHERE)).await;
        let worker = life.worker(teller(&["half ", "of it"], Arc::new(Semaphore::new(2)))).await;
        life.house.post(BASE, json!({ "kind": "teller", "id": "t" })).await;
        let mut events = life.house.events(&stream, None).await;
        (until(&mut events, &mut shown, "half of it").await, worker.id())
    };
    let life = Life::begin(&file, (ANYWHERE, ANYWHERE)).await;
    life.house.runtime.storage().cut_leases(OrgId::DEFAULT, worker, Duration::ZERO).await.unwrap();
    // The client is back before the run goes on, or when it has said something already.
    let mut early = (life.house.events(&stream, Some(&first)).await, Shown { made: shown.made.clone(), ..shown });
    let permits = Arc::new(Semaphore::new(1));
    let _worker = life.worker(teller(&["the whole ", "of it"], permits.clone())).await;
    until(&mut early.0, &mut early.1, "the whole ").await;
    let mut late = (life.house.events(&stream, Some(&first)).await, Shown { made: shown.made, ..Shown::default() });
    until(&mut late.0, &mut late.1, "the whole ").await;
    permits.add_permits(2);
    for (events, mut shown) in [early, late] {
        rest(events, &mut shown).await;
        let made: Vec<_> = shown.made.values().collect();
        assert_eq!(made, ["the whole of it"]);
        assert_eq!(shown.entries, [json!("the whole of it")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_to_a_server_that_is_gone_is_told_to_be_missing() {
    const WORDS: &[&str] = &["a ", "b ", "c ", "d ", "e "];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let permits = Arc::new(Semaphore::new(1));
    let stream = format!("{BASE}/t/stream/consolidated");
    let mut shown = Shown::default();
    let life = Life::begin(&file, (ANYWHERE, ANYWHERE)).await;
    let addresses = life.addresses();
    let (_remote, _worker) = life.house.worker(teller(WORDS, permits.clone())).await;
    life.house.post(BASE, json!({ "kind": "teller", "id": "t" })).await;
    let mut events = life.house.events(&stream, None).await;
    let first = until(&mut events, &mut shown, "a ").await;
    // This is told to nobody: the client has gone already.
    drop(events);
    let mut other = life.house.events(&stream, None).await;
    permits.add_permits(1);
    until(&mut other, &mut Shown::default(), "a b ").await;
    drop((other, life));
    let life = Life::begin(&file, addresses).await;
    let (mut early, mut late) = (life.house.events(&stream, Some(&first)).await, None);
    permits.add_permits(2);
    let mut seen = Vec::new();
    while !shown.made.values().any(|made| made.ends_with("d ")) {
        let event = next(&mut early).await;
        shown.take(&event);
        seen.push(event.name);
        late.get_or_insert(life.house.events(&stream, Some(&first)).await);
    }
    permits.add_permits(2);
    let names = rest(early, &mut shown).await;
    assert!(seen.iter().chain(&names).any(|name| name == "gap"), "{seen:?} {names:?}");
    assert_eq!(shown.made.values().collect::<Vec<_>>(), ["c d e "]);
    let mut late_shown = Shown::default();
    let names = rest(late.unwrap(), &mut late_shown).await;
    assert!(names.iter().any(|name| name == "gap"), "{names:?}");
    assert_eq!(late_shown.made.values().collect::<Vec<_>>(), ["c d e "]);
}

/// A claim that was made, and whose answer died with its server: the worker lives, and knows nothing of it. Its next heartbeat leaves
/// the run a few seconds, and others take it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_nobody_was_told_of_does_not_hold_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agents.db");
    let life = Life::begin(&file, (ANYWHERE, ANYWHERE)).await;
    let addresses = life.addresses();
    let remote = house::remote(&life.house.serving).await;
    let busy = agent("busy", |ctx, _| Box::pin(async move { ctx.wait_for_signal::<Value>("never")?.await }));
    let worker =
        remote.worker(Arc::new(NativeHost::default().agent(busy).unwrap()), WorkerOptions::default()).await.unwrap();
    life.house.post(BASE, json!({ "kind": "lost", "id": "l" })).await;
    let claim = ClaimRequest {
        org: OrgId::DEFAULT,
        worker: worker.id(),
        queue: "default".into(),
        kinds: ["lost".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_secs(30),
        only: None,
    };
    let claimed = life.house.runtime.storage().claim_agents(claim).await.unwrap();
    let held = claimed[0].execution.lease_expires.unwrap();
    drop(life);

    let life = Life::begin(&file, addresses).await;
    let storage = life.house.runtime.storage();
    loop {
        let run = storage.execution(OrgId::DEFAULT, claimed[0].execution.new.id).await.unwrap();
        assert!(run.worker == Some(worker.id()), "nobody has shortened the lease, and it has ended");
        if run.lease_expires.is_some_and(|expires| expires < held) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The worker that goes on serves its own runs.
    life.house.post(BASE, json!({ "kind": "busy", "id": "b" })).await;
    life.house.until("b", "WAITING").await;
    let lost = agent("lost", |_, _| Box::pin(async { Ok(json!("found")) }));
    let (_remote, _worker) = life.house.worker(NativeHost::default().agent(lost).unwrap()).await;
    life.house.until("l", "COMPLETED").await;
}
