//! One activation of an agent, as its context in JavaScript sees it.
//!
//! Every method is one quick call into the engine. Those that may give the host something to do return it, so that a
//! step needs no turn of the loop for what happened on the loop's own thread.

use crate::error::thrown;
use crate::family::event_parts;
use crate::hub::{Abort, Hub, Reply};
use crate::task::TaskSpec;
use crate::value::{OrNull, Wire, WireOut, duration, payload, to_js};
use flovyn_core::error::Code;
use flovyn_core::host::{EffectCode, HostSession, Language, OnceCode, OutcomeCode, closed, failure};
use flovyn_core::journal::{Call, ChildCall, ChildOptions, Completion, Ending, OnceBegin, OpRef, Outcome};
use flovyn_core::model::{AttemptResult, Entry, Failure, OnParentEnd, Persistence, SharedContext, StartLimits, Usage};
use flovyn_core::session::{HostEffect, Session as Core};
use napi::Env;
use napi::bindgen_prelude::{Array, BufferSlice, ClassInstance, Either};
use napi_derive::napi;
use std::collections::HashMap;
use std::sync::Arc;

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

/// How a child is to be started.
#[napi(object)]
pub struct ChildSettings {
    pub id: Option<String>,
    pub key: Option<String>,
    pub queue: Option<String>,
    pub max_steps: Option<u32>,
    pub timeout_ms: Option<f64>,
    pub start_timeout_ms: Option<f64>,
    pub priority: Option<i32>,
    pub metadata: Option<HashMap<String, String>>,
    /// JSON text.
    pub budget: Option<String>,
    pub on_parent_end: Option<String>,
    /// JSON text.
    pub shared_context: Option<String>,
    pub persistence: Option<String>,
    /// The thread that makes the call.
    pub thread: Option<String>,
    /// When the run ends that is given to it, if it is.
    pub hand_off: Option<String>,
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
        failure(&self.code, &self.error_type, &self.message, self.traceback, otherwise)
    }
}

/// One activation of an agent.
#[napi]
pub struct Session(pub(crate) HostSession);

impl Session {
    pub(crate) fn of(core: Arc<Core>, threads: tokio::runtime::Handle) -> Self {
        Self(HostSession::new(core, threads))
    }

    /// Does something after which the effects are taken at once.
    fn acting<'env>(&self, env: &'env Env, act: impl FnOnce(&Core)) -> napi::Result<OrNull<Array<'env>>> {
        self.0.acting(act);
        effects(env, self.0.core())
    }
}

#[napi]
impl Session {
    #[napi(getter)]
    pub fn execution_id(&self) -> String {
        self.0.core().execution_id().to_string()
    }

    #[napi(getter)]
    pub fn org_id(&self) -> String {
        self.0.core().org().to_string()
    }

    #[napi(getter)]
    pub fn key(&self) -> Option<String> {
        self.0.core().execution().new.key.clone()
    }

    /// JSON of what the parent gave of its conversation.
    #[napi(getter)]
    pub fn shared_context(&self) -> Option<String> {
        self.0.core().execution().new.shared_context.as_ref().map(|shared| shared.json().to_owned())
    }

