//! The commits of a run whose journal is not kept: they are answered here, in memory, until somebody else depends on one
//! of them. Then all of them reach the store in their order, and every later one does.
//!
//! What others depend on is what leaves the process: a wait (the store has to wake the run), a child, a message, a task for
//! other workers, an attempt that must not be made twice. So whoever has heard of the run finds it as it was when it spoke,
//! and a run that has told nobody anything begins anew after a crash. Its end writes what it has used, and nothing else.

use super::Session;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::TaskId;
use crate::model::{
    AttemptResult, Batch, BatchEnd, CommitAnswer, CommitRequest, Committed, Fact, FactKind, LabelKey, NewOp, NewTask,
    OpBody, Placement, Segment, SideEffects, UNDONE, Usage,
};
use crate::payload::{Body, Payload};
use crate::sync::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The commits of a run that the store has not got.
pub(super) struct Deferred {
    /// None once the run is written as it goes.
    held: Mutex<Option<Held>>,
    /// Only one writes them.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    commits: VecDeque<CommitRequest>,
    /// The tasks of their ops, by place.
    tasks: HashMap<(u32, u32), TaskId>,
    /// How many steps the run may still make before the store pauses it.
    steps: Option<u32>,
    /// How many ops the segment may still have before the store pauses the run.
    room: usize,
    /// Whether the segment has no state before it.
    stateless: bool,
    /// The first sequence that the store has not given away.
    free: u32,
    /// Nothing more is held: all is being written.
    closed: bool,
}

/// What becomes of a commit.
pub(super) enum Taken {
    /// It is held, and this is its answer.
    Held(Box<CommitAnswer>),
    /// It goes to the store, after those that are held.
    Written(Box<CommitRequest>),
}

impl Deferred {
    /// For a run that was claimed with this segment. A run of which the store has a journal goes on with it, and one with a
    /// budget is written, since what it has spent must outlive it.
    pub(super) fn of(segment: &Segment) -> Self {
        let run = &segment.execution;
        let spends = run.purse.is_some() || run.new.limits.budget.is_some();
        let is_new = segment.checkpoint.is_none() && run.forked_from.is_none() && segment.once.is_empty();
        let begins = is_new && segment.tail.iter().all(|op| op.is_undone());
        let held = (!run.new.persistence.keeps_journal() && begins && !spends).then(|| Held {
            steps: run.step_limit.map(|limit| limit.saturating_sub(run.step_count)),
            room: (run.tail_limit as usize).saturating_sub(segment.tail.len()),
            stateless: true,
            free: segment.tail.last().map_or(0, |op| op.sequence + 1),
            ..Held::default()
        });
        Self { held: Mutex::new(held), writing: tokio::sync::Mutex::default() }
    }

    /// Whether the store lacks commits of the run.
    pub(super) fn is_behind(&self) -> bool {
        self.held.lock().as_ref().is_some_and(|held| !held.commits.is_empty())
    }

    /// From now on every commit reaches the store.
    pub(super) fn stop(&self) {
        if let Some(held) = &mut *self.held.lock() {
            held.closed = true;
        }
    }

    /// Takes a commit.
    pub(super) fn take(&self, request: CommitRequest, now: Timestamp) -> Taken {
        let mut held = self.held.lock();
        let Some(holding) = held.as_mut().filter(|held| !held.closed) else { return Taken::Written(Box::new(request)) };
        if request.batch.end.is_terminal() && !holding.reaches_out(&request) {
            let request = holding.squash(request);
            *held = None;
            return Taken::Written(Box::new(request));
        }
        match holding.answer(&request, now) {
            Some(answer) => Taken::Held(Box::new(answer)),
            None => {
                holding.closed = true;
                Taken::Written(Box::new(request))
            }
        }
    }
}

impl Held {
    /// Holds a commit and answers it as the store would. None if the store has to answer it.
    fn answer(&mut self, request: &CommitRequest, now: Timestamp) -> Option<CommitAnswer> {
        let batch = &request.batch;
        let ends = matches!(batch.end, BatchEnd::Continue | BatchEnd::Checkpoint(_));
        if !ends || self.reaches_out(request) || self.is_over(request) {
            return None;
        }
        let mut request = request.clone();
        for op in &request.batch.ops {
            if let OpBody::Task(task) = &op.body {
                self.tasks.insert((request.batch.segment, op.sequence), task.id);
            }
        }
        let mut facts = Vec::new();
        for report in &mut request.batch.attempts {
            // The code learns of the end now: after a crash it learns of it at the same time.
            report.ended_at = Some(now);
            let AttemptResult::Completed(output) = &report.result else { return None };
            let task = *self.tasks.get(&(request.batch.segment, report.sequence))?;
            let kind = FactKind::Task { task, result: Ok(output.clone()) };
            // The store has not numbered it. The machine takes the end of a task by whatever number.
            facts.push(Fact { number: request.known, at: now, kind });
        }
        self.steps = self.steps.map(|left| left.saturating_sub(steps(&request)));
        self.room = self.room.saturating_sub(request.batch.ops.len());
        if matches!(request.batch.end, BatchEnd::Checkpoint(_)) {
            self.stateless = false;
        }
        let answer = CommitAnswer {
            number: request.base + 1,
            committed: Committed::Continue,
            facts,
            high: request.known,
            now,
            cancel: None,
            paused: None,
            purse: None,
        };
        self.commits.push_back(request);
        Some(answer)
    }

