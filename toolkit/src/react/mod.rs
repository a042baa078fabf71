//! The built-in ReAct agent: a model, its tools and a conversation, all of them durable.
//!
//! It consists of the agent of the kind `react-agent` and the task `llm.generate`. A turn is one model call together
//! with the tool calls that it asks for. Each turn ends with a checkpoint whose size does not depend on the
//! conversation. Every message is an entry, and a model call gets a reference to the conversation instead of the
//! messages, so a run of n turns stores n messages. Messages of the user come as signals named [`USER_MESSAGE`],
//! answers to approval requests as [`APPROVAL`], and answers to questions of MCP servers as [`INPUT`].
//!
//! ```
//! use flovyn_core::runtime::FlovynClient;
//! use flovyn_core::client::StartOptions;
//! use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
//! use flovyn_toolkit::provider::{Api, Endpoint, Registry};
//! use flovyn_toolkit::react::{AgentInput, LlmGenerate, ReactAgent, RunOutcome};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fake = FakeLlm::start(Script::new([Turn::text("Otters hold hands.")]))?;
//! let mut models = Registry::new();
//! models.add(Api::AnthropicMessages, Endpoint::new("fake", fake.url()))?;
//!
//! let agent = ReactAgent::new();
//! let flovyn = FlovynClient::builder()
//!     .storage("memory:") // or "sqlite:agents.db"
//!     .agent(agent.clone())
//!     .task(LlmGenerate::new(models))
//!     .build()
//!     .await?;
//! let _worker = flovyn.worker().await?;
//! let input = AgentInput::new("fake/otter", "What do otters do?");
//! let run = flovyn.start(&agent, &input, StartOptions::with_id("otters")).await?;
//! let outcome: RunOutcome = run.result(None).await?.parse()?;
//! assert_eq!(outcome.text, "Otters hold hands.");
//! # flovyn.close().await?;
//! # Ok(())
//! # }
//! ```

mod agent;
mod agent_tool;
mod approvals;
mod compaction;
mod delegate;
mod delegation;
mod elicitation;
mod events;
mod generate;
mod handoff;
mod inbox;
mod input;
mod ledger;
mod limits;
mod live_tools;
mod outage;
mod outcome;
mod output;
mod paid_failures;
mod questions;
mod results;
mod run;
mod state;
mod structured;
mod tool_calls;
mod transcript;
mod turn;

pub use agent::ReactAgent;
pub use agent_tool::AgentTool;
pub use compaction::{Compacted, CompactionDetails};
pub use delegate::{Delegate, Takes};
pub(crate) use delegate::{Giving, answer_text, end_of};
pub use delegation::AgentSpawn;
pub use elicitation::{InputRefused, InputReply, InputRequest};
pub use events::{AgentEvent, ToolCallEnd, ToolCallRef, ToolCallStart};
pub use generate::{GenerateInput, Generated, LlmGenerate, OnFailure, Purpose, Reply};
pub use inbox::{Delivery, UserMessage};
pub use input::{AgentConfig, AgentInput, CompactionConfig, Mode, ModelChoice, ResultLimits, Via};
pub use ledger::{Budget, Ledger};
pub use limits::AnswerLimits;
pub(crate) use live_tools::{LiveTools, ToolsNow};
pub use outage::{AfterOutage, RetryConfig};
pub use outcome::{AnswerEnd, RunOutcome, StopReason};
pub use output::{CheckedOutput, OutputSpec};
pub use questions::AskedByChild;
pub(crate) use questions::{REQUEST, answer_of, question_of, questions};
pub use state::{Phase, ReactState};
pub(crate) use transcript::entry_type;
pub use transcript::{AgentBegin, LlmCall, Transcript};

/// The kind of the agent.
pub const KIND: &str = "react-agent";
/// The signal with a message of the user; its payload is a [`UserMessage`].
pub const USER_MESSAGE: &str = "userMessage";
/// The signal with a person's answer to an approval request; its payload is an
/// [`ApprovalAnswer`](crate::tools::approval::ApprovalAnswer).
pub const APPROVAL: &str = "approval";
/// The signal with a person's answer to the questions of an MCP server; its payload is an [`InputReply`].
pub const INPUT: &str = "input";
