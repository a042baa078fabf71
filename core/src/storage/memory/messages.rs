//! What a run says to its parent and to its children, together with the commit that says it.

use super::state::{RunKey, State};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ExecutionId, Slot};
use crate::model::{
    Batch, BatchEnd, Cancellation, ChildEnd, Execution, MessageBody, NewMessage, OpBody, Status, Wait, unanswered,
};

impl State {
    /// Delivers the messages of a batch. The sender is told at once of messages that were not delivered, and of children
    /// that have stopped at once.
    pub(super) fn deliver(&mut self, (org, sender): RunKey, batch: &Batch, now: Timestamp) -> Result<()> {
        for op in &batch.ops {
            let OpBody::Send(message) = &op.body else { continue };
            let refused = match self.reach((org, sender), message)? {
                Err(error) => Some(error),
                Ok((from, to)) => match (&message.body, message.signal(org, from, to)) {
                    (MessageBody::Stop { how, .. }, _) => {
                        self.stop((org, sender), to, *how, now)?;
                        None
                    }
                    (_, Some(signal)) => self.store_signal(signal, now).err(),
                    (_, None) => None,
                },
            };
            if let Some(error) = refused {
                let slot = Slot { segment: batch.segment, sequence: op.sequence };
                self.run_mut(org, sender)?.take_signal(message.refusal(org, sender, slot, &error), now);
            }
        }
        Ok(())
    }

    /// Whom a message comes from and the run that it is for, or why it gets none. What has been handed off speaks for
    /// the run that its parent knows.
    fn reach(&self, (org, sender): RunKey, message: &NewMessage) -> Result<Result<(ExecutionId, ExecutionId), Error>> {
        let child = message.body.child();
        let from = if child.is_some() { sender } else { self.known_as(org, sender) };
        let to = child.or(self.run(org, from)?.exec.parent);
        let there = to.and_then(|to| Some((to, &self.runs.get(&(org, to))?.exec)));
        let is_stop = matches!(message.body, MessageBody::Stop { .. });
        Ok(match there {
            None => Err(message.out_of_reach()),
            Some((_, run)) if child.is_some() && run.parent != Some(sender) => Err(message.out_of_reach()),
            // Nobody answers for a parent that has handed off: its successor knows nothing of its other children.
            Some((to, run)) if child.is_none() && run.handed_to.is_some() => Err(message.is_late(to, run.status)),
            // A child that has ended needs no stopping.
            Some((to, run)) if run.status.is_terminal() && run.handed_to.is_none() && !is_stop => {
                Err(message.is_late(to, run.status))
            }
            Some((to, _)) => Ok((from, to)),
        })
    }

    /// Asks a child to stop. What stops at once is told here.
    fn stop(&mut self, (org, parent): RunKey, child: ExecutionId, how: Cancellation, now: Timestamp) -> Result<()> {
        if self.run(org, child)?.exec.status.is_terminal() {
            return Ok(());
        }
        let stopped = self.request_cancel(org, child, how, true, now)?;
        if stopped.status.is_terminal() {
            let run = self.run_mut(org, parent)?;
            run.children.retain(|open| *open != child);
            run.take_signal(ChildEnd::of(&stopped, parent), now);
        }
        Ok(())
    }

    /// Tells a child whose parent has ended that nobody will answer what it waits for.
    pub(super) fn leave_alone(&mut self, (org, child): RunKey, parent: (ExecutionId, Status), now: Timestamp) {
        let Ok(run) = self.run_mut(org, child) else { return };
        let Some(wait) = run.exec.wait.clone().filter(Wait::is_for_parent) else { return };
        for signal in unanswered(org, child, &wait, parent.0, parent.1) {
            run.take_signal(signal, now);
        }
        self.refresh((org, child), now);
    }

    /// Tells a run that suspends to wait for answers, where its parent has ended, that there will be none.
    pub(super) fn check_answers(&mut self, (org, id): RunKey, batch: &Batch, now: Timestamp) -> Result<()> {
        let known = self.known_as(org, id);
        let (BatchEnd::Suspend(wait), Some(parent)) = (&batch.end, self.run(org, known)?.exec.parent) else {
            return Ok(());
        };
        let is_gone = |above: &Execution| above.status.is_terminal() || above.handed_to.is_some();
        let status = self.run(org, parent).map(|above| &above.exec).ok().filter(|above| is_gone(above));
        let status = status.map(|above| above.status);
        let Some(status) = status.filter(|_| wait.is_for_parent()) else { return Ok(()) };
        let run = self.run_mut(org, id)?;
        for signal in unanswered(org, id, wait, parent, status) {
            if !run.signal_ids.contains_key(&signal.id) {
                run.take_signal(signal, now);
            }
        }
        Ok(())
    }
}
