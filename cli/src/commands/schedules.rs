//! `flovyn schedules`: runs that are started by a schedule.

use crate::Result;
use crate::args::{CreateSchedule, Schedules, Words};
use crate::print::{Output, moment};
use crate::target::{Target, json, metadata};
use comfy_table::Cell;
use flovyn_core::model::{PageRequest, Schedule, ScheduleSpec};
use serde_json::{Value, json};

/// Makes, lists or removes schedules.
pub(super) async fn schedules(command: Schedules, out: &mut Output) -> Result {
    match command {
        Schedules::Create(args) => create(args, out).await,
        Schedules::List(args) => list(args, out).await,
        Schedules::Pause(args) => set_paused(args, true, out).await,
        Schedules::Resume(args) => set_paused(args, false, out).await,
        Schedules::Delete(args) => delete(args, out).await,
    }
}

async fn create(args: CreateSchedule, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["ID", "CRON", "KIND", "JSON"])?;
    let id = target.word("the schedule's ID")?;
    let cron = target.word("the CRON pattern")?;
    let kind = target.word("the agent's KIND")?;
    let input = target.next_word().unwrap_or_else(|| "null".to_owned());
    json("the input", &input)?;
    let spec = ScheduleSpec {
        id,
        kind,
        queue: args.queue.unwrap_or_else(|| "default".to_owned()),
        input,
        cron,
        timezone: args.timezone,
        metadata: metadata(&args.metadata)?,
        priority: args.priority,
        concurrency_key: args.concurrency_key,
        concurrency_limit: args.concurrency_limit,
        paused: false,
    };
    let runtime = target.open().await?;
    let schedule = runtime.storage().put_schedule(runtime.client().org(), spec).await?;
    print_schedule(&schedule, out)
}

async fn set_paused(args: Words, paused: bool, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words, &["ID"])?;
    let id = target.word("the schedule's ID")?;
    let schedule = target.open().await?.client().pause_schedule(&id, paused).await?;
    print_schedule(&schedule, out)
}

fn print_schedule(schedule: &Schedule, out: &mut Output) -> Result {
    if out.is_json() {
        return out.value(&view(schedule));
    }
    let Schedule { spec, next_at, .. } = schedule;
    if spec.paused {
        return out.line(&format!("schedule {} rests until it is resumed", spec.id));
    }
    let next = next_at.map_or_else(|| "never".to_owned(), moment);
    out.line(&format!("schedule {} starts {} next at {next}", spec.id, spec.kind))
}

async fn list(args: Words, out: &mut Output) -> Result {
    let target = Target::parse(args.words, &[])?;
    let runtime = target.open().await?;
    let org = runtime.client().org();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = runtime.storage().schedules(org, PageRequest { limit: 1_000, after }).await?;
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if out.is_json() {
        return out.value(&json!({ "items": all.iter().map(view).collect::<Vec<_>>() }));
    }
    if all.is_empty() {
        return out.line("no schedules");
    }
    let rows = all.iter().map(|schedule| {
        vec![
            Cell::new(&schedule.spec.id),
            Cell::new(&schedule.spec.kind),
            Cell::new(&schedule.spec.cron),
            Cell::new(schedule.spec.timezone.as_deref().unwrap_or("UTC")),
            Cell::new(&schedule.spec.queue),
            Cell::new(match schedule.next_at {
                _ if schedule.spec.paused => "paused".to_owned(),
                Some(next) => moment(next),
                None => "-".to_owned(),
            }),
        ]
    });
    out.table(&["SCHEDULE", "KIND", "CRON", "ZONE", "QUEUE", "NEXT"], rows.collect())
}

async fn delete(args: Words, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words, &["ID"])?;
    let id = target.word("the schedule's ID")?;
    let runtime = target.open().await?;
    runtime.storage().delete_schedule(runtime.client().org(), &id).await?;
    if out.is_json() {
        return out.value(&json!({ "id": id, "deleted": true }));
    }
    out.line(&format!("schedule {id} is removed; its runs stay"))
}

fn view(schedule: &Schedule) -> Value {
    let spec = &schedule.spec;
    json!({
        "id": spec.id,
        "kind": spec.kind,
        "input": serde_json::from_str::<Value>(&spec.input).unwrap_or_default(),
        "cron": spec.cron,
        "timezone": spec.timezone,
        "queue": spec.queue,
        "metadata": spec.metadata,
        "priority": spec.priority,
        "concurrencyKey": spec.concurrency_key,
        "concurrencyLimit": spec.concurrency_limit,
        "paused": spec.paused,
        "nextAt": schedule.next_at.map(moment),
        "createdAt": moment(schedule.created_at),
    })
}
