//! The scenarios' agents in Rust: the tasks, and what each op of a program does.

use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::{AgentContext, AgentContextExt, Message, TaskCall};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::ExecutionId;
use flovyn_core::journal::{ChildOptions, Completion, OnDivergence, Outcome};
use flovyn_core::model::{
    Cancellation, ChildEvent, Persistence, RetryPolicy, SharedContext, SideEffects, TaskOptions, Usage,
};
use flovyn_core::task::{TaskContext, TaskDefinition};
use futures::future::{BoxFuture, Either, FutureExt, select, try_join_all};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static PLACES: AtomicU64 = AtomicU64::new(0);
static KILL_AT: AtomicU64 = AtomicU64::new(0);

/// Dies at the n-th place that is counted from now on.
pub(crate) fn kill_at(place: u64) {
    KILL_AT.store(place, Ordering::Relaxed);
}

fn count() {
    if PLACES.fetch_add(1, Ordering::Relaxed) + 1 == KILL_AT.load(Ordering::Relaxed) {
        // SAFETY: sends a signal to this process, which ends it.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

fn refused(why: impl Into<String>) -> Error {
    Error::new(Code::TaskFailed, why.into()).with("error_type", "Refused")
}

fn retries(retries: u32) -> TaskOptions {
    TaskOptions { retry: RetryPolicy { retries, ..RetryPolicy::default() }, ..TaskOptions::default() }
}

// ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Declares a task: its kind, its options, its argument and what it does.
macro_rules! task {
    ($name:ident, $kind:literal, $options:expr, |$context:ident, $input:ident: $in:ty| -> $out:ty $body:block) => {
        #[doc = concat!("The task `", $kind, "`.")]
        pub(crate) struct $name;

        #[async_trait]
        impl TaskDefinition for $name {
            type Input = $in;
            type Output = $out;

            fn kind(&self) -> &str {
                $kind
            }

            fn options(&self) -> TaskOptions {
                $options
            }

            async fn execute(&self, $context: &TaskContext, $input: $in) -> Result<$out> $body
        }
    };
}

task!(Double, "double", TaskOptions::default(), |_context, x: i64| -> i64 {
    count();
    Ok(x * 2)
});
task!(Echo, "echo", TaskOptions::default(), |_context, value: Value| -> Value {
    count();
    Ok(value)
});
task!(
    Fails,
    "fails",
    TaskOptions {
        retry: RetryPolicy { no_retry: vec!["Refused".into()], ..RetryPolicy::default() },
        ..TaskOptions::default()
    },
    |_context, why: String| -> () {
        count();
        Err(refused(why))
    }
);
task!(Flaky, "flaky", retries(3), |context, failures: u32| -> u32 {
    match context.attempt() {
        attempt if attempt <= failures => Err(refused(format!("attempt {attempt}"))),
        attempt => Ok(attempt),
    }
});
task!(Hopeless, "hopeless", retries(5), |_context, why: String| -> () { Err(Error::new(Code::NonRetryable, why)) });
task!(
    Slow,
    "slow",
    TaskOptions { timeout: Some(Duration::from_millis(50)), ..TaskOptions::default() },
    |_context, seconds: f64| -> () {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        Ok(())
    }
);
task!(
    Charge,
    "charge",
    TaskOptions { side_effects: SideEffects::AtMostOnce, ..TaskOptions::default() },
    |_context, amount: i64| -> i64 {
        count();
        Ok(amount)
    }
);

/// Tasks over bytes as they are.
pub(crate) struct Bulk;

#[async_trait]
impl flovyn_core::task::TaskExecutor for Bulk {
    fn kinds(&self) -> Vec<String> {
        vec!["fill".into(), "measure".into()]
    }

    async fn execute(&self, _ctx: &TaskContext, kind: &str, input: Payload) -> Result<Payload> {
        match kind {
            "fill" => Ok(Payload::raw(vec![7; input.parse()?])),
            _ => Payload::of(&input.bytes()?.len()),
        }
    }
}

// ── ops ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// What ops have found, by name.
pub(crate) type Found = Map<String, Value>;

fn wrong(op: &Value) -> Error {
    Error::new(Code::InvalidArgument, format!("unknown op {op}"))
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap_or_default())
}

fn value(outcome: Outcome) -> Result<Payload> {
    match outcome {
        Outcome::Value(value) => Ok(value),
        other => Err(Error::new(Code::InvalidArgument, format!("{other:?} has no value"))),
    }
}

fn call(kind: &str, input: Payload) -> TaskCall {
    TaskCall { kind: kind.into(), input, options: None, queue: None, key: None }
}

fn message(role: &Value, content: &Value) -> Result<Message> {
    Ok(Message {
        role: text(role),
        content: Payload::of(content)?,
        entry_type: "message".into(),
        turn_id: None,
        metadata: None,
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn double(ctx: &dyn AgentContext, x: &Value) -> Result<Value> {
    ctx.schedule::<Value>("double", x)?.await
}

async fn doubles(ctx: &dyn AgentContext, values: &Value) -> Result<Value> {
    let steps: Vec<_> = values.as_array().into_iter().flatten().map(|x| ctx.schedule::<Value>("double", x)).collect();
    try_join_all(steps.into_iter().collect::<Result<Vec<_>>>()?).await.map(Value::Array)
}

/// Does one op.
pub(crate) fn step<'a>(ctx: &'a dyn AgentContext, op: &'a Value, found: &'a mut Found) -> BoxFuture<'a, Result<()>> {
    async move {
        count();
        let words = op.as_array().map(Vec::as_slice).unwrap_or_default();
        let [kind, words @ ..] = words else { return Err(wrong(op)) };
        let name = words.last().map(text).unwrap_or_default();
        let answer = match (kind.as_str().unwrap_or_default(), words) {
            ("task", [x, _]) => double(ctx, x).await?,
            ("echo", [value, _]) => ctx.schedule("echo", value)?.await?,
            ("by_kind", [kind, value, _]) => ctx.schedule(&text(kind), value)?.await?,
            ("keyed", [x, key, _]) => {
                let keyed = TaskCall { key: Some(text(key)), ..call("double", Payload::of(x)?) };
                value(ctx.schedule_raw(keyed)?.await?)?.parse()?
            }
            ("formed", [_]) => {
                let (ids, tags) = (BTreeSet::from([10, 9]), BTreeSet::from(["b", "a!", "a"]));
                let value = json!({"at": "2026-01-31T12:00:00.120000Z", "ids": ids, "raw": "+/8=", "tags": tags});
                ctx.schedule("echo", &value)?.await?
            }
            ("bytes", [size, _]) => {
                let content = value(ctx.schedule_raw(call("fill", Payload::of(size)?))?.await?)?;
                value(ctx.schedule_raw(call("measure", content))?.await?)?.parse()?
            }
            ("fails", [why, _]) => match ctx.schedule::<()>("fails", why)?.await {
                Err(error) if error.code() == Code::TaskFailed => json!([error.error_type(), error.fact("reason")]),
                other => return other,
            },
            ("refused", [why]) => return ctx.schedule("fails", why)?.await,
            ("flaky", [failures, _]) => ctx.schedule("flaky", failures)?.await?,
            ("hopeless", [why]) => return ctx.schedule("hopeless", why)?.await,
            ("slow", [seconds]) => return ctx.schedule("slow", seconds)?.await,
            ("charge", [amount, _]) => ctx.schedule("charge", amount)?.await?,
            ("inline", [value, _]) => {
                let value = value.clone();
                ctx.run("inline", async move { Ok(value) })?.await?
            }
            ("all", [values, _]) => doubles(ctx, values).await?,
            ("nested", [rows, _]) => {
                try_join_all(rows.as_array().into_iter().flatten().map(|row| doubles(ctx, row))).await?.into()
            }
            ("first", [x, time, _]) => {
                let (task, timer) = (ctx.schedule_raw(call("double", Payload::of(x)?))?, ctx.sleep(seconds(time))?);
                match select(task, timer).await {
                    Either::Left((ended, _)) => ended.map(|_| json!(0))?,
                    Either::Right((ended, _)) => ended.map(|_| json!(1))?,
                }
            }
            ("leave", [x]) => return ctx.schedule::<Value>("double", x).map(drop),
            ("detached", [x, _]) => {
                let options = TaskOptions { detached: true, ..TaskOptions::default() };
                let step = ctx.schedule_raw(TaskCall { options: Some(options), ..call("double", Payload::of(x)?) })?;
                json!(step.task())
            }
            ("child", [ops, _]) => ctx.spawn_agent("below", ops)?.await?,
            ("named", [id, ops, _]) => ctx.spawn_agent_with("below", ops, with_id(id))?.await?,
            ("begin", [id, ops]) => return ctx.spawn_agent_with::<Found>("below", ops, with_id(id)).map(drop),
            ("message", [word, value]) => return ctx.signal_parent(&text(word), value)?.await,
            ("ask", [word, value, _]) => ctx.request_from_parent(&text(word), value, None)?.await?,
            ("hear", [id, ops, _]) => {
                let child = ctx.spawn_agent_with::<Found>("below", ops, with_id(id))?;
                hear(ctx, child.id()).await?
            }
            ("steer", [id, ops, word, value, _]) => {
                let child = ctx.spawn_agent_with::<Value>("below", ops, with_id(id))?;
                ctx.signal_child(&child, &text(word), value)?.await?;
                child.await?
            }
            ("stop", [id, ops, _]) => {
                let child = ctx.spawn_agent_with::<Found>("below", ops, with_id(id))?;
                ctx.wait_for_child_event(&child, None)?.await?;
                ctx.cancel_child(&child, Cancellation::USUAL)?.await?;
                hear(ctx, child.id()).await?
            }
            ("shared", [mode, ops, _]) => {
                let shared_context = Some(SharedContext::given(&mode.to_string(), "")?);
                let options = ChildOptions { shared_context, ..ChildOptions::default() };
                let child = ctx.spawn_agent_with::<Value>("below", ops, options)?;
                let thread = ctx.thread(&child.id().to_string());
                json!([child.await?, said(&thread.messages().await?)?])
            }
            ("brief", [ops, _]) => {
                let options = ChildOptions { persistence: Persistence::Ephemeral, ..ChildOptions::default() };
                ctx.spawn_agent_with::<Value>("below", ops, options)?.await?
            }
            ("hand_off", [ops]) => {
                let shared_context = Some(SharedContext::read_only());
                let options = ChildOptions { shared_context, ..ChildOptions::default() };
                match ctx.handoff_to_agent("below", ops, options, Completion::WaitForChild).await? {}
            }
            ("hand_off_anew", [ops, completion]) => {
                let completion = Completion::parse(&text(completion))?;
                match ctx.handoff_to_agent("below", ops, ChildOptions::default(), completion).await? {}
            }
            ("attach", [of, _]) => {
                let task = serde_json::from_value(found[&text(of)].clone()).map_err(|_| wrong(op))?;
                value(ctx.attach(task)?.await?)?.parse()?
            }
            ("entry", [role, content]) => return ctx.append_message(message(role, content)?).map(drop),
            ("tell", [name]) => return ctx.append_entry("note", &found[&text(name)]).map(drop),
            ("noted", [role, content, kind, turn, metadata]) => {
                let (entry_type, turn_id, metadata) = (text(kind), Some(text(turn)), Some(metadata.to_string()));
                let noted = Message { entry_type, turn_id, metadata, ..message(role, content)? };
                return ctx.append_message(noted).map(drop);
            }
            ("thread", [thread, role, content]) => {
                return ctx.thread(&text(thread)).append_message(message(role, content)?).map(drop);
            }
            ("said", [_]) => said(&ctx.messages().await?)?,
            ("context", [_]) => json!(ctx.context_ref()),
            ("signal", [word, _]) => ctx.wait_for_signal(&text(word))?.await?,
            ("signal_within", [word, time, _]) => ctx.wait_for_signal_within(&text(word), seconds(time))?.await?,
            ("has", [word, _]) => json!(ctx.has_signal(&text(word))?),
            ("drain", [word, _]) => ctx.drain_signals::<Value>(&text(word))?.into(),
            ("drain_turn", [word, _]) => {
                ctx.drain_raw(&text(word), true)?.iter().map(Payload::parse).collect::<Result<Vec<Value>>>()?.into()
            }
            ("cancelled", [_]) => match ctx.check_cancellation()? {
                true => return Err(Error::new(Code::Cancelled, "the run was asked to stop")),
                false => json!(false),
            },
            ("budget", [_]) => ctx.remaining_budget()?.parse()?,
            ("time", [_]) => {
                let before = ctx.current_time();
                double(ctx, &json!(0)).await?;
                json!(before <= ctx.current_time())
            }
            ("random", [_]) => json!([ctx.random(), ctx.random_uuid(), ctx.random()]),
            ("sleep", [time]) => return ctx.sleep(seconds(time))?.await.map(drop),
            ("within", [time, inner]) => return ctx.timeout(seconds(time), step(ctx, inner, found)).await?,
            ("once", [word, x, _]) => {
                let given = x.clone();
                ctx.once(&text(word), &[x], |once| async move { double(&once, &given).await }).await?
            }
            ("once_said", [word, x, _]) => {
                let given = x.clone();
                let both = |once: flovyn_core::context::Context| async move {
                    once.append_entry("system", &given)?;
                    double(&once, &given).await
                };
                ctx.once(&text(word), &[x], both).await?
            }
            ("usage", [model, before, after]) => {
                let (input_tokens, output_tokens) = (before.as_u64().unwrap_or(0), after.as_u64().unwrap_or(0));
                return ctx.record_usage(&text(model), Usage { input_tokens, output_tokens, ..Usage::default() });
            }
            ("stream", [text]) => {
                ctx.stream_token(text.as_str().unwrap_or_default());
                return Ok(());
            }
            ("flush" | "commit", []) => return ctx.flush()?.await.map(drop),
            ("persist", []) => return ctx.enable_persistence()?.await.map(drop),
            ("step", []) => return ctx.step()?.await.map(drop),
            ("save", [value]) => return ctx.checkpoint(value)?.await.map(drop),
            ("unserialisable", []) => {
                return ctx.schedule("echo", &HashMap::from([(vec![0u8], 0)]))?.await;
            }
            ("input", [_]) => ctx.input()?,
            ("catch", [inner, _]) => match step(ctx, inner, found).await {
                Ok(()) => return Ok(()),
                Err(error) => json!(error.code().as_str()),
            },
            ("finally", [inner, last]) => {
                let ended = step(ctx, inner, found).await;
                step(ctx, last, found).await?;
                return ended;
            }
            ("raise", [why]) => return Err(refused(text(why))),
            _ => return Err(wrong(op)),
        };
        found.insert(name, answer);
        Ok(())
    }
    .boxed()
}

/// A conversation as pairs of role and content.
pub(crate) fn said(entries: &[flovyn_core::model::Entry]) -> Result<Value> {
    let pairs = entries.iter().map(|entry| Ok(json!([entry.new.role, entry.new.content.parse::<Value>()?])));
    pairs.collect::<Result<Vec<_>>>().map(Value::Array)
}

// ── agents ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/// The programs of this process, by name.
pub(crate) type Programs = Arc<HashMap<String, Value>>;

fn ops<'a>(programs: &'a Programs, ctx: &dyn AgentContext) -> &'a [Value] {
    let name = ctx.key().unwrap_or_default();
    let program = programs.get(name.strip_suffix(" (fork)").unwrap_or(name));
    program.and_then(|program| program["ops"].as_array()).map(Vec::as_slice).unwrap_or_default()
}