    /// Ends with input and state, as `[input]` or `[input, state]`, fetched where they are not in memory.
    #[napi]
    pub fn load(&self, hub: &Hub, token: u32) -> Abort {
        let core = self.0.core().clone();
        hub.inbox.spawn(self.0.threads(), token, async move {
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
        input: Wire<'_>,
        key: Option<String>,
        once: Option<String>,
    ) -> napi::Result<(u32, String)> {
        let called = self.0.task(&spec.0, payload(input), key.as_deref(), once.as_deref()).map_err(thrown)?;
        Ok((called.op.0, called.task.unwrap_or_default().to_string()))
    }

    /// Gives the entry's UUID.
    #[napi]
    pub fn call_entry(&self, draft: EntryDraft, content: Wire<'_>, once: Option<String>) -> napi::Result<String> {
        let EntryDraft { role, entry_type, turn_id, metadata, thread } = draft;
        let content = payload(content);
        let entry = Call::Entry { role, entry_type, content, turn_id, metadata, thread };
        Ok(self.0.call(entry, once.as_deref()).map_err(thrown)?.entry.unwrap_or_default().to_string())
    }

    #[napi]
    pub fn call_signal(&self, name: String, timeout_ms: Option<f64>, once: Option<String>) -> napi::Result<u32> {
        let timeout = timeout_ms.map(duration).transpose()?;
        Ok(self.0.signal(&name, timeout, once.as_deref()).map_err(thrown)?.0)
    }

    #[napi]
    pub fn call_timer(&self, ms: f64, once: Option<String>) -> napi::Result<u32> {
        let timer = Call::Timer { duration: duration(ms)? };
        Ok(self.0.call(timer, once.as_deref()).map_err(thrown)?.op.0)
    }

    /// Starts a child: gives its op and its id.
    #[napi]
    pub fn call_child(
        &self,
        kind: String,
        input: Wire<'_>,
        settings: ChildSettings,
        once: Option<String>,
    ) -> napi::Result<(u32, String)> {
        let thread = settings.thread.as_deref().unwrap_or_default();
        let shared = settings.shared_context.as_deref().map(|json| SharedContext::given(json, thread));
        let hand_off = settings.hand_off.as_deref().map(Completion::parse).transpose().map_err(thrown)?;
        let persistence = settings.persistence.as_deref().map(Persistence::parse).transpose();
        let start_timeout = settings.start_timeout_ms.map(duration).transpose()?;
        let ChildSettings { id, key, queue, max_steps, timeout_ms, priority, metadata, budget, on_parent_end, .. } =
            settings;
        let then = on_parent_end.as_deref().map(OnParentEnd::parse).transpose().map_err(thrown)?;
        let timeout = timeout_ms.map(duration).transpose()?;
        let options = ChildOptions {
            id: id.map(Into::into),
            key: key.map(Into::into),
            queue,
            limits: StartLimits { max_steps, timeout, start_timeout, budget, ..StartLimits::default() },
            on_parent_end: then.unwrap_or_default(),
            priority: priority.unwrap_or_default(),
            metadata: metadata.unwrap_or_default().into_iter().collect(),
            shared_context: shared.transpose().map_err(thrown)?,
            persistence: persistence.map_err(thrown)?.unwrap_or_default(),
        };
        let call = ChildCall { kind: kind.into(), input: payload(input), options, hand_off };
        let called = self.0.call(Call::Child(Box::new(call)), once.as_deref()).map_err(thrown)?;
        Ok((called.op.0, called.child.unwrap_or_default().to_string()))
    }

    #[napi]
    pub fn call_attach(&self, task: String, once: Option<String>) -> napi::Result<u32> {
        Ok(self.0.attach(&task, once.as_deref()).map_err(thrown)?.0.0)
    }

    #[napi]
    pub fn call_usage(&self, model: String, usage: UsageDraft, once: Option<String>) -> napi::Result<()> {
        let usage = Usage {
            calls: 1,
            input_tokens: usage.input_tokens as u64,
            output_tokens: usage.output_tokens as u64,
            cache_read_tokens: usage.cache_read_tokens as u64,
            cache_write_tokens: usage.cache_write_tokens as u64,
            cost_micros: usage.cost_micros.map(|micros| micros as u64),
        };
        self.0.call(Call::Usage { model, usage }, once.as_deref()).map(|_| ()).map_err(thrown)
    }

    #[napi]
    pub fn call_step(&self, once: Option<String>) -> napi::Result<u32> {
        Ok(self.0.call(Call::StepMark, once.as_deref()).map_err(thrown)?.op.0)
    }

    #[napi]
    pub fn call_flush(&self, once: Option<String>) -> napi::Result<u32> {
        Ok(self.0.call(Call::Flush, once.as_deref()).map_err(thrown)?.op.0)
    }

    #[napi]
    pub fn call_persist(&self, once: Option<String>) -> napi::Result<u32> {
        Ok(self.0.persist(once.as_deref()).map_err(thrown)?.0)
    }

    /// A `OnceCode` with the value that it has, or with the op to await.
    #[napi(ts_return_type = "[how: number, value: unknown]")]
    pub fn once_begin<'env>(&self, env: &'env Env, name: String, input: Wire<'_>) -> napi::Result<Array<'env>> {
        let begun = self.0.once_begin(&name, &payload(input)).map_err(thrown)?;
        let mut answer = env.create_array(2)?;
        answer.set(0, OnceCode::of(&begun).number())?;
        match begun {
            OnceBegin::Done(value) => answer.set(1, WireOut(value))?,
            OnceBegin::Recorded(op) => answer.set(1, op.0)?,
            OnceBegin::Run => {}
        }
        Ok(answer)
    }

    #[napi]
    pub fn once_end(&self, name: String, input: Wire<'_>, value: Wire<'_>) -> napi::Result<u32> {
        Ok(self.0.once_end(&name, &payload(input), payload(value)).map_err(thrown)?.0)
    }

    /// `metadata` is JSON text.
    #[napi]
    pub fn checkpoint(&self, state: Wire<'_>, metadata: String) -> napi::Result<u32> {
        Ok(self.0.checkpoint(payload(state), metadata).map_err(thrown)?.0)
    }

    // ── reads ───────────────────────────────────────────────────────────────────────────────────────────────────

    #[napi]
    pub fn has_signal(&self, name: String, once: Option<String>) -> napi::Result<bool> {
        self.0.has_signal(&name, once.as_deref()).map_err(thrown)
    }

    /// The values, also where they are to be loaded: code that waited for them would go on later on replay than it did.
    #[napi]
    pub fn drain_signals(&self, name: String, turn: bool, once: Option<String>) -> napi::Result<Vec<WireOut>> {
        let values = self.0.drain_signals(&name, turn, once.as_deref()).map_err(thrown)?;
        Ok(values.into_iter().map(WireOut).collect())
    }

    #[napi]
    pub fn check_cancellation(&self, once: Option<String>) -> napi::Result<bool> {
        self.0.check_cancellation(once.as_deref()).map_err(thrown)
    }

    /// What is left of the budget, or nothing where there is none.
    #[napi]
    pub fn remaining_budget(&self, once: Option<String>) -> napi::Result<OrNull<WireOut>> {
        Ok(OrNull(self.0.remaining_budget(once.as_deref()).map_err(thrown)?.map(WireOut)))
    }

    #[napi(getter)]
    pub fn is_cancel_requested(&self) -> bool {
        self.0.core().is_cancel_requested()
    }

    /// Milliseconds since 1970 by the run's own clock.
    #[napi]
    pub fn time(&self) -> f64 {
        self.0.core().time().0 as f64 / 1e3
    }

    /// A number from 0 to 1 that is the same on replay.
    #[napi]
    pub fn random_number(&self) -> napi::Result<f64> {
        self.0.random_number().map_err(thrown)
    }

    /// Sixteen bytes that are the same on replay.
    #[napi]
    pub fn random<'env>(&self, env: &'env Env) -> napi::Result<BufferSlice<'env>> {
        BufferSlice::copy_from(env, self.0.random().map_err(thrown)?)
    }

