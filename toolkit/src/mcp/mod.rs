//! The tools of MCP servers. Servers are configured with the usual `mcpServers` object and connected when they are
//! first needed. Each call is a durable task.
//!
//! [`McpConfig`] says which servers there are, and [`McpServers`] connects to them. Their tools are added to a
//! [`Toolbox`](crate::tools::Toolbox) as [`McpTool`]s with names such as `mcp__server__tool`. Two versions of the
//! protocol are spoken: the stateless one of 2026-07-28, and the one with a handshake before it.
//!
//! If the answer to a call is lost, the call is sent again only if the server allows it (`readOnlyHint`,
//! `idempotentHint`). For any other call, the model is told. If a server asks a person for input in the middle of a
//! call, the call ends with the questions as its outcome ([`InputRequired`]), and goes on with the answers as another
//! task ([`McpInputTask`]). With the handshake the server's side of the call waits in this process meanwhile, and is lost with it.
//!
//! ```no_run
//! use flovyn_toolkit::mcp::{McpConfig, McpServers};
//! use flovyn_toolkit::tools::Toolbox;
//!
//! # async fn run() -> flovyn_core::error::Result<()> {
//! let servers = McpServers::new(McpConfig::read("mcp.json")?);
//! let (toolbox, problems) = servers.add_to(Toolbox::host()?).await;
//! for problem in &problems {
//!     eprintln!("{problem}");
//! }
//! println!("{}", toolbox.names().collect::<Vec<_>>().join(" "));
//! # Ok(())
//! # }
//! ```

mod augmented;
mod call;
mod config;
mod connection;
mod handler;
mod input;
mod input_task;
mod known_tools;
mod lenient_http;
mod lines;
mod listing;
mod names;
mod open_calls;
mod outcome;
mod parked;
mod parsing;
mod post;
mod prompts;
mod request;
mod resources;
mod roots;
mod running;
mod sampling;
mod secrets;
mod servers;
mod stand_in;
mod stdio;
mod tasks;
mod tool;
mod tool_list;
mod transport;

pub use config::{McpConfig, McpSampling, McpServerConfig, McpTransport};
pub use input::{InputAnswer, InputGiven, InputQuestion, InputRequired, InputResponse};
pub use input_task::McpInputTask;
pub use names::tool_name;
pub use prompts::{McpPrompt, McpPromptArgument};
pub(crate) use sampling::{SAMPLED, SampledCall};
pub use servers::{McpProblem, McpServers};
pub use stand_in::TRY_AGAIN;
pub use tool::McpTool;
