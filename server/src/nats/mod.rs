//! NATS between the servers of an installation carries hints, and previews of runs that are read through another server.
//!
//! It only saves time. A lost hint does no harm, since servers poll the database anyway; previews travel through rows too, and
//! one that comes by NATS is shown only if it is the next one of what makes it. So a NATS that is absent, killed or slow, or that
//! repeats and reorders messages, costs latency alone. Clients that may publish there are trusted like servers. Hints use core
//! NATS; previews are retained by JetStream where NATS has it.

mod message;
mod previews;

use self::previews::Previews;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event};
use bytes::Bytes;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::streaming::{Chunks, Hints, News, Preview, PreviewTransport};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use uuid::Uuid;

/// Messages that wait to be sent. Further ones are dropped; where a hint was among them, the other servers are told that anything
/// may have changed.
const QUEUE: usize = 4_096;
/// How long a message may take to be sent before it is dropped.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection of a server to NATS, closed when it is dropped.
pub(crate) struct NatsBridge {
    hints: Hints,
    chunks: Chunks,
    tasks: Vec<AbortHandle>,
}

/// A message to other servers.
enum Message {
    Hint(News),
    Preview(Preview),
}

impl NatsBridge {
    /// Returns at once; connects in the background, again and again for as long as the server lives.
    ///
    /// Subjects begin with `prefix`: installations that share a NATS need one each. Errors: `InvalidArgument` for an invalid URL
    /// or prefix.
    pub(crate) async fn join(url: &str, prefix: &str, hints: &Hints, chunks: &Chunks) -> Result<Self> {
        let wrong = |why: String| Error::new(Code::InvalidArgument, why);
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return Err(wrong(format!("nats_prefix = {prefix:?} is none; use letters, digits, - and _")));
        }
        let process = chunks.process();
        let (connected, connections) = watch::channel(());
        let all_hints = hints.clone();
        let client = ConnectOptions::new()
            .name("flovyn")
            .retry_on_initial_connect()
            .event_callback(move |event| {
                // Hints were lost while there was no connection: every reader has to look at the database once.
                if matches!(event, Event::Connected) {
                    all_hints.everything_changed();
                    connected.send_replace(());
                }
                tracing::debug!(%event, "NATS");
                std::future::ready(())
            })
            .connect(url)
            .await
            .map_err(|error| wrong(format!("nats = {url:?} cannot be used: {error}; write nats://HOST:4222")))?;
        let (sender, messages) = mpsc::channel(QUEUE);
        let hints_lost = Arc::new(AtomicBool::new(false));
        let publisher =
            Publisher { client: client.clone(), prefix: prefix.to_owned(), process, hints_lost: hints_lost.clone() };
        let subscriber = Subscriber { client, prefix: prefix.to_owned(), own_process: process.to_string() };
        let tasks = vec![
            tokio::spawn(publisher.run(messages)).abort_handle(),
            tokio::spawn(subscriber.clone().receive_hints(hints.clone())).abort_handle(),
            tokio::spawn(subscriber.receive_previews(chunks.clone(), connections)).abort_handle(),
        ];
        chunks.set_broker(Some(Arc::new(PreviewSender(sender.clone()))));
        hints.set_on_publish(Some(Arc::new(move |hint| {
            if sender.try_send(Message::Hint(hint)).is_err() {
                hints_lost.store(true, Ordering::Relaxed);
            }
        })));
        Ok(Self { hints: hints.clone(), chunks: chunks.clone(), tasks })
    }
}

impl Drop for NatsBridge {
    fn drop(&mut self) {
        self.hints.set_on_publish(None);
        self.chunks.set_broker(None);
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The transport of previews by NATS. One that finds the queue full is lost: it is in the database.
struct PreviewSender(mpsc::Sender<Message>);

impl PreviewTransport for PreviewSender {
    fn publish(&self, preview: &Preview) {
        let _ = self.0.try_send(Message::Preview(preview.clone()));
    }
}

/// Publishes the hints and previews of this server.
struct Publisher {
    client: Client,
    prefix: String,
    process: Uuid,
    hints_lost: Arc<AtomicBool>,
}

impl Publisher {
    async fn run(self, mut messages: mpsc::Receiver<Message>) {
        let hints = format!("{}.hints.{}", self.prefix, self.process);
        let previews = format!("{}.previews.{}", self.prefix, self.process);
        while let Some(message) = messages.recv().await {
            // Messages are not kept while NATS is away: when it is back, every server looks at the database.
            if self.client.connection_state() != State::Connected {
                continue;
            }
            if self.hints_lost.swap(false, Ordering::Relaxed) {
                self.publish(&hints, Some(message::encode_everything())).await;
            }
            match message {
                Message::Hint(hint) => self.publish(&hints, Some(message::encode_hint(hint))).await,
                Message::Preview(preview) => self.publish(&previews, message::encode_preview(&preview)).await,
            }
        }
    }

    async fn publish(&self, subject: &str, message: Option<Bytes>) {
        let Some(message) = message else { return };
        let sent = tokio::time::timeout(PUBLISH_TIMEOUT, self.client.publish(subject.to_owned(), message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.hints_lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Receives the hints and previews of other servers.
#[derive(Clone)]
struct Subscriber {
    client: Client,
    prefix: String,
    /// The last part of the subjects of this server.
    own_process: String,
}

impl Subscriber {
    async fn receive_hints(self, hints: Hints) {
        let Ok(mut stream) = self.client.subscribe(format!("{}.hints.*", self.prefix)).await else {
            return tracing::warn!("NATS refuses the subscriptions of this server; it goes on without");
        };
        while let Some(received) = stream.next().await {
            if self.is_of_another(&received) {
                message::apply_hint(&received.payload, &hints);
            }
        }
    }

    /// Subscribes anew on each connection: NATS may have restarted and forgotten the subscription.
    async fn receive_previews(self, chunks: Chunks, mut connections: watch::Receiver<()>) {
        let mut previews = Previews::of(self.client.clone(), self.prefix.clone());
        loop {
            connections.mark_unchanged();
            let mut stream = previews.subscribe().await.unwrap_or_else(|| stream::pending().boxed());
            loop {
                let received = tokio::select! {
                    received = stream.next() => received,
                    connected = connections.changed() => match connected {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                };
                let Some((received, number)) = received else { break tokio::time::sleep(PUBLISH_TIMEOUT).await };
                previews.mark_received(number);
                if self.is_of_another(&received)
                    && let Some(preview) = message::decode_preview(&received.payload)
                {
                    chunks.receive(preview);
                }
            }
        }
    }

    fn is_of_another(&self, received: &async_nats::Message) -> bool {
        received.subject.rsplit('.').next() != Some(self.own_process.as_str())
    }
}
