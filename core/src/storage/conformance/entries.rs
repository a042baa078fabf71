//! The conversation tree: shape, threads, branches across forks.

use super::Factory;
use super::rig::{ORG, Rig, entry_id, json, refused};
use crate::error::Code;
use crate::id::{EntryId, ExecutionId};
use crate::model::{EventKind, ForkFrom, ForkRequest, OpBody, PageRequest};

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
    let branch = rig.storage.branch(ORG, entries[2].new.id).await.unwrap();
    assert_eq!(branch, [entries[0].clone(), entries[2].clone()]);
    let told: Vec<_> = rig.events(holder.id).await.into_iter().filter(|event| event.kind == EventKind::Entry).collect();
    assert_eq!(told.len(), 3);
    let id = entries[2].new.id.to_string();
    assert_eq!(told[2].data, serde_json::json!({ "entry": id, "role": "assistant", "entry_type": "note" }));
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
    let branch = rig.storage.branch(ORG, more_id).await.unwrap();
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
    let branch = rig.storage.branch(ORG, leaf).await.unwrap();
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
    assert_eq!(refused(rig.storage.branch(ORG, leaf).await), Code::ExecutionNotFound);
    assert_eq!(refused(rig.storage.entry(ORG, leaf).await), Code::ExecutionNotFound);
    let mut holder = rig.running().await;
    let op = holder.entry("a");
    holder.commit(vec![op]).await;
    let stranger = crate::id::OrgId(rig.uuid());
    let leaf = holder.leaf.unwrap();
    assert_eq!(refused(rig.storage.branch(stranger, leaf).await), Code::ExecutionNotFound);
    assert_eq!(refused(rig.storage.entry(stranger, leaf).await), Code::ExecutionNotFound);
}

/// A long conversation is read back whole and in order.
pub async fn a_long_branch_is_whole(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    for batch in 0..10 {
        let ops = (0..50).map(|n| holder.entry(&format!("{}", batch * 50 + n))).collect();
        holder.checkpoint(ops, json(&batch)).await;
    }
    let branch = rig.storage.branch(ORG, holder.leaf.unwrap()).await.unwrap();
    assert_eq!(branch.len(), 500);
    for (n, entry) in branch.iter().enumerate() {
        assert_eq!((entry.depth, &entry.new.content), (n as u32, &json(&n.to_string())));
    }
}
