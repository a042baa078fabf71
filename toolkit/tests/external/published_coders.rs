//! Claude Code and Codex themselves against a scripted model, where they are installed: Claude Code by its own protocol and
//! by ACP, Codex by ACP. They are large, and Claude Code is no free software, so nothing here installs them.
//!
//! A program is looked for at the path in its variable, and then on PATH. All that it is given leads to this machine; for
//! certainty run the tests where nothing else can be reached, such as in a network namespace of their own.

use super::permissions::{answer, request};
use super::published::{kill, served};
use super::*;
use flovyn_core::model::UsageTotals;
use flovyn_toolkit::fake_llm::{FakeLlm, Pace, Script, ScriptedUsage, Turn, When};
use flovyn_toolkit::react::APPROVAL;
use serde_json::json;

/// A command that lasts until its test lets it end.
const LONG: &str = "for i in $(seq 300); do if [ -e go ]; then break; fi; sleep 0.1; done; echo otters > found.txt";

/// A program that somebody has installed.
fn program(variable: &str, name: &str) -> Option<PathBuf> {
    let found = match std::env::var_os(variable) {
        Some(path) => Some(PathBuf::from(path)),
        None => std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file()),
    };
    if found.is_none() {
        eprintln!("skipped: {name} is not on PATH; set {variable} to its path to run this test with it");
    }
    found
}

fn turn(mut turn: Turn) -> Turn {
    turn.usage = ScriptedUsage { input: Some(100), output: Some(10), ..ScriptedUsage::default() };
    turn
}

fn says(text: &str) -> Turn {
    turn(Turn::text(text))
}

fn bash(command: &str) -> Turn {
    turn(Turn::call("Bash", json!({"command": command, "description": "Looks for otters"})))
}

fn exec(command: &str) -> Turn {
    turn(Turn::call("exec_command", json!({"cmd": command})))
}

/// A folder with an agent that works in it, and the model that it asks.
struct Coder {
    folder: tempfile::TempDir,
    fake: FakeLlm,
    agent: ExternalAgent,
}

