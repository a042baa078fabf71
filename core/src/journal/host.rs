//! What the host has said about the agent's code: whether any of it is left to run, and whether anything outside of the
//! context may make it go on.

use super::config::Outside;
use super::effect::Effect;
use super::machine::Machine;

/// The state of the code, as the host has reported it.
#[derive(Debug)]
pub(super) struct HostState {
    /// The code has nothing left to run.
    pub quiet: bool,
    /// Several branches are alive.
    pub concurrent: bool,
    /// Whether anything outside may make the code go on. None until the host has answered that since the code became
    /// quiet.
    pub outside: Option<Outside>,
    /// By the host's last answer, something in this process may end the wait, such as a host timer.
    pub timer: bool,
    /// Some branch has waited for something outside while another awaited an outcome.
    pub races_outside: bool,
    /// The code has given up an await, beyond what is recorded.
    pub has_abandoned: bool,
    /// The lease is valid for more than 10 s by the worker's own clock.
    pub lease_fresh: bool,
    /// The host was asked what is outside, and has not answered.
    asked: bool,
    /// The host will be asked again in a moment.
    asking_later: bool,
}

impl HostState {
    /// The state before the host has reported anything.
    pub(super) fn new() -> Self {
        Self {
            quiet: false,
            concurrent: false,
            outside: None,
            timer: false,
            races_outside: false,
            has_abandoned: false,
            lease_fresh: true,
            asked: false,
            asking_later: false,
        }
    }
}

impl Machine {
    /// The host reports that the code has nothing left to run. `concurrent` tells whether several branches are alive.
    /// `outside` tells whether anything that the engine cannot see may make one go on; none if finding out costs time, and then
    /// the host answers only when [`Effect::Ask`] asks. `lease_fresh` tells whether the lease is valid for more than 10
    /// s by the worker's own clock.
    pub fn settle(&mut self, concurrent: bool, outside: Option<Outside>, lease_fresh: bool) {
        let awaited = self.segment.awaited.len();
        let host = &mut self.host;
        host.quiet = true;
        host.concurrent = concurrent || awaited > 1 || outside == Some(Outside::Something);
        host.outside = outside;
        if let Some(outside) = outside {
            host.timer = outside == Outside::Something;
            host.races_outside |= host.timer && awaited > 0;
        }
        host.asked = false;
        host.lease_fresh = lease_fresh;
        self.plan();
    }

    /// The host reports that several branches are alive, before one of them calls anything.
    pub fn note_concurrent(&mut self) {
        self.host.concurrent = true;
    }

    /// Asks the host whether anything outside may make the code go on. It answers by a call of `settle`.
    pub(super) fn ask(&mut self) {
        if !std::mem::replace(&mut self.host.asked, true) {
            self.effects.push_back(Effect::Ask);
        }
    }

    /// Asks the host again in a moment. What the code waits for outside may end without a call that the machine would
    /// see.
    pub(super) fn ask_later(&mut self) {
        if !std::mem::replace(&mut self.host.asking_later, true) {
            self.effects.push_back(Effect::AskLater);
        }
    }

    /// The moment of [`Effect::AskLater`] is over.
    pub fn ask_again(&mut self) {
        self.host.asking_later = false;
        let ends = self.phase.is_over() || self.phase.is_ending();
        if self.host.quiet && !self.standing.is_waiting() && !ends && self.is_replaying() {
            self.ask();
        }
    }

    /// Whether something in this process, such as a host timer, may end the wait (rule 13).
    pub fn has_host_timer(&self) -> bool {
        self.host.timer
    }

    /// Whether the host gave up an await by a timer of its own: such a run is not evicted by age.
    pub fn was_abandoned_by_host(&self) -> bool {
        self.host.has_abandoned
    }
}
