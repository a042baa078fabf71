//! What a key or an address may ask for: rates, streams, connections, and the sizes of what it sends.

mod house;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::model::{NewKey, TokenHash, fresh_token};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::{ClaimRequest, WorkSource};
use flovyn_core::wire::raw;
use flovyn_core::wire::v2::agents_client::AgentsClient;
use flovyn_core::wire::v2::worker_client::WorkerClient;
use flovyn_core::wire::v2::{HintsRequest, ListExecutionsRequest, PageRequest, WatchRequest};
use flovyn_server::{Access, Limits, ServeOptions, ServerConfig, serve_with};
use futures::future::try_join_all;
use house::{BASE, House, TOKEN};
use http_body_util::BodyExt;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code::Unauthenticated;
use tonic::Request;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use uuid::Uuid;

/// A server with limits, and two keys of its org.
async fn limited(limits: Limits) -> (House, [String; 2]) {
    let house = House::open().await;
    let storage = house.runtime.storage().clone();
    let tokens = [fresh_token(), fresh_token()];
    for token in &tokens {
        let (name, scopes, actor) = ("k".to_owned(), "admin".parse().unwrap(), "a test".to_owned());
        let hash = TokenHash::of(token);
        let key = NewKey { org: OrgId::DEFAULT, name, scopes, expires_in: None, not_after: None, hash, actor };
        storage.server_side().unwrap().create_key(key).await.unwrap();
    }
    let access = Access::keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let doors = ServeOptions { limits, ..ServeOptions::default() };
    let serving = serve_with(storage, house.runtime.chunks().clone(), config, doors).await.unwrap();
    (House { serving, ..house }, tokens)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_asks_too_often_is_told_when_to_come_again() {
    let (house, [one, two]) = limited(Limits { create: 1, signal: 1, ..Limits::none() }).await;
    let start = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &bearer[..]), ("content-type", "application/json")];
        house.raw("POST", BASE, &headers, r#"{"kind": "nobody"}"#).await
    };
    assert_eq!(start(&one).await.status(), 201);
    let mut refused = start(&one).await;
    // A slow machine may have waited for a second: then it is the next one.
    for _ in 0..100 {
        if refused.status() == 429 {
            break;
        }
        refused = start(&one).await;
    }
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert_eq!(start(&two).await.status(), 201, "each key has its own");

    // What was refused was not done, and comes in again after its time.
    let mut left = 100;
    while start(&one).await.status() == 429 {
        left -= 1;
        assert!(left > 0, "it is never let in again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_is_counted_with_rest() {
    let (house, [one, _]) = limited(Limits { create: 2, poll: 3, ..Limits::none() }).await;
    let remote = RemoteStorage::connect(&house.serving.url(), RemoteOptions { token: Some(one) }).await.unwrap();
    let claim = ClaimRequest {
        org: OrgId::DEFAULT,
        worker: WorkerId::fresh(),
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_secs(30),
        only: None,
    };
    let mut polls = Vec::new();
    for _ in 0..200 {
        polls.push(remote.claim_agents(claim.clone()).await);
    }
    let refused = polls.into_iter().find_map(Result::err).expect("200 polls are more than 3 a second");
    assert_eq!(refused.code(), Code::RateLimited);
    assert!(refused.is_retryable() && refused.context().iter().any(|(name, _)| *name == "retry_after_ms"), "{refused}");

    let client = Runtime::over(Arc::new(remote));
    let mut last = None;
    for _ in 0..200 {
        last = client.client().start("nobody", Payload::null(), StartOptions::default()).await.err();
        if last.is_some() {
            break;
        }
    }
    assert_eq!(last.map(|error| error.code()), Some(Code::RateLimited));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_so_many_streams_at_a_time() {
    let (house, [one, two]) = limited(Limits { streams: 1, ..Limits::none() }).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let body = json!({ "kind": "nobody", "id": "s" }).to_string();
    assert_eq!(house.ask("POST", BASE, &[("authorization", &bearer(&one))], &body).await.0, 201);
    let follow = async |token: &str| {
        house.raw("GET", &format!("{BASE}/s/stream"), &[("authorization", &bearer(token))], "").await
    };
    let open = follow(&one).await;
    assert_eq!(open.status(), 200);
    assert_eq!(follow(&one).await.status(), 429);
    assert_eq!(follow(&two).await.status(), 200, "each key has its own");
    drop(open);
    let mut left = 600;
    while follow(&one).await.status() == 429 {
        left -= 1;
        assert!(left > 0, "a stream that was closed still counts");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Everything that a reader and a worker hold open ends with the key that opened it, and nothing of others.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_its_streams() {
    let (house, [one, two]) = limited(Limits::none()).await;
    let storage = house.runtime.storage().clone();
    let bearer = |token: &str| format!("Bearer {token}");
    let body = json!({ "kind": "nobody", "id": "s" }).to_string();
    let run = house.ask("POST", BASE, &[("authorization", &bearer(&one))], &body).await.1;
    let run: Uuid = run["id"].as_str().unwrap().parse().unwrap();
    let channel = Channel::from_shared(house.serving.url()).unwrap().connect().await.unwrap();
    let mut open = Vec::new();
    for token in [&one, &two] {
        let bearer = bearer(token);
        let events = house.raw("GET", &format!("{BASE}/s/stream"), &[("authorization", &bearer)], "").await;
        let asked = |metadata: &mut MetadataMap| metadata.insert("authorization", bearer.parse().unwrap()).is_none();
        let mut watch = Request::new(WatchRequest { execution: raw(run), ..WatchRequest::default() });
        let mut hints = Request::new(HintsRequest::default());
        assert!(asked(watch.metadata_mut()) && asked(hints.metadata_mut()));
        let watch = AgentsClient::new(channel.clone()).watch(watch).await.unwrap().into_inner();
        let hints = WorkerClient::new(channel.clone()).hints(hints).await.unwrap().into_inner();
        open.push((events.into_body(), watch, hints));
    }
    let (mut theirs, (events, mut watch, mut hints)) = (open.pop().unwrap(), open.pop().unwrap());
    let key = storage.server_side().unwrap().key_of(TokenHash::of(&one)).await.unwrap().unwrap();
    storage.server_side().unwrap().revoke_key(OrgId::DEFAULT, key.id, "a test").await.unwrap();
    let ended = async {
        let events = events.collect().await.unwrap().to_bytes();
        assert!(events.starts_with(b"id: 1\nevent: agent.started\n"), "{events:?}");
        while watch.message().await.map_err(|refused| assert_eq!(refused.code(), Unauthenticated)).is_ok() {}
        while hints.message().await.map_err(|refused| assert_eq!(refused.code(), Unauthenticated)).is_ok() {}
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("streams of a revoked key end");

    // Those of the other key tell what comes.
    house.ask("DELETE", &format!("{BASE}/s"), &[("authorization", &bearer(&two))], "").await;
    let told = async {
        let events = theirs.0.collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&events).contains("event: agent.cancelled\n"), "{events:?}");
        while theirs.1.message().await.expect("it is open").is_some() {}
        while theirs.2.message().await.expect("it is open").expect("it is open").execution != raw(run) {}
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("streams of other keys stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_fits_into_messages() {
    const RUNS: usize = 700;
    let house = House::open().await;
    let client = house.runtime.client();
    let input = Payload::of(&"x".repeat(8_000)).unwrap();
    let start = |_| client.start("nobody", input.clone(), StartOptions::default());
    try_join_all((0..RUNS).map(start)).await.unwrap();
    let channel = Channel::from_shared(house.serving.url()).unwrap().connect().await.unwrap();
    let mut agents = AgentsClient::new(channel).max_decoding_message_size(4 << 20);
    let (mut seen, mut after) = (HashSet::new(), None);
    loop {
        let page = Some(PageRequest { limit: 1_000, after: after.take() });
        let mut asked = Request::new(ListExecutionsRequest { page, ..ListExecutionsRequest::default() });
        asked.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let listed = agents.list_executions(asked).await.unwrap().into_inner();
        let ids = listed.items.into_iter().map(|run| run.new.unwrap().id);
        assert!(ids.into_iter().all(|id| seen.insert(id)), "a run is listed twice");
        match listed.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), RUNS);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_wait() {
    let (house, _) = limited(Limits { connections: 2, ..Limits::none() }).await;
    let held = [
        TcpStream::connect(house.serving.http()).await.unwrap(),
        TcpStream::connect(house.serving.http()).await.unwrap(),
    ];
    let mut third = TcpStream::connect(house.serving.http()).await.unwrap();
    let host = house.serving.http();
    let request = format!("GET /_/health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    third.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let early = tokio::time::timeout(Duration::from_millis(300), third.read_to_end(&mut answer)).await;
    assert!(early.is_err() && answer.is_empty(), "there was room for it");
    drop(held);
    tokio::time::timeout(Duration::from_secs(30), third.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_address_over_the_limit_are_closed() {
    let (house, _) = limited(Limits { connections_each: 2, ..Limits::none() }).await;
    for address in [house.serving.http(), house.serving.grpc()] {
        let held = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let closed = async || {
            let mut another = TcpStream::connect(address).await.unwrap();
            let ended = tokio::time::timeout(Duration::from_millis(300), another.read_to_end(&mut Vec::new())).await;
            ended.is_ok()
        };
        assert!(closed().await, "the limit does not hold at {address}");
        drop(held);
        let mut left = 100;
        while closed().await {
            left -= 1;
            assert!(left > 0, "a connection that ended still counts at {address}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_guesses_tokens_is_not_heard_for_a_while() {
    let (house, [known, late]) = limited(Limits { strangers: 2, ..Limits::none() }).await;
    let list = async |token: &str| {
        let bearer = format!("Bearer {token}");
        house.raw("GET", BASE, &[("authorization", &bearer[..])], "").await
    };
    assert_eq!(list(&known).await.status(), 200);
    let connect = async |token: String| {
        RemoteStorage::connect(&house.serving.url(), RemoteOptions { token: Some(token) }).await.err()
    };
    assert_eq!(list(&fresh_token()).await.status(), 401);
    let refused = connect(fresh_token()).await.expect("a token that nobody knows");
    assert_ne!(refused.code(), Code::RateLimited, "{refused}");
    // Both ports count together. From now on a good token is not looked up either, unless it is known already.
    let refused = list(&fresh_token()).await;
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(refused.status() == 429 && (1..=60).contains(&wait), "{refused:?}");
    assert_eq!(list(&late).await.status(), 429);
    assert_eq!(connect(late).await.map(|error| error.code()), Some(Code::RateLimited));
    assert_eq!(list(&known).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_have_a_size_and_an_end() {
    let house = House::open().await;
    let host = house.serving.http();
    let mut client = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /_/health HTTP/1.1\r\nhost: {host}\r\nx-much: {}\r\n\r\n", "x".repeat(100_000));
    let _ = client.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    // Whoever says nothing at all is shut out, on both ports.
    for address in [house.serving.http(), house.serving.grpc()] {
        let mut mute = TcpStream::connect(address).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), mute.read_to_end(&mut Vec::new())).await;
        let _ = ended.expect("it is shut out");
    }

    // Whoever never ends its headers, too.
    let mut slow = TcpStream::connect(host).await.unwrap();
    slow.write_all(format!("GET /_/health HTTP/1.1\r\nhost: {host}\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), slow.read_to_end(&mut answer)).await;
    ended.expect("it is shut out").unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("200"));
}
