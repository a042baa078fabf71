//! Decides what to do next: hand over an outcome, start a task, commit (`committing.rs`), judge a divergence
//! (`divergence.rs`).
//!
//! Every input ends in a call of [`Machine::plan`]. Outcomes are handed over one at a time, only while the host is
//! quiet (rule 5): a replay can only repeat an order in which the code did one thing after the other.

use super::effect::{Effect, Handed, Outcome};
use super::machine::Machine;
use super::phase::{Phase, Standing};
use super::replay::Line;
use super::transition;
use crate::model::Seen;
use crate::payload::RowOf;

/// What came of the attempt to hand something over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandOver {
    /// Something was handed over.
    Done,
    /// Nothing: replay waits until this line of the script has happened again.
    Blocked(Line),
    /// Nothing: no recorded line is left to repeat, and no awaited outcome is there.
    Live,
}

impl Machine {
    /// Whether some recorded op has not been called again yet.
    pub fn is_replaying(&self) -> bool {
        !self.segment.script.is_used_up()
    }

    /// The timer of [`Effect::ArmHold`] is over: the draft is no longer held back.
    pub fn hold_elapsed(&mut self) {
        if std::mem::take(&mut self.draft.hold_armed) {
            self.draft.held_enough = true;
            self.plan();
        }
    }

    /// Takes the next effect.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The coroutine is gone. Nothing more is started, streamed or committed.
    pub fn seal(&mut self) {
        self.phase = Phase::Over;
        self.effects.clear();
    }

    /// Whether the machine takes nothing more.
    pub fn is_over(&self) -> bool {
        self.phase.is_over()
    }

    pub(super) fn plan(&mut self) {
        loop {
            if self.phase.is_over() || matches!(self.standing, Standing::Claimed) {
                return;
            }
            if self.draining {
                return self.plan_drained();
            }
            if self.segment.script.is_used_up() && !self.segment.held.is_empty() {
                self.enter_held();
            }
            if self.phase.is_ending() {
                return self.plan_end();
            }
            if let Some(completion) = self.hands_off() {
                return self.plan_hand_off(completion);
            }
            let mut blocked = None;
            if self.host.quiet {
                match self.hand_over() {
                    #[cfg(test)]
                    HandOver::Done if super::wrong::is(super::wrong::Rule::AllAtOnce) => continue,
                    HandOver::Done => {
                        self.host.quiet = false;
                        // The code goes on and may make the recorded call now. So the patience with it starts anew.
                        self.patience.end();
                        return;
                    }
                    HandOver::Blocked(line) => blocked = Some(line),
                    HandOver::Live => self.enter_held(),
                }
                if self.phase.is_ending() {
                    return self.plan_end();
                }
                self.start_tasks();
            }
            if let Some(line) = blocked
                && self.judge(line)
            {
                continue;
            }
            // A blocked replay usually keeps the run from suspending. But once edited code has started a new step, the
            // run may wait for that step in the store, and replay goes on after it. Not while an outcome that is stored
            // already is held up: nothing in the store would wake the run for that one.
            let behind_new = self.segment.diverged && self.is_new_under_way() && !self.is_anything_held_up();
            return self.plan_commit(blocked.is_some() && !behind_new);
        }
    }

    fn hand_over(&mut self) -> HandOver {
        loop {
            match self.advance() {
                // It was given up or is settled: it is not handed over this time.
                Some(Line::Deliver(index))
                    if self.segment.ops[index].is_given_up() || self.segment.ops[index].is_settled() =>
                {
                    self.segment.script.step()
                }
                Some(Line::Deliver(index)) if self.segment.ops[index].is_awaited() => {
                    let op = &self.segment.ops[index];
                    match op.recorded_outcome().or_else(|| transition::repeated(self, op)) {
                        Some((order, outcome)) => {
                            self.segment.script.step();
                            self.hand(index, outcome, order, true);
                            return HandOver::Done;
                        }
                        None => self.segment.script.step(),
                    }
                }
                Some(Line::Cancel) if self.run.stop.undelivered().is_none() => self.segment.script.step(),
                Some(Line::Cancel) if !self.segment.awaited.is_empty() => {
                    self.segment.script.step();
                    self.hand_cancel(true);
                    return HandOver::Done;
                }
                Some(line) => {
                    return if self.hand_earliest(true) { HandOver::Done } else { HandOver::Blocked(line) };
                }
                None => return if self.hand_earliest(false) { HandOver::Done } else { HandOver::Live },
            }
        }
    }

