//! The task `external.turn`: one exchange with an agent's process, which a run of this process holds in a [`Slot`].
//!
//! What an exchange brings is the task's result, so it is recorded once. When the process of this worker dies, the next
//! attempt is in another one: it resumes the agent's session there and takes from the agent's own records what is beyond
//! the last result.

use super::event::{Answer, ExternalEvent, Record, ToolEnded, ToolStarted, TurnEnd, TurnEndReason, TurnLog};
use super::process::Peer;
use super::protocol::{
    CatchUp, Controls, ExternalAgentProtocol, ExternalSession, Lost, SessionConfig, Snapshot, Spoken,
};
use crate::react::AgentEvent;
use crate::tools::process::StderrTail;
use async_trait::async_trait;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::sync::Mutex;
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The task of exchanges with external agents. A worker of an [`ExternalAgent`](super::ExternalAgent) serves it as well.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExternalTurns;

impl ExternalTurns {
    /// The task's kind.
    pub const KIND: &'static str = "external.turn";
}

/// How long after a record more of them are waited for, so that what comes together is one commit.
const LULL: Duration = Duration::from_millis(20);
/// The most records of one exchange.
const MOST: usize = 64;
/// How long a process may take to end after its input was closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// What goes on with a turn that was cut.
const GO_ON: &str = "You were interrupted: the process that you ran in has ended, and this is a new one. Go on with what \
you were asked to do where you stopped. What you had begun may be half done, so look before you do it again. If you had \
finished, say only what came of it.";

/// The result of a call that was under way in a process that has ended.
const CALL_CUT: &str = "The agent's process ended before this call had a result. It may be half done.";

/// The argument: whose agent, and what is done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnInput {
    pub(super) run: String,
    #[serde(flatten)]
    pub(super) act: Act,
}

/// What is done.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(super) enum Act {
    /// Opens the session.
    Open,
    /// Sends a message, which begins a turn, and listens.
    Prompt { text: String },
    /// Listens.
    Listen,
    /// Answers a permission, and listens.
    Answer { id: String, answer: Answer },
    /// Sends a message that steers the turn.
    Steer { text: String },
    /// Asks the agent to end its turn.
    Interrupt,
    /// Ends the turn and the process, and listens until then.
    Close,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pulled {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) records: Vec<Record>,
    /// What is kept of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) snapshot: Option<Snapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<LostPeer>,
}

/// The end of a process that should have gone on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LostPeer {
    pub why: String,
    /// The end of its standard error.
    pub stderr: Option<String>,
    /// Whether another process would not help.
    pub is_final: bool,
    pub error_type: Option<String>,
}

/// The agent of one run in this process.
pub(super) struct Slot {
    activation: usize,
    run: String,
    driver: Arc<dyn ExternalAgentProtocol>,
    config: SessionConfig,
    variables: Vec<String>,
    inactivity: Duration,
    /// How long an agent may take to end its turn after it was asked to.
    abort_grace: Duration,
    live: tokio::sync::Mutex<Live>,
    controls: Mutex<Option<Controls>>,
    point: Mutex<Point>,
    interrupted: Mutex<Option<Instant>>,
    news: Notify,
    closing: CancellationToken,
}

/// Timeouts and variables of an agent's process.
pub(super) struct SlotOptions {
    pub variables: Vec<String>,
    pub inactivity: Duration,
    pub abort_grace: Duration,
}

/// How far the run has come: what was recorded, for a process that has to resume.
#[derive(Clone, Default)]
pub(super) struct Point {
    pub snapshot: Option<Snapshot>,
    /// What was recorded of the turn that runs.
    pub heard: Option<TurnLog>,
    /// Whether the session has come to nothing yet, so that another one would do as well.
    pub is_fresh: bool,
}

#[derive(Default)]
struct Live {
    session: Option<Box<dyn ExternalSession>>,
    stderr: Option<StderrTail>,
    version: Option<String>,
    mark: String,
    text: String,
    thinking: String,
    records: Vec<Record>,
    /// The calls that were under way when the last process ended.
    cut: BTreeSet<String>,
}

