//! One run in the hands of a caller.

use crate::error::thrown;
use crate::hub::{Abort, Hub, Reply};
use crate::session::{FailureDraft, failure_json};
use crate::value::{Wire, WireOut, duration, payload};
use crate::watching::Watching;
use flovyn_core::client::{Handle as Core, Outcome};
use flovyn_core::error::Code;
use flovyn_core::host::shown;
use flovyn_core::host::{EndCode, Language, fork_from, op_id};
use flovyn_core::id::RequestId;
use flovyn_core::model::{
    CancelMode, Cancellation, Cursor, Delivery, Divergence, Execution, PageRequest, Resolution, ResumeRequest,
};
use flovyn_core::view::{self, Show, Style, Task};
use napi::Env;
use napi::bindgen_prelude::Array;
use napi_derive::napi;

/// Where a fork starts.
#[napi(object)]
pub struct ForkPlace {
    pub checkpoint: Option<u32>,
    pub entry: Option<String>,
    pub op: Option<String>,
    pub id: Option<String>,
}

/// How a paused run goes on, or a failed one.
#[napi(object)]
pub struct ResumeSettings {
    pub retry: bool,
    pub max_steps: Option<u32>,
    pub max_tail: Option<u32>,
    /// JSON text.
    pub budget: Option<String>,
}

/// One run.
#[napi]
pub struct Handle {
    core: Core,
    threads: tokio::runtime::Handle,
}

/// A handle on its way to JavaScript.
pub(crate) struct Run(pub(crate) Handle);

impl Handle {
    pub(crate) fn of(core: Core, threads: tokio::runtime::Handle) -> Self {
        Self { core, threads }
    }
}

/// How a run ended, or where it waits: an `EndCode` with its value.
pub(crate) struct Ended(std::result::Result<Outcome, Box<Execution>>);

impl Ended {
    pub(crate) fn listed<'env>(self, env: &'env Env) -> napi::Result<Array<'env>> {
        let mut list = env.create_array(0)?;
        match self.0 {
            Ok(Outcome::Completed(output)) => {
                list.insert(EndCode::Completed.number())?;
                list.insert(WireOut(output))?;
            }
            Ok(Outcome::Failed(failure)) => {
                list.insert(EndCode::Failed.number())?;
                list.insert(failure_json(&failure))?;
            }
            Ok(Outcome::Cancelled(kept)) => {
                list.insert(EndCode::Cancelled.number())?;
                if let Some(kept) = kept {
                    list.insert(WireOut(kept))?;
                }
            }
            Err(run) => {
                list.insert(EndCode::Waiting.number())?;
                list.insert(view::Run::of(&run).show(Style::TypeScript).to_string())?;
            }
        }
        Ok(list)
    }
}

#[napi]
impl Handle {
    #[napi(getter)]
    pub fn id(&self) -> String {
        self.core.id().to_string()
    }

    #[napi(getter)]
    pub fn key(&self) -> Option<String> {
        self.core.key().map(str::to_owned)
    }

