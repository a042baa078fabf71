//! While a store refuses writes, tries again and again whether it takes them. Without these tries, a process in which
//! nobody writes would never find out that the outage is over.

use crate::error::{Kind, Result};
use crate::id::WorkerId;
use crate::storage::{Storage, WorkerInfo};
use std::sync::Weak;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Goes on until the backend is dropped.
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

/// Registers a worker that serves nothing, and removes it again. Every backend takes that write, and it leaves nothing
/// behind.
async fn write(storage: &dyn Storage, id: WorkerId) -> Result<()> {
    let (org, name) = (storage.org(), "looks whether the store takes writes".to_owned());
    storage.register_worker(WorkerInfo { org, id, name, queues: Vec::new(), elsewhere: false }).await?;
    storage.unregister_worker(org, id).await
}
