//! What the machine knows of the run, beyond its current segment.

use super::account::Account;
use super::effect::Outcome;
use super::open::Open;
use crate::clock::Timestamp;
use crate::id::{ExecutionId, TaskId};
use crate::model::{Cancellation, Execution, Fact, Failure, ForkPoint, OnceResult, RecordedOp, Signal};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The run, by what the store has told this copy and what the copy's code has done.
#[derive(Debug)]
pub(super) struct RunState {
    pub execution: ExecutionId,
    /// The queue on which its workers poll.
    pub queue: String,
    pub forked_from: Option<ForkPoint>,
    /// The number of the last commit.
    pub base: u64,
    /// The highest number of a fact that the store has told.
    pub known: u64,
    /// How many facts were applied so far. The count at a fact is its place, by which outcomes are ordered.
    pub order: u64,
    /// When each fact was stored. The fact at place 1 comes first.
    pub times: Vec<Timestamp>,
    /// The store's time of the last outcome handed over.
    pub time: Timestamp,
    /// Signals that nobody has taken, with their places among the facts.
    pub mailbox: VecDeque<(u64, Signal)>,
    /// The results of tasks, also of earlier segments: an `attach` may join one after its end.
    pub task_results: HashMap<TaskId, (u64, Outcome)>,
    pub stop: Stop,
    /// The number of the next op inside each `once`.
    pub once_next: HashMap<Arc<str>, u32>,
    /// The results of finished `once`s.
    pub once_done: HashMap<Arc<str>, OnceResult>,
    pub account: Account,
    pub open: Open,
    pub first_call: FirstCall,
    /// The claim before this one was lost without a commit, and this claim has made no commit yet.
    pub was_lost: bool,
    /// A person has allowed this code to go on with what other code has recorded.
    pub divergence_allowed: bool,
    /// The recorded ops of later segments, where the checkpoints of these are damaged. They are replayed after the
    /// current one.
    pub ahead: BTreeMap<u32, Vec<RecordedOp>>,
    /// All facts that came while there are such segments: each of them applies the facts anew.
    pub ahead_facts: Vec<Fact>,
}

/// Whether the run was asked to stop, and whether its code knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    /// Nobody has asked for it.
    NotRequested,
    /// The fact at this place asked for it, and the code has not been told.
    Requested(u64, Cancellation),
    /// The code knows: its awaits ended with `Cancelled`, or it has read that it shall stop.
    Delivered(Cancellation),
}

/// What the first call of this copy was. It tells whether an agent with state does work before its loop.
#[derive(Debug)]
pub(super) enum FirstCall {
    /// There was none yet.
    Expected,
    /// The call that the segment starts with, or one that nothing is wrong with.
    Fine,
    /// Another call than the segment starts with. If it turns out to be work before the agent's loop, the run fails.
    Suspect {
        /// It has a twin further on. It may be the call of a branch that came early.
        has_twin: bool,
        /// What the run fails with.
        failure: Box<Failure>,
    },
}

impl RunState {
    /// The state of a run as its row has it. Facts and recorded ops are added later.
    pub(super) fn new(execution: &Execution, known: u64, time: Timestamp, once: Vec<OnceResult>) -> Self {
        Self {
            execution: execution.new.id,
            queue: execution.new.queue.clone(),
            forked_from: execution.forked_from,
            base: execution.base,
            known,
            order: 0,
            times: Vec::new(),
            time,
            mailbox: VecDeque::new(),
            task_results: HashMap::new(),
            stop: Stop::NotRequested,
            once_next: HashMap::new(),
            once_done: once.into_iter().map(|once| (once.name.clone(), once)).collect(),
            account: Account::of(execution),
            open: Open::default(),
            first_call: FirstCall::Expected,
            was_lost: execution.losses > 0,
            divergence_allowed: false,
            ahead: BTreeMap::new(),
            ahead_facts: Vec::new(),
        }
    }

    /// Frees memory that only an advancing run needs.
    pub(super) fn shrink(&mut self) {
        self.times.shrink_to_fit();
        self.mailbox.shrink_to_fit();
    }
}

impl Stop {
    /// Notes a request to stop. Only the first one counts.
    pub(super) fn request(&mut self, order: u64, cancellation: Cancellation) {
        if matches!(self, Self::NotRequested) {
            *self = Self::Requested(order, cancellation);
        }
    }

    /// Notes that the code knows of the request.
    pub(super) fn deliver(&mut self) {
        if let Self::Requested(_, cancellation) = *self {
            *self = Self::Delivered(cancellation);
        }
    }

    /// Whether the run was asked to stop.
    pub(super) fn is_requested(&self) -> bool {
        !matches!(self, Self::NotRequested)
    }

    /// Whether its code knows.
    pub(super) fn is_delivered(&self) -> bool {
        matches!(self, Self::Delivered(_))
    }

    /// The place among the facts of a request that the code does not know of.
    pub(super) fn undelivered(&self) -> Option<u64> {
        match self {
            Self::Requested(order, _) => Some(*order),
            _ => None,
        }
    }

    /// How the run shall stop, if it was asked to.
    pub(super) fn cancellation(&self) -> Option<Cancellation> {
        match self {
            Self::NotRequested => None,
            Self::Requested(_, cancellation) | Self::Delivered(cancellation) => Some(*cancellation),
        }
    }
}

impl FirstCall {
    /// Notes a call. True if it is the first.
    pub(super) fn make(&mut self) -> bool {
        let is_first = matches!(self, Self::Expected);
        if is_first {
            *self = Self::Fine;
        }
        is_first
    }

    /// Takes the failure of a suspect first call, which is suspect no longer. With `unmatched` only of a call that has
    /// no twin.
    pub(super) fn clear(&mut self, unmatched: bool) -> Option<Box<Failure>> {
        if matches!(self, Self::Suspect { has_twin: true, .. }) && unmatched {
            return None;
        }
        match std::mem::replace(self, Self::Fine) {
            Self::Suspect { failure, .. } => Some(failure),
            other => {
                *self = other;
                None
            }
        }
    }
}
