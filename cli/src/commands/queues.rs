//! `flovyn queues`: the limits of queues.

use crate::Result;
use crate::args::{LimitQueue, Queues, Words};
use crate::print::{Output, took};
use crate::target::Target;
use comfy_table::Cell;
use flovyn_core::model::{QueueLimit, Rate};
use serde_json::json;

/// Limits queues or lists their limits.
pub(super) async fn queues(command: Queues, out: &mut Output) -> Result {
    match command {
        Queues::Limit(args) => limit(args, out).await,
        Queues::List(args) => list(args, out).await,
    }
}

async fn limit(args: LimitQueue, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["QUEUE"])?;
    let queue = target.word("the QUEUE")?;
    let limit = QueueLimit { concurrency: args.concurrency, rate: args.rate };
    let runtime = target.open().await?;
    runtime.storage().limit_queue(runtime.client().org(), &queue, limit.clone()).await?;
    if out.is_json() {
        return out.value(&view(&queue, &limit));
    }
    if limit == QueueLimit::default() {
        return out.line(&format!("queue {queue} has no limit"));
    }
    let concurrency = limit.concurrency.map(|max| format!("{max} at a time"));
    let parts: Vec<_> = concurrency.into_iter().chain(limit.rate.map(rate_text)).collect();
    out.line(&format!("queue {queue} hands out {}", parts.join(", ")))
}

async fn list(args: Words, out: &mut Output) -> Result {
    let target = Target::parse(args.words, &[])?;
    let runtime = target.open().await?;
    let limits = runtime.storage().queue_limits(runtime.client().org()).await?;
    if out.is_json() {
        let items: Vec<_> = limits.iter().map(|(queue, limit)| view(queue, limit)).collect();
        return out.value(&json!({ "items": items }));
    }
    if limits.is_empty() {
        return out.line("no queue has a limit");
    }
    let rows = limits.iter().map(|(queue, limit)| {
        vec![
            Cell::new(queue),
            Cell::new(limit.concurrency.map_or_else(|| "-".to_owned(), |max| max.to_string())),
            Cell::new(limit.rate.map_or_else(|| "-".to_owned(), rate_text)),
        ]
    });
    out.table(&["QUEUE", "AT A TIME", "RATE"], rows.collect())
}

fn rate_text(rate: Rate) -> String {
    format!("{} in {}", rate.runs, took(rate.per))
}

fn view(queue: &str, limit: &QueueLimit) -> serde_json::Value {
    let rate = limit.rate.map(|rate| json!({ "runs": rate.runs, "seconds": rate.per.as_secs_f64() }));
    json!({ "queue": queue, "concurrency": limit.concurrency, "rate": rate })
}
