//! `flovyn chat`: a coding agent in the terminal whose sessions are durable runs.
//!
//! `options` are its arguments, `session` finds and starts runs, `local_agents` serves them in this process with the tools of
//! `mcp_servers`, `feed` makes chat events of their events, `pending` holds requests to the user; `one_shot` answers a prompt,
//! which `report` and `stream_json` write and `exit` gives a code; `interactive` is the chat in a terminal, which `view` and
//! `screen` draw.

mod agents;
mod approval_rules;
mod attachments;
mod clipboard;
mod commands;
mod completion;
mod cost;
mod elicitation;
mod exit;
mod external;
mod feed;
mod field;
mod given_text;
mod history;
mod interactive;
mod live_session;
mod local_agents;
mod mcp_prompts;
mod mcp_servers;
mod mode;
mod models;
mod one_shot;
mod options;
mod output_schema;
mod pending;
mod prompt;
mod recall;
mod report;
mod screen;
mod session;
mod shell;
mod stream_json;
mod tools;
mod transcript;
mod turn_hooks;
mod view;

pub(crate) use approval_rules::policy_of;
pub(crate) use local_agents::{LocalAgents, ToolSettings, WorkerSetup};
pub(crate) use mcp_servers::of_files as servers_of_files;
pub(crate) use models::Models;
pub(crate) use options::{AFTER, Chat, Confinement};
pub(crate) use tools::{counts, problem_lines};

use crate::commands::{StopSignal, stop_signal};
use crate::print::{Output, ago};
use crate::project::{Commands, Project, Settings, Trust};
use crate::{Failed, Result};
use approval_rules::ApprovalRules;
use clap::ValueEnum;
use comfy_table::Cell;
use exit::Ending;
use external::ExternalAgent;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::config::home;
use flovyn_toolkit::react::{ModelChoice, UserMessage};
use flovyn_toolkit::tools::Effect;
use flovyn_toolkit::tools::approval::{Decision, Rule};
use interactive::ChatContext;
use live_session::{LiveSession, SessionOptions};
use mcp_prompts::McpPrompts;
use options::{EVERYTHING, OutputFormat, Thinking};
use report::Report;
use serde_json::{Map, Value, json};
use session::{Session, Store, directory_of, name_of, title_of};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use turn_hooks::TurnHooks;

/// Sessions that are listed at most.
const MAX_LISTED: usize = 100;

/// Runs `flovyn chat`. A signal ends it at once: what the session was doing is done again when it is resumed.
pub(crate) async fn chat(chat: Chat, out: &mut Output) -> Result {
    let format = chat.format(out.is_json())?;
    let chat = Chat { plain: chat.plain || is_dumb(), ..chat };
    let directory = std::env::current_dir().and_then(|here| here.canonicalize())?;
    let (stopped, stopped_again) = (stop_signal()?, stop_signal()?);
    let store = Store::open(chat.db.as_deref()).await?;
    let mut local_agents = None;
    let done = if chat.list {
        list(&store, &chat, &directory, out).await
    } else if is_interactive(&chat, format) {
        tokio::select! {
            done = converse(&store, chat, &directory, &mut local_agents, out) => done,
            signal = stopped => Err(Failed::Exit(Ending::from(signal).code())),
        }
    } else {
        let mut report = Report::new(out, format, chat.output_schema.is_some());
        tokio::select! {
            done = answer(&store, chat, &directory, &mut local_agents, &mut report) => done,
            signal = stopped => Err(report.interrupted(signal.into())),
        }
    };
    let is_stopped = matches!(done, Err(Failed::Exit(130 | 143)));
    let closing = async {
        let closed = store.runtime().close().await;
        // After the worker: a running call whose MCP server was closed would record a failure.
        if let Some(local_agents) = local_agents {
            local_agents.close().await;
        }
        done.and(closed.map_err(Failed::from))
    };
    if !is_stopped {
        return closing.await;
    }
    tokio::select! {
        done = closing => done,
        signal = stopped_again => Err(Failed::Exit(Ending::from(signal).code())),
    }
}

/// Whether the terminal says that it can only print.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Whether somebody sits at a terminal and is to be talked with.
fn is_interactive(chat: &Chat, format: OutputFormat) -> bool {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    is_terminal && !chat.print && chat.output_schema.is_none() && format == OutputFormat::Text
}

