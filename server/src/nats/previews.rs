//! The subscription to previews of other servers. JetStream retains them for a minute where NATS has it, so that a server that lost
//! its connection goes on after the last preview it received; without JetStream, previews are received as they come.

use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy, push::OrderedConfig};
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::{Client, Message, jetstream};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::time::Duration;

/// How long JetStream retains a preview, and how many bytes of them. The database has them all.
const RETENTION: Duration = Duration::from_secs(60);
const RETAINED_BYTES: i64 = 64 << 20;

/// The subscription, and the position of this server in it.
pub(super) struct Previews {
    client: Client,
    prefix: String,
    /// When the JetStream stream was created, and the number of the last message that was received from it.
    position: Option<(String, u64)>,
}

/// A preview, and its number where it is retained.
pub(super) type Received = (Message, Option<u64>);

impl Previews {
    pub(super) fn of(client: Client, prefix: String) -> Self {
        Self { client, prefix, position: None }
    }

    /// Previews from now on; where they are retained, from the last one that was [received](Self::mark_received). None where NATS
    /// refuses.
    pub(super) async fn subscribe(&mut self) -> Option<BoxStream<'static, Received>> {
        match self.retained().await {
            Ok(retained) => return Some(retained),
            Err(error) => tracing::debug!(%error, "NATS keeps no previews; they are heard as they come"),
        }
        let messages = self.client.subscribe(format!("{}.previews.*", self.prefix)).await.ok()?;
        Some(messages.map(|message| (message, None)).boxed())
    }

    /// Remembers that the preview of this number was received.
    pub(super) fn mark_received(&mut self, number: Option<u64>) {
        if let (Some((_, last)), Some(number)) = (&mut self.position, number) {
            *last = number.max(*last);
        }
    }

    async fn retained(&mut self) -> Result<BoxStream<'static, Received>, async_nats::Error> {
        let stream = Config {
            name: format!("{}-previews", self.prefix),
            subjects: vec![format!("{}.previews.*", self.prefix)],
            storage: StorageType::Memory,
            max_age: RETENTION,
            max_bytes: RETAINED_BYTES,
            num_replicas: 1,
            no_ack: true,
            ..Config::default()
        };
        let stream = jetstream::new(self.client.clone()).get_or_create_stream(stream).await?;
        let created = stream.cached_info().created.to_string();
        // A stream that was created anew, as after a restart of NATS, is read from its beginning.
        let last = match self.position.take() {
            None => stream.cached_info().state.last_sequence,
            Some((of, last)) if of == created => last,
            Some(_) => 0,
        };
        let reader = OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: last + 1 },
            replay_policy: ReplayPolicy::Instant,
            ..OrderedConfig::default()
        };
        let retained = stream.create_consumer(reader).await?.messages().await?;
        self.position = Some((created, last));
        let number = |message: &jetstream::Message| message.info().ok().map(|info| info.stream_sequence);
        let received = retained.filter_map(move |message| {
            std::future::ready(message.ok().map(|message| {
                let number = number(&message);
                (message.message, number)
            }))
        });
        Ok(received.boxed())
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

    /// The texts received until a pause, in order.
    async fn texts(previews: &mut Previews, messages: &mut BoxStream<'static, Received>) -> Vec<String> {
        let mut texts = Vec::new();
        while let Ok(Some((message, number))) = tokio::time::timeout(Duration::from_secs(1), messages.next()).await {
            previews.mark_received(number);
            texts.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        texts
    }

    async fn publish(client: &Client, texts: &'static [&'static str]) {
        for text in texts {
            client.publish("test.previews.other", (*text).into()).await.unwrap();
        }
        client.flush().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn previews_that_were_missed_are_received_where_they_are_retained() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let retained = ["-js", "-sd", folder.path().to_str().unwrap()];
        let nats = Nats::start(port, &retained);
        let client = connected(port).await;
        let mut previews = Previews::of(client.clone(), "test".into());
        let mut messages = previews.subscribe().await.unwrap();
        publish(&client, &["one", "two"]).await;
        assert_eq!(texts(&mut previews, &mut messages).await, ["one", "two"]);
        drop(messages);
        publish(&client, &["three", "four"]).await;
        let mut messages = previews.subscribe().await.unwrap();
        assert_eq!(texts(&mut previews, &mut messages).await, ["three", "four"]);
        // A new subscriber starts at the end.
        let mut late = Previews::of(client.clone(), "test".into());
        let mut late_messages = late.subscribe().await.unwrap();
        assert!(texts(&mut late, &mut late_messages).await.is_empty());
        // NATS has forgotten everything, and counts anew.
        drop((messages, late_messages, nats));
        let _nats = Nats::start(port, &retained);
        let client = connected(port).await;
        let mut previews = Previews { client: client.clone(), ..previews };
        late.client = client.clone();
        assert!(late.subscribe().await.is_some());
        publish(&client, &["five"]).await;
        let mut messages = previews.subscribe().await.unwrap();
        assert_eq!(texts(&mut previews, &mut messages).await, ["five"]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_jetstream_previews_are_received_as_they_come() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _nats = Nats::start(port, &[]);
        let client = connected(port).await;
        let mut previews = Previews::of(client.clone(), "test".into());
        let mut messages = previews.subscribe().await.unwrap();
        publish(&client, &["one"]).await;
        assert_eq!(texts(&mut previews, &mut messages).await, ["one"]);
    }
}
