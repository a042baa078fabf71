//! Rows of previews: written for readers of other processes alone, taken away by what supersedes them and with their readers.

use super::Factory;
use super::rig::{ORG, Rig, done, failed, for_tasks, json};
use crate::id::ExecutionId;
use crate::model::{BatchEnd, Chunk, ChunkKind, EventId, RetryPolicy, TaskOptions};
use crate::storage::Previews;
use crate::storage::previews::Reader;
use crate::streaming::{Reach, Read, Rows, WATCH_TTL};
use std::time::Duration;
use uuid::Uuid;

const THERE: Uuid = Uuid::from_u128(7);

fn said(execution: ExecutionId, sequence: u32, attempt: u32) -> Chunk {
    let (segment, epoch, seq, kind) = (0, 1, 1, ChunkKind::Token);
    Chunk { execution, segment, sequence, epoch, attempt, seq, kind, data: "word ".into() }
}

/// The ops of a run that have rows, as their reader sees them.
async fn ops(previews: &dyn Previews, id: ExecutionId) -> Vec<i32> {
    let (rows, served) = previews.read_previews(ORG, id, THERE, &Reach::default()).await.unwrap();
    assert!(served);
    rows.placed.iter().map(|row| row.sequence).collect()
}

/// A reader makes itself known, gets what there is, and loses what is superseded and, once it is gone, everything.
pub async fn rows_go_with_what_they_announce_and_with_their_readers(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let storage = rig.keeper().clone();
    let Some(previews) = storage.previews() else { return };
    let (chunks, mut holder) = (storage.chunks(), rig.running().await);
    let read_elsewhere = |id| Read { run: (ORG, id), held: Some(true), anew: true };
    previews.watch(ORG, holder.id, THERE, true).await.unwrap();
    let reader =
        Reader { org: ORG, execution: holder.id, process: THERE, served: false, holder: Some(holder.lease.worker) };
    assert_eq!(previews.readers(Uuid::nil()).await.unwrap(), [reader]);
    assert!(previews.readers(THERE).await.unwrap().is_empty(), "a process is not told of itself");

    chunks.publish(2, ORG, said(holder.id, 0, 0));
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    let read =
        async |id| previews.read_previews(ORG, holder.id, THERE, &Reach { id, ..Reach::default() }).await.unwrap();
    assert_eq!(read(EventId::default()).await, (Rows::default(), false), "nobody said that it is read elsewhere");
    chunks.set_read([read_elsewhere(holder.id)]);
    [(3, 1), (4, 1), (3, 1)].into_iter().for_each(|(op, attempt)| chunks.publish(2, ORG, said(holder.id, op, attempt)));
    previews.write_previews(ORG, holder.id, vec![THERE]).await.unwrap();
    let (Rows { placed: rows, .. }, served) = read(EventId::default()).await;
    let told: Vec<_> = rows.iter().map(|row| (row.last.to_string(), row.sequence)).collect();
    assert_eq!(told, [("2.1".to_owned(), -1), ("2.3".to_owned(), 4), ("2.4".to_owned(), 3)]);
    assert_eq!(rows[2].unpack(holder.id).unwrap().len(), 2);
    assert!(served && previews.readers(Uuid::nil()).await.unwrap()[0].served);
    assert_eq!(read(rows[1].last).await.0.placed, rows[2..]);

    // An entry supersedes what the agent said itself. What was made before a commit is written with it.
    chunks.publish(2, ORG, said(holder.id, 5, 1));
    let entry = holder.entry("word");
    holder.commit(vec![entry]).await;
    assert_eq!(ops(previews, holder.id).await, [4, 3, 5]);

    // Who says that it still reads keeps what it has.
    rig.pass_after(WATCH_TTL - Duration::from_secs(2)).await;
    previews.watch(ORG, holder.id, THERE, false).await.unwrap();
    rig.pass_after(Duration::from_secs(4)).await;
    assert_eq!(ops(previews, holder.id).await, [4, 3, 5]);
    rig.pass_after(WATCH_TTL).await;
    assert!(previews.readers(Uuid::nil()).await.unwrap().is_empty());
    let gone = previews.read_previews(ORG, holder.id, THERE, &Reach::default()).await.unwrap();
    assert_eq!(gone, (Rows::default(), false));

    // The end of a run takes all it has.
    let mut holder = rig.running().await;
    previews.watch(ORG, holder.id, THERE, true).await.unwrap();
    chunks.set_read([read_elsewhere(holder.id)]);
    chunks.publish(2, ORG, said(holder.id, 3, 1));
    previews.write_previews(ORG, holder.id, vec![THERE]).await.unwrap();
    assert_eq!(ops(previews, holder.id).await, [3]);
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert!(ops(previews, holder.id).await.is_empty());
}

