//! The chat in a terminal: sends what the user types to the session, and shows the events of the session.

use super::approval_rules::{ApprovalRules, answer};
use super::feed::ChatEvent;
use super::history::History;
use super::live_session::{LiveSession, SessionOptions};
use super::local_agents::LocalAgents;
use super::models::Models;
use super::options::Chat;
use super::pending::PendingRequest;
use super::screen::editor::{Editor, KeyAction, KeyEvents};
use super::screen::terminal::Terminal;
use super::session::{Session, Store};
use super::tools::{ToolListing, counts, problem_lines, problem_rows};
use super::turn_hooks::TurnHooks;
use super::view::View;
use crate::Result;
use crate::print::Output;
use crate::project::{Commands, Expanded, keep};
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::react::{Delivery, ModelChoice, Transcript};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use std::path::Path;
use std::time::Duration;

/// How often changes are drawn.
const FRAME: Duration = Duration::from_millis(50);

const HELP: &str = "Write what you want and press Enter. While the agent works, a line is heard before its next step.\n\
  Ctrl-C or Esc   stop what it does; twice leaves       Alt-Enter   a new line\n\
  /model NAME     ask another model from now on         /cost       what the session cost\n\
  /tools          what the model may call               /quit, Ctrl-D   leave; --resume goes on with the session\n\
Where an MCP server asks something, each line answers one field:\n\
  /back           to the field before                   /decline    say no        /cancel   close it without an answer";

/// The commands that work during an elicitation; all other lines answer it, also paths that begin with a slash.
const CHAT_COMMANDS: [&str; 5] = ["/help", "/tools", "/cost", "/quit", "/exit"];

/// What a chat needs to know about its process.
pub(super) struct ChatContext<'a> {
    pub store: &'a Store,
    pub models: &'a Models,
    pub chat: &'a Chat,
    pub directory: &'a Path,
    pub options: &'a SessionOptions,
    /// The custom commands of the user and the project.
    pub commands: &'a Commands,
    /// The notices about files of the project.
    pub project_notice: Option<String>,
}

/// The chat.
struct TerminalChat<'a> {
    context: ChatContext<'a>,
    rules: ApprovalRules,
    hooks: TurnHooks,
    model: ModelChoice,
    /// The agents that serve the session in this process; none where workers elsewhere do.
    local_agents: &'a mut Option<LocalAgents>,
    live_session: Option<LiveSession>,
    view: View,
    editor: Editor,
    /// The line that was being written when an elicitation began, until it is answered.
    stashed_draft: Option<String>,
    /// Ctrl-C was the last key.
    leaving: bool,
    over: bool,
}

/// Runs a chat until the user leaves. An existing session is resumed.
pub(super) async fn converse(
    context: ChatContext<'_>,
    session: Option<Session>,
    model: ModelChoice,
    rules: ApprovalRules,
    hooks: TurnHooks,
    local_agents: &mut Option<LocalAgents>,
    out: &mut Output,
) -> Result {
    let mut chat = TerminalChat {
        context,
        rules,
        hooks,
        model,
        local_agents,
        live_session: None,
        view: View::default(),
        editor: Editor::default(),
        stashed_draft: None,
        leaving: false,
        over: false,
    };
    let mut terminal = Terminal::open(out.has_colours())?;
    let ended = chat.run(&mut terminal, session).await;
    terminal.show(&chat.view.settled(), &[], (0, 0))?;
    drop(terminal);
    ended?;
    if let Some(live_session) = &chat.live_session {
        out.line(
            &out.dim(&format!("\nflovyn chat --resume {}   goes on with this session", live_session.session.name())),
        )?;
    }
    match chat.view.ended() {
        Some(why) => Err(Error::new(Code::AgentFailed, format!("{why}; --fork goes on from where it was")).into()),
        None => Ok(()),
    }
}

