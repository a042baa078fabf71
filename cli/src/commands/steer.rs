//! The commands that change a run. What they report is durable when they return.

use crate::args::{Cancel, Confirmed, Delivery as When, Fork, Resolve, Resume, Signal, Start, Words};
use crate::print::Output;
use crate::target::{Target, json, start_options};
use crate::{Failed, Result, view};
use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::id::{ExecutionId, OpId, RequestId, Slot};
use flovyn_core::model::{CancelMode, Delivery, Divergence, Execution, Failure, ForkFrom, Resolution, ResumeRequest};
use flovyn_core::storage::machines::machine_queue;
use serde_json::{Value, json};

pub(super) async fn start(args: Start, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["KIND", "JSON"])?;
    let kind = target.word("the agent's KIND")?;
    let input = target.next_word().map_or(Ok(Payload::null()), |text| self::json("the input", &text))?;
    let options = StartOptions {
        priority: args.priority,
        concurrency_key: args.concurrency_key,
        concurrency_limit: args.concurrency_limit,
        ..start_options(args.id, args.machine.as_deref().map(machine_queue).or(args.queue), &args.metadata)?
    };
    let runtime = target.open().await?;
    let handle = runtime.client().start(&kind, input, options).await?;
    print_run(out, &handle.describe().await?, "started")
}

pub(super) async fn signal(args: Signal, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["ID", "NAME", "JSON"])?;
    let (id, name) = (target.word("the run's ID")?, target.word("the signal's NAME")?);
    let payload = target.next_word().map_or(Ok(Payload::null()), |text| self::json("the signal's value", &text))?;
    let delivery = match args.delivery {
        When::NextStep => Delivery::NextStep,
        When::NextTurn => Delivery::NextTurn,
        When::Now => Delivery::Now,
    };
    let runtime = target.open().await?;
    let handle = runtime.client().handle(&id).await?;
    let stored = handle.signal(&name, payload, delivery, args.key).await?;
    if out.is_json() {
        return out.value(&json!({
            "signalId": stored.id, "repeated": stored.repeated, "agentResumed": stored.resumed
        }));
    }
    let what = match (stored.repeated, stored.resumed) {
        (true, _) => "was there already under this key",
        (false, true) => "is stored; the run goes on",
        (false, false) => "is stored",
    };
    out.line(&format!("signal {name} {what} ({})", stored.id))
}

pub(super) async fn cancel(args: Cancel, out: &mut Output) -> Result {
    let run = Target::parse(args.words.words, &["ID"])?.run().await?;
    let mode = if args.hard { CancelMode::Hard } else { CancelMode::Graceful };
    let execution = run.handle.cancel(mode, args.grace).await?;
    print_run(out, &execution, "asked to stop")
}

pub(super) async fn delete(args: Confirmed, out: &mut Output) -> Result {
    let run = Target::parse(args.words.words, &["ID"])?.run().await?;
    let execution = run.handle.describe().await?;
    let (id, name) = (execution.new.id, name(&execution));
    if !args.yes {
        return Err(Failed::Usage(format!("run {name} and all it has would be gone for good; add --yes to remove it")));
    }
    run.handle.delete().await?;
    if out.is_json() {
        return out.value(&json!({ "id": id, "deleted": true }));
    }
    out.line(&format!("run {name} is gone with all it had"))
}

pub(super) async fn resume(args: Resume, retry: bool, out: &mut Output) -> Result {
    let run = Target::parse(args.words.words, &["ID"])?.run().await?;
    let message = args.message.map(|text| match self::json("the message", &text) {
        Ok(payload) => Ok(payload),
        Err(_) => Payload::of(&text),
    });
    let request = ResumeRequest {
        retry,
        max_steps: args.max_steps,
        max_tail: args.max_tail,
        message: message.transpose()?,
        request_id: Some(RequestId::fresh()),
        ..ResumeRequest::default()
    };
    let what = if retry { "going on" } else { "resumed" };
    print_run(out, &run.handle.resume(request).await?, what)
}

pub(super) async fn fork(args: Fork, out: &mut Output) -> Result {
    let from = fork_point(&args)?;
    let state = args.state.as_deref().map(|text| self::json("the state", text)).transpose()?;
    let input = args.input.as_deref().map(|text| self::json("the input", text)).transpose()?;
    let run = Target::parse(args.words.words, &["ID"])?.run().await?;
    let fork = run.handle.fork(from, args.id.as_deref(), state, input).await?;
    print_run(out, &fork.describe().await?, "forked")
}

fn fork_point(args: &Fork) -> Result<ForkFrom> {
    if let Some(sequence) = args.checkpoint {
        return Ok(ForkFrom::Checkpoint(sequence));
    }
    if let Some(entry) = &args.entry {
        let id = entry.parse().map_err(|_| Failed::Usage(format!("{entry:?} is no entry id; `entries` lists them")))?;
        return Ok(ForkFrom::Entry(id));
    }
    let Some(op) = &args.op else { return Ok(ForkFrom::Latest) };
    // The short form is an op id without its run.
    let id = OpId::parse(op).or_else(|| OpId::parse(&format!("{}-{op}", ExecutionId::default())));
    match id {
        Some(OpId { slot: Slot { segment, sequence }, once: None, .. }) => Ok(ForkFrom::Op(Slot { segment, sequence })),
        _ => Err(Failed::Usage(format!("{op:?} is no op; write its id or SEGMENT-SEQUENCE, such as 0-7"))),
    }
}

pub(super) async fn resolve(args: Resolve, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words.words, &["OP"])?;
    let word = target.word("the task's OP")?;
    let op = OpId::parse(&word).ok_or_else(|| {
        Failed::Usage(format!("{word:?} is no op id; `flovyn runs show` names those that need an answer"))
    })?;
    let resolution = match (args.result, args.error, args.retry) {
        (Some(result), ..) => Resolution::Result(self::json("the result", &result)?),
        (_, Some(message), _) => Resolution::Error(Failure::new(Code::TaskFailed, "Resolved", message)),
        (.., true) => Resolution::Retry,
        _ => return Err(Failed::Usage("an answer is missing: --result JSON, --error MESSAGE or --retry".into())),
    };
    let runtime = target.open().await?;
    let client = runtime.client();
    let handle = client.handle(&op.execution.to_string()).await?;
    let task = handle.resolve(op, resolution).await?;
    if out.is_json() {
        return out.value(&view::task(&task));
    }
    out.line(&format!("task {} ({}) is {}", task.new.kind, task.new.id, crate::print::word(&task.status)))
}

pub(super) async fn decide(args: Words, out: &mut Output) -> Result {
    let mut target = Target::parse(args.words, &["ID", "DECISION"])?;
    let (id, word) = (target.word("the run's ID")?, target.word("the decision")?);
    let decision = serde_json::from_value::<Divergence>(Value::String(word.clone()))
        .map_err(|_| Failed::Usage(format!("{word:?} is no decision; write continue, fork or stay")))?;
    let runtime = target.open().await?;
    let decided = runtime.client().handle(&id).await?.resolve_divergence(decision).await?;
    print_run(out, &decided.describe().await?, "decided")
}

/// Prints a run and its status.
fn print_run(out: &mut Output, run: &Execution, what: &str) -> Result {
    if out.is_json() {
        return out.value(&view::run(run));
    }
    out.line(&format!("run {} {what}: {}", name(run), run.status))
}

/// The name of a run: its key, else its id.
fn name(run: &Execution) -> String {
    run.new.key.clone().unwrap_or_else(|| run.new.id.to_string())
}
