//! The toolkit as one configuration: what a worker of a host language, or of the command line, serves beside its own functions.
//!
//! [`ToolkitConfig`] is JSON: agents of the built-in kind and of others, the user's tasks that are their tools, host tools by name, MCP
//! servers, providers, the place where tools work. [`Toolkit::open`] makes native definitions of it; a worker serves
//! [`Toolkit::host`], alone or in a [`CompositeHost`](flovyn_core::host::CompositeHost). Every model call and every tool is a
//! task (`llm.generate`, `tool.NAME`) that agents of any language schedule with [`Toolkit::options`].
//!
//! ```
//! use flovyn_core::client::StartOptions;
//! use flovyn_core::runtime::Runtime;
//! use flovyn_core::worker::WorkerOptions;
//! use flovyn_core::Payload;
//! use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
//! use flovyn_toolkit::config::{Toolkit, ToolkitConfig};
//! use flovyn_toolkit::react::RunOutcome;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fake = FakeLlm::start(Script::new([Turn::text("Otters hold hands.")]))?;
//! let description = ToolkitConfig::parse(&format!(
//!     r#"{{ "agents": [{{ "kind": "assistant", "model": "fake/m", "tools": ["read", "grep"] }}],
//!          "providers": {{ "fake": {{ "api": "anthropic-messages", "baseUrl": "{}" }} }} }}"#,
//!     fake.url()
//! ))?;
//! let toolkit = Toolkit::open(description, "memory:").await?;
//! let runtime = Runtime::open("memory:").await?;
//! let _worker = runtime.worker(toolkit.host(), WorkerOptions::default()).await?;
//! let prompt = Payload::of("What do otters do?")?;
//! let run = runtime.client().start("assistant", prompt, StartOptions::default()).await?;
//! let outcome: RunOutcome = run.result(None).await?.parse()?;
//! assert_eq!(outcome.text, "Otters hold hands.");
//! # runtime.close().await?;
//! # Ok(())
//! # }
//! ```

mod delegates;
mod external;
mod folders;
mod hooks;
mod providers;
mod schema;
mod served;
mod toolkit;
mod toolkits;

pub use delegates::{DelegateConfig, PlannerConfig};
pub use external::{Driver, ExternalAgentConfig};
pub use folders::{home, records_of};
pub use hooks::{Hook, HookEnd, ToolHook, ToolHooks};
pub use providers::{ProviderDescription, registry};
pub use schema::{
    Approval, Caches, FetchConfig, ReactAgentConfig, TaskToolConfig, ToolConfig, ToolOptions, ToolkitConfig,
};
pub use toolkit::Toolkit;
pub use toolkits::Toolkits;
