//! What to do when replay is blocked because code and recorded tail do not match (rule 8).
//!
//! [`Machine::judge`] decides whether they differ for good. If so, the policy of the agent is applied once per segment,
//! and then either the new ops that were held back start, or the recorded line in the way is passed over. What nobody
//! has claimed by the end of the segment is orphaned.

use super::config::{OnDivergence, Outside};
use super::effect::{Effect, Ending};
use super::machine::Machine;
use super::phase::Phase;
use super::replay::Line;
use super::run::FirstCall;
use crate::error::Code;
use crate::model::{Failure, OpKind, SideEffects, WaitReason};
use std::time::Duration;

/// How long replay waits for edited code that may still make a recorded call.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long replay has waited while it was blocked.
#[derive(Debug, Default)]
pub(super) struct Patience {
    state: Waited,
    /// The number of timers armed so far, and of the latest one. A timer cannot be taken back: one with an older number
    /// is ignored.
    started: u64,
    /// Replay has waited for edited code once. It does not wait again.
    spent: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// It does not wait.
    #[default]
    Idle,
    /// It waits until the timer of this number is over.
    Since(u64),
    /// It has waited long enough.
    Enough,
}

impl Patience {
    /// Replay has moved: it does not wait any more.
    pub(super) fn end(&mut self) {
        self.state = Waited::Idle;
    }

    /// Begins to wait. Returns the number of the timer to be armed; none if one runs.
    fn begin(&mut self) -> Option<u64> {
        if matches!(self.state, Waited::Since(_)) {
            return None;
        }
        self.started += 1;
        self.state = Waited::Since(self.started);
        Some(self.started)
    }

    /// Whether replay has waited long enough. Says so once, then the waiting begins anew.
    fn take_elapsed(&mut self) -> bool {
        let elapsed = self.state == Waited::Enough;
        if elapsed {
            self.state = Waited::Idle;
        }
        elapsed
    }

    /// Whether a timer runs.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, Waited::Since(_))
    }
}

impl Machine {
    /// The timer of [`Effect::ArmDivergence`] with this number is over.
    pub fn divergence_elapsed(&mut self, timer: u64) {
        if self.patience.state == Waited::Since(timer) {
            self.patience.state = Waited::Enough;
            self.plan();
        }
    }

    /// Judges whether code and tail differ for good. True if that was decided, so that the plan has to be made again.
    ///
    /// It is certain if no branch can make the recorded call any more. If one still may, replay waits: for unchanged
    /// code until
    /// `replay_timeout`, and then the run pauses rather than goes past a call that may come; for edited code once, for
    /// [`PATIENCE`], and not at all if it seems to have one branch.
    pub(super) fn judge(&mut self, line: Line) -> bool {
        if self.in_flight.is_some() || (self.segment.awaited.is_empty() && !self.phase.is_saving()) {
            return false;
        }
        if self.is_new_under_way() && !self.is_anything_held_up() {
            return false;
        }
        let Some(outside) = self.host.outside else {
            self.ask();
            return false;
        };
        if outside != Outside::Nothing || self.is_new_under_way() {
            self.ask_later();
            // The recorded line gives up an await. Unchanged code will do that again, by its host timer. Edited code
            // may not, so it is waited for only as long as for any other line.
            let gives_up = self.will_be_given_up(line);
            if gives_up && (self.must_be_certain() || !self.is_anything_held_up()) {
                return false;
            }
            let due = self.patience.take_elapsed();
            let alone = outside == Outside::Unknown && !self.host.concurrent;
            if self.must_be_certain() {
                // The first call of an agent with state has no twin, in the only branch anybody has seen. That is most
                // likely work before the agent's loop, which needs no long wait.
                let before_loop = alone && matches!(self.run.first_call, FirstCall::Suspect { has_twin: false, .. });
                if !due {
                    if self.is_anything_held_up() {
                        let short = before_loop || self.was_given_up(line);
                        self.be_patient(if short { PATIENCE } else { self.config.replay_timeout });
                    }
                    return false;
                }
                if self.skip_given_up(line) {
                    // Also the op that gave it up, and all others like it: they do not wait one after the other.
                    while self.advance().is_some_and(|next| self.skip_given_up(next)) {}
                    return true;
                }
                if before_loop && self.ends_by_preamble(true) {
                    return true;
                }
                let failure = self.uncertain();
                self.pause_diverged(failure);
                return true;
            }
            if !due && !self.patience.spent && !alone {
                self.be_patient(PATIENCE);
                return false;
            }
            self.patience.spent |= due;
        }
        self.patience.take_elapsed();
        if self.skip_given_up(line) || (outside == Outside::Nothing && self.reword(line)) {
            return true;
        }
        if self.ends_by_preamble(self.host.concurrent) || (!self.segment.diverged && !self.admit_divergence()) {
            return true;
        }
        if self.segment.held.is_empty() {
            self.pass_over(line);
        } else {
            self.enter_held();
        }
        true
    }