    /// Ends with facts.
    #[napi]
    pub fn describe(&self, hub: &Hub, token: u32) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(shown::described(&core, Style::TypeScript).await?))
        })
    }

    /// Ends with the status word.
    #[napi]
    pub fn status(&self, hub: &Hub, token: u32) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move { Ok(Reply::Text(core.status().await?.as_str().to_owned())) })
    }

    /// Ends with how the run ended.
    #[napi]
    pub fn outcome(&self, hub: &Hub, token: u32, timeout_ms: Option<f64>) -> napi::Result<Abort> {
        let (core, timeout) = (self.core.clone(), timeout_ms.map(duration).transpose()?);
        Ok(hub.inbox.spawn(
            &self.threads,
            token,
            async move { Ok(Reply::Ended(Ended(Ok(core.outcome(timeout).await?)))) },
        ))
    }

    /// Ends with how the run ended, or with what it waits for.
    #[napi]
    pub fn outcome_or_wait(&self, hub: &Hub, token: u32) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move { Ok(Reply::Ended(Ended(core.outcome_or_wait().await?))) })
    }

    /// Ends with the error for who has waited so long for the end.
    #[napi]
    pub fn late(&self, hub: &Hub, token: u32, limit_ms: f64) -> napi::Result<Abort> {
        let (core, limit) = (self.core.clone(), duration(limit_ms)?);
        Ok(hub.inbox.spawn(&self.threads, token, async move { Err(core.late(limit).await) }))
    }

    /// Reads the run's events, from the start or after one, and those of all below it where children are asked for.
    #[napi]
    pub fn stream(&self, after: Option<String>, children: bool) -> napi::Result<Watching> {
        Watching::of(&self.core, after.as_deref(), children, self.threads.clone())
    }

    /// Ends with the signal's UUID.
    #[napi]
    pub fn signal(
        &self,
        hub: &Hub,
        token: u32,
        name: String,
        value: Wire<'_>,
        delivery: String,
        idempotency_key: Option<String>,
    ) -> napi::Result<Abort> {
        let delivery: Delivery = Language::TypeScript.word("delivery", &delivery).map_err(thrown)?;
        let (core, value) = (self.core.clone(), payload(value));
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Text(core.signal(&name, value, delivery, idempotency_key).await?.id.to_string()))
        }))
    }

    /// Ends with the status word.
    #[napi]
    pub fn cancel(&self, hub: &Hub, token: u32, mode: String, timeout_ms: Option<f64>) -> napi::Result<Abort> {
        let mode: CancelMode = Language::TypeScript.word("mode", &mode).map_err(thrown)?;
        let (core, grace) =
            (self.core.clone(), timeout_ms.map(duration).transpose()?.unwrap_or(Cancellation::USUAL_GRACE));
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Text(core.cancel(mode, grace).await?.status.as_str().to_owned()))
        }))
    }

    /// Ends with the status word.
    #[napi]
    pub fn resume(&self, hub: &Hub, token: u32, settings: ResumeSettings, message: Option<Wire<'_>>) -> Abort {
        let ResumeSettings { retry, max_steps, max_tail, budget } = settings;
        let message = message.map(payload);
        let request =
            ResumeRequest { retry, max_steps, max_tail, budget, message, request_id: Some(RequestId::fresh()) };
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Text(core.resume(request).await?.status.as_str().to_owned()))
        })
    }

    /// Ends with the fork's `Handle`.
    #[napi]
    pub fn fork(
        &self,
        hub: &Hub,
        token: u32,
        place: ForkPlace,
        state: Option<Wire<'_>>,
        input: Option<Wire<'_>>,
    ) -> napi::Result<Abort> {
        let from = fork_from(place.checkpoint, place.entry.as_deref(), place.op.as_deref()).map_err(thrown)?;
        let (state, input) = (state.map(payload), input.map(payload));
        let (core, threads, id) = (self.core.clone(), self.threads.clone(), place.id);
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            let fork = core.fork(from, id.as_deref(), state, input).await?;
            Ok(Reply::Handle(Run(Handle::of(fork, threads))))
        }))
    }

    /// With a result or a failure; without both: retry. Ends with facts of the task.
    #[napi]
    pub fn resolve(
        &self,
        hub: &Hub,
        token: u32,
        op: String,
        result: Option<Wire<'_>>,
        failure: Option<FailureDraft>,
    ) -> napi::Result<Abort> {
        let op = op_id(&op).map_err(thrown)?;
        let resolution = match (result, failure) {
            (Some(value), _) => Resolution::Result(payload(value)),
            (None, Some(failure)) => Resolution::Error(failure.into_failure(Code::TaskFailed)),
            (None, None) => Resolution::Retry,
        };
        let core = self.core.clone();
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(Task::of(&core.resolve(op, resolution).await?).show(Style::TypeScript)))
        }))
    }

    /// Ends with the `Handle` that goes on.
    #[napi]
    pub fn resolve_divergence(&self, hub: &Hub, token: u32, decision: String) -> napi::Result<Abort> {
        let decision: Divergence = Language::TypeScript.word("decision", &decision).map_err(thrown)?;
        let (core, threads) = (self.core.clone(), self.threads.clone());
        Ok(hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Handle(Run(Handle::of(core.resolve_divergence(decision).await?, threads))))
        }))
    }

    /// Ends with the conversation and the position behind it: `[messages, position]`.
    #[napi]
    pub fn messages(&self, hub: &Hub, token: u32) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            let snapshot = core.snapshot().await?;
            Ok(Reply::Page(snapshot.entries, Some(snapshot.position.to_string())))
        })
    }

    /// Ends with a value of the run: its `input`, its `output`, or the `state` of a checkpoint; with none where it has none.
    #[napi]
    pub fn value(&self, hub: &Hub, token: u32, what: String, checkpoint: Option<u32>) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            let value = shown::value(&core, &what, checkpoint).await?;
            Ok(Reply::Values(value.into_iter().collect()))
        })
    }

    /// Ends with `[messages, next]`.
    #[napi]
    pub fn entries(&self, hub: &Hub, token: u32, limit: u32, after: Option<String>) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            let page = core.entries(PageRequest { limit: limit as usize, after: after.map(Cursor) }).await?;
            Ok(Reply::Page(page.items, page.next.map(|cursor| cursor.0)))
        })
    }

    /// Ends with `{items, next}` as JSON text.
    #[napi]
    pub fn checkpoints(&self, hub: &Hub, token: u32, limit: u32, after: Option<String>) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(shown::checkpoints(&core, limit as usize, after, Style::TypeScript).await?))
        })
    }

    /// Ends with `{items, next}` as JSON text.
    #[napi]
    pub fn tasks(&self, hub: &Hub, token: u32, limit: u32, after: Option<String>) -> Abort {
        let core = self.core.clone();
        hub.inbox.spawn(&self.threads, token, async move {
            Ok(Reply::Facts(shown::tasks(&core, limit as usize, after, Style::TypeScript).await?))
        })
    }
}
