//! What the agent's code does: it calls, awaits and ends. Giving up an await is in `transition/abandon.rs`, reads of
//! the outside are in `transition/read.rs`.
//!
//! A call is synchronous. It claims its recorded twin (rule 7), or it takes the next slot and joins the batch (rule 1).

use super::call::{Call, Called};
use super::config::OnError;
use super::effect::Ending;
use super::machine::{Machine, OpRef};
use super::op::{Op, Place};
use super::phase::Phase;
use super::replay::Line;
use super::run::FirstCall;
use super::transition;
use crate::error::{Code, Error, Result};
use crate::model::{Failure, Label, NewOp, OpBody, Seen, WaitReason};
use std::sync::Arc;

/// An agent without state whose run has so many ops is advised to declare a state.
const ADVISE_STATE_AT: u32 = 2_000;

impl Machine {
    /// Moves past recorded calls that have been made again, and returns the next line of the script.
    pub(super) fn advance(&mut self) -> Option<Line> {
        loop {
            match self.segment.script.next() {
                Some(Line::Call(index)) if !self.segment.ops[index].is_unclaimed() => {
                    self.pass_entry(index);
                    self.segment.script.step();
                }
                line => return line,
            }
        }
    }

    /// Makes a call. `once` is the name of the `once` it is made in, if any.
    pub fn call(&mut self, call: Call, once: Option<&Arc<str>>) -> Result<Called> {
        self.check_open()?;
        call.check()?;
        self.advance();
        let parent = self.parent_of(&call);
        let label = self.label_of(&call, parent, once)?;
        self.check_room(&call, once)?;
        let called = match self.claim_twin(&label, once)? {
            Some(index) => self.called_again(index, call),
            None => self.called_new(call, label, parent, once),
        };
        self.segment.last_called =
            self.index(called.op).map_or(self.segment.last_called, |index| self.segment.ops[index].sequence);
        Ok(called)
    }

    /// Begins an await. The outcome comes by an effect, even if it is known already: outcomes are handed over only
    /// while the host is quiet.
    pub fn await_op(&mut self, op: OpRef) -> Result<()> {
        let Some(index) = self.index(op) else {
            return Err(Error::new(
                Code::InvalidArgument,
                "this step was scheduled before the last checkpoint; schedule it with detached=True, keep its ref in the state and join it with ctx.attach(ref); or start a child with an id=, and start it again to wait for it",
            ));
        };
        let op = &self.segment.ops[index];
        // A request to stop gives up what is awaited: then the error that tells of it is on its way.
        if op.is_abandoned() && !self.run.stop.is_requested() {
            return Err(Error::new(
                Code::InvalidTransition,
                format!(
                    "the await of {} was given up, by a timeout, a cancel or a select that another step won, and its \
                     outcome is not handed over any more; for several looks at one step, await it where nothing gives \
                     it up (asyncio.shield, Promise.race)",
                    op.label
                ),
            ));
        }
        self.host.quiet = false;
        if self.segment.ops[index].begin_await() {
            self.segment.awaited.push(index);
        }
        Ok(())
    }

    /// Whether an op's outcome has been handed over already.
    pub fn is_settled(&self, op: OpRef) -> bool {
        self.index(op).is_none_or(|index| self.segment.ops[index].is_settled())
    }

    /// Ends the run.
    pub fn finish(&mut self, ending: Ending) {
        if !self.phase.is_over() && !self.phase.is_ending() {
            self.host.quiet = false;
            self.phase.end(self.judged(ending));
        }
    }

    /// Decides what an error that left the code does to the run: fail it or pause it (rule 20). A run that was asked to
    /// stop is never paused.
    fn judged(&self, ending: Ending) -> Ending {
        let (unfit, failure) = match ending {
            Ending::Failed(failure) => (false, failure),
            Ending::Unfit(failure) => (true, failure),
            Ending::Paused(_, failure) if self.run.stop.is_requested() => return Ending::Failed(failure),
            other => return other,
        };
        let pauses = match self.config.on_error {
            _ if self.run.stop.is_requested() => false,
            OnError::Fail => false,
            OnError::Pause => true,
            // The engine itself has raised this error and stops the run.
            OnError::Judge if failure.code == Code::PreambleOp => false,
            OnError::Judge => unfit || self.is_replaying() || self.is_code_unproven(),
        };
        if pauses { Ending::Paused(WaitReason::Error, failure) } else { Ending::Failed(failure) }
    }

    /// Whether the code was changed, and nothing that the new code did is committed yet.
    fn is_code_unproven(&self) -> bool {
        !self.segment.code.unchanged && self.segment.code.to_store.is_some()
    }

    pub(super) fn check_open(&mut self) -> Result<()> {
        match self.phase {
            Phase::Running => {
                self.host.quiet = false;
                Ok(())
            }
            Phase::Saving(_) => Err(Error::new(
                Code::OpenOperations,
                "an op was called while another branch was saving a checkpoint; join all branches before a checkpoint",
            )),
            Phase::Ending(_) | Phase::Over => {
                Err(Error::new(Code::ExecutionClosed, "the run has ended; its context takes nothing more"))
            }
        }
    }

    /// The recorded op that a label would claim.
    pub(super) fn twin(&self, label: &Label, once: Option<&Arc<str>>) -> Option<usize> {
        let free = |index: usize| {
            let op: &Op = &self.segment.ops[index];
            let scope = op.once.as_ref().map(|once| &once.name);
            (op.is_unclaimed() && scope == once).then_some(&op.label)
        };
        let found = self.segment.script.find(label, free);
        found.or_else(|| self.segment.unfinished_once.iter().copied().find(|index| free(*index) == Some(label)))
    }

