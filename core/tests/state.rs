//! `derive(AgentState)`: reducers, and a state that grows over the segments of a run.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::{AgentDefinition, AgentState, NativeHost, Reduce};
use flovyn_core::client::StartOptions;
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::error::Result;
use flovyn_core::runtime::Runtime;
use flovyn_core::worker::WorkerOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, AgentState)]
struct Work {
    phase: String,
    #[reducer(replace)]
    file: Option<String>,
    #[reducer(append)]
    notes: Vec<String>,
    #[reducer(append)]
    log: String,
    #[reducer(append)]
    seen: BTreeSet<u32>,
    #[reducer(merge)]
    scores: BTreeMap<String, u32>,
    #[reducer(merge)]
    changes: HashMap<String, String>,
    #[reducer(merge)]
    facts: Value,
    #[reducer(merge)]
    plan: Option<serde_json::Map<String, Value>>,
}

#[test]
fn each_field_joins_by_its_reducer() {
    let mut state = Work { facts: json!({"a": {"x": 1, "y": 1}, "b": 1}), ..Work::default() };
    state.reduce(
        WorkUpdate::new()
            .phase("read")
            .file("a.rs".to_owned())
            .notes(["one".to_owned()])
            .log("1;")
            .seen([1, 2])
            .scores([("a".to_owned(), 1), ("b".to_owned(), 1)]),
    );
    state.reduce(
        WorkUpdate::new()
            .phase("write")
            .notes(["two".to_owned()])
            .notes(["three".to_owned()])
            .log("2;")
            .seen([2, 3])
            .scores([("b".to_owned(), 2)])
            .facts(json!({"a": {"y": 2}, "c": 3})),
    );
    assert_eq!(state.phase, "write");
    assert_eq!(state.file.as_deref(), Some("a.rs"));
    assert_eq!(state.notes, ["one", "two", "three"]);
    assert_eq!(state.log, "1;2;");
    assert_eq!(state.seen, BTreeSet::from([1, 2, 3]));
    assert_eq!(state.scores, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    assert_eq!(state.facts, json!({"a": {"x": 1, "y": 2}, "b": 1, "c": 3}));
}

#[test]
fn an_update_that_names_nothing_changes_nothing() {
    let mut state = Work { phase: "read".into(), notes: vec!["one".into()], ..Work::default() };
    state.reduce(WorkUpdate::default());
    assert_eq!(state, Work { phase: "read".into(), notes: vec!["one".into()], ..Work::default() });
}

#[test]
fn replacing_an_option_can_clear_it() {
    let mut state = Work { file: Some("a.rs".into()), ..Work::default() };
    state.reduce(WorkUpdate { file: Some(None), ..WorkUpdate::new() });
    assert_eq!(state.file, None);
}

struct Worker;

#[async_trait]
impl AgentDefinition for Worker {
    type State = Work;
    type Input = u32;
    type Output = Vec<String>;
    fn kind(&self) -> &str {
        "worker"
    }
    async fn execute(&self, ctx: &dyn AgentContext, turns: u32) -> Result<Vec<String>> {
        let mut state: Work = ctx.state()?;
        while (state.notes.len() as u32) < turns {
            let turn = state.notes.len();
            let note: String = ctx.run("note", async move { Ok(format!("note {turn}")) })?.await?;
            state.reduce(WorkUpdate::new().notes([note]));
            ctx.checkpoint(&state)?.await?;
        }
        Ok(state.notes)
    }
}

#[tokio::test]
async fn a_reduced_state_survives_checkpoints() {
    let runtime = Runtime::open("memory:").await.unwrap();
    let host = NativeHost::default().agent(Worker).unwrap();
    runtime.worker(Arc::new(host), WorkerOptions::default()).await.unwrap();
    let handle = runtime.client().start("worker", Payload::of(&3u32).unwrap(), StartOptions::default()).await.unwrap();
    let output = handle.result(Some(Duration::from_secs(5))).await.unwrap();
    assert_eq!(output.parse::<Vec<String>>().unwrap(), ["note 0", "note 1", "note 2"]);
    let checkpoints = handle.checkpoints(flovyn_core::model::PageRequest::default()).await.unwrap();
    assert_eq!(checkpoints.items.len(), 3);
    runtime.close().await.unwrap();
}