async fn list(store: &Store, chat: &Chat, directory: &Path, out: &mut Output) -> Result {
    let runs = store.list((!chat.all).then_some(directory), MAX_LISTED).await?;
    if out.is_json() {
        let line = |run| json!({ "session": name_of(run), "title": title_of(run), "directory": directory_of(run), "status": run.status });
        return runs.iter().map(line).try_for_each(|line| out.value(&line));
    }
    if runs.is_empty() {
        return out.line(
            "no sessions here; `flovyn chat` starts one, `flovyn chat --list --all` shows those of other directories",
        );
    }
    let now = store.runtime().storage().clock().now();
    let rows = runs.iter().map(|run| {
        let mut row = vec![Cell::new(name_of(run)), Cell::new(ago(run.updated_at, now)), Cell::new(title_of(run))];
        if chat.all {
            row.push(Cell::new(directory_of(run)));
        }
        row
    });
    let head = ["SESSION", "CHANGED", "ASKED FIRST", "DIRECTORY"];
    out.table(&head[..if chat.all { 4 } else { 3 }], rows.collect())
}

impl From<StopSignal> for Ending {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Interrupt => Self::Interrupted,
            StopSignal::Terminate => Self::Terminated,
        }
    }
}

/// What both kinds of chat begin with.
struct Opened {
    rules: ApprovalRules,
    models: Models,
    session: Option<Session>,
    model: ModelChoice,
    options: SessionOptions,
    commands: Commands,
    hooks: TurnHooks,
    /// What is to be said about files of the project.
    notices: Vec<String>,
}

async fn open(
    store: &Store,
    chat: &Chat,
    directory: &Path,
    trust: &Trust,
    local_agents: &mut Option<LocalAgents>,
) -> Result<Opened> {
    let session = existing_session(store, chat, directory).await?;
    let directory = session.as_ref().and_then(Session::directory).unwrap_or_else(|| directory.to_owned());
    let Project { settings, instructions, commands, mut notices, .. } =
        Project::open(&directory, home().ok().as_deref(), trust)?;
    // Whoever allows every call by an option is not asked because of a file. What files refuse stays refused.
    let asks = |rule: &&Rule| chat.policy() != EVERYTHING || rule.decision != Decision::Ask;
    let of_settings: Vec<_> = settings.rules.iter().filter(asks).cloned().collect();
    let rules = ApprovalRules::read(chat.policy())?.with_rules(&of_settings)?;
    let rules = rules.with_options(&chat.allowed_tools, &chat.disallowed_tools)?;
    let agent = match (&session, &chat.agent) {
        (Some(session), Some(named)) if session.agent.as_ref().map(ExternalAgent::text) != Some(named.trim()) => {
            let with = session.agent.as_ref().map_or("the built-in agent", ExternalAgent::text);
            let message = format!("the session {} is one with {with}; resume it without --agent", session.name());
            return Err(Failed::Usage(message));
        }
        (Some(session), _) => session.agent.clone(),
        (None, named) => named.as_deref().map(ExternalAgent::named).transpose()?,
    };
    let models = Models::open(chat.fake.as_ref().map(Option::as_deref))?.with_aliases(settings.model_aliases.clone());
    let servers = servers(store, chat, &settings, &mut notices)?;
    let of_session = session.as_ref().map(|session| &session.input.model);
    let model = match &agent {
        Some(agent) => agent.shown(chat),
        None => live_session::model_of(store, &models, chat, of_session, settings.model.as_deref())?,
    };
    *local_agents = servers.map(|servers| {
        let confinement = Confinement {
            unsandboxed: chat.confinement.unsandboxed || settings.sandbox == Some(false),
            network: chat.confinement.network || settings.network == Some(true),
            add_dirs: [&chat.confinement.add_dirs[..], &settings.additional_directories].concat(),
            ..chat.confinement.clone()
        };
        let tools = ToolSettings {
            without: rules.refused_tools().map(str::to_owned).collect(),
            env: settings.env.clone(),
            hooks: settings.hooks.of_tools(),
        };
        let (roots, store) = (Vec::new(), store.url());
        let external = agent.iter().map(|agent| agent.config(&directory, chat, rules.agent_policy())).collect();
        let (kinds, readable) = (Vec::new(), None);
        let setup =
            WorkerSetup { directory: &directory, roots, store, confinement, servers, tools, kinds, readable, external };
        // The policy of the session decides what is asked, the approval rules of this process answer.
        LocalAgents::open(setup, &models, rules.agent_policy())
    });
    let thinking = settings.thinking.as_deref().and_then(|word| Thinking::from_str(word, false).ok());
    let options = SessionOptions {
        limits: chat.limits(),
        output: chat.output_schema.clone(),
        thinking: chat.thinking.or(thinking).map(Into::into),
        instructions,
        system_prompt: chat.append_system_prompt.clone(),
        agent,
    };
    let hooks = TurnHooks::new(settings.hooks, directory);
    Ok(Opened { rules, models, session, model, options, commands, hooks, notices })
}

