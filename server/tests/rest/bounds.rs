//! The document states what the server refuses: at each bound a request is taken, beyond it is not.

use crate::house::{BASE, House};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ORG: &str = "/api/orgs/default";

/// A request that is taken, by the schema of its body, about a run or with its name.
fn taken(schema: &str, run: &str) -> (&'static str, String, Value) {
    match schema {
        "Start" => ("POST", BASE.to_owned(), json!({ "kind": "nobody", "concurrencyKey": "k" })),
        "Signal" => ("POST", format!("{BASE}/{run}/signal"), json!({ "signalName": "more" })),
        "TurnRequest" => ("POST", format!("{BASE}/{run}/turns"), json!({ "message": "hi" })),
        "ForkPoint" => ("POST", format!("{BASE}/{run}/fork"), json!({ "id": format!("{run}-fork") })),
        "Cancel" => ("POST", format!("{BASE}/{run}/cancel"), json!({})),
        "CreateKey" => ("POST", format!("{ORG}/api-keys"), json!({ "name": "k", "scopes": "viewer" })),
        "CreateBrowserToken" => ("POST", format!("{ORG}/browser-tokens"), json!({ "user": "u" })),
        "NewSchedule" => {
            let body = json!({ "kind": "nobody", "cron": "@daily", "concurrencyKey": "k" });
            ("POST", format!("{ORG}/schedules"), body)
        }
        "DefinitionBody" => ("POST", format!("{ORG}/agent-definitions"), json!({ "slug": run, "kind": "nobody" })),
        "QueueLimit" => ("PUT", format!("{ORG}/queues/q"), json!({ "concurrency": 1 })),
        "Rate" => ("PUT", format!("{ORG}/queues/q"), json!({ "rate": { "runs": 1, "seconds": 1 } })),
        other => panic!("{other} has a bound and no request that is taken"),
    }
}

/// Values at the bounds of a field, and just beyond; texts are of one letter.
fn around(field: &Value, letter: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut within, mut beyond) = (Vec::new(), Vec::new());
    for (name, step) in [("minLength", -1), ("maxLength", 1)] {
        if let Some(length) = field[name].as_u64() {
            within.push(json!(letter.repeat(length as usize)));
            beyond.push(json!(letter.repeat((length as i64 + step) as usize)));
        }
    }
    for (name, step) in [("minimum", -1.0), ("maximum", 1.0)] {
        if let Some(number) = field[name].as_f64() {
            let is_whole = field["type"].to_string().contains("integer");
            let written = |number: f64| if is_whole { json!(number as i64) } else { json!(number) };
            within.push(written(number));
            beyond.push(written(number + step));
        }
    }
    (within, beyond)
}

/// Whether a field has a bound beside that of its type.
fn is_bounded(field: &Value) -> bool {
    let is_of_type = field["minimum"] == 0 && field["type"].to_string().contains("integer");
    let other = ["minLength", "maxLength", "maximum"].iter().any(|name| !field[name].is_null());
    other || (!field["minimum"].is_null() && !is_of_type)
}

