//! Children as a host names them, and what is told of them.

use crate::error::{Code, Error, Result};
use crate::id::{ExecutionId, SignalId};
use crate::model::{ChildEvent, ChildRequest, Failure, Overrun};

/// The run that a host names as a child.
pub fn child_of(text: &str) -> Result<ExecutionId> {
    text.parse().map(ExecutionId).map_err(|_| {
        Error::new(
            Code::InvalidArgument,
            format!("{text:?} is no child: pass what ctx.spawn_agent returned, or its id"),
        )
    })
}

/// The request that a host names by its child and its id.
pub fn request_of(child: &str, id: &str) -> Result<ChildRequest> {
    let id = id.parse().map(SignalId).map_err(|_| {
        Error::new(Code::InvalidArgument, format!("{id:?} is no request: answer what wait_for_child_event returned"))
    })?;
    Ok(ChildRequest { child: child_of(child)?, id })
}

/// What has happened to a child, in the words that hosts know; its value is apart.
pub struct EventParts {
    /// `signal`, `request`, `completed`, `failed`, `cancelled` or `budget_exceeded`.
    pub kind: &'static str,
    /// The name of a signal or a request.
    pub name: Option<String>,
    /// The child of a request.
    pub child: Option<String>,
    /// The id of a request.
    pub request: Option<String>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Where its budget stopped it: what it had used, and what it might use.
    pub overrun: Option<Overrun>,
}

impl EventParts {
    /// The parts of an event.
    pub fn of(event: ChildEvent) -> Self {
        let of = |kind| Self { kind, name: None, child: None, request: None, failure: None, overrun: None };
        match event {
            ChildEvent::Signal { name, .. } => Self { name: Some(name), ..of("signal") },
            ChildEvent::Request { name, request, .. } => Self {
                name: Some(name),
                child: Some(request.child.to_string()),
                request: Some(request.id.to_string()),
                ..of("request")
            },
            ChildEvent::Completed { .. } => of("completed"),
            ChildEvent::Failed { error } => Self { failure: Some(error), ..of("failed") },
            ChildEvent::Cancelled { .. } => of("cancelled"),
            ChildEvent::BudgetExceeded { used, limit, .. } => {
                Self { overrun: Some(Overrun { used, limit }), ..of("budget_exceeded") }
            }
        }
    }
}
