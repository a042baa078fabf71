//! One activation of an agent, as its context in JavaScript sees it.
//!
//! Every method is one quick call into the engine. Those that may give the host something to do return it, so that a
//! step needs no turn of the loop for what happened on the loop's own thread.

use crate::error::{invalid, thrown};
use crate::hub::{Abort, Hub, Reply};
use crate::task::TaskSpec;
use crate::value::{Given, Perhaps, Shown, asked, duration, payload, shown};
use flovyn_core::error::Code;
use flovyn_core::host::quietly;
use flovyn_core::id::TaskId;
use flovyn_core::journal::{Answer, Call, Called, Ending, OnceBegin, OpRef, Outcome, Outside, Question};
use flovyn_core::model::{AttemptResult, ChunkKind, Entry, Failure, Usage};
use flovyn_core::payload::Payload;
use flovyn_core::session::{Closed, HostEffect, Session as Core};
use napi::Env;
use napi::bindgen_prelude::{Array, BufferSlice, ClassInstance, Either};
use napi_derive::napi;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

type Once = Option<String>;

/// Names that are remembered, so that the engine shares them.
const NAMES: usize = 1_000;

/// An entry on its way into the conversation.
#[napi(object)]
pub struct EntryDraft {
    pub role: String,
    pub entry_type: String,
    pub turn_id: Option<String>,
    /// JSON text.
    pub metadata: Option<String>,
    pub thread: String,
}

/// What a model call cost.
#[napi(object)]
pub struct UsageDraft {
    pub input_tokens: f64,
    pub output_tokens: f64,
    pub cache_read_tokens: f64,
    pub cache_write_tokens: f64,
    pub cost_micros: Option<f64>,
}

/// How something failed.
#[napi(object)]
pub struct FailureDraft {
    pub code: String,
    pub error_type: String,
    pub message: String,
    pub traceback: Option<String>,
}

impl FailureDraft {
    pub(crate) fn into_failure(self, otherwise: Code) -> Failure {
        let code = Code::parse(&self.code).unwrap_or(otherwise);
        let mut failure = Failure::new(code, self.error_type, self.message);
        failure.traceback = self.traceback;
        failure
    }
}

/// One activation of an agent.
#[napi]
pub struct Session {
    core: Arc<Core>,
    threads: tokio::runtime::Handle,
    names: Mutex<HashMap<String, Arc<str>>>,
}

impl Session {
    pub(crate) fn of(core: Arc<Core>, threads: tokio::runtime::Handle) -> Self {
        Self { core, threads, names: Mutex::default() }
    }

    fn name(&self, name: &str) -> Arc<str> {
        let mut names = self.names.lock();
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        if names.len() < NAMES {
            names.insert(name.to_owned(), shared.clone());
        }
        shared
    }

    fn call(&self, call: Call, once: Once) -> napi::Result<Called> {
        let once = once.map(|name| self.name(&name));
        self.core.call(call, once.as_ref()).map_err(thrown)
    }

    fn ask(&self, question: Question, once: Once) -> napi::Result<Answer> {
        let once = once.map(|name| self.name(&name));
        self.core.read(question, once.as_ref()).map_err(thrown)
    }

    /// Does something after which the effects are taken at once.
    fn acting<'env>(&self, env: &'env Env, act: impl FnOnce(&Core)) -> napi::Result<Perhaps<Array<'env>>> {
        quietly(&self.core, |core| act(core));
        effects(env, &self.core)
    }
}

#[napi]
impl Session {
    #[napi(getter)]
    pub fn execution_id(&self) -> String {
        self.core.execution_id().to_string()
    }

    #[napi(getter)]
    pub fn org_id(&self) -> String {
        self.core.org().to_string()
    }

    #[napi(getter)]
    pub fn key(&self) -> Option<String> {
        self.core.execution().new.key.clone()
    }

