//! The table of error codes: one row each, with the kind that says how to act. Documents, bindings and tests iterate it.

use std::fmt;

/// How a caller should act on an error. Few on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is wrong and stays wrong; change it.
    Invalid,
    /// The thing named does not exist.
    NotFound,
    /// The request disagrees with what is already there.
    Conflict,
    /// The run or step ended without success.
    Failed,
    /// The caller's right to act has ended; drop the work.
    Lost,
    /// A limit was reached; raise it or ask for less.
    Limit,
    /// The backend cannot serve now; the same request may succeed later.
    Unavailable,
    /// Stored data is not what it should be; a person must look.
    Corrupt,
    /// Who asks is not known, or may not do this; show another token.
    Denied,
    /// The engine itself is at fault; tell its makers.
    Fault,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident => $kind:ident, $retry:literal;)+) => {
        /// What precisely happened. The same words in Rust, Python, TypeScript and on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            /// The word as users see it.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => stringify!($name),)+ }
            }

            /// How a caller should act.
            pub fn kind(self) -> Kind {
                match self { $(Code::$name => Kind::$kind,)+ }
            }

            /// Whether the same request may succeed later without any change.
            pub fn is_retryable(self) -> bool {
                match self { $(Code::$name => $retry,)+ }
            }

            /// One line that says what the code means.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => concat!($($doc),+).trim_ascii(),)+ }
            }

            /// The code of a word, if there is one.
            pub fn parse(word: &str) -> Option<Code> {
                Self::ALL.iter().copied().find(|code| code.as_str() == word)
            }
        }
    };
}

codes! {
    /// An id is taken by a run with another input or kind.
    ExecutionExists => Conflict, false;
    /// No run has this id or key.
    ExecutionNotFound => NotFound, false;
    /// No such thing is here: a task, an entry, a schedule, a key, a path.
    NotFound => NotFound, false;
    /// The name is taken by another.
    AlreadyExists => Conflict, false;
    /// A server does not know who asks.
    Unauthenticated => Denied, false;
    /// Who asks may not do this.
    PermissionDenied => Denied, false;
    /// What was asked for was not kept: the run has no journal.
    NotPersisted => Conflict, false;
    /// The run has ended and takes nothing more.
    ExecutionClosed => Conflict, false;
    /// The agent's function raised.
    AgentFailed => Failed, false;
    /// The run was cancelled.
    AgentCancelled => Failed, false;
    /// A task failed for good.
    TaskFailed => Failed, false;
    /// A task ran out of time.
    TaskTimeout => Failed, false;
    /// A child failed.
    ChildFailed => Failed, false;
    /// A child was cancelled.
    ChildCancelled => Failed, false;
    /// A message was for a parent, and the run has none.
    NoParent => Failed, false;
    /// A request had no answer, because the parent has ended.
    ParentGone => Failed, false;
    /// No signal came in time.
    SignalTimeout => Failed, false;
    /// A task asked not to be retried.
    NonRetryable => Failed, false;
    /// Nobody knows whether a call took effect; a decision is waited for.
    InDoubt => Conflict, false;
    /// The code no longer matches the recorded tail.
    Diverged => Conflict, false;
    /// A journal slot was named again with another label.
    SlotTaken => Conflict, false;
    /// A commit named a predecessor that is not the last one.
    OutOfOrder => Conflict, false;
    /// An agent with state called an op before its loop.
    PreambleOp => Invalid, false;
    /// A `once` was called again with another input.
    OnceChanged => Conflict, false;
    /// A context was used from another thread than its agent's.
    WrongThread => Invalid, false;
    /// The file system cannot hold a database safely.
    UnsupportedFilesystem => Invalid, false;
    /// State was used by an agent declared without it.
    StateNotDeclared => Invalid, false;
    /// A checkpoint's state is not of the declared type.
    WrongStateType => Invalid, false;
    /// A value has no JSON form.
    NotSerializable => Invalid, false;
    /// A payload is over the limit.
    PayloadTooLarge => Limit, false;
    /// A budget is used up.
    BudgetExceeded => Limit, false;
    /// The cumulative step limit of a run is reached.
    StepLimitReached => Limit, false;
    /// A run has as much open, or a commit as much in it, as it may.
    LimitReached => Limit, false;
    /// A key asked a server more often than it may.
    RateLimited => Limit, true;
    /// The thing's present status does not allow this.
    InvalidTransition => Conflict, false;
    /// Another worker holds the run now.
    LeaseLost => Lost, false;
    /// A checkpoint was asked for while ops are open.
    OpenOperations => Invalid, false;
    /// A stored checkpoint or journal row failed its check.
    CorruptCheckpoint => Corrupt, false;
    /// The backend did not answer; the outcome is unknown.
    StorageUnavailable => Unavailable, true;
    /// The database was written by a newer version.
    SchemaTooNew => Invalid, false;
    /// Nobody here serves this kind.
    UnknownKind => NotFound, false;
    /// A context call was made outside an agent.
    OutsideAgent => Invalid, false;
    /// A client was used in a forked process.
    ForkedProcess => Invalid, false;
    /// The argument is wrong.
    InvalidArgument => Invalid, false;
    /// The wait ended before the result came.
    Timeout => Unavailable, true;
    /// A run is waiting and the caller asked not to.
    Waiting => Conflict, false;
    /// The agent was evicted or dropped; its context takes nothing more.
    Suspended => Lost, false;
    /// The run was asked to stop.
    Cancelled => Failed, false;
    /// A fault of the engine; whether it happened is unknown.
    Internal => Fault, false;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
