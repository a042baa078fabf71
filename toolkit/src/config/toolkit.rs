//! The native definitions of a configuration: agents, model calls and tools in one host.

use super::schema::{Caches, ReactAgentConfig, ToolConfig, ToolkitConfig};
use super::served::{Followers, Served};
use super::{ToolHooks, home, records_of, registry};
use crate::external::ExternalTurns;
use crate::mcp::{McpInputTask, McpProblem, McpServers};
use crate::patterns::{SUPERVISOR_PROMPT, SUPERVISOR_ROUNDS};
use crate::provider::Registry;
use crate::react::{AgentTool, LiveTools, LlmGenerate, ReactAgent};
use crate::tools::{CallRecords, Limits, Sandbox, ToolDefinition, ToolEnvironment, ToolHost, ToolTask, Toolbox};
use flovyn_core::agent::NativeHost;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::TaskOptions;
use flovyn_core::task::TaskDefinition;
use flovyn_core::worker::Host;
use globset::{Glob, GlobMatcher};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What a worker serves of the toolkit. The tools of MCP servers are followed: when a server says that its tools have changed, or
/// one comes alive that could not be used, the agents and the tasks of this kit have its new tools.
pub struct Toolkit {
    served: Arc<Served>,
    followers: Followers,
}

/// What a toolkit is made of: its description, and what is opened once.
pub(super) struct Opening {
    pub description: ToolkitConfig,
    pub servers: McpServers,
    models: Arc<Registry>,
    /// The tools of the host.
    own: Toolbox,
    directory: PathBuf,
    store: String,
    tool_host: OnceLock<ToolHost>,
}

/// What a toolkit serves at one moment.
#[derive(Default)]
pub(super) struct ServedNow {
    pub host: NativeHost,
    pub options: BTreeMap<String, TaskOptions>,
    pub tools: Arc<[ToolDefinition]>,
    pub problems: Arc<[McpProblem]>,
}

/// The available tools, and which of them are served.
struct ToolSelection<'a> {
    toolbox: Toolbox,
    servers: &'a McpServers,
    hooks: &'a ToolHooks,
    problems: Vec<McpProblem>,
    selected: BTreeSet<String>,
    /// The tools that models are not offered.
    hidden: BTreeSet<String>,
    /// Whether a name that no tool has is an error. Once a worker serves, the tool of a server may be gone.
    is_strict: bool,
}

impl Toolkit {
    /// Makes the definitions; MCP servers are asked for their tools. `store` is the URL of the store whose runs are served.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`: something of the description cannot be used, such as a name that no tool has or a directory that
    /// does not exist.
    pub async fn open(description: ToolkitConfig, store: &str) -> Result<Self> {
        let models = registry(&description.providers)?;
        Self::open_with(description, store, models).await
    }

    /// As [`open`](Self::open), with these models in place of the described providers.
    pub async fn open_with(description: ToolkitConfig, store: &str, models: Registry) -> Result<Self> {
        let servers = McpServers::new(description.mcp()?);
        let models = Arc::new(models);
        servers.set_roots(&description.shown_roots()).await;
        servers.set_models(&models);
        let own = Toolbox::host_with(description.fetch.tool())?;
        let (directory, store) = (description.directory(), store.to_owned());
        let tool_host = OnceLock::new();
        let opening = Opening { description, servers, models, own, directory, store, tool_host };
        if let Ok(Some(folder)) = opening.records() {
            opening.servers.remember_in(&folder);
        }
        opening.servers.list().await;
        let (served, followers) = Served::open(opening)?;
        Ok(Self { served, followers })
    }

    /// What a worker serves.
    pub fn host(&self) -> Arc<dyn Host> {
        self.served.clone()
    }

    /// How a task of the kit is to be scheduled by agents of other kinds; none for a task that it does not serve.
    pub fn options(&self, kind: &str) -> Option<TaskOptions> {
        self.served.now().options.get(kind).cloned()
    }

    /// The kinds of its tasks: `llm.generate`, `tool.read`, ….
    pub fn task_kinds(&self) -> Vec<String> {
        self.served.now().options.keys().cloned().collect()
    }

    /// The host and MCP tools that it serves now, in the order of their names.
    pub fn tools(&self) -> Arc<[ToolDefinition]> {
        self.served.now().tools.clone()
    }

    /// What is wrong with MCP servers now and was not asked for by name.
    pub fn problems(&self) -> Arc<[McpProblem]> {
        self.served.now().problems.clone()
    }

    /// The MCP servers, for their prompts.
    pub fn mcp_servers(&self) -> &McpServers {
        &self.served.opening().servers
    }

    /// Ends the connections to MCP servers, and the processes that were started for them.
    pub async fn close(&self) {
        self.followers.stop();
        self.served.opening().servers.close().await;
    }
}

