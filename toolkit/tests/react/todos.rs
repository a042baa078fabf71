//! The list of steps of a model: in the conversation, in the state, and in what is left after a compaction.

use super::*;
use flovyn_toolkit::fake_llm::When;
use flovyn_toolkit::react::{Compacted, ReactState};
use flovyn_toolkit::tools::{CallRecords, Todo, TodoStatus, ToolEnvironment, ToolHost, ToolTask, Toolbox};

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_steps_outlives_a_compaction_and_a_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let steps = json!({"todos": [
        {"content": "Find the otters", "status": "completed"},
        {"content": "Count\nthem", "status": "in_progress"},
        {"content": "Tell of them"},
    ]});
    let wrong = json!({"todos": [{"content": "Hm", "status": "perhaps"}]});
    let asked = When { last_user_contains: Some("ummarise".into()), ..When::default() };
    let script = || Script {
        otherwise: Some(Box::new(Turn::text("Otter: {{pad:4000}}"))),
        ..Script::new([
            Turn::text("They spoke of otters.").when(asked.clone()),
            Turn::call("todo", wrong.clone()),
            Turn::call("todo", steps.clone()),
        ])
    };
    let toolbox = Toolbox::new().with(Todo).expect("a tool");
    let agent = ReactAgent::new().with_toolbox(&toolbox).expect("tools");
    let open = async |fake: &FakeLlm| {
        let host = ToolHost::new(
            ToolEnvironment::open(folder.path()).expect("it opens"),
            CallRecords::temporary().expect("records"),
        );
        let flovyn = FlovynClient::builder().storage(&*url).agent(agent.clone()).task(generate(fake));
        let tasks = ToolTask::all(&toolbox, &host);
        let flovyn = tasks.into_iter().fold(flovyn, FlovynClientBuilder::task).build().await.expect("a backend");
        let worker = flovyn.worker().await.expect("a worker");
        (flovyn, worker)
    };
    let fake = FakeLlm::start(script()).expect("a server");
    let (flovyn, worker) = open(&fake).await;
    let mut input = ask("Otter one?").chat();
    input.config.compaction.window = Some(8_000);
    input.config.compaction.keep_recent_tokens = 1_500;
    let run = flovyn.start(&agent, &input, StartOptions::default()).await.expect("it starts");
    waits_for(&run, USER_MESSAGE).await;
    let told = told(&run).await;
    let lines: Vec<_> = told.iter().filter(|line| line.starts_with("tool_result")).collect();
    assert!(lines[0].contains("The arguments of todo are wrong"), "{lines:?}");
    assert_eq!(lines[1], "tool_result: todo = [x] Find the otters\n[>] Count them\n[ ] Tell of them\n");
    drop(worker);
    flovyn.close().await.expect("it closes");

    let fake = FakeLlm::start(script()).expect("a server");
    let (flovyn, _worker) = open(&fake).await;
    let run = flovyn.handle(&run.id().to_string()).await.expect("the run is there");
    for number in 2..=10 {
        let before = fake.requests().len();
        say(&run, UserMessage::new(format!("Otter number {number}?"))).await;
        fake.wait_until(PATIENCE, |requests| requests.len() > before).await.expect("a request");
        waits_for(&run, USER_MESSAGE).await;
    }
    let compacted: Vec<Compacted> = of_type(&run, "compaction").await;
    assert!(!compacted.is_empty());
    let last = fake.requests().pop().expect("a request").body["messages"][0].to_string();
    assert!(
        last.contains("They spoke of otters.") && last.contains(r"[x] Find the otters\n[>] Count them\n[ ] Tell"),
        "{last}"
    );
    let checkpoints = run.checkpoints(Default::default()).await.expect("checkpoints").items;
    let state: ReactState = checkpoints.last().expect("one a turn").saved.state.parse().expect("a state");
    assert_eq!((state.todos.0.len(), state.todos.0[1].status), (3, TodoStatus::InProgress));
}
