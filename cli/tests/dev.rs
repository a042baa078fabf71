//! `flovyn dev` as a developer has it, and how it and `flovyn server` end.

mod house;

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::id::{OrgId, WorkerId};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage, Tokens};
use flovyn_core::storage::{ClaimRequest, WorkSource};
use flovyn_core::testing::postgres::Cluster;
use house::{Serving, flovyn, json, serve_by, signal};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// A server of the folder's database, wherever there is room.
const ANYWHERE: &str = "db = \"sqlite:agents.db\"\ngrpc = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n";

/// A developer's server in a folder of its own; it ends with this.
struct Dev {
    folder: TempDir,
    serving: Serving,
    told: Value,
}

impl Dev {
    fn start(db: &str) -> Self {
        Self::start_with(db, &[])
    }

    fn start_with(db: &str, more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), db, more)
    }

    fn start_in(folder: TempDir, db: &str, more: &[&str]) -> Self {
        let args = [&["--db", db, "--grpc-port", "0", "--http-port", "0"], more].concat();
        let mut child = dev(folder.path(), &args).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).expect("a server that started tells where it listens");
        let word = |name: &str| told[name].as_str().unwrap().to_owned();
        let serving = Serving { child, grpc: word("grpc"), http: word("http").replace("http://", "") };
        Self { folder, serving, told }
    }

    /// The files that have the token.
    fn token_files(&self) -> Vec<PathBuf> {
        self.told["tokenFiles"].as_array().unwrap().iter().map(|file| file.as_str().unwrap().into()).collect()
    }

    fn token(&self) -> String {
        std::fs::read_to_string(&self.token_files()[0]).unwrap().trim().to_owned()
    }

    async fn connect(&self) -> RemoteStorage {
        RemoteStorage::connect(&self.serving.grpc, RemoteOptions { token: Some(self.token()) }).await.unwrap()
    }
}

/// The command, with a home in the folder and a further file for the token.
fn dev(folder: &Path, args: &[&str]) -> Command {
    let mut command = flovyn(folder, &[&["dev", "--json", "--token-file", "token"], args].concat());
    command.env("FLOVYN_HOME", folder.join("home")).stdout(Stdio::piped());
    command
}

/// Asks over a connection of its own with these lines of headers; the status and the whole answer.
fn ask(http: &str, path: &str, headers: &[&str]) -> std::io::Result<(u16, String)> {
    let mut connection = TcpStream::connect(http)?;
    write!(connection, "GET {path} HTTP/1.1\r\nconnection: close\r\n{}\r\n\r\n", headers.join("\r\n"))?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok((answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0), answer))
}

fn ready(http: &str) -> bool {
    ask(http, "/_/ready", &[&format!("host: {http}")]).is_ok_and(|(status, _)| status == 200)
}

/// Waits for a process's end, not for ever.
fn end_of(child: &mut Child) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(since.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(unix)]
fn mode(file: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    Some(std::fs::metadata(file).ok()?.permissions().mode() & 0o777)
}

#[test]
fn an_operator_is_told_what_is_wrong_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    // A superuser, for whom row-level security does not hold.
    let db = Cluster::shared().fresh().unwrap().replacen("tenant@", "flovyn@", 1);
    let ports = ["--grpc-port", "0", "--http-port", "0"];
    let serve = |log: &str| {
        let mut command = flovyn(folder.path(), &[&["dev", "--db", &db][..], &ports].concat());
        command.env("FLOVYN_HOME", folder.path().join("home")).env("FLOVYN_LOG", log).stderr(Stdio::piped());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut server = Serving { child: serve(""), grpc: String::new(), http: String::new() };
    let told = BufReader::new(server.child.stderr.take().unwrap()).lines().map_while(Result::ok).next().unwrap();
    assert!(told.contains("WARN") && told.contains("row-level security does not hold"), "{told}");
    let wrong = serve("loud").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("FLOVYN_LOG=loud is no level"), "{said}");
}

#[test]
fn a_person_is_shown_where_it_listens_and_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = flovyn(folder.path(), &["dev", "--grpc-port", "0", "--http-port", "0"]);
    let child = command.env("FLOVYN_HOME", folder.path().join("home")).stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Serving { child, grpc: String::new(), http: String::new() };
    let told = BufReader::new(server.child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told: Vec<_> = told.take_while(|line| !line.starts_with("Ctrl-C")).collect();
    let token = told.iter().find_map(|line| line.trim().strip_prefix("token")).expect("the token is shown").trim();
    let (token, file) = token.split_once("   (").unwrap();
    assert_eq!(std::fs::read_to_string(file.trim_end_matches(')')).unwrap().trim(), token);
    let http = told.iter().find_map(|line| line.split_once("http://")?.1.strip_suffix("/docs")).unwrap();
    let (path, bearer) = ("/api/orgs/default/queues", format!("authorization: Bearer {token}"));
    let status = ask(http, path, &[&format!("host: {http}"), &bearer]).unwrap().0;
    assert_eq!(status, 200, "{told:#?}");
}

