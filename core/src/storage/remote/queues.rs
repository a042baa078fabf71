//! Limits of queues, as calls of a server.

use super::RemoteStorage;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::QueueLimit;
use crate::storage::Queues;
use crate::wire::{error_of_status, limit_of_queue, queue_limit, v2};
use async_trait::async_trait;

#[async_trait]
impl Queues for RemoteStorage {
    async fn limit_queue(&self, org: OrgId, queue: &str, limit: QueueLimit) -> Result<()> {
        let answer = self.agents().limit_queue(self.ask(org, queue_limit(queue, &limit))).await;
        answer.map(|_| ()).map_err(|status| error_of_status("limit a queue", &status))
    }

    async fn queue_limits(&self, org: OrgId) -> Result<Vec<(String, QueueLimit)>> {
        let answer = self.agents().list_queue_limits(self.ask(org, v2::Empty {})).await;
        let answer = answer.map_err(|status| error_of_status("list limits of queues", &status))?;
        Ok(answer.into_inner().items.into_iter().map(limit_of_queue).collect())
    }
}
