//! The conversation in a terminal: what the user types goes to the session, what happens there is shown.

use super::approving::{Standing, answer};
use super::feed::Happening;
use super::history::History;
use super::models::Models;
use super::options::Chat;
use super::pending::Wanted;
use super::screen::editor::{Editor, Keys, Pressed};
use super::screen::terminal::Terminal;
use super::serving::Serving;
use super::session::{Session, Store};
use super::talk::Talk;
use super::tools::{Listing, counts, trouble, troubles};
use super::view::View;
use crate::Result;
use crate::print::Output;
use flovyn_core::error::{Code, Error};
use flovyn_toolkit::react::{Delivery, ModelChoice, Transcript};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use std::path::Path;
use std::time::Duration;

/// How often what changes is drawn.
const FRAME: Duration = Duration::from_millis(50);

const HELP: &str = "Write what you want and press Enter. While the agent works, a line is heard before its next step.\n\
  Ctrl-C or Esc   stop what it does; twice leaves       Alt-Enter   a new line\n\
  /model NAME     ask another model from now on         /cost       what the session cost\n\
  /tools          what the model may call               /quit, Ctrl-D   leave; --resume goes on with the session\n\
Where an MCP server asks something, each line answers one field:\n\
  /back           to the field before                   /decline    say no        /cancel   close it without an answer";

/// What a line says to the chat itself while an MCP server asks; all others answer it, paths with their slash too.
const OF_THE_CHAT: [&str; 5] = ["/help", "/tools", "/cost", "/quit", "/exit"];

/// What a conversation has around it.
pub struct Scene<'a> {
    pub store: &'a Store,
    pub models: &'a Models,
    pub chat: &'a Chat,
    pub directory: &'a Path,
    /// What is said of a project's own MCP servers.
    pub passed_over: Option<String>,
}

/// A conversation.
struct Conversation<'a> {
    scene: Scene<'a>,
    standing: Standing,
    model: ModelChoice,
    /// What this process serves the session with; none where others do.
    serving: &'a mut Option<Serving>,
    talk: Option<Talk>,
    view: View,
    editor: Editor,
    /// What was being written when an MCP server asked something, while that is answered.
    aside: Option<String>,
    /// Ctrl-C was pressed, and nothing else since.
    leaving: bool,
    over: bool,
}

/// Talks until the user leaves. A session that exists is gone on with.
pub async fn converse(
    scene: Scene<'_>,
    session: Option<Session>,
    model: ModelChoice,
    standing: Standing,
    serving: &mut Option<Serving>,
    out: &mut Output,
) -> Result {
    let mut conversation = Conversation {
        scene,
        standing,
        model,
        serving,
        talk: None,
        view: View::default(),
        editor: Editor::default(),
        aside: None,
        leaving: false,
        over: false,
    };
    let mut terminal = Terminal::open(out.has_colours())?;
    let ended = conversation.run(&mut terminal, session).await;
    terminal.show(&conversation.view.settled(), &[], (0, 0))?;
    drop(terminal);
    ended?;
    if let Some(talk) = &conversation.talk {
        out.line(&out.dim(&format!("\nflovyn chat --resume {}   goes on with this session", talk.session.name())))?;
    }
    match conversation.view.over() {
        Some(why) => Err(Error::new(Code::AgentFailed, format!("{why}; --fork goes on from where it was")).into()),
        None => Ok(()),
    }
}