#[cfg(unix)]
#[test]
fn who_sees_that_it_is_ready_finds_the_token() {
    // Somebody else may get the port between the look for a free one and the start: then with another.
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
        let (http, grpc) = (free().to_string(), free().port().to_string());
        let (_, http_port) = http.split_once(':').unwrap();
        let began = Instant::now();
        let child = dev(folder, &["--grpc-port", &grpc, "--http-port", http_port]).spawn().unwrap();
        let mut server = Serving { child, grpc: String::new(), http: http.clone() };
        let child = &mut server.child;
        while !ready(&http) && child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it is never ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = began.elapsed();
        // As they are at the first answer, if it was this server's.
        let files = [folder.join(format!("home/dev-{grpc}.token")), folder.join("token")];
        let there = files.each_ref().map(|file| Some((mode(file)?, std::fs::read_to_string(file).ok()?)));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let _ = child.wait();
            continue;
        }
        let there = there.map(|file| file.expect("it is written before anybody is answered"));
        println!("flovyn dev is ready after {after:?}");
        assert_eq!((there[0].0, there[1].0), (0o600, 0o600));
        assert!(there[0].1 == there[1].1 && there[0].1.trim().len() > 32, "{there:?}");
        assert!(folder.join("flovyn.db").exists(), "the default is a file here");

        signal("-TERM", child);
        assert_eq!(end_of(child).code(), Some(0));
        assert!(files.iter().all(|file| !file.exists()), "a token outlives its server");
        return;
    }
    panic!("no port was free five times");
}

#[test]
fn pages_of_others_are_refused() {
    let dev = Dev::start("memory:");
    let http = &dev.serving.http;
    let port = http.split_once(':').unwrap().1;
    assert!(!dev.serving.grpc.ends_with(":0") && port != "0", "{}", dev.told);
    let bearer = format!("authorization: Bearer {}", dev.token());
    let own = format!("host: localhost:{port}");
    let list = |headers: &[&str]| ask(http, "/api/orgs/default/agent-executions", headers).unwrap().0;
    assert_eq!(list(&[&own, &bearer]), 200);
    assert_eq!(list(&[&own, &bearer, &format!("origin: http://localhost:{port}")]), 200);
    assert_eq!(list(&[&own]), 401);
    for foreign in ["http://evil.example", "http://localhost:3000", "null"] {
        assert_eq!(list(&[&own, &bearer, &format!("origin: {foreign}")]), 403, "{foreign}");
    }
    for rebound in ["evil.example", "evil.example:8080", "localhost.evil.example"] {
        for path in ["/api/orgs/default/agent-executions", "/_/ready", "/docs", "/metrics"] {
            let (status, _) = ask(http, path, &[&format!("host: {rebound}"), &bearer]).unwrap();
            assert_eq!(status, 403, "{rebound} {path}");
        }
    }
    let (status, numbers) = ask(http, "/metrics", &[&own, &bearer]).unwrap();
    assert!(status == 200 && numbers.contains("flovyn_http_calls_total"), "{numbers}");
}

#[test]
fn what_the_toolkit_has_is_there_to_pick() {
    let dev = Dev::start("memory:");
    let headers = [format!("host: {}", dev.serving.http), format!("authorization: Bearer {}", dev.token())];
    let list = |of: &str| {
        let (status, answer) =
            ask(&dev.serving.http, &format!("/api/orgs/default/{of}"), &headers.each_ref().map(String::as_str))
                .unwrap();
        assert_eq!(status, 200, "{answer}");
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        body["items"].as_array().unwrap().clone()
    };
    let models = list("models");
    let find = |reference: &str| models.iter().find(|item| item["reference"] == reference).expect(reference);
    for (reference, name) in [
        ("openrouter/z-ai/glm-4.7", "GLM 4.7"),
        ("openrouter/moonshotai/kimi-k2-thinking", "Kimi K2 Thinking"),
        ("openrouter/deepseek/deepseek-v3.2", "DeepSeek 3.2"),
    ] {
        let model = find(reference);
        assert_eq!((&model["name"], &model["provider"]), (&name.into(), &"openrouter".into()));
        assert!(model["isAvailable"].is_boolean() && model["contextWindow"].as_u64() > Some(100_000), "{model:#}");
        assert_eq!(model["tools"], true);
    }
    let haiku = find("anthropic/claude-haiku-4-5");
    assert_eq!((&haiku["thinking"], &haiku["prices"]["output"]), (&"budget".into(), &5_000_000.into()), "{haiku:#}");
    let tools = list("tools");
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(
        names,
        ["bash", "bash-output", "bash-stop", "edit", "fetch", "find", "grep", "read", "run-sandbox", "todo", "write"]
    );
    let read = &tools[7];
    assert_eq!((&read["effect"], &read["source"]), (&"read".into(), &"host".into()));
    assert_eq!(read["inputSchema"]["type"], "object");
}

