//! What the cases stand on: a subject on a driven clock, and a worker that holds a run and commits batches to it.
//!
//! Ids are counted, not drawn, so that a failing case fails alike every time.

use super::{Factory, Subject};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::error::{Code, Result};
use crate::id::{EntryId, ExecutionId, OnceSlot, OpId, OrgId, RequestId, SignalId, Slot, TaskId, WorkerId};
use crate::model::{
    AttemptReport, AttemptResult, Batch, BatchEnd, Claim, ClaimedTask, CommitAnswer, CommitRequest, Event, EventKind,
    Execution, Failure, Label, LabelKey, Lease, MessageBody, NewCheckpoint, NewEntry, NewExecution, NewMessage, NewOp,
    NewSignal, NewTask, OpBody, OpKind, PageRequest, Placement, Segment, Signal, SignalStored, Status, Task,
    TaskOptions, TaskReport, Wait, WaitReason,
};
use crate::payload::{Digest, Payload};
use crate::storage::{ClaimRequest, Only, Storage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// The tenant of the cases.
pub const ORG: OrgId = OrgId::DEFAULT;
/// How long leases hold.
pub const TTL: Duration = Duration::from_secs(30);
/// The agent of the cases.
pub const AGENT: &str = "agent";
/// The task of the cases.
pub const TASK: &str = "work";

/// One subject under test with its clock.
pub struct Rig {
    /// The backend.
    pub storage: Arc<dyn Storage>,
    /// Its clock.
    pub clock: ManualClock,
    subject: Subject,
    ids: AtomicU64,
}

impl Rig {
    /// A fresh subject.
    pub async fn new(factory: &dyn Factory) -> Self {
        let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
        let subject = factory.open(clock.clone()).await;
        Self { storage: subject.storage.clone(), clock, subject, ids: AtomicU64::new(1) }
    }

    /// Damages a checkpoint, where the subject can be made to.
    pub fn corrupt(&self, id: ExecutionId, sequence: u32) -> bool {
        self.subject.corrupt.as_ref().is_some_and(|corrupt| corrupt(ORG, id, sequence))
    }

    /// The next id.
    pub fn uuid(&self) -> Uuid {
        let n = u128::from(self.ids.fetch_add(1, Ordering::Relaxed));
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n)
    }

    /// A worker.
    pub fn worker(&self) -> WorkerId {
        WorkerId(self.uuid())
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A run to be started.
    pub fn new_run(&self) -> NewExecution {
        NewExecution::new(ExecutionId(self.uuid()), AGENT, json(&"input")).expect("JSON has a digest")
    }

    /// Starts a run.
    pub async fn start(&self) -> ExecutionId {
        self.start_as(|_| {}).await
    }

    /// Starts a run of a certain kind.
    pub async fn start_as(&self, change: impl FnOnce(&mut NewExecution)) -> ExecutionId {
        let mut new = self.new_run();
        change(&mut new);
        let created = self.storage.create_execution(new).await.expect("a run starts");
        assert!(!created.existing);
        created.execution.new.id
    }

    /// A request for work of the default queue.
    pub fn asking(&self, worker: WorkerId, kind: &str) -> ClaimRequest {
        ClaimRequest {
            org: ORG,
            worker,
            queue: "default".into(),
            kinds: [kind.to_owned()].into(),
            limit: 10,
            ttl: TTL,
            only: None,
        }
    }

    /// Claims a run as a new worker, if it can be claimed.
    pub async fn try_claim(&self, id: ExecutionId) -> Option<Claim> {
        let request = ClaimRequest { only: Some(Only::Run(id)), ..self.asking(self.worker(), AGENT) };
        let mut claims = self.storage.claim_agents(request).await.expect("a claim is answered");
        assert!(claims.len() <= 1);
        claims.pop()
    }

    /// Claims a run as a new worker.
    pub async fn claim(&self, id: ExecutionId) -> Holder<'_> {
        let claim = self.try_claim(id).await.expect("the run can be claimed");
        Holder::of(self, &claim)
    }

    /// Starts and claims a run.
    pub async fn running(&self) -> Holder<'_> {
        let id = self.start().await;
        self.claim(id).await
    }

    /// Starts and claims a run as a worker.
    pub async fn running_as(&self, worker: WorkerId) -> Holder<'_> {
        let request = ClaimRequest { only: Some(Only::Run(self.start().await)), ..self.asking(worker, AGENT) };
        let claims = self.storage.claim_agents(request).await.expect("a claim is answered");
        Holder::of(self, &claims[0])
    }

    /// Claims visible tasks as a new worker.
    pub async fn claim_tasks(&self) -> Vec<ClaimedTask> {
        self.claim_tasks_as(self.worker()).await
    }

    /// Claims visible tasks.
    pub async fn claim_tasks_as(&self, worker: WorkerId) -> Vec<ClaimedTask> {
        self.storage.claim_tasks(self.asking(worker, TASK)).await.expect("a claim is answered")
    }

    /// Claims the one visible task.
    pub async fn claim_task(&self) -> ClaimedTask {
        let mut tasks = self.claim_tasks().await;
        assert_eq!(tasks.len(), 1, "one task is visible");
        tasks.remove(0)
    }

    /// Reports the end of a claimed attempt.
    pub async fn report(&self, claimed: &ClaimedTask, result: AttemptResult) -> Result<()> {
        let task = &claimed.task;
        let worker = task.worker.unwrap_or_default();
        let report = TaskReport { org: ORG, task: task.new.id, attempt: task.attempt, worker, result };
        self.storage.report_task(report).await
    }

    /// A run as it is now.
    pub async fn execution(&self, id: ExecutionId) -> Execution {
        self.storage.execution(ORG, id).await.expect("the run is there")
    }

    /// A run's status.
    pub async fn status(&self, id: ExecutionId) -> Status {
        self.execution(id).await.status
    }

    /// A task as it is now.
    pub async fn task(&self, execution: ExecutionId, id: TaskId) -> Task {
        self.storage.task(ORG, execution, id).await.expect("the task is there")
    }

    /// All events of a run.
    pub async fn events(&self, id: ExecutionId) -> Vec<Event> {
        self.storage.events(ORG, id, 0, usize::MAX >> 1).await.expect("events are read")
    }

    /// The kinds of a run's events after a number.
    pub async fn kinds_after(&self, id: ExecutionId, after: u64) -> Vec<EventKind> {
        let events = self.storage.events(ORG, id, after, 10_000).await.expect("events are read");
        events.into_iter().map(|event| event.kind).collect()
    }

    /// The number of the last event.
    pub async fn high(&self, id: ExecutionId) -> u64 {
        self.events(id).await.last().map_or(0, |event| event.number)
    }

    /// The mailbox of a run.
    pub async fn mailbox(&self, id: ExecutionId) -> Vec<Signal> {
        self.storage.signals(ORG, id, PageRequest::default()).await.expect("signals are read").items
    }

    /// A signal to be sent.
    pub fn new_signal(&self, execution: ExecutionId, name: &str) -> NewSignal {
        NewSignal {
            org: ORG,
            execution,
            id: SignalId(self.uuid()),
            name: name.into(),
            payload: json(&name),
            delivery: crate::model::Delivery::NextStep,
            idempotency_key: None,
        }
    }

    /// Sends a signal.
    pub async fn signal(&self, execution: ExecutionId, name: &str) -> SignalStored {
        self.storage.store_signal(self.new_signal(execution, name)).await.expect("the signal is stored")
    }

    /// Lets time pass and does what is due.
    pub async fn pass_after(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        self.pass().await
    }

    /// Does what is due.
    pub async fn pass(&self) -> Option<Timestamp> {
        self.keeper().pass().await.expect("a pass succeeds")
    }

    /// Who keeps house.
    pub fn keeper(&self) -> &Arc<dyn Storage> {
        self.subject.keeper.as_ref().unwrap_or(&self.storage)
    }
}

