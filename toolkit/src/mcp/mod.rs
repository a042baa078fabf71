//! MCP servers as tools: configured in the common `mcpServers` shape, connected when first needed, each call a durable task.
//!
//! [`McpConfig`] says which servers there are, [`McpServers`] speaks to them, and what they list joins a
//! [`Toolbox`](crate::tools::Toolbox) as [`McpTool`]s named `mcp__server__tool`. Both eras of the protocol are spoken: the
//! stateless one of 2026-07-28 and the handshake before it. A call is sent again only where the server says that it may be
//! (`readOnlyHint`, `idempotentHint`); any other whose answer is lost is reported. What a server asks a person in the middle
//! of a call is an outcome ([`InputRequired`]); its answer goes on as a task of its own ([`McpInputTask`]).
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

mod call;
mod config;
mod connection;
mod handler;
mod input;
mod input_task;
mod lenient_http;
mod lines;
mod names;
mod outcome;
mod parsing;
mod secrets;
mod servers;
mod stdio;
mod tool;
mod transport;

pub use config::{McpConfig, McpServerConfig, McpTransport};
pub use input::{InputAnswer, InputGiven, InputQuestion, InputRequired, InputResponse};
pub use input_task::McpInputTask;
pub use names::tool_name;
pub use servers::{McpProblem, McpServers};
pub use tool::McpTool;
