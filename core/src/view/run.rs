//! The view of a run, with what it waits for, why it failed, and what it has cost.

use super::show::{Moment, Word, view};
use crate::model::{CancelMode, Execution, Persistence, Status, UsageTotals, Wait, WaitReason};
use std::collections::BTreeMap;
use uuid::Uuid;

view! {
    /// A run, without its input and output.
    #[cfg_attr(feature = "openapi", schema(as = RunView))]
    pub struct Run {
        /// Its UUID.
        pub id: Uuid,
        /// The id it was started with, where that is no UUID.
        pub key: Option<String>,
        /// The agent.
        pub kind: String,
        /// The queue it is in.
        pub queue: String,
        /// PENDING, RUNNING, WAITING, PAUSED, CANCELLING, COMPLETED, FAILED or CANCELLED.
        #[cfg_attr(feature = "openapi", schema(value_type = String, example = "WAITING"))]
        pub status: Word<Status>,
        /// Why it does not advance: `signal`, `task`, `child`, `timer`, `in_doubt`, `step_limit`, `tail_limit`, `budget`,
        /// `divergence`, `quarantined` or `error`.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        pub wait_reason: Option<Word<WaitReason>>,
        /// The signals it waits for that somebody has to send.
        pub waits_for: Vec<String>,
        /// All it waits for.
        pub waits: Option<Waits>,
        /// Why it failed or is paused.
        pub failure: Option<Failure>,
        /// For filters.
        pub metadata: BTreeMap<String, String>,
        /// Higher is claimed first.
        pub priority: i32,
        /// The last checkpoint; 0 before the first.
        pub segment: u32,
        /// The entry where the conversation stands.
        pub leaf: Option<Uuid>,
        /// The version of the code that ran it last, as that code says it.
        pub code: Option<String>,
        /// Grows with every claim.
        pub epoch: u64,
        /// The worker that holds it.
        pub worker: Option<Uuid>,
        /// Until when that worker holds it, if it says nothing more.
        pub lease_expires: Option<Moment>,
        /// Whether it was asked to stop.
        pub cancel_requested: bool,
        /// How it is to stop.
        pub cancel: Option<Stop>,
        /// Steps it has made.
        pub step_count: u32,
        /// Steps after which it pauses.
        pub step_limit: Option<u32>,
        /// Recorded calls since the last checkpoint after which it pauses.
        pub tail_limit: u32,
        /// What its model calls have cost, by model.
        pub usage: BTreeMap<String, Usage>,
        /// The run that started it.
        pub parent: Option<Uuid>,
        /// The first run of its family; itself where no run started it.
        pub root: Uuid,
        /// How many runs are above it.
        pub depth: u32,
        /// The run that it has given its work to.
        pub handed_to: Option<Uuid>,
        /// Whether its journal is kept: `full`, or `minimal` or `ephemeral` while the store has nothing of it but its end, its
        /// usage and its signals.
        #[cfg_attr(feature = "openapi", schema(value_type = String, example = "full"))]
        pub persistence: Word<Persistence>,
        /// Where it was forked from.
        pub forked_from: Option<Fork>,
        /// When it was started.
        pub created_at: Moment,
        /// When anything of it last changed.
        pub updated_at: Moment,
        /// When it ended.
        pub ended_at: Option<Moment>,
    }
}

view! {
    /// What a run and all below it come to, shown beside a run that is looked at by itself or as one of a family.
    pub struct RollUp {
        /// What its model calls and those of all runs below it have cost, all models together.
        pub total_usage: Usage,
        /// The runs that it has started itself.
        pub child_count: u64,
        /// All runs below it.
        pub descendant_count: u64,
    }
}

view! {
    /// What would make a waiting run go on: any of these.
    pub struct Waits {
        /// Signals by name.
        pub signals: Vec<String>,
        /// Whether the end of a task does.
        pub tasks: bool,
        /// Whether the passing of time does.
        pub timers: bool,
    }
}

view! {
    /// How a run is to stop.
    pub struct Stop {
        /// `graceful` or `hard`.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        pub mode: Word<CancelMode>,
        /// Until when it may tidy up.
        pub grace_ends_at: Moment,
    }
}

view! {
    /// Where a run was forked from.
    pub struct Fork {
        /// The run whose past it shares.
        pub execution: Uuid,
        /// The same, by an older name.
        pub id: Uuid,
        /// The segment of that run.
        pub segment: u32,
        /// The last call of the segment that is shared; null for a fork at a checkpoint.
        pub sequence: Option<u32>,
    }
}

