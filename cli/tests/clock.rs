//! Schedules, limits of queues and priorities through the command, on a database and through a server.

use flovyn_core::runtime::Runtime;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn flovyn(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flovyn"));
    command.args(args).env("FLOVYN_URL", "sqlite:agents.db").env("TZ", "UTC").current_dir(folder);
    command.output().unwrap()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let Output { status, stdout, stderr } = flovyn(folder, &[args, &["--json"]].concat());
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap()
}

fn text(folder: &Path, args: &[&str]) -> String {
    let Output { status, stdout, stderr } = flovyn(folder, args);
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_and_limits_are_made_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    Runtime::open(&format!("sqlite:{}", folder.join("agents.db").display())).await.unwrap().close().await.unwrap();

    let made = json(
        folder,
        &[
            "schedules",
            "create",
            "digest",
            "0 8 * * MON-FRI",
            "digest",
            "{\"n\": 1}",
            "--timezone",
            "UTC",
            "--priority",
            "-2",
            "--concurrency-key",
            "k",
            "--concurrency-limit",
            "2",
            "--meta",
            "team=otters",
        ],
    );
    assert_eq!(
        (&made["cron"], &made["input"]["n"], &made["priority"], &made["concurrencyLimit"]),
        (&json!("0 8 * * MON-FRI"), &json!(1), &json!(-2), &json!(2))
    );
    assert!(made["nextAt"].as_str().unwrap().contains("T08:00:00"), "{made:#}");
    json(folder, &["schedules", "create", "yearly", "@yearly", "digest"]);
    let listed = json(folder, &["schedules", "list"]);
    assert_eq!(listed["items"][0], made);
    assert_eq!(listed["items"][1]["id"], "yearly");
    let table = text(folder, &["schedules", "list"]);
    assert!(table.contains("0 8 * * MON-FRI") && table.contains("yearly"), "{table}");
    assert!(text(folder, &["schedules", "pause", "digest"]).contains("digest rests"));
    assert!(text(folder, &["schedules", "list"]).contains("paused"));
    let mut resumed = json(folder, &["schedules", "resume", "digest"]);
    assert!(resumed["nextAt"].is_string() && resumed["createdAt"].is_string(), "{resumed:#}");
    (resumed["nextAt"], resumed["createdAt"]) = (made["nextAt"].clone(), made["createdAt"].clone());
    assert_eq!(resumed, made);
    assert_eq!(flovyn(folder, &["schedules", "pause", "unheard"]).status.code(), Some(1));
    assert!(text(folder, &["schedules", "delete", "digest"]).contains("digest is removed"));
    let refused = flovyn(folder, &["schedules", "delete", "digest"]);
    assert_eq!(refused.status.code(), Some(1));
    for (wrong, code) in [
        (vec!["schedules", "create", "x", "at dawn", "digest"], 1),
        (vec!["schedules", "create", "x", "@daily", "digest", "{"], 2),
        (vec!["schedules", "create", "x", "@daily"], 2),
        (vec!["queues", "limit", "crawl", "--rate", "ten"], 2),
        (vec!["runs", "start", "agent", "--concurrency-limit", "2"], 2),
        (vec!["runs", "start", "agent", "--concurrency-key", "k", "--concurrency-limit", "0"], 2),
        (vec!["queues", "limit", "crawl", "--concurrency", "0"], 1),
    ] {
        let refused = flovyn(folder, &wrong);
        assert_eq!(refused.status.code(), Some(code), "{wrong:?}: {}", String::from_utf8_lossy(&refused.stderr));
    }

    let limit = json(folder, &["queues", "limit", "crawl", "--concurrency", "4", "--rate", "60/1m"]);
    assert_eq!(limit, json!({ "queue": "crawl", "concurrency": 4, "rate": { "runs": 60, "seconds": 60.0 } }));
    assert_eq!(json(folder, &["queues", "list"]), json!({ "items": [limit] }));
    assert!(text(folder, &["queues", "list"]).contains("crawl"));
    json(folder, &["queues", "limit", "crawl"]);
    assert_eq!(text(folder, &["queues", "list"]).trim(), "no queue has a limit");

    let run = json(folder, &["runs", "start", "agent", "--priority", "-5", "--concurrency-key", "k"]);
    assert_eq!(run["priority"], -5);
}
