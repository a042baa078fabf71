//! How answers are read that break the rules, and what is no answer.

use super::*;

fn open(ids: &[i64]) -> Vec<RequestId> {
    ids.iter().map(|&id| RequestId::Number(id)).collect()
}

fn messages(bytes: &[u8], ids: &[i64]) -> Vec<Value> {
    match parse(bytes, &open(ids)) {
        Parsed::Messages(messages) => {
            messages.iter().map(|message| serde_json::to_value(message).expect("JSON")).collect()
        }
        Parsed::Unfinished => panic!("unfinished: {}", String::from_utf8_lossy(bytes)),
    }
}

/// The one message, and what its result says.
fn said(bytes: &[u8]) -> String {
    let messages = messages(bytes, &[3]);
    assert_eq!(messages.len(), 1, "{}: {messages:?}", String::from_utf8_lossy(bytes));
    assert_eq!(messages[0]["id"], 3, "{messages:?}");
    messages[0]["result"]["content"][0]["text"].as_str().expect("a text").to_owned()
}

const RESULT: &str = r#""result":{"content":[{"type":"text","text":"hi"}]}"#;

#[test]
fn an_answer_reaches_its_call_however_it_is_written() {
    for written in [
        format!(r#"{{"jsonrpc":"2.0","id":3,{RESULT}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"3",{RESULT}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":3.0,{RESULT}}}"#),
        format!(r#"{{"jsonrpc":"1.0","id":3,{RESULT},"error":null}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":null,{RESULT}}}"#),
        format!(r#"{{"id":3,{RESULT}}}"#),
        format!(r#"[{{"jsonrpc":"2.0","id":3,{RESULT}}}]"#),
        format!(r#"starting… {{"jsonrpc":"2.0","id":3,{RESULT}}}"#),
        format!(r#"{{"level":"info"}}{{"jsonrpc":"2.0","id":3,{RESULT}}}"#),
        format!("\u{feff}{{\"jsonrpc\":\"2.0\",\n \"id\":3,\r\n{RESULT}}}\r"),
    ] {
        assert_eq!(said(written.as_bytes()), "hi", "{written}");
    }
}

#[test]
fn characters_that_are_none_are_shown_as_such() {
    let with = |text: &[u8]| {
        [br#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":""#, text, br#""}]}}"#].concat()
    };
    for (written, expected) in [
        (&b"caf\xe9"[..], "caf\u{fffd}"),
        (br"a\ud83d", "a\u{fffd}"),
        (br"\udc00b\\ud83d", "\u{fffd}b\\ud83d"),
        (br"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        ("\\é\\ud83d".as_bytes(), ""),
        (br"\ud83d\u00e9", "\u{fffd}é"),
        (b"\xff\\ud83d\xc3", "\u{fffd}\u{fffd}\u{fffd}"),
    ] {
        let written = with(written);
        if expected.is_empty() {
            assert!(messages(&written, &[3]).is_empty(), "that is no JSON at all");
            continue;
        }
        assert_eq!(said(&written), expected, "{}", String::from_utf8_lossy(&written));
    }
    assert!(matches!(without_lone_surrogates(r"\ud83d\ude00 \u00e9 \n"), Cow::Borrowed(_)));
}

#[test]
fn a_batch_is_its_messages() {
    let batch = format!(
        r#"[{{"jsonrpc":"2.0","id":4,{RESULT}}},{{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}},{{"jsonrpc":"2.0","id":3,{RESULT}}}]"#
    );
    let read = messages(batch.as_bytes(), &[3, 4]);
    assert_eq!((read.len(), &read[0]["id"], &read[2]["id"]), (3, &json!(4), &json!(3)), "{read:?}");
}

#[test]
fn errors_that_are_none_by_the_rules_are_told() {
    for (error, code, expected) in [
        (r#"{"code":-1}"#, -32603, "{\"code\":-1}"),
        (r#"{"code":1.5,"message":"x"}"#, -32603, "x"),
        (r#"{"code":"E_DISK","message":"full"}"#, -32603, "full"),
        (r#"{"code":7,"message":{"a":1}}"#, 7, "{\"a\":1}"),
        (r#""the disk is full""#, -32603, "the disk is full"),
    ] {
        let read = messages(format!(r#"{{"jsonrpc":"2.0","id":3,"error":{error}}}"#).as_bytes(), &[3]);
        let found = (&read[0]["id"], &read[0]["error"]["code"], read[0]["error"]["message"].as_str());
        let code = if error.contains("-1") { -1 } else { code };
        assert_eq!(found, (&json!(3), &json!(code), Some(expected)), "{error}");
    }
    let lost = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    assert_eq!(messages(lost, &[3])[0]["id"], 3, "there is one request only");
    assert!(messages(lost, &[3, 4])[0].get("id").is_none(), "nobody knows whose it is");
}

#[test]
fn what_is_no_message_is_passed_over() {
    for noise in [
        &b"Server listening on stdio..."[..],
        b"caf\xe9 started",
        b"[INFO] ready",
        b"[2026-01-01 10:00] ready",
        b"12",
        b"",
        b"\xef\xbb\xbf",
        br#"{"level":"info","msg":"started"}"#,
        br#"{"level":"error","error":"disk","id":9}"#,
        br#"{"level":"error","error":"disk"}"#,
        br#"{"method":"GET","id":3,"path":"/"}"#,
        br#"{"id":9,"result":{}}"#,
    ] {
        assert!(messages(noise, &[3]).is_empty(), "{}", String::from_utf8_lossy(noise));
    }
    assert!(matches!(parse(br#"{"jsonrpc":"2.0","#, &open(&[3])), Parsed::Unfinished));
}

#[test]
fn an_id_is_found_wherever_it_stands() {
    for (written, expected) in [
        (r#"{"jsonrpc":"2.0","id":3,"result":{"id":4}}"#, Some(RequestId::Number(3))),
        (r#"{"result":{"id":4,"x":[{"id":5}],"t":"\"id\":6,}"},"id" : "7" }"#, Some(RequestId::Number(7))),
        (r#"{"result":"\\","id":"a,}b"}"#, Some(RequestId::String("a,}b".into()))),
        (r#"{"result":{"id":4}}"#, None),
        (r#"{"x":"id","id":9}"#, Some(RequestId::Number(9))),
    ] {
        for size in [1, 5, 1_000] {
            let mut scan = Scan::default();
            written.as_bytes().chunks(size).for_each(|piece| scan.feed(piece));
            assert_eq!((scan.id(), scan.is_whole()), (expected.clone(), true), "{written}");
        }
    }
}

#[test]
fn a_list_of_tools_keeps_which_of_them_are_tasks() {
    let listed = br#"{"jsonrpc":"2.0","id":3,"result":{"tools":[
        {"name":"echo","inputSchema":{}},
        {"name":"research","inputSchema":{},"execution":{"taskSupport":"required"},"_meta":{"a":1}}]}}"#;
    let tools = messages(listed, &[3]).remove(0)["result"]["tools"].take();
    assert!(tools[0].get("_meta").is_none());
    assert_eq!(tools[1]["_meta"], json!({ "a": 1, TASK_SUPPORT: "required" }));
}
