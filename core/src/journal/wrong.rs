//! Rules that are wrong on purpose: the property tests must notice each of them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A call takes the last recorded op with its label instead of the first.
    LastTwin,
    /// Outcomes are handed over together instead of one at a time.
    AllAtOnce,
    /// Ops do not record what was handed over before them.
    NoSeen,
    /// A call takes the next recorded op of its kind, whatever its input.
    ByKind,
    /// A `once` that has happened happens again.
    OnceAgain,
    /// Threads of the conversation share one leaf.
    OneLeaf,
}

thread_local! {
    static RULE: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

pub(super) fn set(rule: Option<Rule>) {
    RULE.set(rule);
}

pub(super) fn is(rule: Rule) -> bool {
    RULE.get() == Some(rule)
}
