//! Schedules on the wire.

use super::{OfOrg, need, v2};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::OrgId;
use crate::model::{Schedule, ScheduleSpec};

impl From<&ScheduleSpec> for v2::ScheduleSpec {
    fn from(spec: &ScheduleSpec) -> Self {
        Self {
            id: spec.id.clone(),
            kind: spec.kind.clone(),
            queue: spec.queue.clone(),
            input: spec.input.clone(),
            cron: spec.cron.clone(),
            timezone: spec.timezone.clone(),
            metadata: spec.metadata.clone().into_iter().collect(),
            priority: spec.priority,
            concurrency_key: spec.concurrency_key.clone(),
            concurrency_limit: spec.concurrency_limit,
            paused: spec.paused,
        }
    }
}

impl From<v2::ScheduleSpec> for ScheduleSpec {
    fn from(wire: v2::ScheduleSpec) -> Self {
        Self {
            id: wire.id,
            kind: wire.kind,
            queue: wire.queue,
            input: wire.input,
            cron: wire.cron,
            timezone: wire.timezone,
            metadata: wire.metadata.into_iter().collect(),
            priority: wire.priority,
            concurrency_key: wire.concurrency_key,
            concurrency_limit: wire.concurrency_limit,
            paused: wire.paused,
        }
    }
}

impl From<&Schedule> for v2::Schedule {
    fn from(schedule: &Schedule) -> Self {
        Self {
            spec: Some((&schedule.spec).into()),
            next_at: schedule.next_at.map(|at| at.0),
            created_at: schedule.created_at.0,
        }
    }
}

impl OfOrg for v2::Schedule {
    type Model = Schedule;
    fn into_model(self, org: OrgId) -> Result<Schedule> {
        Ok(Schedule {
            org,
            spec: need(self.spec, "schedule.spec")?.into(),
            next_at: self.next_at.map(Timestamp),
            created_at: Timestamp(self.created_at),
        })
    }
}
