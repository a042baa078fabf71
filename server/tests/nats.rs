//! NATS between servers: hints and previews travel by it, and without it nothing but time is lost.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::client::StreamEvent;
use flovyn_core::context::AgentContextExt;
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{EventId, Status, TaskOptions};
use flovyn_core::streaming::Change;
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::wire::{raw, v2};
use futures::StreamExt;
use house::{BASE, House, agent, job};
use prost::Message;
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore, mpsc};

const PATIENCE: Duration = Duration::from_secs(30);
/// The longest pause between two looks of a store at what others wrote.
const LOOK: Duration = Duration::from_millis(100);
/// Wake-ups that are measured in a phase.
const ROUNDS: usize = 200;
/// The last word of a run, which it says before it waits for leave.
const GATED: &str = "999";

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
        let server = Self(server.expect("nats-server is installed (make setup)"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "the server of NATS listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
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

/// What the agents of a worker tell, and what they wait for: each of their wake-ups, and the leave to end.
struct Echo {
    woken: Mutex<mpsc::UnboundedReceiver<Instant>>,
    leave: Arc<Semaphore>,
}

/// An agent that answers each of its signals with a token and an entry. At last its task says a word and waits for leave.
fn echo() -> (NativeHost, Echo) {
    let (wake, woken) = mpsc::unbounded_channel();
    let leave = Arc::new(Semaphore::new(0));
    let gate = leave.clone();
    let farewell = job("farewell", TaskOptions::default(), move |ctx, _| {
        let gate = gate.clone();
        Box::pin(async move {
            ctx.stream_token(GATED);
            gate.acquire().await.unwrap().forget();
            Ok(Value::Null)
        })
    });
    let echo = agent("echo", move |ctx, rounds| {
        let wake = wake.clone();
        Box::pin(async move {
            for round in 0..rounds.as_u64().unwrap() {
                let word: Value = ctx.wait_for_signal("say")?.await?;
                let _ = wake.send(Instant::now());
                ctx.stream_token(&format!("{round} "));
                ctx.append_entry("assistant", &word)?;
            }
            ctx.schedule("farewell", &())?.await
        })
    });
    let host = NativeHost::default().agent(echo).unwrap().task(farewell).unwrap();
    (host, Echo { woken: Mutex::new(woken), leave })
}

/// Two servers over one PostgreSQL that share a NATS at a port.
async fn servers(port: u16) -> [House; 2] {
    let db = Cluster::shared().fresh().unwrap();
    let mut servers = [House::over(&db, folder()).await, House::over(&db, folder()).await];
    for house in &mut servers {
        house.serving.join_nats(&format!("nats://127.0.0.1:{port}"), "test").await.unwrap();
    }
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_travel_by_nats_both_ways() {
    let port = free_port();
    let _nats = Nats::start(port);
    let [one, two] = servers(port).await;
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

/// A token of a worker at one server comes to a reader at the other while the run can do nothing else.
async fn listen(echo: &Echo, [_, two]: &[House; 2], id: &str) {
    two.post(BASE, json!({ "kind": "echo", "id": id, "input": 0 })).await;
    let client = two.runtime.client();
    let handle = client.handle(id).await.unwrap();
    let mut watching = client.watch(handle.id(), EventId::default());
    let heard = async {
        while !matches!(watching.next().await.unwrap(), Some(StreamEvent::Chunk(_, chunk)) if *chunk.data == *GATED) {}
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap_or_else(|_| panic!("{id}: the token does not come"));
    assert_eq!(handle.status().await.unwrap(), Status::Running, "{id}: it waits for leave");
    echo.leave.add_permits(1);
    two.until(id, "COMPLETED").await;
}

/// Sends signals through one server to a worker at the other, one at a time, and follows them through the first: entries
/// come all and once. Tells how long each wake-up took, in order of that.
async fn converse(echo: &Echo, [one, two]: &[House; 2], id: &str, rounds: usize) -> Vec<Duration> {
    one.post(BASE, json!({ "kind": "echo", "id": id, "input": rounds })).await;
    two.until(id, "WAITING").await;
    let client = two.runtime.client();
    let handle = client.handle(id).await.unwrap();
    let mut watching = client.watch(handle.id(), EventId::default());
    let (mut taken, mut said, mut entries) = (Vec::new(), String::new(), 0);
    let mut woken = echo.woken.lock().await;
    for round in 0..rounds {
        let began = Instant::now();
        two.post(&format!("{BASE}/{id}/signal"), json!({ "signalName": "say", "signalValue": round })).await;
        let woken = tokio::time::timeout(PATIENCE, woken.recv()).await.expect("the run wakes").unwrap();
        taken.push(woken - began);
        while entries <= round {
            let event = tokio::time::timeout(PATIENCE, watching.next()).await;
            let event = event.unwrap_or_else(|_| panic!("{id}: no news after {entries} entries and {said:?}")).unwrap();
            match event.expect("the run goes on") {
                StreamEvent::Durable(event) => entries += usize::from(event.data.get("entry").is_some()),
                StreamEvent::Chunk(_, chunk) => said.push_str(&chunk.data),
                // On a busy machine the worker may lose its lease: whoever has it then says all again.
                StreamEvent::Retract { .. } => said.clear(),
                _ => {}
            }
        }
    }
    echo.leave.add_permits(1);
    two.until(id, "COMPLETED").await;
    assert_eq!(handle.messages().await.unwrap().len(), rounds);
    // A token may be superseded before it is seen; none is seen twice.
    let numbers: Vec<usize> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{said}");
    taken.sort_unstable();
    taken
}

/// Hears a token in a phase and measures its wake-ups: one of a hundred takes longer than this.
async fn measure(echo: &Echo, servers: &[House; 2], phase: &str) -> Duration {
    listen(echo, servers, &format!("{phase}-token")).await;
    let taken = converse(echo, servers, phase, ROUNDS).await;
    let (p50, p99) = (taken[ROUNDS / 2], taken[ROUNDS * 99 / 100]);
    println!("{phase}: {ROUNDS} wake-ups, p50 {p50:.1?}, p99 {p99:.1?}, longest {:.1?}", taken[ROUNDS - 1]);
    p99
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_killed_slow_or_back_it_costs_time_alone() {
    // How long it takes here and now where nothing is wrong: the machine of a test may be busy.
    let usual = {
        let port = free_port();
        let _nats = Nats::start(port);
        let servers = servers(port).await;
        let (host, echo) = echo();
        let _worker = servers[0].worker(host).await;
        measure(&echo, &servers, "usual").await
    };
    let limit = (2 * LOOK).max(3 * usual);
    let port = free_port();
    let servers = servers(port).await;
    let (host, echo) = echo();
    let _worker = servers[0].worker(host).await;
    let within = async |phase: &str| {
        // Who is held up by others once is measured again; who waits for NATS is late each time.
        for attempt in 1..=3 {
            if measure(&echo, &servers, &format!("{phase}-{attempt}")).await <= limit {
                return;
            }
        }
        panic!("{phase}: one wake-up of a hundred takes longer than {limit:?}");
    };
    within("absent").await;
    let nats = Nats::start(port);
    converse(&echo, &servers, "starting", 20).await;
    within("there").await;
    nats.signal("-STOP");
    within("slow").await;
    nats.signal("-CONT");
    converse(&echo, &servers, "quick", 20).await;
    drop(nats);
    within("killed").await;
    let _nats = Nats::start(port);
    within("back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_no_nats_is_refused() {
    let mut house = House::open().await;
    for (url, prefix) in [("nats://127.0.0.1:4222", "a.b"), ("nats://127.0.0.1:4222", ""), ("nats://:x", "flovyn")] {
        let refused = house.serving.join_nats(url, prefix).await.unwrap_err();
        assert_eq!(refused.code(), flovyn_core::error::Code::InvalidArgument, "{url} {prefix}: {refused}");
    }
}
