//! The events of a run with the previews between them, as the server's own reader sees them.

use super::RemoteStorage;
use crate::id::{ExecutionId, OrgId};
use crate::model::EventId;
use crate::storage::EventStream;
use crate::wire::{error_of_status, raw, v2};
use futures::{StreamExt, TryStreamExt};

const ASKED: &str = "watch a run";

impl RemoteStorage {
    pub(super) fn watch(&self, org: OrgId, execution: ExecutionId, after: EventId, content_up_to: u64) -> EventStream {
        let after = if after == EventId::default() { String::new() } else { after.to_string() };
        let request = v2::WatchRequest { execution: raw(execution.0), after, content_up_to: Some(content_up_to) };
        let (mut agents, request) = (self.agents(), self.ask(org, request));
        let opened = async move {
            let stream = agents.watch(request).await.map_err(|status| error_of_status(ASKED, &status))?;
            Ok(stream.into_inner().map(|event| event.map_err(|status| error_of_status(ASKED, &status))?.try_into()))
        };
        futures::stream::once(opened).try_flatten().boxed()
    }
}