    /// The rows whose values replay hands over next, in order. The session loads them together.
    pub fn upcoming(&self, most: usize) -> Vec<RowOf> {
        let row = |op: usize| self.segment.ops[op].outcome.as_ref()?.1.payload()?.row();
        self.segment.script.deliveries().filter_map(row).take(most).collect()
    }

    /// Hands over the awaited outcome that was stored first. While replay is blocked, outcomes of recorded ops stay
    /// back: the script says when they come. Only those of new ops, and of ops whose line was passed over, may come.
    fn hand_earliest(&mut self, blocked: bool) -> bool {
        let mut best: Option<(u64, usize)> = None;
        for index in &self.segment.awaited {
            let op = &self.segment.ops[*index];
            if op.is_given_up() || (blocked && op.is_recorded() && !self.segment.script.was_passed(*index)) {
                continue;
            }
            if let Some(order) = self.available_at(*index)
                && best.is_none_or(|(earliest, _)| order < earliest)
            {
                best = Some((order, *index));
            }
        }
        if let Some(order) = self.run.stop.undelivered()
            && !blocked
            && !self.config.not_cancellable
            && !self.segment.awaited.is_empty()
            && best.is_none_or(|(earliest, _)| order < earliest)
        {
            self.hand_cancel(false);
            return true;
        }
        let Some((order, index)) = best else { return false };
        let outcome = self.segment.ops[index].outcome.as_deref().map(|(_, outcome)| outcome.clone());
        let Some(outcome) = outcome.or_else(|| transition::end(self, index, order)) else { return false };
        self.hand(index, outcome, order, false);
        true
    }

    /// The place among the facts of the outcome that an await would end with now. None if it has none yet.
    pub(super) fn available_at(&self, index: usize) -> Option<u64> {
        let op = &self.segment.ops[index];
        match op.outcome.as_deref() {
            Some((order, _)) => Some(*order),
            None => transition::available(self, op),
        }
    }

    fn hand(&mut self, index: usize, outcome: Outcome, order: u64, recorded: bool) {
        if let Some(at) = order.checked_sub(1).and_then(|order| self.run.times.get(order as usize)) {
            self.run.time = self.run.time.max(*at);
        }
        self.segment.handed = self.segment.handed.max(order);
        self.told_open(index, order);
        self.join_thread(index, order);
        self.segment.awaited.retain(|awaited| *awaited != index);
        self.settle_op(index);
        let op = &self.segment.ops[index];
        let seen = (!recorded && op.segment == self.segment.number).then_some(Seen(op.sequence));
        self.segment.seen.extend(seen);
        if outcome != Outcome::TimedOut {
            self.disarm(index);
        }
        self.leave_result(index);
        let op = self.reference(index);
        self.effects.push_back(Effect::Deliver(vec![Handed { op, outcome }]));
    }

    /// Hands the request to stop to every branch that awaits something: all their awaits end with `Cancelled`.
    pub(super) fn hand_cancel(&mut self, recorded: bool) {
        self.run.stop.deliver();
        self.segment.hand_off = None;
        if !recorded {
            self.segment.seen.push(Seen::CANCEL);
        }
        let mut awaited = std::mem::take(&mut self.segment.awaited);
        awaited.sort_unstable();
        for index in self.segment.active.clone() {
            if self.segment.ops[index].is_running_here() {
                self.stop_attempt(index);
                self.let_go(self.segment.ops[index].sequence);
            }
        }
        let mut handed = Vec::with_capacity(awaited.len());
        for index in awaited {
            self.segment.ops[index].give_up();
            self.settle_op(index);
            self.disarm(index);
            self.give_signal_back(index);
            self.let_go(self.segment.ops[index].sequence);
            handed.push(Handed { op: self.reference(index), outcome: Outcome::Cancelled });
        }
        if !handed.is_empty() {
            self.host.quiet = false;
            self.effects.push_back(Effect::Deliver(handed));
        }
    }
}
