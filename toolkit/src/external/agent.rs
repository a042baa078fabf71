//! The definition of an external agent: its driver, where it works, who is asked, and how long anything may take.

use super::acp::Acp;
use super::claude::Claude;
use super::pi::Pi;
use super::protocol::ExternalAgentProtocol;
use super::run::Run;
use super::state::ExternalState;
use super::turns::ExternalTurns;
use crate::react::{AgentInput, Budget, Mode, ModelChoice, RunOutcome};
use crate::tools::ToolEnvironment;
use crate::tools::approval::ApprovalPolicy;
use async_trait::async_trait;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::AgentContext;
use flovyn_core::error::{Code, Error, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Somebody else's agent as an agent of Flovyn: a run of it owns a process that it starts, listens to, and starts again.
/// Cheap to clone.
///
/// A worker of it serves [`ExternalTurns`] too. The process is not confined: what it does by itself it does with the
/// rights of the worker.
#[derive(Clone)]
pub struct ExternalAgent {
    kind: String,
    pub(super) driver: Arc<dyn ExternalAgentProtocol>,
    pub(super) working_dir: PathBuf,
    pub(super) model: Option<String>,
    pub(super) variables: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) approvals: ApprovalPolicy,
    pub(super) environment: Option<ToolEnvironment>,
    pub(super) inactivity: Duration,
    pub(super) start_timeout: Duration,
    pub(super) abort_grace: Duration,
    mode: Mode,
    budget: Option<Budget>,
}

/// How long an agent may be silent while it works.
const INACTIVITY: Duration = Duration::from_secs(600);
/// How long it may take until it speaks its protocol.
const START: Duration = Duration::from_secs(60);
/// How long it may take to end its turn once it was asked to.
const ABORT: Duration = Duration::from_secs(10);

impl ExternalAgent {
    /// An agent of a driver, of the kind `external-DRIVER`.
    pub fn custom(driver: impl ExternalAgentProtocol, working_dir: impl Into<PathBuf>) -> Self {
        Self {
            kind: format!("external-{}", driver.name()),
            driver: Arc::new(driver),
            working_dir: working_dir.into(),
            model: None,
            variables: Vec::new(),
            env: Vec::new(),
            approvals: ApprovalPolicy::default(),
            environment: None,
            inactivity: INACTIVITY,
            start_timeout: START,
            abort_grace: ABORT,
            mode: Mode::OneShot,
            budget: None,
        }
    }

    /// An agent that speaks the Agent Client Protocol, by the program and the arguments that start it.
    pub fn acp(
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
        working_dir: impl Into<PathBuf>,
    ) -> Self {
        Self::custom(Acp::new(program, args), working_dir)
    }

    /// Pi, by its RPC mode.
    pub fn pi(working_dir: impl Into<PathBuf>) -> Self {
        Self::custom(Pi::default(), working_dir)
    }

    /// Claude Code, by its stream of JSON messages.
    pub fn claude(working_dir: impl Into<PathBuf>) -> Self {
        Self::custom(Claude::default(), working_dir)
    }

    /// Sets the kind, so that one worker can serve several agents.
    #[must_use]
    pub fn named(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the model that it asks, in the agent's own words.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Lets it inherit a variable of this process, such as the key of a provider. A name that ends in `*` stands for all
    /// names that begin like it.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>) -> Self {
        self.variables.push(name.into());
        self
    }

    /// Sets a variable that it gets.
    #[must_use]
    pub fn with_value(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the policy that answers what it asks permission for. A run can only make it stricter.
    #[must_use]
    pub fn with_approvals(mut self, policy: ApprovalPolicy) -> Self {
        self.approvals = policy;
        self
    }

    /// Sets how files and commands are served to an agent that has its host do them. Its directory is that of each run.
    #[must_use]
    pub fn with_environment(mut self, environment: ToolEnvironment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Sets how long it may be silent while it works, before its process is ended and its session resumed; ten minutes
    /// unless set.
    #[must_use]
    pub fn with_inactivity(mut self, limit: Duration) -> Self {
        self.inactivity = limit;
        self
    }

    /// Sets how long it may take until it speaks its protocol; a minute unless set.
    #[must_use]
    pub fn with_start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = limit;
        self
    }

    /// Sets how long it may take to end its turn once it was asked to, before its process is ended; ten seconds unless set.
    #[must_use]
    pub fn with_abort_grace(mut self, grace: Duration) -> Self {
        self.abort_grace = grace;
        self
    }

    /// Sets what happens after a turn in runs that do not say it.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets what a run may use that does not say it. A turn that goes beyond it is ended.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The task that a worker of it serves as well.
    pub fn turns(&self) -> ExternalTurns {
        ExternalTurns
    }

    /// The input of a run with the agent's defaults, if an external agent can do what it asks for.
    fn checked(&self, ctx: &dyn AgentContext) -> Result<AgentInput> {
        let given: Value = ctx.raw_input().parse()?;
        let says_mode = given["config"].get("mode").is_some();
        let mut input: AgentInput = ctx.raw_input().parse()?;
        if !says_mode {
            input.config.mode = self.mode;
        }
        input.config.budget = input.config.budget.take().or_else(|| self.budget.clone());
        let config = &input.config;
        let refused = [
            ("systemPrompt", input.system_prompt.is_some()),
            ("userParts", !input.user_parts.is_empty()),
            ("tools", input.tools.is_some()),
            ("output", input.output.is_some() || config.output.is_some()),
            ("limits", !input.limits.is_none()),
            ("config.maxTokens", config.max_tokens.is_some()),
            ("config.temperature", config.temperature.is_some()),
            ("config.via", config.via.is_some()),
            ("config.fallback", !config.fallback.is_empty()),
        ];
        let refused: Vec<_> = refused.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect();
        if !refused.is_empty() {
            let message = format!(
                "an external agent ({}) has its own prompts, tools and limits, so a run of it cannot be given {}; leave that out",
                self.kind,
                refused.join(", ")
            );
            return Err(Error::new(Code::InvalidArgument, message));
        }
        Ok(input)
    }

    /// The directory of a run: the agent's, or one inside of it.
    pub(super) fn directory_of(&self, input: &AgentInput) -> Result<PathBuf> {
        let unusable = |path: &Path, why: String| {
            let message = format!("the external agent cannot work in {}: {why}", path.display());
            Error::new(Code::InvalidArgument, message)
        };
        let own = self.working_dir.canonicalize().map_err(|error| unusable(&self.working_dir, error.to_string()))?;
        let Some(asked) = &input.working_directory else { return Ok(own) };
        let asked = own.join(asked);
        let real = asked.canonicalize().map_err(|error| unusable(&asked, error.to_string()))?;
        match real.starts_with(&own) {
            true => Ok(real),
            false => Err(unusable(&asked, format!("this worker lets it work in {} only", own.display()))),
        }
    }

    /// The model that a run asks.
    pub(super) fn model_of(&self, input: &AgentInput) -> Option<String> {
        match input.model == ModelChoice::default() {
            true => self.model.clone(),
            false => Some(input.model.to_string()),
        }
    }
}

#[async_trait]
impl AgentDefinition for ExternalAgent {
    type State = ExternalState;
    type Input = AgentInput;
    type Output = RunOutcome;

    fn kind(&self) -> &str {
        &self.kind
    }

    fn version(&self) -> Option<String> {
        Some(concat!("external-agent ", env!("CARGO_PKG_VERSION")).to_owned())
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: AgentInput) -> Result<RunOutcome> {
        let input = self.checked(ctx)?;
        Run::new(self, ctx, input)?.finish().await
    }
}