    /// Whether the store might pause the run by this commit.
    fn is_over(&self, request: &CommitRequest) -> bool {
        let long = self.stateless && request.batch.ops.len() >= self.room;
        long || self.steps.is_some_and(|left| steps(request) > left)
    }

    /// Whether something outside of the process depends on this commit, or could not be held as it is.
    fn reaches_out(&self, request: &CommitRequest) -> bool {
        let batch = &request.batch;
        let op = |op: &NewOp| match &op.body {
            OpBody::Entry(entry) => is_loose(&entry.content),
            OpBody::Task(task) => must_be_written(task),
            OpBody::Read { answer: value, .. } | OpBody::Once { value, .. } => is_loose(value),
            OpBody::Abandon { .. } | OpBody::Usage { .. } | OpBody::StepMark | OpBody::Flush => false,
            OpBody::Signal { timeout } => timeout.is_some(),
            OpBody::Timer { .. } | OpBody::Attach { .. } | OpBody::Child(_) | OpBody::Send(_) => true,
        };
        let attempt = |result: &AttemptResult| match result {
            AttemptResult::Completed(output) => is_loose(output),
            _ => true,
        };
        batch.draw.is_some()
            || !batch.restarted.is_empty()
            || batch.ops.iter().any(op)
            || batch.attempts.iter().any(|report| report.attempt != 1 || attempt(&report.result))
            || matches!(&batch.end, BatchEnd::Checkpoint(saved) if is_loose(&saved.state))
    }

    /// The end of a run of which nothing is kept: it says what the run has used, by model.
    fn squash(&mut self, mut last: CommitRequest) -> CommitRequest {
        let commits = std::mem::take(&mut self.commits);
        let first = commits.front().unwrap_or(&last);
        let (base, segment) = (first.base, first.batch.segment);
        let mut used: BTreeMap<String, (NewOp, Usage)> = BTreeMap::new();
        let ops = commits.into_iter().flat_map(|commit| commit.batch.ops).chain(std::mem::take(&mut last.batch.ops));
        for op in ops {
            let OpBody::Usage { model, usage } = &op.body else { continue };
            match used.get_mut(model) {
                Some((_, sum)) => sum.add(usage),
                None => drop(used.insert(model.clone(), (op.clone(), usage.clone()))),
            }
        }
        let places = self.free..;
        let op = |(sequence, (mut op, usage)): (u32, (NewOp, Usage))| {
            let OpBody::Usage { model, .. } = op.body else { return op };
            op.body = OpBody::Usage { model, usage };
            // A run that is tried again begins anew, and does not look for it.
            (op.sequence, op.label.key, op.once, op.seen) = (sequence, LabelKey::Key(UNDONE.into()), None, Vec::new());
            op
        };
        let ops = places.zip(used.into_values()).map(op).collect();
        let Batch { code, mut events, end, .. } = last.batch;
        events.retain(|event| event.sequence.is_none());
        let batch = Batch { code, events, ..Batch::new(segment, ops, end) };
        CommitRequest { base, batch, ..last }
    }
}

/// The store has all that was held.
pub(super) struct CaughtUp {
    /// The answer to the last of it.
    pub answer: CommitAnswer,
    /// Whether it tells of what others did.
    pub news: bool,
}

impl Session {
    /// Writes the commits that are held, if any, in their order. Returns the last answer, which may be that the run is paused.
    pub(super) async fn write_held(&self) -> Result<Option<CaughtUp>> {
        let _turn = self.deferred.writing.lock().await;
        self.deferred.stop();
        let own: HashSet<TaskId> =
            self.deferred.held.lock().iter().flat_map(|held| held.tasks.values().copied()).collect();
        let is_own = |fact: &Fact| matches!(fact.kind, FactKind::Task { task, .. } if own.contains(&task));
        let mut caught_up = None;
        let next = || self.deferred.held.lock().as_ref().and_then(|held| held.commits.front().cloned());
        while let Some(request) = next() {
            let answer = self.until_available(|| self.storage.commit(request.clone())).await?;
            {
                let mut inner = self.inner.lock();
                for op in &request.batch.ops {
                    if let OpBody::Entry(entry) = &op.body {
                        inner.recent.remove(&entry.id);
                    }
                }
            }
            if let Some(held) = &mut *self.deferred.held.lock() {
                held.commits.pop_front();
            }
            let is_over = matches!(answer.committed, Committed::Finished(_));
            caught_up = Some(CaughtUp { news: !answer.facts.iter().all(is_own), answer });
            if is_over {
                break;
            }
        }
        *self.deferred.held.lock() = None;
        Ok(caught_up)
    }
}

fn steps(request: &CommitRequest) -> u32 {
    let steps = request.batch.ops.iter().filter(|op| matches!(op.body, OpBody::StepMark)).count();
    u32::try_from(steps).unwrap_or(u32::MAX)
}

fn must_be_written(task: &NewTask) -> bool {
    let elsewhere = task.placement == Placement::Queue || task.options.detached;
    elsewhere || task.options.side_effects != SideEffects::Idempotent || is_loose(&task.input)
}

/// Whether a value may change while it is held: a file of the caller's.
fn is_loose(value: &Payload) -> bool {
    matches!(&value.body, Body::Source(source) if source.host_value().is_none())
}
