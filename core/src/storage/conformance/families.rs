//! Runs of a family: births, ends, and what they tell each other.

use super::Factory;
use super::rig::{AGENT, Holder, ORG, Rig, at_once, for_signal, gracefully, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, SignalId};
use crate::model::{
    BatchEnd, ChildEnd, ChildEvent, ChildRequest, CommitAnswer, Committed, Delivery, EventKind, FactKind, MessageBody,
    NewOp, OnParentEnd, OpBody, PARENT_QUEUE, RecordedBody, RecordedOp, ResumeRequest, Signal, Spent, Status,
    TaskOptions, TaskStatus, Usage, Wait, WaitReason, answer_of, answer_signal, child_signal, event_signal, refused_op,
    told_of,
};
use crate::payload::Payload;
use crate::storage::ClaimRequest;
use crate::storage::limits::CHILDREN;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;

/// A run with a child, both claimed.
async fn family(rig: &Rig) -> (Holder<'_>, Holder<'_>) {
    let mut parent = rig.running().await;
    let op = parent.child(json(&"otters"));
    let OpBody::Child(new) = &op.body else { unreachable!() };
    let id = new.id;
    parent.commit(vec![op]).await;
    let child = rig.claim(id).await;
    (parent, child)
}

fn to_parent(name: &str, is_request: bool) -> MessageBody {
    MessageBody::ToParent { name: name.into(), payload: json(&name), is_request }
}

fn to_child(child: ExecutionId) -> MessageBody {
    MessageBody::ToChild { child, name: "guidance".into(), payload: json(&1), delivery: Delivery::NextStep }
}

/// The signals that an answer brings.
fn told(answer: &CommitAnswer) -> Vec<Signal> {
    let signals = answer.facts.iter().filter_map(|fact| match &fact.kind {
        FactKind::Signal(signal) => Some(signal.clone()),
        _ => None,
    });
    signals.collect()
}

fn events(signals: &[Signal]) -> Vec<ChildEvent> {
    signals.iter().filter_map(|signal| ChildEvent::of(&signal.name, &signal.payload)?.ok()).collect()
}

/// A child is there once its parent's commit is, with the parent's place above it; the same op read back names it.
pub async fn family_01_a_child_is_born_in_the_commit_of_its_parent(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let op = parent.child(json(&"otters"));
    let OpBody::Child(new) = op.body.clone() else { unreachable!() };
    let stale = parent.batch(vec![op.clone()], BatchEnd::Continue);
    let mut late = parent.request(stale);
    late.base += 1;
    assert_eq!(rig.storage.commit(late).await.unwrap_err().code(), Code::OutOfOrder);
    assert_eq!(rig.storage.execution(ORG, new.id).await.unwrap_err().code(), Code::ExecutionNotFound);
    let batch = parent.batch(vec![op], BatchEnd::Continue);
    let request = parent.request(batch);
    parent.send(request.clone()).await.unwrap();
    // The same request again gives no other child.
    rig.storage.commit(request).await.unwrap();
    let child = rig.execution(new.id).await;
    assert_eq!((child.parent, child.root, child.depth), (Some(parent.id), parent.id, 1));
    assert_eq!((child.new.input.clone(), child.status), (json(&"otters"), Status::Pending));
    let segment = parent.load().await;
    assert!(segment.tail.iter().any(|op| op.body == RecordedBody::Child { id: new.id }));
}

/// A run has so many children that have not ended. One more is refused with the reason, what is called beside it is done,
/// and there is room again once a child has ended.
pub async fn family_01_children_have_a_limit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let ops = (1..CHILDREN).map(|n| parent.child(json(&n))).collect();
    assert_eq!(told(&parent.commit(ops).await).len(), 0);
    let (last, over) = (parent.child(json(&"last")), parent.child(json(&"over")));
    let (last_id, over_id, over_slot) = (child_of(&last), child_of(&over), parent.slot(over.sequence));
    let beside = parent.entry("beside it");
    let refusals = told(&parent.commit(vec![last, over, beside]).await);
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!(told_of(&refusal.name), Some((over_id, Some(over_slot))));
    let failure = ChildEnd::result(&refusal.payload, "child").unwrap_err();
    assert_eq!(failure.code, Code::LimitReached);
    assert!(failure.message.contains(&format!("has {CHILDREN} children that have not ended")), "{}", failure.message);
    assert_eq!(rig.status(last_id).await, Status::Pending);
    assert_eq!(refused(rig.storage.execution(ORG, over_id).await), Code::ExecutionNotFound);

    // The run goes on: what it calls again is refused again, until one of its children has ended.
    let over = parent.child(json(&"over"));
    assert_eq!(told(&parent.commit(vec![over]).await).len(), 1);
    let stop = parent.message(MessageBody::Stop { child: last_id, how: at_once() });
    parent.commit(vec![stop]).await;
    let next = parent.child(json(&"next"));
    let next_id = child_of(&next);
    assert_eq!(told(&parent.commit(vec![next]).await).len(), 0);
    assert_eq!(rig.status(next_id).await, Status::Pending);
    let roll_up = rig.storage.roll_ups(ORG, &[parent.id]).await.unwrap().remove(0);
    assert_eq!(roll_up.children as usize, CHILDREN + 1);
}