impl Opening {
    /// Makes what is served of the tools that are known now. The tools of agents that follow them are replaced.
    pub(super) fn make(&self, live: &BTreeMap<String, LiveTools>, is_strict: bool) -> Result<ServedNow> {
        let description = &self.description;
        let (toolbox, problems, hidden) = self.servers.add_known_to(self.own.clone());
        let toolbox = description.hooks.around(&toolbox)?;
        let (servers, hooks) = (&self.servers, &description.hooks);
        let mut selection =
            ToolSelection { toolbox, servers, hooks, problems, selected: BTreeSet::new(), hidden, is_strict };
        for name in &description.tools {
            selection.select(name)?;
        }
        let (mut host, mut tools_now) = (NativeHost::default(), Vec::new());
        for given in &description.agents {
            let mut agent = selection.agent(given, &self.directory)?;
            if let Some(live) = live.get(&given.kind) {
                tools_now.push((live, agent.tools_now()));
                agent = agent.with_live_tools(live.clone());
            }
            host = host.agent(agent)?;
        }
        for planner in &description.planners {
            host = host.agent(planner.agent()?)?;
        }
        for given in &description.external_agents {
            host = host.agent(given.agent(description)?)?;
        }
        if !description.external_agents.is_empty() {
            host = host.task(ExternalTurns)?;
        }
        let generate = LlmGenerate::new(self.models.clone());
        let mut options = BTreeMap::from([(LlmGenerate::KIND.to_owned(), LlmGenerate::call_options())]);
        host = host.task(generate)?;
        let ToolSelection { toolbox, problems, selected, hidden, .. } = selection;
        let served = |tool: &ToolDefinition| selected.contains(&tool.name) && !hidden.contains(&tool.name);
        let tools = toolbox.definitions().into_iter().filter(served).collect();
        if !selected.is_empty() {
            let place = self.tool_host()?;
            for task in selected.iter().filter_map(|name| ToolTask::new(&toolbox, name, place)) {
                options.insert(task.kind().to_owned(), TaskOptions { interruptible: true, ..task.options() });
                host = host.task(task)?;
            }
        }
        if self.servers.names().next().is_some() {
            let answers = McpInputTask::new(self.servers.clone(), Limits::default());
            options.insert(answers.kind().to_owned(), answers.options());
            host = host.task(answers)?;
        }
        tools_now.into_iter().for_each(|(live, now)| live.set(now));
        Ok(ServedNow { host, options, tools, problems: problems.into() })
    }

    /// The folder for records of calls; none where there is nothing to resume.
    fn records(&self) -> Result<Option<PathBuf>> {
        match &self.description.records {
            Some(folder) => Ok(Some(folder.clone())),
            // Calls of a store that ends with this process cannot be resumed.
            None if self.store.starts_with("memory:") => Ok(None),
            None => records_of(&self.store).map(Some),
        }
    }

    fn tool_host(&self) -> Result<&ToolHost> {
        if let Some(known) = self.tool_host.get() {
            return Ok(known);
        }
        let records = self.records()?.map_or_else(CallRecords::temporary, CallRecords::open)?;
        let environment = self.description.environment(&self.directory)?;
        let place = ToolHost::new(environment, records).with_roots(self.description.all_roots())?;
        Ok(self.tool_host.get_or_init(|| place))
    }
}

/// Where the package managers of the user keep what they have fetched or built.
fn user_caches() -> Vec<PathBuf> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    [".cargo/registry", ".cargo/git", ".npm", ".cache", "go/pkg", ".gradle/caches", ".m2/repository"]
        .into_iter()
        .map(|name| home.join(name))
        .collect()
}

