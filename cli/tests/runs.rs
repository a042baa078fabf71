//! The `flovyn` binary over a real database: what it prints, what it changes, how it fails.

use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::model::{
    ExecutionFilter, PageRequest, Persistence, SideEffects, Status, TaskOptions, TaskStatus, Usage,
};
use flovyn_core::runtime::FlovynClient;
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output};
use std::time::Duration;

struct Double;

#[async_trait]
impl TaskDefinition for Double {
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "double"
    }
    async fn execute(&self, _: &TaskContext, input: u64) -> Result<u64> {
        Ok(input * 2)
    }
}

/// Without state: doubles its input, says so, waits for `more`.
struct Walker;

#[async_trait]
impl AgentDefinition for Walker {
    type State = ();
    type Input = u64;
    type Output = u64;
    fn kind(&self) -> &str {
        "walker"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, input: u64) -> Result<u64> {
        ctx.append_entry("user", &format!("double {input}"))?;
        let doubled = ctx.schedule_task(&Double, &input)?.await?;
        ctx.record_usage("tiny", Usage { calls: 1, input_tokens: 30, output_tokens: 2, ..Usage::default() })?;
        ctx.append_entry("assistant", &serde_json::json!({ "text": format!("it is {doubled}") }))?;
        let more: u64 = ctx.wait_for_signal("more")?.await?;
        Ok(doubled + more)
    }
}

/// Must not run twice: its first attempt is lost with its process.
struct Send(bool);

#[async_trait]
impl TaskDefinition for Send {
    type Input = String;
    type Output = String;
    fn kind(&self) -> &str {
        "send"
    }
    fn options(&self) -> TaskOptions {
        TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() }
    }
    async fn execute(&self, _: &TaskContext, text: String) -> Result<String> {
        if self.0 {
            std::future::pending::<()>().await;
        }
        Ok(text)
    }
}

struct Mailer;

#[async_trait]
impl AgentDefinition for Mailer {
    type State = ();
    type Input = ();
    type Output = String;
    fn kind(&self) -> &str {
        "mailer"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<String> {
        ctx.schedule("send", "hello")?.await
    }
}

/// Starts two walkers and waits for both.
struct Lead;

#[async_trait]
impl AgentDefinition for Lead {
    type State = ();
    type Input = ();
    type Output = u64;
    fn kind(&self) -> &str {
        "lead"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<u64> {
        let walkers = [ctx.spawn_agent::<u64>("walker", &1)?, ctx.spawn_agent::<u64>("walker", &2)?];
        let mut sum = 0;
        for walker in walkers {
            sum += walker.await?;
        }
        Ok(sum)
    }
}

/// Starts a lead, below which two walkers work.
struct Head;

#[async_trait]
impl AgentDefinition for Head {
    type State = ();
    type Input = ();
    type Output = u64;
    fn kind(&self) -> &str {
        "head"
    }
    fn version(&self) -> Option<String> {
        Some("1".into())
    }
    async fn execute(&self, ctx: &dyn AgentContext, (): ()) -> Result<u64> {
        ctx.spawn_agent::<u64>("lead", &())?.await
    }
}

struct World {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl World {
    /// A database with one run that waits for `more`.
    fn new() -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        };
        world.serve(Some("walk-1"), Status::Waiting);
        world
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("agents.db").display())
    }

