//! Forks: at checkpoints, ops and entries, nested, and what goes with them.

use super::Factory;
use super::rig::{Holder, ORG, Rig, done, ended, entry_id, for_tasks, gracefully, json, refused};
use super::snapshot::Snapshot;
use crate::error::Code;
use crate::id::{EntryId, ExecutionId, Slot};
use crate::model::{
    BatchEnd, Consumed, EventKind, Execution, FactKind, ForkFrom, ForkPoint, ForkRequest, RecordedBody, Seen, Segment,
    Status, TaskOptions,
};
use crate::payload::Payload;
use std::time::Duration;

fn request(rig: &Rig, execution: ExecutionId, from: ForkFrom) -> ForkRequest {
    ForkRequest { org: ORG, execution, id: ExecutionId(rig.uuid()), key: None, from, state: None, input: None }
}

async fn fork(rig: &Rig, execution: ExecutionId, from: ForkFrom) -> Execution {
    rig.storage.fork(request(rig, execution, from)).await.expect("the fork is made")
}

fn op(sequence: u32) -> ForkFrom {
    ForkFrom::Op(Slot { segment: 0, sequence })
}

async fn load<'a>(rig: &'a Rig, run: &Execution) -> (Holder<'a>, Segment) {
    let holder = rig.claim(run.new.id).await;
    let segment = holder.load().await;
    (holder, segment)
}

fn sequences(segment: &Segment) -> Vec<u32> {
    segment.tail.iter().map(|op| op.sequence).collect()
}

/// A fork at a checkpoint starts there, with what was asked of its parent.
pub async fn a_fork_at_a_checkpoint(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig
        .start_as(|new| {
            new.metadata.insert("user".into(), "ada".into());
            new.limits.max_steps = Some(9);
            new.priority = 3;
        })
        .await;
    let mut holder = rig.claim(id).await;
    let ops = vec![holder.entry("a"), holder.once("plan", json(&"p")), holder.step()];
    holder.checkpoint(ops, json(&"one")).await;
    let first = holder.leaf;
    let ops = vec![holder.entry("b"), holder.once("late", json(&"l"))];
    holder.checkpoint(ops, json(&"two")).await;
    let op = holder.entry("c");
    holder.commit(vec![op]).await;
    let before = Snapshot::of(&*rig.storage, id).await;

    let run = fork(&rig, id, ForkFrom::Checkpoint(1)).await;
    assert_eq!((run.status, run.epoch, run.base, run.segment), (Status::Pending, 0, 0, 1));
    assert_eq!((run.leaf, run.root, run.step_count, run.step_limit), (first, run.new.id, 0, Some(9)));
    assert_eq!(run.forked_from, Some(ForkPoint { execution: id, segment: 1, sequence: None }));
    assert_eq!((run.new.metadata.len(), run.new.priority, &run.new.kind), (1, 3, &"agent".to_owned()));
    assert_eq!(rig.kinds_after(run.new.id, 0).await, [EventKind::Forked]);
    let (mut forked, segment) = load(&rig, &run).await;
    let checkpoint = segment.checkpoint.clone().unwrap();
    assert_eq!((checkpoint.sequence, checkpoint.execution), (1, run.new.id));
    assert_eq!(checkpoint.saved.state, json(&"one"));
    assert!(segment.tail.is_empty() && segment.facts.is_empty());
    assert_eq!(segment.once.iter().map(|once| &*once.name).collect::<Vec<_>>(), ["plan"]);
    let op = forked.entry("other");
    forked.checkpoint(vec![op], json(&"fork")).await;
    assert_eq!(rig.storage.branch(ORG, forked.leaf.unwrap(), None).await.unwrap().len(), 2);
    assert_eq!(Snapshot::of(&*rig.storage, id).await, before);
    let run = fork(&rig, id, ForkFrom::Latest).await;
    assert_eq!(run.segment, 2);
    assert_eq!(load(&rig, &run).await.1.once.len(), 2);
}

