//! A conversation with the built-in agent over plain HTTP, one request a turn, while its servers are killed.

mod house;

use async_trait::async_trait;
use flovyn_core::agent::NativeHost;
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use flovyn_core::worker::{Worker, WorkerOptions};
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use flovyn_toolkit::provider::{Api, Endpoint, ModelInfo, Registry, RetryPolicy, ToolSpec};
use flovyn_toolkit::react::{AgentTool, LlmGenerate, ReactAgent};
use flovyn_toolkit::tools::Effect;
use house::{Serving, json, serve};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const DB: &str = "sqlite:agents.db";
const RUN: &str = "/api/orgs/default/agent-executions/otters";

/// Ends when the test lets it.
#[derive(Clone)]
struct Gate {
    kind: &'static str,
    open: Arc<Semaphore>,
    begun: Arc<Semaphore>,
}

#[async_trait]
impl TaskDefinition for Gate {
    type Input = Value;
    type Output = String;

    fn kind(&self) -> &str {
        self.kind
    }

    async fn execute(&self, _ctx: &TaskContext, _input: Value) -> Result<String> {
        self.begun.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        Ok(format!("{} is over", self.kind))
    }
}

fn tool(name: &str, effect: Effect) -> AgentTool {
    let parameters = json!({ "type": "object", "properties": {} });
    let spec = ToolSpec { name: name.into(), description: "Of a test.".into(), parameters };
    AgentTool::task(spec, name, effect).unwrap()
}

async fn worker(serving: &Serving, token: &str, fake: &FakeLlm, gates: [&Gate; 2]) -> (Runtime, Worker) {
    let mut models = Registry::new();
    let model = |id: &str| ModelInfo { id: id.into(), context_window: Some(100_000), ..ModelInfo::default() };
    models.add(Api::AnthropicMessages, Endpoint::new("fake", fake.url()).models([model("m"), model("other")])).unwrap();
    let agent = ReactAgent::new().with_tool(tool("look", Effect::Read)).unwrap();
    let agent = agent.with_tool(tool("send", Effect::Write)).unwrap();
    let host = NativeHost::default().agent(agent).unwrap();
    let host = host.task(LlmGenerate::new(models).with_policy(RetryPolicy::never())).unwrap();
    let host = gates.into_iter().fold(host, |host, gate| host.task(gate.clone()).unwrap());
    let options = RemoteOptions { token: Some(token.to_owned()) };
    let remote = Runtime::over(Arc::new(RemoteStorage::connect(&serving.grpc, options).await.unwrap()));
    let worker = remote.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    (remote, worker)
}

/// Who asks a server; its address is that of whichever lives.
struct Person {
    token: String,
    http: String,
}

impl Person {
    /// The answer; none where the server died meanwhile.
    async fn ask(&self, method: &str, path: &str, key: &str, prefer: &str, body: &Value) -> Option<(u16, Value)> {
        let connection = TcpStream::connect(&self.http).await.ok()?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
        let (mut sender, connection) = handshake.ok()?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in [("host", &self.http[..]), ("content-type", "application/json"), ("prefer", prefer)] {
            request = request.header(name, value);
        }
        if !key.is_empty() {
            request = request.header("idempotency-key", key);
        }
        request = request.header("authorization", format!("Bearer {}", self.token));
        let body = if method == "GET" { Bytes::new() } else { body.to_string().into() };
        let answer = sender.send_request(request.body(Full::new(body)).unwrap()).await.ok()?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into())))
    }

    async fn turn(&self, key: &str, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", &format!("{RUN}/turns"), key, "", body).await.unwrap();
        assert_eq!(status, 200, "{answer:#}");
        answer
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", &format!("{RUN}{path}"), "", "", &Value::Null).await.unwrap().1
    }
}

/// Kills a server, and starts another one over its database.
fn killed(mut serving: Serving, folder: &Path, port: u16, person: &mut Person) -> Serving {
    serving.end();
    let serving = serve(folder, DB, port);
    person.http.clone_from(&serving.http);
    serving
}

