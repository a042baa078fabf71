//! `flovyn runs show`.

use super::approvals::{self, open_approvals};
use super::list::waits_for;
use super::tree::tree;
use crate::args::Show;
use crate::event::describe;
use crate::print::{Output, ago, moment, short, status, took, word};
use crate::target::{Run, Target};
use crate::{Result, view};
use comfy_table::Cell;
use flovyn_core::model::{
    Checkpoint, Event, Execution, Page, PageRequest, Persistence, RollUp, Status, Task, TaskStatus, UsageTotals, Wait,
    WaitReason,
};
use flovyn_core::view::Moment;
use flovyn_toolkit::react::APPROVAL;
use flovyn_toolkit::tools::approval::ApprovalRequest;
use serde_json::json;
use std::collections::VecDeque;

/// Rows read at a time.
const PAGE: usize = 1_000;

pub(super) async fn show(args: Show, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["ID"])?;
    let run = target.run().await?;
    if args.tree {
        return tree(&run, out).await;
    }
    let described = run.handle.describe().await?;
    let sum = run.handle.roll_up().await?;
    let unserved = run.handle.unserved().await?;
    let machine = run.handle.machine(&described).await?;
    let (mut tasks, mut checkpoints) = (Vec::new(), Vec::new());
    if described.new.persistence.keeps_journal() {
        tasks = read_all(async |page| run.handle.tasks(page).await).await?;
        checkpoints = read_all(async |page| run.handle.checkpoints(page).await).await?;
    }
    let events = last_events(&run, args.events).await?;
    let asks = described.wait.iter().any(|wait| wait.signals.iter().any(|signal| signal == APPROVAL));
    let approvals = if asks { open_approvals(&run).await? } else { Vec::new() };
    let (storage, org) = (run.runtime.storage(), run.client().org());
    let input = view::payload(&**storage, org, &described.new.input).await?;
    let output = match &described.output {
        Some(output) => Some(view::payload(&**storage, org, output).await?),
        None => None,
    };
    if out.is_json() {
        let mut value = view::run_with(&described, &sum);
        value["input"] = input;
        value["output"] = json!(output);
        value["machine"] = json!(machine);
        value["noWorker"] = unserved.iter().map(|(kind, queue)| json!({"kind": kind, "queue": queue})).collect();
        value["approvals"] = json!(approvals);
        value["tasks"] = tasks.iter().map(view::task).collect();
        value["checkpoints"] = checkpoints.iter().map(view::checkpoint).collect();
        value["events"] = events.iter().map(view::event).collect();
        return out.value(&value);
    }
    print_facts(&described, &input.to_string(), output.map(|output| output.to_string()), out)?;
    if let Some(machine) = machine.filter(|_| described.status == Status::Pending) {
        let seen = machine.seen_at.map_or_else(
            || "was never seen".to_owned(),
            |Moment(at)| format!("was last seen {}", ago(at, storage.clock().now())),
        );
        let state = if machine.live { "" } else { ", and is not (or no more) let in" };
        out.line(&format!("It waits for the machine {}, which {seen}{state}.", machine.name))?;
    }
    for (kind, queue) in &unserved {
        out.line(&format!("No live worker serves {kind:?} of queue {queue:?}."))?;
    }
    print_next_steps(&described, &tasks, &approvals, target.url(), &run.name(), out)?;
    usage_table(&described, &sum, out)?;
    task_table(&tasks, out)?;
    checkpoint_table(&checkpoints, storage.clock().now(), out)?;
    event_table(&events, out)
}

async fn read_all<T>(mut read: impl AsyncFnMut(PageRequest) -> flovyn_core::Result<Page<T>>) -> Result<Vec<T>> {
    let mut request = PageRequest { limit: PAGE, after: None };
    let mut items = Vec::new();
    loop {
        let page = read(request.clone()).await?;
        items.extend(page.items);
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(items),
        }
    }
}

async fn last_events(run: &Run, count: usize) -> Result<Vec<Event>> {
    let (storage, org) = (run.runtime.storage(), run.client().org());
    let mut last = VecDeque::new();
    let mut after = 0;
    loop {
        let events = storage.events(org, run.handle.id(), after, PAGE).await?;
        let Some(newest) = events.last() else { return Ok(last.into()) };
        after = newest.number;
        last.extend(events);
        last.drain(..last.len().saturating_sub(count));
    }
}

