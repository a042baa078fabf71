//! The shutdown of a server in two steps: it drains, so that callers go elsewhere while it still answers, then it stops.

use tokio::sync::watch;

/// Starts the steps of a shutdown. The server runs for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Shutdown {
    draining: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { draining: watch::Sender::new(false), stopping: watch::Sender::new(false) }
    }
}

impl Shutdown {
    /// The server is not ready any more, and asks its callers with each answer to connect elsewhere.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// The server stops.
    pub(crate) fn stop(&self) {
        self.drain();
        self.stopping.send_replace(true);
    }

    /// Receivers of [`drain`](Self::drain) and of [`stop`](Self::stop).
    pub(crate) fn subscribe(&self) -> (watch::Receiver<bool>, watch::Receiver<bool>) {
        (self.draining.subscribe(), self.stopping.subscribe())
    }
}

/// Ends once the step has begun, or once the [`Shutdown`] is dropped.
pub(crate) async fn signalled(mut receiver: watch::Receiver<bool>) {
    let _ = receiver.wait_for(|signalled| *signalled).await;
}
