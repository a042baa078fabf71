//! How messages are told apart in output that comes in pieces of any size.

use super::*;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

fn open() -> Vec<RequestId> {
    vec![RequestId::Number(3), RequestId::Number(4)]
}

fn answer(id: i64, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
}

/// The id of each message and what it says, of output that comes in pieces of a size.
async fn all(output: &[u8], size: usize, longest: usize) -> Vec<(Value, String)> {
    let (mut server, ours) = tokio::io::duplex(size);
    let mut lines = Lines { longest, ..Lines::new(ours) };
    let output = output.to_vec();
    let writing = tokio::spawn(async move { server.write_all(&output).await.expect("it is read") });
    let mut found = Vec::new();
    while let Some(message) = lines.next(&open()).await {
        let message = serde_json::to_value(message).expect("JSON");
        let text = message.pointer("/result/content/0/text").or_else(|| message.pointer("/error/message"));
        found.push((message["id"].clone(), text.and_then(Value::as_str).unwrap_or_default().to_owned()));
    }
    writing.await.expect("it is written");
    found
}

fn expected(all: &[(i64, &str)]) -> Vec<(Value, String)> {
    all.iter().map(|&(id, text)| (Value::from(id), text.to_owned())).collect()
}

#[tokio::test]
async fn answers_out_of_order_between_logs_and_without_a_last_line_end_all_come() {
    let output = format!("starting\n\n{}\r\n[INFO] hm\n{}", answer(4, "b"), answer(3, "a"));
    for size in [1, 7, 100_000] {
        assert_eq!(all(output.as_bytes(), size, MAX_LENGTH).await, expected(&[(4, "b"), (3, "a")]), "pieces of {size}");
    }
}

#[tokio::test]
async fn of_a_message_that_is_too_long_its_call_is_told_and_the_next_is_read() {
    let output = format!("{}\n{}\n{}\n", "x".repeat(9_000), answer(3, &"y".repeat(9_000)), answer(4, "b"));
    for size in [1, 100, 100_000] {
        let found = all(output.as_bytes(), size, 4_096).await;
        assert_eq!(found, expected(&[(3, "it is longer than 0 MB"), (4, "b")]), "pieces of {size}");
    }
}

#[tokio::test]
async fn a_message_over_several_lines_is_one() {
    let pretty = |id, text| {
        let value: Value = serde_json::from_str(&answer(id, text)).expect("JSON");
        serde_json::to_string_pretty(&value).expect("JSON")
    };
    let output = format!("{}\n{{\n{}\nlog\n{}\n", pretty(3, "a{]\\\""), answer(4, "b"), pretty(4, "c"));
    for size in [1, 100, 100_000] {
        let found = all(output.as_bytes(), size, MAX_LENGTH).await;
        assert_eq!(found, expected(&[(3, "a{]\""), (4, "b"), (4, "c")]), "pieces of {size}");
    }
    // What was begun and never ends is not kept without bound.
    let endless = format!("{{\n{}{}\n", "1,\n".repeat(3_000), answer(4, "b"));
    assert_eq!(all(endless.as_bytes(), 1_000, 4_096).await, expected(&[(4, "b")]));
}

#[tokio::test]
async fn a_read_that_is_given_up_loses_nothing() {
    let (mut server, ours) = tokio::io::duplex(64);
    let mut lines = Lines::new(ours);
    let whole = answer(3, "a");
    for piece in whole.as_bytes().chunks(10) {
        server.write_all(piece).await.expect("it is read");
        let open = open();
        let mut reading = std::pin::pin!(lines.next(&open));
        assert!(futures::poll!(&mut reading).is_pending());
    }
    server.write_all(b"\n").await.expect("it is read");
    assert!(lines.next(&open()).await.is_some());
}
