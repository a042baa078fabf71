//! The log of a server as whoever collects it reads it: one JSON object a line, whatever happens.
#![cfg(unix)]

mod house;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::storage::{ClaimRequest, Heartbeat, WorkSource, WorkerInfo};
use house::{Serving, flovyn, json, signal};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// A server of the folder's database, wherever there is room.
const ANYWHERE: &str = "db = \"sqlite:agents.db\"\ngrpc = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\ndrain = \"0s\"\n";

/// Starts a run; whether the server took it.
fn start(http: &str, token: &str, input: &str) -> bool {
    let mut connection = TcpStream::connect(http).unwrap();
    let body = format!("{{\"kind\": \"nobody\", \"input\": \"{input}\"}}");
    let head =
        "POST /api/orgs/default/agent-executions HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json";
    let length = body.len();
    write!(
        connection,
        "{head}\r\nhost: {http}\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer.starts_with("HTTP/1.1 201")
}

/// A server and its log, line by line as it comes.
struct Told {
    serving: Serving,
    /// The file of its token, where it has one.
    token: String,
    lines: Receiver<String>,
    log: Vec<Value>,
}

impl Told {
    /// Starts a server by a file that says this.
    fn serve(folder: &Path, config: &str) -> Self {
        std::fs::write(folder.join("flovyn.toml"), config).unwrap();
        Self::of(flovyn(folder, &["serve", "--json", "--config", "flovyn.toml"]).env_remove("FLOVYN_LOG"))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (sender, lines) = channel();
        let told = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || told.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let told: Value = serde_json::from_str(&line).expect("a server that started tells where it listens");
        let word = |name: &str| told[name].as_str().unwrap().to_owned();
        let serving = Serving { child, grpc: word("grpc"), http: word("http").replace("http://", "") };
        let token = told["tokenFiles"][0].as_str().unwrap_or_default().to_owned();
        Self { serving, token, lines, log: Vec::new() }
    }

    /// Reads on until a line has these words as its message.
    fn until(&mut self, words: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {words:?} in {:#?}", self.log));
            self.log.push(read(&line));
            let last = &self.log[self.log.len() - 1];
            if last["message"].as_str().unwrap().contains(words) {
                return last.clone();
            }
        }
    }

    /// Ends it; all that it said.
    fn end(mut self) -> Vec<Value> {
        signal("-TERM", &self.serving.child);
        assert_eq!(self.serving.child.wait().unwrap().code(), Some(0));
        self.log.extend(self.lines.iter().map(|line| read(&line)));
        std::mem::take(&mut self.log)
    }
}

/// A line of the log, which is an object with all that every one has.
fn read(line: &str) -> Value {
    let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    for name in ["timestamp", "level", "target", "message"] {
        assert!(told[name].is_string(), "{name} of {line}");
    }
    assert!(told["fields"].is_object(), "{line}");
    told
}

fn stderr(mut child: Child) -> String {
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    child.wait().unwrap();
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_is_an_object_and_what_operators_look_for_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    let token = |scopes: &str| {
        let key = json(folder, &["keys", "create", "--name", scopes, "--scopes", scopes]);
        RemoteOptions { token: Some(key["token"].as_str().unwrap().to_owned()) }
    };
    let (own, of_gpu) = (token("member,worker"), token("worker:gpu"));
    // No call takes no time.
    let more = "log_format = \"json\"\nslow_call = \"0ms\"\nnats = \"nats://me:s3cret@127.0.0.1:1\"\n";
    let mut server = Told::serve(folder, &format!("{ANYWHERE}{more}"));
    let started = server.until("the server has started");
    let fields = &started["fields"];
    assert_eq!((&started["level"], &fields["version"]), (&"INFO".into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!(fields["grpc"], server.serving.grpc, "{started:#}");
    assert_eq!(fields["http"], format!("http://{}", server.serving.http), "{started:#}");
    assert!(fields["db"].as_str().unwrap().starts_with("sqlite:"), "{started:#}");
    assert!(fields["metrics"].as_str().unwrap().ends_with("/metrics"), "{started:#}");
    assert_eq!((&fields["nats"], &fields["tls"]), (&"nats://127.0.0.1:1".into(), &false.into()), "{started:#}");
    assert_eq!((&fields["limits.poll"], &fields["slow_call"]), (&100.into(), &"0ms".into()), "{started:#}");

    // A worker whose key does not serve the queue.
    let worker = WorkerId::fresh();
    let claim = |worker| ClaimRequest {
        org: OrgId::DEFAULT,
        worker,
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_millis(50),
        only: None,
    };
    let remote = RemoteStorage::connect(&server.serving.grpc, of_gpu).await.unwrap();
    let refused = remote.claim_agents(claim(worker)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let said = server.until("is refused work");
    assert_eq!(said["level"], "WARN");
    assert!(said["fields"]["asked"].as_str().unwrap().contains("default"), "{said:#}");
    assert_eq!(said["fields"]["scopes"], "worker:gpu", "{said:#}");

    // One that comes back after its lease was over.
    let remote = std::sync::Arc::new(RemoteStorage::connect(&server.serving.grpc, own).await.unwrap());
    let runtime = Runtime::over(remote.clone());
    let run = runtime.client().start("agent", Payload::null(), StartOptions::default()).await.unwrap().id();
    let info =
        |id| WorkerInfo { org: OrgId::DEFAULT, id, name: "w".into(), queues: vec!["default".into()], elsewhere: false };
    remote.register_worker(info(worker)).await.unwrap();
    assert_eq!(remote.claim_agents(claim(worker)).await.unwrap().len(), 1);
    let other = WorkerId::fresh();
    remote.register_worker(info(other)).await.unwrap();
    while remote.claim_agents(claim(other)).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let beat = Heartbeat {
        org: OrgId::DEFAULT,
        worker,
        ttl: Duration::from_secs(1),
        executions: vec![(run, 1, 0)],
        tasks: Vec::new(),
        progress: Vec::new(),
    };
    assert_eq!(remote.heartbeat(beat).await.unwrap().lost_executions, [run]);
    let said = server.until("has lost its leases");
    assert_eq!((&said["level"], &said["fields"]["runs"]), (&"WARN".into(), &run.to_string().into()), "{said:#}");

    let log = server.end();
    let slow = log.iter().find(|line| line["fields"]["call"] == "ClaimAgents").expect("a slow call is named");
    assert_eq!((&slow["level"], &slow["message"]), (&"WARN".into(), &"a call of the storage took long".into()));
    assert!(slow["fields"]["seconds"].as_f64().unwrap() > 0.0, "{slow:#}");
    let last = log.last().unwrap();
    assert_eq!((&last["message"], &last["fields"]["why"]), (&"it has ended".into(), &"SIGTERM".into()), "{last:#}");
    assert!(last["fields"]["seconds"].as_f64().unwrap() > 0.0, "{last:#}");
    assert!(!format!("{log:?}").contains("s3cret"));
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    std::fs::write(folder.join("text.toml"), format!("{ANYWHERE}log_format = \"text\"\n")).unwrap();
    let first = |more: &[&str], variable: &str| {
        let mut command = flovyn(folder, &[&["server", "--config", "text.toml"], more].concat());
        command.env("FLOVYN_LOG_FORMAT", variable).env("FLOVYN_LOG", "info");
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut serving = Serving { child, grpc: String::new(), http: String::new() };
        let mut line = String::new();
        BufReader::new(serving.child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        line
    };
    assert!(first(&[], "text").contains(" INFO "));
    assert_eq!(read(&first(&[], "json"))["message"], "the server has started");
    assert_eq!(read(&first(&["--log-format", "json"], "text"))["message"], "the server has started");
    assert!(first(&["--log-format", "text"], "json").contains(" INFO "));
}

#[test]
fn why_a_server_does_not_start_is_an_object_too() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |args: &[&str], config: &str| {
        std::fs::write(folder.path().join("flovyn.toml"), config).unwrap();
        let mut command = flovyn(folder.path(), args);
        let child = command.env("FLOVYN_LOG", "off").stderr(Stdio::piped()).spawn().unwrap();
        let told = stderr(child);
        assert_eq!(told.lines().count(), 1, "{told}");
        let told = read(told.trim());
        assert_eq!((&told["level"], &told["fields"]["code"]), (&"ERROR".into(), &"InvalidArgument".into()), "{told:#}");
        told["message"].as_str().unwrap().to_owned()
    };
    let server = ["server", "--config", "flovyn.toml", "--log-format", "json"];
    assert!(fails(&server, "grcp = 1").contains("line 1"));
    let open = format!("{ANYWHERE}log_format = \"json\"\n").replacen("127.0.0.1", "0.0.0.0", 1);
    assert!(fails(&server[..3], &open).contains("plaintext = true"));
    assert!(fails(&["worker", "sqlite:none.db", "--fake", "--log-format=json"], "").contains("there is no database"));
}

/// A small RAM disk, where this user may mount one.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(folder: &'a Path) -> Option<Self> {
        let mut asked = Command::new("mount");
        let asked = asked.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_disk_that_is_nearly_full_is_said_before_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(folder.path()) else {
        eprintln!("skipped: this user may mount no RAM disk that can be filled");
        return;
    };
    let dev = |port: &[&str]| {
        let args = ["dev", "--json", "--http-port", "0", "--grpc-port", "0", "--log-format", "json"];
        let mut command = flovyn(disk.0, &[&args, port].concat());
        command.env("FLOVYN_HOME", disk.0.join("home")).env_remove("FLOVYN_LOG");
        Told::of(&mut command)
    };
    let log = dev(&[]).end();
    assert!(!log.iter().any(|line| line["message"].as_str().unwrap().contains("full")), "{log:#?}");
    std::fs::write(disk.0.join("filler"), vec![0; (15 << 20) + (200 << 10)]).unwrap();
    let mut server = dev(&[]);
    let said = server.until("nearly full");
    assert_eq!(said["level"], "WARN");
    assert!(said["fields"]["free"].as_u64().unwrap() < 800 << 10, "{said:#}");
    // And when it is.
    let mut filling = std::fs::OpenOptions::new().append(true).open(disk.0.join("filler")).unwrap();
    while filling.write_all(&[0; 1 << 12]).is_ok() {}
    let token = std::fs::read_to_string(&server.token).unwrap();
    let mut started = 0;
    while start(&server.serving.http, token.trim(), &"noise".repeat(10_000)) {
        started += 1;
        assert!(started < 1_000, "the disk never filled");
    }
    let said = server.until("the store takes no writes");
    assert_eq!(said["level"], "ERROR", "{said:#}");
    assert!(said["message"].as_str().unwrap().contains("make room"), "{said:#}");
    server.end();
}
