//! Servers whose answers break the rules: each call ends, with what was meant or with why it cannot be read.

use crate::{environment, servers};
use flovyn_toolkit::tools::{ToolOutcome, Toolbox};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// What the server does in place of a plain answer.
const QUIRK: &str = "FLOVYN_MCP_TEST_QUIRK";

/// How long a call may take that ends by itself. The time-out of the servers here is six times that, and the longest wait
/// for anything is two seconds: for the right answer after one under another id.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A server with a quirk, on pipes.
fn on_its_pipes(quirk: &str) -> Value {
    let program = std::env::current_exe().expect("this program");
    let script = "exec \"$0\" --exact odd::on_pipes --ignored --nocapture 3>&1 >/dev/null";
    json!({ "command": "sh", "args": ["-c", script, program], "env": { QUIRK: quirk } })
}

/// One over HTTP, in a thread that goes with the test.
fn at_its_address(quirk: &'static str) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    std::thread::spawn(move || over_http(&listener, quirk));
    json!({ "url": url })
}

/// Calls `say` of a server: what came of it, and how long that took.
async fn said(quirk: &str, config: Value) -> (ToolOutcome, Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    // Far more than any of them needs: a call that is told of only by this one fails the test.
    let servers = servers(config, Duration::from_secs(60));
    let (toolbox, problems) = servers.add_to(Toolbox::new()).await;
    assert!(problems.is_empty(), "{quirk}: {problems:?}");
    let began = Instant::now();
    let environment = environment(folder.path());
    let outcome = toolbox.call("mcp__probe__say", json!({}), &environment).await.expect("the machine works");
    (outcome, began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_listed_badly_does_not_take_the_others_with_it() {
    for (quirk, words) in [
        ("list_of_odd_tools", vec!["its tool \"\" is left out", "its tool \"bad\" is left out"]),
        ("page_again", vec!["a page comes again"]),
        ("page_without_name", vec![]),
        ("nobody", vec![]),
        ("page_fails", vec!["it did not list all of its tools: Mcp error: -32000: out of pages"]),
        ("endless_pages", vec!["it has more than 500 pages"]),
        ("listed_twice", vec!["its tool \"say\" is listed twice, and the first of them is used"]),
        (
            "odd_schemas",
            vec![
                "its tool \"a_text\" is left out, for its input schema is of the type \"string\"",
                "the input schema of the tool \"mcp__probe__bad_pattern\"",
                "the input schema of the tool \"mcp__probe__far_away\"",
                "its tool \"no_such_type\" is left out, for its input schema is of the type \"objekt\"",
                "its tool \"\" is left out, for it has no name",
                "its tool \"huge\" is left out, for its input schema has 195.",
            ],
        ),
    ] {
        for config in [on_its_pipes(quirk), at_its_address(quirk)] {
            let (toolbox, problems) = servers(config, Duration::from_secs(60)).add_to(Toolbox::new()).await;
            let names: Vec<_> = toolbox.names().collect();
            assert_eq!(names, ["mcp__probe__none", "mcp__probe__say"], "{quirk}: {problems:?}");
            let told = words.iter().all(|words| problems.iter().any(|problem| problem.message.contains(words)));
            assert!(told && problems.len() == words.len(), "{quirk}: {problems:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_tools_the_first_are_used() {
    let (toolbox, problems) = servers(on_its_pipes("too_many"), Duration::from_secs(60)).add_to(Toolbox::new()).await;
    assert_eq!(toolbox.names().count(), 2_000);
    assert!(
        matches!(&*problems, [only] if only.message.contains("more than 2000 tools; those from \"t2000\" on")),
        "{problems:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_what_it_does_not_know_is_ready_soon() {
    let began = Instant::now();
    let (outcome, _) = said("silent", on_its_pipes("silent")).await;
    assert_eq!(outcome.plain_text(), "hi");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// What a server asks in the middle of a call is answered, though nobody here can do it.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_of_a_server_is_left_without_an_answer() {
    for (quirk, expected) in [
        ("asks_the_unknown", "-32601 this client has no weird/thing"),
        ("asks_without_words", "-32602 the parameters of sampling/createMessage cannot be read"),
        ("asks_by_a_float", "-32601 this client has no weird/thing"),
    ] {
        let (outcome, _) = said(quirk, on_its_pipes(quirk)).await;
        assert_eq!(outcome.plain_text(), expected, "{quirk}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_no_answer_is_lost_either() {
    for (quirk, expected) in [
        ("plain", "hi"),
        // The library ends a stream whose bytes are no text; the call is told at once.
        ("bad_utf8", "Interrupted after start, outcome unknown"),
        ("surrogate", "a\u{fffd}"),
        ("pretty", "hi"),
        ("no_jsonrpc", "hi"),
        ("id_text", "hi"),
        ("id_float", "hi"),
        ("id_null", "hi"),
        ("error_null", "hi"),
        ("batch", "hi"),
        ("later_kind", "hi[hologram: not shown]"),
        ("cut", "its answer cannot be read: it is no whole JSON"),
        ("error_is_text", "the error -32603: the disk is full"),
        ("error_for_nobody", "the error -32700: Parse error"),
        ("error_as_json", "the error -32700: Parse error"),
        ("neither", "its answer cannot be read: it has neither a result nor an error"),
        ("other_id", "its answer cannot be read: it has the id 99999, which no request has"),
        ("other_first", "hi"),
        ("other_id_json", "its answer cannot be read: it has the id 99999, which no request has"),
        ("id_text_json", "hi"),
        ("no_message_json", "its answer cannot be read: could not parse JSON"),
        ("long", "yyyyyyyyyyyyyyyyyyyy"),
        ("too_long", "its answer cannot be read: it is longer than 64 MB. The call may have taken effect."),
        ("long_json", "yyyyyyyyyyyyyyyyyyyy"),
        ("bad_utf8_json", "caf\u{fffd}"),
        ("too_long_json", "its answer cannot be read: it is longer than 64 MB. The call may have taken effect."),
    ] {
        let (outcome, took) = said(quirk, at_its_address(quirk)).await;
        let text = outcome.plain_text();
        assert!(text.contains(expected), "{quirk}: {}", text.chars().take(500).collect::<String>());
        assert!(took < AT_ONCE, "{quirk}: it was waited for: {took:?}");
        assert!(!quirk.starts_with("long") || text.len() == 20 << 20, "{quirk}: {} bytes", text.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_lost_because_of_how_it_is_written() {
    for (quirk, expected) in [
        ("plain", "hi"),
        ("bad_utf8", "caf\u{fffd}"),
        ("surrogate", "a\u{fffd}"),
        ("pretty", "hi"),
        ("no_jsonrpc", "hi"),
        ("id_text", "hi"),
        ("id_float", "hi"),
        ("id_null", "hi"),
        ("error_null", "hi"),
        ("batch", "hi"),
        ("twice", "hi"),
        ("other_first", "hi"),
        ("crlf", "hi"),
        ("odd_notification", "hi"),
        ("log", "hi"),
        ("log_without_end", "hi"),
        ("ends_without_end", "hi"),
        ("no_result", "(no output)"),
        ("no_content", "(no output)"),
        ("content_is_null", "(no output)"),
        ("content_is_text", "hi"),
        ("later_kind", "hi[hologram: not shown]"),
    ] {
        let (outcome, _) = said(quirk, on_its_pipes(quirk)).await;
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), (expected, false), "{quirk}: {outcome:?}");
    }
    let (long, _) = said("long", on_its_pipes("long")).await;
    assert!(long.plain_text().len() == 20 << 20 && !long.is_error, "{:?}", long.details);
    assert_eq!((&long.details["bytes"], &long.details["cut"]), (&json!(20 << 20), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_read_ends_its_call_and_says_why() {
    for (quirk, words) in [
        ("error_without_message", "the error -1: {\"code\":-1}"),
        ("error_is_text", "the error -32603: the disk is full"),
        ("error_for_nobody", "the error -32700: Parse error"),
        ("too_long", "its answer cannot be read: it is longer than 64 MB. The call may have taken effect."),
        ("no_object", "no result of a tool"),
        ("neither", "its answer cannot be read: it has neither a result nor an error"),
        ("other_id", "its answer cannot be read: it has the id 99999, which no request has"),
    ] {
        let (outcome, took) = said(quirk, on_its_pipes(quirk)).await;
        let text = outcome.plain_text();
        assert!(outcome.error_code() == Some("mcp_error") && text.contains(words), "{quirk}: {text}");
        assert!(took < AT_ONCE, "{quirk}: it was waited for: {took:?}");
    }
}

/// What the server writes in answer to a call, without the last line end.
fn answer(quirk: &str, id: &Value) -> Vec<u8> {
    let result = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    let whole = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let error = |error: Value| json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into_bytes();
    let line = |value: Value| value.to_string().into_bytes();
    let hi = || whole(result("hi"));
    let with = |name: &str, value: Value| {
        let mut answer = hi();
        answer[name] = value;
        line(answer)
    };
    let raw = |text: &[u8]| {
        let begin =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"");
        [begin.as_bytes(), text, b"\"}]}}"].concat()
    };
    match quirk {
        "cut" => line(hi()).split_at(40).0.to_vec(),
        "bad_utf8" | "bad_utf8_json" => raw(b"caf\xe9"),
        "surrogate" => raw(b"a\\ud83d"),
        "pretty" => serde_json::to_vec_pretty(&hi()).expect("JSON"),
        "no_jsonrpc" => line(json!({ "id": id, "result": result("hi") })),
        "id_text" | "id_text_json" => with("id", Value::from(id.to_string())),
        "other_id" | "other_id_json" => with("id", json!(99_999)),
        "other_first" => [with("id", json!(99_999)), b"\n".to_vec(), line(hi())].concat(),
        "neither" => line(json!({ "jsonrpc": "2.0", "id": id })),
        "no_message_json" => b"[1, 2]".to_vec(),
        "crlf" => [line(hi()), b"\r".to_vec()].concat(),
        "odd_notification" => {
            let odd = |params| line(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
            [odd(json!([1])), b"\n".to_vec(), odd(json!("x")), b"\n".to_vec(), line(hi())].concat()
        }
        "id_float" => with("id", json!(id.as_f64())),
        "id_null" => with("id", Value::Null),
        "error_null" => with("error", Value::Null),
        "batch" => line(
            json!([{ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x" } }, hi()]),
        ),
        "twice" => [line(hi()), b"\n".to_vec(), line(whole(result("again")))].concat(),
        "log" => {
            [b"INFO working on it\n[]\n{\"level\":\"error\",\"error\":\"none\"}\n{\n".to_vec(), line(hi())].concat()
        }
        "log_without_end" => [b"working on it... ".to_vec(), line(hi())].concat(),
        "no_result" => line(whole(json!({}))),
        "no_content" => line(whole(json!({ "isError": null }))),
        "content_is_null" => line(whole(json!({ "content": null }))),
        "content_is_text" => line(whole(json!({ "content": "hi" }))),
        "later_kind" => {
            line(whole(json!({ "content": [{ "type": "text", "text": "hi" }, { "type": "hologram", "data": "?" }] })))
        }
        "long" | "long_json" => line(whole(result(&"y".repeat(20 << 20)))),
        "too_long" | "too_long_json" => line(whole(result(&"y".repeat(65 << 20)))),
        "error_without_message" => error(json!({ "code": -1 })),
        "error_is_text" => error(json!("the disk is full")),
        "error_for_nobody" | "error_as_json" => {
            line(json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "Parse error" } }))
        }
        "no_object" => line(whole(json!({ "note": "done" }))),
        _ => line(hi()),
    }
}

/// What the server asks in the middle of a call.
fn asked(quirk: &str) -> Value {
    let of = |id: Value, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    match quirk {
        "asks_without_words" => of(json!("7"), "sampling/createMessage", json!({ "messages": 5 })),
        "asks_by_a_float" => of(json!(9.0), "weird/thing", json!({})),
        _ => of(json!("7"), "weird/thing", json!([1])),
    }
}

/// What it answers to all but calls; none to what is no request.
fn other(request: &Value, quirk: &str) -> Option<Value> {
    let id = request.get("id")?;
    let error = |code: i32, message: &str| {
        Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    };
    let cursor = request["params"]["cursor"].as_str();
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let method = request["method"].as_str().unwrap_or_default();
    let result = match (method, quirk) {
        ("initialize", "nobody") => json!({ "protocolVersion": "2025-06-18" }),
        ("initialize", _) => json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
            "serverInfo": { "name": "odd", "version": "1" } }),
        ("tools/list", "list_of_odd_tools") => {
            json!({ "tools": [{ "name": "say" }, { "name": "say" }, { "inputSchema": {} },
                { "name": "none", "inputSchema": null }, { "name": "bad", "inputSchema": 7 }] })
        }
        ("tools/list", "page_again") => json!({ "tools": [tool("say"), tool("none")], "nextCursor": "8" }),
        ("tools/list", "page_without_name" | "nobody") => {
            json!({ "tools": [tool("say"), tool("none")], "nextCursor": "" })
        }
        ("tools/list", "page_fails") if cursor.is_some() => return error(-32_000, "out of pages"),
        ("tools/list", "page_fails") => json!({ "tools": [tool("say"), tool("none")], "nextCursor": "2" }),
        ("tools/list", "endless_pages") => {
            let page = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
            let tools = if page == 0 { vec![tool("say"), tool("none")] } else { Vec::new() };
            json!({ "tools": tools, "nextCursor": (page + 1).to_string() })
        }
        ("tools/list", "listed_twice") => {
            let mut second = tool("say");
            second["description"] = "Says something else.".into();
            json!({ "tools": [tool("say"), second, tool("none")] })
        }
        ("tools/list", "too_many") => {
            json!({ "tools": (0..2_100).map(|number| tool(&format!("t{number:04}"))).collect::<Vec<_>>() })
        }
        ("tools/list", "odd_schemas") => {
            let with = |name: &str, schema: Value| json!({ "name": name, "inputSchema": schema });
            let pattern =
                json!({ "type": "object", "properties": { "t": { "type": "string", "pattern": "(?<!a)\\p{L}[" } } });
            let far = json!({ "type": "object", "properties": { "t": { "$ref": "http://127.0.0.1:9/x.json" } } });
            json!({ "tools": [with("a_text", json!({ "type": "string" })), with("no_such_type", json!({ "type": "objekt" })),
                with("bad_pattern", pattern), with("far_away", far), with("say", json!({ "type": ["object", "null"] })),
                with("none", json!({ "$ref": "#" })), with("", json!({})), with("huge", json!({ "description": "d".repeat(200_000) })),] })
        }
        ("tools/list", _) => json!({ "tools": [tool("say")] }),
        (_, "silent") => return None,
        _ => return error(-32_601, method),
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// Serves on standard input and on descriptor 3: the standard output is the test harness's.
#[test]
#[ignore = "the server process that the other tests start"]
fn on_pipes() {
    let Ok(quirk) = std::env::var(QUIRK) else { return };
    let mut output = OpenOptions::new().write(true).open("/dev/fd/3").expect("descriptor 3 is open");
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let request: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let written = match request["method"].as_str() {
            Some("tools/call") if quirk.starts_with("asks_") => {
                let asked = asked(&quirk).to_string();
                output.write_all(asked.as_bytes()).and_then(|()| output.write_all(b"\n")).expect("it is read");
                let reply: Value =
                    serde_json::from_str(&lines.next().expect("an answer").expect("a line")).expect("JSON");
                let error = &reply["error"];
                let text = format!("{} {}", error["code"], error["message"].as_str().unwrap_or_default());
                json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "content": [{ "type": "text", "text": text }] } })
                    .to_string()
                    .into_bytes()
            }
            Some("tools/call") => {
                let written = answer(&quirk, &request["id"]);
                if quirk == "ends_without_end" {
                    output.write_all(&written).expect("it is read");
                    break;
                }
                written
            }
            _ => match other(&request, &quirk) {
                Some(answer) => answer.to_string().into_bytes(),
                None => continue,
            },
        };
        output.write_all(&written).and_then(|()| output.write_all(b"\n")).expect("it is read");
    }
    std::process::exit(0);
}

/// Serves one connection after the other over streamable HTTP; calls are answered by events.
fn over_http(listener: &TcpListener, quirk: &str) -> std::io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept()?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut head, mut length) = (String::new(), 0);
        while reader.read_line(&mut head)? > 2 {
            if let Some(given) = head.to_lowercase().trim().strip_prefix("content-length: ") {
                length = given.parse().unwrap_or_default();
            }
            head.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_call = request["method"] == "tools/call";
        let written = if is_call { answer(quirk, &request["id"]) } else { Vec::new() };
        let (status, kind, body) = if quirk.ends_with("_json") && is_call {
            ("200 OK", "application/json", written)
        } else if is_call {
            let mut events = Vec::new();
            for line in written.split(|&byte| byte == b'\n') {
                events.extend([b"data: ", line, b"\n"].concat());
            }
            ("200 OK", "text/event-stream", [events, b"\n".to_vec()].concat())
        } else if request.is_null() {
            ("405 Method Not Allowed", "text/plain", Vec::new())
        } else {
            match other(&request, quirk) {
                Some(answer) => ("200 OK", "application/json", answer.to_string().into_bytes()),
                None => ("202 Accepted", "text/plain", Vec::new()),
            }
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat())?;
    }
}
