//! Logs workers that are refused work: they get none, which looks as if there were none.

use crate::access::Identity;
use flovyn_core::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// How often, at most, the same refusal is logged: workers poll again at once.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Refusals that are remembered at a time; further ones are not logged.
const REMEMBERED: usize = 1_000;

/// The refusals that were logged lately. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusalLog(Arc<Mutex<HashMap<Refused, Instant>>>);

/// The name of a caller, and what it asked for.
type Refused = (Arc<str>, String);

impl RefusalLog {
    /// A worker asked for what its key does not allow: a queue, or a call.
    pub(crate) fn log(&self, who: &Identity, requested: &str) {
        if !self.is_new(who.name(), requested) {
            return;
        }
        warn!(
            key = %who.name(),
            scopes = %who.scopes(),
            asked = requested,
            "a worker is refused work that its key does not allow; make it a key for it (flovyn keys create --scopes worker:QUEUE), or \
             let it serve another queue"
        );
    }

    fn is_new(&self, key: &Arc<str>, requested: &str) -> bool {
        let mut logged = self.0.lock();
        logged.retain(|_, at| at.elapsed() < LOG_INTERVAL);
        logged.len() < REMEMBERED && logged.insert((key.clone(), requested.to_owned()), Instant::now()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_refusal_is_logged_once_a_minute() {
        let (refusals, key) = (RefusalLog::default(), Arc::from("key 1"));
        assert!(refusals.is_new(&key, "gpu"));
        assert!(!refusals.is_new(&key, "gpu") && refusals.is_new(&key, "cpu"));
        assert!(refusals.is_new(&Arc::from("key 2"), "gpu"));
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(refusals.is_new(&key, "gpu"));
        for n in 0..REMEMBERED * 2 {
            refusals.is_new(&key, &n.to_string());
        }
        assert!(refusals.0.lock().len() <= REMEMBERED);
    }
}