    /// Ends with input and state, as `[input]` or `[input, state]`, fetched where they are not in memory.
    #[napi]
    pub fn load(&self, hub: &Hub, token: u32) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            let mut values = vec![core.load(&core.execution().new.input).await?];
            if let Some(state) = core.state() {
                values.push(core.load(state).await?);
            }
            Ok(Reply::Values(values))
        })
    }

    // ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Gives the op and the task's UUID.
    #[napi]
    pub fn call_task(
        &self,
        spec: ClassInstance<'_, TaskSpec>,
        input: Given<'_>,
        key: Option<String>,
        once: Once,
    ) -> napi::Result<(u32, String)> {
        let called = self.call(spec.call(payload(input), key.map(Into::into)), once)?;
        Ok((called.op.0, called.task.unwrap_or_default().to_string()))
    }

    /// Gives the entry's UUID.
    #[napi]
    pub fn call_entry(&self, draft: EntryDraft, content: Given<'_>, once: Once) -> napi::Result<String> {
        let EntryDraft { role, entry_type, turn_id, metadata, thread } = draft;
        let content = payload(content);
        let entry = Call::Entry { role, entry_type, content, turn_id, metadata, thread };
        Ok(self.call(entry, once)?.entry.unwrap_or_default().to_string())
    }

    #[napi]
    pub fn call_signal(&self, name: String, timeout_ms: Option<f64>, once: Once) -> napi::Result<u32> {
        let timeout = timeout_ms.map(duration).transpose()?;
        Ok(self.call(Call::Signal { name: self.name(&name), timeout }, once)?.op.0)
    }

    #[napi]
    pub fn call_timer(&self, ms: f64, once: Once) -> napi::Result<u32> {
        Ok(self.call(Call::Timer { duration: duration(ms)? }, once)?.op.0)
    }

    #[napi]
    pub fn call_attach(&self, task: String, once: Once) -> napi::Result<u32> {
        let task: TaskId = task.parse().map_err(|_| {
            invalid(format!("{task:?} is no task ref; pass what `step.ref` gave when the task was scheduled"))
        })?;
        Ok(self.call(Call::Attach { task }, once)?.op.0)
    }

    #[napi]
    pub fn call_usage(&self, model: String, usage: UsageDraft, once: Once) -> napi::Result<()> {
        let usage = Usage {
            calls: 1,
            input_tokens: usage.input_tokens as u64,
            output_tokens: usage.output_tokens as u64,
            cache_read_tokens: usage.cache_read_tokens as u64,
            cache_write_tokens: usage.cache_write_tokens as u64,
            cost_micros: usage.cost_micros.map(|micros| micros as u64),
        };
        self.call(Call::Usage { model, usage }, once).map(|_| ())
    }

    #[napi]
    pub fn call_step(&self, once: Once) -> napi::Result<u32> {
        Ok(self.call(Call::StepMark, once)?.op.0)
    }

    #[napi]
    pub fn call_flush(&self, once: Once) -> napi::Result<u32> {
        Ok(self.call(Call::Flush, once)?.op.0)
    }

    /// `[0, value]`: it happened; `[1, op]`: await this op; `[2, null]`: run it.
    #[napi]
    pub fn once_begin<'env>(&self, env: &'env Env, name: String, input: Given<'_>) -> napi::Result<Array<'env>> {
        let digest = payload(input).digest().map_err(thrown)?;
        let mut answer = env.create_array(2)?;
        match self.core.once_begin(&self.name(&name), digest).map_err(thrown)? {
            OnceBegin::Done(value) => {
                answer.set(0, 0u32)?;
                answer.set(1, Shown(value))?;
            }
            OnceBegin::Recorded(op) => {
                answer.set(0, 1u32)?;
                answer.set(1, op.0)?;
            }
            OnceBegin::Run => answer.set(0, 2u32)?,
        }
        Ok(answer)
    }

    #[napi]
    pub fn once_end(&self, name: String, input: Given<'_>, value: Given<'_>) -> napi::Result<u32> {
        let digest = payload(input).digest().map_err(thrown)?;
        Ok(self.core.once_end(&self.name(&name), digest, payload(value)).map_err(thrown)?.0)
    }

    /// `metadata` is JSON text.
    #[napi]
    pub fn checkpoint(&self, state: Given<'_>, metadata: String) -> napi::Result<u32> {
        self.core.checkpoint(payload(state), metadata).map_err(thrown)?;
        Ok(OpRef::CHECKPOINT.0)
    }

    // ── reads ───────────────────────────────────────────────────────────────────────────────────────────────────

    #[napi]
    pub fn has_signal(&self, name: String, once: Once) -> napi::Result<bool> {
        Ok(is_yes(&self.ask(Question::HasSignal(self.name(&name)), once)?))
    }

    /// The values, also where they are to be loaded: code that waited for them would go on later on replay than it did.
    #[napi]
    pub fn drain_signals(&self, name: String, turn: bool, once: Once) -> napi::Result<Vec<Shown>> {
        let Answer::Signals(values) = self.ask(Question::Drain { name: self.name(&name), turn }, once)? else {
            return Ok(Vec::new());
        };
        let load = |value: &Payload| self.threads.block_on(self.core.load(value)).map(Shown);
        values.iter().map(load).collect::<Result<_, _>>().map_err(thrown)
    }

    #[napi]
    pub fn check_cancellation(&self, once: Once) -> napi::Result<bool> {
        Ok(is_yes(&self.ask(Question::Cancellation, once)?))
    }

    /// JSON text, or nothing where there is no budget.
    #[napi(ts_return_type = "string | null")]
    pub fn remaining_budget(&self, once: Once) -> napi::Result<Perhaps<Shown>> {
        Ok(match self.ask(Question::Budget, once)? {
            Answer::Value(value) => Perhaps(Some(Shown(value))),
            _ => Perhaps(None),
        })
    }

    #[napi(getter)]
    pub fn is_cancel_requested(&self) -> bool {
        self.core.is_cancel_requested()
    }

    /// Milliseconds since 1970 by the run's own clock.
    #[napi]
    pub fn time(&self) -> f64 {
        self.core.time().0 as f64 / 1e3
    }

    /// A number from 0 to 1 that is the same on replay.
    #[napi]
    pub fn random_number(&self) -> f64 {
        self.core.random_number()
    }

    /// Sixteen bytes that are the same on replay.
    #[napi]
    pub fn random<'env>(&self, env: &'env Env) -> napi::Result<BufferSlice<'env>> {
        BufferSlice::copy_from(env, self.core.random())
    }

    #[napi]
    pub fn open_thread(&self, thread: String) {
        self.core.open_thread(&thread);
    }

    #[napi]
    pub fn leaf(&self, thread: String) -> Option<String> {
        self.core.leaf(&thread).map(|leaf| leaf.to_string())
    }

    /// Ends with the branch of a thread.
    #[napi]
    pub fn branch(&self, hub: &Hub, token: u32, thread: String) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move { Ok(Reply::Messages(core.branch(&thread).await?)) })
    }

    /// Reads the branch of a thread here and now.
    #[napi]
    pub fn branch_now<'env>(&self, env: &'env Env, thread: String) -> napi::Result<Array<'env>> {
        let entries = self.threads.block_on(self.core.branch(&thread)).map_err(thrown)?;
        messages(env, &entries)
    }

    #[napi]
    pub fn task_progress(&self, op: u32, attempt: u32, fraction: f64, message: String) {
        self.core.task_progress(OpRef(op), attempt, fraction, &message);
    }

    /// `kind` is 0 for a token, 1 for data, 2 for an error; `data` is text for a token, else JSON text.
    #[napi]
    pub fn stream(&self, kind: u32, data: String, op: Option<u32>, attempt: Option<u32>) {
        self.core.stream(chunk(kind), data.into(), op.map(|op| (OpRef(op), attempt.unwrap_or(0))));
    }

    // ── awaits and ends ─────────────────────────────────────────────────────────────────────────────────────────

    #[napi]
    pub fn await_op(&self, op: u32) -> napi::Result<()> {
        self.core.await_op(OpRef(op)).map_err(thrown)
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn abandon<'env>(&self, env: &'env Env, op: u32) -> napi::Result<Perhaps<Array<'env>>> {
        self.acting(env, |core| core.abandon(OpRef(op)))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn settle<'env>(&self, env: &'env Env, concurrent: bool, outside: u32) -> napi::Result<Perhaps<Array<'env>>> {
        let outside = match outside {
            0 => Outside::Nothing,
            1 => Outside::Unknown,
            _ => Outside::Something,
        };
        self.acting(env, |core| core.settle(concurrent, Some(outside)))
    }

    /// What waits for the host.
    #[napi(ts_return_type = "unknown[] | null")]
    pub fn take_effects<'env>(&self, env: &'env Env) -> napi::Result<Perhaps<Array<'env>>> {
        effects(env, &self.core)
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn completed<'env>(&self, env: &'env Env, output: Given<'_>) -> napi::Result<Perhaps<Array<'env>>> {
        let output = payload(output);
        self.acting(env, |core| core.finish(Ending::Completed(output)))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn failed<'env>(
        &self,
        env: &'env Env,
        failure: FailureDraft,
        unfit: bool,
    ) -> napi::Result<Perhaps<Array<'env>>> {
        let failure = failure.into_failure(Code::AgentFailed);
        self.acting(env, |core| core.finish(if unfit { Ending::Unfit(failure) } else { Ending::Failed(failure) }))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn cancelled<'env>(&self, env: &'env Env) -> napi::Result<Perhaps<Array<'env>>> {
        self.acting(env, |core| core.finish(Ending::Cancelled))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn task_completed<'env>(
        &self,
        env: &'env Env,
        op: u32,
        attempt: u32,
        output: Given<'_>,
    ) -> napi::Result<Perhaps<Array<'env>>> {
        let output = payload(output);
        self.acting(env, |core| core.task_ended(OpRef(op), attempt, AttemptResult::Completed(output)))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn task_failed<'env>(
        &self,
        env: &'env Env,
        op: u32,
        attempt: u32,
        failure: FailureDraft,
        retryable: bool,
        pause_ms: Option<f64>,
    ) -> napi::Result<Perhaps<Array<'env>>> {
        let failure = failure.into_failure(Code::TaskFailed);
        let result = AttemptResult::Failed { failure, retryable, pause: pause_ms.and_then(asked) };
        self.acting(env, |core| core.task_ended(OpRef(op), attempt, result))
    }

    #[napi]
    pub fn task_heartbeat(&self, op: u32) {
        self.core.task_heartbeat(OpRef(op));
    }
}