    /// Ends the run if its first call was not the one that the segment starts with, and is therefore taken for work
    /// before the agent's loop. With `unmatched` only if the call has no twin anywhere: a call with one further on may
    /// be that of a branch that came early.
    pub(super) fn ends_by_preamble(&mut self, unmatched: bool) -> bool {
        let Some(failure) = self.run.first_call.clear(unmatched) else { return false };
        let stands = matches!(&self.phase, Phase::Ending(ending) if !matches!(**ending, Ending::Completed(_)));
        if !stands {
            self.phase.end(Ending::Failed(*failure));
        }
        self.segment.held.clear();
        true
    }

    /// Whether the code is the one that recorded the tail. Then a recorded call comes again as long as some branch can
    /// make it.
    fn must_be_certain(&self) -> bool {
        self.segment.code.unchanged && !self.run.divergence_allowed
    }

    /// Whether the line is an `abandon` and some branch awaits what was given up: a host timer will give it up again.
    fn will_be_given_up(&self, line: Line) -> bool {
        matches!(line, Line::Call(index) if self.segment.ops[index].label.kind == OpKind::Abandon)
            && self.segment.awaited.iter().any(|awaited| self.segment.ops[*awaited].is_given_up())
    }

    /// Whether anything could move if replay did not wait for the recorded call.
    pub(super) fn is_anything_held_up(&self) -> bool {
        !self.segment.held.is_empty()
            || self.phase.is_saving()
            || self.run.stop.undelivered().is_some()
            || self
                .segment
                .awaited
                .iter()
                .any(|index| !self.segment.ops[*index].is_given_up() && self.available_at(*index).is_some())
    }

    fn be_patient(&mut self, patience: Duration) {
        if let Some(timer) = self.patience.begin() {
            self.effects.push_back(Effect::ArmDivergence(timer, patience));
        }
    }

    /// Notes that replay has moved. For unchanged code each wait has its full time.
    pub(super) fn made_progress(&mut self) {
        if self.must_be_certain() {
            self.patience.end();
        }
    }

    /// Skips a recorded call whose await was given up and that the code has not made this time, as can happen to the
    /// loser of a race. The code was never told its outcome, so nothing differs. False if the line is no such call.
    fn skip_given_up(&mut self, line: Line) -> bool {
        let Line::Call(index) = line else { return false };
        if !self.was_given_up(line) {
            return false;
        }
        // It is claimed, so that no later call takes it for its twin: its outcome would never come.
        self.segment.ops[index].claim();
        self.segment.ops[index].settle();
        self.segment.script.note_claim();
        self.segment.script.step();
        true
    }

    /// Whether the line is a call whose await was given up, or the `abandon` of one, and the code has not come to it
    /// this time.
    fn was_given_up(&self, line: Line) -> bool {
        let Line::Call(index) = line else { return false };
        match self.segment.abandons.get(&index) {
            Some(target) => self.segment.ops[*target].is_recorded() && !self.segment.ops[*target].is_awaited(),
            None => self.segment.ops[index].is_given_up() && self.segment.ops[index].is_unclaimed(),
        }
    }

    /// Goes past a recorded line that will not happen again.
    fn pass_over(&mut self, line: Line) {
        self.segment.script.step();
        if let Line::Call(abandon) = line
            && let Some(target) = self.segment.abandons.get(&abandon)
        {
            self.segment.ops[*target].take_up();
        }
    }