/// State and input may be replaced at a checkpoint.
pub async fn state_and_input_may_be_replaced(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    holder.checkpoint(vec![], json(&"one")).await;
    let mut asked = request(&rig, holder.id, ForkFrom::Checkpoint(1));
    (asked.state, asked.input, asked.key) = (Some(json(&"mine")), Some(json(&"in")), Some("k".into()));
    let run = rig.storage.fork(asked).await.unwrap();
    assert_eq!((&run.new.input, run.new.input_digest), (&json(&"in"), json(&"in").digest().unwrap()));
    assert_eq!(run.new.key.as_deref(), Some("k"));
    let (_, segment) = load(&rig, &run).await;
    assert_eq!(segment.checkpoint.unwrap().saved.state, json(&"mine"));
}

/// A fork at an op replays its parent's tail up to it, and goes on above it.
pub async fn a_fork_at_an_op(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![
        holder.entry("a"),
        holder.inline(TaskOptions::default()),
        holder.entry("b"),
        holder.once("plan", json(&"p")),
        holder.entry("c"),
        holder.once("late", json(&"l")),
    ];
    let (first, second) = (entry_id(&ops[0]).unwrap(), entry_id(&ops[2]).unwrap());
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.attempts.push(ended(1, 1, done(4)));
    batch.code = Some("v1".into());
    holder.commit_batch(batch).await;
    let run = fork(&rig, holder.id, op(3)).await;
    assert_eq!(run.forked_from, Some(ForkPoint { execution: holder.id, segment: 0, sequence: Some(3) }));
    assert_eq!((run.segment, run.leaf, run.code.as_deref()), (0, Some(second), Some("v1")));
    let (mut forked, segment) = load(&rig, &run).await;
    assert_eq!(sequences(&segment), [0, 1, 2, 3]);
    let parent = rig.storage.journal(ORG, holder.id, 0).await.unwrap();
    assert_eq!(segment.tail, parent[..4]);
    assert!(segment.checkpoint.is_none());
    assert_eq!(segment.facts.len(), 1);
    assert_eq!(segment.facts[0].number, 0);
    assert_eq!(segment.facts[0].kind, FactKind::Task { task: holder.task_id(1), result: Ok(json(&4)) });
    assert_eq!(segment.once.iter().map(|once| &*once.name).collect::<Vec<_>>(), ["plan"]);
    assert_eq!(rig.storage.branch(ORG, run.leaf.unwrap(), None).await.unwrap()[0].new.id, first);
    // Slots of the parent's tail are taken.
    forked.next = 3;
    let taken = forked.flush();
    assert_eq!(refused(forked.try_commit(forked.batch(vec![taken], BatchEnd::Continue)).await), Code::SlotTaken);
    let free = vec![forked.entry("d"), forked.queued(TaskOptions::default())];
    forked.suspend(free, for_tasks()).await;
    assert_eq!(rig.storage.journal(ORG, run.new.id, 0).await.unwrap().len(), 2);
    let task = rig.claim_task().await;
    rig.report(&task, done(5)).await.unwrap();
    let (_, segment) = load(&rig, &rig.execution(run.new.id).await).await;
    assert_eq!(sequences(&segment), [0, 1, 2, 3, 4, 5]);
    assert_eq!(segment.facts.len(), 2);
    assert!(segment.facts[1].number > 0);
}

/// What had no outcome is left out, with what only refers to it; the mailbox stays with the parent.
pub async fn what_is_in_flight_is_left_out(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let taken = rig.signal(holder.id, "s").await.id;
    rig.signal(holder.id, "s").await;
    let ops = vec![
        holder.wait("s", None),
        holder.queued(TaskOptions::default()),
        holder.sleep(Duration::from_secs(1)),
        holder.sleep(Duration::from_secs(100)),
        holder.wait("t", Some(Duration::from_secs(1))),
        holder.wait("u", None),
        holder.abandon(5),
        holder.abandon(2),
        holder.attach(holder.task_id(1)),
        holder.read(json(&1)),
    ];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.consumed.push(Consumed { signal: taken, by: holder.slot(0) });
    holder.commit_batch(batch).await;
    rig.pass_after(Duration::from_secs(1)).await;
    let run = fork(&rig, holder.id, ForkFrom::Latest).await;
    let task = rig.claim_task().await;
    // What the parent does later changes nothing.
    rig.report(&task, done(1)).await.unwrap();
    let (forked, segment) = load(&rig, &run).await;
    assert_eq!(sequences(&segment), [0, 2, 4, 7, 9]);
    let kinds: Vec<_> = segment.facts.iter().map(|fact| fact.kind.clone()).collect();
    assert_eq!(kinds.len(), 3);
    assert!(
        matches!(&kinds[0], FactKind::Signal(signal) if signal.id == taken && signal.consumed_by == Some(holder.slot(0)))
    );
    assert_eq!(kinds[1..], [FactKind::Timer { slot: holder.slot(2) }, FactKind::Timer { slot: holder.slot(4) }]);
    assert!(segment.facts.iter().all(|fact| fact.number == 0));
    assert!(rig.mailbox(forked.id).await.is_empty());
    assert_eq!(segment.high, rig.high(forked.id).await);
}

