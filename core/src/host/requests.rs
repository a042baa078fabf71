//! Requests to a backend beside one run, as JSON: listings of runs, schedules, queues. Bindings pass them through.

use super::shown::{listed, page};
use crate::client::Client;
use crate::clock::Timestamp;
use crate::error::{Code, Error, Result};
use crate::id::ExecutionId;
use crate::model::{ExecutionFilter, QueueLimit, Rate, ScheduleSpec, Status};
use crate::view::{LimitedQueue, QueueLoad, Run, Schedule, Show, Style, Worker};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Parts of a listing.
const PAGE: usize = 200;

/// A request, with the word for it in `ask`.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Request {
    Runs(Runs),
    DeleteRun { id: String },
    PutSchedule(NewSchedule),
    Schedule { id: String },
    Schedules { after: Option<String> },
    PauseSchedule { id: String, paused: bool },
    DeleteSchedule { id: String },
    Queues,
    QueueLimits,
    LimitQueue { queue: String, concurrency: Option<u32>, runs: Option<u32>, seconds: Option<f64> },
    Workers { after: Option<String> },
}

/// Which runs are listed. A parent and a root are given by id or key.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Runs {
    statuses: Vec<String>,
    kind: Option<String>,
    queue: Option<String>,
    metadata: BTreeMap<String, String>,
    created_from: Option<f64>,
    created_until: Option<f64>,
    parent: Option<String>,
    root: Option<String>,
    roots: bool,
    search: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// A schedule as it is to be.
#[derive(Debug, Deserialize)]
struct NewSchedule {
    id: String,
    kind: String,
    cron: String,
    #[serde(default)]
    input: Value,
    timezone: Option<String>,
    queue: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    priority: i32,
    concurrency_key: Option<String>,
    concurrency_limit: Option<u32>,
    #[serde(default)]
    paused: bool,
}

/// Carries a request out, which is JSON, and answers it with views in the host's style.
///
/// Errors: `InvalidArgument` for a request that is none, and what the backend has against it.
pub async fn carry_out(client: &Client, request: &str, style: Style) -> Result<Value> {
    let request: Request = serde_json::from_str(request).map_err(|error| wrong(error.to_string()))?;
    let (storage, org) = (client.storage(), client.org());
    Ok(match request {
        Request::Runs(filter) => {
            let request = page(filter.limit.unwrap_or(PAGE), filter.after.clone());
            let found = client.runs(filter.filter(client)?, request).await?;
            listed(&found, Run::of, style)
        }
        Request::DeleteRun { id } => {
            client.handle(&id).await?.delete().await?;
            Value::Null
        }
        Request::PutSchedule(new) => Schedule::of(&storage.put_schedule(org, new.spec()?).await?).show(style),
        Request::Schedule { id } => Schedule::of(&storage.schedule(org, &id).await?).show(style),
        Request::Schedules { after } => listed(&storage.schedules(org, page(PAGE, after)).await?, Schedule::of, style),
        Request::PauseSchedule { id, paused } => Schedule::of(&client.pause_schedule(&id, paused).await?).show(style),
        Request::DeleteSchedule { id } => {
            storage.delete_schedule(org, &id).await?;
            Value::Null
        }
        Request::Queues => storage.queues(org).await?.iter().map(QueueLoad::of).collect::<Vec<_>>().show(style),
        Request::QueueLimits => {
            storage.queue_limits(org).await?.iter().map(LimitedQueue::of).collect::<Vec<_>>().show(style)
        }
        Request::LimitQueue { queue, concurrency, runs, seconds } => {
            let limit = QueueLimit { concurrency, rate: rate(&queue, runs, seconds)? };
            storage.limit_queue(org, &queue, limit).await?;
            Value::Null
        }
        Request::Workers { after } => listed(&storage.workers(org, page(PAGE, after)).await?, Worker::of, style),
    })
}

impl Runs {
    fn filter(self, client: &Client) -> Result<ExecutionFilter> {
        let statuses = self.statuses.iter().map(|word| {
            Status::parse(word).ok_or_else(|| {
                let known: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
                wrong(format!("{word:?} is no status; known are {}", known.join(", ")))
            })
        });
        let run = |name: String| ExecutionId::of_key(client.org(), &name);
        Ok(ExecutionFilter {
            statuses: statuses.collect::<Result<_>>()?,
            kind: self.kind,
            queue: self.queue,
            metadata: self.metadata,
            created_from: self.created_from.map(moment),
            created_until: self.created_until.map(moment),
            parent: self.parent.map(run),
            root: self.root.map(run),
            roots: self.roots,
            search: self.search,
        })
    }
}

impl NewSchedule {
    fn spec(self) -> Result<ScheduleSpec> {
        Ok(ScheduleSpec {
            id: self.id,
            kind: self.kind,
            queue: self.queue.unwrap_or_else(|| "default".into()),
            input: self.input.to_string(),
            cron: self.cron,
            timezone: self.timezone,
            metadata: self.metadata,
            priority: self.priority,
            concurrency_key: self.concurrency_key,
            concurrency_limit: self.concurrency_limit,
            paused: self.paused,
        })
    }
}

fn rate(queue: &str, runs: Option<u32>, seconds: Option<f64>) -> Result<Option<Rate>> {
    match (runs, seconds) {
        (None, None) => Ok(None),
        (Some(runs), Some(seconds)) => {
            let per = Duration::try_from_secs_f64(seconds)
                .map_err(|_| wrong(format!("{seconds} is no number of seconds for the rate of queue {queue:?}")))?;
            Ok(Some(Rate { runs, per }))
        }
        _ => Err(wrong(format!("a rate of queue {queue:?} is so many runs in so many seconds; give both"))),
    }
}

/// A time that is given as seconds since 1970.
fn moment(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1e6).round() as i64)
}

fn wrong(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}