/// The schemas of requests, and of what is in them.
fn requests(api: &Value) -> BTreeSet<String> {
    let operations = api["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    let bodies = operations.filter_map(|operation| operation.pointer("/requestBody/content/application~1json/schema"));
    let names = bodies.filter_map(|schema| schema["$ref"].as_str()?.rsplit('/').next().map(str::to_owned));
    names.chain(["Rate".to_owned()]).collect()
}

async fn document(house: &House) -> Value {
    let answer = house.raw("GET", "/openapi.json", &[], "").await;
    serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_document_bounds_is_refused_beyond_and_taken_within() {
    let house = House::open().await;
    let api = document(&house).await;
    let (mut turn, mut tried) = (0, Vec::new());
    for name in requests(&api) {
        let schema = &api["components"]["schemas"][&name];
        for (field, bounds) in schema["properties"].as_object().into_iter().flatten().filter(|(_, of)| is_bounded(of)) {
            let (mut within, beyond) = around(bounds, &name[..1].to_lowercase());
            match &field[..] {
                "cron" => within = vec![json!("@daily")],
                "timezone" => within = vec![json!("Europe/Paris")],
                _ => {}
            }
            for (values, is_taken) in [(within, true), (beyond, false)] {
                for value in values {
                    turn += 1;
                    let run = format!("run-{turn}");
                    house.post(BASE, json!({ "kind": "nobody", "id": run })).await;
                    let (method, path, mut body) = taken(&name, &run);
                    let place = if name == "Rate" { &mut body["rate"] } else { &mut body };
                    place[field] = value.clone();
                    let (status, answer) = house.ask(method, &path, &[("prefer", "wait=0")], &body.to_string()).await;
                    let told = format!("{name}.{field} = {value}: {answer:#}");
                    assert_eq!((200..300).contains(&status), is_taken, "{status} {told}");
                    assert!(is_taken || status == 400, "{status} {told}");
                }
            }
            tried.push(format!("{name}.{field}"));
        }
    }
    for wanted in
        ["Start.id", "Start.kind", "Start.queue", "Signal.signalName", "ForkPoint.id", "CreateKey.expiresInDays"]
    {
        assert!(tried.iter().any(|tried| tried == wanted), "{wanted} has no bound: {tried:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_metadata_are_bounded_as_the_document_says() {
    let house = House::open().await;
    house.post(BASE, json!({ "kind": "nobody", "id": "r" })).await;
    let api = document(&house).await;
    let mut limited = 0;
    for (path, item) in api["paths"].as_object().unwrap() {
        let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
        for limit in parameters.filter(|parameter| parameter["name"] == "limit") {
            limited += 1;
            let (within, beyond) = around(&limit["schema"], "");
            let path = path.replace("{org}", "default").replace("{id}", "r");
            for (values, wanted) in [(within, 200), (beyond, 400)] {
                assert_eq!(values.len(), 2, "{path} has no bounds: {limit:#}");
                for value in values {
                    let (status, answer) = house.ask("GET", &format!("{path}?limit={value}"), &[], "").await;
                    assert_eq!(status, wanted, "{path}?limit={value}: {answer:#}");
                }
            }
        }
    }
    assert!(limited >= 10, "{limited} listings say how long a page may be");

    let key = &api["paths"]["/api/orgs/{org}/agent-executions"]["post"]["parameters"];
    let key = key.as_array().unwrap().iter().find(|parameter| parameter["name"] == "Idempotency-Key").unwrap();
    let most = key["schema"]["maxLength"].as_u64().expect("a bound") as usize;
    for (length, wanted) in [(most, 201), (most + 1, 400)] {
        let key = "k".repeat(length);
        let (status, answer) = house.ask("POST", BASE, &[("idempotency-key", &key)], r#"{"kind":"nobody"}"#).await;
        assert_eq!(status, wanted, "{length}: {answer:#}");
    }

    // A queue that runs may have can be limited.
    for (length, wanted) in [(500, 204), (501, 400)] {
        let path = format!("{ORG}/queues/{}", "q".repeat(length));
        let (status, answer) = house.ask("PUT", &path, &[], r#"{"concurrency":1}"#).await;
        assert_eq!(status, wanted, "{length}: {answer:#}");
    }

    let metadata = &api["components"]["schemas"]["Start"]["properties"]["metadata"];
    let name = metadata["propertyNames"]["maxLength"].as_u64().expect("a bound") as usize;
    let all = metadata["description"].as_str().unwrap().split(' ').find_map(|word| word.parse::<usize>().ok()).unwrap();
    for (name, size, wanted) in [(name, all, 201), (name + 1, all, 400), (name, all + 1, 400)] {
        let metadata = json!({ "n".repeat(name): "v".repeat(size - name) });
        let body = json!({ "kind": "nobody", "metadata": metadata }).to_string();
        let (status, answer) = house.ask("POST", BASE, &[], &body).await;
        assert_eq!(status, wanted, "a name of {name} and {size} bytes in all: {answer:#}");
    }
}