impl Conversation<'_> {
    async fn run(&mut self, terminal: &mut Terminal, session: Option<Session>) -> Result {
        let mut keys = Keys::open()?;
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut width = terminal.size().0;
        self.welcome(width);
        if let Some(session) = session {
            self.take_up(session, width).await?;
        }
        if let Some(prompt) = &self.scene.chat.prompt {
            self.say(prompt, Delivery::NextStep).await?;
        }
        // What is typed is drawn at once, what happens with the next frame.
        let (mut changed, mut stale) = (true, false);
        while !self.over {
            self.make_way();
            if changed {
                self.draw(terminal)?;
                (changed, stale) = (false, false);
            }
            tokio::select! {
                event = keys.next() => {
                    let Some(event) = event else { return Ok(()) };
                    let pressed = self.editor.take(event);
                    width = terminal.size().0;
                    self.pressed(pressed, width).await?;
                    changed = true;
                }
                done = opened(self.serving) => {
                    done?;
                    self.opened(width).await?;
                    changed = true;
                }
                happening = next(&mut self.talk) => {
                    match happening? {
                        Some(happening) => self.happened(happening, width).await?,
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
        let mut live = self.view.live(width, &self.model.to_string());
        let (line, (row, column)) = self.editor.rows(width);
        let row = live.len() + row;
        live.extend(line);
        Ok(terminal.show(&stay, &live, (row, column))?)
    }

    fn welcome(&mut self, width: usize) {
        let directory = self.scene.directory.display();
        self.view.note(&format!("Flovyn · {} · {directory}", self.model), width);
        let opens_servers = self.serving.as_ref().is_some_and(Serving::has_servers);
        self.view.opening(opens_servers);
        if let Some(told) = self.scene.passed_over.take() {
            self.view.note(&told, width);
        }
    }

    /// The tools of this process are there: the session is worked for, and what is wrong with servers is told.
    async fn opened(&mut self, width: usize) -> Result {
        self.view.opening(false);
        if let Some(kit) = self.serving.as_ref().and_then(Serving::kit) {
            let counts = counts(kit.tools());
            let counts: Vec<_> = counts.iter().map(|(server, count)| format!("{server} ({count} tools)")).collect();
            if !counts.is_empty() {
                self.view.note(&format!("MCP servers: {} · /tools lists them", counts.join(", ")), width);
            }
            let mut troubles = troubles(kit.tools(), kit.problems());
            let served = |name: &str| kit.tools().iter().any(|tool| tool.name == name);
            let absent = self.view.pending.inquiries().filter(|request| !served(&request.name));
            troubles.extend(absent.map(|request| {
                let server = &request.server;
                format!(
                    "{server} is not here to take an answer: /quit, and resume with --mcp and the file that has it."
                )
            }));
            if !troubles.is_empty() {
                self.view.tell(troubles.iter().flat_map(|told| trouble(told, width)).collect());
            }
        }
        self.serve().await
    }

    async fn serve(&self) -> Result {
        match &self.talk {
            Some(talk) => talk.serve(self.scene.store, self.serving.as_ref()).await,
            None => Ok(()),
        }
    }

    /// Puts aside what is being written while an MCP server asks something: the line is for the answer.
    fn make_way(&mut self) {
        match (self.view.pending.inquiry().is_some(), self.aside.take()) {
            (true, None) => self.aside = Some(self.editor.take_text()),
            (false, Some(aside)) if self.editor.is_empty() => self.editor.put_text(aside),
            (_, aside) => self.aside = aside,
        }
    }

    async fn take_up(&mut self, session: Session, width: usize) -> Result {
        let Scene { store, models, chat, .. } = self.scene;
        let (talk, history) = Talk::resume(store, models, chat, session).await?;
        self.view.take_up(&history, width);
        self.talk = Some(talk);
        let History { asked, over, .. } = history;
        if let Some(status) = over {
            self.view.take(&Happening::Over(Some(format!("the session has ended ({status})"))), width);
            self.over = true;
        }
        for request in asked {
            self.asked(request).await?;
        }
        self.serve().await
    }

    async fn say(&mut self, text: &str, delivery: Delivery) -> Result {
        self.view.said(text);
        match &mut self.talk {
            Some(talk) => talk.say(text, delivery).await,
            None => {
                let model = self.model.clone();
                let talk = Talk::begin(self.scene.store, self.scene.directory, model, text, &self.standing).await?;
                self.talk = Some(talk);
                self.serve().await
            }
        }
    }

    async fn happened(&mut self, happening: Happening, width: usize) -> Result {
        self.view.take(&happening, width);
        match happening {
            Happening::Asked(request) => self.asked(request).await,
            Happening::Over(_) => {
                self.over = true;
                Ok(())
            }
            Happening::Idle => {
                self.leaving = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn asked(&mut self, request: ApprovalRequest) -> Result {
        match (self.standing.answer(&request), &self.talk) {
            (Some(answer), Some(talk)) => talk.decide(&answer).await,
            _ => {
                self.view.pending.approve(request);
                Ok(())
            }
        }
    }

    async fn pressed(&mut self, pressed: Pressed, width: usize) -> Result {
        let leaving = std::mem::take(&mut self.leaving);
        match pressed {
            Pressed::Empty if self.view.pending.inquiry().is_some() => self.answer("").await,
            Pressed::Changed | Pressed::Empty => Ok(()),
            Pressed::Leave => {
                self.over = true;
                Ok(())
            }
            Pressed::Stop => self.stop(leaving).await,
            Pressed::Line(line) => self.line(&line, width).await,
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
            && let Some(talk) = &mut self.talk
        {
            self.view.stopping();
            talk.interrupt().await?;
            self.view.hint("stopping; Ctrl-C again leaves");
        } else {
            self.view.hint("Ctrl-C again leaves");
        }
        Ok(())
    }

    async fn line(&mut self, line: &str, width: usize) -> Result {
        if self.view.pending.inquiry().is_some() && !OF_THE_CHAT.contains(&line) {
            return self.answer(line).await;
        }
        if let Some(Wanted::Approval(request)) = self.view.pending.first()
            && let Some(talk) = &self.talk
        {
            let request = request.clone();
            let approved = match line.to_ascii_lowercase().as_str() {
                "y" | "yes" => Some(true),
                "n" | "no" => Some(false),
                "a" | "always" => {
                    self.standing.always(&request)?;
                    Some(true)
                }
                _ => None,
            };
            if let Some(approved) = approved {
                talk.decide(&answer(&request, approved, None)).await?;
                self.view.pending.forget(&request.id);
                return self.answer_alike().await;
            }
        }
        if self.view.is_busy() && ["y", "n", "a"].contains(&line) {
            self.view.hint("nothing is asked now");
            return Ok(());
        }
        match line.strip_prefix('/').map(|words| words.split_once(' ').unwrap_or((words, ""))) {
            Some(("help", _)) => self.view.note(HELP, width),
            Some(("quit" | "exit", _)) => self.over = true,
            Some(("cost", _)) => {
                let line = self.view.total().line();
                self.view.note(&line, width);
            }
            Some(("tools", _)) => self.tools(width).await?,
            Some(("model", name)) => self.ask_model(name.trim(), width),
            _ => self.say(line, Delivery::NextStep).await?,
        }
        Ok(())
    }

    /// Answers what a standing order given just now says.
    async fn answer_alike(&mut self) -> Result {
        let Some(talk) = &self.talk else { return Ok(()) };
        let answers: Vec<_> =
            self.view.pending.approvals().filter_map(|request| self.standing.answer(request)).collect();
        for answer in answers {
            talk.decide(&answer).await?;
            self.view.pending.forget(&answer.id);
        }
        Ok(())
    }

    /// Takes a line for what an MCP server asks; sends the answer when it is whole.
    async fn answer(&mut self, line: &str) -> Result {
        let (Some(inquiry), Some(talk)) = (self.view.pending.inquiry(), &self.talk) else { return Ok(()) };
        let reply = match line {
            "/decline" => inquiry.decline(),
            "/cancel" => inquiry.cancel(),
            "/back" => {
                inquiry.back();
                None
            }
            line => inquiry.line(line),
        };
        if let Some(reply) = reply {
            talk.reply(&reply).await?;
            self.view.pending.answered();
        }
        Ok(())
    }

    /// Lists what the model may call.
    async fn tools(&mut self, width: usize) -> Result {
        match (&self.serving, &self.talk) {
            (Some(serving), _) => match serving.kit() {
                Some(kit) => {
                    let (tools, problems) = (kit.tools(), kit.problems());
                    self.view.tell(Listing::served(tools, &self.standing).rows(&troubles(tools, problems), width));
                }
                None => self.view.hint("the MCP servers are starting"),
            },
            (None, Some(talk)) => {
                let transcript = Transcript::of(&talk.session.handle.messages().await?)?;
                self.view.tell(Listing::offered(transcript.tools(), &self.standing).rows(&[], width));
            }
            (None, None) => self.view.hint("the workers say which tools there are once the session has begun"),
        }
        Ok(())
    }

    fn ask_model(&mut self, name: &str, width: usize) {
        if name.is_empty() {
            let known: Vec<_> = self.scene.models.registry().models().iter().map(|model| model.reference()).collect();
            return self.view.note(&format!("{} is asked; known are: {}", self.model, known.join(", ")), width);
        }
        let here = self.scene.store.is_served_here();
        let chosen = if here { self.scene.models.choose(Some(name), None) } else { Ok(ModelChoice::parse(name)) };
        match chosen {
            Ok(model) => {
                self.model = model.clone();
                self.talk.iter_mut().for_each(|talk| talk.ask(model.clone()));
                self.view.note(&format!("{model} is asked from now on"), width);
            }
            Err(error) => self.view.note(&error.to_string(), width),
        }
    }
}

/// Ends when the tools of this process have been opened; never where they were before, or where there are none.
async fn opened(serving: &mut Option<Serving>) -> Result {
    match serving {
        Some(serving) => serving.opened().await.map(drop),
        None => std::future::pending().await,
    }
}

/// The next happening of a session; never one where none was begun.
async fn next(talk: &mut Option<Talk>) -> Result<Option<Happening>> {
    match talk {
        Some(talk) => talk.feed.next().await,
        None => std::future::pending().await,
    }
}
