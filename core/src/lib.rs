//! Flovyn's engine: durable execution of AI agents.
//!
//! Agents are plain async functions over a durable context. The engine restores the last checkpoint and replays only the
//! tail since it, so that a killed process costs nothing that was finished. `ARCHITECTURE.md` has the map.

pub mod clock;
pub mod error;
pub mod id;
pub mod journal;
pub mod model;
pub mod payload;
pub mod session;
pub mod storage;
pub mod streaming;
pub mod worker;

pub use error::{Error, Result};
