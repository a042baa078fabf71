//! Runs that give their work away: the successor's birth, where what is sent goes from then on, and how both end.

use super::Factory;
use super::rig::{Holder, ORG, Rig, at_once, for_signal, gracefully, json, refused};
use crate::client::{Client, Following};
use crate::error::Code;
use crate::id::{ExecutionId, SignalId};
use crate::model::{
    BatchEnd, ChildEnd, ChildEvent, CommitAnswer, Committed, Delivery, EventKind, Fact, FactKind, Failure, FamilyEvent,
    ForkFrom, ForkRequest, MessageBody, NewOp, NewSignal, OnParentEnd, OpBody, REFUSAL_SIGNALS, RecordedOp,
    ResumeRequest, SharedContext, Status, StreamEvent, TaskOptions, TaskStatus, WaitReason, answer_of, answer_signal,
    child_signal, event_signal,
};
use serde_json::json as value;
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(10);
const WAITING: Committed = Committed::Finished(Status::Waiting);

fn born(op: &NewOp) -> ExecutionId {
    let OpBody::Child(new) = &op.body else { unreachable!() };
    new.id
}

/// A run hands off; the id of its successor, and the answer.
async fn hand_off(run: &mut Holder<'_>, immediate: bool) -> (ExecutionId, CommitAnswer) {
    let mut op = run.child(json(&"otters"));
    let to = born(&op);
    if let (OpBody::Child(new), true) = (&mut op.body, immediate) {
        new.on_parent_end = OnParentEnd::Detach;
    }
    (to, run.end(vec![op], BatchEnd::HandOff { to, immediate }).await)
}

/// A run that has handed off, and its successor, claimed.
async fn handed<'a>(run: &mut Holder<'a>) -> Holder<'a> {
    let (to, answer) = hand_off(run, false).await;
    assert_eq!(answer.committed, WAITING);
    run.rig.claim(to).await
}

async fn child_of<'a>(run: &mut Holder<'a>) -> Holder<'a> {
    let op = run.child(json(&"child"));
    let id = born(&op);
    run.commit(vec![op]).await;
    run.rig.claim(id).await
}

/// In one commit the successor is there, with the conversation and what was not read yet, and the run holds nothing and is
/// entered no more.
pub async fn family_11_a_handoff_lets_go_of_everything(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut run = rig.running().await;
    let mut kept = child_of(&mut run).await;
    let (task, sleep) = (run.queued(TaskOptions::default()), run.sleep(Duration::from_secs(60)));
    let scheduled = run.task_id(task.sequence);
    let entry = run.entry("hello");
    run.commit(vec![task, sleep, entry]).await;
    rig.signal(run.id, "steer").await;
    let mut op = run.child(json(&"otters"));
    let (to, leaf) = (born(&op), run.leaf);
    if let OpBody::Child(new) = &mut op.body {
        new.shared_context = Some(SharedContext::read_only().from(|_| leaf));
    }
    let batch = run.batch(vec![op], BatchEnd::HandOff { to, immediate: false });
    let request = run.request(batch);
    let before = rig.high(run.id).await;
    assert_eq!(run.send(request.clone()).await.unwrap().committed, WAITING);
    assert_eq!(rig.storage.commit(request).await.unwrap().committed, WAITING, "the answer is the same again");

    let told = rig.execution(run.id).await;
    assert_eq!((told.status, told.handed_to, told.worker, told.leaf), (Status::Waiting, Some(to), None, leaf));
    assert_eq!(told.wait.and_then(|wait| wait.reason), Some(WaitReason::HandedOff));
    use EventKind::*;
    assert_eq!(rig.kinds_after(run.id, before).await, [TaskCancelled, Warning, HandedOff]);
    assert_eq!(rig.events(run.id).await.last().unwrap().data, value!({ "to": to }));
    assert_eq!(rig.task(run.id, scheduled).await.status, TaskStatus::Cancelled);
    assert_eq!(rig.status(kept.id).await, Status::Cancelling, "children go along as at an end");
    let next = rig.execution(to).await;
    assert_eq!((next.parent, next.root, next.depth, next.leaf), (Some(run.id), run.id, 1, leaf));
    let steer: Vec<_> = rig.mailbox(to).await.into_iter().map(|signal| (signal.name, signal.payload)).collect();
    assert_eq!(steer, [("steer".to_owned(), rig.new_signal(to, "steer").payload)]);

    // Nothing wakes it: no timer, no end of another child, no signal.
    kept.end(vec![], BatchEnd::Cancelled(None)).await;
    rig.pass_after(Duration::from_secs(120)).await;
    rig.signal(run.id, "steer").await;
    assert_eq!((rig.status(run.id).await, rig.try_claim(run.id).await.is_none()), (Status::Waiting, true));
    assert_eq!(rig.mailbox(to).await.len(), 2);
    let late = run.batch(vec![], BatchEnd::Continue);
    assert_eq!(refused(run.try_commit(late).await), Code::LeaseLost);
}

