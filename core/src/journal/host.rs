//! What the host has said of the agent's code: whether anything of it is left to run, and what may make it go on.

use super::config::Outside;
use super::effect::Effect;
use super::machine::Machine;

/// How the code stands, by the host's word.
#[derive(Debug)]
pub(super) struct HostState {
    /// The code has nothing left to run.
    pub quiet: bool,
    /// Several branches are alive.
    pub concurrent: bool,
    /// Whether anything outside may make the code go on; none until the host has said so, for this time of quiet.
    pub outside: Option<Outside>,
    /// What it said last: something of this process alone may end the wait.
    pub timer: bool,
    /// Some branch has waited outside while another awaited an outcome.
    pub races_outside: bool,
    /// It gave up an await by a timer of its own.
    pub has_abandoned: bool,
    /// The lease holds for more than 10 s by the worker's own clock.
    pub lease_fresh: bool,
    /// It was asked what is outside, and has not answered.
    asked: bool,
    /// It will be asked again in a moment.
    asking_later: bool,
}

impl HostState {
    /// Before it has said anything.
    pub fn new() -> Self {
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
    /// The host is quiet: the code has nothing left to run. `concurrent` tells that several branches are alive,
    /// `outside` whether anything that the engine cannot see may make one go on (a host that must look for it says so only
    /// when it is asked), `lease_fresh` that the lease holds for more than 10 s by the worker's own clock.
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

    /// Tells that several branches are alive, before one of them calls anything.
    pub fn note_concurrent(&mut self) {
        self.host.concurrent = true;
    }

    /// Asks the host whether anything outside may make the code go on; it answers by settling again.
    pub(super) fn ask(&mut self) {
        if !std::mem::replace(&mut self.host.asked, true) {
            self.effects.push_back(Effect::Ask);
        }
    }

    /// Has the host asked again in a moment: what was outside may end without a call.
    pub(super) fn ask_later(&mut self) {
        if !std::mem::replace(&mut self.host.asking_later, true) {
            self.effects.push_back(Effect::AskLater);
        }
    }

    /// The moment is over.
    pub fn ask_again(&mut self) {
        self.host.asking_later = false;
        let ends = self.phase.is_over() || self.phase.is_ending();
        if self.host.quiet && !self.standing.is_waiting() && !ends && self.is_replaying() {
            self.ask();
        }
    }

    /// Whether something of this process alone may end the wait (rule 13).
    pub fn has_host_timer(&self) -> bool {
        self.host.timer
    }

    /// Whether the host gave up an await by a timer of its own: such a run is not evicted by age.
    pub fn was_abandoned_by_host(&self) -> bool {
        self.host.has_abandoned
    }
}
