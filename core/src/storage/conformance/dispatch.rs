//! Who gets a run: the worker that has it parked first, and nobody waits behind another org's backlog.

use super::Factory;
use super::rig::{AGENT, Holder, ORG, Rig, TTL, done, ended, for_signal, for_timer, gracefully, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId, WorkerId};
use crate::model::{BatchEnd, Claim, Fact, FactKind, QueueLimit, Rate, Status, TaskOptions, Wait};
use crate::storage::{ClaimRequest, PREFERENCE};
use std::time::Duration;

async fn claim_as(rig: &Rig, worker: WorkerId, limit: usize) -> Vec<Claim> {
    rig.storage.claim_agents(ClaimRequest { limit, ..rig.asking(worker, AGENT) }).await.unwrap()
}

fn ids(claims: &[Claim]) -> Vec<ExecutionId> {
    claims.iter().map(|claim| claim.execution.new.id).collect()
}

fn parked() -> Wait {
    Wait { parked: true, ..for_signal("go") }
}

/// A run that wakes is left to the worker that has it parked, for a moment and no longer.
pub async fn a_woken_run_is_left_to_its_worker(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (one, other) = (rig.worker(), rig.worker());
    let id = rig.start().await;
    for _ in 0..3 {
        let claims = claim_as(&rig, one, 9).await;
        assert_eq!(ids(&claims), [id]);
        Holder::of(&rig, &claims[0]).suspend(vec![], parked()).await;
        assert_eq!(rig.execution(id).await.wait, Some(parked()));
        rig.signal(id, "go").await;
        assert!(claim_as(&rig, other, 9).await.is_empty());
    }
    rig.clock.advance(PREFERENCE - Duration::from_micros(1));
    assert!(claim_as(&rig, other, 9).await.is_empty());
    rig.clock.advance(Duration::from_micros(1));
    let claims = claim_as(&rig, other, 9).await;
    assert_eq!(ids(&claims), [id]);
    // Whoever keeps no copy has no preference, and a run that is new is anybody's.
    Holder::of(&rig, &claims[0]).suspend(vec![], for_signal("go")).await;
    rig.signal(id, "go").await;
    let new = rig.start().await;
    let mut both = ids(&claim_as(&rig, one, 9).await);
    both.sort_unstable();
    assert_eq!(both, [id, new]);
}

/// A claim brings the facts since the last commit of the copy that its worker has parked, and none to others.
pub async fn a_claim_brings_a_parked_copy_its_news(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (one, other) = (rig.worker(), rig.worker());
    let id = rig.start().await;
    let claims = claim_as(&rig, one, 9).await;
    assert_eq!(claims[0].news, None);
    let mut holder = Holder::of(&rig, &claims[0]);
    let (task, timer) = (holder.inline(TaskOptions::default()), holder.sleep(Duration::from_secs(1)));
    holder.commit(vec![task, timer]).await;
    holder.attempts(vec![ended(0, 1, done(1))]).await;
    let known = holder.suspend(vec![], parked()).await.high;
    rig.signal(id, "go").await;
    rig.signal(id, "stop").await;
    let claims = claim_as(&rig, one, 9).await;
    let (facts, high, _) = rig.storage.facts_after(ORG, id, known).await.unwrap();
    assert_eq!(facts.len(), 2);
    assert_eq!((claims[0].news.as_ref(), claims[0].high), (Some(&facts), high));
    // What was handed over before is no news any more.
    Holder::of(&rig, &claims[0]).suspend(vec![], Wait { parked: true, ..for_timer() }).await;
    rig.pass_after(Duration::from_secs(1)).await;
    let claims = claim_as(&rig, one, 9).await;
    let news = claims[0].news.as_ref().expect("a parked copy is told");
    assert!(matches!(news[..], [Fact { kind: FactKind::Timer { .. }, .. }]), "{news:?}");
    Holder::of(&rig, &claims[0]).suspend(vec![], Wait { parked: true, ..for_signal("late") }).await;
    rig.signal(id, "late").await;
    rig.clock.advance(PREFERENCE);
    assert_eq!(claim_as(&rig, other, 9).await[0].news, None);
}

