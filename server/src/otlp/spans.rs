//! The trace of a run, made of its rows: the same rows give the same spans with the same ids on every server.
//!
//! The agent's run is `invoke_agent`; below it, each task that started is `execute_tool` and each model call whose usage was
//! recorded is `chat`. A child's run is below its parent's, in one trace for the family. No content goes along.

use super::names::*;
use flovyn_core::clock::Timestamp;
use flovyn_core::error::{Code, Result};
use flovyn_core::id::{ExecutionId, OrgId};
use flovyn_core::model::{
    Event, EventKind, Execution, Failure, PageRequest, Status as RunStatus, Task, TaskStatus, Usage,
};
use flovyn_core::storage::Storage;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Rows read at a time.
const PAGE: usize = 512;

/// The spans of a run that has ended.
pub(super) async fn of_run(storage: &dyn Storage, org: OrgId, id: ExecutionId) -> Result<Vec<SpanData>> {
    let run = storage.execution(org, id).await?;
    let trace = Trace::of(&run, family(storage, &run).await?.as_deref());
    let mut spans = vec![trace.run(&run)];
    let mut page = PageRequest { limit: PAGE, after: None };
    loop {
        let tasks = storage.tasks(org, id, page).await?;
        spans.extend(tasks.items.iter().filter_map(|task| trace.task(task)));
        match tasks.next {
            Some(next) => page = PageRequest { limit: PAGE, after: Some(next) },
            None => break,
        }
    }
    let (mut read, mut before) = (0, run.created_at);
    loop {
        let events = storage.events(org, id, read, PAGE).await?;
        for event in &events {
            spans.extend(trace.call(event, before));
            (read, before) = (event.number, event.at);
        }
        if events.len() < PAGE {
            return Ok(spans);
        }
    }
}

