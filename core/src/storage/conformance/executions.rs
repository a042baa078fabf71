//! Runs: how they start, how they are found, and how their status changes.

use super::Factory;
use super::rig::{AGENT, ORG, Rig, TTL, at_once, for_signal, for_tasks, gracefully, json, refused};
use crate::error::Code;
use crate::id::{ExecutionId, OrgId, RequestId};
use crate::model::{
    BatchEnd, Cursor, Divergence, EventKind, ExecutionFilter, Failure, KnownWorker, NewExecution, PageRequest,
    QueueLoad, ResumeRequest, Status, WaitReason,
};
use crate::payload::{Digest, Payload};
use crate::storage::{ClaimRequest, WorkerInfo};
use std::time::Duration;

/// A start is PENDING with one event, and what was asked for is read back.
pub async fn a_start_is_pending(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut new = rig.new_run();
    new.key = Some("my run".into());
    new.queue = "gpu".into();
    new.metadata.insert("user".into(), "ada".into());
    new.limits.max_steps = Some(7);
    new.traceparent = Some("00-1-2-01".into());
    new.concurrency_key = Some("tenant".into());
    let created = rig.storage.create_execution(new.clone()).await.unwrap();
    assert!(!created.existing);
    let run = rig.execution(new.id).await;
    assert_eq!(format!("{:?}", created.execution), format!("{run:?}"));
    assert_eq!((run.status, run.epoch, run.base, run.segment), (Status::Pending, 0, 0, 0));
    assert_eq!((run.root, run.parent, run.leaf, run.worker), (new.id, None, None, None));
    assert_eq!((run.step_limit, run.new.limits.max_total_steps, run.tail_limit), (Some(7), Some(500), 50_000));
    assert_eq!((&run.new.key, &run.new.queue, &run.new.metadata), (&new.key, &new.queue, &new.metadata));
    assert_eq!((&run.new.traceparent, &run.new.concurrency_key), (&new.traceparent, &new.concurrency_key));
    assert_eq!((&run.new.input, run.new.input_digest), (&new.input, new.input_digest));
    assert_eq!((run.created_at, run.updated_at, run.ended_at), (rig.now(), rig.now(), None));
    let events = rig.events(new.id).await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].number, events[0].kind), (1, EventKind::Created));
    assert_eq!(events[0].data, serde_json::json!({ "kind": AGENT, "queue": "gpu" }));
}

/// The same id with the same kind and input is the same run; with another it is refused.
pub async fn a_repeated_start_is_the_same_run(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let new = rig.new_run();
    rig.storage.create_execution(new.clone()).await.unwrap();
    let again = rig.storage.create_execution(new.clone()).await.unwrap();
    assert!(again.existing);
    assert_eq!(again.execution.new.id, new.id);
    let mut other_kind = new.clone();
    other_kind.kind = "other".into();
    assert_eq!(refused(rig.storage.create_execution(other_kind).await), Code::ExecutionExists);
    let mut other_input = new.clone();
    other_input.input_digest = Digest([9; 16]);
    assert_eq!(refused(rig.storage.create_execution(other_input).await), Code::ExecutionExists);
    assert_eq!(rig.events(new.id).await.len(), 1);
    // Also once it has ended.
    rig.claim(new.id).await.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert!(rig.storage.create_execution(new).await.unwrap().existing);
}

/// A delayed run is not claimed early.
pub async fn a_delayed_start_waits(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.delay = Some(Duration::from_secs(10))).await;
    assert!(rig.try_claim(id).await.is_none());
    let due = rig.pass_after(Duration::from_micros(9_999_999)).await;
    assert_eq!(due, Some(rig.now().after(Duration::from_micros(1))));
    assert!(rig.try_claim(id).await.is_none());
    rig.pass_after(Duration::from_micros(1)).await;
    assert!(rig.try_claim(id).await.is_some());
}

