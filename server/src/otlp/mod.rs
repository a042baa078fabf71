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
use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Changes of runs that wait to be looked at; more are passed over.
const QUEUE: usize = 16_384;
/// How long changes of a run are collected before it is looked at.
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
        let (sender, changed) = mpsc::channel(QUEUE);
        let listening = storage.hints().listen(move |change| {
            if let Some(change) = change.filter(|change| change.here) {
                let _ = sender.try_send(((change.org, change.execution), change.high));
            }
        });
        let sending = tokio::spawn(send(storage, exporter, changed));
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

async fn send(storage: Arc<dyn Storage>, exporter: SpanExporter, mut changed: mpsc::Receiver<(Run, u64)>) {
    let mut sent = Sent::default();
    let mut waiting = Vec::new();
    while changed.recv_many(&mut waiting, QUEUE).await > 0 {
        tokio::time::sleep(COLLECT).await;
        let mut runs: HashMap<Run, u64> = HashMap::new();
        while let Ok(more) = changed.try_recv() {
            waiting.push(more);
        }
        for (run, high) in waiting.drain(..) {
            let known = runs.entry(run).or_default();
            *known = high.max(*known);
        }
        let mut spans = Vec::new();
        for (run, high) in runs {
            if !sent.has(run) && has_ended(&*storage, run, high).await {
                match spans::of_run(&*storage, run.0, run.1).await {
                    Ok(of_run) => spans.extend(of_run),
                    Err(error) => tracing::warn!(run = %run.1, %error, "the trace of a run could not be read"),
                }
                sent.add(run);
            }
        }
        if !spans.is_empty() {
            export(&exporter, spans).await;
        }
    }
}

/// Whether an event of a run is the last there will be.
async fn has_ended(storage: &dyn Storage, (org, id): Run, number: u64) -> bool {
    let found = storage.events(org, id, number.saturating_sub(1), 1).await;
    found.is_ok_and(|events| events.first().is_some_and(|event| event.kind.is_terminal()))
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
    fn has(&self, run: Run) -> bool {
        self.known.contains(&run)
    }

    fn add(&mut self, run: Run) {
        if self.known.insert(run) {
            self.order.push_back(run);
        }
        if self.order.len() > SENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
