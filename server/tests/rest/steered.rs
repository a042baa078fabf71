//! What steering does where it succeeds: pauses that go on, forks, edits that are decided, calls that are answered.

use crate::house::{BASE, House, Job, agent, job};
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, AgentState, NativeHost};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{OrgId, RequestId, WorkerId};
use flovyn_core::journal::OnDivergence;
use flovyn_core::model::{Batch, BatchEnd, CommitRequest, NewCheckpoint, TaskOptions, Usage};
use flovyn_core::payload::Digest;
use flovyn_core::storage::ClaimRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An agent that takes four steps, each with a tool call that its assistant message asks for and ten tokens used.
fn walker() -> NativeHost {
    let walker = agent("walker", |ctx, _| {
        Box::pin(async move {
            for n in 0..4 {
                ctx.step()?.await?;
                ctx.append_entry("assistant", &n)?;
                ctx.schedule::<Value>("note", &n)?.await?;
                ctx.record_usage("m", Usage { calls: 1, input_tokens: 10, ..Usage::default() })?;
            }
            let branch = ctx.messages().await?;
            branch.iter().map(|entry| entry.new.content.parse()).collect::<Result<Vec<Value>>>().map(Value::Array)
        })
    });
    NativeHost::default().agent(walker).unwrap().task(note()).unwrap()
}

