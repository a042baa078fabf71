//! A turn, as front ends are shown it: what an agent writes and does from a message of its user to the next one. Every format is
//! made of this.

use serde_json::Value;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prose {
    /// The answer.
    Text,
    /// What the model thinks.
    Thinking,
}

/// A piece of a text that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its id, which is the same however the turn is read: while it is written, and from the entries when it is done.
    pub(crate) id: String,
    /// What it is.
    pub(crate) prose: Prose,
}

/// A person is asked whether a call may run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Approval {
    /// The call.
    pub(crate) call: String,
    /// What the answer has to name.
    pub(crate) hash: String,
    /// The tool.
    pub(crate) name: String,
    /// Its arguments.
    pub(crate) arguments: Value,
}

impl Approval {
    /// The id that the front end answers to. It binds the answer to the call and its arguments, as they were shown.
    pub(crate) fn id(&self) -> String {
        format!("{}:{}", self.hash, self.call)
    }

    /// The hash and the call of an id; none if it is no such id.
    pub(crate) fn of_id(id: &str) -> Option<(&str, &str)> {
        id.split_once(':').filter(|(hash, call)| !hash.is_empty() && !call.is_empty())
    }
}

/// How a turn ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ending {
    /// The agent waits for its user, or the run has completed; with the agent's word for why it stopped, if it has one.
    Done(String),
    /// A person has to decide about calls.
    Asks(Vec<Approval>),
    /// A message of the user came in between: what follows answers that.
    Steered,
    /// The run was cancelled.
    Cancelled,
    /// It has failed, and that was shown.
    Failed,
}

/// What happens in a turn, in its order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnPart {
    /// It begins. Behind `position` it can be read again from here.
    Began { id: String, position: String },
    /// A model is asked.
    StepBegan,
    /// Something is written.
    Opened(Piece),
    /// More of it.
    Grew(Piece, String),
    /// It is complete.
    Closed(Piece),
    /// What was written does not count: its pieces, with whether they are still open, and whether they are all that is in the step.
    Voided { pieces: Vec<(Piece, bool)>, is_all: bool },
    /// A file of the answer.
    File { mime: String, url: String },
    /// A tool is called. `message` is the piece that the call belongs to, or stands for one if nothing was written before it.
    Called { message: String, call: String, name: String, arguments: Value, written: Option<String> },
    /// A person is asked about a call.
    ApprovalRequested(Approval),
    /// The person did not allow it.
    Denied { call: String },
    /// A call has its result.
    Returned { call: String, text: String, is_error: bool, is_denied: bool },
    /// What the model was asked for is done.
    StepEnded,
    /// Anything else that the agent streams. With an `id` it stays in sight.
    Data { name: String, id: Option<String>, value: Value },
    /// Something went wrong.
    Failed { message: String, code: Option<String> },
    /// It is over.
    Ended(Ending),
}
