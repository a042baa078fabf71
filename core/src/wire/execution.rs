//! Runs: what they were started with, where they stand, how they wait and are stopped.

use super::{fixed, id, need, of_word, raw, some_duration, some_id, some_micros, some_raw, some_time, v2, word};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{EntryId, ExecutionId, OrgId, WorkerId};
use crate::model::{
    CancelMode, Cancellation, Claim, Ends, Execution, Failure, ForkPoint, Lease, NewExecution, OnParentEnd,
    Persistence, Shared, SharedContext, StartLimits, Status, Usage, UsageTotals, Wait,
};
use crate::payload::Digest;
use bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;

impl From<Lease> for v2::Lease {
    fn from(lease: Lease) -> Self {
        Self { worker: raw(lease.worker.0), epoch: lease.epoch }
    }
}

impl TryFrom<v2::Lease> for Lease {
    type Error = Error;
    fn try_from(wire: v2::Lease) -> Result<Self> {
        Ok(Self { worker: WorkerId(id(&wire.worker, "lease.worker")?), epoch: wire.epoch })
    }
}

impl From<&Failure> for v2::Failure {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.as_str().into(),
            error_type: failure.error_type.clone(),
            message: failure.message.clone(),
            traceback: failure.traceback.clone(),
            kind: failure.kind.clone(),
            task: some_raw(failure.task.map(|task| task.0)),
            attempts: failure.attempts,
        }
    }
}

impl TryFrom<v2::Failure> for Failure {
    type Error = Error;
    fn try_from(wire: v2::Failure) -> Result<Self> {
        let code = crate::error::Code::parse(&wire.code);
        Ok(Self {
            code: code.ok_or_else(|| super::wrong("failure.code", &format!("is {:?}, which is unknown", wire.code)))?,
            error_type: wire.error_type,
            message: wire.message,
            traceback: wire.traceback,
            kind: wire.kind,
            task: some_id(&wire.task, "failure.task")?.map(crate::id::TaskId),
            attempts: wire.attempts,
        })
    }
}

impl From<&Usage> for v2::Usage {
    fn from(usage: &Usage) -> Self {
        Self {
            calls: usage.calls,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            cost_micros: usage.cost_micros,
        }
    }
}

impl From<v2::Usage> for Usage {
    fn from(wire: v2::Usage) -> Self {
        Self {
            calls: wire.calls,
            input_tokens: wire.input_tokens,
            output_tokens: wire.output_tokens,
            cache_read_tokens: wire.cache_read_tokens,
            cache_write_tokens: wire.cache_write_tokens,
            cost_micros: wire.cost_micros,
        }
    }
}

/// Totals by model.
pub(super) fn usage(totals: &UsageTotals) -> HashMap<String, v2::Usage> {
    totals.0.iter().map(|(model, usage)| (model.clone(), usage.into())).collect()
}

/// Totals by model, read back.
pub(super) fn totals(wire: HashMap<String, v2::Usage>) -> UsageTotals {
    UsageTotals(wire.into_iter().map(|(model, usage)| (model, usage.into())).collect())
}

impl From<&StartLimits> for v2::Limits {
    fn from(limits: &StartLimits) -> Self {
        Self {
            max_steps: limits.max_steps,
            max_total_steps: limits.max_total_steps,
            max_tail: limits.max_tail,
            budget: limits.budget.clone(),
            timeout: some_micros(limits.timeout),
            start_timeout: some_micros(limits.start_timeout),
        }
    }
}

impl From<v2::Limits> for StartLimits {
    fn from(wire: v2::Limits) -> Self {
        Self {
            max_steps: wire.max_steps,
            max_total_steps: wire.max_total_steps,
            max_tail: wire.max_tail,
            budget: wire.budget,
            timeout: some_duration(wire.timeout),
            start_timeout: some_duration(wire.start_timeout),
        }
    }
}

impl From<&SharedContext> for v2::SharedContext {
    fn from(shared: &SharedContext) -> Self {
        use v2::shared_context::What;
        let place = |shared: &Shared| v2::SharedPlace {
            thread: shared.thread.clone(),
            leaf: shared.leaf.map(|leaf| raw(leaf.0)),
        };
        let what = match shared {
            SharedContext::ReadOnly(shared) => What::ReadOnly(place(shared)),
            SharedContext::Conversation(shared) => What::Conversation(place(shared)),
            SharedContext::Custom { value } => What::Custom(value.clone()),
        };
        Self { what: Some(what) }
    }
}

