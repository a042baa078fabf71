//! REST against a server that is up, with agents run by a worker over the wire.

#[path = "rest/bounds.rs"]
mod bounds;
mod house;
#[path = "rest/picked.rs"]
mod picked;
#[path = "rest/steered.rs"]
mod steered;

use flovyn_core::agent::NativeHost;
use flovyn_core::context::AgentContextExt;
use flovyn_core::model::{NewKey, SideEffects, TaskOptions, TokenHash, Usage, fresh_token};
use flovyn_server::{Access, ServerConfig, serve};
use house::{BASE, House, TOKEN, agent, job};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An agent that asks a tool, waits for a word and tells both; and one that only waits.
fn host() -> NativeHost {
    let greet = agent("greet", |ctx, input| {
        Box::pin(async move {
            ctx.append_entry("user", &input)?;
            let loud: Value = ctx.schedule("shout", &input)?.await?;
            ctx.append_entry("assistant", &loud)?;
            ctx.record_usage("m", Usage { calls: 1, input_tokens: 7, ..Usage::default() })?;
            let said: Value = ctx.wait_for_signal("word")?.await?;
            ctx.append_entry("user", &said)?;
            Ok(json!({ "loud": loud, "said": said }))
        })
    });
    let patient = agent("patient", |ctx, input| {
        Box::pin(async move {
            let size = input.as_str().map(str::len);
            ctx.wait_for_signal::<Value>("never")?.await?;
            Ok(json!(size))
        })
    });
    let shout = job("shout", TaskOptions::default(), |_, input| {
        Box::pin(async move { Ok(input.as_str().unwrap_or_default().to_uppercase().into()) })
    });
    NativeHost::default().agent(greet).unwrap().agent(patient).unwrap().task(shout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_from_its_start_to_its_end() {
    let house = House::open().await;
    let body = json!({ "kind": "greet", "input": "hello", "id": "g-1", "metadata": { "team": "a" }, "maxSteps": 9 });
    let (status, run) = house.ask("POST", BASE, &[], &body.to_string()).await;
    assert_eq!((status, &run["status"], &run["key"]), (201, &json!("PENDING"), &json!("g-1")), "{run:#}");
    assert_eq!((&run["currentCheckpointSeq"], &run["queue"]), (&json!(-1), &json!("default")));
    let kinds = house.get("/api/orgs/default/queues/unserved").await;
    assert_eq!(kinds["items"], json!([{ "queue": "default", "kind": "greet", "waiting": 1 }]));

    // The same request is the same run, in whatever order its fields come; another one is refused, and says why.
    let again = r#"{ "metadata": {"team":"a"}, "id": "g-1", "maxSteps": 9, "input": "hello", "kind": "greet" }"#;
    let (status, same) = house.ask("POST", BASE, &[], again).await;
    assert_eq!((status, &same["id"]), (200, &run["id"]));
    for (field, value) in
        [("input", json!("bye")), ("kind", json!("x")), ("metadata", json!({})), ("maxSteps", json!(8))]
    {
        let mut other = body.clone();
        other[field] = value;
        let (status, problem) = house.ask("POST", BASE, &[], &other.to_string()).await;
        assert_eq!((status, &problem["code"]), (409, &json!("ExecutionExists")), "{field}: {problem:#}");
    }

    let (_worker, _) = house.worker(host()).await;
    let waiting = house.until("g-1", "WAITING").await;
    assert_eq!((&waiting["waitReason"], &waiting["waitsFor"]), (&json!("signal"), &json!(["word"])));
    let run = format!("{BASE}/g-1");
    let body = json!({ "signalName": "word", "signalValue": { "a": 12345678901234567890_u64 }, "idempotencyKey": "k" });
    let sent = house.post(&format!("{run}/signal"), body.clone()).await;
    assert_eq!(
        (&sent["signaled"], &sent["agentResumed"], &sent["repeated"]),
        (&json!(true), &json!(true), &json!(false))
    );
    let ended = house.until("g-1", "COMPLETED").await;
    let said = json!({ "a": 12345678901234567890_u64 });
    assert_eq!(ended["output"], json!({ "loud": "HELLO", "said": said }), "{ended:#}");

    // A repeated send gets its first answer after the end too; a new one is refused.
    let repeated = house.post(&format!("{run}/signal"), body).await;
    assert_eq!((&repeated["signalId"], &repeated["repeated"]), (&sent["signalId"], &json!(true)));
    let (status, problem) = house.ask("POST", &format!("{run}/signal"), &[], r#"{"signalName":"word"}"#).await;
    assert_eq!((status, &problem["code"]), (409, &json!("ExecutionClosed")));

    let entries = house.get(&format!("{run}/entries")).await;
    let told =
        |page: &Value| page["items"].as_array().unwrap().iter().map(|e| e["content"].clone()).collect::<Vec<_>>();
    assert_eq!(told(&entries), [json!("hello"), json!("HELLO"), said]);
    // Page by page it is the same branch.
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = house.get(&format!("{run}/messages?limit=2{cursor}")).await;
        paged.extend(told(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, told(&entries));
    let second = &entries["items"][1];
    assert_eq!(&house.get(&format!("{run}/messages/{}", second["id"].as_str().unwrap())).await, second);

    let tasks = house.get(&format!("{run}/tasks")).await;
    let task = &tasks["tasks"][0];
    assert_eq!(
        (&task["kind"], &task["status"], &task["output"]),
        (&json!("shout"), &json!("COMPLETED"), &json!("HELLO"))
    );
    let calls = house.get(&format!("{run}/tool-calls?toolName=shout&status=completed")).await;
    assert_eq!((&calls["items"][0]["arguments"], &calls["items"][0]["result"]), (&json!("hello"), &json!("HELLO")));
    let call = house.get(&format!("{run}/tool-calls/{}", task["id"].as_str().unwrap())).await;
    assert_eq!(call, calls["items"][0]);
    assert_eq!(house.get(&format!("{run}/tool-calls?status=failed")).await["items"], json!([]));
    assert_eq!(house.get(&format!("{run}/usage")).await["total"]["inputTokens"], 7);
    let total = house.get("/api/orgs/default/usage?kind=greet").await;
    assert_eq!((&total["runs"], &total["models"]["m"]["inputTokens"]), (&json!(1), &json!(7)), "{total:#}");
    assert_eq!(house.get("/api/orgs/default/usage?until=2026-01-31T12:00:00Z").await["runs"], 0);
    for wrong in ["from=2026-01-31T12:00:00Z&until=2026-01-30T12:00:00Z", "from=2020-01-31T12:00:00Z", "from=then"] {
        let (status, problem) = house.ask("GET", &format!("/api/orgs/default/usage?{wrong}"), &[], "").await;
        assert_eq!((status, &problem["code"]), (400, &json!("InvalidArgument")), "{wrong}");
    }
    assert_eq!(house.get(&format!("{run}/checkpoints")).await, json!({ "checkpoints": [], "nextCursor": null }));
}

/// What other systems of this kind call it works too.
#[tokio::test(flavor = "multi_thread")]
async fn things_go_by_their_usual_names() {
    let house = House::open().await;
    let bearer = format!("Bearer {TOKEN}");
    let as_json = [("authorization", &bearer[..]), ("content-type", "application/json")];
    let body = json!({ "kind": "greet", "input": "hi", "id": "g" }).to_string();
    let (status, problem) = house.ask("GET", &format!("{BASE}/g"), &[], "").await;
    assert_eq!((status, &problem["code"]), (404, &json!("ExecutionNotFound")), "{problem:#}");
    let started = house.raw("POST", BASE, &as_json, body).await;
    let (status, at) = (started.status(), started.headers()["location"].to_str().unwrap().to_owned());
    let run = house.get(&at).await;
    assert_eq!((status.as_u16(), &run["key"]), (201, &json!("g")), "{run:#}");
    let (_worker, _) = house.worker(host()).await;
    house.until("g", "WAITING").await;
    house.post(&format!("{at}/signal"), json!({ "name": "word", "payload": 7 })).await;
    let ended = house.until("g", "COMPLETED").await;
    assert_eq!(ended["output"], json!({ "loud": "HI", "said": 7 }), "{ended:#}");
    assert!(ended["duration"].as_f64().unwrap() > 0.0 && ended["resumedFrom"].is_null(), "{ended:#}");
    assert_eq!(house.get(&at).await["duration"], ended["duration"]);
    let calls = house.get(&format!("{at}/tool-calls?tool_name=shout")).await;
    assert_eq!(calls["items"][0]["toolName"], "shout");
    assert_eq!(house.get(&format!("{at}/tool-calls?tool_name=none")).await["items"], json!([]));
    let fork = house.post(&format!("{at}/fork"), json!({})).await;
    assert_eq!(fork["resumedFrom"], run["id"], "{fork:#}");
    let id = run["id"].as_str().unwrap();
    for (same, also) in [("parent", "parent_run_id"), ("definition", "agent_id")] {
        let (one, two) = (format!("{BASE}?{same}={id}"), format!("{BASE}?{also}={id}"));
        let (one, two) = (house.ask("GET", &one, &[], "").await, house.ask("GET", &two, &[], "").await);
        assert_eq!((one.0, &one.1["items"]), (two.0, &two.1["items"]));
        assert_eq!(house.ask("GET", &format!("{BASE}?{same}=x&{also}=y"), &[], "").await.0, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_request_names_a_run() {
    let house = House::open().await;
    let key = [("idempotency-key", "order-7")];
    let (first, one) = house.ask("POST", BASE, &key, r#"{"kind":"greet","input":1}"#).await;
    let (second, two) = house.ask("POST", BASE, &key, r#"{"input":1,"kind":"greet"}"#).await;
    assert_eq!((first, second, &one["id"]), (201, 200, &two["id"]));
    assert_eq!(one["key"], Value::Null, "a key of a request is no name of the run");
    let (status, problem) = house.ask("POST", BASE, &key, r#"{"kind":"greet","input":2}"#).await;
    assert_eq!((status, &problem["code"]), (409, &json!("ExecutionExists")));
    // Without one, two starts are two runs.
    let (_, three) = house.ask("POST", BASE, &[], r#"{"kind":"greet","input":1}"#).await;
    assert_ne!(three["id"], one["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_by_what_they_are() {
    let house = House::open().await;
    for n in 0..5 {
        let body = json!({ "kind": if n < 3 { "a" } else { "b" }, "id": format!("r-{n}"), "metadata": { "n": n.to_string() } });
        house.post(BASE, body).await;
    }
    house.post(&format!("{BASE}/r-4/cancel"), json!({ "mode": "hard" })).await;
    let keys = |page: &Value| {
        page["items"].as_array().unwrap().iter().map(|r| r["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (query, wanted) in [
        ("", vec!["r-4", "r-3", "r-2", "r-1", "r-0"]),
        ("?kind=a", vec!["r-2", "r-1", "r-0"]),
        ("?status=cancelled", vec!["r-4"]),
        ("?status=CANCELLED,PENDING&kind=b", vec!["r-4", "r-3"]),
        ("?status=RUNNING&status=WAITING", vec![]),
        ("?metadata.n=1", vec!["r-1"]),
        ("?createdUntil=2020-01-01T00:00:00Z", vec![]),
        ("?createdFrom=2020-01-01T01:00:00%2B01:00&metadata.n=2&queue=default", vec!["r-2"]),
    ] {
        assert_eq!(keys(&house.get(&format!("{BASE}{query}")).await), wanted, "{query}");
    }
    let page = house.get(&format!("{BASE}?limit=2")).await;
    let next = house.get(&format!("{BASE}?limit=3&cursor={}", page["nextCursor"].as_str().unwrap())).await;
    assert_eq!(
        (keys(&page).len(), keys(&next), &next["nextCursor"]),
        (2, vec!["r-2".into(), "r-1".into(), "r-0".into()], &Value::Null)
    );
}

/// Method, path, headers, body; the status and a word of the detail.
type Case<'a> = (&'a str, String, Vec<(&'a str, &'a str)>, &'a str, u16, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_a_reason() {
    let house = House::open().await;
    house.post(BASE, json!({ "kind": "greet", "id": "here" })).await;
    let other = uuid::Uuid::new_v4();
    let foreign = format!("/api/orgs/{other}/agent-executions");
    let (here, big) = (format!("{BASE}/here"), format!(r#"{{"kind":"a","input":"{}"}}"#, "x".repeat(4 << 20)));
    let at = |rest: &str| format!("{here}{rest}");
    let elsewhere = format!(r#"{{"opId":"{other}-0-0","retry":true}}"#);
    let deep = format!(r#"{{"kind":"a","input":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let cases: Vec<Case> = vec![
        ("POST", BASE.into(), vec![], "{", 400, "the body is not as asked for"),
        ("POST", BASE.into(), vec![], "[]", 400, "the body is not as asked for"),
        ("POST", BASE.into(), vec![], "", 400, "kind"),
        ("POST", BASE.into(), vec![], r#"{"kind":""}"#, 400, "name the agent"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","inputs":1}"#, 400, "inputs"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","id":""}"#, 400, "1 to 200"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","delaySeconds":-1}"#, 400, "delaySeconds"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","input":1,"inputRef":{"hash":"","size":1}}"#, 400, "both"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","input":1,"systemPrompt":"b"}"#, 400, "not both"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","userPrompt":"b","model":"c"}"#, 400, "model"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","models":"c"}"#, 400, "a sequence"),
        ("POST", BASE.into(), vec![], r#"{"userPrompt":"b","config":{}}"#, 400, "name the agent"),
        ("POST", BASE.into(), vec![], r#"{"agentDefinitionId":"a","tools":[]}"#, 400, "has its own"),
        ("POST", BASE.into(), vec![], r#"{"kind":"a","inputRef":{"hash":"xyz","size":9}}"#, 400, "hash"),
        ("POST", BASE.into(), vec![], &deep, 400, "recursion"),
        ("POST", BASE.into(), vec![("content-type", "text/plain")], "{}", 415, "application/json"),
        ("POST", BASE.into(), vec![("idempotency-key", "")], r#"{"kind":"a"}"#, 400, "Idempotency-Key"),
        ("POST", BASE.into(), vec![], &big, 413, "4194304"),
        ("GET", format!("{BASE}/nobody"), vec![], "", 404, "nobody"),
        ("POST", format!("{BASE}/nobody/signal"), vec![], r#"{"signalName":"a"}"#, 404, "nobody"),
        ("GET", format!("{BASE}?status=DONE"), vec![], "", 400, "PENDING, RUNNING"),
        ("GET", format!("{BASE}?stauts=DONE"), vec![], "", 400, "stauts"),
        ("GET", format!("{BASE}?limit=0"), vec![], "", 400, "1 to 1000"),
        ("GET", format!("{BASE}?limit=x"), vec![], "", 400, "limit"),
        ("GET", format!("{BASE}?cursor=zz"), vec![], "", 400, "cursor"),
        ("GET", format!("{BASE}?definition=nobody"), vec![], "", 404, "nobody"),
        ("GET", format!("{BASE}?kind=a&kind=b"), vec![], "", 400, "twice"),
        ("GET", format!("{BASE}?createdFrom=yesterday"), vec![], "", 400, "RFC 3339"),
        ("GET", at("/messages?cursor=x"), vec![], "", 400, "cursor"),
        ("GET", at(&format!("/messages/{other}")), vec![], "", 404, "no entry"),
        ("GET", at("/messages/x"), vec![], "", 404, "no entry"),
        ("GET", at(&format!("/tool-calls/{other}")), vec![], "", 404, "no task"),
        ("GET", at("/tool-calls?status=odd"), vec![], "", 400, "odd"),
        ("GET", at("/checkpoints/1"), vec![], "", 404, "no checkpoint 1"),
        ("GET", at("/checkpoints/latest"), vec![], "", 404, "no checkpoint"),
        ("GET", at("/checkpoints/-1"), vec![], "", 404, "checkpoint"),
        ("POST", at("/resume"), vec![], "", 409, "PENDING"),
        ("POST", at("/retry"), vec![], "", 409, "cannot retry"),
        ("POST", at("/divergence"), vec![], r#"{"decision":"maybe"}"#, 400, "continue"),
        ("POST", at("/divergence"), vec![], r#"{"decision":"stay"}"#, 409, "PENDING"),
        ("POST", at("/resolve"), vec![], &elsewhere, 400, "no op of this run"),
        ("POST", at("/fork"), vec![], r#"{"checkpoint":1,"opId":"0-0"}"#, 400, "one point"),
        ("POST", at("/fork"), vec![], r#"{"opId":"zero"}"#, 400, "zero"),
        ("POST", at("/cancel"), vec![], r#"{"mode":"soft"}"#, 400, "soft"),
        ("POST", at("/signal"), vec![], r#"{"signalName":"a","delivery":"soon"}"#, 400, "soon"),
        ("GET", at("/stream?after=99"), vec![], "", 400, "no event 99"),
        ("GET", at("/stream?after=x"), vec![], "", 400, "no event id"),
        ("PUT", here.clone(), vec![], "", 405, "Allow"),
        ("GET", "/api/orgs/default/nothing".into(), vec![], "", 404, "no route"),
        ("GET", "/".into(), vec![], "", 404, "no route"),
        ("GET", foreign, vec![], "", 404, "no org"),
        ("GET", "/api/orgs/nobody/agent-executions".into(), vec![], "", 404, "no org"),
        ("GET", BASE.into(), vec![("authorization", "Bearer wrong")], "", 401, "not known"),
        ("GET", BASE.into(), vec![("authorization", "Basic wrong")], "", 401, "Bearer TOKEN"),
        ("GET", BASE.into(), vec![("host", "evil.example")], "", 403, "evil.example"),
        ("GET", BASE.into(), vec![("origin", "http://evil.example")], "", 403, "evil.example"),
    ];
    for (method, path, headers, body, wanted, word) in cases {
        let (status, problem) = house.ask(method, &path, &headers, body).await;
        let shown = &body[..body.len().min(80)];
        assert_eq!((status, &problem["status"]), (wanted, &json!(wanted)), "{method} {path} {shown}: {problem:#}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(word), "{method} {path} {shown}: {word:?} in {detail:?}");
        assert!(problem["code"].is_string() && problem["title"].is_string(), "{problem:#}");
    }
    // What the statuses ask for comes with them.
    let answer = house.raw("GET", BASE, &[], "").await;
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["www-authenticate"].to_str().unwrap()),
        (401, "Bearer realm=\"flovyn\"")
    );
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let answer = house.raw("PATCH", BASE, &[], "").await;
    let allowed = answer.headers()["allow"].to_str().unwrap().to_owned();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    // Nothing was started by what was refused.
    assert_eq!(house.get(BASE).await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_go_by_reference() {
    let house = House::open().await;
    let (_worker, _) = house.worker(host()).await;
    let put = "/api/orgs/default/payloads";
    let large = "x".repeat(5 << 20);
    let (status, stored) = house.ask("PUT", put, &[], &format!("{large:?}")).await;
    assert_eq!(
        (status, &stored["size"], &stored["encoding"]),
        (201, &json!((5 << 20) + 2), &json!("json")),
        "{stored:#}"
    );
    let start = json!({ "kind": "greet", "inputRef": stored, "id": "large" });
    house.post(BASE, start).await;
    let run = house.until("large", "WAITING").await;
    assert_eq!(run["inputRef"]["hash"], stored["hash"], "{run:#}");
    let entries = house.get(&format!("{BASE}/large/entries")).await;
    assert_eq!(entries["items"][0]["contentRef"]["size"], stored["size"]);
    let href = entries["items"][1]["contentRef"]["href"].as_str().unwrap();
    let (_, text) = house.ask("GET", href, &[], "").await;
    assert_eq!(text, large.to_uppercase());

    for (kind, body, status, word) in [
        ("application/json", "{".repeat(9_000), 400, "none"),
        ("application/octet-stream", "small".into(), 400, "send it in place"),
    ] {
        let (found, problem) = house.ask("PUT", put, &[("content-type", kind)], &body).await;
        assert_eq!(found, status, "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem:#}");
    }
    let hash = stored["hash"].as_str().unwrap();
    let zero = "0".repeat(64);
    for path in [
        format!("{put}/{hash}?size=9"),
        format!("{put}/{zero}?size=9"),
        format!("{put}/{hash}?size=0"),
        format!("{put}/x?size=1"),
    ] {
        assert_eq!(house.ask("GET", &path, &[], "").await.0, 404, "{path}");
    }
    // Without its size it is looked for.
    let found = house.raw("GET", &format!("{put}/{hash}"), &[("authorization", &format!("Bearer {TOKEN}"))], "").await;
    assert_eq!((found.status().as_u16(), found.headers()["content-length"].to_str().unwrap()), (200, "5242882"));
    let found = found.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(blake3::hash(&found).to_hex().as_str(), hash);
    assert_eq!(house.ask("GET", &format!("{put}/{zero}"), &[], "").await.0, 404);
    let missing = json!({ "kind": "greet", "inputRef": { "hash": zero, "size": 9_000 } });
    assert_eq!(house.ask("POST", BASE, &[], &missing.to_string()).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_steered() {
    let house = House::open().await;
    let (_worker, _) = house.worker(host()).await;
    for id in ["soft", "hard", "forked"] {
        house.post(BASE, json!({ "kind": "greet", "input": "hi", "id": id })).await;
        house.until(id, "WAITING").await;
    }
    house.ask("DELETE", &format!("{BASE}/soft"), &[], "").await;
    house.until("soft", "CANCELLED").await;
    let hard = house.post(&format!("{BASE}/hard/cancel"), json!({ "mode": "hard" })).await;
    assert_eq!(hard["status"], "CANCELLED");

    let body = json!({ "opId": "0-1", "id": "fork" });
    let fork = house.post(&format!("{BASE}/forked/fork"), body.clone()).await;
    assert_eq!((&fork["key"], &fork["forkedFrom"]["sequence"]), (&json!("fork"), &json!(1)), "{fork:#}");
    assert_eq!(house.post(&format!("{BASE}/forked/fork"), body).await["id"], fork["id"]);
    house.until("fork", "WAITING").await;
    for id in ["fork", "forked"] {
        house.post(&format!("{BASE}/{id}/signal"), json!({ "signalName": "word", "signalValue": id })).await;
        assert_eq!(house.until(id, "COMPLETED").await["output"]["said"], id);
    }
    // The fork's branch begins with entries of the run it was forked from.
    let messages = house.get(&format!("{BASE}/fork/messages")).await;
    let root = &messages["items"][0];
    assert_ne!(root["agentExecutionId"], fork["id"]);
    assert_eq!(&house.get(&format!("{BASE}/fork/messages/{}", root["id"].as_str().unwrap())).await, root);

    // The run that was forked from goes after its fork alone.
    for (id, status, code) in [
        ("forked", 409, json!("InvalidTransition")),
        ("fork", 204, Value::Null),
        ("forked", 204, Value::Null),
        ("forked", 404, json!("ExecutionNotFound")),
    ] {
        let (found, answer) = house.ask("POST", &format!("{BASE}/{id}/delete"), &[], "").await;
        assert_eq!((found, &answer["code"]), (status, &code), "{id}: {answer:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_doubt_is_answered() {
    let house = House::open().await;
    let (began, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let pays = move |again: bool| {
        let began = began.clone();
        let once = TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() };
        let pay = job("pay", once, move |_, _| {
            began.send(()).unwrap();
            Box::pin(async move { if again { Ok("paid".into()) } else { std::future::pending().await } })
        });
        let payer = agent("payer", |ctx, _| {
            Box::pin(async move {
                let paid = ctx.schedule::<Value>("pay", &1)?.await;
                Ok(paid.unwrap_or_else(|error| json!({ "failed": error.message() })))
            })
        });
        NativeHost::default().agent(payer).unwrap().task(pay).unwrap()
    };
    let (first, worker) = house.worker(pays(false)).await;
    for id in ["result", "error", "retry"] {
        house.post(BASE, json!({ "kind": "payer", "id": id })).await;
        runs.recv().await.unwrap();
    }
    worker.kill();
    drop((first, worker));
    let (_second, _) = house.worker(pays(true)).await;
    for (id, answer, status) in [
        ("result", json!({ "result": null }), "COMPLETED"),
        ("error", json!({ "error": "no money" }), "FAILED"),
        ("retry", json!({ "retry": true }), "PENDING"),
    ] {
        for _ in 0..6_000 {
            if house.get(&format!("{BASE}/{id}")).await["waitReason"] == "in_doubt" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let task = house.get(&format!("{BASE}/{id}/tasks")).await["tasks"][0].clone();
        assert_eq!(task["status"], "IN_DOUBT", "{task:#}");
        let resolve = format!("{BASE}/{id}/resolve");
        let two = json!({ "opId": task["opId"], "error": "e", "retry": true }).to_string();
        let (refused, problem) = house.ask("POST", &resolve, &[], &two).await;
        assert_eq!(refused, 400, "{problem:#}");
        let mut body = answer;
        body["opId"] = task["opId"].clone();
        let answered = house.post(&resolve, body).await;
        assert_eq!((&answered["id"], &answered["status"]), (&task["id"], &json!(status)), "{answered:#}");
    }
    assert_eq!(house.until("result", "COMPLETED").await["output"], Value::Null);
    let failed = house.until("error", "COMPLETED").await["output"]["failed"].clone();
    assert!(failed.as_str().unwrap().contains("no money"), "{failed}");
    assert_eq!(house.get(&format!("{BASE}/error/tasks")).await["tasks"][0]["error"], "no money");
    // Only this one was made again.
    assert_eq!(house.until("retry", "COMPLETED").await["output"], "paid");
    assert_eq!(runs.try_recv(), Ok(()));
    assert!(runs.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_allows_what_its_scopes_say() {
    let house = House::open().await;
    let storage = house.runtime.storage().clone();
    let directory = storage.server_side().unwrap();
    let acme = directory.create_organization("acme", "a test").await.unwrap();
    let token = fresh_token();
    let hash = TokenHash::of(&token);
    let scopes = "viewer".parse().unwrap();
    let key = NewKey {
        org: acme.id,
        name: "k".into(),
        scopes,
        expires_in: None,
        not_after: None,
        hash,
        actor: "a test".into(),
    };
    directory.create_key(key).await.unwrap();
    let access = Access::keys_of(storage.clone());
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let keyed = serve(storage.clone(), house.runtime.chunks().clone(), config).await.unwrap();
    let house = House { serving: keyed, ..house };
    let bearer = format!("Bearer {token}");
    let own = [("authorization", &bearer[..])];
    for (method, path, wanted) in [
        ("GET", "/api/orgs/acme/agent-executions".to_owned(), 200),
        ("GET", format!("/api/orgs/{}/agent-executions", acme.id), 200),
        ("GET", BASE.to_owned(), 404),
        ("POST", "/api/orgs/acme/agent-executions".to_owned(), 403),
        ("POST", "/api/orgs/acme/agent-executions/x/signal".to_owned(), 403),
        ("PUT", "/api/orgs/acme/payloads".to_owned(), 403),
    ] {
        let (status, answer) = house.ask(method, &path, &own, "{}").await;
        assert_eq!(status, wanted, "{method} {path}: {answer:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_names_every_route_and_no_other() {
    let house = House::open().await;
    let answer = house.raw("GET", "/openapi.json", &[], "").await;
    let api: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(api["openapi"], "3.1.0");
    let (mut documented, mut operations) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in api["paths"].as_object().unwrap() {
        let asked = path.replace("{org}", "default").replace(['{', '}'], "");
        for method in ["get", "put", "post", "delete", "patch"] {
            let (status, answer) = house.ask(&method.to_uppercase(), &asked, &[], "").await;
            let served = item.get(method).is_some();
            assert_eq!(status != 405, served, "{method} {path}: {status} {answer:#}");
            assert!(!answer["detail"].as_str().unwrap_or_default().contains("no route"), "{method} {path}: {answer:#}");
            if served {
                let operation = item[method]["operationId"].as_str().unwrap();
                assert!(operations.insert(operation.to_owned()), "{operation} names two operations");
                let responses = item[method]["responses"].as_object().unwrap();
                assert!(responses.values().all(|told| told["description"].is_string()), "{method} {path}");
                documented.insert(format!("{} {path}", method.to_uppercase()));
                let names = item[method]["parameters"].as_array().unwrap();
                let named = names.iter().filter(|parameter| parameter["in"] == "path").count();
                assert_eq!(named, path.matches('{').count(), "{method} {path}");
            }
        }
    }
    // The page for people has the same routes.
    let page = include_str!("../../docs/rest.md");
    let listed = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(route, _)| route));
    let listed: BTreeSet<_> = listed.map(|route| route.replacen(" …", " /api/orgs/{org}", 1)).collect();
    assert_eq!(listed, documented);
    // Every reference leads somewhere.
    let text = api.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(api["components"]["schemas"][reference].is_object(), "{reference}");
    }
    let docs = house.raw("GET", "/docs", &[], "").await;
    assert_eq!(docs.status().as_u16(), 200);
}
