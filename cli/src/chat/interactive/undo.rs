//! `/undo`: goes back before the last turn. What the agent's tools changed in files is put back, and the conversation goes on, in a
//! session of its own, where it was before.

use super::TerminalChat;
use crate::Result;
use crate::chat::attachments;
use crate::chat::live_session::LiveSession;
use crate::chat::session::{Session, Store};
use crate::print::short;
use flovyn_core::id::EntryId;
use flovyn_core::model::{EventKind, ForkFrom};
use flovyn_toolkit::message::{Message, Role};
use flovyn_toolkit::react::USER_MESSAGE;
use flovyn_toolkit::tools::{NotPutBack, WorkingDirectory, put_back};
use serde_json::Value;
use std::collections::BTreeSet;

/// Events read at a time.
const PAGE: usize = 1_000;

/// The last turn of a session.
struct LastTurn {
    /// The entry before it; none for the first turn.
    before: Option<EntryId>,
    /// What the user said.
    said: String,
    /// The details of the results of its tools, oldest first.
    details: Vec<Value>,
    /// Whether it ran commands, whose changes nobody knows.
    ran_commands: bool,
}

/// What became of the files of a turn.
#[derive(Default)]
struct Files {
    back: BTreeSet<String>,
    /// Changes of files that somebody changed since, newest first.
    changed: Vec<Value>,
    problems: Vec<String>,
}

impl TerminalChat<'_> {
    /// Goes back before the last turn.
    pub(super) async fn undo(&mut self, width: usize) -> Result {
        if self.view.is_busy() {
            self.view.show_hint("the agent works; Ctrl-C stops it");
            return Ok(());
        }
        let Some(session) = self.live_session.as_ref().map(|live_session| live_session.session.clone()) else {
            self.view.show_hint("there is nothing to undo yet");
            return Ok(());
        };
        let Some(turn) = LastTurn::of(self.context.store, &session).await? else {
            self.view.show_hint("there is no turn to undo; a turn of the session that this one is a fork of stays");
            return Ok(());
        };
        let mut files = Files::default();
        if let Some(directory) = self.directory_here(&session) {
            files.put_back(&directory, turn.details.iter().rev(), false);
        } else if !turn.details.is_empty() {
            files.problems.push("the files are those of a worker elsewhere and stay as they are".to_owned());
        }
        self.view.restart();
        match turn.before {
            Some(before) => {
                let ahead = self.context.store.fork_from(&session, ForkFrom::Entry(before)).await?;
                let (store, models, chat) = (self.context.store, self.context.models, self.context.chat);
                let (mut live_session, history) = LiveSession::resume(store, models, chat, ahead).await?;
                live_session.set_model(self.model.clone());
                self.view.load(&history, width);
                self.live_session = Some(live_session);
                self.serve().await?;
            }
            None => self.live_session = None,
        }
        self.view.show_note(&files.message(&turn), width);
        if !files.changed.is_empty() {
            let names: BTreeSet<_> = files.changed.iter().map(name).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            self.view.ask(Some(format!(
                "{names} changed since. Take the turn's lines back there too? y yes, other changes stay · n leave it"
            )));
            self.left_changed = Some((session, files.changed));
        }
        self.editor.set_text(&turn.said);
        self.editor.forget_files();
        Ok(())
    }

    /// Takes back the changes of files that somebody changed since.
    pub(super) fn undo_changed(&mut self, session: &Session, changed: &[Value], width: usize) {
        let mut files = Files::default();
        if let Some(directory) = self.directory_here(session) {
            files.put_back(&directory, changed.iter(), true);
        }
        self.view.show_note(&files.lines().join("\n"), width);
    }

    fn directory_here(&self, session: &Session) -> Option<WorkingDirectory> {
        let directory = session.directory().filter(|_| self.context.store.is_served_here())?;
        WorkingDirectory::open(directory).ok()
    }
}

impl LastTurn {
    async fn of(store: &Store, session: &Session) -> Result<Option<Self>> {
        let Some(start) = last_start(store, session).await? else { return Ok(None) };
        let entries = session.handle.messages().await?;
        let Some(place) = entries.iter().position(|entry| entry.new.id.to_string() == start) else { return Ok(None) };
        let messages: Vec<Message> =
            entries[place..].iter().filter_map(|entry| entry.new.content.parse::<Message>().ok()).collect();
        let results: Vec<_> = messages.iter().flat_map(|message| message.tool_results()).collect();
        // Before the first turn there is no conversation to go back to.
        let is_first = !entries[..place]
            .iter()
            .any(|entry| entry.new.content.parse::<Message>().is_ok_and(|message| message.role == Role::User));
        Ok(Some(Self {
            before: entries[..place].last().map(|entry| entry.new.id).filter(|_| !is_first),
            said: messages.first().map(|message| attachments::written(message).to_owned()).unwrap_or_default(),
            ran_commands: results.iter().any(|result| result.name == "bash"),
            details: results
                .into_iter()
                .filter(|result| !result.is_error)
                .filter_map(|result| result.details.clone())
                .filter(|details| details["hash"].is_string() && details["action"].is_string())
                .collect(),
        }))
    }
}

/// The entry with which the last turn began: the first message of the user after the run had waited for one.
async fn last_start(store: &Store, session: &Session) -> Result<Option<String>> {
    let run = session.handle.describe().await?;
    let storage = store.runtime().storage();
    let (mut after, mut is_waiting, mut start) = (0, true, None);
    loop {
        let events = storage.events(run.new.org, run.new.id, after, PAGE).await?;
        let Some(last) = events.last() else { return Ok(start) };
        after = last.number;
        for event in &events {
            let data = &event.data;
            match event.kind {
                EventKind::Entry if is_waiting && data["role"] == "user" && data["entry_type"] == "message" => {
                    start = data["entry"].as_str().map(str::to_owned);
                    is_waiting = false;
                }
                EventKind::Waiting => is_waiting |= data["signals"][0] == USER_MESSAGE && data["timers"] == false,
                _ => {}
            }
        }
    }
}

fn name(details: &Value) -> String {
    details["path"].as_str().unwrap_or("a file").to_owned()
}

impl Files {
    /// Puts files back, newest change first.
    fn put_back<'d>(&mut self, directory: &WorkingDirectory, details: impl Iterator<Item = &'d Value>, forced: bool) {
        for change in details {
            let is_left = self.changed.iter().any(|left| name(left) == name(change));
            match if is_left { Err(NotPutBack::Changed) } else { put_back(directory, change, forced) } {
                Ok(()) => drop(self.back.insert(name(change))),
                Err(NotPutBack::Changed) => self.changed.push(change.clone()),
                Err(NotPutBack::Impossible(why)) => self.problems.push(format!("{}: {why}", name(change))),
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.back.is_empty() {
            let names: Vec<_> = self.back.iter().map(String::as_str).collect();
            lines.push(format!("Put back: {}.", names.join(", ")));
        }
        lines.extend(self.problems.iter().map(|problem| format!("Not put back: {}.", problem.trim_end_matches('.'))));
        lines
    }

    fn message(&self, turn: &LastTurn) -> String {
        let mut lines = vec![format!("Went back before “{}”.", short(&turn.said, 60))];
        lines.extend(self.lines());
        if turn.ran_commands {
            lines.push("What commands changed stays as it is.".to_owned());
        }
        lines.join("\n")
    }
}