/// Does one op after the other; what happens to a changed program is in its name.
pub(crate) struct Linear {
    /// Its kind.
    pub kind: &'static str,
    /// What to do where the code no longer matches.
    pub on_divergence: OnDivergence,
    /// Which code it is.
    pub version: String,
    /// What it does, by the run's name.
    pub programs: Programs,
}

#[async_trait]
impl AgentDefinition for Linear {
    type State = ();
    type Input = Value;
    type Output = Found;

    fn kind(&self) -> &str {
        self.kind
    }

    fn version(&self) -> Option<String> {
        Some(self.version.clone())
    }

    fn on_divergence(&self) -> OnDivergence {
        self.on_divergence
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Found> {
        let mut found = Found::new();
        for op in ops(&self.programs, ctx) {
            step(ctx, op, &mut found).await?;
        }
        Ok(found)
    }
}

fn with_id(id: &Value) -> ChildOptions {
    ChildOptions { id: Some(text(id).into()), ..ChildOptions::default() }
}

/// Hears a child to its end, and answers what it asks.
async fn hear(ctx: &dyn AgentContext, child: ExecutionId) -> Result<Value> {
    let mut heard = Vec::new();
    loop {
        heard.push(match ctx.wait_for_child_event(child, None)?.await? {
            ChildEvent::Signal { name, payload } => json!(["signal", name, payload.parse::<Value>()?]),
            ChildEvent::Request { name, payload, request } => {
                let asked = payload.parse::<Value>()?;
                ctx.respond(&request, &json!(["re", asked]))?.await?;
                json!(["request", name, asked])
            }
            ChildEvent::Completed { output } => json!(["completed", output.parse::<Value>()?]),
            ChildEvent::Failed { error } => json!(["failed", error.message]),
            ChildEvent::Cancelled { output } => {
                json!(["cancelled", output.map(|kept| kept.parse::<Value>()).transpose()?])
            }
            other => return Err(Error::new(Code::InvalidArgument, format!("unknown event {other:?}"))),
        });
        if heard.last().is_some_and(|last| last.as_array().is_some_and(|words| words.len() == 2)) {
            return Ok(heard.into());
        }
    }
}

/// The child of others: its ops are its input.
pub(crate) struct Below;

#[async_trait]
impl AgentDefinition for Below {
    type State = ();
    type Input = Vec<Value>;
    type Output = Found;

