//! `bash` without a sandbox: exit codes, order, streams, limits, and no process left behind.

use crate::Work;
use flovyn_core::error::Code;
use flovyn_core::sync::Mutex;
use flovyn_toolkit::tools::{Bash, Limits, Stream, TerminalEvent, Tool, ToolOutcome};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

async fn run(work: &Work, command: &str) -> ToolOutcome {
    work.call(Bash, json!({ "command": command })).await
}

/// Processes whose command line holds a word.
fn alive(word: &str) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some(format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ")))
    });
    lines.filter(|line| line.contains(word) && !line.contains(&format!("{} ", std::process::id()))).collect()
}

async fn gone(word: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    while !alive(word).is_empty() {
        assert!(Instant::now() < until, "left behind: {:?}", alive(word));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn ends_are_told() {
    let work = Work::new();
    for (command, code, said) in [
        ("echo one; echo two", 0, "one\ntwo\n"),
        ("echo one >&2", 0, "one\n"),
        ("true", 0, "(no output)"),
        ("echo out; exit 3", 3, "out\n\nCommand exited with code 3."),
        ("kill -9 $$", 137, "(no output)\n\nCommand exited with code 137."),
        ("no-such-program", 127, "not found\n\nCommand exited with code 127."),
        ("cat; echo read nothing", 0, "read nothing\n"),
        ("printf '\\033[31mred\\033[0m'", 0, "red"),
        ("printf 'caf\\303\\251 \\377'", 0, "café \u{fffd}"),
        ("pwd -P", 0, work.path().canonicalize().unwrap().to_str().unwrap()),
        ("echo $CI $PAGER $GIT_TERMINAL_PROMPT $TERM", 0, "1 cat 0 dumb\n"),
    ] {
        let outcome = run(&work, command).await;
        let text = outcome.plain_text();
        assert_eq!(
            (outcome.details["exitCode"].as_i64(), outcome.is_error),
            (Some(code), code != 0),
            "{command}: {text}"
        );
        assert!(text.contains(said) && (code != 0 || text.trim_end() == said.trim_end()), "{command}: {text:?}");
        assert_eq!(outcome.details["sandbox"], "off");
    }
}

#[tokio::test]
async fn what_both_streams_print_stays_in_order() {
    let work = Work::new();
    let command = "for i in 1 2 3 4 5 6; do echo o$i; sleep 0.03; echo e$i >&2; sleep 0.03; done";
    let expected: String = (1..=6).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(run(&work, command).await.plain_text(), expected);
}

#[tokio::test]
async fn only_variables_on_the_list_are_inherited() {
    let work = Work::new();
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok(), "cargo sets it for every test");
    let text = run(&work, "env").await.plain_text();
    assert!(!text.contains("CARGO_MANIFEST_DIR") && text.contains("PATH="), "{text}");
    let more = work.environment.clone().with_variable("CARGO_MANIFEST_*");
    let text = Bash.call(json!({ "command": "env" }), &more).await.unwrap().plain_text();
    assert!(text.contains("CARGO_MANIFEST_DIR="), "{text}");
}

#[tokio::test]
async fn wrong_arguments_are_told() {
    let work = Work::new();
    for arguments in [
        json!({ "command": "true", "timeout": 0 }),
        json!({ "command": "true", "timeout": -1 }),
        json!({ "command": "true", "timeout": 601 }),
        json!({ "command": "true", "timeout": "soon" }),
        json!({ "command": "a\u{0}b" }),
        json!({}),
    ] {
        let outcome = work.call(Bash, arguments.clone()).await;
        assert_eq!(outcome.error_code(), Some("invalid_arguments"), "{arguments}: {outcome:?}");
    }
}

#[tokio::test]
async fn output_is_streamed_in_whole_characters_and_not_too_often() {
    let mut work = Work::new();
    let events: Arc<Mutex<Vec<(Instant, TerminalEvent)>>> = Arc::default();
    let into = events.clone();
    work.environment = work.environment.with_terminal(move |event| into.lock().push((Instant::now(), event)));
    // A letter of four bytes comes in two halves, between them the other stream; then many small pieces.
    let command = "printf '\\360\\237'; sleep 0.1; echo e >&2; sleep 0.1; printf '\\246\\246\\n'; \
                   for i in $(seq 100); do echo $i; sleep 0.005; done";
    let outcome = run(&work, command).await;
    let events = std::mem::take(&mut *events.lock());
    let of = |stream| -> String {
        events.iter().filter(|(_, event)| event.stream == stream).map(|(_, event)| event.data.as_str()).collect()
    };
    let numbers: String = (1..=100).map(|number| format!("{number}\n")).collect();
    assert_eq!((of(Stream::Stdout), of(Stream::Stderr)), (format!("🦦\n{numbers}"), "e\n".to_owned()));
    assert!(outcome.plain_text().starts_with("e\n🦦\n1\n"), "{outcome:?}");
    let took = events.last().unwrap().0.duration_since(events[0].0);
    assert!(events.len() >= 6, "streamed while it ran: {} pieces", events.len());
    assert!(events.len() as u128 <= took.as_millis() / 50 + 2, "{} pieces in {took:?}", events.len());
}

#[tokio::test]
async fn of_a_flood_the_first_and_the_last_are_kept() {
    let work = Work::new();
    let outcome = run(&work, "seq 1 2000000").await;
    let text = outcome.plain_text();
    assert!(text.starts_with("1\n2\n3\n") && text.ends_with("\n1999999\n2000000\n"), "{}", &text[text.len() - 200..]);
    assert!(text.len() < 51 * 1024 && text.lines().count() <= 2_001, "{} bytes", text.len());
    assert_eq!((&outcome.details["cut"], outcome.details["bytes"].as_u64()), (&json!(true), Some(14_888_896)));
    let outcome = run(&work, "yes otters | head -c 200000000").await;
    let text = outcome.plain_text();
    assert!(text.starts_with("otters\n") && text.len() < 51 * 1024, "{} bytes", text.len());
    assert_eq!((&outcome.details["cut"], outcome.details["bytes"].as_u64()), (&json!(true), Some(200_000_000)));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_all_it_started() {
    let work = Work::new();
    // A child that ignores the request, and one that leaves the process group.
    let command = "trap '' TERM; echo begun; (sleep 3601 & setsid sleep 3602 & setsid -f sleep 3603; sleep 3604)";
    let started = Instant::now();
    let outcome = work.call(Bash, json!({ "command": command, "timeout": 0.5 })).await;
    let text = outcome.plain_text();
    assert!(outcome.is_error && text.contains("begun") && text.contains("took longer than 0.5 seconds"), "{text}");
    assert_eq!(outcome.details["timedOut"], true);
    let took = started.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(20), "the grace was kept: {took:?}");
    for seconds in 3601..=3604 {
        gone(&format!("sleep {seconds}")).await;
    }
}

#[tokio::test]
async fn a_command_gets_the_chance_to_clean_up() {
    let work = Work::new();
    let command = "trap 'echo cleaned; exit 0' TERM; sleep 3605 & wait";
    let started = Instant::now();
    let outcome = work.call(Bash, json!({ "command": command, "timeout": 0.3 })).await;
    assert!(outcome.plain_text().contains("cleaned") && outcome.is_error, "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    gone("sleep 3605").await;
}

#[tokio::test]
async fn a_background_process_that_holds_the_output_is_reported() {
    let work = Work::new();
    let started = Instant::now();
    let outcome = run(&work, "sleep 27 & echo started").await;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(!outcome.is_error && outcome.details["background"] == true, "{outcome:?}");
    assert!(outcome.plain_text().starts_with("started\n\n[The shell has ended, and a process"), "{outcome:?}");
    // One that does not hold it is nobody's business.
    let outcome = run(&work, "sleep 27 > /dev/null 2>&1 & echo started").await;
    assert_eq!((outcome.plain_text().as_str(), &outcome.details["background"]), ("started\n", &json!(false)));
}

#[tokio::test]
async fn a_stopped_command_is_an_error_of_the_engine() {
    let mut work = Work::new();
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    work.environment = work.environment.with_stop(move || asked.load(Ordering::Relaxed));
    let environment = work.environment.clone();
    let call = tokio::spawn(async move { Bash.call(json!({ "command": "sleep 3606" }), &environment).await });
    while alive("sleep 3606").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Cancelled);
    gone("sleep 3606").await;
}

#[tokio::test]
async fn a_dropped_call_ends_its_command() {
    let work = Work::new();
    let environment = work.environment.clone();
    let call =
        tokio::spawn(
            async move { Bash.call(json!({ "command": "setsid sleep 3607 & sleep 3607" }), &environment).await },
        );
    while alive("sleep 3607").len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    call.abort();
    gone("sleep 3607").await;
}

#[tokio::test]
async fn limits_are_the_environments() {
    let mut work = Work::new();
    assert_eq!(Limits::default().timeout, Duration::from_secs(120));
    assert_eq!(
        (Limits::default().longest, Limits::default().grace),
        (Duration::from_secs(600), Duration::from_secs(2))
    );
    work.environment =
        work.environment.with_limits(Limits { timeout: Duration::from_millis(200), ..Limits::default() });
    let outcome = run(&work, "sleep 3608").await;
    assert!(outcome.plain_text().contains("took longer than 0.2 seconds"), "{outcome:?}");
    gone("sleep 3608").await;
}
