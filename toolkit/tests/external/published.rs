//! Agents that others have written, from npm, against a scripted model: Pi by its RPC mode, and by ACP.

use super::*;
use flovyn_toolkit::external::Acp;
use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
use serde_json::json;

/// The folder that `make setup` installs them into.
fn installed(program: &str) -> Option<PathBuf> {
    let path =
        PathBuf::from(format!("{}/tests/external/reference/node_modules/.bin/{program}", env!("CARGO_MANIFEST_DIR")));
    if !path.exists() {
        eprintln!("skipped: {} is not installed; `make setup` installs it", path.display());
        return None;
    }
    Some(path)
}

/// Pi's own folder, with a model that is the scripted one.
fn settings(folder: &Path, fake: &FakeLlm) {
    let models = json!({ "providers": { "fake": {
        "baseUrl": fake.url(), "api": "anthropic-messages", "apiKey": "none",
        "models": [{ "id": "m", "contextWindow": 100_000, "maxTokens": 1_000 }],
    } } });
    fs::write(folder.join("models.json"), models.to_string()).expect("it is written");
    let settings = json!({ "defaultProvider": "fake", "defaultModel": "m" });
    fs::write(folder.join("settings.json"), settings.to_string()).expect("it is written");
}

fn turns() -> Script {
    let call = Turn::call("bash", json!({"command": "echo otters > found.txt; cat found.txt"}));
    Script::new([call, Turn::text("Otters hold hands."), Turn::text("They sleep.")])
}

fn with_settings(agent: ExternalAgent, folder: &Path) -> ExternalAgent {
    let root = env!("CARGO_MANIFEST_DIR");
    let programs = [
        PathBuf::from(format!("{root}/tests/external/reference/node_modules/.bin")),
        PathBuf::from(format!("{root}/../target/node-lts/node_modules/.bin")),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path))).expect("a path");
    let folder = folder.to_string_lossy();
    let agent = agent.with_value("PATH", path.to_string_lossy()).with_value("PI_CODING_AGENT_DIR", &*folder);
    agent.with_value("PI_OFFLINE", "1").with_approvals(ApprovalPolicy::allow_all())
}

/// Kills the processes of a run's agent.
pub(super) fn kill(run: &Handle) {
    for process in living(&run.id().to_string()) {
        let pid = process.file_name().and_then(|pid| pid.to_str()).and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        // One of them may end with another.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

pub(super) async fn served(agent: &ExternalAgent) -> (FlovynClient, Worker) {
    let flovyn = FlovynClient::builder().storage("memory:").agent(agent.clone()).task(agent.turns());
    let flovyn = flovyn.build().await.expect("a backend");
    let worker = flovyn.worker().await.expect("a worker");
    (flovyn, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn published_pi_works_durably() {
    let Some(program) = installed("pi") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let fake = FakeLlm::start(turns()).expect("a server");
    settings(folder.path(), &fake);
    let work = folder.path().join("work");
    fs::create_dir(&work).expect("a folder");
    let none: [&str; 0] = [];
    let agent = ExternalAgent::custom(Pi::new(program.to_string_lossy(), none), &work).with_model("fake/m");
    let agent = with_settings(agent, folder.path());
    let (flovyn, _worker) = served(&agent).await;
    let run = flovyn.start(&agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    keeps(&run, "assistant: Otters hold hands.").await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(fs::read_to_string(work.join("found.txt")).expect("it worked"), "otters\n");
    let first = told(&run).await;
    assert_eq!(first[0..2], ["user: Find otters.", "assistant: call bash"], "{first:?}");
    assert!(first[2].contains("otters"), "{first:?}");
    let used = run.describe().await.expect("it is there").usage;
    assert_eq!(used.0["fake/m"].calls, 2, "{used:?}");
    // Its process is killed while it is idle; the next message finds its session again.
    kill(&run);
    say(&run, UserMessage::new("And at night?")).await;
    keeps(&run, "assistant: They sleep.").await;
    let asked = fake.requests().last().expect("a request").body["messages"].to_string();
    assert!(asked.contains("Otters hold hands."), "it knows what was before: {asked}");
    let told = told(&run).await;
    assert_eq!(told.iter().filter(|line| line.contains("Otters hold hands.")).count(), 1, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_an_acp_agent_works() {
    let (Some(program), Some(_)) = (installed("pi-acp"), installed("pi")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let fake = FakeLlm::start(turns()).expect("a server");
    settings(folder.path(), &fake);
    let work = folder.path().join("work");
    fs::create_dir(&work).expect("a folder");
    let none: [&str; 0] = [];
    let agent = ExternalAgent::custom(Acp::new(program.to_string_lossy(), none), &work)
        .with_value("HOME", folder.path().to_string_lossy());
    let agent = with_settings(agent, folder.path());
    let (flovyn, _worker) = served(&agent).await;
    let run = flovyn.start(&agent, &ask("Find otters."), StartOptions::default()).await.expect("it starts");
    let outcome: RunOutcome = run.result(Some(PATIENCE)).await.expect("it completes").parse().expect("an outcome");
    assert_eq!(outcome.text, "Otters hold hands.");
    assert_eq!(fs::read_to_string(work.join("found.txt")).expect("it worked"), "otters\n");
}
