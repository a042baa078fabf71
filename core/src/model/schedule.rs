//! Schedules: runs that time starts.

use crate::clock::Timestamp;
use crate::id::{ExecutionId, OrgId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What a schedule starts, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// Its name: 1 to 200 characters, unique per org.
    pub id: String,
    /// The agent.
    pub kind: String,
    /// The queue of the runs.
    pub queue: String,
    /// The argument of every run, as JSON of at most 64 KiB.
    pub input: String,
    /// When: minute, hour, day of month, month, day of week; seconds may come first, a year last. Or `@daily` and the like.
    pub cron: String,
    /// The IANA time zone whose clock counts, such as `Europe/Paris`; UTC without one.
    pub timezone: Option<String>,
    /// Metadata of the runs, beside `schedule` and `scheduledAt`.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Priority of the runs.
    #[serde(default)]
    pub priority: i32,
    /// Concurrency key of the runs: with one, a run waits for that of the tick before.
    pub concurrency_key: Option<String>,
    /// How many runs of the key there may be at a time; one without a number.
    #[serde(default)]
    pub concurrency_limit: Option<u32>,
    /// It starts nothing until it is put again without this; its ticks count from then.
    #[serde(default)]
    pub paused: bool,
}

/// A schedule as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Tenant.
    pub org: OrgId,
    /// What it starts, and when.
    pub spec: ScheduleSpec,
    /// The tick that comes next; none when there will be no more.
    pub next_at: Option<Timestamp>,
    /// When it was made, or last replaced.
    pub created_at: Timestamp,
}

impl Schedule {
    /// The run of a tick: the same whoever starts it.
    pub fn run_of(&self, tick: Timestamp) -> ExecutionId {
        let name = format!("schedule\0{}\0{}", self.spec.id, tick.0);
        ExecutionId(Uuid::new_v5(&self.org.0, name.as_bytes()))
    }
}
