//! Commits: the fence, repeats after a lost answer, atomicity, and what each part of a batch writes.

use super::Factory;
use super::rig::{Holder, ORG, Rig, done, ended, for_signal, for_tasks, for_timer, gracefully, json, refused};
use super::snapshot::Snapshot;
use crate::error::Code;
use crate::id::{EntryId, SignalId};
use crate::model::{
    Batch, BatchEnd, CommitAnswer, Committed, Consumed, EventKind, FactKind, Failure, NewEvent, OpBody, RecordedBody,
    Seen, Status, TaskOptions, TaskStatus, Usage, WaitReason,
};
use crate::payload::Digest;
use std::time::Duration;

fn text(answer: &CommitAnswer) -> String {
    format!("{answer:?}")
}

/// Commits are numbered from 1, and the numbers go on across claims.
pub async fn commits_are_numbered(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    for number in 1..=3 {
        let op = holder.flush();
        let answer = holder.commit(vec![op]).await;
        assert_eq!((answer.number, answer.committed), (number, Committed::Continue));
        assert_eq!((answer.now, answer.high), (rig.now(), rig.high(holder.id).await));
    }
    rig.storage.release(ORG, holder.id, holder.lease).await.unwrap();
    let mut holder = rig.claim(holder.id).await;
    assert_eq!(holder.base, 3);
    assert_eq!(holder.commit(vec![]).await.number, 4);
    assert_eq!(rig.execution(holder.id).await.base, 4);
}

/// Another predecessor than the last commit is refused, and so is another segment.
pub async fn a_commit_names_its_predecessor(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    holder.commit(vec![]).await;
    let before = Snapshot::of(&*rig.storage, holder.id).await;
    for base in [0, 2, u64::MAX] {
        let op = holder.flush();
        let mut request = holder.request(holder.batch(vec![op], BatchEnd::Continue));
        request.base = base;
        assert_eq!(refused(rig.storage.commit(request).await), Code::OutOfOrder);
    }
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.segment = 1;
    assert_eq!(refused(holder.try_commit(batch).await), Code::OutOfOrder);
    assert_eq!(Snapshot::of(&*rig.storage, holder.id).await, before);
}

/// A request that is repeated because its answer was lost gets that answer and does nothing.
pub async fn a_repeated_request_gets_its_answer(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("a"), holder.step()];
    let request = holder.request(holder.batch(ops, BatchEnd::Continue));
    let first = rig.storage.commit(request.clone()).await.unwrap();
    let before = Snapshot::of(&*rig.storage, holder.id).await;
    rig.clock.advance(Duration::from_secs(1));
    rig.signal(holder.id, "later").await;
    let again = rig.storage.commit(request.clone()).await.unwrap();
    assert_eq!(text(&first), text(&again));
    let after = Snapshot::of(&*rig.storage, holder.id).await;
    assert_eq!((before.journal, before.entries), (after.journal, after.entries));
    let mut other = request;
    other.digest = Digest([1; 16]);
    assert_eq!(refused(rig.storage.commit(other).await), Code::OutOfOrder);
}

/// So does one that suspended, paused or ended the run, as long as nobody has claimed it since.
pub async fn a_last_request_gets_its_answer_too(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let failure = Failure::new(Code::AgentFailed, "E", "m");
    let ends = [
        BatchEnd::Suspend(for_signal("go")),
        BatchEnd::Pause { reason: WaitReason::Budget, failure: None },
        BatchEnd::Complete(json(&1)),
        BatchEnd::Fail(failure),
        BatchEnd::Cancelled(None),
    ];
    for end in ends {
        let holder = rig.running().await;
        let request = holder.request(holder.batch(vec![], end.clone()));
        let first = rig.storage.commit(request.clone()).await.unwrap();
        let before = Snapshot::of(&*rig.storage, holder.id).await;
        let again = rig.storage.commit(request.clone()).await.unwrap();
        assert_eq!(text(&first), text(&again), "{end:?}");
        assert_eq!(Snapshot::of(&*rig.storage, holder.id).await, before);
        let mut other = request.clone();
        other.digest = Digest([1; 16]);
        assert_eq!(refused(rig.storage.commit(other).await), Code::OutOfOrder);
        if !matches!(end, BatchEnd::Suspend(_)) {
            let fresh = holder.request(holder.batch(vec![], BatchEnd::Continue));
            assert_eq!(refused(rig.storage.commit(fresh).await), Code::LeaseLost);
        }
        if matches!(end, BatchEnd::Suspend(_)) {
            rig.signal(holder.id, "go").await;
            let again = rig.storage.commit(request.clone()).await.unwrap();
            assert_eq!(text(&first), text(&again));
            rig.claim(holder.id).await;
            assert_eq!(refused(rig.storage.commit(request).await), Code::LeaseLost);
        }
    }
}

