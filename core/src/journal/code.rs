//! Whose code a run is of, as its row says it, and how the code that takes the run up is related to that.

use std::fmt;

/// The code that recorded the tail of a run, as its row names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodeName<'a> {
    /// This code recorded all of it.
    Of(&'a str),
    /// A person let this code go on with what another has recorded; none until that code has come.
    Mixed(Option<&'a str>),
    /// This code was edited while the tail was recorded; none where it has no name.
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

/// How the code that runs is related to the one that the segment is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeState {
    /// It is the same.
    pub unchanged: bool,
    /// How the run's code is to be named with the next commit.
    pub to_store: Option<String>,
}

impl CodeState {
    /// Of a segment that this code has begun.
    pub fn own() -> Self {
        Self { unchanged: true, to_store: None }
    }

    /// Of a segment of a run of the code `stored`, which `mine` takes up; and whether a person has said that it may go on.
    ///
    /// `resolve_divergence` leaves the mark `mixed`. It counts for the code that takes the run up next and for no later edit.
    pub fn of(stored: Option<&str>, mine: Option<&str>) -> (Self, bool) {
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
