//! What is asked of a store beside runs: definitions, schedules, limits, keys, the audit, what runs cost, families, previews,
//! and all that workers of the first protocol need.

use super::{copy, of_kind, page, start_of, until_ended};
use flovyn_core::Payload;
use flovyn_core::client::Client;
use flovyn_core::clock::Timestamp;
use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OrgId, WorkerId};
use flovyn_core::model::{
    CancelMode, DefinitionSpec, Delivery, ExecutionFilter, NewExecution, NewKey, OrgLimits, QueueLimit, Rate,
    ScheduleSpec, TokenHash, fresh_token,
};
use flovyn_core::storage::unfenced::{Serves, SignOf, Work};
use flovyn_core::storage::{ClaimRequest, Heartbeat, Storage, WorkerInfo};
use flovyn_core::streaming::ProgressBySource;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const ORG: OrgId = OrgId::DEFAULT;
const HOUR: Duration = Duration::from_secs(3_600);

fn definition(slug: &str) -> DefinitionSpec {
    DefinitionSpec {
        slug: slug.into(),
        name: "An otter".into(),
        description: None,
        kind: "done".into(),
        queue: "default".into(),
        system_prompt: Some("You are an otter.".into()),
        models: json!([]),
        tools: json!([]),
        config: serde_json::Map::new(),
        metadata: [].into(),
    }
}

fn schedule(id: &str) -> ScheduleSpec {
    ScheduleSpec {
        id: id.into(),
        kind: "nobody".into(),
        queue: "default".into(),
        input: "7".into(),
        cron: "0 4 1 1 *".into(),
        timezone: None,
        metadata: [].into(),
        priority: 0,
        concurrency_key: None,
        concurrency_limit: None,
        paused: false,
    }
}

fn key(name: &str) -> NewKey {
    let hash = TokenHash::of(&fresh_token());
    NewKey {
        org: ORG,
        name: name.into(),
        scopes: "worker".parse().unwrap(),
        expires_in: Some(HOUR),
        not_after: None,
        hash,
        actor: "a test".into(),
    }
}

fn limit() -> QueueLimit {
    QueueLimit { concurrency: Some(3), rate: Some(Rate { runs: 100, per: Duration::from_secs(1) }) }
}

fn serves() -> Serves {
    Serves { agents: vec!["nobody".into()], tasks: vec!["queued".into()], known_as: None }
}

/// One row of each table that no run has part in.
pub(crate) async fn templates(storage: &dyn Storage) {
    storage.server_side().unwrap().create_definition(ORG, definition("first")).await.unwrap();
    storage.put_schedule(ORG, schedule("first")).await.unwrap();
    storage.server_side().unwrap().create_key(key("first")).await.unwrap();
    storage.limit_queue(ORG, "first", limit()).await.unwrap();
    let worker = WorkerInfo {
        org: ORG,
        id: WorkerId::fresh(),
        name: "first".into(),
        queues: vec!["first".into()],
        elsewhere: false,
    };
    storage.register_worker(worker).await.unwrap();
    storage.server_side().unwrap().enroll(ORG, WorkerId::fresh(), serves()).await.unwrap();
}

/// A day of all that is no run.
pub(crate) async fn day(storage: &Arc<dyn Storage>, client: &Client) {
    definitions(&**storage).await;
    schedules(&**storage).await;
    keys(&**storage).await;
    families(client).await;
    first_protocol(&**storage, client).await;
    limits(&**storage, client).await;
    previews(&**storage, client).await;
}

async fn definitions(storage: &dyn Storage) {
    let definitions = storage.server_side().unwrap();
    let made = definitions.create_definition(ORG, definition("otter")).await.unwrap();
    let taken = definitions.create_definition(ORG, definition("otter")).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    for name in ["otter".to_owned(), made.id.to_string()] {
        assert_eq!(definitions.definition(ORG, &name).await.unwrap().id, made.id);
    }
    let first = definitions.definitions(ORG, page(100, None)).await.unwrap();
    definitions.definitions(ORG, page(1_000, first.next)).await.unwrap();
    definitions.replace_definition(ORG, made.id, definition("beaver")).await.unwrap();
    definitions.delete_definition(ORG, made.id).await.unwrap();
}