impl TryFrom<v2::SharedContext> for SharedContext {
    type Error = Error;

    fn try_from(wire: v2::SharedContext) -> Result<Self> {
        use v2::shared_context::What;
        let place = |wire: v2::SharedPlace| -> Result<Shared> {
            let leaf = wire.leaf.map(|leaf| id(&leaf, "shared_context.leaf").map(EntryId)).transpose()?;
            Ok(Shared { thread: wire.thread, leaf })
        };
        Ok(match need(wire.what, "shared_context")? {
            What::ReadOnly(wire) => Self::ReadOnly(place(wire)?),
            What::Conversation(wire) => Self::Conversation(place(wire)?),
            What::Custom(value) => Self::custom(value)?,
        })
    }
}

impl From<&NewExecution> for v2::NewExecution {
    fn from(new: &NewExecution) -> Self {
        Self {
            id: raw(new.id.0),
            key: new.key.clone(),
            kind: new.kind.clone(),
            queue: new.queue.clone(),
            input: Some((&new.input).into()),
            input_digest: Bytes::copy_from_slice(&new.input_digest.0),
            limits: Some((&new.limits).into()),
            metadata: new.metadata.clone().into_iter().collect(),
            priority: new.priority,
            concurrency_key: new.concurrency_key.clone(),
            concurrency_limit: new.concurrency_limit,
            delay: some_micros(new.delay),
            traceparent: new.traceparent.clone(),
            detached: new.on_parent_end == OnParentEnd::Detach,
            shared_context: new.shared_context.as_ref().map(Into::into),
            persistence: (new.persistence != Persistence::Full).then(|| new.persistence.as_str().into()),
        }
    }
}

impl super::OfOrg for v2::NewExecution {
    type Model = NewExecution;
    fn into_model(self, org: OrgId) -> Result<NewExecution> {
        Ok(NewExecution {
            org,
            id: ExecutionId(id(&self.id, "execution.id")?),
            key: self.key,
            kind: self.kind,
            queue: self.queue,
            input: need(self.input, "execution.input")?.try_into()?,
            input_digest: Digest(fixed(&self.input_digest, "execution.input_digest")?),
            limits: self.limits.unwrap_or_default().into(),
            metadata: self.metadata.into_iter().collect(),
            priority: self.priority,
            concurrency_key: self.concurrency_key,
            concurrency_limit: self.concurrency_limit,
            delay: some_duration(self.delay),
            traceparent: self.traceparent,
            on_parent_end: if self.detached { OnParentEnd::Detach } else { OnParentEnd::Cancel },
            shared_context: self.shared_context.map(TryInto::try_into).transpose()?,
            persistence: self.persistence.as_deref().map(Persistence::parse).transpose()?.unwrap_or_default(),
        })
    }
}

impl From<&Wait> for v2::Wait {
    fn from(wait: &Wait) -> Self {
        Self {
            signals: wait.signals.clone(),
            tasks: wait.tasks,
            timers: wait.timers,
            reason: wait.reason.as_ref().map(word),
            host_timer: wait.host_timer,
            ends: wait
                .ends
                .as_ref()
                .map(|ends| v2::Ends { open: ends.open.iter().cloned().collect(), until: word(&ends.until) }),
            parked: wait.parked,
        }
    }
}

impl TryFrom<v2::Wait> for Wait {
    type Error = Error;
    fn try_from(wire: v2::Wait) -> Result<Self> {
        Ok(Self {
            signals: wire.signals,
            tasks: wire.tasks,
            timers: wire.timers,
            reason: wire.reason.map(|reason| of_word(&reason, "wait.reason")).transpose()?,
            host_timer: wire.host_timer,
            ends: wire.ends.map(TryInto::try_into).transpose()?,
            parked: wire.parked,
        })
    }
}

impl TryFrom<v2::Ends> for Ends {
    type Error = Error;
    fn try_from(wire: v2::Ends) -> Result<Self> {
        Ok(Self { open: wire.open.into_iter().collect(), until: of_word(&wire.until, "wait.ends.until")? })
    }
}

impl From<Cancellation> for v2::Cancellation {
    fn from(cancel: Cancellation) -> Self {
        Self { hard: cancel.mode == CancelMode::Hard, grace: super::micros(cancel.grace) }
    }
}

