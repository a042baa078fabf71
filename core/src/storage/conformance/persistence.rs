//! Runs whose journal is not kept before it has to be.

use super::Factory;
use super::rig::{Rig, done, ended, for_signal, json};
use crate::clock::Timestamp;
use crate::error::Code;
use crate::model::{BatchEnd, NewExecution, NewOp, OpBody, Persistence, Status, TaskOptions};
use std::time::Duration;

/// What was asked for is read back, of a child too; the first commit that does not end the run makes it a full one.
pub async fn family_13_a_journal_is_kept_once_it_has_to_be(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let of = async |id| rig.execution(id).await.new.persistence;
    for persistence in [Persistence::Minimal, Persistence::Ephemeral] {
        let id = rig.start_as(|new| new.persistence = persistence).await;
        let mut holder = rig.claim(id).await;
        assert_eq!((of(id).await, holder.load().await.execution.new.persistence), (persistence, persistence));
        let entry = holder.entry("kept");
        holder.commit(vec![entry]).await;
        assert_eq!(of(id).await, Persistence::Full);
    }
    let ends = [BatchEnd::Complete(json("done")), BatchEnd::Cancelled(None)];
    for end in ends {
        let id = rig.start_as(|new| new.persistence = Persistence::Ephemeral).await;
        let mut holder = rig.claim(id).await;
        let usage = holder.usage("model", crate::model::Usage { calls: 3, ..Default::default() });
        holder.end(vec![usage], end).await;
        let run = rig.execution(id).await;
        assert_eq!((run.new.persistence, run.usage.0["model"].calls), (Persistence::Ephemeral, 3));
    }
    let waits = rig.start_as(|new| new.persistence = Persistence::Minimal).await;
    let mut holder = rig.claim(waits).await;
    let wait = holder.wait("go", None);
    holder.suspend(vec![wait], for_signal("go")).await;
    assert_eq!(of(waits).await, Persistence::Full);

    let mut parent = rig.running().await;
    let mut born = parent.child(json("hello"));
    let NewOp { body: OpBody::Child(child), .. } = &mut born else { unreachable!("a child was asked for") };
    child.persistence = Persistence::Ephemeral;
    let child = child.id;
    parent.commit(vec![born]).await;
    assert_eq!(of(child).await, Persistence::Ephemeral);
}

/// A run whose values are on a machine waits for that machine again whenever nobody has it, and then fails as lost.
pub async fn family_13_a_lost_machine_fails_its_local_runs(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut nowhere = rig.new_run();
    (nowhere.kind, nowhere.persistence) = ("nobody".into(), Persistence::Local);
    if let Err(error) = rig.storage.create_execution(nowhere).await {
        // A server starts such a run on a machine alone, and it is none that this one knows.
        assert_eq!(error.code(), Code::InvalidArgument);
        return;
    }
    let local = |new: &mut NewExecution| {
        new.persistence = Persistence::Local;
        new.limits.start_timeout = Some(Duration::from_secs(100));
    };
    let (killed, woken, full) = (
        rig.start_as(local).await,
        rig.start_as(local).await,
        rig.start_as(|new| {
            local(new);
            new.persistence = Persistence::Full;
        })
        .await,
    );
    assert_eq!(rig.execution(killed).await.new.persistence, Persistence::Local);
    let _dead = rig.claim(killed).await;
    let _also = rig.claim(full).await;
    let mut holder = rig.claim(woken).await;
    let (entry, wait) = (holder.entry("kept"), holder.wait("go", None));
    holder.suspend(vec![entry, wait], for_signal("go")).await;
    // It waits for the signal as long as it likes.
    rig.pass_after(Duration::from_secs(60)).await;
    assert_eq!((rig.status(killed).await, rig.status(woken).await), (Status::Pending, Status::Waiting));
    rig.signal(woken, "go").await;
    rig.pass_after(Duration::from_secs(99)).await;
    assert_eq!(rig.status(woken).await, Status::Pending);
    rig.pass_after(Duration::from_secs(2)).await;
    for lost in [killed, woken] {
        let run = rig.execution(lost).await;
        assert_eq!(run.status, Status::Failed);
        assert_eq!(&*run.failure.unwrap().error_type, "WorkerLost");
    }
    assert_eq!(rig.status(full).await, Status::Pending, "others may go on with a full run");
}

/// The end of an attempt that the code has learned of before its report has the time at which it did: replay gives it the
/// same. A clock that runs ahead of the store's makes nothing of tomorrow.
pub async fn family_13_a_late_report_keeps_its_time(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.inline(TaskOptions::default()), holder.inline(TaskOptions::default())];
    let late = holder.inline(TaskOptions::default());
    holder.commit(vec![late]).await;
    rig.pass_after(Duration::from_secs(5)).await;
    let learned = Timestamp(rig.now().0 - 3_000_000);
    let ahead = rig.now().after(Duration::from_secs(60));
    let report = |sequence: u32, at: Timestamp| {
        let mut report = ended(sequence, 1, done(1));
        report.ended_at = Some(at);
        report
    };
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.attempts = vec![report(0, learned), report(1, ahead), report(2, learned)];
    let answer = holder.commit_batch(batch).await;
    let times: Vec<_> = answer.facts.iter().map(|fact| fact.at).collect();
    assert_eq!(times, [learned, rig.now(), learned]);
    let loaded: Vec<_> = holder.load().await.facts.iter().map(|fact| fact.at).collect();
    assert_eq!(loaded, times);
}
