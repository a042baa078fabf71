//! Machines: three daemons as processes with homes and workspaces of their own, and one server on PostgreSQL. They are paired,
//! given work, killed, stopped past their lease, cut off and revoked; no run is lost, and nobody works where they may not.
#![cfg(unix)]

mod house;

use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, NativeHost};
use flovyn_core::client::{Handle, StartOptions};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::{Code, Result};
use flovyn_core::journal::ChildOptions;
use flovyn_core::model::{ChildEvent, Persistence, Status};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_core::testing::postgres::Cluster;
use flovyn_core::worker::WorkerOptions;
use flovyn_core::{Payload, host};
use house::{Serving, flovyn, json, serve, signal};
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(90);
/// What stands in a file outside of every workspace, and in a variable of the daemons.
const HIDDEN: &str = "marrow-4711";

/// What the model of every daemon does, by what it is asked.
const SCRIPT: &str = r#"
[[turns]]
when = { turn = 1, lastUserContains = "write" }
toolCalls = [{ name = "write", arguments = { path = "out.txt", content = "otter\n" } }]
[[turns]]
when = { turn = 1, lastUserContains = "append" }
toolCalls = [{ name = "bash", arguments = { command = "echo begun >> log.txt; sleep 3; echo done >> log.txt" } }]
[[turns]]
when = { turn = 1, lastUserContains = "look outside" }
toolCalls = [{ name = "read", arguments = { path = "CANARY" } }, { name = "bash", arguments = { command = "cat CANARY ~/.flovyn/* KEY; cat ../*/*; env" } }, { name = "read", arguments = { path = "../../etc/passwd" } }, { name = "grep", arguments = { pattern = "marrow", path = "CANARY" } }]
[[turns]]
when = { turn = 2, lastUserContains = "look outside" }
text = "{{result}}"
[otherwise]
text = "done"
"#;

/// A run that has another one done on a machine, and tells what came of it.
struct Brain;

#[async_trait]
impl AgentDefinition for Brain {
    type State = ();
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "brain"
    }

    async fn execute(&self, ctx: &dyn AgentContext, asked: Value) -> Result<Value> {
        let machine = asked["machine"].as_str();
        let input = task_of(asked["prompt"].as_str().unwrap_or_default());
        let child = ctx.spawn_agent_with::<Value>("react-agent", &input, ChildOptions::on_machine(machine))?;
        Ok(match child.await {
            Ok(done) => value!({ "done": done }),
            Err(error) => value!({ "code": error.code().as_str(), "message": error.message() }),
        })
    }
}

/// A run that waits for another one on a machine for so long and no longer, and goes on.
struct Patient;

#[async_trait]
impl AgentDefinition for Patient {
    type State = ();
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        "patient"
    }

    async fn execute(&self, ctx: &dyn AgentContext, asked: Value) -> Result<Value> {
        let mut options = ChildOptions::on_machine(asked["machine"].as_str());
        options.limits.start_timeout = Some(Duration::from_secs(5));
        options.persistence = Persistence::parse(asked["persistence"].as_str().unwrap_or_default())?;
        let child = ctx.spawn_agent_with::<Value>("react-agent", &task_of("append"), options)?;
        let told = match ctx.wait_for_child_event(&child, None)?.await? {
            ChildEvent::Failed { error } => value!({ "type": error.error_type, "message": error.message }),
            other => value!(format!("{other:?}")),
        };
        let code = child.await.err().map(|error| error.code().as_str());
        Ok(value!({ "code": code, "type": told["type"], "message": told["message"], "went": "on" }))
    }
}

