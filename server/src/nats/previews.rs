//! The previews that other servers say: where NATS has JetStream it keeps them for a minute, so a server that lost its
//! connection goes on after the last that it heard; elsewhere it hears them as they come.

use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy, push::OrderedConfig};
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::{Client, Message, jetstream};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::time::Duration;

/// How long JetStream keeps a preview, and how many bytes of them: the rows have them all.
const KEPT: Duration = Duration::from_secs(60);
const KEPT_BYTES: i64 = 64 << 20;

/// What is said, and how far this server has heard it.
pub(super) struct Previews {
    client: Client,
    prefix: String,
    /// When the stream was made that keeps them, and the number of the last that was heard.
    heard: Option<(String, u64)>,
}

/// A preview, and its number where it is kept.
pub(super) type Heard = (Message, Option<u64>);

impl Previews {
    pub fn of(client: Client, prefix: String) -> Self {
        Self { client, prefix, heard: None }
    }

    /// What is said from here on; where it is kept, first what was said since the last that was [heard](Self::has_heard).
    /// None where NATS refuses.
    pub async fn listen(&mut self) -> Option<BoxStream<'static, Heard>> {
        match self.kept().await {
            Ok(kept) => return Some(kept),
            Err(error) => tracing::debug!(%error, "NATS keeps no previews; they are heard as they come"),
        }
        let said = self.client.subscribe(format!("{}.previews.*", self.prefix)).await.ok()?;
        Some(said.map(|message| (message, None)).boxed())
    }

    /// Remembers that a preview of this number was heard.
    pub fn has_heard(&mut self, number: Option<u64>) {
        if let (Some((_, last)), Some(number)) = (&mut self.heard, number) {
            *last = number.max(*last);
        }
    }

    async fn kept(&mut self) -> Result<BoxStream<'static, Heard>, async_nats::Error> {
        let stream = Config {
            name: format!("{}-previews", self.prefix),
            subjects: vec![format!("{}.previews.*", self.prefix)],
            storage: StorageType::Memory,
            max_age: KEPT,
            max_bytes: KEPT_BYTES,
            num_replicas: 1,
            no_ack: true,
            ..Config::default()
        };
        let stream = jetstream::new(self.client.clone()).get_or_create_stream(stream).await?;
        let made = stream.cached_info().created.to_string();
        // A stream that somebody made anew, as after a restart of NATS, is heard from its beginning.
        let last = match self.heard.take() {
            None => stream.cached_info().state.last_sequence,
            Some((of, last)) if of == made => last,
            Some(_) => 0,
        };
        let reader = OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: last + 1 },
            replay_policy: ReplayPolicy::Instant,
            ..OrderedConfig::default()
        };
        let kept = stream.create_consumer(reader).await?.messages().await?;
        self.heard = Some((made, last));
        let number = |message: &jetstream::Message| message.info().ok().map(|info| info.stream_sequence);
        let heard = kept.filter_map(move |message| {
            std::future::ready(message.ok().map(|message| {
                let number = number(&message);
                (message.message, number)
            }))
        });
        Ok(heard.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    struct Nats(Child);

    impl Nats {
        fn start(port: u16, more: &[&str]) -> Self {
            let installed = Path::new("/usr/sbin/nats-server");
            let program = if installed.exists() { installed } else { Path::new("nats-server") };
            let mut server = Command::new(program);
            server.args(["-a", "127.0.0.1", "-p", &port.to_string()]).args(more);
            Self(
                server
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("nats-server is installed (make setup)"),
            )
        }
    }

    impl Drop for Nats {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    async fn connected(port: u16) -> Client {
        for _ in 0..500 {
            if let Ok(client) = async_nats::connect(format!("nats://127.0.0.1:{port}")).await {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no NATS at {port}");
    }

    /// What is heard until a pause, in order.
    async fn texts(previews: &mut Previews, said: &mut BoxStream<'static, Heard>) -> Vec<String> {
        let mut texts = Vec::new();
        while let Ok(Some((message, number))) = tokio::time::timeout(Duration::from_secs(1), said.next()).await {
            previews.has_heard(number);
            texts.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        texts
    }

    async fn say(client: &Client, texts: &'static [&'static str]) {
        for text in texts {
            client.publish("test.previews.other", (*text).into()).await.unwrap();
        }
        client.flush().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_said_while_nobody_listened_is_heard_where_it_is_kept() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let kept = ["-js", "-sd", folder.path().to_str().unwrap()];
        let nats = Nats::start(port, &kept);
        let client = connected(port).await;
        let mut previews = Previews::of(client.clone(), "test".into());
        let mut said = previews.listen().await.unwrap();
        say(&client, &["one", "two"]).await;
        assert_eq!(texts(&mut previews, &mut said).await, ["one", "two"]);
        drop(said);
        say(&client, &["three", "four"]).await;
        let mut said = previews.listen().await.unwrap();
        assert_eq!(texts(&mut previews, &mut said).await, ["three", "four"]);
        // Who comes later has not missed them.
        let mut late = Previews::of(client.clone(), "test".into());
        let mut said_late = late.listen().await.unwrap();
        assert!(texts(&mut late, &mut said_late).await.is_empty());
        // NATS has forgotten everything, and counts anew.
        drop((said, said_late, nats));
        let _nats = Nats::start(port, &kept);
        let client = connected(port).await;
        let mut previews = Previews { client: client.clone(), ..previews };
        late.client = client.clone();
        assert!(late.listen().await.is_some());
        say(&client, &["five"]).await;
        let mut said = previews.listen().await.unwrap();
        assert_eq!(texts(&mut previews, &mut said).await, ["five"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_jetstream_previews_are_heard_as_they_come() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _nats = Nats::start(port, &[]);
        let client = connected(port).await;
        let mut previews = Previews::of(client.clone(), "test".into());
        let mut said = previews.listen().await.unwrap();
        say(&client, &["one"]).await;
        assert_eq!(texts(&mut previews, &mut said).await, ["one"]);
    }
}