/// Nothing is found of a run that does not exist, or that is another tenant's.
pub async fn strangers_are_not_found(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let holder = rig.running().await;
    let nobody = ExecutionId(rig.uuid());
    let stranger = OrgId(rig.uuid());
    for (org, id) in [(ORG, nobody), (stranger, holder.id)] {
        let page = PageRequest::default;
        let storage = &rig.storage;
        assert_eq!(refused(storage.execution(org, id).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.entries(org, id, page()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.latest_entries(org, id, page()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.last_event(org, id).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.tasks(org, id, page()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.checkpoints(org, id, page()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.signals(org, id, page()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.events(org, id, 0, 10).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.journal(org, id, 0).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.facts_after(org, id, 0).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.load_segment(org, id, holder.lease).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.release(org, id, holder.lease).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.request_cancel(org, id, at_once()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.resume(org, id, ResumeRequest::default()).await), Code::ExecutionNotFound);
        assert_eq!(refused(storage.resolve_divergence(org, id, Divergence::Stay).await), Code::ExecutionNotFound);
        let mut signal = rig.new_signal(id, "x");
        signal.org = org;
        assert_eq!(refused(storage.store_signal(signal).await), Code::ExecutionNotFound);
        let mut request = holder.request(holder.batch(vec![], BatchEnd::Continue));
        (request.org, request.execution) = (org, id);
        assert_eq!(refused(storage.commit(request).await), Code::ExecutionNotFound);
    }
    assert!(
        rig.storage
            .executions(stranger, ExecutionFilter::default(), PageRequest::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(rig.status(holder.id).await, Status::Running);
}

/// One life through PENDING, RUNNING, WAITING and COMPLETED, one event a transition.
pub async fn a_life_from_start_to_end(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    assert_eq!(rig.status(holder.id).await, Status::Running);
    let op = holder.wait("go", None);
    holder.suspend(vec![op], for_signal("go")).await;
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.lease_expires), (Status::Waiting, None, None));
    assert_eq!((run.epoch, run.wait), (1, Some(for_signal("go"))));
    assert!(rig.signal(holder.id, "go").await.resumed);
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.wait), (Status::Pending, None));
    let mut holder = rig.claim(holder.id).await;
    assert_eq!((holder.lease.epoch, holder.base), (2, 1));
    rig.clock.advance(Duration::from_secs(1));
    holder.end(vec![], BatchEnd::Complete(json(&"done"))).await;
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.lease_expires), (Status::Completed, None, None));
    assert_eq!((run.output, run.ended_at), (Some(json(&"done")), Some(rig.now())));
    use EventKind::*;
    assert_eq!(rig.kinds_after(holder.id, 0).await, [Created, Resumed, Waiting, Signal, Woken, Resumed, Completed]);
    let events = rig.events(holder.id).await;
    assert_eq!(events[2].data, serde_json::json!({ "reason": "signal", "signals": ["go"], "timers": false }));
    assert_eq!(events[4].data, serde_json::json!({ "reason": "signal" }));
}

/// An end is final: nothing moves a run that has ended.
pub async fn an_end_absorbs(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let failure = Failure::new(Code::AgentFailed, "ValueError", "no");
    let ends = [
        (BatchEnd::Complete(json(&1)), Status::Completed, EventKind::Completed),
        (BatchEnd::Fail(failure.clone()), Status::Failed, EventKind::Failed),
        (BatchEnd::Cancelled(Some(json(&2))), Status::Cancelled, EventKind::Cancelled),
    ];
    for (end, status, kind) in ends {
        let mut holder = rig.running().await;
        let answer = holder.end(vec![], end).await;
        assert_eq!(answer.committed, crate::model::Committed::Finished(status));
        let before = rig.events(holder.id).await;
        assert_eq!(before.last().unwrap().kind, kind);
        assert_eq!(refused(holder.try_commit(holder.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
        assert_eq!(refused(rig.storage.release(ORG, holder.id, holder.lease).await), Code::LeaseLost);
        for cancel in [at_once(), gracefully(Duration::from_secs(1))] {
            assert_eq!(rig.storage.request_cancel(ORG, holder.id, cancel).await.unwrap().status, status);
        }
        assert_eq!(
            refused(rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await),
            Code::InvalidTransition
        );
        let decided = rig.storage.resolve_divergence(ORG, holder.id, Divergence::Continue).await;
        assert_eq!(refused(decided), Code::InvalidTransition);
        assert_eq!(refused(rig.storage.store_signal(rig.new_signal(holder.id, "x")).await), Code::ExecutionClosed);
        assert!(rig.try_claim(holder.id).await.is_none());
        rig.pass_after(Duration::from_secs(100)).await;
        assert_eq!(rig.events(holder.id).await, before);
        let run = rig.execution(holder.id).await;
        assert_eq!(run.status, status);
        assert_eq!(run.failure, (status == Status::Failed).then(|| failure.clone()));
        assert_eq!(run.output.is_some(), status != Status::Failed);
    }
}

/// Pages are newest first, complete, and not disturbed by runs that start meanwhile.
pub async fn pages_are_stable(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut started = Vec::new();
    for n in 0..25 {
        started.push(rig.start().await);
        if n % 3 == 0 {
            rig.clock.advance(Duration::from_millis(1));
        }
    }
    let mut seen = Vec::new();
    let mut page = PageRequest { limit: 4, after: None };
    loop {
        let got = rig.storage.executions(ORG, ExecutionFilter::default(), page.clone()).await.unwrap();
        assert!(got.items.len() <= 4);
        seen.extend(got.items.iter().map(|run| run.new.id));
        rig.start().await;
        rig.clock.advance(Duration::from_millis(1));
        match got.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    started.reverse();
    assert_eq!(seen, started);
    let all = rig.storage.executions(ORG, ExecutionFilter::default(), PageRequest { limit: 25, after: None }).await;
    assert_eq!(all.unwrap().items.len(), 25);
}

/// Filters by status, kind, queue, metadata and age, alone and together, across pages.
pub async fn filters_narrow_a_listing(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let old = rig.start_as(|new| new.kind = "other".into()).await;
    rig.clock.advance(Duration::from_secs(1));
    let border = rig.now();
    let tagged = rig
        .start_as(|new| {
            new.queue = "gpu".into();
            new.metadata.insert("user".into(), "ada".into());
            new.metadata.insert("plan".into(), "a".into());
        })
        .await;
    let holder = rig.running().await;
    let list = |filter: ExecutionFilter| {
        let rig = &rig;
        async move {
            let mut ids = Vec::new();
            let mut page = PageRequest { limit: 1, after: None };
            loop {
                let got = rig.storage.executions(ORG, filter.clone(), page.clone()).await.unwrap();
                ids.extend(got.items.iter().map(|run| run.new.id));
                match got.next {
                    Some(next) => page.after = Some(next),
                    None => return ids,
                }
            }
        }
    };
    let filter = ExecutionFilter::default;
    assert_eq!(list(filter()).await, [holder.id, tagged, old]);
    assert_eq!(list(ExecutionFilter { statuses: vec![Status::Running], ..filter() }).await, [holder.id]);
    let both = vec![Status::Pending, Status::Running];
    assert_eq!(
        list(ExecutionFilter { statuses: both, kind: Some(AGENT.into()), ..filter() }).await,
        [holder.id, tagged]
    );
    assert_eq!(list(ExecutionFilter { kind: Some("other".into()), ..filter() }).await, [old]);
    assert_eq!(list(ExecutionFilter { queue: Some("gpu".into()), ..filter() }).await, [tagged]);
    let metadata = |pairs: &[(&str, &str)]| ExecutionFilter {
        metadata: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..filter()
    };
    assert_eq!(list(metadata(&[("user", "ada")])).await, [tagged]);
    assert_eq!(list(metadata(&[("user", "ada"), ("plan", "a")])).await, [tagged]);
    assert!(list(metadata(&[("user", "ada"), ("plan", "b")])).await.is_empty());
    let search = |words: &str| ExecutionFilter { search: Some(words.to_owned()), ..filter() };
    for (words, found) in [
        ("", vec![holder.id, tagged, old]),
        (" ADA ", vec![tagged]),
        ("gpu ada", vec![tagged]),
        ("adagpu", vec![]),
        ("gpu nobody", vec![]),
        ("OTHER", vec![old]),
        ("named-otter", vec![]),
        ("%", vec![]),
        (&old.to_string()[3..], vec![old]),
    ] {
        assert_eq!(list(search(words)).await, found, "{words:?}");
    }
    let named =
        rig.start_as(|new| (new.key, new.input) = (Some("Named-Otter".into()), json(&"Größe of a 100% river"))).await;
    for words in ["named-otter", "größe", "100% RIVER", "GRÖSSE river", "%"] {
        let found = if words == "GRÖSSE river" { vec![] } else { vec![named] };
        assert_eq!(list(search(words)).await, found, "{words:?}");
    }
    assert_eq!(list(ExecutionFilter { kind: Some("other".into()), ..search("100%") }).await, []);
    assert_eq!(list(ExecutionFilter { created_from: Some(border), ..filter() }).await, [named, holder.id, tagged]);
    assert_eq!(list(ExecutionFilter { created_until: Some(border), ..filter() }).await, [old]);
}

/// Pages of the parts of a run are complete and in order; odd limits and cursors are refused.
pub async fn parts_are_paged_too(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    for n in 0..3 {
        let ops = vec![holder.entry("a"), holder.queued(Default::default()), holder.entry("b")];
        holder.commit(ops).await;
        rig.signal(holder.id, "s").await;
        for task in rig.claim_tasks().await {
            rig.report(&task, super::rig::done(n)).await.unwrap();
        }
        holder.known = rig.high(holder.id).await;
        holder.checkpoint(vec![], json(&n)).await;
    }
    macro_rules! collect {
        ($call:ident, $place:expr) => {{
            let mut places = Vec::new();
            let mut page = PageRequest { limit: 2, after: None };
            loop {
                let got = rig.storage.$call(ORG, holder.id, page.clone()).await.unwrap();
                places.extend(got.items.iter().map($place));
                match got.next {
                    Some(next) => page.after = Some(next),
                    None => break,
                }
            }
            assert!(places.is_sorted());
            assert_eq!(
                refused(rig.storage.$call(ORG, holder.id, PageRequest { limit: 0, after: None }).await),
                Code::InvalidArgument
            );
            assert_eq!(
                refused(rig.storage.$call(ORG, holder.id, PageRequest { limit: 1_001, after: None }).await),
                Code::InvalidArgument
            );
            let foreign = PageRequest { limit: 1, after: Some(Cursor("no cursor".into())) };
            assert_eq!(refused(rig.storage.$call(ORG, holder.id, foreign).await), Code::InvalidArgument);
            places.len()
        }};
    }
    assert_eq!(collect!(entries, |entry| entry.slot), 6);
    let latest = rig.storage.latest_entries(ORG, holder.id, PageRequest::default()).await.unwrap();
    let mut listed = rig.storage.entries(ORG, holder.id, PageRequest::default()).await.unwrap().items;
    listed.reverse();
    assert_eq!((latest.items, latest.next), (listed.clone(), None));
    // Each page goes on before the last one, through segments of any length, and wherever a cursor stands.
    for limit in 1..=7 {
        let (mut found, mut page) = (Vec::new(), PageRequest { limit, after: None });
        loop {
            let got = rig.storage.latest_entries(ORG, holder.id, page.clone()).await.unwrap();
            found.extend(got.items);
            match got.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, listed, "pages of {limit}");
    }
    for (place, expected) in [("0-0", 0), ("9-0", 6), ("1-0", 2)] {
        let page = PageRequest { limit: 10, after: Some(Cursor(place.into())) };
        let got = rig.storage.latest_entries(ORG, holder.id, page).await.unwrap();
        assert_eq!(got.items, listed[6 - expected..], "before {place}");
    }
    for page in [PageRequest { limit: 0, after: None }, PageRequest { limit: 1, after: Some(Cursor("x".into())) }] {
        assert_eq!(refused(rig.storage.latest_entries(ORG, holder.id, page).await), Code::InvalidArgument);
    }
    let events = rig.events(holder.id).await;
    assert_eq!(rig.storage.last_event(ORG, holder.id).await.unwrap(), events.last().unwrap().number);
    assert_eq!(collect!(tasks, |task| task.slot), 3);
    assert_eq!(collect!(checkpoints, |checkpoint| checkpoint.sequence), 3);
    assert_eq!(collect!(signals, |signal| signal.number), 3);
    for page in [
        PageRequest { limit: 0, after: None },
        PageRequest { limit: 1_001, after: None },
        PageRequest { limit: 1, after: Some(Cursor("no cursor".into())) },
    ] {
        let got = rig.storage.executions(ORG, ExecutionFilter::default(), page).await;
        assert_eq!(refused(got), Code::InvalidArgument);
    }
}

/// A pause ends the holder's right; `resume` makes the run PENDING again, once per request.
pub async fn pause_and_resume(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let failure = Failure::new(Code::Diverged, "Diverged", "moved");
    let pause = BatchEnd::Pause { reason: WaitReason::Divergence, failure: Some(failure.clone()) };
    let answer = holder.end(vec![], pause).await;
    assert_eq!(answer.committed, crate::model::Committed::Finished(Status::Paused));
    let run = rig.execution(holder.id).await;
    assert_eq!((run.status, run.worker, run.failure), (Status::Paused, None, Some(failure)));
    assert_eq!(run.wait.and_then(|wait| wait.reason), Some(WaitReason::Divergence));
    assert!(rig.try_claim(holder.id).await.is_none());
    rig.signal(holder.id, "x").await;
    assert_eq!(rig.status(holder.id).await, Status::Paused);
    let request = ResumeRequest { request_id: Some(RequestId(rig.uuid())), ..Default::default() };
    let run = rig.storage.resume(ORG, holder.id, request.clone()).await.unwrap();
    assert_eq!((run.status, run.wait, run.failure), (Status::Pending, None, None));
    let high = rig.high(holder.id).await;
    let run = rig.storage.resume(ORG, holder.id, request).await.unwrap();
    assert_eq!(run.status, Status::Pending);
    assert_eq!(rig.high(holder.id).await, high);
    assert_eq!(rig.events(holder.id).await.last().unwrap().kind, EventKind::Continued);
    let again = rig.storage.resume(ORG, holder.id, ResumeRequest::default()).await;
    assert_eq!(refused(again), Code::InvalidTransition);
}

/// A divergence is decided: go on, stay, or go on in a fork.
pub async fn a_divergence_is_decided(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let op = holder.entry("a");
    holder.commit(vec![op]).await;
    let decide = |decision| rig.storage.resolve_divergence(ORG, holder.id, decision);
    assert_eq!(refused(decide(Divergence::Continue).await), Code::InvalidTransition);
    let id = holder.id;
    holder.end(vec![], BatchEnd::Pause { reason: WaitReason::Divergence, failure: None }).await;
    let decide = |decision| rig.storage.resolve_divergence(ORG, id, decision);
    assert_eq!(decide(Divergence::Stay).await.unwrap().status, Status::Paused);
    let fork = decide(Divergence::Fork).await.unwrap();
    assert_ne!(fork.new.id, id);
    assert_eq!(fork.forked_from.map(|point| point.execution), Some(id));
    assert_eq!(decide(Divergence::Fork).await.unwrap().new.id, fork.new.id);
    assert_eq!(rig.status(id).await, Status::Paused);
    let run = decide(Divergence::Continue).await.unwrap();
    assert_eq!((run.status, run.code.as_deref()), (Status::Pending, Some("mixed")));
    assert!(rig.try_claim(id).await.is_some());
}

/// Work that no live worker serves is counted by kind and queue.
pub async fn unserved_work_is_told(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    rig.start().await;
    rig.start().await;
    rig.start_as(|new| new.queue = "gpu".into()).await;
    let told = |kind: &str, queue: &str, count| (kind.to_owned(), queue.to_owned(), count);
    let mut expected = vec![told(AGENT, "default", 2), told(AGENT, "gpu", 1)];
    assert_eq!(rig.storage.unserved(ORG).await.unwrap(), expected);
    let worker = rig.worker();
    let info = WorkerInfo { org: ORG, id: worker, name: "w".into(), queues: vec!["default".into()], elsewhere: false };
    rig.storage.register_worker(info).await.unwrap();
    let mut asking = rig.asking(worker, AGENT);
    asking.limit = 1;
    let claims = rig.storage.claim_agents(asking).await.unwrap();
    expected.remove(0);
    assert_eq!(rig.storage.unserved(ORG).await.unwrap(), expected);
    let mut holder = super::rig::Holder::of(&rig, &claims[0]);
    let ops = vec![holder.queued(Default::default())];
    holder.suspend(ops, for_tasks()).await;
    expected.push(told(super::rig::TASK, "default", 1));
    assert_eq!(rig.storage.unserved(ORG).await.unwrap(), expected);
    // A worker that is gone serves nobody.
    rig.clock.advance(Duration::from_secs(3_600));
    expected.insert(0, told(AGENT, "default", 1));
    assert_eq!(rig.storage.unserved(ORG).await.unwrap(), expected);
}

/// Queues are counted by kind: what waits, what is held, and what live workers would serve.
pub async fn queues_are_counted(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let load = |kind: &str, queue: &str, queued, running, served| QueueLoad {
        kind: kind.to_owned(),
        queue: queue.to_owned(),
        queued,
        running,
        served,
    };
    let worker = rig.worker();
    let stranger = OrgId(rig.uuid());
    rig.start_as(|new| new.org = stranger).await;
    rig.start_as(|new| new.delay = Some(Duration::from_secs(60))).await;
    let mut asking = rig.running_as(worker).await;
    assert_eq!(rig.storage.queues(ORG).await.unwrap(), [load(AGENT, "default", 0, 1, true)]);
    let ops =
        vec![asking.inline(Default::default()), asking.queued(Default::default()), asking.queued(Default::default())];
    asking.commit(ops).await;
    rig.start_as(|new| new.queue = "gpu".into()).await;
    let task = super::rig::TASK;
    let waits =
        [load(AGENT, "default", 0, 1, true), load(AGENT, "gpu", 1, 0, false), load(task, "default", 2, 0, false)];
    assert_eq!(rig.storage.queues(ORG).await.unwrap(), waits);
    let request = ClaimRequest { limit: 1, ..rig.asking(worker, task) };
    assert_eq!(rig.storage.claim_tasks(request).await.unwrap().len(), 1);
    rig.clock.advance(Duration::from_secs(60));
    let late =
        [load(AGENT, "default", 1, 1, false), load(AGENT, "gpu", 1, 0, false), load(task, "default", 1, 1, false)];
    assert_eq!(rig.storage.queues(ORG).await.unwrap(), late);
    assert_eq!(rig.storage.queues(stranger).await.unwrap(), [load(AGENT, "default", 1, 0, false)]);
}

/// Workers are listed page by page, each in its own org.
pub async fn workers_are_listed(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let (first, second, stranger) = (rig.worker(), rig.worker(), OrgId(rig.uuid()));
    for (org, id) in [(ORG, first), (stranger, second)] {
        let info =
            WorkerInfo { org, id, name: "w".into(), queues: vec!["default".into(), "gpu".into()], elsewhere: false };
        rig.storage.register_worker(info).await.unwrap();
    }
    let began = rig.now();
    rig.clock.advance(TTL / 2);
    rig.storage.claim_agents(rig.asking(second, AGENT)).await.unwrap();
    let page = async |org, after| rig.storage.workers(org, PageRequest { limit: 1, after }).await.unwrap();
    let known = page(ORG, None).await;
    let (queues, alive_until) = (vec!["default".to_owned(), "gpu".to_owned()], began.after(TTL));
    let own = KnownWorker { id: first, name: "w".into(), queues, serves: vec![], seen_at: began, alive_until };
    assert_eq!(known.items, [own]);
    let rest = page(ORG, known.next).await;
    let serves = vec![(AGENT.to_owned(), "default".to_owned())];
    let (seen_at, alive_until) = (rig.now(), rig.now().after(TTL));
    let other = KnownWorker { id: second, name: String::new(), queues: vec![], serves, seen_at, alive_until };
    assert_eq!((rest.items, rest.next), (vec![other], None));
    assert_eq!(page(stranger, None).await.items[0].id, second);
    rig.storage.unregister_worker(ORG, first).await.unwrap();
    assert_eq!(page(ORG, None).await.items[0].id, second);
    let wrong = rig.storage.workers(ORG, PageRequest { limit: 0, after: None }).await;
    assert_eq!(refused(wrong), Code::InvalidArgument);
}

/// A run's own timeout ends it.
pub async fn a_run_out_of_time_fails(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start_as(|new| new.limits.timeout = Some(Duration::from_secs(10))).await;
    let mut holder = rig.claim(id).await;
    assert_eq!(rig.pass_after(Duration::from_secs(9)).await, Some(rig.now().after(Duration::from_secs(1))));
    assert_eq!(rig.status(id).await, Status::Running);
    rig.pass_after(Duration::from_secs(1)).await;
    let run = rig.execution(id).await;
    assert_eq!((run.status, run.failure.map(|failure| failure.code)), (Status::Failed, Some(Code::Timeout)));
    assert_eq!(refused(holder.try_commit(holder.batch(vec![], BatchEnd::Continue)).await), Code::LeaseLost);
}

/// A run that no worker begins in time fails: from its start, from when a delayed start comes, and anew once it is tried
/// again. One that was begun is left alone.
pub async fn a_run_that_nobody_begins_fails(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let limited = |new: &mut NewExecution| new.limits.start_timeout = Some(Duration::from_secs(10));
    let left = rig.start_as(limited).await;
    let begun = rig.start_as(limited).await;
    let delayed = rig
        .start_as(|new| {
            limited(new);
            new.delay = Some(Duration::from_secs(60));
        })
        .await;
    let mut holder = rig.claim(begun).await;
    rig.pass_after(Duration::from_secs(9)).await;
    assert_eq!(rig.status(left).await, Status::Pending);
    rig.pass_after(Duration::from_secs(1)).await;
    let run = rig.execution(left).await;
    let failure = run.failure.unwrap();
    assert_eq!((run.status, failure.code, &*failure.error_type), (Status::Failed, Code::Timeout, "StartTimeout"));
    let wait = holder.wait("go", None);
    holder.suspend(vec![wait], for_signal("go")).await;
    rig.pass_after(Duration::from_secs(30)).await;
    assert_eq!(rig.status(begun).await, Status::Waiting);
    assert_eq!(rig.status(delayed).await, Status::Pending);
    rig.pass_after(Duration::from_secs(30)).await;
    assert_eq!(rig.status(delayed).await, Status::Failed);
    rig.storage.resume(ORG, left, ResumeRequest { retry: true, ..ResumeRequest::default() }).await.unwrap();
    rig.pass_after(Duration::from_secs(9)).await;
    assert_eq!(rig.status(left).await, Status::Pending);
    rig.pass_after(Duration::from_secs(1)).await;
    assert_eq!(rig.status(left).await, Status::Failed);
}

/// A run of a kind without a name is refused: no worker could serve it.
pub async fn an_empty_kind_is_refused(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let new = NewExecution::new(ExecutionId::fresh(), "", Payload::json("null")).unwrap();
    assert_eq!(refused(rig.storage.create_execution(new).await), Code::InvalidArgument);
}
