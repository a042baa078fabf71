//! How news of a run travels: hints that something changed, and previews of what is being made.
//!
//! Hints and chunks are never the mechanism: losing all of them costs time, never correctness.

mod chunks;
mod hints;

pub use chunks::{Chunks, Relay, WeakChunks};
pub use hints::{Change, Follow, Hints, Listening, Watch};
