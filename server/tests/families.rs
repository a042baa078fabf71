//! How a family is looked at over REST and server-sent events: children, trees, roll-ups, one stream for all.

mod house;

use flovyn_core::agent::NativeHost;
use flovyn_core::context::AgentContextExt;
use flovyn_core::model::Usage;
use house::{BASE, Event, House, agent};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A run that starts as many children as its input says, each of which starts one below it, and waits for them. Each uses
/// something, and those below say a word and wait for a signal.
fn family() -> NativeHost {
    let lead = agent("lead", |ctx, input| {
        Box::pin(async move {
            ctx.record_usage("m", Usage { calls: 1, input_tokens: 1, ..Usage::default() })?;
            let mut children = Vec::new();
            for place in 0..input.as_u64().unwrap() {
                children.push(ctx.spawn_agent::<Value>("middle", &place)?);
            }
            Ok(futures::future::try_join_all(children).await?.into())
        })
    });
    let middle = agent("middle", |ctx, input| {
        Box::pin(async move {
            ctx.record_usage("m", Usage { calls: 1, input_tokens: 10, cost_micros: Some(7), ..Usage::default() })?;
            ctx.spawn_agent::<Value>("below", &input)?.await
        })
    });
    let below = agent("below", |ctx, input| {
        Box::pin(async move {
            ctx.record_usage("n", Usage { calls: 1, input_tokens: 100, ..Usage::default() })?;
            ctx.append_entry("assistant", &format!("I am {input}"))?;
            ctx.stream_token("thinking");
            ctx.wait_for_signal::<Value>("go")?.await?;
            Ok(input)
        })
    });
    NativeHost::default().agent(lead).unwrap().agent(middle).unwrap().agent(below).unwrap()
}

/// Starts a family whose last runs wait; the ids of those.
async fn waiting(house: &House, children: u64) -> Vec<String> {
    house.post(BASE, json!({ "kind": "lead", "id": "lead", "input": children })).await;
    last_of(house, "lead", children).await
}

