//! A program as a machine of a server, with agents and tasks of its own: it is let in, killed, started again and revoked.
#![cfg(unix)]

mod house;

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::model::Status;
use flovyn_core::runtime::{LocalWorkerDaemon, Runtime};
use flovyn_core::storage::machines::{Approval, Paired};
use flovyn_core::storage::remote::{PairingClient, RemoteOptions, RemoteStorage};
use flovyn_core::storage::{Machines, Storage};
use flovyn_core::task::{TaskContext, TaskDefinition};
use house::{Serving, json, serve};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Writes a line into a file of the workspace.
struct WriteLine(PathBuf);

#[async_trait]
impl TaskDefinition for WriteLine {
    type Input = String;
    type Output = usize;

    fn kind(&self) -> &str {
        "write-line"
    }

    async fn execute(&self, _: &TaskContext, line: String) -> Result<usize> {
        let mut file = std::fs::File::options().append(true).create(true).open(self.0.join("lines")).expect("a file");
        writeln!(file, "{line}").expect("a line");
        Ok(line.len())
    }
}

/// Writes a line, waits for a signal, and writes another one.
struct Writer;

#[async_trait]
impl AgentDefinition for Writer {
    type State = ();
    type Input = String;
    type Output = usize;

    fn kind(&self) -> &str {
        "writer"
    }

    async fn execute(&self, ctx: &dyn AgentContext, line: String) -> Result<usize> {
        let first: usize = ctx.schedule("write-line", &line)?.await?;
        let other: String = ctx.wait_for_signal("more")?.await?;
        let second: usize = ctx.schedule("write-line", &other)?.await?;
        Ok(first + second)
    }
}

/// What the tests start as a process of its own: a daemon by the variables that they set.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_process() {
    let Ok(work) = std::env::var("FLOVYN_TEST_WORK") else { return };
    let mut built =
        LocalWorkerDaemon::builder().workspace(&work).register_agent(Writer).register_task(WriteLine(work.into()));
    if let (Ok(server), Ok(token)) = (std::env::var("FLOVYN_TEST_SERVER"), std::env::var("FLOVYN_TEST_TOKEN")) {
        built = built.server_url(server).auth_token(token);
    }
    let daemon = match built.build() {
        Ok(daemon) => daemon,
        Err(error) => return println!("refused: {error}"),
    };
    match daemon.start().await {
        Ok(()) => println!("serves {}", daemon.name().expect("a name")),
        Err(error) => return println!("refused: {error}"),
    }
    match daemon.run().await {
        Ok(()) => println!("ended"),
        Err(error) => println!("ended: {} {error}", error.code()),
    }
}

struct Process(Child, BufReader<std::process::ChildStdout>);

impl Process {
    fn start(work: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_daemon_process", "--nocapture"]).env("FLOVYN_TEST_WORK", work);
        command.env_remove("FLOVYN_URL").env_remove("FLOVYN_TOKEN").env("FLOVYN_HOME", work.join("no-home"));
        command.envs(variables.iter().copied()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    /// The next line that the daemon writes; lines of the harness are left out.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.1.read_line(&mut line).unwrap(), 0, "the process has ended");
            if let Some(at) = ["serves ", "refused: ", "ended"].iter().filter_map(|word| line.find(word)).min() {
                return line[at..].trim_end().to_owned();
            }
        }
    }

