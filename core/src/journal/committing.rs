//! Decides when to commit and what goes into the commit: what the run waits for, and how a segment and a run end.

use super::call::Completion;
use super::effect::{CommitDraft, Effect, Ending};
use super::machine::{InFlight, Machine};
use super::op::Attempt;
use super::phase::{Phase, Standing};
use super::transition;
use crate::error::Code;
use crate::model::{BatchEnd, CancelMode, Failure, Wait, WaitReason, tells_of_child};

impl Machine {
    /// The process is about to end: the machine starts nothing and hands nothing over any more. It still commits the
    /// results of tasks that have ended, so that no finished work is repeated elsewhere.
    pub fn drain(&mut self) {
        self.draining = true;
        self.plan();
    }

    pub(super) fn plan_drained(&mut self) {
        if self.in_flight.is_none() && !self.draft.attempts.is_empty() && !self.commit_part() {
            self.commit(BatchEnd::Continue, Vec::new());
        }
    }

    pub(super) fn plan_commit(&mut self, blocked: bool) {
        if self.in_flight.is_some() {
            return;
        }
        if self.phase.is_saving() && self.host.quiet {
            self.enter_held();
            if self.phase.is_ending() {
                return self.plan_end();
            }
        }
        if self.commit_part() {
            return;
        }
        if let Some(wanted) = self.take_draw() {
            self.draft.draw = Some(wanted);
            return self.commit(BatchEnd::Continue, Vec::new());
        }
        if let Phase::Saving(pending) = &mut self.phase {
            if let Some(saved) = pending.take_if(|_| self.host.quiet) {
                self.commit_checkpoint(*saved);
            }
            return;
        }
        let must_be_durable_first = self.segment.starting.iter().any(|index| !self.segment.ops[*index].is_held());
        if self.draft.urgent
            || !self.draft.attempts.is_empty()
            || (self.host.quiet && must_be_durable_first && self.draft.is_due())
        {
            return self.commit(BatchEnd::Continue, Vec::new());
        }
        let busy = !self.segment.active.is_empty() || !self.segment.starting.is_empty();
        let idle = self.host.quiet && !busy && !blocked && self.segment.held.is_empty();
        if idle && self.pause_refused() {
            return;
        }
        let wait = idle.then(|| self.wait()).flatten();
        if wait.is_some() && self.host.outside.is_none() {
            return self.ask();
        }
        if let Some(wait) = wait {
            if !self.draft.is_empty() || self.waits_for_more(&wait) {
                self.commit(BatchEnd::Suspend(wait), Vec::new());
            }
            return;
        }
        if self.host.quiet && self.draft.is_due() {
            if self.draft.held_enough {
                self.commit(BatchEnd::Continue, Vec::new());
            } else if !self.draft.hold_armed {
                self.draft.hold_armed = true;
                self.effects.push_back(Effect::ArmHold);
            }
        }
    }

    /// Whether the run waits for something else than the store has for it, so that the new wait has to be stored: the
    /// store would not wake it. Code of a parked copy can come to another wait without a commit, by recorded outcomes
    /// alone.
    fn waits_for_more(&self, now: &Wait) -> bool {
        let Standing::Waiting(stored) = &self.standing else { return true };
        // A host timer that has ended is no reason to commit. The mark that the store still has does no harm: the run
        // would only be entered again if this process died.
        let host_timer = now.host_timer || stored.host_timer;
        **stored != Wait { host_timer, ..now.clone() }
    }

    /// What the run waits for in the store. None if it waits for nothing, or if only this process can end one of its
    /// awaits.
    fn wait(&self) -> Option<Wait> {
        let mut wait = Wait { host_timer: self.host.timer, ..Wait::default() };
        for index in &self.segment.awaited {
            let op = &self.segment.ops[*index];
            if op.is_given_up() {
                // On replay a host timer will give up this await again. The run must stay here for that.
                return None;
            }
            transition::wait(op, &mut wait);
        }
        wait.signals.sort_unstable();
        wait.signals.dedup();
        wait.shorten();
        wait.reason = if wait.reason.is_some() {
            wait.reason
        } else if wait.signals.iter().any(|name| !tells_of_child(name)) {
            Some(WaitReason::Signal)
        } else if wait.tasks {
            Some(WaitReason::Task)
        } else if !wait.signals.is_empty() {
            Some(WaitReason::Child)
        } else {
            wait.timers.then_some(WaitReason::Timer)
        };
        wait.reason.map(|_| wait)
    }