/// The end of the last of a chain is the end of all, in the transaction that writes it, and whoever waits for the first one
/// is told.
pub async fn family_11_an_end_goes_up_the_chain(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let failure = Failure::new(Code::AgentFailed, "ValueError", "no otters");
    let ends = [
        (BatchEnd::Complete(json(&"found")), Status::Completed),
        (BatchEnd::Fail(failure.clone()), Status::Failed),
        (BatchEnd::Cancelled(Some(json(&"half"))), Status::Cancelled),
    ];
    for (end, status) in ends {
        let mut parent = rig.running().await;
        let mut first = child_of(&mut parent).await;
        let mut second = handed(&mut first).await;
        let mut third = handed(&mut second).await;
        parent.suspend(vec![], for_signal(&child_signal(first.id))).await;
        third.end(vec![], end).await;
        for id in [first.id, second.id, third.id] {
            let run = rig.execution(id).await;
            assert_eq!(run.status, status);
            let left = (run.output, run.failure);
            match status {
                Status::Completed => assert_eq!(left, (Some(json(&"found")), None)),
                Status::Failed => assert_eq!(left, (None, Some(failure.clone()))),
                _ => assert_eq!(left, (Some(json(&"half")), None)),
            }
        }
        assert_eq!(rig.status(parent.id).await, Status::Pending, "it was told");
        let mailbox = rig.mailbox(parent.id).await;
        assert_eq!(mailbox.len(), 1);
        let told = ChildEvent::of(&mailbox[0].name, &mailbox[0].payload).unwrap().unwrap();
        match status {
            Status::Completed => assert_eq!(told, ChildEvent::Completed { output: json(&"found") }),
            Status::Failed => assert!(matches!(told, ChildEvent::Failed { .. })),
            _ => assert_eq!(told, ChildEvent::Cancelled { output: Some(json(&"half")) }),
        }
        assert_eq!(ChildEnd::id(first.id), mailbox[0].id);
    }
}

/// With `immediate` the run is COMPLETED and names its successor, which goes on and still gets what is sent to the run.
pub async fn family_11_an_immediate_handoff_completes(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let mut run = child_of(&mut parent).await;
    let (to, answer) = hand_off(&mut run, true).await;
    assert_eq!(answer.committed, Committed::Finished(Status::Completed));
    let told = rig.execution(run.id).await;
    assert_eq!((told.handed_to, told.output), (Some(to), Some(json(&value!({ "handedTo": to })))));
    let last: Vec<_> = rig.events(run.id).await.into_iter().rev().take(2).map(|event| event.kind).collect();
    assert_eq!(last, [EventKind::Completed, EventKind::HandedOff]);
    assert_eq!(rig.mailbox(parent.id).await.len(), 1);
    assert_eq!(rig.execution(to).await.status, Status::Pending);
    let mut next = rig.claim(to).await;
    assert!(!rig.signal(run.id, "steer").await.repeated);
    assert_eq!(rig.mailbox(to).await.len(), 1);
    rig.storage.request_cancel(ORG, run.id, gracefully(GRACE)).await.unwrap();
    assert_eq!(rig.status(to).await, Status::Cancelling);
    next.end(vec![], BatchEnd::Cancelled(None)).await;
    assert_eq!(rig.status(run.id).await, Status::Completed);
    assert_eq!(refused(rig.storage.store_signal(rig.new_signal(run.id, "late")).await), Code::ExecutionClosed);
}

