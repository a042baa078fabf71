//! What a long run stores.

use super::*;
use flovyn_core::model::PageRequest;

const PAGE: PageRequest = PageRequest { limit: 1_000, after: None };

/// Bytes of all that a run of so many turns has stored: entries, tasks with their arguments and results, checkpoints.
async fn stored(turns: u32) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("agents.db").display());
    let call = Turn { text: Some("{{pad:1000}}".into()), ..Turn::call("note", json!({"text": "{{pad:1000}}"})) };
    let script = Script::new([call.times(turns - 1), Turn::text("Done.")]);
    let lab = Lab::of(&url, script, agent()).await;
    let mut input = ask("Go on.");
    input.config.max_turns = turns;
    let (outcome, run) = lab.ends(&input).await;
    assert_eq!(outcome.turns, turns);
    let entries = run.entries(PAGE).await.expect("the entries").items;
    let tasks = run.tasks(PAGE).await.expect("the tasks").items;
    let checkpoints = run.checkpoints(PAGE).await.expect("the checkpoints").items;
    assert_eq!((tasks.len(), checkpoints.len()), (2 * turns as usize, turns as usize - 1), "all fit on one page");
    let entries = entries.iter().map(|entry| entry.new.content.size());
    let outputs = tasks.iter().filter_map(|task| task.output.as_ref()).map(|output| output.size());
    let inputs = tasks.iter().map(|task| task.new.input.size());
    let states = checkpoints.iter().map(|checkpoint| checkpoint.saved.state.size());
    entries.chain(outputs).chain(inputs).chain(states).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_turn_stores_as_much_as_the_first() {
    let (few, many) = (stored(50).await, stored(100).await);
    let (early, late) = (few / 50, (many - few) / 50);
    // A turn says 1,000 characters, calls with 1,000 and is told 1,000: twice each, as the result of a task and as an entry.
    assert!(late < 12_000, "{late} bytes a turn");
    assert!(late.abs_diff(early) < early / 20, "{early} bytes a turn at first, {late} later");
}
