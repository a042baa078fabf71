//! Writes the previews of this process's workers as rows, for readers in other processes.
//!
//! Only those of runs that somebody reads elsewhere, whoever holds the run.

use crate::error::Result;
use crate::storage::{Previews, Storage};
use crate::streaming::{Buffered, Chunks, RunKey};
use std::collections::{BTreeMap, HashSet};
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// How long previews wait for more of them, and how often readers are looked for at most.
const COALESCE: Duration = Duration::from_millis(50);
/// How often readers are looked for at least while there are some.
const AGAIN: Duration = Duration::from_secs(10);
/// How often they are looked for at least while there are none, in case a hint was lost.
const ANYWAY: Duration = Duration::from_secs(2);

/// Writes until the backend is gone.
pub(super) async fn write(storage: Weak<dyn Storage>) {
    let Some((chunks, mut elsewhere)) = storage.upgrade().map(|open| (open.chunks(), open.hints().elsewhere())) else {
        return;
    };
    let Some(mut buffered) = chunks.buffered() else { return };
    let (mut look, mut looked, mut readers) = (true, Instant::now(), HashSet::new());
    loop {
        let Some(open) = storage.upgrade() else { return };
        let Some(previews) = open.previews() else { return };
        let written = async {
            if look && (!readers.is_empty() || chunks.has_workers()) {
                looked = Instant::now();
                find_readers(&chunks, previews, &mut readers).await?;
            }
            for (org, execution) in chunks.runs_to_write() {
                previews.write_previews(org, execution, Vec::new()).await?;
            }
            Ok::<_, crate::Error>(())
        };
        let failed = written.await.is_err_and(|error| {
            tracing::debug!(%error, "previews for other processes could not be written");
            true
        });
        drop(open);
        let _ = timeout(COALESCE, buffered.wait_for(|buffered| *buffered == Buffered::Enough)).await;
        look = failed
            || tokio::select! {
                biased;
                () = elsewhere.changed() => true,
                waits = waiting(&mut buffered) => match waits {
                    true => !readers.is_empty() && looked.elapsed() >= AGAIN,
                    false => return,
                },
                () = sleep(if readers.is_empty() { ANYWAY } else { AGAIN }) => true,
            };
    }
}

/// Ends when something waits to be written; false where nothing ever will.
async fn waiting(buffered: &mut watch::Receiver<Buffered>) -> bool {
    buffered.wait_for(|buffered| *buffered != Buffered::Nothing).await.is_ok()
}

/// A process that reads a run.
type Reader = (RunKey, Uuid);

/// Finds out who reads in other processes. Those that wait for what the holder of their run has made get it, where the holder is
/// here.
async fn find_readers(chunks: &Chunks, previews: &dyn Previews, known: &mut HashSet<Reader>) -> Result<()> {
    let readers = previews.readers(chunks.process()).await?;
    let before = std::mem::take(known);
    let mut waiting: BTreeMap<RunKey, Vec<Uuid>> = BTreeMap::new();
    let mut read = Vec::with_capacity(readers.len());
    for reader in readers {
        let run = (reader.org, reader.execution);
        let waits = !reader.served && reader.holder.is_some_and(|holder| chunks.is_local(reader.org, holder));
        if waits {
            waiting.entry(run).or_default().push(reader.process);
        }
        let is_new = !before.contains(&(run, reader.process));
        read.push((run, is_new || waits));
        known.insert((run, reader.process));
    }
    chunks.set_read_elsewhere(read);
    for ((org, execution), processes) in waiting {
        previews.write_previews(org, execution, processes).await?;
    }
    Ok(())
}