/// What is sent to the first of a chain goes to the last, once; a retried send gets its first answer.
pub async fn family_11_the_address_stays(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut first = rig.running().await;
    let keyed = |key: &str| NewSignal { idempotency_key: Some(key.into()), ..rig.new_signal(first.id, "steer") };
    let (early, late) = (keyed("early"), keyed("late"));
    let sent = rig.storage.store_signal(early.clone()).await.unwrap();
    let mut second = handed(&mut first).await;
    let third = handed(&mut second).await;
    let again = NewSignal { id: SignalId::fresh(), ..early };
    let repeated = rig.storage.store_signal(again).await.unwrap();
    assert_eq!((repeated.id, repeated.repeated), (sent.id, true));
    assert_eq!(rig.mailbox(third.id).await.len(), 1, "it had moved along, twice");
    let first_send = rig.storage.store_signal(late.clone()).await.unwrap();
    let again = rig.storage.store_signal(NewSignal { id: SignalId::fresh(), ..late }).await.unwrap();
    assert_eq!((first_send.repeated, again.repeated, again.id), (false, true, first_send.id));
    assert_eq!(rig.mailbox(third.id).await.len(), 2);
    // A pause of the last is resumed by the first.
    let mut third = third;
    third.end(vec![], BatchEnd::Pause { reason: WaitReason::StepLimit, failure: None }).await;
    rig.storage.resume(ORG, first.id, ResumeRequest::default()).await.unwrap();
    assert_eq!((rig.status(first.id).await, rig.status(third.id).await), (Status::Waiting, Status::Pending));
    let mut third = rig.claim(third.id).await;
    third.end(vec![], BatchEnd::Fail(Failure::new(Code::AgentFailed, "ValueError", "no"))).await;
    let retry = ResumeRequest { retry: true, ..ResumeRequest::default() };
    assert_eq!(refused(rig.storage.resume(ORG, first.id, retry).await), Code::InvalidTransition);
}

/// What a successor tells its parent comes from the run that its parent knows, and the answer reaches who has asked.
pub async fn family_11_a_successor_speaks_for_the_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut parent = rig.running().await;
    let mut first = child_of(&mut parent).await;
    let mut second = handed(&mut first).await;
    let mut third = handed(&mut second).await;
    let tell = |is_request| MessageBody::ToParent { name: "found".into(), payload: json(&1), is_request };
    let (news, request) = (third.message(tell(false)), third.message(tell(true)));
    let OpBody::Send(asked) = &request.body else { unreachable!() };
    let asked = asked.id;
    third.commit(vec![news, request]).await;
    third.suspend(vec![], for_signal(&answer_signal(asked))).await;
    let heard = rig.mailbox(parent.id).await;
    assert!(heard.iter().all(|signal| signal.name == event_signal(first.id)), "{heard:?}");
    assert_eq!((heard.len(), rig.mailbox(first.id).await.len(), rig.mailbox(second.id).await.len()), (2, 0, 0));
    let answer = MessageBody::Answer { child: first.id, request: asked, payload: json(&7) };
    let guide =
        MessageBody::ToChild { child: first.id, name: "steer".into(), payload: json(&1), delivery: Delivery::NextStep };
    let ops = vec![parent.message(answer), parent.message(guide)];
    let refusals = |fact: &Fact| matches!(&fact.kind, FactKind::Signal(told) if told.name.starts_with(REFUSAL_SIGNALS));
    assert!(!parent.commit(ops).await.facts.iter().any(refusals));
    assert_eq!(rig.status(third.id).await, Status::Pending);
    let got = rig.mailbox(third.id).await;
    assert_eq!(got.iter().map(|signal| &*signal.name).collect::<Vec<_>>(), [&*answer_signal(asked), "steer"]);
    assert_eq!(answer_of(&got[0].payload), Ok(json(&7)));

    // A run that was never a child has nobody to tell, and neither has its successor.
    let mut root = rig.running().await;
    let mut next = handed(&mut root).await;
    let op = next.message(tell(false));
    assert_eq!(told_of_refusal(&next.commit(vec![op]).await), Code::NoParent);
}

fn told_of_refusal(answer: &CommitAnswer) -> Code {
    let signals = answer.facts.iter().filter_map(|fact| match &fact.kind {
        FactKind::Signal(signal) => answer_of(&signal.payload).err(),
        _ => None,
    });
    signals.map(|failure| failure.code).next().expect("a refusal")
}

