//! Traces over OTLP: when a run has ended on this server, its trace is made of the committed rows and sent to a collector.
//!
//! Nothing is recorded while code runs, so a replay repeats no span. The server that commits the end of a run sends its trace, and no
//! other does. When a collector is away, traces are lost, runs are not affected.

mod names;
mod spans;

use crate::metrics::SERVICE;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::storage::Storage;
use flovyn_core::streaming::Listening;
use futures::{StreamExt, stream};
use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Runs that have ended and wait to be read; more are passed over.
const QUEUE: usize = 16_384;
/// Runs that are read at a time. One after the other, they would be read more slowly than a busy server ends them.
const READERS: usize = 8;
/// Runs whose traces are sent together.
const TOGETHER: usize = 256;
/// How long runs that have ended are collected before they are read.
const COLLECT: Duration = Duration::from_millis(100);
/// Runs that are remembered as sent.
const SENT: usize = 4_096;
/// Pauses before a batch is sent again; after them it is given up.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];

type Run = (OrgId, ExecutionId);

/// How long a server that ends may take to send what waits.
const FINISH: Duration = Duration::from_secs(10);

/// Sends traces until dropped.
pub(crate) struct Traces {
    /// Holds the sender of what is to be looked at.
    listening: Option<Listening>,
    sending: JoinHandle<()>,
}

impl Traces {
    /// `instance` is the id of this server.
    pub(crate) fn start(endpoint: &str, storage: Arc<dyn Storage>, instance: &str) -> Result<Self> {
        let exporter =
            SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(Duration::from_secs(10));
        let mut exporter = exporter.build().map_err(|error| {
            let message = format!("otlp.endpoint {endpoint:?} cannot be used: {error}; write http://HOST:4317");
            Error::new(Code::InvalidArgument, message)
        })?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let instance = KeyValue::new("service.instance.id", instance.to_owned());
        let resource = Resource::builder_empty().with_service_name(SERVICE).with_attributes([version, instance]);
        exporter.set_resource(&resource.build());
        let (sender, ended) = mpsc::channel(QUEUE);
        let listening = storage.hints().listen(move |change| {
            if let Some(change) = change.filter(|change| change.here && change.ended == Some(true)) {
                let _ = sender.try_send((change.org, change.execution));
            }
        });
        let sending = tokio::spawn(send(storage, exporter, ended));
        Ok(Self { listening: Some(listening), sending })
    }

    /// Sends the traces of the runs that have ended so far.
    pub(crate) async fn finish(mut self) {
        drop(self.listening.take());
        if tokio::time::timeout(FINISH, &mut self.sending).await.is_err() {
            tracing::warn!(
                "traces of runs that ended before this server did were not taken by the collector within {} s and are given up",
                FINISH.as_secs()
            );
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

async fn send(storage: Arc<dyn Storage>, exporter: SpanExporter, mut ended: mpsc::Receiver<Run>) {
    let mut sent = Sent::default();
    let mut waiting = Vec::new();
    loop {
        if ended.recv_many(&mut waiting, TOGETHER).await == 0 {
            return;
        }
        if waiting.len() < TOGETHER {
            tokio::time::sleep(COLLECT).await;
            while waiting.len() < TOGETHER
                && let Ok(run) = ended.try_recv()
            {
                waiting.push(run);
            }
        }
        let new = waiting.drain(..).filter(|&run| sent.add(run));
        let read = stream::iter(new).map(|run| spans_of(&*storage, run)).buffer_unordered(READERS);
        let spans: Vec<_> = read.concat().await;
        if !spans.is_empty() {
            export(&exporter, spans).await;
        }
    }
}

/// The spans of a run; none where they cannot be read.
async fn spans_of(storage: &dyn Storage, (org, run): Run) -> Vec<SpanData> {
    spans::of_run(storage, org, run).await.unwrap_or_else(|error| {
        tracing::warn!(%run, %error, "the trace of a run could not be read");
        Vec::new()
    })
}

async fn export(exporter: &SpanExporter, spans: Vec<SpanData>) {
    for pause in PAUSES {
        match exporter.export(spans.clone()).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "traces were not taken; they are sent again"),
        }
        tokio::time::sleep(pause).await;
    }
    if let Err(error) = exporter.export(spans).await {
        tracing::warn!(%error, "traces were not taken by the collector and are given up");
    }
}

/// Runs whose trace was sent.
#[derive(Default)]
struct Sent {
    known: HashSet<Run>,
    order: VecDeque<Run>,
}

impl Sent {
    /// Remembers a run. False if it was remembered already.
    fn add(&mut self, run: Run) -> bool {
        if !self.known.insert(run) {
            return false;
        }
        self.order.push_back(run);
        if self.order.len() > SENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
