//! Where the reading of a turn is: before it, in it or behind it.

/// Where in a conversation the events are that are read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the turn. It begins with the next message of the user, with the one that says a text, or with whatever is shown.
    Before(Beginning),
    /// In it.
    Under,
    /// Behind it.
    Over,
}

/// What a turn begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The next message of the user; without one whatever the agent writes.
    Anything,
    /// The next message of the user; the one that says the text, if there is one.
    Message(Option<String>),
}

/// Why a turn is over, unless the run goes on by itself behind it.
#[derive(Debug)]
pub(super) enum Rest {
    /// The agent waits for people and for nothing else.
    Asking,
    /// The run has failed or is paused.
    Halted { message: String, code: Option<String> },
}
