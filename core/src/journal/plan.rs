//! What to do next: hand over an outcome, start a task, commit, suspend, end; divergence is judged in `divergence.rs`.
//!
//! Every input ends here. Outcomes are handed over one at a time, only while the host is quiet (rule 5).

use super::effect::{CommitDraft, Effect, Ending, Handed, Outcome, StartTask};
use super::machine::{InFlight, Machine, Outside};
use super::replay::Line;
use super::retry::MAX_LOSSES;
use crate::error::Code;
use crate::id::Slot;
use crate::model::{
    BatchEnd, CancelMode, Consumed, Delivery, Failure, OpBody, OpKind, Seen, SideEffects, TaskStatus, Wait, WaitReason,
};
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
        self.concurrent |= concurrent || self.awaited.len() > 1 || outside == Some(Outside::Something);
        self.outside = outside;
        if let Some(outside) = outside {
            self.host_timer = outside == Outside::Something;
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
            if self.over {
                return;
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
            // A new step that is under way may wait in the store; replay goes on behind it.
            let behind_new = self.diverged && self.is_new_under_way();
            return self.plan_commit(blocked.is_some() && !behind_new);
        }
    }

    // ── handing over ────────────────────────────────────────────────────────────────────────────────────────────

    fn hand_over(&mut self) -> Stand {
        loop {
            match self.advance() {
                Some(Line::Deliver(index)) if self.ops[index].abandoned || self.ops[index].settled => {
                    self.script.step()
                }
                Some(Line::Deliver(index)) if self.ops[index].awaited => match self.recorded_outcome(index) {
                    Some((order, outcome)) => {
                        self.script.step();
                        self.hand(index, outcome, order, true);
                        return Stand::Handed;
                    }
                    None => self.script.step(),
                },
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

    fn recorded_outcome(&self, index: usize) -> Option<(u64, Outcome)> {
        let op = &self.ops[index];
        op.outcome.clone().or_else(|| op.timed_out.map(|order| (order, Outcome::TimedOut)))
    }

    /// Hands over the outcome that was stored first. While recorded ops are missing only those count that the record says nothing about.
    fn hand_earliest(&mut self, blocked: bool) -> bool {
        let mut best: Option<(u64, usize)> = None;
        for index in &self.awaited {
            let op = &self.ops[*index];
            if op.abandoned || (blocked && op.recorded && !self.script.was_passed(*index)) {
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
        if op.label.kind != OpKind::Signal || op.held.is_some() {
            return None;
        }
        let signal = self.mailbox.iter().find(|(_, signal)| *signal.name == *op.label.name).map(|(order, _)| *order);
        match (signal, op.timed_out) {
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
        let by = Slot { segment: self.ops[index].segment, sequence: self.ops[index].sequence };
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
        let op = &mut self.ops[index];
        op.awaited = false;
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
        let Some(task) = op.task.as_ref().filter(|_| !op.recorded) else { return };
        let row = RowOf { execution: self.execution, slot: Slot { segment: op.segment, sequence: op.sequence } };
        for (_, outcome) in self.task_results.get_mut(&task.id).into_iter().chain(&mut op.outcome) {
            if let Some(value) = outcome.payload_mut() {
                value.leave_in(row);
            }
        }
    }

    /// Every branch is told once that the run shall stop.
    fn hand_cancel(&mut self, recorded: bool) {
        self.cancel_handed = true;
        if !recorded {
            self.seen.push(Seen::CANCEL);
        }
        let mut awaited = std::mem::take(&mut self.awaited);
        awaited.sort_unstable();
        for index in self.active.clone() {
            if self.ops[index].running_here() {
                self.stop_attempt(index);
                self.let_go(self.ops[index].sequence);
            }
        }
        let mut handed = Vec::with_capacity(awaited.len());
        for index in awaited {
            self.ops[index].awaited = false;
            self.ops[index].abandoned = true;
            self.settle_op(index);
            self.disarm(index);
            self.give_signal_back(index);
            self.let_go(self.ops[index].sequence);
            handed.push(Handed { op: self.reference(index), outcome: Outcome::Cancelled });
        }
        self.effects.push_back(Effect::Deliver(handed));
    }

    // ── starting ────────────────────────────────────────────────────────────────────────────────────────────────

    fn start_tasks(&mut self) {
        if self.starting.is_empty() {
            return;
        }
        let beside = self.lease_fresh && !self.draft.reads && !self.parked;
        let mut waiting = Vec::new();
        for index in std::mem::take(&mut self.starting) {
            let op = &self.ops[index];
            let Some(task) = &op.task else { continue };
            if !task.to_start || op.settled {
                continue;
            }
            let idempotent = task.options.side_effects == SideEffects::Idempotent;
            let committed = op.durable || (idempotent && beside && op.held.is_none());
            if committed { self.start(index) } else { waiting.push(index) }
        }
        self.starting = waiting;
    }

    fn start(&mut self, index: usize) {
        let reference = self.reference(index);
        let id = self.id_of(index);
        let op = &mut self.ops[index];
        let Some(task) = &mut op.task else { return };
        task.to_start = false;
        if op.recorded {
            // The attempt of a lost process does not count.
            task.attempt += 1;
            self.draft.restarted.push((op.sequence, task.attempt));
            if task.attempt > MAX_LOSSES {
                // It took a process with it each time: the commit quarantines it, and nothing starts beside that.
                self.draft.urgent = true;
                return;
            }
        }
        task.running = true;
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

    // ── committing ──────────────────────────────────────────────────────────────────────────────────────────────

    fn plan_commit(&mut self, blocked: bool) {
        if self.in_flight.is_some() {
            return;
        }
        if self.checkpoint.is_some() && self.quiet {
            self.enter_held();
            if self.ending.is_some() {
                return self.plan_end();
            }
        }
        if self.commit_part() {
            return;
        }
        if let Some(pending) = &mut self.checkpoint {
            if !self.quiet {
                return;
            }
            let Some(saved) = pending.saved.take() else { return };
            return self.commit_checkpoint(saved);
        }
        let must_be_durable_first = self.starting.iter().any(|index| self.ops[*index].held.is_none());
        if self.draft.urgent
            || !self.draft.attempts.is_empty()
            || (self.quiet && must_be_durable_first && self.draft.is_due())
        {
            return self.commit(BatchEnd::Continue, Vec::new());
        }
        let busy = !self.active.is_empty() || !self.starting.is_empty();
        let idle = self.quiet && !busy && !blocked && self.held.is_empty();
        if idle && self.pause_refused() {
            return;
        }
        let wait = idle.then(|| self.wait()).flatten();
        if wait.is_some() && self.outside.is_none() {
            return self.ask();
        }
        if let Some(wait) = wait {
            if !self.parked || !self.draft.is_empty() {
                self.commit(BatchEnd::Suspend(wait), Vec::new());
            }
            return;
        }
        if self.quiet && self.draft.is_due() {
            if self.draft.held_enough {
                self.commit(BatchEnd::Continue, Vec::new());
            } else if !self.draft.hold_armed {
                self.draft.hold_armed = true;
                self.effects.push_back(Effect::ArmHold);
            }
        }
    }

    /// What the run waits for; none while an await needs something of this process.
    fn wait(&self) -> Option<Wait> {
        let mut wait = Wait { host_timer: self.host_timer, ..Wait::default() };
        let mut in_doubt = false;
        for index in &self.awaited {
            let op = &self.ops[*index];
            if op.abandoned {
                // A timer of the host will give it up again.
                return None;
            }
            match op.label.kind {
                OpKind::Signal => {
                    wait.signals.push(op.label.name.to_string());
                    wait.timers |= op.timed;
                }
                OpKind::Timer => wait.timers = true,
                OpKind::Task | OpKind::Attach => {
                    wait.tasks = true;
                    in_doubt |= op.task.as_ref().is_some_and(|task| task.status == TaskStatus::InDoubt);
                }
                _ => {}
            }
        }
        wait.signals.sort_unstable();
        wait.signals.dedup();
        wait.reason = if in_doubt {
            Some(WaitReason::InDoubt)
        } else if !wait.signals.is_empty() {
            Some(WaitReason::Signal)
        } else if wait.tasks {
            Some(WaitReason::Task)
        } else {
            wait.timers.then_some(WaitReason::Timer)
        };
        wait.reason.map(|_| wait)
    }

    fn commit(&mut self, mut end: BatchEnd, mut orphaned: Vec<u32>) {
        let mut segment = self.segment;
        if let Some((last, _)) = self.ahead.last_key_value() {
            // A segment that has ended takes nothing new: a person must look.
            let why = "the run's last checkpoint is damaged and its code no longer repeats the segment before it";
            let failure = Failure::new(Code::CorruptCheckpoint, "CorruptCheckpoint", why);
            (segment, orphaned, self.draft) = (*last, Vec::new(), super::draft::Draft::default());
            end = BatchEnd::Pause { reason: WaitReason::Quarantined, failure: Some(failure) };
        }
        let mut flight = InFlight::default();
        for op in &self.draft.ops {
            if let Some(index) = self.by_sequence.get(&op.sequence) {
                flight.ops.push(*index);
                if matches!(op.body, OpBody::Flush | OpBody::Step | OpBody::Once { .. }) {
                    flight.marks.push(*index);
                }
            }
        }
        for attempt in &self.draft.attempts {
            flight.attempts.extend(self.by_sequence.get(&attempt.sequence));
        }
        let code = match &end {
            BatchEnd::Checkpoint(saved) => {
                flight.checkpoint = Some(saved.clone());
                self.config.code.clone()
            }
            _ => self.code_to_store.take(),
        };
        let batch = self.draft.take(segment, code, orphaned, end);
        self.in_flight = Some(Box::new(flight));
        self.effects.push_back(Effect::Commit(Box::new(CommitDraft { base: self.base, known: self.known, batch })));
    }

    /// Commits a part of a draft that is more than one commit holds. What ends the batch goes with the last part.
    fn commit_part(&mut self) -> bool {
        if !self.ahead.is_empty() {
            // None of it is written.
            return false;
        }
        let Some(part) = self.draft.part(self.most, self.segment) else { return false };
        let rest = std::mem::replace(&mut self.draft, part);
        self.commit(BatchEnd::Continue, Vec::new());
        self.draft = rest;
        true
    }

    fn commit_checkpoint(&mut self, saved: crate::model::NewCheckpoint) {
        if self.draft.ops.is_empty()
            && let Some((_, tail)) = self.ahead.pop_first()
        {
            return self.begin_recorded_segment(saved, &tail);
        }
        let orphaned = match self.orphans() {
            Ok(orphaned) => orphaned,
            Err(failure) => return self.pause_diverged(failure),
        };
        self.commit(BatchEnd::Checkpoint(saved), orphaned);
    }

    pub(super) fn plan_end(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        for index in std::mem::take(&mut self.active) {
            self.stop_attempt(index);
        }
        let pausing = matches!(self.ending.as_deref(), Some(Ending::Paused(..)));
        if !pausing {
            self.enter_held();
        }
        let Some(ending) = self.ending.as_deref().cloned() else { return };
        if self.commit_part() {
            return;
        }
        let failed = matches!(ending, Ending::Failed(_));
        let orphaned = match self.orphans() {
            _ if pausing => Vec::new(),
            Ok(orphaned) => orphaned,
            Err(_) if failed => Vec::new(),
            Err(failure) => return self.pause_diverged(failure),
        };
        if matches!(ending, Ending::Completed(_)) {
            self.warn_unfinished();
        }
        let end = match ending {
            Ending::Completed(output) if self.cancel_handed => BatchEnd::Cancelled(Some(output)),
            Ending::Completed(output) => BatchEnd::Complete(output),
            Ending::Failed(failure) => BatchEnd::Fail(failure),
            Ending::Cancelled => BatchEnd::Cancelled(None),
            Ending::Paused(reason, failure) => BatchEnd::Pause { reason, failure: Some(failure) },
        };
        self.commit(end, orphaned);
    }

    fn warn_unfinished(&mut self) {
        let unfinished: Vec<String> = self
            .ops
            .iter()
            .filter(|op| {
                op.claimed
                    && op.outcome.is_none()
                    && op.task.as_ref().is_some_and(|task| !task.options.detached && !task.ended)
            })
            .map(|op| op.label.to_string())
            .collect();
        if !unfinished.is_empty() {
            self.draft.warn(
                None,
                "unfinished",
                serde_json::json!({"ops": unfinished, "advice": "await every step, or schedule it detached"}),
            );
        }
    }

    /// Whether a stop at once was asked for.
    pub fn is_hard_cancelled(&self) -> bool {
        self.cancel.is_some_and(|(_, cancel)| cancel.mode == CancelMode::Hard)
    }
}
