//! Outages: waited for by the run, for hours and without a process, then paused.

use super::worker_process::{self, WorkerProcess};
use super::*;
use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::clock::{Clock, ManualClock, Timestamp};
use flovyn_core::model::{ResumeRequest, WaitReason};
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::memory::MemoryStorage;
use flovyn_core::worker::WorkerOptions;
use flovyn_toolkit::fake_llm::{Fault, FaultKind, When};
use flovyn_toolkit::provider::Timeouts;
use flovyn_toolkit::react::{AfterOutage, KIND, ModelChoice, RetryConfig};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn status(code: u16, retry_after: Option<f64>) -> FaultKind {
    FaultKind::Status { code, retry_after, message: None }
}

fn failing(turn: Turn, kind: FaultKind, times: u32) -> Turn {
    Turn { faults: vec![Fault { kind, times }], ..turn }
}

fn waiting(input: AgentInput, max_wait: Duration, then: AfterOutage) -> AgentInput {
    let mut input = input;
    input.config.retry = RetryConfig { max_wait, then };
    input
}

pub(super) async fn paused(run: &Handle) {
    let pausing = async {
        loop {
            let now = run.describe().await.expect("the run");
            assert!(!now.status.is_terminal(), "{:?}", now.failure);
            if now.status == Status::Paused {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let now = tokio::time::timeout(PATIENCE, pausing).await.expect("it pauses");
    assert_eq!(now.wait.and_then(|wait| wait.reason), Some(WaitReason::Error));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_waited_for_and_readers_see_until_when() {
    for code in [429, 500, 529] {
        let lab = Lab::new([failing(Turn::text("Here."), status(code, None), 2)]).await;
        let (outcome, run) = lab.ends(&ask("Hi")).await;
        assert_eq!((outcome.text.as_str(), lab.fake.requests().len(), lab.fake.paid()), ("Here.", 3, 1), "{code}");
        let shown = shown(run).await;
        let retrying = of_kind(&shown, "retrying");
        assert_eq!(retrying.iter().map(|event| event["attempt"].clone()).collect::<Vec<_>>(), [2, 3], "{code}");
        for event in retrying {
            let until: Timestamp = event["until"].as_str().expect("a text").parse().expect("a time");
            assert!(until.0 > 0);
        }
        assert_eq!(outcome.usage.0["fake/m"].calls, 1, "what was refused was not paid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_waited_long_enough_pauses_and_resumed_makes_its_last_call_again() {
    for (kind, max_wait) in [(status(529, None), 600), (status(429, Some(3_600.0)), 200), (status(503, None), 0)] {
        let first = Turn::call("note", json!({"text": "a"}));
        let lab = Lab::new([first, failing(Turn::text("Here."), kind.clone(), 3)]).await;
        let input = waiting(ask("Hi"), Duration::from_millis(max_wait), AfterOutage::Pause);
        let run = lab.start(&input).await;
        paused(&run).await;
        let failure = run.describe().await.expect("the run").failure.expect("why").message;
        assert!(failure.contains("resume it") && failure.contains("played by the script"), "{failure}");
        let mut asked = lab.fake.requests().len();
        assert_eq!(lab.fake.paid(), 1);
        while asked < 4 {
            run.resume(ResumeRequest::default()).await.expect("it goes on");
            lab.asked(asked + 1).await;
            asked += 1;
            paused(&run).await;
        }
        run.resume(ResumeRequest::default()).await.expect("it goes on");
        let outcome = outcome(&run).await;
        assert_eq!((outcome.text.as_str(), lab.fake.requests().len(), lab.fake.paid()), ("Here.", 5, 2), "{kind:?}");
        assert_eq!(told(&run).await.iter().filter(|line| line.contains("= noted a")).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_fail_instead_and_a_chat_says_why() {
    let turn = || failing(Turn::text("Here."), status(529, None), 99);
    let lab = Lab::new([turn()]).await;
    let run = lab.start(&waiting(ask("Hi"), Duration::from_millis(100), AfterOutage::Fail)).await;
    let error = run.result(Some(PATIENCE)).await.expect_err("it fails");
    assert!(error.message().contains("unavailable: no model answered"), "{error}");

    let lab = Lab::new([turn()]).await;
    let run = lab.start(&waiting(ask("Hi").chat(), Duration::from_millis(100), AfterOutage::Pause)).await;
    waits_for(&run, USER_MESSAGE).await;
    let asked = lab.fake.requests().len();
    say(&run, UserMessage::new("And now?")).await;
    lab.asked(asked + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waiting_cannot_heal_ends_at_once_with_the_providers_words() {
    for code in [400, 401, 403, 404] {
        let lab = Lab::new([failing(Turn::text("never"), status(code, None), 99)]).await;
        let run = lab.start(&ask("Hi")).await;
        let error = run.result(Some(PATIENCE)).await.expect_err("it fails");
        assert!(error.message().contains("played by the script"), "{error}");
        assert_eq!(lab.fake.requests().len(), 1, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_models_are_asked_before_a_long_wait() {
    let broken = When { model: Some("m".into()), ..When::default() };
    let turn = failing(Turn::text("never").when(broken), status(429, Some(3_600.0)), 99);
    let lab = Lab::new([turn, Turn::text("From elsewhere.")]).await;
    let mut input = ask("Hi");
    input.config.fallback = vec![ModelChoice::parse("other/m2")];
    let (outcome, _) = lab.ends(&input).await;
    assert_eq!((outcome.text.as_str(), outcome.model.to_string().as_str()), ("From elsewhere.", "other/m2"));
    assert_eq!(lab.fake.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_an_outage_too() {
    let lab = Lab::new([Turn::text("never")]).await;
    let gone = {
        let fake = FakeLlm::start(Script::default()).expect("a server");
        fake.url()
    };
    let mut models = Registry::new();
    models.add(Api::AnthropicMessages, Endpoint::new("gone", gone)).expect("an address");
    let flovyn = FlovynClient::builder()
        .storage("memory:")
        .agent(lab.agent.clone())
        .task(LlmGenerate::new(models))
        .build()
        .await
        .expect("a backend");
    let _worker = flovyn.worker().await.expect("a worker");
    let input = waiting(AgentInput::new("gone/m", "Hi"), Duration::from_millis(50), AfterOutage::Pause);
    let run = flovyn.start(&lab.agent, &input, StartOptions::default()).await.expect("it starts");
    paused(&run).await;
}

/// A backend on a clock that is moved by hand. Its workers keep no waiting run in memory.
fn driven(generate: LlmGenerate) -> (ManualClock, Runtime, Arc<NativeHost>) {
    let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
    let runtime = Runtime::over(Arc::new(MemoryStorage::new(Arc::new(clock.clone()))));
    let host = NativeHost::default().agent(agent()).and_then(|host| host.task(generate)?.task(Note));
    (clock, runtime, Arc::new(host.expect("every kind once")))
}

/// What a server does with its first connections.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BadServer {
    /// It takes the request and says nothing.
    Silent,
    /// It closes in the middle of the response's head.
    CutHead,
}

/// The address of a server that fails so many connections and then passes everything on. The counter has all of
/// them.
async fn bad_server(kind: BadServer, times: usize, working: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (working, count) = (working.trim_start_matches("http://").to_owned(), Arc::new(AtomicUsize::new(0)));
    let connections = count.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let number = connections.fetch_add(1, Ordering::SeqCst);
            let working = working.clone();
            tokio::spawn(async move {
                if number >= times {
                    let mut to = TcpStream::connect(working).await?;
                    return tokio::io::copy_bidirectional(&mut connection, &mut to).await.map(drop);
                }
                let mut request = [0; 64 * 1024];
                let _ = connection.read(&mut request).await?;
                if kind == BadServer::CutHead {
                    return connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/ev").await;
                }
                // Until the client leaves.
                while connection.read(&mut request).await? > 0 {}
                Ok(())
            });
        }
    });
    (url, count)
}

fn impatient(url: &str) -> LlmGenerate {
    let timeouts = Timeouts { response: Duration::from_millis(100), idle: Duration::from_secs(30) };
    let mut models = Registry::new();
    models.add(Api::AnthropicMessages, Endpoint::new("fake", url).timeouts(timeouts)).expect("an address");
    LlmGenerate::new(models).with_policy(RetryPolicy::never())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_or_breaks_off_is_waited_for_by_the_store_alone() {
    for kind in [BadServer::Silent, BadServer::CutHead] {
        let fake = FakeLlm::start(Script::new([Turn::text("Here.")])).expect("a server");
        let (url, connections) = bad_server(kind, 8, &fake.url()).await;
        let (clock, runtime, host) = driven(impatient(&url));
        let run = runtime.client().start(KIND, Payload::of(&ask("Hi")).expect("JSON"), StartOptions::default()).await;
        let run = run.expect("it starts");
        let mut worker = forgetful(&runtime, &host).await;
        for round in 1..=8 {
            waits_for(&run, USER_MESSAGE).await;
            assert_eq!(connections.load(Ordering::SeqCst), round, "{kind:?}: one connection a round");
            if round == 4 {
                worker.kill_noticed().await.expect("it is noticed");
                worker = forgetful(&runtime, &host).await;
            }
            clock.advance(Duration::from_secs(300));
            let tried = async {
                while connections.load(Ordering::SeqCst) == round {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(PATIENCE, tried).await.expect("it is asked again");
        }
        assert_eq!((outcome(&run).await.text.as_str(), fake.paid()), ("Here.", 1), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_nobody_knows_is_an_outage_too() {
    let (clock, runtime, host) = driven(impatient("http://no-such-host.invalid"));
    let input = waiting(ask("Hi"), Duration::from_secs(3_600), AfterOutage::Pause);
    let run = runtime.client().start(KIND, Payload::of(&input).expect("JSON"), StartOptions::default()).await;
    let run = run.expect("it starts");
    let _worker = forgetful(&runtime, &host).await;
    waits_for(&run, USER_MESSAGE).await;
    loop {
        let now = run.describe().await.expect("the run");
        assert!(!now.status.is_terminal(), "{:?}", now.failure);
        match now.status {
            Status::Waiting => clock.advance(Duration::from_secs(300)),
            Status::Paused => break,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    let failure = run.describe().await.expect("the run").failure.expect("why").message;
    assert!(failure.contains("resume it") && failure.contains("no-such-host.invalid"), "{failure}");
}

async fn forgetful(runtime: &Runtime, host: &Arc<NativeHost>) -> Worker {
    let options = WorkerOptions { max_parked: 0, ..WorkerOptions::default() };
    runtime.worker(host.clone(), options).await.expect("a worker")
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_of_outage_are_waited_for_by_the_store_alone() {
    let fake = FakeLlm::start(Script::new([failing(Turn::text("Here."), status(529, None), 60)])).expect("a server");
    let (clock, runtime, host) = driven(generate(&fake));
    let began = clock.now();
    let run = runtime.client().start(KIND, Payload::of(&ask("Hi")).expect("JSON"), StartOptions::default()).await;
    let run = run.expect("it starts");
    let mut worker = forgetful(&runtime, &host).await;
    let mut rounds = 0;
    while fake.requests().len() < 61 {
        let asked = fake.requests().len();
        waits_for(&run, USER_MESSAGE).await;
        // In the middle of a wait the process is killed, and another one comes.
        if rounds % 20 == 10 {
            worker.kill_noticed().await.expect("it is noticed");
            worker = forgetful(&runtime, &host).await;
        }
        clock.advance(Duration::from_secs(300));
        fake.wait_until(PATIENCE, |requests| requests.len() > asked).await.expect("it is asked again");
        rounds += 1;
    }
    assert_eq!((outcome(&run).await.text.as_str(), fake.paid(), fake.requests().len()), ("Here.", 1, 61));
    assert!(clock.now().since(began) > Duration::from_secs(3 * 3_600));
}

#[tokio::test(flavor = "multi_thread")]
async fn six_hours_are_enough() {
    let fake = FakeLlm::start(Script::new([failing(Turn::text("Here."), status(529, None), 999)])).expect("a server");
    let (clock, runtime, host) = driven(generate(&fake));
    let run = runtime.client().start(KIND, Payload::of(&ask("Hi")).expect("JSON"), StartOptions::default()).await;
    let run = run.expect("it starts");
    let _worker = forgetful(&runtime, &host).await;
    loop {
        let now = run.describe().await.expect("the run");
        match now.status {
            Status::Waiting => clock.advance(Duration::from_secs(300)),
            Status::Paused => break,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    paused(&run).await;
    assert!((70..150).contains(&fake.requests().len()), "{} requests", fake.requests().len());
}

/// The worker process of the test below.
#[test]
#[ignore = "the test below starts it"]
fn worker() {
    worker_process::serve(async |folder| {
        let url = std::fs::read_to_string(folder.join("url")).expect("an address");
        let mut models = Registry::new();
        models.add(Api::AnthropicMessages, Endpoint::new("fake", url)).expect("an address");
        let flovyn = FlovynClient::builder()
            .storage(format!("sqlite:{}", folder.join("agents.db").display()))
            .agent(agent())
            .task(LlmGenerate::new(models))
            .task(Note)
            .build()
            .await?;
        let _worker = flovyn.worker().await?;
        let run = flovyn.start(&agent(), &ask("Hi"), StartOptions::with_id("run")).await?;
        let outcome: RunOutcome = run.result(Some(PATIENCE)).await?.parse()?;
        flovyn.close().await?;
        Ok(outcome.text)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_in_the_middle_of_a_wait_the_next_process_waits_on() {
    let turns = [Turn::call("note", json!({"text": "a"})), failing(Turn::text("Here."), status(429, Some(2.0)), 1)];
    let fake = FakeLlm::start(Script::new(turns)).expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("url"), fake.url()).expect("it is written");
    let first = WorkerProcess::start("outages::worker", folder.path());
    fake.wait_until(PATIENCE, |requests| requests.len() == 2).await.expect("it is asked");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let reader = FlovynClient::builder().storage(url).build().await.expect("a backend");
    let run = reader.start(&agent(), &ask("Hi"), StartOptions::with_id("run")).await.expect("the run");
    waits_for(&run, USER_MESSAGE).await;
    first.kill();
    let second = WorkerProcess::start("outages::worker", folder.path());
    let text: String = tokio::task::spawn_blocking(move || second.result()).await.expect("it ends");
    assert_eq!((text.as_str(), fake.requests().len(), fake.paid()), ("Here.", 3, 2));
}
