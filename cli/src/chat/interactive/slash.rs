//! The commands of the chat, as methods of it.

use super::{PickedKind, TerminalChat};
use crate::Result;
use crate::chat::attachments;
use crate::chat::commands::{self, Line};
use crate::chat::mode::Mode;
use crate::chat::screen::card;
use crate::chat::screen::pager::Pager;
use crate::chat::screen::picker::Picker;
use crate::chat::screen::style::{Row, Style, span};
use crate::chat::session::{name_of, title_of};
use crate::chat::shell::Shell;
use crate::chat::tools::{ToolListing, counts, problem_lines};
use crate::print::ago;
use crate::project::Expanded;
use flovyn_toolkit::message::{Message, Role};
use flovyn_toolkit::provider::ThinkingLevel;
use flovyn_toolkit::react::{Delivery, ModelChoice, Transcript, UserMessage};
use serde_json::Value;
use std::fmt::Write as _;

/// Sessions that are offered.
const MAX_SESSIONS: usize = 200;
/// What `/init` asks for.
const INIT: &str = "Look at this project and write AGENTS.md at its root: what a coding agent has to know to work here. How to \
build, test and lint (the commands, also for a single test), how the code is laid out, and the rules that the code follows. \
Take over what README, CONTRIBUTING and files such as CLAUDE.md, .cursorrules or .github/copilot-instructions.md say. Keep \
it short and say only what you have seen. If there is an AGENTS.md already, improve it.";

