//! For operators: queues and their limits, workers, the audit.

use super::executions::Items;
use super::problem::Problem;
use super::request::{Caller, Json, QueryParams};
use axum::http::StatusCode;
use flovyn_core::clock::Timestamp;
use flovyn_core::id::OrgId;
use flovyn_core::model::{AuditRow, Cursor, KnownWorker, Page, PageRequest, QueueLimit, QueueLoad, Rate};
use flovyn_core::storage::Directory;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;
use uuid::Uuid;

fn items<M, V>(page: Page<M>, view: impl Fn(M) -> V) -> axum::Json<Items<V>> {
    let next_cursor = page.next.map(|Cursor(text)| text);
    axum::Json(Items { items: page.items.into_iter().map(view).collect(), next_cursor })
}

/// What a queue has of one kind.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueView {
    queue: String,
    /// The agent or the task.
    kind: String,
    /// How many wait for a worker.
    queued: u64,
    /// How many workers hold.
    running: u64,
    /// How many wait, and no live worker serves them.
    unserved: u64,
}

/// Lists queues by kind: what waits, what runs, what nobody serves. Kinds that live workers serve are listed when idle, too.
#[utoipa::path(get, path = "/queues", tag = "operators", responses((status = 200, body = Items<QueueView>)))]
pub(super) async fn queues(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<QueueView>>, Problem> {
    query.reject_unknown()?;
    let loads = caller.service.storage.queues(caller.org()).await?;
    Ok(items(Page { items: loads, next: None }, |QueueLoad { kind, queue, queued, running, served }| QueueView {
        queue,
        kind,
        queued,
        running,
        unserved: if served { 0 } else { queued },
    }))
}

/// Work of one kind in a queue that no live worker serves.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unserved {
    queue: String,
    /// The agent or the task.
    kind: String,
    /// How many wait.
    waiting: u64,
}

/// Lists the kinds with work that no live worker serves.
#[utoipa::path(get, path = "/queues/unserved", tag = "operators", responses((status = 200, body = Items<Unserved>)))]
pub(super) async fn unserved(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<Unserved>>, Problem> {
    query.reject_unknown()?;
    let kinds = caller.service.storage.unserved(caller.org()).await?;
    let view = |(kind, queue, waiting)| Unserved { queue, kind, waiting };
    Ok(items(Page { items: kinds, next: None }, view))
}

/// A kind in a queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Served {
    kind: String,
    queue: String,
}

/// A worker as its calls have shown it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerView {
    id: Uuid,
    /// Host, process and name, for people.
    name: String,
    /// The queues it said it polls.
    queues: Vec<String>,
    /// What its claims asked for.
    serves: Vec<Served>,
    /// Whether it is believed to live.
    alive: bool,
    /// Its last sign of life that was noted.
    seen_at: String,
    /// Until when it is believed to live without another sign.
    alive_until: String,
}

fn worker(worker: KnownWorker, now: Timestamp) -> WorkerView {
    WorkerView {
        id: worker.id.0,
        name: worker.name,
        queues: worker.queues,
        serves: worker.serves.into_iter().map(|(kind, queue)| Served { kind, queue }).collect(),
        alive: worker.alive_until > now,
        seen_at: worker.seen_at.to_string(),
        alive_until: worker.alive_until.to_string(),
    }
}

/// Lists the workers that are known, by id; one that is gone is forgotten some time after.
#[utoipa::path(
    get, path = "/workers", tag = "operators",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Items<WorkerView>))
)]
pub(super) async fn workers(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<WorkerView>>, Problem> {
    let page = query.page()?;
    query.reject_unknown()?;
    let storage = &caller.service.storage;
    let (page, now) = (storage.workers(caller.org(), page).await?, storage.clock().now());
    Ok(items(page, |known| worker(known, now)))
}

/// One thing that was done.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditView {
    /// Its number; later ones have higher ones.
    id: u64,
    at: String,
    /// Who, and the id of the request where it was one.
    actor: String,
    /// What, such as `key.revoked` or `execution.cancel`.
    action: String,
    /// To what: an id or a name.
    subject: String,
    /// 32 bytes in hexadecimal that seal the row and all before it; none on one that an older version wrote.
    #[schema(required)]
    seal: Option<String>,
}

/// How many rows one page of the audit looks at for those of one action: what it has found by then is answered, with where to go on.
const LOOKED_AT: usize = 10_000;
const READ_AT_ONCE: usize = 500;

