//! Carries out the machine's effects: commits, fetches and timers here, the others by the host.

use super::deferred::{CaughtUp, Taken};
use super::{Closed, HostEffect, Inner, Session, Tried, traces};
use crate::error::{Code, Result};
use crate::heap;
use crate::id::RequestId;
use crate::journal::{CommitDraft, Effect, Handed, Machine, OpRef};
use crate::model::{BatchEnd, CommitRequest, Committed, Fact, FactKind, LocalRun, OpBody};
use crate::payload::{Body, Content, ContentHash, Digest, Payload, RowOf};
use crate::storage::PAGE;
use crate::storage::available::until_available;
use crate::storage::stored::{blob, fetch, fill};
use crate::tracer::Noted;
use futures::FutureExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How soon a host is asked again whether its code may still make a recorded call.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Behind a run of so many ops in its segment that parks, what its commits have needed is given back.
const LARGE: usize = 1_000;

impl Session {
    /// Calls the machine, then carries out the effects that come of it. All inputs of the machine go through here or
    /// through [`act`](Self::act), except those that have no effects.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Machine) -> R) -> R {
        self.act(|inner| act(&mut inner.machine))
    }

    /// As [`with`](Self::with), with the rest of the locked state.
    ///
    /// Effects for the host are queued under the lock, in the machine's order. Those of the session are collected and
    /// carried out after the lock is released, since they call back into it: a commit that is answered at once ends in
    /// another `act`.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        let Some(me) = self.me.upgrade() else { return act(&mut self.inner.lock()) };
        let mut inner = self.inner.lock();
        let result = act(&mut inner);
        let mut ready = false;
        let mut after = Vec::new();
        let (traced, mut noted) = (self.trace().is_on(), Vec::new());
        while let Some(effect) = inner.machine.next_effect() {
            match &effect {
                Effect::Deliver(handed) if traced => noted.extend(traces::handed(handed, inner.machine.segment())),
                Effect::Start(start) if traced => noted.push(traces::started(start)),
                Effect::Parked if traced => noted.push(Noted::Parked),
                _ => {}
            }
            match effect {
                Effect::Deliver(mut handed) => {
                    self.recall(&mut inner, &mut handed);
                    if handed.iter().any(needs_fetch) {
                        inner.fetching += 1;
                        after.push(After::Fetch(handed));
                    } else {
                        ready = true;
                        inner.effects.push_back(HostEffect::Deliver(handed));
                    }
                }
                Effect::Start(start) => {
                    let first = Tried::first(start.attempt);
                    ready |= me.start(&mut inner, start, first);
                }
                Effect::CancelTask(op) => {
                    ready = true;
                    inner.waiting.remove(&op);
                    if let Some(running) = inner.running.remove(&op) {
                        running.stop();
                    }
                    inner.effects.push_back(HostEffect::CancelTask(op));
                }
                Effect::Interrupt(op) => after.push(After::Interrupt(op)),
                Effect::Commit(draft) => {
                    let warnings = super::warnings::warnings(&draft.batch).map(HostEffect::Warn);
                    inner.effects.extend(warnings);
                    after.push(After::Commit(draft));
                }
                Effect::ArmHold => after.push(After::Hold),
                Effect::ArmDivergence(timer, patience) => {
                    after.push(After::Later(patience, Box::new(move |machine| machine.divergence_elapsed(timer))));
                }
                Effect::AskLater => after.push(After::Later(ASK_EVERY, Box::new(Machine::ask_again))),
                Effect::Ask => {
                    ready = true;
                    inner.effects.push_back(HostEffect::Ask);
                }
                Effect::Parked => {
                    inner.kept.clear();
                    inner.page = HashMap::new();
                    after.push(After::Parked);
                }
                Effect::WentOn => after.push(After::WentOn),
                Effect::Finished(status) => after.push(After::Close(Closed::Finished(status))),
                Effect::Stop(error) => after.push(After::Close(Closed::Lost(error))),
            }
        }
        drop(inner);
        self.tell(noted);
        if ready && let Some(port) = self.port.get() {
            port.ready(&me);
        }
        for next in after {
            me.carry_out(next);
        }
        result
    }

    fn carry_out(self: &Arc<Self>, next: After) {
        let me = self.clone();
        match next {
            After::Commit(draft) => {
                // The commit is polled once on this thread. A backend that can answer at once does so here, which saves
                // the host a wake-up. Otherwise the commit goes on in the background.
                let mut commit = Box::pin(async move { me.commit(*draft).await });
                let _entered = self.runtime.enter();
                if commit.as_mut().now_or_never().is_none() {
                    self.runtime.spawn(commit);
                }
            }
            After::Fetch(handed) => {
                self.runtime.spawn(async move { me.fetch(handed).await });
            }
            After::Interrupt(op) => self.interrupt(op),
            After::Hold => {
                if let Some(keeper) = self.keeper.get() {
                    keeper.arm_hold(self);
                }
            }
            After::Later(wait, act) => {
                let me = Arc::downgrade(self);
                self.runtime.spawn(async move {
                    tokio::time::sleep(wait).await;
                    if let Some(me) = me.upgrade() {
                        me.with(act);
                    }
                });
            }
            After::Parked => {
                {
                    let mut inner = self.inner.lock();
                    inner.machine.shrink();
                    if inner.machine.ops() >= LARGE {
                        self.runtime.spawn_blocking(heap::give_back);
                    }
                    inner.effects.shrink_to_fit();
                    inner.running.shrink_to_fit();
                    inner.recent.shrink_to_fit();
                }
                if let Some(keeper) = self.keeper.get() {
                    keeper.parked(self);
                }
            }
            After::WentOn => {
                if let Some(keeper) = self.keeper.get() {
                    keeper.went_on(self);
                }
            }
            After::Close(why) => self.close(why),
        }
    }

    async fn commit(self: Arc<Self>, mut draft: CommitDraft) {
        if let BatchEnd::Suspend(wait) = &mut draft.batch.end {
            wait.parked = self.keeper.get().is_some_and(|keeper| keeper.parks());
        }
        let entries: Vec<_> = draft
            .batch
            .ops
            .iter()
            .filter_map(|op| match &op.body {
                OpBody::Entry(entry) => Some(entry.id),
                _ => None,
            })
            .collect();
        let labels: Vec<u8> = draft.batch.ops.iter().flat_map(|op| op.sequence.to_le_bytes()).collect();
        let request = CommitRequest {
            org: self.org,
            execution: self.execution,
            lease: self.lease(),
            request_id: RequestId::fresh(),
            digest: Digest::of_parts(&[
                &draft.base.to_le_bytes(),
                &labels,
                &(draft.batch.attempts.len() as u64).to_le_bytes(),
            ]),
            base: draft.base,
            known: draft.known,
            batch: draft.batch,
            refused: Vec::new(),
            local: LocalRun::of(&self.claimed),
        };
        let mut request = match self.deferred.take(request, self.storage.clock().now()) {
            Taken::Held(answer) => {
                self.with(|machine| machine.answered(Ok(*answer)));
                return self.refresh_if_hinted();
            }
            Taken::Written(request) => *request,
        };
        match self.write_held().await {
            Ok(None) => {}
            Ok(Some(CaughtUp { answer, .. })) if matches!(answer.committed, Committed::Finished(_)) => {
                return self.with(|machine| machine.answered(Ok(answer)));
            }
            Ok(Some(CaughtUp { news: true, .. })) => {}
            Ok(Some(CaughtUp { answer, .. })) => request.known = request.known.max(answer.high),
            Err(error) => return self.with(|machine| machine.answered(Err(error))),
        }
        let keeper = self.keeper.get();
        let wanted = keeper.and_then(|keeper| Some((keeper, keeper.wants(self.execution, &request.batch)?)));
        let mut answer = match wanted {
            None => self.until_available(|| self.storage.commit(request.clone())).await,
            Some((keeper, wanted)) => {
                let ask = || self.storage.commit_and_claim(request.clone(), &wanted);
                let (answer, tasks) = match self.until_available(ask).await {
                    Ok((answer, tasks)) => (Ok(answer), tasks),
                    Err(error) => (Err(error), Vec::new()),
                };
                keeper.bring(&wanted, tasks);
                answer
            }
        };
        if let Ok(answer) = &mut answer {
            let mut inner = self.inner.lock();
            for entry in &entries {
                inner.recent.remove(entry);
            }
            inner.kept = answer.facts.iter_mut().filter_map(let_go).collect();
        }
        self.with(|machine| machine.answered(answer));
        self.refresh_if_hinted();
    }

    /// Fills outcomes whose values are only named: from the values of the last commit and from the page of the tail,
    /// both in memory. Makes blobs readable. What is left has to be fetched.
    fn recall(&self, inner: &mut Inner, handed: &mut [Handed]) {
        for one in handed {
            let Some(payload) = one.outcome.payload_mut() else { continue };
            if let Some(bytes) = payload.row().and_then(|row| inner.page.remove(&row)) {
                payload.body = Body::Inline(bytes);
                continue;
            }
            if let Some(blob) = blob(&self.storage, self.org, payload) {
                *payload = blob;
                continue;
            }
            match payload.stored().and_then(|(hash, _)| inner.kept.get(&hash)) {
                Some(Content::Memory(bytes)) => payload.body = Body::Inline(bytes.clone()),
                Some(Content::Source(source)) if source.host_value().is_some() => {
                    payload.body = Body::Source(source.clone());
                }
                _ => {}
            }
        }
    }

    /// Fetches the values of outcomes from the store before they are handed over.
    async fn fetch(self: Arc<Self>, mut handed: Vec<Handed>) {
        if let Err(error) = self.turn_page(&handed).await {
            return self.close(Closed::Lost(error));
        }
        self.recall(&mut self.inner.lock(), &mut handed);
        for one in &mut handed {
            if let Some(payload) = one.outcome.payload_mut() {
                match self.load(payload).await {
                    Ok(loaded) => *payload = loaded,
                    Err(error) => return self.close(Closed::Lost(error)),
                }
            }
        }
        {
            let mut inner = self.inner.lock();
            inner.fetching -= 1;
            inner.effects.push_back(HostEffect::Deliver(handed));
        }
        if let Some(port) = self.port.get() {
            port.ready(&self);
        }
    }

    /// Reads the values of these outcomes that are still in their rows, and with them those that replay hands over
    /// next: one call for a page of them (rule 14).
    async fn turn_page(&self, handed: &[Handed]) -> Result<()> {
        let mut rows: Vec<RowOf> = handed.iter().filter_map(|one| one.outcome.payload()?.row()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        rows.extend(self.inner.lock().machine.upcoming(PAGE.saturating_sub(rows.len())));
        let values = self.until_available(|| self.storage.read_rows(self.org, &rows)).await?;
        self.inner.lock().page = rows.into_iter().zip(values).collect();
        Ok(())
    }

    /// Asks again while the store is unavailable, until it answers or the session is closed.
    pub(super) async fn until_available<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        until_available(self.storage.hints().outage(), &self.execution, || !self.is_closed(), ask).await
    }

    /// Loads a payload into memory, the host's own if the host has some for it (see [`fetch`]). An unavailable store is
    /// asked again.
    pub async fn load(&self, payload: &Payload) -> Result<Payload> {
        self.until_available(async || {
            let room = match &payload.body {
                Body::Stored { .. } => self.port.get().and_then(|port| port.room(payload)),
                _ => None,
            };
            match room {
                Some(room) => fill(&*self.storage, self.org, payload, room).await,
                None => fetch(&self.storage, self.org, payload).await,
            }
        })
        .await
    }

    /// Somebody else has written facts of this run up to this number, or at all (`u64::MAX`).
    pub(crate) fn hinted(&self, high: u64) {
        {
            let mut inner = self.inner.lock();
            inner.hinted = inner.hinted.max(high);
        }
        self.refresh_if_hinted();
    }

    /// Reads new facts if a hint named some that are not known. While a commit is on its way nothing is read, since its
    /// answer brings them; its end calls this again.
    pub(super) fn refresh_if_hinted(&self) {
        let Some(me) = self.me.upgrade() else { return };
        {
            let mut inner = self.inner.lock();
            // A parked copy goes on by a claim, which brings the facts.
            let waits = inner.machine.is_committing() || inner.machine.is_parked();
            if inner.refreshing || waits || inner.hinted <= inner.machine.known() || self.is_closed() {
                return;
            }
            inner.refreshing = true;
        }
        self.runtime.spawn(async move { me.refresh().await });
    }

    async fn refresh(self: Arc<Self>) {
        let known = self.known();
        let facts = self.storage.facts_after(self.org, self.execution, known).await;
        let mut inner = self.inner.lock();
        inner.refreshing = false;
        let parked = inner.machine.is_parked();
        if let Ok((_, high, _)) = &facts {
            // A hint without a number is satisfied by this answer. A numbered one stays: this answer may be older than
            // it.
            inner.hinted = if inner.hinted == u64::MAX { *high } else { inner.hinted };
        }
        drop(inner);
        match facts {
            // It may have parked meanwhile. Then the claim that wakes it brings the facts.
            Ok((facts, high, purse)) if !parked => self.with(|machine| machine.facts(facts, high, purse)),
            Ok(_) => {}
            Err(error) if error.code() == Code::StorageUnavailable => {}
            Err(error) => tracing::warn!(execution = %self.execution, %error, "news of a run could not be read"),
        }
    }
}

/// An effect that is carried out after the lock is released.
enum After {
    Commit(Box<CommitDraft>),
    Fetch(Vec<Handed>),
    Interrupt(OpRef),
    Hold,
    Later(Duration, Box<dyn FnOnce(&mut Machine) + Send>),
    Parked,
    WentOn,
    Close(Closed),
}

/// Takes the bytes that a fact's value holds in memory, so that the machine has only the name of the value.
fn let_go(fact: &mut Fact) -> Option<(ContentHash, Content)> {
    match &mut fact.kind {
        FactKind::Task { result: Ok(value), .. } => value.let_go(),
        _ => None,
    }
}

fn needs_fetch(handed: &Handed) -> bool {
    handed.outcome.payload().is_some_and(|value| matches!(value.body, Body::Stored { .. } | Body::Row { .. }))
}