/// Previews of what queues handed out are written whoever holds the run, read once each, and go with their attempt.
pub async fn rows_of_queued_tasks_need_no_holder(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let storage = rig.keeper().clone();
    let Some(previews) = storage.previews() else { return };
    let (chunks, mut holder) = (storage.chunks(), rig.running().await);
    let retry = RetryPolicy { retries: 1, ..RetryPolicy::default() };
    let ops = [0; 2].map(|_| holder.queued(TaskOptions { retry: retry.clone(), ..TaskOptions::default() }));
    holder.suspend(ops.into(), for_tasks()).await;
    assert!(previews.handed_out(ORG, holder.id).await.unwrap().is_empty());
    let claimed = rig.claim_tasks().await;
    let worker = claimed[0].task.worker.unwrap();
    let mut handed_out = previews.handed_out(ORG, holder.id).await.unwrap();
    handed_out.sort();
    assert_eq!(handed_out, [((0, 0), worker), ((0, 1), worker)]);

    previews.watch(ORG, holder.id, THERE, true).await.unwrap();
    chunks.set_read([Read { run: (ORG, holder.id), held: Some(false), anew: true }]);
    let say = |sequence, attempt, seq| {
        let epoch = Chunk::OF_A_QUEUE;
        chunks.publish(2, ORG, Chunk { epoch, seq, ..said(holder.id, sequence, attempt) });
    };
    let read = async |after: &Reach| previews.read_previews(ORG, holder.id, THERE, after).await.unwrap().0.free;
    [(0, 1), (1, 1), (0, 2)].into_iter().for_each(|(op, seq)| say(op, 1, seq));
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    let rows = read(&Reach::default()).await;
    assert_eq!(rows.iter().map(|row| (row.op, row.told)).collect::<Vec<_>>(), [((0, 0), (1, 2)), ((0, 1), (1, 1))]);
    assert_eq!(rows[0].unpack(holder.id).unwrap()[1].1, Chunk { epoch: 0, seq: 2, ..said(holder.id, 0, 1) });
    let known = Reach { tasks: [((0, 0), (1, 2))].into(), ..Reach::default() };
    assert_eq!(read(&known).await, rows[1..]);
    say(0, 1, 3);
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    assert_eq!(read(&known).await.iter().map(|row| row.told).collect::<Vec<_>>(), [(1, 3), (1, 1)]);

    // An attempt that is over, well or not, has nothing to show.
    rig.report(&claimed[0], failed("no")).await.unwrap();
    assert_eq!(read(&Reach::default()).await, rows[1..]);
    rig.report(&claimed[1], done(1)).await.unwrap();
    assert!(read(&Reach::default()).await.is_empty());
    assert!(previews.handed_out(ORG, holder.id).await.unwrap().is_empty());

    // What nobody reads any more goes.
    rig.clock.advance(WATCH_TTL);
    let again = rig.claim_task().await;
    say(again.task.slot.sequence, 2, 1);
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    assert_eq!(read(&Reach::default()).await.len(), 1);
    rig.pass_after(Duration::from_secs(1)).await;
    assert!(read(&Reach::default()).await.is_empty());
}