/// A signal that the parent gives back later, or hands to another op, is still the outcome of the op that had it then.
pub async fn a_fork_keeps_what_its_parent_gives_back(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let taken = rig.signal(holder.id, "s").await.id;
    let ops = vec![holder.wait("s", None), holder.wait("s", None), holder.wait("s", None)];
    holder.commit(ops).await;
    let mut forks = Vec::new();
    for (sequence, orphan) in [(0, None), (1, Some(0)), (2, Some(1))] {
        let mut batch = holder.batch(vec![], BatchEnd::Continue);
        batch.orphaned.extend(orphan);
        holder.commit_batch(batch).await;
        let between = fork(&rig, holder.id, ForkFrom::Latest).await;
        let mut batch = holder.batch(vec![], BatchEnd::Continue);
        batch.consumed.push(Consumed { signal: taken, by: holder.slot(sequence) });
        holder.commit_batch(batch).await;
        forks.push((fork(&rig, holder.id, ForkFrom::Latest).await, vec![sequence]));
        forks.push((between, vec![]));
    }
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.orphaned.push(2);
    holder.commit_batch(batch).await;
    for (fork, expected) in forks {
        let (_, segment) = load(&rig, &fork).await;
        assert_eq!(sequences(&segment), expected);
        let told = segment.facts.iter().map(|fact| match &fact.kind {
            FactKind::Signal(signal) => signal.consumed_by.map(|by| by.sequence),
            other => panic!("a fork has {other:?}"),
        });
        assert_eq!(told.collect::<Vec<_>>(), expected.into_iter().map(Some).collect::<Vec<_>>());
    }
}

/// What ops that are left out had seen goes to the next op that is kept: replay hands outcomes over as the parent was told.
pub async fn what_was_seen_is_kept_in_its_order(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let taken = rig.signal(holder.id, "s").await.id;
    let mut ops: Vec<_> = (0..4).map(|_| holder.inline(TaskOptions::default())).collect();
    ops.push(holder.wait("s", None));
    let told: [(_, &[u32]); 8] = [
        (holder.wait("u", None), &[1]),
        // The signal that the wait was told of goes back; and an edit may have one outcome told twice.
        (holder.queued(TaskOptions::default()), &[4, 0, 3]),
        (holder.abandon(5), &[2]),
        (holder.entry("a"), &[0]),
        (holder.entry("b"), &[]),
        (holder.wait("t", None), &[u32::MAX, 3]),
        (holder.entry("c"), &[8]),
        (holder.wait("v", None), &[9]),
    ];
    ops.extend(told.into_iter().map(|(mut op, seen)| {
        op.seen = seen.iter().copied().map(Seen).collect();
        op
    }));
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.attempts.extend((0..4).map(|sequence| ended(sequence, 1, done(4))));
    batch.consumed.push(Consumed { signal: taken, by: holder.slot(4) });
    holder.commit_batch(batch).await;
    let mut batch = holder.batch(vec![], BatchEnd::Continue);
    batch.orphaned.push(4);
    holder.commit_batch(batch).await;

    let seen = |segment: &Segment| -> Vec<(u32, Vec<u32>)> {
        let of = |seen: &[Seen]| seen.iter().map(|seen| seen.0).collect();
        segment.tail.iter().map(|op| (op.sequence, of(&op.seen))).collect()
    };
    let nothing = (0..4).map(|sequence| (sequence, vec![]));
    let expected: Vec<_> = nothing.chain([(8, vec![1, 3, 2, 0]), (9, vec![]), (11, vec![3, 8])]).collect();
    let run = fork(&rig, holder.id, ForkFrom::Latest).await;
    let (_, segment) = load(&rig, &run).await;
    assert_eq!(seen(&segment), expected);
    // What nobody was told any more by an op comes in the order in which it was stored.
    let short = fork(&rig, holder.id, op(7)).await;
    assert_eq!(seen(&load(&rig, &short).await.1), expected[..4]);
    let again = fork(&rig, run.new.id, op(8)).await;
    assert_eq!(seen(&load(&rig, &again).await.1), expected[..5]);
}