/// The last holder of a suspended run may take it up again, until somebody claims it.
pub async fn a_parked_run_is_taken_up_again(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.wait("go", None);
    holder.suspend(vec![op], for_signal("go")).await;
    // Another wait instead of the first.
    let op = holder.abandon(0);
    let known = rig.high(holder.id).await;
    assert_eq!(holder.suspend(vec![op], for_timer()).await.committed, Committed::Suspended);
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::Waiting]);
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.wait), (Status::Waiting, None, Some(for_timer())));
    // More work: the lease is the holder's again.
    rig.clock.advance(Duration::from_secs(100));
    let known = rig.high(holder.id).await;
    let op = holder.entry("a");
    assert_eq!(holder.commit(vec![op]).await.committed, Committed::Continue);
    assert_eq!(rig.kinds_after(holder.id, known).await, [EventKind::Entry, EventKind::Resumed]);
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.epoch, run.wait), (Status::Running, 1, None));
    assert_eq!((run.worker, run.lease_expires), (Some(holder.lease.worker), Some(rig.now().after(super::rig::TTL))));
    assert!(rig.try_claim(holder.id).await.is_none());
    // Also when it was woken and waits for a worker.
    holder.suspend(vec![], for_signal("go")).await;
    rig.signal(holder.id, "go").await;
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let answer = holder.suspend(vec![], for_signal("go")).await;
    assert_eq!((answer.committed, answer.facts.len()), (Committed::Continue, 1));
    assert_eq!(rig.status(holder.id).await, Status::Running);
    // Not by another worker, not once it was claimed, not after it was given back.
    holder.suspend(vec![], for_signal("on")).await;
    let mut forged = holder.request(holder.batch(vec![], BatchEnd::Continue));
    forged.lease.worker = rig.worker();
    assert_eq!(refused(rig.storage.commit(forged).await), Code::LeaseLost);
    rig.signal(holder.id, "on").await;
    let new = rig.claim(holder.id).await;
    assert_eq!(refused(holder.try_commit(holder.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
    rig.storage.release(ORG, new.id, new.lease).await.unwrap();
    let fresh = new.request(new.batch(vec![], BatchEnd::Continue));
    assert_eq!(refused(rig.storage.commit(fresh).await), Code::LeaseLost);
}

/// A stale epoch is refused, even for a request that was once accepted; so is another worker.
pub async fn a_stale_epoch_is_refused(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let old = rig.running().await;
    let request = old.request(old.batch(vec![], BatchEnd::Continue));
    rig.storage.commit(request.clone()).await.unwrap();
    rig.storage.release(ORG, old.id, old.lease).await.unwrap();
    let new = rig.claim(old.id).await;
    assert_eq!(new.lease.epoch, old.lease.epoch + 1);
    assert_eq!(refused(rig.storage.commit(request.clone()).await), Code::LeaseLost);
    let mut forged = new.request(new.batch(vec![], BatchEnd::Continue));
    forged.lease.worker = old.lease.worker;
    assert_eq!(refused(rig.storage.commit(forged).await), Code::LeaseLost);
    let mut early = new.request(new.batch(vec![], BatchEnd::Continue));
    early.lease.epoch += 1;
    assert_eq!(refused(rig.storage.commit(early).await), Code::LeaseLost);
    assert_eq!(refused(rig.storage.load_segment(ORG, old.id, old.lease).await), Code::LeaseLost);
    assert_eq!(refused(rig.storage.release(ORG, old.id, old.lease).await), Code::LeaseLost);
    // A request of a lower epoch is forgotten: the same id is another request now.
    let mut same_id = new.request(new.batch(vec![], BatchEnd::Continue));
    same_id.request_id = request.request_id;
    assert_eq!(rig.storage.commit(same_id).await.unwrap().number, 2);
}

/// A batch that is refused has written nothing at all.
pub async fn a_refused_batch_writes_nothing(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("a"), holder.queued(TaskOptions::default())];
    holder.commit(ops).await;
    let signal = rig.signal(holder.id, "s").await.id;
    let before = Snapshot::of(&*rig.storage, holder.id).await;
    let (next, leaf) = (holder.next, holder.leaf);

    let check = async |holder: &mut Holder<'_>, spoil: &dyn Fn(&mut crate::model::Batch), code: Code| {
        (holder.next, holder.leaf) = (next, leaf);
        let ops = vec![
            holder.entry("b"),
            holder.inline(TaskOptions::default()),
            holder.sleep(Duration::from_secs(1)),
            holder.usage("m", Usage { calls: 1, ..Usage::default() }),
            holder.step(),
        ];
        let mut batch = holder.batch(ops, BatchEnd::Continue);
        batch.attempts.push(ended(next + 1, 1, done(1)));
        batch.consumed.push(Consumed { signal, by: holder.slot(next) });
        batch.code = Some("v2".into());
        spoil(&mut batch);
        assert_eq!(refused(holder.try_commit(batch).await), code);
        assert_eq!(Snapshot::of(&*rig.storage, holder.id).await, before);
    };
    check(&mut holder, &|batch| batch.ops[4].sequence = 0, Code::SlotTaken).await;
    check(&mut holder, &|batch| batch.ops[4].sequence = next, Code::SlotTaken).await;
    let unknown = EntryId(rig.uuid());
    let spoil = |batch: &mut crate::model::Batch| {
        if let OpBody::Entry(entry) = &mut batch.ops[0].body {
            entry.parent = Some(unknown);
        }
    };
    check(&mut holder, &spoil, Code::InvalidArgument).await;
    let nobody = SignalId(rig.uuid());
    check(&mut holder, &|batch| batch.consumed[0].signal = nobody, Code::InvalidArgument).await;
    let twice = |batch: &mut crate::model::Batch| {
        let mut other = batch.consumed[0];
        other.by.sequence += 1;
        batch.consumed.push(other);
    };
    check(&mut holder, &twice, Code::InvalidTransition).await;
    let checkpoint = |batch: &mut crate::model::Batch| {
        let new = crate::model::NewCheckpoint { state: json(&1), leaves: Default::default(), metadata: "{}".into() };
        batch.end = BatchEnd::Checkpoint(new);
    };
    check(&mut holder, &checkpoint, Code::OpenOperations).await;
}

