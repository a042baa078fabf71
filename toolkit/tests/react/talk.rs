//! A prompt, a model, tools, an answer; and a conversation that goes on.

use super::*;
use flovyn_core::model::{CancelMode, EventKind};
use flovyn_toolkit::fake_llm::{Pace, When};
use flovyn_toolkit::provider::ThinkingLevel;
use flovyn_toolkit::react::{LlmCall, ModelChoice, ReactState, StopReason};
use flovyn_toolkit::tools::{CallRecords, ToolEnvironment, ToolHost, ToolTask, Toolbox};

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_answered_on_memory_and_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = format!("sqlite:{}", folder.path().join("agents.db").display());
    for url in ["memory:", &sqlite] {
        let script = Script::new([
            Turn::call("note", json!({"text": "fish"})).thinking("Otters eat."),
            Turn::text("They eat fish."),
        ]);
        let lab = Lab::of(url, script, agent()).await;
        let (outcome, run) = lab.ends(&ask("What do otters eat?")).await;
        assert_eq!(outcome.text, "They eat fish.");
        assert_eq!((outcome.stop_reason, outcome.turns), (StopReason::End, 2));
        let expected = [
            "system: Be brief.",
            "user: What do otters eat?",
            "assistant: call note",
            "tool_result: note = noted fish",
            "assistant: They eat fish.",
        ];
        assert_eq!(told(&run).await, expected);
        assert_eq!(lab.fake.paid(), 2);
        let calls: Vec<LlmCall> = of_type(&run, "llm_call").await;
        assert_eq!(calls.len(), 2);
        let used: u64 = calls.iter().filter_map(|call| call.usage.as_ref()).map(|usage| usage.output).sum();
        let usage = &outcome.usage.0["fake/m"];
        assert_eq!((usage.calls, usage.output_tokens, usage.cost_micros), (2, used, None), "no price is no cost");
        assert_eq!(run.describe().await.expect("the run").usage.0["fake/m"], *usage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_shown_tokens_thoughts_and_tools() {
    let pace = Some(Pace { ttft_ms: 20, chunk_chars: 4, ..Pace::default() });
    let lab = Lab::new([
        Turn { pace, ..Turn::call("send", json!({"text": "a"})).thinking("Hm, otters.") },
        Turn { pace, ..Turn::text("All is sent.") },
    ])
    .await;
    let run = lab.start(&ask("Send it.")).await;
    let shown = shown(run).await;
    let text: String = shown.iter().filter_map(Value::as_str).collect();
    assert_eq!(text, "All is sent.");
    let thoughts: String =
        of_kind(&shown, "thinking_delta").iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(thoughts, "Hm, otters.");
    let start = &of_kind(&shown, "tool_call_start")[0]["tool_call"];
    assert_eq!((&start["name"], &start["arguments"]), (&json!("send"), &json!({"text": "a"})));
    let end = of_kind(&shown, "tool_call_end")[0];
    assert_eq!(end["tool_call"], json!({"id": start["id"], "name": "send"}));
    assert_eq!(end["result"], json!({"content": "noted a", "is_error": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn host_tools_work_in_the_directory_of_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path().join("work");
    std::fs::create_dir_all(work.join("mine")).expect("it is made");
    let fake = FakeLlm::start(Script::new([
        Turn::call("write", json!({"path": "a.md", "content": "one\n"})),
        Turn::call("edit", json!({"path": "a.md", "old_string": "one", "new_string": "two"})),
        Turn::call("read", json!({"path": "a.md"})),
        Turn::text("Done."),
    ]))
    .expect("a server");
    let toolbox = Toolbox::host().expect("tools");
    let records = CallRecords::open(folder.path().join("records")).expect("a folder of records");
    let host = ToolHost::new(ToolEnvironment::open(&work).expect("it opens"), records);
    let agent = ReactAgent::new().with_approvals(ApprovalPolicy::allow_all()).with_toolbox(&toolbox).expect("tools");
    let flovyn = FlovynClient::builder().storage("memory:").agent(agent.clone()).task(generate(&fake));
    let tasks = ToolTask::all(&toolbox, &host);
    let flovyn = tasks.into_iter().fold(flovyn, FlovynClientBuilder::task).build().await.expect("a backend");
    let _worker = flovyn.worker().await.expect("a worker");
    let input = AgentInput { working_directory: Some("mine".into()), ..ask("Write.") };
    let run = flovyn.start(&agent, &input, StartOptions::default()).await.expect("it starts");
    let shown = shown(run.clone()).await;
    assert_eq!(outcome(&run).await.turns, 4);
    assert_eq!(std::fs::read_to_string(work.join("mine/a.md")).expect("a file"), "two\n");
    let last = told(&run).await;
    assert!(last[last.len() - 2].contains("two"), "{last:?}");
    let artifacts: Vec<_> = of_kind(&shown, "artifact").into_iter().cloned().collect();
    let artifact =
        |action: &str| json!({"type": "artifact", "path": "a.md", "action": action, "artifact_type": "document"});
    assert_eq!(artifacts, [artifact("write"), artifact("edit")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_one_turn_run_side_by_side_and_each_call_is_answered_once() {
    let lab = Lab::new([
        Turn::call("meet", json!({}))
            .and_call("note", json!({"text": "fail"}))
            .and_call("meet", json!({}))
            .and_call("nothing", json!({}))
            .and_call("note", json!({"text": 5})),
        Turn::text("Good."),
    ])
    .await;
    let (outcome, run) = lab.ends(&ask("Meet.")).await;
    assert_eq!((outcome.turns, lab.fake.paid()), (2, 2));
    let mut results: Vec<_> = told(&run).await.into_iter().filter(|line| line.starts_with("tool_result")).collect();
    results.sort();
    let starts = [
        "tool_result: meet = meet is over",
        "tool_result: meet = meet is over",
        "tool_result: note = NonRetryable: this note cannot be taken",
        "tool_result: note = The arguments of note are wrong:",
        "tool_result: nothing = There is no tool \"nothing\". There are: meet, note, send, wait.",
    ];
    assert_eq!(results.len(), starts.len(), "{results:?}");
    for start in starts {
        assert!(results.iter().any(|result| result.starts_with(start)), "{start}: {results:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_offers_the_tools_it_names_and_no_others() {
    let lab = Lab::new([Turn::text("Hm.")]).await;
    let input = AgentInput { tools: Some(vec!["note".into()]), ..ask("Hi") };
    lab.ends(&input).await;
    let offered = lab.fake.requests()[0].body["tools"].clone();
    let names: Vec<_> = offered.as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["note"]);
    let run = lab.start(&AgentInput { tools: Some(vec!["saw".into()]), ..ask("Hi") }).await;
    let error = run.result(Some(PATIENCE)).await.expect_err("there is no such tool");
    assert!(error.message().contains("\"saw\"") && error.message().contains("meet, note"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_most_turns_the_run_says_so() {
    let script = Script::new([Turn { text: Some("On it.".into()), ..Turn::call("note", json!({})) }.times(9)]);
    let lab = Lab::of("memory:", script, agent()).await;
    let mut input = ask("Go on for ever.");
    input.config.max_turns = 3;
    let (outcome, run) = lab.ends(&input).await;
    assert_eq!((outcome.stop_reason, outcome.turns, outcome.text.as_str()), (StopReason::MaxTurns, 3, "On it."));
    assert_eq!(lab.fake.paid(), 3);
    assert!(told(&run).await.last().is_some_and(|line| line.starts_with("tool_result")), "the last call was answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_goes_on_with_another_model_and_other_thoughts() {
    let elsewhere = When { model: Some("m2".into()), ..When::default() };
    let lab = Lab::new([Turn::text("Hello."), Turn::text("Thinking of it.").when(elsewhere)]).await;
    let run = lab.start(&AgentInput::new("fake/m", "").chat()).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(lab.fake.requests().len(), 0, "nothing was said yet");
    say(&run, UserMessage::new("Hi")).await;
    lab.asked(1).await;
    waits_for(&run, USER_MESSAGE).await;
    let model = Some(ModelChoice::parse("other/m2"));
    say(&run, UserMessage { model: model.clone(), thinking: Some(ThinkingLevel::High), ..UserMessage::new("More") })
        .await;
    lab.asked(2).await;
    waits_for(&run, USER_MESSAGE).await;
    let said = ["system: Be brief.", "user: Hi", "assistant: Hello.", "user: More", "assistant: Thinking of it."];
    assert_eq!(told(&run).await, said);
    let checkpoints = run.checkpoints(Default::default()).await.expect("checkpoints").items;
    let state: ReactState = checkpoints.last().expect("one a turn").saved.state.parse().expect("a state");
    assert_eq!((Some(state.model), state.thinking, state.turn), (model, ThinkingLevel::High, 2));
    assert_eq!(state.usage.0.keys().collect::<Vec<_>>(), ["fake/m", "other/m2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_goes_on_with_other_tools_tells_the_model_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let script = || Script::new([Turn::text("One."), Turn::text("Two."), Turn::text("Three.")]);
    let offered = |lab: &Lab| -> Vec<String> {
        let requests = lab.fake.requests();
        let tools = requests.last().expect("a request").body["tools"].as_array().expect("tools").clone();
        tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
    };
    let lab = Lab::of(&url, script(), agent()).await;
    let run = lab.start(&ask("Hi").chat()).await;
    lab.asked(1).await;
    waits_for(&run, USER_MESSAGE).await;
    assert_eq!(offered(&lab), ["meet", "note", "send", "wait"]);
    lab.flovyn.close().await.expect("it closes");
    let more = agent().with_tool(AgentTool::task(spec("other"), "note", Effect::Read).expect("a schema"));
    let lab = Lab::of(&url, script(), more.expect("a name of its own")).await;
    let run = lab.flovyn.handle(&run.id().to_string()).await.expect("the run is there");
    for times in [1, 2] {
        say(&run, UserMessage::new("And now?")).await;
        lab.asked(times).await;
        waits_for(&run, USER_MESSAGE).await;
        assert_eq!(offered(&lab), ["meet", "note", "other", "send", "wait"]);
    }
    let told: Vec<Value> = of_type(&run, "tools").await;
    assert_eq!(told.len(), 2, "once for each list of tools");
}

/// What a process has differs from what the one before had: a server of tools that does not answer is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_with_what_the_model_was_told_when_it_began() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let script = || Script::new([Turn::call("wait", json!({})), Turn::text("Done.")]);
    let lab = Lab::of(&url, script(), agent()).await;
    let run = lab.start(&ask("Begin.").chat()).await;
    works(&run, "wait").await;
    lab.flovyn.close().await.expect("it closes");
    let more = agent().with_tool(AgentTool::task(spec("other"), "note", Effect::Read).expect("a schema"));
    let lab = Lab::of(&url, script(), more.expect("a name of its own")).await;
    lab.gate.open.add_permits(1);
    let run = lab.flovyn.handle(&run.id().to_string()).await.expect("the run is there");
    waits_for(&run, USER_MESSAGE).await;
    let expected = [
        "system: Be brief.",
        "user: Begin.",
        "assistant: call wait",
        "tool_result: wait = wait is over",
        "assistant: Done.",
    ];
    assert_eq!((told(&run).await, lab.fake.paid()), (expected.map(str::to_owned).to_vec(), 1));
    run.cancel(CancelMode::Hard, PATIENCE).await.expect("it ends");
    let mut events = run.stream(None);
    while let Some(event) = events.next().await.expect("the events can be read") {
        if let StreamEvent::Durable(event) = event {
            assert_ne!(event.kind, EventKind::Warning, "{}", event.data);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_leaves_no_call_unanswered() {
    let lab = Lab::new([Turn::call("wait", json!({})).and_call("note", json!({"text": "a"}))]).await;
    let run = lab.start(&ask("Wait.")).await;
    lab.asked(1).await;
    let noted = async {
        while !told(&run).await.iter().any(|line| line.contains("noted a")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.expect("the other call ends");
    run.cancel(CancelMode::Graceful, PATIENCE).await.expect("it is asked to stop");
    let error = run.result(Some(PATIENCE)).await.expect_err("it was cancelled");
    assert_eq!(error.code(), Code::AgentCancelled);
    let stopped = "tool_result: wait = Stopped: the run was cancelled before this call had a result.";
    assert_eq!(told(&run).await.last().map(String::as_str), Some(stopped));
}
