//! In-process hints: "this run has news", "this queue has work". Woken parties look at the store themselves.

use crate::id::ExecutionId;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Where a backend announces changes and where loops and handles wait for them. Clones share one board.
#[derive(Clone, Default)]
pub struct Hints(Arc<Board>);

#[derive(Default)]
struct Board {
    agents: Bell,
    tasks: Bell,
    timers: Bell,
    watched: Mutex<HashMap<ExecutionId, watch::Sender<()>>>,
    listeners: RwLock<Vec<Listener>>,
}

struct Bell(watch::Sender<()>);

impl Default for Bell {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Bell {
    fn ring(&self) {
        self.0.send_replace(());
    }
}

type Listener = Box<dyn Fn(Option<(ExecutionId, u64)>) + Send + Sync>;

impl Hints {
    /// Some run became runnable.
    pub fn agents_ready(&self) {
        self.0.agents.ring();
    }

    /// Some task became visible.
    pub fn tasks_ready(&self) {
        self.0.tasks.ring();
    }

    /// Time may bring work earlier than housekeeping expected.
    pub fn timers_changed(&self) {
        self.0.timers.ring();
    }

    /// A run has new facts or events, up to this number.
    pub fn changed(&self, execution: ExecutionId, high: u64) {
        if let Some(watched) = self.0.watched.lock().get(&execution) {
            watched.send_replace(());
        }
        for listener in &*self.0.listeners.read() {
            listener(Some((execution, high)));
        }
    }

    /// Anything may have changed: another process wrote.
    pub fn everything_changed(&self) {
        self.agents_ready();
        self.tasks_ready();
        self.timers_changed();
        for watched in self.0.watched.lock().values() {
            watched.send_replace(());
        }
        for listener in &*self.0.listeners.read() {
            listener(None);
        }
    }

    /// Follows runs that become runnable.
    pub fn agents(&self) -> Follow {
        Follow(self.0.agents.0.subscribe())
    }

    /// Follows tasks that become visible.
    pub fn tasks(&self) -> Follow {
        Follow(self.0.tasks.0.subscribe())
    }

    /// Follows changes of what time will bring.
    pub fn timers(&self) -> Follow {
        Follow(self.0.timers.0.subscribe())
    }

    /// Calls back on every change of a run; `None` stands for any run. The callback must be quick and must not block.
    pub fn listen(&self, listener: impl Fn(Option<(ExecutionId, u64)>) + Send + Sync + 'static) {
        self.0.listeners.write().push(Box::new(listener));
    }

    /// Watches one run until dropped.
    pub fn watch(&self, execution: ExecutionId) -> Watch {
        let follow =
            Follow(self.0.watched.lock().entry(execution).or_insert_with(|| watch::Sender::new(())).subscribe());
        Watch { board: self.0.clone(), execution, follow: Some(follow) }
    }
}

/// Waits for rings of one bell. A ring between two waits is not missed.
pub struct Follow(watch::Receiver<()>);

impl Follow {
    /// Ends at the next ring since the last wait.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The board is gone: nothing will ever ring again.
            std::future::pending::<()>().await;
        }
    }
}

/// News of one run. Create it before looking at the store, so that no change is missed.
pub struct Watch {
    board: Arc<Board>,
    execution: ExecutionId,
    follow: Option<Follow>,
}

impl Watch {
    /// Ends at the next change since the last wait.
    pub async fn changed(&mut self) {
        if let Some(follow) = &mut self.follow {
            follow.changed().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.follow = None;
        let mut watched = self.board.watched.lock();
        if watched.get(&self.execution).is_some_and(|sender| sender.receiver_count() == 0) {
            watched.remove(&self.execution);
        }
    }
}