impl ToolSelection<'_> {
    /// Selects the tools of a name or pattern.
    fn select(&mut self, name: &str) -> Result<Vec<String>> {
        let found: Vec<_> = if name.contains('*') {
            let glob = pattern(name)?;
            self.toolbox.names().filter(|known| glob.is_match(known)).map(str::to_owned).collect()
        } else {
            self.toolbox.names().filter(|known| *known == name).map(str::to_owned).collect()
        };
        if found.is_empty() && !self.is_strict && name.contains('*') {
            return Ok(found);
        }
        if found.is_empty() {
            // A server that cannot be used now does not keep a worker from serving everything else.
            let Some(tool) = self.servers.unlisted(name, !self.is_strict) else { return Err(self.unknown(name)) };
            let hooked = self.hooks.around(&Toolbox::new().with(tool)?)?;
            if let Some(tool) = hooked.get(name) {
                self.toolbox = self.toolbox.clone().with_shared(tool.clone())?;
            }
            self.selected.insert(name.to_owned());
            return Ok(vec![name.to_owned()]);
        }
        self.selected.extend(found.iter().cloned());
        Ok(found)
    }

    fn unknown(&self, name: &str) -> Error {
        let known = self.toolbox.names().collect::<Vec<_>>().join(", ");
        let mut message = format!("there is no tool {name:?}; there are {known}");
        if name.starts_with("mcp__") && self.problems.is_empty() {
            message.push_str("; MCP tools are named mcp__SERVER__TOOL, with the SERVER of mcpServers");
        }
        self.problems.iter().for_each(|problem| message.push_str(&format!("; {problem}")));
        Error::new(Code::InvalidArgument, message)
    }

    fn agent(&mut self, given: &ReactAgentConfig, directory: &Path) -> Result<ReactAgent> {
        given.approvals.0.compile()?;
        let mut config = given.config.clone();
        let mut agent = ReactAgent::new().named(&given.kind).with_approvals(given.approvals.0.clone());
        if given.supervises {
            config.max_rounds = config.max_rounds.or(Some(SUPERVISOR_ROUNDS));
            agent = agent.with_system_prompt(SUPERVISOR_PROMPT);
        }
        agent = agent.with_config(&config);
        if let Some(model) = &given.model {
            agent = agent.with_model(model.clone());
        }
        if let Some(prompt) = &given.system_prompt {
            agent = agent.with_system_prompt(prompt);
        }
        if let Some(own) = given.working_directory.as_ref().filter(|own| *own != directory) {
            agent = agent.with_working_directory(own.display().to_string());
        }
        let left_out = given.without_tools.iter().map(|name| pattern(name)).collect::<Result<Vec<_>>>()?;
        for tool in &given.tools {
            match tool {
                ToolConfig::Task(task) => agent = agent.with_tool(task.offered()?)?,
                ToolConfig::Named(name) => {
                    for name in self.select(name)? {
                        if left_out.iter().any(|pattern| pattern.is_match(&name)) {
                            continue;
                        }
                        if let Some(tool) = self.toolbox.get(&name) {
                            let tool = AgentTool::shared(tool)?;
                            let tool = if self.hidden.contains(&name) { tool.hidden() } else { tool };
                            agent = agent.with_tool(tool)?;
                        }
                    }
                }
            }
        }
        for delegate in &given.delegates {
            agent = agent.with_delegate(delegate.delegate()?)?;
        }
        for delegate in &given.handoffs {
            agent = agent.with_handoff(delegate.delegate()?)?;
        }
        if given.escalates {
            agent = agent.with_tool(AgentTool::escalate()?)?;
        }
        let said = self.servers.instructions();
        Ok(said.into_iter().fold(agent, |agent, (server, said)| agent.with_server_instructions(server, said)))
    }
}

/// Reads a pattern of tools' names.
fn pattern(name: &str) -> Result<GlobMatcher> {
    let glob = Glob::new(name)
        .map_err(|error| Error::new(Code::InvalidArgument, format!("the tools {name:?} are no pattern: {error}")))?;
    Ok(glob.compile_matcher())
}

impl ToolkitConfig {
    /// Where tools work.
    pub(super) fn directory(&self) -> PathBuf {
        let of_agents = || self.agents.iter().find_map(|agent| agent.working_directory.clone());
        self.working_directory.clone().or_else(of_agents).unwrap_or_else(|| PathBuf::from("."))
    }

    fn all_roots(&self) -> Vec<PathBuf> {
        let of_agents = self.agents.iter().filter_map(|agent| agent.working_directory.clone());
        self.roots.iter().cloned().chain(of_agents).collect()
    }

    /// The directories that MCP servers are told of: where tools work, each once.
    fn shown_roots(&self) -> Vec<PathBuf> {
        let mut shown = Vec::new();
        for root in std::iter::once(self.directory()).chain(self.all_roots()) {
            // One that is not there is an error of its own, later.
            let Ok(root) = root.canonicalize() else { continue };
            if !shown.contains(&root) {
                shown.push(root);
            }
        }
        shown
    }

    pub(super) fn environment(&self, directory: &Path) -> Result<ToolEnvironment> {
        let sandbox = if self.sandbox.unwrap_or(true) { Sandbox::Required } else { Sandbox::Off };
        let environment = ToolEnvironment::open(directory)?;
        let environment = environment.with_sandbox(sandbox).with_network(self.network.unwrap_or(false));
        let environment = environment.with_private_hosts(self.fetch.private_hosts.iter().cloned());
        let environment = self.add_dirs.iter().try_fold(environment, ToolEnvironment::with_directory)?;
        let environment = self.variables.iter().fold(environment, ToolEnvironment::with_variable);
        let environment = match &self.readable {
            Some(paths) => environment.with_readable_only(paths),
            None => environment,
        };
        let environment = match self.caches.unwrap_or_default() {
            // Without a folder for Flovyn there are none.
            Caches::Private => {
                home().into_iter().fold(environment, |environment, home| environment.with_caches(home.join("caches")))
            }
            Caches::User => user_caches().into_iter().fold(environment, ToolEnvironment::with_writable),
        };
        Ok(self.env.iter().fold(environment, |environment, (name, value)| environment.with_value(name, value)))
    }
}