/// The end of a child is a signal of its parent, stored with it. A parent that waits for it is woken.
pub async fn family_02_an_end_is_told_with_it(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (mut parent, mut child) = family(&rig).await;
    parent.suspend(vec![], for_signal(&child_signal(child.id))).await;
    child.end(vec![], BatchEnd::Complete(json(&"found"))).await;
    assert_eq!(rig.status(parent.id).await, Status::Pending);
    let mailbox = rig.mailbox(parent.id).await;
    assert_eq!(mailbox.len(), 1);
    assert_eq!(ChildEnd::result(&mailbox[0].payload, "child"), Ok(json(&"found")));
}

/// A child that nobody begins in time, and one that takes too long, end; their parent is told why, with that.
pub async fn family_02_a_child_out_of_time_is_told(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let mut ops = [1, 2, 3].map(|n| parent.child(json(&n)));
    for (op, begins) in ops.iter_mut().zip([true, false, true]) {
        let OpBody::Child(new) = &mut op.body else { unreachable!() };
        let limit = if begins { &mut new.limits.start_timeout } else { &mut new.limits.timeout };
        *limit = Some(Duration::from_secs(10));
    }
    let ids = ops.each_ref().map(child_of);
    let ends = ids.map(child_signal);
    parent.suspend(ops.into(), Wait { signals: ends.into(), ..Wait::default() }).await;
    // The second one is at work when its time is over, the third was begun in time.
    let (slow, mut begun) = (rig.claim(ids[1]).await, rig.claim(ids[2]).await);
    rig.pass_after(Duration::from_secs(9)).await;
    assert_eq!((rig.status(parent.id).await, rig.mailbox(parent.id).await.len()), (Status::Waiting, 0));
    rig.pass_after(Duration::from_secs(1)).await;
    assert_eq!(rig.status(parent.id).await, Status::Pending);
    for (id, error_type) in [(ids[0], "StartTimeout"), (slow.id, "Timeout")] {
        let mailbox = rig.mailbox(parent.id).await;
        let end = mailbox.iter().find(|signal| signal.name == child_signal(id)).expect("it is told");
        let failure = ChildEnd::result(&end.payload, "child").unwrap_err();
        assert_eq!((failure.code, failure.error_type.as_str()), (Code::ChildFailed, error_type));
        let run = rig.execution(id).await;
        assert_eq!((run.status, run.failure.map(|failure| failure.code)), (Status::Failed, Some(Code::Timeout)));
    }
    assert_eq!(rig.mailbox(parent.id).await.len(), 2);
    begun.end(vec![], BatchEnd::Complete(json(&3))).await;
    let parent = rig.claim(parent.id).await;
    assert_eq!(parent.load().await.facts.len(), 3);
}

/// What a child tells comes in the order in which it tells it, the end of the same commit last. Told twice is told once.
pub async fn family_03_what_a_child_tells_comes_in_order(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (mut parent, mut child) = family(&rig).await;
    let (one, two) = (child.message(to_parent("one", false)), child.message(to_parent("two", true)));
    let batch = child.batch(vec![one, two], BatchEnd::Continue);
    let request = child.request(batch);
    child.send(request.clone()).await.unwrap();
    rig.storage.commit(request).await.unwrap();
    let three = child.message(to_parent("three", false));
    child.end(vec![three], BatchEnd::Complete(json(&"done"))).await;
    let mailbox = rig.mailbox(parent.id).await;
    assert!(mailbox[..3].iter().all(|signal| signal.name == event_signal(child.id)));
    let heard = events(&mailbox);
    assert!(matches!(&heard[0], ChildEvent::Signal { name, payload } if name == "one" && *payload == json(&"one")));
    assert!(
        matches!(&heard[1], ChildEvent::Request { name, request, .. } if name == "two" && request.child == child.id)
    );
    assert!(matches!(&heard[2], ChildEvent::Signal { name, .. } if name == "three"));
    assert!(matches!(&heard[3], ChildEvent::Completed { output } if *output == json(&"done")));
    assert_eq!(heard.len(), 4);
    // A parent that comes to wait for news which are there does not wait.
    parent.suspend(vec![], for_signal(&event_signal(child.id))).await;
    assert_eq!(rig.status(parent.id).await, Status::Running);
}

