//! Everything a run has, in a form that two backends can be compared by.
//!
//! Words for people (messages of failures that a store makes) are not part of the contract and are left out.

use super::rig::ORG;
use crate::id::ExecutionId;
use crate::model::{
    Checkpoint, Entry, Event, Execution, Failure, Page, PageRequest, RecordedOp, Signal, Task, UsageTotals, Wait,
};
use crate::payload::Payload;
use crate::storage::Storage;
use serde_json::Value;

/// A run with all its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The row, as text.
    pub row: Text,
    /// Its payloads and small parts that compare better than text.
    pub parts: (Payload, Option<Payload>, Option<Failure>, Option<Wait>, UsageTotals),
    /// Ops by segment.
    pub journal: Vec<Vec<RecordedOp>>,
    /// Entries.
    pub entries: Vec<Entry>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// Checkpoints.
    pub checkpoints: Vec<Checkpoint>,
    /// Signals.
    pub signals: Vec<Signal>,
    /// Events.
    pub events: Vec<Event>,
}

/// Text that shows itself line by line.
#[derive(Clone, PartialEq)]
pub struct Text(pub String);

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Snapshot {
    /// Reads a run of a backend.
    pub async fn of(storage: &dyn Storage, id: ExecutionId) -> Self {
        let run = storage.execution(ORG, id).await.expect("the run is there");
        let mut journal = Vec::new();
        for segment in 0..=run.segment {
            journal.push(storage.journal(ORG, id, segment).await.expect("the journal is read"));
        }
        macro_rules! all {
            ($call:ident) => {{
                let mut rows = Vec::new();
                let mut page = PageRequest { limit: 1_000, after: None };
                loop {
                    let got: Page<_> = storage.$call(ORG, id, page.clone()).await.expect("a listing is read");
                    rows.extend(got.items);
                    match got.next {
                        Some(next) => page.after = Some(next),
                        None => break rows,
                    }
                }
            }};
        }
        let (entries, mut tasks, checkpoints, signals) = (all!(entries), all!(tasks), all!(checkpoints), all!(signals));
        for task in &mut tasks {
            quiet(&mut task.failure);
        }
        let mut events = storage.events(ORG, id, 0, 1_000_000).await.expect("events are read");
        for event in &mut events {
            quiet_value(&mut event.data);
        }
        Self { row: row(&run), parts: parts(&run), journal, entries, tasks, checkpoints, signals, events }
    }
}

/// A run's row as text that two backends have in common.
fn row(run: &Execution) -> Text {
    let mut run = run.clone();
    quiet(&mut run.failure);
    // Large payloads are compared by content instead; when a row was last touched is nobody's business.
    run.output = None;
    run.updated_at = Default::default();
    Text(format!("{run:#?}"))
}

fn parts(run: &Execution) -> (Payload, Option<Payload>, Option<Failure>, Option<Wait>, UsageTotals) {
    let mut failure = run.failure.clone();
    quiet(&mut failure);
    (run.new.input.clone(), run.output.clone(), failure, run.wait.clone(), run.usage.clone())
}

/// Leaves out the words of a failure.
fn quiet(failure: &mut Option<Failure>) {
    if let Some(failure) = failure {
        failure.message.clear();
    }
}

fn quiet_value(data: &mut Value) {
    if let Some(message) = data.get_mut("error").and_then(|error| error.get_mut("message")) {
        *message = Value::Null;
    }
}