view! {
    /// Why a run or a task failed.
    pub struct Failure {
        /// The error's code.
        pub code: String,
        /// The class of the original error.
        pub error_type: String,
        /// The same, by an older name.
        pub r#type: String,
        /// What it says.
        pub message: String,
        /// Where it was raised.
        pub traceback: Option<String>,
        /// The kind of the task that failed.
        pub kind: Option<String>,
        /// The task that failed.
        pub task: Option<Uuid>,
        /// The attempts of it that failed.
        pub attempts: u32,
    }
}

view! {
    /// Calls of one model and what they cost; kinds of tokens are disjoint.
    #[cfg_attr(feature = "openapi", schema(as = ModelUsage))]
    pub struct Usage {
        /// Calls.
        pub calls: u64,
        /// Fresh tokens of prompts.
        pub input_tokens: u64,
        /// Tokens of answers.
        pub output_tokens: u64,
        /// Tokens of prompts that the provider had cached.
        pub cache_read_tokens: u64,
        /// Tokens of prompts that the provider was to cache.
        pub cache_write_tokens: u64,
        /// Millionths of a US dollar; null where a price is not known.
        pub cost_micros: Option<u64>,
    }
}

impl Run {
    /// What is shown of a run.
    pub fn of(run: &Execution) -> Self {
        Self {
            id: run.new.id.0,
            key: run.new.key.clone(),
            kind: run.new.kind.clone(),
            queue: run.new.queue.clone(),
            status: Word(run.status),
            wait_reason: run.wait.as_ref().and_then(|wait| wait.reason).map(Word),
            waits_for: run.wait.iter().flat_map(Wait::from_outside).map(str::to_owned).collect(),
            waits: run.wait.as_ref().map(|wait| Waits {
                signals: wait.signals.clone(),
                tasks: wait.tasks,
                timers: wait.timers,
            }),
            failure: run.failure.as_ref().map(Failure::of),
            metadata: run.new.metadata.clone(),
            priority: run.new.priority,
            segment: run.segment,
            leaf: run.leaf.map(|leaf| leaf.0),
            code: run.code.clone(),
            epoch: run.epoch,
            worker: run.worker.map(|worker| worker.0),
            lease_expires: run.lease_expires.map(Moment),
            cancel_requested: run.cancel.is_some(),
            cancel: run.cancel.map(|(cancel, ends)| Stop { mode: Word(cancel.mode), grace_ends_at: Moment(ends) }),
            step_count: run.step_count,
            step_limit: run.step_limit,
            tail_limit: run.tail_limit,
            usage: Usage::by_model(&run.usage),
            parent: run.parent.map(|parent| parent.0),
            root: run.root.0,
            depth: run.depth,
            handed_to: run.handed_to.map(|to| to.0),
            persistence: Word(run.new.persistence),
            forked_from: run.forked_from.map(|from| Fork {
                execution: from.execution.0,
                id: from.execution.0,
                segment: from.segment,
                sequence: from.sequence,
            }),
            created_at: Moment(run.created_at),
            updated_at: Moment(run.updated_at),
            ended_at: run.ended_at.map(Moment),
        }
    }
}

impl RollUp {
    /// What is shown of it.
    pub fn of(sum: &crate::model::RollUp) -> Self {
        let mut total = crate::model::Usage::default();
        sum.usage.0.values().for_each(|usage| total.add(usage));
        let (child_count, descendant_count) = (sum.children, sum.descendants);
        Self { total_usage: Usage::of(&total), child_count, descendant_count }
    }
}

impl Failure {
    /// What is shown of a failure.
    pub fn of(failure: &crate::model::Failure) -> Self {
        Self {
            code: failure.code.as_str().into(),
            error_type: failure.error_type.clone(),
            r#type: failure.error_type.clone(),
            message: failure.message.clone(),
            traceback: failure.traceback.clone(),
            kind: failure.kind.clone(),
            task: failure.task.map(|task| task.0),
            attempts: failure.attempts,
        }
    }
}

impl Usage {
    /// What is shown of the usage of one model.
    pub fn of(usage: &crate::model::Usage) -> Self {
        Self {
            calls: usage.calls,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            cost_micros: usage.cost_micros,
        }
    }

    /// The same of each model.
    pub fn by_model(totals: &UsageTotals) -> BTreeMap<String, Self> {
        totals.0.iter().map(|(model, usage)| (model.clone(), Self::of(usage))).collect()
    }
}