impl TerminalChat<'_> {
    async fn run(&mut self, terminal: &mut Terminal, session: Option<Session>) -> Result {
        let mut key_events = KeyEvents::open()?;
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut width = terminal.size().0;
        self.welcome(width);
        if let Some(session) = session {
            self.resume_session(session, width).await?;
        }
        if let Some(prompt) = &self.context.chat.prompt {
            self.send_prompt(prompt, width).await?;
        }
        // Typed keys are drawn at once, events with the next frame.
        let (mut changed, mut stale) = (true, false);
        while !self.over {
            self.stash_draft();
            if changed {
                self.draw(terminal)?;
                (changed, stale) = (false, false);
            }
            tokio::select! {
                event = key_events.next() => {
                    let Some(event) = event else { return Ok(()) };
                    let key = self.editor.handle(event);
                    width = terminal.size().0;
                    self.on_key(key, width).await?;
                    changed = true;
                }
                done = wait_open(self.local_agents) => {
                    done?;
                    self.wait_open(width).await?;
                    changed = true;
                }
                event = next(&mut self.live_session) => {
                    match event? {
                        Some(event) => self.on_event(event, width).await?,
                        None => self.over = true,
                    }
                    stale = true;
                }
                _ = frames.tick() => changed = stale || self.view.is_busy(),
            }
        }
        Ok(())
    }

    fn draw(&mut self, terminal: &mut Terminal) -> Result {
        let width = terminal.size().0;
        let stay = self.view.settled();
        let mut live = self.view.live_rows(width, &self.model.to_string());
        let (line, (row, column)) = self.editor.rows(width);
        let row = live.len() + row;
        live.extend(line);
        Ok(terminal.show(&stay, &live, (row, column))?)
    }

    fn welcome(&mut self, width: usize) {
        let directory = self.context.directory.display();
        // Elsewhere the worker decides.
        let sandbox = match self.local_agents {
            Some(_) => format!(" · sandbox {}", self.context.chat.confinement.word()),
            None => String::new(),
        };
        self.view.show_note(&format!("Flovyn · {} · {directory}{sandbox}", self.model), width);
        let opens_servers = self.local_agents.as_ref().is_some_and(LocalAgents::has_servers);
        self.view.set_opening(opens_servers);
        if let Some(line) = self.context.project_notice.take() {
            self.view.show_note(&line, width);
        }
    }

    /// The tools of this process are open: serves the session, and shows problems of MCP servers.
    async fn wait_open(&mut self, width: usize) -> Result {
        self.view.set_opening(false);
        if let Some(toolkit) = self.local_agents.as_ref().and_then(LocalAgents::toolkit) {
            let counts = counts(toolkit.tools());
            let counts: Vec<_> = counts.iter().map(|(server, count)| format!("{server} ({count} tools)")).collect();
            if !counts.is_empty() {
                self.view.show_note(&format!("MCP servers: {} · /tools lists them", counts.join(", ")), width);
            }
            let mut problem_lines = problem_lines(toolkit.tools(), toolkit.problems());
            let served = |name: &str| toolkit.tools().iter().any(|tool| tool.name == name);
            let absent = self.view.pending.elicitations().filter(|request| !served(&request.name));
            problem_lines.extend(absent.map(|request| {
                let server = &request.server;
                format!(
                    "{server} is not here to take an answer: /quit, and resume with --mcp and the file that has it."
                )
            }));
            if !problem_lines.is_empty() {
                self.view.show_rows(problem_lines.iter().flat_map(|line| problem_rows(line, width)).collect());
            }
        }
        self.serve().await
    }

    async fn serve(&self) -> Result {
        match &self.live_session {
            Some(live_session) => live_session.serve(self.context.store, self.local_agents.as_ref()).await,
            None => Ok(()),
        }
    }

    /// Stashes the line that is being written during an elicitation, which needs the line for its answer.
    fn stash_draft(&mut self) {
        match (self.view.pending.elicitation().is_some(), self.stashed_draft.take()) {
            (true, None) => self.stashed_draft = Some(self.editor.take_text()),
            (false, Some(stashed_draft)) if self.editor.is_empty() => self.editor.set_text(stashed_draft),
            (_, stashed_draft) => self.stashed_draft = stashed_draft,
        }
    }

    async fn resume_session(&mut self, session: Session, width: usize) -> Result {
        let ChatContext { store, models, chat, .. } = self.context;
        let (live_session, history) = LiveSession::resume(store, models, chat, session).await?;
        self.view.show_history(&history, width);
        self.live_session = Some(live_session);
        let History { approvals, ended, .. } = history;
        if let Some(status) = ended {
            self.view.apply(&ChatEvent::SessionEnded(Some(format!("the session has ended ({status})"))), width);
            self.over = true;
        }
        for request in approvals {
            self.on_approval_request(request).await?;
        }
        self.serve().await
    }

    async fn send_text(&mut self, text: &str, delivery: Delivery) -> Result {
        self.view.show_queued(text);
        match &mut self.live_session {
            Some(live_session) => live_session.send_text(text, delivery).await,
            None => {
                let model = self.model.clone();
                let ChatContext { store, directory, options, .. } = self.context;
                let live_session = LiveSession::start(store, directory, model, text, &self.rules, options).await?;
                self.live_session = Some(live_session);
                self.serve().await
            }
        }
    }

    async fn on_event(&mut self, event: ChatEvent, width: usize) -> Result {
        self.view.apply(&event, width);
        match event {
            ChatEvent::ApprovalRequested(request) => self.on_approval_request(request).await,
            ChatEvent::SessionEnded(_) => {
                self.over = true;
                Ok(())
            }
            ChatEvent::AnswerEnded(end) => {
                self.hooks.ended(end);
                Ok(())
            }
            ChatEvent::Idle => {
                self.leaving = false;
                let session = self.live_session.as_ref().map(|live| live.session.name()).unwrap_or_default();
                let view = &mut self.view;
                match self.hooks.idle(&session, &mut |line| view.show_note(line, width)).await {
                    Some(more) => self.send_text(&more, Delivery::NextStep).await,
                    None => self.rules.set_for_message(&[]),
                }
            }
            _ => Ok(()),
        }
    }

    async fn on_approval_request(&mut self, request: ApprovalRequest) -> Result {
        match (self.rules.answer(&request), &self.live_session) {
            (Some(answer), Some(live_session)) => live_session.answer_approval(&answer).await,
            _ => {
                self.view.pending.add_approval(request);
                Ok(())
            }
        }
    }

    async fn on_key(&mut self, key: KeyAction, width: usize) -> Result {
        let leaving = std::mem::take(&mut self.leaving);
        match key {
            KeyAction::Empty if self.view.pending.elicitation().is_some() => self.answer("").await,
            KeyAction::Changed | KeyAction::Empty => Ok(()),
            KeyAction::Leave => {
                self.over = true;
                Ok(())
            }
            KeyAction::Stop => self.stop(leaving).await,
            KeyAction::Line(line) => self.submit_line(&line, width).await,
        }
    }

    /// The first Ctrl-C empties the line or stops the agent, the next one leaves.
    async fn stop(&mut self, leaving: bool) -> Result {
        self.leaving = true;
        if leaving {
            self.over = true;
        } else if !self.editor.is_empty() {
            self.editor.take_text();
            self.leaving = false;
        } else if self.view.is_busy()
            && let Some(live_session) = &mut self.live_session
        {
            self.view.set_stopping();
            live_session.interrupt().await?;
            self.view.show_hint("stopping; Ctrl-C again leaves");
        } else {
            self.view.show_hint("Ctrl-C again leaves");
        }
        Ok(())
    }

    async fn submit_line(&mut self, line: &str, width: usize) -> Result {
        if self.view.pending.elicitation().is_some() && !CHAT_COMMANDS.contains(&line) {
            return self.answer(line).await;
        }
        if let Some(PendingRequest::Approval(request)) = self.view.pending.first()
            && let Some(live_session) = &self.live_session
        {
            let request = request.clone();
            let approved = match line.to_ascii_lowercase().as_str() {
                "y" | "yes" => Some(true),
                "n" | "no" => Some(false),
                "a" | "always" => {
                    self.rules.allow_alike(&request)?;
                    Some(true)
                }
                "p" | "project" => {
                    self.rules.allow_alike(&request)?;
                    let note = keep(self.context.directory, &request.alike())?;
                    self.view.show_note(&note, width);
                    Some(true)
                }
                _ => None,
            };
            if let Some(approved) = approved {
                live_session.answer_approval(&answer(&request, approved, None)).await?;
                self.view.pending.remove(&request.id);
                return self.apply_rules().await;
            }
        }
        if self.view.is_busy() && ["y", "n", "a", "p"].contains(&line) {
            self.view.show_hint("nothing is asked now");
            return Ok(());
        }
        match line.strip_prefix('/').map(|words| words.split_once(' ').unwrap_or((words, ""))) {
            Some(("help", _)) => {
                let mut help = HELP.to_owned();
                for (name, command) in self.context.commands.iter() {
                    let words = format!("/{name} {}", command.argument_hint);
                    help.push_str(&format!("\n  {words:<16}{}", command.description));
                }
                self.view.show_note(&help, width);
            }
            Some(("quit" | "exit", _)) => self.over = true,
            Some(("cost", _)) => {
                let line = self.view.total().line();
                self.view.show_note(&line, width);
            }
            Some(("tools", _)) => self.tools(width).await?,
            Some(("model", name)) => self.set_model(name.trim(), width),
            _ => self.send_prompt(line, width).await?,
        }
        Ok(())
    }

    /// Sends what the user has said: a custom command as its prompt, and all of it as far as hooks allow it.
    async fn send_prompt(&mut self, line: &str, width: usize) -> Result {
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

    /// Answers the open requests that a new rule decides.
    async fn apply_rules(&mut self) -> Result {
        let Some(live_session) = &self.live_session else { return Ok(()) };
        let answers: Vec<_> = self.view.pending.approvals().filter_map(|request| self.rules.answer(request)).collect();
        for answer in answers {
            live_session.answer_approval(&answer).await?;
            self.view.pending.remove(&answer.id);
        }
        Ok(())
    }

    /// Takes a line for the current elicitation; sends the reply when it is complete.
    async fn answer(&mut self, line: &str) -> Result {
        let (Some(elicitation), Some(live_session)) = (self.view.pending.elicitation(), &self.live_session) else {
            return Ok(());
        };
        let reply = match line {
            "/decline" => elicitation.decline(),
            "/cancel" => elicitation.cancel(),
            "/back" => {
                elicitation.back();
                None
            }
            line => elicitation.submit_line(line),
        };
        if let Some(reply) = reply {
            live_session.answer_input(&reply).await?;
            self.view.pending.mark_sent();
        }
        Ok(())
    }

    /// Lists the tools that the model may call.
    async fn tools(&mut self, width: usize) -> Result {
        match (&self.local_agents, &self.live_session) {
            (Some(local_agents), _) => match local_agents.toolkit() {
                Some(toolkit) => {
                    let (tools, problems) = (toolkit.tools(), toolkit.problems());
                    self.view.show_rows(
                        ToolListing::of_local_tools(tools, &self.rules).rows(&problem_lines(tools, problems), width),
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

    fn set_model(&mut self, name: &str, width: usize) {
        if name.is_empty() {
            let known: Vec<_> = self.context.models.registry().models().iter().map(|model| model.reference()).collect();
            let aliases: Vec<_> =
                self.context.models.registry().aliases().iter().map(|alias| alias.name.clone()).collect();
            let (known, aliases) = (known.join(", "), aliases.join(", "));
            return self
                .view
                .show_note(&format!("{} is asked; known are: {known}; in short: {aliases}", self.model), width);
        }
        let here = self.context.store.is_served_here();
        let chosen = if here {
            self.context.models.choose(Some(name), None, None)
        } else {
            Ok(ModelChoice::parse(&self.context.models.named(name)))
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
}

/// Resolves when the tools of this process have been opened; never where they were open before, or where there are none.
async fn wait_open(local_agents: &mut Option<LocalAgents>) -> Result {
    match local_agents {
        Some(local_agents) => local_agents.wait_open().await.map(drop),
        None => std::future::pending().await,
    }
}

/// The next event of the session; never resolves where there is no session yet.
async fn next(live_session: &mut Option<LiveSession>) -> Result<Option<ChatEvent>> {
    match live_session {
        Some(live_session) => live_session.feed.next().await,
        None => std::future::pending().await,
    }
}
