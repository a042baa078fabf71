//! Limits of steps and tails, and how a run goes on after reaching one.

use super::Factory;
use super::rig::{ORG, Rig, for_signal, json, refused};
use crate::error::Code;
use crate::model::{
    Allowance, BatchEnd, Committed, EventKind, OpBody, RecordedBody, ResumeRequest, Spent, Status, Usage, WaitReason,
};

/// The step over the limit is written, and the store pauses the run.
pub async fn a_step_over_the_limit_pauses(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.max_steps = Some(2)).await;
    let mut holder = rig.claim(id).await;
    let ops = vec![holder.step(), holder.step()];
    assert_eq!(holder.commit(ops).await.paused, None);
    assert_eq!(holder.commit(vec![]).await.paused, None);
    let op = holder.step();
    let answer = holder.suspend(vec![op], for_signal("x")).await;
    assert_eq!(answer.committed, Committed::Finished(Status::Paused));
    assert_eq!(answer.paused, Some(WaitReason::StepLimit));
    let run = rig.execution(id).await;
    assert_eq!((run.status, run.worker, run.step_count), (Status::Paused, None, 3));
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::StepLimit));
    assert_eq!(rig.storage.journal(ORG, id, 0).await.unwrap().len(), 3);
    let last = rig.events(id).await.pop().unwrap();
    assert_eq!((last.kind, last.data), (EventKind::Paused, serde_json::json!({ "reason": "step_limit" })));
}

/// A resume gives steps anew: as many as asked for, else as many as at the start.
pub async fn a_resume_gives_steps(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.max_steps = Some(1)).await;
    let mut holder = rig.claim(id).await;
    let ops = vec![holder.step(), holder.step()];
    holder.commit(ops).await;
    let more = ResumeRequest { max_steps: Some(5), ..Default::default() };
    let run = rig.storage.resume(ORG, id, more).await.unwrap();
    assert_eq!((run.status, run.step_count, run.step_limit), (Status::Pending, 2, Some(7)));
    let last = rig.events(id).await.pop().unwrap();
    assert_eq!((last.kind, last.data), (EventKind::Continued, serde_json::json!({ "from": "step_limit" })));
    let mut holder = rig.claim(id).await;
    let ops = (0..5).map(|_| holder.step()).collect();
    assert_eq!(holder.commit(ops).await.paused, None);
    let op = holder.step();
    assert_eq!(holder.commit(vec![op]).await.paused, Some(WaitReason::StepLimit));
    let run = rig.storage.resume(ORG, id, ResumeRequest::default()).await.unwrap();
    assert_eq!((run.step_count, run.step_limit), (8, Some(9)));
}

/// Past the cumulative limit a resume is refused.
pub async fn the_cumulative_limit_holds(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig
        .start_as(|new| {
            new.limits.max_steps = Some(2);
            new.limits.max_total_steps = Some(4);
        })
        .await;
    let mut holder = rig.claim(id).await;
    let ops = (0..3).map(|_| holder.step()).collect();
    holder.commit(ops).await;
    rig.storage.resume(ORG, id, ResumeRequest::default()).await.unwrap();
    let mut holder = rig.claim(id).await;
    let ops = (0..3).map(|_| holder.step()).collect();
    assert_eq!(holder.commit(ops).await.paused, Some(WaitReason::StepLimit));
    let high = rig.high(id).await;
    let refusal =
        rig.storage.resume(ORG, id, ResumeRequest { message: Some(json(&"more")), ..Default::default() }).await;
    assert_eq!(refused(refusal), Code::StepLimitReached);
    assert_eq!((rig.status(id).await, rig.high(id).await), (Status::Paused, high));
}

/// A long tail pauses a run without checkpoints, and only such a one.
pub async fn a_long_tail_pauses(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.max_tail = Some(4)).await;
    let mut holder = rig.claim(id).await;
    let ops = (0..3).map(|_| holder.flush()).collect();
    assert_eq!(holder.commit(ops).await.paused, None);
    let op = holder.flush();
    assert_eq!(holder.commit(vec![op]).await.paused, Some(WaitReason::TailLimit));
    assert_eq!(rig.storage.journal(ORG, id, 0).await.unwrap().len(), 4);
    let run = rig.storage.resume(ORG, id, ResumeRequest::default()).await.unwrap();
    assert_eq!((run.status, run.tail_limit), (Status::Pending, 8));
    let mut holder = rig.claim(id).await;
    let ops = (0..4).map(|_| holder.flush()).collect();
    assert_eq!(holder.commit(ops).await.paused, Some(WaitReason::TailLimit));
    let more = ResumeRequest { max_tail: Some(100), ..Default::default() };
    assert_eq!(rig.storage.resume(ORG, id, more).await.unwrap().tail_limit, 100);

    let id = rig.start_as(|new| new.limits.max_tail = Some(2)).await;
    let mut holder = rig.claim(id).await;
    let ops = (0..3).map(|_| holder.flush()).collect();
    assert_eq!(holder.checkpoint(ops, json(&1)).await.paused, None);
    let ops = (0..3).map(|_| holder.flush()).collect();
    assert_eq!(holder.commit(ops).await.paused, None);
}

