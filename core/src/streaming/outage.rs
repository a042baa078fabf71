//! Whether a store takes what is written to it: said once in the log when it stops, once when it goes on, and meanwhile to
//! whoever asks.
//!
//! Backends and those who wait for one tell what became of their writes. Each kind of write counts by itself: on a disk that is
//! nearly full small ones may still be kept while large ones are not.

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, Kind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A write that was refused and that nobody has tried again for so long says nothing any more.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// Once others are kept, it says nothing after so long: whoever waits for a store asks it again every two seconds at least,
/// and a store that is busy answers within five.
const WAITED_FOR: Duration = Duration::from_secs(8);

/// What is known of the writes of one backend.
#[derive(Debug, Default)]
pub struct Outage {
    lasts: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The writes that were refused and not kept since, by what they were.
    refused: BTreeMap<String, Instant>,
    began: Option<(Timestamp, Instant)>,
    why: String,
}

/// A store does not take what is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Since when.
    pub since: Timestamp,
    /// The last error: what was asked, what the store said, and what to do.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store has taken no writes since {}: {}", self.since, self.why)
    }
}

impl Outage {
    /// A write was not kept. Only an error that may pass by itself is an outage.
    pub fn refused(&self, what: &str, error: &Error) {
        if error.kind() != Kind::Unavailable {
            return;
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        state.refused.insert(what.to_owned(), now);
        state.why.clear();
        state.why.push_str(error.message());
        if state.began.is_none() {
            state.began = Some((SystemClock::default().now(), now));
            self.lasts.store(true, Ordering::Release);
            let why = error.message();
            say(&format!(
                "the store takes no writes: {why}; what is under way waits, and goes on by itself once it does"
            ));
        }
    }

    /// A write was kept.
    pub fn kept(&self, what: &str) {
        if self.lasts.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            state.refused.remove(what);
            // Others are tried again sooner than this, or by nobody.
            state.refused.retain(|_, at| at.elapsed() < WAITED_FOR);
            self.review(&mut state, true);
        }
    }

    /// Why the store takes no writes now, if it does not.
    pub fn now(&self) -> Option<Refusal> {
        if !self.lasts.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        self.review(&mut state, false);
        state.began.map(|(since, _)| Refusal { since, why: state.why.clone() })
    }

    fn review(&self, state: &mut State, kept: bool) {
        let Some((_, began)) = state.began else { return };
        state.refused.retain(|_, at| at.elapsed() < FORGOTTEN);
        if !state.refused.is_empty() {
            return;
        }
        state.began = None;
        self.lasts.store(false, Ordering::Release);
        say(&match kept {
            true => format!("the store takes writes again, after {:.1} s", began.elapsed().as_secs_f64()),
            false => format!("nobody has tried again for {FORGOTTEN:?} what the store did not take"),
        });
    }
}

/// One line in the log; on stderr where the program has none, as those of Python and Node.
fn say(line: &str) {
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{line}");
    } else {
        let _ = writeln!(std::io::stderr(), "flovyn: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn full() -> Error {
        Error::new(Code::StorageUnavailable, "commit: the disk is full; make room")
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_what_was_refused_is_kept() {
        let outage = Outage::default();
        outage.refused("commit", &Error::new(Code::LeaseLost, "it is another's"));
        assert_eq!(outage.now(), None);
        outage.refused("commit", &full());
        outage.kept("heartbeat");
        let first = outage.now().expect("it lasts");
        assert!(first.to_string().contains("make room"), "{first}");
        tokio::time::advance(FORGOTTEN / 2).await;
        outage.refused("commit", &full());
        assert_eq!(outage.now().map(|refusal| refusal.since), Some(first.since));
        outage.kept("commit");
        assert_eq!(outage.now(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_tries_again_is_forgotten() {
        let outage = Outage::default();
        outage.refused("start a run", &full());
        tokio::time::advance(FORGOTTEN - Duration::from_millis(1)).await;
        assert!(outage.now().is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(outage.now(), None);
    }
}