/// A claim of none gives the preference up, and so does a worker that leaves.
pub async fn a_preference_may_be_given_up(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (one, other) = (rig.worker(), rig.worker());
    let (a, b) = (rig.start().await, rig.start().await);
    let park = async || {
        let claims = claim_as(&rig, one, 9).await;
        assert_eq!(claims.len(), 2);
        for claim in &claims {
            Holder::of(&rig, claim).suspend(vec![], parked()).await;
        }
        for id in [a, b] {
            rig.signal(id, "go").await;
        }
    };
    park().await;
    assert!(claim_as(&rig, other, 0).await.is_empty());
    assert!(claim_as(&rig, other, 9).await.is_empty());
    let mut bell = rig.storage.hints().agents();
    assert!(claim_as(&rig, one, 0).await.is_empty());
    tokio::time::timeout(Duration::from_secs(10), bell.changed()).await.expect("others are told");
    assert_eq!(claim_as(&rig, other, 9).await.len(), 2);
    for id in [a, b] {
        rig.pass_after(TTL).await;
        assert_eq!(rig.status(id).await, Status::Pending);
    }
    park().await;
    assert!(claim_as(&rig, other, 9).await.is_empty());
    rig.storage.unregister_worker(ORG, one).await.unwrap();
    assert_eq!(claim_as(&rig, other, 9).await.len(), 2);
    // Who is gone when a run wakes is not waited for.
    for id in [a, b] {
        rig.pass_after(TTL).await;
        assert_eq!(rig.status(id).await, Status::Pending);
    }
    let claims = claim_as(&rig, one, 9).await;
    Holder::of(&rig, &claims[0]).suspend(vec![], parked()).await;
    rig.storage.unregister_worker(ORG, one).await.unwrap();
    rig.signal(claims[0].execution.new.id, "go").await;
    assert!(ids(&claim_as(&rig, other, 9).await).contains(&claims[0].execution.new.id));
}

/// A stop wakes a parked run for its worker too.
pub async fn a_stop_is_for_its_worker_first(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (one, other) = (rig.worker(), rig.worker());
    let id = rig.start().await;
    let claims = claim_as(&rig, one, 9).await;
    Holder::of(&rig, &claims[0]).suspend(vec![], parked()).await;
    rig.storage.request_cancel(ORG, id, gracefully(TTL)).await.unwrap();
    assert!(claim_as(&rig, other, 9).await.is_empty());
    assert_eq!(ids(&claim_as(&rig, one, 9).await), [id]);
}

/// The backlog of one kind delays no other: a claim takes from each in turn, in the order asked; priorities go before.
pub async fn kinds_take_turns(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let start = async |kind: &str, priority: i32| {
        rig.clock.advance(Duration::from_millis(1));
        rig.start_as(|new| (new.kind, new.priority) = (kind.into(), priority)).await
    };
    let mut bulk = Vec::new();
    for _ in 0..6 {
        bulk.push(start("bulk", 0).await);
    }
    let (chat, other, urgent) = (start("chat", 0).await, start("chat", 0).await, start("chat", 5).await);
    let claim = async |kinds: &[&str], limit: usize| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let request = ClaimRequest { kinds, limit, ..rig.asking(rig.worker(), AGENT) };
        ids(&rig.storage.claim_agents(request).await.unwrap())
    };
    assert_eq!(claim(&["bulk", "chat"], 4).await, [urgent, bulk[0], chat, bulk[1]]);
    assert_eq!(claim(&["chat", "bulk", "chat"], 1).await, [other]);
    assert_eq!(claim(&["chat", "bulk"], 2).await, bulk[2..4]);
}

