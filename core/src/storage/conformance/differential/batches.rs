//! Random batches: mostly what a session could send, sometimes what it never would.

use super::super::random::Random;
use super::super::rig::{Holder, json};
use crate::clock::Timestamp;
use crate::error::Code;
use crate::id::{EntryId, ExecutionId, OnceSlot, SignalId, TaskId};
use crate::model::{
    AttemptReport, AttemptResult, Batch, BatchEnd, CancelMode, Cancellation, Consumed, Delivery, EventKind, Failure,
    MessageBody, NewCheckpoint, NewEvent, NewOp, OnParentEnd, OpBody, Placement, RetryPolicy, Seen, SideEffects,
    Signal, Spent, Task, TaskOptions, TaskStatus, Usage, Wait, WaitReason, child_signal, event_signal,
};
use crate::payload::Payload;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a random batch may speak about.
pub(super) struct Known {
    pub tasks: Vec<Task>,
    pub signals: Vec<Signal>,
    pub entries: Vec<EntryId>,
    /// Children that the run has started in the current segment.
    pub children: Vec<ExecutionId>,
    /// All runs of the history.
    pub runs: Vec<ExecutionId>,
    /// Recorded waits for signals of the current segment.
    pub waits: Vec<u32>,
    /// Numbers of facts, in order.
    pub facts: Vec<u64>,
}

/// Names that are waited for and sent.
pub(super) const NAMES: [&str; 3] = ["go", "stop", "news"];

/// A payload, now and then one above the size of a row.
pub(super) fn payload(random: &mut Random) -> Payload {
    let n = random.below(1_000);
    if random.percent(5) {
        let bytes: Vec<u8> = (0..9_000 + n).map(|i| (i * (n + 1) / 7) as u8).collect();
        return Payload::raw(bytes);
    }
    json(&n)
}

/// How a task is run: everything that changes its life.
fn options(random: &mut Random) -> TaskOptions {
    let seconds = |random: &mut Random| Some(Duration::from_secs(1 + random.below(40) as u64));
    let mut options = TaskOptions {
        retry: RetryPolicy {
            retries: if random.percent(30) { random.below(3) as u32 } else { 0 },
            no_retry: if random.percent(20) { vec!["Fatal".into()] } else { vec![] },
            ..RetryPolicy::default()
        },
        timeout: if random.percent(20) { seconds(random) } else { None },
        heartbeat_timeout: if random.percent(15) { seconds(random) } else { None },
        deadline: if random.percent(10) { seconds(random) } else { None },
        side_effects: match random.below(10) {
            0 | 1 => SideEffects::AtMostOnce,
            2 => SideEffects::Reconcile,
            _ => SideEffects::Idempotent,
        },
        detached: random.percent(15),
        interruptible: false,
        reserve: if random.percent(15) { 100 * random.below(9) as u32 } else { 0 },
        ..TaskOptions::default()
    };
    // Not a draw of its own, which would change what all histories come to.
    if options.reserve > 0 {
        options.max_losses = 1 + options.reserve / 100 % 3;
    }
    options
}

/// How an attempt may end.
pub(super) fn result(random: &mut Random) -> AttemptResult {
    let failure = |code, error_type: &str| Failure::new(code, error_type, "it failed");
    match random.below(12) {
        0 => AttemptResult::Failed { failure: failure(Code::TaskFailed, "Fatal"), retryable: true, pause: None },
        1 => AttemptResult::Failed { failure: failure(Code::TaskFailed, "E"), retryable: true, pause: None },
        2 => AttemptResult::Failed { failure: failure(Code::TaskFailed, "E"), retryable: false, pause: None },
        3 => AttemptResult::Failed { failure: failure(Code::TaskTimeout, "TaskTimeout"), retryable: true, pause: None },
        4 => AttemptResult::Failed { failure: failure(Code::NonRetryable, "E"), retryable: true, pause: None },
        5 => AttemptResult::Cancelled,
        6 => AttemptResult::NotDone,
        7 => AttemptResult::Released,
        _ => AttemptResult::Completed(payload(random)),
    }
}

fn wait(random: &mut Random, children: &[ExecutionId]) -> Wait {
    let names = NAMES.iter().map(|name| (*name).to_owned());
    let news = children.iter().flat_map(|child| [child_signal(*child), event_signal(*child)]);
    let names = names.chain(news);
    let signals = names.filter(|_| random.percent(30)).collect();
    let reason = [None, Some(WaitReason::Task), Some(WaitReason::Signal), Some(WaitReason::Timer)];
    let reason = random.pick(&reason).copied().flatten();
    Wait {
        signals,
        tasks: random.percent(60),
        timers: random.percent(60),
        host_timer: random.percent(20),
        ends: None,
        parked: random.percent(30),
        reason,
    }
}

