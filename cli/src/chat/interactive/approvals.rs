//! What is asked about calls, and what is answered by the mode and the rules.

use super::TerminalChat;
use crate::Result;
use crate::chat::approval_rules::answer;
use crate::chat::mode::{self, Mode};
use flovyn_toolkit::tools::approval::{ApprovalAnswer, ApprovalRequest};
use flovyn_toolkit::tools::{WorkingDirectory, preview};

impl TerminalChat<'_> {
    pub(super) async fn on_approval_request(&mut self, request: ApprovalRequest) -> Result {
        match (self.answer_by_rules(&request), &self.live_session) {
            (Some(answer), Some(live_session)) => live_session.answer_approval(&answer).await,
            _ => {
                self.view.pending.add_approval(request);
                Ok(())
            }
        }
    }

    /// The answer by the mode and the rules; none where the user has to be asked. No mode allows what the rules deny.
    fn answer_by_rules(&self, request: &ApprovalRequest) -> Option<ApprovalAnswer> {
        match (self.mode, self.rules.answer(request)) {
            (Mode::Plan, _) => Some(answer(request, false, Some(mode::REFUSED.to_owned()))),
            (Mode::Edits, None) => self.edit_rules.answer(request),
            (_, ruled) => ruled,
        }
    }

    /// Changes the mode, and answers what it decides.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.has_plan = false;
        self.view.ask(None);
        self.view.set_mode(mode.name());
        let hint = match mode {
            Mode::Ask => "asks before changes and commands",
            Mode::Edits => "accepts edits; asks before commands",
            Mode::Plan => "plan mode: only looks, from the next message on",
        };
        self.view.show_hint(&format!("{hint} · Shift-Tab changes it"));
    }

    /// Computes what the call would change that is asked about.
    pub(super) fn preview_question(&mut self) {
        let Some(request) = self.view.new_question().cloned() else { return };
        let directory = self.live_session.as_ref().and_then(|live_session| live_session.session.directory());
        let preview = directory
            .filter(|_| self.context.store.is_served_here())
            .and_then(|directory| WorkingDirectory::open(directory).ok())
            .and_then(|directory| preview(&directory, &request.name, &request.arguments));
        self.view.set_preview(request.id, preview);
    }

    /// Answers the open requests that a new rule decides.
    pub(super) async fn apply_rules(&mut self) -> Result {
        let Some(live_session) = &self.live_session else { return Ok(()) };
        let answers: Vec<_> =
            self.view.pending.approvals().filter_map(|request| self.answer_by_rules(request)).collect();
        for answer in answers {
            live_session.answer_approval(&answer).await?;
            self.view.pending.remove(&answer.id);
        }
        Ok(())
    }
}
