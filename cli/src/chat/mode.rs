//! What is done without asking: the mode that Shift-Tab changes.

/// A mode of a chat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// As the rules say.
    #[default]
    Ask,
    /// Changes of files are allowed; commands are asked about.
    Edits,
    /// The model only looks, and makes a plan.
    Plan,
}

/// What the model is told with each message in plan mode.
pub(super) const PLAN: &str = "<mode>Plan mode: only look, with tools that change nothing; calls that change something are \
refused. Find out what is needed, ask what is unclear, and end with a plan of the steps and of the files that you would \
change. Do not begin to carry it out.</mode>";
/// What it is told with the first message after it.
pub(super) const PLAN_IS_OVER: &str = "<mode>Plan mode is over: you may change files and run commands again.</mode>";
/// What it is told of a call that plan mode refuses.
pub(super) const REFUSED: &str =
    "The user is in plan mode: nothing is changed now. Go on looking, or present the plan.";
/// The message that carries out a plan.
pub(super) const CARRY_OUT: &str = "Carry out the plan.";

impl Mode {
    /// The mode after this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Ask => Self::Edits,
            Self::Edits => Self::Plan,
            Self::Plan => Self::Ask,
        }
    }

    /// Its name for the status line; none for the usual mode.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Ask => None,
            Self::Edits => Some("accepts edits"),
            Self::Plan => Some("plan mode"),
        }
    }
}
