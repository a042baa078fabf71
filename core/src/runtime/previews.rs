//! Carries the previews of this process's workers into rows, for readers in other processes.

use crate::error::Result;
use crate::id::{ExecutionId, OrgId};
use crate::storage::{Previews, Storage};
use crate::streaming::{Chunks, Made};
use std::collections::BTreeMap;
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
    let (mut look, mut looked, mut readers) = (true, Instant::now(), 0);
    loop {
        let Some(open) = storage.upgrade() else { return };
        let Some(previews) = open.previews() else { return };
        let carried = async {
            if look && (readers > 0 || chunks.has_workers()) {
                looked = Instant::now();
                readers = serve(&chunks, previews).await?;
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
                    true => readers > 0 && looked.elapsed() >= AGAIN,
                    false => return,
                },
                () = sleep(if readers > 0 { AGAIN } else { ANYWAY }) => true,
            };
    }
}

/// Ends when something waits to be written; false where nothing ever will.
async fn waiting(made: &mut watch::Receiver<Made>) -> bool {
    made.wait_for(|made| *made != Made::Nothing).await.is_ok()
}

/// Looks who reads in other processes what is made here, and gives those that came what there is; tells how many there are.
async fn serve(chunks: &Chunks, previews: &dyn Previews) -> Result<usize> {
    let mut readers = previews.readers(chunks.process()).await?;
    readers.retain(|reader| reader.holder.is_some_and(|holder| chunks.is_home(reader.org, holder)));
    chunks.set_read(readers.iter().map(|reader| ((reader.org, reader.execution), !reader.served)));
    let mut came: BTreeMap<(OrgId, ExecutionId), Vec<Uuid>> = BTreeMap::new();
    for reader in readers.iter().filter(|reader| !reader.served) {
        came.entry((reader.org, reader.execution)).or_default().push(reader.process);
    }
    for ((org, execution), processes) in came {
        previews.write_previews(org, execution, processes).await?;
    }
    Ok(readers.len())
}
