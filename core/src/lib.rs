//! Flovyn's engine: durable execution of AI agents.
//!
//! Agents are plain async functions over a durable context. The engine restores the last checkpoint and replays only the
//! tail since it, so that a killed process costs nothing that was finished. `ARCHITECTURE.md` has the map.
//!
//! ```
//! use async_trait::async_trait;
//! use flovyn_core::Result;
//! use flovyn_core::agent::AgentDefinition;
//! use flovyn_core::client::StartOptions;
//! use flovyn_core::context::{AgentContext, AgentContextExt};
//! use flovyn_core::runtime::{AgentBuilder, ChannelSignals};
//! use flovyn_core::task::{LocalTaskExecutor, TaskContext, TaskDefinition};
//!
//! struct Search;
//!
//! #[async_trait]
//! impl TaskDefinition for Search {
//!     type Input = String;
//!     type Output = String;
//!     fn kind(&self) -> &str {
//!         "search"
//!     }
//!     async fn execute(&self, _ctx: &TaskContext, topic: String) -> Result<String> {
//!         Ok(format!("three pages about {topic}"))
//!     }
//! }
//!
//! struct Researcher;
//!
//! #[async_trait]
//! impl AgentDefinition for Researcher {
//!     type State = (); // none: recovery replays the recorded run, so linear code just works
//!     type Input = String;
//!     type Output = String;
//!     fn kind(&self) -> &str {
//!         "researcher"
//!     }
//!     async fn execute(&self, ctx: &dyn AgentContext, topic: String) -> Result<String> {
//!         ctx.append_entry("user", &topic)?; // joins the next commit
//!         let found = ctx.schedule_task(&Search, &topic)?.await?; // a durable step: never run twice
//!         let answer: String = ctx.wait_for_signal("approval")?.await?; // may take days
//!         Ok(if answer == "yes" { found } else { "dropped".into() })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let (person, signals) = ChannelSignals::new();
//! let agents = AgentBuilder::new()
//!     .storage("memory:") // or "sqlite:agents.db"
//!     .task_executor(LocalTaskExecutor::new().register(Search)?)
//!     .signals(signals)
//!     .build()
//!     .await?;
//! person.send("approval", "yes")?;
//! let found = agents.execute_with(Researcher, &"otters".into(), StartOptions::with_id("otters-1")).await?;
//! assert_eq!(found, "three pages about otters");
//! # agents.close().await
//! # }
//! ```

pub mod agent;
mod canonical;
pub mod client;
pub mod clock;
pub mod context;
pub mod error;
mod forks;
mod heap;
#[doc(hidden)]
pub mod host;
pub mod id;
#[doc(hidden)]
pub mod journal;
pub mod model;
pub mod payload;
pub mod runtime;
#[doc(hidden)]
pub mod session;
mod spawn;
pub mod storage;
#[doc(hidden)]
pub mod streaming;
#[doc(hidden)]
pub mod sync;
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tracer;
#[doc(hidden)]
pub mod view;
#[cfg(feature = "remote")]
#[doc(hidden)]
pub mod wire;
pub mod worker;

pub use error::{Error, Result};
pub use payload::Payload;