/// A child that goes on without the run that has handed off is told that nobody answers it.
pub async fn family_11_other_children_are_not_answered(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut run = rig.running().await;
    let mut born_ids = Vec::new();
    let mut ops = Vec::new();
    for _ in 0..2 {
        let mut op = run.child(json(&1));
        let OpBody::Child(new) = &mut op.body else { unreachable!() };
        new.on_parent_end = OnParentEnd::Detach;
        born_ids.push(new.id);
        ops.push(op);
    }
    run.commit(ops).await;
    let (mut waits, mut asks) = (rig.claim(born_ids[0]).await, rig.claim(born_ids[1]).await);
    let ask = || MessageBody::ToParent { name: "what?".into(), payload: json(&1), is_request: true };
    let op = waits.message(ask());
    let OpBody::Send(sent) = op.body.clone() else { unreachable!() };
    waits.commit(vec![op]).await;
    waits.suspend(vec![], for_signal(&answer_signal(sent.id))).await;
    handed(&mut run).await;
    let answer = rig.mailbox(waits.id).await.pop().expect("an answer");
    let failure = answer_of(&answer.payload).unwrap_err();
    assert_eq!((failure.code, failure.message.contains("has handed off")), (Code::ParentGone, true), "{failure:?}");
    let op = asks.message(ask());
    assert_eq!(told_of_refusal(&asks.commit(vec![op]).await), Code::ParentGone);
}

/// A stop of the first is one of all; each ends when the last does.
pub async fn family_11_a_stop_reaches_who_has_the_work(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut first = rig.running().await;
    let mut second = handed(&mut first).await;
    let mut third = handed(&mut second).await;
    rig.storage.request_cancel(ORG, first.id, gracefully(GRACE)).await.unwrap();
    for id in [first.id, second.id, third.id] {
        assert_eq!(rig.status(id).await, Status::Cancelling);
    }
    assert!(rig.try_claim(first.id).await.is_none(), "there is no code to tell");
    third.end(vec![], BatchEnd::Cancelled(Some(json(&"half")))).await;
    let run = rig.execution(first.id).await;
    assert_eq!((run.status, run.output), (Status::Cancelled, Some(json(&"half"))));

    // Nobody has begun the work: all end at once. The same without grace.
    for how in [gracefully(GRACE), at_once()] {
        let mut parent = rig.running().await;
        let mut first = child_of(&mut parent).await;
        let (to, _) = hand_off(&mut first, false).await;
        rig.storage.request_cancel(ORG, first.id, how).await.unwrap();
        assert_eq!((rig.status(first.id).await, rig.status(to).await), (Status::Cancelled, Status::Cancelled));
        assert_eq!(rig.mailbox(parent.id).await.len(), 1);
    }

    // Whoever does not stop in time is ended.
    let mut first = rig.running().await;
    let second = handed(&mut first).await;
    rig.storage.request_cancel(ORG, first.id, gracefully(GRACE)).await.unwrap();
    rig.pass_after(GRACE * 2).await;
    assert_eq!((rig.status(first.id).await, rig.status(second.id).await), (Status::Cancelled, Status::Cancelled));
}

/// Where there can be no successor the run goes on and is told why; so does one that was asked to stop.
pub async fn family_11_a_refused_handoff_leaves_the_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut run = rig.running().await;
    let mut answer = None;
    for _ in 0..9 {
        let (to, told) = hand_off(&mut run, false).await;
        if told.committed != WAITING {
            answer = Some((to, told));
            break;
        }
        run = rig.claim(to).await;
    }
    let (to, answer) = answer.expect("the depth has a limit");
    assert_eq!((answer.committed, rig.execution(run.id).await.depth), (Committed::Continue, 8));
    let told = answer.facts.iter().find_map(|fact| match &fact.kind {
        FactKind::Signal(signal) => ChildEnd::result(&signal.payload, "x").err(),
        _ => None,
    });
    assert_eq!(told.expect("a refusal").code, Code::LimitReached);
    assert_eq!(refused(rig.storage.execution(ORG, to).await), Code::ExecutionNotFound);
    run.end(vec![], BatchEnd::Complete(json(&1))).await;

    let mut run = rig.running().await;
    rig.storage.request_cancel(ORG, run.id, gracefully(GRACE)).await.unwrap();
    let (to, answer) = hand_off(&mut run, false).await;
    assert_eq!((answer.committed, answer.cancel.is_some()), (Committed::Continue, true));
    assert_eq!((rig.status(run.id).await, rig.execution(run.id).await.handed_to), (Status::Cancelling, None));
    run.end(vec![], BatchEnd::Cancelled(None)).await;
    assert_eq!(rig.status(to).await, Status::Cancelled);

    let mut run = rig.running().await;
    let stranger = rig.start().await;
    let answer = run.end(vec![], BatchEnd::HandOff { to: stranger, immediate: false }).await;
    assert_eq!((answer.committed, rig.status(run.id).await), (Committed::Continue, Status::Running));
}