    /// Finds and claims the recorded twin of a call (rule 7).
    pub(super) fn claim_twin(&mut self, label: &Label, once: Option<&Arc<str>>) -> Result<Option<usize>> {
        let is_first = self.run.first_call.make();
        if self.segment.script.all_claimed() && self.segment.unfinished_once.is_empty() {
            return Ok(None);
        }
        let ops = &self.segment.ops;
        let free = |index: usize| {
            let op: &Op = &ops[index];
            let scope = op.once.as_ref().map(|once| &once.name);
            (op.is_unclaimed() && scope == once).then_some(&op.label)
        };
        let mut found = self.twin(label, once);
        if found.is_none()
            && let Some((recorded, called)) = &self.segment.reworded_first
            && recorded == label
        {
            // The first call was taken for this recorded step with another input. Now the step itself is called, so the
            // first call was something else: work before the agent's loop.
            if let Some(failure) = self.preamble(called) {
                return Err(Error::new(failure.code, failure.message));
            }
        }
        let mut reworded = None;
        if found.is_none() {
            found = self.reworded_at_call(label, |index| free(index).is_some());
            reworded = found.map(|index| self.segment.ops[index].label.to_string());
        }
        if is_first
            && found.is_none_or(|index| Some(index) != self.segment.script.first_call())
            && let Some(failure) = self.preamble(label)
        {
            self.run.first_call = FirstCall::Suspect { has_twin: found.is_some(), failure: Box::new(failure) };
        }
        let Some(index) = found else { return Ok(None) };
        self.segment.ops[index].claim();
        self.made_progress();
        if self.segment.ops[index].segment == self.segment.number {
            self.segment.script.note_claim();
        }
        if let Some(recorded) = reworded {
            if is_first {
                self.segment.reworded_first = Some((self.segment.ops[index].label.clone(), label.clone()));
            }
            let data = serde_json::json!({"recorded": recorded, "called": label.to_string()});
            self.draft.warn(Some(self.segment.ops[index].sequence), "reworded", data);
        }
        Ok(Some(index))
    }

    /// The failure of an agent with state whose first call does not match its tail: it has work before its loop. None
    /// if that cannot be said of this run.
    fn preamble(&self, label: &Label) -> Option<Failure> {
        let first = self.segment.script.first_call()?;
        if !self.config.stateful || self.segment.number == 0 || !self.segment.code.unchanged {
            return None;
        }
        let message = format!(
            "the agent called {label} first, but the segment to be replayed starts with {}; an agent with state is entered at its \
             top in every segment, so wrap what shall happen once in ctx.once(...), or guard it by ctx.state",
            self.segment.ops[first].label
        );
        Some(Failure::new(Code::PreambleOp, "PreambleOp", message))
    }

    /// Puts a new op into the batch, or holds it back while replay is not over (rule 8).
    /// With `hold` it is held back also where replay is over.
    pub(super) fn place(&mut self, index: usize, body: OpBody, hold: bool) {
        let op = &self.segment.ops[index];
        let new =
            NewOp { sequence: op.sequence, once: op.once.clone(), label: op.label.clone(), seen: Vec::new(), body };
        self.segment.reads.interrupt();
        if self.segment.script.is_used_up() && self.segment.held.is_empty() && !hold {
            self.enter(new);
        } else {
            self.segment.ops[index].place = Place::Held(Box::new(new));
            self.segment.held.push(index);
        }
    }

    /// Puts an op into the batch, together with the outcomes that were handed over since the op before.
    pub(super) fn enter(&mut self, mut op: NewOp) {
        op.seen = std::mem::take(&mut self.segment.seen);
        #[cfg(test)]
        if super::wrong::is(super::wrong::Rule::NoSeen) {
            op.seen.clear();
        }
        self.draft.urgent |= transition::is_urgent(&op.body);
        self.draft.decides |= transition::decides(&op.body) || self.is_order_untold(&op.seen);
        if let Some(target) = transition::gives_up(&op.body) {
            self.let_go(target);
        }
        if op.sequence == ADVISE_STATE_AT && !self.config.stateful {
            let advice = "recovery replays the whole run: declare the agent with state and checkpoint in its loop";
            self.draft.warn(Some(op.sequence), "long_tail", serde_json::json!({"ops": op.sequence, "advice": advice}));
        }
        self.draft.op(op);
    }

    /// Whether the order in which these outcomes were handed over would be lost with the op that records them.
    ///
    /// The store numbers the ends of tasks, timers and signals, but not the marks that became durable. If the op is
    /// lost, replay hands the marks over first. So the order is at risk where a mark was handed over, or is awaited,
    /// after another outcome.
    fn is_order_untold(&self, seen: &[Seen]) -> bool {
        let is_mark = |index: &usize| self.segment.ops[*index].label.kind.is_mark();
        let is_of_mark = |seen: &Seen| self.segment.by_sequence.get(&seen.0).is_some_and(is_mark);
        let mut after_an_end = seen.iter().skip_while(|seen| is_of_mark(seen)).peekable();
        after_an_end.peek().is_some() && (after_an_end.any(is_of_mark) || self.segment.awaited.iter().any(is_mark))
    }

    /// Puts all ops that were held back into the batch, in the order of their calls.
    pub(super) fn enter_held(&mut self) {
        if !self.segment.held.is_empty() && !self.host.concurrent && self.ends_by_preamble(true) {
            return;
        }
        let mut held = std::mem::take(&mut self.segment.held).into_iter();
        while let Some(index) = held.next() {
            if !self.is_judged(index, self.phase.is_ending()) {
                self.segment.held = std::iter::once(index).chain(held).collect();
                return;
            }
            if let Some(op) = self.segment.ops[index].release() {
                self.enter(op);
            }
        }
        self.none_held();
    }
}
