//! Servers of the handshake that ask a person: the question is durable, and the call waits in the process that has made it.

use crate::asking::{
    accept, answer, asked, calls, calls_with, of_type, open, open_in, outcome, reply, results, start, waits,
};
use crate::questions::{run, run_of};
use crate::worker_process::{self, WorkerProcess};
use crate::{Over, Probe, pipes, servers, wait_for};
use flovyn_core::client::Handle;
use flovyn_core::error::{Code, Result};
use flovyn_core::model::CancelMode;
use flovyn_core::runtime::FlovynClient;
use flovyn_toolkit::fake_llm::FakeLlm;
use flovyn_toolkit::mcp::{InputQuestion, InputRequired, InputResponse};
use flovyn_toolkit::react::{InputReply, InputRequest, USER_MESSAGE, UserMessage};
use flovyn_toolkit::tools::Toolbox;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time-out of the servers of which it is shown that it does not count while a person is asked.
const TIMEOUT: Duration = Duration::from_millis(900);

fn said(branch: &str) -> String {
    format!("{{\"action\":\"accept\",\"content\":{{\"branch\":\"{branch}\"}}}} state: \"1\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_the_same_time_each_get_an_answer() {
    for over in [Over::Pipes, Over::Http] {
        let probe = Probe::with_timeout(over, "handshake", TIMEOUT).await;
        let fake = calls(&["asks", "asks"], "Merged.");
        let flovyn = open("memory:", &probe, &fake).await;
        let _worker = flovyn.worker().await.expect("a worker");
        let run = start(&flovyn, &probe).await;
        let asked = asked(&run, 2).await;
        assert_ne!(asked[0].hash, asked[1].hash, "each question has its own answer");
        // On pipes nothing tells which call asks what, so neither call may run out of time before both have their answers.
        tokio::time::sleep(TIMEOUT * 2).await;
        answer(&run, &reply(&asked[1], accept("two")), None).await;
        tokio::time::sleep(TIMEOUT * 2).await;
        answer(&run, &reply(&asked[0], accept("one")), None).await;
        assert_eq!(outcome(&run).await.text, "Merged.");
        let told = results(&run).await;
        let (first, second) = (&told[&asked[0].id], &told[&asked[1].id]);
        assert_eq!(BTreeSet::from([first, second]), BTreeSet::from([&said("one"), &said("two")]), "{over:?}");
        if over == Over::Http {
            assert_eq!((first, second), (&said("one"), &said("two")), "a question comes in the response to its call");
        }
        assert_eq!((probe.noted("asks"), fake.paid()), (2, 2), "each call went on once");
        flovyn.close().await.expect("it closes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_asks_as_often_as_it_wants_and_its_time_out_begins_anew() {
    for over in [Over::Pipes, Over::Http] {
        let probe = Probe::with_timeout(over, "handshake", TIMEOUT).await;
        let fake = calls_with(&["asks"], &json!({ "times": 2, "ms": 400 }), "Merged.");
        let flovyn = open("memory:", &probe, &fake).await;
        let _worker = flovyn.worker().await.expect("a worker");
        let run = start(&flovyn, &probe).await;
        let first = asked(&run, 1).await.remove(0);
        tokio::time::sleep(TIMEOUT * 3).await;
        answer(&run, &reply(&first, accept("one")), None).await;
        let second = second_question(&run).await;
        assert_ne!(first.hash, second.hash);
        tokio::time::sleep(TIMEOUT * 2).await;
        answer(&run, &reply(&second, InputResponse::Decline), None).await;
        outcome(&run).await;
        let expected = "{\"action\":\"accept\",\"content\":{\"branch\":\"one\"}} {\"action\":\"decline\"} state: \"1\"";
        assert_eq!(results(&run).await[&first.id], expected, "{over:?}");
        assert_eq!(probe.noted("asked"), 1, "{over:?}: it is one call");
        flovyn.close().await.expect("it closes");
    }
}

async fn second_question(run: &Handle) -> InputRequest {
    for _ in 0..6_000 {
        let mut asked: Vec<InputRequest> = of_type(run, "input_request").await;
        if asked.len() == 2 {
            waits(run).await;
            return asked.remove(1);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no second question came")
}

/// The time-out holds once the person has answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_after_the_answer_is_called_off() {
    let probe = Probe::with_timeout(Over::Pipes, "handshake", TIMEOUT).await;
    let outcome = run(&probe, json!({ "ms": 60_000 }), accept("main")).await.expect("a run");
    assert_eq!(outcome.error_code(), Some("timed_out"), "{outcome:?}");
    wait_for("the server to hear of it", || probe.noted("called off") == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_the_server_takes_back_changes_nothing_of_its_result() {
    for over in [Over::Pipes, Over::Http] {
        let probe = Probe::new(over, "handshake").await;
        let fake = calls_with(&["asks"], &json!({ "patience": 50 }), "So be it.");
        let flovyn = open("memory:", &probe, &fake).await;
        let _worker = flovyn.worker().await.expect("a worker");
        let run = start(&flovyn, &probe).await;
        let request = asked(&run, 1).await.remove(0);
        wait_for("the server to lose patience", || probe.noted("asks") == 1);
        answer(&run, &reply(&request, accept("main")), None).await;
        outcome(&run).await;
        let told = &results(&run).await[&request.id];
        assert!(told.starts_with("no answer: ") && told.ends_with("state: \"1\""), "{over:?}: {told}");
        flovyn.close().await.expect("it closes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_speaks_instead_of_answering_calls_the_call_off() {
    for over in [Over::Pipes, Over::Http] {
        let probe = Probe::new(over, "handshake").await;
        let words = [UserMessage::new("Never mind."), UserMessage::interrupt()];
        for (times, message) in words.into_iter().enumerate() {
            let fake = calls(&["asks"], "So be it.");
            let flovyn = open("memory:", &probe, &fake).await;
            let _worker = flovyn.worker().await.expect("a worker");
            let run = start(&flovyn, &probe).await;
            let request = asked(&run, 1).await.remove(0);
            let signal = message.signal(None).expect("a signal");
            run.signal(USER_MESSAGE, signal.payload, signal.delivery, None).await.expect("the run takes it");
            outcome(&run).await;
            assert!(results(&run).await[&request.id].starts_with("Not gone on with"), "the call has its result");
            wait_for("the server to hear of it", || probe.noted("question called off") == times + 1);
            flovyn.close().await.expect("it closes");
        }
        assert_eq!(probe.noted("asks"), 0, "no call went on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_calls_its_call_off() {
    let probe = Probe::new(Over::Pipes, "handshake").await;
    let fake = calls(&["asks"], "So be it.");
    let flovyn = open("memory:", &probe, &fake).await;
    let _worker = flovyn.worker().await.expect("a worker");
    let run = start(&flovyn, &probe).await;
    asked(&run, 1).await;
    run.cancel(CancelMode::Graceful, Duration::from_secs(10)).await.expect("it is asked to stop");
    let error = run.result(Some(Duration::from_secs(30))).await.expect_err("it was cancelled");
    assert_eq!(error.code(), Code::AgentCancelled);
    wait_for("the server to hear of it", || probe.noted("question called off") == 1);
    flovyn.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_do_without_an_answer() {
    let probe = Probe::new(Over::Http, "handshake").await;
    let asks = probe.call("asks", json!({})).await;
    InputRequired::of(&asks).expect("a question").call_off();
    wait_for("the server to hear of it", || probe.noted("question called off") == 1);
}

/// The server is gone when the answer comes: with its connection, or because it has died.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_was_lost_is_told_of_and_the_call_is_not_made_again() {
    let mut probe = Probe::new(Over::Http, "handshake").await;
    for ends in ["closed", "killed"] {
        let fake = calls(&["asks"], "So be it.");
        let flovyn = open("memory:", &probe, &fake).await;
        let _worker = flovyn.worker().await.expect("a worker");
        let run = start(&flovyn, &probe).await;
        let request = asked(&run, 1).await.remove(0);
        match ends {
            "closed" => probe.servers.close().await,
            _ => probe.process.as_mut().expect("a process").kill(),
        }
        let began = Instant::now();
        answer(&run, &reply(&request, accept("main")), None).await;
        outcome(&run).await;
        let told = &results(&run).await[&request.id];
        assert!(told.starts_with("Interrupted after start, outcome unknown"), "{ends}: {told}");
        assert!(began.elapsed() < Duration::from_secs(10), "{ends}: it was waited for");
        flovyn.close().await.expect("it closes");
    }
    assert_eq!((probe.noted("asked"), probe.noted("asks")), (2, 0), "no call was made again, and none went on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_question_of_a_call_that_may_be_repeated_is_asked_again() {
    let probe = Probe::new(Over::Pipes, "handshake").await;
    let fake = calls(&["asks_safely"], "Merged.");
    let flovyn = open("memory:", &probe, &fake).await;
    let _worker = flovyn.worker().await.expect("a worker");
    let run = start(&flovyn, &probe).await;
    let request = asked(&run, 1).await.remove(0);
    probe.servers.close().await;
    answer(&run, &reply(&request, accept("old")), None).await;
    let again = second_question(&run).await;
    answer(&run, &reply(&again, accept("new")), None).await;
    assert_eq!(outcome(&run).await.text, "Merged.");
    assert_eq!(results(&run).await[&request.id], said("new"));
    assert_eq!((probe.noted("asked"), probe.noted("asks")), (2, 1), "it began twice, and went on once");
    flovyn.close().await.expect("it closes");
}

/// Serves runs until it is killed.
async fn work(folder: &Path) -> Result<()> {
    let servers = servers(pipes(folder, "handshake"), Duration::from_secs(20));
    let (toolbox, _) = servers.add_to(Toolbox::new()).await;
    let models_at = fs::read_to_string(folder.join("models")).expect("an address");
    let flovyn = open_in(&url(folder), folder, &toolbox, &servers, &models_at).await;
    let _worker = flovyn.worker().await?;
    std::future::pending().await
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("agents.db").display())
}

#[test]
#[ignore = "the worker process that the other tests start and kill"]
fn worker_process() {
    worker_process::serve(work);
}

/// The process that has made the call is killed with SIGKILL while a person is asked, and another one takes the answer.
async fn killed_while_it_asks(probe: &Probe, fake: &FakeLlm) -> (FlovynClient, Handle, InputRequest) {
    let folder = probe.folder.path();
    fs::write(folder.join("models"), fake.url()).expect("it is written");
    let flovyn = open(&url(folder), probe, fake).await;
    let start_worker = || WorkerProcess::start("elicitation::worker_process", folder);
    let worker = start_worker();
    let run = start(&flovyn, probe).await;
    let request = asked(&run, 1).await.remove(0);
    worker.kill();
    let _worker = start_worker();
    answer(&run, &reply(&request, accept("old")), None).await;
    if request.name.ends_with("safely") {
        let again = second_question(&run).await;
        answer(&run, &reply(&again, accept("new")), None).await;
    }
    outcome(&run).await;
    (flovyn, run, request)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_takes_its_open_questions_with_it() {
    let probe = Probe::new(Over::Pipes, "handshake").await;
    let fake = calls(&["asks"], "So be it.");
    let (_flovyn, run, request) = killed_while_it_asks(&probe, &fake).await;
    let told = &results(&run).await[&request.id];
    assert!(
        told.starts_with("Interrupted after start, outcome unknown") && told.contains("The question is lost"),
        "{told}"
    );
    assert_eq!((probe.noted("asked"), probe.noted("asks"), fake.paid()), (1, 0, 2));
    assert_eq!(of_type::<InputReply>(&run, "input").await.len(), 1, "what the person has said is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_killed_process_that_may_be_repeated_asks_again() {
    let probe = Probe::new(Over::Pipes, "handshake").await;
    let fake = calls(&["asks_safely"], "Merged.");
    let (_flovyn, run, request) = killed_while_it_asks(&probe, &fake).await;
    assert_eq!(results(&run).await[&request.id], said("new"));
    assert_eq!((probe.noted("asked"), probe.noted("asks"), fake.paid()), (2, 1, 2));
}

/// Where nobody can be asked, the outcome says so, as with servers of the stateless protocol.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_cannot_ask_is_told_what_the_server_wanted_to_know() {
    let probe = Probe::new(Over::Pipes, "handshake").await;
    let asks = probe.call("asks", json!({})).await;
    assert_eq!(asks.error_code(), Some("input_required"));
    assert!(asks.plain_text().contains("- Which branch?"), "{asks:?}");
    let required = InputRequired::of(&asks).expect("a question");
    let question = required.questions.values().next().expect("a question");
    assert!(matches!(question, InputQuestion::Form { message, .. } if message == "Which branch?"), "{question:?}");
    assert!(required.open_call.is_some() && required.state.is_none());
    // Other calls of the connection go on meanwhile.
    assert_eq!(probe.call("echo", json!({ "text": "hi" })).await.plain_text(), "hi");
    let outcome = run_of(&probe, "asks", json!({}), InputResponse::Decline).await.expect("a run");
    assert_eq!(outcome.plain_text(), "{\"action\":\"decline\"} state: \"1\"");
    let end = Instant::now();
    probe.servers.close().await;
    assert!(end.elapsed() < Duration::from_secs(20), "a call that waits holds nobody up");
}