/// A fork of a run that has handed off is the run before that.
pub async fn family_11_a_fork_keeps_no_handoff(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut run = rig.running().await;
    let (read, entry) = (run.read(json(&true)), run.entry("hello"));
    run.commit(vec![read, entry]).await;
    let mut next = handed(&mut run).await;
    next.end(vec![], BatchEnd::Complete(json(&1))).await;
    let (execution, from) = (run.id, ForkFrom::Latest);
    let request =
        ForkRequest { org: ORG, execution, id: ExecutionId::fresh(), key: None, from, state: None, input: None };
    let fork = rig.storage.fork(request).await.unwrap();
    assert_eq!((fork.handed_to, fork.leaf), (None, run.leaf));
    let tail = rig.claim(fork.new.id).await.load().await.tail;
    assert_eq!((tail.len(), tail.iter().filter_map(RecordedOp::child).count()), (2, 0));
}

/// All durable events of a run's stream after a text: each event's run and number, with the text to resume after.
async fn follow(rig: &Rig, run: ExecutionId, after: &str) -> Vec<(ExecutionId, u64, String)> {
    let client = Client::new(rig.storage.clone(), rig.storage.chunks(), ORG);
    let mut reader = client.follow(run, after);
    let mut events = Vec::new();
    let read = async {
        while let Some(FamilyEvent { cursor, execution, event, .. }) = reader.next().await.unwrap() {
            if let StreamEvent::Durable(event) = event {
                assert_eq!(event.execution, execution);
                events.push((execution, event.number, cursor.to_string()));
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), read).await.expect("the stream ends");
    events
}

/// The stream of a run tells of a handoff, then all of the successor, and so on, and has one end: that of the run. It goes on
/// after each of its events, while the runs go on and afterwards.
pub async fn family_11_a_stream_goes_on_with_the_successor(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    for immediate in [false, true] {
        let mut first = rig.running().await;
        let entry = first.entry("one");
        first.commit(vec![entry]).await;
        let (second, _) = hand_off(&mut first, immediate).await;
        let mut second = rig.claim(second).await;
        let entry = second.entry("two");
        second.commit(vec![entry]).await;
        let now = Following::latest(&*rig.storage, ORG, first.id).await.unwrap();
        let live = follow(&rig, first.id, "");
        let from_now_on = follow(&rig, first.id, &now);
        let go_on = async {
            let (third, _) = hand_off(&mut second, false).await;
            let mut third = rig.claim(third).await;
            let entry = third.entry("three");
            third.end(vec![entry], BatchEnd::Complete(json(&1))).await;
            third.id
        };
        let (all, later, third) = futures::join!(live, from_now_on, go_on);
        let place = all.iter().position(|(.., cursor)| *cursor == now).expect("it is the place of an event");
        assert_eq!((later, all[place].0), (all[place + 1..].to_vec(), second.id));
        assert_eq!(Following::latest(&*rig.storage, ORG, first.id).await.unwrap(), all.last().unwrap().2);
        let runs: Vec<_> = all.iter().map(|(run, ..)| *run).collect();
        let mut turns = runs.clone();
        turns.dedup();
        assert_eq!(turns, [first.id, second.id, third, first.id]);
        for id in [first.id, second.id, third] {
            let told: Vec<_> = all.iter().filter(|(run, ..)| *run == id).map(|(_, number, _)| *number).collect();
            // The ends of successors are not told: the end of the run says as much.
            let last = rig.high(id).await - u64::from(id != first.id);
            assert_eq!(told, (1..=last).collect::<Vec<_>>());
        }
        for (place, (.., after)) in all.iter().enumerate() {
            assert_eq!(follow(&rig, first.id, after).await, all[place + 1..], "after {after}");
        }
    }
    let alone = rig.running().await;
    let client = Client::new(rig.storage.clone(), rig.storage.chunks(), ORG);
    for wrong in ["1>1", "x", "1>", "9", "1~2_3.4"] {
        assert_eq!(refused(client.follow(alone.id, wrong).next().await), Code::InvalidArgument, "{wrong}");
    }
}
