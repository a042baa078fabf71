//! The methods of a context that knows the type of its agent's state, and what an agent's stored state is made into.

use super::{AgentDefinition, AgentState, Reduce};
use crate::context::{AgentContext, Context, Declared, Step};
use crate::error::{Code, Error, Result};
use crate::payload::Payload;
use std::any::type_name;

impl<S: AgentState + 'static> Context<S> {
    /// The state of the last checkpoint, or the default before the first.
    ///
    /// It is of the declared type, and no other can be asked for:
    ///
    /// ```compile_fail,E0107
    /// # use flovyn_core::prelude::*;
    /// # #[derive(Default, Serialize, Deserialize, AgentState)]
    /// # struct Talk { turn: u32 }
    /// # async fn talk(ctx: Context<Talk>) -> Result<()> {
    /// let other = ctx.state::<u32>()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> Result<S> {
        let saved = self.shared().saved.lock().clone();
        saved.as_ref().or_else(|| self.raw_state()).map_or_else(|| Ok(S::default()), Payload::parse)
    }

    /// Saves the state and ends the segment. The state is durable when the step has ended.
    ///
    /// Errors: `OpenOperations` while another branch awaits something or a step is open.
    ///
    /// ```compile_fail,E0308
    /// # use flovyn_core::prelude::*;
    /// # #[derive(Default, Serialize, Deserialize, AgentState)]
    /// # struct Talk { turn: u32 }
    /// # async fn talk(ctx: Context<Talk>) -> Result<()> {
    /// ctx.checkpoint(&42u32)?.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self, state: &S) -> Result<Step> {
        self.checkpoint_raw(Payload::of(state)?)
    }
}

impl<S: AgentState + Reduce + 'static> Context<S> {
    /// Applies an update to the state, field by field with the reducer of each, and saves what comes of it as
    /// [`checkpoint`](Self::checkpoint) does.
    ///
    /// ```
    /// use flovyn_core::prelude::*;
    ///
    /// #[derive(Default, Serialize, Deserialize, AgentState)]
    /// struct Talk {
    ///     turn: u32,
    ///     #[reducer(append)]
    ///     topics: Vec<String>,
    /// }
    ///
    /// #[agent]
    /// async fn talker(ctx: Context<Talk>, turns: u32) -> Result<Vec<String>> {
    ///     while ctx.state()?.turn < turns {
    ///         let turn = ctx.state()?.turn + 1;
    ///         ctx.update(TalkUpdate::new().turn(turn).topics([format!("topic {turn}")]))?.await?;
    ///     }
    ///     Ok(ctx.state()?.topics)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let agents = AgentBuilder::new().storage("memory:").build().await?;
    /// # assert_eq!(agents.execute(Talker, 2).await?, ["topic 1", "topic 2"]);
    /// # agents.close().await
    /// # }
    /// ```
    pub fn update(&self, update: S::Update) -> Result<Step> {
        let mut state = self.state()?;
        state.reduce(update);
        self.checkpoint(&state)
    }
}

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
