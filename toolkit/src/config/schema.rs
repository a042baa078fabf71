//! The JSON of the configuration, in camelCase. Unknown fields are errors, so that a misspelled one is not silently a default.

use super::{DelegateConfig, ExternalAgentConfig, PlannerConfig, ProviderDescription, ToolHooks};
use crate::mcp::McpConfig;
use crate::provider::ToolSpec;
use crate::react::{AgentConfig, AgentTool, Budget, KIND, ModelChoice, OutputSpec, Via};
use crate::tools::approval::{ApprovalPolicy, Decision, Otherwise};
use crate::tools::{Effect, Fetch};
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::{RetryPolicy, SideEffects, TaskOptions};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a worker serves of the toolkit. Its `Debug` form shows no keys and no more of MCP servers than their names.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ToolkitConfig {
    /// Agents of the built-in kind, each under a kind of its own.
    pub agents: Vec<ReactAgentConfig>,
    /// Agents that have a model plan what other agents do.
    pub planners: Vec<PlannerConfig>,
    /// Agents of others, each under a kind of its own.
    pub external_agents: Vec<ExternalAgentConfig>,
    /// Host and MCP tools that are served for agents of other kinds, by name; `mcp__server__*` is all of a server.
    pub tools: BTreeSet<String>,
    /// Where tools work; else the directory of the first agent that has one, else that of the process.
    pub working_directory: Option<PathBuf>,
    /// Other directories that runs may name.
    pub roots: Vec<PathBuf>,
    /// Whether commands run confined; they do unless given.
    pub sandbox: Option<bool>,
    /// Whether confined commands may use the network; they may not unless given.
    pub network: Option<bool>,
    /// Variables of commands, beside those that they inherit.
    pub env: BTreeMap<String, String>,
    /// Commands that run before and after tool calls.
    pub hooks: ToolHooks,
    /// Which hosts `fetch` may ask.
    pub fetch: FetchConfig,
    /// Directories beside the working directory, whose files tools and commands may read and write.
    pub add_dirs: Vec<PathBuf>,
    /// Variables that commands see beside the usual ones; `NAME*` stands for all that begin so.
    pub variables: BTreeSet<String>,
    /// What confined commands see of the machine beside the system's programs and the directories that they work in; all of
    /// it but keys unless given.
    pub readable: Option<Vec<PathBuf>>,
    /// Which caches of packages confined commands use: `private` ones below Flovyn's folder, or those of the `user`, which
    /// are writable for them then.
    pub caches: Option<Caches>,
    /// MCP servers by name, as MCP clients write them.
    pub mcp_servers: Map<String, Value>,
    /// Providers by name, beside those whose keys are in the environment or in place of them.
    pub providers: BTreeMap<String, ProviderDescription>,
    /// The folder for records of calls; one of the user's that belongs to the store unless given.
    pub records: Option<PathBuf>,
}

/// Which hosts `fetch` may ask. `*.example.com` stands for all names below a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FetchConfig {
    /// Without asking a person.
    pub allowed_hosts: Vec<String>,
    /// Although their addresses are not of the public internet.
    pub private_hosts: Vec<String>,
}

impl FetchConfig {
    pub(super) fn tool(&self) -> Fetch {
        Fetch::default().with_allowed_hosts(&self.allowed_hosts)
    }
}

/// An agent of the built-in kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ReactAgentConfig {
    /// The name under which runs are recorded.
    pub kind: String,
    /// The model of runs that name none.
    pub model: Option<ModelChoice>,
    /// How to behave; the agent's own words unless given.
    pub system_prompt: Option<String>,
    /// What its models may call.
    pub tools: Vec<ToolConfig>,
    /// The agents that its models may give work to; the answer of one is the result of a call.
    pub delegates: Vec<DelegateConfig>,
    /// The agents that its models may hand the run off to; each goes on with the conversation.
    pub handoffs: Vec<DelegateConfig>,
    /// Whether it is one that leads its delegates: with the words and the limit of rounds of a supervisor, unless it has others.
    pub supervises: bool,
    /// Whether its models may ask whoever has given the run its work: the run that has started it, else a person.
    pub escalates: bool,
    /// The names and patterns of host and MCP tools that are left out of them.
    pub without_tools: BTreeSet<String>,
    /// Which calls need a person.
    pub approvals: Approval,
    /// Limits and habits, where a run does not say otherwise.
    #[serde(deserialize_with = "config")]
    pub config: AgentConfig,
    /// Where its tools work, where a run does not say otherwise.
    pub working_directory: Option<PathBuf>,
}

impl Default for ReactAgentConfig {
    fn default() -> Self {
        Self {
            kind: KIND.to_owned(),
            model: None,
            system_prompt: None,
            tools: Vec::new(),
            delegates: Vec::new(),
            handoffs: Vec::new(),
            supervises: false,
            escalates: false,
            without_tools: BTreeSet::new(),
            approvals: Approval::default(),
            config: AgentConfig::default(),
            working_directory: None,
        }
    }
}

