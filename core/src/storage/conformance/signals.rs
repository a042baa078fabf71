//! Signals: kept, ordered, consumed exactly once.

use super::Factory;
use super::rig::{ORG, Rig, for_signal, json, refused};
use crate::error::Code;
use crate::model::{BatchEnd, Consumed, Delivery, EventKind, FactKind, NewSignal, PageRequest, Status, WaitReason};
use crate::storage::limits::PENDING_SIGNALS;
use futures::future::join_all;
use std::time::Duration;

/// Signals are kept in the order they came, with all their fields, also before the run is claimed.
pub async fn signals_are_kept_in_order(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    let mut sent = Vec::new();
    for (n, delivery) in [Delivery::NextStep, Delivery::NextTurn, Delivery::Now].into_iter().enumerate() {
        let mut signal = rig.new_signal(id, if n == 1 { "b" } else { "a" });
        signal.delivery = delivery;
        signal.payload = json(&n);
        let stored = rig.storage.store_signal(signal.clone()).await.unwrap();
        assert_eq!((stored.id, stored.repeated, stored.resumed), (signal.id, false, false));
        sent.push(signal);
        rig.clock.advance(Duration::from_secs(1));
    }
    let mailbox = rig.mailbox(id).await;
    assert_eq!(mailbox.len(), 3);
    for (n, (signal, sent)) in mailbox.iter().zip(&sent).enumerate() {
        assert_eq!((signal.id, &signal.name, &signal.payload), (sent.id, &sent.name, &sent.payload));
        assert_eq!((signal.delivery, signal.consumed_by, signal.number), (sent.delivery, None, n as u64 + 2));
    }
    let holder = rig.claim(id).await;
    let facts = holder.load().await.facts;
    let kinds: Vec<_> = mailbox.iter().cloned().map(FactKind::Signal).collect();
    assert_eq!(facts.iter().map(|fact| fact.kind.clone()).collect::<Vec<_>>(), kinds);
    assert_eq!(facts.iter().map(|fact| fact.number).collect::<Vec<_>>(), [2, 3, 4]);
    let event = &rig.events(id).await[1];
    let signal = sent[0].id.to_string();
    assert_eq!(
        (event.kind, event.data.clone()),
        (EventKind::Signal, serde_json::json!({ "signal": signal, "name": "a" }))
    );
}

/// A signal wakes a run that waits for its name, once.
pub async fn a_signal_wakes_who_waits(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.wait("go", None);
    holder.suspend(vec![op], for_signal("go")).await;
    assert!(!rig.signal(holder.id, "stop").await.resumed);
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
    let known = rig.high(holder.id).await;
    assert!(rig.signal(holder.id, "go").await.resumed);
    assert!(!rig.signal(holder.id, "go").await.resumed);
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::Signal, EventKind::Woken, EventKind::Signal]);
}

/// The batch that orphans an op may hand the signal it took to another one.
pub async fn a_signal_that_comes_back_is_free_at_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let signal = rig.signal(holder.id, "s").await.id;
    holder.known = rig.high(holder.id).await;
    let waits = vec![holder.wait("s", None), holder.wait("s", None)];
    let mut batch = holder.batch(waits, BatchEnd::Continue);
    batch.consumed.push(Consumed { signal, by: holder.slot(0) });
    holder.commit_batch(batch).await;
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.orphaned.push(0);
    batch.consumed.push(Consumed { signal, by: holder.slot(1) });
    holder.commit_batch(batch).await;
    assert_eq!(rig.mailbox(holder.id).await[0].consumed_by, Some(holder.slot(1)));
}

/// A signal is consumed by one op, in the batch that names it, and stays consumed.
pub async fn a_signal_is_consumed_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let first = rig.signal(holder.id, "s").await.id;
    let second = rig.signal(holder.id, "s").await.id;
    let ops = vec![holder.wait("s", None), holder.wait("s", None)];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    let consumed = Consumed { signal: first, by: holder.slot(0) };
    batch.consumed.push(consumed);
    holder.commit_batch(batch).await;
    let mut again = holder.batch(vec![], BatchEnd::Continue);
    again.consumed.push(Consumed { signal: first, by: holder.slot(1) });
    assert_eq!(refused(holder.try_commit(again).await), Code::InvalidTransition);
    let mut same = holder.batch(vec![], BatchEnd::Continue);
    same.consumed.push(consumed);
    holder.commit_batch(same).await;
    let taken: Vec<_> = rig.mailbox(holder.id).await.iter().map(|signal| (signal.id, signal.consumed_by)).collect();
    assert_eq!(taken, [(first, Some(holder.slot(0))), (second, None)]);
    // Recovery sees what the tail took and what is left.
    rig.storage.release(ORG, holder.id, holder.lease).await.unwrap();
    let holder = rig.claim(holder.id).await;
    let facts = holder.load().await.facts;
    let seen: Vec<_> = facts
        .iter()
        .filter_map(|fact| match &fact.kind {
            FactKind::Signal(signal) => Some((signal.id, signal.consumed_by)),
            _ => None,
        })
        .collect();
    assert_eq!(seen, taken);
}

