//! What to do next: hand over an outcome, start a task, commit (`committing.rs`), judge a divergence (`divergence.rs`).
//!
//! Every input ends here. Outcomes are handed over one at a time, only while the host is quiet (rule 5).

use super::effect::{Effect, Handed, Outcome};
use super::machine::Machine;
use super::phase::{Phase, Standing};
use super::replay::Line;
use super::transition;
use crate::model::Seen;
use crate::payload::RowOf;

/// Where the script stands for handing over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Something was handed over.
    Handed,
    /// Recorded ops have not been called again yet.
    Blocked(Line),
    /// Nothing recorded is left to repeat.
    Live,
}

impl Machine {
    /// Whether something recorded has not been called again yet.
    pub fn is_replaying(&self) -> bool {
        !self.segment.script.is_used_up()
    }

    /// The hold that was armed is over.
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

    /// The coroutine is gone: nothing more is started, streamed or committed.
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
            let mut blocked = None;
            if self.host.quiet {
                match self.hand_over() {
                    #[cfg(test)]
                    Stand::Handed if super::wrong::is(super::wrong::Rule::AllAtOnce) => continue,
                    Stand::Handed => {
                        self.host.quiet = false;
                        // What was handed over may be all that the code waited for.
                        self.patience.end();
                        return;
                    }
                    Stand::Blocked(line) => blocked = Some(line),
                    Stand::Live => self.enter_held(),
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
            // A new step that is under way may wait in the store; replay goes on behind it. But nothing in the store would wake
            // the run for what has ended already and is held up.
            let behind_new = self.segment.diverged && self.is_new_under_way() && !self.is_anything_held_up();
            return self.plan_commit(blocked.is_some() && !behind_new);
        }
    }

    fn hand_over(&mut self) -> Stand {
        loop {
            match self.advance() {
                Some(Line::Deliver(index))
                    if self.segment.ops[index].is_given_up() || self.segment.ops[index].is_settled() =>
                {
                    self.segment.script.step()
                }
                Some(Line::Deliver(index)) if self.segment.ops[index].is_awaited() => {
                    match self.segment.ops[index].recorded_outcome() {
                        Some((order, outcome)) => {
                            self.segment.script.step();
                            self.hand(index, outcome, order, true);
                            return Stand::Handed;
                        }
                        None => self.segment.script.step(),
                    }
                }
                Some(Line::Cancel) if self.run.stop.untold().is_none() => self.segment.script.step(),
                Some(Line::Cancel) if !self.segment.awaited.is_empty() => {
                    self.segment.script.step();
                    self.hand_cancel(true);
                    return Stand::Handed;
                }
                Some(line) => {
                    return if self.hand_earliest(true) { Stand::Handed } else { Stand::Blocked(line) };
                }
                None => return if self.hand_earliest(false) { Stand::Handed } else { Stand::Live },
            }
        }
    }

    /// The rows whose values replay hands over next, in order.
    pub fn upcoming(&self, most: usize) -> Vec<RowOf> {
        let row = |op: usize| self.segment.ops[op].outcome.as_ref()?.1.payload()?.row();
        self.segment.script.deliveries().filter_map(row).take(most).collect()
    }

    /// Hands over the outcome that was stored first. While recorded ops are missing only those count that the record says nothing about.
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
        if let Some(order) = self.run.stop.untold()
            && !blocked
            && !self.config.not_cancellable
            && !self.segment.awaited.is_empty()
            && best.is_none_or(|(earliest, _)| order < earliest)
        {
            self.hand_cancel(false);
            return true;
        }
        let Some((order, index)) = best else { return false };
        let outcome = self.segment.ops[index].outcome.clone().map(|(_, outcome)| outcome);
        let Some(outcome) = outcome.or_else(|| transition::end(self, index, order)) else { return false };
        self.hand(index, outcome, order, false);
        true
    }

    /// The place among the facts of what an await would end with now.
    pub(super) fn available_at(&self, index: usize) -> Option<u64> {
        let op = &self.segment.ops[index];
        match &op.outcome {
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
        self.segment.awaited.retain(|awaited| *awaited != index);
        self.settle_op(index);
        let op = &self.segment.ops[index];
        let seen = (!recorded && op.segment == self.segment.number).then_some(Seen(op.sequence));
        self.segment.seen.extend(seen);
        if matches!(outcome, Outcome::Signal(_)) {
            self.disarm(index);
        }
        self.leave_result(index);
        let op = self.reference(index);
        self.effects.push_back(Effect::Deliver(vec![Handed { op, outcome }]));
    }

    /// Every branch is told once that the run shall stop.
    pub(super) fn hand_cancel(&mut self, recorded: bool) {
        self.run.stop.tell();
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

    // ── starting ────────────────────────────────────────────────────────────────────────────────────────────────
}