    #[napi]
    pub fn open_thread(&self, thread: String) {
        self.0.core().open_thread(&thread);
    }

    #[napi]
    pub fn leaf(&self, thread: String) -> Option<String> {
        self.0.core().leaf(&thread).map(|leaf| leaf.to_string())
    }

    /// Ends with the branch of a thread.
    #[napi]
    pub fn branch(&self, hub: &Hub, token: u32, thread: String) -> Abort {
        let core = self.0.core().clone();
        hub.inbox.spawn(self.0.threads(), token, async move { Ok(Reply::Messages(core.branch(&thread).await?)) })
    }

    /// Reads the branch of a thread here and now.
    #[napi(ts_return_type = "unknown[][]")]
    pub fn branch_now<'env>(&self, env: &'env Env, thread: String) -> napi::Result<Array<'env>> {
        let entries = self.0.branch_now(&thread).map_err(thrown)?;
        messages(env, &entries)
    }

    #[napi]
    pub fn task_progress(&self, op: u32, attempt: u32, fraction: f64, message: String) {
        self.0.core().task_progress(OpRef(op), attempt, fraction, &message);
    }

    /// `kind` is a `PreviewCode`; `data` is text for a token, else JSON text.
    #[napi]
    pub fn stream(&self, kind: u32, data: String, op: Option<u32>, attempt: Option<u32>) {
        self.0.stream(kind, data.into(), op.map(|op| (op, attempt.unwrap_or(0))));
    }

    // ── awaits and ends ─────────────────────────────────────────────────────────────────────────────────────────

    #[napi]
    pub fn await_op(&self, op: u32) -> napi::Result<()> {
        self.0.await_op(op).map_err(thrown)
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn abandon<'env>(&self, env: &'env Env, op: u32) -> napi::Result<OrNull<Array<'env>>> {
        self.acting(env, |core| core.abandon(OpRef(op)))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn settle<'env>(&self, env: &'env Env, concurrent: bool, outside: u32) -> napi::Result<OrNull<Array<'env>>> {
        self.0.settle(concurrent, Some(outside));
        effects(env, self.0.core())
    }

    /// What waits for the host.
    #[napi(ts_return_type = "unknown[] | null")]
    pub fn take_effects<'env>(&self, env: &'env Env) -> napi::Result<OrNull<Array<'env>>> {
        effects(env, self.0.core())
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn completed<'env>(&self, env: &'env Env, output: Wire<'_>) -> napi::Result<OrNull<Array<'env>>> {
        let output = payload(output);
        self.acting(env, |core| core.finish(Ending::Completed(output)))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn failed<'env>(
        &self,
        env: &'env Env,
        failure: FailureDraft,
        unfit: bool,
    ) -> napi::Result<OrNull<Array<'env>>> {
        let failure = failure.into_failure(Code::AgentFailed);
        self.acting(env, |core| core.finish(if unfit { Ending::Unfit(failure) } else { Ending::Failed(failure) }))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn cancelled<'env>(&self, env: &'env Env) -> napi::Result<OrNull<Array<'env>>> {
        self.acting(env, |core| core.finish(Ending::Cancelled))
    }

    #[napi(ts_return_type = "unknown[] | null")]
    pub fn task_completed<'env>(
        &self,
        env: &'env Env,
        op: u32,
        attempt: u32,
        output: Wire<'_>,
    ) -> napi::Result<OrNull<Array<'env>>> {
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
    ) -> napi::Result<OrNull<Array<'env>>> {
        let failure = failure.into_failure(Code::TaskFailed);
        let result = AttemptResult::Failed { failure, retryable, pause: Language::TypeScript.pause(pause_ms) };
        self.acting(env, |core| core.task_ended(OpRef(op), attempt, result))
    }

    #[napi]
    pub fn task_heartbeat(&self, op: u32) {
        self.0.core().task_heartbeat(OpRef(op));
    }
}