/// Each op is read back as it was written.
pub async fn ops_are_read_back(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let mut ops = vec![
        holder.entry("a"),
        holder.inline(TaskOptions::default()),
        holder.queued(detached),
        holder.wait("go", Some(Duration::from_secs(5))),
        holder.sleep(Duration::from_secs(5)),
        holder.read(json(&true)),
        holder.abandon(4),
        holder.attach(holder.task_id(2)),
        holder.usage("m", Usage { calls: 1, ..Usage::default() }),
        holder.step(),
        holder.flush(),
        holder.once("plan", json(&"p")),
    ];
    ops[5].seen = vec![Seen(1), Seen::CANCEL, Seen(3)];
    ops[5].label.key = crate::model::LabelKey::Key("k".into());
    let asked = ops.clone();
    holder.commit(ops).await;
    let journal = rig.storage.journal(ORG, holder.id, 0).await.unwrap();
    assert_eq!(journal.len(), asked.len());
    for (op, asked) in journal.iter().zip(&asked) {
        assert_eq!(
            (op.sequence, &op.label, &op.seen, &op.once),
            (asked.sequence, &asked.label, &asked.seen, &asked.once)
        );
    }
    let bodies: Vec<_> = journal.iter().map(|op| op.body.clone()).collect();
    let task = |sequence, status, attempt, inline, detached| RecordedBody::Task {
        id: holder.task_id(sequence),
        status,
        attempt,
        inline,
        at_most_once: false,
        detached,
        max_losses: 20,
    };
    let expected = vec![
        RecordedBody::Entry { id: holder.leaf.unwrap(), parent: None, thread: String::new() },
        task(1, TaskStatus::Running, 1, true, false),
        task(2, TaskStatus::Pending, 0, false, true),
        RecordedBody::Signal,
        RecordedBody::Timer,
        RecordedBody::Read { answer: json(&true), count: 1 },
        RecordedBody::Abandon { target: 4 },
        RecordedBody::Attach { task: holder.task_id(2) },
        RecordedBody::Usage,
        RecordedBody::StepMark,
        RecordedBody::Flush,
        RecordedBody::Once { value: json(&"p") },
    ];
    assert_eq!(bodies, expected);
    let segment = holder.load().await;
    assert_eq!(segment.tail, journal);
    assert_eq!(segment.once.len(), 1);
    assert_eq!((&*segment.once[0].name, &segment.once[0].value), ("plan", &json(&"p")));
}