impl TerminalChat<'_> {
    /// Does what a line says.
    pub(super) async fn submit_command(&mut self, line: &str, width: usize) -> Result {
        match commands::read(line) {
            Line::Text => self.send_prompt(line, width).await,
            // A command of the user or the project.
            Line::Unknown(..) if self.context.commands.expand(line.trim()).is_some() => {
                self.send_prompt(line.trim(), width).await
            }
            Line::Unknown(..) if self.begin_prompt(line) => Ok(()),
            Line::Unknown(word, nearest) => {
                let nearest = nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                self.view
                    .show_hint(&format!("there is no command {word}{nearest}  (a space before it sends the line)"));
                Ok(())
            }
            Line::Shell(command) => self.start_shell(command),
            Line::Command(name, rest) => self.command(name, rest, width).await,
        }
    }

    async fn command(&mut self, name: &str, rest: &str, width: usize) -> Result {
        match name {
            "/agents" => self.agents(rest, width).await?,
            "/clear" => self.clear(width),
            "/compact" => self.compact(rest).await?,
            "/cost" => {
                let line = self.view.total().line();
                self.view.show_note(&line, width);
            }
            "/diff" => self.diff(width).await,
            "/edit" => self.wants_editor = true,
            "/expand" => self.expand(width),
            "/export" => self.export(rest, width).await?,
            "/help" => self.view.show_note(&commands::help(self.context.commands), width),
            "/init" => self.send_text(INIT, Delivery::NextStep).await?,
            "/mcp" => self.mcp(width),
            "/model" => self.set_model(rest, width),
            "/plan" => self.set_mode(Mode::Plan),
            "/quit" => self.over = true,
            "/resume" => self.resume(rest, width).await?,
            "/thinking" => self.set_thinking(rest, width),
            "/tools" => self.tools(width).await?,
            "/undo" => self.undo(width).await?,
            _ => {}
        }
        Ok(())
    }

    /// Sends what the user has said: a custom command as its prompt, and all of it as far as hooks allow it.
    pub(super) async fn send_prompt(&mut self, line: &str, width: usize) -> Result {
        let command = self.context.commands.expand(line);
        if let Some(Expanded { model: Some(model), .. }) = &command {
            self.set_model(model, width);
        }
        self.rules.set_for_message(command.as_ref().map_or(&[], |command| &command.allowed))?;
        let text = command.as_ref().map_or(line, |command| &command.prompt);
        let view = &mut self.view;
        match self.hooks.prompt(text, &mut |line| view.show_note(line, width)).await {
            Ok(text) => self.send_text(&text, Delivery::NextStep).await,
            Err(why) => {
                self.view.show_note(&why, width);
                Ok(())
            }
        }
    }

    /// Whether the agent works, which a command cannot have; says so.
    fn is_refused_while_busy(&mut self) -> bool {
        let is_busy = self.view.is_busy();
        if is_busy {
            self.view.show_hint("the agent works; Ctrl-C stops it");
        }
        is_busy
    }

    /// Begins a new conversation.
    fn clear(&mut self, width: usize) {
        if self.is_refused_while_busy() {
            return;
        }
        let old = self.live_session.take().map(|live_session| live_session.session.name());
        self.view.restart();
        self.editor.forget_files();
        let old = old.map(|name| format!("; /resume {name} goes back to the last one")).unwrap_or_default();
        self.view.show_note(&format!("A new conversation{old}."), width);
    }

    async fn compact(&mut self, focus: &str) -> Result {
        if self.is_refused_while_busy() {
            return Ok(());
        }
        match &mut self.live_session {
            Some(live_session) => {
                live_session.send(UserMessage::compact(focus)).await?;
                self.view.set_compacting();
            }
            None => self.view.show_hint("there is nothing to compact yet"),
        }
        Ok(())
    }

    /// Shows what has changed in the directory: by git, else by the tools of this conversation.
    async fn diff(&mut self, width: usize) {
        let git = |args: &[&str]| {
            let mut command = tokio::process::Command::new("git");
            command.args(["-c", "core.quotepath=off"]).args(args).current_dir(self.context.directory);
            command.stdin(std::process::Stdio::null()).kill_on_drop(true);
            async move { command.output().await.ok().filter(|output| output.status.success()) }
        };
        let mut rows: Vec<Row> = Vec::new();
        let changed = match git(&["diff", "--no-color", "--no-ext-diff", "HEAD"]).await {
            Some(changed) => Some(changed),
            None => git(&["diff", "--no-color", "--no-ext-diff"]).await,
        };
        match changed {
            Some(changed) => {
                rows.extend(card::files(&String::from_utf8_lossy(&changed.stdout), width));
                if let Some(fresh) = git(&["ls-files", "--others", "--exclude-standard"]).await {
                    let fresh = String::from_utf8_lossy(&fresh.stdout).into_owned();
                    rows.extend(fresh.lines().map(|file| vec![span(format!("new file {file}"), Style::GREEN)]));
                }
            }
            None => rows.extend(card::files(&self.view.diffs(), width)),
        }
        if rows.is_empty() {
            return self.view.show_hint("nothing has changed");
        }
        self.pager = Some(Pager::open("What has changed", rows, false));
    }

    /// Writes the conversation to a file, as Markdown.
    async fn export(&mut self, file: &str, width: usize) -> Result {
        let Some(live_session) = &self.live_session else {
            self.view.show_hint("there is nothing to export yet");
            return Ok(());
        };
        let name = live_session.session.name();
        let file = if file.is_empty() { format!("flovyn-{name}.md") } else { file.to_owned() };
        let path = self.context.directory.join(&file);
        let mut text = format!("# Session {name}\n");
        for entry in live_session.session.handle.messages().await? {
            if entry.new.entry_type == "message"
                && let Ok(message) = entry.new.content.parse::<Message>()
            {
                written(&message, &mut text);
            }
        }
        let mut options = std::fs::OpenOptions::new();
        // A file that is there is not lost by a name that was mistyped.
        let opened = options.write(true).create_new(true).open(&path);
        let done = opened.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        match done {
            Ok(()) => self.view.show_note(&format!("The conversation is in {file}."), width),
            Err(error) => self.view.show_note(&format!("{file} could not be written: {error}"), width),
        }
        Ok(())
    }

    /// Lists the MCP servers.
    fn mcp(&mut self, width: usize) {
        let Some(local_agents) = &self.local_agents else {
            return self.view.show_hint("the workers of the server have the MCP servers; /tools lists their tools");
        };
        let Some(toolkit) = local_agents.toolkit() else {
            return self.view.show_hint("the MCP servers are starting");
        };
        let tools = toolkit.tools();
        let counts = counts(&tools);
        let mut lines: Vec<_> = counts.iter().map(|(server, count)| format!("{server}: {count} tools")).collect();
        lines.extend(problem_lines(&tools, &toolkit.problems()));
        let prompts = self.prompts.lines();
        if !prompts.is_empty() {
            lines.extend(["Prompts:".to_owned()].into_iter().chain(prompts));
        }
        // A server may have come alive, or have others by now.
        self.prompts.list(toolkit.mcp_servers());
        if lines.is_empty() {
            lines.push("There are no MCP servers; --mcp FILE or ~/.flovyn/mcp.json names some.".to_owned());
        }
        self.view.show_note(&lines.join("\n"), width);
    }

    /// Lists the tools that the model may call.
    async fn tools(&mut self, width: usize) -> Result {
        match (&self.local_agents, &self.live_session) {
            (Some(local_agents), _) => match local_agents.toolkit() {
                Some(toolkit) => {
                    let (tools, problems) = (toolkit.tools(), toolkit.problems());
                    self.view.show_rows(
                        ToolListing::of_local_tools(&tools, &self.rules).rows(&problem_lines(&tools, &problems), width),
                    );
                }
                None => self.view.show_hint("the MCP servers are starting"),
            },
            (None, Some(live_session)) => {
                let transcript = Transcript::of(&live_session.session.handle.messages().await?)?;
                self.view.show_rows(ToolListing::of_session(transcript.tools(), &self.rules).rows(&[], width));
            }
            (None, None) => self.view.show_hint("the workers say which tools there are once the session has begun"),
        }
        Ok(())
    }

    /// Asks another model from now on; without a name the user picks one.
    pub(super) fn set_model(&mut self, name: &str, width: usize) {
        if name.is_empty() {
            let registry = self.context.models.registry();
            let aliases = registry.aliases().into_iter().filter(|alias| alias.is_available);
            let aliases =
                aliases.map(|alias| (alias.reference.clone(), format!("{}  {}", alias.name, alias.reference)));
            let known = registry.models();
            let known = known.iter().map(|model| (model.reference(), model.reference()));
            let items: Vec<_> = aliases.chain(known).collect();
            if items.is_empty() {
                return self.view.show_note(&format!("{} is asked; /model NAME asks another", self.model), width);
            }
            self.picker =
                Some((Picker::new(format!("{} is asked. Another one", self.model), items), PickedKind::Model));
            return;
        }
        let here = self.context.store.is_served_here();
        let models = self.context.models;
        let chosen = match here {
            true => models.choose(Some(name), None, None),
            false => Ok(ModelChoice::parse(&models.named(name))),
        };
        match chosen {
            Ok(model) => {
                self.model = model.clone();
                self.live_session.iter_mut().for_each(|live_session| live_session.set_model(model.clone()));
                self.view.show_note(&format!("{model} is asked from now on"), width);
            }
            Err(error) => self.view.show_note(&error.to_string(), width),
        }
    }

    fn set_thinking(&mut self, level: &str, width: usize) {
        const LEVELS: &str = "off, minimal, low, medium, high or max";
        match serde_json::from_value::<ThinkingLevel>(Value::from(level.to_lowercase())) {
            Ok(chosen) => {
                self.thinking = Some(chosen);
                self.view.show_note(&format!("The model thinks from the next message on: {level}."), width);
            }
            Err(_) if level.is_empty() => {
                let word = self.thinking.and_then(|level| serde_json::to_value(level).ok());
                let now = word.as_ref().and_then(Value::as_str).unwrap_or("as the session began");
                self.view.show_note(&format!("Thinking: {now}. /thinking takes {LEVELS}."), width);
            }
            Err(_) => self.view.show_hint(&format!("/thinking takes {LEVELS}, not {level:?}")),
        }
    }

    /// Goes on with another session; without an id the user picks one.
    pub(super) async fn resume(&mut self, id: &str, width: usize) -> Result {
        if self.is_refused_while_busy() {
            return Ok(());
        }
        if !id.is_empty() {
            return match self.context.store.find(Some(id), self.context.directory).await {
                Ok(session) => {
                    self.view.restart();
                    self.view.show_note(&format!("Session {id}"), width);
                    self.resume_session(session, width).await
                }
                Err(error) => {
                    self.view.show_note(&error.to_string(), width);
                    Ok(())
                }
            };
        }
        let runs = self.context.store.list(Some(self.context.directory), MAX_SESSIONS).await?;
        let now = self.context.store.runtime().storage().clock().now();
        let current = self.live_session.as_ref().map(|live_session| live_session.session.name());
        let others = runs.iter().filter(|run| !run.status.is_terminal() && Some(name_of(run)) != current);
        let item =
            |run| (name_of(run), format!("{:>4} ago  {}  {}", ago(run.updated_at, now), name_of(run), title_of(run)));
        let items: Vec<_> = others.map(item).collect();
        match items.is_empty() {
            true => self.view.show_hint("there are no other sessions of this directory"),
            false => self.picker = Some((Picker::new("Go on with", items), PickedKind::Session)),
        }
        Ok(())
    }

    /// Runs a command of the user.
    fn start_shell(&mut self, command: &str) -> Result {
        if self.shell.is_some() {
            self.view.show_hint("a command of yours still runs; Ctrl-C ends it");
            return Ok(());
        }
        match Shell::start(command, self.context.directory) {
            Ok(shell) => {
                self.view.show_command(Some(command));
                self.shell = Some(shell);
            }
            Err(error) => self.view.show_hint(&format!("sh could not be started: {error}")),
        }
        Ok(())
    }

    /// Shows a command of the user that has ended, and keeps it for the model.
    pub(super) fn on_shell_end(&mut self, ran: &crate::chat::shell::Ran, width: usize) {
        let Some(shell) = self.shell.take() else { return };
        self.view.show_command(None);
        self.view.show_rows(card::command(&shell.command, &ran.output, ran.code, ran.duration, width));
        self.notes.push(attachments::of_command(&shell.command, &ran.output, ran.code));
        self.editor.forget_files();
    }
}

/// A message as Markdown.
fn written(message: &Message, out: &mut String) {
    // Writing into a String cannot fail.
    let _written = match message.role {
        Role::User => writeln!(out, "\n## You\n\n{}", attachments::shown(message)),
        Role::Assistant => {
            let text = message.text();
            let _written = if text.trim().is_empty() { Ok(()) } else { writeln!(out, "\n## Agent\n\n{}", text.trim()) };
            message.tool_calls().try_for_each(|call| {
                let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
                writeln!(out, "\n### {}\n\n~~~~json\n{arguments}\n~~~~", call.name)
            })
        }
        Role::Tool => message.tool_results().try_for_each(|result| {
            let text = crate::chat::feed::text_of(result);
            writeln!(out, "\n~~~~\n{}\n~~~~", text.trim_end())
        }),
        Role::System | Role::Other(_) => Ok(()),
    };
}
