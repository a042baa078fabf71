//! A user who speaks while the agent works, with each word for when to be heard.

use super::*;
use flovyn_core::Payload;
use flovyn_toolkit::fake_llm::{Pace, When};
use flovyn_toolkit::react::{Delivery, StopReason};

#[tokio::test(flavor = "multi_thread")]
async fn a_word_in_between_is_heard_before_the_next_call_and_skips_what_has_not_begun() {
    for word in [json!("steer"), json!("next_step"), Value::Null] {
        let calls = Turn::call("wait", json!({})).and_call("note", json!({"text": "b"}));
        let lab = Lab::new([calls, Turn::text("As you wish.")]).await;
        let mut input = ask("Begin.");
        input.config.parallel_tools = 1;
        let run = lab.start(&input).await;
        works(&run, "wait").await;
        let mut message = json!({"text": "No, stop."});
        if !word.is_null() {
            message["delivery"] = word;
        }
        let payload = Payload::of(&message).expect("JSON");
        run.signal(USER_MESSAGE, payload, EngineDelivery::NextStep, None).await.expect("the run takes it");
        lab.gate.open.add_permits(1);
        assert_eq!(outcome(&run).await.text, "As you wish.");
        let expected = [
            "system: Be brief.",
            "user: Begin.",
            "assistant: call wait",
            "assistant: call note",
            "tool_result: wait = wait is over",
            "tool_result: note = Skipped: the user sent a new message.",
            "user: No, stop.",
            "assistant: As you wish.",
        ];
        assert_eq!(told(&run).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_waits_until_the_model_has_nothing_left_to_do() {
    let lab = Lab::new([Turn::call("wait", json!({})), Turn::text("First."), Turn::text("Second.")]).await;
    let run = lab.start(&ask("Begin.")).await;
    works(&run, "wait").await;
    say(&run, UserMessage::new("And then?").deliver(Delivery::NextTurn)).await;
    // Sent with the engine's usual word, it is the message that says when.
    let queued = Payload::of(&json!({"text": "And last?", "delivery": "next"})).expect("JSON");
    run.signal(USER_MESSAGE, queued, EngineDelivery::NextStep, None).await.expect("the run takes it");
    lab.gate.open.add_permits(1);
    let outcome = outcome(&run).await;
    assert_eq!((outcome.text.as_str(), outcome.stop_reason), ("Second.", StopReason::End));
    let told = told(&run).await;
    let order: Vec<_> = told.iter().skip(3).map(String::as_str).collect();
    let expected = [
        "tool_result: wait = wait is over",
        "assistant: First.",
        "user: And last?",
        "user: And then?",
        "assistant: Second.",
    ];
    assert_eq!(order, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_wait_cuts_the_answer_short() {
    let (lab, run) = long_answer([Turn::text("Sorry.")], &ask("Tell me.")).await;
    say(&run, UserMessage::new("Shorter!").deliver(Delivery::Now)).await;
    let outcome = outcome(&run).await;
    assert_eq!((outcome.text.as_str(), outcome.usage.0["fake/m"].calls), ("Sorry.", 2));
    let told = told(&run).await;
    assert!(told[2].starts_with("assistant: Once upon") && told[2].len() < 1_000, "{told:?}");
    assert_eq!(told[3..], ["user: Shorter!", "assistant: Sorry."]);
    let second = lab.fake.requests()[1].body.to_string();
    assert!(second.contains("Once upon") && second.contains("[The user interrupted this answer.]"), "{second}");
}

/// Begins a long answer and waits until some of it was shown.
async fn long_answer(more: impl IntoIterator<Item = Turn>, input: &AgentInput) -> (Lab, Handle) {
    let slow = Pace { chunk_ms: 30, chunk_chars: 5, ..Pace::default() };
    let long = Turn { pace: Some(slow), ..Turn::text("Once upon a time there were {{pad:4000}}") };
    let lab = Lab::new(std::iter::once(long).chain(more)).await;
    let run = lab.start(input).await;
    let mut events = run.stream(None);
    loop {
        match events.next().await.expect("the events").expect("more of them") {
            StreamEvent::Chunk(_, chunk) if chunk.kind == ChunkKind::Token && chunk.data.contains("upon") => break,
            _ => {}
        }
    }
    (lab, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_answer_and_no_model_is_asked_again() {
    let (lab, run) = long_answer([], &ask("Tell me.")).await;
    say(&run, UserMessage::interrupt()).await;
    let outcome = outcome(&run).await;
    assert_eq!((outcome.stop_reason, lab.fake.requests().len()), (StopReason::Interrupted, 1));
    assert!(outcome.text.starts_with("Once upon") && outcome.text.len() < 1_000, "{outcome:?}");
    assert_eq!(told(&run).await.len(), 3, "nobody was said to have said anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_was_interrupted_waits_for_the_next_word() {
    let (lab, run) = long_answer([Turn::text("I was at otters.")], &ask("Tell me.").chat()).await;
    say(&run, UserMessage::interrupt()).await;
    waits_for(&run, USER_MESSAGE).await;
    // Nothing is at work: there is nothing to end.
    say(&run, UserMessage::interrupt()).await;
    say(&run, UserMessage::interrupt()).await;
    assert_eq!(lab.fake.requests().len(), 1);
    say(&run, UserMessage::new("Where were you?")).await;
    lab.asked(2).await;
    waits_for(&run, USER_MESSAGE).await;
    let told = told(&run).await;
    assert_eq!(told[3..], ["user: Where were you?", "assistant: I was at otters."]);
    assert_eq!(lab.fake.requests().len(), 2);
    let second = lab.fake.requests()[1].body.to_string();
    assert!(second.contains("[The user interrupted this answer.]"), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_skips_calls_that_have_not_begun_and_leaves_what_waits_for_its_own_turn() {
    let calls = Turn::call("wait", json!({})).and_call("note", json!({"text": "b"}));
    let lab = Lab::new([calls, Turn::text("And that.")]).await;
    let mut input = ask("Begin.");
    input.config.parallel_tools = 1;
    let run = lab.start(&input).await;
    works(&run, "wait").await;
    say(&run, UserMessage::new("And then?").deliver(Delivery::NextTurn)).await;
    say(&run, UserMessage::new("Hm.")).await;
    say(&run, UserMessage::interrupt()).await;
    lab.gate.open.add_permits(1);
    assert_eq!(outcome(&run).await.text, "And that.");
    let expected = [
        "tool_result: wait = wait is over",
        "tool_result: note = Skipped: the user stopped the agent.",
        "user: Hm.",
        "user: And then?",
        "assistant: And that.",
    ];
    assert_eq!(told(&run).await[4..], expected);
    assert_eq!(lab.fake.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_a_compaction_and_the_call_that_it_made_room_for() {
    let of_summaries = When { last_user_contains: Some("<conversation>".into()), ..When::default() };
    let slow = Pace { chunk_ms: 30, chunk_chars: 5, ..Pace::default() };
    let summary = Turn { pace: Some(slow), ..Turn::text("{{pad:4000}}") }.when(of_summaries);
    let note = Turn { text: Some("{{pad:2000}}".into()), ..Turn::call("note", json!({"text": "{{pad:2000}}"})) };
    let lab = Lab::new([summary, note.times(20)]).await;
    let mut input = ask("Take notes.");
    input.config.compaction.window = Some(5_000);
    input.config.compaction.keep_recent_tokens = 1_000;
    let run = lab.start(&input).await;
    let is_summary = |request: &flovyn_toolkit::fake_llm::Recorded| request.body.to_string().contains("<conversation>");
    let asked = lab.fake.wait_until(PATIENCE, |requests| requests.iter().any(is_summary)).await;
    assert!(asked.is_ok(), "the window never filled");
    say(&run, UserMessage::interrupt()).await;
    assert_eq!(outcome(&run).await.stop_reason, StopReason::Interrupted);
    assert!(lab.fake.requests().last().is_some_and(is_summary), "nothing was asked after the summary");
    assert_eq!(of_type::<Value>(&run, "compaction").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_wait_ends_host_tools() {
    use flovyn_toolkit::tools::{CallRecords, Sandbox, ToolEnvironment, ToolHost, ToolTask, Toolbox};
    let folder = tempfile::tempdir().expect("a folder");
    let script = Script::new([Turn::call("bash", json!({"command": "touch begun; sleep 60"})), Turn::text("Stopped.")]);
    let fake = FakeLlm::start(script).expect("a server");
    let toolbox = Toolbox::host().expect("tools");
    let records = CallRecords::open(folder.path().join("records")).expect("a folder of records");
    let work = folder.path().join("work");
    std::fs::create_dir(&work).expect("it is made");
    let environment = ToolEnvironment::open(&work).expect("it opens").with_sandbox(Sandbox::Off);
    let host = ToolHost::new(environment, records);
    let agent = ReactAgent::new().with_approvals(ApprovalPolicy::allow_all()).with_toolbox(&toolbox).expect("tools");
    let flovyn = FlovynClient::builder().storage("memory:").agent(agent.clone()).task(generate(&fake));
    let tasks = ToolTask::all(&toolbox, &host);
    let flovyn = tasks.into_iter().fold(flovyn, FlovynClientBuilder::task).build().await.expect("a backend");
    let _worker = flovyn.worker().await.expect("a worker");
    let run = flovyn.start(&agent, &ask("Sleep."), StartOptions::default()).await.expect("it starts");
    let begun = async {
        while !work.join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.expect("the command begins");
    say(&run, UserMessage::new("Stop that.").deliver(Delivery::Now)).await;
    assert_eq!(outcome(&run).await.text, "Stopped.");
    let told = told(&run).await;
    assert!(told[3].starts_with("tool_result: bash = Interrupted"), "{told:?}");
    assert_eq!(told[4], "user: Stop that.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_message_is_heard_as_it_was_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let script = Script::new([Turn::call("wait", json!({})), Turn::text("Long.")]);
    let lab = Lab::of(&url, script, agent()).await;
    let run = lab.start(&ask("Begin.")).await;
    works(&run, "wait").await;
    let long = "otter ".repeat(50_000);
    say(&run, UserMessage::new(&long)).await;
    lab.gate.open.add_permits(1);
    assert_eq!(outcome(&run).await.text, "Long.");
    assert!(told(&run).await.contains(&format!("user: {long}")));
}