/// What the root of a child's family was started in. None for a root, and where the root is gone.
async fn family(storage: &dyn Storage, run: &Execution) -> Result<Option<String>> {
    if run.parent.is_none() || run.new.traceparent.is_some() {
        return Ok(None);
    }
    match storage.execution(run.new.org, run.root).await {
        Ok(root) => Ok(root.new.traceparent),
        Err(error) if error.code() == Code::ExecutionNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The common parts of the spans of a run.
struct Trace {
    run: ExecutionId,
    trace: TraceId,
    /// The span that the run was started in.
    above: SpanId,
    root: SpanId,
}

impl Trace {
    /// `family` is what the root of a child was started in.
    fn of(run: &Execution, family: Option<&str>) -> Self {
        let id = run.new.id;
        let of_root = |root: ExecutionId| TraceId::from_bytes(root.0.into_bytes());
        let given = run.new.traceparent.as_deref().and_then(parent);
        let (trace, above) = given.unwrap_or_else(|| match run.parent {
            Some(above) => {
                let trace = family.and_then(parent).map_or_else(|| of_root(run.root), |(trace, _)| trace);
                (trace, span_id(above, "run"))
            }
            None => (of_root(id), SpanId::INVALID),
        });
        Self { run: id, trace, above, root: span_id(id, "run") }
    }

    fn run(&self, run: &Execution) -> SpanData {
        let mut sum = Usage::default();
        run.usage.0.values().for_each(|usage| sum.add(usage));
        let mut attributes = vec![
            KeyValue::new(OPERATION, INVOKE_AGENT),
            KeyValue::new(AGENT_NAME, run.new.kind.clone()),
            KeyValue::new(CONVERSATION, run.new.key.clone().unwrap_or_else(|| run.new.id.to_string())),
            KeyValue::new(RUN, run.new.id.to_string()),
            KeyValue::new(ORG, run.new.org.to_string()),
            KeyValue::new(QUEUE, run.new.queue.clone()),
            KeyValue::new(STATUS, run.status.as_str()),
        ];
        attributes.extend(run.parent.map(|parent| KeyValue::new(PARENT, parent.to_string())));
        attributes.extend(run.code.clone().map(|code| KeyValue::new(AGENT_VERSION, code)));
        if sum.calls > 0 || !run.usage.is_empty() {
            attributes.extend(of_usage(&sum));
        }
        let failure = (run.status == RunStatus::Failed).then_some(run.failure.as_ref()).flatten();
        let name = format!("{INVOKE_AGENT} {}", run.new.kind);
        let ended = run.ended_at.unwrap_or(run.updated_at);
        SpanData {
            parent_span_id: self.above,
            parent_span_is_remote: run.parent.is_none() && self.above != SpanId::INVALID,
            ..self.span(self.root, name, (run.created_at, ended), attributes, failure)
        }
    }

    /// A task that started.
    fn task(&self, task: &Task) -> Option<SpanData> {
        let (started, ended) = (task.started_at?, task.ended_at?);
        let attributes = vec![
            KeyValue::new(OPERATION, EXECUTE_TOOL),
            KeyValue::new(TOOL_NAME, task.new.kind.clone()),
            KeyValue::new(TOOL_CALL, task.new.id.to_string()),
            KeyValue::new(TOOL_TYPE, "function"),
            KeyValue::new(RUN, self.run.to_string()),
            KeyValue::new(ATTEMPTS, i64::from(task.attempt)),
            KeyValue::new(STATUS, format!("{:?}", task.status).to_uppercase()),
        ];
        let failure = (task.status == TaskStatus::Failed).then_some(task.failure.as_ref()).flatten();
        let name = format!("{EXECUTE_TOOL} {}", task.new.kind);
        Some(self.span(span_id(self.run, &task.slot.to_string()), name, (started, ended), attributes, failure))
    }

    /// A model call, from the preceding event to the event with its usage.
    fn call(&self, event: &Event, before: Timestamp) -> Option<SpanData> {
        if event.kind != EventKind::Usage {
            return None;
        }
        let model = event.data["model"].as_str().unwrap_or_default().to_owned();
        let usage: Usage = serde_json::from_value(event.data["usage"].clone()).unwrap_or_default();
        let mut attributes = vec![
            KeyValue::new(OPERATION, CHAT),
            KeyValue::new(MODEL, model.clone()),
            KeyValue::new(RUN, self.run.to_string()),
        ];
        attributes.extend(provider(&model).map(|provider| KeyValue::new(PROVIDER, provider.to_owned())));
        attributes.extend(of_usage(&usage));
        let id = span_id(self.run, &format!("event {}", event.number));
        let span = self.span(id, format!("{CHAT} {model}"), (before, event.at), attributes, None);
        Some(SpanData { span_kind: SpanKind::Client, ..span })
    }

    fn span(
        &self,
        id: SpanId,
        name: String,
        (start, end): (Timestamp, Timestamp),
        mut attributes: Vec<KeyValue>,
        failure: Option<&Failure>,
    ) -> SpanData {
        let status = match failure {
            Some(failure) => {
                attributes.push(KeyValue::new(ERROR_TYPE, failure.error_type.clone()));
                Status::error(failure.code.as_str())
            }
            None => Status::Unset,
        };
        SpanData {
            span_context: SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: self.root,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: moment(start),
            end_time: moment(end.max(start)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: InstrumentationScope::builder("flovyn")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

fn of_usage(usage: &Usage) -> Vec<KeyValue> {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let all_input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    let mut attributes = vec![
        KeyValue::new(INPUT_TOKENS, count(all_input)),
        KeyValue::new(OUTPUT_TOKENS, count(usage.output_tokens)),
        KeyValue::new(CACHE_READ_TOKENS, count(usage.cache_read_tokens)),
        KeyValue::new(CACHE_WRITE_TOKENS, count(usage.cache_write_tokens)),
    ];
    attributes.extend(usage.cost_micros.map(|micros| KeyValue::new(COST, micros as f64 / 1e6)));
    attributes
}

/// The provider of a model that is named as `provider/model`; the model's own name may hold slashes.
fn provider(model: &str) -> Option<&str> {
    let (provider, model) = model.split_once('/')?;
    (!provider.is_empty() && !model.is_empty()).then_some(provider)
}

fn moment(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(at.0).unwrap_or(0))
}

/// The id of a span of a run.
fn span_id(run: ExecutionId, what: &str) -> SpanId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(run.0.as_bytes()).update(what.as_bytes());
    let mut id = [0; 8];
    hasher.finalize_xof().fill(&mut id);
    SpanId::from_bytes(id)
}

/// The trace and the span that a W3C trace parent names.
fn parent(text: &str) -> Option<(TraceId, SpanId)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    (version.len() == 2 && trace != TraceId::INVALID && span != SpanId::INVALID).then_some((trace, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_may_name_its_provider() {
        let known = [("anthropic/claude-haiku-4-5", "anthropic"), ("openrouter/z-ai/glm-4.7", "openrouter")];
        for (model, wanted) in known {
            assert_eq!(provider(model), Some(wanted));
        }
        for model in ["", "model-1", "/model-1", "anthropic/"] {
            assert_eq!(provider(model), None, "{model:?}");
        }
    }

    #[test]
    fn a_trace_parent_is_read_or_passed_over() {
        let (trace, span) = parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span.to_string(), "00f067aa0ba902b7");
        for wrong in ["", "00", "00-x-y-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert_eq!(parent(wrong), None, "{wrong:?}");
        }
    }
}
