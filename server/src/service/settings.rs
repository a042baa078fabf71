//! What an org sets: its schedules and the limits of its queues. Each change is in the audit before it is made.

use super::Service;
use super::audit::Act;
use super::requester::Requester;
use flovyn_core::error::Result;
use flovyn_core::model::{QueueLimit, Schedule, ScheduleSpec};

impl Service {
    /// Makes a schedule, or replaces the one of its id.
    pub(crate) async fn put_schedule(&self, by: &Requester, spec: ScheduleSpec) -> Result<Schedule> {
        self.audit(by, Act::Schedule, &spec.id).await?;
        self.storage.put_schedule(by.org, spec).await
    }

    /// Removes a schedule; the runs that it started stay.
    pub(crate) async fn delete_schedule(&self, by: &Requester, id: &str) -> Result<()> {
        self.audit(by, Act::Unschedule, id).await?;
        self.storage.delete_schedule(by.org, id).await
    }

    /// Limits a queue, in place of the limit it has; a limit of nothing frees it.
    pub(crate) async fn limit_queue(&self, by: &Requester, queue: &str, limit: QueueLimit) -> Result<()> {
        self.audit(by, Act::Limit, queue).await?;
        self.storage.limit_queue(by.org, queue, limit).await
    }
}