fn task_of(prompt: &str) -> Value {
    value!({ "userPrompt": prompt, "model": "fake/scripted" })
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A computer: its home, its workspace, and the server as it reaches it.
struct Computer {
    folder: PathBuf,
    server: String,
}

impl Computer {
    fn new(root: &Path, name: &str, server: &str, file: &str) -> Self {
        let folder = root.join(name);
        for part in ["home", "work"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        std::fs::write(folder.join("home/daemon.toml"), file).unwrap();
        Self { folder, server: server.to_owned() }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.folder.join("work").join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = flovyn(&self.folder, args);
        command.env("FLOVYN_HOME", self.folder.join("home")).env_remove("FLOVYN_URL").env_remove("FLOVYN_TOKEN");
        command.env("OF_THE_USER", HIDDEN).env("FAKE_DIR", &self.folder);
        command
    }

    /// Asks to be let in: the process that waits, and the code.
    fn ask(&self, name: &str) -> (Running, String, BufReader<ChildStdout>) {
        let mut command = self.command(&["daemon", "pair", "--json", "--server", &self.server, "--name", name]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).expect("a code");
        (Running(child), told["code"].as_str().unwrap().to_owned(), lines)
    }

    /// Starts its daemon, which serves when this returns.
    fn start(&self, script: &Path) -> Running {
        self.start_in(&["work"], script)
    }

    /// Starts it with these workspaces.
    fn start_in(&self, workspaces: &[&str], script: &Path) -> Running {
        let fake = format!("--fake={}", script.display());
        let mut command = self.command(&["daemon", "--json", &fake]);
        command.args(workspaces.iter().flat_map(|workspace| ["--workspace", workspace]));
        let log = std::fs::File::options().append(true).create(true).open(self.folder.join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"machine\""), "{line}{}", self.log());
        Running(child)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// A network that can be cut: it carries bytes to a server, and nothing while it is cut.
async fn network(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let (cut, listener) = (Arc::new(AtomicBool::new(false)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (address, is_cut) = (listener.local_addr().unwrap(), cut.clone());
    tokio::spawn(async move {
        loop {
            let (mut caller, _) = listener.accept().await.unwrap();
            let is_cut = is_cut.clone();
            tokio::spawn(async move {
                if is_cut.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut server) = TcpStream::connect(to).await else { return };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut caller, &mut server) => {}
                    () = async { while !is_cut.load(Ordering::SeqCst) { tokio::time::sleep(Duration::from_millis(20)).await } } => {}
                }
            });
        }
    });
    (address, cut)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The operator's side of a house.
struct Office {
    folder: PathBuf,
    server: Serving,
    token: String,
}

impl Office {
    fn open(root: &Path, db: &str) -> Self {
        let key = json(root, &["keys", "create", db, "--name", "office", "--scopes", "admin"]);
        let server = serve(root, db, 0);
        Self { folder: root.to_owned(), server, token: key["token"].as_str().unwrap().to_owned() }
    }

    fn run(&self, args: &[&str]) -> Output {
        flovyn(&self.folder, args)
            .env("FLOVYN_URL", &self.server.grpc)
            .env("FLOVYN_TOKEN", &self.token)
            .output()
            .unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    async fn runtime(&self) -> Runtime {
        let options = RemoteOptions { token: Some(self.token.clone()) };
        Runtime::over(Arc::new(RemoteStorage::connect(&self.server.grpc, options).await.unwrap()))
    }

    /// Lets a computer in and waits until it has its key.
    fn pair(&self, computer: &Computer, name: &str) {
        let (mut asking, code, mut lines) = computer.ask(name);
        let approved = self.json(&["machines", "approve", &code, "--owner", "ann"]);
        assert_eq!((&approved["name"], &approved["queue"]), (&value!(name), &value!(format!("machine/{name}"))));
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("\"paired\":true"), "{line}");
        assert!(asking.0.wait().unwrap().success());
    }
}

async fn status_of(handle: &Handle, wanted: Status) {
    until(&format!("the run {} is {wanted}", handle.id()), async || handle.status().await.is_ok_and(|is| is == wanted))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_survive_what_computers_do() {
    let (root, db) = (tempfile::tempdir().unwrap(), Cluster::shared().fresh().expect("a database"));
    let office = Office::open(root.path(), &db);
    let runtime = office.runtime().await;
    let client = runtime.client();
    let canary = root.path().join("canary.txt");
    std::fs::write(&canary, HIDDEN).unwrap();
    let script = root.path().join("script.toml");
    let (canary, script) = (canary.canonicalize().unwrap(), script);
    let (network, cut) = network(office.server.grpc.replace("http://", "").parse().unwrap()).await;
    let (direct, through) = (office.server.grpc.clone(), format!("http://{network}"));
    let file = "approve = \"all\"\nenv = [\"FOR_COMMANDS\"]\n";
    let external = format!(
        "{file}[[external]]\ndriver = \"acp\"\nenv = [\"FAKE_DIR\"]\ncommand = [\"python3\", \"{}\", \"acp\"]\n",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../toolkit/tests/external/fake_agent.py")
    );
    let alpha = Computer::new(root.path(), "alpha", &direct, &external);
    let beta = Computer::new(root.path(), "beta", &direct, file);
    let gamma = Computer::new(root.path(), "gamma", &through, file);
    let key = alpha.folder.join("home/daemon.key");
    let told = SCRIPT.replace("CANARY", &canary.display().to_string()).replace("KEY", &key.display().to_string());
    std::fs::write(&script, told).unwrap();

    // Nobody works before they are let in, and codes are of no use twice or when they are wrong.
    let unpaired = alpha.command(&["daemon", "--workspace", "work"]).output().unwrap();
    assert!(!unpaired.status.success() && text(&unpaired).contains("flovyn daemon pair"), "{}", text(&unpaired));
    let worker = runtime
        .worker(
            Arc::new(NativeHost::default().agent(Brain).unwrap()) as Arc<dyn flovyn_core::worker::Host>,
            WorkerOptions::default(),
        )
        .await
        .unwrap();
    let ask = async |machine: Option<&str>, prompt: &str| -> Value {
        let input = Payload::of(&value!({ "machine": machine, "prompt": prompt })).unwrap();
        let handle = client.start("brain", input, StartOptions::default()).await.unwrap();
        handle.result(Some(PATIENCE)).await.unwrap().parse().unwrap()
    };
    let refused = ask(Some("alpha"), "write").await;
    assert!(refused["message"].as_str().unwrap().contains("there is none"), "{refused}");
    let wrong = office.run(&["machines", "approve", "BBBB-BBBB"]);
    assert!(text(&wrong).contains("no machine waits with this code"), "{}", text(&wrong));
    office.pair(&alpha, "alpha");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&key).unwrap()) & 0o777, 0o600);

    // One machine needs no name. What it does stays in its workspace, whatever it is asked for.
    let mut first = alpha.start(&script);
    assert!(ask(None, "write").await["done"].is_object());
    assert_eq!(std::fs::read_to_string(alpha.work("out.txt")).unwrap(), "otter\n");
    let looked = ask(Some("alpha"), "look outside").await;
    assert!(looked["done"].is_object() && !looked.to_string().contains(HIDDEN), "{looked}");
    let token: Value = serde_json::from_str(&std::fs::read_to_string(&key).unwrap()).unwrap();
    let recorded = recorded(&office);
    assert!(!recorded.contains(HIDDEN), "what is outside was read");
    assert!(!recorded.contains(token["token"].as_str().unwrap()), "the machine's key was read");
    assert!(recorded.matches("leads outside the working directory").count() >= 3, "a tool was not refused");
    let outside = value!({ "userPrompt": "write", "model": "fake/scripted", "workingDirectory": root.path() });
    let options = StartOptions::on_machine(Some("alpha"));
    let outside = client.start("react-agent", Payload::of(&outside).unwrap(), options).await.unwrap();
    let failed = outside.result(Some(PATIENCE)).await;
    assert!(!root.path().join("out.txt").exists(), "{failed:?}");

    // An agent of others works there as well, where the file names it.
    let asked = Payload::of("say Hello; tool read; say Done").unwrap();
    let other = client.start("external-acp", asked, StartOptions::on_machine(Some("alpha"))).await.unwrap();
    let done: Value =
        other.result(Some(PATIENCE)).await.unwrap_or_else(|e| panic!("{e}\n{}", alpha.log())).parse().unwrap();
    assert_eq!(done["text"], "Done", "{done}");
    let listed = office.json(&["machines", "list"]);
    let offered = &listed["items"][0]["offers"];
    assert_eq!(offered["externalAgents"][0]["kind"], "external-acp", "{listed}");
    assert_eq!(offered["kinds"], value!(["react-agent", "external-acp"]), "{listed}");

    // A name is of one machine; another computer takes another name.
    let (asking, code, _) = beta.ask("alpha");
    let clash = office.run(&["machines", "approve", &code]);
    assert!(text(&clash).contains("\"alpha\" is taken by a machine of ann"), "{}", text(&clash));
    drop(asking);
    office.pair(&beta, "beta");
    office.pair(&gamma, "gamma");
    let (second, third) = (beta.start(&script), gamma.start(&script));
    let unnamed = ask(None, "write").await;
    let told = unnamed["message"].as_str().unwrap();
    assert!(["alpha (last seen", "beta (last", "gamma (last"].iter().all(|name| told.contains(name)), "{told}");
    let unknown = ask(Some("delta"), "write").await;
    assert_eq!(unknown["code"], Code::NotFound.as_str(), "{unknown}");
    let error =
        client.start("react-agent", Payload::null(), StartOptions::on_machine(Some("delta"))).await.err().unwrap();
    assert!(error.code() == Code::NotFound && error.message().contains("alpha"), "{error}");

    // In the middle of their work one is killed, one falls asleep past its lease, and one is cut off.
    let start = async |machine: &str| {
        let input = Payload::of(&task_of("append")).unwrap();
        client.start("react-agent", input, StartOptions::on_machine(Some(machine))).await.unwrap()
    };
    let runs = [start("alpha").await, start("beta").await, start("gamma").await];
    let computers = [&alpha, &beta, &gamma];
    for computer in computers {
        until("the work has begun", async || computer.work("log.txt").exists()).await;
    }
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    signal("-STOP", &second.0);
    cut.store(true, Ordering::SeqCst);
    for run in &runs {
        status_of(run, Status::Pending).await;
    }
    let shown = host::shown::described(&runs[1], flovyn_core::view::Style::Json).await.unwrap();
    assert_eq!((&shown["machine"]["name"], &shown["machine"]["live"]), (&value!("beta"), &value!(true)), "{shown}");
    assert!(shown["machine"]["seenAt"].is_string(), "{shown}");
    let shown = office.run(&["runs", "show", &runs[1].id().to_string()]);
    assert!(text(&shown).contains("It waits for the machine beta, which was last seen"), "{}", text(&shown));
    first = alpha.start(&script);
    signal("-CONT", &second.0);
    cut.store(false, Ordering::SeqCst);
    for (run, computer) in runs.iter().zip(computers) {
        run.result(Some(PATIENCE)).await.unwrap_or_else(|error| panic!("{error}\n{}", computer.log()));
        // Nothing was begun twice. What died with its machine is told to the model as cut off; what lived on has ended.
        let log = std::fs::read_to_string(computer.work("log.txt")).unwrap();
        assert!(log == "begun\n" || log == "begun\ndone\n", "{log}");
        assert!(computer.folder == alpha.folder || log.ends_with("done\n"), "{log}");
    }

    // A machine that is revoked ends, and what it was doing waits for it in vain.
    std::fs::remove_file(gamma.work("log.txt")).unwrap();
    let waits = start("gamma").await;
    until("the work has begun", async || gamma.work("log.txt").exists()).await;
    let mut third = third;
    let revoked = office.json(&["machines", "revoke", "gamma"]);
    assert!(revoked["revokedAt"].is_string(), "{revoked}");
    status_of(&waits, Status::Pending).await;
    let ended = tokio::task::spawn_blocking(move || third.0.wait()).await.unwrap().unwrap();
    assert!(ended.code() == Some(1), "{ended:?} {}", gamma.log());
    assert!(gamma.log().contains("in any more: it was revoked"), "{}", gamma.log());
    assert_eq!(waits.status().await.unwrap(), Status::Pending);
    let refused = ask(Some("gamma"), "write").await;
    assert!(refused["message"].as_str().unwrap().contains("was revoked"), "{refused}");
    let names = |value: Value| -> Vec<String> {
        value["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(office.json(&["machines", "list"])), ["alpha", "beta"]);
    assert_eq!(names(office.json(&["machines", "list", "--all"])), ["alpha", "beta", "gamma"]);

    // Ctrl-C gives back what a daemon has, and ends it well.
    signal("-INT", &first.0);
    assert!(first.0.wait().unwrap().success(), "{}", alpha.log());
    drop(second);
    worker.close(Duration::from_secs(5)).await.unwrap();
    runtime.close().await.unwrap();
}

/// What a local run says and does is in a file of its machine: it goes on from there after a kill, its server never gets it, and
/// without the file it cannot go on.
#[tokio::test(flavor = "multi_thread")]
async fn family_13_a_local_run_stays_on_its_machine() {
    let root = tempfile::tempdir().unwrap();
    let office = Office::open(root.path(), &Cluster::shared().fresh().expect("a database"));
    let runtime = office.runtime().await;
    let script = root.path().join("script.toml");
    std::fs::write(&script, SCRIPT).unwrap();
    let alpha = Computer::new(root.path(), "alpha", &office.server.grpc, "approve = \"all\"\n");
    office.pair(&alpha, "alpha");
    let mut daemon = alpha.start(&script);
    let start = async |machine: Option<&str>| {
        let mut options = machine.map_or_else(StartOptions::default, |name| StartOptions::on_machine(Some(name)));
        options.persistence = Some(Persistence::Local);
        let input = Payload::of(&task_of(&format!("append, and tell nobody of {HIDDEN}"))).unwrap();
        runtime.client().start("react-agent", input, options).await
    };
    let nowhere = start(None).await.err().unwrap();
    assert!(nowhere.code() == Code::InvalidArgument && nowhere.message().contains("mode=Local"), "{nowhere}");

    let run = start(Some("alpha")).await.unwrap();
    until("the work has begun", async || alpha.work("log.txt").exists()).await;
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    status_of(&run, Status::Pending).await;
    daemon = alpha.start(&script);
    run.result(Some(PATIENCE)).await.unwrap_or_else(|error| panic!("{error}\n{}", alpha.log()));
    assert_eq!(std::fs::read_to_string(alpha.work("log.txt")).unwrap(), "begun\n", "nothing was begun twice");
    let id = run.id().to_string();
    let (entries, shown) = (office.json(&["runs", "entries", &id]), office.json(&["runs", "show", &id]));
    assert_eq!(shown["persistence"], "local", "{shown}");
    for kept in [&entries, &shown["tasks"], &shown["checkpoints"], &shown["events"]] {
        let kept = kept.to_string();
        assert!(!kept.contains(HIDDEN) && !kept.contains("begun"), "{kept}");
    }
    assert!(entries.to_string().contains("$local"), "{entries}");

    let file = std::fs::metadata(alpha.folder.join("home/local.db")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&file) & 0o777, 0o600, "for its user alone");

    // Another file is another machine.
    std::fs::remove_file(alpha.work("log.txt")).unwrap();
    let lost = start(Some("alpha")).await.unwrap();
    until("the work has begun", async || alpha.work("log.txt").exists()).await;
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    for file in ["local.db", "local.db-wal", "local.db-shm"] {
        let _ = std::fs::remove_file(alpha.folder.join("home").join(file));
    }
    let daemon = alpha.start(&script);
    status_of(&lost, Status::Failed).await;
    let failure = lost.describe().await.unwrap().failure.unwrap();
    assert_eq!(&*failure.error_type, "WorkerLost", "{failure:?}");
    drop(daemon);
    runtime.close().await.unwrap();
}

/// What one daemon offers, and that a run of it stays in the workspace that it names.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_has_several_workspaces_and_tells_what_it_offers() {
    let root = tempfile::tempdir().unwrap();
    let office = Office::open(root.path(), &Cluster::shared().fresh().expect("a database"));
    let runtime = office.runtime().await;
    let root = root.path().canonicalize().unwrap();
    let program = root.join("otter-agent");
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/../toolkit/tests/external/fake_agent.py");
    let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo 'otter 4.2' && exit\nexec python3 '{fake}' acp\n");
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let file = format!(
        "approve = \"all\"\n[[external]]\ndriver = \"acp\"\nkind = \"otter\"\nenv = [\"FAKE_DIR\"]\ncommand = [\"{}\"]\n",
        program.display()
    );
    let alpha = Computer::new(&root, "alpha", &office.server.grpc, &file);
    let docs = alpha.folder.join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("secret.txt"), HIDDEN).unwrap();
    let script = root.join("script.toml");
    let peek = "[[turns]]\nwhen = { turn = 1, lastUserContains = \"peek\" }\ntoolCalls = [{ name = \"read\", arguments = { path = \
        \"DOCS/secret.txt\" } }, { name = \"bash\", arguments = { command = \"cat DOCS/secret.txt ../docs/secret.txt\" } }]\n";
    let peek = peek.replace("DOCS", &docs.display().to_string());
    std::fs::write(&script, SCRIPT.replace("[otherwise]", &format!("{peek}[otherwise]"))).unwrap();
    office.pair(&alpha, "alpha");
    let daemon = alpha.start_in(&["work", "docs"], &script);

    let listed = office.json(&["machines", "list"]);
    let offered = &listed["items"][0]["offers"];
    assert_eq!(offered["workspaces"], value!([alpha.folder.join("work"), docs]), "{listed}");
    assert_eq!(offered["kinds"], value!(["react-agent", "otter"]), "{listed}");
    let external = value!([{ "kind": "otter", "program": program, "version": "otter 4.2" }]);
    assert_eq!(offered["externalAgents"], external, "{listed}");
    assert!(offered["version"].is_string(), "{listed}");

    let run = async |kind: &str, input: Value| {
        let input = Payload::of(&input).unwrap();
        let run = runtime.client().start(kind, input, StartOptions::on_machine(Some("alpha"))).await.unwrap();
        run.result(Some(PATIENCE)).await
    };
    let in_folder = |prompt: &str, folder: &Path| {
        let mut input = task_of(prompt);
        input["workingDirectory"] = value!(folder);
        input
    };
    // The first where a run names none, else the one that it names.
    run("react-agent", task_of("write")).await.unwrap_or_else(|error| panic!("{error}\n{}", alpha.log()));
    assert!(alpha.work("out.txt").exists() && !docs.join("out.txt").exists());
    std::fs::remove_file(alpha.work("out.txt")).unwrap();
    run("react-agent", in_folder("write", &docs)).await.unwrap();
    assert!(docs.join("out.txt").exists() && !alpha.work("out.txt").exists());
    let home = alpha.folder.join("home");
    let outside = run("react-agent", in_folder("write", &home)).await;
    assert!(!home.join("out.txt").exists(), "{outside:?}");
    assert!(recorded(&office).contains("outside"), "nothing was refused: {outside:?}");
    // Being a workspace of the machine makes a folder none of the run.
    run("react-agent", task_of("peek")).await.unwrap();
    assert!(!recorded(&office).contains(HIDDEN), "another workspace was read");
    run("react-agent", in_folder("peek", &docs)).await.unwrap();
    assert!(recorded(&office).contains(HIDDEN), "its own workspace was not read");
    let done: Value = run("otter", value!("say Hello")).await.unwrap().parse().unwrap();
    assert_eq!(done["text"], "Hello");
    drop(daemon);
    runtime.close().await.unwrap();
}

