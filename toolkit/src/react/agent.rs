//! The definition of the agent: its tools, approval policy, system prompt and defaults.

use super::run::AgentRun;
use super::{
    AgentConfig, AgentInput, AgentTool, Delegate, KIND, LiveTools, Mode, ModelChoice, ReactState, RunOutcome, ToolsNow,
};
use crate::mcp::tool_name;
use crate::tools::Toolbox;
use crate::tools::approval::ApprovalPolicy;
use async_trait::async_trait;
use flovyn_core::Payload;
use flovyn_core::agent::AgentDefinition;
use flovyn_core::context::AgentContext;
use flovyn_core::error::{Code, Error, Result};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The agent of the kind `react-agent`. Cheap to clone.
///
/// Its runs also need a worker of [`LlmGenerate`](super::LlmGenerate) and of the tasks of its tools, in the same process or in
/// another one.
#[derive(Clone)]
pub struct ReactAgent {
    kind: String,
    pub(super) tools: Arc<BTreeMap<String, AgentTool>>,
    pub(super) approvals: ApprovalPolicy,
    pub(super) system_prompt: String,
    /// What MCP servers say about the use of their tools, by the servers' names.
    pub(super) server_instructions: BTreeMap<String, String>,
    /// Its tools where they may change.
    pub(super) live: Option<LiveTools>,
    defaults: Defaults,
}

/// The defaults of runs.
#[derive(Clone, Default)]
struct Defaults {
    model: Option<ModelChoice>,
    config: Map<String, Value>,
    working_directory: Option<String>,
}

/// The system prompt of runs that have none.
const SYSTEM_PROMPT: &str = "You are a careful assistant that works with tools on the user's behalf. Look before you \
change anything, make small steps, check what you did, and say briefly what you found and what you changed. When something \
cannot be done, say so and why.";

impl Default for ReactAgent {
    fn default() -> Self {
        Self {
            kind: KIND.to_owned(),
            tools: Arc::default(),
            approvals: ApprovalPolicy::default(),
            system_prompt: SYSTEM_PROMPT.to_owned(),
            server_instructions: BTreeMap::new(),
            live: None,
            defaults: Defaults::default(),
        }
    }
}

impl ReactAgent {
    /// An agent without tools. A person is asked before anything is changed or run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the kind, so that one worker can serve several agents.
    #[must_use]
    pub fn named(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Offers a tool. A name that is taken is an error.
    pub fn with_tool(mut self, tool: AgentTool) -> Result<Self> {
        let name = tool.spec.name.clone();
        if Arc::make_mut(&mut self.tools).insert(name.clone(), tool).is_some() {
            return Err(Error::new(Code::InvalidArgument, format!("two tools are named {name:?}; rename one")));
        }
        Ok(self)
    }

    /// The kind.
    pub(super) fn kind_name(&self) -> &str {
        &self.kind
    }

    /// Offers an agent as a tool: a call starts a run of it below this one, and its answer is the result.
    pub fn with_delegate(self, delegate: Delegate) -> Result<Self> {
        self.with_tool(AgentTool::delegate(delegate)?)
    }

    /// Offers an agent by the tool `transfer_to_NAME`: a call hands the run off to it, and it goes on with the conversation.
    pub fn with_handoff(self, delegate: Delegate) -> Result<Self> {
        self.with_tool(AgentTool::handoff(delegate)?)
    }

    /// Offers all tools of a toolbox.
    pub fn with_toolbox(self, toolbox: &Toolbox) -> Result<Self> {
        let tools = toolbox.names().filter_map(|name| toolbox.get(name));
        tools.map(AgentTool::shared).try_fold(self, |agent, tool| agent.with_tool(tool?))
    }

    /// Sets the policy that allows calls, asks a person about them, or denies them. A run can only make it stricter.
    #[must_use]
    pub fn with_approvals(mut self, policy: ApprovalPolicy) -> Self {
        self.approvals = policy;
        self
    }

    /// Sets the system prompt of runs that have none.
    #[must_use]
    pub fn with_system_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.system_prompt = prompt.into();
        self
    }

    /// Adds to the system prompt what an MCP server says about the use of its tools
    /// ([`McpServers::instructions`](crate::mcp::McpServers::instructions)). Runs without tools of the server do not get it.
    #[must_use]
    pub fn with_server_instructions(mut self, server: impl Into<String>, said: impl Into<String>) -> Self {
        self.server_instructions.insert(server.into(), said.into());
        self
    }

    /// Its tools, and what servers say about them.
    pub(crate) fn tools_now(&self) -> ToolsNow {
        ToolsNow { tools: (*self.tools).clone(), instructions: self.server_instructions.clone() }
    }

    /// Offers these tools in place of its own. They may change while runs go on.
    pub(crate) fn with_live_tools(self, live: LiveTools) -> Self {
        Self { live: Some(live), ..self }
    }

