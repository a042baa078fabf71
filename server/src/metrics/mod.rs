//! The metrics of a server: one registry, read in the text form of OpenMetrics.
//!
//! Labels come from closed lists, or are cut off after [`NAMES`] names; none is an id. What is counted of runs was committed.

mod gate;
mod listener;
mod process;

pub(crate) use gate::Measured;
pub(crate) use listener::{answer, serve};

use self::process::Process;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use flovyn_core::clock::Timestamp;
use flovyn_core::model::Usage;
use flovyn_core::storage::{Load, Storage};
use flovyn_core::sync::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// Names of queues and of models that get a label of their own; those that come later share `other`.
const NAMES: usize = 100;
/// The name of the service in dashboards of several services.
pub(crate) const SERVICE: &str = "flovyn";

type Labels<const N: usize> = [(&'static str, String); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// The counters of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Inner>);

struct Inner {
    instance: String,
    registry: Registry,
    http_calls: Counters<3>,
    grpc_calls: Counters<2>,
    storage_calls: Counters<2>,
    storage_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    commits: Counters<1>,
    ended: Counters<1>,
    children: Counter,
    messages: Counter,
    claims: Counters<1>,
    leases_lost: Counter,
    payload_bytes: Counters<1>,
    tokens: Counters<2>,
    cost: Family<Labels<1>, Counter<f64, AtomicU64>>,
    subscribers: Gauge,
    stream_events: Counter,
    work: Family<Labels<3>, Gauge>,
    oldest: Family<Labels<2>, Gauge<f64, AtomicU64>>,
    connections: Family<Labels<2>, Gauge>,
    set_aside: Counter,
    queues: Names,
    models: Names,
}

/// Names that are labels.
#[derive(Default)]
struct Names(Mutex<BTreeSet<String>>);

impl Names {
    fn label(&self, name: &str) -> String {
        let mut known = self.0.lock();
        if !known.contains(name) {
            if known.len() >= NAMES {
                return "other".to_owned();
            }
            known.insert(name.to_owned());
        }
        name.to_owned()
    }
}

fn seconds() -> Histogram {
    // 100 µs to 26 s.
    Histogram::new(exponential_buckets(0.000_1, 2.0, 19))
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// The identity of this server, in the names of OpenTelemetry with `_` for `.`.
fn resource(instance: &str) -> Vec<(&'static str, String)> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (name, instance) = (SERVICE.to_owned(), instance.to_owned());
    vec![("service_name", name), ("service_version", version), ("service_instance_id", instance)]
}

/// The commit is known where the build was told it.
fn build() -> Vec<(&'static str, String)> {
    let commit = option_env!("FLOVYN_COMMIT").filter(|commit| !commit.is_empty());
    let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
    [version].into_iter().chain(commit.map(|commit| ("commit", commit.to_owned()))).collect()
}

impl Default for Metrics {
    fn default() -> Self {
        let instance = Uuid::new_v4().to_string();
        let mut registry = Registry::default();
        // OpenMetrics' name for what traces call their resource.
        registry.register("target", "The server that tells this", Info::new(resource(&instance)));
        registry.register_collector(Box::new(Process));
        let all = registry.sub_registry_with_prefix("flovyn");
        all.register("build", "What the server was built from", Info::new(build()));
        let timed = Family::new_with_constructor(seconds as fn() -> Histogram);
        let metrics = Inner {
            http_calls: add(all, "http_calls", "Answers over HTTP", Family::default()),
            grpc_calls: add(all, "grpc_calls", "Answers over gRPC, as they began", Family::default()),
            storage_calls: add(all, "storage_calls", "Calls of the storage", Family::default()),
            storage_seconds: add(all, "storage_seconds", "How long calls of the storage took", timed),
            commits: add(all, "commits", "Commits of runs, by what followed", Family::default()),
            ended: add(all, "runs_ended", "Runs that a commit ended or paused", Family::default()),
            children: add(all, "children", "Children that commits have started", Counter::default()),
            messages: add(all, "family_messages", "Messages between runs of a family", Counter::default()),
            claims: add(all, "claims", "Runs and tasks that were claimed", Family::default()),
            leases_lost: add(
                all,
                "leases_lost",
                "Runs that were taken from a worker which gave no sign",
                Counter::default(),
            ),
            payload_bytes: add(all, "payload_bytes", "Bytes of values that were stored", Family::default()),
            tokens: add(all, "tokens", "Tokens of model calls, as committed", Family::default()),
            cost: add(all, "cost_usd", "Cost of model calls in US dollars, as committed", Family::default()),
            subscribers: add(all, "stream_subscribers", "Readers of server-sent events", Gauge::default()),
            stream_events: add(all, "stream_events", "Server-sent events that were sent", Counter::default()),
            work: add(all, "work", "Runs and tasks that wait for a worker or have one", Family::default()),
            oldest: add(
                all,
                "work_oldest_seconds",
                "How long the first of those that wait has waited",
                Family::default(),
            ),
            connections: add(
                all,
                "database_connections",
                "Connections to the database, and calls that wait",
                Family::default(),
            ),
            set_aside: add(all, "rows_set_aside", "Stored rows that could not be used", Counter::default()),
            queues: Names::default(),
            models: Names::default(),
            instance,
            registry: Registry::default(),
        };
        Self(Arc::new(Inner { registry, ..metrics }))
    }
}

impl Metrics {
    /// A call over gRPC was answered.
    pub(crate) fn answered(&self, method: String, code: String) {
        self.0.grpc_calls.get_or_create(&[("method", method), ("code", code)]).inc();
    }

    /// The id of this server for as long as it runs: in metrics, in traces, in the log.
    pub(crate) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// A worker claimed some runs or tasks.
    pub(crate) fn claimed(&self, what: &str, count: usize) {
        self.0.claims.get_or_create(&[("what", what.to_owned())]).inc_by(count as u64);
    }

    /// Runs were taken from a worker, which has learned of it.
    pub(crate) fn lost(&self, count: usize) {
        self.0.leases_lost.inc_by(count as u64);
    }

    /// Bytes were stored, by the way they came.
    fn stored(&self, by: &str, bytes: u64) {
        self.0.payload_bytes.get_or_create(&[("by", by.to_owned())]).inc_by(bytes);
    }

    /// An upload was stored.
    pub(crate) fn uploaded(&self, bytes: u64) {
        self.stored("upload", bytes);
    }

    /// Model calls were committed.
    fn used(&self, model: &str, usage: &Usage) {
        let model = self.0.models.label(model);
        for (kind, tokens) in [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ] {
            if tokens > 0 {
                self.0.tokens.get_or_create(&[("model", model.clone()), ("kind", kind.to_owned())]).inc_by(tokens);
            }
        }
        if let Some(micros) = usage.cost_micros {
            self.0.cost.get_or_create(&[("model", model)]).inc_by(micros as f64 / 1e6);
        }
    }

    /// A reader came; it is counted as long as what this returns lives.
    pub(crate) fn subscribed(&self) -> Subscribed {
        self.0.subscribers.inc();
        Subscribed(self.clone())
    }

    /// All metrics, with those of the backend's queues and connections.
    pub(crate) async fn text(&self, storage: &dyn Storage) -> flovyn_core::Result<String> {
        let load = storage.load().await?;
        self.gauge(&load, storage.clock().now());
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.0.registry);
        Ok(text)
    }

    fn gauge(&self, load: &Load, now: Timestamp) {
        let Inner { work, oldest, connections, queues, .. } = &*self.0;
        work.clear();
        oldest.clear();
        connections.clear();
        for queue in &load.queues {
            let (what, name) = (queue.what.to_owned(), queues.label(&queue.queue));
            for (status, count) in [("PENDING", queue.pending), ("RUNNING", queue.running)] {
                let labels = [("what", what.clone()), ("queue", name.clone()), ("status", status.to_owned())];
                work.get_or_create(&labels).inc_by(i64::try_from(count).unwrap_or(i64::MAX));
            }
            let since = queue.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)).as_secs_f64();
            let gauge = oldest.get_or_create_owned(&[("what", what), ("queue", name)]);
            gauge.set(gauge.get().max(since));
        }
        self.0.set_aside.inner().store(load.set_aside, Ordering::Relaxed);
        for pool in &load.pools {
            for (state, count) in [("idle", pool.idle), ("busy", pool.busy), ("waiting", pool.waiting)] {
                let labels = [("pool", pool.name.to_owned()), ("state", state.to_owned())];
                connections.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}

/// A reader that is counted.
pub(crate) struct Subscribed(Metrics);

impl Subscribed {
    /// An event goes to it.
    pub(crate) fn gets_one(&self) {
        self.0.0.stream_events.inc();
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.0.subscribers.dec();
    }
}

/// Counts the answers over HTTP by route.
pub(crate) async fn http_calls(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_owned();
    let method = match request.method().as_str() {
        method @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "PATCH") => method.to_owned(),
        _ => "other".to_owned(),
    };
    let answer = next.run(request).await;
    let code = answer.status().as_u16().to_string();
    metrics.0.http_calls.get_or_create(&[("method", method), ("route", route), ("code", code)]).inc();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use flovyn_core::storage::{PoolLoad, QueueDepth};

    #[test]
    fn names_are_labels_up_to_a_number() {
        let metrics = Metrics::default();
        let usage = Usage { calls: 1, output_tokens: 2, ..Usage::default() };
        for model in 0..NAMES + 5 {
            metrics.used(&format!("model-{model}"), &usage);
        }
        let mut text = String::new();
        encode(&mut text, &metrics.0.registry).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("flovyn_tokens_total{")).count(), NAMES + 1);
        assert!(text.contains("flovyn_tokens_total{model=\"other\",kind=\"output\"} 10\n"), "{text}");
    }

    #[test]
    fn queues_and_connections_are_as_last_seen() {
        let metrics = Metrics::default();
        let queue = |queue: &str, pending, oldest| QueueDepth {
            what: "run",
            queue: queue.into(),
            pending,
            running: 1,
            oldest: Some(Timestamp(oldest)),
        };
        let pools = vec![PoolLoad { name: "read", idle: 3, busy: 1, waiting: 0 }];
        metrics.gauge(&Load { queues: vec![queue("gone", 1, 0)], ..Load::default() }, Timestamp(0));
        let load = Load { queues: vec![queue("gpu", 2, 1_000_000)], pools, set_aside: 3 };
        metrics.gauge(&load, Timestamp(3_000_000));
        let mut text = String::new();
        encode(&mut text, &metrics.0.registry).unwrap();
        for line in [
            "flovyn_work{what=\"run\",queue=\"gpu\",status=\"PENDING\"} 2",
            "flovyn_work{what=\"run\",queue=\"gpu\",status=\"RUNNING\"} 1",
            "flovyn_work_oldest_seconds{what=\"run\",queue=\"gpu\"} 2.0",
            "flovyn_rows_set_aside_total 3",
            "flovyn_database_connections{pool=\"read\",state=\"idle\"} 3",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
        assert!(!text.contains("gone"));
    }
}
