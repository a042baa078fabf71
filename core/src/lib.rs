//! Flovyn's engine: durable execution of AI agents.
//!
//! Agents are plain async functions over a durable context. The engine restores the last checkpoint and replays only the
//! tail since it, so that a killed process costs nothing that was finished. `ARCHITECTURE.md` has the map.
//!
//! ```
//! use flovyn_core::prelude::*;
//! use flovyn_core::runtime::ChannelSignals;
//!
//! #[task(retries = 3)]
//! async fn search(topic: String) -> Result<String> {
//!     Ok(format!("three pages about {topic}"))
//! }
//!
//! #[agent] // without state: recovery replays the recorded run, so linear code just works
//! async fn researcher(ctx: Context, topic: String) -> Result<String> {
//!     ctx.append_entry("user", &topic)?; // joins the next commit
//!     let found = ctx.task(&Search, topic).await?; // a durable step: once recorded, never run again
//!     let answer: String = ctx.wait_for_signal("approval")?.await?; // may take days
//!     Ok(if answer == "yes" { found } else { "dropped".into() })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let (person, signals) = ChannelSignals::new();
//! let agents = AgentBuilder::new().storage("memory:").signals(signals).build().await?; // or "sqlite:agents.db"
//! person.send("approval", "yes")?;
//! let found = agents.execute_with(Researcher, &"otters".into(), StartOptions::with_id("otters-1")).await?;
//! assert_eq!(found, "three pages about otters");
//! # agents.close().await
//! # }
//! ```
//!
//! | to | see |
//! | --- | --- |
//! | write agents and tasks | [`#[agent]`](macro@agent), [`#[task]`](macro@task), [`AgentContextExt`](context::AgentContextExt) |
//! | run them in this process | [`AgentBuilder`](runtime::AgentBuilder) |
//! | serve them as a worker, start and steer runs | [`FlovynClient`](runtime::FlovynClient), [`Handle`](client::Handle) |
//! | fail well | [`Error`], [`ResultExt`](error::ResultExt) |
//! | prove that an agent survives crashes | `testing::Harness`, with the feature `testing` |

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

