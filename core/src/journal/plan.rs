//! What to do next: hand over an outcome, start a task, commit (`committing.rs`), judge a divergence (`divergence.rs`).
//!
//! Every input ends here. Outcomes are handed over one at a time, only while the host is quiet (rule 5).

use super::effect::{Effect, Handed, Outcome, StartTask};
use super::machine::Machine;
use super::op::{Attempt, Place};
use super::phase::{Phase, Standing};
use super::replay::Line;
use crate::model::{Consumed, Delivery, OpKind, Seen, SideEffects};
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

    // ── handing over ────────────────────────────────────────────────────────────────────────────────────────────

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
                Some(Line::Cancel) if self.cancel.is_none() || self.cancel_handed => self.segment.script.step(),
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
        if let Some((order, _)) = self.cancel
            && !blocked
            && !self.cancel_handed
            && !self.config.not_cancellable
            && !self.segment.awaited.is_empty()
            && best.is_none_or(|(earliest, _)| order < earliest)
        {
            self.hand_cancel(false);
            return true;
        }
        let Some((order, index)) = best else { return false };
        let outcome = match (self.segment.ops[index].label.kind, self.segment.ops[index].outcome.clone()) {
            (_, Some((_, outcome))) => outcome,
            (OpKind::Signal, None) => match self.take_signal(index, order) {
                Some(outcome) => outcome,
                None => Outcome::TimedOut,
            },
            (_, None) => return false,
        };
        self.hand(index, outcome, order, false);
        true
    }

    /// The place among the facts of what an await would end with now.
    pub(super) fn available_at(&self, index: usize) -> Option<u64> {
        let op = &self.segment.ops[index];
        if let Some((order, _)) = &op.outcome {
            return Some(*order);
        }
        if op.label.kind != OpKind::Signal || op.is_held() {
            return None;
        }
        let signal = self.mailbox.iter().find(|(_, signal)| *signal.name == *op.label.name).map(|(order, _)| *order);
        match (signal, op.timed_out()) {
            (Some(signal), Some(timeout)) => Some(signal.min(timeout)),
            (signal, timeout) => signal.or(timeout),
        }
    }

    fn take_signal(&mut self, index: usize, order: u64) -> Option<Outcome> {
        let at = self
            .mailbox
            .iter()
            .position(|(place, signal)| *place == order && *signal.name == *self.segment.ops[index].label.name)?;
        let (_, signal) = self.mailbox.remove(at)?;
        let by = self.segment.ops[index].slot();
        self.draft.consumed.push(Consumed { signal: signal.id, by });
        Some(Outcome::Signal(signal.payload))
    }

    fn hand(&mut self, index: usize, outcome: Outcome, order: u64, recorded: bool) {
        if let Some(at) = order.checked_sub(1).and_then(|order| self.times.get(order as usize)) {
            self.time = self.time.max(*at);
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

    /// A result that was handed over stays in its row alone. What was loaded may be in a row of another run.
    fn leave_result(&mut self, index: usize) {
        let op = &mut self.segment.ops[index];
        let Some(task) = op.task().filter(|_| !op.is_recorded()).map(|task| task.id) else { return };
        let row = RowOf { execution: self.execution, slot: op.slot() };
        for (_, outcome) in self.task_results.get_mut(&task).into_iter().chain(&mut op.outcome) {
            if let Some(value) = outcome.payload_mut() {
                value.leave_in(row);
            }
        }
    }

    /// Every branch is told once that the run shall stop.
    pub(super) fn hand_cancel(&mut self, recorded: bool) {
        self.cancel_handed = true;
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

    fn start_tasks(&mut self) {
        if self.segment.starting.is_empty() {
            return;
        }
        // What code decides beside a branch that waits outside is no more repeatable than a read: it comes first.
        // Where the claim before was lost without a commit, a task may have taken it along: nobody counted that one.
        let decides = self.draft.decides || self.in_flight.as_ref().is_some_and(|flight| flight.decides);
        let beside = self.host.lease_fresh
            && !decides
            && !self.standing.is_waiting()
            && !self.host.races_outside
            && !self.was_lost;
        let mut waiting = Vec::new();
        for index in std::mem::take(&mut self.segment.starting) {
            let op = &self.segment.ops[index];
            let Some(task) = op.task().filter(|task| task.is_to_start() && !op.is_settled()) else { continue };
            if task.here == Attempt::Lost {
                if self.count_lost(index) {
                    waiting.push(index);
                }
                continue;
            }
            let idempotent = task.options.side_effects == SideEffects::Idempotent;
            let committed = op.is_durable() || (idempotent && beside && !op.is_held());
            if committed { self.start(index) } else { waiting.push(index) }
        }
        self.segment.starting = waiting;
    }

    /// An attempt was lost with its process. That is stored before the next one starts: it may take the process along as
    /// fast as this one did, and would not be counted. Tells whether there is a next one.
    fn count_lost(&mut self, index: usize) -> bool {
        let op = &mut self.segment.ops[index];
        let sequence = op.sequence;
        let Some(task) = op.task_mut() else { return false };
        task.attempt += 1;
        // After so many the commit quarantines it.
        let another = task.attempt <= task.max_losses;
        task.here = if another { Attempt::Due } else { Attempt::Elsewhere };
        self.draft.restarted.push((sequence, task.attempt));
        self.draft.urgent = true;
        op.place = Place::Recounted;
        another
    }

    fn start(&mut self, index: usize) {
        let reference = self.reference(index);
        let id = self.id_of(index);
        let Some(task) = self.segment.ops[index].task_mut() else { return };
        task.here = Attempt::Running;
        self.segment.active.push(index);
        let interruptible = task.options.interruptible;
        self.effects.push_back(Effect::Start(StartTask {
            op: reference,
            id,
            task: task.id,
            kind: task.kind.clone(),
            attempt: task.attempt,
            options: task.options.clone(),
        }));
        if interruptible && self.has_interrupt() {
            self.effects.push_back(Effect::Interrupt(reference));
        }
    }

    /// Whether a signal that interrupts has come since the last outcome was handed over: the code cannot have known of
    /// it. So a call that was in flight when its process was lost stays interrupted.
    fn has_interrupt(&self) -> bool {
        self.mailbox.iter().any(|(order, signal)| {
            let is_new = match self.segment.handed {
                0 => signal.created_at >= self.time,
                handed => *order > handed,
            };
            signal.delivery == Delivery::Now && is_new
        })
    }
}
