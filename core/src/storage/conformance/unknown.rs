//! Calls whose outcome is unknown: asked again with the same ids, they have happened once.

use super::Factory;
use super::faults::{Fault, FaultyStorage};
use super::random::Random;
use super::rig::{Holder, Rig, done, ended, for_signal, for_tasks, json};
use super::snapshot::Snapshot;
use crate::error::Code;
use crate::model::{BatchEnd, CommitAnswer, CommitRequest, NewExecution, TaskOptions};
use crate::storage::guarded::Call;
use crate::storage::{AgentStorage, Storage, WorkSource};
use std::sync::Arc;

async fn until_known<T, F: Future<Output = crate::Result<T>>>(ask: impl Fn() -> F) -> T {
    for _ in 0..1_000 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert_eq!(error.code(), Code::StorageUnavailable, "{error}"),
        }
    }
    panic!("no answer came");
}

async fn commit(storage: &FaultyStorage, holder: &mut Holder<'_>, request: CommitRequest) -> CommitAnswer {
    let answer = until_known(|| storage.commit(request.clone())).await;
    (holder.base, holder.known) = (answer.number, answer.high);
    if matches!(request.batch.end, BatchEnd::Checkpoint(_)) {
        (holder.segment, holder.next) = (holder.segment + 1, 0);
    }
    answer
}

/// A run whose every call is asked until it is answered.
async fn life(factory: &dyn Factory, faults: impl FnOnce(&FaultyStorage)) -> (Snapshot, u64) {
    let rig = Rig::new(factory).await;
    let storage = FaultyStorage::new(rig.storage.clone());
    faults(&storage);
    let new: NewExecution = rig.new_run();
    until_known(|| storage.create_execution(new.clone())).await;
    let signals: Vec<_> = (0..3).map(|_| rig.new_signal(new.id, "go")).collect();
    let mut holder = rig.claim(new.id).await;
    for n in 0..6u64 {
        let task = holder.next + 1;
        let ops = vec![holder.entry("a"), holder.inline(TaskOptions::default()), holder.step()];
        let mut batch = holder.batch(ops, BatchEnd::Continue);
        batch.attempts.push(ended(task, 1, done(n)));
        let request = holder.request(batch);
        commit(&storage, &mut holder, request).await;
        let request = holder.request(holder.batch(
            vec![],
            BatchEnd::Checkpoint(crate::model::NewCheckpoint {
                state: json(&n),
                leaves: Default::default(),
                metadata: "{}".into(),
            }),
        ));
        commit(&storage, &mut holder, request).await;
    }
    let op = holder.queued(TaskOptions::default());
    let request = holder.request(holder.batch(vec![op], BatchEnd::Suspend(for_tasks())));
    commit(&storage, &mut holder, request).await;
    let claimed = rig.claim_task().await;
    let report = crate::model::TaskReport {
        org: super::rig::ORG,
        task: claimed.task.new.id,
        attempt: 1,
        worker: claimed.task.worker.unwrap_or_default(),
        result: done(9),
    };
    // The end of an attempt has no request id: asked again after it was carried out, it is superseded.
    while let Err(error) = storage.report_task(report.clone()).await {
        if error.code() == Code::LeaseLost {
            break;
        }
        assert_eq!(error.code(), Code::StorageUnavailable);
    }
    let mut holder = rig.claim(new.id).await;
    let request = holder.request(holder.batch(vec![], BatchEnd::Suspend(for_signal("go"))));
    commit(&storage, &mut holder, request).await;
    for signal in &signals {
        until_known(|| storage.store_signal(signal.clone())).await;
    }
    let mut holder = rig.claim(new.id).await;
    let request = holder.request(holder.batch(vec![], BatchEnd::Complete(json(&"done"))));
    commit(&storage, &mut holder, request).await;
    (Snapshot::of(&*rig.storage, new.id).await, storage.injected())
}

/// Every commit in turn fails before or after it is carried out: the run ends with the same rows.
pub async fn one_lost_answer_changes_nothing(factory: &dyn Factory) {
    let (undisturbed, _) = life(factory, |_| {}).await;
    let mut random = Random(7);
    for n in 1..=15 {
        for fault in [Fault::FailBefore, Fault::ExecuteThenError] {
            let (rows, injected) = life(factory, |storage| storage.inject(Call::Commit, n, fault)).await;
            assert_eq!((rows, injected), (undisturbed.clone(), 1), "commit {n}, {fault:?}");
        }
        if random.percent(70) {
            continue;
        }
        for call in [Call::CreateExecution, Call::StoreSignal, Call::ReportTask] {
            let (rows, _) = life(factory, |storage| storage.inject(call, 1, Fault::ExecuteThenError)).await;
            assert_eq!(rows, undisturbed, "{call:?}");
        }
    }
}

/// Nor do many, drawn from a seed.
pub async fn many_lost_answers_change_nothing(factory: &dyn Factory) {
    let (undisturbed, _) = life(factory, |_| {}).await;
    let calls = [Call::Commit, Call::CreateExecution, Call::StoreSignal, Call::ReportTask];
    for seed in 0..5 {
        let (rows, injected) = life(factory, |storage| storage.seed(seed, 500, &calls)).await;
        assert!(injected > 3);
        assert_eq!(rows, undisturbed, "seed {seed}");
    }
}

/// A healed store fails no more, and counts what it was asked.
pub async fn faults_can_be_healed(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let storage: Arc<FaultyStorage> = Arc::new(FaultyStorage::new(rig.storage.clone()));
    storage.seed(1, 1_000, &[Call::ClaimAgents]);
    let asking = rig.asking(rig.worker(), super::rig::AGENT);
    assert!(storage.claim_agents(asking.clone()).await.is_err());
    storage.heal();
    assert!(storage.claim_agents(asking).await.is_ok());
    assert_eq!((storage.count(Call::ClaimAgents), storage.injected()), (2, 1));
    assert!(storage.describe().contains(&rig.storage.describe()));
}
