//! The events of a run with the previews between them, as the server's own reader sees them.

use super::RemoteStorage;
use crate::error::{Error, Result};
use crate::id::{ExecutionId, OrgId};
use crate::model::EventId;
use crate::storage::{EventStream, FamilyStream};
use crate::wire::{error_of_status, raw, v2};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

const ASKED: &str = "watch a run";

fn request(execution: ExecutionId, after: String, content_up_to: u64) -> v2::WatchRequest {
    v2::WatchRequest { execution: raw(execution.0), after, content_up_to: Some(content_up_to), children: false }
}

impl RemoteStorage {
    pub(super) fn watch(&self, org: OrgId, execution: ExecutionId, after: EventId, content_up_to: u64) -> EventStream {
        let after = if after == EventId::default() { String::new() } else { after.to_string() };
        self.open(org, request(execution, after, content_up_to), TryInto::try_into)
    }

    pub(super) fn watch_family(
        &self,
        org: OrgId,
        execution: ExecutionId,
        after: &str,
        content_up_to: u64,
    ) -> FamilyStream {
        let request = v2::WatchRequest { children: true, ..request(execution, after.into(), content_up_to) };
        self.open(org, request, |wire| match wire.event {
            Some(_) => wire.try_into().map(Some),
            None => Ok(None),
        })
    }

    fn open<T: Send + 'static>(
        &self,
        org: OrgId,
        request: v2::WatchRequest,
        read: fn(v2::WatchEvent) -> Result<T>,
    ) -> BoxStream<'static, Result<T>> {
        let (mut agents, request) = (self.agents(), self.ask(org, request));
        let opened = async move {
            let stream = agents.watch(request).await.map_err(|status| error_of_status(ASKED, &status))?;
            let events = stream.into_inner();
            Ok::<_, Error>(events.map(move |event| read(event.map_err(|status| error_of_status(ASKED, &status))?)))
        };
        futures::stream::once(opened).try_flatten().boxed()
    }
}
