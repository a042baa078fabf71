//! What the attempt after a death decides, from each record that a death can leave.

use super::*;
use crate::tools::Sandbox;
use serde_json::json;
use std::fs;

struct Left {
    folder: tempfile::TempDir,
    host: ToolHost,
}

impl Left {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        let environment = ToolEnvironment::open(folder.path().join("work")).unwrap().with_sandbox(Sandbox::Off);
        let records = CallRecords::open(folder.path().join("records")).unwrap();
        Self { host: ToolHost::new(environment, records), folder }
    }

    fn settle(&self, tool: &str, record: &CallRecord) -> Option<ToolOutcome> {
        let task = ToolTask::new(&Toolbox::host().unwrap(), tool, &self.host).unwrap();
        task.settle(record, &ToolCallInput::new(json!({}))).unwrap()
    }

    fn record(&self, name: &str) -> CallRecord {
        self.host.0.records.of(name.to_owned())
    }
}

#[test]
fn a_change_of_a_file_is_settled_by_its_hashes() {
    let left = Left::new();
    let (file, record) = (left.folder.path().join("work/f"), left.record("a"));
    let done = ToolOutcome::text("Wrote 5 bytes.");
    let replacing = |before: Option<&str>| Progress::Replacing {
        path: "f".into(),
        before: before.map(|content| hash(content.as_bytes())),
        after: hash(b"after"),
        outcome: done.clone(),
    };
    for (before, now, expected) in [
        (Some("before"), Some("before"), None),
        (Some("before"), Some("after"), Some(None)),
        (Some("before"), Some("other"), Some(Some("changed_meanwhile"))),
        (Some("before"), None, Some(Some("changed_meanwhile"))),
        (None, None, None),
        (None, Some("after"), Some(None)),
        (None, Some("other"), Some(Some("changed_meanwhile"))),
        (Some("after"), Some("after"), Some(None)),
    ] {
        let _ = fs::remove_file(&file);
        if let Some(now) = now {
            fs::write(&file, now).unwrap();
        }
        record.note(&replacing(before)).unwrap();
        let settled = left.settle("edit", &record);
        let found = settled.as_ref().map(ToolOutcome::error_code);
        assert_eq!(found, expected, "{before:?} → {now:?}");
        if expected == Some(None) {
            let outcome = settled.unwrap();
            assert_eq!((outcome.plain_text(), &outcome.details["recovered"]), ("Wrote 5 bytes.".into(), &json!(true)));
        }
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), now, "settling changes nothing");
    }
}

#[test]
fn a_call_without_a_record_had_no_effect_unless_it_may_have_run_elsewhere() {
    let left = Left::new();
    for (tool, expected) in
        [("write", None), ("edit", None), ("run-sandbox", None), ("bash", Some(Some("interrupted")))]
    {
        let settled = left.settle(tool, &left.record("none"));
        assert_eq!(settled.as_ref().map(ToolOutcome::error_code), expected, "{tool}");
    }
}

#[test]
fn a_call_that_ended_has_its_outcome() {
    let left = Left::new();
    let record = left.record("ended");
    for (tool, outcome) in [("bash", ToolOutcome::text("42")), ("write", ToolOutcome::error("stale", "changed"))] {
        record.note(&Progress::Ended { outcome: outcome.clone() }).unwrap();
        let settled = left.settle(tool, &record).unwrap();
        assert_eq!((settled.plain_text(), settled.is_error), (outcome.plain_text(), outcome.is_error));
    }
}

#[test]
fn a_command_that_started_is_reported_with_what_it_printed() {
    let left = Left::new();
    let record = left.record("started");
    record.note(&Progress::Started).unwrap();
    let settled = left.settle("bash", &record).unwrap();
    assert!(settled.plain_text().contains("Nothing that it printed is known"), "{settled:?}");
    fs::write(record.output(), "line\n".repeat(50_000)).unwrap();
    let settled = left.settle("bash", &record).unwrap();
    let text = settled.plain_text();
    assert!(text.starts_with("Interrupted after start, outcome unknown") && text.len() < 52 * 1024, "{}", text.len());
    assert!(text.contains("are left out here"));
    // What another version wrote says at least that the call began.
    fs::write(left.folder.path().join("records/started.json"), "{\"state\":\"unheard of\"}").unwrap();
    assert_eq!(left.settle("bash", &record).unwrap().error_code(), Some("interrupted"));
    record.clear().unwrap();
    record.clear().unwrap();
    assert_eq!((record.load().unwrap(), record.output().exists()), (None, false));
}

#[test]
fn kinds_and_side_effects_are_declared() {
    let left = Left::new();
    let tasks = ToolTask::all(&Toolbox::host().unwrap(), &left.host);
    let found: Vec<_> =
        tasks.iter().map(|task| (TaskDefinition::kind(task), TaskDefinition::options(task).side_effects)).collect();
    let (again, settled) = (SideEffects::Idempotent, SideEffects::Reconcile);
    let expected = [
        ("tool.bash", settled),
        ("tool.bash-output", again),
        ("tool.bash-stop", again),
        ("tool.edit", settled),
        ("tool.fetch", again),
        ("tool.find", again),
        ("tool.grep", again),
        ("tool.read", again),
        ("tool.run-sandbox", again),
        ("tool.todo", again),
        ("tool.write", settled),
    ];
    assert_eq!(found, expected);
}