/// What the host must do: four places for each effect, the first of which is its `EffectCode`. Nothing where there is none.
fn effects<'env>(env: &'env Env, core: &Core) -> napi::Result<OrNull<Array<'env>>> {
    let waiting = core.take_effects();
    if waiting.is_empty() {
        return Ok(OrNull(None));
    }
    let mut list = env.create_array(0)?;
    for effect in waiting {
        match effect {
            HostEffect::Deliver(handed) => {
                for one in handed {
                    list.insert(EffectCode::Deliver.number())?;
                    list.insert(one.op.0)?;
                    deliver(env, &mut list, one.outcome)?;
                }
            }
            HostEffect::Start(start) => {
                list.insert(EffectCode::Start.number())?;
                list.insert(start.op.0)?;
                list.insert(start.attempt)?;
                list.insert(start.task.to_string())?;
            }
            HostEffect::CancelTask(op) => {
                list.insert(EffectCode::CancelTask.number())?;
                list.insert(op.0)?;
                list.insert(())?;
                list.insert(())?;
            }
            HostEffect::Ask => {
                list.insert(EffectCode::Ask.number())?;
                list.insert(0u32)?;
                list.insert(())?;
                list.insert(())?;
            }
            HostEffect::Warn(what) => {
                list.insert(EffectCode::Warn.number())?;
                list.insert(0u32)?;
                list.insert(what)?;
                list.insert(())?;
            }
            HostEffect::Close(why) => {
                let (why, what) = closed(&why);
                list.insert(EffectCode::Close.number())?;
                list.insert(0u32)?;
                list.insert(why)?;
                list.insert(what)?;
            }
        }
    }
    Ok(OrNull(Some(list)))
}

/// Code and value of an outcome; a failure, and why a value cannot be shown, are JSON text.
fn deliver(env: &Env, list: &mut Array<'_>, outcome: Outcome) -> napi::Result<()> {
    let code = OutcomeCode::of(&outcome);
    let (code, value) = match outcome {
        Outcome::Value(value) | Outcome::Signal(value) => match to_js(env, WireOut(value))? {
            Ok(value) => (code, Either::A(OrNull(Some(value)))),
            Err(text) => (OutcomeCode::Unreadable, Either::B(text)),
        },
        Outcome::Event(event) => {
            let (code, event) = event_parts(env, *event)?;
            list.insert(code.number())?;
            return match event {
                Either::A(parts) => list.insert(parts),
                Either::B(text) => list.insert(text),
            };
        }
        Outcome::Failed(failure) => (code, Either::B(failure_json(&failure))),
        Outcome::Fired | Outcome::Done | Outcome::TimedOut | Outcome::Cancelled => (code, Either::A(OrNull(None))),
    };
    list.insert(code.number())?;
    match value {
        Either::A(value) => list.insert(value),
        Either::B(text) => list.insert(text),
    }
}

/// A failure as JSON text.
pub(crate) fn failure_json(failure: &Failure) -> String {
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
        parts.set(4, WireOut(entry.new.content.clone()))?;
        parts.set(5, entry.new.turn_id.clone())?;
        parts.set(6, entry.new.metadata.clone())?;
        parts.set(7, entry.created_at.0 as f64 / 1e3)?;
        list.insert(parts)?;
    }
    Ok(list)
}
