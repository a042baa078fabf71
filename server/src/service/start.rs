//! Starting a run for a caller who may ask again: the same request is the same run, another one under its id is refused.

use flovyn_core::Payload;
use flovyn_core::client::{Client, StartOptions};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{Created, NewExecution};

/// Starts a run, or gives the one that the same request started before.
///
/// The backend compares kind and input; what else was asked for is compared here. Errors: `ExecutionExists`.
pub(crate) async fn start(client: &Client, kind: &str, input: Payload, options: StartOptions) -> Result<Created> {
    let asked = options.clone();
    let created = client.create(kind, input, options).await?;
    match created.existing.then(|| difference(&created.execution.new, &asked)).flatten() {
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
fn difference(run: &NewExecution, asked: &StartOptions) -> Option<&'static str> {
    let limits = (&run.limits, &asked.limits);
    let total = asked.limits.max_total_steps;
    [
        ("queue", run.queue == asked.queue.as_deref().unwrap_or("default")),
        ("metadata", run.metadata == asked.metadata),
        ("priority", run.priority == asked.priority),
        ("concurrencyKey", run.concurrency_key == asked.concurrency_key),
        ("concurrencyLimit", run.concurrency_limit == asked.concurrency_limit),
        ("maxSteps", limits.0.max_steps == limits.1.max_steps),
        ("maxTotalSteps", total.is_none() || limits.0.max_total_steps == total),
        ("maxTail", limits.0.max_tail == limits.1.max_tail),
        ("timeoutSeconds", limits.0.timeout == limits.1.timeout),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}