/// Lists what was done to keys and runs, newest first; or what was done by one action.
#[utoipa::path(
    get, path = "/audit", tag = "operators",
    params(
        ("action" = Option<String>, Query, description = "Such as `approval.decide`"),
        ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query),
    ),
    responses((status = 200, body = Items<AuditView>))
)]
pub(super) async fn audit(caller: Caller, mut query: QueryParams) -> Result<axum::Json<Items<AuditView>>, Problem> {
    let page = query.page()?;
    let action = query.get("action")?;
    query.reject_unknown()?;
    let directory = caller.service.storage.server_side()?;
    let rows = match action {
        None => directory.audit(caller.org(), page).await?,
        Some(action) => of_action(directory, caller.org(), page, &action).await?,
    };
    Ok(items(rows, |AuditRow { number, at, actor, action, subject, seal }| AuditView {
        id: number,
        at: at.to_string(),
        actor,
        action,
        subject,
        seal: seal.map(|seal| seal.to_string()),
    }))
}

/// A page of the rows of one action.
async fn of_action(
    directory: &dyn Directory,
    org: OrgId,
    page: PageRequest,
    action: &str,
) -> flovyn_core::Result<Page<AuditRow>> {
    let (mut found, mut looked, mut after) = (Vec::new(), 0, page.after);
    // A limit out of bounds stays so.
    let share = if (1..READ_AT_ONCE).contains(&page.limit) { READ_AT_ONCE } else { page.limit };
    loop {
        let rows = directory.audit(org, PageRequest { limit: share, after }).await?;
        looked += rows.items.len();
        for row in rows.items.into_iter().filter(|row| row.action == action) {
            if found.len() == page.limit {
                let last: Option<&AuditRow> = found.last();
                let next = last.map(|row| Cursor(row.number.to_string()));
                return Ok(Page { items: found, next });
            }
            found.push(row);
        }
        after = rows.next;
        if after.is_none() || looked >= LOOKED_AT {
            return Ok(Page { items: found, next: after });
        }
    }
}

/// What a queue may do at most.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = QueueLimit)]
pub(super) struct LimitBody {
    /// Runs that workers hold at the same time; waiting ones do not count.
    concurrency: Option<u32>,
    /// How often runs are handed to workers, new ones and woken ones.
    rate: Option<RateBody>,
}

/// So many in a time, at once or spread over it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Rate)]
pub(super) struct RateBody {
    runs: u32,
    seconds: f64,
}

/// A queue with its limit.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    queue: String,
    #[serde(flatten)]
    limit: LimitBody,
}

/// Lists the queues that have a limit.
#[utoipa::path(
    operation_id = "list_queue_limits",
    get, path = "/queues/limits", tag = "operators",
    responses((status = 200, body = Items<Queue>))
)]
pub(super) async fn limits(caller: Caller, query: QueryParams) -> Result<axum::Json<Items<Queue>>, Problem> {
    query.reject_unknown()?;
    let limits = caller.service.storage.queue_limits(caller.org()).await?;
    let rate = |rate: Rate| RateBody { runs: rate.runs, seconds: rate.per.as_secs_f64() };
    let view = |limit: QueueLimit| LimitBody { concurrency: limit.concurrency, rate: limit.rate.map(rate) };
    Ok(items(Page { items: limits, next: None }, |(queue, limit)| Queue { queue, limit: view(limit) }))
}

/// Limits a queue, in place of the limit it has.
#[utoipa::path(
    operation_id = "limit_queue",
    put, path = "/queues/{queue}", tag = "operators", request_body = LimitBody, responses((status = 204))
)]
pub(super) async fn limit(caller: Caller, Json(body): Json<LimitBody>) -> Result<StatusCode, Problem> {
    let rate = body.rate.map(|rate| match Duration::try_from_secs_f64(rate.seconds) {
        Ok(per) => Ok(Rate { runs: rate.runs, per }),
        Err(_) => Err(Problem::invalid(format!("{} seconds are no time of a rate; give more than 0", rate.seconds))),
    });
    let limit = QueueLimit { concurrency: body.concurrency, rate: rate.transpose()? };
    caller.service.limit_queue(&caller.by, caller.named("queue"), limit).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Frees a queue of its limit.
#[utoipa::path(
    operation_id = "free_queue",
    delete, path = "/queues/{queue}", tag = "operators",
    responses((status = 204))
)]
pub(super) async fn free(caller: Caller) -> Result<StatusCode, Problem> {
    caller.service.limit_queue(&caller.by, caller.named("queue"), QueueLimit::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}