/// A value of any size arrives, and is kept as long as the run that it was told to.
pub async fn family_03_what_is_told_may_be_large(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (parent, mut child) = family(&rig).await;
    let values = [3_000, 7_000, 8_192, 100_000].map(|size| vec![7u8; size]);
    let tell = |bytes: &Vec<u8>| MessageBody::ToParent {
        name: "found".into(),
        payload: Payload::raw(bytes.clone()),
        is_request: false,
    };
    let ops = values.iter().map(|bytes| child.message(tell(bytes))).collect();
    child.commit(ops).await;
    child.end(vec![], BatchEnd::Complete(json(&1))).await;
    rig.storage.remove_execution(ORG, child.id).await.unwrap();
    rig.pass_after(Duration::from_secs(3 * 86_400)).await;
    let heard = events(&rig.mailbox(parent.id).await);
    for (event, bytes) in heard.iter().zip(&values) {
        let ChildEvent::Signal { payload, .. } = event else { panic!("{event:?}") };
        let there = match payload.bytes() {
            Ok(inline) => inline.to_vec(),
            Err(_) => rig.storage.read_payload(ORG, payload).await.unwrap().to_vec(),
        };
        assert_eq!(there, *bytes);
    }
    assert_eq!(heard.len(), 5);
}

/// A message to a child is a signal as from outside, in the commit that sends it, also to a child born in that commit.
pub async fn family_04_a_message_is_a_signal_of_the_commit_that_sends_it(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let born = parent.child(json(&"otters"));
    let OpBody::Child(new) = &born.body else { unreachable!() };
    let id = new.id;
    let large = MessageBody::ToChild {
        child: id,
        name: "guidance".into(),
        payload: Payload::raw(vec![7; 100_000]),
        delivery: Delivery::NextTurn,
    };
    let (first, second) = (parent.message(to_child(id)), parent.message(large));
    let sequence = first.sequence;
    parent.commit(vec![born, first, second]).await;
    let there = rig.mailbox(id).await;
    let seen: Vec<_> = there.iter().map(|signal| (signal.name.as_str(), signal.delivery)).collect();
    assert_eq!(seen, [("guidance", Delivery::NextStep), ("guidance", Delivery::NextTurn)]);
    assert_eq!((&there[0].payload, there[1].payload.size()), (&json(&1), 100_000));
    let sent = |op: &RecordedOp| matches!(op.body, RecordedBody::Send(sent) if sent.child == Some(id));
    assert!(parent.load().await.tail.iter().any(|op| op.sequence == sequence && sent(op)));
    // A child that waits for it is woken.
    let mut child = rig.claim(id).await;
    child.known = rig.high(id).await;
    child.suspend(vec![], for_signal("more")).await;
    let more = MessageBody::ToChild { child: id, name: "more".into(), payload: json(&2), delivery: Delivery::NextStep };
    let more = parent.message(more);
    parent.commit(vec![more]).await;
    assert_eq!(rig.status(id).await, Status::Pending);
}

/// A message that is not delivered is told its op in the answer of the commit, and again to a process that comes after.
pub async fn family_04_a_message_that_is_not_delivered_is_told(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (mut parent, mut child) = family(&rig).await;
    let stranger = rig.start().await;
    child.end(vec![], BatchEnd::Complete(json(&1))).await;
    parent.known = rig.high(parent.id).await;
    let ops: Vec<_> =
        [to_parent("up", false), to_child(child.id), to_child(stranger), to_child(ExecutionId(rig.uuid()))]
            .map(|body| parent.message(body))
            .into();
    let slots: Vec<_> = ops.iter().map(|op| parent.slot(op.sequence)).collect();
    let answer = parent.commit(ops).await;
    let refusals = told(&answer);
    assert_eq!(
        refusals.iter().map(|signal| refused_op(&signal.name)).collect::<Vec<_>>(),
        slots.iter().map(|slot| Some(*slot)).collect::<Vec<_>>()
    );
    let codes: Vec<_> = refusals.iter().map(|signal| answer_of(&signal.payload).unwrap_err().code).collect();
    let missing = Code::ExecutionNotFound;
    assert_eq!(codes, [Code::NoParent, Code::ExecutionClosed, missing, missing]);
    assert!(rig.mailbox(stranger).await.is_empty() && rig.kinds_after(stranger, 1).await.is_empty());
    let again: Vec<_> = parent
        .load()
        .await
        .facts
        .iter()
        .filter_map(|fact| match &fact.kind {
            FactKind::Signal(signal) => refused_op(&signal.name),
            _ => None,
        })
        .collect();
    assert_eq!(again, slots);
}