async fn converse(
    store: &Store,
    chat: Chat,
    directory: &Path,
    local_agents: &mut Option<LocalAgents>,
    out: &mut Output,
) -> Result {
    let mut trust = Trust::open(home().ok().as_deref(), chat.trust)?;
    ask_for_trust(directory, &mut trust, out).await?;
    let opened = open(store, &chat, directory, &trust, local_agents).await?;
    let Opened { rules, models, session, model, options, commands, hooks, notices } = opened;
    let context = ChatContext {
        store,
        models: &models,
        chat: &chat,
        directory,
        options: &options,
        commands: &commands,
        project_notice: (!notices.is_empty()).then(|| notices.join("\n")),
    };
    interactive::converse(context, session, model, rules, hooks, local_agents, out).await
}

/// Asks once whether a folder is trusted whose files run or allow something.
async fn ask_for_trust(directory: &Path, trust: &mut Trust, out: &mut Output) -> Result {
    let (root, risks) = Project::risks(directory, home().ok().as_deref())?;
    if risks.is_empty() || trust.is_given() || trust.answered(&root).is_some() {
        return Ok(());
    }
    let (shown, risks) = (root.display(), risks.join(", "));
    out.line(&format!("{shown} comes with {risks}: they run or allow things on this machine."))?;
    out.part("Do you trust this folder? It is asked once. [y/N] ")?;
    // On a thread, so that a signal ends the command meanwhile.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.map_err(|error| Error::new(Code::AgentFailed, format!("standard input: {error}")))??;
    trust.remember(&root, ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

async fn answer(
    store: &Store,
    chat: Chat,
    directory: &Path,
    local_agents: &mut Option<LocalAgents>,
    report: &mut Report<'_>,
) -> Result {
    let prompt = prompt_of(&chat).await?;
    let missing = || Failed::Usage("there is no prompt; write one behind `flovyn chat`".into());
    if prompt.is_none() && chat.resumed().is_none() && chat.fork.is_none() {
        return Err(missing());
    }
    let trust = Trust::open(home().ok().as_deref(), chat.trust)?;
    let opened = open(store, &chat, directory, &trust, local_agents).await?;
    let Opened { mut rules, models, session, mut model, options, commands, mut hooks, notices } = opened;
    notices.iter().for_each(|notice| report::note(notice));
    let command = prompt.as_ref().and_then(|prompt| commands.expand(prompt));
    let prompt = match (&command, prompt) {
        (Some(command), _) => Some(command.prompt.clone()),
        (None, prompt) => prompt,
    };
    let of_command = command.as_ref().and_then(|command| command.model.as_deref()).filter(|_| chat.model.is_none());
    if let Some(named) = of_command {
        model = models.choose(Some(named), None, None)?;
    }
    rules.set_for_message(command.as_ref().map_or(&[], |command| &command.allowed))?;
    one_shot::wait_open(local_agents).await?;
    let toolkit = local_agents.as_ref().and_then(LocalAgents::toolkit);
    if let Some(toolkit) = toolkit {
        let tools = toolkit.tools();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        rules.check_names(&names)?;
    }
    let of_server = match (&prompt, toolkit) {
        (Some(prompt), Some(toolkit)) if command.is_none() => McpPrompts::expand(prompt, toolkit.mcp_servers()).await?,
        _ => None,
    };
    let (prompt, parts) = match of_server {
        Some((text, parts)) => (Some(text), parts),
        None => (prompt, Vec::new()),
    };
    let message = match prompt {
        Some(prompt) => {
            let text = hooks.prompt(&prompt, &mut report::note).await;
            let text = text.map_err(|why| Failed::Refused(Error::new(Code::AgentFailed, why)))?;
            Some(UserMessage { parts, ..UserMessage::new(text) })
        }
        None => None,
    };
    let describe = || {
        let refused = |name: &str| rules.decide(name, Effect::Read) == Decision::Deny;
        let tools = toolkit.map(|toolkit| toolkit.tools()).unwrap_or_default();
        let offered: Vec<_> = tools.iter().map(|tool| &tool.name).filter(|name| !refused(name)).collect();
        let problems = toolkit.map(|toolkit| toolkit.problems()).unwrap_or_default();
        let failed = problems.iter().map(|problem| (problem.server.as_str(), "failed"));
        let connected = counts(&tools).into_keys().map(|server| (server, "connected"));
        let servers: BTreeMap<_, _> = failed.chain(connected).collect();
        let servers: Vec<_> = servers.iter().map(|(name, status)| json!({ "name": name, "status": status })).collect();
        json!({
            "cwd": directory, "model": model.to_string(), "tools": offered, "mcp_servers": servers,
            "permissionMode": chat.policy(), "flovyn_version": env!("CARGO_PKG_VERSION"),
        })
    };
    let Some(session) = session else {
        let message = message.ok_or_else(missing)?;
        let mut live_session = LiveSession::start(store, directory, model.clone(), message, &rules, &options).await?;
        report.begin(&live_session.session.name(), describe)?;
        live_session.serve(store, local_agents.as_ref()).await?;
        return one_shot::follow(&mut live_session, false, &rules, &mut hooks, report).await;
    };
    let (mut live_session, history) = LiveSession::resume(store, &models, &chat, session).await?;
    if of_command.is_some() {
        live_session.set_model(model.clone());
    }
    report.begin(&live_session.session.name(), describe)?;
    live_session.serve(store, local_agents.as_ref()).await?;
    if let Some(status) = history.ended {
        let message =
            format!("the session {} has ended ({status}); --fork goes on from it", live_session.session.name());
        return Err(Failed::Usage(message));
    }
    let begins_turn = message.is_some();
    match message {
        Some(message) => live_session.send(message).await?,
        // Whoever resumes a session after a crash cannot know whether it was done: it is told what it would have been.
        None if history.is_idle => return report.ended_before(history.messages, history.end),
        None => report.answered_before(history.messages),
    }
    one_shot::follow(&mut live_session, !begins_turn, &rules, &mut hooks, report).await
}

/// The MCP servers of sessions that this process serves; none where workers of a server do.
fn servers(
    store: &Store,
    chat: &Chat,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Result<Option<Map<String, Value>>> {
    match (store.is_served_here(), chat.mcp.first()) {
        (true, _) => mcp_servers::of_files_or_settings(&chat.mcp, settings, notices).map(Some),
        (false, None) => Ok(None),
        (false, Some(file)) => Err(Failed::Usage(format!(
            "the workers of {} do the work there, and start MCP servers: flovyn worker {} --mcp {}",
            store.url(),
            store.url(),
            file.display()
        ))),
    }
}

/// The session to resume, or its fork; none for a new one.
async fn existing_session(store: &Store, chat: &Chat, directory: &Path) -> Result<Option<Session>> {
    if let Some(id) = &chat.fork {
        let session = store.find(Some(id), directory).await?;
        if let Some(agent) = &session.agent {
            let message = format!("a session with {} cannot be forked; begin another one", agent.text());
            return Err(Failed::Usage(message));
        }
        return store.fork(&session).await.map(Some);
    }
    match chat.resumed() {
        Some(id) => store.find(id, directory).await.map(Some),
        None => Ok(None),
    }
}

/// The prompt, followed by the text of a pipe.
async fn prompt_of(chat: &Chat) -> Result<Option<String>> {
    let mut prompt = chat.prompt.clone().unwrap_or_default();
    let piped = one_shot::piped_text().await?;
    if !prompt.is_empty() && !piped.trim().is_empty() {
        prompt.push_str("\n\n");
    }
    prompt.push_str(&piped);
    Ok((!prompt.trim().is_empty()).then_some(prompt))
}