/// Makes a durable agent of an async function over a context.
///
/// ```
/// use flovyn_core::prelude::*;
///
/// #[derive(Default, Serialize, Deserialize, AgentState)]
/// struct Talk {
///     #[reducer(append)]
///     topics: Vec<String>,
/// }
///
/// /// Talks about so many topics.
/// #[agent(version = "1", tags = ["talks"])]
/// async fn talker(ctx: Context<Talk>, topics: usize) -> Result<Vec<String>> {
///     while ctx.state()?.topics.len() < topics {
///         let topic: String = ctx.wait_for_signal("topic")?.await?;
///         ctx.append_entry("user", &topic)?;
///         ctx.update(TalkUpdate::new().topics([topic]))?.await?;
///     }
///     Ok(ctx.state()?.topics)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let flovyn = FlovynClient::builder().url("memory:").agent(Talker).build().await?;
/// # flovyn.worker().await?;
/// # let handle = flovyn.start(&Talker, &2, StartOptions::default()).await?;
/// # handle.send("topic", "otters").await?;
/// # handle.send("topic", "seals").await?;
/// # assert_eq!(handle.result_as::<Vec<String>>(None).await?, ["otters", "seals"]);
/// # flovyn.close().await
/// # }
/// ```
///
/// Beside the function stands a type of the same name in upper camel case, here `Talker`, that implements
/// [`AgentDefinition`](agent::AgentDefinition): it is what runners, workers and clients take. Its name in the journal is
/// that of the function: it is recorded, so a function that is renamed keeps it by `name = "…"` or `aliases = ["…"]`.
///
/// The function takes its context first: `Context` for an agent without state, whose recovery replays the recorded run;
/// `Context<Talk>` for one that is entered at its top with the state of the last checkpoint: `Talk` is its
/// [`State`](agent::AgentDefinition::State) then. One input may follow. It returns a `Result`, this crate's or any other
/// whose error is a [`std::error::Error`] or `anyhow::Error`.
///
/// | setting | meaning |
/// | --- | --- |
/// | `name = "…"`, `aliases = ["…"]` | the recorded name, and names that it had before |
/// | `definition = Name` | the name of the type, where the other is taken, as by a state `Chat` of a function `chat` |
/// | `description = "…"`, `tags = ["…"]` | what it does (the function's doc comment otherwise), and words to find it by |
/// | `state = Talk` | its state, where the context does not name it |
/// | `migrate = function` | makes the present state of a stored one that cannot be read: `fn(serde_json::Value) -> Result<Talk>` |
/// | `version = "1"` | identifies the code; every build counts as edited code otherwise |
/// | `timeout = "1h"` | how long a run may take, unless its start says otherwise |
/// | `cancellable = false` | awaits do not end with `Cancelled` when it is asked to stop |
/// | `on_divergence = "pause"`, `on_error = "pause"` | what happens to a run whose code has changed, or has failed |
/// | `schema` | has JSON Schemas of input and output, which then implement `schemars::JsonSchema`; needs the feature `schema` |
///
/// A function of another shape does not compile:
///
/// ```compile_fail
/// # use flovyn_core::prelude::*;
/// #[agent]
/// async fn hello(name: String) -> Result<String> { // an agent has a context
///     Ok(name)
/// }
/// ```
#[doc(inline)]
pub use flovyn_core_macros::agent;
/// Makes a task of an async function.
///
/// ```
/// use flovyn_core::prelude::*;
///
/// /// Fetches a page.
/// #[task(retries = 3, timeout = "30s")]
/// async fn fetch_page(url: String) -> Result<String> {
///     Ok(format!("the page at {url}"))
/// }
///
/// #[agent]
/// async fn reader(ctx: Context, url: String) -> Result<String> {
///     ctx.task(&FetchPage, url).await
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # assert_eq!((FetchPage.kind(), FetchPage.description()), ("fetch_page", Some("Fetches a page.")));
/// # let agents = AgentBuilder::new().storage("memory:").build().await?;
/// # assert_eq!(agents.execute(Reader, "otters.example".into()).await?, "the page at otters.example");
/// # agents.close().await
/// # }
/// ```
///
/// The function stays as it is, for tests and other code to call. Beside it stands a type of the same name in upper camel
/// case, here `FetchPage`, that implements [`TaskDefinition`](task::TaskDefinition). Its name in the journal is that of the
/// function, `fetch_page`: it is recorded, so a function that is renamed keeps it by `name = "…"` or `aliases = ["…"]`.
///
/// The function takes one input or none, in front of it a [`TaskContext`](task::TaskContext) if it likes, by value or by
/// reference, and returns a `Result`, this crate's or any other whose error is a [`std::error::Error`] or `anyhow::Error`.
/// Input and output are what serde can write and read.
///
/// | setting | meaning |
/// | --- | --- |
/// | `name = "…"`, `aliases = ["…"]` | the recorded name, and names that it had before |
/// | `definition = Name` | the name of the type, where the other is taken: `Send` beside a function `send` hides the trait |
/// | `description = "…"` | what it does; the function's doc comment otherwise |
/// | `queue = "gpu"` | done by the workers of this queue |
/// | `retries = 3`, `no_retry = ["ParseIntError"]` | attempts after the first, and types of errors that end them |
/// | `timeout = "30s"`, `heartbeat_timeout`, `deadline` | limits of an attempt, of its silence, of all attempts; `ms`, `s`, `m`, `h`, `d`, or a `Duration` |
/// | `at_most_once` | never started twice: in doubt if it was lost |
/// | `detached` | outlives its segment |
/// | `schema` | has JSON Schemas of input and output, which then implement `schemars::JsonSchema`; needs the feature `schema` |
/// | `options = expression` | the [`TaskOptions`](model::TaskOptions) that the settings above change |
///
/// A function of another shape does not compile:
///
/// ```compile_fail
/// # use flovyn_core::prelude::*;
/// #[task]
/// async fn length(text: &str) -> Result<usize> { // the input is recorded and read back: an owned value
///     Ok(text.len())
/// }
/// ```
#[doc(inline)]
pub use flovyn_core_macros::task;

pub use error::{Error, Result};
pub use payload::Payload;

/// What most programs use: `use flovyn_core::prelude::*;`.
pub mod prelude {
    #[doc(no_inline)]
    pub use crate::agent::{AgentDefinition, AgentState, Reduce};
    #[doc(no_inline)]
    pub use crate::client::{Halted, Handle, Outcome, StartOptions};
    #[doc(no_inline)]
    pub use crate::context::{AgentContext, AgentContextExt, Context};
    #[doc(no_inline)]
    pub use crate::error::{Code, Error, Result, ResultExt};
    #[doc(no_inline)]
    pub use crate::payload::Payload;
    #[doc(no_inline)]
    pub use crate::runtime::{AgentBuilder, FlovynClient};
    #[doc(no_inline)]
    pub use crate::task::{LocalTaskExecutor, TaskContext, TaskDefinition};
    #[doc(no_inline)]
    pub use async_trait::async_trait;
    #[doc(no_inline)]
    pub use flovyn_core_macros::{agent, task};
    #[doc(no_inline)]
    pub use serde::{Deserialize, Serialize};
    #[doc(no_inline)]
    pub use std::time::Duration;
}

/// What the macros write names these.
#[doc(hidden)]
pub mod __private {
    pub use async_trait::async_trait;
    pub use serde_json::Value;

    /// The JSON Schema of a type.
    #[cfg(feature = "schema")]
    pub fn schema_of<T: schemars::JsonSchema>() -> Value {
        schemars::schema_for!(T).to_value()
    }
}
