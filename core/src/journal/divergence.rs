//! What to do where edited code no longer matches its recorded tail (rule 8): judge, admit, pass over, orphan.

use super::effect::{Effect, Ending};
use super::machine::{Machine, OnDivergence};
use super::replay::Line;
use crate::error::Code;
use crate::model::{Failure, OpKind, SideEffects, WaitReason};

impl Machine {
    /// The patience with a blocked replay is over.
    pub fn divergence_elapsed(&mut self, timer: u64) {
        if self.patience == Some(timer) {
            self.patience = None;
            self.divergence_due = true;
            self.plan();
        }
    }

    /// Judges whether code and tail differ for good; true if something can move again.
    pub(super) fn judge(&mut self, line: Line) -> bool {
        if self.in_flight.is_some() || (self.awaited.is_empty() && self.checkpoint.is_none()) {
            return false;
        }
        if let Line::Call(index) = line
            && self.ops[index].label.kind == OpKind::Abandon
            && self.awaited.iter().any(|awaited| self.ops[*awaited].abandoned)
        {
            // The host's own timer will give that await up again.
            return false;
        }
        if self.is_new_under_way() {
            return false;
        }
        if self.concurrent && !self.divergence_due {
            if self.patience.is_none() {
                self.patience_started += 1;
                self.patience = Some(self.patience_started);
                self.effects.push_back(Effect::ArmDivergence(self.patience_started));
            }
            return false;
        }
        self.divergence_due = false;
        if !self.diverged && !self.admit_divergence() {
            return true;
        }
        if self.held.is_empty() {
            self.script.step();
        } else {
            self.enter_held();
        }
        true
    }

    /// Whether some branch awaits a step that the record does not have and that has started.
    pub(super) fn is_new_under_way(&self) -> bool {
        self.awaited.iter().any(|index| {
            let op = &self.ops[*index];
            !op.recorded && !op.refused && op.held.is_none()
        })
    }

    /// Applies the policy to the first divergence of a segment; false if the run ends or pauses by it.
    fn admit_divergence(&mut self) -> bool {
        let failure = self.divergence();
        let irrevocable = self.irrevocable().is_some();
        match self.config.on_divergence {
            _ if self.divergence_allowed => {}
            OnDivergence::Continue if !irrevocable => {}
            OnDivergence::Fail => {
                self.ending = Some(Box::new(Ending::Failed(failure)));
                return false;
            }
            OnDivergence::Continue | OnDivergence::Pause => {
                self.pause_diverged(failure);
                return false;
            }
        }
        self.diverged = true;
        self.draft.warn(None, "diverged", serde_json::json!({"message": failure.message}));
        true
    }

    pub(super) fn pause_diverged(&mut self, failure: Failure) {
        self.checkpoint = None;
        self.ending = Some(Box::new(Ending::Paused(WaitReason::Divergence, failure)));
        self.held.clear();
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
            &mut self.unclaimed().map(|index| format!("{} ({})", self.ops[index].label, self.ops[index].sequence)),
        );
        let called = names(&mut self.held.iter().map(|index| self.ops[*index].label.to_string()));
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
        (0..self.ops.len()).filter(|index| {
            let op = &self.ops[*index];
            op.recorded && !op.claimed && op.segment == self.segment
        })
    }

    /// A recorded call that nobody claims and that must not be forgotten: it started and may have taken effect.
    fn irrevocable(&self) -> Option<usize> {
        self.unclaimed().find(|index| {
            let task = self.ops[*index].task.as_ref();
            task.is_some_and(|task| task.options.side_effects == SideEffects::AtMostOnce && task.attempt > 0)
        })
    }

    /// What nobody claimed by the end of the segment.
    pub(super) fn orphans(&mut self) -> Result<Vec<u32>, Failure> {
        if self.irrevocable().is_some() && !self.divergence_allowed {
            return Err(self.divergence());
        }
        let orphaned: Vec<u32> = self.unclaimed().map(|index| self.ops[index].sequence).collect();
        if !orphaned.is_empty() {
            let ops: Vec<String> = self.unclaimed().map(|index| self.ops[index].label.to_string()).collect();
            self.draft.warn(None, "orphaned", serde_json::json!({"ops": ops}));
        }
        Ok(orphaned)
    }
}