/// A run waits for a machine that is off as long as it may, then its parent is told and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_off_is_waited_for_as_long_as_is_allowed() {
    let root = tempfile::tempdir().unwrap();
    let office = Office::open(root.path(), &Cluster::shared().fresh().expect("a database"));
    let runtime = office.runtime().await;
    let script = root.path().join("script.toml");
    std::fs::write(&script, SCRIPT).unwrap();
    let alpha = Computer::new(root.path(), "alpha", &office.server.grpc, "approve = \"all\"\n");
    office.pair(&alpha, "alpha");
    let host = Arc::new(NativeHost::default().agent(Patient).unwrap()) as Arc<dyn flovyn_core::worker::Host>;
    let worker = runtime.worker(host, WorkerOptions::default()).await.unwrap();
    let start = async |persistence: &str| {
        let input = Payload::of(&value!({ "machine": "alpha", "persistence": persistence })).unwrap();
        runtime.client().start("patient", input, StartOptions::default()).await.unwrap()
    };
    let child_of = async |run: &Handle| -> Value {
        let id = run.id().to_string();
        office.json(&["runs", "list", "--parent", &id])["items"][0].clone()
    };
    let told = async |run: &Handle| -> Value { run.result(Some(PATIENCE)).await.unwrap().parse().unwrap() };

    // It has been let in and never begun to work.
    for persistence in ["full", "local"] {
        let run = start(persistence).await;
        until("the child waits for its machine", async || child_of(&run).await["status"] == "PENDING").await;
        let child = child_of(&run).await["id"].as_str().unwrap().to_owned();
        let shown = office.json(&["runs", "show", &child]);
        assert!(shown["machine"]["name"] == "alpha" && shown["persistence"] == persistence, "{shown}");
        let answer = told(&run).await;
        assert!(
            answer["code"] == "ChildFailed" && answer["type"] == "StartTimeout" && answer["went"] == "on",
            "{answer}"
        );
    }

    // In the middle of its work it goes, and does not come back.
    let mut daemon = alpha.start(&script);
    let run = start("local").await;
    until("the work has begun", async || alpha.work("log.txt").exists()).await;
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    let answer = told(&run).await;
    assert_eq!((&answer["code"], &answer["type"]), (&value!("ChildFailed"), &value!("WorkerLost")), "{answer}");
    assert_eq!(std::fs::read_to_string(alpha.work("log.txt")).unwrap(), "begun\n");
    // It comes too late, and its next run is served.
    let _daemon = alpha.start(&script);
    let input = Payload::of(&task_of("write")).unwrap();
    let next = runtime.client().start("react-agent", input, StartOptions::on_machine(Some("alpha"))).await.unwrap();
    next.result(Some(PATIENCE)).await.unwrap_or_else(|error| panic!("{error}\n{}", alpha.log()));
    worker.close(Duration::from_secs(5)).await.unwrap();
    runtime.close().await.unwrap();
}

/// All that runs of the built-in agent have recorded.
fn recorded(office: &Office) -> String {
    let listed = office.json(&["runs", "list", "--kind", "react-agent"]);
    let runs = listed["items"].as_array().unwrap();
    let shown = runs.iter().map(|run| office.json(&["runs", "entries", run["id"].as_str().unwrap()]).to_string());
    shown.collect()
}