/// A repeated key is one signal: the first id is answered, also after the run has ended.
pub async fn a_key_makes_one_signal(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = rig.running().await;
    let send = async |key: &str| {
        let mut signal = rig.new_signal(holder.id, "s");
        signal.idempotency_key = Some(key.into());
        rig.storage.store_signal(signal).await
    };
    let first = send("k").await.unwrap();
    let again = send("k").await.unwrap();
    assert_eq!((again.id, again.repeated, again.resumed), (first.id, true, false));
    assert_ne!(send("other").await.unwrap().id, first.id);
    assert_eq!(rig.mailbox(holder.id).await.len(), 2);
    let mut holder = holder;
    holder.known = rig.high(holder.id).await;
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    let rig = holder.rig;
    let mut signal = rig.new_signal(holder.id, "s");
    signal.idempotency_key = Some("k".into());
    let late = rig.storage.store_signal(signal.clone()).await.unwrap();
    assert_eq!((late.id, late.repeated), (first.id, true));
    // Another value under the same key would be lost without a word.
    for (name, value) in [("s", 7), ("t", 0)] {
        let mut other = NewSignal { name: name.into(), ..signal.clone() };
        if value > 0 {
            other.payload = json(&value);
        }
        assert_eq!(refused(rig.storage.store_signal(other).await), Code::AlreadyExists);
    }
    signal.idempotency_key = Some("new".into());
    assert_eq!(refused(rig.storage.store_signal(signal).await), Code::ExecutionClosed);
}

/// Keys belong to one run, and an id that is stored already is a repeat.
pub async fn keys_belong_to_one_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (a, b) = (rig.start().await, rig.start().await);
    for id in [a, b] {
        let mut signal = rig.new_signal(id, "s");
        signal.idempotency_key = Some("k".into());
        assert!(!rig.storage.store_signal(signal.clone()).await.unwrap().repeated);
        signal.idempotency_key = None;
        assert!(rig.storage.store_signal(signal).await.unwrap().repeated);
        assert_eq!(rig.mailbox(id).await.len(), 1);
    }
}

/// Paused and pending runs take signals without waking.
pub async fn others_take_signals_too(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = rig.running().await;
    assert!(!rig.signal(holder.id, "s").await.resumed);
    let mut holder = holder;
    holder.end(vec![], BatchEnd::Pause { reason: WaitReason::Budget, failure: None }).await;
    assert!(!rig.signal(holder.id, "s").await.resumed);
    assert_eq!((rig.status(holder.id).await, rig.mailbox(holder.id).await.len()), (Status::Paused, 2));
}

/// Senders at the same time: every signal has a place of its own and the run is woken once.
pub async fn concurrent_signals_all_arrive(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.wait("s", None);
    holder.suspend(vec![op], for_signal("s")).await;
    let sends = (0..30).map(|_| rig.storage.store_signal(rig.new_signal(holder.id, "s")));
    let stored = futures::future::join_all(sends).await;
    assert_eq!(stored.iter().filter(|stored| stored.as_ref().unwrap().resumed).count(), 1);
    let mailbox = rig.mailbox(holder.id).await;
    assert_eq!(mailbox.len(), 30);
    assert!(mailbox.windows(2).all(|pair| pair[0].number < pair[1].number));
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::Woken).count(), 1);
}

/// A mailbox has its limit: what is over it is refused, and taken again once the run has consumed something.
pub async fn a_mailbox_may_be_full(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let id = holder.id;
    let new = |n: usize| NewSignal { idempotency_key: Some(n.to_string()), ..rig.new_signal(id, "a") };
    let signals: Vec<_> = (0..PENDING_SIGNALS).map(new).collect();
    for some in signals.chunks(500) {
        let stored = join_all(some.iter().map(|signal| rig.storage.store_signal(signal.clone()))).await;
        assert!(stored.into_iter().all(|stored| !stored.unwrap().repeated));
    }
    let late = new(PENDING_SIGNALS);
    assert_eq!(refused(rig.storage.store_signal(late.clone()).await), Code::RateLimited);
    assert!(rig.storage.store_signal(signals[7].clone()).await.unwrap().repeated, "what is there is told again");
    let first = rig.storage.signals(ORG, id, PageRequest { limit: 1, after: None }).await.unwrap().items[0].id;
    holder.known = rig.storage.standings(ORG, &[id]).await.unwrap()[0].high;
    let wait = holder.wait("a", None);
    let mut batch = holder.batch(vec![wait], BatchEnd::Continue);
    batch.consumed.push(Consumed { signal: first, by: holder.slot(0) });
    holder.commit_batch(batch).await;
    assert!(!rig.storage.store_signal(late).await.unwrap().repeated);
    assert_eq!(refused(rig.storage.store_signal(new(PENDING_SIGNALS + 1)).await), Code::RateLimited);
}