/// A request is answered once; a parent that has ended answers by itself.
pub async fn family_05_a_request_has_one_answer(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (mut parent, mut child) = family(&rig).await;
    let asked = child.message(to_parent("llm-call", true));
    let OpBody::Send(message) = &asked.body else { unreachable!() };
    let request = message.id;
    child.suspend(vec![asked], for_signal(&answer_signal(request))).await;
    let heard = events(&rig.mailbox(parent.id).await);
    assert!(matches!(&heard[..], [ChildEvent::Request { request: ChildRequest { id, .. }, .. }] if *id == request));
    let answer = |value: u32| MessageBody::Answer { child: child.id, request, payload: json(&value) };
    let (first, again, other) = (parent.message(answer(1)), parent.message(answer(1)), parent.message(answer(2)));
    parent.known = rig.high(parent.id).await;
    let refused = told(&parent.commit(vec![first, again, other]).await);
    assert_eq!(answer_of(&refused[0].payload).unwrap_err().code, Code::AlreadyExists);
    assert_eq!(refused.len(), 1);
    assert_eq!(rig.status(child.id).await, Status::Pending);
    let answers = rig.mailbox(child.id).await;
    assert_eq!(answers.iter().map(|signal| answer_of(&signal.payload)).collect::<Vec<_>>(), [Ok(json(&1))]);

    let mut child = rig.claim(child.id).await;
    child.known = rig.high(child.id).await;
    parent.end(vec![], BatchEnd::Complete(json(&1))).await;
    let (asked, said) = (child.message(to_parent("again", true)), child.message(to_parent("more", false)));
    let OpBody::Send(message) = &asked.body else { unreachable!() };
    let request: SignalId = message.id;
    let told = told(&child.commit(vec![asked, said]).await);
    let codes: Vec<_> = told.iter().map(|signal| answer_of(&signal.payload).unwrap_err().code).collect();
    assert_eq!(codes, [Code::ParentGone, Code::ExecutionClosed]);
    assert_eq!(told[0].name, answer_signal(request));
}

/// A parent that waits for its children holds nothing. However many of them end, it is woken once, claimed once, and its
/// journal grows by one event for each.
pub async fn family_06_a_waiting_parent_holds_nothing(factory: &dyn Factory) {
    const CHILDREN: u64 = 50;
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let ops: Vec<_> = (0..CHILDREN).map(|n| parent.child(json(&n))).collect();
    let ids: Vec<_> = ops.iter().map(child_of).collect();
    let ends: BTreeSet<_> = ids.iter().map(|id| child_signal(*id)).collect();
    let wait = Wait { signals: ends.iter().cloned().collect(), reason: Some(WaitReason::Signal), ..Wait::default() };
    assert_eq!(parent.suspend(ops, wait).await.committed, Committed::Suspended);
    let waiting = rig.execution(parent.id).await;
    assert_eq!((waiting.status, waiting.worker, waiting.lease_expires), (Status::Waiting, None, None));
    assert!(rig.try_claim(parent.id).await.is_none());

    let mut children = Vec::new();
    for id in &ids {
        children.push(rig.claim(*id).await);
    }
    join_all(children.iter_mut().map(|child| child.end(vec![], BatchEnd::Complete(json(&1))))).await;
    let woken = rig.execution(parent.id).await;
    assert_eq!((woken.status, woken.worker, woken.epoch), (Status::Pending, None, waiting.epoch));
    // Nothing else is left to claim, and this one can be claimed once.
    let claims = rig.storage.claim_agents(rig.asking(rig.worker(), AGENT)).await.unwrap();
    assert_eq!(claims.iter().map(|claim| claim.execution.new.id).collect::<Vec<_>>(), [parent.id]);
    let again = rig.storage.claim_agents(rig.asking(rig.worker(), AGENT)).await.unwrap();
    assert!(again.is_empty());
    let mut parent = Holder::of(&rig, &claims[0]);
    let facts = parent.load().await.facts;
    let heard = facts.iter().filter_map(|fact| match &fact.kind {
        FactKind::Signal(signal) => Some(signal.name.clone()),
        _ => None,
    });
    let heard: BTreeSet<_> = heard.collect();
    assert_eq!((facts.len() as u64, heard), (CHILDREN, ends));

    parent.end(vec![], BatchEnd::Complete(json(&"all"))).await;
    assert_eq!(rig.execution(parent.id).await.epoch, waiting.epoch + 1);
    let kinds = rig.kinds_after(parent.id, 0).await;
    let count = |wanted| kinds.iter().filter(|kind| **kind == wanted).count() as u64;
    assert_eq!((count(EventKind::Signal), count(EventKind::Woken)), (CHILDREN, 1));
    assert!(kinds.len() as u64 <= CHILDREN + 8, "{kinds:?}");
}

