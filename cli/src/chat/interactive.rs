//! The chat in a terminal: sends what the user types to the session, and shows the events of the session.

mod agents;
mod approvals;
mod drafts;
mod prompts;
mod slash;
mod undo;
mod waits;

use super::approval_rules::{ApprovalRules, answer};
use super::attachments;
use super::commands;
use super::completion::Completions;
use super::feed::ChatEvent;
use super::history::History;
use super::live_session::{LiveSession, SessionOptions};
use super::local_agents::LocalAgents;
use super::mcp_prompts::McpPrompts;
use super::mode::{self, Mode};
use super::models::Models;
use super::options::Chat;
use super::pending::PendingRequest;
use super::recall::Recall;
use super::screen::editor::{Editor, KeyAction};
use super::screen::keys::KeyEvents;
use super::screen::pager::Pager;
use super::screen::picker::{Picked, Picker};
use super::screen::terminal::Terminal;
use super::session::{Session, Store};
use super::shell::Shell;
use super::tools::{ToolName, counts, problem_lines, problem_rows};
use super::turn_hooks::TurnHooks;
use super::view::View;
use crate::Result;
use crate::print::{Output, short_path};
use crate::project::{Commands, keep};
use crossterm::event::Event;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::message::Part;
use flovyn_toolkit::provider::ThinkingLevel;
use flovyn_toolkit::react::{Delivery, ModelChoice, UserMessage};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use waits::{next, shell_end, wait_open};

/// How often changes are drawn.
const FRAME: Duration = Duration::from_millis(50);

/// The commands that work during an elicitation; all other lines answer it, also paths that begin with a slash.
const CHAT_COMMANDS: [&str; 7] = ["/help", "/agents", "/tools", "/cost", "/expand", "/quit", "/exit"];

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

/// What the user picks from a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PickedKind {
    Model,
    Session,
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
    /// What is read in the second screen.
    pager: Option<Pager>,
    /// What the user picks from, and for what.
    picker: Option<(Picker, PickedKind)>,
    mode: Mode,
    /// The rules of the mode that accepts edits.
    edit_rules: ApprovalRules,
    /// The model was told of plan mode.
    told_plan: bool,
    /// The model has made a plan, and the user is asked whether to carry it out.
    has_plan: bool,
    /// The level of thinking from the next message on.
    thinking: Option<ThinkingLevel>,
    /// The command of the user that runs.
    shell: Option<Shell>,
    /// The clipboard, while it is asked for an image.
    clipboard: Option<drafts::Clipboard>,
    /// What the model is told with the next message.
    notes: Vec<Part>,
    /// Changes of an undone turn in files that somebody changed since, until the user says what becomes of them.
    left_changed: Option<(Session, Vec<Value>)>,
    /// The prompts of the MCP servers of this process.
    prompts: McpPrompts,
    /// The lines of this directory, and the draft of this chat.
    recall: Recall,
    /// The user asks for an editor of their own.
    wants_editor: bool,
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
    let (recall, draft) = Recall::open(context.directory);
    let completions = Completions::new(commands::candidates(context.commands), context.directory);
    let mut editor = Editor::new(recall.lines(), completions);
    editor.set_text(draft.as_deref().unwrap_or_default());
    let view = View::new(context.directory);
    let mut chat = TerminalChat {
        context,
        rules,
        hooks,
        model,
        local_agents,
        live_session: None,
        view,
        editor,
        prompts: McpPrompts::default(),
        recall,
        wants_editor: false,
        stashed_draft: None,
        pager: None,
        picker: None,
        mode: Mode::default(),
        edit_rules: ApprovalRules::read("edits")?,
        told_plan: false,
        has_plan: false,
        thinking: None,
        shell: None,
        clipboard: None,
        notes: Vec::new(),
        left_changed: None,
        leaving: false,
        over: false,
    };
    let is_plain = chat.context.chat.plain;
    let mut terminal = if is_plain { Terminal::plain() } else { Terminal::open(out.has_colours())? };
    let ended = chat.run(&mut terminal, session).await;
    // What led to the end is no draft any more.
    chat.keep_draft();
    terminal.leave_page()?;
    terminal.show(&chat.view.settled(), &[], (0, 0))?;
    drop(terminal);
    ended?;
    if let Some(live_session) = &chat.live_session {
        let line = format!("\nflovyn chat --resume {}   goes on with this session", live_session.session.name());
        out.line(&if is_plain { line } else { out.dim(&line) })?;
    }
    match chat.view.ended() {
        Some(why) => Err(Error::new(Code::AgentFailed, format!("{why}; --fork goes on from where it was")).into()),
        None => Ok(()),
    }
}

