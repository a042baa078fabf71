//! NATS between the servers of an installation: hints, and previews of runs that are read through another server.
//!
//! It saves time and is never the mechanism. Hints are missed without harm, since servers look at the database anyway;
//! previews travel through rows too, and one that comes by NATS is shown only where nothing is missing before it. So a NATS
//! that is absent, killed, slow, or that repeats and reorders costs latency alone. Whoever may publish there is trusted as
//! a server is. Hints use core NATS; previews are kept by JetStream where NATS has it.

mod previews;
mod word;

use self::previews::Previews;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Message};
use bytes::Bytes;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::streaming::{Chunks, Hints, News, Said};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use uuid::Uuid;

/// Words that wait to be sent; more are dropped, and the others are then told to look at everything.
const QUEUE: usize = 4_096;
/// A send that takes so long is given up.
const SLOW: Duration = Duration::from_secs(1);

/// A server's place on the bus, left when this is dropped.
pub(crate) struct Bus {
    hints: Hints,
    chunks: Chunks,
    tasks: Vec<AbortHandle>,
}

enum Word {
    News(News),
    Said(Said),
}

impl Bus {
    /// Joins, at once: a NATS that does not answer is tried again for as long as the server lives.
    ///
    /// `prefix` is what its subjects begin with: installations that share a NATS need one each. Errors: `InvalidArgument` for
    /// a URL or a prefix that can be none.
    pub(crate) async fn join(url: &str, prefix: &str, hints: &Hints, chunks: &Chunks) -> Result<Self> {
        let wrong = |why: String| Error::new(Code::InvalidArgument, why);
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return Err(wrong(format!("nats_prefix = {prefix:?} is none; use letters, digits, - and _")));
        }
        let process = chunks.process();
        let (connected, connections) = watch::channel(());
        let everything = hints.clone();
        let client = ConnectOptions::new()
            .name("flovyn")
            .retry_on_initial_connect()
            .event_callback(move |event| {
                // What was said while nobody listened is made good by a look.
                if matches!(event, Event::Connected) {
                    everything.everything_changed();
                    connected.send_replace(());
                }
                tracing::debug!(%event, "NATS");
                std::future::ready(())
            })
            .connect(url)
            .await
            .map_err(|error| wrong(format!("nats = {url:?} cannot be used: {error}; write nats://HOST:4222")))?;
        let (sender, words) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicBool::new(false));
        let post = Post { client: client.clone(), prefix: prefix.to_owned(), process, lost: lost.clone() };
        let ears = Ears { client, prefix: prefix.to_owned(), own: process.to_string() };
        let tasks = vec![
            tokio::spawn(post.send_all(words)).abort_handle(),
            tokio::spawn(ears.clone().hear_hints(hints.clone())).abort_handle(),
            tokio::spawn(ears.hear_previews(chunks.clone(), connections)).abort_handle(),
        ];
        let (of_news, of_said) = (sender.clone(), sender);
        let lost_too = lost.clone();
        hints.set_herald(Some(Arc::new(move |news| offer(&of_news, &lost, Word::News(news)))));
        chunks.set_herald(Some(Arc::new(move |said| offer(&of_said, &lost_too, Word::Said(said)))));
        Ok(Self { hints: hints.clone(), chunks: chunks.clone(), tasks })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.hints.set_herald(None);
        self.chunks.set_herald(None);
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

fn offer(sender: &mpsc::Sender<Word>, lost: &AtomicBool, word: Word) {
    let is_news = matches!(word, Word::News(_));
    if sender.try_send(word).is_err() && is_news {
        lost.store(true, Ordering::Relaxed);
    }
}

/// Says what this server has to say.
struct Post {
    client: Client,
    prefix: String,
    process: Uuid,
    lost: Arc<AtomicBool>,
}

impl Post {
    async fn send_all(self, mut words: mpsc::Receiver<Word>) {
        let hints = format!("{}.hints.{}", self.prefix, self.process);
        let previews = format!("{}.previews.{}", self.prefix, self.process);
        while let Some(word) = words.recv().await {
            // Nothing is kept for a NATS that is gone: by the time it is back, everybody has looked.
            if self.client.connection_state() != State::Connected {
                continue;
            }
            if self.lost.swap(false, Ordering::Relaxed) {
                self.send(&hints, Some(word::everything())).await;
            }
            match word {
                Word::News(news) => self.send(&hints, Some(word::of_news(news))).await,
                Word::Said(said) => self.send(&previews, word::of_said(&said)).await,
            }
        }
    }

    async fn send(&self, subject: &str, word: Option<Bytes>) {
        let Some(word) = word else { return };
        let sent = tokio::time::timeout(SLOW, self.client.publish(subject.to_owned(), word)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Takes what other servers say.
#[derive(Clone)]
struct Ears {
    client: Client,
    prefix: String,
    /// The end of the subjects that this server speaks on.
    own: String,
}

impl Ears {
    async fn hear_hints(self, hints: Hints) {
        let Ok(mut said) = self.client.subscribe(format!("{}.hints.*", self.prefix)).await else {
            return tracing::warn!("NATS refuses the subscriptions of this server; it goes on without");
        };
        while let Some(message) = said.next().await {
            if self.is_of_another(&message) {
                word::hint(&message.payload, &hints);
            }
        }
    }

    /// Listens anew on each connection: NATS may have restarted, and forgotten.
    async fn hear_previews(self, chunks: Chunks, mut connections: watch::Receiver<()>) {
        let mut previews = Previews::of(self.client.clone(), self.prefix.clone());
        loop {
            connections.mark_unchanged();
            let mut said = previews.listen().await.unwrap_or_else(|| stream::pending().boxed());
            loop {
                let heard = tokio::select! {
                    heard = said.next() => heard,
                    connected = connections.changed() => match connected {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                };
                let Some((message, number)) = heard else { break tokio::time::sleep(SLOW).await };
                previews.has_heard(number);
                if self.is_of_another(&message)
                    && let Some(said) = word::said(&message.payload)
                {
                    chunks.hear(said);
                }
            }
        }
    }

    fn is_of_another(&self, message: &Message) -> bool {
        message.subject.rsplit('.').next() != Some(self.own.as_str())
    }
}
