//! NATS between servers: hints and previews travel by it, and without it nothing but time is lost.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::client::StreamEvent;
use flovyn_core::context::AgentContextExt;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::EventId;
use flovyn_core::streaming::Change;
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::wire::{raw, v2};
use futures::StreamExt;
use house::{BASE, House, agent};
use prost::Message;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(30);

/// A NATS server of the test's own; ended when dropped.
struct Nats(Child);

impl Nats {
    fn start(port: u16) -> Self {
        let program = if cfg!(unix) && std::path::Path::new("/usr/sbin/nats-server").exists() {
            "/usr/sbin/nats-server"
        } else {
            "nats-server"
        };
        let server = Command::new(program)
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(server.expect("nats-server is installed (make setup)"))
    }

    /// Stops it in its tracks, or lets it go on.
    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// An agent that answers each of its signals with a token and an entry.
fn echo() -> NativeHost {
    let echo = agent("echo", |ctx, rounds| {
        Box::pin(async move {
            for round in 0..rounds.as_u64().unwrap() {
                let word: Value = ctx.wait_for_signal("say")?.await?;
                ctx.stream_token(&format!("{round} "));
                ctx.append_entry("assistant", &word)?;
            }
            Ok(Value::Null)
        })
    });
    NativeHost::default().agent(echo).unwrap()
}

/// Two servers over one PostgreSQL that share a NATS at a port.
async fn servers(port: u16) -> (House, House) {
    let db = Cluster::shared().fresh().unwrap();
    let (mut one, mut two) = (House::over(&db, folder()).await, House::over(&db, folder()).await);
    for house in [&mut one, &mut two] {
        house.serving.join_nats(&format!("nats://127.0.0.1:{port}"), "test").await.unwrap();
    }
    (one, two)
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_travel_by_nats_both_ways() {
    let port = free_port();
    let _nats = Nats::start(port);
    let (one, two) = servers(port).await;
    let listener = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let listener = listener.connect(format!("nats://127.0.0.1:{port}")).await.unwrap();
    let mut hints = listener.subscribe("test.hints.*").await.unwrap();
    // A run that somebody hears of was started until everybody has connected.
    let named = tokio::time::timeout(PATIENCE, async {
        loop {
            let run = one.post(BASE, json!({ "kind": "nobody" })).await;
            let id: ExecutionId = run["id"].as_str().unwrap().parse().unwrap();
            while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(200), hints.next()).await {
                let hint = v2::Hint::decode(message.payload).unwrap();
                if hint.execution == raw(id.0) {
                    return hint;
                }
            }
        }
    });
    let named = named.await.expect("a hint of the run");
    assert_eq!(named.org, raw(OrgId::DEFAULT.0));
    // And what comes by NATS is heard, whatever the database says: this run is none.
    let (sender, mut heard) = mpsc::unbounded_channel();
    let _listening = two.runtime.storage().hints().listen(move |change| {
        let _ = sender.send(change);
    });
    let change =
        Change { org: OrgId::fresh(), execution: ExecutionId::fresh(), high: 7, ended: Some(false), here: false };
    let hint = v2::Hint {
        org: raw(change.org.0),
        execution: raw(change.execution.0),
        high: 7,
        ended: change.ended,
        ..Default::default()
    };
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            for garbage in [&b"\xff\xff"[..], &b""[..]] {
                listener.publish("test.hints.stranger", garbage.into()).await.unwrap();
                listener.publish("test.previews.stranger", garbage.into()).await.unwrap();
            }
            listener.publish("test.hints.stranger", hint.encode_to_vec().into()).await.unwrap();
            while let Ok(Some(news)) = tokio::time::timeout(Duration::from_millis(200), heard.recv()).await {
                if news == Some(change) {
                    return;
                }
            }
        }
    });
    found.await.expect("the hint is heard");
}

/// Sends signals through one server to a worker at the other, one at a time, and follows them through the first: entries and
/// tokens come all and once. Tells how long each took.
async fn converse(one: &House, two: &House, id: &str, rounds: usize) -> Vec<Duration> {
    one.post(BASE, json!({ "kind": "echo", "id": id, "input": rounds })).await;
    two.until(id, "WAITING").await;
    let client = two.runtime.client();
    let handle = client.handle(id).await.unwrap();
    let mut watching = client.watch(handle.id(), EventId::default());
    let (mut taken, mut said, mut entries) = (Vec::new(), String::new(), 0);
    for round in 0..rounds {
        let began = Instant::now();
        two.post(&format!("{BASE}/{id}/signal"), json!({ "signalName": "say", "signalValue": round })).await;
        while entries <= round {
            let event = tokio::time::timeout(PATIENCE, watching.next()).await.expect("news in time").unwrap();
            match event.expect("the run goes on") {
                StreamEvent::Durable(event) => entries += usize::from(event.data.get("entry").is_some()),
                StreamEvent::Chunk(_, chunk) => said.push_str(&chunk.data),
                _ => {}
            }
        }
        taken.push(began.elapsed());
    }
    two.until(id, "COMPLETED").await;
    assert_eq!(handle.messages().await.unwrap().len(), rounds);
    // A token may be superseded before it is seen; none is seen twice.
    let numbers: Vec<usize> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{said}");
    taken.sort_unstable();
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_killed_slow_or_back_it_costs_time_alone() {
    const ROUNDS: usize = 20;
    let port = free_port();
    let (one, two) = servers(port).await;
    let (_remote, _worker) = one.worker(echo()).await;
    let tell = |phase: &str, taken: Vec<Duration>| {
        println!("{phase}: p50 {:?}, longest {:?}", taken[taken.len() / 2], taken[taken.len() - 1]);
        // Twice the longest pause between two looks at the database is 200 ms; the machine of a test may be busy.
        assert!(taken[taken.len() / 2] < Duration::from_secs(2), "{phase}: {taken:?}");
    };
    tell("absent", converse(&one, &two, "absent", ROUNDS).await);
    let nats = Nats::start(port);
    tell("starting", converse(&one, &two, "starting", ROUNDS).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    tell("there", converse(&one, &two, "there", ROUNDS).await);
    nats.signal("-STOP");
    tell("slow", converse(&one, &two, "slow", ROUNDS).await);
    nats.signal("-CONT");
    tell("quick again", converse(&one, &two, "quick", ROUNDS).await);
    drop(nats);
    tell("killed", converse(&one, &two, "killed", ROUNDS).await);
    let _nats = Nats::start(port);
    tell("back", converse(&one, &two, "back", ROUNDS).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_no_nats_is_refused() {
    let mut house = House::open().await;
    for (url, prefix) in [("nats://127.0.0.1:4222", "a.b"), ("nats://127.0.0.1:4222", ""), ("nats://:x", "flovyn")] {
        let refused = house.serving.join_nats(url, prefix).await.unwrap_err();
        assert_eq!(refused.code(), flovyn_core::error::Code::InvalidArgument, "{url} {prefix}: {refused}");
    }
}