/// A task that was cancelled for what came after the point is open there, unless its parent knew of it by then.
pub async fn what_was_cancelled_later_is_open(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let mut ops: Vec<_> = (0..3).map(|_| holder.queued(TaskOptions::default())).collect();
    ops.extend([holder.queued(detached), holder.entry("a"), holder.attach(holder.task_id(3))]);
    holder.commit(ops).await;
    let mut ops = vec![holder.abandon(0), holder.entry("b"), holder.entry("c"), holder.entry("d")];
    ops[2].seen = vec![Seen(1)];
    ops[3].seen = vec![Seen(5)];
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.orphaned = vec![0, 1, 3];
    holder.commit_batch(batch).await;
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;

    let kept = async |id, from| {
        let run = fork(&rig, id, from).await;
        let (_, segment) = load(&rig, &run).await;
        let cancelled = |fact: &crate::model::Fact| match &fact.kind {
            FactKind::Task { task, result: Err(failure) } => {
                assert_eq!((fact.number, failure.code), (0, Code::Cancelled));
                *task
            }
            other => panic!("{other:?} is none of a cancelled task"),
        };
        (run.new.id, sequences(&segment), segment.facts.iter().map(cancelled).collect::<Vec<_>>())
    };
    let [given_up, told, joined] = [0, 1, 3].map(|sequence| holder.task_id(sequence));
    let (_, ops, facts) = kept(holder.id, op(5)).await;
    assert_eq!((ops, facts), (vec![4], vec![]));
    let (_, ops, facts) = kept(holder.id, op(7)).await;
    assert_eq!((ops, facts), (vec![0, 4, 6, 7], vec![given_up]));
    let (_, ops, facts) = kept(holder.id, op(8)).await;
    assert_eq!((ops, facts), (vec![0, 1, 4, 6, 7, 8], vec![given_up, told]));
    let (last, ops, facts) = kept(holder.id, ForkFrom::Latest).await;
    assert_eq!((ops, facts), (vec![0, 1, 3, 4, 5, 6, 7, 8, 9], vec![given_up, told, joined]));
    // And so it is for a fork of the fork.
    let (_, ops, facts) = kept(last, op(7)).await;
    assert_eq!((ops, facts), (vec![0, 4, 6, 7], vec![given_up]));
}

/// What was done for a request to stop goes with no fork, for nobody asks that one to stop.
pub async fn what_was_done_for_a_stop_is_left_out(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("a"), holder.queued(TaskOptions::default())];
    holder.commit(ops).await;
    rig.storage.request_cancel(ORG, holder.id, gracefully(Duration::from_secs(30))).await.unwrap();
    let mut ops = vec![holder.entry("b"), holder.abandon(1), holder.entry("sorry"), holder.flush()];
    ops[1].seen = vec![Seen::CANCEL];
    let (before, sorry) = (entry_id(&ops[0]).unwrap(), entry_id(&ops[2]).unwrap());
    let mut batch = holder.batch(ops, BatchEnd::Continue);
    batch.orphaned = vec![1];
    holder.commit_batch(batch).await;

    let checked = async |id, from| {
        let run = fork(&rig, id, from).await;
        assert_eq!((run.leaf, run.forked_from.unwrap().sequence), (Some(before), Some(2)));
        let (_, segment) = load(&rig, &run).await;
        assert_eq!(sequences(&segment), [0, 2]);
        run
    };
    checked(holder.id, op(2)).await;
    checked(holder.id, ForkFrom::Latest).await;
    for from in [op(3), op(5), ForkFrom::Entry(sorry)] {
        let why = rig.storage.fork(request(&rig, holder.id, from)).await.unwrap_err();
        assert_eq!(why.code(), Code::InvalidArgument);
        assert!(why.to_string().contains("fork it at 0-2 or before"), "{why}");
    }
    holder.end(vec![], BatchEnd::Cancelled(None)).await;
    let run = checked(holder.id, ForkFrom::Latest).await;
    // And so it is for a fork of the fork, be its own first op one that knows of its own stop.
    let run = checked(run.new.id, ForkFrom::Latest).await;
    let run = fork(&rig, run.new.id, ForkFrom::Latest).await;
    let (mut forked, _) = load(&rig, &run).await;
    forked.next = 3;
    rig.storage.request_cancel(ORG, forked.id, gracefully(Duration::from_secs(30))).await.unwrap();
    let mut ops = vec![forked.entry("sorry")];
    ops[0].seen = vec![Seen::CANCEL];
    forked.commit(ops).await;
    checked(forked.id, ForkFrom::Latest).await;
}

