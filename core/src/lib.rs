//! Flovyn's engine: durable execution of AI agents.
//!
//! Agents are plain async functions over a durable context. The engine restores the last checkpoint and replays only the
//! tail since it, so that a killed process costs nothing that was finished. `ARCHITECTURE.md` has the map.

pub mod agent;
pub mod client;
pub mod clock;
pub mod context;
pub mod error;
pub mod host;
pub mod id;
pub mod journal;
pub mod model;
pub mod payload;
pub mod runtime;
pub mod session;
pub mod storage;
pub mod streaming;
pub mod task;
pub mod tracer;
pub mod worker;

pub use error::{Error, Result};
pub use payload::Payload;
