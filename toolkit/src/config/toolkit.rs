//! The native definitions of a configuration: agents, model calls and tools in one host.

use super::schema::{Caches, ReactAgentConfig, ToolConfig, ToolkitConfig};
use super::{ToolHooks, home, records_of, registry};
use crate::mcp::{McpInputTask, McpProblem, McpServers};
use crate::provider::Registry;
use crate::react::{AgentTool, LlmGenerate, ReactAgent};
use crate::tools::{CallRecords, Limits, Sandbox, ToolDefinition, ToolEnvironment, ToolHost, ToolTask, Toolbox};
use flovyn_core::agent::NativeHost;
use flovyn_core::error::{Code, Error, Result};
use flovyn_core::model::TaskOptions;
use flovyn_core::task::TaskDefinition;
use globset::{Glob, GlobMatcher};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a worker serves of the toolkit.
pub struct Toolkit {
    host: Arc<NativeHost>,
    options: BTreeMap<String, TaskOptions>,
    tools: Vec<ToolDefinition>,
    servers: McpServers,
    problems: Vec<McpProblem>,
}

/// The available tools, and which of them are served.
struct ToolSelection {
    toolbox: Toolbox,
    servers: McpServers,
    hooks: ToolHooks,
    problems: Vec<McpProblem>,
    selected: BTreeSet<String>,
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
        let records = || match &description.records {
            Some(folder) => Ok(Some(folder.clone())),
            // Calls of a store that ends with this process cannot be resumed.
            None if store.starts_with("memory:") => Ok(None),
            None => records_of(store).map(Some),
        };
        if let Ok(Some(folder)) = records() {
            servers.remember_in(&folder);
        }
        let (toolbox, problems) = servers.add_to(Toolbox::host_with(description.fetch.tool())?).await;
        let toolbox = description.hooks.around(&toolbox)?;
        let mut selection =
            ToolSelection { toolbox, servers, hooks: description.hooks.clone(), problems, selected: BTreeSet::new() };
        for name in &description.tools {
            selection.select(name)?;
        }
        let directory = description.directory();
        let mut host = NativeHost::default();
        for agent in &description.agents {
            host = host.agent(selection.agent(agent, &directory)?)?;
        }
        let generate = LlmGenerate::new(models);
        let mut options = BTreeMap::from([(LlmGenerate::KIND.to_owned(), LlmGenerate::call_options())]);
        host = host.task(generate)?;
        let ToolSelection { toolbox, servers, problems, selected, .. } = selection;
        let served = |tool: &ToolDefinition| selected.contains(&tool.name);
        let tools = toolbox.definitions().into_iter().filter(served).collect();
        if !selected.is_empty() {
            let records = records()?.map_or_else(CallRecords::temporary, CallRecords::open)?;
            let environment = description.environment(&directory)?;
            let place = ToolHost::new(environment, records).with_roots(description.all_roots())?;
            for task in selected.iter().filter_map(|name| ToolTask::new(&toolbox, name, &place)) {
                options.insert(task.kind().to_owned(), TaskOptions { interruptible: true, ..task.options() });
                host = host.task(task)?;
            }
        }
        if servers.names().next().is_some() {
            let answers = McpInputTask::new(servers.clone(), Limits::default());
            options.insert(answers.kind().to_owned(), answers.options());
            host = host.task(answers)?;
        }
        Ok(Self { host: Arc::new(host), options, tools, servers, problems })
    }

    /// What a worker serves.
    pub fn host(&self) -> Arc<NativeHost> {
        self.host.clone()
    }

    /// How a task of the kit is to be scheduled by agents of other kinds; none for a task that it does not serve.
    pub fn options(&self, kind: &str) -> Option<&TaskOptions> {
        self.options.get(kind)
    }

    /// The kinds of its tasks: `llm.generate`, `tool.read`, ….
    pub fn task_kinds(&self) -> impl Iterator<Item = &str> {
        self.options.keys().map(String::as_str)
    }

    /// The host and MCP tools that it serves, in the order of their names.
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    /// What is wrong with MCP servers and was not asked for by name.
    pub fn problems(&self) -> &[McpProblem] {
        &self.problems
    }

    /// The MCP servers, for their prompts.
    pub fn mcp_servers(&self) -> &McpServers {
        &self.servers
    }

    /// Ends the connections to MCP servers, and the processes that were started for them.
    pub async fn close(&self) {
        self.servers.close().await;
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

impl ToolSelection {
    /// Selects the tools of a name or pattern.
    fn select(&mut self, name: &str) -> Result<Vec<String>> {
        let found: Vec<_> = if name.contains('*') {
            let glob = pattern(name)?;
            self.toolbox.names().filter(|known| glob.is_match(known)).map(str::to_owned).collect()
        } else {
            self.toolbox.names().filter(|known| *known == name).map(str::to_owned).collect()
        };
        if found.is_empty() {
            // A server that cannot be used now does not keep a worker from serving everything else.
            let Some(tool) = self.servers.unlisted(name) else { return Err(self.unknown(name)) };
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
        let mut agent =
            ReactAgent::new().named(&given.kind).with_approvals(given.approvals.0.clone()).with_config(&given.config);
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
                            agent = agent.with_tool(AgentTool::shared(tool)?)?;
                        }
                    }
                }
            }
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
    fn directory(&self) -> PathBuf {
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

    fn environment(&self, directory: &Path) -> Result<ToolEnvironment> {
        let sandbox = if self.sandbox.unwrap_or(true) { Sandbox::Required } else { Sandbox::Off };
        let environment = ToolEnvironment::open(directory)?;
        let environment = environment.with_sandbox(sandbox).with_network(self.network.unwrap_or(false));
        let environment = environment.with_private_hosts(self.fetch.private_hosts.iter().cloned());
        let environment = self.add_dirs.iter().try_fold(environment, ToolEnvironment::with_directory)?;
        let environment = self.variables.iter().fold(environment, ToolEnvironment::with_variable);
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
