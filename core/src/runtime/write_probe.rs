//! Tries, while a store takes no writes, whether it does again: where nobody waits for it, nobody else would find out.

use crate::error::{Kind, Result};
use crate::id::WorkerId;
use crate::storage::{Storage, WorkerInfo};
use std::sync::Weak;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Tries until the backend is gone.
pub(super) async fn keep(storage: Weak<dyn Storage>) {
    let Some(mut lasts) = storage.upgrade().map(|storage| storage.hints().outage().follow()) else { return };
    let nobody = WorkerId::fresh();
    while lasts.wait_for(|lasts| *lasts).await.is_ok() {
        tokio::time::sleep(EVERY).await;
        let Some(open) = storage.upgrade() else { return };
        let outage = open.hints().outage();
        match write(&*open, nobody).await {
            Err(error) if error.kind() == Kind::Unavailable => outage.refused(&error),
            _ => outage.kept(),
        }
    }
}

/// Writes what every backend takes and what leaves nothing behind: a worker that serves nothing comes and goes.
async fn write(storage: &dyn Storage, id: WorkerId) -> Result<()> {
    let (org, name) = (storage.org(), "looks whether the store takes writes".to_owned());
    storage.register_worker(WorkerInfo { org, id, name, queues: Vec::new(), elsewhere: false }).await?;
    storage.unregister_worker(org, id).await
}