/// A parent stops one of its children: what can end at once does so in that commit, what runs is asked, and nobody else
/// is.
pub async fn family_08_a_child_is_stopped_alone(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (mut parent, child) = family(&rig).await;
    let (waits, below) = (parent.child(json(&1)), parent.child(json(&2)));
    let ids = [&waits, &below].map(|op| match &op.body {
        OpBody::Child(new) => new.id,
        _ => unreachable!(),
    });
    parent.commit(vec![waits, below]).await;
    let grace = gracefully(Duration::from_secs(5));
    let stop = |child, how| MessageBody::Stop { child, how };
    let ops = [stop(child.id, grace), stop(ids[0], grace), stop(parent.id, at_once())].map(|body| parent.message(body));
    let signals = told(&parent.commit(ops.into()).await);
    assert_eq!(rig.status(child.id).await, Status::Cancelling);
    assert_eq!((rig.status(ids[0]).await, rig.status(ids[1]).await), (Status::Cancelled, Status::Pending));
    assert_eq!(rig.status(parent.id).await, Status::Running);
    assert!(matches!(&events(&signals)[..], [ChildEvent::Cancelled { output: None }]));
    assert_eq!(answer_of(&signals[1].payload).unwrap_err().code, Code::ExecutionNotFound);
    // The one that tidies up ends like any other, and is told.
    let mut child = child;
    child.known = rig.high(child.id).await;
    child.end(vec![], BatchEnd::Cancelled(Some(json(&"half")))).await;
    let heard = events(&rig.mailbox(parent.id).await);
    assert!(matches!(heard.last(), Some(ChildEvent::Cancelled { output: Some(output) }) if *output == json(&"half")));
    // What has ended stays as it is.
    parent.known = rig.high(parent.id).await;
    let again = parent.message(stop(child.id, at_once()));
    let high = rig.high(child.id).await;
    assert!(told(&parent.commit(vec![again]).await).is_empty());
    assert_eq!(rig.kinds_after(child.id, high).await, [EventKind::Created; 0]);
    parent.suspend(vec![], Wait { tasks: true, ..Wait::default() }).await;
}

/// The id of the child that an op starts.
fn child_of(op: &NewOp) -> ExecutionId {
    let OpBody::Child(new) = &op.body else { unreachable!() };
    new.id
}

/// A request to stop a run goes down to all below it, whatever they are doing: runs that nobody has claimed end at once,
/// and their parent is told; the others tidy up. One that is detached goes on, with all below it.
pub async fn family_08_a_stop_goes_down_the_tree(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut top = rig.running().await;
    let mut ops = (0..4).map(|n| top.child(json(&n))).collect::<Vec<_>>();
    if let OpBody::Child(new) = &mut ops[3].body {
        new.on_parent_end = OnParentEnd::Detach;
    }
    let ids: Vec<_> = ops.iter().map(child_of).collect();
    top.commit(ops).await;
    let (mut works, mut waits) = (rig.claim(ids[0]).await, rig.claim(ids[1]).await);
    let mut detached = rig.claim(ids[3]).await;
    let (runs, fresh, task) = (works.child(json(&1)), works.child(json(&2)), works.queued(TaskOptions::default()));
    let (runs_id, fresh_id) = (child_of(&runs), child_of(&fresh));
    works.commit(vec![runs, fresh, task]).await;
    let mut below = rig.claim(runs_id).await;
    let lowest = below.child(json(&1));
    let lowest_id = child_of(&lowest);
    below.commit(vec![lowest]).await;
    let op = waits.wait("s", None);
    waits.suspend(vec![op], for_signal("s")).await;
    let op = detached.child(json(&1));
    let beside = child_of(&op);
    detached.commit(vec![op]).await;

    let grace = gracefully(Duration::from_secs(5));
    let known = [rig.high(top.id).await, rig.high(works.id).await];
    rig.storage.request_cancel(ORG, top.id, grace).await.unwrap();
    for id in [top.id, ids[0], ids[1], runs_id] {
        let run = rig.execution(id).await;
        assert_eq!((run.status, run.cancel), (Status::Cancelling, Some((grace, rig.now().after(grace.grace)))));
    }
    for id in [ids[2], fresh_id, lowest_id] {
        assert_eq!(rig.status(id).await, Status::Cancelled);
    }
    assert_eq!((rig.status(ids[3]).await, rig.status(beside).await), (Status::Running, Status::Pending));
    use EventKind::{Cancelling, Signal};
    assert_eq!(rig.kinds_after(top.id, known[0]).await, [Cancelling, Signal]);
    assert_eq!(rig.kinds_after(works.id, known[1]).await, [Cancelling, Signal]);
    assert!(rig.mailbox(top.id).await.iter().any(|signal| signal.name == child_signal(ids[2])));
    assert!(rig.try_claim(waits.id).await.is_some());
    let claimed = rig.claim_tasks().await;
    assert_eq!((claimed.len(), claimed[0].task.execution), (1, works.id));

    // Whoever holds one of them has lost it; the tasks end with their runs.
    rig.storage.request_cancel(ORG, top.id, at_once()).await.unwrap();
    for id in [top.id, ids[0], ids[1], ids[2], runs_id, fresh_id, lowest_id] {
        assert_eq!(rig.status(id).await, Status::Cancelled);
    }
    assert_eq!(rig.task(works.id, claimed[0].task.new.id).await.status, TaskStatus::Cancelled);
    assert_eq!((rig.status(ids[3]).await, rig.status(beside).await), (Status::Running, Status::Pending));
    below.known = rig.high(below.id).await;
    let batch = below.batch(vec![], BatchEnd::Complete(json(&1)));
    assert_eq!(refused(below.try_commit(batch).await), Code::LeaseLost);
    detached.known = rig.high(detached.id).await;
    detached.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert_eq!(rig.status(beside).await, Status::Cancelled);
}

