//! Workers that were refused work: said in the log, for a worker that gets none looks like one that has none to do.

use crate::Identity;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// How often, at most, the same is said: workers come again at once.
const SAID: Duration = Duration::from_secs(60);
/// Refusals that are remembered at a time; of more, some are passed over.
const REMEMBERED: usize = 1_000;

/// What was said lately. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<HashMap<Refused, Instant>>>);

/// Who asked for what.
type Refused = (Arc<str>, String);

impl Refusals {
    /// A worker asked for what its key does not allow: a queue, or a call.
    pub(crate) fn tell(&self, who: &Identity, asked: &str) {
        if !self.is_news(who.name(), asked) {
            return;
        }
        warn!(
            key = %who.name(),
            scopes = %who.scopes(),
            asked,
            "a worker is refused work that its key does not allow; make it a key for it (flovyn keys create --scopes worker:QUEUE), or \
             let it serve another queue"
        );
    }

    fn is_news(&self, key: &Arc<str>, asked: &str) -> bool {
        let mut said = self.0.lock();
        said.retain(|_, at| at.elapsed() < SAID);
        said.len() < REMEMBERED && said.insert((key.clone(), asked.to_owned()), Instant::now()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_said_once_a_minute() {
        let (refusals, key) = (Refusals::default(), Arc::from("key 1"));
        assert!(refusals.is_news(&key, "gpu"));
        assert!(!refusals.is_news(&key, "gpu") && refusals.is_news(&key, "cpu"));
        assert!(refusals.is_news(&Arc::from("key 2"), "gpu"));
        tokio::time::advance(SAID).await;
        assert!(refusals.is_news(&key, "gpu"));
        for n in 0..REMEMBERED * 2 {
            refusals.is_news(&key, &n.to_string());
        }
        assert!(refusals.0.lock().len() <= REMEMBERED);
    }
}