/// The package caches of confined commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Caches {
    /// Those below Flovyn's folder, for commands of agents alone.
    #[default]
    Private,
    /// Those of the user.
    User,
}

/// A tool of an agent.
#[derive(Debug, Clone)]
pub enum ToolConfig {
    /// A host tool, an MCP tool, or with `*` in it all that fit.
    Named(String),
    /// A task that a worker serves, this one or another.
    Task(Box<TaskToolConfig>),
}

/// A task as a tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskToolConfig {
    /// The task's kind.
    pub kind: String,
    /// The name that models use.
    pub name: String,
    /// When and how to use it, for the model.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
    /// What a call does to the world: what approvals go by. A task that does not say it counts as a change.
    #[serde(default = "undeclared")]
    pub effect: Effect,
    /// The one argument whose value is the task's whole input; the input is the object of all unless given.
    #[serde(default)]
    pub argument: Option<String>,
    /// The queue whose workers run it; that of the run unless given.
    #[serde(default)]
    pub queue: Option<String>,
    /// How it is run.
    #[serde(default)]
    pub options: ToolOptions,
}

/// The pauses between the attempts of a task that is a tool, as its declaration says.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ToolPauses {
    /// The first pause.
    pub delay_ms: Option<f64>,
    /// The longest pause.
    pub max_delay_ms: Option<f64>,
    /// Growth per attempt.
    pub factor: Option<f64>,
    /// The part of a pause that chance may take away, from 0 to 1.
    pub jitter: Option<f64>,
}

/// How a task that is a tool is run, as its declaration says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ToolOptions {
    /// Attempts after the first that may fail.
    pub retries: u32,
    /// The pauses between attempts.
    pub retry: ToolPauses,
    /// Error types that fail at once.
    pub no_retry: Vec<String>,
    /// The longest one attempt may take.
    pub timeout_ms: Option<u64>,
    /// The longest silence between heartbeats.
    pub heartbeat_timeout_ms: Option<u64>,
    /// The longest all attempts together may take.
    pub deadline_ms: Option<u64>,
    /// Attempts in a row that may be lost with their process; 20 unless given.
    pub max_losses: Option<u32>,
    /// What a repeated start would do.
    pub side_effects: SideEffects,
    /// Whether a message of the user that is not to wait ends it with the text that it has streamed.
    pub interruptible: bool,
}

/// Which calls need a person: a policy, or the word of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Approval(pub ApprovalPolicy);

impl fmt::Debug for ToolkitConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolkitConfig")
            .field("agents", &self.agents)
            .field("planners", &self.planners)
            .field("external_agents", &self.external_agents)
            .field("tools", &self.tools)
            .field("working_directory", &self.working_directory)
            .field("roots", &self.roots)
            .field("sandbox", &self.sandbox)
            .field("network", &self.network)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("hooks", &self.hooks)
            .field("fetch", &self.fetch)
            .field("add_dirs", &self.add_dirs)
            .field("variables", &self.variables)
            .field("caches", &self.caches)
            .field("mcp_servers", &self.mcp_servers.keys().collect::<Vec<_>>())
            .field("providers", &self.providers)
            .field("records", &self.records)
            .finish()
    }
}

impl ToolkitConfig {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: the text is no such JSON; the message says where and what is known there.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| {
            let message = format!("the description of the toolkit cannot be used: {error}");
            Error::new(Code::InvalidArgument, message)
        })
    }

    /// Merges another configuration. Agents, tools, roots and hosts add up; all other settings have to be the same.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`, naming what differs.
    pub fn joined(mut self, other: Self) -> Result<Self> {
        self.agents.extend(other.agents);
        self.planners.extend(other.planners);
        for agent in other.external_agents {
            if !self.external_agents.contains(&agent) {
                self.external_agents.push(agent);
            }
        }
        self.tools.extend(other.tools);
        self.roots.extend(other.roots);
        self.fetch.allowed_hosts.extend(other.fetch.allowed_hosts);
        self.fetch.private_hosts.extend(other.fetch.private_hosts);
        self.add_dirs.extend(other.add_dirs);
        self.variables.extend(other.variables);
        self.caches = same("words on caches", self.caches, other.caches)?;
        self.working_directory = same("working directories", self.working_directory, other.working_directory)?;
        self.sandbox = same("words on the sandbox", self.sandbox, other.sandbox)?;
        self.network = same("words on the network", self.network, other.network)?;
        self.readable = same("words on what commands see", self.readable, other.readable)?;
        self.records = same("folders of records", self.records, other.records)?;
        self.hooks.before.extend(other.hooks.before);
        self.hooks.after.extend(other.hooks.after);
        for (name, value) in other.env {
            let known = self.env.remove(&name);
            let agreed = same(&format!("values of the variable {name:?}"), known, Some(value))?;
            self.env.extend(agreed.map(|value| (name, value)));
        }
        for (name, server) in other.mcp_servers {
            let known = self.mcp_servers.remove(&name);
            let agreed = same(&format!("MCP servers named {name:?}"), known, Some(server))?;
            self.mcp_servers.extend(agreed.map(|server| (name, server)));
        }
        for (name, provider) in other.providers {
            let known = self.providers.remove(&name);
            let agreed = same(&format!("providers named {name:?}"), known, Some(provider))?;
            self.providers.extend(agreed.map(|provider| (name, provider)));
        }
        Ok(self)
    }

    /// The MCP servers, with variables of this process.
    pub(super) fn mcp(&self) -> Result<McpConfig> {
        McpConfig::parse(&json!({ "mcpServers": self.mcp_servers }).to_string(), |name| std::env::var(name).ok())
    }
}

