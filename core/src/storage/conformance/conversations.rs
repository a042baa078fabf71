//! What a child is given of the conversation of its parent, and what its parent sees of its own.

use super::Factory;
use super::rig::{ORG, Rig, at_once, entry_id, json};
use crate::id::EntryId;
use crate::model::{BatchEnd, ChildEnd, OpBody, SharedContext, Status};
use std::time::Duration;

async fn said(rig: &Rig, leaf: Option<EntryId>) -> Vec<String> {
    let branch = rig.storage.branch(ORG, leaf.expect("a leaf"), None).await.unwrap();
    branch.iter().map(|entry| entry.new.content.parse().unwrap()).collect()
}

/// A child begins where its parent stood, in the same commit: nothing is copied, and neither moves the other's leaf. A
/// parent that shares its conversation is told with the end where the child's stands.
pub async fn family_10_a_child_goes_on_from_the_conversation_of_its_parent(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    for (shared, is_seen) in [(SharedContext::read_only(), false), (SharedContext::conversation(), true)] {
        let mut parent = rig.running().await;
        let mut ops = vec![parent.entry("a"), parent.entry("b")];
        let leaf = parent.leaf;
        let shared = shared.from(|_| leaf);
        let mut born = Vec::new();
        for number in 0..2 {
            let mut op = parent.child(json(&number));
            let OpBody::Child(new) = &mut op.body else { unreachable!() };
            new.shared_context = Some(shared.clone());
            born.push(new.id);
            ops.push(op);
        }
        ops.push(parent.entry("c"));
        parent.commit(ops).await;
        for child in &born {
            let mut child = rig.claim(*child).await;
            let segment = child.load().await;
            assert_eq!((segment.execution.first_leaf(), segment.execution.leaf), (leaf, leaf));
            assert_eq!(segment.execution.new.shared_context.as_ref(), Some(&shared));
            child.leaf = leaf;
            let (first, second) = (child.entry("d"), child.entry("e"));
            let ends = entry_id(&second);
            child.commit(vec![first]).await;
            assert_eq!(said(&rig, rig.execution(child.id).await.leaf).await, ["a", "b", "d"]);
            child.end(vec![second], BatchEnd::Complete(json(&1))).await;
            assert_eq!(said(&rig, ends).await, ["a", "b", "d", "e"]);
            let end = rig.mailbox(parent.id).await.pop().expect("the end");
            assert_eq!(ChildEnd::leaf(&end.payload), ends.filter(|_| is_seen));
        }
        assert_eq!(said(&rig, rig.execution(parent.id).await.leaf).await, ["a", "b", "c"]);
        // What a parent may still read stays, however long ago its children ended.
        let gone = if is_seen { 0 } else { born.len() };
        assert_eq!(rig.keeper().remove_ended(Duration::ZERO).await.unwrap(), gone);
    }
}

/// Also a child that is stopped from outside leaves its conversation.
pub async fn family_10_a_stopped_child_leaves_its_conversation(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let mut op = parent.child(json(&1));
    let OpBody::Child(new) = &mut op.body else { unreachable!() };
    (new.shared_context, parent.leaf) = (Some(SharedContext::conversation()), None);
    let id = new.id;
    parent.commit(vec![op]).await;
    let mut child = rig.claim(id).await;
    let entry = child.entry("half");
    let leaf = entry_id(&entry);
    child.commit(vec![entry]).await;
    rig.storage.request_cancel(ORG, id, at_once()).await.unwrap();
    assert_eq!(rig.status(id).await, Status::Cancelled);
    let end = rig.mailbox(parent.id).await.pop().expect("the end");
    assert_eq!(ChildEnd::leaf(&end.payload), leaf);
}

/// A value of the author's is there when the child begins, and is no part of its conversation.
pub async fn family_10_a_value_is_given_to_a_child(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let mut ops = vec![parent.entry("a"), parent.child(json(&1))];
    let OpBody::Child(new) = &mut ops[1].body else { unreachable!() };
    let value = SharedContext::custom(r#"{"tone":"dry"}"#.into()).unwrap();
    new.shared_context = Some(value.clone());
    let id = new.id;
    parent.commit(ops).await;
    let child = rig.claim(id).await.load().await.execution;
    assert_eq!((child.new.shared_context, child.leaf), (Some(value), None));
}
