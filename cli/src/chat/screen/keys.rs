//! The events of the terminal, read by a thread of their own.

use crossterm::event::{Event, poll, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How often the thread checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The events of the terminal until this is dropped.
pub(crate) struct KeyEvents {
    events: UnboundedReceiver<Event>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeyEvents {
    /// Begins to read.
    pub(crate) fn open() -> std::io::Result<Self> {
        let (sender, events) = unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stop_seen = stop.clone();
        let thread = std::thread::Builder::new().name("flovyn-keys".into()).spawn(move || {
            while !stop_seen.load(Ordering::Relaxed) {
                let event = match poll(POLL_INTERVAL) {
                    Ok(false) => continue,
                    Ok(true) => read(),
                    Err(_) => return,
                };
                // The terminal is gone.
                let Ok(event) = event else { return };
                if sender.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, stop, thread: Some(thread) })
    }

    /// Reads lines instead of keys, for a terminal that only prints.
    pub(crate) fn of_lines() -> std::io::Result<Self> {
        let events = super::plain::lines()?;
        Ok(Self { events, stop: Arc::new(AtomicBool::new(false)), thread: None })
    }

    /// The next event; none when the terminal is gone.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// An event that is there already.
    pub(crate) fn waiting(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Stops to read, so that another program can. Takes as long as the thread needs to notice.
    pub(crate) fn close(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends by itself; that it panicked is of no matter any more.
            let _ = thread.join();
        }
    }
}

impl Drop for KeyEvents {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