/// A child that is detached goes on when its parent ends, and what it asks then has no answer.
pub async fn family_07_a_detached_child_goes_on(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let ops = [1, 2, 3].map(|n| {
        let mut op = parent.child(json(&n));
        if let OpBody::Child(new) = &mut op.body {
            new.on_parent_end = if n == 3 { OnParentEnd::Cancel } else { OnParentEnd::Detach };
        }
        op
    });
    let ids = ops.each_ref().map(|op| match &op.body {
        OpBody::Child(new) => new.id,
        _ => unreachable!(),
    });
    parent.commit(ops.into()).await;
    let (mut asks, mut late) = (rig.claim(ids[0]).await, rig.claim(ids[1]).await);
    let asked = asks.message(to_parent("help", true));
    let OpBody::Send(message) = &asked.body else { unreachable!() };
    let request = answer_signal(message.id);
    asks.suspend(vec![asked], for_signal(&request)).await;
    let asked_late = late.message(to_parent("help", true));
    let OpBody::Send(message) = &asked_late.body else { unreachable!() };
    let late_request = answer_signal(message.id);
    late.commit(vec![asked_late]).await;
    parent.known = rig.high(parent.id).await;
    parent.end(vec![], BatchEnd::Complete(json(&1))).await;
    let statuses = [rig.status(ids[0]).await, rig.status(ids[1]).await, rig.status(ids[2]).await];
    assert_eq!(statuses, [Status::Pending, Status::Running, Status::Cancelled]);
    assert_eq!(rig.execution(ids[0]).await.new.on_parent_end, OnParentEnd::Detach);
    let gone = |mailbox: &[Signal], name: &str| {
        let codes = mailbox.iter().filter(|signal| signal.name == name);
        codes.map(|signal| answer_of(&signal.payload).unwrap_err().code).collect::<Vec<_>>()
    };
    assert_eq!(gone(&rig.mailbox(ids[0]).await, &request), [Code::ParentGone]);
    // The other one begins to wait only now.
    let answer = late.suspend(vec![], for_signal(&late_request)).await;
    assert_eq!(answer.committed, Committed::Continue);
    assert_eq!(gone(&told(&answer), &late_request), [Code::ParentGone]);
    late.known = answer.high;
    late.end(vec![], BatchEnd::Complete(json(&2))).await;
    let warning = rig.events(parent.id).await.into_iter().find(|event| event.kind == EventKind::Warning);
    assert_eq!(warning.expect("a warning").data["count"], 3);
}

fn tokens(tokens: u64) -> Spent {
    Spent { tokens, ..Spent::default() }
}

fn used(tokens: u64) -> Usage {
    Usage { calls: 1, input_tokens: tokens, ..Usage::default() }
}

/// A parent with a budget of 1,000 tokens, of which it keeps 10, and a child of it.
async fn budgeted<'r>(rig: &'r Rig, budget: Option<&str>) -> (Holder<'r>, Holder<'r>) {
    let id = rig.start_as(|new| new.limits.budget = Some("1000".into())).await;
    let mut parent = rig.claim(id).await;
    let mut op = parent.child(json(&1));
    let OpBody::Child(new) = &mut op.body else { unreachable!() };
    new.limits.budget = budget.map(str::to_owned);
    let child = new.id;
    let mut batch = parent.batch(vec![op], BatchEnd::Continue);
    batch.draw = Some(tokens(10));
    let purse = parent.commit_batch(batch).await.purse.expect("a purse");
    let kept = purse.slice.as_ref().and_then(|slice| slice.max_tokens);
    let given = budget.map_or(0, |text| text.parse().expect("tokens"));
    assert_eq!((kept, purse.lent.tokens), (Some(10), 10 + given));
    let child = rig.claim(child).await;
    (parent, child)
}