fn print_facts(run: &Execution, input: &str, output: Option<String>, out: &mut Output) -> Result {
    let mut facts = vec![("run", Cell::new(run.new.key.clone().unwrap_or_else(|| run.new.id.to_string())))];
    let mut add = |name, value: String| facts.push((name, Cell::new(value)));
    if run.new.key.is_some() {
        add("id", run.new.id.to_string());
    }
    if let Some(parent) = run.parent {
        add("parent", parent.to_string());
    }
    add("kind", run.new.kind.clone());
    add("queue", run.new.queue.clone());
    facts.push(("status", status(run.status)));
    let mut add = |name, value: String| facts.push((name, Cell::new(value)));
    if let Some(to) = run.handed_to {
        add("handed to", to.to_string());
    }
    if run.new.persistence != Persistence::Full {
        add("persistence", run.new.persistence.as_str().into());
    }
    if run.wait.is_some() {
        add("waits for", waits_for(run));
    }
    if let Some(failure) = &run.failure {
        add("error", format!("{} ({}): {}", failure.code, failure.error_type, short(&failure.message, 400)));
        if let Some(line) = failure.traceback.as_deref().and_then(failing_line) {
            add("raised", line);
        }
    }
    if let Some((cancel, ends)) = run.cancel {
        add("cancel", format!("{}, grace until {}", word(&cancel.mode), moment(ends)));
    }
    add("input", short(input, 400));
    if let Some(output) = output {
        add("output", short(&output, 400));
    }
    add("segment", format!("{} (epoch {})", run.segment, run.epoch));
    if run.step_count > 0 || run.step_limit.is_some() {
        let limit = run.step_limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
        add("steps", format!("{}{limit}", run.step_count));
    }
    if let Some(from) = run.forked_from {
        let place = from.sequence.map_or_else(
            || format!("checkpoint {}", from.segment),
            |sequence| format!("op {}-{sequence}", from.segment),
        );
        add("forked from", format!("{} at {place}", from.execution));
    }
    if !run.new.metadata.is_empty() {
        let pairs: Vec<_> = run.new.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
        add("metadata", pairs.join(" "));
    }
    add("started", moment(run.created_at));
    add("changed", moment(run.updated_at));
    if let Some(ended) = run.ended_at {
        add("ended", format!("{} after {}", moment(ended), took(ended.since(run.created_at))));
    }
    out.facts(facts)
}

/// Where the user's own code raised an error: the last file of a traceback of Python, the first of a stack of Node.
fn failing_line(traceback: &str) -> Option<String> {
    let mut lines = traceback.lines().map(str::trim);
    let node = lines.clone().find_map(|line| line.strip_prefix("at "));
    let python = || lines.rfind(|line| line.starts_with("File \""));
    node.or_else(python).map(|line| short(line, 400))
}

/// What a person can do for a run that does not go on by itself.
fn print_next_steps(
    run: &Execution,
    tasks: &[Task],
    approvals: &[ApprovalRequest],
    url: &str,
    name: &str,
    out: &mut Output,
) -> Result {
    let mut lines = Vec::new();
    if run.status == Status::Waiting {
        lines.extend(
            approvals
                .iter()
                .map(|request| format!("flovyn runs (approve | deny) {url} {name} {}", approvals::line(request))),
        );
        let is_answered = |signal: &&str| approvals.is_empty() || *signal != APPROVAL;
        let signals = run.wait.iter().flat_map(Wait::from_outside).filter(is_answered);
        lines.extend(signals.map(|signal| format!("flovyn runs signal {url} {name} {signal} JSON")));
    }
    let stuck = tasks.iter().filter(|task| matches!(task.status, TaskStatus::InDoubt | TaskStatus::Quarantined));
    lines.extend(stuck.map(|task| {
        format!(
            "flovyn runs resolve {url} {} (--result JSON | --error MESSAGE | --retry)",
            flovyn_core::view::op_of(task)
        )
    }));
    if run.status == Status::Paused {
        lines.push(match run.wait.as_ref().and_then(|wait| wait.reason) {
            Some(WaitReason::Divergence) => format!("flovyn runs decide {url} {name} (continue | fork | stay)"),
            Some(WaitReason::StepLimit) => format!("flovyn runs resume {url} {name} --max-steps N"),
            Some(WaitReason::TailLimit) => format!("flovyn runs resume {url} {name} --max-tail N"),
            _ => format!("flovyn runs resume {url} {name}"),
        });
    }
    if run.status == Status::Failed {
        lines.push(format!("flovyn runs retry {url} {name}"));
    }
    if lines.is_empty() {
        return Ok(());
    }
    out.heading("To go on")?;
    lines.iter().try_for_each(|line| out.line(line))
}