async fn schedules(storage: &dyn Storage) {
    let made = storage.put_schedule(ORG, schedule("tick")).await.unwrap();
    assert_eq!(storage.schedule(ORG, "tick").await.unwrap().spec.id, "tick");
    let first = storage.schedules(ORG, page(100, None)).await.unwrap();
    storage.schedules(ORG, page(1_000, first.next)).await.unwrap();
    assert!(storage.due_schedules().await.unwrap().is_empty());
    let next = made.next_at.expect("there is a next year");
    storage.advance_schedule(ORG, "tick", next, Some(Timestamp(next.0 + 1))).await.unwrap();
    storage.delete_schedule(ORG, "tick").await.unwrap();
}

async fn keys(storage: &dyn Storage) {
    let directory = storage.server_side().unwrap();
    let otters = directory.create_organization("otters", "a test").await.unwrap().id;
    directory.organizations().await.unwrap();
    assert!(directory.organization(otters).await.unwrap().is_some());
    directory
        .limit_organization(otters, OrgLimits { create: Some(1), ..OrgLimits::default() }, "a test")
        .await
        .unwrap();
    directory.rename_organization(otters, "seals", "a test").await.unwrap();
    let new = key("second");
    let hash = new.hash;
    let made = directory.create_key(new).await.unwrap();
    assert_eq!(directory.key_of(hash).await.unwrap().expect("it is there").id, made.id);
    assert_eq!(directory.keys(ORG).await.unwrap().len(), 2);
    directory.revoke_key(ORG, made.id, "a test").await.unwrap();
    directory.record(ORG, "a test", "key.refused", "revoked").await.unwrap();
    let first = directory.audit(ORG, page(100, None)).await.unwrap();
    assert!(directory.audit(ORG, page(1_000, first.next)).await.unwrap().items.len() == 1_000);
}

/// Runs below others, and what runs cost that were started in a span of time.
async fn families(client: &Client) {
    let child = copy(&client.runs(of_kind("nobody"), page(20, None)).await.unwrap());
    let above = client.storage().execution(ORG, child).await.unwrap().parent.expect("it is a child");
    let now = client.storage().clock().now();
    let filters = [
        ExecutionFilter { parent: Some(above), ..ExecutionFilter::default() },
        ExecutionFilter { root: Some(above), ..ExecutionFilter::default() },
        ExecutionFilter { parent: Some(ExecutionId::fresh()), ..ExecutionFilter::default() },
        ExecutionFilter { parent: Some(above), ..of_kind("nobody") },
        ExecutionFilter {
            created_from: Some(Timestamp(now.0 - 86_400_000_000)),
            created_until: Some(now),
            ..ExecutionFilter::default()
        },
        ExecutionFilter { queue: Some("default".into()), ..of_kind("caller") },
    ];
    for filter in filters {
        let first = client.runs(filter.clone(), page(100, None)).await.unwrap();
        if first.next.is_some() {
            client.runs(filter, page(1_000, first.next)).await.unwrap();
        }
    }
    let workers = client.storage().workers(ORG, page(100, None)).await.unwrap();
    client.storage().workers(ORG, page(1_000, workers.next)).await.unwrap();
    client.storage().queues(ORG).await.unwrap();
}

fn claim(kind: &str, queue: &str, worker: WorkerId) -> ClaimRequest {
    ClaimRequest {
        org: ORG,
        worker,
        queue: queue.into(),
        kinds: [kind.to_owned()].into(),
        limit: 20,
        ttl: HOUR,
        only: None,
    }
}