    /// Runs a worker until the run has this status.
    fn serve(&self, id: Option<&str>, until: Status) {
        self.runtime.block_on(async {
            let flovyn = FlovynClient::builder().url(&self.url()).agent(Walker).task(Double).build().await.unwrap();
            flovyn.worker().await.unwrap();
            let options = StartOptions { id: id.map(str::to_owned), ..StartOptions::default() };
            let handle = flovyn.start(&Walker, &21, options).await.unwrap();
            let reached = async {
                while handle.status().await.unwrap() != until {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
            flovyn.close().await.unwrap();
        });
    }

    /// Runs the mailer until its run, or the task, is as wanted.
    fn mail(&self, hangs: bool, reached: impl Fn(Status, Option<TaskStatus>) -> bool) {
        self.runtime.block_on(async {
            let client = FlovynClient::builder().url(&self.url()).agent(Mailer).task(Send(hangs));
            let flovyn = client.build().await.unwrap();
            flovyn.worker().await.unwrap();
            let handle = flovyn.start(&Mailer, &(), StartOptions::with_id("mail-1")).await.unwrap();
            let waiting = async {
                loop {
                    let tasks = handle.tasks(PageRequest::default()).await.unwrap().items;
                    if reached(handle.status().await.unwrap(), tasks.first().map(|task| task.status)) {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
            flovyn.close().await.unwrap();
        });
    }

    /// Runs a lead, or what starts one, until the walkers below it wait.
    fn family(&self, first: &impl AgentDefinition<Input = ()>, id: &str) {
        self.runtime.block_on(async {
            let client = FlovynClient::builder().url(&self.url()).agent(Head).agent(Lead).agent(Walker).task(Double);
            let flovyn = client.build().await.unwrap();
            flovyn.worker().await.unwrap();
            let handle = flovyn.start(first, &(), StartOptions::with_id(id)).await.unwrap();
            let waiting = ExecutionFilter {
                root: Some(handle.id()),
                kind: Some("walker".into()),
                statuses: vec![Status::Waiting],
                ..ExecutionFilter::default()
            };
            let reached = async {
                while flovyn.client().runs(waiting.clone(), PageRequest::default()).await.unwrap().items.len() < 2 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
            flovyn.close().await.unwrap();
        });
    }

    fn flovyn(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_flovyn"))
            .args(args)
            .env("FLOVYN_URL", self.url())
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.flovyn(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[args, &["--json"]].concat())).unwrap()
    }

    fn refused(&self, args: &[&str]) -> (i32, String) {
        let output = self.flovyn(args);
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn runs_are_listed_and_filtered() {
    let world = World::new();
    let text = world.text(&["runs", "list"]);
    assert!(text.contains("walk-1") && text.contains("WAITING") && text.contains("signal more"), "{text}");
    assert!(!text.contains('\u{1b}'), "a pipe gets no colours: {text:?}");
    assert!(world.text(&["runs", "list", "--color", "always"]).contains('\u{1b}'));
    let listed = world.json(&["runs", "list", "--status", "waiting", "--kind", "walker"]);
    assert_eq!(listed["items"][0]["key"], "walk-1");
    assert_eq!(listed["items"][0]["waitsFor"][0], "more");
    assert_eq!(listed["nextCursor"], Value::Null);
    assert_eq!(world.json(&["runs", "list", "--status", "FAILED"])["items"], serde_json::json!([]));
    world.json(&["runs", "start", "other", "1", "--id", "second"]);
    let first = world.json(&["runs", "list", "--limit", "1"]);
    assert_eq!(first["items"][0]["key"], "second");
    let next = world.json(&["runs", "list", "--limit", "1", "--cursor", first["nextCursor"].as_str().unwrap()]);
    assert_eq!(next["items"][0]["key"], "walk-1");
}

#[test]
fn a_run_is_shown_with_what_it_waits_for() {
    let world = World::new();
    let text = world.text(&["runs", "show", &world.url(), "walk-1"]);
    for part in ["walker", "WAITING", "signal more", "runs signal", "double", "COMPLETED", "tiny", "Last events"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let shown = world.json(&["runs", "show", "walk-1", "--events", "3"]);
    assert_eq!(shown["status"], "WAITING");
    assert_eq!(shown["waitReason"], "signal");
    assert_eq!(shown["input"], 21);
    assert_eq!(shown["usage"]["tiny"]["inputTokens"], 30);
    assert_eq!(shown["tasks"][0]["kind"], "double");
    assert_eq!(shown["events"].as_array().unwrap().len(), 3);
    let by_id = world.json(&["runs", "show", shown["id"].as_str().unwrap()]);
    assert_eq!(by_id["key"], "walk-1");
    assert_eq!(by_id["noWorker"], serde_json::json!([]));
}

#[test]
fn a_family_is_drawn_with_what_each_and_all_have_used() {
    let world = World::new();
    world.family(&Lead, "lead-1");
    let text = world.text(&["runs", "show", "lead-1", "--tree"]);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert!(lines[0].starts_with("lead-1") && lines[0].contains("child"), "{text}");
    assert!(lines[1].starts_with("├─ ") && lines[2].starts_with("└─ "), "{text}");
    assert!(lines[1..].iter().all(|line| line.contains("walker") && line.contains("signal more")), "{text}");
    let tree = world.json(&["runs", "show", "lead-1", "--tree"]);
    assert_eq!(tree["usage"], serde_json::json!({}));
    assert_eq!((&tree["totalUsage"]["inputTokens"], &tree["totalUsage"]["calls"]), (&60.into(), &2.into()));
    let walker = &tree["children"][1];
    assert_eq!((&walker["parent"], &walker["children"]), (&tree["id"], &serde_json::json!([])));
    assert_eq!((&tree["leftOff"], &tree["descendantCount"], &walker["depth"]), (&0.into(), &2.into(), &1.into()));
    let shown = world.json(&["runs", "show", "lead-1"]);
    assert_eq!((&shown["totalUsage"], &shown["childCount"]), (&tree["totalUsage"], &2.into()));
    let text = world.text(&["runs", "show", "lead-1"]);
    assert!(text.contains("Usage with the runs below (2)"), "{text}");
    let roots = world.json(&["runs", "list", "--roots"]);
    assert!(roots["items"].as_array().unwrap().iter().all(|run| run["parent"].is_null() && run["id"] != walker["id"]));
    assert!(roots["items"].as_array().unwrap().iter().any(|run| run["id"] == tree["id"]));
    let found =
        world.json(&["runs", "list", "--search", &format!("{} default", tree["id"].as_str().unwrap().to_uppercase())]);
    let found: Vec<_> = found["items"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!(found, [&tree["id"]]);
    let below = world.json(&["runs", "show", walker["id"].as_str().unwrap(), "--tree"]);
    assert_eq!((&below["id"], &below["totalUsage"]["inputTokens"]), (&walker["id"], &30.into()));
}

#[test]
fn a_family_is_listed_by_parent_and_by_root() {
    let world = World::new();
    world.family(&Head, "head-1");
    world.family(&Lead, "lead-1");
    let listed = |args: &[&str]| -> Vec<(String, String)> {
        let listed = world.json(&[&["runs", "list"], args].concat());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut runs: Vec<_> =
            listed["items"].as_array().unwrap().iter().map(|run| (text(&run["kind"]), text(&run["id"]))).collect();
        runs.sort();
        runs
    };
    let kinds = |runs: &[(String, String)]| runs.iter().map(|(kind, _)| kind.clone()).collect::<Vec<_>>();
    let head = world.json(&["runs", "show", "head-1"])["id"].as_str().unwrap().to_owned();
    let below_head = listed(&["--parent", "head-1"]);
    assert_eq!(kinds(&below_head), ["lead"], "not its grandchildren, and not the other family");
    assert_eq!(listed(&["--parent", &head]), below_head, "by its id too");
    let lead = below_head[0].1.as_str();
    let walkers = listed(&["--parent", lead]);
    assert_eq!(kinds(&walkers), ["walker", "walker"]);
    assert!(listed(&["--parent", &walkers[0].1]).is_empty());

    let family = listed(&["--root", "head-1"]);
    assert_eq!(kinds(&family), ["lead", "walker", "walker"], "all below it, without itself");
    assert_eq!((family[0].1.as_str(), &family[1..]), (lead, &walkers[..]));
    assert_eq!(listed(&["--root", &head]), family);
    let others = listed(&["--root", "lead-1"]);
    assert_eq!(others, listed(&["--parent", "lead-1"]));
    assert!(others.len() == 2 && others.iter().all(|run| !family.contains(run)), "{others:?}");
    // Both together, and what belongs to no family.
    assert_eq!(listed(&["--root", "head-1", "--kind", "walker", "--status", "WAITING"]), walkers);
    assert_eq!(listed(&["--root", "head-1", "--parent", lead]), walkers);
    for alone in [["--parent", "walk-1"], ["--root", "walk-1"], ["--root", "nobody"]] {
        assert!(listed(&alone).is_empty(), "{alone:?}");
    }
    let text = world.text(&["runs", "list", "--parent", "head-1"]);
    assert!(text.contains(lead) && !text.contains("head-1") && !text.contains("walker"), "{text}");
}

#[test]
fn a_kind_that_nobody_serves_is_named() {
    let world = World::new();
    world.json(&["runs", "start", "other", "1", "--id", "second"]);
    let shown = world.json(&["runs", "show", "second"]);
    assert_eq!(shown["noWorker"], serde_json::json!([{"kind": "other", "queue": "default"}]));
    let text = world.text(&["runs", "show", "second"]);
    assert!(text.contains("No live worker serves \"other\""), "{text}");
}

#[test]
fn a_signal_goes_to_the_run_once_per_key() {
    let world = World::new();
    let first = world.json(&["runs", "signal", "walk-1", "more", "8", "--key", "k"]);
    assert_eq!(first["agentResumed"], true);
    let again = world.json(&["runs", "signal", "walk-1", "more", "8", "--key", "k"]);
    assert_eq!((&again["repeated"], &again["signalId"]), (&Value::Bool(true), &first["signalId"]));
    world.serve(Some("walk-1"), Status::Completed);
    assert_eq!(world.json(&["runs", "show", "walk-1"])["output"], 50);
    let events: Vec<Value> = world
        .text(&["runs", "watch", "walk-1", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.first().unwrap()["type"], "created");
    assert_eq!(events.last().unwrap()["type"], "completed");
    let after = events[events.len() - 2]["id"].as_str().unwrap();
    assert_eq!(world.text(&["runs", "watch", "walk-1", "--after", after]).lines().count(), 1);
    let (code, message) = world.refused(&["runs", "signal", "walk-1", "more", "9"]);
    assert_eq!(code, 1);
    assert!(message.starts_with("error[ExecutionClosed]"), "{message}");
}

#[test]
fn the_conversation_is_printed_and_forked() {
    let world = World::new();
    let text = world.text(&["runs", "entries", "walk-1"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].ends_with("user: double 21") && lines[1].ends_with("assistant: it is 42"), "{text}");
    let entries = world.json(&["runs", "entries", "walk-1"]);
    assert_eq!(entries["items"][1]["parentId"], entries["items"][0]["id"]);
    let entry = entries["items"][0]["id"].as_str().unwrap();
    let fork = world.json(&["runs", "fork", "walk-1", "--entry", entry, "--id", "walk-2"]);
    assert_eq!(fork["key"], "walk-2");
    assert_eq!(fork["forkedFrom"]["sequence"], 0);
    assert_eq!(world.json(&["runs", "entries", "walk-2"])["items"].as_array().unwrap().len(), 1);
    let tree = world.text(&["runs", "entries", "walk-1", "--tree"]);
    assert!(tree.lines().all(|line| line.starts_with("* ")), "{tree}");
    let (code, message) = world.refused(&["runs", "fork", "walk-1", "--op", "x"]);
    assert!(code == 2 && message.contains("SEGMENT-SEQUENCE"), "{message}");
}

#[test]
fn a_run_is_cancelled() {
    let world = World::new();
    assert_eq!(world.json(&["runs", "cancel", "walk-1", "--hard"])["status"], "CANCELLED");
    let text = world.text(&["runs", "cancel", "walk-1", "--grace", "5s"]);
    assert!(text.contains("CANCELLED"), "what has ended stays as it is: {text}");
    let (code, message) = world.refused(&["runs", "resume", "walk-1"]);
    assert!(code == 1 && message.contains("InvalidTransition"), "{message}");
}

#[test]
fn a_run_that_has_ended_is_removed() {
    let world = World::new();
    let (code, message) = world.refused(&["runs", "delete", "walk-1", "--yes"]);
    assert!(code == 1 && message.contains("InvalidTransition"), "{message}");
    world.json(&["runs", "cancel", "walk-1", "--hard"]);
    let (code, message) = world.refused(&["runs", "delete", "walk-1"]);
    assert!(code == 2 && message.contains("--yes"), "{message}");
    assert!(world.text(&["runs", "delete", "walk-1", "--yes"]).contains("walk-1 is gone"));
    let (code, message) = world.refused(&["runs", "show", "walk-1"]);
    assert!(code == 1 && message.contains("ExecutionNotFound"), "{message}");
}

#[test]
fn a_task_in_doubt_is_answered_for() {
    let world = World::new();
    world.mail(true, |_, task| task == Some(TaskStatus::Running));
    world.mail(false, |status, _| status == Status::Waiting);
    let text = world.text(&["runs", "show", "mail-1"]);
    assert!(text.contains("in_doubt") && text.contains("flovyn runs resolve"), "{text}");
    let op = world.json(&["runs", "show", "mail-1"])["tasks"][0]["opId"].as_str().unwrap().to_owned();
    assert_eq!(world.json(&["runs", "resolve", &op, "--result", "\"it went out\""])["status"], "COMPLETED");
    world.mail(false, |status, _| status == Status::Completed);
    assert_eq!(world.json(&["runs", "show", "mail-1"])["output"], "it went out");
}

#[cfg(unix)]
#[test]
fn an_interrupted_watch_ends_with_130() {
    let world = World::new();
    let mut watch = Command::new(env!("CARGO_BIN_EXE_flovyn"))
        .args(["runs", "watch", &world.url(), "walk-1"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("created walker"));
    Command::new("kill").args(["-INT", &watch.id().to_string()]).status().unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(130));
}

#[test]
fn nothing_is_created_by_looking() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.db");
    for args in [vec!["list"], vec!["show", "x"], vec!["signal", "x", "y"], vec!["start", "kind"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_flovyn"))
            .args([&["runs"], &args[..1], &[&*format!("sqlite:{}", missing.display())], &args[1..]].concat())
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("there is no database") && message.contains("nothing was created"), "{message}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn wrong_usage_is_told_from_errors() {
    let world = World::new();
    for args in [
        &["runs", "show"][..],
        &["runs", "show", "a", "b"],
        &["runs", "list", "--status", "ASLEEP"],
        &["runs", "signal", "walk-1", "more", "{not json"],
        &["runs", "resolve", "nonsense", "--retry"],
        &["runs", "decide", "walk-1", "perhaps"],
        &["runs", "list", "--limit", "0"],
        &["runs", "nonsense"],
    ] {
        let (code, message) = world.refused(args);
        assert_eq!(code, 2, "{args:?}: {message}");
    }
    let (code, message) = world.refused(&["runs", "show", "nobody"]);
    assert!(code == 1 && message.contains("error[ExecutionNotFound]"), "{message}");
    let (code, message) = world.refused(&["runs", "show", "nobody", "--json"]);
    let error: Value = serde_json::from_str(&message).unwrap();
    assert_eq!((code, error["error"]["code"].as_str()), (1, Some("ExecutionNotFound")));
    let (code, message) = world.refused(&["runs", "list", "https:nowhere"]);
    assert!(code == 1 && message.contains("InvalidArgument"), "{message}");
    let (code, message) = world.refused(&["runs", "list", "http://127.0.0.1:9"]);
    assert!(code == 1 && message.contains("StorageUnavailable") && message.contains("flovyn dev"), "{message}");
}

#[test]
fn the_library_runs_inside_an_async_runtime() {
    let world = World::new();
    let args = ["flovyn", "runs", "list", &world.url(), "--json"].map(Into::into);
    assert_eq!(world.runtime.block_on(async { flovyn_cli::run(args.to_vec()) }), 0);
    assert_eq!(flovyn_cli::run(vec!["flovyn".into(), "nonsense".into()]), 2);
}

#[test]
fn a_run_whose_journal_is_not_kept_is_shown() {
    let world = World::new();
    world.runtime.block_on(async {
        let flovyn = FlovynClient::builder().url(&world.url()).agent(Walker).task(Double).build().await.unwrap();
        let options = StartOptions { persistence: Some(Persistence::Ephemeral), ..StartOptions::with_id("brief") };
        flovyn.start(&Walker, &21, options).await.unwrap();
        flovyn.close().await.unwrap();
    });
    let shown = world.flovyn(&["runs", "show", "brief"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && text.contains("ephemeral"), "{text}");
    assert!(world.flovyn(&["runs", "show", "brief", "--json"]).status.success());
    let refused = world.flovyn(&["runs", "entries", "brief"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("NotPersisted"));
}