/// An entry names the op that appended it, or the last checkpoint at or above it.
pub async fn a_fork_at_an_entry(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut plain = rig.running().await;
    let ops = vec![plain.entry("a"), plain.flush(), plain.entry("b"), plain.flush()];
    let b = entry_id(&ops[2]).unwrap();
    plain.commit(ops).await;
    let run = fork(&rig, plain.id, ForkFrom::Entry(b)).await;
    assert_eq!(run.forked_from.and_then(|point| point.sequence), Some(2));
    assert_eq!(run.leaf, Some(b));

    let mut holder = rig.running().await;
    let mut leaves = Vec::new();
    for n in 0..3 {
        let op = holder.entry("said");
        leaves.push(holder.leaf.unwrap());
        holder.commit(vec![op]).await;
        holder.checkpoint(vec![], json(&n)).await;
    }
    let op = holder.entry("last");
    holder.commit(vec![op]).await;
    let between = async |entry: EntryId| fork(&rig, holder.id, ForkFrom::Entry(entry)).await.segment;
    assert_eq!(between(leaves[0]).await, 1);
    assert_eq!(between(leaves[1]).await, 2);
    assert_eq!(between(holder.leaf.unwrap()).await, 3);
}

/// A fork of a fork of a fork.
pub async fn forks_may_be_nested(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = (0..4).map(|n| holder.entry(&n.to_string())).collect();
    holder.commit(ops).await;
    let one = fork(&rig, holder.id, op(2)).await;
    let (mut forked, _) = load(&rig, &one).await;
    forked.next = 3;
    let mut ops = vec![forked.entry("x"), forked.inline(TaskOptions::default()), forked.entry("y")];
    ops.push(forked.once("plan", json(&"p")));
    let mut batch = forked.batch(ops, BatchEnd::Continue);
    batch.attempts.push(ended(4, 1, done(1)));
    forked.commit_batch(batch).await;
    let two = fork(&rig, one.new.id, op(4)).await;
    let (_, segment) = load(&rig, &two).await;
    assert_eq!(sequences(&segment), [0, 1, 2, 3, 4]);
    assert_eq!((segment.facts.len(), segment.once.len()), (1, 0));
    // Below the point where the first fork began.
    let low = fork(&rig, one.new.id, op(1)).await;
    let (_, segment) = load(&rig, &low).await;
    assert_eq!(sequences(&segment), [0, 1]);
    let three = fork(&rig, two.new.id, ForkFrom::Latest).await;
    assert_eq!(three.forked_from.and_then(|point| point.sequence), Some(4));
    let (_, segment) = load(&rig, &three).await;
    assert_eq!(sequences(&segment), [0, 1, 2, 3, 4]);
    assert_eq!(segment.facts.len(), 1);
    let texts: Vec<_> = rig.storage.branch(ORG, three.leaf.unwrap(), None).await.unwrap();
    let texts: Vec<_> = texts.iter().map(|entry| entry.new.content.clone()).collect();
    let expected: Vec<Payload> = ["0", "1", "2", "x"].iter().map(json).collect();
    assert_eq!(texts, expected);
    let whole = fork(&rig, one.new.id, ForkFrom::Latest).await;
    assert_eq!(load(&rig, &whole).await.1.once.len(), 1);
}

/// A fork of a run without ops starts from nothing; its input may be replaced.
pub async fn a_fork_of_nothing(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    let mut asked = request(&rig, id, ForkFrom::Latest);
    asked.input = Some(json(&"other"));
    let run = rig.storage.fork(asked).await.unwrap();
    assert_eq!(run.new.input, json(&"other"));
    assert!(load(&rig, &run).await.1.tail.is_empty());
}