fn is_yes(answer: &Answer) -> bool {
    matches!(answer, Answer::Flag(true))
}

/// The kind of a preview by its number.
pub(crate) fn chunk(kind: u32) -> ChunkKind {
    match kind {
        0 => ChunkKind::Token,
        1 => ChunkKind::Data,
        _ => ChunkKind::Error,
    }
}

/// What the host must do: four places for each effect, the first of which is its number. Nothing where there is none.
fn effects<'env>(env: &'env Env, core: &Core) -> napi::Result<Perhaps<Array<'env>>> {
    let waiting = core.take_effects();
    if waiting.is_empty() {
        return Ok(Perhaps(None));
    }
    let mut list = env.create_array(0)?;
    for effect in waiting {
        match effect {
            HostEffect::Deliver(handed) => {
                for one in handed {
                    list.insert(0u32)?;
                    list.insert(one.op.0)?;
                    deliver(env, &mut list, one.outcome)?;
                }
            }
            HostEffect::Start(start) => {
                list.insert(1u32)?;
                list.insert(start.op.0)?;
                list.insert(start.attempt)?;
                list.insert(start.task.to_string())?;
            }
            HostEffect::CancelTask(op) => {
                list.insert(2u32)?;
                list.insert(op.0)?;
                list.insert(())?;
                list.insert(())?;
            }
            HostEffect::Ask => {
                list.insert(4u32)?;
                list.insert(0u32)?;
                list.insert(())?;
                list.insert(())?;
            }
            HostEffect::Warn(what) => {
                list.insert(5u32)?;
                list.insert(0u32)?;
                list.insert(what)?;
                list.insert(())?;
            }
            HostEffect::Close(closed) => {
                let (why, what) = match closed {
                    Closed::Finished(status) => ("finished", status.as_str().to_owned()),
                    Closed::Evicted => ("evicted", String::new()),
                    Closed::Lost(error) => ("lost", error.to_string()),
                };
                list.insert(3u32)?;
                list.insert(0u32)?;
                list.insert(why)?;
                list.insert(what)?;
            }
        }
    }
    Ok(Perhaps(Some(list)))
}

