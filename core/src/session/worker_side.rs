//! What the worker does with a session: it keeps the lease, parks and evicts the copy, takes it up again, and ends it.

use super::deferred::CaughtUp;
use super::{Closed, HostEffect, Inner, Session, now};
use crate::error::Kind;
use crate::id::ExecutionId;
use crate::journal::Machine;
use crate::model::{Claim, Committed, Fact, Purse};
use crate::sync::MutexGuard;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Session {
    /// Notes that a heartbeat has extended the lease.
    pub(crate) fn renewed(&self, ttl: Duration) {
        self.lease.lock().1 = now() + ttl;
    }

    /// What a heartbeat tells of it: the run, the epoch, and the highest fact number known.
    pub(crate) fn standing(&self) -> (ExecutionId, u64, u64) {
        let known = self.inner.lock().machine.known();
        (self.execution, self.lease().epoch, known)
    }

    /// The epoch of the lease that it certainly holds, with the number of its last commit. None while a commit is on
    /// its way, which may end the lease, and for a parked copy, which has none.
    pub(crate) fn held(&self) -> Option<(u64, u64)> {
        let inner = self.inner.lock();
        let machine = &inner.machine;
        (!machine.is_committing() && !machine.is_parked()).then(|| (self.lease().epoch, machine.base()))
    }

    /// Takes a new claim of the run for this parked copy. False if the copy is out of date or closed.
    /// [`Session::resume`] then brings the facts that woke the run.
    ///
    /// The lease changes under the machine's lock. The code of the copy may go on by itself at any moment; if it
    /// committed between the two changes, the store would refuse the commit for its old lease, and nobody would hold
    /// the claim.
    pub(crate) fn take_claim(&self, claim: &Claim, ttl: Duration) -> bool {
        let mut inner = self.inner.lock();
        let open = !self.closed.load(Ordering::Acquire);
        let taken = open && inner.machine.take_claim(claim.execution.base, claim.execution.purse.as_ref());
        if taken {
            *self.lease.lock() = (claim.lease, now() + ttl);
        }
        taken
    }

    /// Goes on with the facts up to the claim that was taken.
    pub(crate) fn resume(&self, facts: Vec<Fact>, high: u64, purse: Option<Purse>) {
        self.trace.resumed(self.storage.clock().now(), self.lease().epoch);
        self.with(|machine| machine.resumed(facts, high, purse));
        self.refresh_if_hinted();
    }

    pub(crate) fn known(&self) -> u64 {
        self.inner.lock().machine.known()
    }

    /// The timer that [`Keeper::arm_hold`](super::Keeper::arm_hold) started is over.
    pub(crate) fn hold_elapsed(&self) {
        self.with(Machine::hold_elapsed);
    }

    /// Whether the run waits in the store and no commit is on its way.
    pub fn is_parked(&self) -> bool {
        self.inner.lock().machine.is_parked()
    }

    /// Whether it is parked, and its code has nothing left to run.
    pub(crate) fn is_idle(&self) -> bool {
        self.inner.lock().machine.is_idle()
    }

    /// Whether it must not be evicted for its age: something of the host may wake it, or has given up one of its
    /// awaits.
    pub(crate) fn is_held_by_host(&self) -> bool {
        let machine = &self.inner.lock().machine;
        machine.was_abandoned_by_host() || machine.has_host_timer()
    }

    /// Whether it waits for something that ends with this copy. If the copy is dropped, the run has to be entered
    /// again.
    pub(crate) fn has_host_timer(&self) -> bool {
        self.inner.lock().machine.has_host_timer()
    }

    /// Whether this activation is over.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Frees memory that only an advancing run needs.
    pub(crate) fn shrink(&self) {
        let mut inner = self.inner.lock();
        inner.effects.shrink_to_fit();
        inner.machine.shrink();
    }

    pub(crate) fn tail_length(&self) -> usize {
        self.inner.lock().machine.tail_length()
    }

    /// Whether this copy has replayed a tail and recorded nothing since. To evict it would cost another replay without
    /// any progress in between.
    pub(crate) fn only_replayed(&self) -> bool {
        let machine = &self.inner.lock().machine;
        self.entered_at.1 > 0 && self.entered_at == (machine.segment(), machine.tail_length())
    }

    /// Ends the activation: the context takes no calls any more, and the host drops the coroutine. Only the first call
    /// counts.
    pub(crate) fn close(&self, why: Closed) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.end(why, self.inner.lock());
        }
    }

    /// Starts nothing more and hands nothing over. Attempts that are under way may end and be stored before the copy is
    /// dropped.
    pub(crate) fn drain(&self) {
        self.with(Machine::drain);
        if let Some(me) = self.me.upgrade().filter(|_| self.deferred.is_behind()) {
            self.runtime.spawn(async move {
                match me.write_held().await {
                    Ok(Some(CaughtUp { answer, .. })) if let Committed::Finished(status) = answer.committed => {
                        me.close(Closed::Finished(status));
                    }
                    Ok(_) => {}
                    Err(error) => me.close(Closed::Lost(error)),
                }
            });
        }
    }

    /// Whether an attempt is under way here, or what it returned is not stored yet.
    pub(crate) fn is_working(&self) -> bool {
        if self.deferred.is_behind() && !self.is_closed() {
            return true;
        }
        let inner = self.inner.lock();
        // Attempts that pause before another try, or wait for a place, are no work to wait for: whoever goes on with
        // the run makes the try.
        !self.is_closed() && inner.machine.is_working() && (inner.machine.is_committing() || !inner.only_pauses())
    }

    /// Drops a waiting copy. False if its code goes on at this moment: what the code has called must not be lost. The
    /// machine's lock is held from the look to the end, so that the code cannot go on in between.
    pub(crate) fn evict(&self) -> bool {
        let inner = self.inner.lock();
        if !inner.machine.is_at_rest() || !inner.effects.is_empty() || self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.end(Closed::Evicted, inner);
        true
    }

    fn end(&self, why: Closed, mut inner: MutexGuard<'_, Inner>) {
        let why = why.or_finished();
        self.trace_close(&why);
        if matches!(why, Closed::Finished(status) if status.is_terminal()) {
            self.conversations.forget(self.execution);
        }
        // Two kinds of runs are given back, since nothing in the store would enter them again: those with a host timer,
        // which ends with this copy, and those whose last commit was refused for the lease.
        let refused = matches!(&why, Closed::Lost(error) if error.code().kind() == Kind::Lost);
        let unfinished = refused || inner.machine.has_host_timer();
        {
            inner.machine.seal();
            inner.kept.clear();
            inner.page = HashMap::new();
            inner.effects.clear();
            inner.waiting.clear();
            for (op, running) in inner.running.drain().collect::<Vec<_>>() {
                running.stop();
                inner.effects.push_back(HostEffect::CancelTask(op));
            }
            inner.effects.push_back(HostEffect::Close(why));
            drop(inner);
        }
        if let Some(me) = self.me.upgrade() {
            if let Some(keeper) = self.keeper.get() {
                keeper.closed(&me, unfinished);
            }
            if let Some(port) = self.port.get() {
                port.ready(&me);
            }
        }
    }
}
