//! What operators set over REST: schedules, limits of queues, predefined agents.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::model::{ExecutionFilter, PageRequest, ScheduleSpec};
use flovyn_core::runtime::Runtime;
use flovyn_core::testing::postgres::Cluster;
use house::{BASE, House, agent};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const ORG: &str = "/api/orgs/default";

/// An agent that answers with its input.
fn echo() -> NativeHost {
    NativeHost::default().agent(agent("echo", |_, input| Box::pin(async move { Ok(input) }))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_starts_runs_until_it_is_removed() {
    let house = House::open().await;
    let _worker = house.worker(echo()).await;
    let schedules = format!("{ORG}/schedules");
    let asked = json!({ "id": "tick", "kind": "echo", "input": { "n": 7 }, "cron": "* * * * * *", "metadata": { "team": "otters" } });
    let made = house.post(&schedules, asked.clone()).await;
    assert_eq!((&made["id"], &made["queue"], &made["input"]["n"]), (&json!("tick"), &json!("default"), &json!(7)));
    assert!(made["nextAt"].is_string() && made["timezone"].is_null(), "{made:#}");
    assert_eq!(house.get(&format!("{schedules}/tick")).await["cron"], "* * * * * *");
    assert_eq!(house.get(&schedules).await["items"].as_array().unwrap().len(), 1);

    let runs = format!("{BASE}?metadata.schedule=tick&status=COMPLETED");
    let mut ended = Vec::new();
    for _ in 0..600 {
        ended = house.get(&runs).await["items"].as_array().unwrap().clone();
        if ended.len() >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(ended.len() >= 2, "the schedule starts runs");
    for run in &ended {
        assert_eq!((&run["output"]["n"], &run["metadata"]["team"]), (&json!(7), &json!("otters")));
        assert!(run["metadata"]["scheduledAt"].as_str().unwrap().ends_with(".000Z"), "{run:#}");
    }

    for (wrong, field) in [
        (json!({ "kind": "echo", "cron": "at dawn" }), "cron"),
        (json!({ "kind": "echo", "cron": "@daily", "timezone": "Mars/Olympus" }), "time zone"),
        (json!({ "kind": "", "cron": "@daily" }), "kind"),
        (json!({ "cron": "@daily" }), "kind"),
    ] {
        let (status, problem) = house.ask("POST", &schedules, &[], &wrong.to_string()).await;
        assert_eq!(status, 400, "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(field), "{problem:#}");
    }
    let one = format!("{schedules}/tick");
    assert_eq!(house.ask("DELETE", &one, &[], "").await.0, 204);
    assert_eq!(house.ask("DELETE", &one, &[], "").await.0, 404);
    assert_eq!(house.ask("GET", &one, &[], "").await.0, 404);
}

/// Two processes keep house over one database: every tick has one run.
#[tokio::test(flavor = "multi_thread")]
async fn a_tick_has_one_run_however_many_keep_house() {
    let db = Cluster::shared().fresh().expect("a database");
    let runtimes = [Runtime::open(&db).await.unwrap(), Runtime::open(&db).await.unwrap()];
    let storage = runtimes[0].storage();
    let org = runtimes[0].client().org();
    let spec = ScheduleSpec {
        id: "tick".into(),
        kind: "agent".into(),
        queue: "default".into(),
        input: "null".into(),
        cron: "* * * * * *".into(),
        ..ScheduleSpec::default()
    };
    storage.put_schedule(org, spec).await.unwrap();
    let runs =
        async || storage.executions(org, ExecutionFilter::default(), PageRequest::default()).await.unwrap().items;
    for _ in 0..600 {
        if runs().await.len() >= 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    storage.delete_schedule(org, "tick").await.unwrap();
    let runs = runs().await;
    let ticks: BTreeSet<_> = runs.iter().map(|run| run.new.metadata["scheduledAt"].clone()).collect();
    assert!(runs.len() >= 4);
    assert_eq!(ticks.len(), runs.len());
    for runtime in runtimes {
        runtime.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_takes_a_limit() {
    let house = House::open().await;
    let one = format!("{ORG}/queues/crawl");
    let limit = json!({ "concurrency": 2, "rate": { "runs": 60, "seconds": 30.0 } });
    assert_eq!(house.ask("PUT", &one, &[], &limit.to_string()).await.0, 204);
    let mut listed = limit.clone();
    listed["queue"] = json!("crawl");
    assert_eq!(house.get(&format!("{ORG}/queues/limits")).await["items"], json!([listed]));
    for wrong in [
        json!({ "concurrency": 0 }),
        json!({ "rate": { "runs": 0, "seconds": 1 } }),
        json!({ "rate": { "runs": 1, "seconds": -1 } }),
        json!({ "rate": { "runs": 1, "seconds": 1e300 } }),
        json!({ "places": 1 }),
    ] {
        assert_eq!(house.ask("PUT", &one, &[], &wrong.to_string()).await.0, 400, "{wrong}");
    }
    assert_eq!(house.ask("DELETE", &one, &[], "").await.0, 204);
    assert_eq!(house.get(&format!("{ORG}/queues/limits")).await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_a_copy_of_its_definition() {
    let house = House::open().await;
    let _worker = house.worker(echo()).await;
    let definitions = format!("{ORG}/agent-definitions");
    let asked = |prompt: &str| {
        json!({
            "slug": "otters", "kind": "echo", "systemPrompt": prompt, "models": [{ "provider": "fake", "modelId": "m" }],
            "tools": ["search"], "config": { "maxTurns": 9, "temperature": 0.5 }, "metadata": { "team": "rivers" },
        })
    };
    let (status, made) = house.ask("POST", &definitions, &[], &asked("You know otters.").to_string()).await;
    assert_eq!((status, &made["name"], &made["queue"]), (201, &json!("otters"), &json!("default")), "{made:#}");
    assert_eq!(house.ask("POST", &definitions, &[], &asked("again").to_string()).await.0, 409);
    let id = made["id"].as_str().unwrap();

    let start =
        json!({ "agentDefinitionId": "otters", "userPrompt": "Hello", "config": { "temperature": 1 }, "id": "first" });
    house.post(BASE, start).await;
    let first = house.until("first", "COMPLETED").await;
    let input = json!({
        "systemPrompt": "You know otters.", "userPrompt": "Hello", "models": [{ "provider": "fake", "modelId": "m" }],
        "tools": ["search"], "config": { "maxTurns": 9, "temperature": 1 },
    });
    assert_eq!((&first["input"], &first["output"], &first["kind"]), (&input, &input, &json!("echo")));
    assert_eq!(first["metadata"], json!({ "team": "rivers", "agentDefinition": id }));

    let one = format!("{definitions}/{id}");
    let (status, replaced) = house.ask("PUT", &one, &[], &asked("You know seals.").to_string()).await;
    assert_eq!((status, &replaced["systemPrompt"], &replaced["id"]), (200, &json!("You know seals."), &made["id"]));
    assert_eq!(house.get(&format!("{definitions}/otters")).await, replaced);
    assert_eq!(house.get(&definitions).await["items"], json!([replaced]));
    house.post(BASE, json!({ "agentDefinitionId": id, "id": "second" })).await;
    let second = house.until("second", "COMPLETED").await["input"].clone();
    assert_eq!(second["systemPrompt"], "You know seals.");
    assert_eq!(second.get("userPrompt"), None, "a chat may begin without one");
    assert_eq!(house.get(&format!("{BASE}/first")).await["input"], input);
    // What a definition says can be said where a run starts, and is kept as it was said.
    let said = json!({
        "systemPrompt": "You know eels.", "userPrompt": "Hello", "models": [{ "provider": "fake", "modelId": "m" }],
        "tools": ["search"], "config": { "maxTurns": 3 },
    });
    let mut inline = said.clone();
    (inline["kind"], inline["id"]) = (json!("echo"), json!("inline"));
    let (status, started) = house.ask("POST", BASE, &[], &inline.to_string()).await;
    assert_eq!((status, &started["input"], &started["metadata"]), (201, &said, &json!({})), "{started:#}");
    assert_eq!(house.until("inline", "COMPLETED").await["output"], said);
    assert_eq!(house.ask("POST", BASE, &[], &inline.to_string()).await.0, 200, "the same request is the same run");
    inline["config"]["maxTurns"] = json!(4);
    assert_eq!(house.ask("POST", BASE, &[], &inline.to_string()).await.0, 409);
    house.post(BASE, json!({ "kind": "echo", "userPrompt": "Hello", "id": "short" })).await;
    assert_eq!(house.until("short", "COMPLETED").await["input"], json!({ "userPrompt": "Hello" }));
    for filter in [format!("metadata.agentDefinition={id}"), format!("definition={id}"), "definition=otters".into()] {
        let of_it = house.get(&format!("{BASE}?{filter}")).await;
        let keys: Vec<_> = of_it["items"].as_array().unwrap().iter().map(|run| run["key"].clone()).collect();
        assert_eq!(keys, ["second", "first"], "{filter}");
    }

    for wrong in [
        json!({ "agentDefinitionId": "otters", "kind": "echo" }),
        json!({ "agentDefinitionId": "otters", "input": 1 }),
        json!({ "agentDefinitionId": "otters", "systemPrompt": "Hello" }),
        json!({ "userPrompt": "Hello" }),
        Value::Object(Default::default()),
    ] {
        assert_eq!(house.ask("POST", BASE, &[], &wrong.to_string()).await.0, 400, "{wrong}");
    }
    assert_eq!(house.ask("POST", BASE, &[], r#"{"agentDefinitionId": "seals"}"#).await.0, 404);
    assert_eq!(house.ask("DELETE", &one, &[], "").await.0, 204);
    assert_eq!(house.ask("GET", &one, &[], "").await.0, 404);
    assert_eq!(house.get(&format!("{BASE}/first")).await["input"], input);
}