/// The slots of this process, by the activations of their runs: a run's id would not do, since two stores may have a run of
/// the same one, and since a worker that has lost a run may still listen while the next one begins.
static SLOTS: LazyLock<Mutex<BTreeMap<usize, Arc<Slot>>>> = LazyLock::new(Mutex::default);

/// Keeps the agent of a run for as long as the run's code is in memory. Then its process ends; it is resumed when it is
/// needed again.
pub(super) struct SlotGuard(Arc<Slot>);

impl SlotGuard {
    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.0
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let slot = self.0.clone();
        SLOTS.lock().remove(&slot.activation);
        slot.closing.cancel();
        // Without a runtime the process is killed where its last owner lets go of it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { slot.end().await });
        }
    }
}

impl Slot {
    pub(super) fn enter(
        activation: usize,
        run: String,
        driver: Arc<dyn ExternalAgentProtocol>,
        config: SessionConfig,
        options: SlotOptions,
    ) -> SlotGuard {
        let SlotOptions { variables, inactivity, abort_grace } = options;
        let slot = Arc::new(Self {
            activation,
            run,
            driver,
            config,
            variables,
            inactivity,
            abort_grace,
            live: tokio::sync::Mutex::default(),
            controls: Mutex::default(),
            point: Mutex::default(),
            interrupted: Mutex::default(),
            news: Notify::new(),
            closing: CancellationToken::new(),
        });
        SLOTS.lock().insert(activation, slot.clone());
        SlotGuard(slot)
    }

    /// Takes note of how far the run has come.
    pub(super) fn note(&self, point: Point) {
        *self.point.lock() = point;
    }

    fn of(ctx: &TaskContext, run: &str) -> Result<Arc<Self>> {
        let slot = ctx.activation().and_then(|activation| SLOTS.lock().get(&activation).cloned());
        slot.filter(|slot| slot.run == run).ok_or_else(|| {
            let message = format!("only the run of an external agent schedules this task, and inline; {run} is none");
            Error::new(Code::NonRetryable, message)
        })
    }

    async fn exchange(&self, ctx: &TaskContext, act: Act) -> Result<Pulled> {
        match act {
            Act::Steer { text } => {
                let controls = self.controls.lock().clone();
                // Where nothing lives, the message is part of what the next process is told.
                if let Some(Err(error)) = controls.map(|controls| controls.steer(&text)) {
                    tracing::debug!(%error, "an external agent could not be steered; its next process is told");
                }
                return Ok(Pulled::default());
            }
            Act::Interrupt => {
                self.interrupt();
                return Ok(Pulled::default());
            }
            Act::Close => self.closing.cancel(),
            Act::Open | Act::Prompt { .. } | Act::Listen | Act::Answer { .. } => {}
        }
        let live = &mut *self.live.lock().await;
        let listened = match act {
            Act::Close => self.wind_up(ctx, live).await,
            act => self.listen(ctx, live, act).await,
        };
        if listened.is_err() {
            live.flush();
        }
        let mut snapshot = live.session.as_ref().map(|session| session.snapshot());
        if let Some(snapshot) = &mut snapshot {
            snapshot.mark.clone_from(&live.mark);
            if let Some(version) = &live.version {
                snapshot.agent = format!("{} {version}", snapshot.agent);
            }
        }
        let mut pulled = Pulled { records: std::mem::take(&mut live.records), snapshot, lost: None };
        if let Err(lost) = listened {
            pulled.lost = Some(self.release_process(live, lost).await);
        }
        Ok(pulled)
    }

    fn interrupt(&self) {
        let controls = self.controls.lock().clone();
        // One that cannot be told is ended when its time is up.
        if let Some(Err(error)) = controls.map(|controls| controls.interrupt()) {
            tracing::debug!(%error, "an external agent could not be interrupted");
        }
        self.interrupted.lock().get_or_insert_with(Instant::now);
        self.news.notify_one();
    }

