//! Servers that answer a call with a task: it is followed to its end, asks people, and is called off.

use crate::questions::run_of;
use crate::{Over, Probe, wait_for};
use flovyn_core::error::Code;
use flovyn_core::sync::Mutex;
use flovyn_toolkit::mcp::{InputRequired, InputResponse};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_followed_to_its_end() {
    for over in [Over::Pipes, Over::Http] {
        let mut probe = Probe::new(over, "stateless").await;
        let seen = Arc::new(Mutex::new(String::new()));
        let sink = seen.clone();
        probe.environment = probe.environment.with_terminal(move |event| sink.lock().push_str(&event.data));
        let outcome = probe.call("takes_days", json!({})).await;
        assert_eq!((outcome.plain_text().as_str(), outcome.is_error), ("done: 1", false), "{over:?}: {outcome:?}");
        assert_eq!(*seen.lock(), "thinking\n", "{over:?}: what it says is shown once");
        let failed = probe.call("fails_in_days", json!({})).await;
        assert_eq!(failed.error_code(), Some("mcp_error"), "{failed:?}");
        assert!(failed.plain_text().contains("the lake is frozen, [hidden]"), "{failed:?}");
        assert_eq!(probe.noted("takes_days"), 1, "{over:?}: it was begun once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_asks_goes_on_with_the_answer_in_another_process() {
    let probe = Probe::new(Over::Pipes, "stateless").await;
    let outcome = probe.call("asks_in_days", json!({ "id": "first" })).await;
    let required = InputRequired::of(&outcome).unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!((required.task.as_deref(), required.questions.len()), (Some("asks_in_days-first"), 1));
    // The server ends with the connection, and its task does not.
    probe.servers.close().await;
    let accept = InputResponse::Accept { content: Some(json!({ "branch": "main" })) };
    let outcome = run_of(&probe, "asks_in_days", json!({}), accept).await.expect("a run");
    let expected = "done: {\"branch\":{\"action\":\"accept\",\"content\":{\"branch\":\"main\"}}}";
    assert_eq!(outcome.plain_text(), expected, "{outcome:?}");
    assert_eq!(probe.noted("asks_in_days"), 2, "the answer began no other task");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_called_off_with_its_call() {
    let mut probe = Probe::new(Over::Pipes, "stateless").await;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    probe.environment = probe.environment.with_stop(move || asked.load(Ordering::Relaxed));
    // A call that is stopped before its server has answered it knows of no task.
    probe.environment = probe.environment.with_terminal(move |event| {
        stop.store(event.data == "thinking\n", Ordering::Relaxed);
    });
    let ended = probe.toolbox.call("mcp__probe__takes_days", json!({ "id": "forever" }), &probe.environment).await;
    assert_eq!(ended.expect_err("it was stopped").code(), Code::Cancelled);
    wait_for("the server to hear of it", || probe.noted("task called off") == 1);
}
