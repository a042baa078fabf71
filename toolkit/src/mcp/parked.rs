//! The calls of servers of the handshake that wait for a person. The question is durable, and the call is not: it waits here, in
//! the process that has sent it, until the answer comes by its token. What becomes of it otherwise is for the answer's task.

use super::running::RunningCall;
use flovyn_core::sync::Mutex;
use futures::future::join_all;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// How many calls of one server may wait. One more ends the oldest, whose answer then comes too late.
const MAX_PARKED: usize = 64;
/// How long it may take to call all of them off.
const LONGEST_END: Duration = Duration::from_secs(1);

/// Calls by their tokens, oldest first.
type Calls = Mutex<VecDeque<(String, RunningCall)>>;

/// The calls of one server that wait.
pub(super) struct Parked(Arc<Calls>);

/// Those of all servers of this process. Who does without an answer knows only the token.
static ALL: Mutex<Vec<Weak<Calls>>> = Mutex::new(Vec::new());

impl Default for Parked {
    fn default() -> Self {
        let calls = Arc::<Calls>::default();
        let mut all = ALL.lock();
        all.retain(|calls| calls.strong_count() > 0);
        all.push(Arc::downgrade(&calls));
        Self(calls)
    }
}

impl Parked {
    /// Has a call wait, and returns the token by which it goes on.
    pub(super) fn park(&self, running: RunningCall) -> String {
        let token = Uuid::new_v4().to_string();
        let oldest = {
            let mut calls = self.0.lock();
            calls.push_back((token.clone(), running));
            (calls.len() > MAX_PARKED).then(|| calls.pop_front())
        };
        // It is called off outside of the lock.
        drop(oldest);
        token
    }

    /// Takes out a call that goes on.
    pub(super) fn take(&self, token: &str) -> Option<RunningCall> {
        take(&self.0, token)
    }

    /// Calls all of them off, and waits until that was sent.
    pub(super) async fn end(&self) {
        let calls = std::mem::take(&mut *self.0.lock());
        let _ = timeout(LONGEST_END, join_all(calls.into_iter().map(|(_, running)| running.end()))).await;
    }
}

fn take(calls: &Calls, token: &str) -> Option<RunningCall> {
    let mut calls = calls.lock();
    let place = calls.iter().position(|(parked, _)| parked == token)?;
    calls.remove(place).map(|(_, running)| running)
}

/// Calls off a call that waits in this process, if it does.
pub(super) fn call_off(token: &str) {
    let all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    let found = all.iter().find_map(|calls| take(calls, token));
    drop(found);
}