    /// Does what the act says, and listens until there is something to record.
    async fn listen(&self, ctx: &TaskContext, live: &mut Live, act: Act) -> Spoken<()> {
        let opens = matches!(act, Act::Open);
        self.begin(ctx, live, act).await?;
        if opens {
            return Ok(());
        }
        loop {
            if live.is_full() {
                return Ok(());
            }
            let wait = if live.records.is_empty() { self.inactivity } else { LULL };
            let due = self.interrupted.lock().map(|at| at + self.abort_grace);
            let Some(session) = &mut live.session else { return Ok(()) };
            let next = tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(()),
                () = self.news.notified() => continue,
                () = reached(due) => None,
                next = timeout(wait, session.next()) => Some(next),
            };
            match next {
                Some(Ok(event)) => self.hear(ctx, live, event?),
                Some(Err(_)) if !live.records.is_empty() => return Ok(()),
                Some(Err(_)) if session.waits_for_host() => {}
                Some(Err(_)) => return Err(session.peer().silent(self.inactivity)),
                None => {
                    // It does not stop when it is asked to, so it is made to.
                    self.end_session(live).await;
                    let message =
                        Some("the agent did not stop when it was asked to, so its process was ended".to_owned());
                    let end = TurnEnd { reason: TurnEndReason::Interrupted, message };
                    self.hear(ctx, live, ExternalEvent::TurnEnd(end));
                }
            }
        }
    }

    /// Makes sure that a process lives, and does what the act says.
    async fn begin(&self, ctx: &TaskContext, live: &mut Live, act: Act) -> Spoken<()> {
        if let Some(session) = &mut live.session {
            return match act {
                Act::Prompt { text } => session.send_message(&text).await,
                Act::Answer { id, answer } => session.answer(&id, &answer).await,
                _ => Ok(()),
            };
        }
        let Point { snapshot, heard, is_fresh } = self.point.lock().clone();
        let Some(snapshot) = snapshot else {
            let session = self.open(live, None, None).await?.0;
            live.session = Some(session);
            return Ok(());
        };
        let (mut session, caught) = match self.open(live, Some(&snapshot), heard.as_ref()).await {
            // Most agents keep a session only once something was said in it.
            Err(Lost::Refused(_)) if is_fresh => (self.open(live, None, None).await?.0, CatchUp::Unheard),
            opened => opened?,
        };
        let Some(heard) = heard else {
            live.session = Some(session);
            return Ok(());
        };
        let all = || heard.sent.join("\n\n");
        let is_first = matches!(act, Act::Prompt { .. }) && ctx.attempt() == 1 && heard.is_silent();
        let prompt = match caught {
            CatchUp::Unheard => Some(all()),
            CatchUp::Unknown if is_first => Some(all()),
            CatchUp::Unknown => {
                live.cut = open_calls(&heard, &[]);
                Some(format!("{GO_ON}\n\nYou were asked:\n{}", all()))
            }
            CatchUp::Ended(events) => {
                heard.news(events).into_iter().for_each(|event| self.hear(ctx, live, event));
                None
            }
            CatchUp::Cut { heard: known, events } => {
                let news = heard.news(events);
                news.iter().for_each(|event| self.hear(ctx, live, event.clone()));
                live.flush();
                live.cut = open_calls(&heard, &news);
                let missing = |text: &&String| !known.iter().any(|known| known.trim() == text.trim());
                let missing: Vec<_> = heard.sent.iter().filter(missing).map(String::as_str).collect();
                match missing.is_empty() {
                    true => Some(GO_ON.to_owned()),
                    false => Some(format!("{GO_ON}\n\nMeanwhile the user has said:\n{}", missing.join("\n\n"))),
                }
            }
        };
        // An interrupted turn is not gone on with.
        let is_interrupted = self.interrupted.lock().is_some();
        match prompt {
            Some(_) if is_interrupted => {
                let end = TurnEnd { reason: TurnEndReason::Interrupted, message: None };
                self.hear(ctx, live, ExternalEvent::TurnEnd(end));
            }
            Some(text) => session.send_message(&text).await?,
            None => {}
        }
        live.session = Some(session);
        Ok(())
    }

    /// Starts a process, and a session in it or the session that there was.
    async fn open(
        &self,
        live: &mut Live,
        snapshot: Option<&Snapshot>,
        heard: Option<&TurnLog>,
    ) -> Spoken<(Box<dyn ExternalSession>, CatchUp)> {
        let own = format!("external-{}-", self.run);
        if snapshot.is_some_and(|snapshot| !snapshot.mark.starts_with(&own)) {
            return Err(Lost::refused(format!(
                "the run {} is a fork, and the session of its agent belongs to the run that it was forked from; two runs cannot \
                 go on with one session: send that run a message, or start a new one",
                self.run
            )));
        }
        // A process that died may have left a session of its id that is no use, and that no other process may make again.
        let new_id = uuid::Uuid::new_v4().to_string();
        let config = SessionConfig { new_id, ..self.config.clone() };
        let mut launch = self.driver.launch(&config, snapshot);
        launch.directory.clone_from(&self.config.working_dir);
        // Runs of two stores may have the same id, so the run's own is not enough to find its processes by.
        let known = snapshot.map(|snapshot| snapshot.mark.clone());
        launch.mark = known.unwrap_or_else(|| format!("{own}{}", uuid::Uuid::new_v4().simple()));
        live.mark.clone_from(&launch.mark);
        launch.variables.extend(self.variables.iter().cloned());
        launch.env.extend(self.config.env.iter().cloned());
        let peer = Peer::start(&launch)?;
        live.stderr = Some(peer.stderr_tail());
        let (session, caught) = match snapshot {
            None if self.driver.tells_version() => {
                let (session, version) = tokio::join!(self.driver.start(peer, &config), launch.version());
                live.version = version;
                (session?, CatchUp::Unknown)
            }
            None => (self.driver.start(peer, &config).await?, CatchUp::Unknown),
            Some(snapshot) => self.driver.resume(peer, &config, snapshot, heard).await?,
        };
        *self.controls.lock() = Some(session.controls());
        Ok((session, caught))
    }

    /// Takes an event: shows it, and keeps it until it is recorded.
    fn hear(&self, ctx: &TaskContext, live: &mut Live, event: ExternalEvent) {
        live.end_cut_calls(&event);
        match event {
            ExternalEvent::Text(text) => {
                ctx.stream_token(&text);
                live.flush_thinking();
                live.text.push_str(&text);
                return;
            }
            ExternalEvent::Thinking(text) => {
                AgentEvent::ThinkingDelta { delta: &text }.emit_from_task(ctx);
                live.flush_text();
                live.thinking.push_str(&text);
                return;
            }
            ExternalEvent::Cursor(_) => return,
            ExternalEvent::MessageEnd => return live.flush(),
            ExternalEvent::ToolStart(_)
            | ExternalEvent::ToolEnd(_)
            | ExternalEvent::Permission(_)
            | ExternalEvent::Spent(_)
            | ExternalEvent::TurnEnd(_)
            | ExternalEvent::Warning(_) => live.flush(),
        }
        live.records.push(match event {
            ExternalEvent::ToolStart(tool) => Record::ToolStart(tool),
            ExternalEvent::ToolEnd(tool) => Record::ToolEnd(tool),
            ExternalEvent::Permission(permission) => Record::Permission(permission),
            ExternalEvent::Spent(spent) => Record::Spent(spent),
            ExternalEvent::TurnEnd(end) => {
                *self.interrupted.lock() = None;
                Record::TurnEnd(end)
            }
            ExternalEvent::Warning(text) => Record::Warning { text },
            ExternalEvent::Text(_)
            | ExternalEvent::Thinking(_)
            | ExternalEvent::MessageEnd
            | ExternalEvent::Cursor(_) => {
                return;
            }
        });
    }

    /// Asks the agent to end its turn, hears what it says until then, and ends its process.
    async fn wind_up(&self, ctx: &TaskContext, live: &mut Live) -> Spoken<()> {
        self.interrupt();
        let until = Instant::now() + self.abort_grace;
        while let Some(session) = &mut live.session {
            let Ok(Ok(event)) = tokio::time::timeout_at(until, session.next()).await else { break };
            let is_end = matches!(event, ExternalEvent::TurnEnd(_));
            // Nobody is asked any more.
            if !matches!(event, ExternalEvent::Permission(_)) {
                self.hear(ctx, live, event);
            }
            if is_end {
                break;
            }
        }
        live.flush();
        self.end_session(live).await;
        Ok(())
    }

    async fn end_session(&self, live: &mut Live) {
        *self.controls.lock() = None;
        if let Some(mut session) = live.session.take() {
            session.peer().end(GRACE).await;
        }
    }

    /// Ends the process in the background of the run's end.
    async fn end(&self) {
        let live = &mut *self.live.lock().await;
        self.end_session(live).await;
    }

    /// Puts away a process that is of no use any more.
    async fn release_process(&self, live: &mut Live, lost: Lost) -> LostPeer {
        *self.controls.lock() = None;
        if let Some(mut session) = live.session.take() {
            session.peer().end(Duration::from_millis(200)).await;
        }
        let stderr = match live.stderr.take() {
            Some(tail) => tail.get().await,
            None => None,
        };
        let (is_final, error_type) = match &lost {
            Lost::Died(_) => (false, None),
            Lost::Refused(error) => (true, error.fact("error_type").map(str::to_owned)),
        };
        LostPeer { why: lost.to_string(), stderr, is_final, error_type }
    }
}