fn end(random: &mut Random, holder: &Holder<'_>, known: &Known) -> BatchEnd {
    let failure = || Failure::new(Code::AgentFailed, "E", "it failed");
    match random.below(100) {
        0..45 => BatchEnd::Continue,
        45..72 => BatchEnd::Suspend(wait(random, &known.children)),
        72..88 => BatchEnd::Checkpoint(NewCheckpoint {
            state: payload(random),
            leaves: holder.leaf.map(|leaf| (String::new(), leaf)).into_iter().collect::<BTreeMap<_, _>>(),
            metadata: r#"{"reason":"test"}"#.into(),
        }),
        88 => BatchEnd::Complete(payload(random)),
        89 => BatchEnd::Fail(failure()),
        90..92 => BatchEnd::Cancelled(random.percent(50).then(|| payload(random))),
        _ => {
            let reasons = [WaitReason::Divergence, WaitReason::Error, WaitReason::Budget, WaitReason::Quarantined];
            let reason = random.pick(&reasons).copied().unwrap_or(WaitReason::Budget);
            BatchEnd::Pause { reason, failure: random.percent(50).then(failure) }
        }
    }
}

/// A message: mostly to a child of the run or to its parent, now and then to another run.
fn message_body(random: &mut Random, holder: &Holder<'_>, known: &Known) -> MessageBody {
    let runs = if random.percent(85) { &known.children } else { &known.runs };
    let child = random.pick(runs).copied().unwrap_or(holder.id);
    let name = NAMES[random.below(NAMES.len())].to_owned();
    let requests: Vec<SignalId> = known.signals.iter().map(|signal| signal.id).collect();
    match random.below(10) {
        0..4 => MessageBody::ToParent { name, payload: payload(random), is_request: random.percent(40) },
        4..7 => {
            let delivery = if random.percent(20) { Delivery::Now } else { Delivery::NextStep };
            MessageBody::ToChild { child, name, payload: payload(random), delivery }
        }
        7 | 8 => {
            let request = random.pick(&requests).copied().unwrap_or_default();
            MessageBody::Answer { child, request, payload: payload(random) }
        }
        _ => {
            let mode = if random.percent(40) { CancelMode::Hard } else { CancelMode::Graceful };
            MessageBody::Stop { child, how: Cancellation { mode, ..Cancellation::USUAL } }
        }
    }
}

fn op(random: &mut Random, holder: &mut Holder<'_>, known: &Known) -> NewOp {
    let seconds = |random: &mut Random| Duration::from_secs(random.below(40) as u64);
    let target = random.below(holder.next as usize + 1) as u32;
    let detached = known.tasks.iter().filter(|task| task.new.options.detached);
    let tasks: Vec<TaskId> = detached.map(|task| task.new.id).collect();
    let mut op = match random.below(26) {
        0..4 => holder.entry("said"),
        4 => {
            let parent = random.pick(&known.entries).copied();
            let content = payload(random);
            holder.entry_of(["", "side"][random.below(2)], parent, content)
        }
        5..9 => {
            let (options, input) = (options(random), payload(random));
            holder.task_of(Placement::Inline, options, input)
        }
        9..13 => {
            let (options, input) = (options(random), payload(random));
            holder.task_of(Placement::Queue, options, input)
        }
        13 | 14 => {
            let timeout = random.percent(50).then(|| seconds(random));
            holder.wait(NAMES[random.below(NAMES.len())], timeout)
        }
        15 | 16 => {
            let duration = seconds(random);
            holder.sleep(duration)
        }
        17 => {
            let answer = payload(random);
            holder.read(answer)
        }
        18 => match random.pick(&tasks) {
            Some(task) => holder.attach(*task),
            None => holder.abandon(target),
        },
        19 => {
            holder.usage("m", Usage { calls: 1, input_tokens: target.into(), cost_micros: Some(7), ..Usage::default() })
        }
        20 => holder.step(),
        21 | 22 => {
            let input = payload(random);
            match random.below(10) {
                0 | 1 => holder.child_of_id(random.pick(&known.runs).copied().unwrap_or(holder.id), input),
                _ => holder.child(input),
            }
        }
        23 | 24 => {
            let body = message_body(random, holder, known);
            holder.message(body)
        }
        _ => {
            let value = payload(random);
            let name = format!("once-{}", random.below(4));
            holder.once(&name, value)
        }
    };
    if !matches!(op.body, OpBody::Once { .. }) && random.percent(5) {
        op.once = Some(OnceSlot {
            name: format!("once-{}", random.below(4)).into(),
            n: 1 + holder.segment * 10_000 + op.sequence,
        });
    }
    if random.percent(30) {
        op.seen = vec![Seen(target), Seen::CANCEL];
    }
    op
}