impl TerminalChat<'_> {
    async fn run(&mut self, terminal: &mut Terminal, session: Option<Session>) -> Result {
        let is_plain = self.context.chat.plain;
        let mut key_events = if is_plain { KeyEvents::of_lines()? } else { KeyEvents::open()? };
        let mut drawn = Instant::now();
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
            self.preview_question();
            if std::mem::take(&mut self.wants_editor) {
                key_events = self.write_elsewhere(terminal, key_events).await?;
                changed = true;
            }
            if changed {
                self.draw(terminal)?;
                (changed, stale, drawn) = (false, false, Instant::now());
                self.keep_draft();
            }
            // Where nothing changes, nothing is drawn until something happens.
            let pace = if stale { Some(FRAME) } else { self.view.pace().filter(|_| !is_plain) };
            tokio::select! {
                event = key_events.next() => {
                    let Some(event) = event else { return Ok(()) };
                    width = terminal.size().0;
                    changed = true;
                    // What was typed faster than it is drawn is drawn once.
                    let mut event = Some(event);
                    while let Some(next) = event.take() {
                        self.on_terminal_event(next, terminal).await?;
                        event = if self.over { None } else { key_events.waiting() };
                    }
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
                ran = shell_end(&mut self.shell) => {
                    self.on_shell_end(&ran, width);
                    changed = true;
                }
                found = drafts::clipboard_answer(&mut self.clipboard) => {
                    self.on_clipboard(found);
                    changed = true;
                }
                () = sleep_until(drawn + pace.unwrap_or_default()), if pace.is_some() => changed = true,
                news = self.prompts.next() => {
                    self.on_prompt_news(news, width).await?;
                    changed = true;
                }
            }
        }
        Ok(())
    }

    async fn on_terminal_event(&mut self, event: Event, terminal: &mut Terminal) -> Result {
        let size = terminal.size();
        if let Some(pager) = &mut self.pager {
            if pager.handle(&event, size.1) {
                self.pager = None;
                terminal.leave_page()?;
            }
            return Ok(());
        }
        if let Some((picker, asked)) = &mut self.picker {
            let (picked, asked) = (picker.handle(&event), *asked);
            if picked != Picked::NotYet {
                self.picker = None;
            }
            return match (picked, asked) {
                (Picked::Item(item), PickedKind::Model) => {
                    self.set_model(&item, size.0);
                    Ok(())
                }
                (Picked::Item(item), PickedKind::Session) => self.resume(&item, size.0).await,
                (Picked::NotYet | Picked::Nothing, _) => Ok(()),
            };
        }
        let key = self.editor.handle(event);
        self.on_key(key, size).await
    }

    fn draw(&mut self, terminal: &mut Terminal) -> Result {
        let (width, height) = terminal.size();
        if let Some(plain) = terminal.as_plain() {
            let mut stay = self.view.settled();
            stay.extend(self.pager.take().map(Pager::into_rows).into_iter().flatten());
            let asked = match &self.picker {
                Some((picker, _)) => picker.rows(width),
                None => self.view.asked_rows(width),
            };
            return Ok(plain.show(&stay, &asked)?);
        }
        if let Some(pager) = &self.pager {
            return Ok(terminal.show_page(&pager.page(width, height))?);
        }
        let stay = self.view.settled();
        let mut live = self.view.live_rows((width, height));
        if let Some((picker, _)) = &self.picker {
            live.extend(picker.rows(width));
            let last = live.len().saturating_sub(1);
            return Ok(terminal.show(&stay, &live, (last, 0))?);
        }
        let (line, (row, column)) = self.editor.rows(width, (height / 2).max(3));
        let row = live.len() + row;
        live.extend(line);
        if !self.editor.has_menu() {
            let window = self.context.models.window(&self.model);
            live.push(self.view.footer(&self.model.to_string(), window, width));
        }
        Ok(terminal.show(&stay, &live, (row, column))?)
    }

    fn welcome(&mut self, width: usize) {
        let directory = short_path(self.context.directory, std::env::home_dir().as_deref());
        // Elsewhere the worker decides.
        let confined = self.local_agents.as_ref().map(LocalAgents::sandbox);
        self.view.set_sandbox(confined);
        let sandbox = confined.map(|word| format!(" · sandbox {word}")).unwrap_or_default();
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
            self.prompts.list(toolkit.mcp_servers());
            let tools = toolkit.tools();
            let counts = counts(&tools);
            let counts: Vec<_> = counts.iter().map(|(server, count)| format!("{server} ({count} tools)")).collect();
            if !counts.is_empty() {
                self.view.show_note(&format!("MCP servers: {} · /tools lists them", counts.join(", ")), width);
            }
            let mut problem_lines = problem_lines(&tools, &toolkit.problems());
            let served = |name: &str| tools.iter().any(|tool| tool.name == name);
            // A question of an agent needs no server.
            let is_of_server = |name: &str| ToolName::of(name).server.is_some();
            let absent = self.view.pending.elicitations();
            let absent = absent.filter(|request| is_of_server(&request.name) && !served(&request.name));
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
        let (files, problems) = attachments::of(text, self.context.directory);
        if !problems.is_empty() {
            self.view.show_hint(&problems.join(" · "));
        }
        self.send_message(text, files, delivery).await
    }

    /// Sends a message, with what belongs to it.
    async fn send_message(&mut self, text: &str, files: Vec<Part>, delivery: Delivery) -> Result {
        self.view.show_queued(text);
        let mut parts = std::mem::take(&mut self.notes);
        parts.extend(files);
        match (self.mode, std::mem::replace(&mut self.told_plan, self.mode == Mode::Plan)) {
            (Mode::Plan, _) => parts.push(Part::text(mode::PLAN)),
            (_, true) => parts.push(Part::text(mode::PLAN_IS_OVER)),
            (_, false) => {}
        }
        let message = UserMessage { parts, thinking: self.thinking, ..UserMessage::new(text).deliver(delivery) };
        match &mut self.live_session {
            Some(live_session) => live_session.send(message).await,
            None => {
                let model = self.model.clone();
                let ChatContext { store, directory, options, .. } = self.context;
                let started = LiveSession::start(store, directory, model, message, &self.rules, options);
                self.live_session = Some(started.await?);
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
                self.hooks.ended(end.stop_reason);
                Ok(())
            }
            ChatEvent::Idle => {
                self.leaving = false;
                // The turn may have made files.
                self.editor.forget_files();
                let session = self.live_session.as_ref().map(|live| live.session.name()).unwrap_or_default();
                let view = &mut self.view;
                if let Some(more) = self.hooks.idle(&session, &mut |line| view.show_note(line, width)).await {
                    return self.send_text(&more, Delivery::NextStep).await;
                }
                if self.mode == Mode::Plan && !self.view.has_failed() {
                    self.has_plan = true;
                    let question = "Carry out this plan? y yes · n not yet · or say what to change in it";
                    self.view.ask(Some(question.to_owned()));
                }
                self.rules.set_for_message(&[])
            }
            _ => Ok(()),
        }
    }

    async fn on_key(&mut self, key: KeyAction, (width, height): (usize, usize)) -> Result {
        let leaving = std::mem::take(&mut self.leaving);
        match key {
            KeyAction::Empty if self.view.pending.elicitation().is_some() => self.answer("").await,
            KeyAction::Changed | KeyAction::Empty => Ok(()),
            KeyAction::Leave => {
                self.over = true;
                Ok(())
            }
            KeyAction::Stop => self.stop(leaving).await,
            KeyAction::Expand => {
                self.expand(width);
                Ok(())
            }
            KeyAction::Scroll(pages) => {
                self.view.scroll(pages.saturating_mul((height / 2).cast_signed()));
                Ok(())
            }
            KeyAction::NextMode => {
                self.set_mode(self.mode.next());
                self.apply_rules().await
            }
            KeyAction::PasteImage => {
                self.ask_clipboard();
                Ok(())
            }
            KeyAction::ExternalEditor => {
                self.wants_editor = true;
                Ok(())
            }
            KeyAction::Line(line) => {
                self.recall.add(&line);
                self.submit_line(&line, width).await
            }
        }
    }

    /// The first Ctrl-C empties the line or stops the agent, the next one leaves.
    async fn stop(&mut self, leaving: bool) -> Result {
        self.leaving = true;
        if leaving {
            self.over = true;
        } else if !self.editor.is_empty() {
            // It is not lost: the history has it.
            let text = self.editor.put_aside();
            self.recall.add(&text);
            self.leaving = false;
        } else if let Some(shell) = &self.shell {
            shell.stop().await;
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
        let words = line.trim();
        if self.view.pending.elicitation().is_some() && !CHAT_COMMANDS.contains(&words) {
            return self.answer(words).await;
        }
        if let Some(PendingRequest::Approval(request)) = self.view.pending.first()
            && let Some(live_session) = &self.live_session
        {
            let request = request.clone();
            let approved = match words.to_ascii_lowercase().as_str() {
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
        if self.view.is_busy() && ["y", "n", "a", "p"].contains(&words) {
            self.view.show_hint("nothing is asked now");
            return Ok(());
        }
        if let Some((session, changed)) = self.left_changed.take() {
            self.view.ask(None);
            match words.to_ascii_lowercase().as_str() {
                "y" | "yes" => {
                    self.undo_changed(&session, &changed, width);
                    return Ok(());
                }
                "n" | "no" => return Ok(()),
                _ => {}
            }
        }
        if std::mem::take(&mut self.has_plan) {
            self.view.ask(None);
            match words.to_ascii_lowercase().as_str() {
                "y" | "yes" => {
                    self.set_mode(Mode::Ask);
                    return self.send_text(mode::CARRY_OUT, Delivery::NextStep).await;
                }
                "n" | "no" => return Ok(()),
                _ => {}
            }
        }
        self.submit_command(line, width).await
    }

    /// Shows everything whole.
    fn expand(&mut self, width: usize) {
        self.pager = Some(Pager::open("The conversation", self.view.all_rows(width), true));
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
}