/// The calls that were under way in a process that has ended, and of which the agent's records know no result.
fn open_calls(heard: &TurnLog, news: &[ExternalEvent]) -> BTreeSet<String> {
    let mut open: BTreeSet<_> = heard.tools.iter().filter(|(_, ended)| !**ended).map(|(id, _)| id.clone()).collect();
    for event in news {
        match event {
            ExternalEvent::ToolStart(tool) => open.insert(tool.id.clone()),
            ExternalEvent::ToolEnd(tool) => open.remove(&tool.id),
            _ => false,
        };
    }
    open
}

/// Resolves at a time, if there is one.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Live {
    fn flush(&mut self) {
        self.flush_thinking();
        self.flush_text();
    }

    /// An agent that was resumed may take up a call that its last process had begun. Where it does something else, nothing
    /// comes of that call any more.
    fn end_cut_calls(&mut self, event: &ExternalEvent) {
        match event {
            ExternalEvent::ToolStart(ToolStarted { id, .. }) | ExternalEvent::ToolEnd(ToolEnded { id, .. })
                if self.cut.remove(id) => {}
            ExternalEvent::Text(_)
            | ExternalEvent::Thinking(_)
            | ExternalEvent::ToolStart(_)
            | ExternalEvent::ToolEnd(_)
            | ExternalEvent::TurnEnd(_) => {
                let ended = |id| Record::ToolEnd(ToolEnded { id, content: CALL_CUT.to_owned(), is_error: true });
                self.records.extend(std::mem::take(&mut self.cut).into_iter().map(ended));
            }
            _ => {}
        }
    }

    fn flush_text(&mut self) {
        if !self.text.is_empty() {
            self.records.push(Record::Text { text: std::mem::take(&mut self.text) });
        }
    }

    fn flush_thinking(&mut self) {
        if !self.thinking.is_empty() {
            self.records.push(Record::Thinking { text: std::mem::take(&mut self.thinking) });
        }
    }

    /// Whether the run has to do something before more is heard.
    fn is_full(&self) -> bool {
        self.records.len() >= MOST
            || self.records.iter().any(|record| matches!(record, Record::Permission(_) | Record::TurnEnd(_)))
    }
}

#[async_trait]
impl TaskDefinition for ExternalTurns {
    type Input = TurnInput;
    type Output = Pulled;

    fn kind(&self) -> &str {
        Self::KIND
    }

    async fn execute(&self, ctx: &TaskContext, input: TurnInput) -> Result<Pulled> {
        Slot::of(ctx, &input.run)?.exchange(ctx, input.act).await
    }
}