/// A worker that holds a run: what a session does, without an agent.
pub struct Holder<'a> {
    /// Where.
    pub rig: &'a Rig,
    /// The run.
    pub id: ExecutionId,
    /// The right.
    pub lease: Lease,
    /// The last commit's number.
    pub base: u64,
    /// The highest number told.
    pub known: u64,
    /// The current segment.
    pub segment: u32,
    /// The next free slot.
    pub next: u32,
    /// Where the main thread stands.
    pub leaf: Option<EntryId>,
}

impl<'a> Holder<'a> {
    /// The holder of a claimed run.
    pub fn of(rig: &'a Rig, claim: &Claim) -> Self {
        let run = &claim.execution;
        let (id, segment) = (run.new.id, run.segment);
        Self { rig, id, lease: claim.lease, base: run.base, known: claim.high, segment, next: 100, leaf: run.leaf }
            .with_next(run)
    }

    fn with_next(mut self, run: &Execution) -> Self {
        // Above anything the cases wrote under earlier claims of the same segment.
        self.next = u32::try_from(run.epoch.saturating_sub(1) * 100).expect("cases claim rarely");
        self
    }

    /// Loads the segment.
    pub async fn load(&self) -> Segment {
        self.rig.storage.load_segment(ORG, self.id, self.lease).await.expect("the segment loads")
    }

    /// The slot of a number in the current segment.
    pub fn slot(&self, sequence: u32) -> Slot {
        Slot { segment: self.segment, sequence }
    }

    /// The id of what an op creates.
    pub fn op_id(&self, sequence: u32) -> OpId {
        OpId { execution: self.id, slot: self.slot(sequence), once: None }
    }