/// A run with news does not wait: the answer has the facts instead.
pub async fn news_keep_a_run_going(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.wait("go", None);
    rig.signal(holder.id, "other").await;
    let answer = holder.suspend(vec![op], for_signal("go")).await;
    assert_eq!((answer.committed, answer.facts.len()), (Committed::Continue, 1));
    assert!(matches!(&answer.facts[0].kind, FactKind::Signal(signal) if signal.name == "other"));
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker), (Status::Running, Some(holder.lease.worker)));
    assert_eq!(rig.storage.journal(ORG, holder.id, 0).await.unwrap().len(), 1);
    let answer = holder.suspend(vec![], for_signal("go")).await;
    assert_eq!((answer.committed, answer.facts.len()), (Committed::Suspended, 0));
}

/// What the batch itself ended is no news to its sender.
pub async fn own_facts_are_no_news(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.inline(TaskOptions::default()), holder.sleep(Duration::from_secs(9))];
    let mut batch = holder.batch(ops, BatchEnd::Suspend(for_timer()));
    batch.attempts.push(ended(0, 1, done(1)));
    let answer = holder.commit_batch(batch).await;
    assert_eq!(answer.committed, Committed::Suspended);
    assert_eq!(answer.facts.len(), 1);
    assert!(matches!(&answer.facts[0].kind, FactKind::Task { result: Ok(_), .. }));
}

/// An answer has all facts above `known`, in order, those of the batch included.
pub async fn answers_carry_facts(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let known = holder.known;
    rig.signal(holder.id, "a").await;
    let op = holder.inline(TaskOptions::default());
    let mut batch = holder.batch(vec![op], BatchEnd::Continue);
    batch.attempts.push(ended(0, 1, done(7)));
    let answer = holder.commit_batch(batch).await;
    assert_eq!(answer.facts.len(), 2);
    assert!(answer.facts.is_sorted_by_key(|fact| fact.number));
    assert!(answer.facts.iter().all(|fact| fact.number > known && fact.number <= answer.high));
    assert!(matches!(answer.facts[0].kind, FactKind::Signal(_)));
    let expected = FactKind::Task { task: holder.task_id(0), result: Ok(json(&7)) };
    assert_eq!(answer.facts[1].kind, expected);
    let (facts, high, _) = rig.storage.facts_after(ORG, holder.id, known).await.unwrap();
    assert_eq!((facts, high), (answer.facts.clone(), answer.high));
    let (facts, ..) = rig.storage.facts_after(ORG, holder.id, answer.facts[0].number).await.unwrap();
    assert_eq!(facts, answer.facts[1..]);
    assert!(holder.commit(vec![]).await.facts.is_empty());
}

/// The counts of recorded reads, the code, usage and the session's own events.
pub async fn small_parts_of_a_batch(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let cost = Usage { calls: 1, input_tokens: 10, output_tokens: 5, cost_micros: Some(3), ..Usage::default() };
    let ops = vec![holder.read(json(&false)), holder.usage("m", cost.clone()), holder.usage("m", cost.clone())];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.code = Some("v1".into());
    let warning = NewEvent { kind: EventKind::Warning, sequence: Some(0), data: serde_json::json!({ "why": "x" }) };
    batch.events.push(warning.clone());
    holder.commit_batch(batch).await;
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.read_counts = vec![(0, 4), (77, 1)];
    holder.commit_batch(batch).await;
    let journal = rig.storage.journal(ORG, holder.id, 0).await.unwrap();
    assert_eq!(journal[0].body, RecordedBody::Read { answer: json(&false), count: 4 });
    let run = rig.execution(holder.id).await;
    assert_eq!(run.code.as_deref(), Some("v1"));
    let sum = &run.usage.0["m"];
    assert_eq!((sum.calls, sum.input_tokens, sum.output_tokens, sum.cost_micros), (2, 20, 10, Some(6)));
    let events = rig.events(holder.id).await;
    let told = events.iter().find(|event| event.kind == EventKind::Warning).unwrap();
    assert_eq!((told.sequence, &told.data), (Some(0), &warning.data));
    let usage = events.iter().find(|event| event.kind == EventKind::Usage).unwrap();
    assert_eq!(usage.data, serde_json::json!({ "model": "m", "usage": cost }));
    assert_eq!(usage.sequence, Some(1));
}

