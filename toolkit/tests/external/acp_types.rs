//! An agent of the types of the protocol's own crate, in `reference/acp-agent`: what our driver sends has to parse there.

use super::permissions::{answer, request};
use super::published::{kill, served};
use super::*;

/// The agent, which `make setup` builds.
fn built() -> Option<PathBuf> {
    let path = PathBuf::from(format!("{}/../target/acp-agent/debug/acp-agent", env!("CARGO_MANIFEST_DIR")));
    if !path.exists() {
        eprintln!("skipped: {} is not built; `make setup` builds it", path.display());
        return None;
    }
    Some(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_protocols_own_types_works_durably() {
    let Some(program) = built() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path().join("work");
    fs::create_dir(&work).expect("a folder");
    let environment = ToolEnvironment::open(&work).expect("it opens").with_sandbox(Sandbox::Off);
    let none: [&str; 0] = [];
    let agent = ExternalAgent::acp(program.to_string_lossy(), none, &work).with_environment(environment);
    let agent = agent.with_value("FAKE_DIR", folder.path().to_string_lossy());
    let (flovyn, _worker) = served(&agent).await;
    let run = flovyn.start(&agent, &chat("Find otters."), StartOptions::default()).await.expect("it starts");
    let asked = request(&run, 0).await;
    assert_eq!((asked.name.as_str(), &asked.arguments["command"]), ("execute", &"rm build".into()));
    answer(&run, &asked, true).await;
    answers(&run, 1).await;
    let first = told(&run).await;
    let expected = [
        "user: Find otters.",
        "assistant: I look.",
        "assistant: call execute",
        "tool_result: execute = otters and seals (Some(0))",
        "assistant: I found otters and seals (Some(0)).",
    ];
    assert_eq!(first, expected, "{:?}", of_type::<Value>(&run, "warning").await);
    kill(&run);
    // The next process tells the past, and none of it is kept again.
    say(&run, UserMessage::new("Again.")).await;
    let asked = request(&run, 1).await;
    answer(&run, &asked, false).await;
    answers(&run, 2).await;
    let second = told(&run).await;
    assert_eq!(second[..5], expected);
    let rest = ["user: Again.", "assistant: I look.", "assistant: call execute", "tool_result: execute = nothing"];
    assert_eq!(second[5..9], rest);
    assert_eq!(second[9..], ["assistant: I found nothing."]);
}