#[test]
fn a_proxy_of_this_machine_is_named_on_the_command_line() {
    let dev = Dev::start_with("memory:", &["--public-host", "one.example.com", "--public-host", "two.example.com"]);
    let ready = |host: &str| ask(&dev.serving.http, "/_/ready", &[&format!("host: {host}")]).unwrap();
    assert_eq!((ready("one.example.com").0, ready("two.example.com:8443").0, ready("localhost").0), (200, 200, 200));
    let (status, told) = ready("three.example.com");
    assert!(status == 403 && told.contains("--public-host three.example.com"), "{told}");
}

#[test]
fn a_front_end_of_another_origin_is_named_on_the_command_line() {
    let named = Dev::start_with("memory:", &["--cors-origin", "http://localhost:3000"]);
    let ready = |origin: &str| {
        ask(&named.serving.http, "/_/ready", &["host: localhost", &format!("origin: {origin}")]).unwrap()
    };
    assert_eq!((ready("http://localhost:3000").0, ready("http://localhost:3001").0), (200, 403));
    let args = ["--db", "memory:", "--grpc-port", "0", "--http-port", "0", "--cors-origin", "localhost:3000"];
    let wrong = dev(named.folder.path(), &args).output().unwrap();
    let told = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success() && told.contains("is no origin") && told.contains("--cors-origin"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_too_often_for_its_developer() {
    let dev = Dev::start("memory:");
    let remote = dev.connect().await;
    let claim = ClaimRequest {
        org: OrgId::DEFAULT,
        worker: WorkerId::fresh(),
        queue: "default".into(),
        kinds: ["agent".to_owned()].into(),
        limit: 1,
        ttl: Duration::from_secs(30),
        only: None,
    };
    // A key of `flovyn server` may poll a hundred times a second.
    for _ in 0..1_000 {
        remote.claim_agents(claim.clone()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_postgresql_too() {
    let db = Cluster::shared().fresh().unwrap();
    let dev = Dev::start(&db);
    let runtime = Runtime::over(Arc::new(dev.connect().await));
    let run = runtime.client().start("agent", Payload::null(), StartOptions::default()).await.unwrap();
    let there = Runtime::open(&db).await.unwrap();
    assert_eq!(there.client().handle(&run.id().to_string()).await.unwrap().id(), run.id());
    there.close().await.unwrap();
}

/// Opens a stream of events and reads the first one.
fn follow(http: &str, token: &str, run: &str) -> BufReader<TcpStream> {
    let mut connection = TcpStream::connect(http).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = format!("/api/orgs/default/agent-executions/{run}/stream");
    write!(connection, "GET {path} HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer {token}\r\n\r\n").unwrap();
    let mut events = BufReader::new(connection);
    let mut line = String::new();
    while line != "event: agent.started\n" {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the stream has a start");
    }
    events
}

/// Begins an upload that is being served, and has not sent a byte of its body.
fn begin_upload(http: &str, token: &str) -> TcpStream {
    let mut upload = TcpStream::connect(http).unwrap();
    upload.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        upload,
        "PUT /api/orgs/default/payloads HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer {token}\r\n\
         content-length: 10000\r\nexpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    let mut goes_on = [0; 25];
    upload.read_exact(&mut goes_on).unwrap();
    assert!(goes_on.starts_with(b"HTTP/1.1 100"));
    upload
}

#[cfg(unix)]
#[test]
fn a_server_that_is_terminated_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    let run = json(folder, &["runs", "start", "nobody", "--id", "r"])["id"].as_str().unwrap().to_owned();
    let key = json(folder, &["keys", "create", "--name", "ci"]);
    let token = key["token"].as_str().unwrap();
    let config = format!("{ANYWHERE}drain = \"2s\"\n");
    let mut server = serve_by(folder, "flovyn.toml", &config);
    let http = server.http.clone();
    let (mut events, mut upload) = (follow(&http, token, &run), begin_upload(&http, token));
    assert!(ready(&http));

    let told = Instant::now();
    signal("-TERM", &server.child);
    while ready(&http) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(told.elapsed() < PATIENCE, "it says at once that it is not to be called");
    let (own, bearer) = (format!("host: {http}"), format!("authorization: Bearer {token}"));
    let list = || ask(&http, "/api/orgs/default/agent-executions", &[&own, &bearer]).unwrap().0;
    assert_eq!(list(), 200, "whoever is not taken elsewhere yet is answered");
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(told.elapsed() >= Duration::from_secs(2), "it goes on for as long as the file says");
    assert!(rest.ends_with("0\r\n\r\n"), "the stream ends as streams do: {rest}");
    assert_eq!(ask(&http, "/_/ready", &[&own]).unwrap().0, 503);
    assert_eq!(list(), 200);
    assert!(server.child.try_wait().unwrap().is_none(), "a call is in flight");

    upload.write_all(&[7; 10_000]).unwrap();
    let mut stored = String::new();
    upload.read_to_string(&mut stored).unwrap();
    assert!(stored.starts_with("HTTP/1.1 201"), "{stored}");
    assert_eq!(end_of(&mut server.child).code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_server_reads_its_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    json(folder, &["migrate"]);
    let key = json(folder, &["keys", "create", "--name", "ci"]);
    let mut server = serve_by(folder, "flovyn.toml", ANYWHERE);
    let http = server.http.clone();
    let (own, bearer) = (format!("host: {http}"), format!("authorization: Bearer {}", key["token"].as_str().unwrap()));
    // A start that says nothing is refused, after it was counted.
    let start = || {
        let mut connection = TcpStream::connect(&http).unwrap();
        let path = "/api/orgs/default/agent-executions";
        write!(
            connection,
            "POST {path} HTTP/1.1\r\nconnection: close\r\n{own}\r\n{bearer}\r\ncontent-length: 0\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer.get(9..12).map(str::to_owned).unwrap()
    };
    let often = || (0..20).any(|_| start() == "429");
    assert!(!often());
    let again = |text: &str| {
        std::fs::write(folder.join("flovyn.toml"), format!("{ANYWHERE}{text}")).unwrap();
        signal("-HUP", &server.child);
    };
    again("[limits]\ncreate = 1\n");
    let since = Instant::now();
    while !often() {
        assert!(since.elapsed() < PATIENCE, "the file was not read again");
    }
    // One that cannot be gone by changes nothing, and ends nothing.
    again("[limits]\ncreate = \"many\"\n");
    std::thread::sleep(Duration::from_millis(500));
    assert!(often() && ready(&http));

    let told = Instant::now();
    signal("-INT", &server.child);
    assert_eq!(end_of(&mut server.child).code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(20), "whoever ends it by hand does not wait");
}

#[cfg(unix)]
#[test]
fn the_token_is_the_same_after_a_restart() {
    let mut first = Dev::start("memory:");
    let token = first.token();
    signal("-TERM", &first.serving.child);
    assert_eq!(end_of(&mut first.serving.child).code(), Some(0));
    let kept = first.folder.path().join("home/dev.token");
    assert_eq!(mode(&kept), Some(0o600));
    let second = Dev::start_in(first.folder, "memory:", &[]);
    assert_eq!(second.token(), token);
    assert_ne!(Dev::start("memory:").token(), token, "another home has another");

    std::fs::write(&kept, "guessed").unwrap();
    drop(second.serving);
    let third = Dev::start_in(second.folder, "memory:", &[]);
    assert!(third.token() != token && third.token() != "guessed", "what is no token is made anew");
}

/// A token that is another one when it is asked for again.
struct Renewed(AtomicBool, String);

impl Tokens for Renewed {
    fn token(&self) -> Option<String> {
        Some(if self.0.swap(true, Ordering::Relaxed) { self.1.clone() } else { "guessed".into() })
    }

    fn describe(&self) -> String {
        "it was sent the token of the test".into()
    }
}

#[tokio::test]
async fn a_refused_call_is_made_again_with_the_token_that_counts_by_then() {
    let dev = Dev::start("memory:");
    let renewed = Renewed(AtomicBool::default(), dev.token());
    RemoteStorage::connect_by(&dev.serving.grpc, Box::new(renewed)).await.unwrap();
    let twice = Renewed(AtomicBool::default(), "guessed again".into());
    let refused = RemoteStorage::connect_by(&dev.serving.grpc, Box::new(twice)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let told = format!("{}: it was sent the token of the test", dev.serving.grpc);
    assert!(refused.message().contains(&told), "{refused}");
}

#[cfg(unix)]
#[test]
fn a_second_signal_does_not_wait() {
    let mut dev = Dev::start("memory:");
    let http = dev.serving.http.clone();
    let _upload = begin_upload(&http, &dev.token());
    signal("-TERM", &dev.serving.child);
    while ready(&http) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let since = Instant::now();
    signal("-TERM", &dev.serving.child);
    assert_eq!(end_of(&mut dev.serving.child).code(), Some(0));
    // The upload would have held it for 20 s.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    assert!(dev.token_files().iter().all(|file| !file.exists()));
    assert!(dev.folder.path().exists());
}
