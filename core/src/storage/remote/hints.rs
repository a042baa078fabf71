//! Follows the server's stream of hints, and gives them on to this process.

use super::Caller;
use crate::id::{ExecutionId, OrgId};
use crate::streaming::{Change, Hints};
use crate::wire::raw;
use crate::wire::v2::{Hint, HintsRequest};
use futures::StreamExt;
use std::time::Duration;
use uuid::Uuid;

/// The first pause before the stream is opened again. It is doubled each time, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Follows the server's hints for as long as the storage is open.
pub(super) async fn follow(caller: Caller, own: OrgId, hints: Hints, link: Uuid) {
    let mut pause = FIRST;
    loop {
        if let Ok(stream) = caller.worker().hints(caller.ask(None, HintsRequest { link: raw(link) })).await {
            pause = FIRST;
            // Anything may have changed while the stream was closed. The server may have taken our workers for dead and
            // cut their leases, so they send a heartbeat at once.
            hints.everything_changed();
            hints.leases_at_risk();
            let mut stream = stream.into_inner();
            while let Some(Ok(hint)) = stream.next().await {
                announce(&hints, own, &hint);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

fn announce(hints: &Hints, own: OrgId, hint: &Hint) {
    if hint.everything {
        return hints.everything_changed();
    }
    if hint.agents {
        hints.agents_ready();
    }
    if hint.tasks {
        hints.tasks_ready();
    }
    if hint.timers {
        hints.timers_changed();
    }
    if let Ok(execution) = Uuid::from_slice(&hint.execution) {
        let org = Uuid::from_slice(&hint.org).map_or(own, OrgId);
        let (execution, high) = (ExecutionId(execution), hint.high);
        hints.changed(Change { org, execution, high, ended: hint.ended, here: true });
    }
}
