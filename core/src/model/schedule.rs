//! Schedules, which start runs at given times.

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
    /// When to start runs: minute, hour, day of month, month, day of week. Seconds may come first and a year last. Or a
    /// word such as `@daily`.
    pub cron: String,
    /// The IANA time zone of the expression, such as `Europe/Paris`; UTC if absent.
    pub timezone: Option<String>,
    /// Metadata of the runs, beside `schedule` and `scheduledAt`.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Priority of the runs.
    #[serde(default)]
    pub priority: i32,
    /// Concurrency key of the runs. With one, a run waits until the run of the tick before has ended.
    pub concurrency_key: Option<String>,
    /// How many runs of the key may be RUNNING at a time; 1 if absent.
    #[serde(default)]
    pub concurrency_limit: Option<u32>,
    /// Whether it is paused. It starts nothing until it is put again without this; ticks that were missed are not made
    /// up for.
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
    /// The next tick; none when there are no more.
    pub next_at: Option<Timestamp>,
    /// When it was made or last replaced.
    pub created_at: Timestamp,
}

impl Schedule {
    /// The id of the run of a tick. It is made from the schedule and the tick, so that two processes that start the run
    /// of one tick start the same run.
    pub fn run_of(&self, tick: Timestamp) -> ExecutionId {
        let name = format!("schedule\0{}\0{}", self.spec.id, tick.0);
        ExecutionId(Uuid::new_v5(&self.org.0, name.as_bytes()))
    }
}
