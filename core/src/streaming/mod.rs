//! How news of a run travels: hints that something changed, and previews of what is being made.
//!
//! Hints and chunks are never the mechanism: losing all of them costs time, never correctness.

mod change_poller;
mod chunks;
mod hints;
mod hub;
mod outage;
mod preview;
mod rows;
mod run_watch;
mod single_flight;

pub use change_poller::ChangePoller;
pub use chunks::{Chunks, Delivered, Position};
pub use hints::{Change, Hints, News};
pub use hub::Listening;
pub(crate) use outage::without_log;
pub use outage::{Outage, Refusal};
pub use preview::{OpKey, Preview, PreviewRow, PreviewTransport, Progress, ProgressBySource, RunKey, Source};
pub use rows::{Buffered, RENEW_EVERY, Registration, Superseded, WATCH_TTL};
pub use run_watch::{Follow, Watch};