/// A fork of an ended run runs again.
pub async fn an_ended_run_may_be_forked(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.entry("a");
    holder.end(vec![op], BatchEnd::Complete(json(&1))).await;
    let run = fork(&rig, holder.id, ForkFrom::Latest).await;
    assert_eq!((run.status, run.output.is_none(), run.ended_at), (Status::Pending, true, None));
    let (_, segment) = load(&rig, &run).await;
    assert!(matches!(segment.tail[0].body, RecordedBody::Entry { .. }));
}

/// The same request twice is one fork; another point or a taken id is refused.
pub async fn a_repeated_fork_is_one(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let ops = vec![holder.entry("a"), holder.entry("b")];
    holder.commit(ops).await;
    let asked = request(&rig, holder.id, op(0));
    let run = rig.storage.fork(asked.clone()).await.unwrap();
    let again = rig.storage.fork(asked.clone()).await.unwrap();
    assert_eq!((again.new.id, rig.high(run.new.id).await), (run.new.id, 1));
    let other = ForkRequest { from: op(1), ..asked.clone() };
    assert_eq!(refused(rig.storage.fork(other).await), Code::ExecutionExists);
    let taken = ForkRequest { id: holder.id, ..asked };
    assert_eq!(refused(rig.storage.fork(taken).await), Code::ExecutionExists);
}

/// Points that do not exist, and replacements that make no sense, are refused.
pub async fn impossible_forks_are_refused(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut plain = rig.running().await;
    let ops = vec![plain.entry("a"), plain.flush()];
    plain.commit(ops).await;
    let mut stateful = rig.running().await;
    stateful.checkpoint(vec![], json(&1)).await;
    let ops = vec![stateful.entry("x")];
    let x = entry_id(&ops[0]).unwrap();
    stateful.commit(ops).await;
    let mut other = rig.running().await;
    let ops = vec![other.entry("y")];
    let y = entry_id(&ops[0]).unwrap();
    other.commit(ops).await;

    let ask = |id, from| rig.storage.fork(request(&rig, id, from));
    assert_eq!(refused(ask(ExecutionId(rig.uuid()), ForkFrom::Latest).await), Code::ExecutionNotFound);
    assert_eq!(refused(ask(plain.id, op(2)).await), Code::InvalidArgument);
    assert_eq!(refused(ask(plain.id, ForkFrom::Checkpoint(1)).await), Code::InvalidArgument);
    assert_eq!(refused(ask(plain.id, ForkFrom::Entry(y)).await), Code::InvalidArgument);
    assert_eq!(refused(ask(plain.id, ForkFrom::Entry(EntryId(rig.uuid()))).await), Code::NotFound);
    assert_eq!(refused(ask(stateful.id, ForkFrom::Checkpoint(2)).await), Code::InvalidArgument);
    assert_eq!(refused(ask(stateful.id, ForkFrom::Op(stateful.slot(0))).await), Code::InvalidArgument);
    assert_eq!(refused(ask(stateful.id, ForkFrom::Entry(x)).await), Code::InvalidArgument);
    let mut asked = request(&rig, plain.id, op(0));
    asked.state = Some(json(&1));
    assert_eq!(refused(rig.storage.fork(asked).await), Code::InvalidArgument);
    let mut asked = request(&rig, plain.id, op(0));
    asked.input = Some(json(&1));
    assert_eq!(refused(rig.storage.fork(asked).await), Code::InvalidArgument);
}

/// Outcomes of detached tasks go with a fork at a checkpoint, so that they can be joined.
pub async fn ended_detached_tasks_go_with_a_fork(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let detached = TaskOptions { detached: true, ..TaskOptions::default() };
    let ops = vec![holder.queued(detached.clone()), holder.queued(detached)];
    let task = holder.task_id(0);
    holder.commit(ops).await;
    let claimed = rig.claim_tasks().await;
    rig.report(&claimed[0], done(1)).await.unwrap();
    holder.checkpoint(vec![], json(&1)).await;
    let run = fork(&rig, holder.id, ForkFrom::Latest).await;
    let (_, segment) = load(&rig, &run).await;
    assert_eq!(segment.facts.len(), 1);
    assert!(matches!(&segment.facts[0].kind, FactKind::Task { task: found, .. } if *found == task));
}