    /// Sets the model of runs that name none. The input of a run can then be just its prompt.
    #[must_use]
    pub fn with_model(mut self, model: ModelChoice) -> Self {
        self.defaults.model = Some(model);
        self
    }

    /// Sets the defaults of the configuration, for each field that a run does not give.
    #[must_use]
    pub fn with_config(mut self, config: &AgentConfig) -> Self {
        let written = serde_json::to_value(config).unwrap_or_default();
        self.defaults.config = written.as_object().cloned().unwrap_or_default();
        self
    }

    /// Sets the directory of the host tools for runs that name none. Without it, that is the worker's own directory.
    #[must_use]
    pub fn with_working_directory(mut self, directory: impl Into<String>) -> Self {
        self.defaults.working_directory = Some(directory.into());
        self
    }

    /// The input of a run, completed with the agent's defaults.
    fn with_defaults(&self, given: &Payload) -> Result<AgentInput> {
        let mut given: Value = given.parse()?;
        if let Some(fields) = given.as_object_mut() {
            let config = fields.entry("config").or_insert_with(|| Value::Object(Map::new()));
            if let Some(config) = config.as_object_mut() {
                self.defaults.config.iter().for_each(|(name, value)| {
                    config.entry(name).or_insert_with(|| value.clone());
                });
            }
        } else if let Some(prompt) = given.as_str() {
            given = serde_json::json!({ "userPrompt": prompt, "config": self.defaults.config });
        }
        let mut input: AgentInput = Payload::of(&given)?.parse()?;
        match self.defaults.model.as_ref().or(input.inherited_model.as_ref()) {
            Some(model) if input.model.is_empty() => input.model = model.clone(),
            // In a chat the first message of the user may still name a model.
            None if input.model.is_empty() && input.config.mode == Mode::OneShot => {
                let message = format!(
                    "no model was named: start the run with {{\"model\": \"provider/model\", \"userPrompt\": …}}, or give the agent \
                     {:?} a model of its own",
                    self.kind
                );
                return Err(Error::new(Code::InvalidArgument, message));
            }
            _ => {}
        }
        if input.working_directory.is_none() {
            input.working_directory.clone_from(&self.defaults.working_directory);
        }
        Ok(input)
    }

    /// The tools of a run, once those that are on their way have come; `last` where they are not to be had now.
    pub(super) async fn settled_tools(
        &self,
        names: Option<&[String]>,
        last: BTreeMap<String, AgentTool>,
    ) -> BTreeMap<String, AgentTool> {
        let Some(live) = &self.live else { return last };
        live.settled().await;
        self.select_tools(names).unwrap_or(last)
    }

    /// What MCP servers say about the use of these tools.
    pub(super) fn instructions(&self, tools: &BTreeMap<String, AgentTool>) -> String {
        let live = self.live.as_ref().map(LiveTools::now);
        let mut said = String::new();
        for (server, instructions) in live.as_ref().map_or(&self.server_instructions, |now| &now.instructions) {
            let prefix = tool_name(server, "");
            if tools.keys().any(|name| name.starts_with(&prefix)) {
                said.push_str(&format!(
                    "\n\nThe MCP server {server:?} says about the use of its tools ({prefix}*):\n{instructions}"
                ));
            }
        }
        said
    }

    /// The tools of a run, by name.
    pub(super) fn select_tools(&self, names: Option<&[String]>) -> Result<BTreeMap<String, AgentTool>> {
        let now = self.live.as_ref().map(LiveTools::now);
        let all = now.as_ref().map_or(&*self.tools, |now| &now.tools);
        let Some(names) = names else { return Ok(all.clone()) };
        let pick = |name: &String| match all.get(name) {
            Some(tool) => Ok((name.clone(), tool.clone())),
            None => {
                let known = all.iter().filter(|(_, tool)| !tool.is_hidden);
                let known = known.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                let message =
                    format!("the run wants the tool {name:?}, which this agent does not have; it has: {known}");
                Err(Error::new(Code::InvalidArgument, message))
            }
        };
        names.iter().map(pick).collect()
    }
}

#[async_trait]
impl AgentDefinition for ReactAgent {
    type State = ReactState;
    type Input = AgentInput;
    type Output = RunOutcome;

    fn kind(&self) -> &str {
        &self.kind
    }

    fn version(&self) -> Option<String> {
        Some(concat!("react-agent ", env!("CARGO_PKG_VERSION")).to_owned())
    }

    async fn execute(&self, ctx: &dyn AgentContext, _: AgentInput) -> Result<RunOutcome> {
        let input = self.with_defaults(ctx.raw_input())?;
        AgentRun::new(self, ctx, &input)?.run_to_end().await
    }
}
