//! `flovyn runs list`.

use crate::args::List;
use crate::print::{Output, ago, status, word};
use crate::target::{Target, metadata};
use crate::{Failed, Result, view};
use comfy_table::Cell;
use flovyn_core::id::ExecutionId;
use flovyn_core::model::{Cursor, Execution, ExecutionFilter, PageRequest, Status};
use serde_json::json;

pub(super) async fn list(args: List, out: &mut Output) -> Result {
    let target = Target::parse(args.words.words, &[])?;
    let statuses = args.status.iter().map(|word| status_of(word)).collect::<Result<_>>()?;
    let metadata = metadata(&args.metadata)?;
    let runtime = target.open().await?;
    let run = |named: Option<String>| named.map(|named| ExecutionId::of_key(runtime.client().org(), &named));
    let filter = ExecutionFilter {
        statuses,
        kind: args.kind,
        queue: args.queue,
        metadata,
        parent: run(args.parent),
        root: run(args.root),
        roots: args.roots,
        search: args.search,
        ..ExecutionFilter::default()
    };
    let page = PageRequest { limit: usize::from(args.limit), after: args.cursor.map(Cursor) };
    let page = runtime.client().runs(filter, page).await?;
    let next = page.next.map(|cursor| cursor.0);
    if out.is_json() {
        let items: Vec<_> = page.items.iter().map(view::run).collect();
        return out.value(&json!({ "items": items, "nextCursor": next }));
    }
    if page.items.is_empty() {
        return out.line("no runs");
    }
    let now = runtime.storage().clock().now();
    let rows = page.items.iter().map(|run| {
        vec![
            Cell::new(run.new.key.clone().unwrap_or_else(|| run.new.id.to_string())),
            Cell::new(&run.new.kind),
            status(run.status),
            Cell::new(waits_for(run)),
            Cell::new(run.usage.0.values().map(|usage| usage.input_tokens + usage.output_tokens).sum::<u64>()),
            Cell::new(ago(run.created_at, now)),
            Cell::new(ago(run.updated_at, now)),
        ]
    });
    out.table(&["RUN", "KIND", "STATUS", "WAITS FOR", "TOKENS", "STARTED", "CHANGED"], rows.collect())?;
    match next {
        Some(cursor) => out.line(&format!("\nmore: --cursor {cursor}")),
        None => Ok(()),
    }
}

fn status_of(word: &str) -> Result<Status> {
    Status::parse(word).ok_or_else(|| {
        let known: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
        Failed::Usage(format!("{word:?} is no status; known are {}", known.join(", ")))
    })
}

/// What a run waits for, in a few words.
pub(super) fn waits_for(run: &Execution) -> String {
    let Some(wait) = &run.wait else { return "-".into() };
    let reason = wait.reason.map(|reason| word(&reason));
    match reason.as_deref() {
        Some("signal") if !wait.from_outside().is_empty() => format!("signal {}", wait.from_outside().join(", ")),
        Some("signal") if wait.is_for_parent() => "its parent".to_owned(),
        Some("handed_off") => "its successor".to_owned(),
        Some(reason) => reason.to_owned(),
        None => "-".into(),
    }
}
