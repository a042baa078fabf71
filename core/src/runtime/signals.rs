//! Sources of signals for a run that [`AgentRunner`](super::AgentRunner) executes.

use crate::client::Handle;
use crate::error::{Code, Error, Result};
use crate::model::{Delivery, Status};
use crate::payload::Payload;
use crate::storage::Storage;
use async_trait::async_trait;
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// A signal on its way to a run.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// Its name, by which the run waits for it or drains it.
    pub name: String,
    /// The value.
    pub payload: Payload,
    /// When it may be seen.
    pub delivery: Delivery,
    /// Two sends with the same key are one signal, so that a send can be repeated.
    pub idempotency_key: Option<String>,
}

impl Incoming {
    /// A signal with this name and a serialisable value.
    pub fn new<T: Serialize + ?Sized>(name: impl Into<String>, value: &T) -> Result<Self> {
        let payload = Payload::of(value)?;
        Ok(Self { name: name.into(), payload, delivery: Delivery::default(), idempotency_key: None })
    }
}

/// Gives a run its signals. Other processes may send more through a handle at any time.
#[async_trait]
pub trait SignalSource: Send + Sync + 'static {
    /// The next signal; none when the source has no more. The future is dropped when the run ends first.
    async fn next(&self, run: &Listener) -> Result<Option<Incoming>>;
}

/// The run that a source gives signals to.
pub struct Listener {
    storage: Arc<dyn Storage>,
    handle: Handle,
}

impl Listener {
    pub(super) fn new(storage: Arc<dyn Storage>, handle: Handle) -> Self {
        Self { storage, handle }
    }

    /// The run.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until the run waits for signals, and returns their names. It never returns for a run that has ended.
    pub async fn wanted(&self) -> Result<Vec<String>> {
        let mut news = self.storage.hints().watch(self.handle.org(), self.handle.id());
        loop {
            let run = self.handle.describe().await?;
            match run.wait {
                Some(wait) if run.status == Status::Waiting && !wait.signals.is_empty() => return Ok(wait.signals),
                _ => news.changed().await,
            }
        }
    }
}

impl Listener {
    /// Waits until the run waits for signals and nothing else can end that, and returns the error that says so.
    async fn unanswered(&self) -> Error {
        let mut news = self.storage.hints().watch(self.handle.org(), self.handle.id());
        loop {
            let run = match self.handle.describe().await {
                Ok(run) => run,
                Err(error) => return error,
            };
            let wait = run.wait.filter(|wait| run.status == Status::Waiting && !wait.signals.is_empty());
            if let Some(wait) = wait.filter(|wait| !wait.timers && !wait.tasks && !wait.host_timer) {
                let id = self.handle.key().map_or_else(|| self.handle.id().to_string(), str::to_owned);
                let message = format!(
                    "run {id} waits for the signal {}, and standard input is at its end. The run stays as it is: send the \
                     signal by its handle or by `flovyn runs signal`, and execute it again under this id",
                    wait.signals.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
                );
                return Error::new(Code::Waiting, message);
            }
            news.changed().await;
        }
    }
}

/// Signals from other code of this process, which sends them through a [`SignalSender`].
pub struct ChannelSignals(Mutex<mpsc::UnboundedReceiver<Incoming>>);

/// Sends signals to the run that a [`ChannelSignals`] feeds. Clones send to the same one.
#[derive(Debug, Clone)]
pub struct SignalSender(mpsc::UnboundedSender<Incoming>);

impl ChannelSignals {
    /// Makes a source and the sender that feeds it. The signals of one source go to one run at a time, in order.
    pub fn new() -> (SignalSender, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (SignalSender(sender), Self(Mutex::new(receiver)))
    }
}

impl SignalSender {
    /// Queues a signal. It becomes durable when the run's executor takes it.
    pub fn send<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<()> {
        self.0.send(Incoming::new(name, value)?).map_err(|_| {
            Error::new(Code::ExecutionClosed, format!("signal {name:?} was sent, but nobody listens to the channel"))
        })
    }
}

#[async_trait]
impl SignalSource for ChannelSignals {
    async fn next(&self, _: &Listener) -> Result<Option<Incoming>> {
        Ok(self.0.lock().await.recv().await)
    }
}

/// Signals from the terminal. Each line is a signal; a line is read only when the run waits for one.
///
/// A line goes to the first name the run waits for, as a JSON string. The name is shown as a prompt on a terminal. At the
/// end of the input a run that waits for a signal alone is left waiting, and its execution fails with `Waiting`.
#[derive(Default)]
pub struct StdinSignals {
    /// What the reading thread sends. None before the first read.
    lines: Mutex<Option<mpsc::Receiver<String>>>,
}

impl StdinSignals {
    /// Nothing is read before the run first waits for a signal.
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl SignalSource for StdinSignals {
    async fn next(&self, run: &Listener) -> Result<Option<Incoming>> {
        let names = run.wanted().await?;
        let Some(name) = names.first() else { return Ok(None) };
        if std::io::stdin().is_terminal() {
            let mut prompt = std::io::stderr().lock();
            let _ = write!(prompt, "{name}> ").and_then(|()| prompt.flush());
        }
        // The lock is held over the start of the thread, so that two runs do not start two readers of one terminal.
        let mut lines = self.lines.lock().await;
        let lines = match &mut *lines {
            Some(lines) => lines,
            none => none.insert(read_lines()?),
        };
        match lines.recv().await {
            Some(line) => Incoming::new(name, &line).map(Some),
            None => Err(run.unanswered().await),
        }
    }
}

/// Reads lines on a thread of its own. A read that blocks on a thread of the async runtime would keep the runtime from
/// ending.
fn read_lines() -> Result<mpsc::Receiver<String>> {
    let (lines, receiver) = mpsc::channel(1);
    crate::spawn::thread("flovyn-stdin", "the lines of standard input", move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}
