//! The type of an agent's state: what checkpoints are held to, and what a stored state is made into.

use super::AgentDefinition;
use crate::context::Declared;
use crate::error::{Code, Error, Result};
use crate::payload::Payload;
use std::any::type_name;

/// What an activation has to know of its agent's state. A stored state that cannot be read as the declared type goes
/// through the agent's `migrate`.
pub(super) fn declared<A: AgentDefinition>(agent: &A, stored: Option<&Payload>) -> Result<Declared> {
    let kind = agent.kind().to_owned();
    let migrated = match stored.map(|stored| (stored, stored.parse::<A::State>())) {
        Some((stored, Err(unfit))) => Some(migrated(agent, stored, &unfit)?),
        _ => None,
    };
    let check = move |state: &Payload| match state.parse::<A::State>() {
        Ok(_) => Ok(()),
        Err(unfit) => Err(Error::new(
            Code::WrongStateType,
            format!(
                "agent {kind:?} declares the state {}, and a checkpoint was given something else: {}",
                type_name::<A::State>(),
                unfit.message()
            ),
        )),
    };
    Ok(Declared { check: Box::new(check), migrated })
}

fn migrated<A: AgentDefinition>(agent: &A, stored: &Payload, unfit: &Error) -> Result<Payload> {
    let state = stored.parse().and_then(|old| agent.migrate(old)).and_then(|state| Payload::of(&state));
    state.map_err(|error| {
        let message = format!(
            "the stored state of agent {:?} cannot be read as {}: {}; {}. Correct that, or deploy the code that wrote it; \
             then resume the run",
            agent.kind(),
            type_name::<A::State>(),
            unfit.message(),
            error.message()
        );
        Error::new(Code::WrongStateType, message).with(UNREADABLE, type_name::<A::State>()).caused_by(error)
    })
}

/// The fact of an error about a stored state.
const UNREADABLE: &str = "state";

/// Whether an error says that a stored state cannot be read: other code can, so the run pauses.
pub(super) fn is_of_stored_state(error: &Error) -> bool {
    error.code() == Code::WrongStateType && error.fact(UNREADABLE).is_some()
}