    fn kill(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
        let _ = self.1.read_to_string(&mut String::new());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An operator, and a server of his.
struct Operator {
    server: Serving,
    token: String,
    storage: Arc<RemoteStorage>,
}

impl Operator {
    async fn of(folder: &Path) -> Self {
        let db = format!("sqlite:{}", folder.join("runs.db").display());
        Runtime::open(&db).await.unwrap().close().await.unwrap();
        let key = json(folder, &["keys", "create", &db, "--name", "office", "--scopes", "admin"]);
        let (server, token) = (serve(folder, &db, 0), key["token"].as_str().unwrap().to_owned());
        let options = RemoteOptions { token: Some(token.clone()) };
        let storage = Arc::new(RemoteStorage::connect(&server.grpc, options).await.unwrap());
        Self { server, token, storage }
    }

    async fn pair(&self, name: &str) -> Paired {
        let pairings = PairingClient::of(&self.server.grpc).await.unwrap();
        let pairing = pairings.request_pairing(name, "a host").await.unwrap();
        let approval = Approval {
            code: pairing.code,
            name: None,
            owner: Some("ann".into()),
            actor: String::new(),
            not_after: None,
        };
        self.storage.approve_pairing(self.storage.org(), approval).await.unwrap();
        pairings.collect_pairing(&pairing.secret).await.unwrap().expect("a key")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_a_machine_until_it_is_revoked() {
    let root = tempfile::tempdir().unwrap();
    let operator = Operator::of(root.path()).await;
    let paired = operator.pair("laptop").await;
    let work = root.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let variables = [("FLOVYN_TEST_SERVER", operator.server.grpc.as_str()), ("FLOVYN_TEST_TOKEN", &paired.token)];
    let mut first = Process::start(&work, &variables);
    assert_eq!(first.line(), "serves laptop");
    let machines = operator.storage.machines(operator.storage.org()).await.unwrap();
    let offers: serde_json::Value = serde_json::from_str(&machines[0].offers).unwrap();
    assert_eq!(offers["kinds"], serde_json::json!(["writer"]), "{offers}");
    assert_eq!(offers["workspaces"][0], work.canonicalize().unwrap().to_str().unwrap(), "{offers}");

    // What it was in the middle of goes on in the next process, and what was done is not done again.
    let client = Runtime::over(operator.storage.clone()).client();
    let input = Payload::of("otter").unwrap();
    let run = client.start("writer", input, StartOptions::on_machine(Some("laptop"))).await.unwrap();
    until("it waits", async || run.status().await.is_ok_and(|status| status == Status::Waiting)).await;
    first.kill();
    run.signal("more", Payload::of("heron").unwrap(), Default::default(), None).await.unwrap();
    let mut second = Process::start(&work, &variables);
    assert_eq!(second.line(), "serves laptop");
    assert_eq!(run.result(Some(PATIENCE)).await.unwrap().parse::<usize>().unwrap(), 10);
    assert_eq!(std::fs::read_to_string(work.join("lines")).unwrap(), "otter\nheron\n");

    operator.storage.revoke_machine(operator.storage.org(), "laptop", "").await.unwrap();
    let ended = second.line();
    assert!(ended.contains("Unauthenticated") && ended.contains("does not let the machine \"laptop\" in"), "{ended}");
    let mut third = Process::start(&work, &variables);
    let refused = third.line();
    assert!(refused.contains("refused") && refused.contains("does not take the key"), "{refused}");
    assert!(!refused.contains(&paired.token), "the key is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_machine_is_refused_in_words() {
    let root = tempfile::tempdir().unwrap();
    let operator = Operator::of(root.path()).await;
    let paired = operator.pair("laptop").await;
    let given = |token: &str| LocalWorkerDaemon::builder().server_url(&operator.server.grpc).auth_token(token);
    let error = given(&operator.token).build().unwrap().start().await.unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("that of no machine"), "{error}");
    let error = given(&paired.token).name("desktop").build().unwrap().start().await.unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.message().contains("machine \"laptop\""), "{error}");
    let error = given("fk_guessed").build().unwrap().start().await.unwrap_err();
    assert!(error.code() == Code::Unauthenticated && error.message().contains("does not take the key"), "{error}");
    let twice = given(&paired.token).register_agent(Writer).register_agent(Writer).build();
    assert_eq!(twice.err().unwrap().code(), Code::InvalidArgument);

    // What answers there speaks another protocol.
    let other = format!("http://{}", operator.server.http);
    let error = LocalWorkerDaemon::builder().server_url(&other).auth_token(&paired.token).build().unwrap();
    let error = tokio::time::timeout(Duration::from_secs(20), error.start()).await.expect("an answer").unwrap_err();
    assert!(error.code() == Code::InvalidArgument, "{error}");

    // Where nobody answers it waits, and is closed meanwhile.
    let daemon = LocalWorkerDaemon::builder().server_url("http://127.0.0.1:9").auth_token("fk_1").build().unwrap();
    let running = daemon.clone();
    let running = tokio::spawn(async move { running.run().await });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!running.is_finished());
    daemon.close(Duration::ZERO).await.unwrap();
    running.await.unwrap().unwrap();
}
