//! What the machine knows of the run beyond the segment that it is in.

use super::account::Account;
use super::effect::Outcome;
use super::open::Open;
use crate::clock::Timestamp;
use crate::id::{ExecutionId, TaskId};
use crate::model::{Cancellation, Execution, Fact, Failure, ForkPoint, OnceResult, RecordedOp, Signal};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The run, as far as the store has told and the code has come in this life.
#[derive(Debug)]
pub(super) struct RunState {
    pub execution: ExecutionId,
    pub forked_from: Option<ForkPoint>,
    /// The number of the last commit.
    pub base: u64,
    /// The highest number of a fact that the store has told.
    pub known: u64,
    /// Facts applied so far: the order of outcomes.
    pub order: u64,
    /// When each fact was stored, by its order (from 1).
    pub times: Vec<Timestamp>,
    /// The store's time of the last outcome handed over.
    pub time: Timestamp,
    /// Signals that nobody has taken, with their places among the facts.
    pub mailbox: VecDeque<(u64, Signal)>,
    pub task_results: HashMap<TaskId, (u64, Outcome)>,
    pub stop: Stop,
    /// The number of the next op inside each `once`.
    pub once_next: HashMap<Arc<str>, u32>,
    pub once_done: HashMap<Arc<str>, OnceResult>,
    pub account: Account,
    pub open: Open,
    pub first_call: FirstCall,
    /// The claim before this one was lost without a commit, and this one has made none yet.
    pub was_lost: bool,
    /// A person has said that this code may go on with what another has recorded.
    pub divergence_allowed: bool,
    /// Recorded ops of segments whose own checkpoint is damaged: they follow the present one.
    pub ahead: BTreeMap<u32, Vec<RecordedOp>>,
    /// What is known, for those.
    pub ahead_facts: Vec<Fact>,
}

/// Whether the run shall stop, and whether its code knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    /// Nobody has asked for it.
    Unasked,
    /// It was asked to, by the fact at this place, and no branch was told.
    Asked(u64, Cancellation),
    /// Every branch was told, or asked itself.
    Told(Cancellation),
}

/// What the first call of this life was.
#[derive(Debug)]
pub(super) enum FirstCall {
    /// It is to come.
    Expected,
    /// The first one of the segment, or one that nothing is wrong with.
    Fine,
    /// Another one than the segment starts with. If it turns out to be work before the agent's loop, the run ends.
    Suspect {
        /// It has a twin further on, as the call of a branch may that came early.
        has_twin: bool,
        /// What the run ends with.
        failure: Box<Failure>,
    },
}

impl RunState {
    /// The run of a row, of which everything else is to be told.
    pub fn new(execution: &Execution, known: u64, time: Timestamp, once: Vec<OnceResult>) -> Self {
        Self {
            execution: execution.new.id,
            forked_from: execution.forked_from,
            base: execution.base,
            known,
            order: 0,
            times: Vec::new(),
            time,
            mailbox: VecDeque::new(),
            task_results: HashMap::new(),
            stop: Stop::Unasked,
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

    /// Gives back the room that only a run that advances needs.
    pub fn shrink(&mut self) {
        self.times.shrink_to_fit();
        self.mailbox.shrink_to_fit();
    }
}

impl Stop {
    /// The request counts from the first on.
    pub fn ask(&mut self, order: u64, cancellation: Cancellation) {
        if matches!(self, Self::Unasked) {
            *self = Self::Asked(order, cancellation);
        }
    }

    /// The code learns of it.
    pub fn tell(&mut self) {
        if let Self::Asked(_, cancellation) = *self {
            *self = Self::Told(cancellation);
        }
    }

    /// Whether the run was asked to stop.
    pub fn is_asked(&self) -> bool {
        !matches!(self, Self::Unasked)
    }

    /// Whether its code knows.
    pub fn is_told(&self) -> bool {
        matches!(self, Self::Told(_))
    }

    /// The place of a request that the code does not know of.
    pub fn untold(&self) -> Option<u64> {
        match self {
            Self::Asked(order, _) => Some(*order),
            _ => None,
        }
    }

    /// How it shall stop.
    pub fn cancellation(&self) -> Option<Cancellation> {
        match self {
            Self::Unasked => None,
            Self::Asked(_, cancellation) | Self::Told(cancellation) => Some(*cancellation),
        }
    }
}

impl FirstCall {
    /// A call is made; tells whether it is the first.
    pub fn make(&mut self) -> bool {
        let is_first = matches!(self, Self::Expected);
        if is_first {
            *self = Self::Fine;
        }
        is_first
    }

    /// Suspects it no longer: what the run was to end with. `unmatched` asks for a call that has no twin anywhere.
    pub fn clear(&mut self, unmatched: bool) -> Option<Box<Failure>> {
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
