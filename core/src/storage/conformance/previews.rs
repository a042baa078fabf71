//! Rows of previews: written for readers of other processes alone, taken away by what supersedes them and with their readers.

use super::Factory;
use super::rig::{ORG, Rig, done, failed, for_tasks, json};
use crate::id::ExecutionId;
use crate::model::{BatchEnd, Chunk, ChunkKind, RetryPolicy, TaskOptions};
use crate::storage::Previews;
use crate::storage::previews::Reader;
use crate::streaming::{PreviewRow, Progress, ProgressBySource, Source, WATCH_TTL};
use std::time::Duration;
use uuid::Uuid;

const THERE: Uuid = Uuid::from_u128(7);

fn said(execution: ExecutionId, sequence: u32, attempt: u32) -> Chunk {
    let (segment, epoch, seq, kind) = (0, 1, 1, ChunkKind::Token);
    Chunk { execution, segment, sequence, epoch, attempt, seq, kind, data: "word ".into() }
}

/// What has rows of a run, as their reader sees it.
async fn sources(previews: &dyn Previews, id: ExecutionId) -> Vec<Source> {
    let (rows, served) = previews.read_previews(ORG, id, THERE, &ProgressBySource::default()).await.unwrap();
    assert!(served);
    rows.iter().map(|row| row.source).collect()
}

fn task(sequence: u32) -> Source {
    Source::Task((0, sequence))
}

/// A reader makes itself known, gets what there is, and loses what is superseded and, once it is gone, everything.
pub async fn rows_go_with_what_they_announce_and_with_their_readers(factory: &dyn Factory) {
    let rig = Rig::new(factory).await;
    let storage = rig.keeper().clone();
    let Some(previews) = storage.previews() else { return };
    let (chunks, mut holder) = (storage.chunks(), rig.running().await);
    previews.watch(ORG, holder.id, THERE, true).await.unwrap();
    let reader =
        Reader { org: ORG, execution: holder.id, process: THERE, served: false, holder: Some(holder.lease.worker) };
    assert_eq!(previews.readers(Uuid::nil()).await.unwrap(), [reader]);
    assert!(previews.readers(THERE).await.unwrap().is_empty(), "a process is not told of itself");

    chunks.publish(2, ORG, said(holder.id, 0, 0));
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    let read = async |known: &ProgressBySource| previews.read_previews(ORG, holder.id, THERE, known).await.unwrap();
    let nothing = ProgressBySource::default();
    assert_eq!(read(&nothing).await, (Vec::new(), false), "nobody said that it is read elsewhere");
    chunks.set_read_elsewhere([((ORG, holder.id), true)]);
    for (op, seq) in [(3, 1), (4, 1), (3, 2)] {
        chunks.publish(2, ORG, Chunk { seq, ..said(holder.id, op, 1) });
    }
    previews.write_previews(ORG, holder.id, vec![THERE]).await.unwrap();
    let (rows, served) = read(&nothing).await;
    let told: Vec<_> = rows.iter().map(|row| (row.source, row.last.seq)).collect();
    assert_eq!(told, [(Source::Agent, 1), (task(3), 2), (task(4), 1)]);
    let made = PreviewRow::unpack((ORG, holder.id), &rows).unwrap();
    let made: Vec<_> = made.iter().map(|preview| (preview.after, Source::of(&preview.chunk))).collect();
    assert_eq!(made, [(2, Source::Agent), (2, task(3)), (2, task(4)), (2, task(3))]);
    assert!(served && previews.readers(Uuid::nil()).await.unwrap()[0].served);
    let known = rows[..2].iter().map(|row| (row.source, row.last)).collect();
    assert_eq!(read(&known).await.0, rows[2..]);
    // Of a later claim everything is new.
    let known = [(task(3), Progress { epoch: 0, attempt: 9, seq: 9 }), (task(4), rows[2].last)].into();
    assert_eq!(read(&known).await.0, rows[..2]);

    // An entry supersedes what the agent said itself. What was made before a commit is written with it.
    chunks.publish(2, ORG, said(holder.id, 5, 1));
    let entry = holder.entry("word");
    holder.commit(vec![entry]).await;
    assert_eq!(sources(previews, holder.id).await, [3, 4, 5].map(task));

    // Who says that it still reads keeps what it has.
    rig.pass_after(WATCH_TTL - Duration::from_secs(2)).await;
    previews.watch(ORG, holder.id, THERE, false).await.unwrap();
    rig.pass_after(Duration::from_secs(4)).await;
    assert_eq!(sources(previews, holder.id).await, [3, 4, 5].map(task));
    rig.pass_after(WATCH_TTL).await;
    assert!(previews.readers(Uuid::nil()).await.unwrap().is_empty());
    let gone = previews.read_previews(ORG, holder.id, THERE, &nothing).await.unwrap();
    assert_eq!(gone, (Vec::new(), false));

    // The end of a run takes all it has.
    let mut holder = rig.running().await;
    previews.watch(ORG, holder.id, THERE, true).await.unwrap();
    chunks.set_read_elsewhere([((ORG, holder.id), true)]);
    chunks.publish(2, ORG, said(holder.id, 3, 1));
    previews.write_previews(ORG, holder.id, vec![THERE]).await.unwrap();
    assert_eq!(sources(previews, holder.id).await, [task(3)]);
    holder.end(vec![], BatchEnd::Complete(json(&1))).await;
    assert!(sources(previews, holder.id).await.is_empty());
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
    chunks.set_read_elsewhere([((ORG, holder.id), true)]);
    let say = |sequence, attempt, seq| {
        let epoch = Chunk::OF_A_QUEUE;
        chunks.publish(2, ORG, Chunk { epoch, seq, ..said(holder.id, sequence, attempt) });
    };
    let read = async |known: &ProgressBySource| previews.read_previews(ORG, holder.id, THERE, known).await.unwrap().0;
    [(0, 1), (1, 1), (0, 2)].into_iter().for_each(|(op, seq)| say(op, 1, seq));
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    let nothing = ProgressBySource::default();
    let rows = read(&nothing).await;
    assert_eq!(rows.iter().map(|row| (row.source, row.last.seq)).collect::<Vec<_>>(), [(task(0), 2), (task(1), 1)]);
    let second = Chunk { epoch: Chunk::OF_A_QUEUE, seq: 2, ..said(holder.id, 0, 1) };
    assert_eq!(*PreviewRow::unpack((ORG, holder.id), &rows[..1]).unwrap()[1].chunk, second);
    let known = [(task(0), rows[0].last)].into();
    assert_eq!(read(&known).await, rows[1..]);
    say(0, 1, 3);
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    assert_eq!(read(&known).await.iter().map(|row| row.last.seq).collect::<Vec<_>>(), [3, 1]);

    // An attempt that is over, well or not, has nothing to show.
    rig.report(&claimed[0], failed("no")).await.unwrap();
    assert_eq!(read(&nothing).await, rows[1..]);
    rig.report(&claimed[1], done(1)).await.unwrap();
    assert!(read(&nothing).await.is_empty());
    assert!(previews.handed_out(ORG, holder.id).await.unwrap().is_empty());

    // What nobody reads any more goes.
    rig.clock.advance(WATCH_TTL);
    let again = rig.claim_task().await;
    say(again.task.slot.sequence, 2, 1);
    previews.write_previews(ORG, holder.id, Vec::new()).await.unwrap();
    assert_eq!(read(&nothing).await.len(), 1);
    rig.pass_after(Duration::from_secs(1)).await;
    assert!(read(&nothing).await.is_empty());
}