/// The last runs of a family, once they wait.
async fn last_of(house: &House, root: &str, children: u64) -> Vec<String> {
    loop {
        let runs = house.get(&format!("{BASE}?kind=below&status=WAITING&root={root}")).await;
        let runs = runs["items"].as_array().unwrap();
        if runs.len() as u64 == children {
            return runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn release(house: &House, runs: &[String]) {
    for run in runs {
        house.post(&format!("{BASE}/{run}/signal"), json!({ "signalName": "go" })).await;
    }
}

fn sums(run: &Value) -> [u64; 4] {
    let usage = &run["totalUsage"];
    [&usage["calls"], &usage["inputTokens"], &run["childCount"], &run["descendantCount"]]
        .map(|number| number.as_u64().unwrap_or_else(|| panic!("{run:#}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_shown_with_what_all_below_it_have_used() {
    let house = House::open().await;
    let (_worker, _) = house.worker(family()).await;
    let last = waiting(&house, 3).await;
    let lead = house.get(&format!("{BASE}/lead")).await;
    assert_eq!(sums(&lead), [7, 331, 3, 6]);
    assert_eq!((&lead["totalUsage"]["costMicros"], &lead["usage"]["m"]["inputTokens"]), (&json!(21), &json!(1)));
    assert_eq!((&lead["depth"], &house.get(&format!("{BASE}/{}", last[0])).await["depth"]), (&json!(0), &json!(2)));

    let children = house.get(&format!("{BASE}/lead/children?limit=2")).await;
    assert_eq!(children["items"].as_array().unwrap().len(), 2);
    let cursor = children["nextCursor"].as_str().unwrap();
    let rest = house.get(&format!("{BASE}/lead/children?cursor={cursor}")).await;
    for child in children["items"].as_array().unwrap().iter().chain(rest["items"].as_array().unwrap()) {
        assert_eq!(sums(child), [2, 110, 1, 1]);
        assert_eq!(
            (&child["kind"], &child["status"], &child["depth"]),
            (&json!("middle"), &json!("WAITING"), &json!(1))
        );
        assert_eq!(child["usage"]["m"]["inputTokens"], 10);
    }
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
    let none = house.get(&format!("{BASE}/{}/children", last[0])).await;
    assert_eq!(none["items"], json!([]));
    // Those that nobody has started are listed by themselves; a list of all says nothing of what is below.
    let roots = house.get(&format!("{BASE}?roots=true")).await;
    let ids: Vec<_> = roots["items"].as_array().unwrap().iter().map(|run| run["key"].as_str().unwrap()).collect();
    assert_eq!((ids, roots["items"][0].get("totalUsage")), (vec!["lead"], None));
    let with_totals = house.get(&format!("{BASE}?roots=true&totals=true")).await;
    assert_eq!(with_totals["items"][0]["descendantCount"], json!(6));
    assert_eq!(with_totals["items"][0]["totalUsage"], house.get(&format!("{BASE}/lead")).await["totalUsage"]);
    for (words, found) in [("lead", 1), ("LEAD%20default", 1), ("lead%20otter", 0), ("below", 3)] {
        let listed = house.get(&format!("{BASE}?search={words}")).await;
        assert_eq!(listed["items"].as_array().unwrap().len(), found, "{words}: {listed}");
    }
    assert_eq!(house.get(&format!("{BASE}?roots=false")).await["items"].as_array().unwrap().len(), 7);
    for wrong in ["?roots=maybe", "/lead/tree?limit=0", "/lead/tree?limit=1001", "/lead/tree?depth=1"] {
        assert_eq!(house.ask("GET", &format!("{BASE}{wrong}"), &[], "").await.0, 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_comes_in_one_answer() {
    let house = House::open().await;
    let (_worker, _) = house.worker(family()).await;
    let last = waiting(&house, 3).await;
    let tree = house.get(&format!("{BASE}/lead/tree")).await;
    assert_eq!((&tree["key"], &tree["leftOff"], sums(&tree)), (&json!("lead"), &json!(0), [7, 331, 3, 6]));
    let inputs: Vec<_> = tree["children"].as_array().unwrap().iter().map(|child| child["input"].clone()).collect();
    assert_eq!(inputs, [0, 1, 2], "in the order in which they were started");
    for child in tree["children"].as_array().unwrap() {
        let below = &child["children"][0];
        assert_eq!((&below["parent"], &below["depth"], &below["children"]), (&child["id"], &json!(2), &json!([])));
        assert!(last.iter().any(|id| below["id"] == **id));
        assert_eq!((sums(child), sums(below)), ([2, 110, 1, 1], [1, 100, 0, 0]));
    }
    // What does not fit is left off from below, and each run says how much that is.
    let part = house.get(&format!("{BASE}/lead/tree?limit=4")).await;
    let shown = part["children"].as_array().unwrap();
    assert_eq!((shown.len(), &part["leftOff"], sums(&part)), (3, &json!(2), [7, 331, 3, 6]));
    let mut left: Vec<_> = shown.iter().map(|child| child["leftOff"].as_u64().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 1]);
    let below = house.get(&format!("{BASE}/{}/tree", shown[0]["id"].as_str().unwrap())).await;
    assert_eq!((&below["depth"], &below["children"][0]["depth"]), (&json!(1), &json!(2)));
    assert_eq!(house.ask("GET", &format!("{BASE}/nobody/tree"), &[], "").await.0, 404);
}

/// The numbers of the durable events, by run.
fn by_run(events: &[Event]) -> BTreeMap<String, Vec<u64>> {
    let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.is_durable()) {
        let run = event.data["agentExecutionId"].as_str().unwrap().to_owned();
        runs.entry(run).or_default().push(event.data["seq"].as_u64().unwrap());
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn family_12_one_stream_carries_all_below_and_is_resumed_by_one_id() {
    let house = House::open().await;
    let (_worker, _) = house.worker(family()).await;
    // Opened before anybody is below.
    house.post(BASE, json!({ "kind": "lead", "id": "early", "input": 1, "delaySeconds": 0.1 })).await;
    let early = house.events(&format!("{BASE}/early/stream/consolidated"), None).await;
    let last = waiting(&house, 2).await;
    let all = format!("{BASE}/lead/stream/consolidated");
    let mut events = house.events(&all, None).await;
    let mut seen = Vec::new();
    while seen.iter().filter(|event: &&Event| event.name == "entry").count() < 2 {
        seen.push(events.next().await.unwrap());
    }
    // In the middle: the stream is cut here, and goes on while the rest comes.
    drop(events);
    let middle = seen.last().unwrap().id.clone();
    let resumed = house.events(&all, Some(&middle)).await;
    release(&house, &last).await;
    let rest = resumed.rest().await;
    let lead = house.until("lead", "COMPLETED").await;
    let tree = house.get(&format!("{BASE}/lead/tree")).await;
    seen.extend(rest);

    let mut wanted = BTreeMap::new();
    let mut runs = vec![&tree];
    while let Some(run) = runs.pop() {
        let id = run["id"].as_str().unwrap();
        runs.extend(run["children"].as_array().unwrap());
        let own = house.events(&format!("{BASE}/{id}/stream"), None).await.rest().await;
        wanted.insert(id.to_owned(), (1..=own.last().unwrap().id.parse().unwrap()).collect::<Vec<u64>>());
        let of_run: Vec<_> = seen.iter().filter(|event| event.data["agentExecutionId"] == *id).collect();
        assert!(of_run.iter().all(|event| event.data["depth"] == run["depth"]), "{of_run:#?}");
    }
    assert_eq!(by_run(&seen), wanted);
    assert_eq!(seen.iter().filter(|event| event.name == "agent.completed").count(), 5);
    let said: Vec<_> = seen.iter().filter(|event| event.name == "entry").map(|event| &event.data["content"]).collect();
    assert_eq!(said.len(), 2);
    assert!(said.contains(&&json!("I am 0")) && said.contains(&&json!("I am 1")), "{said:?}");
    // Behind any id the same; behind the last one nothing.
    for place in 0..seen.len() {
        let more = house.events(&all, Some(&seen[place].id)).await.rest().await;
        let known = seen.iter().rposition(|event| event.id == seen[place].id).unwrap();
        let together: Vec<_> = seen[..=known].iter().chain(&more).cloned().collect();
        assert_eq!(by_run(&together), wanted, "after {}", seen[place].id);
    }
    assert_eq!(house.events(&all, Some(&seen.last().unwrap().id)).await.status, 204);
    // The agent's own stream has its own events and ids alone.
    let own = house.events(&format!("{BASE}/lead/stream"), None).await.rest().await;
    assert!(own.iter().all(|event| event.data["agentExecutionId"] == lead["id"] && event.data.get("depth").is_none()));
    let (status, _) = house.ask("GET", &format!("{all}?after=1~x"), &[], "").await;
    assert_eq!(status, 400);

    // Whoever was there first has seen the others be born.
    release(&house, &last_of(&house, "early", 1).await).await;
    assert_eq!(by_run(&early.rest().await).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_starts_a_child_over_rest() {
    let house = House::open().await;
    let parent = house.post(BASE, json!({ "kind": "lead", "id": "lead", "input": 0 })).await;
    for (field, value) in [
        ("parent", parent["id"].clone()),
        ("parentId", parent["id"].clone()),
        ("root", parent["id"].clone()),
        ("depth", json!(1)),
        ("onParentEnd", json!("detach")),
    ] {
        let body = json!({ "kind": "below", "id": "child", "input": 1, field: value }).to_string();
        let (status, problem) = house.ask("POST", BASE, &[], &body).await;
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!((status, &problem["code"]), (400, &json!("InvalidArgument")), "{problem:#}");
        assert!(detail.contains(&format!("unknown field `{field}`")) && detail.contains("`kind`"), "{detail}");
    }
    assert_eq!(house.ask("GET", &format!("{BASE}/child"), &[], "").await.0, 404, "nothing was started");
    assert_eq!(house.get(&format!("{BASE}/lead/children")).await["items"], json!([]));
}

/// What a run has said and done, by every route that tells of it.
fn journal_of(run: &str) -> Vec<String> {
    let nobody = "0190c0de-0000-7000-8000-000000000000";
    let parts =
        ["entries", "messages", "tasks", "tool-calls", "checkpoints", "checkpoints/latest", "checkpoints/1", "state"];
    let parts = parts.into_iter().map(str::to_owned);
    let parts = parts.chain(["state?key=messages".to_owned()]);
    let parts = parts.chain(["messages", "tool-calls"].map(|part| format!("{part}/{nobody}")));
    parts.map(|part| format!("{BASE}/{run}/{part}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn family_13_every_reader_is_told_what_is_not_kept() {
    let house = House::open().await;
    let brief = || {
        agent("brief", |ctx, input| {
            Box::pin(async move {
                ctx.append_entry("user", &input)?;
                ctx.record_usage("m", Usage { calls: 1, input_tokens: 5, ..Usage::default() })?;
                if input == "waits" {
                    return ctx.wait_for_signal::<Value>("go")?.await;
                }
                Ok(input)
            })
        })
    };
    for word in ["forever", "", "MINIMAL"] {
        let body = json!({ "kind": "brief", "persistence": word }).to_string();
        let (status, problem) = house.ask("POST", BASE, &[], &body).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(status == 400 && detail.contains("persistence is") && detail.contains("minimal"), "{problem:#}");
    }
    let started = async |id: &str, input: &str, persistence: Option<&str>| {
        let mut body = json!({ "kind": "brief", "id": id, "input": input });
        if let Some(word) = persistence {
            body["persistence"] = json!(word);
        }
        house.post(BASE, body).await["persistence"].clone()
    };
    assert_eq!(started("minimal", "otters", Some("minimal")).await, "minimal");
    assert_eq!(started("ephemeral", "otters", Some("ephemeral")).await, "ephemeral");
    assert_eq!(started("full", "otters", None).await, "full");
    assert_eq!(started("waits", "waits", Some("minimal")).await, "minimal");
    let refuses = async |id: &str| {
        for path in journal_of(id) {
            let (status, problem) = house.ask("GET", &path, &[], "").await;
            assert_eq!((status, &problem["code"]), (409, &json!("NotPersisted")), "{path}: {problem:#}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("{id:?}")) && detail.contains("enable_persistence"), "{detail}");
        }
    };
    // Before anybody has begun it, and after its end.
    refuses("minimal").await;
    let (_remote, _worker) = house.worker(NativeHost::default().agent(brief()).unwrap()).await;
    for id in ["minimal", "ephemeral"] {
        let run = house.until(id, "COMPLETED").await;
        assert_eq!((&run["persistence"], &run["output"]), (&json!(id), &json!("otters")));
        assert_eq!(run["usage"]["m"]["inputTokens"], 5, "{run:#}");
        refuses(id).await;
        let told = house.events(&format!("{BASE}/{id}/stream"), None).await.rest().await;
        assert!(told.iter().all(|event| event.name != "entry"), "{told:#?}");
        assert_eq!(told.last().unwrap().name, "agent.completed");
    }
    let listed = house.get(&format!("{BASE}?kind=brief&status=COMPLETED")).await;
    for run in listed["items"].as_array().unwrap() {
        assert!(run["persistence"] == run["key"] || run["persistence"] == "full", "{run:#}");
    }
    // A full one has it all, and so has one that somebody else depends on.
    house.until("full", "COMPLETED").await;
    let waits = house.until("waits", "WAITING").await;
    assert_eq!(waits["persistence"], "full");
    for (id, said) in [("full", "otters"), ("waits", "waits")] {
        assert_eq!(house.get(&format!("{BASE}/{id}/messages")).await["items"][0]["content"], said);
        for path in journal_of(id) {
            let (status, answer) = house.ask("GET", &path, &[], "").await;
            assert!(status == 200 || status == 404, "{path}: {answer:#}");
        }
    }
}
