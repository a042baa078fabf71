//! The state of a copy of a run, in two independent parts: what its code does, and what the copy holds in the store.
//!
//! They are independent because the code can go on, save a checkpoint or end while the run is WAITING in the store.

use super::effect::Ending;
use crate::model::{NewCheckpoint, Wait};

/// What the code does. The script tells whether it still repeats what is recorded.
#[derive(Debug)]
pub(super) enum Phase {
    /// It runs, or waits for an outcome.
    Running,
    /// It has asked for a checkpoint, which is kept here until the commit with it is sent.
    Saving(Option<Box<NewCheckpoint>>),
    /// It has ended or will be paused, and that is not durable yet.
    Ending(Box<Ending>),
    /// The copy is done: it takes no more calls and commits nothing more.
    Over,
}

/// What the copy holds in the store.
#[derive(Debug)]
pub(super) enum Standing {
    /// The run: it may commit.
    Advancing,
    /// Nothing. Its last commit made the run WAITING, for this.
    Waiting(Box<Wait>),
    /// The run, by a new claim. The facts that woke it have not come yet.
    Claimed,
}

impl Phase {
    /// The code ends for this reason. A checkpoint that it was saving is dropped.
    pub(super) fn end(&mut self, ending: Ending) {
        *self = Self::Ending(Box::new(ending));
    }

    /// Whether a checkpoint was asked for and is not durable yet.
    pub(super) fn is_saving(&self) -> bool {
        matches!(self, Self::Saving(_))
    }

    /// Whether the code has ended, durably or not.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Self::Ending(_))
    }

    /// Whether the copy is done.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }
}

impl Standing {
    /// Whether the run waits in the store.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }
}
