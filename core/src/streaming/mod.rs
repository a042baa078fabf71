//! How news of a run travels: hints that something changed, and previews of what is being made.
//!
//! Hints and chunks are never the mechanism: losing all of them costs time, never correctness.

mod change_poller;
mod chunks;
mod free;
mod hints;
mod hub;
mod outage;
mod outgoing;
mod run_watch;
mod single_flight;

pub use change_poller::ChangePoller;
pub use chunks::{Chunks, OpKey, Place, RunKey, Shown, Told};
pub use free::FreeRow;
pub use hints::{Change, Hints, News};
pub use hub::Listening;
pub use outage::{Outage, Refusal};
pub use outgoing::{Lease, Made, PreviewRow, RENEW_EVERY, Reach, Read, Rows, Said, Superseded, WATCH_TTL};
pub use run_watch::{Follow, Watch};
