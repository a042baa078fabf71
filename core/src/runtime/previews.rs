//! Carries the previews of this process's workers into rows, for readers in other processes.
//!
//! Only those of runs that somebody reads elsewhere; whose worker holds the run does not matter.

use crate::error::Result;
use crate::storage::{Previews, Storage};
use crate::streaming::{Chunks, Made, Read, RunKey};
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

/// Carries until the backend is gone.
pub(super) async fn carry(storage: Weak<dyn Storage>) {
    let Some((chunks, mut elsewhere)) = storage.upgrade().map(|open| (open.chunks(), open.hints().elsewhere())) else {
        return;
    };
    let Some(mut made) = chunks.made() else { return };
    let (mut look, mut looked, mut readers) = (true, Instant::now(), HashSet::new());
    loop {
        let Some(open) = storage.upgrade() else { return };
        let Some(previews) = open.previews() else { return };
        let carried = async {
            if look && (!readers.is_empty() || chunks.has_workers()) {
                looked = Instant::now();
                serve(&chunks, previews, &mut readers).await?;
            }
            for (org, execution) in chunks.waiting() {
                previews.write_previews(org, execution, Vec::new()).await?;
            }
            Ok::<_, crate::Error>(())
        };
        let failed = carried.await.is_err_and(|error| {
            tracing::debug!(%error, "previews for other processes could not be written");
            true
        });
        drop(open);
        let _ = timeout(COALESCE, made.wait_for(|made| *made == Made::Enough)).await;
        look = failed
            || tokio::select! {
                biased;
                () = elsewhere.changed() => true,
                waits = waiting(&mut made) => match waits {
                    true => chunks.has_doubt() || !readers.is_empty() && looked.elapsed() >= AGAIN,
                    false => return,
                },
                () = sleep(if readers.is_empty() { ANYWAY } else { AGAIN }) => true,
            };
    }
}

/// Ends when something waits to be written; false where nothing ever will.
async fn waiting(made: &mut watch::Receiver<Made>) -> bool {
    made.wait_for(|made| *made != Made::Nothing).await.is_ok()
}

/// Who reads a run in another process.
type Known = (RunKey, Uuid);

/// Looks who reads in other processes, and gives those that came what was made here of runs that are held here. What they
/// read of others is written as it is made: a queue may hand out their tasks here.
async fn serve(chunks: &Chunks, previews: &dyn Previews, known: &mut HashSet<Known>) -> Result<()> {
    let readers = previews.readers(chunks.process()).await?;
    let before = std::mem::take(known);
    let mut came: BTreeMap<RunKey, Vec<Uuid>> = BTreeMap::new();
    let mut read = Vec::with_capacity(readers.len());
    for reader in readers {
        let run = (reader.org, reader.execution);
        let held = reader.holder.map(|holder| chunks.is_home(reader.org, holder));
        let is_home = held == Some(true);
        if is_home && !reader.served {
            came.entry(run).or_default().push(reader.process);
        }
        let is_new = !before.contains(&(run, reader.process));
        read.push(Read { run, held, anew: is_new || is_home && !reader.served });
        known.insert((run, reader.process));
    }
    chunks.set_read(read);
    for ((org, execution), processes) in came {
        previews.write_previews(org, execution, processes).await?;
    }
    Ok(())
}