/// What the server asks for workers that name no claim.
async fn first_protocol(storage: &dyn Storage, client: &Client) {
    let (unfenced, worker) = (storage.server_side().unwrap(), WorkerId::fresh());
    unfenced.enroll(ORG, worker, serves()).await.unwrap();
    assert_eq!(unfenced.enrolled(ORG, worker).await.unwrap(), Some(serves()));
    assert!(unfenced.waiting_kinds(ORG, "default", Work::Agents).await.unwrap().contains(&"nobody".into()));
    assert!(unfenced.waiting_kinds(ORG, "default", Work::Tasks).await.unwrap().contains(&"queued".into()));
    let held = storage.claim_agents(claim("nobody", "default", worker)).await.unwrap();
    assert_eq!(held.len(), 20);
    let tasks = storage.claim_tasks(claim("queued", "default", worker)).await.unwrap();
    assert_eq!(tasks.len(), 20);
    unfenced.keep_leases(ORG, worker, HOUR, SignOf::Every).await.unwrap();
    let executions = held.iter().map(|held| (held.execution.new.id, held.lease.epoch, held.high)).collect();
    let tasks = tasks.iter().map(|claimed| (claimed.task.new.id, claimed.task.attempt, true)).collect();
    let beat = Heartbeat { org: ORG, worker, ttl: HOUR, executions, tasks, progress: vec![] };
    assert!(storage.heartbeat(beat).await.unwrap().lost_executions.is_empty());
    storage.release(ORG, held[0].execution.new.id, held[0].lease).await.unwrap();
    let known: Vec<_> = held.iter().map(|held| held.execution.new.id).collect();
    assert_eq!(storage.standings(ORG, &known).await.unwrap().len(), 20);
    storage.facts_after(ORG, known[1], 0).await.unwrap();
    storage.unregister_worker(ORG, worker).await.unwrap();

    let caller = copy(&client.runs(of_kind("caller"), page(40, None)).await.unwrap());
    let task = storage.tasks(ORG, caller, page(1, None)).await.unwrap().items.remove(0).new.id;
    assert!(unfenced.open_task(ORG, task).await.unwrap().is_some());
    storage.task(ORG, caller, task).await.unwrap();
    assert!(unfenced.cancel_task(ORG, caller, task).await.unwrap().1);
    let above = copy(&client.runs(of_kind("parked"), page(40, None)).await.unwrap());
    let child = NewExecution::new(ExecutionId::fresh(), "nobody", Payload::null()).unwrap();
    let child = unfenced.spawn(above, child).await.unwrap().execution.new.id;
    let child = client.handle(&child.to_string()).await.unwrap();
    child.cancel(CancelMode::Hard, Duration::ZERO).await.unwrap();
    until_ended(&child).await;
    assert_eq!(unfenced.mailbox(ORG, above).await.unwrap().len(), 1, "it is told of its child's end");
}

async fn limits(storage: &dyn Storage, client: &Client) {
    storage.limit_queue(ORG, "narrow", limit()).await.unwrap();
    assert_eq!(storage.queue_limits(ORG).await.unwrap().len(), 2);
    for n in 0..5 {
        start_of(client, "nobody", "narrow", &format!("narrow {n}")).await;
    }
    let worker = WorkerId::fresh();
    let held = storage.claim_agents(claim("nobody", "narrow", worker)).await.unwrap();
    assert_eq!(held.len(), 3, "the queue has three places");
    storage.unregister_worker(ORG, worker).await.unwrap();
    storage.limit_queue(ORG, "narrow", QueueLimit { concurrency: None, rate: None }).await.unwrap();
}

async fn previews(storage: &dyn Storage, client: &Client) {
    let (previews, process) = (storage.previews().unwrap(), Uuid::new_v4());
    let run = copy(&client.runs(of_kind("done"), page(200, None)).await.unwrap());
    previews.watch(ORG, run, process, true).await.unwrap();
    assert!(previews.readers(Uuid::new_v4()).await.unwrap().len() > 300);
    previews.write_previews(ORG, run, vec![process]).await.unwrap();
    previews.read_previews(ORG, run, process, &ProgressBySource::default()).await.unwrap();
    previews.handed_out(ORG, run).await.unwrap();
    // A run that wakes while it is read.
    let run = copy(&client.runs(of_kind("parked"), page(60, None)).await.unwrap());
    previews.watch(ORG, run, process, true).await.unwrap();
    let run = client.handle(&run.to_string()).await.unwrap();
    run.signal("go", Payload::of(&"go").unwrap(), Delivery::default(), None).await.unwrap();
}
