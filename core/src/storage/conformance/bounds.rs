//! What no row and no index can hold is refused at the door, and stops nobody else.

use super::Factory;
use super::rig::{AGENT, ORG, Rig, TTL, refused};
use crate::error::Code;
use crate::id::ExecutionId;
use crate::model::{ForkFrom, ForkRequest, MAX_NAME, NewExecution, NewOp, NewSignal, OpBody, TaskOptions};
use crate::storage::{ClaimRequest, Heartbeat, WorkerInfo};
use std::time::Duration;

fn longest() -> String {
    "n".repeat(MAX_NAME)
}

fn too_long() -> String {
    "n".repeat(MAX_NAME + 1)
}

type Change<T> = fn(&mut T, String);

/// The words of a run: each as long as it may be works, one byte more or a NUL does not, and the queue goes on.
pub async fn words_of_a_run_have_a_limit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let words: [Change<NewExecution>; 4] = [
        |new, word| new.kind = word,
        |new, word| new.queue = word,
        |new, word| new.concurrency_key = Some(word),
        |new, word| drop(new.metadata.insert(word, "ada".into())),
    ];
    for change in words {
        for wrong in [too_long(), "x".repeat(12_000), "a\0b".into()] {
            let mut new = rig.new_run();
            change(&mut new, wrong);
            assert_eq!(refused(rig.storage.create_execution(new).await), Code::InvalidArgument);
        }
    }
    for wrong in ["", &"名".repeat(201), "a\0b"] {
        let named = NewExecution { key: Some(wrong.into()), ..rig.new_run() };
        assert_eq!(refused(rig.storage.create_execution(named).await), Code::InvalidArgument);
    }
    rig.start_as(|new| (new.key, new.queue) = (Some("名".repeat(200)), "of its own".into())).await;
    let mut large = rig.new_run();
    large.metadata.insert("note".into(), "x".repeat(20_000));
    assert_eq!(refused(rig.storage.create_execution(large).await), Code::InvalidArgument);

    let id = rig.start_as(|new| words.iter().for_each(|change| change(new, longest()))).await;
    let other = rig.start().await;
    let asked = ClaimRequest { queue: longest(), ..rig.asking(rig.worker(), &longest()) };
    assert_eq!(rig.storage.claim_agents(asked).await.unwrap()[0].execution.new.id, id);
    assert_eq!(rig.storage.claim_agents(rig.asking(rig.worker(), AGENT)).await.unwrap()[0].execution.new.id, other);
}

/// The words of signals and forks.
pub async fn words_of_a_signal_have_a_limit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let id = rig.start().await;
    let words: [Change<NewSignal>; 2] =
        [|signal, word| signal.name = word, |signal, word| signal.idempotency_key = Some(word)];
    for change in words {
        let mut signal = rig.new_signal(id, "news");
        change(&mut signal, too_long());
        assert_eq!(refused(rig.storage.store_signal(signal).await), Code::InvalidArgument);
    }
    let mut signal = rig.new_signal(id, "news");
    words.iter().for_each(|change| change(&mut signal, longest()));
    rig.storage.store_signal(signal).await.unwrap();
    let fork = ForkRequest {
        org: ORG,
        execution: id,
        id: ExecutionId(rig.uuid()),
        key: Some(too_long()),
        from: ForkFrom::Latest,
        state: None,
        input: None,
    };
    assert_eq!(refused(rig.storage.fork(fork).await), Code::InvalidArgument);
}

/// The words of ops: a commit that has one too long is refused alone, and another goes on from the same place.
pub async fn words_of_an_op_have_a_limit(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let mut holder = rig.running().await;
    let words: [Change<NewOp>; 5] = [
        |op, word| op.label.name = word.into(),
        |op, word| op.label.key = crate::model::LabelKey::Key(word.into()),
        |op, word| {
            if let OpBody::Entry(entry) = &mut op.body {
                entry.thread = word;
            }
        },
        |op, word| {
            if let OpBody::Entry(entry) = &mut op.body {
                entry.entry_type = word;
            }
        },
        |op, word| {
            if let OpBody::Entry(entry) = &mut op.body {
                entry.turn_id = Some(word);
            }
        },
    ];
    let entry = holder.entry("a");
    for change in words {
        let mut op = entry.clone();
        change(&mut op, too_long());
        let batch = holder.batch(vec![op], crate::model::BatchEnd::Continue);
        assert_eq!(refused(holder.try_commit(batch).await), Code::InvalidArgument);
    }
    let mut op = entry;
    words.iter().for_each(|change| change(&mut op, longest()));
    let mut task = holder.queued(TaskOptions::default());
    if let OpBody::Task(new) = &mut task.body {
        (new.kind, new.queue) = (longest(), longest());
    }
    holder.commit(vec![op, task]).await;
    let asked = ClaimRequest { queue: longest(), ..rig.asking(rig.worker(), &longest()) };
    assert_eq!(rig.storage.claim_tasks(asked).await.unwrap().len(), 1);
}

/// What a worker says of itself.
pub async fn a_worker_has_limits(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let worker = |name: &str, queues: Vec<String>| WorkerInfo {
        org: ORG,
        id: rig.worker(),
        name: name.into(),
        queues,
        elsewhere: false,
    };
    for wrong in [
        worker(&too_long(), vec![]),
        worker("w", vec![too_long()]),
        worker("w", (0..1_001).map(|n| n.to_string()).collect()),
    ] {
        assert_eq!(refused(rig.storage.register_worker(wrong).await), Code::InvalidArgument);
    }
    rig.storage.register_worker(worker(&longest(), vec![longest()])).await.unwrap();
    let asked = || rig.asking(rig.worker(), AGENT);
    let kinds: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    for wrong in [
        ClaimRequest { queue: too_long(), ..asked() },
        ClaimRequest { kinds: vec![too_long()].into(), ..asked() },
        ClaimRequest { kinds: kinds.into(), ..asked() },
    ] {
        assert_eq!(refused(rig.storage.claim_agents(wrong.clone()).await), Code::InvalidArgument);
        assert_eq!(refused(rig.storage.claim_tasks(wrong).await), Code::InvalidArgument);
    }
    let beat = |ttl| Heartbeat {
        org: ORG,
        worker: rig.worker(),
        ttl,
        executions: Vec::new(),
        tasks: Vec::new(),
        progress: Vec::new(),
    };
    assert_eq!(refused(rig.storage.heartbeat(beat(Duration::MAX)).await), Code::InvalidArgument);
    rig.storage.heartbeat(beat(TTL)).await.unwrap();
}
