//! The requests that the user has not answered yet, in order of arrival.

use super::elicitation::Elicitation;
use flovyn_toolkit::react::{InputRefused, InputReply, InputRequest};
use flovyn_toolkit::tools::approval::ApprovalRequest;
use std::collections::VecDeque;

/// A request to the user.
#[derive(Debug)]
pub(super) enum PendingRequest {
    /// Whether a call may run.
    Approval(ApprovalRequest),
    /// Input that an MCP server asks for.
    Elicitation(Elicitation),
}

/// Requests without an answer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    open: VecDeque<PendingRequest>,
    /// Elicitations whose reply was sent; the run may still refuse it.
    sent: Vec<Elicitation>,
}

impl PendingRequest {
    /// The call that it is about.
    pub(super) fn call(&self) -> &str {
        match self {
            Self::Approval(request) => &request.id,
            Self::Elicitation(elicitation) => &elicitation.request().id,
        }
    }
}

impl Pending {
    /// The current request.
    pub(super) fn first(&self) -> Option<&PendingRequest> {
        self.open.front()
    }

    /// The current request, if it is an elicitation.
    pub(super) fn elicitation(&mut self) -> Option<&mut Elicitation> {
        match self.open.front_mut() {
            Some(PendingRequest::Elicitation(elicitation)) => Some(elicitation),
            _ => None,
        }
    }

    /// All open elicitations.
    pub(super) fn elicitations(&self) -> impl Iterator<Item = &InputRequest> {
        self.open.iter().filter_map(|request| match request {
            PendingRequest::Elicitation(elicitation) => Some(elicitation.request()),
            PendingRequest::Approval(_) => None,
        })
    }

    /// All open approval requests.
    pub(super) fn approvals(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.open.iter().filter_map(|request| match request {
            PendingRequest::Approval(request) => Some(request),
            PendingRequest::Elicitation(_) => None,
        })
    }

    /// Adds an approval request.
    pub(super) fn add_approval(&mut self, request: ApprovalRequest) {
        self.remove(&request.id);
        self.open.push_back(PendingRequest::Approval(request));
    }

    /// Adds an elicitation, unless it is open already.
    pub(super) fn add_elicitation(&mut self, request: InputRequest) {
        let is_same = |open: &Elicitation| *open.request() == request;
        if !self.open.iter().any(|request| matches!(request, PendingRequest::Elicitation(open) if is_same(open))) {
            self.remove(&request.id);
            self.open.push_back(PendingRequest::Elicitation(Elicitation::new(request)));
        }
    }

    /// Marks the current elicitation as sent; the run has yet to accept the reply.
    pub(super) fn mark_sent(&mut self) {
        match self.open.pop_front() {
            Some(PendingRequest::Elicitation(elicitation)) => self.sent.push(elicitation),
            Some(other) => self.open.push_front(other),
            None => {}
        }
    }

    /// The run has accepted a reply; returns its elicitation.
    pub(super) fn accept(&mut self, reply: &InputReply) -> Option<Elicitation> {
        let is_for = |elicitation: &Elicitation| elicitation.request().id == reply.id;
        if let Some(index) = self.sent.iter().position(is_for) {
            return Some(self.sent.remove(index));
        }
        let index = self
            .open
            .iter()
            .position(|request| matches!(request, PendingRequest::Elicitation(open) if is_for(open)))?;
        match self.open.remove(index) {
            Some(PendingRequest::Elicitation(elicitation)) => Some(elicitation),
            _ => None,
        }
    }

    /// The run has refused a reply: its elicitation becomes the current request again.
    pub(super) fn refuse(&mut self, refused: &InputRefused) {
        let is_for = |elicitation: &Elicitation| {
            elicitation.request().id == refused.id && elicitation.request().hash == refused.hash
        };
        if let Some(index) = self.sent.iter().position(is_for) {
            let mut elicitation = self.sent.remove(index);
            elicitation.restart();
            self.open.push_front(PendingRequest::Elicitation(elicitation));
        }
        for request in &mut self.open {
            if let PendingRequest::Elicitation(elicitation) = request
                && is_for(elicitation)
            {
                elicitation.set_fault(refused);
            }
        }
    }

    /// Removes the requests of a call.
    pub(super) fn remove(&mut self, call: &str) {
        self.open.retain(|request| request.call() != call);
        self.sent.retain(|elicitation| elicitation.request().id != call);
    }
}