fn usage_table(run: &Execution, sum: &RollUp, out: &mut Output) -> Result {
    models("Usage", &run.usage, out)?;
    match sum.descendants {
        0 => Ok(()),
        below => models(&format!("Usage with the runs below ({below})"), &sum.usage, out),
    }
}

fn models(heading: &str, used: &UsageTotals, out: &mut Output) -> Result {
    if used.is_empty() {
        return Ok(());
    }
    out.heading(heading)?;
    let rows = used.0.iter().map(|(model, usage)| {
        let cost = usage.cost_micros.map(|micros| format!("${:.4}", micros as f64 / 1e6));
        vec![
            Cell::new(model),
            Cell::new(usage.calls),
            Cell::new(usage.input_tokens),
            Cell::new(usage.output_tokens),
            Cell::new(usage.cache_read_tokens),
            Cell::new(usage.cache_write_tokens),
            Cell::new(cost.unwrap_or_else(|| "-".into())),
        ]
    });
    out.table(&["MODEL", "CALLS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST"], rows.collect())
}

fn task_table(tasks: &[Task], out: &mut Output) -> Result {
    if tasks.is_empty() {
        return Ok(());
    }
    out.heading("Tasks")?;
    let rows = tasks.iter().map(|task| {
        let duration = match (task.started_at, task.ended_at) {
            (Some(started), Some(ended)) => took(ended.since(started)),
            _ => "-".into(),
        };
        let error = task.failure.as_ref().map(|failure| format!("{}: {}", failure.error_type, failure.message));
        vec![
            Cell::new(task.slot),
            Cell::new(&task.new.kind),
            Cell::new(word(&task.status)),
            Cell::new(task.attempt),
            Cell::new(duration),
            Cell::new(short(&error.unwrap_or_default(), 80)),
        ]
    });
    out.table(&["OP", "KIND", "STATUS", "ATTEMPT", "TOOK", "ERROR"], rows.collect())
}

fn checkpoint_table(checkpoints: &[Checkpoint], now: flovyn_core::clock::Timestamp, out: &mut Output) -> Result {
    if checkpoints.is_empty() {
        return Ok(());
    }
    out.heading("Checkpoints")?;
    let skipped = checkpoints.len().saturating_sub(20);
    if skipped > 0 {
        out.line(&format!("{skipped} earlier ones"))?;
    }
    let rows = checkpoints.iter().skip(skipped).map(|checkpoint| {
        vec![
            Cell::new(checkpoint.sequence),
            Cell::new(format!("{} B", checkpoint.saved.state.size())),
            Cell::new(checkpoint.saved.leaves.get("").map_or_else(|| "-".into(), ToString::to_string)),
            Cell::new(ago(checkpoint.created_at, now)),
        ]
    });
    out.table(&["CHECKPOINT", "STATE", "LEAF", "AGE"], rows.collect())
}

fn event_table(events: &[Event], out: &mut Output) -> Result {
    if events.is_empty() {
        return Ok(());
    }
    out.heading("Last events")?;
    let rows = events.iter().map(|event| {
        let op = event.sequence.map(|sequence| format!("{}-{sequence}", event.segment));
        vec![
            Cell::new(event.number),
            Cell::new(moment(event.at)),
            Cell::new(word(&event.kind)),
            Cell::new(op.unwrap_or_default()),
            Cell::new(describe(event, 100)),
        ]
    });
    out.table(&["EVENT", "AT", "WHAT", "OP", "DATA"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failing_line_is_the_users_own() {
        let python = "Traceback (most recent call last):\n  File \"main.py\", line 3, in run\n    go()\n  File \"b.py\", line 5, in bad\n    return 1 // n\n           ~~^^~~\nZeroDivisionError: by zero\n";
        assert_eq!(failing_line(python).as_deref(), Some("File \"b.py\", line 5, in bad"));
        let node = "TypeError: no x\n    at file:///f.mjs:2:77\n    at Agent.fn (file:///f.mjs:3:59)";
        assert_eq!(failing_line(node).as_deref(), Some("file:///f.mjs:2:77"));
        assert_eq!(failing_line("it broke"), None);
    }
}
