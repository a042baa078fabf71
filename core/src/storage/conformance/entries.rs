//! The conversation tree: shape, threads, branches across forks.

use super::Factory;
use super::rig::{ORG, Rig, ended, entry_id, json, refused};
use crate::error::Code;
use crate::id::{EntryId, ExecutionId};
use crate::model::{AttemptResult, BatchEnd, EventKind, ForkFrom, ForkRequest, OpBody, PageRequest, TaskOptions};
use crate::payload::{Encoding, Payload};

/// Entries hang below their parents; depth counts from the root; all fields are kept.
pub async fn a_tree_has_its_shape(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let root = holder.entry("root");
    let left = holder.entry("left");
    let mut right = holder.entry_of("", entry_id(&root), json(&"right"));
    if let OpBody::Entry(entry) = &mut right.body {
        entry.role = "assistant".into();
        entry.entry_type = "note".into();
        entry.turn_id = Some("t1".into());
        entry.metadata = Some(r#"{"a":1}"#.into());
    }
    let ops = vec![root, left, right];
    let asked: Vec<_> = ops.iter().map(|op| op.body.clone()).collect();
    holder.commit(ops).await;
    let entries = rig.storage.entries(ORG, holder.id, PageRequest::default()).await.unwrap().items;
    assert_eq!(entries.len(), 3);
    for (n, (entry, asked)) in entries.iter().zip(&asked).enumerate() {
        assert!(matches!(asked, OpBody::Entry(new) if *new == entry.new));
        assert_eq!((entry.execution, entry.slot), (holder.id, holder.slot(n as u32)));
        assert_eq!((entry.depth, entry.created_at), (u32::from(n > 0), rig.now()));
        assert_eq!(rig.storage.entry(ORG, entry.new.id).await.unwrap(), *entry);
    }
    // The main thread's leaf is the last one appended to it.
    assert_eq!(rig.execution(holder.id).await.leaf, Some(entries[2].new.id));
    let branch = rig.storage.branch(ORG, entries[2].new.id, None).await.unwrap();
    assert_eq!(branch, [entries[0].clone(), entries[2].clone()]);
    let told: Vec<_> = rig.events(holder.id).await.into_iter().filter(|event| event.kind == EventKind::Entry).collect();
    assert_eq!(told.len(), 3);
    let id = entries[2].new.id.to_string();
    let metadata = serde_json::json!({ "a": 1 });
    let expected = serde_json::json!({ "entry": id, "role": "assistant", "entry_type": "note", "metadata": metadata });
    assert_eq!((&told[0].data.get("metadata"), &told[2].data), (&None, &expected));
    assert_eq!(told[2].sequence, Some(2));
}

/// Other threads have leaves of their own.
pub async fn threads_do_not_move_the_main_leaf(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let main = holder.entry("main");
    let side = holder.entry_of("side", entry_id(&main), json(&"side"));
    let more = holder.entry_of("side", entry_id(&side), json(&"more"));
    let (main_id, more_id) = (entry_id(&main), entry_id(&more).unwrap());
    holder.commit(vec![main, side, more]).await;
    assert_eq!(rig.execution(holder.id).await.leaf, main_id);
    let branch = rig.storage.branch(ORG, more_id, None).await.unwrap();
    assert_eq!(branch.iter().map(|entry| entry.depth).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(branch.iter().map(|entry| entry.new.thread.as_str()).collect::<Vec<_>>(), ["", "side", "side"]);
}

/// A branch goes from the root to the leaf through every fork it passes.
pub async fn a_branch_crosses_forks(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("1"), holder.entry("2")];
    holder.commit(ops).await;
    let mut id = holder.id;
    for n in 3..6 {
        let fork = ForkRequest {
            org: ORG,
            execution: id,
            id: ExecutionId(rig.uuid()),
            key: None,
            from: ForkFrom::Latest,
            state: None,
            input: None,
        };
        let run = rig.storage.fork(fork).await.unwrap();
        id = run.new.id;
        let mut holder = rig.claim(id).await;
        holder.next = n * 10;
        let op = holder.entry(&n.to_string());
        holder.commit(vec![op]).await;
    }
    let leaf = rig.execution(id).await.leaf.unwrap();
    let branch = rig.storage.branch(ORG, leaf, None).await.unwrap();
    let said: Vec<_> = branch.iter().map(|entry| entry.new.content.parse::<String>().unwrap()).collect();
    assert_eq!(said, ["1", "2", "3", "4", "5"]);
    assert_eq!(branch.iter().map(|entry| entry.depth).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(branch[0].execution, holder.id);
    assert_eq!(branch[4].execution, id);
    assert_eq!(rig.storage.entries(ORG, id, PageRequest::default()).await.unwrap().items.len(), 1);
}

/// An unknown leaf is not found.
pub async fn an_unknown_leaf_is_not_found(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let leaf = EntryId(rig.uuid());
    assert_eq!(refused(rig.storage.branch(ORG, leaf, None).await), Code::NotFound);
    assert_eq!(refused(rig.storage.entry(ORG, leaf).await), Code::NotFound);
    let mut holder = rig.running().await;
    let op = holder.entry("a");
    holder.commit(vec![op]).await;
    let stranger = crate::id::OrgId(rig.uuid());
    let leaf = holder.leaf.unwrap();
    assert_eq!(refused(rig.storage.branch(stranger, leaf, None).await), Code::NotFound);
    assert_eq!(refused(rig.storage.entry(stranger, leaf).await), Code::NotFound);
}

/// A long conversation is read back whole and in order.
pub async fn a_long_branch_is_whole(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    for batch in 0..10 {
        let ops = (0..50).map(|n| holder.entry(&format!("{}", batch * 50 + n))).collect();
        holder.checkpoint(ops, json(&batch)).await;
    }
    let branch = rig.storage.branch(ORG, holder.leaf.unwrap(), None).await.unwrap();
    assert_eq!(branch.len(), 500);
    for (n, entry) in branch.iter().enumerate() {
        assert_eq!((entry.depth, &entry.new.content), (n as u32, &json(&n.to_string())));
    }
}

/// A reader that knows the beginning of a branch gets what follows it; one that knows something else gets the whole.
pub async fn a_branch_is_read_from_what_is_known(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops: Vec<_> = (0..4).map(|n| holder.entry(&n.to_string())).collect();
    let main: Vec<_> = ops.iter().filter_map(entry_id).collect();
    let aside = holder.entry_of("side", Some(main[1]), json(&"aside"));
    let elsewhere = entry_id(&aside).unwrap();
    holder.commit(ops.into_iter().chain([aside]).collect()).await;
    let storage = &rig.storage;
    let read = async |leaf, after| {
        let branch = storage.branch(ORG, leaf, after).await.unwrap();
        branch.into_iter().map(|entry| entry.new.id).collect::<Vec<_>>()
    };
    for (n, known) in main.iter().enumerate() {
        assert_eq!(read(main[3], Some(*known)).await, main[n + 1..]);
    }
    assert_eq!(read(elsewhere, Some(main[1])).await, [elsewhere]);
    assert_eq!(read(elsewhere, Some(main[2])).await, [main[0], main[1], elsewhere]);
    assert_eq!(read(main[1], Some(main[3])).await, main[..2]);
    assert_eq!(read(main[3], Some(EntryId(rig.uuid()))).await, main);
}

/// A branch is whole where few or many entries of another stand between its own.
pub async fn a_branch_among_others_is_whole(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let (mut here, mut aside) = (Vec::new(), Vec::new());
    for between in [0, 1, 14, 15, 16, 17, 40, 0, 100, 2] {
        let mut ops = vec![holder.entry_of("here", here.last().copied(), json(&"here"))];
        here.extend(entry_id(&ops[0]));
        for _ in 0..between {
            let op = holder.entry_of("aside", aside.last().copied(), json(&"aside"));
            aside.extend(entry_id(&op));
            ops.push(op);
        }
        holder.commit(ops).await;
    }
    for branch in [here, aside] {
        for after in [None, Some(branch[3])] {
            let read = rig.storage.branch(ORG, branch[branch.len() - 1], after).await.unwrap();
            let read: Vec<_> = read.into_iter().map(|entry| entry.new.id).collect();
            assert_eq!(read, branch[after.map_or(0, |_| 4)..]);
        }
    }
}

/// An entry whose content is a task's output reads like any other, however it is stored, on every branch.
pub async fn an_entry_may_repeat_an_output(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let long = json(&"an answer of a model, as long as they are ".repeat(100));
    let short = json(&"brief");
    let outputs = [&long, &short, &json(&"another answer ".repeat(40))];
    let tasks = outputs.map(|_| holder.inline(TaskOptions::default()));
    let mut batch = holder.batch(tasks.to_vec(), BatchEnd::Continue);
    for (sequence, output) in (0u32..).zip(outputs) {
        batch.attempts.push(ended(sequence, 1, AttemptResult::Completed(output.clone())));
    }
    holder.commit_batch(batch).await;
    let raw = Payload { encoding: Encoding::Raw, ..long.clone() };
    let almost = json(&"another answer ".repeat(41));
    let asked = [long.clone(), raw, short.clone(), almost, long.clone()];
    let mut ops = Vec::new();
    for content in &asked {
        let parent = ops.last().and_then(entry_id);
        ops.push(holder.entry_of("", parent, content.clone()));
    }
    let leaf = ops.last().and_then(entry_id).unwrap();
    holder.commit(ops).await;
    let told = |entries: &[crate::model::Entry]| entries.iter().map(|one| one.new.content.clone()).collect::<Vec<_>>();
    assert_eq!(told(&rig.storage.branch(ORG, leaf, None).await.unwrap()), asked);
    let listed = rig.storage.entries(ORG, holder.id, PageRequest::default()).await.unwrap().items;
    assert_eq!(told(&listed), asked);
    for entry in &listed {
        assert_eq!(rig.storage.entry(ORG, entry.new.id).await.unwrap(), *entry);
    }
    // What the tasks gave is untouched, and a fork reads the same conversation.
    for (sequence, output) in (0u32..).zip(outputs) {
        assert_eq!(rig.task(holder.id, holder.task_id(sequence)).await.output.as_ref(), Some(output));
    }
    let request = ForkRequest {
        org: ORG,
        execution: holder.id,
        id: ExecutionId(rig.uuid()),
        key: None,
        from: ForkFrom::Latest,
        state: None,
        input: None,
    };
    let fork = rig.storage.fork(request).await.unwrap();
    assert_eq!(told(&rig.storage.branch(ORG, fork.leaf.unwrap(), None).await.unwrap()), asked);
}
