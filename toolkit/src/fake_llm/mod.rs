//! A scripted model server on loopback, for tests and demonstrations without a model.
//!
//! It speaks Anthropic Messages, OpenAI Chat Completions and OpenAI Responses, streamed or not, and `GET /v1/models`. A
//! [`Script`] says what it answers and which faults it plays. It refuses what the real ones would refuse (an unsigned
//! thought, a call without a result), and it records every request, so that a test can say that each call was paid once.
//!
//! ```
//! use flovyn_toolkit::fake_llm::{FakeLlm, Script};
//! use flovyn_toolkit::message::Message;
//! use flovyn_toolkit::provider::{Api, Endpoint, HttpProvider, ModelRequest, Provider};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::from_toml(
//!     r#"
//!     [[turns]]
//!     toolCalls = [{ name = "weather", arguments = { city = "Hanoi" } }]
//!     [[turns]]
//!     text = "It rains."
//!     "#,
//! )?;
//! let fake = FakeLlm::start(script)?;
//! let model = HttpProvider::new(Api::AnthropicMessages, Endpoint::new("anthropic", fake.url()))?;
//! let answer = model.generate(&ModelRequest::new("claude", vec![Message::user("How is it?")])).await?;
//! assert_eq!(answer.tool_calls().next().map(|call| call.name.as_str()), Some("weather"));
//! assert_eq!(fake.paid(), 1);
//! # Ok(())
//! # }
//! ```

mod checks;
mod choose;
mod frames;
mod oddities;
mod output_format;
mod record;
mod request;
mod script;
mod serve;
mod template;
mod wire_anthropic;
mod wire_chat;
mod wire_responses;

pub use record::{Outcome, Recorded};
pub use script::{
    Cut, CutEnd, Fault, FaultKind, Oddity, Order, Pace, Reasoning, Require, Script, ScriptError, ScriptedCall,
    ScriptedThinking, ScriptedUsage, Turn, When,
};

use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A running server. It ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub struct FakeLlm {
    address: SocketAddr,
    state: Arc<State>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// What the connections share.
#[derive(Debug)]
struct State {
    script: Script,
    records: record::Records,
    /// How often each turn was played.
    plays: Mutex<HashMap<usize, u32>>,
    issued: Mutex<checks::Issued>,
}

impl FakeLlm {
    /// Starts a server on a free port of 127.0.0.1, on a thread of its own.
    ///
    /// # Errors
    ///
    /// No port or thread is to be had.
    pub fn start(script: Script) -> std::io::Result<Self> {
        Self::start_at(script, 0, None)
    }

    /// Starts a server as [`start`](Self::start) does that keeps no bodies of requests: for sessions of any length, which nobody
    /// looks at afterwards.
    ///
    /// # Errors
    ///
    /// No port or thread is to be had.
    pub fn start_unrecorded(script: Script) -> std::io::Result<Self> {
        Self::serve(script, 0, record::Records::without_bodies())
    }

    /// Starts a server on a port of 127.0.0.1 (0: a free one) that also appends each request to a file of JSON lines.
    ///
    /// # Errors
    ///
    /// The port is taken, or the file cannot be written.
    pub fn start_at(script: Script, port: u16, log: Option<&Path>) -> std::io::Result<Self> {
        Self::serve(script, port, record::Records::new(log)?)
    }

    fn serve(script: Script, port: u16, records: record::Records) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { script, records, plays: Mutex::default(), issued: Mutex::default() });
        let stop = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (serving, stopped) = (state.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("fake-llm".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve::serve(listener, serving) => {}
                    () = stopped.notified() => {}
                }
            });
            // Leaving the runtime drops its connections.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, state, stop, thread: Some(thread) })
    }

    /// Its address, as Anthropic's clients take it: `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address, as OpenAI's clients take it: with `/v1` behind.
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.records.all()
    }

    /// How many responses were sent to their end: the calls that a provider would have charged.
    pub fn paid(&self) -> usize {
        self.state.records.completed()
    }

    /// Waits until the requests so far are as a test wants them.
    ///
    /// # Errors
    ///
    /// What was recorded when the time was up.
    pub async fn wait_until(
        &self,
        within: Duration,
        ready: impl Fn(&[Recorded]) -> bool,
    ) -> Result<Vec<Recorded>, Vec<Recorded>> {
        let end = Instant::now() + within;
        loop {
            let requests = self.requests();
            match (ready(&requests), Instant::now() < end) {
                (true, _) => return Ok(requests),
                (false, true) => tokio::time::sleep(Duration::from_millis(5)).await,
                (false, false) => return Err(requests),
            }
        }
    }
}

impl Drop for FakeLlm {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the server's thread was printed when it happened.
            drop(thread.join());
        }
    }
}
