//! The name of the code that recorded a run, as its row has it, and how the code that now takes up the run relates to
//! it.

use std::fmt;

/// The code that recorded the tail of a run, as its row names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodeName<'a> {
    /// This code recorded all of it.
    Of(&'a str),
    /// A person has allowed this code to go on with what other code has recorded. None until some code has taken up the
    /// run.
    Mixed(Option<&'a str>),
    /// The code was edited while the tail was recorded. The name is that of the latest code, if it has one.
    Edited(Option<&'a str>),
}

impl fmt::Display for CodeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(code) => f.write_str(code),
            Self::Mixed(None) => f.write_str("mixed"),
            Self::Mixed(Some(code)) => write!(f, "mixed:{code}"),
            Self::Edited(None) => f.write_str("edited"),
            Self::Edited(Some(code)) => write!(f, "edited:{code}"),
        }
    }
}

/// How the code that runs relates to the code that recorded the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeState {
    /// It is the same.
    pub unchanged: bool,
    /// The name that the next commit stores for the run's code. None if the row has it already.
    pub to_store: Option<String>,
}

impl CodeState {
    /// The state of a segment that this code itself has begun.
    pub(super) fn own() -> Self {
        Self { unchanged: true, to_store: None }
    }

    /// The state of a loaded segment. `stored` is the code's name in the run's row, `mine` the name of the code that
    /// runs. Also tells whether a person has allowed this code to go on.
    ///
    /// `resolve_divergence` leaves the name `mixed` in the row. It holds for the code that takes up the run next, and for no later
    /// edit: that code's name is added to it.
    pub(super) fn of(stored: Option<&str>, mine: Option<&str>) -> (Self, bool) {
        let named = |name: CodeName<'_>| stored.is_some_and(|stored| *stored == name.to_string());
        let mixed = CodeName::Mixed(mine);
        let (is_allowed, to_store) = if stored.is_none() {
            (false, mine.map(CodeName::Of))
        } else if named(CodeName::Mixed(None)) {
            (true, mine.map(|_| mixed))
        } else if named(mixed) {
            (true, None)
        } else if stored == mine || (mine.is_some() && named(CodeName::Edited(mine))) {
            (false, None)
        } else {
            (false, Some(CodeName::Edited(mine)))
        };
        let unchanged = stored.is_none() || stored == mine;
        (Self { unchanged, to_store: to_store.map(|name| name.to_string()) }, is_allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::CodeState;

    /// What is stored, the code that comes; whether it may go on by a person's word, and what is stored next.
    #[test]
    fn a_name_says_whose_code_the_tail_is_of() {
        for (stored, mine, is_allowed, next) in [
            (None, Some("2"), false, Some("2")),
            (None, None, false, None),
            (Some("2"), Some("2"), false, None),
            (Some("1"), Some("2"), false, Some("edited:2")),
            (Some("1"), None, false, Some("edited")),
            (Some("edited:2"), Some("2"), false, None),
            (Some("edited:2"), Some("3"), false, Some("edited:3")),
            (Some("edited"), None, false, Some("edited")),
            (Some("mixed"), Some("2"), true, Some("mixed:2")),
            (Some("mixed"), None, true, None),
            (Some("mixed:2"), Some("2"), true, None),
            (Some("mixed:2"), Some("3"), false, Some("edited:3")),
        ] {
            let unchanged = stored.is_none() || stored == mine;
            let state = CodeState { unchanged, to_store: next.map(str::to_owned) };
            assert_eq!(CodeState::of(stored, mine), (state, is_allowed), "{stored:?} taken up by {mine:?}");
        }
    }
}