    /// Why a run pauses if it is uncertain whether its code will make the recorded call.
    fn uncertain(&self) -> Failure {
        let seconds = self.config.replay_timeout.as_secs_f64();
        let what = self.divergence().message;
        Failure::new(
            Code::Diverged,
            "Diverged",
            format!(
                "it is not certain whether {what}: for {seconds} s a branch of the agent has waited for something outside of its \
                 context (a timer of the host, a thread, another library) and may still make the recorded call; give it more time \
                 with replay_timeout and resume, let such a branch wait in a step or by ctx.sleep, or decide that the run goes on"
            ),
        )
    }

    /// Whether some branch awaits a new step, one that is not recorded and was put into a batch.
    pub(super) fn is_new_under_way(&self) -> bool {
        self.segment.awaited.iter().any(|index| self.segment.ops[*index].is_new_and_placed())
    }

    /// Applies the agent's policy to the first divergence of a segment. False if the run fails or pauses.
    fn admit_divergence(&mut self) -> bool {
        let failure = self.divergence();
        let irrevocable = self.irrevocable().is_some();
        match self.config.on_divergence {
            _ if self.run.divergence_allowed => {}
            OnDivergence::Continue if !irrevocable => {}
            OnDivergence::Fail => {
                self.phase.end(Ending::Failed(failure));
                return false;
            }
            OnDivergence::Continue | OnDivergence::Pause => {
                self.pause_diverged(failure);
                return false;
            }
        }
        self.segment.diverged = true;
        self.draft.warn(None, "diverged", serde_json::json!({"message": failure.message}));
        true
    }

    pub(super) fn pause_diverged(&mut self, failure: Failure) {
        self.phase.end(Ending::Paused(WaitReason::Divergence, failure));
        self.segment.held.clear();
        self.plan_end();
    }

    fn divergence(&self) -> Failure {
        let names = |ops: &mut dyn Iterator<Item = String>| {
            let mut names: Vec<_> = ops.take(6).collect();
            if names.len() == 6 {
                names[5] = "…".into();
            }
            names.join(", ")
        };
        let recorded = names(
            &mut self
                .unclaimed()
                .map(|index| format!("{} ({})", self.segment.ops[index].label, self.segment.ops[index].sequence)),
        );
        let called = names(&mut self.segment.held.iter().map(|index| self.segment.ops[*index].label.to_string()));
        let called = if called.is_empty() { "nothing new".to_owned() } else { called };
        Failure::new(
            Code::Diverged,
            "Diverged",
            format!(
                "the agent's code no longer matches its recorded tail: recorded but not called again: {recorded}; called but not recorded: {called}"
            ),
        )
    }

    fn unclaimed(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.segment.ops.len()).filter(|index| {
            let op = &self.segment.ops[*index];
            op.is_unclaimed() && op.segment == self.segment.number
        })
    }

    /// A recorded `at_most_once` task that nobody has claimed and that has started. It may have taken effect, so it
    /// must not be orphaned without asking a person.
    fn irrevocable(&self) -> Option<usize> {
        self.unclaimed().find(|index| {
            self.segment.ops[*index]
                .task()
                .is_some_and(|task| task.options.side_effects == SideEffects::AtMostOnce && task.attempt > 0)
        })
    }

    /// The sequences of the ops that nobody has claimed by the end of the segment.
    ///
    /// Errors: one of them must not be forgotten.
    pub(super) fn orphans(&mut self) -> Result<Vec<u32>, Failure> {
        if self.irrevocable().is_some() && !self.run.divergence_allowed {
            return Err(self.divergence());
        }
        let left = self.unclaimed().filter(|index| !self.has_twin_child(*index));
        let orphaned: Vec<u32> = left.map(|index| self.segment.ops[index].sequence).collect();
        if !orphaned.is_empty() {
            let ops: Vec<String> = self.unclaimed().map(|index| self.segment.ops[index].label.to_string()).collect();
            self.draft.warn(None, "orphaned", serde_json::json!({"ops": ops}));
        }
        Ok(orphaned)
    }
}
