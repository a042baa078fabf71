//! The agents of the examples survive what they promise to: re-entry at every wait and a crash at every commit.

use flovyn_core::Payload;
use flovyn_core::agent::NativeHost;
use flovyn_core::client::Handle;
use flovyn_core::error::Result;
use flovyn_core::model::{Delivery, Status};
use flovyn_core::testing::{Harness, Observed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

macro_rules! example {
    ($name:ident, $path:literal) => {
        #[allow(dead_code)]
        #[path = $path]
        mod $name;
    };
}

example!(hello, "../01-hello/rust/hello.rs");
example!(tools, "../02-tools-with-retries/rust/tools.rs");
example!(approval, "../03-human-approval/rust/approval.rs");
example!(streaming, "../04-streaming/rust/streaming.rs");
example!(branching, "../05-branching-conversation/rust/branching.rs");
example!(crash, "../06-crash-and-resume/rust/crash.rs");
example!(relay, "../07-three-languages/rust/worker.rs");

fn input(value: impl Serialize) -> Payload {
    Payload::of(&value).expect("an input")
}

/// Proves an agent; its result and what the undisturbed run left.
async fn holds<T: DeserializeOwned + Debug>(harness: Harness) -> (T, Observed) {
    let proof = harness.check().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(proof.crashes as u64 >= proof.commits && proof.commits > 0, "{proof:#?}");
    let observed = proof.observed.expect("what the undisturbed run left");
    let output = observed.outcome.strip_prefix("completed with ").expect("it completes");
    (Payload::json(output.to_owned()).parse().expect("its output"), observed)
}

/// Waits until the run waits for a signal, then sends it, once however often.
async fn answer(handle: &Handle, name: &str, value: &str) {
    loop {
        let run = handle.describe().await.expect("the run is there");
        let waits = run.wait.is_some_and(|wait| wait.signals.iter().any(|signal| signal == name));
        if run.status == Status::Waiting && waits {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let sent = handle.signal(name, input(value), Delivery::default(), Some(value.to_owned())).await;
    sent.expect("a waiting run takes its signal");
}

fn host(made: Result<NativeHost>) -> NativeHost {
    made.expect("every kind once")
}

#[tokio::test(start_paused = true)]
async fn hello_holds() {
    use hello::Hello;
    let served = || host(NativeHost::default().agent(Hello));
    let (greeting, observed) = holds::<String>(Harness::new("hello", input("world"), served)).await;
    assert_eq!((greeting.as_str(), observed.entries.len()), ("Hello, world!", 2));
}

#[tokio::test(start_paused = true)]
async fn tools_with_retries_hold() {
    use tools::Toolbox;
    let served = || host(NativeHost::default().agent(Toolbox));
    let harness = Harness::new("toolbox", input(()), served).concurrent().by_attempt();
    let ((squares, errors), _) = holds::<(Vec<u64>, Vec<String>)>(harness).await;
    assert_eq!((squares, errors.len()), (vec![0, 1, 4], 2));
}

#[tokio::test(start_paused = true)]
async fn human_approval_holds() {
    use approval::Mailer;
    for (word, expected) in [("yes", "sent: Dear all, it is green."), ("no", "not sent")] {
        let served = || host(NativeHost::default().agent(Mailer));
        let harness = Harness::new("mailer", input("it is green"), served)
            .outside(move |handle| async move { answer(&handle, "approval", word).await });
        assert_eq!(holds::<String>(harness).await.0, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_holds() {
    use streaming::{Speaker, WORDS};
    let served = || host(NativeHost::default().agent(Speaker));
    let (said, observed) = holds::<String>(Harness::new("speaker", input(()), served)).await;
    assert_eq!((said.as_str(), observed.entries.len()), (WORDS, 1));
}

#[tokio::test(start_paused = true)]
async fn branching_conversation_holds() {
    use branching::Chat;
    let served = || host(NativeHost::default().agent(Chat));
    let harness = Harness::new("chat", input(2), served).outside(|handle| async move {
        answer(&handle, "userMessage", "trees").await;
        answer(&handle, "userMessage", "oaks").await;
    });
    let (said, _) = holds::<Vec<String>>(harness).await;
    assert_eq!(said, ["trees", "About trees: it depends.", "oaks", "About oaks: it depends."]);
}

#[tokio::test(start_paused = true)]
async fn crash_and_resume_holds() {
    use crash::Counter;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("count.log").display().to_string();
    let served = || host(NativeHost::default().agent(Counter));
    let (total, _) = holds::<u32>(Harness::new("counter", input(&log), served)).await;
    assert_eq!(total, (0..20).sum::<u32>());
}

#[tokio::test(start_paused = true)]
async fn three_languages_hold() {
    use relay::Relay;
    let served = || host(NativeHost::default().agent(Relay));
    let (ran, _) = holds::<Vec<(u32, String)>>(Harness::new("relay", input(2), served)).await;
    assert_eq!(ran, [(0, "Rust".to_owned()), (1, "Rust".to_owned())]);
}