/// The budget of a child comes out of its parent's and what is left goes back; without one it draws from its parent's, and
/// a run that may not draw is asked to stop.
pub async fn family_09_budgets_hold_for_the_tree(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (mut parent, mut child) = budgeted(&rig, Some("400")).await;
    let lent = async |id| rig.execution(id).await.purse.expect("a purse").lent.tokens;
    let mut more = parent.child(json(&2));
    if let OpBody::Child(new) = &mut more.body {
        new.limits.budget = Some("591".into());
    }
    let refused = told(&parent.commit(vec![more]).await);
    assert_eq!(ChildEnd::result(&refused[0].payload, "child").unwrap_err().code, Code::BudgetExceeded);
    let usage = child.usage("m", used(100));
    child.end(vec![usage], BatchEnd::Complete(json(&1))).await;
    assert_eq!(lent(parent.id).await, 110);
    // Who hears of the end hears of what came back with it.
    let (facts, _, purse) = rig.storage.facts_after(ORG, parent.id, parent.known).await.unwrap();
    assert_eq!((facts.len(), purse.map(|purse| purse.lent.tokens)), (1, Some(110)));

    let (mut parent, mut child) = budgeted(&rig, None).await;
    let mut batch = child.batch(vec![], BatchEnd::Continue);
    batch.draw = Some(tokens(60));
    let purse = child.commit_batch(batch).await.purse.expect("a purse");
    let slice = purse.slice.and_then(|slice| slice.max_tokens).expect("a slice");
    assert!((60..=200).contains(&slice) && lent(parent.id).await == 10 + slice, "{slice}");
    let usage = child.usage("m", used(70));
    let mut batch = child.batch(vec![usage], BatchEnd::Continue);
    batch.draw = Some(tokens(2_000));
    let answer = child.commit_batch(batch).await;
    assert!(answer.cancel.is_some() && answer.facts.iter().any(|fact| matches!(fact.kind, FactKind::Cancel(_))));
    assert_eq!(rig.status(child.id).await, Status::Cancelling);
    child.known = answer.high;
    child.end(vec![], BatchEnd::Cancelled(Some(json(&"half")))).await;
    assert_eq!(lent(parent.id).await, 80);
    let heard = events(&rig.mailbox(parent.id).await);
    let [ChildEvent::BudgetExceeded { used, limit, output }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((used.tokens, limit.max_tokens, output), (70, Some(1_000), &Some(json(&"half"))));
    // A root is not stopped: it pauses by itself.
    parent.known = rig.high(parent.id).await;
    let mut batch = parent.batch(vec![], BatchEnd::Continue);
    batch.draw = Some(tokens(1_000));
    let answer = parent.commit_batch(batch).await;
    let kept = answer.purse.and_then(|purse| purse.slice).and_then(|slice| slice.max_tokens);
    assert_eq!((answer.cancel, kept), (None, Some(10)));
}

/// What fits into the slice of a run takes nothing more from above: ten calls write the row of the run whose budget they
/// draw from once.
pub async fn family_09_a_slice_is_taken_once(factory: &dyn Factory) {
    const CALLS: u64 = 10;
    let rig = Rig::new(factory).await;
    let (parent, mut child) = budgeted(&rig, None).await;
    let slice_of = |answer: &CommitAnswer| answer.purse.as_ref()?.slice.as_ref()?.max_tokens;
    let mut slice = None;
    let mut above = Vec::new();
    for call in 1..=CALLS {
        // Each has used 5 tokens, and reserves 50 for the next.
        let usage = child.usage("m", used(5));
        let mut batch = child.batch(vec![usage], BatchEnd::Continue);
        batch.draw = Some(tokens(5 * call + 50));
        let answer = child.commit_batch(batch).await;
        assert_eq!(slice_of(&answer), *slice.get_or_insert(slice_of(&answer)), "call {call}");
        let run = rig.execution(parent.id).await;
        above.push((run.purse.map(|purse| purse.lent.tokens), rig.high(parent.id).await));
    }
    let slice = slice.flatten().expect("a slice");
    assert!(slice >= 5 * CALLS + 50, "all of them fit into {slice}");
    assert_eq!(above, vec![(Some(10 + slice), rig.high(parent.id).await); CALLS as usize]);
    let mut batch = child.batch(vec![], BatchEnd::Continue);
    batch.draw = Some(tokens(slice + 1));
    let more = slice_of(&child.commit_batch(batch).await).expect("a slice");
    assert!(more > slice);
    assert_eq!(rig.execution(parent.id).await.purse.map(|purse| purse.lent.tokens), Some(10 + more));
}

/// The end of the run at the top books what it has used, and gives back what it has not: what it leaves running draws from
/// the rest.
pub async fn family_09_the_end_of_a_root_is_booked(factory: &dyn Factory) {
    for (drawn, spent, wanted, has_room) in [(0, 900, 200, false), (500, 20, 900, true)] {
        let rig = Rig::new(factory).await;
        let (mut parent, _) = budgeted(&rig, None).await;
        let mut op = parent.child(json(&"left"));
        if let OpBody::Child(new) = &mut op.body {
            new.on_parent_end = OnParentEnd::Detach;
        }
        let left = child_of(&op);
        let mut batch = parent.batch(vec![op], BatchEnd::Continue);
        batch.draw = (drawn > 0).then(|| tokens(drawn));
        parent.commit_batch(batch).await;
        let mut left = rig.claim(left).await;
        let usage = parent.usage("m", used(spent));
        parent.end(vec![usage], BatchEnd::Complete(json(&1))).await;
        assert_eq!(rig.execution(parent.id).await.purse.expect("a purse").lent.tokens, spent);
        left.known = rig.high(left.id).await;
        let mut batch = left.batch(vec![], BatchEnd::Continue);
        batch.draw = Some(tokens(wanted));
        let answer = left.commit_batch(batch).await;
        assert_eq!(answer.cancel.is_none(), has_room);
    }
}

/// A child has its budget from above: a person gives more to the run at the top, not to the child.
pub async fn family_09_a_child_is_resumed_without_a_budget(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (_, mut child) = budgeted(&rig, None).await;
    child.end(vec![], BatchEnd::Pause { reason: WaitReason::Error, failure: None }).await;
    let resume = |budget: Option<&str>| ResumeRequest { budget: budget.map(str::to_owned), ..ResumeRequest::default() };
    let refused = rig.storage.resume(ORG, child.id, resume(Some("500"))).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("above it"), "{refused}");
    rig.storage.resume(ORG, child.id, resume(None)).await.unwrap();
    assert_eq!(rig.status(child.id).await, Status::Pending);
}

