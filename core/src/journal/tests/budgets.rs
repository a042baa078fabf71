//! What a copy knows of the budgets of its family: what the store has told last, whichever way it came (families, rule 9).

use super::patience::{Store, call, config};
use crate::clock::Timestamp;
use crate::journal::{Answer, Effect, Machine, Outside, Question};
use crate::model::{Budget, CommitAnswer, Committed, Purse, Spent};

/// The purse of a run that keeps 10 tokens of its budget, when so many are lent.
fn lent(tokens: u64) -> Purse {
    let slice = Some(Budget { max_tokens: Some(10), ..Budget::default() });
    Purse { slice, lent: Spent { tokens, ..Spent::default() }, ..Purse::default() }
}

/// How much of the budget is used, as the code is told.
fn used(machine: &mut Machine) -> Option<u64> {
    let Answer::Value(told) = machine.read(Question::Budget, None).unwrap() else { return None };
    told.parse::<serde_json::Value>().unwrap()["tokens"]["used"].as_u64()
}

#[test]
fn the_budget_is_as_the_latest_facts_have_it() {
    let store = Store::new();
    let (_, mut segment) = store.claim();
    segment.execution.new.limits.budget = Some("1000".into());
    segment.execution.purse = Some(lent(500));
    let mut machine = Machine::new(segment, config("1"));
    assert_eq!(used(&mut machine), Some(490));
    call(&mut machine, "a");
    machine.settle(true, Some(Outside::Nothing), true);
    let sent = std::iter::from_fn(|| machine.next_effect()).any(|effect| matches!(effect, Effect::Commit(_)));
    assert!(sent);
    // A child has ended, and the answer to the commit before that comes late.
    machine.facts(Vec::new(), 9, Some(lent(40)));
    assert_eq!(used(&mut machine), Some(30));
    machine.answered(Ok(CommitAnswer {
        number: 1,
        committed: Committed::Continue,
        facts: Vec::new(),
        high: 7,
        now: Timestamp(0),
        cancel: None,
        paused: None,
        purse: Some(lent(500)),
    }));
    assert_eq!(used(&mut machine), Some(30));
    machine.facts(Vec::new(), 8, Some(lent(500)));
    assert_eq!(used(&mut machine), Some(30), "of a read that began before");
}
