//! What operators see: numbers of what was committed, on a port of their own, and on that of HTTP for a token.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::clock::{Clock, SystemClock};
use flovyn_core::context::AgentContextExt;
use flovyn_core::id::OrgId;
use flovyn_core::model::{NewKey, TokenHash, Usage, fresh_token};
use flovyn_server::{Access, ServerConfig, serve};
use house::{BASE, House, agent};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// What is answered at an address that needs no token: its status and its text.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let connection = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().uri(path).header("host", address.to_string());
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The numbers by name and labels.
async fn numbers(address: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = get(address, "/metrics").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("# EOF\n"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, number)| (name.to_owned(), number.parse().unwrap()))
        .collect()
}

/// The numbers once all of these are among them: others may see what was committed before it is counted.
async fn counted(address: SocketAddr, names: &[&str]) -> BTreeMap<String, f64> {
    for _ in 0..1_000 {
        let numbers = numbers(address).await;
        if names.iter().all(|name| numbers.contains_key(*name)) {
            return numbers;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not counted: one of {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_and_its_build_are_told() {
    let mut house = House::open().await;
    let metrics = house.serving.metrics_at(([127, 0, 0, 1], 0).into()).await.unwrap();
    let instance = house.serving.instance().to_owned();
    let text = get(metrics, "/metrics").await.1;
    let version = env!("CARGO_PKG_VERSION");
    let target = format!(
        "target_info{{service_name=\"flovyn\",service_version=\"{version}\",service_instance_id=\"{instance}\"}} 1"
    );
    assert!(text.lines().any(|line| line == target), "{target} in {text}");
    let build = format!("flovyn_build_info{{version=\"{version}\"");
    assert!(text.lines().any(|line| line.starts_with(&build) && line.ends_with("} 1")), "{text}");
    assert_ne!(House::open().await.serving.instance(), instance, "another server is another one");
    if cfg!(target_os = "linux") {
        let numbers = numbers(metrics).await;
        for name in [
            "process_cpu_seconds_total",
            "process_start_time_seconds",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ] {
            assert!(numbers.get(name).is_some_and(|number| *number > 0.0), "{name} in {text}");
        }
        let now = SystemClock::default().now().0 as f64 / 1e6;
        let age = now - numbers["process_start_time_seconds"];
        assert!((-5.0..3_600.0).contains(&age), "this process started {age} s ago");
        assert!(numbers["process_open_fds"] < numbers["process_max_fds"], "{text}");
    }
}

fn thrifty() -> NativeHost {
    let thrifty = agent("thrifty", |ctx, _| {
        Box::pin(async move {
            ctx.append_entry("user", "how much?")?;
            let usage =
                Usage { calls: 1, input_tokens: 20, output_tokens: 7, cost_micros: Some(1_500), ..Usage::default() };
            ctx.record_usage("model-1", usage)?;
            let more: Value = ctx.wait_for_signal("more")?.await?;
            Ok(more)
        })
    });
    NativeHost::default().agent(thrifty).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn families_are_counted() {
    let mut house = House::open().await;
    let metrics = house.serving.metrics_at(([127, 0, 0, 1], 0).into()).await.unwrap();
    let child = agent("child", |ctx, _| {
        Box::pin(async move {
            ctx.signal_parent("begun", &1)?.await?;
            Ok(Value::Null)
        })
    });
    let parent = agent("parent", |ctx, _| {
        Box::pin(async move {
            let both = [ctx.spawn_agent::<Value>("child", &1)?, ctx.spawn_agent::<Value>("child", &2)?];
            for child in both {
                child.await?;
            }
            Ok(Value::Null)
        })
    });
    house.post(BASE, json!({ "kind": "parent", "id": "p" })).await;
    let (_remote, _worker) = house.worker(NativeHost::default().agent(child).unwrap().agent(parent).unwrap()).await;
    house.until("p", "COMPLETED").await;
    let counts = counted(metrics, &["flovyn_children_total", "flovyn_family_messages_total"]).await;
    assert_eq!((counts["flovyn_children_total"], counts["flovyn_family_messages_total"]), (2.0, 2.0), "{counts:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_counted() {
    let mut house = House::open().await;
    let metrics = house.serving.metrics_at(([127, 0, 0, 1], 0).into()).await.unwrap();
    house.post(BASE, json!({ "kind": "nobody", "queue": "gpu" })).await;
    house.post(BASE, json!({ "kind": "thrifty", "id": "t" })).await;
    let (_remote, _worker) = house.worker(thrifty()).await;
    house.until("t", "WAITING").await;
    let committed = "flovyn_grpc_calls_total{method=\"flovyn.v2.Worker/Commit\",code=\"Ok\"}";
    let waiting = counted(metrics, &["flovyn_commits_total{outcome=\"suspended\"}", committed]).await;
    let is = |numbers: &BTreeMap<String, f64>, name: &str, expected: f64| {
        assert_eq!(numbers.get(name), Some(&expected), "{name} in {numbers:#?}");
    };
    is(&waiting, "flovyn_tokens_total{model=\"model-1\",kind=\"input\"}", 20.0);
    is(&waiting, "flovyn_tokens_total{model=\"model-1\",kind=\"output\"}", 7.0);
    is(&waiting, "flovyn_cost_usd_total{model=\"model-1\"}", 0.0015);
    is(&waiting, "flovyn_work{what=\"run\",queue=\"gpu\",status=\"PENDING\"}", 1.0);
    assert!(waiting["flovyn_work_oldest_seconds{what=\"run\",queue=\"gpu\"}"] > 0.0);
    is(&waiting, "flovyn_claims_total{what=\"run\"}", 1.0);
    is(&waiting, "flovyn_commits_total{outcome=\"suspended\"}", 1.0);
    is(&waiting, "flovyn_stream_subscribers", 0.0);
    assert!(waiting["flovyn_payload_bytes_total{by=\"commit\"}"] > 0.0);
    assert!(waiting["flovyn_storage_seconds_count{call=\"Commit\"}"] >= 1.0);
    assert!(waiting[committed] >= 1.0);
    is(
        &waiting,
        "flovyn_http_calls_total{method=\"POST\",route=\"/api/orgs/{org}/agent-executions\",code=\"201\"}",
        2.0,
    );
    let events = house.events(&format!("{BASE}/t/stream"), None).await;
    is(&numbers(metrics).await, "flovyn_stream_subscribers", 1.0);
    house.post(&format!("{BASE}/t/signal"), json!({ "signalName": "more", "signalValue": 1 })).await;
    let sent = events.rest().await.len() as f64;
    let completed = "flovyn_runs_ended_total{status=\"COMPLETED\"}";
    let ended = counted(metrics, &[completed]).await;
    is(&ended, "flovyn_stream_events_total", sent);
    is(&ended, completed, 1.0);
    // What was recorded before is not counted again by whoever goes on.
    is(&ended, "flovyn_tokens_total{model=\"model-1\",kind=\"input\"}", 20.0);

    // Nothing else is there.
    assert_eq!(get(metrics, "/api/orgs/default/agent-executions").await.0, 404);
    // Who asks for what is not there makes no names.
    for path in ["/made-up-1", "/made-up-2"] {
        assert_eq!(get(house.serving.http(), path).await.0, 404);
    }
    let text = get(metrics, "/metrics").await.1;
    assert!(text.contains("route=\"unknown\",code=\"404\"") && !text.contains("made-up"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_http_tells_those_who_may_know_of_every_org() {
    let house = House::open().await;
    let storage = house.runtime.storage().clone();
    let directory = storage.server_side().unwrap();
    let otters = directory.create_organization("otters", "a test").await.unwrap().id;
    let mut tokens = Vec::new();
    for (org, scopes) in [(OrgId::DEFAULT, "admin"), (OrgId::DEFAULT, "member"), (otters, "admin")] {
        let (token, name, actor) = (fresh_token(), scopes.to_owned(), "a test".to_owned());
        let (scopes, hash) = (scopes.parse().unwrap(), TokenHash::of(&token));
        directory
            .create_key(NewKey { org, name, scopes, expires_in: None, not_after: None, hash, actor })
            .await
            .unwrap();
        tokens.push(token);
    }
    let access = Access::keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let serving = serve(storage, house.runtime.chunks().clone(), config).await.unwrap();
    // The server of one developer is asked with its one token.
    let dev = house.ask("GET", "/metrics", &[], "").await;
    assert!(dev.0 == 200 && dev.1.as_str().unwrap().ends_with("# EOF\n"), "{dev:?}");

    let house = House { serving, ..house };
    let mut told = Vec::new();
    for token in tokens {
        told.push(house.ask("GET", "/metrics", &[("authorization", &format!("Bearer {token}"))], "").await);
    }
    assert_eq!(told.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [200, 403, 403], "{told:?}");
    assert!(told[0].1.as_str().unwrap().contains("flovyn_storage_calls_total"), "{told:?}");
    assert!(told[1].1["detail"].as_str().unwrap().contains("audit:read"), "{told:?}");
    assert_eq!(house.ask("GET", "/metrics", &[("authorization", "Bearer guessed")], "").await.0, 401);
    assert_eq!(get(house.serving.http(), "/metrics").await.0, 401);
}