/// A draw that is sent again gets nothing more, and the answer says what the run has.
pub async fn family_09_what_a_draw_gets_is_told_again(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (parent, mut child) = budgeted(&rig, None).await;
    let mut batch = child.batch(vec![], BatchEnd::Continue);
    batch.draw = Some(tokens(60));
    let request = child.request(batch);
    let first = child.send(request.clone()).await.unwrap().purse;
    let again = rig.storage.commit(request).await.unwrap().purse;
    assert!(first.is_some() && first == again);
    let slice = first.and_then(|purse| purse.slice).and_then(|slice| slice.max_tokens).unwrap_or_default();
    assert_eq!(rig.execution(parent.id).await.purse.map(|purse| purse.lent.tokens), Some(10 + slice));
}

/// A call for a child whose id is that of another run starts none, and giving the call up stops nobody.
pub async fn family_08_a_stranger_is_not_stopped(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let stranger = rig.start().await;
    let mut parent = rig.running().await;
    let (own, refused) = (parent.child(json("own")), parent.child_of_id(stranger, json("another input")));
    let sequence = refused.sequence;
    parent.commit(vec![own, refused]).await;
    let mut batch = parent.batch(vec![], BatchEnd::Continue);
    batch.orphaned = vec![sequence];
    parent.commit_batch(batch).await;
    let run = rig.execution(stranger).await;
    assert_eq!((run.status, run.cancel), (Status::Pending, None));
}

/// A task for the workers of a run's parent has the queue of that one. What has no parent has its own workers do it.
pub async fn family_14_a_task_goes_to_the_workers_of_the_parent(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let mut op = parent.child(json(&"otters"));
    let OpBody::Child(new) = &mut op.body else { unreachable!() };
    let id = new.id;
    new.queue = "far".into();
    parent.commit(vec![op]).await;
    let elsewhere = ClaimRequest { queue: "far".into(), ..rig.asking(rig.worker(), AGENT) };
    let claims = rig.storage.claim_agents(elsewhere).await.unwrap();
    let mut child = Holder::of(&rig, &claims[0]);
    assert_eq!(child.id, id);
    let for_parent = |holder: &mut Holder<'_>| {
        let mut op = holder.queued(TaskOptions::default());
        if let OpBody::Task(task) = &mut op.body {
            task.queue = PARENT_QUEUE.into();
        }
        op
    };
    let op = for_parent(&mut child);
    child.commit(vec![op]).await;
    let claimed = rig.claim_task().await.task;
    assert_eq!((claimed.execution, claimed.new.queue.as_str()), (id, "default"));
    let op = for_parent(&mut parent);
    parent.commit(vec![op]).await;
    assert_eq!(rig.claim_task().await.task.execution, parent.id);
}