/// A tool that takes a moment.
fn note() -> Job {
    job("note", TaskOptions::default(), |_, input| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok(input)
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_goes_on_as_its_resume_says() {
    let house = House::open().await;
    let (_worker, _) = house.worker(walker()).await;
    house.post(BASE, json!({ "kind": "walker", "id": "w", "maxSteps": 1 })).await;
    let paused = house.until("w", "PAUSED").await;
    let steps = paused["stepCount"].as_u64().unwrap();
    assert_eq!((&paused["waitReason"], &paused["stepLimit"]), (&json!("step_limit"), &json!(1)), "{paused:#}");

    let resume = format!("{BASE}/w/resume");
    let body = json!({ "maxSteps": 1, "message": { "text": "go on" } }).to_string();
    let key = [("idempotency-key", "k")];
    let (status, resumed) = house.ask("POST", &resume, &key, &body).await;
    assert_eq!((status, &resumed["stepLimit"]), (200, &json!(steps + 1)), "{resumed:#}");
    let (status, again) = house.ask("POST", &resume, &key, &body).await;
    assert_eq!((status, &again["id"]), (200, &resumed["id"]));
    let paused = house.until("w", "PAUSED").await;
    assert_eq!((&paused["waitReason"], &paused["stepLimit"]), (&json!("step_limit"), &json!(steps + 1)));
    house.post(&resume, json!({ "maxSteps": 9 })).await;
    let ended = house.until("w", "COMPLETED").await;
    let said = ended["output"].as_array().unwrap();
    let told = |content: &Value| said.iter().filter(|found| *found == content).count();
    assert_eq!((told(&json!({ "text": "go on" })), said.len()), (1, 5), "{ended:#}");
    let entries = house.get(&format!("{BASE}/w/entries")).await;
    let entries = entries["items"].as_array().unwrap();
    let message = entries.iter().find(|entry| entry["content"] == json!({ "text": "go on" })).unwrap();
    assert_eq!((&message["role"], &message["entryType"]), (&json!("user"), &json!("message")));

    // A tool call says which message asked for it, in which step, and how long it took.
    let calls = house.get(&format!("{BASE}/w/tool-calls")).await;
    let calls = calls["items"].as_array().unwrap();
    assert_eq!(calls.len(), 4);
    for (n, call) in calls.iter().enumerate() {
        assert_eq!((&call["arguments"], &call["stepNumber"]), (&json!(n), &json!(n + 1)), "{call:#}");
        let asked = entries.iter().find(|entry| entry["id"] == call["messageId"]).expect("its message is an entry");
        assert_eq!((&asked["role"], &asked["content"]), (&json!("assistant"), &json!(n)));
        assert_eq!(asked["stepNumber"], call["stepNumber"], "{asked:#}");
        let took = call["durationMs"].as_f64().unwrap();
        assert!((1.0..60_000.0).contains(&took), "{call:#}");
        let alone = house.get(&format!("{BASE}/w/tool-calls/{}", call["id"].as_str().unwrap())).await;
        assert_eq!(&alone, call);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_used_its_budget_up_gets_another() {
    let house = House::open().await;
    let (_worker, _) = house.worker(walker()).await;
    house.post(BASE, json!({ "kind": "walker", "id": "w", "budget": "15 tokens" })).await;
    let paused = house.until("w", "PAUSED").await;
    assert_eq!(paused["waitReason"], "budget", "{paused:#}");
    let resume = format!("{BASE}/w/resume");
    let (status, problem) = house.ask("POST", &resume, &[], r#"{"budget":"much"}"#).await;
    assert_eq!((status, &problem["code"]), (400, &json!("InvalidArgument")), "{problem:#}");
    house.post(&resume, json!({ "budget": r#"{"maxTokens":1000}"# })).await;
    let ended = house.until("w", "COMPLETED").await;
    assert_eq!(ended["output"], json!([0, 1, 2, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_an_object() {
    let house = House::open().await;
    let (_worker, _) = house.worker(walker()).await;
    let tokens =
        |tokens: u64| json!({ "maxTokens": tokens, "maxCostUsd": null, "maxCalls": null, "maxTokensPerCall": null });
    house.post(BASE, json!({ "kind": "walker", "id": "w", "budget": { "tokens": 15 } })).await;
    let paused = house.until("w", "PAUSED").await;
    assert_eq!((&paused["waitReason"], &paused["budget"]), (&json!("budget"), &tokens(15)), "{paused:#}");
    let resume = format!("{BASE}/w/resume");
    for wrong in [json!({ "tokes": 9 }), json!({ "cost_usd": -1 }), json!(true), json!([9])] {
        let (status, problem) = house.ask("POST", &resume, &[], &json!({ "budget": wrong }).to_string()).await;
        assert_eq!((status, &problem["code"]), (400, &json!("InvalidArgument")), "{wrong}: {problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains("maxTokens"), "{problem:#}");
    }
    // What a run tells can be given to another.
    let given = json!({ "maxTokens": 1000, "maxCostUsd": 0.25, "maxCalls": 9, "maxTokensPerCall": null });
    let resumed = house.post(&resume, json!({ "budget": given })).await;
    assert_eq!(resumed["budget"], given, "{resumed:#}");
    house.until("w", "COMPLETED").await;
    for (id, budget) in [("n", json!(1_000)), ("t", json!("1000 tokens"))] {
        let run = house.post(BASE, json!({ "kind": "nobody", "id": id, "budget": budget })).await;
        assert_eq!(run["budget"], tokens(1_000), "{run:#}");
    }
    assert_eq!(house.post(BASE, json!({ "kind": "nobody" })).await["budget"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_what_it_came_to_and_its_calls_what_asked_for_them() {
    let talker = agent("talker", |ctx, _| {
        Box::pin(async move {
            ctx.append_entry("user", &"why?")?;
            ctx.schedule::<Value>("note", &0)?.await?;
            ctx.step()?.await?;
            ctx.append_entry("assistant", &"let me look")?;
            for n in 1..3 {
                let found = ctx.schedule::<Value>("note", &n)?.await?;
                ctx.append_entry("tool", &found)?;
            }
            let usage =
                Usage { calls: 1, input_tokens: 10, cache_read_tokens: 2, output_tokens: 3, ..Usage::default() };
            ctx.record_usage("m", Usage { cost_micros: Some(1_500), ..usage })?;
            Err::<Value, _>(Error::new(Code::AgentFailed, "bad luck"))
        })
    });
    let house = House::open().await;
    let (_worker, _) = house.worker(NativeHost::default().agent(talker).unwrap().task(note()).unwrap()).await;
    let started = house.post(BASE, json!({ "kind": "talker", "id": "t" })).await;
    let nothing = json!({
        "steps": 0, "checkpoints": 0, "modelCalls": 0, "tokens": 0, "costUsd": 0.0, "lastError": null,
    });
    assert_eq!((&started["summary"], &started["startedAt"]), (&nothing, &started["createdAt"]), "{started:#}");
    house.until("t", "FAILED").await;
    let listed = house.get(&format!("{BASE}?kind=talker")).await["items"][0].clone();
    let summary = json!({
        "steps": 1, "checkpoints": 0, "modelCalls": 1, "tokens": 15, "costUsd": 0.0015, "lastError": "bad luck",
    });
    assert_eq!(listed["summary"], summary, "{listed:#}");

    let messages = house.get(&format!("{BASE}/t/messages")).await["items"].clone();
    assert_eq!(messages[1]["role"], "assistant");
    let calls = house.get(&format!("{BASE}/t/tool-calls")).await["items"].clone();
    for (n, asked) in [Value::Null, messages[1]["id"].clone(), messages[1]["id"].clone()].into_iter().enumerate() {
        assert_eq!((&calls[n]["arguments"], &calls[n]["messageId"]), (&json!(n), &asked), "{calls:#}");
        let alone = house.get(&format!("{BASE}/t/tool-calls/{}", calls[n]["id"].as_str().unwrap())).await;
        assert_eq!(alone, calls[n]);
    }
}

/// Fails the first time.
#[derive(Default)]
struct Unlucky(AtomicBool);

#[async_trait]
impl AgentDefinition for Unlucky {
    type State = ();
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "unlucky"
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Value> {
        ctx.append_entry("user", &json!("hello"))?;
        ctx.flush()?.await?;
        match self.0.swap(true, Ordering::Relaxed) {
            true => Ok(ctx.wait_for_signal("word")?.await?),
            false => Err(Error::new(Code::AgentFailed, "bad luck")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_goes_on() {
    let house = House::open().await;
    let (_worker, _) = house.worker(NativeHost::default().agent(Unlucky::default()).unwrap()).await;
    house.post(BASE, json!({ "kind": "unlucky", "id": "w" })).await;
    let failed = house.until("w", "FAILED").await;
    assert_eq!(failed["failure"]["message"], "bad luck", "{failed:#}");
    let key = [("idempotency-key", "k")];
    for _ in 0..2 {
        let (status, run) = house.ask("POST", &format!("{BASE}/w/retry"), &key, "{}").await;
        assert_eq!((status, run["endedAt"].is_null()), (200, true), "{run:#}");
    }
    house.post(&format!("{BASE}/w/signal"), json!({ "signalName": "word", "signalValue": "kept" })).await;
    let ended = house.until("w", "COMPLETED").await;
    assert_eq!((&ended["output"], &ended["failure"]), (&json!("kept"), &Value::Null), "{ended:#}");
    let entries = house.get(&format!("{BASE}/w/entries")).await;
    assert_eq!(entries["items"].as_array().map(Vec::len), Some(1), "{entries:#}");
}

#[derive(Default, Serialize, Deserialize, AgentState)]
struct Heard {
    words: Vec<Value>,
}

/// Notes each word it hears in a step of its own and makes a checkpoint of it, and tells all at the end.
struct Listener;

#[async_trait]
impl AgentDefinition for Listener {
    type State = Heard;
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "listener"
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, input: Value) -> Result<Value> {
        let mut heard: Heard = ctx.state()?;
        while heard.words.len() < 3 {
            let word: Value = ctx.wait_for_signal("word")?.await?;
            ctx.append_entry("user", &word)?;
            ctx.step()?.await?;
            ctx.schedule::<Value>("note", &word)?.await?;
            heard.words.push(word);
            ctx.checkpoint(&heard)?.await?;
        }
        Ok(json!({ "input": input, "words": heard.words }))
    }
}

/// Says words to a run, each when it is waited for.
async fn say(house: &House, id: &str, words: &[&str]) {
    for word in words {
        house.until(id, "WAITING").await;
        house.post(&format!("{BASE}/{id}/signal"), json!({ "signalName": "word", "signalValue": word })).await;
    }
}

/// Waits until a run has made a checkpoint.
async fn checkpoint(house: &House, id: &str, sequence: u32) -> Value {
    for _ in 0..4_000 {
        let (status, checkpoint) = house.ask("GET", &format!("{BASE}/{id}/checkpoints/{sequence}"), &[], "").await;
        if status == 200 {
            return checkpoint;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the run {id} made no checkpoint {sequence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_forked_at_a_checkpoint_and_at_an_entry() {
    let house = House::open().await;
    let (_worker, _) = house.worker(NativeHost::default().agent(Listener).unwrap().task(note()).unwrap()).await;
    let run = house.post(BASE, json!({ "kind": "listener", "input": "old", "id": "l" })).await;
    say(&house, "l", &["a"]).await;
    let first = checkpoint(&house, "l", 1).await;
    say(&house, "l", &["b"]).await;
    let second = checkpoint(&house, "l", 2).await;
    let entries = house.get(&format!("{BASE}/l/entries")).await["items"].clone();
    for (n, (checkpoint, words)) in [(&first, json!(["a"])), (&second, json!(["a", "b"]))].into_iter().enumerate() {
        assert_eq!((&checkpoint["sequence"], &checkpoint["state"]), (&json!(n + 1), &json!({ "words": words })));
        assert_eq!((&checkpoint["agentExecutionId"], &checkpoint["metadata"]), (&run["id"], &json!({})));
        assert_eq!(checkpoint["leafEntryId"], entries[n]["id"], "{checkpoint:#}");
        assert!(checkpoint["createdAt"].is_string() && checkpoint["usage"].is_object(), "{checkpoint:#}");
    }
    assert_ne!(first["id"], second["id"]);
    assert_eq!(house.get(&format!("{BASE}/l/checkpoints/latest")).await, second);
    assert_eq!(house.get(&format!("{BASE}/l/checkpoints")).await["checkpoints"], json!([first, second]));

    // The state is found by the names in it, and the conversation beside it.
    let state = async |query: &str| house.get(&format!("{BASE}/l/state{query}")).await;
    let told = |key: Value, value: Value, seq: Value| json!({ "key": key, "value": value, "checkpointSeq": seq, "nextCursor": null });
    assert_eq!(state("").await, told(Value::Null, json!({ "words": ["a", "b"] }), json!(2)));
    assert_eq!(state("?key=words").await, told(json!("words"), json!(["a", "b"]), json!(2)));
    let messages = house.get(&format!("{BASE}/l/messages")).await["items"].clone();
    assert_eq!(state("?key=messages").await, told(json!("messages"), messages, Value::Null));
    let (status, problem) = house.ask("GET", &format!("{BASE}/l/state?key=turns"), &[], "").await;
    assert!(status == 404 && problem["detail"].as_str().unwrap().contains("words, messages"), "{problem:#}");
    house.post(BASE, json!({ "kind": "nobody", "id": "n" })).await;
    assert_eq!(house.get(&format!("{BASE}/n/state")).await, told(Value::Null, Value::Null, Value::Null));

    let fork = format!("{BASE}/l/fork");
    let at_checkpoint = json!({ "checkpoint": 1, "id": "f", "state": { "words": ["other"] }, "input": "new" });
    let forked = house.post(&fork, at_checkpoint).await;
    assert_eq!((&forked["key"], &forked["input"]), (&json!("f"), &json!("new")));
    let from = json!({ "execution": run["id"], "id": run["id"], "segment": 1, "sequence": null });
    assert_eq!(forked["forkedFrom"], from);
    say(&house, "f", &["x", "y"]).await;
    let words = json!(["other", "x", "y"]);
    assert_eq!(house.until("f", "COMPLETED").await["output"], json!({ "input": "new", "words": words }));

    // Steps are counted over checkpoints; a fork counts its own.
    for (id, words) in [("l", ["a", "b"]), ("f", ["x", "y"])] {
        let calls = house.get(&format!("{BASE}/{id}/tool-calls")).await["items"].clone();
        let told = [0, 1].map(|n| json!([calls[n]["arguments"], calls[n]["stepNumber"]]));
        assert_eq!(told, [json!([words[0], 1]), json!([words[1], 2])], "{calls:#}");
        let second = house.get(&format!("{BASE}/{id}/tool-calls/{}", calls[1]["id"].as_str().unwrap())).await;
        assert_eq!(second, calls[1]);
        let messages = house.get(&format!("{BASE}/{id}/messages")).await["items"].clone();
        // A word is appended before the step that it begins.
        for (word, step) in words.iter().zip([Value::Null, json!(1)]) {
            let message = messages.as_array().unwrap().iter().find(|message| message["content"] == *word).unwrap();
            assert_eq!(message["stepNumber"], step, "{message:#}");
            let alone = house.get(&format!("{BASE}/{id}/messages/{}", message["id"].as_str().unwrap())).await;
            assert_eq!(&alone, message);
        }
    }

    let at_entry = json!({ "entryId": entries[0]["id"], "id": "e", "input": "newer" });
    let forked = house.post(&fork, at_entry).await;
    assert_eq!((&forked["forkedFrom"]["id"], &forked["leafEntryId"]), (&run["id"], &entries[0]["id"]), "{forked:#}");
    assert_eq!(house.get(&format!("{BASE}/e/messages")).await["items"], json!([entries[0]]));
    let (status, problem) = house.ask("POST", &fork, &[], r#"{"checkpoint":9}"#).await;
    assert!((400..500).contains(&status), "{problem:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_author_says_of_a_checkpoint_is_told_as_it_was_said() {
    let house = House::open().await;
    house.post(BASE, json!({ "kind": "by hand", "id": "h" })).await;
    let (storage, org, worker) = (house.runtime.storage(), OrgId::DEFAULT, WorkerId::fresh());
    let (queue, kinds, ttl) = ("default".to_owned(), vec!["by hand".to_owned()].into(), Duration::from_secs(60));
    let claim = ClaimRequest { org, worker, queue, kinds, limit: 1, ttl, only: None };
    let claimed = storage.claim_agents(claim).await.unwrap().remove(0);
    let said = r#"{"reason":"a turn","entry_count":2,"own":{"n":1.5}}"#;
    let (state, leaves) = (Payload::of(&1).unwrap(), BTreeMap::new());
    let request = CommitRequest {
        org,
        execution: claimed.execution.new.id,
        lease: claimed.lease,
        request_id: RequestId::fresh(),
        digest: Digest::default(),
        base: claimed.execution.base,
        known: claimed.high,
        batch: Batch::new(0, vec![], BatchEnd::Checkpoint(NewCheckpoint { state, leaves, metadata: said.into() })),
        refused: Vec::new(),
        local: None,
    };
    storage.commit(request).await.unwrap();
    let told: Value = serde_json::from_str(said).unwrap();
    for path in ["latest", "1"] {
        assert_eq!(house.get(&format!("{BASE}/h/checkpoints/{path}")).await["metadata"], told);
    }
}

/// An agent whose code has versions, and that pauses where they differ.
struct Edited(&'static str, &'static [&'static str]);

#[async_trait]
impl AgentDefinition for Edited {
    type State = ();
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "edited"
    }

    fn version(&self) -> Option<String> {
        Some(self.0.into())
    }

    fn on_divergence(&self) -> OnDivergence {
        OnDivergence::Pause
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Value> {
        for step in self.1 {
            ctx.schedule::<Value>("echo", step)?.await?;
        }
        ctx.wait_for_signal::<Value>("go")?.await?;
        Ok(json!(self.1))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_decided_about() {
    let house = House::open().await;
    let host = |version, steps| {
        let echo = job("echo", TaskOptions::default(), |_, input| Box::pin(async move { Ok(input) }));
        NativeHost::default().agent(Edited(version, steps)).unwrap().task(echo).unwrap()
    };
    let (first, worker) = house.worker(host("1", &["a", "b"])).await;
    for decision in ["continue", "fork"] {
        house.post(BASE, json!({ "kind": "edited", "id": decision })).await;
        house.until(decision, "WAITING").await;
    }
    worker.close(Duration::from_secs(5)).await.unwrap();
    drop(first);
    let (_second, _worker) = house.worker(host("2", &["b"])).await;
    let decide = async |id: &str, decision: &str| {
        house.post(&format!("{BASE}/{id}/divergence"), json!({ "decision": decision })).await
    };
    for id in ["continue", "fork"] {
        house.post(&format!("{BASE}/{id}/signal"), json!({ "signalName": "go" })).await;
        let paused = house.until(id, "PAUSED").await;
        assert_eq!(paused["waitReason"], "divergence", "{paused:#}");
        let stays = decide(id, "stay").await;
        assert_eq!((&stays["id"], &stays["status"]), (&paused["id"], &json!("PAUSED")), "{stays:#}");
    }
    let goes_on = decide("continue", "continue").await;
    assert_eq!(goes_on["key"], "continue");
    assert_eq!(house.until("continue", "COMPLETED").await["output"], json!(["b"]));
    let fork = decide("fork", "fork").await;
    let from = house.get(&format!("{BASE}/fork")).await;
    assert_eq!(fork["forkedFrom"]["id"], from["id"], "{fork:#}");
    assert_ne!(fork["id"], from["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_now_cuts_the_call_in_flight_short() {
    let house = House::open().await;
    let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let options = TaskOptions { interruptible: true, ..TaskOptions::default() };
    let model = job("model", options, move |ctx, _| {
        let began = began.clone();
        Box::pin(async move {
            ctx.stream_token("once ");
            ctx.stream_token("upon");
            began.send(()).unwrap();
            std::future::pending().await
        })
    });
    let teller = agent("teller", |ctx, _| {
        Box::pin(async move {
            let said: Value = ctx.schedule("model", &())?.await?;
            Ok(json!([said, ctx.drain_signals::<Value>("steer")?]))
        })
    });
    let (_worker, _) = house.worker(NativeHost::default().agent(teller).unwrap().task(model).unwrap()).await;
    house.post(BASE, json!({ "kind": "teller", "id": "t" })).await;
    begun.recv().await.unwrap();
    let patient = json!({ "signalName": "steer", "signalValue": "patience", "delivery": "next_step" });
    house.post(&format!("{BASE}/t/signal"), patient).await;
    let now = json!({ "signalName": "steer", "signalValue": "shorter", "delivery": "now" });
    let sent = house.post(&format!("{BASE}/t/signal"), now).await;
    assert_eq!(sent["signaled"], true);
    assert_eq!(house.until("t", "COMPLETED").await["output"], json!(["once upon", ["patience", "shorter"]]));
}