    fn kind(&self) -> &str {
        "below"
    }

    fn version(&self) -> Option<String> {
        Some("1".into())
    }

    async fn execute(&self, ctx: &dyn AgentContext, ops: Vec<Value>) -> Result<Found> {
        let mut found = Found::new();
        for op in &ops {
            step(ctx, op, &mut found).await?;
        }
        Ok(found)
    }
}

/// Does one op a segment.
pub(crate) struct Looping {
    /// Whether it does something before its loop, which it must not.
    pub hasty: bool,
    /// Which code it is.
    pub version: String,
    /// What it does, by the run's name.
    pub programs: Programs,
}

/// Any object as the state: what an agent with an open form of state declares.
#[derive(Default, Clone, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct State(Found);

impl flovyn_core::agent::AgentState for State {}

#[async_trait]
impl AgentDefinition for Looping {
    type State = State;
    type Input = Value;
    type Output = Value;

    fn kind(&self) -> &str {
        if self.hasty { "hasty" } else { "looping" }
    }

    fn version(&self) -> Option<String> {
        Some(self.version.clone())
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: Value) -> Result<Value> {
        if self.hasty {
            ctx.schedule::<Value>("echo", "early")?.await?;
        }
        let ops = ops(&self.programs, ctx);
        let State(mut state) = ctx.state()?;
        loop {
            let at = state.get("at").and_then(Value::as_u64).unwrap_or(0);
            let mut found = state.get("found").and_then(Value::as_object).cloned().unwrap_or_default();
            let Some(op) = usize::try_from(at).ok().and_then(|at| ops.get(at)) else { return Ok(found.into()) };
            step(ctx, op, &mut found).await?;
            state = Found::from_iter([("at".into(), json!(at + 1)), ("found".into(), found.into())]);
            ctx.checkpoint(&state)?.await?;
        }
    }
}
