//! A run that a call advances: its row, its holder's lease, and one batch committed as that holder.

use super::{Adapter, Caller, holder};
use crate::grpc::told;
use flovyn_core::error::{Code, Error, Kind};
use flovyn_core::id::{ExecutionId, OrgId, RequestId, SignalId, Slot};
use flovyn_core::model::{
    Batch, BatchEnd, CommitAnswer, CommitRequest, Consumed, Execution, Label, LabelKey, Lease, NewOp, OpBody, OpKind,
};
use flovyn_core::payload::Digest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tonic::Status;

/// How often a call looks again at a run that others write to.
pub(super) const TRIES: usize = 16;
/// How often one commit is sent whose outcome is unknown.
const SENT: u32 = 5;
/// Runs that are remembered at a time.
const REMEMBERED: usize = 10_000;

/// A run that a worker holds.
pub(super) struct Held {
    pub(super) run: Execution,
    pub(super) lease: Lease,
}

/// What one commit does.
pub(super) struct Step {
    pub(super) ops: Vec<(Label, OpBody)>,
    /// Signals that the first op takes.
    pub(super) consumed: Vec<SignalId>,
    pub(super) end: BatchEnd,
}

impl Step {
    /// One op, and the run goes on.
    pub(super) fn of(kind: OpKind, name: &str, key: &str, body: OpBody) -> Self {
        let label = Label { kind, name: name.into(), key: LabelKey::Key(key.into()) };
        Self { ops: vec![(label, body)], consumed: Vec::new(), end: BatchEnd::Continue }
    }

    /// No op: what follows.
    pub(super) fn end(end: BatchEnd) -> Self {
        Self { ops: Vec::new(), consumed: Vec::new(), end }
    }
}

/// Where the journal of a run stands after a commit: true as long as nobody else has committed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The commit.
    pub(super) base: u64,
    pub(super) epoch: u64,
    pub(super) segment: u32,
    /// The next free slot, where it is known.
    pub(super) next: Option<u32>,
    /// The last event.
    pub(super) known: u64,
}

/// Where journals stand that this process has seen: saves reading them.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<(OrgId, ExecutionId), Place>>);

impl Places {
    pub(super) fn of(&self, run: &Execution) -> Option<Place> {
        self.0.lock().get(&(run.new.org, run.new.id)).copied()
    }

    pub(super) fn set(&self, run: &Execution, place: Place) {
        let mut places = self.0.lock();
        if places.len() >= REMEMBERED {
            places.clear();
        }
        places.insert((run.new.org, run.new.id), place);
    }

    fn forget(&self, run: &Execution) {
        self.0.lock().remove(&(run.new.org, run.new.id));
    }
}

impl Adapter {
    /// A run that a worker holds.
    ///
    /// Errors: `InvalidTransition` where nobody advances it.
    pub(super) async fn held(&self, caller: &Caller, id: &str) -> Result<Held, Status> {
        let run = self.run(caller, id).await?;
        let Some(worker) = holder(&run) else {
            let message = format!("the run {id} is {}: only a worker that has polled it may advance it", run.status);
            return Err(told(Error::new(Code::InvalidTransition, message).with("from", run.status)));
        };
        let lease = Lease { worker, epoch: run.epoch };
        Ok(Held { run, lease })
    }

    /// Commits as the run's holder; nothing where something was written since the look at it.
    pub(super) async fn commit(&self, held: &Held, step: Step) -> Result<Option<CommitAnswer>, Status> {
        let known = self.known(held).await?;
        self.commit_after(held, known, step).await
    }

