//! What HTTP itself offers: compressed answers, answers that need not be sent again, and a proxy on the same machine.

mod house;

use flate2::read::GzDecoder;
use flovyn_core::id::OrgId;
use flovyn_server::{Access, Identity, ServeOptions, ServerConfig, serve_with};
use house::{BASE, House, TOKEN};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use std::io::Read;

async fn get(house: &House, path: &str, more: &[(&str, &str)]) -> Response<Incoming> {
    let bearer = format!("Bearer {TOKEN}");
    let mut headers = vec![("authorization", &bearer[..])];
    headers.extend(more);
    house.raw("GET", path, &headers, "").await
}

fn header<'a>(answer: &'a Response<Incoming>, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn bytes(answer: Response<Incoming>) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_some_length_are_compressed_for_whoever_takes_it() {
    let house = House::open().await;
    house.post(BASE, json!({ "kind": "nobody", "id": "run-1" })).await;
    let plain = get(&house, "/openapi.json", &[]).await;
    assert_eq!(header(&plain, "content-encoding"), None, "nobody has asked");
    let plain = bytes(plain).await;
    let packed = get(&house, "/openapi.json", &[("accept-encoding", "br, gzip;q=0.8")]).await;
    assert_eq!(header(&packed, "content-encoding"), Some("gzip"));
    assert_eq!(header(&packed, "vary").map(str::to_lowercase), Some("accept-encoding".into()));
    assert_eq!(header(&packed, "content-type"), Some("application/json"));
    let packed = bytes(packed).await;
    assert!(packed.len() * 4 < plain.len(), "{} of {} bytes", packed.len(), plain.len());
    let mut read = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut read).unwrap();
    assert_eq!(read, plain);

    let gzip = [("accept-encoding", "gzip")];
    let short = get(&house, "/_/health", &gzip).await;
    assert_eq!(header(&short, "content-encoding"), None, "a few bytes are not worth it");
    // Each event arrives as it comes: none waits for a block of a compressor to be full.
    let mut events = get(&house, &format!("{BASE}/run-1/stream"), &gzip).await;
    assert_eq!(header(&events, "content-encoding"), None);
    let first = events.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"id: "), "{first:?}");
    // Bytes have a length.
    let value = json!("otter ".repeat(10_000)).to_string();
    let (status, stored) = house.ask("PUT", "/api/orgs/default/payloads", &[], &value).await;
    assert_eq!(status, 201, "{stored:#}");
    let payload = get(&house, stored["href"].as_str().unwrap(), &gzip).await;
    assert_eq!(header(&payload, "content-encoding"), None);
    assert_eq!(header(&payload, "content-length"), Some(&value.len().to_string()[..]));
    assert_eq!(bytes(payload).await, value);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_has_is_not_sent_again() {
    let house = House::open().await;
    house.post(BASE, json!({ "kind": "nobody", "id": "r" })).await;
    let value = json!("otter ".repeat(10_000)).to_string();
    let stored = house.ask("PUT", "/api/orgs/default/payloads", &[], &value).await.1;
    let run = format!("{BASE}/r");
    for path in ["/openapi.json", "/docs", &run, BASE, stored["href"].as_str().unwrap()] {
        let first = get(&house, path, &[]).await;
        assert_eq!(first.status(), 200, "{path}");
        let tag = header(&first, "etag").unwrap_or_else(|| panic!("{path} has no tag")).to_owned();
        let kept = header(&first, "cache-control").unwrap().to_owned();
        assert!(kept.contains("no-cache") || kept.contains("immutable"), "{path}: {kept}");
        for known in [tag.clone(), format!("\"other\", {tag}"), "*".to_owned()] {
            let again = get(&house, path, &[("if-none-match", &known)]).await;
            assert_eq!(again.status(), 304, "{path} with {known}");
            assert_eq!((header(&again, "etag"), header(&again, "cache-control")), (Some(&tag[..]), Some(&kept[..])));
            assert!(again.headers().contains_key("x-request-id"), "{path}");
            assert!(bytes(again).await.is_empty(), "{path}");
        }
        let other = get(&house, path, &[("if-none-match", "\"other\"")]).await;
        assert_eq!((other.status().as_u16(), header(&other, "etag")), (200, Some(&tag[..])), "{path}");
        assert!(!bytes(other).await.is_empty(), "{path}");
    }

    // What has changed is sent.
    let tag = header(&get(&house, &run, &[]).await, "etag").unwrap().to_owned();
    house.post(&format!("{run}/cancel"), json!({ "mode": "hard" })).await;
    let changed = get(&house, &run, &[("if-none-match", &tag)]).await;
    assert_eq!(changed.status(), 200);
    let changed: Value = serde_json::from_slice(&bytes(changed).await).unwrap();
    assert_eq!(changed["status"], "CANCELLED");
    // So is a page behind which there is more now.
    let page = format!("{BASE}?limit=1&kind=nobody&createdUntil=2999-01-01T00:00:00Z&status=CANCELLED");
    let tag = header(&get(&house, &page, &[]).await, "etag").unwrap().to_owned();
    assert_eq!(get(&house, &page, &[("if-none-match", &tag)]).await.status(), 304);
    let older = house.post(BASE, json!({ "kind": "nobody", "id": "s" })).await["id"].as_str().unwrap().to_owned();
    house.post(&format!("{BASE}/{older}/cancel"), json!({ "mode": "hard" })).await;
    assert_eq!(get(&house, &page, &[("if-none-match", &tag)]).await.status(), 200);
    // A refusal has no tag, and a tag lets nobody in.
    let missing = get(&house, &format!("{BASE}/none"), &[("if-none-match", "*")]).await;
    assert_eq!((missing.status().as_u16(), header(&missing, "etag")), (404, None));
    let stranger = house.raw("GET", &run, &[("if-none-match", "*")], "").await;
    assert_eq!(stranger.status(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_on_this_machine_is_answered_under_its_name() {
    let house = House::open().await;
    let host = [("host", "agents.example.com")];
    let (status, told) = house.ask("GET", BASE, &host, "").await;
    let detail = told["detail"].as_str().unwrap();
    assert!(status == 403 && detail.contains("--public-host agents.example.com"), "{told:#}");
    assert!(detail.contains("public_hosts = [\"agents.example.com\"]"), "{told:#}");

    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let doors = ServeOptions { public_hosts: vec!["agents.example.com".to_owned()], ..ServeOptions::default() };
    let (storage, chunks) = (house.runtime.storage().clone(), house.runtime.chunks().clone());
    let house = House { serving: serve_with(storage, chunks, config, doors).await.unwrap(), ..house };
    for (host, origin, answered) in [
        ("agents.example.com", "https://agents.example.com", 200),
        ("agents.example.com:8443", "https://agents.example.com:8443", 200),
        ("localhost", "https://agents.example.com", 200),
        ("agents.example.com", "https://evil.example.com", 403),
        ("evil.example.com", "https://evil.example.com", 403),
    ] {
        let (status, told) = house.ask("GET", BASE, &[("host", host), ("origin", origin)], "").await;
        assert_eq!(status, answered, "{host} {origin}: {told:#}");
    }
}