    /// The task of an op.
    pub fn task_id(&self, sequence: u32) -> TaskId {
        TaskId(self.op_id(sequence).uuid())
    }

    fn op(&mut self, kind: OpKind, name: &str, body: OpBody) -> NewOp {
        let sequence = self.next;
        self.next += 1;
        let key = LabelKey::Digest(Digest::of_parts(&[name.as_bytes(), &sequence.to_le_bytes()]));
        NewOp { sequence, once: None, label: Label { kind, name: name.into(), key }, seen: Vec::new(), body }
    }

    /// An entry of the main thread after the last.
    pub fn entry(&mut self, text: &str) -> NewOp {
        let op = self.entry_of("", self.leaf, json(&text));
        self.leaf = entry_id(&op);
        op
    }

    /// An entry of a thread.
    pub fn entry_of(&mut self, thread: &str, parent: Option<EntryId>, content: Payload) -> NewOp {
        let id = EntryId(self.op_id(self.next).uuid());
        let new = NewEntry {
            id,
            parent,
            thread: thread.into(),
            role: "user".into(),
            entry_type: "message".into(),
            content,
            turn_id: None,
            metadata: None,
        };
        self.op(OpKind::Entry, "user", OpBody::Entry(new))
    }

    /// A task that this worker runs itself.
    pub fn inline(&mut self, options: TaskOptions) -> NewOp {
        self.task_of(Placement::Inline, options, json(&1))
    }

    /// A task that goes to its queue.
    pub fn queued(&mut self, options: TaskOptions) -> NewOp {
        self.task_of(Placement::Queue, options, json(&1))
    }

    /// A task.
    pub fn task_of(&mut self, placement: Placement, options: TaskOptions, input: Payload) -> NewOp {
        let new = NewTask {
            id: self.task_id(self.next),
            kind: TASK.into(),
            queue: "default".into(),
            input,
            options,
            placement,
            entry: self.leaf,
        };
        self.op(OpKind::Task, TASK, OpBody::Task(new))
    }

    /// A wait for a signal.
    pub fn wait(&mut self, name: &str, timeout: Option<Duration>) -> NewOp {
        self.op(OpKind::Signal, name, OpBody::Signal { timeout })
    }

    /// A sleep.
    pub fn sleep(&mut self, duration: Duration) -> NewOp {
        self.op(OpKind::Timer, "sleep", OpBody::Timer { duration })
    }

    /// A read of the outside.
    pub fn read(&mut self, answer: Payload) -> NewOp {
        self.op(OpKind::Read, "has_signal", OpBody::Read { answer, count: 1 })
    }

    /// An await given up.
    pub fn abandon(&mut self, target: u32) -> NewOp {
        self.op(OpKind::Abandon, "abandon", OpBody::Abandon { target })
    }

    /// A child, born with the commit.
    pub fn child(&mut self, input: Payload) -> NewOp {
        self.child_of_id(ExecutionId(self.task_id(self.next).0), input)
    }

    /// A child of an id, which may be there already.
    pub fn child_of_id(&mut self, id: ExecutionId, input: Payload) -> NewOp {
        let mut new = self.rig.new_run();
        (new.id, new.input_digest, new.input) = (id, Digest::of_parts(&[id.0.as_bytes()]), input);
        self.op(OpKind::Child, AGENT, OpBody::Child(Box::new(new)))
    }

    /// A message to the parent or to a child.
    pub fn message(&mut self, body: MessageBody) -> NewOp {
        let id = SignalId(self.task_id(self.next).0);
        let name = body.name().to_owned();
        self.op(OpKind::Send, &name, OpBody::Send(Box::new(NewMessage { id, body })))
    }

    /// A detached task joined again.
    pub fn attach(&mut self, task: TaskId) -> NewOp {
        self.op(OpKind::Attach, "attach", OpBody::Attach { task })
    }

    /// A step begun.
    pub fn step(&mut self) -> NewOp {
        self.op(OpKind::StepMark, "step", OpBody::StepMark)
    }

    /// A forced commit.
    pub fn flush(&mut self) -> NewOp {
        self.op(OpKind::Flush, "flush", OpBody::Flush)
    }

    /// The cost of a model call.
    pub fn usage(&mut self, model: &str, usage: crate::model::Usage) -> NewOp {
        self.op(OpKind::Usage, model, OpBody::Usage { model: model.into(), usage })
    }

    /// The result of a `once`.
    pub fn once(&mut self, name: &str, value: Payload) -> NewOp {
        let digest = Digest::of_parts(&[name.as_bytes()]);
        let mut op = self.op(OpKind::Once, name, OpBody::Once { digest, value });
        op.once = Some(OnceSlot { name: name.into(), n: 0 });
        op
    }

