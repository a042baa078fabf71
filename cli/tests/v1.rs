//! A worker of the first protocol on a server that is killed between any two of its commands, and during one.
#![allow(missing_docs, dead_code)]

#[path = "../../server-v1/tests/v1/worker.rs"]
mod worker;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Result;
use flovyn_core::id::OrgId;
use flovyn_core::model::{Delivery, NewKey, Status, TokenHash, fresh_token};
use flovyn_core::runtime::Runtime;
use flovyn_proto::v1;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use uuid::Uuid;
use worker::{Ctx, Stop, Wire, Worker};

/// A server in a process of its own, always on the same port and the same file.
struct Mortal {
    config: PathBuf,
    url: String,
    token: String,
    child: Child,
}

impl Mortal {
    fn start(folder: &tempfile::TempDir, token: String) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
        let config = folder.path().join("flovyn.toml");
        let db = format!("sqlite:{}", folder.path().join("agents.db").display());
        let text = format!("db = {db:?}\ngrpc = \"{free}\"\nhttp = \"127.0.0.1:0\"\n");
        std::fs::write(&config, text).unwrap();
        let child = serve(&config);
        Self { config, url: format!("http://{free}"), token, child }
    }

    /// Kills it, starts it again and connects to it.
    async fn again(&mut self) -> Wire {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
        self.child = serve(&self.config);
        Wire::connect(&self.url, &self.token).await
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn serve(config: &std::path::Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flovyn"));
    command.args(["server", "--json", "--config"]).arg(config);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("grpc"), "the server did not start");
    child
}

/// Two tasks and a word of the user; the server dies before each command.
async fn chat(ctx: &mut Ctx, server: &mut Mortal) -> std::result::Result<Value, Stop> {
    ctx.wire = server.again().await;
    let one = ctx.schedule("double", json!({ "n": 1 }));
    ctx.flush().await?;
    ctx.wire = server.again().await;
    let two = ctx.schedule("double", json!({ "n": 2 }));
    ctx.flush().await?;
    ctx.wire = server.again().await;
    let doubled = ctx.join_all(&[one, two]).await?;
    ctx.wire = server.again().await;
    let word = ctx.wait_for_signal("userMessage").await?;
    ctx.wire = server.again().await;
    ctx.append("user", word.clone());
    Ok(json!({ "doubled": doubled, "word": word }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_nothing() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let db = format!("sqlite:{}", folder.path().join("agents.db").display());
    let rows = Runtime::open(&db).await?;
    let token = fresh_token();
    let (name, scopes, actor) = ("v1".to_owned(), "worker".parse()?, "a test".to_owned());
    let key = NewKey {
        org: OrgId::DEFAULT,
        name,
        scopes,
        expires_in: None,
        not_after: None,
        hash: TokenHash::of(&token),
        actor,
    };
    rows.storage().server_side().unwrap().create_key(key).await?;

    let mut server = Mortal::start(&folder, token.clone());
    let mut worker = Worker::start(&server.url, &token, &["chat"], &["double"]).await;
    let handle = rows.client().start("chat", Payload::of(&"hello")?, StartOptions::default()).await?;
    let mut claims = 0;
    while !handle.status().await?.is_terminal() {
        worker.wire = server.again().await;
        let mut ctx = worker.claim().await;
        claims += 1;
        let ended = chat(&mut ctx, &mut server).await;
        let waits = matches!(ended, Err(Stop::Suspended));
        ctx.wire = server.again().await;
        ctx.end(ended).await.unwrap();
        if waits && claims == 1 {
            for _ in 0..2 {
                worker.wire = server.again().await;
                worker.double().await;
            }
        } else if waits {
            handle.signal("userMessage", Payload::of(&"thanks")?, Delivery::default(), None).await?;
        }
    }
    assert_eq!((handle.status().await?, claims), (Status::Completed, 3));
    let run = handle.describe().await?;
    let output: Value = run.output.expect("it is completed").parse()?;
    assert_eq!(output, json!({ "doubled": [2, 4], "word": "thanks" }));
    assert_eq!(handle.messages().await?.len(), 1);

    // A command whose answer is lost is sent again under its id, and is done once.
    let handle = rows.client().start("chat", Payload::of(&"again")?, StartOptions::default()).await?;
    worker.wire = server.again().await;
    let mut ctx = worker.claim().await;
    let mut parent = None;
    for n in 0..8 {
        let id = Uuid::new_v4().to_string();
        let entry = v1::AppendEntryRequest {
            agent_execution_id: ctx.id(),
            parent_id: parent.replace(id.clone()),
            entry_type: "MESSAGE".into(),
            content: json!(n).to_string().into(),
            idempotency_key: Some(id),
            ..Default::default()
        };
        let (mut agents, lost) = (ctx.wire.agents.clone(), entry.clone());
        let sent = tokio::spawn(async move { agents.append_entry(lost).await });
        if n % 2 == 0 {
            tokio::task::yield_now().await;
        }
        ctx.wire = server.again().await;
        let _ = sent.await;
        ctx.wire.agents.append_entry(entry).await.unwrap();
    }
    let said = ctx.read_entries(None).await;
    assert_eq!(
        said.iter().map(|entry| &entry.content[..]).collect::<Vec<_>>(),
        [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    );
    ctx.complete(json!("told")).await.unwrap();
    assert_eq!(handle.status().await?, Status::Completed);
    rows.close().await
}