/// Number and value of an outcome. 0: a value, 1: a failure as JSON text, 2: out of time, 3: the run was asked to stop, 4: a
/// value that cannot be shown, with the error as JSON text.
fn deliver(env: &Env, list: &mut Array<'_>, outcome: Outcome) -> napi::Result<()> {
    let (tag, value) = match outcome {
        Outcome::Value(value) | Outcome::Signal(value) => match shown(env, Shown(value))? {
            Ok(value) => (0u32, Either::A(Perhaps(Some(value)))),
            Err(text) => (4, Either::B(text)),
        },
        Outcome::Fired | Outcome::Done => (0, Either::A(Perhaps(None))),
        Outcome::Failed(failure) => (1, Either::B(told(&failure))),
        Outcome::TimedOut => (2, Either::A(Perhaps(None))),
        Outcome::Cancelled => (3, Either::A(Perhaps(None))),
    };
    list.insert(tag)?;
    match value {
        Either::A(value) => list.insert(value),
        Either::B(text) => list.insert(text),
    }
}

/// A failure as JSON text.
pub(crate) fn told(failure: &Failure) -> String {
    serde_json::to_string(failure).unwrap_or_default()
}

/// Entries as arrays `[id, parent, role, entryType, content, turnId, metadata, ms]`; metadata is JSON text.
pub(crate) fn messages<'env>(env: &'env Env, entries: &[Entry]) -> napi::Result<Array<'env>> {
    let mut list = env.create_array(0)?;
    for entry in entries {
        let mut parts = env.create_array(8)?;
        parts.set(0, entry.new.id.to_string())?;
        parts.set(1, entry.new.parent.map(|parent| parent.to_string()))?;
        parts.set(2, &*entry.new.role)?;
        parts.set(3, &*entry.new.entry_type)?;
        parts.set(4, Shown(entry.new.content.clone()))?;
        parts.set(5, entry.new.turn_id.clone())?;
        parts.set(6, entry.new.metadata.clone())?;
        parts.set(7, entry.created_at.0 as f64 / 1e3)?;
        list.insert(parts)?;
    }
    Ok(list)
}