impl Coder {
    fn new(turns: impl IntoIterator<Item = Turn>, agent: impl FnOnce(PathBuf) -> ExternalAgent) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let fake = FakeLlm::start(Script::new(turns)).expect("a server");
        let work = folder.path().join("work");
        fs::create_dir(&work).expect("a folder");
        let home = folder.path().to_string_lossy().into_owned();
        let agent = agent(work).with_value("HOME", home).with_start_timeout(Duration::from_secs(120));
        Self { folder, fake, agent }
    }

    /// An agent of Claude Code's making.
    fn anthropic(turns: impl IntoIterator<Item = Turn>, agent: impl FnOnce(PathBuf) -> ExternalAgent) -> Self {
        let mut coder = Self::new(turns, agent);
        let folder = coder.folder.path().join("claude");
        let values = [
            ("CLAUDE_CONFIG_DIR", folder.to_string_lossy().into_owned()),
            ("ANTHROPIC_BASE_URL", coder.fake.url()),
            ("ANTHROPIC_API_KEY", "none".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
            ("DISABLE_AUTOUPDATER", "1".to_owned()),
            ("DISABLE_TELEMETRY", "1".to_owned()),
            ("DISABLE_ERROR_REPORTING", "1".to_owned()),
            // It lets nobody choose among its modes as root unless it believes itself confined.
            ("IS_SANDBOX", "1".to_owned()),
        ];
        coder.agent = values.into_iter().fold(coder.agent, |agent, (name, value)| agent.with_value(name, value));
        coder
    }

    fn claude(turns: impl IntoIterator<Item = Turn>) -> Option<Self> {
        let program = program("FLOVYN_TEST_CLAUDE", "claude")?;
        let none: [&str; 0] = [];
        let agent = |work| ExternalAgent::custom(Claude::new(program.to_string_lossy(), none), work);
        Some(Self::anthropic(turns, agent).with_approvals(ApprovalPolicy::allow_all()))
    }

    /// Codex, in one of the modes of its adapter.
    fn codex(mode: &str, turns: impl IntoIterator<Item = Turn>) -> Option<Self> {
        let program = program("FLOVYN_TEST_CODEX_ACP", "codex-acp")?;
        let none: [&str; 0] = [];
        let mut coder = Self::new(turns, |work| ExternalAgent::acp(program.to_string_lossy(), none, work));
        let folder = coder.folder.path().join("codex");
        fs::create_dir(&folder).expect("a folder");
        // Adapters without modes go by what Codex is configured to.
        let policy = match mode {
            "agent-full-access" => "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"",
            _ => "sandbox_mode = \"workspace-write\"\napproval_policy = \"on-request\"",
        };
        let config = format!(
            "model = \"gpt-5.5\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n{policy}\n\
             [analytics]\nenabled = false\n\
             [model_providers.fake]\nname = \"fake\"\nbase_url = \"{}\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n",
            coder.fake.openai_url()
        );
        fs::write(folder.join("config.toml"), config).expect("it is written");
        let agent = coder.agent.with_value("CODEX_HOME", folder.to_string_lossy()).with_value("FAKE_KEY", "none");
        coder.agent = agent.with_value("INITIAL_AGENT_MODE", mode).with_approvals(ApprovalPolicy::allow_all());
        Some(coder)
    }

    fn with_approvals(mut self, policy: ApprovalPolicy) -> Self {
        self.agent = self.agent.with_approvals(policy);
        self
    }

    fn found(&self) -> Option<String> {
        fs::read_to_string(self.folder.path().join("work/found.txt")).ok()
    }

    fn release(&self) {
        fs::write(self.folder.path().join("work/go"), "").expect("it is written");
    }

    /// Waits until the program has written a text into its own records, which it does a while after it has said it.
    async fn records(&self, text: &str) {
        let recorded = async {
            while !holds(self.folder.path(), text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, recorded).await.expect("it is recorded");
    }

    /// What the model was asked last.
    fn asked(&self) -> String {
        let requests = self.fake.requests();
        let body = &requests.last().expect("a request").body;
        body.get("messages").or_else(|| body.get("input")).expect("a conversation").to_string()
    }
}

/// Whether a session file of a folder holds a text.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => holds(&path, text),
            false => {
                let is_session = path.extension().is_some_and(|end| end == "jsonl");
                is_session && fs::read_to_string(&path).is_ok_and(|content| content.contains(text))
            }
        }
    })
}

fn total(usage: &UsageTotals) -> (u64, u64, Option<u64>) {
    let all = || usage.0.values();
    let cost = all().map(|usage| usage.cost_micros).sum::<Option<u64>>();
    (all().map(|usage| usage.input_tokens).sum(), all().map(|usage| usage.output_tokens).sum(), cost)
}

async fn used(run: &Handle) -> (u64, u64, Option<u64>) {
    total(&run.describe().await.expect("it is there").usage)
}

