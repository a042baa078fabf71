//! Timers: never early, once, and never after they are disarmed.

use super::Factory;
use super::rig::{ORG, Rig, for_timer, json};
use crate::model::{BatchEnd, EventKind, FactKind, Status};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A timer fires at its moment, not before, and wakes the run.
pub async fn a_timer_is_never_early(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.sleep(SECOND * 10);
    let due = rig.now().after(SECOND * 10);
    holder.suspend(vec![op], for_timer()).await;
    let known = rig.high(holder.id).await;
    assert_eq!(rig.pass_after(SECOND * 10 - Duration::from_micros(1)).await, Some(due));
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
    assert_eq!(rig.pass_after(Duration::from_micros(1)).await, None);
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::Timer, EventKind::Woken]);
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, known).await.unwrap();
    assert_eq!((facts.len(), facts[0].number, facts[0].at), (1, known + 1, rig.now()));
    assert_eq!(facts[0].kind, FactKind::Timer { slot: holder.slot(0) });
    assert_eq!(rig.events(holder.id).await[known as usize].sequence, Some(0));
}

/// It fires once, however often and late somebody looks.
pub async fn a_timer_fires_once(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.sleep(SECOND);
    holder.suspend(vec![op], for_timer()).await;
    for _ in 0..3 {
        rig.pass_after(SECOND * 3_600).await;
    }
    let passes = (0..8).map(|_| rig.pass());
    futures::future::join_all(passes).await;
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::Timer).count(), 1);
    assert_eq!(rig.claim(holder.id).await.load().await.facts.len(), 1);
}

/// Timers fire in the order of their moments.
pub async fn timers_fire_in_order(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.sleep(SECOND * 3), holder.sleep(SECOND), holder.sleep(SECOND * 2), holder.sleep(SECOND)];
    holder.suspend(ops, for_timer()).await;
    rig.pass_after(SECOND * 60).await;
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, 0).await.unwrap();
    let fired: Vec<_> = facts.iter().map(|fact| fact.kind.clone()).collect();
    assert_eq!(fired, [1, 3, 2, 0].map(|sequence| FactKind::Timer { slot: holder.slot(sequence) }));
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::Woken).count(), 1);
}

/// A disarmed timer never fires.
pub async fn a_disarmed_timer_never_fires(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.sleep(SECOND), holder.wait("s", Some(SECOND)), holder.sleep(SECOND * 5)];
    holder.commit(ops).await;
    let mut batch = holder.batch(vec![], BatchEnd::Suspend(for_timer()));
    batch.disarmed = vec![0, 1, 99];
    holder.commit_batch(batch).await;
    rig.pass_after(SECOND * 2).await;
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
    rig.pass_after(SECOND * 3).await;
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, 0).await.unwrap();
    assert_eq!(facts.iter().map(|fact| &fact.kind).collect::<Vec<_>>(), [&FactKind::Timer { slot: holder.slot(2) }]);
}

/// The timeout of a signal wait is a timer of its op.
pub async fn a_signal_wait_may_time_out(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.wait("s", Some(SECOND * 5));
    let wait = crate::model::Wait { timers: true, ..super::rig::for_signal("s") };
    holder.suspend(vec![op], wait).await;
    rig.pass_after(SECOND * 5).await;
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let facts = rig.claim(holder.id).await.load().await.facts;
    assert_eq!(facts[0].kind, FactKind::Timer { slot: holder.slot(0) });
}

/// Timers of running, pending and paused runs fire too; those of ended ones do not.
pub async fn timers_fire_whatever_the_status(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut running = rig.running().await;
    let op = running.sleep(SECOND);
    running.commit(vec![op]).await;
    let mut ended = rig.running().await;
    let op = ended.sleep(SECOND);
    ended.end(vec![op], BatchEnd::Complete(json(&1))).await;
    rig.pass_after(SECOND).await;
    assert_eq!(running.commit(vec![]).await.facts.len(), 1);
    assert!(!rig.kinds_after(ended.id, 0).await.contains(&EventKind::Timer));
}

/// A sleep of no time is due at once.
pub async fn a_sleep_of_no_time(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.sleep(Duration::ZERO);
    holder.suspend(vec![op], for_timer()).await;
    rig.pass_after(Duration::ZERO).await;
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}