    /// A commit request of a batch.
    pub fn request(&self, batch: Batch) -> CommitRequest {
        let request_id = RequestId(self.rig.uuid());
        CommitRequest {
            org: ORG,
            execution: self.id,
            lease: self.lease,
            request_id,
            digest: Digest::of_parts(&[request_id.0.as_bytes()]),
            base: self.base,
            known: self.known,
            batch,
            refused: Vec::new(),
            local: None,
        }
    }

    /// A batch of ops.
    pub fn batch(&self, ops: Vec<NewOp>, end: BatchEnd) -> Batch {
        Batch::new(self.segment, ops, end)
    }

    /// Commits a batch and takes note of the answer.
    pub async fn try_commit(&mut self, batch: Batch) -> Result<CommitAnswer> {
        let answer = self.send(self.request(batch)).await?;
        Ok(answer)
    }

    /// Sends a request and takes note of the answer.
    pub async fn send(&mut self, request: CommitRequest) -> Result<CommitAnswer> {
        let checkpoint = matches!(request.batch.end, BatchEnd::Checkpoint(_));
        let answer = self.rig.storage.commit(request).await?;
        self.base = answer.number;
        self.known = answer.high;
        if checkpoint {
            self.segment += 1;
            self.next = 0;
        }
        Ok(answer)
    }

    /// Commits a batch that is accepted.
    pub async fn commit_batch(&mut self, batch: Batch) -> CommitAnswer {
        self.try_commit(batch).await.expect("the commit is accepted")
    }

    /// Commits ops and goes on.
    pub async fn commit(&mut self, ops: Vec<NewOp>) -> CommitAnswer {
        self.commit_batch(self.batch(ops, BatchEnd::Continue)).await
    }

    /// Commits ops and an end.
    pub async fn end(&mut self, ops: Vec<NewOp>, end: BatchEnd) -> CommitAnswer {
        self.commit_batch(self.batch(ops, end)).await
    }

    /// Commits ops and waits.
    pub async fn suspend(&mut self, ops: Vec<NewOp>, wait: Wait) -> CommitAnswer {
        self.end(ops, BatchEnd::Suspend(wait)).await
    }

    /// Commits ops and a checkpoint.
    pub async fn checkpoint(&mut self, ops: Vec<NewOp>, state: Payload) -> CommitAnswer {
        let leaves = self.leaf.map(|leaf| (String::new(), leaf)).into_iter().collect::<BTreeMap<_, _>>();
        self.end(ops, BatchEnd::Checkpoint(NewCheckpoint { state, leaves, metadata: "{}".into() })).await
    }

    /// Commits ends of inline attempts.
    pub async fn attempts(&mut self, attempts: Vec<AttemptReport>) -> CommitAnswer {
        let mut batch = self.batch(Vec::new(), BatchEnd::Continue);
        batch.attempts = attempts;
        self.commit_batch(batch).await
    }
}

/// JSON of a value.
pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Payload {
    Payload::of(value).expect("it has a JSON form")
}

/// The id of an entry op.
pub fn entry_id(op: &NewOp) -> Option<EntryId> {
    match &op.body {
        OpBody::Entry(entry) => Some(entry.id),
        _ => None,
    }
}

/// The end of an inline attempt.
pub fn ended(sequence: u32, attempt: u32, result: AttemptResult) -> AttemptReport {
    AttemptReport { sequence, attempt, result, duration: Duration::from_millis(5), ended_at: None }
}

/// A result.
pub fn done(value: u64) -> AttemptResult {
    AttemptResult::Completed(json(&value))
}

/// An error that may be retried.
pub fn failed(error_type: &str) -> AttemptResult {
    AttemptResult::Failed {
        failure: Failure::new(Code::TaskFailed, error_type, "it failed"),
        retryable: true,
        pause: None,
    }
}

/// A wait for tasks.
pub fn for_tasks() -> Wait {
    Wait { tasks: true, reason: Some(WaitReason::Task), ..Wait::default() }
}

/// A wait for a signal.
pub fn for_signal(name: &str) -> Wait {
    Wait { signals: vec![name.into()], reason: Some(WaitReason::Signal), ..Wait::default() }
}

/// A wait for a timer.
pub fn for_timer() -> Wait {
    Wait { timers: true, reason: Some(WaitReason::Timer), ..Wait::default() }
}

/// A graceful stop.
pub fn gracefully(grace: Duration) -> crate::model::Cancellation {
    crate::model::Cancellation { mode: crate::model::CancelMode::Graceful, grace }
}

/// A hard stop.
pub fn at_once() -> crate::model::Cancellation {
    crate::model::Cancellation { mode: crate::model::CancelMode::Hard, grace: Duration::ZERO }
}

/// The code of a refusal.
#[track_caller]
pub fn refused<T>(result: Result<T>) -> Code {
    match result {
        Ok(_) => panic!("the call was expected to be refused"),
        Err(error) => error.code(),
    }
}
