//! What the user is asked and has not answered, in the order in which it came.

use super::inquiry::Inquiry;
use flovyn_toolkit::react::{InputRefused, InputReply, InputRequest};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use std::collections::VecDeque;

/// Something that the user is asked.
#[derive(Debug)]
pub enum Wanted {
    /// Whether a call may run.
    Approval(ApprovalRequest),
    /// What an MCP server wants to know.
    Answer(Inquiry),
}

/// Requests without an answer.
#[derive(Debug, Default)]
pub struct Pending {
    open: VecDeque<Wanted>,
    /// Those whose answer was sent; the run may yet refuse it.
    sent: Vec<Inquiry>,
}

impl Wanted {
    /// The call that it is about.
    pub fn call(&self) -> &str {
        match self {
            Self::Approval(request) => &request.id,
            Self::Answer(inquiry) => &inquiry.request().id,
        }
    }
}

impl Pending {
    /// What the user is asked now.
    pub fn first(&self) -> Option<&Wanted> {
        self.open.front()
    }

    /// The request of a server that the user answers now.
    pub fn inquiry(&mut self) -> Option<&mut Inquiry> {
        match self.open.front_mut() {
            Some(Wanted::Answer(inquiry)) => Some(inquiry),
            _ => None,
        }
    }

    /// All that servers want to know.
    pub fn inquiries(&self) -> impl Iterator<Item = &InputRequest> {
        self.open.iter().filter_map(|wanted| match wanted {
            Wanted::Answer(inquiry) => Some(inquiry.request()),
            Wanted::Approval(_) => None,
        })
    }

    /// All calls that the user is asked to allow.
    pub fn approvals(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.open.iter().filter_map(|wanted| match wanted {
            Wanted::Approval(request) => Some(request),
            Wanted::Answer(_) => None,
        })
    }

    /// Asks whether a call may run.
    pub fn approve(&mut self, request: ApprovalRequest) {
        self.forget(&request.id);
        self.open.push_back(Wanted::Approval(request));
    }

    /// Asks what a server wants to know. A request that is known already is not asked twice.
    pub fn ask(&mut self, request: InputRequest) {
        let is_same = |known: &Inquiry| *known.request() == request;
        if !self.open.iter().any(|wanted| matches!(wanted, Wanted::Answer(known) if is_same(known))) {
            self.forget(&request.id);
            self.open.push_back(Wanted::Answer(Inquiry::new(request)));
        }
    }

    /// Asks no more for what was just answered here; the run has yet to take it.
    pub fn answered(&mut self) {
        match self.open.pop_front() {
            Some(Wanted::Answer(inquiry)) => self.sent.push(inquiry),
            Some(other) => self.open.push_front(other),
            None => {}
        }
    }

    /// The run has taken an answer: the inquiry that it was for.
    pub fn taken(&mut self, reply: &InputReply) -> Option<Inquiry> {
        let is_meant = |inquiry: &Inquiry| inquiry.request().id == reply.id;
        if let Some(place) = self.sent.iter().position(is_meant) {
            return Some(self.sent.remove(place));
        }
        let place = self.open.iter().position(|wanted| matches!(wanted, Wanted::Answer(open) if is_meant(open)))?;
        match self.open.remove(place) {
            Some(Wanted::Answer(inquiry)) => Some(inquiry),
            _ => None,
        }
    }

    /// The run has refused an answer: it is asked for again, before all else.
    pub fn refused(&mut self, refused: &InputRefused) {
        let is_meant = |inquiry: &Inquiry| inquiry.request().id == refused.id && inquiry.request().hash == refused.hash;
        if let Some(place) = self.sent.iter().position(is_meant) {
            let mut inquiry = self.sent.remove(place);
            inquiry.again();
            self.open.push_front(Wanted::Answer(inquiry));
        }
        for wanted in &mut self.open {
            if let Wanted::Answer(inquiry) = wanted
                && is_meant(inquiry)
            {
                inquiry.refused(refused);
            }
        }
    }

    /// Asks no more about a call.
    pub fn forget(&mut self, call: &str) {
        self.open.retain(|wanted| wanted.call() != call);
        self.sent.retain(|inquiry| inquiry.request().id != call);
    }
}
