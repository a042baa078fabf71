//! The JSON of agents that others may give work to, and of those that plan for them.

use crate::patterns::PlanAndExecute;
use crate::react::{Delegate, Takes};
use crate::tools::Effect;
use flovyn_core::error::Result;
use flovyn_core::model::SharedContext;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// An agent that another one may give work to.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DelegateConfig {
    /// The agent's kind.
    pub kind: String,
    /// The name that models use; the kind unless given.
    #[serde(default)]
    pub name: Option<String>,
    /// When to give it work, for the model.
    pub description: String,
    /// Whether it is an agent of the built-in kind, which takes a prompt.
    #[serde(default)]
    pub takes_prompt: bool,
    /// The JSON Schema of what it takes, an object. Without it, and without a prompt, it takes a text.
    #[serde(default)]
    pub parameters: Option<Value>,
    /// The one argument whose value is its whole input; the input is the object of all unless given.
    #[serde(default)]
    pub argument: Option<String>,
    /// What approvals go by; `read` unless given, since the agent has approvals of its own.
    #[serde(default)]
    pub effect: Option<Effect>,
    /// The queue whose workers run it; that of the run unless given.
    #[serde(default)]
    pub queue: Option<String>,
    /// A part of the run's budget that it gets for itself: an object, or a number of tokens.
    #[serde(default)]
    pub budget: Option<Value>,
    /// The longest it may take.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Steps after which it pauses.
    #[serde(default)]
    pub max_steps: Option<u32>,
    /// `"read_only"`, `"conversation"`, or an object of the author's.
    #[serde(default)]
    pub shared_context: Option<Value>,
}

/// An agent that has a model plan what other agents do.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlannerConfig {
    /// The name under which runs are recorded.
    pub kind: String,
    /// The agent of the built-in kind that plans and answers.
    pub planner: DelegateConfig,
    /// The agents that do the parts.
    pub workers: Vec<DelegateConfig>,
    /// How often a part that has failed is tried again before there is another plan: 1.
    #[serde(default)]
    pub retries: Option<u32>,
    /// How often there is another plan: 2.
    #[serde(default)]
    pub max_replans: Option<u32>,
    /// How often the planner is asked again for a plan that can be done: 2.
    #[serde(default)]
    pub plan_retries: Option<u32>,
    /// The most parts of a plan: 20.
    #[serde(default)]
    pub max_tasks: Option<usize>,
}

impl PlannerConfig {
    /// The agent.
    pub(super) fn agent(&self) -> Result<PlanAndExecute> {
        let workers = self.workers.iter().map(DelegateConfig::delegate).collect::<Result<_>>()?;
        let usual = PlanAndExecute::new(&self.kind, self.planner.delegate()?, workers)?;
        Ok(PlanAndExecute {
            retries: self.retries.unwrap_or(usual.retries),
            max_replans: self.max_replans.unwrap_or(usual.max_replans),
            plan_retries: self.plan_retries.unwrap_or(usual.plan_retries),
            max_tasks: self.max_tasks.unwrap_or(usual.max_tasks).max(1),
            ..usual
        })
    }
}

impl DelegateConfig {
    /// The agent as the built-in agent takes it.
    pub(super) fn delegate(&self) -> Result<Delegate> {
        let usual = Delegate::new(&self.kind, &self.description);
        let takes = match (&self.parameters, &self.argument) {
            (Some(parameters), Some(name)) => Takes::Argument { parameters: parameters.clone(), name: name.clone() },
            (Some(parameters), None) => Takes::Arguments(parameters.clone()),
            (None, _) if self.takes_prompt => Takes::Prompt,
            (None, _) => Takes::Text,
        };
        let shared = self.shared_context.as_ref().map(|shared| SharedContext::given(&shared.to_string(), ""));
        Ok(Delegate {
            name: self.name.clone().unwrap_or(usual.name),
            takes,
            effect: self.effect.unwrap_or(usual.effect),
            queue: self.queue.clone(),
            budget: self.budget.as_ref().map(Value::to_string),
            timeout: self.timeout_ms.map(Duration::from_millis),
            max_steps: self.max_steps,
            shared_context: shared.transpose()?,
            kind: usual.kind,
            description: usual.description,
        })
    }
}
