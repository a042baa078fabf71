//! Events: gapless, one per transition, shared numbers with facts, readable after any number.

use super::Factory;
use super::rig::{Holder, ORG, Rig, TTL, done, ended, failed, for_signal, for_tasks, json};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId};
use crate::model::{BatchEnd, Event, EventKind, FactKind, Failure, RetryPolicy, TaskOptions};
use crate::storage::Standing;
use crate::streaming::Change;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

async fn a_busy_life<'a>(rig: &'a Rig) -> Holder<'a> {
    let mut holder = rig.running().await;
    let retry = RetryPolicy { retries: 2, ..RetryPolicy::default() };
    let ops = vec![
        holder.entry("a"),
        holder.inline(TaskOptions { retry, ..TaskOptions::default() }),
        holder.queued(TaskOptions::default()),
        holder.sleep(Duration::from_secs(1)),
    ];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.attempts.push(ended(1, 1, failed("E")));
    holder.commit_batch(batch).await;
    rig.signal(holder.id, "x").await;
    holder.known = rig.high(holder.id).await;
    holder.suspend(vec![], for_signal("go")).await;
    rig.pass_after(Duration::from_secs(2)).await;
    for task in rig.claim_tasks().await {
        rig.report(&task, done(1)).await.unwrap();
    }
    rig.signal(holder.id, "go").await;
    let mut holder = rig.claim(holder.id).await;
    holder.checkpoint(vec![], json(&1)).await;
    rig.pass_after(TTL).await;
    rig.claim(holder.id).await
}

/// Numbers are gapless from 1, whatever happens.
pub async fn numbers_are_gapless(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = a_busy_life(&rig).await;
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    let events = rig.events(holder.id).await;
    assert!(events.len() > 15);
    for (n, event) in events.iter().enumerate() {
        assert_eq!((event.number, event.execution), (n as u64 + 1, holder.id));
    }
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at && pair[0].segment <= pair[1].segment.max(1)));
    assert_eq!(events.iter().filter(|event| event.kind.is_terminal()).count(), 1);
    assert!(events.last().unwrap().kind.is_terminal());
}

/// A fact has the number of the event that tells of it.
pub async fn facts_share_numbers(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.queued(TaskOptions::default()), holder.sleep(Duration::from_secs(1))];
    holder.commit(ops).await;
    let task = rig.claim_task().await;
    rig.report(&task, done(1)).await.unwrap();
    rig.signal(holder.id, "s").await;
    rig.pass_after(Duration::from_secs(1)).await;
    rig.storage.request_cancel(ORG, holder.id, super::rig::gracefully(TTL)).await.unwrap();
    let (facts, high, _) = rig.storage.facts_after(ORG, holder.id, 0).await.unwrap();
    assert_eq!((facts.len(), high), (4, rig.high(holder.id).await));
    let events: BTreeMap<u64, Event> =
        rig.events(holder.id).await.into_iter().map(|event| (event.number, event)).collect();
    for fact in &facts {
        let kind = match &fact.kind {
            FactKind::Task { .. } => EventKind::TaskCompleted,
            FactKind::Timer { .. } => EventKind::Timer,
            FactKind::Signal(signal) => {
                assert_eq!(signal.number, fact.number);
                EventKind::Signal
            }
            FactKind::Cancel(_) => EventKind::Cancelling,
        };
        assert_eq!((events[&fact.number].kind, events[&fact.number].at), (kind, fact.at));
    }
}

/// A reader continues after any number and ends with the same list.
pub async fn readers_continue_anywhere(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = a_busy_life(&rig).await;
    let all = rig.events(holder.id).await;
    for after in 0..=all.len() {
        let rest = rig.storage.events(ORG, holder.id, after as u64, 1_000).await.unwrap();
        assert_eq!(rest, all[after..]);
        let one = rig.storage.events(ORG, holder.id, after as u64, 1).await.unwrap();
        assert_eq!(one, all[after..].iter().take(1).cloned().collect::<Vec<_>>());
    }
    assert!(rig.storage.events(ORG, holder.id, u64::MAX, 10).await.unwrap().is_empty());
    assert!(rig.storage.events(ORG, holder.id, 0, 0).await.unwrap().is_empty());
}