/// A queue hands out no more than its limit, whoever asks, until it is free again; other queues and orgs are not touched.
pub async fn a_queue_has_places(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let limit = |concurrency| QueueLimit { concurrency, rate: None };
    rig.storage.limit_queue(ORG, "default", limit(Some(2))).await.unwrap();
    rig.storage.limit_queue(ORG, "another", limit(Some(7))).await.unwrap();
    let limits = rig.storage.queue_limits(ORG).await.unwrap();
    assert_eq!(limits, [("another".to_owned(), limit(Some(7))), ("default".to_owned(), limit(Some(2)))]);
    assert_eq!(rig.storage.queue_limits(OrgId(rig.uuid())).await.unwrap(), []);
    let wrong = rig.storage.limit_queue(ORG, "default", limit(Some(0))).await;
    assert_eq!(refused(wrong), Code::InvalidArgument);
    for _ in 0..6 {
        rig.start().await;
    }
    let other = OrgId(rig.uuid());
    for _ in 0..3 {
        rig.start_as(|new| new.org = other).await;
        rig.start_as(|new| new.queue = "free".into()).await;
    }
    let claims = claim_as(&rig, rig.worker(), 9).await;
    assert_eq!(claims.len(), 2);
    let asks = (0..4).map(|_| {
        let request = rig.asking(rig.worker(), AGENT);
        rig.storage.claim_agents(request)
    });
    for claims in futures::future::join_all(asks).await {
        assert!(claims.unwrap().is_empty());
    }
    let of_org = ClaimRequest { org: other, ..rig.asking(rig.worker(), AGENT) };
    assert_eq!(rig.storage.claim_agents(of_org).await.unwrap().len(), 3);
    let of_queue = ClaimRequest { queue: "free".into(), ..rig.asking(rig.worker(), AGENT) };
    assert_eq!(rig.storage.claim_agents(of_queue).await.unwrap().len(), 3);
    // A run that waits gives its place to the next, and so does one that ends.
    Holder::of(&rig, &claims[0]).suspend(vec![], for_signal("go")).await;
    assert_eq!(claim_as(&rig, rig.worker(), 9).await.len(), 1);
    let mut holder = Holder::of(&rig, &claims[1]);
    holder.commit_batch(holder.batch(vec![], BatchEnd::Complete(json(&1)))).await;
    let claims = futures::future::join_all((0..3).map(|_| claim_as(&rig, rig.worker(), 9))).await;
    assert_eq!(claims.iter().map(Vec::len).sum::<usize>(), 1);
    // Housekeeping looks again soon, and tells the workers.
    assert!(rig.pass().await.is_some_and(|at| at <= rig.now().after(Duration::from_secs(1))));
    rig.storage.limit_queue(ORG, "default", QueueLimit::default()).await.unwrap();
    assert_eq!(claim_as(&rig, rig.worker(), 9).await.len(), 2);
}

/// A queue hands out so many in a time, at once or spread over it.
pub async fn a_queue_has_a_rate(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let rate = Some(Rate { runs: 3, per: Duration::from_secs(30) });
    rig.storage.limit_queue(ORG, "default", QueueLimit { concurrency: None, rate }).await.unwrap();
    for _ in 0..9 {
        rig.start().await;
    }
    assert_eq!(claim_as(&rig, rig.worker(), 2).await.len(), 2);
    assert_eq!(claim_as(&rig, rig.worker(), 9).await.len(), 1);
    assert!(claim_as(&rig, rig.worker(), 9).await.is_empty());
    let opens = rig.now().after(Duration::from_secs(10));
    assert_eq!(rig.pass().await, Some(opens));
    rig.clock.advance(Duration::from_secs(10) - Duration::from_micros(1));
    assert!(claim_as(&rig, rig.worker(), 9).await.is_empty());
    rig.pass_after(Duration::from_micros(1)).await;
    assert_eq!(claim_as(&rig, rig.worker(), 9).await.len(), 1);
    rig.clock.advance(Duration::from_secs(3_600));
    assert_eq!(claim_as(&rig, rig.worker(), 9).await.len(), 3);
}

/// The backlog of one org, however long and urgent, does not delay another's: its run is in the next claim.
pub async fn a_backlog_of_another_org_delays_nobody(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let starts = (0..500).map(|_| rig.start_as(|new| new.priority = 9));
    futures::future::join_all(starts).await;
    let other = OrgId(rig.uuid());
    let id = rig.start_as(|new| new.org = other).await;
    let (busy, idle) = (rig.worker(), rig.worker());
    assert_eq!(claim_as(&rig, busy, 10).await.len(), 10);
    let request = ClaimRequest { org: other, limit: 1, ..rig.asking(idle, AGENT) };
    assert_eq!(ids(&rig.storage.claim_agents(request).await.unwrap()), [id]);
}
