//! How news of a run travels: hints that something changed, and previews of what is being made.
//!
//! Hints and chunks are never the mechanism: losing all of them costs time, never correctness.

mod chunks;
mod hints;
mod outgoing;

pub use chunks::{Chunks, RunKey};
pub use hints::{Change, Follow, Hints, Listening, News, Watch};
pub use outgoing::{Lease, Made, PreviewRow, RENEW_EVERY, Said, Superseded, WATCH_TTL};
