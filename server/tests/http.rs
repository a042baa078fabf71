//! What HTTP itself offers: compressed answers, answers that need not be sent again, a proxy on the same machine, and pages of
//! other origins.

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

/// The same runs, served with options.
async fn with(house: House, options: ServeOptions) -> House {
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let (storage, chunks) = (house.runtime.storage().clone(), house.runtime.chunks().clone());
    House { serving: serve_with(storage, chunks, config, options).await.unwrap(), ..house }
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

    let names = vec!["agents.example.com".to_owned()];
    let house = with(house, ServeOptions { public_hosts: names, ..ServeOptions::default() }).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_front_end_calls_with_a_token_where_its_origin_is_named() {
    let app = "http://localhost:3000";
    let preflight = [
        ("origin", app),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,idempotency-key"),
        ("access-control-request-private-network", "true"),
    ];
    let house = House::open().await;
    let stranger = house.raw("OPTIONS", BASE, &preflight, "").await;
    assert_eq!((stranger.status().as_u16(), header(&stranger, "access-control-allow-origin")), (403, None));
    let (status, told) = house.ask("GET", BASE, &[("origin", app)], "").await;
    let detail = told["detail"].as_str().unwrap();
    assert!(status == 403 && detail.contains("--cors-origin") && detail.contains("cors_origins"), "{told:#}");

    let origins = vec![app.to_owned(), "https://app.example.com".to_owned()];
    let house = with(house, ServeOptions { cors_origins: origins, ..ServeOptions::default() }).await;
    let asked = house.raw("OPTIONS", BASE, &preflight, "").await;
    assert_eq!((asked.status().as_u16(), header(&asked, "access-control-allow-origin")), (200, Some(app)));
    assert!(header(&asked, "access-control-allow-methods").unwrap().contains("POST"));
    let allowed = header(&asked, "access-control-allow-headers").unwrap();
    assert!(allowed.contains("authorization") && allowed.contains("idempotency-key"), "{allowed}");
    assert_eq!(header(&asked, "access-control-allow-private-network"), Some("true"));
    // A call, an event stream and a refusal can each be read; no browser is asked to send a cookie along.
    house.post(BASE, json!({ "kind": "nobody", "id": "run-1" })).await;
    for (path, status) in [(BASE.to_owned(), 200), (format!("{BASE}/run-1/stream"), 200), (format!("{BASE}/none"), 404)]
    {
        let answer = get(&house, &path, &[("origin", app), ("sec-fetch-site", "cross-site")]).await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, "access-control-allow-origin")),
            (status, Some(app)),
            "{path}"
        );
        assert!(header(&answer, "vary").unwrap().to_lowercase().contains("origin"), "{path}");
        assert_eq!(header(&answer, "access-control-allow-credentials"), None, "{path}");
    }
    // Without a token it is a stranger, whatever the browser is signed in with.
    let cookie = format!("flovyn_session_{}={TOKEN}", house.serving.http().port());
    let own = house.raw("GET", BASE, &[("cookie", &cookie)], "").await;
    let foreign = house.raw("GET", BASE, &[("cookie", &cookie), ("origin", app)], "").await;
    assert!(own.status() == 200 && !foreign.status().is_success(), "{} {}", own.status(), foreign.status());
    // Others are refused as before.
    let (status, _) = house.ask("GET", BASE, &[("origin", "http://localhost:3001")], "").await;
    assert_eq!(status, 403);
}
