//! How news of a run travels: hints that something changed, and previews of what is being made.
//!
//! Hints and chunks are never the mechanism: losing all of them costs time, never correctness.

mod chunks;
mod free;
mod hints;
mod outage;
mod outgoing;
mod together;

pub use chunks::{Chunks, OpKey, Place, RunKey, Shown, Told};
pub use free::FreeRow;
pub use hints::{Change, Follow, Hints, Listening, Lookout, News, Watch};
pub use outage::{Outage, Refusal};
pub use outgoing::{Lease, Made, PreviewRow, RENEW_EVERY, Reach, Read, Rows, Said, Superseded, WATCH_TTL};