    pub(super) fn commit(&mut self, mut end: BatchEnd, mut orphaned: Vec<u32>) {
        let mut segment = self.segment.number;
        if let Some((last, _)) = self.run.ahead.last_key_value() {
            // Checkpoints after this segment are damaged, so it is replayed although it has ended. It takes no new op:
            // a person must decide.
            let why = "the run's last checkpoint is damaged and its code no longer repeats the segment before it";
            let failure = Failure::new(Code::CorruptCheckpoint, "CorruptCheckpoint", why);
            (segment, orphaned, self.draft) = (*last, Vec::new(), super::draft::Draft::default());
            end = BatchEnd::Pause { reason: WaitReason::Quarantined, failure: Some(failure) };
        }
        let pauses = matches!(&self.phase, Phase::Ending(ending) if matches!(**ending, Ending::Paused(WaitReason::Quarantined, _)));
        let hands_off = matches!(end, BatchEnd::HandOff { .. });
        let mut flight = InFlight { decides: self.draft.decides, pauses, hands_off, ..InFlight::default() };
        if let BatchEnd::Suspend(wait) = &end {
            flight.wait = Some(Box::new(wait.clone()));
        }
        for op in &self.draft.ops {
            if let Some(index) = self.segment.by_sequence.get(&op.sequence) {
                flight.ops.push(*index);
                if op.label.kind.is_mark() {
                    flight.marks.push(*index);
                }
            }
        }
        for (sequence, _) in &self.draft.restarted {
            flight.ops.extend(self.segment.by_sequence.get(sequence));
        }
        for attempt in &self.draft.attempts {
            flight.attempts.extend(self.segment.by_sequence.get(&attempt.sequence));
        }
        let code = match &end {
            BatchEnd::Checkpoint(saved) => {
                flight.checkpoint = Some(saved.clone());
                self.config.code.clone()
            }
            // New code that fails before it has called anything is not noted as the run's code.
            BatchEnd::Pause { reason: WaitReason::Error, .. } if self.draft.ops.is_empty() => None,
            _ => self.segment.code.to_store.take(),
        };
        self.draft.draw = self.draft.draw.or_else(|| self.keeps());
        let batch = self.draft.take(segment, code, orphaned, end);
        self.in_flight = Some(Box::new(flight));
        self.effects.push_back(Effect::Commit(Box::new(CommitDraft {
            base: self.run.base,
            known: self.run.known,
            batch,
        })));
    }

    /// If the draft is larger than one commit may be, commits its first part and returns true. The last part leaves
    /// with what ends the batch.
    fn commit_part(&mut self) -> bool {
        if !self.run.ahead.is_empty() {
            // `commit` will pause the run and write nothing of the draft.
            return false;
        }
        let Some(part) = self.draft.part(self.most, self.segment.number) else { return false };
        let rest = std::mem::replace(&mut self.draft, part);
        self.commit(BatchEnd::Continue, Vec::new());
        self.draft = rest;
        true
    }

    pub(super) fn plan_end(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        for index in std::mem::take(&mut self.segment.active) {
            self.stop_attempt(index);
        }
        let pausing = matches!(&self.phase, Phase::Ending(ending) if matches!(**ending, Ending::Paused(..)));
        if !pausing {
            self.enter_held();
        }
        let Phase::Ending(ending) = &self.phase else { return };
        let ending = (**ending).clone();
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
            Ending::Completed(output) if self.run.stop.is_delivered() => BatchEnd::Cancelled(Some(output)),
            Ending::Completed(output) => BatchEnd::Complete(output),
            Ending::Failed(failure) | Ending::Unfit(failure) => BatchEnd::Fail(failure),
            Ending::Cancelled => BatchEnd::Cancelled(None),
            Ending::Paused(reason, failure) => BatchEnd::Pause { reason, failure: Some(failure) },
        };
        self.commit(end, orphaned);
    }

    /// Commits the handoff, with all that was called before it.
    pub(super) fn plan_hand_off(&mut self, completion: Completion) {
        if self.in_flight.is_some() || self.commit_part() {
            return;
        }
        let Some(to) = self.segment.hand_off.and_then(|(index, _)| self.segment.ops[index].child()) else { return };
        match self.orphans() {
            Ok(orphaned) => {
                self.commit(BatchEnd::HandOff { to, immediate: completion == Completion::Immediate }, orphaned)
            }
            Err(failure) => self.pause_diverged(failure),
        }
    }

    fn warn_unfinished(&mut self) {
        let unfinished: Vec<String> = self
            .segment
            .ops
            .iter()
            .filter(|op| {
                !op.is_unclaimed()
                    && op.outcome.is_none()
                    && op.task().is_some_and(|task| !task.options.detached && task.here != Attempt::Ended)
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

    /// Whether the run was asked to stop at once, without a grace period.
    pub fn is_hard_cancelled(&self) -> bool {
        self.run.stop.cancellation().is_some_and(|cancel| cancel.mode == CancelMode::Hard)
    }
}