/// A prompt, a call of the agent's own, a text; then its process is killed while it is idle, and a message finds its session
/// again.
async fn works_durably(coder: &Coder) -> (Handle, FlovynClient, Worker) {
    let (flovyn, worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    answers(&run, 1).await;
    assert_eq!(coder.found().as_deref(), Some("otters\n"));
    let first = told(&run).await;
    assert_eq!(first[0], "user: Find otters.");
    assert!(first[1].starts_with("assistant: call "), "{first:?}");
    assert!(first[2].contains("otters"), "{first:?}");
    assert_eq!(first.len(), 4, "{first:?}");
    coder.records("Otters hold hands.").await;
    kill(&run);
    say(&run, UserMessage::new("And at night?")).await;
    answers(&run, 2).await;
    assert!(coder.asked().contains("Otters hold hands."), "it knows what was before: {}", coder.asked());
    let told = told(&run).await;
    assert_eq!(told[..4], first, "nothing is bridged twice");
    assert_eq!(told[4..], ["user: And at night?", "assistant: They sleep."]);
    (run, flovyn, worker)
}

/// A person is asked, and allows one call and not the other.
async fn asks(coder: &Coder, tool: &str, command: &str) -> Vec<String> {
    let (flovyn, _worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    let first = request(&run, 0).await;
    assert_eq!((first.name.as_str(), &first.arguments["command"]), (tool, &command.into()));
    waits_for(&run, APPROVAL).await;
    assert_eq!(coder.found(), None, "nobody has allowed it");
    answer(&run, &first, true).await;
    answers(&run, 1).await;
    assert_eq!(coder.found().as_deref(), Some("otters\n"));
    fs::remove_file(coder.folder.path().join("work/found.txt")).expect("it is there");
    say(&run, UserMessage::new("Again.")).await;
    let second = request(&run, 1).await;
    answer(&run, &second, false).await;
    answers(&run, 2).await;
    assert_eq!(coder.found(), None, "it was not allowed");
    told(&run).await
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_works_durably() {
    let turns = [bash("echo otters > found.txt; cat found.txt"), says("Otters hold hands."), says("They sleep.")];
    let Some(coder) = Coder::claude(turns) else { return };
    let (run, ..) = works_durably(&coder).await;
    let (input, output, cost) = used(&run).await;
    assert_eq!((input, output), (300, 30));
    assert!(cost.is_some_and(|cost| cost > 0), "{cost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_asks() {
    let command = "echo otters > found.txt";
    let turns = [bash(command), says("Otters hold hands."), bash(command), says("They hide.")];
    let Some(coder) = Coder::claude(turns) else { return };
    let coder = coder.with_approvals(ApprovalPolicy::default());
    let told = asks(&coder, "Bash", command).await;
    assert!(told.iter().any(|line| line.contains("The user did not allow this.")), "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some("assistant: They hide."));
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_is_steered_and_stopped() {
    let slow = Turn { pace: Some(Pace { ttft_ms: 3_000, ..Pace::default() }), ..says("They sleep.") };
    let turns = [bash(LONG), says("Otters hold hands."), slow, says("They do."), bash(LONG)];
    let Some(coder) = Coder::claude(turns) else { return };
    let (flovyn, _worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    keeps(&run, "assistant: call Bash").await;
    say(&run, UserMessage::new("And seals.")).await;
    keeps(&run, "user: And seals.").await;
    coder.release();
    answers(&run, 1).await;
    assert!(coder.asked().contains("And seals."), "it was told while it worked: {}", coder.asked());
    // Nothing is left in this turn that a message could steer: it begins another one, and the run waits for its end.
    say(&run, UserMessage::new("And at night?")).await;
    let asked = coder.fake.wait_until(PATIENCE, |requests| requests.len() == 3).await;
    asked.expect("the model is asked");
    say(&run, UserMessage::new("Really?")).await;
    answers(&run, 2).await;
    assert_eq!(told(&run).await.last().map(String::as_str), Some("assistant: They do."));
    assert_eq!(coder.fake.requests().len(), 4);
    // It is stopped within a call.
    fs::remove_file(coder.folder.path().join("work/go")).expect("it is there");
    let calls = |lines: &[String]| lines.iter().filter(|line| *line == "assistant: call Bash").count();
    say(&run, UserMessage::new("Look again.")).await;
    while calls(&told(&run).await) < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    say(&run, UserMessage::interrupt()).await;
    assert_eq!(answers(&run, 3).await, "interrupted");
    assert!(of_type::<Value>(&run, "warning").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_goes_on_after_a_crash() {
    let went_on = Turn::text("Done after all.")
        .when(When { last_user_contains: Some("You were interrupted".into()), ..When::default() });
    let Some(coder) = Coder::claude([went_on, bash(LONG)]) else { return };
    let (flovyn, _worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &ask("Find otters."), StartOptions::default()).await.expect("it starts");
    keeps(&run, "assistant: call Bash").await;
    coder.records("Looks for otters").await;
    kill(&run);
    assert_eq!(outcome(&run).await.text, "Done after all.");
    let told = told(&run).await;
    assert_eq!(told[..2], ["user: Find otters.", "assistant: call Bash"]);
    assert!(told[2].starts_with("tool_result: Bash = "), "{told:?}");
    assert_eq!(told[3..], ["assistant: Done after all."], "its own remarks are not bridged");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_is_booked_once() {
    let Some(coder) = Coder::claude([says("Otters hold hands."), says("They sleep.")]) else { return };
    let (flovyn, worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    answers(&run, 1).await;
    let (_, _, once) = used(&run).await;
    // Its process ends as it should; versions that count the cost of a session go on counting in the next one.
    worker.close(Duration::from_secs(1)).await.expect("it closes");
    is_gone(&run.id().to_string()).await;
    let _worker = flovyn.worker().await.expect("a worker");
    say(&run, UserMessage::new("And at night?")).await;
    answers(&run, 2).await;
    let (_, _, twice) = used(&run).await;
    let (once, twice) = (once.expect("a cost"), twice.expect("a cost"));
    assert!(once > 0 && twice.abs_diff(once * 2) <= 2, "{once} and then {twice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_has_no_session_before_its_first_message() {
    let Some(coder) = Coder::claude([says("Otters hold hands.")]) else { return };
    let (flovyn, worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &chat(""), StartOptions::default()).await.expect("it starts");
    waits_for(&run, USER_MESSAGE).await;
    worker.close(Duration::from_secs(1)).await.expect("it closes");
    is_gone(&run.id().to_string()).await;
    let _worker = flovyn.worker().await.expect("a worker");
    say(&run, UserMessage::new("Find otters.")).await;
    keeps(&run, "assistant: Otters hold hands.").await;
    let warnings: Vec<Value> = of_type(&run, "warning").await;
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_claude_code_works_by_acp() {
    let Some(program) = program("FLOVYN_TEST_CLAUDE_ACP", "claude-agent-acp") else { return };
    let turns = [bash("echo otters > found.txt; cat found.txt"), says("Otters hold hands."), says("They sleep.")];
    let none: [&str; 0] = [];
    let coder = Coder::anthropic(turns, |work| ExternalAgent::acp(program.to_string_lossy(), none, work));
    let coder = coder.with_approvals(ApprovalPolicy::allow_all());
    let (run, ..) = works_durably(&coder).await;
    assert_eq!(used(&run).await.0, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn published_codex_works_durably() {
    let turns = [exec("echo otters > found.txt; cat found.txt"), says("Otters hold hands."), says("They sleep.")];
    let Some(coder) = Coder::codex("agent-full-access", turns) else { return };
    let (run, ..) = works_durably(&coder).await;
    let (input, output, _) = used(&run).await;
    assert_eq!((input, output), (300, 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn published_codex_asks() {
    let command = "echo otters > found.txt";
    let arguments = json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "Otters"});
    let outside = || turn(Turn::call("exec_command", arguments.clone()));
    let turns = [outside(), says("Otters hold hands."), outside(), says("They hide.")];
    let Some(coder) = Coder::codex("workspace-write", turns) else { return };
    let coder = coder.with_approvals(ApprovalPolicy::default());
    let told = asks(&coder, "execute", command).await;
    // Codex ends its turn when it is not allowed something.
    assert!(told.last().is_some_and(|line| line.starts_with("tool_result: execute")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn published_codex_is_stopped_and_goes_on_with_another_message() {
    let turns = [exec(LONG), says("They sleep.")];
    let Some(coder) = Coder::codex("agent-full-access", turns) else { return };
    let (flovyn, _worker) = served(&coder.agent).await;
    let run = flovyn.start(&coder.agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    keeps(&run, "assistant: call execute").await;
    say(&run, UserMessage::interrupt()).await;
    assert_eq!(answers(&run, 1).await, "interrupted");
    say(&run, UserMessage::new("And at night?")).await;
    keeps(&run, "assistant: They sleep.").await;
}
