//! The agent of W3: a conversation of T turns with one checkpoint per turn, then a wait for its user.
//!
//! Each turn is a user message, a model answer and a tool result (2 + 4 + 4 KiB). With `stepwise` the answer and the tool
//! result come from durable steps; without, the three entries are all that is stored.

use crate::{prose, wall};
use async_trait::async_trait;
use flovyn_core::agent::{AgentDefinition, AgentState};
use flovyn_core::context::{AgentContext, AgentContextExt};
use flovyn_core::task::{TaskContext, TaskDefinition};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of one turn.
pub(crate) const TURN_BYTES: u64 = 10 * 1024;

/// What the agent carries from turn to turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    turn: u32,
}

impl AgentState for Progress {}

/// The agent's input.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) struct Plan {
    /// Turns before it waits.
    pub turns: u32,
    /// Whether answers come from steps.
    pub stepwise: bool,
}

/// What the running process saw.
#[derive(Default)]
pub(crate) struct Marks {
    /// One time per turn.
    pub turns: Vec<Duration>,
    /// Wall clock at which the agent's code ran.
    pub entered: f64,
    /// Wall clock at which its first step ended.
    pub first_step: f64,
    /// How long loading all messages took.
    pub load: Duration,
}

/// A task that makes `size` bytes of prose.
pub(crate) struct Prose(pub &'static str, pub usize, pub u64);

#[async_trait]
impl TaskDefinition for Prose {
    type Input = u32;
    type Output = String;
    fn kind(&self) -> &str {
        self.0
    }
    async fn execute(&self, _: &TaskContext, turn: u32) -> flovyn_core::Result<String> {
        Ok(prose(self.1, u64::from(turn) * 3 + self.2))
    }
}

/// The agent.
pub(crate) struct Conversation(pub Arc<Mutex<Marks>>);

impl Conversation {
    fn mark(&self, mark: impl FnOnce(&mut Marks)) {
        if let Ok(mut marks) = self.0.lock() {
            mark(&mut marks);
        }
    }

    async fn turn(&self, ctx: &dyn AgentContext, turn: u32, stepwise: bool) -> flovyn_core::Result<()> {
        let seed = u64::from(turn) * 3;
        ctx.append_entry("user", &prose(2048, seed))?;
        if stepwise {
            let answer: String = ctx.schedule("model_answer", &turn)?.await?;
            ctx.append_entry("assistant", &answer)?;
            self.mark(|marks| {
                if marks.first_step == 0.0 {
                    marks.first_step = wall();
                }
            });
            let result: String = ctx.schedule("tool_result", &turn)?.await?;
            ctx.append_entry("tool", &result)?;
        } else {
            ctx.append_entry("assistant", &prose(4096, seed + 1))?;
            ctx.append_entry("tool", &prose(4096, seed + 2))?;
        }
        ctx.checkpoint(&Progress { turn: turn + 1 })?.await?;
        Ok(())
    }
}

#[async_trait]
impl AgentDefinition for Conversation {
    type State = Progress;
    type Input = Plan;
    type Output = usize;
    fn kind(&self) -> &str {
        "conversation"
    }
    async fn execute(&self, ctx: &dyn AgentContext, plan: Plan) -> flovyn_core::Result<usize> {
        self.mark(|marks| marks.entered = wall());
        for turn in ctx.state::<Progress>()?.turn..plan.turns {
            let start = Instant::now();
            self.turn(ctx, turn, plan.stepwise).await?;
            self.mark(|marks| marks.turns.push(start.elapsed()));
        }
        let _: serde_json::Value = ctx.wait_for_signal("more")?.await?;
        self.turn(ctx, plan.turns, plan.stepwise).await?;
        let start = Instant::now();
        let messages = ctx.messages().await?.len();
        self.mark(|marks| marks.load = start.elapsed());
        Ok(messages)
    }
}
