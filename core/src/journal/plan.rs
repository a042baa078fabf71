//! What to do next: hand over an outcome, start a task, commit (`committing.rs`), judge a divergence (`divergence.rs`).
//!
//! Every input ends here. Outcomes are handed over one at a time, only while the host is quiet (rule 5).

use super::config::Outside;
use super::effect::{Effect, Handed, Outcome, StartTask};
use super::machine::Machine;
use super::op::{Attempt, Place};
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
    /// The host is quiet: the code has nothing left to run. `concurrent` tells that several branches are alive,
    /// `outside` whether anything that the engine cannot see may make one go on (a host that must look for it says so only
    /// when it is asked), `lease_fresh` that the lease holds for more than 10 s by the worker's own clock.
    pub fn settle(&mut self, concurrent: bool, outside: Option<Outside>, lease_fresh: bool) {
        self.quiet = true;
        self.concurrent = concurrent || self.awaited.len() > 1 || outside == Some(Outside::Something);
        self.outside = outside;
        if let Some(outside) = outside {
            self.host_timer = outside == Outside::Something;
            self.races_outside |= self.host_timer && !self.awaited.is_empty();
        }
        self.asked = false;
        self.lease_fresh = lease_fresh;
        self.plan();
    }

    /// Tells that several branches are alive, before one of them calls anything.
    pub fn note_concurrent(&mut self) {
        self.concurrent = true;
    }

    /// Whether something recorded has not been called again yet.
    pub fn is_replaying(&self) -> bool {
        !self.script.is_used_up()
    }

    /// Asks the host whether anything outside may make the code go on; it answers by settling again.
    pub(super) fn ask(&mut self) {
        if !std::mem::replace(&mut self.asked, true) {
            self.effects.push_back(Effect::Ask);
        }
    }

    /// Has the host asked again in a moment: what was outside may end without a call.
    pub(super) fn ask_later(&mut self) {
        if !std::mem::replace(&mut self.asking_later, true) {
            self.effects.push_back(Effect::AskLater);
        }
    }

    /// The moment is over.
    pub fn ask_again(&mut self) {
        self.asking_later = false;
        if self.quiet && !self.over && !self.parked && self.ending.is_none() && self.is_replaying() {
            self.ask();
        }
    }

    /// Whether something of this process alone may end the wait (rule 13).
    pub fn has_host_timer(&self) -> bool {
        self.host_timer
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
        self.over = true;
        self.effects.clear();
    }

    /// Whether the machine takes nothing more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the host gave up an await by a timer of its own: such a run is not evicted by age.
    pub fn was_abandoned_by_host(&self) -> bool {
        self.abandoned_by_host
    }

    pub(super) fn plan(&mut self) {
        loop {
            if self.over || self.lacks_news {
                return;
            }
            if self.draining {
                return self.plan_drained();
            }
            if self.script.is_used_up() && !self.held.is_empty() {
                self.enter_held();
            }
            if self.ending.is_some() {
                return self.plan_end();
            }
            let mut blocked = None;
            if self.quiet {
                match self.hand_over() {
                    #[cfg(test)]
                    Stand::Handed if super::wrong::is(super::wrong::Rule::AllAtOnce) => continue,
                    Stand::Handed => {
                        self.quiet = false;
                        // What was handed over may be all that the code waited for.
                        self.divergence_due = false;
                        self.patience = None;
                        return;
                    }
                    Stand::Blocked(line) => blocked = Some(line),
                    Stand::Live => self.enter_held(),
                }
                if self.ending.is_some() {
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
            let behind_new = self.diverged && self.is_new_under_way() && !self.is_anything_held_up();
            return self.plan_commit(blocked.is_some() && !behind_new);
        }
    }

    // ── handing over ────────────────────────────────────────────────────────────────────────────────────────────

    fn hand_over(&mut self) -> Stand {
        loop {
            match self.advance() {
                Some(Line::Deliver(index)) if self.ops[index].is_given_up() || self.ops[index].is_settled() => {
                    self.script.step()
                }
                Some(Line::Deliver(index)) if self.ops[index].is_awaited() => {
                    match self.ops[index].recorded_outcome() {
                        Some((order, outcome)) => {
                            self.script.step();
                            self.hand(index, outcome, order, true);
                            return Stand::Handed;
                        }
                        None => self.script.step(),
                    }
                }
                Some(Line::Cancel) if self.cancel.is_none() || self.cancel_handed => self.script.step(),
                Some(Line::Cancel) if !self.awaited.is_empty() => {
                    self.script.step();
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
        let row = |op: usize| self.ops[op].outcome.as_ref()?.1.payload()?.row();
        self.script.deliveries().filter_map(row).take(most).collect()
    }

    /// Hands over the outcome that was stored first. While recorded ops are missing only those count that the record says nothing about.
    fn hand_earliest(&mut self, blocked: bool) -> bool {
        let mut best: Option<(u64, usize)> = None;
        for index in &self.awaited {
            let op = &self.ops[*index];
            if op.is_given_up() || (blocked && op.is_recorded() && !self.script.was_passed(*index)) {
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
            && !self.awaited.is_empty()
            && best.is_none_or(|(earliest, _)| order < earliest)
        {
            self.hand_cancel(false);
            return true;
        }
        let Some((order, index)) = best else { return false };
        let outcome = match (self.ops[index].label.kind, self.ops[index].outcome.clone()) {
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
        let op = &self.ops[index];
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
            .position(|(place, signal)| *place == order && *signal.name == *self.ops[index].label.name)?;
        let (_, signal) = self.mailbox.remove(at)?;
        let by = self.ops[index].slot();
        self.draft.consumed.push(Consumed { signal: signal.id, by });
        Some(Outcome::Signal(signal.payload))
    }

    fn hand(&mut self, index: usize, outcome: Outcome, order: u64, recorded: bool) {
        if let Some(at) = order.checked_sub(1).and_then(|order| self.times.get(order as usize)) {
            self.time = self.time.max(*at);
        }
        self.handed = self.handed.max(order);
        self.told_open(index, order);
        self.awaited.retain(|awaited| *awaited != index);
        self.settle_op(index);
        let op = &self.ops[index];
        let seen = (!recorded && op.segment == self.segment).then_some(Seen(op.sequence));
        self.seen.extend(seen);
        if matches!(outcome, Outcome::Signal(_)) {
            self.disarm(index);
        }
        self.leave_result(index);
        let op = self.reference(index);
        self.effects.push_back(Effect::Deliver(vec![Handed { op, outcome }]));
    }

    /// A result that was handed over stays in its row alone. What was loaded may be in a row of another run.
    fn leave_result(&mut self, index: usize) {
        let op = &mut self.ops[index];
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
            self.seen.push(Seen::CANCEL);
        }
        let mut awaited = std::mem::take(&mut self.awaited);
        awaited.sort_unstable();
        for index in self.active.clone() {
            if self.ops[index].is_running_here() {
                self.stop_attempt(index);
                self.let_go(self.ops[index].sequence);
            }
        }
        let mut handed = Vec::with_capacity(awaited.len());
        for index in awaited {
            self.ops[index].give_up();
            self.settle_op(index);
            self.disarm(index);
            self.give_signal_back(index);
            self.let_go(self.ops[index].sequence);
            handed.push(Handed { op: self.reference(index), outcome: Outcome::Cancelled });
        }
        if !handed.is_empty() {
            self.quiet = false;
            self.effects.push_back(Effect::Deliver(handed));
        }
    }

    // ── starting ────────────────────────────────────────────────────────────────────────────────────────────────

    fn start_tasks(&mut self) {
        if self.starting.is_empty() {
            return;
        }
        // What code decides beside a branch that waits outside is no more repeatable than a read: it comes first.
        // Where the claim before was lost without a commit, a task may have taken it along: nobody counted that one.
        let decides = self.draft.decides || self.in_flight.as_ref().is_some_and(|flight| flight.decides);
        let beside = self.lease_fresh && !decides && !self.parked && !self.races_outside && !self.was_lost;
        let mut waiting = Vec::new();
        for index in std::mem::take(&mut self.starting) {
            let op = &self.ops[index];
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
        self.starting = waiting;
    }

    /// An attempt was lost with its process. That is stored before the next one starts: it may take the process along as
    /// fast as this one did, and would not be counted. Tells whether there is a next one.
    fn count_lost(&mut self, index: usize) -> bool {
        let op = &mut self.ops[index];
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
        let Some(task) = self.ops[index].task_mut() else { return };
        task.here = Attempt::Running;
        self.active.push(index);
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
            let is_new = match self.handed {
                0 => signal.created_at >= self.time,
                handed => *order > handed,
            };
            signal.delivery == Delivery::Now && is_new
        })
    }
}