/// Merges one setting. The error does not show the values, which may be keys.
fn same<T: PartialEq>(what: &str, one: Option<T>, other: Option<T>) -> Result<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => {
            let message = format!("one worker was given two different {what}; use one, or a worker for each");
            Err(Error::new(Code::InvalidArgument, message))
        }
        (one, other) => Ok(one.or(other)),
    }
}

impl<'de> Deserialize<'de> for ToolConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self::Named(name)),
            other => serde_json::from_value(other)
                .map(|task| Self::Task(Box::new(task)))
                .map_err(|error| D::Error::custom(format!("a tool is neither a name nor a task: {error}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Approval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let of = |decision| Otherwise { read: decision, write: decision, exec: decision };
        let policy = match Value::deserialize(deserializer)? {
            Value::String(word) => match word.as_str() {
                "allow" => ApprovalPolicy::allow_all(),
                "ask" => ApprovalPolicy::default(),
                "deny" => ApprovalPolicy {
                    otherwise: Otherwise { read: Decision::Allow, ..of(Decision::Deny) },
                    ..ApprovalPolicy::default()
                },
                other => {
                    let known = "\"allow\", \"ask\" (before changes and commands), \"deny\" (those), or a policy";
                    return Err(D::Error::custom(format!("approvals are {other:?}; write {known}")));
                }
            },
            other => serde_json::from_value(other).map_err(D::Error::custom)?,
        };
        Ok(Self(policy))
    }
}

/// The configuration of an agent. Unlike that of a run, which may come from a later version, it must not have unknown fields.
fn config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AgentConfig, D::Error> {
    let given = Map::<String, Value>::deserialize(deserializer)?;
    let AgentConfig { max_turns, thinking, mode, parallel_tools, compaction, results, retry, .. } =
        AgentConfig::default();
    // All fields by name, so that a new one cannot be forgotten here.
    let full = AgentConfig {
        max_turns,
        max_tokens: Some(1),
        temperature: Some(1.0),
        via: Some(Via::Parent),
        thinking,
        mode,
        fallback: vec![ModelChoice::default()],
        parallel_tools,
        budget: Some(Budget::default()),
        compaction,
        results,
        retry,
        max_rounds: Some(1),
        output: Some(OutputSpec::new(Value::Null)),
    };
    let known = serde_json::to_value(full).map_err(D::Error::custom)?;
    let known: BTreeSet<_> = known.as_object().into_iter().flat_map(Map::keys).collect();
    if let Some(stranger) = given.keys().find(|name| !known.contains(name)) {
        let known = known.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(D::Error::custom(format!("unknown field `{stranger}` of a config, which has {known}")));
    }
    serde_json::from_value(Value::Object(given)).map_err(D::Error::custom)
}

/// The effect of a task that declares none.
fn undeclared() -> Effect {
    Effect::Write
}

impl TaskToolConfig {
    /// The tool for the agent.
    pub(super) fn offered(&self) -> Result<AgentTool> {
        let (name, description) = (self.name.clone(), self.description.clone());
        let spec = ToolSpec { name, description, parameters: self.parameters.clone() };
        let options = self.options.checked(&self.kind)?;
        let mut tool = AgentTool::task(spec, &self.kind, self.effect)?.with_options(options);
        if let Some(argument) = &self.argument {
            tool = tool.with_argument(argument);
        }
        Ok(match &self.queue {
            Some(queue) => tool.with_queue(queue),
            None => tool,
        })
    }
}

impl ToolOptions {
    fn checked(&self, kind: &str) -> Result<TaskOptions> {
        let millis = |given: Option<u64>| given.map(Duration::from_millis);
        let no_retry = self.no_retry.clone();
        let ToolPauses { delay_ms, max_delay_ms, factor, jitter } = self.retry;
        let names = ["delayMs", "maxDelayMs", "factor", "jitter"];
        let pauses = RetryPolicy::given(kind, names, 1e3, [delay_ms, max_delay_ms, factor, jitter])?;
        let options = TaskOptions {
            retry: RetryPolicy { retries: self.retries, no_retry, ..pauses },
            timeout: millis(self.timeout_ms),
            heartbeat_timeout: millis(self.heartbeat_timeout_ms),
            deadline: millis(self.deadline_ms),
            side_effects: self.side_effects,
            detached: false,
            interruptible: self.interruptible,
            in_place: false,
            reserve: 0,
            max_losses: self.max_losses.unwrap_or(TaskOptions::USUAL_LOSSES),
        };
        options.check(kind)?;
        Ok(options)
    }
}
