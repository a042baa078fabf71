//! The toolkit as one description: what a host language, or the command line, has a worker serve beside its own functions.
//!
//! [`KitDescription`] is JSON: agents of the built-in kind, the user's tasks that are their tools, host tools by name, MCP
//! servers, providers, the place where tools work. [`Kit::open`] makes native definitions of it; a worker serves
//! [`Kit::host`], alone or in a [`CompositeHost`](flovyn_core::host::CompositeHost). Every model call and every tool is a
//! task (`llm.generate`, `tool.NAME`) that agents of any language schedule with [`Kit::options`].
//!
//! ```
//! use flovyn_core::client::StartOptions;
//! use flovyn_core::runtime::Runtime;
//! use flovyn_core::worker::WorkerOptions;
//! use flovyn_core::Payload;
//! use flovyn_toolkit::fake_llm::{FakeLlm, Script, Turn};
//! use flovyn_toolkit::kit::{Kit, KitDescription};
//! use flovyn_toolkit::react::RunOutcome;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fake = FakeLlm::start(Script::new([Turn::text("Otters hold hands.")]))?;
//! let description = KitDescription::parse(&format!(
//!     r#"{{ "agents": [{{ "kind": "assistant", "model": "fake/m", "tools": ["read", "grep"] }}],
//!          "providers": {{ "fake": {{ "api": "anthropic-messages", "baseUrl": "{}" }} }} }}"#,
//!     fake.url()
//! ))?;
//! let kit = Kit::open(description, "memory:").await?;
//! let runtime = Runtime::open("memory:").await?;
//! let _worker = runtime.worker(kit.host(), WorkerOptions::default()).await?;
//! let prompt = Payload::of("What do otters do?")?;
//! let run = runtime.client().start("assistant", prompt, StartOptions::default()).await?;
//! let outcome: RunOutcome = run.result(None).await?.parse()?;
//! assert_eq!(outcome.text, "Otters hold hands.");
//! # runtime.close().await?;
//! # Ok(())
//! # }
//! ```

mod description;
mod kits;
mod place;
mod providers;
mod serving;

pub use description::{Approval, KitAgent, KitDescription, KitTool, TaskTool, ToolOptions};
pub use kits::Kits;
pub use place::{home, records_of};
pub use providers::{ProviderDescription, registry};
pub use serving::Kit;
