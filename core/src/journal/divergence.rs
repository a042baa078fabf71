//! What to do where edited code no longer matches its recorded tail (rule 8): judge, admit, pass over, orphan.

use super::config::{OnDivergence, Outside};
use super::effect::{Effect, Ending};
use super::machine::Machine;
use super::phase::Phase;
use super::replay::Line;
use super::run::FirstCall;
use crate::error::Code;
use crate::model::{Failure, OpKind, SideEffects, WaitReason};
use std::time::Duration;

/// How long edited code is waited for that may still make a recorded call.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long a blocked replay has been waited for.
#[derive(Debug, Default)]
pub(super) struct Patience {
    state: Waited,
    /// Timers armed so far.
    started: u64,
    /// Edited code has been waited for once.
    spent: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// Not at all.
    #[default]
    Idle,
    /// The timer of this number runs: progress starts another.
    Since(u64),
    /// Long enough.
    Enough,
}

impl Patience {
    /// Something moved.
    pub fn end(&mut self) {
        self.state = Waited::Idle;
    }

    /// Starts, unless it has begun; the number of the timer.
    fn begin(&mut self) -> Option<u64> {
        if matches!(self.state, Waited::Since(_)) {
            return None;
        }
        self.started += 1;
        self.state = Waited::Since(self.started);
        Some(self.started)
    }

    /// Whether it is over; it is so once.
    fn take_over(&mut self) -> bool {
        let over = self.state == Waited::Enough;
        if over {
            self.state = Waited::Idle;
        }
        over
    }

    /// Whether a timer runs.
    #[cfg(test)]
    pub fn is_running(&self) -> bool {
        matches!(self.state, Waited::Since(_))
    }
}

impl Machine {
    /// The patience with a blocked replay is over.
    pub fn divergence_elapsed(&mut self, timer: u64) {
        if self.patience.state == Waited::Since(timer) {
            self.patience.state = Waited::Enough;
            self.plan();
        }
    }

    /// Judges whether code and tail differ for good; true if something can move again.
    ///
    /// It is certain where no branch can make the recorded call any more. Where one may, unchanged code is waited for, and
    /// never passed over; edited code is waited for once, and not for long.
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
            // Edited code may not give it up any more: it is waited for as everything else is.
            let gives_up = self.will_be_given_up(line);
            if gives_up && (self.must_be_certain() || !self.is_anything_held_up()) {
                return false;
            }
            let due = self.patience.take_over();
            let alone = outside == Outside::Unknown && !self.host.concurrent;
            if self.must_be_certain() {
                // A host that cannot tell, and one branch as far as anybody has seen.
                let before_loop = alone && matches!(self.run.first_call, FirstCall::Suspect { has_twin: false, .. });
                if !due {
                    if self.is_anything_held_up() {
                        let short = before_loop || self.was_given_up(line);
                        self.be_patient(if short { PATIENCE } else { self.config.replay_timeout });
                    }
                    return false;
                }
                if self.bury(line) {
                    // Also what gave it up, and others like it: one patience for all.
                    while self.advance().is_some_and(|next| self.bury(next)) {}
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
        self.patience.take_over();
        if self.bury(line) || (outside == Outside::Nothing && self.reword(line)) {
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

    /// Ends the run if its first call in a segment was none of the segment's: of a branch that came early it is found, of
    /// work before the agent's loop it is not. `unmatched` asks for a call that found no twin anywhere.
    pub(super) fn ends_by_preamble(&mut self, unmatched: bool) -> bool {
        let Some(failure) = self.run.first_call.clear(unmatched) else { return false };
        let stands = matches!(&self.phase, Phase::Ending(ending) if !matches!(**ending, Ending::Completed(_)));
        if !stands {
            self.phase.end(Ending::Failed(*failure));
        }
        self.segment.held.clear();
        true
    }

    /// Whether the code is the recorded one, so that what is recorded will be called again unless no branch is left to.
    fn must_be_certain(&self) -> bool {
        self.segment.code.unchanged && !self.run.divergence_allowed
    }

    /// Whether the line is an await that was given up, and the host's own timer will give it up again.
    fn will_be_given_up(&self, line: Line) -> bool {
        matches!(line, Line::Call(index) if self.segment.ops[index].label.kind == OpKind::Abandon)
            && self.segment.awaited.iter().any(|awaited| self.segment.ops[*awaited].is_given_up())
    }

    /// Whether anything could move if the recorded call were not waited for.
    pub(super) fn is_anything_held_up(&self) -> bool {
        !self.segment.held.is_empty()
            || self.phase.is_saving()
            || self.run.stop.untold().is_some()
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

    /// Notes progress of the replay: a wait of unchanged code has a patience of its own.
    pub(super) fn made_progress(&mut self) {
        if self.must_be_certain() {
            self.patience.end();
        }
    }

    /// Goes past a call that was given up before it ended and that the code has not come to this time, as the loser of a
    /// race may: nobody was told anything of it, so nothing differs. True if the line was one.
    fn bury(&mut self, line: Line) -> bool {
        let Line::Call(index) = line else { return false };
        if !self.was_given_up(line) {
            return false;
        }
        // No later call may take it for its twin: it never ends.
        self.segment.ops[index].claim();
        self.segment.ops[index].settle();
        self.segment.script.note_claim();
        self.segment.script.step();
        true
    }

    /// Whether the line is such a call, or gave one up.
    fn was_given_up(&self, line: Line) -> bool {
        let Line::Call(index) = line else { return false };
        match self.segment.abandons.get(&index) {
            Some(target) => self.segment.ops[*target].is_recorded() && !self.segment.ops[*target].is_awaited(),
            None => self.segment.ops[index].is_given_up() && self.segment.ops[index].is_unclaimed(),
        }
    }

    /// Goes past a recorded line that will not come.
    fn pass_over(&mut self, line: Line) {
        self.segment.script.step();
        if let Line::Call(abandon) = line
            && let Some(target) = self.segment.abandons.get(&abandon)
        {
            self.segment.ops[*target].take_up();
        }
    }

    /// Why a run is paused whose code may or may not come to what it has recorded.
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

    /// Whether some branch awaits a step that the record does not have and that has started.
    pub(super) fn is_new_under_way(&self) -> bool {
        self.segment.awaited.iter().any(|index| self.segment.ops[*index].is_new_and_placed())
    }

    /// Applies the policy to the first divergence of a segment; false if the run ends or pauses by it.
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

    /// A recorded call that nobody claims and that must not be forgotten: it started and may have taken effect.
    fn irrevocable(&self) -> Option<usize> {
        self.unclaimed().find(|index| {
            self.segment.ops[*index]
                .task()
                .is_some_and(|task| task.options.side_effects == SideEffects::AtMostOnce && task.attempt > 0)
        })
    }

    /// What nobody claimed by the end of the segment.
    pub(super) fn orphans(&mut self) -> Result<Vec<u32>, Failure> {
        if self.irrevocable().is_some() && !self.run.divergence_allowed {
            return Err(self.divergence());
        }
        let orphaned: Vec<u32> = self.unclaimed().map(|index| self.segment.ops[index].sequence).collect();
        if !orphaned.is_empty() {
            let ops: Vec<String> = self.unclaimed().map(|index| self.segment.ops[index].label.to_string()).collect();
            self.draft.warn(None, "orphaned", serde_json::json!({"ops": ops}));
        }
        Ok(orphaned)
    }
}
