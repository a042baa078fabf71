//! One timer for all batches that are held back beside an inline task. All wait equally long, so their queue is in the
//! order in which they are due.

use super::Core;
use crate::session::{HOLD, Session};
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Holds {
    queue: Mutex<VecDeque<(Instant, Weak<Session>)>>,
    some: Notify,
}

impl Holds {
    pub(super) fn arm(&self, session: &Arc<Session>) {
        let mut queue = self.queue.lock();
        queue.push_back((Instant::now() + HOLD, Arc::downgrade(session)));
        if queue.len() == 1 {
            self.some.notify_one();
        }
    }
}

pub(super) async fn run(core: Arc<Core>) {
    while !core.is_closing() {
        let next = core.holds.queue.lock().front().map(|(due, _)| *due);
        match next {
            None => tokio::select! {
                () = core.holds.some.notified() => {}
                () = core.closed.notified() => return,
            },
            Some(due) => {
                tokio::time::sleep_until(due).await;
                let now = Instant::now();
                loop {
                    let session = {
                        let mut queue = core.holds.queue.lock();
                        match queue.front() {
                            Some((due, _)) if *due <= now => queue.pop_front().map(|(_, session)| session),
                            _ => None,
                        }
                    };
                    match session {
                        Some(session) => {
                            if let Some(session) = session.upgrade() {
                                session.hold_elapsed();
                            }
                        }
                        None => break,
                    }
                }
            }
        }
    }
}