    /// As [`commit`](Self::commit); it suspends only where no fact has come after an event.
    pub(super) async fn commit_after(
        &self,
        held: &Held,
        known: u64,
        step: Step,
    ) -> Result<Option<CommitAnswer>, Status> {
        let Held { run, lease } = held;
        let next = if step.ops.is_empty() { None } else { Some(self.next(held).await?) };
        let first = next.unwrap_or(0);
        let by = Slot { segment: run.segment, sequence: first };
        let ends_segment = matches!(step.end, BatchEnd::Checkpoint(_));
        let ops: Vec<NewOp> = (first..)
            .zip(step.ops)
            .map(|(sequence, (label, body))| NewOp { sequence, once: None, label, seen: Vec::new(), body })
            .collect();
        let stands = |place: &Place| (place.base, place.segment) == (run.base, run.segment);
        let after = match next {
            Some(next) => Some(next.saturating_add(u32::try_from(ops.len()).unwrap_or(u32::MAX))),
            None => self.places.of(run).filter(stands).and_then(|place| place.next),
        };
        let request = CommitRequest {
            org: run.new.org,
            execution: run.new.id,
            lease: *lease,
            request_id: RequestId::fresh(),
            // A request is sent again only as it is.
            digest: Digest::default(),
            base: run.base,
            known,
            batch: Batch {
                segment: run.segment,
                ops,
                attempts: Vec::new(),
                restarted: Vec::new(),
                read_counts: Vec::new(),
                consumed: step.consumed.into_iter().map(|signal| Consumed { signal, by }).collect(),
                disarmed: Vec::new(),
                orphaned: Vec::new(),
                events: Vec::new(),
                code: None,
                end: step.end,
            },
        };
        match self.send(request).await {
            Ok(answer) => {
                let (segment, next) = if ends_segment { (run.segment + 1, Some(0)) } else { (run.segment, after) };
                let place = Place { base: answer.number, epoch: run.epoch, segment, next, known: answer.high };
                self.places.set(run, place);
                Ok(Some(answer))
            }
            Err(error) if matches!(error.code(), Code::OutOfOrder | Code::SlotTaken | Code::LeaseLost) => {
                self.places.forget(run);
                Ok(None)
            }
            Err(error) => Err(told(error)),
        }
    }

    /// Sends a commit, again and again where its outcome is unknown.
    async fn send(&self, request: CommitRequest) -> Result<CommitAnswer, Error> {
        let mut sent = 1;
        loop {
            match self.storage().commit(request.clone()).await {
                Err(error) if error.kind() == Kind::Unavailable && sent < SENT => {
                    tokio::time::sleep(Duration::from_millis(20 << sent)).await;
                    sent += 1;
                }
                answer => return answer,
            }
        }
    }

    /// An event of the run: nothing after it counts as known to the caller.
    pub(super) async fn known(&self, held: &Held) -> Result<u64, Status> {
        let Held { run, .. } = held;
        let place = self.places.of(run);
        match place.filter(|place| (place.base, place.epoch) == (run.base, run.epoch)) {
            Some(place) => Ok(place.known),
            None => {
                let after = place.map_or(0, |place| place.known);
                Ok(self.storage().facts_after(run.new.org, run.new.id, after).await.map_err(told)?.1)
            }
        }
    }

    /// The next free slot of the run's segment.
    async fn next(&self, held: &Held) -> Result<u32, Status> {
        let run = &held.run;
        let stands = |place: &Place| (place.base, place.segment) == (run.base, run.segment);
        if let Some(next) = self.places.of(run).filter(stands).and_then(|place| place.next) {
            return Ok(next);
        }
        let ops = self.storage().journal(run.new.org, run.new.id, run.segment).await.map_err(told)?;
        let inherited = run.forked_from.filter(|from| from.segment == run.segment).and_then(|from| from.sequence);
        let last = ops.iter().map(|op| op.sequence).chain(inherited).max();
        Ok(last.map_or(0, |last| last.saturating_add(1)))
    }
}

/// The refusal where others write to a run without end.
pub(super) fn crowded(id: &str) -> Status {
    let message = format!("the run {id} was written to by others {TRIES} times in a row; is it polled by two workers?");
    told(Error::new(Code::OutOfOrder, message))
}
