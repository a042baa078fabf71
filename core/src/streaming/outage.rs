//! Whether a store takes what is written to it: said once in the log when it stops, once when it goes on, and meanwhile to
//! whoever asks.
//!
//! Backends and those who wait for one tell of what was refused. One write that is kept proves little: on a disk that is nearly
//! full small ones still are while large ones are not. It is over once one is kept and nobody was refused for a while.

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, Kind};
use crate::sync::Mutex;
use std::fmt;
use std::io::Write;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::subscriber::NoSubscriber;

/// Longer than anybody pauses who waits for a store and asks it again (`storage::available`).
const QUIET: Duration = Duration::from_secs(3);

/// What is known of the writes of one backend.
#[derive(Debug, Default)]
pub struct Outage {
    state: Mutex<State>,
    lasts: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    lasting: Option<Lasting>,
    is_closed: bool,
}

#[derive(Debug)]
struct Lasting {
    since: Timestamp,
    began: Instant,
    /// The last time that something was refused.
    refused: Instant,
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
    pub fn refused(&self, error: &Error) {
        if error.kind() != Kind::Unavailable {
            return;
        }
        let (now, why) = (Instant::now(), error.message());
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        match &mut state.lasting {
            Some(lasting) => {
                lasting.refused = now;
                lasting.why.replace_range(.., why);
                return;
            }
            none => {
                let since = SystemClock::default().now();
                *none = Some(Lasting { since, began: now, refused: now, why: why.to_owned() });
            }
        }
        drop(state);
        self.lasts.send_replace(true);
        warn(&format!("the store takes no writes: {why}; what is under way waits, and goes on by itself once it does"));
    }

    /// Something was written on trial, and kept.
    pub(crate) fn kept(&self) {
        let mut state = self.state.lock();
        let Some(over) = state.lasting.take_if(|lasting| lasting.refused.elapsed() >= QUIET) else { return };
        self.lasts.send_replace(false);
        drop(state);
        warn(&format!("the store takes writes again, after {:.0} s", over.began.elapsed().as_secs_f64()));
    }

    /// Why the store takes no writes now, if it does not.
    pub fn now(&self) -> Option<Refusal> {
        let state = self.state.lock();
        state.lasting.as_ref().map(|lasting| Refusal { since: lasting.since, why: lasting.why.clone() })
    }

    /// Whether one lasts, and each change of that.
    pub(crate) fn follow(&self) -> watch::Receiver<bool> {
        self.lasts.subscribe()
    }

    /// What is refused from now on is no outage: the store was closed, or a test refuses.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }
}

/// One line in the log, if that is to tell errors; on stderr where the program has no log, as those of Python and Node.
fn warn(line: &str) {
    if !without_log(line) {
        tracing::error!("{line}");
    }
}

/// Writes a line to stderr if the program has no log. False if it has one.
pub(crate) fn without_log(line: &str) -> bool {
    let is_without = tracing::dispatcher::get_default(|log| log.is::<NoSubscriber>());
    if is_without {
        let _ = writeln!(std::io::stderr(), "flovyn: {line}");
    }
    is_without
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn full() -> Error {
        Error::new(Code::StorageUnavailable, "commit: the disk is full; make room")
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_nothing_is_refused_any_more() {
        let outage = Outage::default();
        let lasts = outage.follow();
        outage.refused(&Error::new(Code::LeaseLost, "it is another's"));
        assert_eq!(outage.now(), None);
        outage.refused(&full());
        let first = outage.now().expect("it lasts");
        assert!(first.to_string().contains("make room") && *lasts.borrow(), "{first}");
        // Small writes are kept all the time, a large one is not.
        for _ in 0..10 {
            tokio::time::advance(QUIET - Duration::from_millis(1)).await;
            outage.kept();
            outage.refused(&full());
            assert_eq!(outage.now(), Some(first.clone()), "it is the same one");
        }
        tokio::time::advance(QUIET).await;
        assert!(outage.now().is_some(), "nobody has tried");
        outage.kept();
        assert!(outage.now().is_none() && !*lasts.borrow());
    }

    #[tokio::test]
    async fn a_store_that_was_closed_is_no_outage() {
        let outage = Outage::default();
        outage.close();
        outage.refused(&full());
        assert_eq!(outage.now(), None);
    }
}