impl From<v2::Cancellation> for Cancellation {
    fn from(wire: v2::Cancellation) -> Self {
        let mode = if wire.hard { CancelMode::Hard } else { CancelMode::Graceful };
        Self { mode, grace: Duration::from_micros(wire.grace) }
    }
}

impl From<&Execution> for v2::Execution {
    fn from(run: &Execution) -> Self {
        Self {
            new: Some((&run.new).into()),
            status: run.status.as_str().into(),
            wait: run.wait.as_ref().map(Into::into),
            output: run.output.as_ref().map(Into::into),
            failure: run.failure.as_ref().map(Into::into),
            segment: run.segment,
            leaf: some_raw(run.leaf.map(|leaf| leaf.0)),
            code: run.code.clone(),
            epoch: run.epoch,
            worker: some_raw(run.worker.map(|worker| worker.0)),
            lease_expires: run.lease_expires.map(|at| at.0),
            base: run.base,
            cancel: run.cancel.map(|(cancel, _)| cancel.into()),
            cancel_at: run.cancel.map_or(0, |(_, at)| at.0),
            step_count: run.step_count,
            step_limit: run.step_limit,
            tail_limit: run.tail_limit,
            usage: usage(&run.usage),
            parent: some_raw(run.parent.map(|parent| parent.0)),
            root: raw(run.root.0),
            depth: run.depth,
            purse: run.purse.as_ref().map(Into::into),
            handed_to: some_raw(run.handed_to.map(|to| to.0)),
            forked_from: run.forked_from.map(|point| v2::ForkPoint {
                execution: raw(point.execution.0),
                segment: point.segment,
                sequence: point.sequence,
            }),
            losses: run.losses,
            created_at: run.created_at.0,
            updated_at: run.updated_at.0,
            ended_at: run.ended_at.map(|at| at.0),
        }
    }
}

impl super::OfOrg for v2::Execution {
    type Model = Execution;
    fn into_model(self, org: OrgId) -> Result<Execution> {
        let status = Status::parse(&self.status);
        let forked_from = match self.forked_from {
            Some(point) => Some(ForkPoint {
                execution: ExecutionId(id(&point.execution, "forked_from.execution")?),
                segment: point.segment,
                sequence: point.sequence,
            }),
            None => None,
        };
        Ok(Execution {
            new: need(self.new, "execution.new")?.into_model(org)?,
            status: status.ok_or_else(|| super::wrong("status", &format!("is {:?}", self.status)))?,
            wait: self.wait.map(TryInto::try_into).transpose()?,
            output: self.output.map(TryInto::try_into).transpose()?,
            failure: self.failure.map(TryInto::try_into).transpose()?,
            segment: self.segment,
            leaf: some_id(&self.leaf, "execution.leaf")?.map(EntryId),
            code: self.code,
            epoch: self.epoch,
            worker: some_id(&self.worker, "execution.worker")?.map(WorkerId),
            lease_expires: some_time(self.lease_expires),
            base: self.base,
            cancel: self.cancel.map(|cancel| (cancel.into(), Timestamp(self.cancel_at))),
            step_count: self.step_count,
            step_limit: self.step_limit,
            tail_limit: self.tail_limit,
            usage: totals(self.usage),
            parent: some_id(&self.parent, "execution.parent")?.map(ExecutionId),
            root: ExecutionId(id(&self.root, "execution.root")?),
            depth: self.depth,
            purse: self.purse.map(Into::into),
            handed_to: some_id(&self.handed_to, "execution.handed_to")?.map(ExecutionId),
            forked_from,
            losses: self.losses,
            created_at: Timestamp(self.created_at),
            updated_at: Timestamp(self.updated_at),
            ended_at: some_time(self.ended_at),
        })
    }
}

impl From<&Claim> for v2::Claim {
    fn from(claim: &Claim) -> Self {
        Self {
            execution: Some((&claim.execution).into()),
            lease: Some(claim.lease.into()),
            high: claim.high,
            news: claim.news.as_ref().map(|facts| v2::Facts { facts: facts.iter().map(Into::into).collect() }),
        }
    }
}

impl super::OfOrg for v2::Claim {
    type Model = Claim;
    fn into_model(self, org: OrgId) -> Result<Claim> {
        Ok(Claim {
            execution: need(self.execution, "claim.execution")?.into_model(org)?,
            lease: need(self.lease, "claim.lease")?.try_into()?,
            high: self.high,
            news: self.news.map(|news| super::journal::facts(news.facts)).transpose()?,
        })
    }
}
