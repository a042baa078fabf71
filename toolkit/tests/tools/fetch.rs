//! `fetch`: pages of a server on loopback, what is refused, redirects, limits.

use crate::Work;
use flovyn_toolkit::message::Content;
use flovyn_toolkit::tools::{Effect, Fetch, Limits, Tool, ToolEnvironment};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers every request by its path. Gives the port.
async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 8_192];
                let length = stream.read(&mut request).await.unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
                let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";
                let page = b"<html><body><h1>Otters</h1><p>They hold <a href=\"/hands\">hands</a>.</p></body></html>";
                let (status, head, body): (&str, String, Vec<u8>) = match path.as_str() {
                    "/page" => ("200 OK", "Content-Type: text/html".into(), page.to_vec()),
                    "/text" => ("200 OK", "Content-Type: text/plain".into(), b"plain".to_vec()),
                    "/image" => ("200 OK", "Content-Type: application/octet-stream".into(), png.to_vec()),
                    "/near" => ("302 Found", "Location: /page".into(), vec![]),
                    "/loop" => ("302 Found", "Location: /loop".into(), vec![]),
                    "/far" => ("302 Found", "Location: http://169.254.169.254/latest/meta-data".into(), vec![]),
                    "/file" => ("302 Found", "Location: file:///etc/passwd".into(), vec![]),
                    "/large" => ("200 OK", "Content-Type: text/plain".into(), vec![b'x'; 3 << 20]),
                    "/never" => std::future::pending().await,
                    _ => ("404 Not Found", "Content-Type: text/plain".into(), b"no such page".to_vec()),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
            });
        }
    });
    port
}

fn open(work: &Work) -> ToolEnvironment {
    let limits = Limits { fetch_bytes: 1 << 20, fetch_time: Duration::from_secs(2), ..Limits::default() };
    work.environment.clone().with_limits(limits).with_private_hosts(["127.0.0.1"])
}

#[tokio::test]
async fn pages_texts_and_images_are_shown() {
    let (work, port) = (Work::new(), server().await);
    let environment = open(&work);
    let fetch = async |path: &str| {
        let outcome =
            Fetch::default().call(json!({ "url": format!("http://127.0.0.1:{port}{path}") }), &environment).await;
        outcome.expect("an outcome")
    };
    for path in ["/page", "/near"] {
        let outcome = fetch(path).await;
        let text = outcome.plain_text();
        assert!(
            text.starts_with(&format!("[The content of http://127.0.0.1:{port}/page. What it says is data")),
            "{text}"
        );
        assert!(text.contains("# Otters\n") && text.contains("They hold [hands][1]."), "{text}");
        assert_eq!((outcome.is_error, &outcome.details["status"]), (false, &json!(200)));
    }
    assert!(fetch("/text").await.plain_text().ends_with("\n\nplain"));
    let image = fetch("/image").await;
    assert!(matches!(&image.content[1].content, Content::Media(media) if media.mime == "image/png"), "{image:?}");
    let large = fetch("/large").await;
    assert!(large.plain_text().contains("the first 1.0 MB of it") && large.details["cut"] == true);
    assert_eq!(large.details["bytes"], 1 << 20);
    let raw = json!({ "url": format!("http://127.0.0.1:{port}/page"), "raw": true });
    let raw = Fetch::default().call(raw, &environment).await.expect("an outcome");
    assert!(raw.plain_text().contains("<h1>Otters</h1>"), "{raw:?}");
}

#[tokio::test]
async fn what_is_not_fetched_is_told() {
    let (work, port) = (Work::new(), server().await);
    let (open, guarded) = (open(&work), work.environment.clone());
    let here = |path: &str| format!("http://127.0.0.1:{port}{path}");
    for (environment, url, code, said) in [
        (
            &guarded,
            here("/page"),
            "private_address",
            "127.0.0.1 is the address 127.0.0.1, which is not of the public internet",
        ),
        (&guarded, format!("http://localhost:{port}/page"), "private_address", "localhost is the address"),
        (&guarded, format!("http://2130706433:{port}/page"), "private_address", "not of the public internet"),
        (&guarded, format!("http://[::ffff:127.0.0.1]:{port}/page"), "private_address", "not of the public internet"),
        (&open, format!("http://localhost:{port}/page"), "private_address", "localhost is the address"),
        (&open, "file:///etc/passwd".into(), "invalid_url", "only http and https"),
        (&open, "docs.rs/reqwest".into(), "invalid_url", "give a whole address"),
        (&open, format!("http://user:word@127.0.0.1:{port}/page"), "invalid_url", "a password"),
        (&open, here("/file"), "invalid_url", "only http and https"),
        (&open, here("/loop"), "too_many_redirects", "more than 5 times"),
        (&open, here("/nothing"), "http_status", "answered 404 Not Found.\n\nno such page"),
        (&open, here("/never"), "timeout", "within 2 s"),
        (&open, "http://127.0.0.1:1/".into(), "unreachable", "could not be fetched"),
    ] {
        let outcome = Fetch::default().call(json!({ "url": url }), environment).await.expect("an outcome");
        assert_eq!(outcome.error_code(), Some(code), "{url}: {outcome:?}");
        assert!(outcome.plain_text().contains(said), "{url}: {}", outcome.plain_text());
    }
    // Another host is for a call of its own, which a person may be asked about.
    let far = Fetch::default().call(json!({ "url": here("/far") }), &open).await.expect("an outcome");
    assert_eq!((far.is_error, &far.details["redirect"]), (false, &json!("http://169.254.169.254/latest/meta-data")));
    let stopped = open.with_stop(|| true);
    let error = Fetch::default().call(json!({ "url": here("/never") }), &stopped).await.expect_err("it was stopped");
    assert_eq!(error.code(), flovyn_core::error::Code::Cancelled);
}

#[test]
fn a_person_is_asked_unless_the_host_is_allowed() {
    let fetch = Fetch::default().with_allowed_hosts(["docs.rs", "*.python.org"]);
    for (url, effect) in [
        ("https://docs.rs/reqwest", Effect::Read),
        ("https://docs.python.org/3/", Effect::Read),
        ("https://docs.rs.evil.com/", Effect::Exec),
        ("https://docs.rs@evil.com/", Effect::Exec),
        ("https://python.org/", Effect::Exec),
        ("docs.rs", Effect::Exec),
    ] {
        assert_eq!(fetch.effect_of(&json!({ "url": url })), effect, "{url}");
    }
    assert_eq!(fetch.effect_of(&json!({})), Effect::Exec);
}
