//! A thread that writes records, so that the engine's threads never wait for a disk or a terminal.

use super::Trace;
use crate::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// How many records may wait to be written. Further ones are dropped and counted.
const QUEUE: usize = 65_536;
/// How many records are written at a time.
const BATCH: usize = 512;

/// Writes records to their final place.
pub(super) trait Sink: Send + 'static {
    /// Writes records in order.
    fn write(&mut self, batch: &[Trace]) -> std::io::Result<()>;
}

enum Message {
    Record(Box<Trace>),
    Flush(SyncSender<()>),
}

/// A sink with its thread. Dropping it writes what is queued and ends the thread.
pub(super) struct Background {
    queue: Option<SyncSender<Message>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    dropped: AtomicU64,
}

impl Background {
    pub(super) fn start(sink: impl Sink) -> std::io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE);
        let thread = crate::spawn::thread("flovyn-tracer", "traces", move || run(sink, &records))
            .map_err(std::io::Error::other)?;
        Ok(Self { queue: Some(queue), thread: Mutex::new(Some(thread)), dropped: AtomicU64::new(0) })
    }

    pub(super) fn send(&self, record: &Trace) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(Message::Record(Box::new(record.clone()))) {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "trace records were dropped: their sink is slower than the runs");
            }
        }
    }

    pub(super) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.as_ref().is_some_and(|queue| queue.send(Message::Flush(done)).is_ok()) {
            let _ = wait.recv();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(mut sink: impl Sink, records: &Receiver<Message>) {
    let mut failed = false;
    let mut batch = Vec::new();
    while let Ok(first) = records.recv() {
        let mut waiting = Vec::new();
        let mut take = |message, batch: &mut Vec<Trace>| match message {
            Message::Record(record) => batch.push(*record),
            Message::Flush(done) => waiting.push(done),
        };
        take(first, &mut batch);
        while batch.len() < BATCH
            && let Ok(more) = records.try_recv()
        {
            take(more, &mut batch);
        }
        match sink.write(&batch) {
            Err(error) if !failed => {
                failed = true;
                tracing::warn!(%error, "trace records could not be written; runs go on without them");
            }
            Err(_) => {}
            Ok(()) => failed = false,
        }
        batch.clear();
        for done in waiting {
            let _ = done.send(());
        }
    }
}
