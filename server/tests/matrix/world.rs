//! What an org has: one thing of each sort that a call can name, each as far as calls need it.

use flovyn_core::Payload;
use flovyn_core::id::{
    DefinitionId, EntryId, ExecutionId, KeyId, OpId, OrgId, RequestId, SignalId, Slot, TaskId, WorkerId,
};
use flovyn_core::model::{
    Batch, BatchEnd, CommitRequest, DefinitionSpec, Delivery, Label, LabelKey, Lease, NewCheckpoint, NewEntry,
    NewExecution, NewKey, NewOp, NewSignal, NewTask, OpBody, OpKind, Placement, ScheduleSpec, TaskOptions, TokenHash,
    fresh_token,
};
use flovyn_core::payload::{Body, ContentHash, Digest, Encoding};
use flovyn_core::storage::machines::Approval;
use flovyn_core::storage::{ClaimRequest, Only, Storage};
use serde_json::json;
use std::time::Duration;

pub(crate) const QUEUE: &str = "default";

/// A run that a worker holds in its second segment, with an entry, a checkpoint, a task that runs, a signal and a child; and
/// what is beside runs.
pub(crate) struct World {
    pub org: OrgId,
    pub run: ExecutionId,
    pub child: ExecutionId,
    pub lease: Lease,
    pub base: u64,
    pub known: u64,
    pub entry: EntryId,
    pub op: OpId,
    pub task: TaskId,
    pub payload: (ContentHash, u64),
    pub definition: DefinitionId,
    pub schedule: String,
    pub key: KeyId,
    pub machine: String,
}

pub(crate) fn new_run(org: OrgId) -> NewExecution {
    let mut new = NewExecution::new(ExecutionId::fresh(), "agent", Payload::of(&"input").unwrap()).unwrap();
    new.org = org;
    new
}

pub(crate) fn schedule(id: &str) -> ScheduleSpec {
    ScheduleSpec {
        id: id.into(),
        kind: "agent".into(),
        queue: QUEUE.into(),
        input: "1".into(),
        cron: "0 4 1 1 *".into(),
        timezone: None,
        metadata: [].into(),
        priority: 0,
        concurrency_key: None,
        concurrency_limit: None,
        paused: false,
    }
}