/// A batch of a holder.
pub(super) fn batch(random: &mut Random, holder: &mut Holder<'_>, known: &Known) -> Batch {
    let leaf = holder.leaf;
    let ops: Vec<NewOp> = (0..random.below(5)).map(|_| op(random, holder, known)).collect();
    if ops.iter().all(|op| !matches!(op.body, OpBody::Entry(_))) {
        holder.leaf = leaf;
    }
    let end = end(random, holder, known);
    let mut batch = holder.batch(ops, end);
    let report = |random: &mut Random, sequence, attempt| AttemptReport {
        sequence,
        attempt,
        result: result(random),
        duration: Duration::from_millis(random.below(5_000) as u64),
        ended_at: sequence.is_multiple_of(3).then_some(Timestamp(1_700_000_030_000_000)),
    };
    for op in &batch.ops {
        let inline = matches!(&op.body, OpBody::Task(task) if task.placement == Placement::Inline);
        if inline && random.percent(60) {
            batch.attempts.push(report(random, op.sequence, 1));
        }
    }
    for task in known.tasks.iter().filter(|task| task.slot.segment == holder.segment) {
        let (sequence, attempt) = (task.slot.sequence, task.attempt);
        let inline = task.status == TaskStatus::Running && task.new.placement == Placement::Inline;
        if inline && random.percent(25) {
            batch.restarted.push((sequence, attempt + u32::from(random.percent(95))));
        }
        if inline && random.percent(40) {
            let attempt = attempt + batch.restarted.iter().filter(|(named, _)| *named == sequence).count() as u32;
            batch.attempts.push(report(random, sequence, attempt));
        } else if random.percent(5) {
            batch.attempts.push(report(random, sequence, attempt));
        }
        if random.percent(if matches!(batch.end, BatchEnd::Checkpoint(_)) { 50 } else { 3 }) {
            batch.orphaned.push(sequence);
        }
    }
    let slots = holder.next as usize;
    // Nobody takes a signal that it has not been told of.
    for signal in known.signals.iter().filter(|signal| signal.number <= holder.known) {
        if random.percent(if signal.consumed_by.is_none() { 25 } else { 2 }) {
            let takes = |op: &&NewOp| matches!(op.body, OpBody::Signal { .. } | OpBody::Read { .. });
            let new = batch.ops.iter().find(takes).map(|op| op.sequence);
            let by = new.or_else(|| random.pick(&known.waits).copied()).map(|sequence| holder.slot(sequence));
            batch.consumed.extend(by.map(|by| Consumed { signal: signal.id, by }));
        }
    }
    for list in [&mut batch.disarmed, &mut batch.orphaned] {
        if random.percent(10) {
            list.push(random.below(slots) as u32);
        }
    }
    if random.percent(10) {
        batch.read_counts.push((random.below(slots) as u32, 2 + random.below(5) as u32));
    }
    if random.percent(10) {
        let sequence = random.percent(50).then(|| random.below(slots) as u32);
        batch.events.push(NewEvent {
            kind: EventKind::Warning,
            sequence,
            data: serde_json::json!({ "why": "random" }),
        });
    }
    if random.percent(10) {
        batch.code = Some(format!("v{}", random.below(3)));
    }
    // Not draws of the generator, which would change what all histories come to.
    let chance = batch.ops.len() + holder.next as usize;
    for op in &mut batch.ops {
        if let OpBody::Child(new) = &mut op.body {
            new.limits.budget = op.sequence.is_multiple_of(3).then(|| format!("{}", 20 * (op.sequence % 7)));
            if op.sequence % 4 == 1 {
                new.on_parent_end = OnParentEnd::Detach;
            }
        }
    }
    if chance.is_multiple_of(3) {
        let (tokens, calls) = (7 * u64::from(holder.next), u64::from(holder.next) / 4);
        batch.draw = Some(Spent { tokens, calls, cost_micros: calls });
    }
    if random.percent(6) {
        spoil(random, &mut batch);
    }
    batch
}

fn spoil(random: &mut Random, batch: &mut Batch) {
    match random.below(4) {
        0 => batch.segment += 1,
        1 => {
            if let Some(op) = batch.ops.last_mut() {
                op.sequence = random.below(op.sequence as usize + 1) as u32;
            }
        }
        2 => {
            for op in &mut batch.ops {
                if let OpBody::Entry(entry) = &mut op.body {
                    entry.parent = Some(EntryId(uuid::Uuid::from_u128(7)));
                }
            }
        }
        _ => {
            if let Some(consumed) = batch.consumed.first().copied() {
                let mut other = consumed;
                other.by.sequence += 1;
                batch.consumed.push(other);
            }
        }
    }
}
