//! Views of the work and of who does it: schedules, queues, workers, recorded ops.

use super::show::{Moment, Opaque, Word, view};
use crate::clock::Timestamp;
use crate::model::{KnownWorker, Machine, OpKind, QueueLimit, RecordedBody, RecordedOp, TaskStatus, machine_of};
use std::collections::BTreeMap;
use uuid::Uuid;

view! {
    /// A schedule as it stands.
    pub struct Schedule {
        /// Its name.
        pub id: String,
        /// The agent that it starts.
        pub kind: String,
        /// The queue of what it starts.
        pub queue: String,
        /// The argument of what it starts.
        #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
        pub input: Opaque,
        /// When it starts something.
        pub cron: String,
        /// By whose clock; UTC without one.
        pub timezone: Option<String>,
        /// The metadata of what it starts.
        pub metadata: BTreeMap<String, String>,
        /// The priority of what it starts.
        pub priority: i32,
        /// The concurrency key of what it starts.
        pub concurrency_key: Option<String>,
        /// The limit that goes with the key.
        pub concurrency_limit: Option<u32>,
        /// Whether it starts nothing until it is resumed.
        pub paused: bool,
        /// The tick that comes next; null when there will be no more.
        pub next_at: Option<Moment>,
        /// When it was made.
        pub created_at: Moment,
    }
}

view! {
    /// What waits and runs of a kind in a queue.
    pub struct QueueLoad {
        /// The agent or task.
        pub kind: String,
        /// The queue.
        pub queue: String,
        /// How many wait.
        pub queued: u64,
        /// How many run.
        pub running: u64,
        /// Whether a live worker serves it.
        pub served: bool,
    }
}

view! {
    /// A queue with its limit.
    pub struct LimitedQueue {
        /// The queue.
        pub queue: String,
        /// Runs that workers may hold at a time.
        pub concurrency: Option<u32>,
        /// Runs that are handed out in so many `seconds`.
        pub runs: Option<u32>,
        /// The time that `runs` is about.
        pub seconds: Option<f64>,
    }
}

view! {
    /// A worker that the backend knows.
    pub struct Worker {
        /// Its UUID.
        pub id: Uuid,
        /// What it calls itself.
        pub name: String,
        /// The queues it takes from.
        pub queues: Vec<String>,
        /// What it serves.
        pub serves: Vec<Served>,
        /// When it was last heard of.
        pub seen_at: Moment,
        /// Until when it is believed to live.
        pub alive_until: Moment,
    }
}

view! {
    /// A kind in a queue.
    pub struct Served {
        /// The agent or task.
        pub kind: String,
        /// The queue.
        pub queue: String,
    }
}

view! {
    /// The machine that a run is for.
    pub struct RunMachine {
        /// Its name.
        pub name: String,
        /// Whether it may work: it is known, and was not revoked.
        pub live: bool,
        /// Its last sign of life, to ten seconds; null for one that gave none.
        pub seen_at: Option<Moment>,
    }
}

impl RunMachine {
    /// The machine of a run in this queue, with what is known of it; none for any other queue.
    pub fn of(queue: &str, machines: &[Machine], now: Timestamp) -> Option<Self> {
        let name = machine_of(queue)?;
        // Of those of a name the last one counts: the others were revoked before.
        let known = machines.iter().rev().find(|machine| machine.name == name);
        Some(Self {
            name: name.to_owned(),
            live: known.is_some_and(|machine| machine.is_live(now)),
            seen_at: known.and_then(|machine| machine.seen_at).map(Moment),
        })
    }
}

view! {
    /// A recorded op.
    pub struct Op {
        /// Its segment.
        pub segment: u32,
        /// Its place in the segment.
        pub sequence: u32,
        /// How its call finds it again.
        pub label: String,
        /// What is called.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub kind: Word<OpKind>,
        /// The outcomes that were handed over before it.
        #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
        pub seen: Opaque,
        /// Where its task stands.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        pub status: Option<Word<TaskStatus>>,
        /// Its place in a `once`, which is one per run, whatever the segment.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
        pub once: Option<Opaque>,
    }
}

impl Schedule {
    /// What is shown of a schedule.
    pub fn of(schedule: &crate::model::Schedule) -> Self {
        let spec = &schedule.spec;
        Self {
            id: spec.id.clone(),
            kind: spec.kind.clone(),
            queue: spec.queue.clone(),
            input: Opaque::parsed(&spec.input),
            cron: spec.cron.clone(),
            timezone: spec.timezone.clone(),
            metadata: spec.metadata.clone(),
            priority: spec.priority,
            concurrency_key: spec.concurrency_key.clone(),
            concurrency_limit: spec.concurrency_limit,
            paused: spec.paused,
            next_at: schedule.next_at.map(Moment),
            created_at: Moment(schedule.created_at),
        }
    }
}

impl QueueLoad {
    /// What is shown of the load of a queue.
    pub fn of(load: &crate::model::QueueLoad) -> Self {
        Self {
            kind: load.kind.clone(),
            queue: load.queue.clone(),
            queued: load.queued,
            running: load.running,
            served: load.served,
        }
    }
}

impl LimitedQueue {
    /// What is shown of a queue that has a limit.
    pub fn of((queue, limit): &(String, QueueLimit)) -> Self {
        Self {
            queue: queue.clone(),
            concurrency: limit.concurrency,
            runs: limit.rate.map(|rate| rate.runs),
            seconds: limit.rate.map(|rate| rate.per.as_secs_f64()),
        }
    }
}

impl Worker {
    /// What is shown of a worker.
    pub fn of(worker: &KnownWorker) -> Self {
        let serves = worker.serves.iter().map(|(kind, queue)| Served { kind: kind.clone(), queue: queue.clone() });
        Self {
            id: worker.id.0,
            name: worker.name.clone(),
            queues: worker.queues.clone(),
            serves: serves.collect(),
            seen_at: Moment(worker.seen_at),
            alive_until: Moment(worker.alive_until),
        }
    }
}

impl Op {
    /// What is shown of a recorded op.
    pub fn of(op: &RecordedOp) -> Self {
        let status = match &op.body {
            RecordedBody::Task { status, .. } => Some(Word(*status)),
            _ => None,
        };
        Self {
            segment: op.segment,
            sequence: op.sequence,
            label: op.label.to_string(),
            kind: Word(op.label.kind),
            seen: Opaque(serde_json::to_value(&op.seen).unwrap_or_default()),
            status,
            once: op.once.as_ref().map(|once| Opaque(serde_json::to_value(once).unwrap_or_default())),
        }
    }
}
