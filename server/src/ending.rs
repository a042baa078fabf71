//! How a server is told to end: first that it will, so that callers go elsewhere while it still answers them, then that it does.

use tokio::sync::watch;

/// What tells a server to end. Whoever keeps it has not.
#[derive(Debug)]
pub(crate) struct Ending {
    draining: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
}

impl Default for Ending {
    fn default() -> Self {
        Self { draining: watch::Sender::new(false), stopping: watch::Sender::new(false) }
    }
}

impl Ending {
    /// The server will end: it is not ready any more, and asks with each answer to be called no further.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// The server ends.
    pub(crate) fn stop(&self) {
        self.drain();
        self.stopping.send_replace(true);
    }

    /// What hears [`drain`](Self::drain), and what hears [`stop`](Self::stop).
    pub(crate) fn heard(&self) -> (watch::Receiver<bool>, watch::Receiver<bool>) {
        (self.draining.subscribe(), self.stopping.subscribe())
    }
}

/// Ends once it is told, or once nobody is left who could tell.
pub(crate) async fn told(mut heard: watch::Receiver<bool>) {
    let _ = heard.wait_for(|told| *told).await;
}
