//! What the store tells the machine: facts, and the answers of commits.
//!
//! An outcome exists for the machine only once the store has it (rule 4). Facts are applied in the order the store
//! numbered them, so that a replay applies them in the same order.

use super::draft::Draft;
use super::effect::{Effect, Ending, Outcome};
use super::machine::Machine;
use super::op::Detail;
use super::phase::{Phase, Standing};
use crate::error::{Error, Kind, Result};
use crate::model::{CommitAnswer, Committed, Fact, FactKind, Failure, Purse, WaitReason};

impl Machine {
    /// Takes facts that came otherwise than by a commit's answer. `high` is the highest number of a fact the store has, and
    /// `purse` how the budgets of the family stood then.
    pub fn facts(&mut self, facts: Vec<Fact>, high: u64, purse: Option<Purse>) {
        if high >= self.run.known {
            self.heard_of_budgets(purse);
        }
        self.apply_all(facts, false);
        self.run.known = self.run.known.max(high);
        self.plan();
    }

    /// Takes a claim of the run for this parked copy. Refused, with false, if the run's last commit is not the one that
    /// this copy made: then another copy has advanced the run, and this one is out of date.
    ///
    /// From here on what the code calls belongs to the claim. Nothing is committed before [`Machine::resumed`] brings
    /// the facts that woke the run: without them the copy would only suspend again with the same wait.
    pub fn take_claim(&mut self, base: u64, purse: Option<&Purse>) -> bool {
        let is_current = self.is_parked() && !self.phase.is_over() && self.run.base == base;
        if is_current {
            self.heard_of_budgets(purse.cloned());
            self.has_drawn();
            self.standing = Standing::Claimed;
        }
        is_current
    }

    /// Takes the facts up to the claim that was taken, and goes on.
    pub fn resumed(&mut self, facts: Vec<Fact>, high: u64, purse: Option<Purse>) {
        if matches!(self.standing, Standing::Claimed) {
            self.standing = Standing::Advancing;
        }
        self.facts(facts, high, purse);
    }

    /// Takes the answer to the commit on its way. A commit whose outcome is unknown is no answer: the session retries
    /// it.
    pub fn answered(&mut self, answer: Result<CommitAnswer>) {
        let Some(flight) = self.in_flight.take() else { return };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.refused(error, flight.pauses),
        };
        self.run.base = answer.number;
        self.run.was_lost = false;
        // Facts that were read meanwhile may have come with what is true since.
        if answer.high >= self.run.known {
            self.heard_of_budgets(answer.purse);
        }
        self.has_drawn();
        for index in flight.ops {
            self.segment.ops[index].stored();
        }
        self.apply_all(answer.facts, false);
        self.run.known = self.run.known.max(answer.high);
        // A mark ends by being durable, which is no fact. Its outcome is put behind the facts of this answer.
        let last = self.run.times.last().copied().unwrap_or(self.run.time);
        let order = self.next_order(last);
        for index in flight.marks {
            let op = &mut self.segment.ops[index];
            let outcome = match std::mem::replace(&mut op.detail, Detail::None) {
                Detail::Once(value) => Outcome::Value(*value),
                other => {
                    op.detail = other;
                    Outcome::Done
                }
            };
            // A message may have been refused by a fact of this answer.
            op.outcome.get_or_insert_with(|| Box::new((order, outcome)));
        }
        self.attempts_are_stored(&flight.attempts);
        match answer.committed {
            Committed::Finished(status) => {
                self.phase = Phase::Over;
                self.effects.push_back(Effect::Finished(status));
                return;
            }
            Committed::Suspended => {
                self.standing = Standing::Waiting(flight.wait.unwrap_or_default());
                if self.draft.is_empty() {
                    self.effects.push_back(Effect::Parked);
                }
            }
            Committed::Continue => {
                if flight.hands_off {
                    // There is no successor, or the run was asked to stop. The op is told so.
                    self.segment.hand_off = None;
                }
                if self.standing.is_waiting() {
                    self.standing = Standing::Advancing;
                    self.effects.push_back(Effect::WentOn);
                }
            }
        }
        if let Some(saved) = flight.checkpoint {
            self.begin_segment(saved);
        }
        self.plan();
    }

    /// The store refuses the commit for good. The run pauses and a person must look, since a new copy would come to the
    /// same commit. A copy that lost the right to the run is dropped, and so is one whose pause was refused too.
    fn refused(&mut self, error: Error, pauses: bool) {
        if pauses || matches!(error.code().kind(), Kind::Lost | Kind::Unavailable) {
            self.phase = Phase::Over;
            self.effects.push_back(Effect::Stop(error));
            return;
        }
        self.draft = Draft::default();
        self.segment.held.clear();
        let failure = Failure::new(error.code(), error.code().as_str(), error.message());
        self.phase.end(Ending::Paused(WaitReason::Quarantined, failure));
        self.plan_end();
    }

    pub(super) fn apply_all(&mut self, facts: Vec<Fact>, loading: bool) {
        if !self.run.ahead.is_empty() {
            self.run.ahead_facts.extend(facts.iter().cloned());
        }
        for fact in facts {
            // The end of a task is told once more, with its old number, to an op that joins the task later.
            if loading || fact.number > self.run.known || matches!(fact.kind, FactKind::Task { .. }) {
                self.apply(fact);
            }
        }
    }

    fn next_order(&mut self, at: crate::clock::Timestamp) -> u64 {
        self.run.order += 1;
        self.run.times.push(at);
        self.run.order
    }

    fn apply(&mut self, fact: Fact) {
        let order = self.next_order(fact.at);
        match fact.kind {
            FactKind::Task { task, result } => self.apply_task(order, task, result),
            FactKind::Timer { slot } => self.apply_timer(order, slot),
            FactKind::Signal(signal) => self.apply_signal(order, signal),
            FactKind::Cancel(cancel) => {
                self.run.stop.request(order, cancel);
            }
        }
    }
}
