//! How calls end early: servers that die, connections that are cut, time that runs out, people who stop.

use crate::{HttpServer, Over, Probe, server, wait_for};
use flovyn_core::error::Code;
use flovyn_core::sync::Mutex;
use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_a_call_is_started_again_and_the_call_is_not() {
    for era in ["stateless", "handshake"] {
        let probe = Probe::new(Over::Pipes, era).await;
        let outcome = probe.call("dies", json!({})).await;
        assert_eq!(outcome.error_code(), Some("interrupted"), "{era}: {outcome:?}");
        let text = outcome.plain_text();
        assert!(text.starts_with("Interrupted after start, outcome unknown") && text.contains("out of luck"), "{text}");
        assert!(!text.contains(server::KEY) && text.contains("[hidden]"), "{text}");
        assert_eq!(probe.noted("dies"), 1, "{era}: it was sent once");
        assert_eq!(probe.call("echo", json!({ "text": "back" })).await.plain_text(), "back", "{era}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_be_repeated_is_sent_to_the_server_that_comes_after() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    let outcome = probe.call("dies_twice", json!({})).await;
    assert_eq!((outcome.plain_text().as_str(), outcome.is_error), ("done 3", false), "{outcome:?}");
    assert_eq!(probe.noted("dies_twice"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_too_a_lost_call_is_reported_or_repeated_as_its_server_says() {
    for era in ["stateless", "handshake"] {
        let mut probe = Probe::new(Over::Http, era).await;
        let port = probe.process.as_ref().expect("a process").port();
        let outcome = probe.call("dies", json!({})).await;
        assert_eq!(outcome.error_code(), Some("interrupted"), "{era}: {outcome:?}");
        assert_eq!(probe.noted("dies"), 1, "{era}");
        let down = probe.call("once", json!({})).await;
        assert_eq!(down.error_code(), Some("unavailable"), "{era}: nobody is there: {down:?}");
        assert!(down.plain_text().contains("the call was not made"), "{down:?}");
        let folder = probe.folder.path().to_owned();
        let started = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            HttpServer::start(&folder, era, port)
        });
        let outcome = probe.call("once", json!({})).await;
        probe.process = Some(started.join().expect("it is started"));
        assert_eq!(outcome.plain_text(), "done 1", "{era}: a server that comes back soon is waited for: {outcome:?}");
        // Killed from outside while a call that may be repeated runs; the next process answers it.
        let slow = probe.noted("slow");
        let mut first = probe.process.take().expect("a process");
        let folder = probe.folder.path().to_owned();
        let restarted = std::thread::spawn(move || {
            wait_for("the call", || server::noted(&folder, "slow") > slow);
            first.kill();
            HttpServer::start(&folder, era, port)
        });
        let outcome = probe.call("slow", json!({ "steps": 2, "ms": 400 })).await;
        probe.process = Some(restarted.join().expect("it is started"));
        assert_eq!(outcome.plain_text(), "slept", "{era}: {outcome:?}");
        assert_eq!(probe.noted("slow"), slow + 2, "{era}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_streamed_and_buys_time() {
    for (over, era) in
        [(Over::Pipes, "stateless"), (Over::Pipes, "handshake"), (Over::Http, "stateless"), (Over::Http, "handshake")]
    {
        let mut probe = Probe::with_timeout(over, era, Duration::from_millis(600)).await;
        let seen = Arc::new(Mutex::new(String::new()));
        let sink = seen.clone();
        probe.environment = probe.environment.with_terminal(move |event| sink.lock().push_str(&event.data));
        let outcome = probe.call("slow", json!({ "steps": 8, "ms": 150 })).await;
        assert_eq!(outcome.plain_text(), "slept", "{over:?} {era}: longer than the timeout: {outcome:?}");
        let expected: String = (1..=8).map(|step| format!("[{step}/8] step {step}\n")).collect();
        assert_eq!(*seen.lock(), expected, "{over:?} {era}");
        let silent = probe.call("slow", json!({ "steps": 1, "ms": 20_000 })).await;
        assert_eq!(silent.error_code(), Some("timed_out"), "{over:?} {era}: {silent:?}");
        wait_for("the server to hear of it", || probe.noted("called off") == 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_stopped_is_called_off_at_its_server() {
    for (over, era) in [(Over::Pipes, "stateless"), (Over::Http, "stateless"), (Over::Http, "handshake")] {
        let mut probe = Probe::new(over, era).await;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        probe.environment = probe.environment.with_stop(move || asked.load(Ordering::Relaxed));
        let folder = probe.folder.path().to_owned();
        std::thread::spawn(move || {
            wait_for("the call", || server::noted(&folder, "slow") == 1);
            stop.store(true, Ordering::Relaxed);
        });
        let began = Instant::now();
        let ended =
            probe.toolbox.call("mcp__probe__slow", json!({ "steps": 1, "ms": 20_000 }), &probe.environment).await;
        assert_eq!(ended.expect_err("it was stopped").code(), Code::Cancelled, "{over:?} {era}");
        assert!(began.elapsed() < Duration::from_secs(10), "{over:?} {era}");
        wait_for("the server to hear of it", || probe.noted("called off") == 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_its_connection() {
    let is_there = |id: &str| test_kill_process(Pid::from_raw(id.parse().expect("an id")).expect("an id")).is_ok();
    for is_dropped in [true, false] {
        let probe = Probe::new(Over::Pipes, "stateless").await;
        let ids = probe.call("leaves_a_child", json!({})).await.plain_text();
        let ids: Vec<_> = ids.split(' ').map(str::to_owned).collect();
        assert!(ids.len() == 2 && ids.iter().all(|id| is_there(id)), "{ids:?}");
        if is_dropped {
            drop(probe);
        } else {
            probe.servers.close().await;
            assert_eq!(probe.call("echo", json!({ "text": "anew" })).await.plain_text(), "anew");
        }
        wait_for("the end of the server and of what it started", || !ids.iter().any(|id| is_there(id)));
    }
}