fn says(text: &str) -> Value {
    json!({ "message": text })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_survives_its_servers() {
    let script = [
        Turn::text("Crabs."),
        Turn::call("look", json!({})),
        Turn::text("I have looked."),
        Turn::text("May I?").and_call("send", json!({})),
        Turn::text("Sent."),
        Turn::text("Any time."),
    ];
    let fake = FakeLlm::start(Script::new(script)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    json(folder.path(), &["migrate", DB]);
    let key = json(folder.path(), &["keys", "create", DB, "--name", "test", "--scopes", "admin,worker"]);
    let token = key["token"].as_str().unwrap().to_owned();
    let serving = serve(folder.path(), DB, 0);
    let port = serving.grpc.rsplit(':').next().unwrap().parse().unwrap();
    let gate = |kind| Gate { kind, open: Arc::new(Semaphore::new(0)), begun: Arc::new(Semaphore::new(0)) };
    let (look, send) = (gate("look"), gate("send"));
    let _worker = worker(&serving, &token, &fake, [&look, &send]).await;
    let mut person = Person { token, http: serving.http.clone() };

    // Three lines of curl: start, a turn, another turn.
    let input = json!({ "model": "fake/m", "config": { "mode": "chat" } });
    let start = json!({ "id": "otters", "kind": "react-agent", "input": input });
    assert_eq!(person.ask("POST", "/api/orgs/default/agent-executions", "", "", &start).await.unwrap().0, 201);
    let first = person.turn("k1", &says("What do otters eat?")).await;
    assert_eq!((&first["output"], &first["stopReason"]), (&json!("Crabs."), &json!("end")), "{first:#}");
    assert_eq!(first["usage"]["total"]["calls"], 1, "{first:#}");
    assert_eq!(first["checkpointId"], person.get("/checkpoints/latest").await["id"]);

    // The second one is in the middle of its call as its server dies.
    let (turns, look_for) = (format!("{RUN}/turns"), says("Look."));
    let asked = person.ask("POST", &turns, "k2", "", &look_for);
    let dies = async {
        look.begun.acquire().await.unwrap().forget();
        serving
    };
    let serving = tokio::select! {
        answer = asked => panic!("{answer:?} came before the call had ended"),
        serving = dies => serving,
    };
    let serving = killed(serving, folder.path(), port, &mut person);
    assert_eq!(person.ask("POST", &format!("{RUN}/turns"), "k2", "wait=0", &says("Look.")).await.unwrap().0, 202);
    look.open.add_permits(2);
    let second = person.turn("k2", &says("Look.")).await;
    assert_eq!(second["output"], "I have looked.", "{second:#}");
    assert_eq!(
        (&second["toolCalls"][0]["name"], &second["toolCalls"][0]["status"]),
        (&json!("look"), &json!("completed"))
    );
    assert_eq!(second["usage"]["total"]["calls"], 2, "{second:#}");

    // A person is asked, whichever server lives; who speaks meanwhile waits behind the question.
    let asks = person.turn("k3", &says("Send it.")).await;
    assert_eq!((&asks["status"], &asks["pending"][0]["name"]), (&json!("awaiting_human"), &json!("send")), "{asks:#}");
    let _serving = killed(serving, folder.path(), port, &mut person);
    assert_eq!(person.turn("k3", &says("Send it.")).await, asks);
    let thanks = json!({ "message": "Thanks.", "modelOverride": "fake/other" });
    let behind = person.turn("k4", &thanks).await;
    assert_eq!((&behind["status"], &behind["pending"]), (&json!("awaiting_human"), &asks["pending"]), "{behind:#}");
    assert_eq!((&behind["output"], &behind["toolCalls"]), (&Value::Null, &json!([])), "{behind:#}");
    send.open.add_permits(2);
    let (id, hash) = (&asks["pending"][0]["id"], &asks["pending"][0]["hash"]);
    let yes = json!({ "approvals": [{ "id": id, "hash": hash, "approved": true }] });
    let sent = person.turn("", &yes).await;
    assert_eq!(
        (&sent["output"], &sent["status"], &sent["stopReason"]),
        (&json!("Sent."), &json!("complete"), &json!("end")),
        "{sent:#}"
    );
    assert_eq!(sent["toolCalls"][0]["result"], "send is over");
    let last = person.turn("k4", &thanks).await;
    assert_eq!((&last["output"], &last["turnId"]), (&json!("Any time."), &behind["turnId"]), "{last:#}");
    assert!(last["usage"]["models"]["fake/other"].is_object(), "{last:#}");

    // Every turn has the answer that it had, and nothing was said twice.
    for (key, body, whole) in [("k1", says("What do otters eat?"), &first), ("k2", says("Look."), &second)] {
        assert_eq!(person.turn(key, &body).await, *whole);
        let by_id = person.get(&format!("/turns/{}", whole["turnId"].as_str().unwrap())).await;
        assert_eq!(by_id, *whole);
    }
    let listed = person.get("/messages").await;
    let users = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["role"] == "user" && entry["entryType"] == "message");
    assert_eq!(users.count(), 4, "{listed:#}");
    assert_eq!(fake.paid(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_may_steer_the_one_before_it() {
    let script =
        [Turn::text("Let me see.").and_call("look", json!({})), Turn::text("It is warm."), Turn::text("As you like.")];
    let fake = FakeLlm::start(Script::new(script)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    json(folder.path(), &["migrate", DB]);
    let key = json(folder.path(), &["keys", "create", DB, "--name", "test", "--scopes", "admin,worker"]);
    let token = key["token"].as_str().unwrap().to_owned();
    let serving = serve(folder.path(), DB, 0);
    let gate = |kind| Gate { kind, open: Arc::new(Semaphore::new(0)), begun: Arc::new(Semaphore::new(0)) };
    let (look, send) = (gate("look"), gate("send"));
    let _worker = worker(&serving, &token, &fake, [&look, &send]).await;
    let person = Person { token, http: serving.http.clone() };
    let input = json!({ "model": "fake/m", "config": { "mode": "chat" } });
    let start = json!({ "id": "otters", "kind": "react-agent", "input": input });
    person.ask("POST", "/api/orgs/default/agent-executions", "", "", &start).await.unwrap();

    let (cold, warm, later) =
        (says("Is it cold?"), json!({ "message": "Is it warm?", "delivery": "next_step" }), says("Thanks."));
    let steers = async {
        look.begun.acquire().await.unwrap().forget();
        let turns = format!("{RUN}/turns");
        // One waits for its turn, one does not.
        for (key, body) in [("k3", &later), ("k2", &warm)] {
            assert_eq!(person.ask("POST", &turns, key, "wait=0", body).await.unwrap().0, 202);
        }
        look.open.add_permits(1);
        (person.turn("k2", &warm).await, person.turn("k3", &later).await)
    };
    let (first, (second, third)) = tokio::join!(person.turn("k1", &cold), steers);
    // What was written before the next message, and nothing of its answer.
    assert_eq!((&first["stopReason"], &first["output"]), (&json!("steered"), &json!("Let me see.")), "{first:#}");
    assert_eq!(first["toolCalls"][0]["status"], "completed", "{first:#}");
    assert_eq!((&second["output"], &second["stopReason"]), (&json!("It is warm."), &json!("end")), "{second:#}");
    assert_eq!((&third["output"], &third["stopReason"]), (&json!("As you like."), &json!("end")), "{third:#}");
    for (key, body, whole) in [("k1", cold, first), ("k2", warm, second), ("k3", later, third)] {
        assert_eq!(person.turn(key, &body).await, whole);
    }
}
