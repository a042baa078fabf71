//! Starts a run idempotently: the same request gives the same run, a different one under the same id is refused.

use flovyn_core::Payload;
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{Created, NewExecution};

/// Starts a run, or gives the one that the same request started before.
///
/// The backend compares kind and input; what else was asked for is compared here. Errors: `ExecutionExists`.
pub(crate) async fn start(client: &Client, kind: &str, input: Payload, options: StartOptions) -> Result<Created> {
    let requested = options.clone();
    let created = client.create(kind, input, options).await?;
    match created.existing.then(|| difference(&created.execution.new, &requested)).flatten() {
        None => Ok(created),
        Some(field) => {
            let id = created.execution.new.id;
            let named = created.execution.new.key.clone().unwrap_or_else(|| id.to_string());
            let message = format!("the id {named:?} is taken by a run with another {field}; choose another id");
            Err(Error::new(Code::ExecutionExists, message).with("id", id).with("field", field))
        }
    }
}

/// The first field in which a run is not what was asked for. A budget may have been raised since.
fn difference(run: &NewExecution, requested: &StartOptions) -> Option<&'static str> {
    let limits = (&run.limits, &requested.limits);
    let total = requested.limits.max_total_steps;
    [
        ("queue", run.queue == requested.queue.as_deref().unwrap_or("default")),
        ("metadata", run.metadata == requested.metadata),
        ("priority", run.priority == requested.priority),
        ("concurrencyKey", run.concurrency_key == requested.concurrency_key),
        ("concurrencyLimit", run.concurrency_limit == requested.concurrency_limit),
        ("maxSteps", limits.0.max_steps == limits.1.max_steps),
        ("maxTotalSteps", total.is_none() || limits.0.max_total_steps == total),
        ("maxTail", limits.0.max_tail == limits.1.max_tail),
        ("timeoutSeconds", limits.0.timeout == limits.1.timeout),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}