/// Each status has the event that led to it, and no event is without its transition.
pub async fn one_event_a_transition(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.queued(TaskOptions::default());
    holder.suspend(vec![op], for_tasks()).await;
    let task = rig.claim_task().await;
    rig.report(&task, done(1)).await.unwrap();
    let mut holder = rig.claim(holder.id).await;
    rig.pass().await;
    rig.pass().await;
    holder.load().await;
    holder.commit(vec![]).await;
    use EventKind::*;
    assert_eq!(
        rig.kinds_after(holder.id, 0).await,
        [Created, Resumed, TaskScheduled, Waiting, TaskStarted, TaskCompleted, Woken, Resumed]
    );
}

/// Changes ring: whoever watches the run, or waits for work, is told.
pub async fn changes_are_announced(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let hints = rig.storage.hints().clone();
    let soon = |follow: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| async {
        tokio::time::timeout(Duration::from_secs(10), follow).await.expect("a hint comes");
    };
    let mut agents = hints.agents();
    let id = rig.start().await;
    soon(Box::pin(async move { agents.changed().await })).await;
    let mut holder = rig.claim(id).await;
    let (mut watch, mut tasks, mut timers) = (hints.watch(ORG, id), hints.tasks(), hints.timers());
    let ops = vec![holder.queued(TaskOptions::default()), holder.sleep(Duration::from_secs(1))];
    holder.suspend(ops, for_tasks()).await;
    soon(Box::pin(async move { watch.changed().await })).await;
    soon(Box::pin(async move { tasks.changed().await })).await;
    soon(Box::pin(async move { timers.changed().await })).await;
    let task = rig.claim_task().await;
    let mut agents = hints.agents();
    rig.report(&task, done(1)).await.unwrap();
    soon(Box::pin(async move { agents.changed().await })).await;
    let mut watch = hints.watch(ORG, id);
    rig.signal(id, "s").await;
    soon(Box::pin(async move { watch.changed().await })).await;
}

/// A hint says whether its run ended, however it did; none before says that it did, or that it is not known.
pub async fn ends_are_told(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let told: Arc<Mutex<Vec<Change>>> = Arc::default();
    let into = told.clone();
    let _listening = rig.storage.hints().listen(move |change| into.lock().extend(change));
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("a")];
    holder.commit(ops).await;
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    let mut failing = rig.running().await;
    failing.end(vec![], BatchEnd::Fail(Failure::new(Code::AgentFailed, "E", "no"))).await;
    let late = rig.running().await;
    rig.storage.request_cancel(ORG, late.id, super::rig::gracefully(TTL)).await.unwrap();
    rig.pass_after(TTL + Duration::from_secs(1)).await;
    let idle = rig.start().await;
    rig.storage.request_cancel(ORG, idle, super::rig::gracefully(TTL)).await.unwrap();
    for id in [holder.id, failing.id, late.id, idle] {
        assert!(rig.status(id).await.is_terminal());
        let last = rig.high(id).await;
        let heard = || told.lock().iter().filter(|change| change.execution == id).copied().collect::<Vec<_>>();
        let all = async {
            while !heard().iter().any(|change| change.high >= last) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all).await.expect("the last number is told");
        for change in heard() {
            assert_eq!(change.ended, Some(change.high >= last), "{change:?} of {last}");
        }
    }
}

/// One look tells how far many runs have come: the number of the last event and whether it was the end.
pub async fn one_look_tells_of_many_runs(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut done = rig.running().await;
    done.end(vec![], BatchEnd::Complete(json(&1))).await;
    let (busy, idle, unknown) = (a_busy_life(&rig).await, rig.start().await, ExecutionId::fresh());
    let asked = [idle, unknown, done.id, busy.id];
    let mut told = rig.storage.standings(ORG, &asked).await.unwrap();
    told.sort_by_key(|one| asked.iter().position(|id| *id == one.execution));
    let mut expected = Vec::new();
    for execution in [idle, done.id, busy.id] {
        let (high, ended) = (rig.high(execution).await, rig.status(execution).await.is_terminal());
        expected.push(Standing { execution, high, ended });
    }
    assert_eq!(told, expected);
    assert_eq!(expected.iter().filter(|one| one.ended).count(), 1);
    assert_eq!(rig.storage.standings(ORG, &[]).await.unwrap(), []);
    assert_eq!(rig.storage.standings(OrgId(Uuid::max()), &asked).await.unwrap(), [], "another org's are unknown");
}