/// Orphaned ops: entries stay, tasks are cancelled, timers are off, signals go back to their place.
pub async fn orphans_give_back_what_they_took(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let first = rig.signal(holder.id, "s").await.id;
    let second = rig.signal(holder.id, "s").await.id;
    let ops = vec![
        holder.entry("dead"),
        holder.queued(TaskOptions::default()),
        holder.sleep(Duration::from_secs(1)),
        holder.wait("s", None),
    ];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.consumed.push(Consumed { signal: first, by: holder.slot(3) });
    holder.known = rig.high(holder.id).await;
    holder.commit_batch(batch).await;
    assert_eq!(rig.mailbox(holder.id).await[0].consumed_by, Some(holder.slot(3)));
    let numbers: Vec<_> = rig.mailbox(holder.id).await.iter().map(|signal| signal.number).collect();
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.orphaned = vec![0, 1, 2, 3, 40];
    let answer = holder.commit_batch(batch).await;
    assert_eq!(rig.task(holder.id, holder.task_id(1)).await.status, TaskStatus::Cancelled);
    assert!(answer.facts.iter().any(|fact| matches!(fact.kind, FactKind::Task { result: Err(_), .. })));
    assert!(rig.claim_tasks().await.is_empty());
    let mailbox = rig.mailbox(holder.id).await;
    assert_eq!(mailbox.iter().map(|signal| signal.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(mailbox.iter().map(|signal| signal.number).collect::<Vec<_>>(), numbers);
    assert!(mailbox.iter().all(|signal| signal.consumed_by.is_none()));
    rig.pass_after(Duration::from_secs(2)).await;
    assert!(!rig.kinds_after(holder.id, 0).await.contains(&EventKind::Timer));
    let segment = holder.load().await;
    assert_eq!(segment.tail.len(), 4);
    assert_eq!(rig.storage.branch(ORG, holder.leaf.unwrap(), None).await.unwrap().len(), 1);
    let mut op = holder.flush();
    op.sequence = 2;
    assert_eq!(refused(holder.try_commit(holder.batch(vec![op], BatchEnd::Continue)).await), Code::SlotTaken);
}

/// A commit tells of a stop that was asked for.
pub async fn answers_tell_of_a_stop(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let cancel = gracefully(Duration::from_secs(5));
    rig.storage.request_cancel(ORG, holder.id, cancel).await.unwrap();
    let answer = holder.commit(vec![]).await;
    assert_eq!(answer.cancel, Some(cancel));
    assert!(answer.facts.iter().any(|fact| fact.kind == FactKind::Cancel(cancel)));
}

/// A wait for several things ends with whichever comes first, and only with what it names.
pub async fn a_wait_is_for_what_it_names(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops =
        vec![holder.queued(TaskOptions::default()), holder.wait("go", None), holder.sleep(Duration::from_secs(5))];
    holder.suspend(ops, for_signal("go")).await;
    let task = rig.claim_task().await;
    rig.report(&task, done(1)).await.unwrap();
    rig.pass_after(Duration::from_secs(6)).await;
    assert!(!rig.signal(holder.id, "other").await.resumed);
    assert_eq!(rig.status(holder.id).await, Status::Waiting);
    assert!(rig.signal(holder.id, "go").await.resumed);
    assert_eq!(rig.status(holder.id).await, Status::Pending);
    let mut holder = rig.claim(holder.id).await;
    let op = holder.queued(TaskOptions::default());
    let wait = crate::model::Wait { signals: vec!["go".into()], timers: true, ..for_tasks() };
    holder.suspend(vec![op], wait).await;
    let task = rig.claim_task().await;
    rig.report(&task, done(1)).await.unwrap();
    assert_eq!(rig.status(holder.id).await, Status::Pending);
}

/// A commit has its limit: what is over it is refused in whole.
pub async fn a_commit_may_be_too_large(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops: Vec<_> = (0..=Batch::MOST).map(|_| holder.flush()).collect();
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    assert_eq!(refused(holder.try_commit(batch.clone()).await), Code::LimitReached);
    batch.ops.pop();
    holder.commit_batch(batch).await;
    assert_eq!(rig.storage.journal(ORG, holder.id, 0).await.unwrap().len(), Batch::MOST);
}