impl World {
    pub(crate) async fn new(storage: &dyn Storage, org: OrgId) -> Self {
        let worker = WorkerId::fresh();
        let created = storage.create_execution(new_run(org)).await.unwrap();
        let run = created.execution.new.id;
        let claim = |kind: &str, only| ClaimRequest {
            org,
            worker,
            queue: QUEUE.into(),
            kinds: [kind.to_owned()].into(),
            limit: 10,
            ttl: Duration::from_secs(3_600),
            only,
        };
        let claimed = storage.claim_agents(claim("agent", Some(Only::Run(run)))).await.unwrap().remove(0);
        let mut world = Self {
            org,
            run,
            child: ExecutionId::fresh(),
            lease: claimed.lease,
            base: claimed.execution.base,
            known: claimed.high,
            entry: EntryId(OpId { execution: run, slot: Slot { segment: 0, sequence: 0 }, once: None }.uuid()),
            op: OpId { execution: run, slot: Slot { segment: 1, sequence: 0 }, once: None },
            task: TaskId::default(),
            payload: (ContentHash([0; 32]), 0),
            definition: DefinitionId::default(),
            schedule: format!("tick-{}", KeyId::fresh()),
            key: KeyId::default(),
            machine: format!("m-{}", KeyId::fresh()),
        };
        world.task = TaskId(world.op.uuid());
        let entry = NewEntry {
            id: world.entry,
            parent: None,
            thread: String::new(),
            role: "user".into(),
            entry_type: "message".into(),
            content: Payload::of(&"hello").unwrap(),
            turn_id: None,
            metadata: None,
        };
        let leaves = [(String::new(), world.entry)].into();
        let saved = NewCheckpoint { state: Payload::of(&1).unwrap(), leaves, metadata: "{}".into() };
        let op = op(OpKind::Entry, "user", OpBody::Entry(entry));
        world.commit(storage, 0, vec![op], BatchEnd::Checkpoint(saved)).await;
        // No other world's worker asks for it.
        let kind = format!("work of {run}");
        let task = NewTask {
            id: world.task,
            kind: kind.clone(),
            queue: QUEUE.into(),
            input: Payload::of(&1).unwrap(),
            options: TaskOptions::default(),
            placement: Placement::Queue,
            entry: Some(world.entry),
        };
        world.commit(storage, 1, vec![self::op(OpKind::Task, "work", OpBody::Task(task))], BatchEnd::Continue).await;
        assert_eq!(storage.claim_tasks(claim(&kind, None)).await.unwrap().len(), 1);
        let signal = NewSignal {
            org,
            execution: run,
            id: SignalId::fresh(),
            name: "said".into(),
            payload: Payload::null(),
            delivery: Delivery::default(),
            idempotency_key: None,
        };
        storage.store_signal(signal).await.unwrap();
        world.child = storage.server_side().unwrap().spawn(run, new_run(org)).await.unwrap().execution.new.id;
        let bytes = format!("{org} ").repeat(1_000).into_bytes();
        let stored = Payload { encoding: Encoding::Raw, body: Body::Inline(bytes.into()) };
        match storage.store_payload(org, stored).await.unwrap().body {
            Body::Stored { hash, size } => world.payload = (hash, size),
            _ => panic!("it is too large for a row"),
        }
        let spec = DefinitionSpec {
            slug: format!("otter-{run}"),
            name: "An otter".into(),
            description: None,
            kind: "agent".into(),
            queue: QUEUE.into(),
            system_prompt: None,
            models: json!([]),
            tools: json!([]),
            config: serde_json::Map::new(),
            metadata: [].into(),
        };
        world.definition = storage.server_side().unwrap().create_definition(org, spec).await.unwrap().id;
        storage.put_schedule(org, schedule(&world.schedule)).await.unwrap();
        let hash = TokenHash::of(&fresh_token());
        let (name, scopes, actor) = ("of a world".to_owned(), "viewer".parse().unwrap(), "a test".to_owned());
        let key = NewKey { org, name, scopes, expires_in: None, not_after: None, hash, actor };
        world.key = storage.server_side().unwrap().create_key(key).await.unwrap().id;
        let pairing = storage.request_pairing(&world.machine, "a host").await.unwrap();
        let (code, actor) = (pairing.code, "a test".to_owned());
        let approval = Approval { code, name: None, owner: None, actor, not_after: None };
        storage.approve_pairing(org, approval).await.unwrap();
        storage.collect_pairing(&pairing.secret).await.unwrap().unwrap();
        world.known = storage.events(org, run, 0, 1_000).await.unwrap().last().unwrap().number;
        world
    }

    /// The next commit of its worker.
    pub(crate) fn next(&self, segment: u32, ops: Vec<NewOp>, end: BatchEnd) -> CommitRequest {
        CommitRequest {
            org: self.org,
            execution: self.run,
            lease: self.lease,
            request_id: RequestId::fresh(),
            digest: Digest::of_parts(&[b"a batch"]),
            base: self.base,
            known: self.known,
            batch: Batch::new(segment, ops, end),
            refused: Vec::new(),
            local: None,
        }
    }

    async fn commit(&mut self, storage: &dyn Storage, segment: u32, ops: Vec<NewOp>, end: BatchEnd) {
        let answer = storage.commit(self.next(segment, ops, end)).await.unwrap();
        (self.base, self.known) = (answer.number, answer.high);
    }

    /// All that calls about its run could have changed, as text.
    pub(crate) async fn told(&self, storage: &dyn Storage) -> String {
        let run = storage.execution(self.org, self.run).await.unwrap();
        let child = storage.execution(self.org, self.child).await.unwrap();
        let task = storage.task(self.org, self.run, self.task).await.unwrap();
        let events = storage.events(self.org, self.run, 0, 1_000).await.unwrap();
        let schedule = storage.schedule(self.org, &self.schedule).await.is_ok();
        let definition = storage.server_side().unwrap().definition(self.org, &self.definition.to_string()).await;
        let keys = storage.server_side().unwrap().keys(self.org).await.unwrap();
        let live = keys.iter().any(|key| key.id == self.key && key.revoked_at.is_none());
        let runs = storage.executions(self.org, Default::default(), Default::default()).await.unwrap().items.len();
        format!(
            "{run:#?} {child:#?} {task:#?} {} events, {runs} runs; {schedule} {} {live}",
            events.len(),
            definition.is_ok()
        )
    }
}

pub(crate) fn op(kind: OpKind, name: &str, body: OpBody) -> NewOp {
    let label = Label { kind, name: name.into(), key: LabelKey::Key("one".into()) };
    NewOp { sequence: 0, once: None, label, seen: Vec::new(), body }
}