/// A batch that ends the run is not stopped by a limit.
pub async fn an_end_goes_before_a_limit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig
        .start_as(|new| {
            new.limits.max_steps = Some(1);
            new.limits.max_tail = Some(1);
        })
        .await;
    let mut holder = rig.claim(id).await;
    let ops = vec![holder.step(), holder.step()];
    let answer = holder.end(ops, BatchEnd::Complete(json(&1))).await;
    assert_eq!((answer.committed, answer.paused), (Committed::Finished(Status::Completed), None));
}

/// A checkpoint is kept when the same batch reaches the limit.
pub async fn a_checkpoint_at_the_limit_is_kept(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.max_steps = Some(1)).await;
    let mut holder = rig.claim(id).await;
    let ops = vec![holder.step(), holder.step()];
    let answer = holder.checkpoint(ops, json(&"s")).await;
    assert_eq!((answer.committed, answer.paused), (Committed::Finished(Status::Paused), Some(WaitReason::StepLimit)));
    assert_eq!(rig.execution(id).await.segment, 1);
    let kinds = rig.kinds_after(id, 0).await;
    assert_eq!(kinds[kinds.len() - 2..], [EventKind::Checkpoint, EventKind::Paused]);
}

/// A message given with a resume is an entry of the conversation.
pub async fn a_resume_may_bring_a_message(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.entry("a");
    holder.end(vec![op], BatchEnd::Pause { reason: WaitReason::Budget, failure: None }).await;
    let message = json(&"go on");
    let request = ResumeRequest { message: Some(message.clone()), budget: Some("9".into()), ..Default::default() };
    let run = rig.storage.resume(ORG, holder.id, request).await.unwrap();
    assert_eq!(run.new.limits.budget.as_deref(), Some("9"));
    let branch = rig.storage.branch(ORG, run.leaf.unwrap(), None).await.unwrap();
    assert_eq!(branch.len(), 2);
    let entry = &branch[1];
    assert_eq!((entry.new.parent, &entry.new.content, entry.depth), (holder.leaf, &message, 1));
    assert_eq!((entry.new.role.as_str(), entry.new.thread.as_str(), entry.slot.sequence), ("user", "", 1));
    let kinds = rig.kinds_after(holder.id, 0).await;
    assert_eq!(kinds[kinds.len() - 2..], [EventKind::Entry, EventKind::Continued]);
    let mut holder = rig.claim(holder.id).await;
    let segment = holder.load().await;
    assert_eq!(segment.tail.len(), 2);
    assert!(matches!(&segment.tail[1].body, RecordedBody::Entry { id, .. } if *id == entry.new.id));
    let label = &segment.tail[1].label;
    assert_eq!((&*label.name, &label.key), ("resume", &crate::model::LabelKey::Key("flovyn:resume".into())));
    // The next entry follows it.
    let op = holder.entry("b");
    assert!(matches!(&op.body, OpBody::Entry(new) if new.parent == Some(entry.new.id)));
    holder.commit(vec![op]).await;
    assert_eq!(rig.storage.branch(ORG, holder.leaf.unwrap(), None).await.unwrap().len(), 3);
}

/// A budget given with a resume counts what is used from then on; one that is used up is given again as it was.
pub async fn a_resume_gives_a_budget_from_now_on(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.budget = Some("100".into())).await;
    let budget = |text| ResumeRequest { budget: Some(str::to_owned(text)), ..Default::default() };
    let mut since = Vec::new();
    for (pause, request) in [
        (WaitReason::Budget, budget("50")),
        (WaitReason::Budget, ResumeRequest::default()),
        (WaitReason::Divergence, ResumeRequest::default()),
    ] {
        let mut holder = rig.claim(id).await;
        let op = holder.usage("m", Usage { calls: 1, input_tokens: 30, output_tokens: 12, ..Usage::default() });
        holder.end(vec![op], BatchEnd::Pause { reason: pause, failure: None }).await;
        let wrong = rig.storage.resume(ORG, id, budget("much")).await;
        assert_eq!(refused(wrong), Code::InvalidArgument);
        assert_eq!(rig.status(id).await, Status::Paused);
        rig.storage.resume(ORG, id, request).await.unwrap();
        let kept = Allowance::parse(&rig.execution(id).await.new.limits.budget.unwrap()).unwrap();
        assert_eq!(kept.budget.max_tokens, Some(50));
        since.push(kept.since);
    }
    let used = |calls| Spent { tokens: 42 * calls, cost_micros: 0, calls };
    assert_eq!(since, [used(1), used(2), used(2)], "a pause for another reason leaves it as it is");
}
